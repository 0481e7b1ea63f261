//! What befalls servers of a bed, each a machine with an etcd member and a disk of its own.

use std::time::Duration;

use rand::Rng;
use rand::rngs::StdRng;
use rustix::process::{Pid, Signal, kill_process};

use crate::cluster::{end, pause};
use crate::fleet::{Bed, sh};
use crate::servers::member;

/// A machine that is a node and no server.
pub const NODE: &str = "n1";
/// So small that it can be filled; etcd takes two files of 64 MB at once.
const DISK: &str = "300m";
/// What tokens and certificates put up with.
const CLOCK_OFF: [&str; 2] = ["+50", "-50"];

#[derive(Clone, Copy, Debug)]
pub enum Fault {
    KillServer,
    /// Longer than a leader's lease.
    PauseServer,
    KillMember,
    PauseMember,
    /// The whole machine.
    CutOff,
    /// The server from all members, its own too.
    CutOffFromEtcd,
    /// The member from the others.
    CutOffMember,
    /// The member sends, and what others send it does not arrive.
    DeafMember,
    /// The node from this server alone.
    CutOffNode,
    FullDisk,
    /// Of the server's process, forth and back.
    MovedClock,
}

impl Fault {
    const ALL: [Self; 11] = [
        Self::KillServer,
        Self::PauseServer,
        Self::KillMember,
        Self::PauseMember,
        Self::CutOff,
        Self::CutOffFromEtcd,
        Self::CutOffMember,
        Self::DeafMember,
        Self::CutOffNode,
        Self::FullDisk,
        Self::MovedClock,
    ];

    pub fn in_some_order(random: &mut StdRng) -> Vec<Self> {
        let mut all = Self::ALL.to_vec();
        for last in (1..all.len()).rev() {
            all.swap(last, random.random_range(0..=last));
        }
        all
    }
}

/// Gives a machine a disk and a clock of its own, before it becomes a server.
pub fn prepare(bed: &Bed, machine: &str) {
    let data = bed.path(machine, "data");
    sh(&format!("mkdir -m 700 {0} && mount -t tmpfs -o size={DISK},mode=700 tmpfs {0}", data.display()));
    bed.set_clock(machine, "+0");
}

pub fn node_is_ready(bed: &Bed) -> bool {
    let condition = "jsonpath={.status.conditions[?(@.type=='Ready')].status}";
    let output = bed.try_kubectl(&["get", "node", NODE, "-o", condition], "");
    output.status.success() && output.stdout == b"True"
}

/// Packets that match one of the rules are dropped for a while, also those that stay on the machine.
fn drop_packets(bed: &Bed, machine: &str, rules: &[String], seconds: u64) {
    let inside = format!("ip netns exec {} nft", bed.namespace(machine));
    let hooks = ["input", "output"]
        .map(|hook| format!("add chain inet fault {hook} {{ type filter hook {hook} priority -300; }}"));
    let rules = rules.iter().map(|rule| format!("add rule inet fault {rule} drop"));
    let lines: Vec<String> = std::iter::once("add table inet fault".to_owned()).chain(hooks).chain(rules).collect();
    sh(&format!("printf '%s\\n' '{}' | {inside} -f -", lines.join("' '")));
    pause(Duration::from_secs(seconds));
    sh(&format!("{inside} delete table inet fault"));
}

pub fn befall(bed: &Bed, fault: Fault, machine: &str) {
    let hub = bed.namespace("hub");
    let stop_for = |pid: Pid, seconds: u64| {
        let _ = kill_process(pid, Signal::STOP);
        pause(Duration::from_secs(seconds));
        let _ = kill_process(pid, Signal::CONT);
    };
    let both = |rule: &str| ["input", "output"].map(|hook| format!("{hook} {rule}"));
    match fault {
        Fault::KillServer => {
            end(bed.pid(machine));
            pause(Duration::from_secs(2));
            // As whoever looks after it would.
            bed.up(machine, &[]);
        }
        Fault::PauseServer => stop_for(bed.pid(machine), 7),
        Fault::KillMember => {
            if let Some(member) = member(bed, machine) {
                let _ = kill_process(member, Signal::KILL);
            }
        }
        Fault::PauseMember => {
            if let Some(member) = member(bed, machine) {
                stop_for(member, 5);
            }
        }
        Fault::CutOff => {
            sh(&format!("ip -n {hub} link set to-{machine} down"));
            pause(Duration::from_secs(6));
            sh(&format!("ip -n {hub} link set to-{machine} up"));
        }
        Fault::CutOffFromEtcd => drop_packets(bed, machine, &["output tcp dport 2379".to_owned()], 6),
        Fault::CutOffMember => {
            drop_packets(bed, machine, &[both("tcp dport 2380"), both("tcp sport 2380")].concat(), 6);
        }
        Fault::DeafMember => {
            let rules = ["tcp dport 2380", "tcp sport 2380"].map(|rule| format!("input {rule}"));
            drop_packets(bed, machine, &rules, 6);
        }
        Fault::CutOffNode => {
            let node = bed.address_of(NODE);
            let rules = [format!("input ip saddr {node}"), format!("output ip daddr {node}")];
            drop_packets(bed, machine, &rules, 15);
        }
        Fault::FullDisk => {
            let filler = bed.path(machine, "data").join("filler");
            // It ends when nothing fits any more.
            sh(&format!("dd if=/dev/zero of={} bs=64k status=none 2>/dev/null || true", filler.display()));
            pause(Duration::from_secs(6));
            std::fs::remove_file(filler).unwrap();
        }
        Fault::MovedClock => {
            for offset in CLOCK_OFF {
                bed.set_clock(machine, offset);
                pause(Duration::from_secs(6));
            }
            bed.set_clock(machine, "+0");
        }
    }
}
