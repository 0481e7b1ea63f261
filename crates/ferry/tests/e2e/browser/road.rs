//! The browser's way to the cluster, from a network of its own.
//!
//! With every pod that comes or goes a node has other addresses, and Chromium then closes all connections that it has. A
//! browser on another machine would not. And this way can be cut.

use std::io::copy;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use ferry_testkit::network::Namespaces;

const NODE: &str = "node";

pub struct Road {
    network: Namespaces,
    listener: TcpListener,
    traffic: Arc<Traffic>,
}

#[derive(Default)]
struct Traffic {
    cut: AtomicBool,
    open: Mutex<Vec<TcpStream>>,
}

impl Road {
    /// `port` of the loopback there leads to the same of the loopback here.
    pub fn to(port: u16) -> Self {
        let Some(network) = Namespaces::with_node("b") else {
            ferry_testkit::cannot_run("there are no network namespaces")
        };
        let listener = network.within(NODE, move || TcpListener::bind(("127.0.0.1", port)).unwrap());
        let traffic = Arc::<Traffic>::default();
        let (accepting, shared) = (listener.try_clone().unwrap(), traffic.clone());
        std::thread::spawn(move || {
            // It ends with the listener.
            while let Ok((near, _)) = accepting.accept() {
                if !shared.cut.load(Ordering::SeqCst)
                    && let Ok(far) = TcpStream::connect(("127.0.0.1", port))
                {
                    shared.carry(near, far);
                }
            }
        });
        Self { network, listener, traffic }
    }

    /// How a program is started there.
    pub fn command(&self, program: &str) -> Vec<String> {
        self.network.command(NODE, program)
    }

    /// Ends all connections, and lets none be made.
    pub fn cut(&self) {
        self.traffic.cut.store(true, Ordering::SeqCst);
        self.traffic.close();
    }

    pub fn mend(&self) {
        self.traffic.cut.store(false, Ordering::SeqCst);
    }
}

impl Traffic {
    fn carry(&self, near: TcpStream, far: TcpStream) {
        let mut open = self.open.lock().unwrap();
        for (from, to) in [(&near, &far), (&far, &near)] {
            let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
            std::thread::spawn(move || {
                let _ = copy(&mut from, &mut to);
                let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
            });
        }
        open.extend([near, far]);
    }

    fn close(&self) {
        for stream in self.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Road {
    fn drop(&mut self) {
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
        self.traffic.close();
    }
}
