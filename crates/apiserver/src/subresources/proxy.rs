//! `proxy` of pods and Services: where a request goes to, and TLS to servers that show whatever certificate they have.

use std::sync::{Arc, OnceLock};

use ferry_meta::{ApiError, GroupResource, ObjectReader, object};
use ferry_registry::Resource;
use serde_json::Value;

use super::connect::rest;
use crate::context::RequestContext;
use crate::kubelet::Target;
use crate::objects;
use crate::server::Core;
use crate::unverified::Unverified;

struct Wanted<'a> {
    secure: bool,
    name: &'a str,
    port: &'a str,
}

/// `name`, `name:port` or `scheme:name:port`.
fn split_name(name: &str) -> Result<Wanted<'_>, ApiError> {
    let (secure, name, port) = match name.split(':').collect::<Vec<_>>().as_slice() {
        [name] => (false, *name, ""),
        [name, port] => (false, *name, *port),
        ["http" | "", name, port] => (false, *name, *port),
        ["https", name, port] => (true, *name, *port),
        _ => return Err(ApiError::bad_request(format!("invalid proxy request {name:?}"))),
    };
    Ok(Wanted { secure, name, port })
}

pub(super) async fn pod(core: &Core, context: &RequestContext, row: &Resource) -> Result<Target, ApiError> {
    let Wanted { secure, name, port } = split_name(&context.info.name)?;
    let pod = objects::must_load(core, row, &context.info.namespace, name).await?.object;
    let first = pod.pointer("/spec/containers/0/ports/0/containerPort").and_then(Value::as_u64).unwrap_or(80);
    let port = if port.is_empty() { u16::try_from(first).ok() } else { port.parse().ok() };
    let address = object::text(&pod, "/status/podIP");
    let (Some(port), false) = (port, address.is_empty()) else {
        return Err(ApiError::bad_request("address not allowed"));
    };
    Ok(Target { host: address.to_owned(), port, tls: tls(secure)?, path: rest(context) })
}

/// A ready endpoint of the Service, at the port that is named, numbered, or the only one.
pub(super) fn service(core: &Core, context: &RequestContext) -> Result<Target, ApiError> {
    let Wanted { secure, name, port: wanted } = split_name(&context.info.name)?;
    let namespace = &context.info.namespace;
    let resource = GroupResource::new("", "services");
    let missing = || ApiError::unavailable(format!("no endpoints available for service {name:?}"));
    let service = core.cache.get(&resource, namespace, name).ok_or_else(missing)?;
    let ports = object::items(&service, "/spec/ports");
    let number = |p: &Value| p.get("port").and_then(Value::as_u64).unwrap_or(0).to_string();
    let chosen = match ports {
        [one] if wanted.is_empty() => Some(one),
        many => many.iter().find(|p| object::text(p, "/name") == wanted || number(p) == wanted),
    };
    let port_name = object::text(chosen.ok_or_else(missing)?, "/name");
    let slices = core.cache.list(&GroupResource::new("discovery.k8s.io", "endpointslices"), namespace);
    for slice in slices {
        if object::labels(&slice).get("kubernetes.io/service-name").and_then(Value::as_str) != Some(name) {
            continue;
        }
        let port = object::items(&slice, "/ports").iter().find(|p| object::text(p, "/name") == port_name);
        let port = port.and_then(|p| p.get("port")?.as_u64()).and_then(|p| u16::try_from(p).ok());
        let ready = object::items(&slice, "/endpoints")
            .iter()
            .find(|e| e.pointer("/conditions/ready") != Some(&Value::Bool(false)))
            .and_then(|e| e.pointer("/addresses/0")?.as_str());
        if let (Some(port), Some(host)) = (port, ready) {
            return Ok(Target { host: host.to_owned(), port, tls: tls(secure)?, path: rest(context) });
        }
    }
    Err(missing())
}

/// Certificates of pods are signed by whoever made them; as upstream, the proxy looks at none.
fn tls(secure: bool) -> Result<Option<Arc<rustls::ClientConfig>>, ApiError> {
    static CONFIG: OnceLock<Option<Arc<rustls::ClientConfig>>> = OnceLock::new();
    if !secure {
        return Ok(None);
    }
    let config = CONFIG.get_or_init(|| {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider.clone());
        let builder = builder.with_safe_default_protocol_versions().ok()?;
        let verifier = Arc::new(Unverified(provider));
        Some(Arc::new(builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth()))
    });
    config.clone().map(Some).ok_or_else(|| ApiError::internal("TLS cannot be set up"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_carry_scheme_and_port() {
        for (text, want) in [
            ("web", Some((false, "web", ""))),
            ("web:80", Some((false, "web", "80"))),
            ("http:web:80", Some((false, "web", "80"))),
            ("https:web:", Some((true, "web", ""))),
            ("https:web:443", Some((true, "web", "443"))),
            ("ftp:web:21", None),
        ] {
            assert_eq!(split_name(text).ok().map(|w| (w.secure, w.name, w.port)), want, "{text}");
        }
        assert!(tls(true).is_ok_and(|config| config.is_some()));
    }
}
