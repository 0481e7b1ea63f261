//! Resource quotas: what an object takes is reserved in the quota's status before the object is stored.
//!
//! A quota's status is written by compare-and-swap, and writers of one namespace queue here first, so that no two of
//! them take the last slot and few of them collide. A reservation whose object is not stored after all is corrected by
//! the quota controller, as upstream's is.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Weak};

use ferry_meta::object::{child_mut, items, name, text};
use ferry_meta::quantity::Quantity;
use ferry_meta::{ApiError, ObjectReader, Reason};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::resources::RESOURCE_QUOTAS;
use crate::{Operation, Plugin, QuotaStore, Request};
use ferry_semantics::quota::amounts::{Amounts, amounts};
use ferry_semantics::quota::{Measure, scope};

/// How often a quota that others change meanwhile is tried again.
const ATTEMPTS: usize = 10;

type Queue = Arc<tokio::sync::Mutex<()>>;

pub(crate) struct ResourceQuota {
    reader: Arc<dyn ObjectReader>,
    store: Arc<dyn QuotaStore>,
    /// One queue per namespace with writers in it.
    queues: Mutex<HashMap<String, Weak<tokio::sync::Mutex<()>>>>,
}

impl ResourceQuota {
    pub(crate) fn new(reader: Arc<dyn ObjectReader>, store: Arc<dyn QuotaStore>) -> Self {
        Self { reader, store, queues: Mutex::default() }
    }

    fn queue(&self, namespace: &str) -> Queue {
        let mut queues = self.queues.lock();
        if let Some(queue) = queues.get(namespace).and_then(Weak::upgrade) {
            return queue;
        }
        queues.retain(|_, queue| queue.strong_count() > 0);
        let queue = Queue::default();
        queues.insert(namespace.to_owned(), Arc::downgrade(&queue));
        queue
    }
}

/// What the request asks for, measured once.
struct Asked<'a> {
    measure: Measure,
    group: &'a str,
    resource: &'a str,
    object: &'a Value,
    old: Option<&'a Value>,
    usage: Amounts,
    /// What it takes more than before; an update may give something back.
    delta: Amounts,
}

impl<'a> Asked<'a> {
    fn of(request: &'a Request<'_>) -> Option<Self> {
        let (group, resource) = (request.resource.group.as_str(), request.resource.resource.as_str());
        let measure = Measure::of(group, resource);
        let object = request.object.as_deref()?;
        let old = request.old.filter(|_| request.operation == Operation::Update);
        let handled = match (request.operation, measure, request.subresource) {
            (Operation::Create, _, "")
            | (Operation::Update, Measure::Service | Measure::Claim, "")
            | (Operation::Update, Measure::Pod, "resize") => true,
            // It may come into the scope of other quotas.
            (Operation::Update, Measure::Pod, "") => {
                old.is_some_and(|old| scope::is_terminating(old) != scope::is_terminating(object))
            }
            (Operation::Update, Measure::Claim, "status") => old.is_some_and(|old| {
                let allocated = |claim: &Value| text(claim, "/status/allocatedResources/storage").to_owned();
                scope::attributes_classes(old) != scope::attributes_classes(object)
                    || allocated(old) != allocated(object)
            }),
            _ => false,
        };
        // Events come and go by themselves, and reviews are never stored.
        let uncounted = matches!(
            (group, resource),
            ("" | "events.k8s.io", "events") | ("", "bindings") | ("authorization.k8s.io" | "authentication.k8s.io", _)
        );
        if !handled || uncounted || request.namespace.is_empty() {
            return None;
        }
        let now = ferry_meta::time::now();
        let mut usage = measure.usage(group, resource, object, now);
        let mut delta = usage.clone();
        if let Some(old) = old {
            for (key, before) in measure.usage(group, resource, old, now) {
                let now = delta.get(&key).cloned().unwrap_or_default();
                delta.insert(key, now.sub(&before));
            }
        }
        usage.retain(|_, amount| !amount.is_zero());
        delta.retain(|_, amount| !amount.is_zero());
        Some(Self { measure, group, resource, object, old, usage, delta })
    }

    /// What the request adds to a quota: all of it where the object was not in the quota's scope before.
    fn added(&self, quota: &Value) -> &Amounts {
        match self.old {
            Some(old) if !scope::matches(quota, self.measure, old) => &self.usage,
            _ => &self.delta,
        }
    }

    /// The quota resources of a quota's status that this request can take.
    fn concerned(&self, quota: &Value) -> BTreeSet<String> {
        if !scope::matches(quota, self.measure, self.object) {
            return BTreeSet::new();
        }
        let hard = ferry_meta::object::map(quota, "/status/hard").keys();
        hard.filter(|key| self.measure.takes(self.group, self.resource, key)).cloned().collect()
    }

    /// The quota with this request's usage added, or why it does not fit. `None`: nothing to write.
    fn reserve(&self, quota: &Value) -> Result<Option<Value>, String> {
        let concerned = self.concerned(quota);
        let (hard, used) = (amounts(quota, "/status/hard"), amounts(quota, "/status/used"));
        let mut wanted = self.added(quota).clone();
        wanted.retain(|key, _| concerned.contains(key));
        if wanted.is_empty() {
            return Ok(None);
        }
        let sum = |key: &str, amount: &Quantity| used.get(key).map_or_else(|| amount.clone(), |used| used.add(amount));
        let exceeded: Vec<&String> = wanted
            .iter()
            .filter(|(key, amount)| {
                !amount.is_negative() && hard.get(*key).is_some_and(|hard| sum(key, amount) > *hard)
            })
            .map(|(key, _)| key)
            .collect();
        if !exceeded.is_empty() {
            let list = |of: &Amounts| {
                let pairs: Vec<String> =
                    exceeded.iter().map(|key| format!("{key}={}", of.get(*key).cloned().unwrap_or_default())).collect();
                pairs.join(",")
            };
            return Err(format!(
                "exceeded quota: {}, requested: {}, used: {}, limited: {}",
                name(quota),
                list(&wanted),
                list(&used),
                list(&hard)
            ));
        }
        let mut changed = quota.clone();
        child_mut(&mut changed, "status");
        let target = child_mut(&mut changed["status"], "used");
        for (key, amount) in &wanted {
            target.insert(key.clone(), json!(sum(key, amount).to_string()));
        }
        Ok(Some(changed))
    }
}

/// Compute quotas bind only when every container says what it needs.
fn unspecified(asked: &Asked<'_>, concerned: &BTreeSet<String>) -> Option<String> {
    const COMPUTE: [&str; 6] = ["cpu", "limits.cpu", "limits.memory", "memory", "requests.cpu", "requests.memory"];
    if asked.measure != Measure::Pod {
        return None;
    }
    let spec = asked.object.get("spec")?;
    let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for required in COMPUTE.into_iter().filter(|key| concerned.contains(*key)) {
        let (kind, resource) = required.split_once('.').unwrap_or(("requests", required));
        let pointer = format!("/resources/{kind}/{resource}");
        if crate::pod::is_set(spec, &pointer) {
            continue;
        }
        for container in items(spec, "/containers").iter().chain(items(spec, "/initContainers")) {
            if !crate::pod::is_set(container, &pointer) {
                missing.entry(required).or_default().insert(text(container, "/name"));
            }
        }
    }
    if missing.is_empty() {
        return None;
    }
    let parts: Vec<String> = missing
        .into_iter()
        .map(|(key, names)| format!("{key} for: {}", names.into_iter().collect::<Vec<_>>().join(",")))
        .collect();
    Some(format!("must specify {}", parts.join("; ")))
}

#[async_trait::async_trait]
impl Plugin for ResourceQuota {
    fn name(&self) -> &'static str {
        "ResourceQuota"
    }

    fn handles(&self, operation: Operation) -> bool {
        matches!(operation, Operation::Create | Operation::Update)
    }

    async fn validate(&self, request: &mut Request<'_>) -> Result<(), ApiError> {
        // Looked for first: most namespaces have none, and measuring a pod is work.
        let quotas = self.reader.list(&RESOURCE_QUOTAS, request.namespace);
        if quotas.is_empty() {
            return Ok(());
        }
        let Some(asked) = Asked::of(request) else { return Ok(()) };
        let mut interesting = Vec::new();
        for quota in &quotas {
            let concerned = asked.concerned(quota);
            if concerned.is_empty() {
                continue;
            }
            if let Some(why) = unspecified(&asked, &concerned) {
                return Err(request.forbidden(format_args!("failed quota: {}: {why}", name(quota))));
            }
            let used = ferry_meta::object::map(quota, "/status/used");
            let unknown: Vec<&str> =
                concerned.iter().filter(|key| !used.contains_key(*key)).map(String::as_str).collect();
            if !unknown.is_empty() {
                let list = unknown.join(",");
                return Err(
                    request.forbidden(format_args!("status unknown for quota: {}, resources: {list}", name(quota)))
                );
            }
            interesting.push(quota);
        }
        let negative = asked.measure.usage(asked.group, asked.resource, asked.object, ferry_meta::time::now());
        if let Some((key, _)) = negative.iter().find(|(_, amount)| amount.is_negative()) {
            return Err(request.forbidden(format_args!("quota usage is negative for resource(s): {key}")));
        }
        interesting.retain(|quota| !asked.added(quota).is_empty());
        if interesting.is_empty() {
            return Ok(());
        }
        let queue = self.queue(request.namespace);
        let _turn = queue.lock().await;
        // All quotas are tried before the first is written: a refusal by the second must not cost the first.
        let mut fresh = Vec::new();
        for quota in interesting {
            if let Some(quota) = self.store.get(request.namespace, name(quota)).await? {
                asked.reserve(&quota).map_err(|why| request.forbidden(why))?;
                fresh.push(quota);
            }
        }
        if request.dry_run {
            return Ok(());
        }
        for quota in fresh {
            self.write(request, &asked, quota).await?;
        }
        Ok(())
    }
}

impl ResourceQuota {
    async fn write(&self, request: &Request<'_>, asked: &Asked<'_>, quota: Value) -> Result<(), ApiError> {
        let mut quota = quota;
        let mut conflict = None;
        for _ in 0..ATTEMPTS {
            let Some(changed) = asked.reserve(&quota).map_err(|why| request.forbidden(why))? else { return Ok(()) };
            match self.store.update_status(&changed).await {
                Ok(_) => return Ok(()),
                Err(error) if error.is(Reason::Conflict) => conflict = Some(error),
                Err(error) => return Err(error),
            }
            // Another API server or the controller was first: measure against what it left.
            match self.store.get(request.namespace, name(&quota)).await? {
                Some(fresh) => quota = fresh,
                None => return Ok(()),
            }
        }
        Err(conflict.unwrap_or_else(|| ApiError::internal("the quota could not be written")))
    }
}

#[cfg(test)]
mod tests;
