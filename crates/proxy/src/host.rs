//! Kernel settings without which Services cannot work: forwarding, and filtering of bridged packets.

use std::io::ErrorKind;
use std::path::Path;

use crate::family::Family;

const BRIDGE_FILTERING: [&str; 2] =
    ["/proc/sys/net/bridge/bridge-nf-call-iptables", "/proc/sys/net/bridge/bridge-nf-call-ip6tables"];

/// Turns on what is needed; true when the kernel filters packets between the ports of a bridge.
pub(crate) async fn prepare(families: &[Family]) -> std::io::Result<bool> {
    for family in families {
        match family {
            Family::Ipv4 => set("/proc/sys/net/ipv4/ip_forward", "1").await?,
            Family::Ipv6 => set("/proc/sys/net/ipv6/conf/all/forwarding", "1").await?,
        }
    }
    if !Path::new(BRIDGE_FILTERING[0]).exists() {
        // Absent where the feature is built in or the kernel has no modules: then the answer below is final.
        let load = tokio::process::Command::new("modprobe").arg("br_netfilter").output().await;
        if let Err(error) = load {
            tracing::debug!("br_netfilter was not loaded: {error}");
        }
    }
    match filter_bridged_packets().await {
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

async fn filter_bridged_packets() -> std::io::Result<()> {
    for file in BRIDGE_FILTERING {
        set(file, "1").await?;
    }
    Ok(())
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
