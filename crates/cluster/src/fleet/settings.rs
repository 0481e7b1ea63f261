//! What a node has to know of its cluster, as objects that it may read: upstream's `kubeadm-config` and `kubelet-config` in
//! kube-system, and `ferry-network` beside them for what only Ferry's nodes have.

use anyhow::{Context, Result};
use ferry_client::Api;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::config::ClusterSettings;
use crate::ranges::Ranges;

pub const NAMESPACE: &str = "kube-system";
pub const CLUSTER: &str = "kubeadm-config";
pub const KUBELET: &str = "kubelet-config";
pub const NETWORK: &str = "ferry-network";

/// The same on every node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Settings {
    pub cluster_cidr: String,
    pub service_cidr: String,
    pub cluster_domain: String,
    pub cluster_dns: String,
    /// None where the control plane is not Ferry's: the pod network and DNS are then somebody else's.
    pub network: Option<NetworkSettings>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkSettings {
    /// `auto`, `routes`, `vxlan`, `wireguard` or `cni`.
    pub mode: String,
    pub dns_port: u16,
    pub pause_image: String,
    /// The addresses of LoadBalancer Services, where they have their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_balancer_range: Option<String>,
}

impl Settings {
    pub fn of(cluster: &ClusterSettings) -> Self {
        Self {
            cluster_cidr: cluster.cluster_cidr.to_string(),
            service_cidr: cluster.service_cidr.to_string(),
            cluster_domain: cluster.cluster_domain.clone(),
            cluster_dns: cluster.cluster_dns.to_string(),
            network: Some(NetworkSettings {
                mode: cluster.pod_network.to_string(),
                dns_port: cluster.dns_port,
                pause_image: cluster.pause_image.clone(),
                load_balancer_range: cluster.load_balancer_range.as_ref().map(ToString::to_string),
            }),
        }
    }

    /// The same, checked. Where the control plane is not Ferry's, the pod network is left to a CNI.
    pub fn checked(&self) -> Result<ClusterSettings> {
        Ok(ClusterSettings {
            cluster_cidr: Ranges::parse("cluster-cidr", &self.cluster_cidr).context("the cluster's pod range")?,
            service_cidr: Ranges::parse("service-cluster-ip-range", &self.service_cidr)
                .context("the cluster's Service range")?,
            cluster_domain: self.cluster_domain.clone(),
            cluster_dns: self.cluster_dns.parse().context("the cluster's DNS address")?,
            dns_port: self.network.as_ref().map_or(0, |network| network.dns_port),
            pod_network: match &self.network {
                Some(network) => network.mode.parse()?,
                None => ferry_network::Mode::Cni,
            },
            pause_image: self
                .network
                .as_ref()
                .map_or_else(|| "registry.k8s.io/pause:3.10".to_owned(), |network| network.pause_image.clone()),
            load_balancer_range: self
                .network
                .as_ref()
                .and_then(|network| network.load_balancer_range.as_deref())
                .map(str::parse)
                .transpose()
                .context("the cluster's range of load balancers")?,
        })
    }

    /// The objects that tell these settings: name, key, document.
    pub fn documents(&self, server: &str) -> Vec<(&'static str, &'static str, String)> {
        let cluster = json!({
            "apiVersion": "kubeadm.k8s.io/v1beta4", "kind": "ClusterConfiguration",
            "clusterName": "ferry", "kubernetesVersion": "v1.37.0", "controlPlaneEndpoint": server,
            "certificatesDir": "/etc/kubernetes/pki", "imageRepository": "registry.k8s.io",
            "networking": {
                "dnsDomain": self.cluster_domain, "podSubnet": self.cluster_cidr, "serviceSubnet": self.service_cidr,
            },
        });
        let kubelet = json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
            "clusterDomain": self.cluster_domain, "clusterDNS": [self.cluster_dns],
            "rotateCertificates": true, "serverTLSBootstrap": true,
            "authentication": {
                "anonymous": {"enabled": false}, "webhook": {"enabled": true},
                "x509": {"clientCAFile": "/etc/kubernetes/pki/ca.crt"},
            },
            "authorization": {"mode": "Webhook"},
        });
        let mut all = vec![
            (CLUSTER, "ClusterConfiguration", format!("{cluster:#}\n")),
            (KUBELET, "kubelet", format!("{kubelet:#}\n")),
        ];
        if let Some(network) = &self.network {
            all.push((NETWORK, "network.json", serde_json::to_string_pretty(network).unwrap_or_default()));
        }
        all
    }

    /// Reads them from a cluster, Ferry's or one made by kubeadm.
    pub async fn read(client: &Client) -> Result<Self> {
        let cluster = document(client, CLUSTER, "ClusterConfiguration")
            .await?
            .context("the cluster has no ConfigMap kube-system/kubeadm-config, from which nodes learn its ranges")?;
        let kubelet = document(client, KUBELET, "kubelet").await?.unwrap_or_default();
        let network = document(client, NETWORK, "network.json").await?;
        let text = |value: &Value, usual: &str| value.as_str().unwrap_or(usual).to_owned();
        let networking = &cluster["networking"];
        Ok(Self {
            cluster_cidr: text(&networking["podSubnet"], "10.244.0.0/16"),
            service_cidr: text(&networking["serviceSubnet"], "10.96.0.0/12"),
            cluster_domain: text(&networking["dnsDomain"], "cluster.local"),
            cluster_dns: text(&kubelet["clusterDNS"][0], "10.96.0.10"),
            network: network
                .map(serde_json::from_value)
                .transpose()
                .context("the ConfigMap kube-system/ferry-network cannot be read")?,
        })
    }
}

async fn document(client: &Client, name: &str, key: &str) -> Result<Option<Value>> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let map = match maps.get(name).await {
        Ok(map) => map,
        Err(error) if ferry_client::write::is_not_found(&error) => return Ok(None),
        // A cluster that is not Ferry's has neither this object nor a right to read it.
        Err(kube::Error::Api(status)) if status.code == 403 && name == NETWORK => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("cannot read the ConfigMap {NAMESPACE}/{name}")),
    };
    let Some(text) = map.data.and_then(|mut data| data.remove(key)) else { return Ok(None) };
    match ferry_schema::yaml::parse_value(text.as_bytes()) {
        Ok((value, _)) => Ok(Some(value)),
        Err(error) => anyhow::bail!("the ConfigMap {NAMESPACE}/{name} is damaged: {error}"),
    }
}
