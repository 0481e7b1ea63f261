//! The webhooks of the cluster, read from their configurations whenever those change.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use ferry_meta::object::{items, name, text};
use ferry_meta::selector::LabelSelector;
use ferry_meta::{GroupResource, ObjectReader};
use parking_lot::Mutex;
use serde_json::Value;

use super::matching::Rule;
use crate::policy::Condition;

/// One webhook of a configuration.
pub(super) struct Hook {
    /// `configuration/webhook/number`: what it is called in reinvocation.
    pub(super) id: String,
    pub(super) name: String,
    pub(super) target: Target,
    pub(super) ca_bundle: String,
    pub(super) rules: Vec<Rule>,
    /// Requests in other versions of a resource count too.
    pub(super) equivalent: bool,
    pub(super) namespaces: LabelSelector,
    pub(super) objects: LabelSelector,
    pub(super) conditions: Vec<Condition>,
    /// Whether a call that fails lets the request pass.
    pub(super) ignore_failure: bool,
    /// Whether it may be called for a request that changes nothing.
    pub(super) dry_run: bool,
    pub(super) timeout: Duration,
    pub(super) reinvoke: bool,
}

pub(super) enum Target {
    Url(String),
    Service { namespace: String, name: String, path: String, port: u16 },
}

impl Target {
    /// A `clientConfig`.
    pub(super) fn read(client: &Value) -> Self {
        match client.get("service").filter(|service| !service.is_null()) {
            Some(service) => Self::Service {
                namespace: text(service, "/namespace").to_owned(),
                name: text(service, "/name").to_owned(),
                path: text(service, "/path").to_owned(),
                port: service.get("port").and_then(Value::as_u64).and_then(|p| u16::try_from(p).ok()).unwrap_or(443),
            },
            None => Self::Url(text(client, "/url").to_owned()),
        }
    }
}

impl Hook {
    fn read(configuration: &Value, number: usize, hook: &Value) -> Self {
        let client = hook.get("clientConfig").unwrap_or(&Value::Null);
        let target = Target::read(client);
        let selector = |field: &str| {
            // An absent selector matches everything here; one that cannot be read nothing.
            let selector = hook.get(field).filter(|selector| !selector.is_null());
            selector.map_or_else(LabelSelector::default, |selector| {
                LabelSelector::from_object(selector).unwrap_or_else(|_| LabelSelector::nothing())
            })
        };
        let hook_name = text(hook, "/name").to_owned();
        Self {
            id: format!("{}/{hook_name}/{number}", name(configuration)),
            name: hook_name,
            target,
            ca_bundle: text(client, "/caBundle").to_owned(),
            rules: items(hook, "/rules").iter().map(Rule::read).collect(),
            equivalent: text(hook, "/matchPolicy") != "Exact",
            namespaces: selector("namespaceSelector"),
            objects: selector("objectSelector"),
            conditions: items(hook, "/matchConditions").iter().map(|c| Condition::compile(c, false)).collect(),
            ignore_failure: text(hook, "/failurePolicy") == "Ignore",
            dry_run: matches!(text(hook, "/sideEffects"), "None" | "NoneOnDryRun"),
            timeout: Duration::from_secs(hook.get("timeoutSeconds").and_then(Value::as_u64).unwrap_or(10).clamp(1, 30)),
            reinvoke: text(hook, "/reinvocationPolicy") == "IfNeeded",
        }
    }
}

/// All hooks of one kind of configuration, sorted by configuration name as upstream calls them.
pub(super) struct Hooks {
    reader: Arc<dyn ObjectReader>,
    resource: GroupResource,
    current: ArcSwap<(u64, Vec<Arc<Hook>>)>,
    reading: Mutex<()>,
}

impl Hooks {
    pub(super) fn new(reader: Arc<dyn ObjectReader>, resource: &str) -> Self {
        let resource = GroupResource::new("admissionregistration.k8s.io", resource);
        let current = ArcSwap::from_pointee(Self::read(&*reader, &resource));
        Self { reader, resource, current, reading: Mutex::new(()) }
    }

    fn read(reader: &dyn ObjectReader, resource: &GroupResource) -> (u64, Vec<Arc<Hook>>) {
        // Read before the objects: a change in between is seen next time.
        let version = reader.version(resource);
        let mut configurations = reader.list(resource, "");
        configurations.sort_by(|a, b| name(a).cmp(name(b)));
        let hooks = configurations
            .iter()
            .flat_map(|c| items(c, "/webhooks").iter().enumerate().map(|(i, hook)| Arc::new(Hook::read(c, i, hook))))
            .collect();
        (version, hooks)
    }

    pub(super) fn current(&self) -> Arc<(u64, Vec<Arc<Hook>>)> {
        let current = self.current.load_full();
        if current.0 == self.reader.version(&self.resource) {
            return current;
        }
        let _one_reader = self.reading.lock();
        let fresh = Arc::new(Self::read(&*self.reader, &self.resource));
        self.current.store(fresh.clone());
        fresh
    }
}
