//! `ferry controller-manager`: the controllers as a process of their own, against any API server.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use ferry_client::Informers;
use ferry_client::leader::{self, Fence};
use ferry_cluster::component::accounts::Accounts;
use ferry_cluster::component::{self, server};
use ferry_cluster::{kubeconfig, log};
use ferry_controllers::{Authority, Autoscaling, Config, Selection};
use ferry_tasks::Tasks;

use crate::arguments::ControllerManagerOptions;

pub fn run(options: &ControllerManagerOptions) -> Result<()> {
    let config = check(options)?;
    log::start();
    tokio::runtime::Runtime::new()?.block_on(serve(options, config))
}

/// Everything that can be refused is refused before anything is asked of the API server.
fn check(options: &ControllerManagerOptions) -> Result<Config> {
    let mask = options.node_cidr_mask_size;
    ensure!(
        mask.is_none() || !options.cluster_cidr.contains(','),
        "usage of --node-cidr-mask-size is not allowed with dual-stack clusters"
    );
    Ok(Config {
        controllers: Selection::parse(&options.controllers)
            .map_err(|problem| anyhow::anyhow!("--controllers: {problem}"))?,
        root_ca: options.root_ca_file.as_deref().map(read).transpose()?.unwrap_or_default(),
        cluster_cidr: options.allocate_node_cidrs.then(|| options.cluster_cidr.clone()),
        node_cidr_mask_size: options.node_cidr_mask_size_ipv4.or(mask).unwrap_or(24),
        node_cidr_mask_size_ipv6: options.node_cidr_mask_size_ipv6.or(mask).unwrap_or(64),
        node_monitor_grace_period: options.node_monitor_grace_period,
        terminated_pod_threshold: options.terminated_pod_gc_threshold,
        autoscaling: autoscaling(options)?,
        signing: authority(options)?,
        sign_token: match &options.service_account_private_key_file {
            Some(path) => {
                Some(ferry_server::legacy_tokens::signer(&read(path)?).with_context(|| path.display().to_string())?)
            }
            None => None,
        },
        provider: match options.cloud_provider.as_deref() {
            None | Some("" | "external") => None,
            Some("local") => Some(Arc::new(ferry_controllers::Local)),
            Some(other) => bail!("--cloud-provider {other:?} is not known; there are local and external"),
        },
        ..Config::default()
    })
}

fn autoscaling(options: &ControllerManagerOptions) -> Result<Autoscaling> {
    let settings = Autoscaling {
        sync_period: options.horizontal_pod_autoscaler_sync_period,
        downscale_stabilization: options.horizontal_pod_autoscaler_downscale_stabilization,
        tolerance: options.horizontal_pod_autoscaler_tolerance,
        cpu_initialization_period: options.horizontal_pod_autoscaler_cpu_initialization_period,
        initial_readiness_delay: options.horizontal_pod_autoscaler_initial_readiness_delay,
    };
    ensure!(!settings.sync_period.is_zero(), "--horizontal-pod-autoscaler-sync-period must be more than nothing");
    ensure!(settings.tolerance >= 0.0, "--horizontal-pod-autoscaler-tolerance must not be negative");
    Ok(settings)
}

async fn serve(options: &ControllerManagerOptions, controllers: Config) -> Result<()> {
    let config = kubeconfig::config(options.access.kubeconfig.as_deref()).await?;
    let mut config = kubeconfig::introduced(config, "kube-controller-manager")?;
    if let Some(server) = &options.access.master {
        config.cluster_url = server.parse().context("--master is not a valid server address")?;
    }
    let client = kubeconfig::connect(config.clone())?;
    let tasks = Tasks::new("controller-manager");
    if options.secure_port != 0 {
        let metrics = controllers.metrics.clone();
        let component =
            server::Component { client: client.clone(), metrics: Box::new(move || metrics.text()), debug: None };
        let address = SocketAddr::new(options.bind_address, options.secure_port);
        let tls = server::serving(options.certificate.files(), None)?;
        server::start(component, address, tls, &tasks).await?;
    }
    let accounts = match options.use_service_account_credentials {
        true => Some(Accounts::new(&config)?),
        false => None,
    };
    let own = client.clone();
    let lead = move |group: Tasks, fence: Option<Fence>| {
        let fenced = move |client: kube::Client| {
            fence.as_ref().map_or_else(|| client.clone(), |fence| fence.client(client.clone()))
        };
        let own = fenced(own);
        let informers = Informers::new(own.clone(), group.clone());
        let clients = move |name: &str| match accounts.as_ref().map(|accounts| accounts.client(name)) {
            Some(Ok(client)) => fenced(client),
            Some(Err(error)) => {
                tracing::error!(
                    controller = name,
                    "has no service account of its own and uses the identity of the process: {error:#}"
                );
                own.clone()
            }
            None => own.clone(),
        };
        ferry_controllers::start(&informers, clients, &group, controllers);
    };
    let election = options.leader_elect.then(|| leader::Config {
        namespace: options.leader_elect_resource_namespace.clone(),
        lease_duration: options.leader_elect_lease_duration,
        renew_deadline: options.leader_elect_renew_deadline,
        retry_period: options.leader_elect_retry_period,
        ..leader::Config::new(&options.leader_elect_resource_name, &component::identity())
    });
    component::lead(client, election, &tasks, lead).await
}

fn authority(options: &ControllerManagerOptions) -> Result<Option<Authority>> {
    let (Some(certificate), Some(key)) = (&options.cluster_signing_cert_file, &options.cluster_signing_key_file) else {
        return Ok(None);
    };
    let lifetime = options.cluster_signing_duration;
    Ok(Some(Authority { certificate: read(certificate)?, key: read(key)?, lifetime }))
}

fn read(path: impl AsRef<Path>) -> Result<String> {
    let path = path.as_ref();
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}
