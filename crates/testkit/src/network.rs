//! Network namespaces for tests that need a kernel: a node and what is around it.

use std::os::fd::AsFd;
use std::process::Command;
use std::sync::Mutex;
use std::thread::JoinHandle;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Namespaces whose names begin alike. They go with this value.
pub struct Namespaces {
    prefix: String,
    made: Mutex<Vec<String>>,
}

impl Namespaces {
    /// With the namespace `node` in it. None, and a record of why, where namespaces or packet rules cannot be made.
    pub fn with_node(tag: &str) -> Option<Self> {
        let namespaces = Self { prefix: format!("f{}{tag}", std::process::id()), made: Mutex::default() };
        let node = namespaces.name("node");
        for command in [&["nft", "--version"][..], &["ip", "netns", "add", &node]] {
            let output = Command::new(command[0]).args(&command[1..]).output();
            let problem = match &output {
                Ok(output) if output.status.success() => continue,
                Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
                Err(error) => error.to_string(),
            };
            crate::skip(&format!("packet rules cannot be tried: {}: {problem}", command.join(" ")));
            return None;
        }
        namespaces.remember(node);
        namespaces.inside("node", "ip link set lo up");
        Some(namespaces)
    }

    fn remember(&self, name: String) {
        self.made.lock().expect("no test panics with the lock").push(name);
    }

    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// As the kernel knows it.
    pub fn name(&self, namespace: &str) -> String {
        format!("{}-{}", self.prefix, namespace.replace('/', ""))
    }

    /// A new one, joined with the node by a pair of devices: `device` there, `eth0` here.
    pub fn add(&self, namespace: &str, device: &str) {
        let name = self.name(namespace);
        self.run(&format!("ip netns add {name}"));
        self.inside("node", &format!("ip link add {device} type veth peer name eth0 netns {name}"));
        self.remember(name);
    }

    /// Gives `eth0` its address and the way out.
    pub fn join(&self, namespace: &str, address: &str, gateway: &str) {
        self.inside(namespace, "ip link set lo up");
        self.inside(namespace, &format!("ip addr add {address} dev eth0"));
        self.inside(namespace, "ip link set eth0 up");
        self.inside(namespace, &format!("ip route add default via {gateway}"));
    }

    /// What the command says; it has to succeed.
    pub fn run(&self, line: &str) -> String {
        let mut words = line.split_whitespace();
        let output = Command::new(words.next().expect("a program")).args(words).output().expect("the command runs");
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    pub fn inside(&self, namespace: &str, line: &str) -> String {
        self.run(&format!("ip netns exec {} {line}", self.name(namespace)))
    }

    /// How a program is started in a namespace.
    pub fn command(&self, namespace: &str, program: &str) -> Vec<String> {
        ["ip", "netns", "exec", &self.name(namespace), program].map(str::to_owned).to_vec()
    }

    /// Runs on a thread of its own that stands in the namespace; sockets made there stay there.
    pub fn begin<T: Send + 'static>(
        &self,
        namespace: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let path = format!("/run/netns/{}", self.name(namespace));
        std::thread::spawn(move || {
            let file = std::fs::File::open(path).expect("the namespace");
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).expect("entering the namespace");
            work()
        })
    }

    pub fn within<T: Send + 'static>(&self, namespace: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
        self.begin(namespace, work).join().expect("work inside the namespace")
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in self.made.get_mut().map(std::mem::take).unwrap_or_default() {
            let _ = Command::new("ip").args(["netns", "del", &name]).status();
        }
    }
}
