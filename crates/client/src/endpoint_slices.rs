//! EndpointSlices as those hold them who carry traffic to endpoints or tell their addresses. There may be hundreds of thousands
//! of endpoints, and of each of them little is needed.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::slice::from_ref;

use k8s_openapi::api::discovery::v1::{Endpoint, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;

use crate::codec::Wire;
use crate::informer::Projection;

/// The label by which a slice names its Service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Set on slices whose Service was headless when they were made.
const HEADLESS: &str = "service.kubernetes.io/headless";

#[derive(Clone, Debug)]
pub struct Slice {
    /// Name, namespace, UID and revision alone.
    metadata: ObjectMeta,
    /// `namespace/name` of its Service.
    pub service: Option<Box<str>>,
    pub is_headless: bool,
    pub address_type: Box<str>,
    pub ports: Box<[Port]>,
    pub endpoints: Box<[Member]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    pub name: Box<str>,
    /// `TCP` where the slice names none.
    pub protocol: Box<str>,
    pub number: u16,
}

/// An endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    addresses: Addresses,
    pub ready: bool,
    pub serving: bool,
    pub terminating: bool,
    names: Option<Box<Names>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Addresses {
    One(IpAddr),
    Several(Box<[IpAddr]>),
}

/// What an endpoint may be called by, and who should rather use it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    pub hostname: Option<Box<str>>,
    /// Of what it stands for.
    pub target: Option<Box<str>>,
    pub node: Option<Box<str>>,
    pub for_zones: Box<[Box<str>]>,
    pub for_nodes: Box<[Box<str>]>,
}

impl Member {
    /// Those that are addresses.
    pub fn addresses(&self) -> &[IpAddr] {
        match &self.addresses {
            Addresses::One(address) => from_ref(address),
            Addresses::Several(all) => all,
        }
    }

    pub fn names(&self) -> Option<&Names> {
        self.names.as_deref()
    }
}

impl From<Endpoint> for Member {
    fn from(endpoint: Endpoint) -> Self {
        let addresses: Vec<IpAddr> = endpoint.addresses.iter().filter_map(|text| text.parse().ok()).collect();
        let addresses = match addresses.as_slice() {
            [only] => Addresses::One(*only),
            _ => Addresses::Several(addresses.into()),
        };
        let conditions = endpoint.conditions.unwrap_or_default();
        let ready = conditions.ready.unwrap_or(true);
        let hints = endpoint.hints.unwrap_or_default();
        let names = Names {
            hostname: endpoint.hostname.map(Into::into),
            target: endpoint.target_ref.and_then(|target| target.name).map(Into::into),
            node: endpoint.node_name.map(Into::into),
            for_zones: hints.for_zones.into_iter().flatten().map(|zone| zone.name.into()).collect(),
            for_nodes: hints.for_nodes.into_iter().flatten().map(|node| node.name.into()).collect(),
        };
        Self {
            addresses,
            ready,
            serving: conditions.serving.unwrap_or(ready),
            terminating: conditions.terminating.unwrap_or(false),
            names: (names != Names::default()).then(|| names.into()),
        }
    }
}

/// None where it has no number: then it stands for every port, which nobody who uses this knows what to do with.
fn port(port: EndpointPort) -> Option<Port> {
    Some(Port {
        number: u16::try_from(port.port?).ok()?,
        name: port.name.unwrap_or_default().into(),
        protocol: port.protocol.unwrap_or_else(|| "TCP".to_owned()).into(),
    })
}

impl Slice {
    /// Those of its labels that it is read from.
    pub fn labels(&self) -> BTreeMap<String, String> {
        let service = self.service.as_deref().and_then(|service| Some(service.split_once('/')?.1));
        let service = service.map(|name| (SERVICE_NAME.to_owned(), name.to_owned()));
        let headless = self.is_headless.then(|| (HEADLESS.to_owned(), String::new()));
        service.into_iter().chain(headless).collect()
    }
}

impl From<EndpointSlice> for Slice {
    fn from(slice: EndpointSlice) -> Self {
        let ObjectMeta { name, namespace, uid, resource_version, labels, .. } = slice.metadata;
        let labels = labels.unwrap_or_default();
        let service = labels.get(SERVICE_NAME);
        Self {
            service: service.map(|name| format!("{}/{name}", namespace.as_deref().unwrap_or_default()).into()),
            is_headless: labels.contains_key(HEADLESS),
            metadata: ObjectMeta { name, namespace, uid, resource_version, ..ObjectMeta::default() },
            address_type: slice.address_type.into(),
            ports: slice.ports.into_iter().flatten().filter_map(port).collect(),
            endpoints: slice.endpoints.into_iter().flatten().map(Member::from).collect(),
        }
    }
}

impl Projection for Slice {
    type Whole = EndpointSlice;

    fn of(whole: &EndpointSlice) -> Self {
        whole.clone().into()
    }
}

impl Wire for Slice {
    fn decode(json: &[u8]) -> Result<Self, serde_json::Error> {
        EndpointSlice::decode(json).map(Self::from)
    }

    fn encode(&self) -> Result<Vec<u8>, serde_json::Error> {
        Err(serde::ser::Error::custom("a part of an EndpointSlice cannot be written"))
    }
}

impl Resource for Slice {
    type DynamicType = ();
    type Scope = k8s_openapi::NamespaceResourceScope;

    fn kind(_: &()) -> Cow<'_, str> {
        EndpointSlice::kind(&())
    }

    fn group(_: &()) -> Cow<'_, str> {
        EndpointSlice::group(&())
    }

    fn version(_: &()) -> Cow<'_, str> {
        EndpointSlice::version(&())
    }

    fn plural(_: &()) -> Cow<'_, str> {
        EndpointSlice::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_needed_of_a_slice_stays() {
        let json = json!({
            "metadata": {"name": "web-1", "namespace": "default", "uid": "u", "resourceVersion": "7",
                "labels": {SERVICE_NAME: "web", HEADLESS: ""}, "annotations": {"a": "b"}},
            "addressType": "IPv4",
            "ports": [{"name": "http", "port": 80, "protocol": "UDP"}, {"port": 81}, {"name": "all"}, {"port": 70000}],
            "endpoints": [
                {"addresses": ["10.0.0.1"]},
                {"addresses": ["10.0.0.2", "x", "10.0.0.3"], "conditions": {"ready": false}},
                {"addresses": ["example.com"], "hostname": "h", "nodeName": "n", "targetRef": {"name": "pod"},
                 "conditions": {"ready": false, "serving": true, "terminating": true},
                 "hints": {"forZones": [{"name": "z"}], "forNodes": [{"name": "m"}]}},
            ],
        });
        let slice = Slice::decode(json.to_string().as_bytes()).expect("a slice");
        assert_eq!((slice.service.as_deref(), slice.is_headless), (Some("default/web"), true));
        assert_eq!((slice.metadata.uid.as_deref(), slice.metadata.annotations.as_ref()), (Some("u"), None));
        let ports: Vec<_> = slice.ports.iter().map(|port| (&*port.name, &*port.protocol, port.number)).collect();
        assert_eq!(ports, [("http", "UDP", 80), ("", "TCP", 81)]);
        let [one, several, named] = &*slice.endpoints else { panic!("{slice:?}") };
        assert_eq!((one.addresses().len(), one.names(), one.ready, one.serving), (1, None, true, true));
        assert_eq!((several.addresses().len(), several.ready, several.serving), (2, false, false));
        assert!(named.addresses().is_empty() && named.serving && named.terminating && !named.ready);
        let names = named.names().expect("names");
        assert_eq!(
            (names.hostname.as_deref(), names.target.as_deref(), names.node.as_deref()),
            (Some("h"), Some("pod"), Some("n"))
        );
        assert_eq!((&*names.for_zones[0], &*names.for_nodes[0]), ("z", "m"));
        assert_eq!(serde_json::to_value(slice.labels()).expect("labels"), json!({SERVICE_NAME: "web", HEADLESS: ""}));
        assert!(slice.encode().is_err(), "it must not be written back");
    }
}
