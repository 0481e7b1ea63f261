//! Authorization: its flags, and the chain they make.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::Args;
use ferry_auth::{
    AccessConditions, AccessWebhook, AccessWebhookOptions, AlwaysAllow, AlwaysDeny, AuthorizerChain, NodeAuthorizer,
    Rbac,
};
use ferry_meta::ObjectReader;
use ferry_meta::object::{items, text};
use ferry_outbound::Remote;
use ferry_tasks::Tasks;
use serde_json::{Value, json};

use super::{duration, read_document};
use crate::configuration;
use crate::reload::Reloads;

const MODES: [&str; 5] = ["AlwaysAllow", "AlwaysDeny", "Node", "RBAC", "Webhook"];
const LONGEST_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Authorization")]
pub struct AuthorizationOptions {
    /// The authorizers, in order: Node, RBAC, Webhook, AlwaysAllow, AlwaysDeny.
    #[arg(long, value_delimiter = ',', default_value = "Node,RBAC")]
    pub authorization_mode: Vec<String>,
    /// A file with an AuthorizationConfiguration, instead of --authorization-mode.
    #[arg(long, value_name = "FILE", conflicts_with = "authorization_webhook_config_file")]
    pub authorization_config: Option<PathBuf>,
    /// A kubeconfig of the authorization webhook.
    #[arg(long, value_name = "KUBECONFIG")]
    pub authorization_webhook_config_file: Option<PathBuf>,
    /// How long to cache when it allows a request.
    #[arg(long, default_value = "5m", value_parser = duration)]
    pub authorization_webhook_cache_authorized_ttl: Duration,
    /// How long to cache when it denies a request.
    #[arg(long, default_value = "30s", value_parser = duration)]
    pub authorization_webhook_cache_unauthorized_ttl: Duration,
    /// The API version of the reviews: v1 or v1beta1.
    #[arg(long, default_value = "v1")]
    pub authorization_webhook_version: String,
}

/// What the authorizers of a chain are made of.
#[derive(Clone)]
struct Parts {
    reader: Arc<dyn ObjectReader>,
    rbac: Arc<Rbac>,
    tasks: Tasks,
}

impl AuthorizationOptions {
    /// Whether the flags let everybody do everything.
    pub fn allows_everything(&self) -> bool {
        self.authorization_config.is_none() && self.authorization_mode.iter().any(|mode| mode == "AlwaysAllow")
    }

    pub fn chain(
        &self,
        reader: &Arc<dyn ObjectReader>,
        rbac: &Arc<Rbac>,
        reloads: &Reloads,
        tasks: &Tasks,
    ) -> Result<Arc<AuthorizerChain>> {
        let parts = Parts { reader: reader.clone(), rbac: rbac.clone(), tasks: tasks.clone() };
        if let Some(path) = &self.authorization_config {
            let chain = Arc::new(configured(path, &parts)?);
            let (changing, file) = (chain.clone(), path.clone());
            reloads.watch(path, move || {
                changing.replace(&configured(&file, &parts)?);
                Ok(())
            })?;
            return Ok(chain);
        }
        let mut chain = AuthorizerChain::new();
        for mode in &self.authorization_mode {
            if mode != "Webhook" {
                chain = built_in(chain, mode, &parts)?;
                continue;
            }
            let Some(path) = &self.authorization_webhook_config_file else {
                bail!("--authorization-mode=Webhook needs --authorization-webhook-config-file");
            };
            let remote = Remote::from_kubeconfig(&read_document(path)?, path, tasks)
                .map_err(|why| anyhow!("{}: {why}", path.display()))?;
            let options = AccessWebhookOptions {
                version: self.authorization_webhook_version.clone(),
                authorized_life: self.authorization_webhook_cache_authorized_ttl,
                unauthorized_life: self.authorization_webhook_cache_unauthorized_ttl,
                ..AccessWebhookOptions::default()
            };
            chain = chain.with("webhook", Arc::new(AccessWebhook::new(remote, options)));
        }
        Ok(Arc::new(chain))
    }
}

/// The chain of an AuthorizationConfiguration.
fn configured(path: &Path, parts: &Parts) -> Result<AuthorizerChain> {
    let file = configuration::read(path, "AuthorizationConfiguration")?;
    let read = || {
        ensure!(
            text(&file, "/kind") == "AuthorizationConfiguration"
                && text(&file, "/apiVersion").starts_with("apiserver.config.k8s.io/v1"),
            "it is no AuthorizationConfiguration of apiserver.config.k8s.io/v1"
        );
        let list = items(&file, "/authorizers");
        ensure!(!list.is_empty(), "authorizers: Required value: at least one authorization mode must be defined");
        let (mut chain, mut names) = (AuthorizerChain::new(), Vec::new());
        for (index, one) in list.iter().enumerate() {
            let place = || format!("authorizers[{index}]");
            let (mode, name) = (text(one, "/type"), text(one, "/name"));
            ensure!(!mode.is_empty(), "{}.type: Required value", place());
            ensure!(
                MODES.contains(&mode),
                "{}.type: Unsupported value: {mode:?}: supported values: {}",
                place(),
                MODES.map(|mode| format!("{mode:?}")).join(", ")
            );
            let repeated = list[..index].iter().any(|before| text(before, "/type") == mode);
            ensure!(mode == "Webhook" || !repeated, "{}.type: Duplicate value: {mode:?}", place());
            ensure!(!name.is_empty(), "{}.name: Required value", place());
            ensure!(!names.contains(&name), "{}.name: Duplicate value: {name:?}", place());
            let wrong = ferry_meta::names::dns1123_subdomain(name);
            ensure!(
                wrong.is_empty(),
                "{}.name: Invalid value: {name:?}: authorizer name is invalid: {}",
                place(),
                wrong.join(", ")
            );
            names.push(name);
            if mode == "Webhook" {
                ensure!(
                    one.get("webhook").is_some_and(Value::is_object),
                    "{}.webhook: Required value: required when type=Webhook",
                    place()
                );
                chain = chain.with("webhook", Arc::new(webhook(one, &parts.tasks).with_context(place)?));
            } else {
                ensure!(
                    one.get("webhook").is_none_or(Value::is_null),
                    "{}.webhook: Invalid value: \"non-null\": may only be specified when type=Webhook",
                    place()
                );
                chain = built_in(chain, mode, parts).with_context(place)?;
            }
        }
        Ok(chain)
    };
    read().with_context(|| path.display().to_string())
}

fn built_in(chain: AuthorizerChain, mode: &str, parts: &Parts) -> Result<AuthorizerChain> {
    Ok(match mode {
        "Node" => chain.with("node", Arc::new(NodeAuthorizer::new(parts.reader.clone()))),
        "RBAC" => chain.with("rbac", parts.rbac.clone()),
        "AlwaysAllow" => chain.with("always-allow", Arc::new(AlwaysAllow)),
        "AlwaysDeny" => chain.with("always-deny", Arc::new(AlwaysDeny)),
        other => bail!("{other:?} is not an authorizer; use Node, RBAC, Webhook, AlwaysAllow or AlwaysDeny"),
    })
}

fn webhook(one: &Value, tasks: &Tasks) -> Result<AccessWebhook> {
    let of = |field: &str| text(one, &format!("/webhook/{field}"));
    let life = |field: &str, default: &str| {
        let given = of(field);
        duration(if given.is_empty() { default } else { given }).map_err(|why| anyhow!("{field}: {why}"))
    };
    let timeout = life("timeout", "0s")?;
    ensure!(!timeout.is_zero(), "timeout: Required value");
    ensure!(timeout <= LONGEST_TIMEOUT, "timeout: Invalid value: {:?}: must be > 0s and <= 30s", of("timeout"));
    let version = of("subjectAccessReviewVersion");
    ensure!(!version.is_empty(), "subjectAccessReviewVersion: Required value");
    ensure!(
        matches!(version, "v1" | "v1beta1"),
        "subjectAccessReviewVersion: Unsupported value: {version:?}: supported values: \"v1\", \"v1beta1\""
    );
    let deny_on_failure = match of("failurePolicy") {
        "Deny" => true,
        "NoOpinion" => false,
        "" => bail!("failurePolicy: Required value"),
        other => bail!("failurePolicy: Unsupported value: {other:?}: supported values: \"NoOpinion\", \"Deny\""),
    };
    let conditions = items(one, "/webhook/matchConditions");
    let of_conditions = of("matchConditionSubjectAccessReviewVersion");
    ensure!(
        of_conditions == "v1" || (of_conditions.is_empty() && conditions.is_empty()),
        "matchConditionSubjectAccessReviewVersion: {of_conditions:?} is not v1, which is required if match conditions are specified"
    );
    let expressions: Vec<&str> = conditions.iter().map(|condition| text(condition, "/expression")).collect();
    let conditions = AccessConditions::compile(&expressions)?;
    let remote = remote_of(&one["webhook"]["connectionInfo"], tasks)?;
    let flag = |field: &str| one.pointer(&format!("/webhook/{field}")).and_then(Value::as_bool).unwrap_or(true);
    let options = AccessWebhookOptions {
        version: version.to_owned(),
        authorized_life: life("authorizedTTL", "5m")?,
        unauthorized_life: life("unauthorizedTTL", "30s")?,
        deny_on_failure,
        timeout,
        cache_authorized: flag("cacheAuthorizedRequests"),
        cache_unauthorized: flag("cacheUnauthorizedRequests"),
    };
    Ok(AccessWebhook::new(remote, options).when(conditions))
}

/// Where a webhook is: in a file, or where a pod finds the API server of its cluster.
fn remote_of(connection: &Value, tasks: &Tasks) -> Result<Remote> {
    let file = text(connection, "/kubeConfigFile");
    let (document, path) = match text(connection, "/type") {
        "" => bail!("connectionInfo.type: Required value"),
        "InClusterConfig" => {
            ensure!(
                file.is_empty(),
                "connectionInfo.kubeConfigFile: Invalid value: {file:?}: can only be set when type=KubeConfigFile"
            );
            let variable = |name: &str| std::env::var(name).unwrap_or_default();
            let address = (variable("KUBERNETES_SERVICE_HOST"), variable("KUBERNETES_SERVICE_PORT"));
            (in_cluster(&address.0, &address.1)?, Path::new(ACCOUNT).join("kubeconfig"))
        }
        "KubeConfigFile" => {
            ensure!(!file.is_empty(), "connectionInfo.kubeConfigFile: Required value");
            let path = PathBuf::from(file);
            let wrong = |why: &str| format!("connectionInfo.kubeConfigFile: Invalid value: {file:?}: {why}");
            ensure!(path.is_absolute(), wrong("must be an absolute path"));
            let about = std::fs::metadata(&path).with_context(|| wrong("error loading file"))?;
            ensure!(about.is_file(), wrong("must be a regular file"));
            (read_document(&path)?, path)
        }
        other => bail!(
            "connectionInfo.type: Unsupported value: {other:?}: supported values: \"InClusterConfig\", \"KubeConfigFile\""
        ),
    };
    Remote::from_kubeconfig(&document, &path, tasks).map_err(|why| anyhow!("{}: {why}", path.display()))
}

/// Where a pod finds the token and the CA of its account.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

fn in_cluster(host: &str, port: &str) -> Result<Value> {
    ensure!(
        !host.is_empty() && !port.is_empty(),
        "connectionInfo.type: InClusterConfig: unable to load in-cluster configuration, KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT must be defined"
    );
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    Ok(json!({
        "clusters": [{ "name": "in-cluster", "cluster": {
            "server": format!("https://{host}:{port}"), "certificate-authority": format!("{ACCOUNT}/ca.crt"),
        } }],
        "users": [{ "name": "account", "user": { "tokenFile": format!("{ACCOUNT}/token") } }],
        "contexts": [{ "name": "pod", "context": { "cluster": "in-cluster", "user": "account" } }],
        "current-context": "pod",
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server_options::ServerOptions;
    use ferry_auth::{Attributes, Authorizer};
    use ferry_meta::UserInfo;

    struct Nothing;

    impl ObjectReader for Nothing {
        fn get(&self, _: &ferry_meta::GroupResource, _: &str, _: &str) -> Option<Arc<Value>> {
            None
        }

        fn list(&self, _: &ferry_meta::GroupResource, _: &str) -> Vec<Arc<Value>> {
            Vec::new()
        }

        fn version(&self, _: &ferry_meta::GroupResource) -> u64 {
            0
        }
    }

    fn webhook_of(kubeconfig: &Path) -> Value {
        json!({
            "timeout": "3s", "subjectAccessReviewVersion": "v1", "failurePolicy": "Deny",
            "matchConditionSubjectAccessReviewVersion": "v1",
            "matchConditions": [{ "expression": "request.user == 'eve'" }],
            "connectionInfo": { "type": "KubeConfigFile", "kubeConfigFile": kubeconfig },
        })
    }

    fn document(authorizers: &Value) -> String {
        json!({
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthorizationConfiguration", "authorizers": authorizers,
        })
        .to_string()
    }

    #[test]
    fn a_pod_finds_its_cluster() {
        let found = in_cluster("10.0.0.1", "443").unwrap();
        assert_eq!(found["clusters"][0]["cluster"]["server"], "https://10.0.0.1:443");
        assert_eq!(
            in_cluster("fd00::1", "6443").unwrap()["clusters"][0]["cluster"]["server"],
            "https://[fd00::1]:6443"
        );
        assert!(in_cluster("10.0.0.1", "").is_err());
    }

    #[tokio::test]
    async fn the_authorization_file_is_checked_and_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let (path, kubeconfig) = (folder.path().join("authorization.yaml"), folder.path().join("kubeconfig"));
        // Nobody listens there.
        let cluster = json!({ "clusters": [{ "name": "c", "cluster": { "server": "http://127.0.0.1:1" } }] });
        std::fs::write(&kubeconfig, cluster.to_string()).unwrap();
        let hook = webhook_of(&kubeconfig);
        let changed = |field: &str, value: Value| {
            let mut hook = hook.clone();
            hook[field] = value;
            json!([{ "type": "Webhook", "name": "w", "webhook": hook }])
        };
        let reader: Arc<dyn ObjectReader> = Arc::new(Nothing);
        let rbac = Arc::new(Rbac::new(reader.clone()));
        let (reloads, tasks) = (Reloads::new(), Tasks::new("test"));
        let mut options = ServerOptions::default().authorization;
        options.authorization_config = Some(path.clone());
        for (authorizers, wanted) in [
            (json!([]), "at least one authorization mode"),
            (
                json!([{ "type": "RBAC", "name": "a" }, { "type": "RBAC", "name": "b" }]),
                "authorizers[1].type: Duplicate value",
            ),
            (json!([{ "type": "RBAC" }]), "authorizers[0].name: Required value"),
            (
                json!([{ "type": "RBAC", "name": "a" }, { "type": "Node", "name": "a" }]),
                "authorizers[1].name: Duplicate value",
            ),
            (json!([{ "type": "RBAC", "name": "a", "webhook": {} }]), "may only be specified"),
            (json!([{ "type": "Magic", "name": "a" }]), "authorizers[0].type: Unsupported value: \"Magic\""),
            (json!([{ "name": "a" }]), "authorizers[0].type: Required value"),
            (json!([{ "type": "RBAC", "name": "No!" }]), "authorizer name is invalid"),
            (json!([{ "type": "Webhook", "name": "w" }]), "required when type=Webhook"),
            (
                changed("matchConditions", json!([{ "expression": "true" }, { "expression": "true" }])),
                "Duplicate value",
            ),
            (changed("matchConditions", json!([{ "expression": " " }])), "Required value"),
            (changed("authorizedTTL", json!("-1s")), "authorizedTTL"),
            (changed("failurePolicy", Value::Null), "failurePolicy: Required value"),
            (changed("subjectAccessReviewVersion", Value::Null), "subjectAccessReviewVersion: Required value"),
            (changed("connectionInfo", json!({})), "connectionInfo.type: Required value"),
            (changed("connectionInfo", json!({ "type": "Magic" })), "connectionInfo.type: Unsupported value"),
            (changed("connectionInfo", json!({ "type": "KubeConfigFile" })), "kubeConfigFile: Required value"),
            (
                changed("connectionInfo", json!({ "type": "KubeConfigFile", "kubeConfigFile": "here" })),
                "must be an absolute path",
            ),
            (
                changed("connectionInfo", json!({ "type": "KubeConfigFile", "kubeConfigFile": "/nowhere/at/all" })),
                "error loading file",
            ),
            (
                changed("connectionInfo", json!({ "type": "KubeConfigFile", "kubeConfigFile": "/tmp" })),
                "must be a regular file",
            ),
            (
                changed("connectionInfo", json!({ "type": "InClusterConfig", "kubeConfigFile": "/tmp" })),
                "can only be set when type=KubeConfigFile",
            ),
            (changed("timeout", Value::Null), "timeout: Required value"),
            (changed("timeout", json!("31s")), "<= 30s"),
            (changed("failurePolicy", json!("Allow")), "failurePolicy"),
            (changed("subjectAccessReviewVersion", json!("v2")), "subjectAccessReviewVersion"),
            (
                changed("matchConditionSubjectAccessReviewVersion", Value::Null),
                "matchConditionSubjectAccessReviewVersion",
            ),
            (changed("matchConditions", json!([{ "expression": "request.usr == ''" }])), "undefined field 'usr'"),
            (
                changed("connectionInfo", json!({ "type": "InClusterConfig" })),
                "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT must be defined",
            ),
        ] {
            std::fs::write(&path, document(&authorizers)).unwrap();
            let error = options.chain(&reader, &rbac, &reloads, &tasks).err().map(|error| format!("{error:#}"));
            assert!(error.as_ref().is_some_and(|error| error.contains(wanted)), "{error:?} is not about {wanted}");
        }

        let allow = json!({ "type": "AlwaysAllow", "name": "all" });
        std::fs::write(&path, document(&json!([allow]))).unwrap();
        let chain = options.chain(&reader, &rbac, &reloads, &tasks).unwrap();
        let (eve, bob) = (UserInfo::new("eve", &[]), UserInfo::new("bob", &[]));
        let asks =
            async |user: &UserInfo| chain.authorize(&Attributes::resource(user, "get", "", "pods")).await.is_allowed();
        assert!(asks(&eve).await && asks(&bob).await);
        // The webhook is asked about eve alone; it cannot be, and denies.
        let with_hook = json!([{ "type": "Webhook", "name": "w", "webhook": hook }, allow]);
        std::fs::write(&path, document(&with_hook)).unwrap();
        assert!(asks(&eve).await, "nobody has looked yet");
        reloads.look();
        assert!(!asks(&eve).await && asks(&bob).await);
        let refused = chain.authorize(&Attributes::resource(&eve, "get", "", "pods")).await;
        assert!(refused.denies() && refused.error().is_some_and(|error| error.contains("127.0.0.1:1")), "{refused:?}");
        std::fs::write(&path, "{}").unwrap();
        reloads.look();
        assert!(!asks(&eve).await && asks(&bob).await, "what cannot be used leaves things as they are");
    }
}
