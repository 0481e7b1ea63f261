//! What drivers offer: ResourceSlices, read once and found by node and by pool.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

use ferry_cel::device::{Attribute, AttributeError, Device as Seen};
use ferry_meta::Quantity;
use k8s_openapi::api::core::v1::NodeSelector;
use k8s_openapi::api::resource::v1::{
    Counter, Device as WireDevice, DeviceAttribute, DeviceTaint, ResourceSlice, ResourceSliceSpec,
};

use super::DeviceId;
use super::capacity::{Capacity, amount};
use crate::model::labels::{Labels, NodeRequirement};

/// A pool of a driver.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct PoolId {
    pub(super) driver: Arc<str>,
    pub(super) name: Arc<str>,
}

/// From which nodes something can be used.
#[derive(Clone, Debug)]
pub(super) enum Reach {
    Node(Arc<str>),
    Everywhere,
    Selected(Box<(NodeRequirement, NodeSelector)>),
    /// Each device says it for itself.
    PerDevice,
    /// Nothing that is known here.
    Nowhere,
}

impl Reach {
    fn of(node: Option<&String>, all: Option<bool>, selector: Option<&NodeSelector>) -> Self {
        match (node.filter(|name| !name.is_empty()), all.unwrap_or_default(), selector) {
            (Some(name), ..) => Self::Node(name.as_str().into()),
            (None, true, _) => Self::Everywhere,
            (None, false, Some(selector)) => {
                Self::Selected(Box::new((NodeRequirement::new(None, Some(selector)), selector.clone())))
            }
            (None, false, None) => Self::Nowhere,
        }
    }

    pub(super) fn includes(&self, node: &str, labels: &Labels) -> bool {
        match self {
            Self::Node(name) => **name == *node,
            Self::Everywhere => true,
            Self::Selected(selected) => selected.0.matches(node, labels),
            Self::PerDevice | Self::Nowhere => false,
        }
    }
}

pub(super) type Counters = BTreeMap<String, Quantity>;

#[derive(Debug)]
pub(super) struct Device {
    pub(super) id: DeviceId,
    pub(super) reach: Reach,
    pub(super) attributes: BTreeMap<String, DeviceAttribute>,
    pub(super) capacity: BTreeMap<String, Capacity>,
    pub(super) multiple: bool,
    pub(super) taints: Vec<DeviceTaint>,
    /// Sets of counters, and what it takes of each.
    pub(super) consumes: Vec<(String, Counters)>,
    pub(super) binding_conditions: Vec<String>,
    pub(super) binding_failure_conditions: Vec<String>,
    pub(super) binds_to_node: bool,
    seen: OnceLock<Result<Seen, AttributeError>>,
}

impl Device {
    fn new(wire: &WireDevice, pool: &PoolId) -> Self {
        let device = wire.name.as_str().into();
        let capacity = wire.capacity.iter().flatten();
        let consumes = wire.consumes_counters.iter().flatten();
        Self {
            id: DeviceId { driver: pool.driver.clone(), pool: pool.name.clone(), device },
            reach: Reach::of(wire.node_name.as_ref(), wire.all_nodes, wire.node_selector.as_ref()),
            attributes: wire.attributes.clone().unwrap_or_default(),
            capacity: capacity.map(|(name, one)| (name.clone(), Capacity::new(one))).collect(),
            multiple: wire.allow_multiple_allocations.unwrap_or_default(),
            taints: wire.taints.clone().unwrap_or_default(),
            consumes: consumes.map(|one| (one.counter_set.clone(), counters(&one.counters))).collect(),
            binding_conditions: wire.binding_conditions.clone().unwrap_or_default(),
            binding_failure_conditions: wire.binding_failure_conditions.clone().unwrap_or_default(),
            binds_to_node: wire.binds_to_node.unwrap_or_default(),
            seen: OnceLock::new(),
        }
    }

    /// The device as selectors see it.
    pub(super) fn seen(&self) -> &Result<Seen, AttributeError> {
        self.seen.get_or_init(|| {
            let attributes = self.attributes.iter().map(|(name, value)| (name.as_str(), attribute(value)));
            let capacity = self.capacity.iter().map(|(name, capacity)| (name.as_str(), capacity.value.clone()));
            Seen::new(&self.id.driver, self.multiple, attributes, capacity)
        })
    }

    /// By its full name; a name without a domain is one of the driver's own.
    pub(super) fn attribute(&self, name: &str) -> Option<&DeviceAttribute> {
        self.attributes.get(name).or_else(|| {
            let (domain, own) = name.split_once('/')?;
            self.attributes.get(own).filter(|_| *domain == *self.id.driver)
        })
    }
}

fn attribute(value: &DeviceAttribute) -> Option<Attribute> {
    fn all<T: Clone>(list: &[T], of: fn(T) -> Attribute) -> Attribute {
        Attribute::List(list.iter().cloned().map(of).collect())
    }
    match value {
        DeviceAttribute { ints: Some(list), .. } => Some(all(list, Attribute::Int)),
        DeviceAttribute { bools: Some(list), .. } => Some(all(list, Attribute::Bool)),
        DeviceAttribute { strings: Some(list), .. } => Some(all(list, Attribute::String)),
        DeviceAttribute { versions: Some(list), .. } => Some(all(list, Attribute::Version)),
        DeviceAttribute { int: Some(value), .. } => Some(Attribute::Int(*value)),
        DeviceAttribute { bool: Some(value), .. } => Some(Attribute::Bool(*value)),
        DeviceAttribute { string: Some(value), .. } => Some(Attribute::String(value.clone())),
        DeviceAttribute { version: Some(value), .. } => Some(Attribute::Version(value.clone())),
        _ => None,
    }
}

fn counters(wire: &BTreeMap<String, Counter>) -> Counters {
    wire.iter().map(|(name, counter)| (name.clone(), amount(&counter.value))).collect()
}

#[derive(Debug)]
pub(super) struct Slice {
    pub(super) name: String,
    pub(super) pool: PoolId,
    pub(super) generation: i64,
    /// How many slices its pool has.
    pub(super) count: i64,
    pub(super) reach: Reach,
    pub(super) devices: Vec<Device>,
    pub(super) counters: Vec<(String, Counters)>,
    /// It needs what is off by default; its pool is not complete without it.
    pub(super) ignored: bool,
}

impl Slice {
    fn new(name: &str, spec: &ResourceSliceSpec) -> Self {
        let pool = PoolId { driver: spec.driver.as_str().into(), name: spec.pool.name.as_str().into() };
        let reach = match Reach::of(spec.node_name.as_ref(), spec.all_nodes, spec.node_selector.as_ref()) {
            Reach::Nowhere if spec.per_device_node_selection == Some(true) => Reach::PerDevice,
            reach => reach,
        };
        let wire = || spec.devices.iter().flatten();
        let mut consumed = wire().flat_map(|device| device.consumes_counters.iter().flatten());
        Self {
            name: name.to_owned(),
            generation: spec.pool.generation,
            count: spec.pool.resource_slice_count,
            reach,
            devices: wire().map(|device| Device::new(device, &pool)).collect(),
            counters: {
                let sets = spec.shared_counters.iter().flatten();
                sets.map(|set| (set.name.clone(), counters(&set.counters))).collect()
            },
            ignored: consumed.any(|one| one.compatibility_groups.as_ref().is_some_and(|groups| !groups.is_empty())),
            pool,
        }
    }

    pub(super) fn reaches(&self, node: &str, labels: &Labels) -> bool {
        match &self.reach {
            Reach::PerDevice => self.devices.iter().any(|device| device.reach.includes(node, labels)),
            reach => reach.includes(node, labels),
        }
    }

    /// Where one of its devices can be used.
    pub(super) fn reach_of<'a>(&'a self, device: &'a Device) -> &'a Reach {
        if matches!(self.reach, Reach::PerDevice) { &device.reach } else { &self.reach }
    }
}

type ByName = BTreeMap<String, Arc<Slice>>;

/// All slices. Copies are cheap only as long as one of them does not change.
#[derive(Clone, Debug, Default)]
pub struct Inventory {
    by_node: HashMap<Arc<str>, ByName>,
    /// Those that are not of one node.
    shared: ByName,
    by_pool: HashMap<PoolId, ByName>,
    all: HashMap<String, Arc<Slice>>,
}

impl Inventory {
    pub fn set(&mut self, slice: &ResourceSlice) {
        let name = slice.metadata.name.as_deref().unwrap_or_default();
        self.remove(name);
        let slice = Arc::new(Slice::new(name, &slice.spec));
        let place = match &slice.reach {
            Reach::Node(node) => self.by_node.entry(node.clone()).or_default(),
            _ => &mut self.shared,
        };
        place.insert(name.to_owned(), slice.clone());
        self.by_pool.entry(slice.pool.clone()).or_default().insert(name.to_owned(), slice.clone());
        self.all.insert(name.to_owned(), slice);
    }

    pub fn remove(&mut self, name: &str) {
        let Some(slice) = self.all.remove(name) else { return };
        match &slice.reach {
            Reach::Node(node) => {
                if let Some(list) = self.by_node.get_mut(node) {
                    list.remove(name);
                    if list.is_empty() {
                        self.by_node.remove(node);
                    }
                }
            }
            _ => {
                self.shared.remove(name);
            }
        }
        if let Some(list) = self.by_pool.get_mut(&slice.pool) {
            list.remove(name);
            if list.is_empty() {
                self.by_pool.remove(&slice.pool);
            }
        }
    }

    /// Those of the node, and those that may be of it too.
    pub(super) fn near<'a>(&'a self, node: &str) -> impl Iterator<Item = &'a Slice> + use<'a> {
        self.by_node.get(node).into_iter().flat_map(BTreeMap::values).chain(self.shared.values()).map(|slice| &**slice)
    }

    pub(super) fn of_pool<'a>(&'a self, pool: &PoolId) -> impl Iterator<Item = &'a Slice> + use<'a> {
        self.by_pool.get(pool).into_iter().flat_map(BTreeMap::values).map(|slice| &**slice)
    }
}
