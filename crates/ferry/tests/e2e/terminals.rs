//! `ferry kubectl` in a terminal: exec with sizes, attach and its detach keys, edit, port-forward, get --watch.
//!
//! `script` gives the terminal; `stty` from outside changes its size, as a window manager does.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};

use regex::Regex;

use crate::alone::text;
use crate::cluster::{Cluster, pause, until};

/// A program in a terminal of its own, or behind pipes.
struct Running {
    process: Child,
    stdin: Option<ChildStdin>,
    output: Arc<Mutex<String>>,
}

impl Running {
    fn start(mut command: Command) -> Self {
        let started = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn();
        let mut process = started.expect("the program runs");
        let (stdin, mut stdout) = (process.stdin.take(), process.stdout.take().unwrap());
        let output = Arc::new(Mutex::new(String::new()));
        let kept = output.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = stdout.read(&mut buffer) {
                kept.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..count]));
            }
        });
        Self { process, stdin, output }
    }

    fn shown(&self) -> String {
        self.output.lock().unwrap().clone()
    }

    fn types(&mut self, keys: &str) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(keys.as_bytes()).unwrap();
        stdin.flush().unwrap();
    }

    /// The first match, when it is shown.
    fn shows(&self, pattern: &str) -> String {
        let pattern = Regex::new(pattern).unwrap();
        let what = format!("{pattern} in {:?}", self.shown());
        until(&what, || pattern.find(&self.shown()).map(|found| found.as_str().to_owned()))
    }

    /// Types until it is answered: what was typed may have come before what it is about.
    fn answers(&mut self, keys: &str, pattern: &str) {
        let pattern = Regex::new(pattern).unwrap();
        until(&pattern.to_string(), || {
            self.types(keys);
            pause(std::time::Duration::from_millis(300));
            pattern.is_match(&self.shown()).then_some(())
        });
    }

    fn code(&mut self) -> i32 {
        let process = &mut self.process;
        until("the program ends", || process.try_wait().unwrap()).code().unwrap_or(-1)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn kubectl(cluster: &Cluster, words: &[&str]) -> Command {
    let mut command = cluster.ferry();
    let kubeconfig = cluster.data_dir().join("kubeconfig");
    command.args(["kubectl", "--kubeconfig", text(&kubeconfig)]).args(words).env("HOME", cluster.data_dir());
    command
}

/// kubectl in a terminal of 30 lines and 101 columns, which says its name first.
fn in_terminal(cluster: &Cluster, words: &str) -> (Running, String) {
    let (ferry, kubeconfig) = (env!("CARGO_BIN_EXE_ferry"), cluster.data_dir().join("kubeconfig"));
    let line = format!("stty rows 30 cols 101; tty; exec {ferry} kubectl --kubeconfig {} {words}", text(&kubeconfig));
    let mut command = Command::new("script");
    command.args(["-qefc", &line, "/dev/null"]).env("HOME", cluster.data_dir());
    let running = Running::start(command);
    let name = running.shows(r"/dev/pts/\d+");
    (running, name)
}

fn resize(name: &str, rows: &str, columns: &str) {
    let done = Command::new("stty").args(["-F", name, "rows", rows, "cols", columns]).status();
    assert!(done.expect("stty runs").success());
}

const POD: &str = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"terminals"},"spec":{"terminationGracePeriodSeconds":0,
    "containers":[
        {"name":"web","image":"busybox:1.36","command":["sh","-c","mkdir /tmp/w; echo hello > /tmp/w/x; exec httpd -f -p 8080 -h /tmp/w"]},
        {"name":"shell","image":"busybox:1.36","command":["sh"],"stdin":true,"tty":true}]}}"#;

pub fn kubectl_in_a_terminal(cluster: &mut Cluster) {
    cluster.apply(POD);
    cluster.kubectl(&["wait", "pod/terminals", "--for=condition=Ready", "--timeout=180s"]);
    exec_follows_the_size(cluster);
    attach_leaves_and_comes_back(cluster);
    edit_runs_the_editor(cluster);
    port_forward_serves_every_connection(cluster);
    watch_shows_changes(cluster);
    cluster.kubectl(&["delete", "pod", "terminals", "--wait=true"]);
}

fn exec_follows_the_size(cluster: &Cluster) {
    let (mut running, name) = in_terminal(cluster, "exec -it terminals -c web -- sh");
    running.answers("stty size\n", r"\b30 101\b");
    resize(&name, "41", "77");
    running.answers("stty size\n", r"\b41 77\b");
    // The keys are the container's: they end what runs there, and not kubectl.
    running.types("sleep 1000\n");
    running.answers("\u{3}echo al''ive\n", r"\balive\b");
    running.types("exit 7\n");
    assert_eq!(running.code(), 7, "{}", running.shown());
    assert!(running.shown().contains("command terminated with exit code 7"), "{}", running.shown());
    // Without a terminal here there is none there.
    let mut piped = Running::start(kubectl(cluster, &["exec", "-i", "terminals", "-c", "web", "--", "sh"]));
    piped.types("test -t 0 || echo no''ne\nexit\n");
    assert_eq!(piped.code(), 0);
    assert_eq!(piped.shown(), "none\n");
}

fn attach_leaves_and_comes_back(cluster: &Cluster) {
    for word in ["one", "two"] {
        let (mut running, _) = in_terminal(cluster, "attach -it terminals -c shell");
        running.shows("If you don't see a command prompt, try pressing enter.");
        running.answers(&format!("echo {word}''{word}\n"), &format!(r"\b{word}{word}\b"));
        running.types("\u{10}\u{11}");
        assert_eq!(running.code(), 0, "{}", running.shown());
        let again = "Session ended, resume using 'kubectl attach terminals -c shell -n default -i -t' command";
        assert!(running.shown().contains(again), "{}", running.shown());
    }
    let pod = cluster.json(&["get", "pod", "terminals"]);
    let statuses = pod["status"]["containerStatuses"].as_array().unwrap();
    assert!(statuses.iter().all(|status| status["restartCount"] == 0), "{statuses:?}");
}

fn edit_runs_the_editor(cluster: &Cluster) {
    cluster.kubectl(&["create", "configmap", "edited", "--from-literal=motto=old"]);
    let mut command = kubectl(cluster, &["edit", "configmap", "edited"]);
    let output = command.env("KUBE_EDITOR", "sed -i s/old/new/").output().expect("ferry runs");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "configmap/edited edited\n");
    assert_eq!(cluster.json(&["get", "configmap", "edited"])["data"]["motto"], "new");
    // An editor in a terminal: what it asks is answered by the keys.
    let editor = cluster.data_dir().join("editor");
    std::fs::write(&editor, "#!/bin/sh\nprintf 'which word? '\nread word\nsed -i \"s/new/$word/\" \"$1\"\n").unwrap();
    let line = format!("edit configmap edited --kubeconfig {}", text(&cluster.data_dir().join("kubeconfig")));
    let executable = Command::new("chmod").args(["+x", text(&editor)]).status();
    assert!(executable.expect("chmod runs").success());
    let mut script = Command::new("script");
    let whole = format!("exec {} kubectl {line}", env!("CARGO_BIN_EXE_ferry"));
    script.args(["-qefc", &whole, "/dev/null"]).env("KUBE_EDITOR", &editor).env("HOME", cluster.data_dir());
    let mut running = Running::start(script);
    running.shows("which word\\?");
    running.types("typed\n");
    assert_eq!(running.code(), 0, "{}", running.shown());
    assert_eq!(cluster.json(&["get", "configmap", "edited"])["data"]["motto"], "typed");
    cluster.kubectl(&["delete", "configmap", "edited"]);
}

fn fetch(port: u16) -> String {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    socket.write_all(b"GET /x HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer
}

fn port_forward_serves_every_connection(cluster: &Cluster) {
    let running = Running::start(kubectl(cluster, &["port-forward", "pod/terminals", ":8080"]));
    let line = running.shows(r"Forwarding from 127\.0\.0\.1:\d+ -> 8080");
    let port: u16 = line.split([':', ' ']).nth(3).and_then(|port| port.parse().ok()).unwrap();
    for _ in 0..5 {
        assert!(fetch(port).ends_with("hello\n"));
    }
    let together: Vec<_> = (0..5).map(|_| std::thread::spawn(move || fetch(port))).collect();
    for one in together {
        assert!(one.join().unwrap().ends_with("hello\n"));
    }
    let handled = running.shown().matches(&format!("Handling connection for {port}\n")).count();
    assert_eq!(handled, 10, "{}", running.shown());
}

fn watch_shows_changes(cluster: &Cluster) {
    cluster.kubectl(&["create", "configmap", "watched", "--from-literal=a=b"]);
    let words = ["get", "configmap", "--watch", "--output-watch-events", "--field-selector=metadata.name=watched"];
    let running = Running::start(kubectl(cluster, &words));
    running.shows(r"EVENT +NAME +DATA +AGE\nADDED +watched +1 ");
    cluster.kubectl(&["patch", "configmap", "watched", "-p", r#"{"data":{"c":"d"}}"#]);
    running.shows(r"\nMODIFIED +watched +2 ");
    cluster.kubectl(&["delete", "configmap", "watched"]);
    running.shows(r"\nDELETED +watched +2 ");
}
