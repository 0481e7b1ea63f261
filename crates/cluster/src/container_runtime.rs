//! What runs a node's containers: chosen by a flag, or by what the node has already.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

/// Where the embedded runtime serves, in the run folder.
pub const EMBEDDED_SOCKET: &str = "runtime.sock";

/// In the data folder: each runtime's own folder, and where it keeps a folder for each pod.
const OF_CONTAINERD: (&str, &str) = ("containerd", "containerd/io.containerd.grpc.v1.cri/sandboxes");
const OF_EMBEDDED: (&str, &str) = ("runtime", "runtime/sandboxes");

/// What runs containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContainerRuntime {
    Containerd,
    Embedded,
    /// Somebody else's, at this socket.
    Other(PathBuf),
}

impl ContainerRuntime {
    pub fn parse(text: &str) -> Result<Self> {
        match text.strip_prefix("unix://").unwrap_or(text) {
            "containerd" => Ok(Self::Containerd),
            "embedded" => Ok(Self::Embedded),
            path if path.starts_with('/') => Ok(Self::Other(path.into())),
            _ => bail!(
                "--container-runtime-endpoint {text:?} is not valid; use containerd, embedded, or a socket such as unix:///run/other.sock"
            ),
        }
    }

    /// What is asked for, or what the node has: pods of one runtime are unknown to another, which would start them a second
    /// time beside the first.
    pub fn choose(asked: Option<&str>, data_dir: &Path) -> Result<Self> {
        let has = |(_, pods): (&str, &str)| {
            std::fs::read_dir(data_dir.join(pods)).is_ok_and(|mut list| list.next().is_some())
        };
        let (containerd, embedded) = (has(OF_CONTAINERD), has(OF_EMBEDDED));
        let Some(text) = asked else {
            let made = |(folder, _): (&str, &str)| data_dir.join(folder).exists();
            let keeps = containerd || (made(OF_CONTAINERD) && !made(OF_EMBEDDED));
            return Ok(if keeps && !embedded { Self::Containerd } else { Self::Embedded });
        };
        let chosen = Self::parse(text)?;
        for (there, runtime, name) in
            [(containerd, Self::Containerd, "containerd"), (embedded, Self::Embedded, "embedded")]
        {
            if there && chosen != runtime {
                bail!(
                    "the pods of this node run on {name}, and another runtime would not know them; start it with --container-runtime-endpoint {name}, \
                     or end its pods first: `ferry down --data-dir {}`",
                    data_dir.display()
                );
            }
        }
        Ok(chosen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtimes_are_checked() {
        let other = ContainerRuntime::Other("/run/x.sock".into());
        assert_eq!(ContainerRuntime::parse("embedded").unwrap(), ContainerRuntime::Embedded);
        assert_eq!(ContainerRuntime::parse("unix:///run/x.sock").unwrap(), other);
        assert!(ContainerRuntime::parse("docker").is_err());
    }

    #[test]
    fn a_node_stays_with_the_runtime_of_its_pods() {
        let choose = |asked: Option<&str>, folders: &[&str]| {
            let folder = tempfile::tempdir().unwrap();
            for name in folders {
                std::fs::create_dir_all(folder.path().join(name)).unwrap();
            }
            ContainerRuntime::choose(asked, folder.path()).map_err(|error| error.to_string())
        };
        let pod_of_containerd = format!("{}/a", OF_CONTAINERD.1);
        let pod_of_embedded = format!("{}/a", OF_EMBEDDED.1);
        assert_eq!(choose(None, &[]), Ok(ContainerRuntime::Embedded));
        // Its images are there, though no pod is.
        assert_eq!(choose(None, &["containerd"]), Ok(ContainerRuntime::Containerd));
        assert_eq!(choose(None, &["containerd", "runtime"]), Ok(ContainerRuntime::Embedded));
        assert_eq!(choose(None, &[&pod_of_containerd, "runtime"]), Ok(ContainerRuntime::Containerd));
        assert_eq!(choose(None, &[&pod_of_embedded, "containerd"]), Ok(ContainerRuntime::Embedded));
        assert_eq!(choose(Some("embedded"), &["containerd"]), Ok(ContainerRuntime::Embedded));
        for (asked, pod, runs) in [
            ("embedded", &pod_of_containerd, "containerd"),
            ("unix:///run/x.sock", &pod_of_containerd, "containerd"),
            ("containerd", &pod_of_embedded, "embedded"),
        ] {
            let error = choose(Some(asked), &[pod]).unwrap_err();
            assert!(error.contains(&format!("run on {runs}")), "{error}");
        }
    }
}
