//! Whether a server behind this one is there, and what it serves.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ferry_meta::object::{items, labels, text};
use ferry_meta::{GroupResource, ObjectReader};
use http::Request;
use serde_json::Value;
use sha2::{Digest, Sha512};

use super::{FrontProxy, Remote};
use crate::discovery::hex;
use crate::request::body::{self, Read};
use crate::response::answer::full;
use crate::server::Core;

const PATIENCE: Duration = Duration::from_secs(5);
/// No document is read further than this.
const LARGEST: usize = 16 << 20;

/// Why a server is not available: upstream's reason and message.
pub(super) struct Unavailable {
    pub reason: &'static str,
    pub message: String,
}

pub(super) struct Found {
    pub resources: Value,
    pub openapi: Option<(Bytes, String)>,
}

pub(super) async fn check(core: &Core, remote: &Remote) -> Result<Found, Unavailable> {
    endpoints(core, remote)?;
    let (group, version) = (&remote.group, &remote.version);
    let url = format!("https://{}:{}/apis/{group}/{version}", remote.service.host(), remote.service.port);
    let failed = |why: String| Unavailable {
        reason: "FailedDiscoveryCheck",
        message: format!("failing or missing response from {url}: {why}"),
    };
    let bytes = get(core, remote, &format!("/apis/{group}/{version}")).await.map_err(&failed)?;
    let resources: Value = serde_json::from_slice(&bytes).map_err(|e| failed(e.to_string()))?;
    // A server without a description is one all the same.
    let openapi = get(core, remote, &format!("/openapi/v3/apis/{group}/{version}")).await.ok();
    let openapi = openapi.map(|text| {
        let hash = hex(&Sha512::digest(&text)).to_uppercase();
        (text, hash)
    });
    Ok(Found { resources, openapi })
}

/// The Service, its port and its endpoints, each with the words for when it is not there.
fn endpoints(core: &Core, remote: &Remote) -> Result<(), Unavailable> {
    let (namespace, name, port) = (&remote.service.namespace, &remote.service.name, remote.service.port);
    let missing = |reason, message| Err(Unavailable { reason, message });
    let Some(service) = core.cache.get(&GroupResource::new("", "services"), namespace, name) else {
        return missing("ServiceNotFound", format!("service/{name} in {namespace:?} is not present"));
    };
    if text(&service, "/spec/type") == "ExternalName" {
        return Ok(());
    }
    let ports = items(&service, "/spec/ports");
    let Some(found) = ports.iter().find(|p| p.get("port").and_then(Value::as_u64) == Some(port.into())) else {
        let message = format!("service/{name} in {namespace:?} is not listening on port {port}");
        return missing("ServicePortError", message);
    };
    let port_name = text(found, "/name");
    let slices = core.cache.list(&GroupResource::new("discovery.k8s.io", "endpointslices"), namespace);
    let of_service = |slice: &&Arc<Value>| {
        labels(slice).get("kubernetes.io/service-name").and_then(Value::as_str) == Some(name.as_str())
    };
    let slices: Vec<_> = slices.iter().filter(of_service).collect();
    if slices.is_empty() {
        let message = format!("cannot find endpointslices for service/{name} in {namespace:?}");
        return missing("EndpointsNotFound", message);
    }
    let ready = slices.iter().any(|slice| {
        items(slice, "/ports").iter().any(|p| text(p, "/name") == port_name)
            && items(slice, "/endpoints").iter().any(|e| e.pointer("/conditions/ready") != Some(&Value::Bool(false)))
    });
    if !ready {
        let message = format!(
            "endpointslices for service/{name} in {namespace:?} have no addresses with port name {port_name:?}"
        );
        return missing("MissingEndpoints", message);
    }
    Ok(())
}

async fn get(core: &Core, remote: &Remote, path: &str) -> Result<Bytes, String> {
    let request = Request::get(path)
        .header("accept", "application/json")
        .header("x-remote-user", "system:kube-aggregator")
        .header("x-remote-group", "system:masters")
        .body(full(""))
        .map_err(|e| e.to_string())?;
    let call = async {
        let answer = super::proxy::exchange(core, remote, path, request).await?;
        let status = answer.status();
        let read = body::read(answer.into_body(), LARGEST).await.map_err(|e| e.to_string())?;
        let bytes = match read {
            Read::Whole(bytes) => bytes,
            Read::TooLarge => return Err(format!("{path} is larger than {LARGEST} bytes")),
            Read::TooSlow => return Err("context deadline exceeded".to_owned()),
        };
        if status.is_success() { Ok(bytes) } else { Err(format!("bad status from {path}: {}", status.as_u16())) }
    };
    tokio::time::timeout(PATIENCE, call).await.unwrap_or_else(|_| Err("context deadline exceeded".to_owned()))
}

/// How connections to the server are made: by the bundle's authorities, or any when the object says so.
pub(super) fn tls(spec: &Value, front_proxy: Option<&FrontProxy>) -> Result<Arc<rustls::ClientConfig>, String> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let builder = if spec.get("insecureSkipTLSVerify") == Some(&Value::Bool(true)) {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(ferry_tls::Unverified(provider)))
    } else {
        let trust = ferry_admission::authorities(text(spec, "/caBundle"));
        trust.and_then(|trust| trust.onto(builder)).map_err(|why| why.to_string())?
    };
    let config = match front_proxy {
        Some(proxy) => builder.with_client_cert_resolver(proxy.0.clone()),
        None => builder.with_no_client_auth(),
    };
    Ok(Arc::new(config))
}
