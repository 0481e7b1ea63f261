//! Clients that want nothing but to be in the way.

use std::io::Write;
use std::net::TcpStream;

use ferry_client::Api;
use k8s_openapi::api::core::v1::Namespace;

use crate::alone::{Apiserver, runtime};

const HALF_OPEN: usize = 4000;
/// How much each of them may cost the server.
const KILOBYTES_EACH: u64 = 32;

pub fn half_open_connections_keep_nobody_out() {
    let resource = rustix::process::Resource::Nofile;
    let limit = rustix::process::getrlimit(resource);
    rustix::process::setrlimit(resource, rustix::process::Rlimit { current: limit.maximum, ..limit }).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut server = Apiserver::start(folder.path(), &[]);
    runtime().block_on(async {
        server.client().await;
        let before = server.resident_kilobytes();
        let mut open = Vec::new();
        for number in 0..HALF_OPEN {
            let mut stream = TcpStream::connect(server.address()).unwrap();
            if number % 2 == 1 {
                // The first bytes of a handshake that never goes on; it may have been cut off already.
                let _ = stream.write_all(&[0x16, 0x03, 0x01, 0x02, 0x00, 0x01]);
            }
            open.push(stream);
        }
        // Each with a connection of its own.
        for _ in 0..3 {
            let namespaces: Api<Namespace> = Api::all(server.client().await);
            namespaces.get("default").await.unwrap();
        }
        let grown = server.resident_kilobytes().saturating_sub(before);
        assert!(grown < HALF_OPEN as u64 * KILOBYTES_EACH, "{grown} KiB for {HALF_OPEN} half-open connections");
        drop(open);
        server.client().await;
    });
}
