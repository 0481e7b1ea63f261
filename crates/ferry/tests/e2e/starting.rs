//! Starts that cannot succeed: each says what is wrong and what to do, and leaves nothing half-written.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::alone::{Apiserver, create, runtime};
use crate::cluster::Cluster;

/// Runs a start that must fail and returns its complaint.
fn refused(command: &mut Command) -> String {
    let output = command.output().expect("ferry runs");
    assert!(!output.status.success(), "a start that cannot succeed succeeded");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub fn a_bad_start_says_what_to_do(cluster: &mut Cluster) {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let run = folder.path().join("run");
    let folders = [format!("--data-dir={}", data.display()), format!("--run-dir={}", run.display())];
    let start = |cluster: &Cluster, extra: &[&str]| {
        let mut command = cluster.ferry();
        command.arg("up").args(&folders).args(extra);
        command
    };

    let taken = cluster.server();
    let port = taken.rsplit(':').next().unwrap();
    let message = refused(start(cluster, &["--secure-port", port]).arg("--kubelet-port=0"));
    assert!(message.contains(&format!("port {port} is in use")) && message.contains("--secure-port"), "{message}");

    for (flags, expected) in [
        (&["--cluster-cidr=10.1.2.3/16"][..], "--cluster-cidr"),
        (&["--cluster-cidr=10.96.0.0/16"], "overlap"),
        (&["--registry-mirror=docker.io"], "docker.io=http://"),
        (&["--bridge=a-name-that-is-too-long"], "1 to 15 characters"),
    ] {
        let message = refused(&mut start(cluster, flags));
        assert!(message.contains(expected), "{flags:?}: {message}");
    }

    let flags = ["--container-runtime-endpoint=containerd"];
    let message = refused(start(cluster, &flags).env("PATH", "/nonexistent"));
    assert!(message.contains("apt-get install containerd"), "{message}");

    // As somebody else, who must be able to reach the program.
    let program = folder.path().join("ferry");
    std::fs::copy(env!("CARGO_BIN_EXE_ferry"), &program).unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let rights = ["--reuid=65534", "--regid=65534", "--clear-groups", "--"];
    let message = refused(Command::new("setpriv").args(rights).arg(program).args(["up", &folders[0], &folders[1]]));
    assert!(message.contains("needs root"), "{message}");
    assert!(!data.exists() && !run.exists(), "nothing was written");

    let message = refused(cluster.ferry().args(["apiserver", &folders[0], "--secure-port=0", "--local-path"]));
    assert!(message.contains("an API server alone makes no volumes"), "{message}");
    assert!(!data.exists(), "nothing was written");

    std::fs::create_dir_all(data.join("store")).unwrap();
    std::fs::write(data.join("store/FORMAT"), "ferry-store 999\n").unwrap();
    let message =
        refused(cluster.ferry().args(["apiserver", &folders[0], "--bind-address=127.0.0.1", "--secure-port=0"]));
    assert!(message.contains("another version") || message.contains("format"), "{message}");
}

/// As on a full disk: every write to the log fails, and the threads that log live on.
pub fn a_log_that_cannot_be_written_harms_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut server = Apiserver::start_logging_to(folder.path(), &[], full.into());
    runtime().block_on(async {
        let client = server.client().await;
        for name in ["a", "b"] {
            create(&client, name).await.expect("it is written");
        }
    });
}
