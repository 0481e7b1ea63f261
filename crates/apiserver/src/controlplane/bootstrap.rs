//! What every cluster starts with: the system namespaces, the default roles, the `kubernetes` Service.
//!
//! Written through the pipeline like anyone's objects, by a caller in system:masters.

use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ferry_auth::bootstrap::{self, Reconciled};
use ferry_meta::{ApiError, object, time};
use futures::StreamExt;
use http::header::{AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use http::{Method, Request};
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::pipeline;
use crate::resource_metrics;
use crate::response::answer::full;
use crate::server::Core;
use ferry_connections::Peer;

/// Where the server is reached from inside the cluster.
#[derive(Clone, Copy, Debug)]
pub struct Endpoint {
    pub address: IpAddr,
    pub port: u16,
}

/// So often a step is done again, with pauses that double.
const ATTEMPTS: u32 = 8;
const FIRST_PAUSE: Duration = Duration::from_millis(10);

#[derive(Clone, Copy)]
pub(crate) struct Bootstrap<'a> {
    pub core: &'a Arc<Core>,
    pub token: &'a str,
}

impl Bootstrap<'_> {
    pub(crate) async fn run(&self, endpoint: Option<Endpoint>) -> Result<(), ApiError> {
        let (mut namespaces, others): (Vec<Value>, Vec<Value>) =
            bootstrap::objects().into_iter().partition(|o| object::text(o, "/kind") == "Namespace");
        // Their finalizers are the strategy's, which no manager owns.
        for namespace in namespaces.iter_mut().filter_map(Value::as_object_mut) {
            namespace.remove("spec");
        }
        self.reconcile_all(&namespaces).await?;
        self.reconcile_all(&others).await?;
        if self.core.resource_metrics.is_some() {
            self.reconcile_all(&[resource_metrics::reader_role()]).await?;
        }
        self.api_services().await?;
        self.settle(|| self.service_cidr()).await?;
        if let Some(endpoint) = endpoint {
            self.settle(|| self.kubernetes_service(endpoint)).await?;
        }
        Ok(())
    }

    /// Does a step again where it lost to another server that starts on the same store: what that one wrote is read, and
    /// mostly right. An address that it took in between is a refusal of the whole object.
    pub(crate) async fn settle<T, F>(&self, step: impl Fn() -> F) -> Result<T, ApiError>
    where
        F: Future<Output = Result<T, ApiError>>,
    {
        for attempt in 0..ATTEMPTS {
            match step().await {
                Err(error) if matches!(error.code(), 409 | 422 | 429 | 503 | 504) => {
                    tracing::debug!("a step of the start is done again: {}", error.0.message);
                    // Not all at the same moment.
                    let pause = FIRST_PAUSE * (1 << attempt);
                    tokio::time::sleep(pause.mul_f64(rand::random_range(0.5..1.5))).await;
                }
                done => return done,
            }
        }
        step().await
    }

    pub(crate) async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, ApiError> {
        // The fields of what is written belong to whoever writes them in upstream's server.
        let agent = if path.starts_with("/apis/flowcontrol.apiserver.k8s.io/") {
            "api-priority-and-fairness-config-producer-v1"
        } else {
            "kube-apiserver/v1.37.0"
        };
        let media = if method == Method::PATCH { "application/apply-patch+yaml" } else { "application/json" };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(AUTHORIZATION, format!("Bearer {}", self.token))
            .header(CONTENT_TYPE, media)
            .header(USER_AGENT, agent)
            .body(full(body.map_or_else(Bytes::new, |b| b.to_string().into())))
            .map_err(ApiError::internal)?;
        let response = pipeline::handle(self.core, request, Peer::default()).await;
        let good = response.status().is_success();
        let bytes = response.into_body().collect().await.map_err(ApiError::internal)?.to_bytes();
        if good {
            return serde_json::from_slice(&bytes).map_err(ApiError::internal);
        }
        match serde_json::from_slice(&bytes) {
            Ok(status) => Err(ApiError(Box::new(status))),
            Err(_) => Err(ApiError::internal(String::from_utf8_lossy(&bytes))),
        }
    }

    /// Together, so that they share the store's flushes.
    async fn reconcile_all(&self, wanted: &[Value]) -> Result<(), ApiError> {
        let mut running =
            futures::stream::iter(wanted).map(|one| self.settle(|| self.reconcile(one))).buffer_unordered(64);
        while let Some(done) = running.next().await {
            done?;
        }
        Ok(())
    }

    /// Every group and version that this server answers itself, as the aggregator lists them.
    async fn api_services(&self) -> Result<(), ApiError> {
        let table = self.core.table();
        let mut wanted: Vec<(String, String)> =
            table.rows().iter().map(|r| (r.gvk.group.clone(), r.gvk.version.clone())).collect();
        // Left to whoever installs another server of it: an object of ours would be in its way.
        wanted.retain(|(group, _)| group != resource_metrics::GROUP);
        wanted.sort();
        wanted.dedup();
        let mut running = futures::stream::iter(wanted)
            .map(|(group, version)| self.settle(move || self.api_service(group.clone(), version.clone())))
            .buffer_unordered(64);
        while let Some(done) = running.next().await {
            done?;
        }
        Ok(())
    }

    pub(crate) async fn api_service(&self, group: String, version: String) -> Result<(), ApiError> {
        const COLLECTION: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
        // The API that lists the others does not list itself.
        if group == "apiregistration.k8s.io" {
            return Ok(());
        }
        let name = format!("{version}.{group}");
        let path = format!("{COLLECTION}/{name}");
        match self.call(Method::GET, &path, None).await {
            Ok(_) => return Ok(()),
            Err(error) if error.code() == 404 => {}
            Err(error) => return Err(error),
        }
        let custom =
            self.core.table().rows().iter().any(|r| r.gvk.group == group && crate::storage::codec::is_custom(r));
        let (group_priority, version_priority) = if custom { (1000, 100) } else { priority(&group, &version) };
        let managed = if custom { "true" } else { "onstart" };
        let mut service = json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": name, "labels": {"kube-aggregator.kubernetes.io/automanaged": managed}},
            "spec": {
                "group": group, "version": version,
                "groupPriorityMinimum": group_priority, "versionPriority": version_priority,
            },
        });
        match self.call(Method::POST, COLLECTION, Some(&service)).await {
            Ok(made) => service = made,
            Err(error) if error.code() == 409 => return Ok(()),
            Err(error) => return Err(error),
        }
        service["status"] = json!({"conditions": [{
            "type": "Available", "status": "True", "reason": "Local",
            "lastTransitionTime": time::time(time::now()), "message": "Local APIServices are always available",
        }]});
        self.call(Method::PUT, &format!("{path}/status"), Some(&service)).await.map(drop)
    }

    /// The range that Services get their addresses from. One that is there stays as it is.
    async fn service_cidr(&self) -> Result<(), ApiError> {
        const COLLECTION: &str = "/apis/networking.k8s.io/v1/servicecidrs";
        let path = format!("{COLLECTION}/kubernetes");
        match self.call(Method::GET, &path, None).await {
            Ok(_) => return Ok(()),
            Err(error) if error.code() == 404 => {}
            Err(error) => return Err(error),
        }
        let wanted = json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR",
            "metadata": {"name": crate::write::allocate::DEFAULT},
            "spec": {"cidrs": self.core.service_network.texts()},
        });
        self.call(Method::POST, COLLECTION, Some(&wanted)).await?;
        let ready = json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR",
            "metadata": {"name": crate::write::allocate::DEFAULT},
            "status": {"conditions": [{
                "type": "Ready", "status": "True",
                "lastTransitionTime": time::time(time::now()), "message": "Kubernetes default Service CIDR is ready",
            }]},
        });
        let status = format!("{path}/status?fieldManager=kubernetes-service-cidr-controller&force=true");
        self.call(Method::PATCH, &status, Some(&ready)).await.map(drop)
    }

    async fn reconcile(&self, wanted: &Value) -> Result<(), ApiError> {
        let table = self.core.table();
        let kind = object::text(wanted, "/kind");
        let api_version = object::text(wanted, "/apiVersion");
        let row = table
            .rows()
            .iter()
            .find(|r| r.gvk.kind == kind && r.gvk.api_version() == api_version)
            .ok_or_else(|| ApiError::internal(format!("no resource for {}", bootstrap::title(wanted))))?;
        let root = if row.gvk.group.is_empty() { "/api/v1".to_owned() } else { format!("/apis/{api_version}") };
        let collection = match object::namespace(wanted) {
            "" => format!("{root}/{}", row.plural),
            namespace => format!("{root}/namespaces/{namespace}/{}", row.plural),
        };
        let path = format!("{collection}/{}", escape(object::name(wanted)));
        let existing = match self.call(Method::GET, &path, None).await {
            Ok(found) => Some(found),
            Err(error) if error.code() == 404 => None,
            Err(error) => return Err(error),
        };
        match bootstrap::reconcile(wanted, existing.as_ref()) {
            Reconciled::Unchanged => Ok(()),
            Reconciled::Create(object) => match self.call(Method::POST, &collection, Some(&object)).await {
                Err(error) if error.code() != 409 => Err(error),
                _ => Ok(()),
            },
            Reconciled::Update(object) => self.call(Method::PUT, &path, Some(&object)).await.map(drop),
            Reconciled::Recreate(object) => {
                match self.call(Method::DELETE, &path, None).await {
                    Err(error) if error.code() != 404 => return Err(error),
                    _ => {}
                }
                self.call(Method::POST, &collection, Some(&object)).await.map(drop)
            }
        }
    }

    /// The Service that pods find the servers by.
    async fn kubernetes_service(&self, endpoint: Endpoint) -> Result<(), ApiError> {
        let address = self.core.service_network.first().to_string();
        let labels = json!({"component": "apiserver", "provider": "kubernetes"});
        let service = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "kubernetes", "namespace": "default", "labels": labels},
            "spec": {
                "type": "ClusterIP", "clusterIP": address, "ipFamilyPolicy": "SingleStack", "sessionAffinity": "None",
                "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": endpoint.port}],
            },
        });
        let services = "/api/v1/namespaces/default/services";
        match self.call(Method::GET, &format!("{services}/kubernetes"), None).await {
            Ok(existing) => {
                let right = existing.pointer("/spec/ports/0/targetPort") == Some(&json!(endpoint.port))
                    && object::text(&existing, "/spec/clusterIP") == address;
                if !right {
                    let mut fixed = service.clone();
                    fixed["metadata"]["resourceVersion"] = object::resource_version(&existing).into();
                    self.call(Method::PUT, &format!("{services}/kubernetes"), Some(&fixed)).await?;
                }
            }
            Err(error) if error.code() == 404 => self.call(Method::POST, services, Some(&service)).await.map(drop)?,
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// Names of roles hold colons, which paths allow; a slash or a percent sign would not do.
fn escape(name: &str) -> String {
    name.replace('%', "%25").replace('/', "%2F")
}

/// The order clients are offered groups and versions in: upstream's numbers.
fn priority(group: &str, version: &str) -> (i64, i64) {
    let by_group = match group {
        "" => 18000,
        "apps" => 17800,
        "events.k8s.io" => 17750,
        "authentication.k8s.io" => 17700,
        "authorization.k8s.io" => 17600,
        "autoscaling" => 17500,
        "batch" => 17400,
        "certificates.k8s.io" => 17300,
        "networking.k8s.io" => 17200,
        "policy" => 17100,
        "rbac.authorization.k8s.io" => 17000,
        "storage.k8s.io" => 16800,
        "apiextensions.k8s.io" | "admissionregistration.k8s.io" => 16700,
        "scheduling.k8s.io" => 16600,
        "coordination.k8s.io" => 16500,
        "node.k8s.io" => 16300,
        "discovery.k8s.io" | "resource.k8s.io" => 16200,
        "flowcontrol.apiserver.k8s.io" => 16100,
        "storagemigration.k8s.io" => 15800,
        _ => 15900,
    };
    let by_version = match (group, version) {
        ("", _) => 1,
        ("autoscaling", "v2") => 30,
        ("flowcontrol.apiserver.k8s.io" | "resource.k8s.io", _) => 21,
        _ => 15,
    };
    (by_group, by_version)
}
