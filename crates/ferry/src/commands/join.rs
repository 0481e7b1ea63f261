//! `ferry join`: from an address and a token to a node that is Ready.

use std::ffi::OsString;

use anyhow::Result;
use ferry_cluster::fleet::join::{Hops, prepare, prepare_server, tell_running};

use crate::arguments::JoinOptions;
use crate::commands::up;

pub fn run(options: &JoinOptions) -> Result<()> {
    if options.server {
        return run_server(options);
    }
    let hops = Hops::new();
    if tell_running(options, &hops)? {
        return Ok(());
    }
    prepare(options, &hops)?;
    let node = crate::commands::node::configuration(&options.node)?.0;
    up::start_in_background(&node, &["node", "run"], flags(options))?;
    hops.done("the node is Ready");
    Ok(())
}

/// `ferry join --server`: `ferry run` does what is left.
fn run_server(options: &JoinOptions) -> Result<()> {
    let hops = Hops::new();
    let node = prepare_server(options, &hops)?;
    up::start_in_background(&node, &["run"], flags(options))?;
    hops.done("the server votes, and its node is Ready");
    Ok(())
}

/// What was given beside the address and the token: `ferry node run` and `ferry run` take the same flags.
fn flags(options: &JoinOptions) -> impl Iterator<Item = OsString> {
    let mut words = vec![OsString::from(&options.address), OsString::from(&options.token)];
    words.extend(options.server.then(|| OsString::from("--server")));
    std::env::args_os().skip(2).filter(move |word| match words.iter().position(|given| given == word) {
        Some(at) => {
            words.remove(at);
            false
        }
        None => true,
    })
}
