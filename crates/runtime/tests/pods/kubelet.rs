//! The runtime in a process of its own, and a client that asks of it what a kubelet asks.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};
use std::time::Duration;

use ferry_cri::{CriClient, v1};
use ferry_runtime::{Config, Mirrors, Network};
use serde_json::json;

pub const SERVE: &str = "serve";

pub struct Kubelet {
    pub folder: PathBuf,
    pub registry: String,
    pub client: CriClient,
    server: Child,
}

/// The number of a pod's shim.
pub fn shim_of(pod: &str) -> i32 {
    let processes = std::fs::read_dir("/proc").expect("processes").flatten();
    let mut shims = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(|pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        line.contains("runtime-shim") && line.contains(&pod[..16])
    });
    let shim = shims.next().expect("a shim");
    assert_eq!(shims.next(), None);
    shim
}

/// The folder of the CNI plug-ins.
pub fn plugins() -> Option<PathBuf> {
    ["/usr/lib/cni", "/opt/cni/bin"].map(PathBuf::from).into_iter().find(|path| path.join("bridge").exists())
}

fn config(folder: &Path) -> Config {
    Config {
        data_dir: folder.join("data"),
        run_dir: folder.join("run"),
        socket: folder.join("cri.sock"),
        binary: std::env::current_exe().expect("this program"),
        network: Network { configuration: folder.join("cni"), plugins: plugins().expect("CNI plug-ins are installed") },
        mirrors: Mirrors::default(),
        read_yaml: |bytes| serde_json::from_slice(bytes).map_err(|error| error.to_string()),
        pause_image: std::fs::read_to_string(folder.join("pause")).expect("the pause image's name"),
        log_limit: ferry_runtime::LogLimit::default(),
        cgroup_driver: v1::CgroupDriver::Cgroupfs,
    }
}

/// The server's process.
pub fn serve() -> ExitCode {
    let folder = PathBuf::from(std::env::args_os().nth(2).expect("a folder"));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let tasks = ferry_tasks::Tasks::new("server");
        std::fs::create_dir_all(folder.join("run")).expect("a folder");
        ferry_runtime::start(config(&folder), &tasks).await.expect("a server");
        std::future::pending::<()>().await;
    });
    ExitCode::SUCCESS
}

fn spawn(folder: &Path) -> Child {
    let _ = std::fs::remove_file(folder.join("cri.sock"));
    Command::new(std::env::current_exe().expect("this program")).arg(SERVE).arg(folder).spawn().expect("a server")
}

async fn connect(folder: &Path) -> CriClient {
    let socket = folder.join("cri.sock");
    for _ in 0..500 {
        if let Ok((client, _)) = CriClient::connect(&socket.to_string_lossy()).await {
            return client;
        }
        // The socket appears when the server serves.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the server does not answer");
}

impl Kubelet {
    pub async fn start(folder: &Path, registry: String) -> Self {
        let network = json!({"cniVersion": "1.0.0", "name": "test", "plugins": [{
            "type": "bridge", "bridge": crate::BRIDGE, "isGateway": true,
            "ipam": {"type": "host-local", "dataDir": folder.join("addresses"), "ranges": [[{"subnet": "10.239.77.0/24"}]]},
        }]});
        std::fs::create_dir_all(folder.join("cni")).expect("a folder");
        std::fs::write(folder.join("cni/10-test.conflist"), network.to_string()).expect("written");
        std::fs::write(folder.join("pause"), format!("{registry}/pause:latest")).expect("written");
        let server = spawn(folder);
        let client = connect(folder).await;
        Self { folder: folder.to_owned(), registry, client, server }
    }

    /// kill -9, and a new server in its place.
    pub async fn kill_and_restart(&mut self) {
        self.server.kill().expect("killed");
        self.server.wait().expect("ended");
        self.server = spawn(&self.folder);
        self.client = connect(&self.folder).await;
    }

    pub async fn end(&mut self) {
        let pods = self.client.list_pod_sandbox(Default::default()).await.map(|r| r.items).unwrap_or_default();
        for pod in pods {
            let _ = self.client.stop_pod_sandbox(v1::StopPodSandboxRequest { pod_sandbox_id: pod.id.clone() }).await;
            let _ = self.client.remove_pod_sandbox(v1::RemovePodSandboxRequest { pod_sandbox_id: pod.id }).await;
        }
        let _ = self.server.kill();
        let _ = self.server.wait();
        for folder in ["data", "run/namespaces", "run/program/ferry", "run/program"] {
            let _ = rustix::mount::unmount(self.folder.join(folder), rustix::mount::UnmountFlags::DETACH);
        }
    }

    /// The most memory that the server's process ever had, in bytes.
    pub fn peak_memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.server.id())).expect("a process");
        let line = status.lines().find(|line| line.starts_with("VmHWM")).expect("a peak");
        line.split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok()).expect("a number") * 1024
    }

    pub fn image(&self, name: &str) -> String {
        format!("{}/{name}:latest", self.registry)
    }

    pub async fn pull(&self, name: &str) -> Result<String, ferry_cri::Status> {
        let image = Some(v1::ImageSpec { image: self.image(name), ..Default::default() });
        let request = v1::PullImageRequest { image, ..Default::default() };
        self.client.pull_image(request).await.map(|response| response.image_ref)
    }

    pub fn pod_config(&self, name: &str) -> v1::PodSandboxConfig {
        let options = v1::NamespaceOption { pid: v1::NamespaceMode::Container.into(), ..Default::default() };
        v1::PodSandboxConfig {
            metadata: Some(v1::PodSandboxMetadata {
                name: name.into(),
                uid: name.into(),
                namespace: "test".into(),
                attempt: 0,
            }),
            hostname: name.into(),
            log_directory: self.folder.join("logs").join(name).to_string_lossy().into_owned(),
            labels: HashMap::from([("pod".into(), name.into())]),
            linux: Some(v1::LinuxPodSandboxConfig {
                cgroup_parent: "/ferryrttest".into(),
                security_context: Some(v1::LinuxSandboxSecurityContext {
                    namespace_options: Some(options),
                    ..Default::default()
                }),
                ..Default::default()
            }),
            ..Default::default()
        }
    }

    pub async fn run_pod(&self, config: v1::PodSandboxConfig) -> String {
        let request = v1::RunPodSandboxRequest { config: Some(config), runtime_handler: String::new() };
        self.client.run_pod_sandbox(request).await.expect("a pod").pod_sandbox_id
    }

    pub fn container_config(&self, name: &str, script: &str) -> v1::ContainerConfig {
        let options = v1::NamespaceOption { pid: v1::NamespaceMode::Container.into(), ..Default::default() };
        let context = v1::LinuxContainerSecurityContext { namespace_options: Some(options), ..Default::default() };
        v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata { name: name.into(), attempt: 0 }),
            image: Some(v1::ImageSpec { image: self.image("base"), ..Default::default() }),
            command: ["sh", "-c", script].map(str::to_owned).to_vec(),
            log_path: format!("{name}.log"),
            linux: Some(v1::LinuxContainerConfig { security_context: Some(context), ..Default::default() }),
            ..Default::default()
        }
    }

    pub async fn create(&self, pod: &str, config: v1::ContainerConfig) -> Result<String, ferry_cri::Status> {
        let request =
            v1::CreateContainerRequest { pod_sandbox_id: pod.into(), config: Some(config), sandbox_config: None };
        self.client.create_container(request).await.map(|response| response.container_id)
    }

    pub async fn start_container(&self, id: &str) -> Result<(), ferry_cri::Status> {
        self.client.start_container(v1::StartContainerRequest { container_id: id.into() }).await.map(|_| ())
    }

    /// A container that runs.
    pub async fn run(&self, pod: &str, config: v1::ContainerConfig) -> String {
        let id = self.create(pod, config).await.expect("a container");
        self.start_container(&id).await.expect("started");
        id
    }

    pub async fn status(&self, id: &str) -> v1::ContainerStatus {
        let request = v1::ContainerStatusRequest { container_id: id.into(), verbose: false };
        self.client.container_status(request).await.expect("a status").status.expect("a status")
    }

    /// Waits for the end by the runtime's own events.
    pub async fn ended(&self, id: &str) -> v1::ContainerStatus {
        let mut events = self.client.container_events().await.expect("events");
        let waiting = async {
            loop {
                let status = self.status(id).await;
                if status.state() == v1::ContainerState::ContainerExited {
                    return status;
                }
                while events.message().await.expect("an event").expect("an event").container_id != id {}
            }
        };
        tokio::time::timeout(Duration::from_secs(30), waiting).await.expect("the container ends")
    }

    pub async fn exec(&self, id: &str, words: &[&str]) -> v1::ExecSyncResponse {
        let cmd = words.iter().map(|word| (*word).to_owned()).collect();
        let request = v1::ExecSyncRequest { container_id: id.into(), cmd, timeout: 20 };
        self.client.exec_sync(request).await.expect("a command")
    }

    pub async fn output(&self, id: &str, script: &str) -> String {
        let answer = self.exec(id, &["sh", "-c", script]).await;
        String::from_utf8_lossy(&answer.stdout).trim().to_owned()
    }

    /// The lines of a container's log without their times.
    pub fn log(&self, pod: &str, name: &str) -> Vec<String> {
        let path = self.folder.join("logs").join(pod).join(format!("{name}.log"));
        let text = std::fs::read_to_string(path).expect("a log");
        text.lines().filter_map(|line| line.split_once(' ').map(|(_, rest)| rest.to_owned())).collect()
    }

    pub async fn remove_pod(&self, id: &str) {
        let pod_sandbox_id = id.to_owned();
        self.client
            .stop_pod_sandbox(v1::StopPodSandboxRequest { pod_sandbox_id: pod_sandbox_id.clone() })
            .await
            .expect("stopped");
        self.client.remove_pod_sandbox(v1::RemovePodSandboxRequest { pod_sandbox_id }).await.expect("removed");
    }
}
