//! `ferry secrets rotate`: a new key for the Secrets at rest.

use anyhow::{Context, Result, ensure};
use ferry_cluster::quorum::Record;
use ferry_registry::ResourceTable;
use ferry_server::encryption::{self, Encryption, Keys};
use ferry_store::{EmbeddedStore, StoreError};
use ferry_tasks::Tasks;

use crate::arguments::RotateOptions;

pub fn rotate(options: &RotateOptions) -> Result<()> {
    tokio::runtime::Runtime::new()?.block_on(run(options))
}

async fn run(options: &RotateOptions) -> Result<()> {
    if Record::read(&options.data_dir)?.is_some() {
        ensure!(
            options.encryption_provider_config.is_some(),
            "all servers of this cluster share the key of Secrets at rest, and one cannot change it; give all of them a file of your own with --encryption-provider-config"
        );
        let count = through_the_server(options).await?;
        println!("{count} objects were encrypted anew");
        return Ok(());
    }
    let count = match EmbeddedStore::open(&options.data_dir.join("store"), ferry_store::Options::default()) {
        // Nobody runs: it is done here.
        Ok(store) => {
            let folder = encryption::folder(&options.data_dir)?;
            let keys = Keys { folder: &folder, given: options.encryption_provider_config.as_deref() };
            let tasks = Tasks::new("rotation");
            Encryption::open(&keys, store, &ResourceTable::builtin(), &tasks).await?.rotate().await?
        }
        Err(StoreError::Locked(_)) => through_the_server(options).await?,
        Err(error) => return Err(error).context("cannot open the store"),
    };
    println!("{count} objects were encrypted anew");
    Ok(())
}

/// The server that runs does it, if whoever asks may.
async fn through_the_server(options: &RotateOptions) -> Result<usize> {
    let path = options.kubeconfig.clone().unwrap_or_else(|| options.data_dir.join("kubeconfig"));
    let kubeconfig = kube::config::Kubeconfig::read_from(&path).with_context(|| {
        format!("the cluster runs, so that its kubeconfig is needed; cannot read {}", path.display())
    })?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await?;
    let client = kube::Client::try_from(config)?;
    let request = http::Request::post(ferry_apiserver::ROTATE_PATH).body(Vec::new())?;
    let answer = client.request_text(request).await.context("the server did not take a new key")?;
    answer.trim().parse().context("the server's answer was not understood")
}
