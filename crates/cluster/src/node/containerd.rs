//! A containerd for Ferry alone: its own folders, socket and configuration; it and its containers outlive a restart of Ferry.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ferry_server::pki;

use crate::config::NodeConfig;
use crate::node::exited::exited;
use crate::node::tools;
use crate::{folders, process};

const START_PATIENCE: Duration = Duration::from_secs(30);

pub struct Containerd {
    data_dir: PathBuf,
    run_dir: PathBuf,
}

impl Containerd {
    pub fn new(data_dir: &Path, run_dir: &Path) -> Self {
        Self { data_dir: data_dir.to_owned(), run_dir: run_dir.to_owned() }
    }

    fn pid_file(&self) -> PathBuf {
        self.run_dir.join("containerd.pid")
    }

    pub fn socket(&self) -> PathBuf {
        self.run_dir.join("containerd.sock")
    }

    fn config_file(&self) -> PathBuf {
        self.data_dir.join("containerd.toml")
    }

    /// The running instance, recognised by its command line: a number in a file may long belong to someone else.
    pub fn running(&self) -> Option<i32> {
        let pid: i32 = fs::read_to_string(self.pid_file()).ok()?.trim().parse().ok()?;
        let command = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let config = self.config_file();
        let ours = command.split(|b| *b == 0).any(|argument| argument == config.as_os_str().as_encoded_bytes());
        ours.then_some(pid)
    }

    /// Finds the running instance or starts one, and returns when it answers.
    pub async fn ensure(&self, config: &NodeConfig) -> Result<i32> {
        let changed = self.write_config(config)?;
        let pid = match self.running() {
            Some(pid) if !changed => pid,
            running => {
                if let Some(pid) = running {
                    process::end(pid, Duration::from_secs(10))?;
                }
                self.start()?
            }
        };
        self.wait_until_it_answers(pid).await?;
        Ok(pid)
    }

    /// The instance whose pods are to be stopped: one that was killed is started again, for its containers still run.
    pub async fn revive(&self) -> Result<Option<i32>> {
        if let Some(pid) = self.running() {
            return Ok(Some(pid));
        }
        if !self.config_file().exists() || !self.run_dir.join("containerd").exists() {
            return Ok(None);
        }
        let pid = self.start()?;
        self.wait_until_it_answers(pid).await?;
        Ok(Some(pid))
    }

    fn start(&self) -> Result<i32> {
        fs::create_dir_all(&self.run_dir)?;
        let log = fs::OpenOptions::new().create(true).append(true).open(self.data_dir.join("containerd.log"))?;
        let program = tools::find("containerd").context("containerd is not installed")?;
        // A group of its own: Ctrl-C on Ferry's terminal must not reach it, its containers go on.
        let mut command = Command::new(program);
        #[expect(unsafe_code, reason = "there is no other way to give a child another umask")]
        // SAFETY: between fork and exec one system call is made, and nothing is allocated or locked.
        unsafe {
            command.pre_exec(|| {
                folders::usual_umask();
                Ok(())
            });
        }
        let child = command
            .arg("--config")
            .arg(self.config_file())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .spawn()
            .context("cannot start containerd")?;
        let pid = child.id().cast_signed();
        fs::write(self.pid_file(), pid.to_string())?;
        Ok(pid)
    }

    async fn wait_until_it_answers(&self, pid: i32) -> Result<()> {
        let answers = async {
            loop {
                if ferry_cri::CriClient::connect(&self.socket().to_string_lossy()).await.is_ok() {
                    return;
                }
                // The socket file appears before containerd serves CRI on it, and nothing tells when it does.
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::select! {
            () = answers => Ok(()),
            died = exited(pid) => {
                died?;
                bail!("containerd ended while starting; see {}", self.data_dir.join("containerd.log").display())
            }
            () = tokio::time::sleep(START_PATIENCE) => {
                bail!("containerd does not answer; see {}", self.data_dir.join("containerd.log").display())
            }
        }
    }

    /// Starts containerd again whenever it ends.
    pub async fn supervise(self, config: NodeConfig, mut pid: i32) {
        loop {
            if let Err(error) = exited(pid).await {
                tracing::error!("cannot watch containerd: {error:#}");
                return;
            }
            tracing::warn!("containerd exited; restarting it");
            pid = loop {
                match self.ensure(&config).await {
                    Ok(pid) => break pid,
                    Err(error) => tracing::error!("{error:#}"),
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
            };
        }
    }

    /// True when the configuration on disk had to be changed.
    fn write_config(&self, config: &NodeConfig) -> Result<bool> {
        fs::create_dir_all(&self.data_dir)?;
        let registries = self.data_dir.join("registries");
        for mirror in &config.mirrors {
            let folder = registries.join(&mirror.registry);
            fs::create_dir_all(&folder)?;
            let text = format!("[host.{:?}]\n  capabilities = [\"pull\", \"resolve\"]\n", mirror.url);
            fs::write(folder.join("hosts.toml"), text)?;
        }
        let text = self.config_text(config);
        let path = self.config_file();
        if fs::read_to_string(&path).is_ok_and(|have| have == text) {
            return Ok(false);
        }
        pki::write_private(&path, &text)?;
        Ok(true)
    }

    fn config_text(&self, config: &NodeConfig) -> String {
        let data = self.data_dir.display();
        let run = self.run_dir.display();
        let (plugins, networks) = (config.cni.bin_dir.display(), config.cni.conf_dir.display());
        let pause = &config.cluster.pause_image;
        let restricted = !may_lower_scores();
        let is_systemd = config.kubelet.cgroup_driver() == ferry_kubelet::CgroupDriver::Systemd;
        // netns_mounts_under_state_dir: what a killed runtime leaves there goes with the folder.
        // restrict_oom_score_adj: without CAP_SYS_RESOURCE a score cannot be lowered below the runtime's own.
        // enable_cdi: devices of plug-ins and claims are named that way; containerd 1.6 does not know it.
        // enable_unprivileged_*: without any capability a container may listen on port 80 and ping, as on any runtime of today.
        format!(
            r#"version = 2
root = "{data}/containerd"
state = "{run}/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs", "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing", "io.containerd.internal.v1.opt"]

[grpc]
  address = "{run}/containerd.sock"

[ttrpc]
  address = "{run}/containerd.sock.ttrpc"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = {restricted}
  netns_mounts_under_state_dir = true
  enable_unprivileged_ports = true
  enable_unprivileged_icmp = true
  enable_cdi = true
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{networks}"
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "{data}/registries:/etc/containerd/certs.d"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = {is_systemd}
"#
        )
    }
}

/// Whether this process may lower the score of another, which decides who is killed when memory runs out: it takes
/// CAP_SYS_RESOURCE among the machine's own users.
fn may_lower_scores() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let users = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    lowers_scores(&status, &users)
}

fn lowers_scores(status: &str, users: &str) -> bool {
    const SYS_RESOURCE: u32 = 24;
    let capabilities = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let capabilities = capabilities.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok()).unwrap_or(0);
    let all_users = users.split_whitespace().eq(["0", "0", "4294967295"]);
    capabilities & (1 << SYS_RESOURCE) != 0 && all_users
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_lowered_with_the_capability_and_among_all_users() {
        let status = |digits: &str| format!("Name:\tferry\nCapPrm:\t000001ffffffffff\nCapEff:\t{digits}\n");
        let all = "         0          0 4294967295\n";
        for (status, users, want) in [
            (status("000001ffffffffff"), all, true),
            (status("000001fffeffffff"), all, false),
            (status("000001ffffffffff"), "         0     100000      65536\n", false),
            (String::new(), all, false),
        ] {
            assert_eq!(lowers_scores(&status, users), want, "{status} {users}");
        }
    }
}
