//! A cluster of `ferry cluster` for tests, and what can be done to its nodes.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::cluster::{Cluster, free_port, http_get, kubectl_path, until};

/// A kubeconfig as a user has it before.
const OTHERS: &str = "apiVersion: v1\nkind: Config\ncurrent-context: mine\npreferences: {colors: true}\nclusters:\n- {name: mine, cluster: {server: 'https://192.0.2.1'}}\ncontexts:\n- {name: mine, context: {cluster: mine, user: me}}\nusers:\n- {name: me, user: {token: secret}}\n";

pub struct Bed {
    pub folder: tempfile::TempDir,
    pub name: String,
}

pub fn sh(line: &str) -> String {
    let output = Command::new("sh").args(["-c", line]).output().expect("sh runs");
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

impl Bed {
    pub fn new(name: &str) -> Self {
        if let Some(reason) = Cluster::missing() {
            ferry_testkit::cannot_run(&reason);
        }
        let folder = tempfile::Builder::new().prefix("ferry-clusters-").tempdir().expect("a folder");
        let bed = Self { folder, name: format!("{name}{}", std::process::id() % 10_000) };
        std::fs::write(bed.kubeconfig(), OTHERS).expect("a kubeconfig");
        bed
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("config")
    }

    pub fn home(&self) -> PathBuf {
        self.folder.path().join("clusters")
    }

    pub fn node(&self, number: usize) -> String {
        format!("{}-node-{number}", self.name)
    }

    pub fn try_ferry(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ferry"));
        command.args(arguments).env("KUBECONFIG", self.kubeconfig());
        if arguments[0] == "cluster" {
            command.arg("--clusters-dir").arg(self.home());
        }
        command.output().expect("ferry runs")
    }

    pub fn ferry(&self, arguments: &[&str]) -> String {
        let output = self.try_ferry(arguments);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "ferry {arguments:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
        text
    }

    pub fn refused(&self, arguments: &[&str]) -> String {
        let output = self.try_ferry(arguments);
        assert!(!output.status.success(), "ferry {arguments:?}: {}", String::from_utf8_lossy(&output.stdout));
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    pub fn create(&self, more: &[&str]) {
        let registry = std::env::var("FERRY_TEST_REGISTRY").unwrap_or_else(|_| "http://127.0.0.1:5057".into());
        let mirrors = ["docker.io", "registry.k8s.io"].map(|name| format!("--registry-mirror={name}={registry}"));
        let mut arguments = vec!["cluster", "create", &self.name, &mirrors[0], &mirrors[1]];
        arguments.extend(more);
        print!("{}", self.ferry(&arguments));
    }

    pub fn try_kubectl(&self, arguments: &[&str], input: &str) -> Output {
        use std::io::Write;
        let mut command = Command::new(kubectl_path());
        command.args(["--context", &format!("ferry-{}", self.name)]).args(arguments);
        command.env("HOME", self.folder.path()).env("KUBECONFIG", self.kubeconfig());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("kubectl runs");
        child.stdin.take().expect("its input").write_all(input.as_bytes()).ok();
        child.wait_with_output().expect("kubectl ends")
    }

    pub fn kubectl(&self, arguments: &[&str]) -> String {
        let output = self.try_kubectl(arguments, "");
        assert!(output.status.success(), "kubectl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    pub fn json(&self, arguments: &[&str]) -> Value {
        let mut all = arguments.to_vec();
        all.extend(["-o", "json"]);
        serde_json::from_str(&self.kubectl(&all)).expect("kubectl prints JSON")
    }

    pub fn apply(&self, manifest: &str) {
        let output = self.try_kubectl(&["apply", "-f", "-"], manifest);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// A web server on one node that says its name.
    pub fn run_pod(&self, name: &str, node: &str) {
        self.apply(&format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, labels: {{app: {name}}}}}\nspec:\n  nodeName: {node}\n  terminationGracePeriodSeconds: 0\n  tolerations: [{{operator: Exists}}]\n  containers:\n  - {{name: web, image: nginx:1.25, readinessProbe: {{httpGet: {{port: 80}}, periodSeconds: 1}}}}\n"
        ));
    }

    pub fn pod_address(&self, name: &str) -> String {
        until(&format!("{name} is ready"), || {
            let pod: Value = self.json(&["get", "pod", name]);
            is(&pod, "Ready", "True").then(|| pod["status"]["podIP"].as_str().map(str::to_owned))?
        })
    }

    /// What a pod gets when it asks for a page.
    pub fn ask(&self, pod: &str, url: &str) -> Option<String> {
        let output = self.try_kubectl(&["exec", pod, "--", "timeout", "5", "wget", "-q", "-O-", url], "");
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// Whether a pod answers through `kubectl port-forward`.
    pub fn forwards(&self, pod: &str) {
        self.forwards_by(&[], pod);
    }

    pub fn forwards_by(&self, flags: &[&str], pod: &str) {
        let port = free_port();
        let mut command = Command::new(kubectl_path());
        command.args(["--context", &format!("ferry-{}", self.name)]).args(flags);
        command.args(["port-forward", pod, &format!("{port}:80")]);
        command.env("HOME", self.folder.path()).env("KUBECONFIG", self.kubeconfig());
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("kubectl runs");
        until(&format!("{pod} answers through a forwarded port"), || {
            (http_get("127.0.0.1", port)? == pod).then_some(())
        });
        child.kill().expect("kubectl ends");
        child.wait().expect("kubectl ended");
    }

    /// The host's number of the node's first process.
    pub fn pid(&self, node: &str) -> String {
        let lock = self.home().join(&self.name).join(format!("{node}.lock"));
        std::fs::read_to_string(lock).expect("the lock").trim().to_owned()
    }

    /// The host's number of Ferry in the node.
    pub fn ferry_pid(&self, node: &str) -> Option<rustix::process::Pid> {
        let first = self.pid(node);
        let children = std::fs::read_to_string(format!("/proc/{first}/task/{first}/children")).ok()?;
        let mut children = children.split_whitespace();
        let ferry = children.find(|child| {
            let words = std::fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
            let words: Vec<&[u8]> = words.split(|byte| *byte == 0).collect();
            words.get(1).is_some_and(|word| [&b"run"[..], b"node"].contains(word))
        })?;
        rustix::process::Pid::from_raw(ferry.parse().ok()?)
    }

    /// Ends the process of Ferry in a node in one way or another, and waits until another one runs.
    pub fn restart_ferry(&self, node: &str, signal: rustix::process::Signal) {
        let old = self.ferry_pid(node).expect("Ferry runs");
        rustix::process::kill_process(old, signal).expect("a signal");
        until(&format!("Ferry of {node} runs again"), || self.ferry_pid(node).filter(|new| *new != old));
    }

    /// The host's end of a node's link; the server is the first machine.
    pub fn link(&self, machine: usize) -> String {
        format!("fc{}-{machine}", self.range().1)
    }

    pub fn inside(&self, node: &str, line: &str) -> String {
        sh(&format!("nsenter --target {} --net -- sh -c '{line}'", self.pid(node)))
    }

    /// What packets of a node meet, for whoever looks into a failure. A node that is gone has nothing to show.
    fn show_network(&self, node: &str) {
        let lock = self.home().join(&self.name).join(format!("{node}.lock"));
        let Ok(first) = std::fs::read_to_string(lock) else { return };
        let look = "ip addr; ip route; ip -6 route; ip neigh; bridge fdb show; nft list ruleset";
        let shown = Command::new("nsenter").args(["--target", first.trim(), "--net", "--", "sh", "-c", look]).output();
        println!(
            "{node}:\n{}",
            shown.map(|shown| String::from_utf8_lossy(&shown.stdout).into_owned()).unwrap_or_default()
        );
    }

    /// `10.213.N`, and N.
    pub fn range(&self) -> (String, String) {
        let list = self.ferry(&["cluster", "list"]);
        let line = list.lines().find(|line| line.starts_with(&self.name)).expect("it is listed");
        let server = line.split_whitespace().find(|word| word.starts_with("10.213.")).expect("an address");
        let parts: Vec<&str> = server.split('.').collect();
        (parts[..3].join("."), parts[2].to_owned())
    }

    pub fn why(&self, what: &str) -> String {
        String::from_utf8_lossy(&self.try_ferry(&["why", what]).stdout).into_owned()
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let kinds = "nodes,pods,csr,services,endpointslices";
            for arguments in [&["get", kinds, "-A", "-o", "wide"][..], &["get", "events", "-A"]] {
                println!("{}", String::from_utf8_lossy(&self.try_kubectl(arguments, "").stdout));
            }
            let folders = std::fs::read_dir(self.home().join(&self.name)).into_iter().flatten().flatten();
            for folder in folders.map(|entry| entry.path()).filter(|path| path.is_dir()) {
                let log = std::fs::read_to_string(folder.join("ferry.log")).unwrap_or_default();
                let lines: Vec<&str> = log.lines().collect();
                println!("{}:\n{}", folder.display(), lines[lines.len().saturating_sub(30)..].join("\n"));
                if let Some(node) = folder.file_name().and_then(|name| name.to_str()) {
                    self.show_network(node);
                }
            }
        }
        let _ = self.try_ferry(&["cluster", "delete", &self.name]);
    }
}

/// Whether a condition of an object has this status.
pub fn is(object: &Value, condition: &str, status: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|known| known["type"] == condition && known["status"] == status)
}
