//! `ferry apiserver`: the API server alone.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ferry_apiserver::Kubelets;
use ferry_cluster::config::{default_address, host_name};
use ferry_cluster::ranges::Ranges;
use ferry_cluster::{folders, log, pki_plan, signals};
use ferry_server::certificate_rotation::Renewals;
use ferry_server::front_door::{FrontDoor, Options};
use ferry_server::front_proxy;
use ferry_server::pki::{Pki, client_tls, server_tls_by, write_private};
use ferry_server::reload::Reloads;
use ferry_server::server_options::{Authorities, CaSource};
use ferry_server::state::State;
use ferry_tasks::Tasks;

use crate::arguments::{ApiserverOptions, command_line};

const STOP_PATIENCE: Duration = Duration::from_secs(15);

pub fn run(options: &ApiserverOptions) -> Result<()> {
    log::start();
    tokio::runtime::Runtime::new()?.block_on(serve(options))
}

/// Whether a list of `Gate=true` switches a gate on that is off by default. Others are upstream's own and change nothing here.
fn enabled(gates: &[String], gate: &str) -> bool {
    gates
        .iter()
        .any(|given| given.split_once('=').is_some_and(|(name, value)| name.trim() == gate && value.trim() == "true"))
}

async fn serve(options: &ApiserverOptions) -> Result<()> {
    let ranges = &options.service_cluster_ip_range;
    let service_cidr = Ranges::parse("service-cluster-ip-range", ranges)?;
    // Nobody beyond this machine finds a server at its loopback address.
    let bound = Some(options.bind_address).filter(|address| !address.is_unspecified() && !address.is_loopback());
    let advertise =
        options.advertise_address.or(bound).or_else(default_address).unwrap_or_else(|| [127, 0, 0, 1].into());
    ensure!(
        options.allow_privileged,
        "--allow-privileged=false is not supported: privileged containers are a matter of Pod Security admission \
         (label a namespace with pod-security.kubernetes.io/enforce=baseline)"
    );
    folders::prepare(&options.data_dir)?;
    let state = State::check(&options.etcd, &options.data_dir)?;
    let state = if options.unsafe_no_fsync { state.without_sync() } else { state };
    // Bound first: a port in use is found before anything is written.
    let listener =
        tokio::net::TcpListener::bind((options.bind_address, options.secure_port)).await.with_context(|| {
            format!("port {} is in use or not allowed; choose another with --secure-port", options.secure_port)
        })?;
    let pki = Arc::new(Pki::open(&options.data_dir.join("pki"))?);
    let renewals = Renewals::new(pki.clone());
    let own = || pki_plan::serving(&host_name(), &[advertise], &service_cidr, "cluster.local");
    let in_folder = |folder: &Path| (folder.join("apiserver.crt"), folder.join("apiserver.key"));
    let serving = match (&options.tls_cert_file, &options.tls_private_key_file, &options.cert_dir) {
        (Some(certificate), Some(key), _) => renewals.files(certificate.clone(), key.clone())?,
        (_, _, Some(folder)) => {
            let (certificate, key) = in_folder(folder);
            if !(certificate.exists() && key.exists()) {
                fs::create_dir_all(folder).with_context(|| format!("--cert-dir: cannot make {}", folder.display()))?;
                let pair = pki.leaf(&own(), jiff::Timestamp::now())?;
                write_private(&key, &pair.key)?;
                write_private(&certificate, &pair.certificate)?;
            }
            renewals.files(certificate, key)?
        }
        _ => renewals.leaf(own())?,
    };
    let client_ca = match &options.client_ca_file {
        Some(path) => CaSource::File(path.clone()),
        None => CaSource::Pem(pki.ca_certificate().to_owned()),
    };
    let reloads = Reloads::new();
    let flags = &options.server.authentication;
    let front_proxy = front_proxy::open(&pki, flags, &renewals)?;
    let authorities = Authorities::open(flags, client_ca, front_proxy.known_by, &reloads)?;
    let tls = server_tls_by(serving, authorities.verifier())?;
    let static_tokens = options.token_auth_file.as_deref().map(read).transpose()?;

    let tasks = Tasks::new("ferry");
    tasks.watch_runtime("server", &tokio::runtime::Handle::current());
    let kubelets = client_tls(renewals.leaf(pki_plan::kubelet_client())?, pki.ca_certificate())?;
    let kubelets = Kubelets { tls: Some(kubelets) };
    renewals.start(&tasks);
    let door = FrontDoor::open(
        Options {
            state: &state,
            key_dir: &options.data_dir.join("pki"),
            service_accounts: options.service_accounts.keys(&pki.signing_key()?)?,
            service_cidr: ranges,
            advertise,
            port: options.secure_port,
            authorities,
            reloads: &reloads,
            static_tokens: static_tokens.as_deref(),
            kubelets,
            front_proxy: front_proxy.identity,
            server: &options.server,
            flags: command_line().in_use(),
            cbor: enabled(&options.feature_gates, "CBORServingAndStorage"),
            lacks_policies: false,
        },
        &tasks,
    )
    .await?;
    reloads.start(&tasks);
    tracing::info!("serving on {}:{}", options.bind_address, options.secure_port);
    let server = door.server.clone();
    tasks.spawn("serve", async move { server.serve(listener, tls).await });
    signals::wait().await?;
    door.server.stop(STOP_PATIENCE).await;
    tasks.stop(STOP_PATIENCE).await;
    Ok(())
}

fn read(path: impl AsRef<Path>) -> Result<String> {
    let path = path.as_ref();
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}
