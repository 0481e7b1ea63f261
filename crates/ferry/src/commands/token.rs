//! `ferry token`: the tokens with which machines join.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ferry_client::Api;
use ferry_cluster::fleet::publish::{JOINING, JOINING_SERVERS};
use ferry_cluster::fleet::settings::Settings;
use ferry_cluster::fleet::token::JoinToken;
use ferry_cluster::quorum::Record;
use ferry_cluster::quorum::handover::{Handover, Receiver};
use ferry_cluster::quorum::token::ServerToken;
use ferry_store::etcd::Members;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::{DeleteParams, ListParams, PostParams};

use crate::arguments::{TokenCommand, TokenOptions};
use crate::commands::object;

const NAMESPACE: &str = "kube-system";
const KIND: &str = "bootstrap.kubernetes.io/token";
const SIGNED_WITHIN: Duration = Duration::from_secs(10);

pub fn run(options: &TokenOptions) -> Result<()> {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = object::client(options.kubeconfig.as_deref()).await?;
        match &options.command {
            TokenCommand::Create { ttl, description, server: false, witness: false, .. } => {
                let (server, token, _) = create(&client, *ttl, description, JOINING).await?;
                println!("ferry join {server} {token}");
                Ok(())
            }
            TokenCommand::Create { ttl, description, witness, data_dir, .. } => {
                let receiver = if *witness { Receiver::Witness } else { Receiver::Server };
                let (server, token) = create_for_member(&client, *ttl, description, data_dir, receiver).await?;
                let command = if *witness { "witness join" } else { "join --server" };
                println!("ferry {command} {server} {token}");
                Ok(())
            }
            TokenCommand::List => list(client).await,
            TokenCommand::Delete { id } => delete(client, id).await,
        }
    })
}

/// The address to join at, the token, and the Secret that it is in the cluster.
pub async fn create(
    client: &Client,
    ttl: Duration,
    description: &str,
    group: &str,
) -> Result<(String, JoinToken, Secret)> {
    let (server, ca) = cluster_info(client).await?;
    let token = JoinToken::new(&ca)?;
    let mut data = BTreeMap::from([
        ("token-id", token.id.clone()),
        ("token-secret", token.secret.clone()),
        ("usage-bootstrap-authentication", "true".to_owned()),
        ("usage-bootstrap-signing", "true".to_owned()),
        ("auth-extra-groups", group.to_owned()),
    ]);
    if !description.is_empty() {
        data.insert("description", description.to_owned());
    }
    if !ttl.is_zero() {
        let end =
            Timestamp::now().checked_add(SignedDuration::try_from(ttl)?).context("--ttl is beyond every calendar")?;
        data.insert("expiration", end.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    }
    let secret = Secret {
        metadata: ObjectMeta { name: Some(format!("bootstrap-token-{}", token.id)), ..ObjectMeta::default() },
        type_: Some(KIND.to_owned()),
        data: Some(data.into_iter().map(|(key, text)| (key.to_owned(), ByteString(text.into_bytes()))).collect()),
        ..Secret::default()
    };
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    let made = secrets.create(&PostParams::default(), &secret).await.context("cannot write the token")?;
    until_signed(client, &token.id).await;
    Ok((server.trim_start_matches("https://").to_owned(), token, made))
}

/// Waits until `cluster-info` is signed with the token, by which machines that join know the cluster. A new leader may have to be
/// elected first; where nobody signs, the token is of use to those who know the cluster otherwise.
async fn until_signed(client: &Client, id: &str) {
    let (maps, name): (Api<ConfigMap>, _) =
        (Api::namespaced(client.clone(), "kube-public"), format!("jws-kubeconfig-{id}"));
    let begin = Instant::now();
    while begin.elapsed() < SIGNED_WITHIN {
        if maps.get("cluster-info").await.is_ok_and(|map| map.data.is_some_and(|data| data.contains_key(&name))) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The keys are read here and laid ready in the cluster, for whoever has the token.
pub async fn create_for_member(
    client: &Client,
    ttl: Duration,
    description: &str,
    data_dir: &Path,
    receiver: Receiver,
) -> Result<(String, ServerToken)> {
    let data_dir = std::path::absolute(data_dir)?;
    let record = Record::of_server(&data_dir)?;
    let members =
        Members::new(&record.options(&data_dir)?)?.list().await.context("the cluster's etcd does not answer")?;
    let endpoints = members.into_iter().flat_map(|member| member.client_urls).collect();
    let handover = Handover::collect(receiver, &data_dir, &record, Settings::read(client).await?, endpoints)?;
    let (server, token, secret) = create(client, ttl, description, JOINING_SERVERS).await?;
    let token = ServerToken::new(token)?;
    handover.publish(client, &token, &secret).await?;
    Ok((server, token))
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
