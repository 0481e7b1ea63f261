//! Kernel settings without which Services cannot work: forwarding, and filtering of bridged packets.

use std::io::ErrorKind;
use std::path::Path;

const FORWARDING: &str = "/proc/sys/net/ipv4/ip_forward";
const BRIDGE_FILTERING: &str = "/proc/sys/net/bridge/bridge-nf-call-iptables";

/// Turns on what is needed; true when the kernel filters packets between the ports of a bridge.
pub(crate) async fn prepare() -> std::io::Result<bool> {
    set(FORWARDING, "1").await?;
    if !Path::new(BRIDGE_FILTERING).exists() {
        // Absent where the feature is built in or the kernel has no modules: then the answer below is final.
        let load = tokio::process::Command::new("modprobe").arg("br_netfilter").output().await;
        if let Err(error) = load {
            tracing::debug!("br_netfilter was not loaded: {error}");
        }
    }
    match set(BRIDGE_FILTERING, "1").await {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            tracing::warn!(
                "this kernel cannot filter bridged packets: connections from pods to Services are masqueraded"
            );
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Writes only a changed value: the file may be read-only in a container that is set up already.
async fn set(path: &str, value: &str) -> std::io::Result<()> {
    let annotate = |error: std::io::Error| std::io::Error::new(error.kind(), format!("{path}: {error}"));
    let present = tokio::fs::read_to_string(path).await.map_err(annotate)?;
    if present.trim() == value {
        return Ok(());
    }
    tokio::fs::write(path, value).await.map_err(annotate)
}
