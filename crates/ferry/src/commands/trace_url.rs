//! `ferry trace URL`: one request through the gateway, hop by hop, and why it got no further.

use anyhow::Result;
use ferry_gateway::trace::{self, Asked};
use ferry_insight::why::{self, Finding};
use ferry_insight::{Cluster, Error, World};

use super::object::{STUCK, client};
use crate::insight_options::{Output, TraceOptions};

pub async fn tell(options: &TraceOptions, url: &str) -> Result<u8> {
    if options.follow || options.writes || options.object.namespace.is_some() {
        let text = "a request to a URL is sent once: it takes neither --follow, --writes nor --namespace";
        return Err(Error::Usage(text.into()).into());
    }
    let client = client(options.object.kubeconfig.as_deref()).await?;
    let traced = trace::trace(&client, url, options.address).await?;
    let held = match traced.asked() {
        Some(asked) => look(&Cluster::new(client), &asked).await,
        None => None,
    };
    let findings = held.as_ref().map(|(_, findings)| findings.as_slice()).unwrap_or_default();
    match options.output {
        Output::Json => {
            let mut all = traced.to_json();
            all["findings"] = findings.iter().map(Finding::to_json).collect();
            println!("{all:#}");
        }
        Output::Text => {
            print!("{}", traced.text());
            if let Some((world, findings)) = &held {
                print!("\n{}", why::render(world, findings));
            }
        }
    }
    Ok(if traced.failed.is_some() { STUCK } else { 0 })
}

/// What holds up the object that the hop is about. None where nothing does, or it cannot be read.
async fn look(cluster: &Cluster, asked: &Asked) -> Option<(World, Vec<Finding>)> {
    let resource = cluster.resolve(&asked.kind).await.ok()?;
    let world = why::look(cluster, &resource, &asked.namespace, &asked.name).await.ok()?;
    let findings = why::findings(&world);
    (!findings.is_empty()).then_some((world, findings))
}
