//! Extended resources that devices stand in for: a pod asks for `example.com/gpu`, and where its node does not have that, a claim
//! is made for it.

use std::sync::Arc;

use ferry_meta::Quantity;
use k8s_openapi::api::core::v1::{Container, ContainerExtendedResourceRequest, PodSpec};
use k8s_openapi::api::resource::v1::{
    DeviceClaim, DeviceRequest, ExactDeviceRequest, ResourceClaim, ResourceClaimSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use uuid::Uuid;

use super::claims;
use crate::devices::Devices;
use crate::model::{NodeInfo, PodInfo};

/// On a claim that the scheduler made for the extended resources of a pod.
const MADE: &str = "resource.kubernetes.io/extended-resource-claim";
const CLASS_PREFIX: &str = "deviceclass.resource.kubernetes.io/";

pub(super) struct Extended {
    /// What the pod asks for, by resource.
    amounts: Vec<(String, i64)>,
    /// Left over from an attempt that failed: it has to go first.
    pub(super) stale: Option<Arc<ResourceClaim>>,
    pod: Arc<k8s_openapi::api::core::v1::Pod>,
    uid: String,
}

/// The claim that is to be made if the pod goes to a node, and who of its containers gets what of it.
#[derive(Clone)]
pub(super) struct OnNode {
    pub(super) claim: Arc<ResourceClaim>,
    pub(super) mappings: Vec<ContainerExtendedResourceRequest>,
}

fn is_extended(name: &str) -> bool {
    let native = !name.contains('/') || name.contains("kubernetes.io/");
    (!native && !name.starts_with("requests.")) || name.starts_with(CLASS_PREFIX)
}

impl Extended {
    /// Nothing where the pod asks for no resource that devices stand in for.
    pub(super) fn of(pod: &PodInfo, devices: &Devices) -> Option<Self> {
        let amounts: Vec<(String, i64)> =
            pod.requests.scalars.iter().filter(|(name, amount)| *amount != 0 && is_extended(name)).cloned().collect();
        if !amounts.iter().any(|(name, _)| devices.class_of(name).is_some()) {
            return None;
        }
        let made = |claim: &ResourceClaim| {
            let annotations = claim.metadata.annotations.as_ref();
            annotations.and_then(|all| all.get(MADE)).is_some_and(|value| value == "true")
                && claims::is_owned_by(claim, pod)
        };
        let stale = devices.claims.list_in(&pod.namespace).into_iter().find(|claim| made(claim));
        Some(Self { amounts, stale, pod: pod.pod.clone(), uid: Uuid::new_v4().to_string() })
    }

    /// The resources that devices have to stand in for on that node.
    pub(super) fn missing(&self, node: &NodeInfo, devices: &Devices) -> Result<Vec<String>, String> {
        if self.stale.is_some() {
            return Err("cannot schedule extended resource claim".into());
        }
        let mut missing = Vec::new();
        for (name, _) in &self.amounts {
            let has = node.allocatable.scalars.iter().find(|(known, _)| known == name);
            if devices.class_of(name).is_some() && has.is_none_or(|(_, amount)| *amount == 0) {
                missing.push(name.clone());
            } else if has.is_none() {
                return Err("cannot fit resource".into());
            }
        }
        missing.sort();
        Ok(missing)
    }

    pub(super) fn on_node(&self, resources: &[String], devices: &Devices) -> OnNode {
        let empty = PodSpec::default();
        let spec = self.pod.spec.as_ref().unwrap_or(&empty);
        let (requests, mappings) = requests(spec, resources, devices);
        let meta = &self.pod.metadata;
        let name = meta.name.clone().unwrap_or_default();
        let owner = OwnerReference {
            api_version: "v1".into(),
            kind: "Pod".into(),
            name: name.clone(),
            uid: meta.uid.clone().unwrap_or_default(),
            controller: Some(true),
            block_owner_deletion: None,
        };
        let claim = ResourceClaim {
            metadata: ObjectMeta {
                namespace: meta.namespace.clone(),
                generate_name: Some(format!("{name}-extended-resources-")),
                // For its devices to count until it has one of its own.
                uid: Some(self.uid.clone()),
                annotations: Some([(MADE.to_owned(), "true".to_owned())].into()),
                owner_references: Some(vec![owner]),
                ..ObjectMeta::default()
            },
            spec: Some(ResourceClaimSpec {
                devices: Some(DeviceClaim { requests: Some(requests), ..DeviceClaim::default() }),
            }),
            status: None,
        };
        OnNode { claim: Arc::new(claim), mappings }
    }
}

/// How much of a resource a container asks for.
fn amount(container: &Container, resource: &str) -> i64 {
    let requests = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let found = requests.and_then(|requests| requests.get(resource)).and_then(|text| Quantity::parse(&text.0).ok());
    found.filter(Quantity::is_integer).map_or(0, |amount| amount.value())
}

/// A request of devices for a container, where those it may use already do not suffice.
fn request(
    containers: &[&Container],
    index: usize,
    resource: &str,
    class: &str,
    usable: &[Option<DeviceRequest>],
    mappings: &mut Vec<ContainerExtendedResourceRequest>,
) -> Option<DeviceRequest> {
    let container = containers[index];
    let mut left = amount(container, resource);
    if left == 0 {
        return None;
    }
    let mut map = |request: &str| {
        mappings.push(ContainerExtendedResourceRequest {
            container_name: container.name.clone(),
            resource_name: resource.to_owned(),
            request_name: request.to_owned(),
        });
    };
    for other in usable.iter().flatten() {
        left -= other.exactly.as_ref().and_then(|exact| exact.count).unwrap_or_default();
        map(&other.name);
        if left <= 0 {
            return None;
        }
    }
    let all = container.resources.iter().flat_map(|resources| resources.requests.iter().flatten());
    let place = all.map(|(name, _)| name).position(|name| name == resource).unwrap_or_default();
    let name = format!("container-{index}-request-{place}");
    map(&name);
    let exactly = ExactDeviceRequest {
        device_class_name: class.to_owned(),
        allocation_mode: Some("ExactCount".into()),
        count: Some(left),
        ..ExactDeviceRequest::default()
    };
    Some(DeviceRequest { name, exactly: Some(exactly), first_available: None })
}

/// Containers that run together have devices of their own. Those that run before use what later ones will have, and share
/// what they need besides.
fn requests(
    spec: &PodSpec,
    resources: &[String],
    devices: &Devices,
) -> (Vec<DeviceRequest>, Vec<ContainerExtendedResourceRequest>) {
    let before = spec.init_containers.as_deref().unwrap_or_default();
    let containers: Vec<&Container> = before.iter().chain(&spec.containers).collect();
    let is_brief = |index: usize| index < before.len() && containers[index].restart_policy.as_deref() != Some("Always");
    let (mut all, mut mappings) = (Vec::new(), Vec::new());
    for resource in resources {
        let Some(class) = devices.class_of(resource) else { continue };
        let class = class.metadata.name.as_deref().unwrap_or_default();
        let (mut of_lasting, mut of_brief) = (Vec::new(), Vec::new());
        let lasting: Vec<Option<DeviceRequest>> = (0..containers.len())
            .map(|index| match is_brief(index) {
                true => None,
                false => request(&containers, index, resource, class, &[], &mut of_lasting),
            })
            .collect();
        let brief: Vec<DeviceRequest> = (0..containers.len())
            .filter(|index| is_brief(*index))
            .filter_map(|index| request(&containers, index, resource, class, &lasting[index..], &mut of_brief))
            .collect();
        let count = |request: &DeviceRequest| request.exactly.as_ref().and_then(|exact| exact.count);
        let mut largest: Option<&DeviceRequest> = None;
        for one in &brief {
            if largest.is_none_or(|known| count(known) < count(one)) {
                largest = Some(one);
            }
        }
        if let Some(largest) = largest {
            for mapping in &mut of_brief {
                if brief.iter().any(|one| one.name == mapping.request_name) {
                    mapping.request_name.clone_from(&largest.name);
                }
            }
            all.push(largest.clone());
        }
        all.extend(lasting.into_iter().flatten());
        mappings.extend(of_lasting);
        mappings.extend(of_brief);
    }
    all.sort_by(|one, two| one.name.cmp(&two.name));
    (all, mappings)
}
