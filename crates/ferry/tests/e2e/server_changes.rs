//! Servers come and go: flags are handed over, a learner is let vote by hand, servers are removed and come back.

use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use serde_json::Value;

use crate::cluster::{end, kubectl_path, until};
use crate::fleet::{Bed, refusal, succeed};
use crate::servers::{join, member, server_list, token};

const POLICY: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n";
const ENCRYPTION: &str = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  providers:\n  - aescbc: {keys: [{name: given, secret: MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=}]}\n";

fn row(bed: &Bed, name: &str) -> Option<String> {
    server_list(bed).lines().find(|line| line.starts_with(&format!("{name} "))).map(str::to_owned)
}

fn until_row(bed: &Bed, name: &str, role: &str, state: &str) {
    until(&format!("{name} is a {state} {role}"), || {
        row(bed, name).is_some_and(|line| line.contains(role) && line.ends_with(state)).then_some(())
    });
}

fn server(bed: &Bed, words: &[&str]) -> std::process::Output {
    let mut command = bed.ferry("s1");
    command.arg("server").args(words).arg(&bed.folders("s1")[0]).output().expect("ferry runs")
}

/// Both read what one of them encrypted, and admit alike.
fn second_server_is_like_the_first(bed: &Bed) {
    bed.kubectl(&["create", "secret", "generic", "shared", "--from-literal=word=swordfish"]);
    let mut kubectl = bed.inside("s2", kubectl_path());
    kubectl.arg("--kubeconfig").arg(bed.path("s2", "data").join("kubeconfig"));
    let secret = succeed(kubectl.args(["get", "secret", "shared", "-o", "json"]));
    let secret: Value = serde_json::from_str(&secret).unwrap();
    assert_eq!(secret["data"]["word"], "c3dvcmRmaXNo", "{secret}");
    for machine in ["s1", "s2"] {
        let mut kubectl = bed.inside(machine, kubectl_path());
        kubectl.arg("--kubeconfig").arg(bed.path(machine, "data").join("kubeconfig"));
        let made = ["--image=example.test/none:1", "--dry-run=server", "-o", "jsonpath={.spec.tolerations}"];
        let tolerations = succeed(kubectl.args(["run", "tried"]).args(made));
        assert_eq!(tolerations, "", "{machine}: the plug-ins are those of the whole cluster");
    }
    let record = std::fs::read_to_string(bed.path("s2", "data").join("server.json")).unwrap();
    let record: Value = serde_json::from_str(&record).unwrap();
    let policy = record["flags"]["audit-policy-file"][0].as_str().expect("the flag").to_owned();
    assert!(policy.starts_with(bed.path("s2", "data").to_str().unwrap()), "{policy}");
    assert_eq!(std::fs::read_to_string(policy).unwrap(), POLICY);

    // Whatever differs is refused before anything is done.
    for (flag, expected) in [
        ("--disable-admission-plugins=Priority", "--disable-admission-plugins is not what the cluster has"),
        ("--max-requests-inflight=7", "--max-requests-inflight is not what the cluster has"),
        ("--service-cluster-ip-range=10.97.0.0/16", "is 10.96.0.0/16, on all of its servers"),
    ] {
        let mut up = bed.ferry("s2");
        let refused = refusal(&up.arg("up").args(bed.node_flags("s2")).arg(flag).output().unwrap());
        assert!(refused.contains(expected), "{flag}: {refused}");
    }
}

/// A server whose process is killed before it can vote: its etcd follows, and is let vote by hand.
fn a_learner_is_promoted_by_hand(bed: &Bed, address: &str, token: &str) {
    let slow = bed.path("s3", "slow-etcd");
    let script = "#!/bin/sh\n[ \"$1\" = --version ] || sleep 6\nexec etcd \"$@\"\n";
    std::fs::write(&slow, script).unwrap();
    std::fs::set_permissions(&slow, PermissionsExt::from_mode(0o755)).unwrap();
    let mut joining = join(bed, "s3", address, token);
    let log = std::fs::File::create(bed.path("s3", "join.log")).unwrap();
    joining.arg("--etcd-binary").arg(&slow).stdout(Stdio::null()).stderr(log);
    let mut joining = joining.spawn().unwrap();
    let begun = until("the etcd of s3 is about to start", || member(bed, "s3"));
    end(bed.pid("s3"));
    assert!(!joining.wait().unwrap().success(), "its server was killed");
    // Not before it has caught up: it has not even begun.
    let listed = server_list(bed);
    let number = listed.lines().find(|line| line.contains("learner")).unwrap().split(' ').next().unwrap();
    let refused = refusal(&server(bed, &["promote", number]));
    assert!(refused.contains("cannot be promoted") && refused.contains("in sync"), "{refused}");
    until_row(bed, "s3", "learner", "healthy");
    let said = server(bed, &["promote", "s3"]);
    assert!(String::from_utf8_lossy(&said.stdout).contains("votes now"), "{said:?}");
    until_row(bed, "s3", "follower", "healthy");
    let again = server(bed, &["promote", "s3"]);
    assert!(String::from_utf8_lossy(&again.stdout).contains("votes already"), "{again:?}");
    // The server that comes back takes over.
    bed.up("s3", &[]);
    assert!(member(bed, "s3").is_some_and(|member| member != begun), "the etcd of before was replaced");
    until_row(bed, "s3", "follower", "healthy");
}

pub fn servers_change_and_the_cluster_goes_on() {
    let bed = Bed::new(&["s1", "s2", "s3"]);
    let (policy, encryption) = (bed.path("s1", "policy.yaml"), bed.path("s1", "encryption.yaml"));
    std::fs::write(&policy, POLICY).unwrap();
    std::fs::write(&encryption, ENCRYPTION).unwrap();
    let files = [
        format!("--audit-policy-file={}", policy.display()),
        format!("--encryption-provider-config={}", encryption.display()),
    ];
    bed.up(
        "s1",
        &[
            "--cluster-init",
            "--pod-network=routes",
            "--disable-admission-plugins=DefaultTolerationSeconds",
            &files[0],
            &files[1],
        ],
    );
    let refused = refusal(&server(&bed, &["remove", "s1"]));
    assert!(refused.contains("the only server that votes"), "{refused}");
    let (address, token) = token(&bed);
    // The files of the first server are not needed where it joins.
    for file in [&policy, &encryption] {
        std::fs::rename(file, file.with_extension("away")).unwrap();
    }
    let joined = join(&bed, "s2", &address, &token).output().unwrap();
    assert!(joined.status.success(), "{}", String::from_utf8_lossy(&joined.stderr));
    for file in [&policy, &encryption] {
        std::fs::rename(file.with_extension("away"), file).unwrap();
    }
    second_server_is_like_the_first(&bed);
    let refused = refusal(&server(&bed, &["remove", "nobody"]));
    assert!(refused.contains("there is no server nobody"), "{refused}");
    a_learner_is_promoted_by_hand(&bed, &address, &token);

    // Lost for good: the others cannot spare a second one, but do without this one.
    end(bed.pid("s3"));
    end(member(&bed, "s3").expect("its etcd"));
    until("s3 is seen to be away", || row(&bed, "s3")?.contains("unreachable").then_some(()));
    let refused = refusal(&server(&bed, &["remove", "s2"]));
    assert!(refused.contains("cannot be removed"), "{refused}");
    let removed = server(&bed, &["remove", "s3"]);
    assert!(removed.status.success(), "{removed:?}");
    assert!(row(&bed, "s3").is_none());
    // Started again it learns that.
    let mut again = bed.ferry("s3");
    again.arg("up").args(bed.node_flags("s3")).args(["--secure-port", &bed.port.to_string()]);
    let refused = refusal(&again.output().unwrap());
    assert!(refused.contains("this server was removed from the cluster"), "{refused}");
    assert!(member(&bed, "s3").is_none(), "its etcd stopped with it");

    // With its data gone it comes back under its name; removed while it runs, it stops by itself.
    let mut down = bed.ferry("s3");
    succeed(down.arg("down").arg("--purge").args(bed.folders("s3")));
    let joined = join(&bed, "s3", &address, &token).output().unwrap();
    assert!(joined.status.success(), "{}", String::from_utf8_lossy(&joined.stderr));
    until_row(&bed, "s3", "follower", "healthy");
    let process = bed.pid("s3");
    let removed = server(&bed, &["remove", "s3"]);
    assert!(removed.status.success(), "{removed:?}");
    until("the server that was removed stops", || rustix::process::test_kill_process(process).is_err().then_some(()));
    assert!(member(&bed, "s3").is_none(), "its etcd stopped with it");
    let log = std::fs::read_to_string(bed.path("s3", "data").join("ferry.log")).unwrap();
    assert!(log.contains("this server was removed from the cluster"), "{log}");
    bed.kubectl(&["create", "configmap", "still-writable"]);
    until("the kubernetes Service leads to two servers", || {
        let slice = bed.kubectl(&["get", "endpointslice", "kubernetes", "-o", "jsonpath={.endpoints[*].addresses[0]}"]);
        (slice.split_whitespace().count() == 2).then_some(())
    });

    // The first one, too, which knew of no other when it started.
    let process = bed.pid("s1");
    let mut remove = bed.ferry("s2");
    succeed(remove.args(["server", "remove", "s1"]).arg(&bed.folders("s2")[0]));
    until("the first server stops", || rustix::process::test_kill_process(process).is_err().then_some(()));
    assert!(member(&bed, "s1").is_none(), "its etcd stopped with it");
    let log = std::fs::read_to_string(bed.path("s1", "data").join("ferry.log")).unwrap();
    assert!(log.contains("this server was removed from the cluster"), "{log}");
}
