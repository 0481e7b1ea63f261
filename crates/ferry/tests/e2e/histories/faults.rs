//! The servers and members of a run, and what befalls them.

use std::sync::atomic::Ordering;
use std::time::Duration;

use rand::Rng;
use rand::rngs::StdRng;
use rustix::process::{Pid, Signal, kill_process};

use super::World;
use super::links::{Link, State};
use crate::alone::{Apiserver, Etcd};

#[derive(Clone, Copy, Debug)]
enum Fault {
    KillServer,
    StopServer,
    KillMember,
    StopMember,
    /// A server and all of etcd.
    CutOffServer,
    /// What a server asks arrives, and what etcd answers does not.
    MuteServer,
    SlowServer,
    /// A server and one member, so that it has to ask another.
    CutOffFromMember,
    /// A member hears the others, and they do not hear it.
    MuteMember,
    SlowMember,
}

use Fault::{
    CutOffFromMember, CutOffServer, KillMember, KillServer, MuteMember, MuteServer, SlowMember, SlowServer, StopMember,
    StopServer,
};

const FAULTS: [Fault; 10] = [
    KillServer,
    StopServer,
    KillMember,
    StopMember,
    CutOffServer,
    MuteServer,
    SlowServer,
    CutOffFromMember,
    MuteMember,
    SlowMember,
];
/// Those that can befall a server without etcd.
const OF_ONE_SERVER: usize = 2;

pub struct Plane {
    folder: tempfile::TempDir,
    servers: Vec<Option<Apiserver>>,
    members: Vec<Etcd>,
    /// From each server to each member.
    to_members: Vec<Vec<Link>>,
    /// To each member from all others.
    between_members: Vec<Link>,
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
        let between_members = std::cell::RefCell::new(Vec::new());
        let members = Etcd::cluster(3, |port| {
            let link = Link::to(port);
            let port = link.port();
            between_members.borrow_mut().push(link);
            port
        });
        let to_all = || members.iter().map(|member| Link::to(member.port())).collect();
        Self {
            folder: tempfile::tempdir().unwrap(),
            servers: (0..servers).map(|_| None).collect(),
            to_members: (0..servers).map(|_| to_all()).collect(),
            members,
            between_members: between_members.into_inner(),
        }
    }

    pub fn on_the_embedded_store() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            servers: vec![None],
            members: Vec::new(),
            to_members: Vec::new(),
            between_members: Vec::new(),
        }
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
        let links = self.to_members.get(number).map_or(&[][..], Vec::as_slice);
        let urls: Vec<String> = links.iter().map(|link| format!("http://127.0.0.1:{}", link.port())).collect();
        let (urls, address) = (urls.join(","), format!("192.0.2.{}", number + 1));
        let flags = ["--etcd-servers", &urls, "--advertise-address", &address];
        let flags = if self.members.is_empty() { &[][..] } else { &flags };
        Apiserver::start(&self.folder.path().join(number.to_string()), flags)
    }

    /// One thing after the other until the clients are done; at the end everything is as it was.
    pub async fn befall(mut self, world: &World, mut random: StdRng) -> Self {
        let possible = if self.members.is_empty() { &FAULTS[..OF_ONE_SERVER] } else { &FAULTS };
        let mut counts = [0; FAULTS.len()];
        let mut next = 0;
        while !world.done.load(Ordering::SeqCst) || next < possible.len() {
            world.befallen.store(next >= possible.len(), Ordering::SeqCst);
            // Each of them once, then as it comes.
            let fault = possible.get(next).copied().unwrap_or_else(|| possible[random.random_range(0..possible.len())]);
            next += 1;
            counts[fault as usize] += 1;
            a_while(&mut random).await;
            match fault {
                KillServer => {
                    let victim = random.random_range(0..self.servers.len());
                    self.servers[victim] = None;
                    world.clients.lock().unwrap()[victim] = None;
                    a_while(&mut random).await;
                    let mut server = self.spawn(victim);
                    let client = server.client().await;
                    self.servers[victim] = Some(server);
                    world.clients.lock().unwrap()[victim] = Some(client);
                }
                StopServer => {
                    let victim = random.random_range(0..self.servers.len());
                    let Some(process) = self.servers[victim].as_ref().map(Apiserver::id) else { continue };
                    signal(process, Signal::STOP);
                    a_while(&mut random).await;
                    signal(process, Signal::CONT);
                }
                KillMember => {
                    let victim = random.random_range(0..self.members.len());
                    self.members[victim].kill();
                    a_while(&mut random).await;
                    self.members[victim].start_again();
                }
                StopMember => {
                    let victim = &self.members[random.random_range(0..self.members.len())];
                    signal(victim.id(), Signal::STOP);
                    a_while(&mut random).await;
                    signal(victim.id(), Signal::CONT);
                }
                CutOffServer => self.change_links(self.server_links(&mut random), State::Cut, &mut random).await,
                MuteServer => self.change_links(self.server_links(&mut random), State::OneWay, &mut random).await,
                SlowServer => self.change_links(self.server_links(&mut random), State::Slow, &mut random).await,
                CutOffFromMember => {
                    let links = self.server_links(&mut random);
                    let one = random.random_range(0..links.len());
                    self.change_links(&links[one..=one], State::Cut, &mut random).await;
                }
                MuteMember | SlowMember => {
                    let one = random.random_range(0..self.between_members.len());
                    let state = if matches!(fault, MuteMember) { State::Cut } else { State::Slow };
                    self.change_links(&self.between_members[one..=one], state, &mut random).await;
                }
            }
        }
        let counted: Vec<String> =
            possible.iter().map(|fault| format!("{fault:?} {}", counts[*fault as usize])).collect();
        println!("    {}", counted.join(", "));
        self
    }

    fn server_links(&self, random: &mut StdRng) -> &[Link] {
        &self.to_members[random.random_range(0..self.to_members.len())]
    }

    /// For a while; sometimes for longer than it takes until another member leads.
    async fn change_links(&self, links: &[Link], state: State, random: &mut StdRng) {
        links.iter().for_each(|link| link.set(state));
        for _ in 0..random.random_range(1..4) {
            a_while(random).await;
        }
        links.iter().for_each(|link| link.set(State::Open));
    }
}
