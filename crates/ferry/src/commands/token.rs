//! `ferry token`: the tokens with which machines join.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ferry_client::Api;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::{DeleteParams, ListParams, PostParams};

use crate::arguments::{TokenCommand, TokenOptions};
use crate::commands::object;
use crate::fleet::publish::JOINING;
use crate::fleet::token::JoinToken;

const NAMESPACE: &str = "kube-system";
const KIND: &str = "bootstrap.kubernetes.io/token";

pub fn run(options: &TokenOptions) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = object::client(options.kubeconfig.as_deref()).await?;
        match &options.command {
            TokenCommand::Create { ttl, description } => create(client, *ttl, description).await,
            TokenCommand::List => list(client).await,
            TokenCommand::Delete { id } => delete(client, id).await,
        }
    })
}

async fn create(client: Client, ttl: Duration, description: &str) -> Result<()> {
    let (server, ca) = cluster_info(&client).await?;
    let token = JoinToken::new(&ca)?;
    let mut data = BTreeMap::from([
        ("token-id", token.id.clone()),
        ("token-secret", token.secret.clone()),
        ("usage-bootstrap-authentication", "true".to_owned()),
        ("usage-bootstrap-signing", "true".to_owned()),
        ("auth-extra-groups", JOINING.to_owned()),
    ]);
    if !description.is_empty() {
        data.insert("description", description.to_owned());
    }
    if !ttl.is_zero() {
        let end = Timestamp::now() + SignedDuration::try_from(ttl)?;
        data.insert("expiration", end.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    }
    let secret = Secret {
        metadata: ObjectMeta { name: Some(format!("bootstrap-token-{}", token.id)), ..ObjectMeta::default() },
        type_: Some(KIND.to_owned()),
        data: Some(data.into_iter().map(|(key, text)| (key.to_owned(), ByteString(text.into_bytes()))).collect()),
        ..Secret::default()
    };
    let secrets: Api<Secret> = Api::namespaced(client, NAMESPACE);
    secrets.create(&PostParams::default(), &secret).await.context("cannot write the token")?;
    println!("ferry join {} {token}", server.trim_start_matches("https://"));
    Ok(())
}

/// The address and the CA that the cluster tells to machines that want to join.
async fn cluster_info(client: &Client) -> Result<(String, String)> {
    use base64::Engine;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "kube-public");
    let map = maps.get("cluster-info").await.context("the cluster has no cluster-info to join by")?;
    let text = map.data.and_then(|mut data| data.remove("kubeconfig")).unwrap_or_default();
    let (document, _) = ferry_schema::yaml::parse_value(text.as_bytes())
        .map_err(|error| anyhow::anyhow!("the cluster's cluster-info is damaged: {error}"))?;
    let cluster = &document["clusters"][0]["cluster"];
    let encoded = cluster["certificate-authority-data"].as_str().unwrap_or_default();
    let ca = base64::engine::general_purpose::STANDARD.decode(encoded).context("the cluster-info's CA is damaged")?;
    match cluster["server"].as_str() {
        Some(server) => Ok((server.to_owned(), String::from_utf8(ca)?)),
        None => bail!("the cluster's cluster-info names no server"),
    }
}

async fn list(client: Client) -> Result<()> {
    let secrets: Api<Secret> = Api::namespaced(client, NAMESPACE);
    let found =
        secrets.list(&ListParams::default().fields(&format!("type={KIND}"))).await.context("cannot list tokens")?;
    println!("{:<8} {:<22} DESCRIPTION", "TOKEN", "ENDS");
    for secret in found.items {
        let field = |name: &str| {
            let bytes = secret.data.as_ref().and_then(|data| data.get(name));
            bytes.map(|bytes| String::from_utf8_lossy(&bytes.0).into_owned()).unwrap_or_default()
        };
        let end = field("expiration");
        let end = if end.is_empty() { "never".to_owned() } else { end };
        println!("{:<8} {end:<22} {}", field("token-id"), field("description"));
    }
    Ok(())
}

async fn delete(client: Client, ids: &[String]) -> Result<()> {
    let secrets: Api<Secret> = Api::namespaced(client, NAMESPACE);
    for id in ids {
        // A whole token names its id, too.
        let id = id.split('.').next().unwrap_or_default();
        let name = format!("bootstrap-token-{id}");
        match secrets.delete(&name, &DeleteParams::default()).await {
            Ok(_) => println!("deleted the token {id}"),
            Err(error) if ferry_client::write::is_not_found(&error) => bail!("there is no token {id}"),
            Err(error) => return Err(error).with_context(|| format!("cannot delete the token {id}")),
        }
    }
    Ok(())
}
