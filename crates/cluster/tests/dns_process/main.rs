//! DNS beside a node's process: which of the two may die, and what is answered meanwhile.
//!
//! This program is the node's process and the DNS process, too: it is executed again for each.

mod node;
mod question;

use std::net::{SocketAddr, UdpSocket};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use ferry_cluster::node::dns_process;
use ferry_cluster::process;
use ferry_testkit::Report;

use node::Node;
use question::{Client, NO_SUCH_NAME};

const PORT: u16 = 10053;
static BEDS: AtomicU16 = AtomicU16::new(0);
const PATIENCE: Duration = Duration::from_secs(60);

type Test = (&'static str, fn(&Bed));

const TESTS: [Test; 10] = [
    ("a_dns_process_that_is_killed_comes_back_and_no_question_is_lost", killed),
    ("names_are_answered_while_the_nodes_process_is_dead", nodes_death),
    ("another_configuration_replaces_the_process_without_a_gap", replaced),
    ("a_question_that_waits_is_answered_before_the_process_ends", unanswered),
    ("a_damaged_file_of_names_does_not_keep_dns_down", damaged),
    ("an_address_more_is_served_beside_those_that_the_process_before_has", another_address),
    ("a_process_that_takes_nothing_in_is_replaced_and_collected", deaf),
    ("names_are_kept_in_a_folder_in_somebodys_home", closed_folder),
    ("it_has_no_descriptors_that_it_was_not_handed", stray_descriptors),
    ("nothing_is_left_of_a_node_that_is_taken_down", taken_down),
];

fn main() -> ExitCode {
    if let Some(code) = dns_process::helper(std::env::args_os()) {
        return code;
    }
    if let Some(code) = node::played(std::env::args()) {
        return code;
    }
    let mut report = Report::from_arguments();
    for (name, test) in TESTS {
        if report.wants(name) {
            report.attempt(name, || test(&Bed::new()));
        }
    }
    report.finish()
}

/// The folders of a node and the address of its DNS.
struct Bed {
    folder: tempfile::TempDir,
    address: SocketAddr,
}

impl Bed {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["data", "run"] {
            std::fs::create_dir(folder.path().join(name)).expect("a folder");
        }
        // An address that no other test has, so that its ports are free in both protocols.
        let [.., high, low] = std::process::id().to_be_bytes();
        Self { folder, address: ([127, 53, high, low], PORT + BEDS.fetch_add(1, Ordering::Relaxed)).into() }
    }

    fn data_dir(&self) -> std::path::PathBuf {
        self.folder.path().join("data")
    }

    fn run_dir(&self) -> std::path::PathBuf {
        self.folder.path().join("run")
    }

    fn dns(&self) -> Option<i32> {
        process::holder(&self.run_dir().join("dns.lock")).ok().flatten()
    }

    fn client(&self) -> Client {
        Client::new(self.address)
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _ = dns_process::end(&self.run_dir());
    }
}

fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("killed");
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < PATIENCE, "{what}");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

fn killed(bed: &Bed) {
    let _node = Node::start(bed, &["web=10.96.0.7"], "cluster.local");
    let client = bed.client();
    client.learns("web.default.svc.cluster.local", Ok("10.96.0.7"));
    eventually("the names are kept", || bed.data_dir().join("dns-names").exists());
    for round in 1..=3 {
        let before = bed.dns().expect("a DNS process");
        kill(before);
        let begin = Instant::now();
        // Sent once: it waits in the socket for the next process.
        assert_eq!(client.ask("web.default.svc.cluster.local"), Ok("10.96.0.7".into()));
        println!("  killed {round}: answered after {:.1} ms", begin.elapsed().as_secs_f64() * 1000.0);
        eventually("another process has its place", || bed.dns().is_some_and(|pid| pid != before));
        assert_eq!(client.ask("none.default.svc.cluster.local"), Err(NO_SUCH_NAME), "it waited until it knew that");
    }
}

fn nodes_death(bed: &Bed) {
    let node = Node::start(bed, &["web=10.96.0.7"], "cluster.local");
    let client = bed.client();
    client.learns("web.default.svc.cluster.local", Ok("10.96.0.7"));
    let dns = bed.dns();
    node.kill();
    for _ in 0..100 {
        assert_eq!(client.ask("web.default.svc.cluster.local"), Ok("10.96.0.7".into()));
    }
    assert_eq!(client.ask_tcp("web.default.svc.cluster.local"), Ok("10.96.0.7".into()));
    let memory = memory(dns.expect("a DNS process"));
    println!("  the DNS process has {} kB of its own, {} kB resident", memory.0, memory.1);
    // The next one finds it, and tells it what is different now.
    let _node = Node::start(bed, &["new=10.96.0.9"], "cluster.local");
    client.learns("new.default.svc.cluster.local", Ok("10.96.0.9"));
    client.learns("web.default.svc.cluster.local", Err(NO_SUCH_NAME));
    assert_eq!(bed.dns(), dns, "it is the same process");
    // Also one that was found is started again, and asks for what is not in its file yet.
    kill(dns.expect("a DNS process"));
    assert_eq!(client.ask("new.default.svc.cluster.local"), Ok("10.96.0.9".into()));
}

fn replaced(bed: &Bed) {
    let node = Node::start(bed, &["web=10.96.0.7"], "cluster.local");
    let client = bed.client();
    client.learns("web.default.svc.cluster.local", Ok("10.96.0.7"));
    let before = bed.dns();
    node.kill();
    let (stop, asking) = std::sync::mpsc::channel::<()>();
    let asker = std::thread::spawn(move || {
        let mut answered = 0;
        while asking.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
            // By the one before or by the one after, which knows nothing of that zone.
            let _ = client.ask("web.default.svc.cluster.local");
            answered += 1;
        }
        answered
    });
    let _node = Node::start(bed, &["web=10.96.0.8"], "other.test");
    bed.client().learns("web.default.svc.other.test", Ok("10.96.0.8"));
    stop.send(()).expect("it still asks");
    assert!(asker.join().expect("every question was answered") > 0);
    assert_ne!(bed.dns(), before);
    assert!(process::ends_within(before.expect("a DNS process"), PATIENCE).expect("waited"), "the one before has gone");
}

/// A question that waits for names is answered by the process that has read it, though it is told to end.
fn unanswered(bed: &Bed) {
    // It never tells any names.
    let node = Node::start(bed, &[], "cluster.local");
    let client = bed.client();
    let waiting = std::thread::spawn(move || client.ask("web.default.svc.cluster.local"));
    std::thread::park_timeout(Duration::from_millis(200));
    node.kill();
    assert!(dns_process::end(&bed.run_dir()).expect("ended"));
    assert_eq!(waiting.join().expect("an answer"), Err("SERVFAIL"));
}

fn damaged(bed: &Bed) {
    std::fs::write(bed.data_dir().join("dns-names"), "ferry-dns-names 1 cluster.local\nend").expect("written");
    let _node = Node::start(bed, &["web=10.96.0.7"], "cluster.local");
    bed.client().learns("web.default.svc.cluster.local", Ok("10.96.0.7"));
}

fn another_address(bed: &Bed) {
    let node = Node::start(bed, &["web=10.96.0.7"], "cluster.local");
    bed.client().learns("web.default.svc.cluster.local", Ok("10.96.0.7"));
    node.kill();
    let mut second = bed.address;
    second.set_port(PORT + BEDS.fetch_add(1, Ordering::Relaxed));
    let _node = Node::start_at(bed, &format!("{},{second}", bed.address), &["web=10.96.0.8"], "cluster.local");
    for address in [bed.address, second] {
        Client::new(address).learns("web.default.svc.cluster.local", Ok("10.96.0.8"));
    }
}

/// Whoever told it something never learned that it had stopped to listen.
fn deaf(bed: &Bed) {
    let _node = Node::start(bed, &[&format!("web={}", node::ENDLESS)], "cluster.local");
    let before = bed.dns().expect("a DNS process");
    eventually("another process has its place", || bed.dns().is_some_and(|pid| pid != before));
    eventually("the one before is no zombie", || !std::path::Path::new(&format!("/proc/{before}")).exists());
}

fn closed_folder(bed: &Bed) {
    let home = bed.folder.path();
    std::fs::set_permissions(home, std::os::unix::fs::PermissionsExt::from_mode(0o700)).expect("a mode");
    // Who is not root gives nothing away, and has nothing to lose.
    let _ = rustix::fs::chown(home, Some(rustix::process::Uid::from_raw(65534)), None);
    let _node = Node::start(bed, &["web=10.96.0.7"], "cluster.local");
    bed.client().learns("web.default.svc.cluster.local", Ok("10.96.0.7"));
    eventually("the names are kept", || bed.data_dir().join("dns-names").exists());
}

/// Whoever reads from a process that has ended would wait for the DNS process, too.
fn stray_descriptors(bed: &Bed) {
    let (read, write) = std::io::pipe().expect("a pipe");
    rustix::io::fcntl_setfd(&write, rustix::io::FdFlags::empty()).expect("inherited");
    let node = Node::start(bed, &["web=10.96.0.7"], "cluster.local");
    drop(write);
    bed.client().learns("web.default.svc.cluster.local", Ok("10.96.0.7"));
    node.kill();
    let mut ended = [rustix::event::PollFd::new(&read, rustix::event::PollFlags::IN)];
    let soon = rustix::event::Timespec { tv_sec: 5, tv_nsec: 0 };
    assert_eq!(rustix::event::poll(&mut ended, Some(&soon)), Ok(1), "nobody has the other end");
    assert!(bed.dns().is_some());
}

fn taken_down(bed: &Bed) {
    let node = Node::start(bed, &["web=10.96.0.7"], "cluster.local");
    let dns = bed.dns().expect("a DNS process");
    node.kill();
    assert!(dns_process::end(&bed.run_dir()).expect("ended"));
    // Of one that nobody has collected yet it is empty.
    assert_eq!(std::fs::read(format!("/proc/{dns}/cmdline")).unwrap_or_default(), b"", "the process is gone");
    assert_eq!(bed.dns(), None);
    assert!(!dns_process::end(&bed.run_dir()).expect("nothing to end"));
    UdpSocket::bind(bed.address).expect("nobody has its address");
}

/// Of a process, in kilobytes: private, and resident.
fn memory(pid: i32) -> (u64, u64) {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let sum = |names: &[&str]| {
        let lines = text.lines().filter(|line| names.iter().any(|name| line.starts_with(name)));
        lines.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).sum()
    };
    (sum(&["Private_Clean:", "Private_Dirty:"]), sum(&["Rss:"]))
}
