//! Ferry in the place of the programs that controller-runtime's envtest starts.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use crate::alone::{succeeds, text};
use crate::cluster::{free_port, until};

/// A program that ends with the test.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(program: &Path, flags: &[String]) -> Program {
    Program(Command::new(program).args(flags).stderr(Stdio::null()).spawn().unwrap())
}

fn etcd_flags(port: u16, folder: &Path) -> Vec<String> {
    vec![
        "--listen-peer-urls=http://localhost:0".into(),
        format!("--advertise-client-urls=http://127.0.0.1:{port}"),
        format!("--listen-client-urls=http://127.0.0.1:{port}"),
        format!("--data-dir={}", folder.join("etcd").display()),
        "--unsafe-no-fsync=true".into(),
    ]
}

pub fn tests_start_their_own_control_plane() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let assets = folder.join("assets");
    assert_eq!(succeeds(&["envtest", text(&assets)]).trim(), text(&assets));
    // envtest looks here whether it may give a flag.
    let has = |program: &str, flag: &str| {
        let help = Command::new(assets.join(program)).arg("--help").output().unwrap();
        let help = String::from_utf8_lossy(&help.stdout).into_owned();
        help.lines().any(|line| line.trim_start().starts_with(flag))
    };
    assert!(has("etcd", "--unsafe-no-fsync") && has("kube-apiserver", "--cert-dir"));
    assert!(!has("kube-apiserver", "--insecure-port"));
    let (etcd_port, port) = (free_port(), free_port());
    let tokens = folder.join("tokens");
    std::fs::write(&tokens, "secret,tester,1,\"system:masters\"\n").unwrap();

    let _etcd = start(&assets.join("etcd"), &etcd_flags(etcd_port, folder));
    until("the stand-in for etcd listens", || std::net::TcpStream::connect(("127.0.0.1", etcd_port)).ok());
    let issuer = format!("https://127.0.0.1:{port}/");
    let flags = [
        format!("--etcd-servers=http://127.0.0.1:{etcd_port}"),
        format!("--cert-dir={}", folder.join("certs").display()),
        format!("--secure-port={port}"),
        format!("--service-account-issuer={issuer}"),
        format!("--token-auth-file={}", tokens.display()),
        "--bind-address=127.0.0.1".into(),
        "--authorization-mode=RBAC".into(),
        "--service-cluster-ip-range=10.0.0.0/24".into(),
        "--disable-admission-plugins=ServiceAccount".into(),
        "--allow-privileged=true".into(),
        // Upstream has it, Ferry does not.
        "--profiling=false".into(),
    ];
    let server = format!("--server=https://127.0.0.1:{port}");
    let kubectl = |words: &[&str]| -> Output {
        let access = [server.as_str(), "--token=secret", "--insecure-skip-tls-verify"];
        Command::new(assets.join("kubectl")).env("HOME", folder).args(access).args(words).output().unwrap()
    };
    let answers = |words: &[&str]| {
        until(&format!("kubectl {words:?}"), || {
            let output = kubectl(words);
            output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
        })
    };

    let apiserver = start(&assets.join("kube-apiserver"), &flags);
    answers(&["get", "--raw", "/readyz"]);
    assert!(folder.join("certs/apiserver.crt").exists(), "clients find the certificate in --cert-dir");
    assert!(answers(&["get", "--raw", "/.well-known/openid-configuration"]).contains(&issuer));
    answers(&["create", "configmap", "kept", "--from-literal=a=b"]);
    // Killed, not stopped: the state is the stand-in's.
    drop(apiserver);
    let _apiserver = start(&assets.join("kube-apiserver"), &flags);
    assert_eq!(answers(&["get", "configmap", "kept", "-o", "jsonpath={.data.a}"]), "b");
}

pub fn a_killed_test_leaves_no_server_behind() {
    let folder = tempfile::tempdir().unwrap();
    let assets = folder.path().join("assets");
    succeeds(&["envtest", text(&assets)]);
    let port = free_port();
    let flags = etcd_flags(port, folder.path());
    let mut parent = Program(
        Command::new("sh")
            .args(["-c", "\"$@\" & echo $!; wait", "sh", text(&assets.join("etcd"))])
            .args(&flags)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let mut pid = String::new();
    BufReader::new(parent.0.stdout.take().unwrap()).read_line(&mut pid).unwrap();
    let process = Path::new("/proc").join(pid.trim());
    until("the server listens", || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
    drop(parent);
    // Whoever adopts it may take its time to notice.
    let ended = || std::fs::read_to_string(process.join("stat")).map_or(true, |stat| stat.contains(") Z "));
    until("the server ended with the test", || ended().then_some(()));
}
