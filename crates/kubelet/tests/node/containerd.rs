//! A containerd of our own, with two tiny images, all in one folder and gone afterwards.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::json;
use sha2::{Digest, Sha256};

pub(crate) struct Containerd {
    child: Child,
    pub(crate) folder: PathBuf,
    bridge: String,
}

/// A file of an image: its path, its content, or where it links to.
enum File<'a> {
    Folder(&'a str, u32),
    Data(&'a str, &'a [u8], u32),
    Link(&'a str, &'a str),
}

impl Containerd {
    /// None, and a record of why, where this machine cannot run it.
    pub(crate) async fn start(folder: &Path) -> Option<Self> {
        let busybox = ferry_testkit::cache().join("busybox/bin/busybox");
        let needs = ["/usr/bin/containerd".as_ref(), "/usr/lib/cni/bridge".as_ref(), busybox.as_path()];
        if !rustix::process::geteuid().is_root() {
            ferry_testkit::skip("containers need root");
            return None;
        }
        if let Some(missing) = needs.iter().find(|path| !path.exists()) {
            ferry_testkit::skip(&format!("there is no {}; hack/setup.sh --test installs it", missing.display()));
            return None;
        }
        let number = std::process::id() % 200;
        let bridge = format!("ferryt{number}");
        write_config(folder, &bridge, number);
        let log = std::fs::File::create(folder.join("containerd.log")).expect("a log");
        let child = Command::new("/usr/bin/containerd")
            .arg("-c")
            .arg(folder.join("config.toml"))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("containerd");
        let containerd = Self { child, folder: folder.to_owned(), bridge };
        let ready = async {
            while !containerd.ctr(&["version"]) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), ready).await.expect("containerd answers");
        let names = Command::new(&busybox).arg("--list").output().expect("a list").stdout;
        let names = String::from_utf8(names).expect("names");
        let busybox = std::fs::read(&busybox).expect("busybox");
        let links: Vec<String> = names.lines().filter(|n| *n != "busybox").map(|n| format!("bin/{n}")).collect();
        let mut files = vec![
            File::Folder("bin", 0o755),
            File::Folder("tmp", 0o1777),
            File::Folder("etc", 0o755),
            File::Data("etc/passwd", b"root:x:0:0::/:/bin/sh\n", 0o644),
            File::Data("bin/busybox", &busybox, 0o755),
        ];
        files.extend(links.iter().map(|path| File::Link(path, "busybox")));
        containerd.import("test.local/busybox:1", &files, json!({"Cmd": ["sh"], "Env": ["PATH=/bin"]}));
        let pause = [File::Folder("bin", 0o755), File::Data("bin/busybox", &busybox, 0o755)];
        let command = json!({"Entrypoint": ["/bin/busybox", "sleep", "2147483647"]});
        containerd.import("test.local/pause:1", &pause, command);
        Some(containerd)
    }

    pub(crate) fn socket(&self) -> String {
        self.folder.join("containerd.sock").to_string_lossy().into_owned()
    }

    fn ctr(&self, arguments: &[&str]) -> bool {
        let mut command = Command::new("/usr/bin/ctr");
        command.args(["-a", &self.socket(), "-n", "k8s.io"]).args(arguments);
        command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
    }

    fn import(&self, name: &str, files: &[File<'_>], config: serde_json::Value) {
        let layer = archive(files);
        let digest = hex(&layer);
        let config = json!({"architecture": "amd64", "os": "linux", "config": config,
            "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{digest}")]}})
        .to_string();
        let config_name = format!("{}.json", hex(config.as_bytes()));
        let manifest = json!([{"Config": config_name, "RepoTags": [name], "Layers": ["layer.tar"]}]).to_string();
        let image = archive(&[
            File::Data(&config_name, config.as_bytes(), 0o644),
            File::Data("layer.tar", &layer, 0o644),
            File::Data("manifest.json", manifest.as_bytes(), 0o644),
        ]);
        let path = self.folder.join("image.tar");
        std::fs::write(&path, image).expect("written");
        assert!(self.ctr(&["images", "import", &path.to_string_lossy()]), "importing {name}");
    }

    /// Kills every process of every container.
    pub(crate) fn kill_all(&self) {
        for task in self.list("tasks") {
            self.ctr(&["tasks", "kill", "-s", "KILL", &task]);
        }
    }

    /// Helpers of ours that outlived their containerd: those whose command line names our socket.
    fn shims(&self) -> Vec<i32> {
        let socket = self.socket();
        let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = processes.filter_map(|p| p.file_name().to_string_lossy().parse().ok());
        pids.filter(|pid: &i32| {
            let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.contains("containerd-shim") && line.contains(&socket)
        })
        .collect()
    }

    fn list(&self, what: &str) -> Vec<String> {
        let mut command = Command::new("/usr/bin/ctr");
        let output = command.args(["-a", &self.socket(), "-n", "k8s.io", what, "ls", "-q"]).output();
        let text = output.map(|o| String::from_utf8_lossy(&o.stdout).into_owned()).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

/// Whatever became of the test: no process, bridge or mount of it stays.
impl Drop for Containerd {
    fn drop(&mut self) {
        for task in self.list("tasks") {
            self.ctr(&["tasks", "delete", "--force", &task]);
        }
        if let Some(pid) = rustix::process::Pid::from_raw(self.child.id().cast_signed()) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = self.child.wait();
        for shim in self.shims() {
            let children = std::fs::read_to_string(format!("/proc/{shim}/task/{shim}/children")).unwrap_or_default();
            for pid in children.split_whitespace().filter_map(|p| p.parse().ok()).chain([shim]) {
                if let Some(pid) = rustix::process::Pid::from_raw(pid) {
                    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
                }
            }
        }
        let _ = Command::new("ip").args(["link", "delete", &self.bridge]).status();
        let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let folder = self.folder.to_string_lossy().into_owned();
        for point in table.lines().rev().filter_map(|l| l.split(' ').nth(4)).filter(|p| p.starts_with(&folder)) {
            let _ = rustix::mount::unmount(point, rustix::mount::UnmountFlags::DETACH);
        }
    }
}

fn write_config(folder: &Path, bridge: &str, number: u32) {
    let base = folder.display();
    let config = format!(
        r#"version = 2
root = "{base}/root"
state = "{base}/state"
[grpc]
  address = "{base}/containerd.sock"
[ttrpc]
  address = "{base}/containerd.sock.ttrpc"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "test.local/pause:1"
  restrict_oom_score_adj = true
  stream_server_address = "127.0.0.1"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{base}/cni"
"#
    );
    std::fs::write(folder.join("config.toml"), config).expect("written");
    std::fs::create_dir_all(folder.join("cni")).expect("a folder");
    let network = json!({"cniVersion": "0.4.0", "name": bridge, "plugins": [{
        "type": "bridge", "bridge": bridge, "isGateway": true,
        "ipam": {"type": "host-local", "dataDir": format!("{base}/ipam"),
            "ranges": [[{"subnet": format!("10.88.{number}.0/24")}]], "routes": [{"dst": "0.0.0.0/0"}]}}]});
    std::fs::write(folder.join("cni/10.conflist"), network.to_string()).expect("written");
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

/// A tar archive.
fn archive(files: &[File<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    for file in files {
        let (path, data, mode, kind, link) = match file {
            File::Folder(path, mode) => (*path, &b""[..], *mode, b'5', ""),
            File::Data(path, data, mode) => (*path, *data, *mode, b'0', ""),
            File::Link(path, target) => (*path, &b""[..], 0o777, b'2', *target),
        };
        let mut header = [0_u8; 512];
        let mut put = |at: usize, text: &str| (&mut header[at..]).write_all(text.as_bytes()).expect("fits");
        put(0, path);
        put(100, &format!("{mode:07o}"));
        put(108, "0000000");
        put(116, "0000000");
        put(124, &format!("{:011o}", data.len()));
        put(136, "00000000000");
        put(148, "        ");
        put(157, link);
        put(257, "ustar\x0000");
        header[156] = kind;
        let sum: u32 = header.iter().map(|b| u32::from(*b)).sum();
        (&mut header[148..]).write_all(format!("{sum:06o}\0 ").as_bytes()).expect("fits");
        out.extend_from_slice(&header);
        out.extend_from_slice(data);
        out.resize(out.len().next_multiple_of(512), 0);
    }
    out.resize(out.len() + 1024, 0);
    out
}
