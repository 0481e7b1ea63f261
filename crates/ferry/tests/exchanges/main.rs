//! Plays the exchanges recorded from kube-apiserver v1.37 against `ferry apiserver` alone, the real binary.
//!
//! `testdata/README.md` says what an exchange is. It passes when code, content type, warnings and body of every answer agree.
//! Arguments that are not flags choose exchanges by a part of their name: `cargo test -p ferry --test exchanges -- watch-`.

#![expect(clippy::unwrap_used, reason = "a test: a missing value is a failure")]

mod compare;
mod play;
mod server;
mod step;
mod values;

use std::process::ExitCode;

use ferry_testkit::{Report, data};

/// Those that Ferry answers differently for now. One that agrees again fails until its name is removed here.
const DIFFER: &[&str] = &[];

fn main() -> ExitCode {
    let mut report = Report::from_arguments();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let exchanges = data::exchanges();
    let unknown: Vec<_> = DIFFER.iter().filter(|name| !exchanges.iter().any(|one| one.name == **name)).collect();
    assert!(unknown.is_empty(), "there are no such exchanges: {unknown:?}");
    let mut server = runtime.block_on(server::Server::start());
    // One after the other: some of them change what holds for the whole cluster.
    for exchange in exchanges.into_iter().filter(|one| report.wants(&one.name)).collect::<Vec<_>>() {
        let may_differ = DIFFER.contains(&exchange.name.as_str());
        report.attempt(&exchange.name.clone(), || {
            let differences = runtime.block_on(play::play(&server, exchange));
            server.assert_alive();
            match may_differ {
                true => assert!(!differences.is_empty(), "it agrees now: take it out of DIFFER"),
                false => assert!(differences.is_empty(), "{}", differences.join("\n")),
            }
        });
    }
    report.finish()
}
