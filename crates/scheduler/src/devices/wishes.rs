//! What claims ask for, read once for all nodes.

use std::sync::Arc;

use k8s_openapi::api::resource::v1::{
    CapacityRequirements, DeviceClass, DeviceConstraint, DeviceSelector, DeviceSubRequest, DeviceToleration,
    ExactDeviceRequest, ResourceClaim,
};

use super::Selectors;
use super::capacity::{Amounts, amount};
use super::selectors::Compiled;

/// The claims of one pod that have no devices yet.
#[derive(Debug)]
pub struct Wishes {
    pub(super) claims: Vec<Claim>,
}

#[derive(Debug)]
pub(super) struct Claim {
    pub(super) object: Arc<ResourceClaim>,
    pub(super) requests: Vec<Wish>,
    pub(super) constraints: Vec<Constraint>,
}

/// One request: exactly what it says, or the first of several that can be had.
#[derive(Debug)]
pub(super) struct Wish {
    pub(super) name: String,
    pub(super) prioritized: bool,
    pub(super) alternatives: Vec<Alternative>,
}

#[derive(Debug)]
pub(super) struct Alternative {
    /// Its number among all of the pod's.
    pub(super) number: usize,
    pub(super) name: String,
    pub(super) class: Arc<DeviceClass>,
    /// All devices that are selected, or so many.
    pub(super) all: bool,
    pub(super) count: usize,
    pub(super) admin: bool,
    pub(super) selectors: Vec<Written>,
    pub(super) tolerations: Vec<DeviceToleration>,
    pub(super) capacities: Option<Amounts>,
}

/// A selector, and where it stands.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) selector: Arc<Compiled>,
    pub(super) place: String,
}

#[derive(Debug)]
pub(super) struct Constraint {
    pub(super) attribute: String,
    /// Whether all devices have different values of it, and not the same.
    pub(super) distinct: bool,
    requests: Vec<String>,
}

impl Constraint {
    fn new(wire: &DeviceConstraint) -> Option<Self> {
        let (attribute, distinct) = match (&wire.match_attribute, &wire.distinct_attribute) {
            (Some(name), _) => (name, false),
            (None, Some(name)) => (name, true),
            (None, None) => return None,
        };
        Some(Self { attribute: attribute.clone(), distinct, requests: wire.requests.clone().unwrap_or_default() })
    }

    pub(super) fn concerns(&self, wish: &Wish, alternative: &Alternative) -> bool {
        let named = |name: &str| self.requests.iter().any(|known| known == name);
        self.requests.is_empty()
            || named(&wish.name)
            || (wish.prioritized && named(&format!("{}/{}", wish.name, alternative.name)))
    }
}

impl Claim {
    /// Its name with the namespace, as messages have it.
    pub(super) fn shown(&self) -> String {
        shown(&self.object)
    }
}

impl Wish {
    /// How results name an alternative of it.
    pub(super) fn named(&self, alternative: &Alternative) -> String {
        if self.prioritized { format!("{}/{}", self.name, alternative.name) } else { self.name.clone() }
    }
}

fn shown(claim: &ResourceClaim) -> String {
    let meta = &claim.metadata;
    format!("{}/{}", meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
}

/// The parts that both sorts of requests have.
struct Asked<'a> {
    name: &'a str,
    class: &'a str,
    mode: Option<&'a str>,
    count: Option<i64>,
    admin: bool,
    selectors: &'a [DeviceSelector],
    tolerations: &'a [DeviceToleration],
    capacity: Option<&'a CapacityRequirements>,
    derives: bool,
}

impl<'a> Asked<'a> {
    fn exactly(name: &'a str, request: &'a ExactDeviceRequest) -> Self {
        Self {
            name,
            class: &request.device_class_name,
            mode: request.allocation_mode.as_deref(),
            count: request.count,
            admin: request.admin_access.unwrap_or_default(),
            selectors: request.selectors.as_deref().unwrap_or_default(),
            tolerations: request.tolerations.as_deref().unwrap_or_default(),
            capacity: request.capacity.as_ref(),
            derives: request.derived_attributes.as_ref().is_some_and(|list| !list.is_empty()),
        }
    }

    fn alternative(request: &'a DeviceSubRequest) -> Self {
        Self {
            name: &request.name,
            class: &request.device_class_name,
            mode: request.allocation_mode.as_deref(),
            count: request.count,
            admin: false,
            selectors: request.selectors.as_deref().unwrap_or_default(),
            tolerations: request.tolerations.as_deref().unwrap_or_default(),
            capacity: request.capacity.as_ref(),
            derives: request.derived_attributes.as_ref().is_some_and(|list| !list.is_empty()),
        }
    }
}

/// What is wrong with a claim or class, whatever the node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WishError {
    #[error("claim {claim}, request {request}: {problem}")]
    Request { claim: String, request: String, problem: RequestProblem },
    #[error("claim {claim}, constraint #{number}: empty constraint (unsupported constraint type?)")]
    EmptyConstraint { claim: String, number: usize },
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestProblem {
    #[error("unsupported request type")]
    Type,
    #[error("cannot handle request with derived attributes, the feature is disabled")]
    DerivedAttributes,
    #[error("missing device class name (unsupported request type?)")]
    NoClass,
    #[error("could not retrieve device class {0}: deviceclass.resource.k8s.io {0:?} not found")]
    UnknownClass(String),
    #[error("unsupported count mode {0}")]
    CountMode(String),
    /// A selector, by its place.
    #[error("{0}: CEL expression empty (unsupported selector type?)")]
    EmptySelector(String),
}

struct Reader<'a> {
    class: &'a dyn Fn(&str) -> Option<Arc<DeviceClass>>,
    selectors: &'a Selectors,
    next: usize,
}

impl Wishes {
    pub fn new(
        claims: &[Arc<ResourceClaim>],
        class: &dyn Fn(&str) -> Option<Arc<DeviceClass>>,
        selectors: &Selectors,
    ) -> Result<Self, WishError> {
        let mut reader = Reader { class, selectors, next: 0 };
        Ok(Self { claims: claims.iter().map(|claim| reader.claim(claim)).collect::<Result<_, _>>()? })
    }

    pub fn is_empty(&self) -> bool {
        self.claims.is_empty()
    }

    /// Whether one of several possibilities is better than another.
    pub fn has_preferences(&self) -> bool {
        self.claims.iter().any(|claim| claim.requests.iter().any(|wish| wish.prioritized))
    }
}

impl Reader<'_> {
    fn claim(&mut self, object: &Arc<ResourceClaim>) -> Result<Claim, WishError> {
        let devices = object.spec.as_ref().and_then(|spec| spec.devices.as_ref());
        let mut requests = Vec::new();
        for request in devices.iter().flat_map(|devices| devices.requests.iter().flatten()) {
            let sub = request.first_available.as_deref().unwrap_or_default();
            let alternatives = match &request.exactly {
                _ if !sub.is_empty() => {
                    sub.iter().map(|one| self.read(object, &Asked::alternative(one))).collect::<Result<_, _>>()?
                }
                Some(exact) => vec![self.read(object, &Asked::exactly(&request.name, exact))?],
                None => {
                    let (claim, request) = (shown(object), request.name.clone());
                    return Err(WishError::Request { claim, request, problem: RequestProblem::Type });
                }
            };
            requests.push(Wish { name: request.name.clone(), prioritized: !sub.is_empty(), alternatives });
        }
        let wire = devices.iter().flat_map(|devices| devices.constraints.iter().flatten());
        let constraints = wire.enumerate().map(|(number, constraint)| {
            Constraint::new(constraint).ok_or_else(|| WishError::EmptyConstraint { claim: shown(object), number })
        });
        Ok(Claim { requests, constraints: constraints.collect::<Result<_, _>>()?, object: object.clone() })
    }

    fn read(&mut self, claim: &ResourceClaim, asked: &Asked<'_>) -> Result<Alternative, WishError> {
        let fail = |problem| Err(WishError::Request { claim: shown(claim), request: asked.name.to_owned(), problem });
        if asked.derives {
            return fail(RequestProblem::DerivedAttributes);
        }
        if asked.class.is_empty() {
            return fail(RequestProblem::NoClass);
        }
        let Some(class) = (self.class)(asked.class) else {
            return fail(RequestProblem::UnknownClass(asked.class.to_owned()));
        };
        let count = match asked.mode {
            None | Some("ExactCount" | "All") => usize::try_from(asked.count.unwrap_or(1)).unwrap_or_default(),
            Some(other) => return fail(RequestProblem::CountMode(other.to_owned())),
        };
        let mut selectors = Vec::new();
        let of_class = class.spec.as_ref().and_then(|spec| spec.selectors.as_deref()).unwrap_or_default();
        let class_name = asked.class;
        let both = (of_class.iter().enumerate().map(|(n, one)| (format!("class {class_name}: selector #{n}"), one)))
            .chain(
                asked
                    .selectors
                    .iter()
                    .enumerate()
                    .map(|(n, one)| (format!("claim {}: selector #{n}", shown(claim)), one)),
            );
        for (place, selector) in both {
            match &selector.cel {
                Some(cel) => selectors.push(Written { selector: self.selectors.get(&cel.expression), place }),
                None => return fail(RequestProblem::EmptySelector(place)),
            }
        }
        let number = self.next;
        self.next += 1;
        let capacities = asked.capacity.and_then(|capacity| capacity.requests.as_ref());
        Ok(Alternative {
            number,
            name: asked.name.to_owned(),
            all: asked.mode == Some("All"),
            count,
            admin: asked.admin,
            selectors,
            tolerations: asked.tolerations.to_vec(),
            capacities: capacities.map(|list| list.iter().map(|(name, one)| (name.clone(), amount(one))).collect()),
            class,
        })
    }
}
