//! A client for a component that runs on its own: from a kubeconfig, or from the pod it runs in.

use std::path::Path;

use anyhow::{Context, Result};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

/// How to reach the API server; without a path as kubectl finds it, or by the pod's service account.
pub async fn config(path: Option<&Path>) -> Result<Config> {
    // Several parts of this process bring a provider of their own; the first to ask decides for all.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    match path {
        Some(path) => {
            let file = Kubeconfig::read_from(path)
                .with_context(|| format!("cannot read the kubeconfig {}", path.display()))?;
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
                .await
                .with_context(|| format!("the kubeconfig {} cannot be used", path.display()))
        }
        None => Config::infer().await.context("no --kubeconfig is given, and none was found"),
    }
}

pub async fn client(path: Option<&Path>) -> Result<Client> {
    Client::try_from(config(path).await?).context("cannot make a client from the kubeconfig")
}
