//! Ports for the servers of tests.

use std::net::{TcpListener, UdpSocket};
use std::ops::Range;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, Ordering};

/// Below the ports that the kernel gives to whoever asks for any: a server that is killed and comes back finds its own free.
/// Below those of NodePort Services, too.
const RANGE: Range<u16> = 20_000..28_000;

/// What keeps the ports of this process: a name that one process has at a time and that the kernel frees when the process ends.
static KEPT: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());

/// Where this process goes on. Processes begin at different places, so that they seldom meet.
static NEXT: AtomicU16 = AtomicU16::new(0);

/// A port at which nobody listens, for TCP and UDP, and which no other test on this machine gets before this process has ended.
///
/// # Panics
/// When all are taken.
pub fn free_port() -> u16 {
    let start = (std::process::id() as usize).wrapping_mul(101);
    for _ in RANGE {
        let step = usize::from(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = RANGE.start + u16::try_from((start + step) % RANGE.len()).expect("the range is one of ports");
        if keep(port) && is_free(port) {
            return port;
        }
    }
    panic!("none of the ports {RANGE:?} is free");
}

fn keep(port: u16) -> bool {
    let name = SocketAddr::from_abstract_name(format!("ferry-test-port-{port}")).expect("a short name");
    let kept = UnixListener::bind_addr(&name);
    kept.map(|kept| KEPT.lock().expect("no test panics while it holds this").push(kept)).is_ok()
}

fn is_free(port: u16) -> bool {
    // Of both families where there are two: servers of tests listen at all addresses, or at the loopback of one.
    let free = |host| TcpListener::bind((host, port)).is_ok() && UdpSocket::bind((host, port)).is_ok();
    free("0.0.0.0") && (free("::") || UdpSocket::bind("[::1]:0").is_err())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn nobody_gets_a_port_twice_or_one_that_is_in_use() {
        let first = free_port();
        let in_use: Vec<TcpListener> =
            (first + 1..first + 20).filter_map(|port| TcpListener::bind(("127.0.0.1", port)).ok()).collect();
        let threads = [(); 4].map(|()| std::thread::spawn(|| [(); 50].map(|()| free_port())));
        let mut ports: Vec<u16> = threads.into_iter().flat_map(|thread| thread.join().expect("ports")).collect();
        ports.push(first);
        let different: BTreeSet<u16> = ports.iter().copied().collect();
        assert_eq!(different.len(), ports.len(), "{ports:?}");
        for socket in in_use {
            let port = socket.local_addr().expect("an address").port();
            assert!(!different.contains(&port), "{port} is in use");
        }
        assert!(different.iter().all(|port| RANGE.contains(port) && !keep(*port)), "others can take {different:?}");
    }
}
