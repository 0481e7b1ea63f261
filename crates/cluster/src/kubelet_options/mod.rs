//! Flags of the node, as upstream's kubelet calls them: what it does when it runs short of something, which images it
//! keeps. A KubeletConfiguration file says what no flag says.

mod fields;
mod file;
mod gates;
mod resources;
mod settings;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use ferry_kubelet::{
    CgroupDriver, Eviction, ImageCollection, Manifests, NodeResources, Settings, Statements, Sysctls, Verification,
};
use ferry_meta::quantity::Quantity;
use ferry_server::server_options::duration;

pub use resources::{Pairs, ResourceOptions};

use crate::node::manifests;
use crate::node::places::{Given, Places};
pub use fields::{FileFields, NodeFields};

/// What is taken for enough free disk: a tenth of a large disk is more than pods need, and to evict them because other
/// files fill it would help nobody. Whoever sets thresholds gets those alone.
const ENOUGH_DISK: &str = "4Gi";

#[derive(Args, Clone, Debug, Default)]
pub struct KubeletOptions {
    /// A KubeletConfiguration (docs/promises.md lists the supported fields). Flags override it.
    #[arg(long, value_name = "FILE")]
    pub kubelet_config: Option<PathBuf>,
    /// A folder of partial KubeletConfigurations in files ending in `.conf`, merged into the configuration in the order of
    /// their names.
    #[arg(long, value_name = "DIR")]
    pub kubelet_config_dir: Option<PathBuf>,
    /// Evict pods at once when less than this is left: `memory.available<100Mi,nodefs.available<10%`. Also
    /// nodefs.inodesFree, imagefs.available, imagefs.inodesFree, pid.available. Default: upstream's thresholds. An empty
    /// text disables them.
    #[arg(long, value_name = "SIGNAL<AMOUNT,...")]
    pub eviction_hard: Option<String>,
    /// Evict pods when less than this is left for as long as `--eviction-soft-grace-period`.
    #[arg(long, value_name = "SIGNAL<AMOUNT,...")]
    pub eviction_soft: Option<String>,
    /// How long a soft threshold must be crossed before pods are evicted: `memory.available=1m30s`.
    #[arg(long, value_name = "SIGNAL=TIME,...")]
    pub eviction_soft_grace_period: Option<String>,
    /// How much more than its threshold must be free before a shortage ends: `imagefs.available=2Gi`.
    #[arg(long, value_name = "SIGNAL=AMOUNT,...")]
    pub eviction_minimum_reclaim: Option<String>,
    /// How long a condition such as MemoryPressure stays at least. Default: 5m.
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub eviction_pressure_transition_period: Option<Duration>,
    /// The maximum grace period in seconds of a pod that is evicted by a soft threshold. Negative: the pod's own.
    /// Default: 0.
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    pub eviction_max_pod_grace_period: Option<i64>,
    /// Thresholds in percent do not apply to a disk with this much free space, for evictions and for images. Default: 4Gi
    /// without `--eviction-hard`.
    #[arg(long, value_name = "AMOUNT")]
    pub enough_disk: Option<String>,
    /// Remove unused images above this disk usage in percent. 100 disables it. Default: 85.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub image_gc_high_threshold: Option<u8>,
    /// Remove images until the disk usage in percent is below this. Default: 80.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub image_gc_low_threshold: Option<u8>,
    /// Do not remove images that are younger than this. Default: 2m.
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub minimum_image_ttl_duration: Option<Duration>,
    /// Remove images that were unused for longer than this. Default: never by age.
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub image_maximum_gc_age: Option<Duration>,
    /// The size at which a container's log is rotated. Default: 10Mi.
    #[arg(long, value_name = "AMOUNT")]
    pub container_log_max_size: Option<String>,
    /// How many files are kept of each container's log. Default: 5.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(2..))]
    pub container_log_max_files: Option<u16>,
    /// The kubelet's folder: volumes, plug-ins, checkpoints. Default: `/var/lib/kubelet` with the default data folder, where CSI
    /// drivers and device plug-ins expect it; `kubelet` in other data folders.
    #[arg(long, value_name = "DIR")]
    pub root_dir: Option<PathBuf>,
    /// The folder for container logs. Default: `/var/log/pods` with the default data folder; `logs` in other data folders.
    #[arg(long, value_name = "DIR")]
    pub pod_logs_dir: Option<PathBuf>,
    /// A folder, or a file, with static pods. Default: `/etc/kubernetes/manifests` with the default data folder.
    #[arg(long, value_name = "PATH")]
    pub pod_manifest_path: Option<PathBuf>,
    #[command(flatten)]
    pub resources: ResourceOptions,
    /// The maximum number of pods on this node. Default: 110.
    #[arg(long, value_name = "COUNT")]
    pub max_pods: Option<u32>,
    /// The maximum number of processes and threads of a pod. -1, the default, means the limit of all pods together.
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true)]
    pub pod_max_pids: Option<i64>,
    /// Unsafe sysctls that pods may set: `kernel.msg*,net.core.somaxconn`. Everybody who may create pods may set them.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub allowed_unsafe_sysctls: Option<Vec<String>>,
    /// When a pod needs its own credentials to use an image that is already on the node. NeverVerifyPreloadedImages (the
    /// default): for images that were pulled for another pod. Also NeverVerify, AlwaysVerify, NeverVerifyAllowlistedImages.
    #[arg(long, value_name = "POLICY")]
    pub image_pull_credentials_verification_policy: Option<String>,
    /// With NeverVerifyAllowlistedImages: images that every pod may use: `registry.example/team/*`.
    #[arg(long, value_name = "IMAGE,...", value_delimiter = ',')]
    pub preloaded_images_verification_allowlist: Option<Vec<String>>,
    /// What only a file says.
    #[arg(skip)]
    pub file: FileFields,
}

/// What the flags say, checked.
#[derive(Clone, Debug)]
pub struct KubeletConfig {
    eviction: Eviction,
    images: ImageCollection,
    max_pods: u32,
    resources: NodeResources,
    pod_pids: Option<u64>,
    log_size: u64,
    log_files: usize,
    given: Given,
    manifests: Option<PathBuf>,
    sysctls: Sysctls,
    image_credentials: Verification,
    settings: Settings,
    file: FileFields,
}

impl KubeletOptions {
    pub fn check(&self) -> Result<KubeletConfig> {
        let mut all = self.clone();
        let without_effect =
            file::complete(&mut all, self.kubelet_config.as_deref(), self.kubelet_config_dir.as_deref())?;
        if !without_effect.is_empty() {
            eprintln!("the KubeletConfiguration: without effect here: {}", without_effect.join(", "));
        }
        all.checked()
    }

    fn checked(&self) -> Result<KubeletConfig> {
        let statements = Statements {
            hard: self.eviction_hard.as_deref(),
            soft: self.eviction_soft.as_deref(),
            soft_grace: self.eviction_soft_grace_period.as_deref(),
            minimum_reclaim: self.eviction_minimum_reclaim.as_deref(),
        };
        let eviction = Eviction::default().with(statements).context("the eviction thresholds do not make sense")?;
        let (usual, images) = (Eviction::default(), ImageCollection::default());
        let images = ImageCollection {
            high_percent: self.image_gc_high_threshold.unwrap_or(images.high_percent),
            low_percent: self.image_gc_low_threshold.unwrap_or(images.low_percent),
            minimum_age: self.minimum_image_ttl_duration.unwrap_or(images.minimum_age),
            maximum_age: self.image_maximum_gc_age.unwrap_or(images.maximum_age),
        };
        ensure!(
            images.low_percent <= images.high_percent,
            "--image-gc-low-threshold {} is higher than --image-gc-high-threshold {}",
            images.low_percent,
            images.high_percent
        );
        let enough_disk = self.enough_disk.as_deref().or(self.eviction_hard.is_none().then_some(ENOUGH_DISK));
        let log_files = self.container_log_max_files.unwrap_or(5);
        ensure!(log_files >= 2, "--container-log-max-files {log_files} leaves no file to write to: give 2 or more");
        Ok(KubeletConfig {
            eviction: Eviction {
                transition: self.eviction_pressure_transition_period.unwrap_or(usual.transition),
                longest_grace: self.eviction_max_pod_grace_period.unwrap_or(usual.longest_grace),
                enough_room: enough_disk.map(|text| bytes("enough-disk", text)).transpose()?,
                ..eviction
            },
            images,
            max_pods: self.max_pods.unwrap_or(110),
            resources: self.resources.checked()?,
            pod_pids: self.pod_max_pids.and_then(|limit| u64::try_from(limit).ok()).filter(|limit| *limit > 0),
            log_size: bytes("container-log-max-size", self.container_log_max_size.as_deref().unwrap_or("10Mi"))?,
            log_files: log_files.into(),
            given: Given {
                root_dir: self.root_dir.as_ref().map(std::path::absolute).transpose()?,
                log_dir: self.pod_logs_dir.as_ref().map(std::path::absolute).transpose()?,
            },
            manifests: self.pod_manifest_path.as_ref().map(std::path::absolute).transpose()?,
            sysctls: Sysctls::allowing(self.allowed_unsafe_sysctls.as_deref().unwrap_or_default())
                .map_err(|why| anyhow::anyhow!("--allowed-unsafe-sysctls: {why}"))?,
            image_credentials: Verification::parse(
                self.image_pull_credentials_verification_policy.as_deref().unwrap_or(Verification::default().name()),
                self.preloaded_images_verification_allowlist.as_deref().unwrap_or_default(),
            )
            .map_err(|why| anyhow::anyhow!("--image-pull-credentials-verification-policy: {why}"))?,
            settings: self.file.settings().context("the KubeletConfiguration: invalid configuration")?,
            file: self.file.clone(),
        })
    }
}

fn bytes(flag: &str, text: &str) -> Result<u64> {
    match Quantity::parse(text).map(|quantity| u64::try_from(quantity.value())) {
        Ok(Ok(bytes)) => Ok(bytes),
        _ => bail!("--{flag} {text:?} is no amount; write it like 4Gi"),
    }
}

impl KubeletConfig {
    /// For the embedded runtime, which writes the logs.
    pub fn log_limit(&self) -> ferry_runtime::LogLimit {
        ferry_runtime::LogLimit { size: self.log_size, files: self.log_files }
    }

    /// Who makes control groups.
    pub fn cgroup_driver(&self) -> CgroupDriver {
        self.file.cgroup_driver.unwrap_or_default()
    }

    /// The same, for the embedded runtime: the kubelet asks it.
    pub fn runtime_cgroup_driver(&self) -> ferry_cri::v1::CgroupDriver {
        match self.cgroup_driver() {
            CgroupDriver::Cgroupfs => ferry_cri::v1::CgroupDriver::Cgroupfs,
            CgroupDriver::Systemd => ferry_cri::v1::CgroupDriver::Systemd,
        }
    }

    /// Where the kubelet of a node of a cluster has its files.
    pub fn places(&self, data_dir: &Path) -> Places {
        Places::of_cluster(data_dir, &self.given)
    }

    /// Where a kubelet that runs alone has its files.
    pub fn places_alone(&self) -> Places {
        Places::alone(&self.given)
    }

    /// What the file says of things that have a flag elsewhere.
    pub fn node(&self) -> &NodeFields {
        &self.file.node
    }

    /// Whether the kubelet's API is served.
    pub fn serves(&self) -> bool {
        self.file.serves()
    }

    /// Of a node of a cluster: what belongs to the cluster is not the node's to say.
    pub fn check_in_cluster(&self, domain: &str) -> Result<()> {
        let node = self.node();
        for (field, given) in [
            ("tlsCertFile", node.tls_cert_file.is_some()),
            ("tlsPrivateKeyFile", node.tls_private_key_file.is_some()),
            ("authentication.x509.clientCAFile", node.client_ca_file.is_some()),
        ] {
            ensure!(
                !given,
                "the KubeletConfiguration: {field} is for `ferry kubelet`: the kubelet of a cluster has a certificate of the cluster's authority, and believes that one"
            );
        }
        let own = node.cluster_domain.as_deref().unwrap_or(domain);
        ensure!(
            own == domain,
            "the KubeletConfiguration: clusterDomain is {own:?}, the cluster's domain is {domain:?}"
        );
        Ok(())
    }

    pub fn apply(&self, kubelet: &mut ferry_kubelet::Config, places: &Places) {
        kubelet.log_dir.clone_from(&places.log_dir);
        kubelet.log_links.clone_from(&places.log_links);
        kubelet.eviction = self.eviction.clone();
        kubelet.images = self.images.clone();
        kubelet.max_pods = self.max_pods;
        kubelet.cgroup_driver = self.cgroup_driver();
        kubelet.resources = self.resources.clone();
        kubelet.pod_pids = self.pod_pids;
        kubelet.log_size = self.log_size;
        kubelet.log_files = self.log_files;
        kubelet.sysctls = self.sysctls.clone();
        kubelet.image_credentials = self.image_credentials.clone();
        kubelet.settings = Settings { healthz: self.file.healthz(places.are_usual()), ..self.settings.clone() };
        let node = self.node();
        kubelet.listen_ip = kubelet.listen_ip.or(node.address);
        if let Some(dns) = &node.cluster_dns {
            kubelet.cluster_dns.clone_from(dns);
        }
        if let Some(file) = &node.resolv_conf {
            kubelet.resolv_conf.clone_from(file);
        }
        if !self.serves() {
            kubelet.tls = None;
        }
        let manifests = |path| Manifests { path, parse: manifests::parse };
        kubelet.manifests = self.manifests.clone().or_else(|| places.manifests.clone()).map(manifests);
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        kubelet: KubeletOptions,
    }

    #[test]
    fn flags_reach_the_kubelet() {
        let check = |flags: &[&str], want: Result<(usize, Option<u64>, u8), &str>| {
            let parsed = Flags::try_parse_from(["ferry"].iter().chain(flags)).expect("flags");
            let got = parsed.kubelet.check();
            let got = got.map(|c| (c.eviction.thresholds.len(), c.eviction.enough_room, c.images.high_percent));
            match (got, want) {
                (Ok(got), Ok(want)) => assert_eq!(got, want, "{flags:?}"),
                (Err(got), Err(want)) => assert!(format!("{got:#}").contains(want), "{got:#}"),
                (got, want) => panic!("{flags:?}: {got:?} instead of {want:?}"),
            }
        };
        check(&[], Ok((5, Some(4 << 30), 85)));
        check(&["--enough-disk=1Gi"], Ok((5, Some(1 << 30), 85)));
        check(&["--eviction-hard=memory.available<1Gi", "--enough-disk=1Gi"], Ok((1, Some(1 << 30), 85)));
        check(&["--eviction-hard=", "--image-gc-high-threshold=100"], Ok((0, None, 100)));
        check(&["--eviction-hard=memory<1Gi"], Err("unsupported eviction signal memory"));
        check(&["--image-gc-high-threshold=70"], Err("is higher than --image-gc-high-threshold 70"));
        check(&["--enough-disk=much"], Err("is no amount"));
        check(&["--allowed-unsafe-sysctls=net.core.somaxconn,kernel.msg*"], Ok((5, Some(4 << 30), 85)));
        check(&["--allowed-unsafe-sysctls=net.core.somaxconn,vm.*"], Err("not known to be namespaced"));
        check(&["--image-pull-credentials-verification-policy=AlwaysVerify"], Ok((5, Some(4 << 30), 85)));
        check(&["--image-pull-credentials-verification-policy=Maybe"], Err("\"Maybe\" is no policy"));
    }
}
