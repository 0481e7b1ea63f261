//! `kubectl cluster-info`.

use super::{Command, cluster_info_dump, leaf};
use crate::error::Result;
use crate::resource::{Selection, list};
use crate::session::Context;
use crate::text::line;

pub const COMMAND: Command =
    leaf("cluster-info", "[flags]", "Display cluster information", Vec::new, |c| Box::pin(run(c)))
        .below(&[cluster_info_dump::COMMAND]);

async fn run(context: &Context) -> Result<()> {
    let told = services(context).await;
    line("\nTo further debug and diagnose cluster problems, use 'kubectl cluster-info dump'.");
    told
}

async fn services(context: &Context) -> Result<()> {
    let client = context.client().await?;
    let services = context.resource("services").await?;
    let namespace = match context.flags.given("namespace") {
        Some(namespace) => namespace.to_owned(),
        None => "kube-system".into(),
    };
    let selection = Selection {
        resource: services,
        namespace: Some(namespace),
        labels: "kubernetes.io/cluster-service=true".into(),
        fields: String::new(),
    };
    let found = list(context, &selection, 500).await?;
    line(format!("Kubernetes control plane is running at {}", client.url));
    for service in found {
        let metadata = &service["metadata"];
        let text = |field: &str| metadata[field].as_str().unwrap_or_default().to_owned();
        let name = metadata["labels"]["kubernetes.io/name"].as_str().map_or_else(|| text("name"), str::to_owned);
        let port = &service["spec"]["ports"][0];
        let port_name = port["name"].as_str().unwrap_or_default();
        let scheme = if port_name == "https" || port["port"] == 443 { "https:" } else { "" };
        let suffix = if port_name.is_empty() { String::new() } else { format!(":{port_name}") };
        let suffix = if scheme.is_empty() && suffix.is_empty() { String::new() } else { suffix };
        line(format!(
            "{name} is running at {}/api/v1/namespaces/{}/services/{scheme}{}{suffix}/proxy",
            client.url,
            text("namespace"),
            text("name")
        ));
    }
    Ok(())
}
