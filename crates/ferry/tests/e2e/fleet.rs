//! Several machines: each a network namespace on one segment, with a node of its own and real containers.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use crate::cluster::{end, free_port, kubectl_path, until};

/// A segment with a server on it, and machines that may join.
pub struct Bed {
    prefix: String,
    folder: tempfile::TempDir,
    registries: Vec<Child>,
    machines: Vec<&'static str>,
    /// Of machines that run another one than the one under test.
    binaries: std::cell::RefCell<std::collections::BTreeMap<String, PathBuf>>,
    pub port: u16,
}

/// Of Debian's package libfaketime.
const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";

pub fn sh(line: &str) -> String {
    let output = Command::new("sh").args(["-c", line]).output().expect("sh runs");
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn cache() -> PathBuf {
    kubectl_path().parent().expect("a folder").to_owned()
}

/// Where `hack/registry.sh` serves the tests' images.
pub fn registry_port() -> String {
    let url = std::env::var("FERRY_TEST_REGISTRY").unwrap_or_default();
    url.rsplit_once(':').map_or_else(|| "5057".to_owned(), |(_, port)| port.to_owned())
}

impl Bed {
    pub fn new(machines: &[&'static str]) -> Self {
        let folder = tempfile::Builder::new().prefix("ferry-bed-").tempdir().expect("a folder");
        let prefix = format!("fb{}", std::process::id());
        let mut bed = Self {
            prefix,
            folder,
            registries: Vec::new(),
            machines: machines.to_vec(),
            binaries: std::cell::RefCell::default(),
            port: free_port(),
        };
        let hub = bed.namespace("hub");
        sh(&format!("ip netns add {hub} && ip -n {hub} link add br0 type bridge && ip -n {hub} link set br0 up"));
        for (number, machine) in machines.iter().enumerate() {
            let name = bed.namespace(machine);
            sh(&format!(
                "ip netns add {name} && ip -n {name} link add eth0 type veth peer name to-{machine} netns {hub} \
                 && ip -n {hub} link set to-{machine} master br0 up && ip -n {name} link set lo up \
                 && ip -n {name} addr add {}/24 dev eth0 && ip -n {name} link set eth0 up \
                 && ip -n {name} route add default via 192.168.79.254",
                address(number)
            ));
            bed.serve_images(machine);
        }
        bed
    }

    pub fn namespace(&self, machine: &str) -> String {
        format!("{}-{machine}", self.prefix)
    }

    /// The tests' images, on each machine's own loopback.
    fn serve_images(&mut self, machine: &str) {
        let registry = cache().join("registry/usr/bin/docker-registry");
        let mut command = self.inside(machine, registry);
        command.arg("serve").arg(cache().join(format!("registry-{}/config.yml", registry_port())));
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("a registry");
        self.registries.push(child);
    }

    /// A command in the machine's network; everything else is this machine's.
    pub fn inside(&self, machine: &str, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.namespace(machine))).arg("--").arg(program);
        command
    }

    pub fn ferry(&self, machine: &str) -> Command {
        let other = self.binaries.borrow().get(machine).cloned();
        let mut command = self.inside(machine, other.unwrap_or_else(|| env!("CARGO_BIN_EXE_ferry").into()));
        let clock = self.path(machine, "clock");
        if clock.exists() && Path::new(FAKETIME).exists() {
            command.env("LD_PRELOAD", FAKETIME).env("FAKETIME_TIMESTAMP_FILE", clock);
            command.env("FAKETIME_CACHE_DURATION", "1").env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        }
        command
    }

    /// How far the clock of Ferry's processes on this machine is off, in seconds, beginning with those that start after the first call.
    pub fn set_clock(&self, machine: &str, offset: &str) {
        std::fs::write(self.path(machine, "clock"), offset).expect("the clock");
    }

    pub fn address_of(&self, machine: &str) -> String {
        address(self.machines.iter().position(|known| *known == machine).expect("a machine"))
    }

    /// From now on, this machine's commands are those of another binary.
    pub fn install(&self, machine: &str, binary: &Path) {
        self.binaries.borrow_mut().insert(machine.to_owned(), binary.to_owned());
    }

    pub fn path(&self, machine: &str, what: &str) -> PathBuf {
        self.folder.path().join(format!("{machine}-{what}"))
    }

    pub fn run_dir(&self, machine: &str) -> PathBuf {
        Path::new("/run").join(format!("{}-{machine}", self.prefix))
    }

    pub fn folders(&self, machine: &str) -> [String; 2] {
        [
            format!("--data-dir={}", self.path(machine, "data").display()),
            format!("--run-dir={}", self.run_dir(machine).display()),
        ]
    }

    pub fn node_flags(&self, machine: &str) -> Vec<String> {
        let mut flags = self.folders(machine).to_vec();
        flags.extend([
            format!("--node-name={machine}"),
            format!("--node-ip={}", self.address_of(machine)),
            format!("--cgroup-root=/ferrytest-{machine}"),
            "--container-runtime-endpoint=embedded".into(),
            format!("--registry-mirror=docker.io=http://127.0.0.1:{}", registry_port()),
            format!("--registry-mirror=registry.k8s.io=http://127.0.0.1:{}", registry_port()),
        ]);
        flags
    }

    pub fn up(&self, machine: &str, more: &[&str]) {
        let mut command = self.ferry(machine);
        command.arg("up").args(self.node_flags(machine)).args(more);
        command.args(["--secure-port", &self.port.to_string()]);
        succeed(&mut command);
    }

    pub fn token(&self) -> (String, String) {
        let mut command = self.ferry(self.machines[0]);
        command.args(["token", "create", "--kubeconfig"]).arg(self.kubeconfig());
        let line = succeed(&mut command);
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(&words[..2], ["ferry", "join"], "{line}");
        (words[2].to_owned(), words[3].to_owned())
    }

    pub fn join(&self, machine: &str, address: &str, token: &str) -> Output {
        let mut command = self.ferry(machine);
        command.args(["join", address, token]).args(self.node_flags(machine));
        command.output().expect("ferry runs")
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.path(self.machines[0], "data").join("kubeconfig")
    }

    pub fn try_kubectl(&self, arguments: &[&str], input: &str) -> Output {
        use std::io::Write;
        let mut command = self.inside(self.machines[0], kubectl_path());
        command.arg("--kubeconfig").arg(self.kubeconfig()).args(arguments).env("HOME", self.folder.path());
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

    pub fn apply(&self, manifest: &str) {
        let output = self.try_kubectl(&["apply", "-f", "-"], manifest);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// A web server on one machine that says its name.
    pub fn run_pod(&self, name: &str, machine: &str) {
        self.apply(&format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, labels: {{app: web}}}}\nspec:\n  nodeName: {machine}\n  terminationGracePeriodSeconds: 0\n  containers:\n  - {{name: web, image: nginx:1.25, readinessProbe: {{httpGet: {{port: 80}}, periodSeconds: 1}}}}\n"
        ));
    }

    pub fn pod_address(&self, name: &str) -> String {
        until(&format!("{name} is ready"), || {
            let pod: Value = serde_json::from_str(&self.kubectl(&["get", "pod", name, "-o", "json"])).unwrap();
            let ready =
                pod["status"]["conditions"].as_array()?.iter().any(|c| c["type"] == "Ready" && c["status"] == "True");
            ready.then(|| pod["status"]["podIP"].as_str().map(str::to_owned))?
        })
    }

    /// What a pod gets when it asks for a page.
    fn ask(&self, pod: &str, url: &str) -> Option<String> {
        let output = self.try_kubectl(&["exec", pod, "--", "timeout", "5", "wget", "-q", "-O-", url], "");
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    pub fn pid(&self, machine: &str) -> rustix::process::Pid {
        let text = std::fs::read_to_string(self.run_dir(machine).join("ferry.lock")).expect("the lock");
        rustix::process::Pid::from_raw(text.trim().parse().expect("a number")).expect("a process id")
    }

    pub fn links(&self, machine: &str) -> String {
        sh(&format!("ip -n {} -o link", self.namespace(machine)))
    }
}

impl Bed {
    /// What went on, for the reader of a failed run.
    fn show_state(&self) {
        for arguments in [&["get", "nodes,pods,csr", "-A", "-o", "wide"][..], &["get", "events", "-A"]] {
            println!("{}", String::from_utf8_lossy(&self.try_kubectl(arguments, "").stdout));
        }
        for machine in &self.machines {
            let log = std::fs::read_to_string(self.path(machine, "data").join("ferry.log")).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            println!("{machine}:\n{}", lines[lines.len().saturating_sub(40)..].join("\n"));
        }
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.show_state();
        }
        for machine in &self.machines {
            let mut command = self.ferry(machine);
            let _ = command.arg("down").args(self.folders(machine)).output();
            // Some have a disk of their own.
            let _ = Command::new("umount").arg("-l").arg(self.path(machine, "data")).output();
        }
        for registry in &mut self.registries {
            let _ = registry.kill();
            let _ = registry.wait();
        }
        for machine in self.machines.iter().chain([&"hub"]) {
            let _ = Command::new("ip").args(["netns", "del", &self.namespace(machine)]).output();
        }
    }
}

pub fn address(number: usize) -> String {
    format!("192.168.79.{}", number + 1)
}

pub fn succeed(command: &mut Command) -> String {
    let output = command.output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

pub fn refusal(output: &Output) -> String {
    assert!(!output.status.success(), "it succeeded: {}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Join, reach each other by address, name and Service, survive kill -9, leave without a trace.
pub fn machines_join_work_and_leave() {
    for mode in ["routes", "vxlan"] {
        let bed = Bed::new(&["s1", "n1"]);
        let before = bed.links("n1").lines().count();
        bed.up("s1", &["--pod-network", mode]);
        let (server, token) = bed.token();

        let (head, hash) = token.split_once('@').unwrap();
        let half = refusal(&bed.join("n1", &server, head));
        assert!(half.contains("not a whole token") && !half.contains(head), "{half}");
        let wrong = refusal(&bed.join("n1", &server, &format!("{}@{hash}", "abcdef.0123456789abcdef")));
        assert!(wrong.contains("does not know the token abcdef"), "{wrong}");
        let other = refusal(&bed.join("n1", &server, &format!("{head}@sha256:{}", "0".repeat(64))));
        assert!(other.contains("another cluster"), "{other}");

        let joined = bed.join("n1", &server, &token);
        assert!(joined.status.success(), "{}", String::from_utf8_lossy(&joined.stderr));
        print!("{}", String::from_utf8_lossy(&joined.stdout));
        bed.run_pod("near", "s1");
        bed.run_pod("far", "n1");
        bed.kubectl(&["expose", "pod", "far", "--name=far-service", "--port=80"]);
        let far = bed.pod_address("far");
        bed.pod_address("near");
        for url in [
            format!("http://{far}/"),
            "http://far-service/".into(),
            "http://far-service.default.svc.cluster.local/".into(),
        ] {
            until(&format!("{mode}: near reaches {url}"), || (bed.ask("near", &url)? == "far").then_some(()));
        }
        // The other way, with DNS and the proxy of the node that joined.
        bed.kubectl(&["expose", "pod", "near", "--name=near-service", "--port=80"]);
        until(&format!("{mode}: far reaches near"), || {
            (bed.ask("far", "http://near-service/")? == "near").then_some(())
        });

        // A policy holds on the node that joined, against a pod of another node.
        let closed = r#"{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"name":"closed"},
            "spec":{"podSelector":{},"policyTypes":["Ingress"]}}"#;
        bed.apply(closed);
        let url = format!("http://{far}/");
        until(&format!("{mode}: a policy closes far"), || bed.ask("near", &url).is_none().then_some(()));
        let other = format!("http://{}/", bed.pod_address("near"));
        until(&format!("{mode}: and near"), || bed.ask("far", &other).is_none().then_some(()));
        bed.kubectl(&["delete", "networkpolicy", "closed"]);
        until(&format!("{mode}: far is open again"), || (bed.ask("near", &url)? == "far").then_some(()));

        // The process goes, its pods and rules stay; started again, it finds them.
        end(bed.pid("n1"));
        until("far answers while its node's process is gone", || {
            (bed.ask("near", &format!("http://{far}/"))? == "far").then_some(())
        });
        let mut again = bed.ferry("n1");
        let log = std::fs::File::create(bed.path("n1", "again.log")).unwrap();
        again.args(["node", "run"]).args(bed.node_flags("n1")).stdout(Stdio::null()).stderr(log);
        let mut again = again.spawn().expect("ferry runs");
        until("exec into the pod works again", || (bed.ask("far", "http://near-service/")? == "near").then_some(()));
        assert_eq!(bed.pod_address("far"), far, "it is the same pod");

        let mut leave = bed.ferry("n1");
        let left = succeed(leave.arg("leave").args(bed.folders("n1")));
        assert!(left.contains("evicted default/far") && !left.contains("not drained"), "{left}");
        again.wait().unwrap();
        until("the Node is gone", || (!bed.try_kubectl(&["get", "node", "n1"], "").status.success()).then_some(()));
        assert_eq!(bed.links("n1").lines().count(), before, "{}", bed.links("n1"));
        let routes = sh(&format!("ip -n {} route", bed.namespace("n1")));
        assert!(!routes.contains("10.244."), "{routes}");
    }
}
