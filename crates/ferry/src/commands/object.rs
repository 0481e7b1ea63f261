//! How an object is named on the command line: as with kubectl.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use ferry_cluster::kubeconfig;
use ferry_insight::{Cluster, Error, Resource};

use crate::insight_options::ObjectOptions;

/// The kubeconfig of a cluster that `ferry up` started as it comes.
const OWN: &str = "/var/lib/ferry/kubeconfig";

/// The exit codes of `ferry why` and `ferry trace`, beside 0: nothing holds it up.
pub const STUCK: u8 = 1;
/// It could not be found out.
pub const UNKNOWN: u8 = 2;
pub const ON_ITS_WAY: u8 = 3;

/// An object that was named, and where it is.
pub struct Named {
    pub cluster: Cluster,
    pub resource: Resource,
    pub namespace: String,
    pub name: String,
}

pub async fn find(options: &ObjectOptions) -> Result<Named> {
    let (kind, name) = match options.object.as_slice() {
        [kind, name] => (kind.as_str(), name.as_str()),
        [both] => both.split_once('/').unwrap_or_default(),
        _ => ("", ""),
    };
    if kind.is_empty() || name.is_empty() || name.contains('/') {
        let given = options.object.join(" ");
        return Err(Error::Usage(format!("{given:?} names no object: it takes KIND/NAME or KIND NAME")).into());
    }
    let cluster = Cluster::new(client(options.kubeconfig.as_deref()).await?);
    let resource = cluster.resolve(kind).await?;
    let namespace = match (&options.namespace, resource.namespaced) {
        (_, false) => String::new(),
        (Some(namespace), true) => namespace.clone(),
        (None, true) => cluster.default_namespace().to_owned(),
    };
    Ok(Named { cluster, resource, namespace, name: name.to_owned() })
}

/// The kubeconfig of this machine's cluster, where kubectl would find none.
pub fn own_kubeconfig() -> Option<PathBuf> {
    let named = std::env::var_os("KUBECONFIG").is_some_and(|paths| !paths.is_empty());
    let of_home = std::env::var_os("HOME").is_some_and(|home| Path::new(&home).join(".kube/config").exists());
    let in_a_pod = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
    (!named && !of_home && !in_a_pod && Path::new(OWN).exists()).then(|| PathBuf::from(OWN))
}

/// As kubectl finds it, else the cluster of this machine.
pub async fn access(path: Option<&Path>) -> Result<kube::Config> {
    if path.is_some() {
        return kubeconfig::config(path).await;
    }
    match kubeconfig::config(None).await {
        Err(_) if Path::new(OWN).exists() => kubeconfig::config(Some(Path::new(OWN))).await,
        access => access,
    }
}

pub async fn client(path: Option<&Path>) -> Result<kube::Client> {
    kubeconfig::connect(access(path).await?)
}

/// Runs a command whose exit code tells: what it says, or 2 where it could not be found out.
pub fn exit(outcome: impl Future<Output = Result<u8>>) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("ferry: {error}");
            return UNKNOWN.into();
        }
    };
    match runtime.block_on(outcome) {
        Ok(code) => code.into(),
        Err(error) => {
            eprintln!("ferry: {error:#}");
            UNKNOWN.into()
        }
    }
}
