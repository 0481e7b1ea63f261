//! Two servers and a witness: the cluster lives while any two of the three do.

use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::cluster::until;
use crate::fleet::{Bed, address, refusal, succeed};
use crate::servers::{join, member, server_list, token, token_for};

fn witness(bed: &Bed, words: &[&str]) -> Command {
    let mut command = bed.ferry("w1");
    command.arg("witness").args(words).args(bed.folders("w1"));
    if words[0] == "join" {
        command.args(["--node-name=w1", &format!("--node-ip={}", address(2))]);
    }
    command
}

fn until_it_votes(bed: &Bed) {
    until("the witness votes", || {
        server_list(bed).lines().any(|line| line.contains(" witness ") && line.ends_with("healthy")).then_some(())
    });
}

fn start(bed: &Bed, words: &[&str]) -> Child {
    let log = std::fs::File::create(bed.path("w1", "witness.log")).unwrap();
    let started = witness(bed, words).stdout(Stdio::null()).stderr(log).spawn().unwrap();
    until_it_votes(bed);
    started
}

fn stop(mut witness: Child) {
    kill_process(Pid::from_child(&witness), Signal::TERM).unwrap();
    assert!(witness.wait().unwrap().success());
}

fn refused(command: &mut Command, why: &str) {
    let said = refusal(&command.stdin(Stdio::null()).output().unwrap());
    assert!(said.contains(why), "{command:?}: {said}");
}

/// Neither token makes the other thing of a machine, and neither does its folder.
fn refuse_the_other_thing(bed: &Bed, server: &str, [of_server, of_witness]: [&str; 2]) {
    refused(&mut join(bed, "s2", server, of_witness), "this token is for a witness");
    refused(&mut witness(bed, &["join", server, of_server]), "is for a server");
    refused(&mut witness(bed, &["run"]), "not the folder of a witness");
}

/// A witness has the data of etcd and none of the cluster's keys: what needs them is refused.
fn refuse_what_needs_keys(bed: &Bed, server: &str, of_server: &str) {
    let keys = bed.path("w1", "data").join("pki");
    for key in ["ca.key", "service-account.key", "encryption.json", "front-proxy"] {
        assert!(!keys.join(key).exists(), "{key}");
    }
    let folders = bed.folders("w1");
    refused(bed.ferry("w1").args(["server", "recover"]).args(&folders), "none of the cluster's keys");
    let phrase = bed.path("w1", "phrase");
    std::fs::write(&phrase, "a phrase that is long enough").unwrap();
    let mut backup = bed.ferry("w1");
    backup
        .args(["store", "backup"])
        .arg(bed.path("w1", "backup"))
        .arg("--passphrase-file")
        .arg(phrase)
        .arg(&folders[0]);
    refused(&mut backup, "none of the cluster's keys");
    refused(&mut join(bed, "w1", server, of_server), "is the folder of the witness witness-w1");
}

pub fn a_witness_keeps_two_servers_alive() {
    let bed = Bed::new(&["s1", "s2", "w1"]);
    bed.up("s1", &["--cluster-init", "--pod-network=routes", "--cluster-cidr=10.201.0.0/16"]);
    let (server, of_server) = token(&bed);
    let (_, of_witness) = token_for(&bed, "--witness", ["ferry", "witness", "join"]);
    refuse_the_other_thing(&bed, &server, [&of_server, &of_witness]);
    succeed(&mut join(&bed, "s2", &server, &of_server));

    let running = start(&bed, &["join", &server, &of_witness]);
    println!("{}", server_list(&bed));
    refused(&mut witness(&bed, &["leave"]), "stop it first");
    // It is brought back by the process that looks after it.
    kill_process(member(&bed, "w1").unwrap(), Signal::KILL).unwrap();
    until("the witness has another etcd", || member(&bed, "w1"));
    until_it_votes(&bed);

    // One server is lost, as by a power cut: the other and the witness are most of the three.
    kill_process(bed.pid("s2"), Signal::KILL).unwrap();
    kill_process(member(&bed, "s2").unwrap(), Signal::KILL).unwrap();
    until("the first server writes without the second", || {
        let mut command = bed.inside("s1", crate::cluster::kubectl_path());
        command.arg("--kubeconfig").arg(bed.kubeconfig()).args(["create", "configmap", "written"]);
        let output = command.output().unwrap();
        let done = output.status.success() || String::from_utf8_lossy(&output.stderr).contains("AlreadyExists");
        done.then_some(())
    });
    bed.up("s2", &[]);
    stop(running);
    bed.kubectl(&["create", "configmap", "without-the-witness"]);
    refuse_what_needs_keys(&bed, &server, &of_server);
    stop(start(&bed, &["run"]));
    let said = succeed(&mut witness(&bed, &["leave"]));
    assert!(said.contains("left the cluster"), "{said}");
    assert!(!server_list(&bed).contains("witness"), "{}", server_list(&bed));
    let data = bed.path("w1", "data");
    assert!(!data.join("etcd").exists() && !data.join("server.json").exists() && !data.join("pki").exists());
}
