//! The pod's name: its hostname, its domain and the `/etc/hosts` that says so.

use std::fmt::Write;

use k8s_openapi::api::core::v1::{HostAlias, Pod};

use crate::pod;

/// The kernel takes 64 bytes with the closing zero.
const LONGEST_HOSTNAME: usize = 63;

/// The hostname of a pod, and the domain it stands in (empty without a subdomain).
pub(crate) fn hostname(pod: &Pod, cluster_domain: &str) -> (String, String) {
    let spec = pod::spec(pod);
    if let Some(own) = spec.hostname_override.as_deref().filter(|h| !h.is_empty()) {
        return (cut(own), String::new());
    }
    let hostname = spec.hostname.as_deref().filter(|h| !h.is_empty()).unwrap_or(pod::name(pod));
    let domain = match spec.subdomain.as_deref().filter(|s| !s.is_empty()) {
        Some(subdomain) => format!("{subdomain}.{}.svc.{cluster_domain}", pod::namespace(pod)),
        None => String::new(),
    };
    (cut(hostname), domain)
}

/// The name the kernel of the sandbox gets.
pub(crate) fn kernel_hostname(pod: &Pod, cluster_domain: &str) -> Result<String, String> {
    let (hostname, domain) = hostname(pod, cluster_domain);
    if pod::spec(pod).set_hostname_as_fqdn != Some(true) || domain.is_empty() {
        return Ok(hostname);
    }
    let full = format!("{hostname}.{domain}");
    if full.len() > 64 {
        return Err(format!(
            "failed to construct FQDN from pod hostname and cluster domain, FQDN {full} is too long (64 characters is the max, {} characters requested)",
            full.len()
        ));
    }
    Ok(full)
}

fn cut(hostname: &str) -> String {
    let cut: String = hostname.chars().take(LONGEST_HOSTNAME).collect();
    if cut.len() < hostname.len() { cut.trim_end_matches(['-', '.']).to_owned() } else { cut }
}

/// The managed file of a pod with a network of its own.
pub(crate) fn pod_file(pod: &Pod, addresses: &[String], cluster_domain: &str) -> String {
    let (hostname, domain) = hostname(pod, cluster_domain);
    let mut text = String::from(
        "# Kubernetes-managed hosts file.\n\
         127.0.0.1\tlocalhost\n\
         ::1\tlocalhost ip6-localhost ip6-loopback\n\
         fe00::0\tip6-localnet\n\
         fe00::0\tip6-mcastprefix\n\
         fe00::1\tip6-allnodes\n\
         fe00::2\tip6-allrouters\n",
    );
    for address in addresses {
        let _ = if domain.is_empty() {
            writeln!(text, "{address}\t{hostname}")
        } else {
            writeln!(text, "{address}\t{hostname}.{domain}\t{hostname}")
        };
    }
    text + &aliases(pod)
}

/// The managed file of a pod in the node's network.
pub(crate) fn host_network_file(pod: &Pod, node_file: &str) -> String {
    format!("# Kubernetes-managed hosts file (host network).\n{node_file}{}", aliases(pod))
}

fn aliases(pod: &Pod) -> String {
    let list: &[HostAlias] = pod::spec(pod).host_aliases.as_deref().unwrap_or_default();
    if list.is_empty() {
        return String::new();
    }
    let mut text = String::from("\n# Entries added by HostAliases.\n");
    for alias in list {
        let _ = writeln!(text, "{}\t{}", alias.ip, alias.hostnames.as_deref().unwrap_or_default().join("\t"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(name: &str, spec: serde_json::Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": name, "namespace": "web"}, "spec": spec})).expect("a pod")
    }

    #[test]
    fn hostnames_are_cut_to_what_the_kernel_takes() {
        let long = format!("{}-.x", "a".repeat(61));
        assert_eq!(hostname(&pod(&long, json!({"containers": []})), "cluster.local").0, "a".repeat(61));
        let named = pod("p", json!({"containers": [], "hostname": "h", "subdomain": "s", "setHostnameAsFQDN": true}));
        assert_eq!(kernel_hostname(&named, "cluster.local").as_deref(), Ok("h.s.web.svc.cluster.local"));
    }

    #[test]
    fn the_hosts_file_names_the_pod_and_its_aliases() {
        let pod = pod(
            "p",
            json!({"containers": [], "subdomain": "s",
            "hostAliases": [{"ip": "192.0.2.1", "hostnames": ["a", "b"]}]}),
        );
        let text = pod_file(&pod, &["10.0.0.5".to_owned()], "cluster.local");
        assert!(text.starts_with("# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n"));
        assert!(
            text.ends_with(
                "10.0.0.5\tp.s.web.svc.cluster.local\tp\n\n# Entries added by HostAliases.\n192.0.2.1\ta\tb\n"
            )
        );
    }
}
