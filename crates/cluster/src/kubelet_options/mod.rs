//! Flags of the node, as upstream's kubelet calls them: what it does when it runs short of something, which images it
//! keeps. A KubeletConfiguration file says what no flag says.

mod file;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use ferry_kubelet::{Eviction, ImageCollection, Manifests, Statements, Sysctls, Verification};
use ferry_meta::quantity::Quantity;
use ferry_server::server_options::duration;

use crate::node::manifests;
use crate::node::places::{Given, Places};

/// What is taken for enough free disk: a tenth of a large disk is more than pods need, and to evict them because other
/// files fill it would help nobody. Whoever sets thresholds gets those alone.
const ENOUGH_DISK: &str = "4Gi";

#[derive(Args, Clone, Debug, Default)]
pub struct KubeletOptions {
    /// A KubeletConfiguration (docs/promises.md says which fields are followed). Flags win over it.
    #[arg(long, value_name = "FILE")]
    pub kubelet_config: Option<PathBuf>,
    /// A folder of files ending in `.conf`, each a part of a KubeletConfiguration, which add to the file in the order of their
    /// names.
    #[arg(long, value_name = "DIR")]
    pub kubelet_config_dir: Option<PathBuf>,
    /// Pods are evicted at once when less than this is left: `memory.available<100Mi,nodefs.available<10%`. Also
    /// nodefs.inodesFree, imagefs.available, imagefs.inodesFree, pid.available. Upstream's thresholds when not given; an
    /// empty text turns them off.
    #[arg(long, value_name = "SIGNAL<AMOUNT,...")]
    pub eviction_hard: Option<String>,
    /// Pods are evicted when less than this is left for as long as `--eviction-soft-grace-period` says.
    #[arg(long, value_name = "SIGNAL<AMOUNT,...")]
    pub eviction_soft: Option<String>,
    /// How long a soft threshold has to be crossed: `memory.available=1m30s`.
    #[arg(long, value_name = "SIGNAL=TIME,...")]
    pub eviction_soft_grace_period: Option<String>,
    /// How much more than its threshold has to be free before a shortage is over: `imagefs.available=2Gi`.
    #[arg(long, value_name = "SIGNAL=AMOUNT,...")]
    pub eviction_minimum_reclaim: Option<String>,
    /// A condition such as MemoryPressure stays at least this long; 5m when not given.
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub eviction_pressure_transition_period: Option<Duration>,
    /// The most seconds a pod gets to end after a soft threshold; a negative number leaves it its own. 0 when not given.
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    pub eviction_max_pod_grace_period: Option<i64>,
    /// With this much free on a disk, its thresholds in percent do not count, neither for evictions nor for images. 4Gi when
    /// neither this nor `--eviction-hard` is given.
    #[arg(long, value_name = "AMOUNT")]
    pub enough_disk: Option<String>,
    /// At so many percent of the disk in use, unused images are removed, 85 when not given; 100 turns it off.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub image_gc_high_threshold: Option<u8>,
    /// Images are removed until so many percent are in use, 80 when not given.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub image_gc_low_threshold: Option<u8>,
    /// A younger image is not removed; 2m when not given.
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub minimum_image_ttl_duration: Option<Duration>,
    /// An image unused for longer is removed; images of any age stay when not given.
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub image_maximum_gc_age: Option<Duration>,
    /// A container's log is set aside when it has this size; 10Mi when not given.
    #[arg(long, value_name = "AMOUNT")]
    pub container_log_max_size: Option<String>,
    /// How many files are kept of each log, 5 when not given.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(2..))]
    pub container_log_max_files: Option<u16>,
    /// The kubelet's folder: volumes, plug-ins, records. `/var/lib/kubelet` with the default data folder, where storage
    /// drivers and device plug-ins look for it; `kubelet` in other data folders.
    #[arg(long, value_name = "DIR")]
    pub root_dir: Option<PathBuf>,
    /// Logs of containers. `/var/log/pods` with the default data folder; `logs` in other data folders.
    #[arg(long, value_name = "DIR")]
    pub pod_logs_dir: Option<PathBuf>,
    /// Run the pods of this folder, or this file, whatever the API server says; it is shown them.
    /// `/etc/kubernetes/manifests` with the default data folder.
    #[arg(long, value_name = "PATH")]
    pub pod_manifest_path: Option<PathBuf>,
    /// How processors are given to containers. Only `none`: as the kernel shares them out.
    #[arg(long, default_value = "none", value_parser = ["none"])]
    pub cpu_manager_policy: String,
    /// How memory is given to containers. Only `None`.
    #[arg(long, default_value = "None", value_parser = ["None"])]
    pub memory_manager_policy: String,
    /// How devices, processors and memory are kept near each other. Only `none`.
    #[arg(long, default_value = "none", value_parser = ["none"])]
    pub topology_manager_policy: String,
    /// How many pods run here at most, 110 when not given.
    #[arg(long, value_name = "COUNT")]
    pub max_pods: Option<u32>,
    /// How many processes and threads a pod may have; as many as the node gives all pods together when not given, or -1.
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true)]
    pub pod_max_pids: Option<i64>,
    /// Sysctls that pods may set though they may reach beyond the pod: `kernel.msg*,net.core.somaxconn`. Whoever may create
    /// pods may set them.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub allowed_unsafe_sysctls: Option<Vec<String>>,
    /// Whether a pod may use an image that is here without its own credentials having been seen to pull it.
    /// NeverVerifyPreloadedImages when not given: only those that were not pulled for a pod. Also NeverVerify, AlwaysVerify,
    /// NeverVerifyAllowlistedImages.
    #[arg(long, value_name = "POLICY")]
    pub image_pull_credentials_verification_policy: Option<String>,
    /// The images that NeverVerifyAllowlistedImages lets everybody use: `registry.example/team/*`.
    #[arg(long, value_name = "IMAGE,...", value_delimiter = ',')]
    pub preloaded_images_verification_allowlist: Option<Vec<String>>,
}

/// What the flags say, checked.
#[derive(Clone, Debug)]
pub struct KubeletConfig {
    eviction: Eviction,
    images: ImageCollection,
    max_pods: u32,
    pod_pids: Option<u64>,
    log_size: u64,
    log_files: usize,
    given: Given,
    manifests: Option<PathBuf>,
    sysctls: Sysctls,
    image_credentials: Verification,
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

    /// Where the kubelet of a node of a cluster has its files.
    pub fn places(&self, data_dir: &Path) -> Places {
        Places::of_cluster(data_dir, &self.given)
    }

    /// Where a kubelet that runs alone has its files.
    pub fn places_alone(&self) -> Places {
        Places::alone(&self.given)
    }

    pub fn apply(&self, kubelet: &mut ferry_kubelet::Config, places: &Places) {
        kubelet.log_dir.clone_from(&places.log_dir);
        kubelet.log_links.clone_from(&places.log_links);
        kubelet.eviction = self.eviction.clone();
        kubelet.images = self.images.clone();
        kubelet.max_pods = self.max_pods;
        kubelet.pod_pids = self.pod_pids;
        kubelet.log_size = self.log_size;
        kubelet.log_files = self.log_files;
        kubelet.sysctls = self.sysctls.clone();
        kubelet.image_credentials = self.image_credentials.clone();
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
