//! A node in a network namespace that others share: their chains drop, their tools flush, and pods get through.

use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::process::Command;
use std::time::Duration;

use ferry_tasks::Tasks;
use ferry_testkit::network::Namespaces;

use crate::{Guard, Legacy, Nft, Passage, Watch, foreign, netlink};

const OUTSIDE: &str = "198.51.100.2:7";
const DNS: &str = "10.244.0.1:5353";
const SSH: &str = "10.244.0.1:22";

struct Lab(Namespaces);

impl std::ops::Deref for Lab {
    type Target = Namespaces;

    fn deref(&self) -> &Namespaces {
        &self.0
    }
}

impl Lab {
    /// None, and a record of why, where namespaces cannot be made.
    fn new(tag: &str) -> Option<Self> {
        let lab = Self(Namespaces::with_node(tag)?);
        lab.inside("node", "sysctl -qw net.ipv4.ip_forward=1");
        for (other, own, of_the_node) in [("pod", "10.244.0.5", "10.244.0.1"), ("out", "198.51.100.2", "198.51.100.1")]
        {
            lab.add(other, other);
            lab.inside("node", &format!("ip addr add {of_the_node}/24 dev {other}"));
            lab.inside("node", &format!("ip link set {other} up"));
            lab.join(other, &format!("{own}/24"), of_the_node);
        }
        Some(lab)
    }

    /// Whether packets of the pod get there and back: nobody listens, which is told.
    fn reaches(&self, to: &str) -> bool {
        let address: SocketAddr = to.parse().expect("an address");
        self.within("pod", move || match TcpStream::connect_timeout(&address, Duration::from_millis(700)) {
            Ok(_) => true,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionRefused,
        })
    }

    async fn comes_to_reach(&self, to: &str, why: &str) {
        for _ in 0..100 {
            if self.reaches(to) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("{to} is never reached: {why}\n{}", self.inside("node", "nft list ruleset"));
    }

    fn sockets(&self) -> (OwnedFd, OwnedFd) {
        self.within("node", || (netlink::open().expect("a socket"), Watch::socket().expect("a socket")))
    }

    fn guard(&self) -> Guard {
        let command = |program: &str| self.command("node", program);
        let table = "add table ip own\ndelete table ip own\ntable ip own {\n chain c {\n  meta mark 1 counter\n }\n}\n";
        Guard {
            nft: Nft::new(command("nft")),
            table: "own".into(),
            script: table.into(),
            other_tables: vec!["beside".into()],
            repaired: None,
            passage: Passage { name: "lab0".into(), pods: vec!["10.244.0.0/16".into()], node: vec![("tcp", 5353)] },
            legacy: vec![Legacy { command: command("iptables-legacy"), tables: "/none".into(), ipv6: false }],
        }
    }
}

const DROPPING: &str = "table inet admin {
  chain forward {
    type filter hook forward priority 0; policy drop;
  }
  chain input {
    type filter hook input priority 0; policy drop;
  }
}
";
const FIREWALLD: &str = "table inet firewalld {
  chain filter_FORWARD {
    type filter hook forward priority 10; policy accept;
    ct state established accept
    reject with icmpx admin-prohibited
  }
}
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_get_through_where_others_drop() {
    let Some(lab) = Lab::new("d") else { return };
    assert!(lab.reaches(OUTSIDE) && lab.reaches(DNS) && lab.reaches(SSH), "before anybody drops");
    let nft = lab.guard().nft;
    nft.apply(DROPPING).await.expect("rules of an administrator");
    assert!(!lab.reaches(OUTSIDE) && !lab.reaches(DNS), "they do drop");
    let tasks = Tasks::new("test");
    let guarded = lab.guard().start_with(lab.sockets(), &tasks).await.expect("a guard");
    assert!(lab.reaches(OUTSIDE), "forwarded");
    assert!(lab.reaches(DNS), "the node's DNS");
    assert!(!lab.reaches(SSH), "what pods have no business with stays closed");
    assert!(guarded.problems().borrow().is_empty());

    // As Docker and ufw do it, while it runs.
    lab.inside("node", "iptables-nft -P FORWARD DROP");
    lab.comes_to_reach(OUTSIDE, "a policy of iptables").await;
    // Their tools go on to work with their chains.
    let listed = lab.inside("node", "iptables-nft -S FORWARD");
    assert_eq!(listed.matches("pods of ferry (lab0)").count(), 2, "{listed}");
    lab.inside("node", "iptables-nft -P INPUT DROP");
    lab.comes_to_reach(DNS, "a policy of iptables").await;
    lab.inside("node", "iptables-nft -S INPUT");
    lab.inside("node", "iptables-nft -F FORWARD");
    lab.comes_to_reach(OUTSIDE, "somebody flushed the chain").await;
    // As firewalld does it: the last rule rejects.
    nft.apply(FIREWALLD).await.expect("rules like firewalld's");
    lab.inside("node", "nft add table ip stranger");
    lab.comes_to_reach(OUTSIDE, "a last rule").await;

    // `systemctl restart nftables`: everything goes, and what drops comes back at once.
    let file = std::env::temp_dir().join(format!("{}.nft", lab.prefix()));
    std::fs::write(&file, format!("flush ruleset\n{DROPPING}\n")).expect("a file");
    lab.inside("node", &format!("nft -f {}", file.display()));
    std::fs::remove_file(&file).expect("the file");
    lab.comes_to_reach(OUTSIDE, "the ruleset was flushed").await;
    lab.comes_to_reach(DNS, "the ruleset was flushed").await;
    assert!(lab.inside("node", "nft list table ip own").contains("meta mark"), "the node's own table is back, too");

    // What a new start finds is written anew, not a second time; and all of it goes at the end.
    assert!(tasks.stop(Duration::from_secs(10)).await);
    let tasks = Tasks::new("again");
    lab.guard().start_with(lab.sockets(), &tasks).await.expect("a guard");
    assert_eq!(lab.inside("node", "nft list ruleset").matches("pods of ferry (lab0)").count(), 3);
    assert!(tasks.stop(Duration::from_secs(10)).await);
    let chains = lab.within("node", || {
        foreign::chains(&netlink::open().expect("a socket"), &foreign::mark("lab0")).expect("chains")
    });
    let script: String = chains.iter().map(foreign::forget).collect();
    nft.apply(&script).await.expect("removed");
    assert!(!lab.inside("node", "nft list ruleset").contains("pods of ferry"));
    assert!(!lab.reaches(OUTSIDE), "as it was before");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_iptables_and_bridges_are_seen() {
    let Some(lab) = Lab::new("l") else { return };
    let words = ["netns", "exec", &lab.name("node"), "iptables-legacy", "-P", "FORWARD", "DROP"];
    if !Command::new("ip").args(words).output().is_ok_and(|output| output.status.success()) {
        ferry_testkit::skip("this kernel or machine has no iptables-legacy");
        return;
    }
    assert!(!lab.reaches(OUTSIDE), "it drops");
    let names = std::env::temp_dir().join(format!("{}.names", lab.prefix()));
    std::fs::write(&names, "nat\nfilter\n").expect("a file");
    let mut guard = lab.guard();
    guard.legacy[0].tables = names.clone();
    guard
        .nft
        .apply("table bridge b {\n chain f {\n  type filter hook forward priority 0; policy drop;\n }\n}\n")
        .await
        .expect("rules");
    for _ in 0..2 {
        let tasks = Tasks::new("test");
        let guarded = guard.clone().start_with(lab.sockets(), &tasks).await.expect("a guard");
        assert!(lab.reaches(OUTSIDE), "let through");
        assert_eq!(*guarded.problems().borrow(), ["chain f of table bridge b drops frames of pods"]);
        assert!(tasks.stop(Duration::from_secs(10)).await);
    }
    let listed = lab.inside("node", "iptables-legacy -S");
    assert_eq!(listed.matches("pods of ferry (lab0)").count(), 2, "once: {listed}");
    guard.legacy[0].remove("lab0").expect("removed");
    std::fs::remove_file(&names).expect("the file");
    assert!(!lab.inside("node", "iptables-legacy -S").contains("pods of ferry"));
    assert!(!lab.reaches(OUTSIDE), "as it was before");
}
