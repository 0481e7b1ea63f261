//! `ferry kubelet`: the kubelet as a process of its own, against any API server and any container runtime.

use anyhow::{Context, Result, bail, ensure};
use ferry_cluster::component::{self, server};
use ferry_cluster::config::{Cni, KUBELET_PORT, default_address, host_name, parse_mirror};
use ferry_cluster::container_runtime::ContainerRuntime;
use ferry_cluster::kubelet_options::NodeFields;
use ferry_cluster::node::{embedded, resolver, tools};
use ferry_cluster::{kubeconfig, labels, log};
use ferry_tasks::Tasks;

use crate::node_component_options::KubeletAloneOptions;

const RUNTIME: &str = "unix:///run/containerd/containerd.sock";

pub fn run(options: &KubeletAloneOptions) -> Result<()> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "the kubelet needs root for mounts and control groups; run it as root or with sudo"
    );
    let (config, runtime) = configuration(options)?;
    log::start();
    tokio::runtime::Runtime::new()?.block_on(serve(options, config, runtime))
}

/// Everything that can be refused is, before anything is started.
fn configuration(options: &KubeletAloneOptions) -> Result<(ferry_kubelet::Config, Option<embedded::Settings>)> {
    let mut flags = options.kubelet.clone();
    flags.kubelet_config = flags.kubelet_config.or_else(|| options.config.clone());
    flags.kubelet_config_dir = flags.kubelet_config_dir.or_else(|| options.config_dir.clone());
    let address = options.node_ip.or_else(default_address).context("--node-ip: no address of this node is known")?;
    let name = options.hostname_override.clone().unwrap_or_else(host_name);
    let checked = flags.check()?;
    let file = checked.node();
    let endpoint = options.container_runtime_endpoint.as_deref().or(file.container_runtime_endpoint.as_deref());
    let runtime = ContainerRuntime::parse(endpoint.unwrap_or(RUNTIME))?;
    let places = checked.places_alone();
    let root_dir = &places.root_dir;
    let (socket, runtime) = match runtime {
        ContainerRuntime::Other(socket) => (socket, None),
        ContainerRuntime::Embedded => {
            let mirrors = options.registry_mirror.iter().map(|text| parse_mirror(text)).collect::<Result<_>>()?;
            let settings = embedded::Settings {
                data_dir: root_dir.clone(),
                run_dir: std::path::absolute(&options.run_dir)?,
                cni: Cni { conf_dir: root_dir.join("cni"), bin_dir: tools::plugin_folder().to_owned() },
                mirrors,
                pause_image: options.pod_infra_container_image.clone(),
                log_limit: checked.log_limit(),
                cgroup_driver: checked.runtime_cgroup_driver(),
            };
            (settings.socket(), Some(settings))
        }
        ContainerRuntime::Containerd => bail!(
            "--container-runtime-endpoint containerd: `ferry kubelet` starts none; give the socket of one that runs, or embedded"
        ),
    };
    let mut config = ferry_kubelet::Config::new(&name, address, &socket.to_string_lossy(), root_dir);
    let domain = options.cluster_domain.clone().or_else(|| file.cluster_domain.clone());
    config.cluster_domain = domain.unwrap_or_else(|| "cluster.local".to_owned());
    config.resolv_conf = resolver::file();
    config.listen_ip = options.address;
    config.port = options.port.or(file.port).unwrap_or(KUBELET_PORT);
    config.labels = labels::pairs("node-labels", &options.node_labels)?;
    let taints = options.register_with_taints.iter().map(|text| labels::taint("register-with-taints", text));
    config.taints = taints.collect::<Result<_>>()?;
    if config.taints.is_empty() {
        config.taints = file.taints.clone().unwrap_or_default();
    }
    config.cgroup_root.clone_from(&options.cgroup_root);
    config.sandbox_image = runtime.as_ref().map(|settings| settings.pause_image.clone());
    checked.apply(&mut config, &places);
    // A flag counts more than the file.
    if !options.cluster_dns.is_empty() {
        config.cluster_dns.clone_from(&options.cluster_dns);
    }
    if let Some(file) = &options.resolv_conf {
        config.resolv_conf.clone_from(file);
    }
    let tls = match checked.serves() {
        true => Some(certificate(options, file)?),
        false => None,
    };
    Ok((ferry_kubelet::Config { tls, ..config }, runtime))
}

/// The flags' certificate, or the file's, or one that is made up.
fn certificate(options: &KubeletAloneOptions, file: &NodeFields) -> Result<ferry_kubelet::Tls> {
    let given = match (&options.tls_cert_file, &options.tls_private_key_file) {
        (None, None) => (&file.tls_cert_file, &file.tls_private_key_file),
        (certificate, key) => (certificate, key),
    };
    let files = match given {
        (Some(certificate), Some(key)) => Some((certificate.as_path(), key.as_path())),
        (None, None) => None,
        _ => bail!("the KubeletConfiguration: tlsCertFile and tlsPrivateKeyFile belong together: give both"),
    };
    let authorities = options.client_ca_file.as_deref().or(file.client_ca_file.as_deref());
    let server = match server::serving(files, authorities)? {
        Some(given) => given,
        None => server::self_signed(authorities)?,
    };
    Ok(ferry_kubelet::Tls { server })
}

async fn serve(
    options: &KubeletAloneOptions,
    config: ferry_kubelet::Config,
    runtime: Option<embedded::Settings>,
) -> Result<()> {
    let client = kubeconfig::client(options.kubeconfig.as_deref(), "kubelet").await?;
    let name = config.node_name.clone();
    component::run("kubelet", async move |tasks: &Tasks| {
        if let Some(settings) = runtime {
            embedded::start(&settings, tasks).await?;
        }
        ferry_kubelet::start(config, client, tasks).await.context("cannot start the kubelet")?;
        Ok(format!("the kubelet of {name} runs"))
    })
    .await
}
