//! Extenders: programs beside the scheduler that are asked over HTTP which nodes they allow and prefer, whom to
//! preempt, and to bind.
//!
//! They are asked in tasks of their own: one that hangs holds up the pods it is asked about, and nobody else.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Client;
use kube::config::{
    AuthInfo, Cluster, Context, KubeConfigOptions, Kubeconfig, NamedAuthInfo, NamedCluster, NamedContext,
};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::SchedulerError;
use crate::config::types;
use crate::framework::Preemption;
use crate::model::PodInfo;

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);
/// Extenders score from 0 to 10.
const SCALE: i64 = 10;

/// What the extenders said about a pod.
#[derive(Clone, Debug, Default)]
pub struct Extension {
    /// The nodes they were asked about.
    pub nodes: Vec<Arc<str>>,
    /// Those they refused, why, and whether removing pods could change it.
    pub refused: HashMap<Arc<str>, (String, bool)>,
    pub scores: HashMap<Arc<str>, i64>,
}

struct Settings {
    config: types::Extender,
    client: OnceCell<Client>,
}

#[derive(Clone)]
pub struct Extender(Arc<Settings>);

impl Extender {
    pub(crate) fn new(config: &types::Extender) -> Result<Self, SchedulerError> {
        let known =
            config.url_prefix.parse::<http::Uri>().is_ok_and(|uri| uri.host().is_some() && uri.scheme().is_some());
        if !known {
            let problem = format!("extenders: {:?} is no address of a server", config.url_prefix);
            return Err(SchedulerError::Configuration(problem));
        }
        Ok(Self(Arc::new(Settings { config: config.clone(), client: OnceCell::new() })))
    }

    fn config(&self) -> &types::Extender {
        &self.0.config
    }

    /// Whether it has a say about this pod: all pods where it manages no resource of its own.
    pub(crate) fn concerns(&self, pod: &PodInfo) -> bool {
        let managed = &self.config().managed_resources;
        let spec = pod.pod.spec.as_ref();
        let containers =
            spec.into_iter().flat_map(|spec| spec.containers.iter().chain(spec.init_containers.iter().flatten()));
        managed.is_empty()
            || containers.filter_map(|container| container.resources.as_ref()).any(|resources| {
                let lists = resources.requests.iter().chain(&resources.limits);
                lists.flat_map(|list| list.keys()).any(|name| managed.iter().any(|resource| resource.name == *name))
            })
    }

    pub(crate) fn takes_part(&self) -> bool {
        !self.config().filter_verb.is_empty() || !self.config().prioritize_verb.is_empty()
    }

    pub(crate) fn binds(&self) -> bool {
        !self.config().bind_verb.is_empty()
    }

    fn is_ignorable(&self) -> bool {
        self.config().ignorable
    }

    async fn client(&self) -> Result<Client, String> {
        let made = self.0.client.get_or_try_init(|| connect(self.config())).await;
        made.cloned().map_err(|error| format!("the extender {} cannot be reached: {error}", self.config().url_prefix))
    }

    async fn call(&self, verb: &str, body: &Value) -> Result<Value, String> {
        let config = self.config();
        let timeout = if config.http_timeout.is_zero() { DEFAULT_TIMEOUT } else { config.http_timeout };
        let asked = async {
            let client = self.client().await?;
            let request = http::Request::post(format!("/{verb}"))
                .header("content-type", "application/json")
                .body(kube::client::Body::from(serde_json::to_vec(body).unwrap_or_default()))
                .map_err(|error| error.to_string())?;
            let answer = client.send(request).await.map_err(|error| error.to_string())?;
            let status = answer.status();
            if status != http::StatusCode::OK {
                return Err(format!(
                    "failed {verb} with extender at URL {}, code {}",
                    config.url_prefix,
                    status.as_u16()
                ));
            }
            let bytes = answer.into_body().collect_bytes().await.map_err(|error| error.to_string())?;
            serde_json::from_slice(&bytes).map_err(|error| error.to_string())
        };
        match tokio::time::timeout(timeout, asked).await {
            Ok(answer) => answer,
            Err(_) => Err(format!(
                "Post \"{}/{verb}\": context deadline exceeded (Client.Timeout exceeded while awaiting headers)",
                config.url_prefix.trim_end_matches('/')
            )),
        }
    }

    fn arguments(&self, pod: &Pod, nodes: &[Arc<Node>]) -> Value {
        let names: Vec<&str> = nodes.iter().filter_map(|node| node.metadata.name.as_deref()).collect();
        match self.config().node_cache_capable {
            true => json!({"Pod": pod, "Nodes": null, "NodeNames": names}),
            false => json!({"Pod": pod, "Nodes": {"metadata": {}, "items": nodes}, "NodeNames": null}),
        }
    }

    /// Takes away from `nodes` what it refuses.
    async fn filter(&self, pod: &Pod, nodes: &mut Vec<Arc<Node>>, extension: &mut Extension) -> Result<(), String> {
        let answer = self.call(&self.config().filter_verb, &self.arguments(pod, nodes)).await?;
        if let Some(error) = field(&answer, "Error").and_then(Value::as_str).filter(|error| !error.is_empty()) {
            return Err(error.to_owned());
        }
        let listed = field(&answer, "NodeNames").and_then(Value::as_array).filter(|_| self.config().node_cache_capable);
        let items = field(&answer, "Nodes").and_then(|list| field(list, "items")).and_then(Value::as_array);
        let passed: HashSet<&str> = match listed {
            Some(names) => names.iter().filter_map(Value::as_str).collect(),
            None => items.into_iter().flatten().filter_map(|node| node.pointer("/metadata/name")?.as_str()).collect(),
        };
        for (name, helps) in [("FailedNodes", true), ("FailedAndUnresolvableNodes", false)] {
            for (node, reason) in field(&answer, name).and_then(Value::as_object).into_iter().flatten() {
                let reason = reason.as_str().unwrap_or_default().to_owned();
                extension.refused.insert(node.as_str().into(), (reason, helps));
            }
        }
        nodes.retain(|node| {
            let name = node.metadata.name.as_deref().unwrap_or_default();
            let passes = passed.contains(name);
            if !passes && !extension.refused.contains_key(name) {
                extension.refused.insert(name.into(), ("node(s) were refused by an extender".into(), true));
            }
            passes
        });
        Ok(())
    }

    async fn prioritize(&self, pod: &Pod, nodes: &[Arc<Node>], extension: &mut Extension) -> Result<(), String> {
        let answer = self.call(&self.config().prioritize_verb, &self.arguments(pod, nodes)).await?;
        for entry in answer.as_array().into_iter().flatten() {
            let (host, score) =
                (field(entry, "Host").and_then(Value::as_str), field(entry, "Score").and_then(Value::as_i64));
            if let (Some(host), Some(score)) = (host, score) {
                let weighted = score.saturating_mul(self.config().weight).saturating_mul(SCALE);
                let total = extension.scores.entry(host.into()).or_default();
                *total = total.saturating_add(weighted);
            }
        }
        Ok(())
    }

    /// Binds the pod in the scheduler's place.
    pub(crate) async fn bind(&self, pod: &PodInfo, node: &str) -> Result<(), String> {
        let body = json!({"PodName": pod.name, "PodNamespace": pod.namespace, "PodUID": &*pod.uid, "Node": node});
        let answer = self.call(&self.config().bind_verb, &body).await?;
        match field(&answer, "Error").and_then(Value::as_str).filter(|error| !error.is_empty()) {
            Some(error) => Err(error.to_owned()),
            None => Ok(()),
        }
    }

    /// Whether it agrees that these pods go, or with which of them. Nothing when it does not.
    async fn preempt(&self, pod: &PodInfo, preemption: Preemption) -> Result<Option<Preemption>, String> {
        let (node, victims) = (&preemption.node, &preemption.victims);
        let whole: Vec<&Pod> = victims.iter().map(|victim| victim.pod.as_ref()).collect();
        let ids: Vec<Value> = victims.iter().map(|victim| json!({"UID": &*victim.uid})).collect();
        let body = match self.config().node_cache_capable {
            true => {
                json!({"Pod": &*pod.pod, "NodeNameToVictims": null, "NodeNameToMetaVictims": {node: {"Pods": ids, "NumPDBViolations": 0}}})
            }
            false => {
                json!({"Pod": &*pod.pod, "NodeNameToVictims": {node: {"Pods": whole, "NumPDBViolations": 0}}, "NodeNameToMetaVictims": null})
            }
        };
        let answer = self.call(&self.config().preempt_verb, &body).await?;
        let Some(agreed) = field(&answer, "NodeNameToMetaVictims").and_then(|nodes| nodes.get(node)) else {
            return Ok(None);
        };
        let ids: HashSet<&str> = field(agreed, "Pods")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(|pod| field(pod, "UID")?.as_str())
            .collect();
        let victims: Vec<Arc<PodInfo>> = victims.iter().filter(|victim| ids.contains(&*victim.uid)).cloned().collect();
        Ok((!victims.is_empty()).then(|| Preemption { node: node.clone(), victims }))
    }
}

/// Go's decoder does not mind capitals, so extenders write both.
fn field<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    value.as_object()?.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

async fn connect(config: &types::Extender) -> Result<Client, kube::Error> {
    let tls = config.tls_config.clone().unwrap_or_default();
    let some = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    let secure = config.enable_https || config.url_prefix.starts_with("https:");
    let has_ca = !tls.ca_file.is_empty() || !tls.ca_data.is_empty();
    let cluster = Cluster {
        server: Some(config.url_prefix.trim_end_matches('/').to_owned()),
        insecure_skip_tls_verify: Some(secure && (tls.insecure || !has_ca)),
        certificate_authority: some(&tls.ca_file),
        certificate_authority_data: some(&tls.ca_data),
        tls_server_name: some(&tls.server_name),
        ..Cluster::default()
    };
    let user = AuthInfo {
        client_certificate: some(&tls.cert_file),
        client_certificate_data: some(&tls.cert_data),
        client_key: some(&tls.key_file),
        client_key_data: some(&tls.key_data).map(Into::into),
        ..AuthInfo::default()
    };
    let context = Context { cluster: "extender".into(), user: Some("scheduler".into()), ..Context::default() };
    let file = Kubeconfig {
        clusters: vec![NamedCluster { name: "extender".into(), cluster: Some(cluster), other: Default::default() }],
        auth_infos: vec![NamedAuthInfo { name: "scheduler".into(), auth_info: Some(user), other: Default::default() }],
        contexts: vec![NamedContext { name: "extender".into(), context: Some(context), other: Default::default() }],
        current_context: Some("extender".into()),
        ..Kubeconfig::default()
    };
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(file, &options)
        .await
        .map_err(|error| kube::Error::Service(Box::new(error)))?;
    Client::try_from(config)
}

/// Asks all extenders that have a say: first which nodes, then how good they are.
pub(crate) async fn ask(extenders: &[Extender], pod: &PodInfo, mut nodes: Vec<Arc<Node>>) -> Result<Extension, String> {
    let name = |node: &Arc<Node>| node.metadata.name.as_deref().unwrap_or_default().into();
    let mut extension = Extension { nodes: nodes.iter().map(name).collect(), ..Extension::default() };
    let concerned = || extenders.iter().filter(|extender| extender.concerns(pod));
    for extender in concerned().filter(|extender| !extender.config().filter_verb.is_empty()) {
        if nodes.is_empty() {
            break;
        }
        if let Err(error) = extender.filter(&pod.pod, &mut nodes, &mut extension).await {
            if !extender.is_ignorable() {
                return Err(error);
            }
            tracing::warn!(pod = pod.full_name(), "an extender is left out: {error}");
        }
    }
    for extender in concerned().filter(|extender| !extender.config().prioritize_verb.is_empty()) {
        if let Err(error) = extender.prioritize(&pod.pod, &nodes, &mut extension).await {
            tracing::warn!(pod = pod.full_name(), "an extender's scores are left out: {error}");
        }
    }
    Ok(extension)
}

/// Lets the extenders object to a preemption: none is left then.
pub(crate) async fn preempt(
    extenders: &[Extender],
    pod: &PodInfo,
    preemption: Preemption,
) -> Result<Option<Preemption>, String> {
    let mut preemption = preemption;
    let concerned = extenders.iter().filter(|extender| extender.concerns(pod));
    for extender in concerned.filter(|extender| !extender.config().preempt_verb.is_empty()) {
        match extender.preempt(pod, preemption.clone()).await {
            Ok(Some(agreed)) => preemption = agreed,
            Ok(None) => return Ok(None),
            Err(error) if extender.is_ignorable() => {
                tracing::warn!(pod = pod.full_name(), "an extender is left out: {error}");
            }
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(Some(preemption))
}
