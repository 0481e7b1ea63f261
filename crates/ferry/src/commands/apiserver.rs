//! `ferry apiserver`: the API server alone.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
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
use ferry_server::state::StorageBackend;
use ferry_tasks::Tasks;

use crate::arguments::{ApiserverOptions, command_line};

const STOP_PATIENCE: Duration = Duration::from_secs(15);

pub fn run(options: &ApiserverOptions) -> Result<()> {
    log::start();
    tokio::runtime::Runtime::new()?.block_on(serve(options))
}

/// Whether clients may speak CBOR: the one feature that can be chosen. Who names another is told so, instead of going without.
fn speaks_cbor(gates: &[String]) -> Result<bool> {
    let mut on = false;
    for given in gates.iter().map(|given| given.trim()).filter(|given| !given.is_empty()) {
        let Some((name, value)) = given.split_once('=') else {
            bail!("--feature-gates {given:?}: write it like CBORServingAndStorage=true");
        };
        let (name, value) = (name.trim(), value.trim());
        let value = match value.to_ascii_lowercase().as_str() {
            "true" | "t" | "1" => true,
            "false" | "f" | "0" => false,
            _ => bail!("--feature-gates: {name} is true or false, not {value:?}"),
        };
        match name {
            "CBORServingAndStorage" => on = value,
            "AllAlpha" | "AllBeta" if !value => {}
            _ => bail!("--feature-gates: {name} cannot be chosen here: features are as upstream's defaults are"),
        }
    }
    Ok(on)
}

async fn serve(options: &ApiserverOptions) -> Result<()> {
    let ranges = &options.service_cluster_ip_range;
    let service_cidr = Ranges::parse("service-cluster-ip-range", ranges)?;
    // Nobody beyond this machine finds a server at its loopback address.
    let bound = Some(options.bind_address).filter(|address| !address.is_unspecified() && !address.is_loopback());
    let advertise =
        options.advertise_address.or(bound).or_else(default_address).unwrap_or_else(|| [127, 0, 0, 1].into());
    ensure!(
        options.server.local_path != Some(true),
        "--local-path needs the nodes and controllers of `ferry up`: an API server alone makes no volumes"
    );
    ensure!(
        options.allow_privileged,
        "--allow-privileged=false is not supported: privileged containers are a matter of Pod Security admission \
         (label a namespace with pod-security.kubernetes.io/enforce=baseline)"
    );
    folders::prepare(&options.data_dir)?;
    let state = StorageBackend::check(&options.etcd, &options.data_dir)?;
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
            cbor: speaks_cbor(&options.feature_gates)?,
            // As upstream's server, which leaves it to an add-on.
            resource_metrics: options.server.resource_metrics.unwrap_or(false),
            lacks_policies: false,
        },
        &tasks,
    )
    .await?;
    reloads.start(&tasks);
    tracing::info!("serving on {}:{}", options.bind_address, options.secure_port);
    let server = door.server.clone();
    ferry_cluster::insight::offer(&server);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feature_is_chosen_or_refused() {
        let check = |gates: &[&str], want: Result<bool, &str>| {
            let gates: Vec<String> = gates.iter().map(|gate| (*gate).to_owned()).collect();
            match (speaks_cbor(&gates), want) {
                (Ok(got), Ok(want)) => assert_eq!(got, want, "{gates:?}"),
                (Err(got), Err(want)) => assert!(got.to_string().contains(want), "{got}"),
                (got, want) => panic!("{gates:?}: {got:?} instead of {want:?}"),
            }
        };
        check(&[], Ok(false));
        check(&["CBORServingAndStorage=true"], Ok(true));
        check(&["CBORServingAndStorage=true", " CBORServingAndStorage=false"], Ok(false));
        check(&["AllAlpha=false", ""], Ok(false));
        check(&["CBORServingAndStorage"], Err("write it like"));
        check(&["CBORServingAndStorage=maybe"], Err("is true or false, not \"maybe\""));
        check(&["Nope=true"], Err("Nope cannot be chosen here"));
        check(&["AllAlpha=true"], Err("AllAlpha cannot be chosen here"));
    }
}
