//! What can happen to servers with an etcd: most of them are lost, or all. A backup and the last server each make a cluster again.

use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::alone::text;
use crate::cluster::{end, kubectl_path, until};
use crate::fleet::{Bed, address, refusal, succeed};
use crate::servers::{assemble, join, member, server_list, token};

fn kubectl(bed: &Bed, machine: &str) -> Command {
    let mut command = bed.inside(machine, kubectl_path());
    command.arg("--kubeconfig").arg(bed.path(machine, "data").join("kubeconfig"));
    command
}

/// The uid and the revision of an object, as a machine's server tells them.
fn identity(bed: &Bed, machine: &str, object: &str) -> (Value, Value) {
    let found = succeed(kubectl(bed, machine).args(["get", object, "-o", "json"]));
    let found: Value = serde_json::from_str(&found).unwrap();
    (found["metadata"]["uid"].clone(), found["metadata"]["resourceVersion"].clone())
}

fn backup(bed: &Bed, words: &[&str]) -> String {
    let mut command = bed.ferry("s1");
    succeed(command.args(["store", "backup"]).args(words).arg(&bed.folders("s1")[0]))
}

/// Ended with its etcd, as by a power cut.
fn lose(bed: &Bed, machine: &str) {
    end(bed.pid(machine));
    if let Some(member) = member(bed, machine) {
        end(member);
    }
}

fn purge(bed: &Bed, machine: &str) {
    let mut down = bed.ferry(machine);
    succeed(down.arg("down").arg("--purge").args(bed.folders(machine)));
}

fn recover(bed: &Bed, machine: &str) -> std::process::Output {
    let mut command = bed.ferry(machine);
    command.args(["server", "recover"]).args(bed.folders(machine)).output().unwrap()
}

/// Backups by name and by folder, with the keys and without.
fn take_backups(bed: &Bed, folder: &Path) -> std::path::PathBuf {
    let (file, phrase) = (folder.join("whole.backup"), folder.join("phrase"));
    std::fs::write(&phrase, "short\n").unwrap();
    let mut command = bed.ferry("s1");
    command.args(["store", "backup", text(&file), "--passphrase-file", text(&phrase)]).arg(&bed.folders("s1")[0]);
    assert!(refusal(&command.output().unwrap()).contains("too short") && !file.exists());
    std::fs::write(&phrase, "correct horse battery staple\n").unwrap();
    let said = backup(bed, &[text(&file), "--passphrase-file", text(&phrase)]);
    assert!(said.contains("of etcd") && !said.contains("without the cluster's keys"), "{said}");
    let bytes = std::fs::read(&file).unwrap();
    for word in [&b"PRIVATE KEY"[..], b"swordfish", b"c3dvcmRmaXNo"] {
        assert!(!bytes.windows(word.len()).any(|part| part == word), "no key and no Secret can be read in it");
    }
    let mut check = bed.ferry("s1");
    let said = succeed(check.args(["store", "check", "--backup", text(&file)]));
    assert!(said.contains("is whole") && said.contains("with the cluster's keys"), "{said}");

    let (many, elsewhere) = (folder.join("many"), folder.join("elsewhere"));
    std::fs::create_dir(&elsewhere).unwrap();
    let upload = format!("cp -t {} --", elsewhere.display());
    for _ in 0..3 {
        let said = backup(bed, &["--dir", text(&many), "--keep=2", "--upload", &upload]);
        assert!(said.contains("without the cluster's keys"), "{said}");
        // Their names have seconds.
        crate::cluster::pause(std::time::Duration::from_millis(1100));
    }
    let count = |folder: &Path| std::fs::read_dir(folder).unwrap().count();
    assert_eq!((count(&many), count(&elsewhere)), (2, 3));
    let mut failing = bed.ferry("s1");
    failing.args(["store", "backup", "--dir", text(&many), "--keep=2", "--upload=false"]).arg(&bed.folders("s1")[0]);
    assert!(refusal(&failing.output().unwrap()).contains("the upload of"));
    assert_eq!(count(&many), 3, "none goes while new ones are not taken elsewhere");
    file
}

pub fn a_cluster_comes_back_from_its_last_server_and_from_a_backup() {
    let bed = Bed::new(&["s1", "s2", "s3", "r1"]);
    assemble(&bed);
    let folder = tempfile::tempdir().unwrap();
    bed.kubectl(&["create", "configmap", "before"]);
    bed.kubectl(&["create", "secret", "generic", "hidden", "--from-literal=word=swordfish"]);
    let known = identity(&bed, "s1", "configmap/before");
    let file = take_backups(&bed, folder.path());
    bed.kubectl(&["create", "configmap", "after"]);
    let mut defragment = bed.ferry("s1");
    let said = succeed(defragment.args(["server", "defragment"]).arg(&bed.folders("s1")[0]));
    assert!(["s1: ", "s2: ", "s3: "].iter().all(|name| said.contains(name)), "{said}");

    // The quorum is alive: nothing is recovered, neither beside a server that runs nor beside the others.
    let refused = refusal(&recover(&bed, "s1"));
    assert!(refused.contains("this server runs"), "{refused}");
    lose(&bed, "s1");
    let refused = refusal(&recover(&bed, "s1"));
    assert!(refused.contains("most servers of the cluster are there"), "{refused}");
    lose(&bed, "s2");
    lose(&bed, "s3");
    let recovered = recover(&bed, "s1");
    assert!(recovered.status.success(), "{}", String::from_utf8_lossy(&recovered.stderr));
    bed.up("s1", &[]);
    assert_eq!(server_list(&bed).lines().count(), 2, "{}", server_list(&bed));
    assert_eq!(identity(&bed, "s1", "configmap/before"), known);
    identity(&bed, "s1", "configmap/after");
    bed.kubectl(&["create", "configmap", "recovered"]);

    // One whose disk was lost comes back, and has everything.
    purge(&bed, "s2");
    let (server, server_token) = token(&bed);
    let joined = join(&bed, "s2", &server, &server_token).output().unwrap();
    assert!(joined.status.success(), "{}", String::from_utf8_lossy(&joined.stderr));
    assert_eq!(identity(&bed, "s2", "configmap/before"), known);
    identity(&bed, "s2", "configmap/recovered");

    from_the_backup(&bed, folder.path(), &file, &known);
}

/// Who a machine's member is, and of which cluster, as the second record of etcd's log says.
fn member_identity(bed: &Bed, machine: &str) -> Vec<u8> {
    let log = bed.path(machine, "data").join("etcd/member/wal/0000000000000000-0000000000000000.wal");
    let bytes = std::fs::read(log).unwrap();
    let frame = |at: usize| {
        let length = u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        let padding = if length >> 63 == 1 { usize::try_from(length >> 56 & 7).unwrap() } else { 0 };
        (at + 8, usize::try_from(length & 0x00ff_ffff_ffff_ffff).unwrap(), padding)
    };
    let (first, length, padding) = frame(0);
    let (second, length, _) = frame(first + length + padding);
    let record = &bytes[second..second + length];
    assert_eq!(record[..2], [8, 1], "what is about the member");
    record.to_vec()
}

/// Ctrl-C while etcd runs: it ends, and nothing half-made stays.
fn interrupted(bed: &Bed, mut restore: Command) {
    let slow = bed.path("r1", "slow-etcd");
    std::fs::write(&slow, "#!/bin/sh\n[ \"$1\" = --version ] || sleep 6\nexec etcd \"$@\"\n").unwrap();
    std::fs::set_permissions(&slow, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    restore.arg("--etcd-binary").arg(&slow).stdout(Stdio::null()).stderr(Stdio::piped());
    let restoring = restore.spawn().unwrap();
    until("the etcd of r1 is about to start", || member(bed, "r1"));
    kill_process(Pid::from_child(&restoring), Signal::INT).unwrap();
    let refused = refusal(&restoring.wait_with_output().unwrap());
    assert!(refused.contains("told to stop"), "{refused}");
    assert!(member(bed, "r1").is_none(), "its etcd ended with it");
    let data = bed.path("r1", "data");
    assert!(["pki", "etcd", "server.json"].iter().all(|name| !data.join(name).exists()));
}

/// Other machines, with nothing but the file and the passphrase.
fn from_the_backup(bed: &Bed, folder: &Path, file: &Path, known: &(Value, Value)) {
    let restore_on = |machine: &str, number: usize, phrase: &str, file: &Path| {
        std::fs::write(folder.join("tried"), phrase).unwrap();
        let mut command = bed.ferry(machine);
        command.args(["store", "restore", text(file), "--passphrase-file", text(&folder.join("tried"))]);
        command.arg(format!("--node-name={machine}")).arg(format!("--node-ip={}", address(number)));
        command.arg(&bed.folders(machine)[0]);
        command
    };
    let restore = |phrase: &str, file: &Path| restore_on("r1", 3, phrase, file).output().unwrap();
    let refused = refusal(&restore("wrong horse battery staple", file));
    assert!(refused.contains("the passphrase is another one"), "{refused}");
    let mut bytes = std::fs::read(file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(folder.join("bent"), bytes).unwrap();
    let refused = refusal(&restore("correct horse battery staple", &folder.join("bent")));
    assert!(refused.contains("its checksum is wrong"), "{refused}");
    // Not beside the cluster that it is a backup of; and nothing is left of the attempt.
    let refused = refusal(&restore("correct horse battery staple", file));
    assert!(refused.contains("most servers of the cluster are there"), "{refused}");
    for machine in ["s1", "s2"] {
        lose(bed, machine);
    }
    // The member of the first server is another one, though its name, its address and its certificates are the same.
    let before = member_identity(bed, "s1");
    purge(bed, "s1");
    let restored = restore_on("s1", 0, "correct horse battery staple", file).output().unwrap();
    assert!(restored.status.success(), "{}", String::from_utf8_lossy(&restored.stderr));
    assert_ne!(member_identity(bed, "s1"), before);

    interrupted(bed, restore_on("r1", 3, "correct horse battery staple", file));
    let restored = restore("correct horse battery staple", file);
    assert!(restored.status.success(), "{}", String::from_utf8_lossy(&restored.stderr));
    print!("{}", String::from_utf8_lossy(&restored.stdout));
    let refused = refusal(&restore("correct horse battery staple", file));
    assert!(refused.contains("already holds a store"), "{refused}");

    bed.up("r1", &[]);
    assert_eq!(&identity(bed, "r1", "configmap/before"), known);
    let gone = kubectl(bed, "r1").args(["get", "configmap", "after"]).output().unwrap();
    assert!(String::from_utf8_lossy(&gone.stderr).contains("NotFound"), "{gone:?}");
    let secret = succeed(kubectl(bed, "r1").args(["get", "secret", "hidden", "-o", "jsonpath={.data.word}"]));
    assert_eq!(secret, "c3dvcmRmaXNo");
    // Who joins has all of it, too, not only what came after the restore.
    let mut command = bed.ferry("r1");
    command.args(["token", "create", "--server", "--kubeconfig"]).arg(bed.path("r1", "data").join("kubeconfig"));
    let line = succeed(command.arg(&bed.folders("r1")[0]));
    let words: Vec<&str> = line.split_whitespace().collect();
    purge(bed, "s3");
    let joined = join(bed, "s3", words[3], words[4]).output().unwrap();
    assert!(joined.status.success(), "{}", String::from_utf8_lossy(&joined.stderr));
    until("s3 serves the restored cluster", || {
        kubectl(bed, "s3").args(["get", "configmap", "before"]).output().ok()?.status.success().then_some(())
    });
    assert_eq!(&identity(bed, "s3", "configmap/before"), known);
}
