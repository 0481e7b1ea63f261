//! The servers and members of a run, and what befalls them.

use std::sync::atomic::Ordering;
use std::time::Duration;

use rand::Rng;
use rand::rngs::StdRng;
use rustix::process::{Pid, Signal, kill_process};

use super::World;
use crate::alone::{Apiserver, Etcd};

#[derive(Clone, Copy, Debug)]
enum Fault {
    KillServer,
    StopServer,
    KillMember,
    StopMember,
}

pub struct Plane {
    folder: tempfile::TempDir,
    servers: Vec<Option<Apiserver>>,
    members: Vec<Etcd>,
}

fn signal(process: u32, signal: Signal) {
    let pid = Pid::from_raw(process.cast_signed()).expect("a process id");
    kill_process(pid, signal).expect("a signal");
}

async fn a_while(random: &mut StdRng) {
    tokio::time::sleep(Duration::from_millis(random.random_range(200..1200))).await;
}

impl Plane {
    /// Several servers on an etcd of three members.
    pub fn on_etcd(servers: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { folder, servers: (0..servers).map(|_| None).collect(), members: Etcd::cluster(3) }
    }

    pub fn on_the_embedded_store() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), servers: vec![None], members: Vec::new() }
    }

    /// Starts them all at once, as after a power cut.
    pub async fn start(&mut self) -> Vec<Option<kube::Client>> {
        for number in 0..self.servers.len() {
            self.servers[number] = Some(self.spawn(number));
        }
        let mut clients = Vec::new();
        for server in self.servers.iter_mut().flatten() {
            clients.push(Some(server.client().await));
        }
        clients
    }

    fn spawn(&self, number: usize) -> Apiserver {
        let urls: Vec<String> = self.members.iter().map(Etcd::url).collect();
        let (urls, address) = (urls.join(","), format!("192.0.2.{}", number + 1));
        let flags = ["--etcd-servers", &urls, "--advertise-address", &address];
        let flags = if self.members.is_empty() { &[][..] } else { &flags };
        Apiserver::start(&self.folder.path().join(number.to_string()), flags)
    }

    /// One thing after the other until the clients are done; at the end everything is as it was.
    pub async fn befall(mut self, world: &World, mut random: StdRng) -> Self {
        let all = [Fault::KillServer, Fault::StopServer, Fault::KillMember, Fault::StopMember];
        let possible = if self.members.is_empty() { &all[..2] } else { &all };
        let mut counts = [0; 4];
        let mut next = 0;
        while !world.done.load(Ordering::SeqCst) || next < possible.len() {
            // Each of them once, then as it comes.
            let fault = possible.get(next).copied().unwrap_or_else(|| possible[random.random_range(0..possible.len())]);
            next += 1;
            counts[fault as usize] += 1;
            a_while(&mut random).await;
            match fault {
                Fault::KillServer => {
                    let victim = random.random_range(0..self.servers.len());
                    self.servers[victim] = None;
                    world.clients.lock().unwrap()[victim] = None;
                    a_while(&mut random).await;
                    let mut server = self.spawn(victim);
                    let client = server.client().await;
                    self.servers[victim] = Some(server);
                    world.clients.lock().unwrap()[victim] = Some(client);
                }
                Fault::StopServer => {
                    let victim = random.random_range(0..self.servers.len());
                    let Some(process) = self.servers[victim].as_ref().map(Apiserver::id) else { continue };
                    signal(process, Signal::STOP);
                    a_while(&mut random).await;
                    signal(process, Signal::CONT);
                }
                Fault::KillMember => {
                    let victim = random.random_range(0..self.members.len());
                    self.members[victim].kill();
                    a_while(&mut random).await;
                    self.members[victim].start_again();
                }
                Fault::StopMember => {
                    let victim = &self.members[random.random_range(0..self.members.len())];
                    signal(victim.id(), Signal::STOP);
                    a_while(&mut random).await;
                    signal(victim.id(), Signal::CONT);
                }
            }
        }
        println!(
            "    servers killed {}, stopped {}; members killed {}, stopped {}",
            counts[0], counts[1], counts[2], counts[3]
        );
        self
    }
}
