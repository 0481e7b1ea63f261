//! What is told of the cluster, one JSON text in each line: of every object only what answers are made of.

use std::io;

use ferry_client::ObjectKey;
use ferry_client::endpoint_slices::{self, Member};
use k8s_openapi::api::core::v1::{ObjectReference, Service, ServicePort, ServiceSpec};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use serde::{Deserialize, Serialize};

use crate::reload::Written;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Line {
    /// Everything follows: what is not named before `Complete` is gone.
    All,
    Complete,
    Service(Box<Service>),
    Slice(Box<EndpointSlice>),
    Namespace(String),
    Gone {
        kind: Kind,
        namespace: String,
        name: String,
    },
    Corefile(Written),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Kind {
    Service,
    Slice,
    Namespace,
}

impl Line {
    pub(super) fn read(bytes: &[u8]) -> io::Result<Self> {
        Ok(serde_json::from_slice(bytes)?)
    }

    /// With its end.
    pub(super) fn bytes(&self) -> io::Result<Vec<u8>> {
        let mut bytes = serde_json::to_vec(self)?;
        bytes.push(b'\n');
        Ok(bytes)
    }

    pub(super) fn service(service: &Service) -> Self {
        let spec = service.spec.as_ref().map(|spec| ServiceSpec {
            type_: spec.type_.clone(),
            external_name: spec.external_name.clone(),
            cluster_ip: spec.cluster_ip.clone(),
            cluster_ips: spec.cluster_ips.clone(),
            ports: spec.ports.as_ref().map(|ports| ports.iter().map(port).collect()),
            ..ServiceSpec::default()
        });
        Self::Service(Box::new(Service { metadata: named(service), spec, status: None }))
    }

    pub(super) fn slice(slice: &endpoint_slices::Slice) -> Self {
        let mut metadata = named(slice);
        metadata.labels = Some(slice.labels());
        let ports = slice.ports.iter().map(|port| EndpointPort {
            name: Some(port.name.to_string()),
            protocol: Some(port.protocol.to_string()),
            port: Some(port.number.into()),
            ..EndpointPort::default()
        });
        Self::Slice(Box::new(EndpointSlice {
            metadata,
            address_type: slice.address_type.to_string(),
            ports: Some(ports.collect()),
            // The others are never told.
            endpoints: Some(slice.endpoints.iter().filter(|member| member.ready).map(endpoint).collect()),
        }))
    }

    pub(super) fn gone(kind: Kind, key: &ObjectKey) -> Self {
        Self::Gone { kind, namespace: key.namespace.to_string(), name: key.name.to_string() }
    }
}

fn named(object: &impl kube::Resource<DynamicType = ()>) -> ObjectMeta {
    ObjectMeta { name: Some(object.name_any()), namespace: object.namespace(), ..ObjectMeta::default() }
}

fn port(port: &ServicePort) -> ServicePort {
    ServicePort { name: port.name.clone(), protocol: port.protocol.clone(), port: port.port, ..ServicePort::default() }
}

fn endpoint(member: &Member) -> Endpoint {
    let names = member.names();
    let target = names.and_then(|names| names.target.as_deref());
    Endpoint {
        addresses: member.addresses().iter().map(ToString::to_string).collect(),
        hostname: names.and_then(|names| names.hostname.as_deref()).map(str::to_owned),
        target_ref: target.map(|name| ObjectReference { name: Some(name.to_owned()), ..ObjectReference::default() }),
        conditions: Some(EndpointConditions { ready: Some(true), ..EndpointConditions::default() }),
        ..Endpoint::default()
    }
}
