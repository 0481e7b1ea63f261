//! Pods get the number of their priority class; at most one class is the default.

use std::sync::Arc;

use ferry_meta::object::{child_mut, name, text};
use ferry_meta::{ApiError, ObjectReader};
use serde_json::{Value, json};

use crate::resources::PRIORITY_CLASSES;
use crate::{Operation, Plugin, Request};

const PREEMPT_LOWER: &str = "PreemptLowerPriority";

pub(crate) struct Priority {
    reader: Arc<dyn ObjectReader>,
}

impl Priority {
    pub(crate) fn new(reader: Arc<dyn ObjectReader>) -> Self {
        Self { reader }
    }

    /// Of several default classes the lowest counts: the others cannot have been meant.
    fn default_class(&self) -> Option<Arc<Value>> {
        let classes = self.reader.list(&PRIORITY_CLASSES, "");
        classes.into_iter().filter(|class| is_default(class)).min_by_key(|class| value(class))
    }

    fn admit_pod(&self, request: &mut Request<'_>) -> Result<(), ApiError> {
        let Some(pod) = request.object.as_deref() else { return Ok(()) };
        if let Some(old) = request.old {
            // An update from a client that does not know these fields must not drop them.
            let kept = ["priority", "preemptionPolicy"].map(|field| {
                let pointer = format!("/spec/{field}");
                (field, old.pointer(&pointer).filter(|_| !crate::pod::is_set(pod, &pointer)).cloned())
            });
            if let Some(pod) = request.object.as_deref_mut() {
                for (field, value) in kept {
                    if let Some(value) = value {
                        child_mut(pod, "spec").insert(field.into(), value);
                    }
                }
            }
            return Ok(());
        }
        let wanted = text(pod, "/spec/priorityClassName");
        let class = if wanted.is_empty() {
            self.default_class()
        } else {
            let class = self.reader.get(&PRIORITY_CLASSES, "", wanted);
            let why = format!("no PriorityClass with name {wanted} was found");
            Some(class.ok_or_else(|| request.forbidden(why))?)
        };
        let priority = class.as_deref().map_or(0, value);
        let policy = class.as_deref().map(|class| text(class, "/preemptionPolicy")).unwrap_or_default();
        let policy = if policy.is_empty() { PREEMPT_LOWER } else { policy };

        if let Some(given) = pod.pointer("/spec/priority").and_then(Value::as_i64)
            && given != priority
        {
            return Err(request.forbidden(format_args!(
                "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller computed {priority} from the given PriorityClass name"
            )));
        }
        if let Some(given) = pod.pointer("/spec/preemptionPolicy").and_then(Value::as_str)
            && given != policy
        {
            return Err(request.forbidden(format_args!(
                "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission controller computed {policy} from the given PriorityClass name"
            )));
        }
        if let Some(pod) = request.object.as_deref_mut() {
            let spec = child_mut(pod, "spec");
            spec.insert("priority".into(), json!(priority));
            spec.insert("preemptionPolicy".into(), json!(policy));
            if let Some(class) = class {
                spec.insert("priorityClassName".into(), json!(name(&class)));
            }
        }
        Ok(())
    }
}

fn is_default(class: &Value) -> bool {
    class.get("globalDefault").and_then(Value::as_bool).unwrap_or_default()
}

fn value(class: &Value) -> i64 {
    class.get("value").and_then(Value::as_i64).unwrap_or_default()
}

#[async_trait::async_trait]
impl Plugin for Priority {
    fn name(&self) -> &'static str {
        "Priority"
    }

    fn handles(&self, operation: Operation) -> bool {
        matches!(operation, Operation::Create | Operation::Update)
    }

    async fn mutate(&self, request: &mut Request<'_>) -> Result<(), ApiError> {
        if request.is("", "pods") { self.admit_pod(request) } else { Ok(()) }
    }

    async fn validate(&self, request: &mut Request<'_>) -> Result<(), ApiError> {
        if !request.is("scheduling.k8s.io", "priorityclasses") {
            return Ok(());
        }
        let Some(class) = request.object.as_deref().filter(|class| is_default(class)) else { return Ok(()) };
        match self.default_class() {
            Some(other) if name(&other) != name(class) => Err(request.forbidden(format_args!(
                "PriorityClass {} is already marked as default. Only one default can exist",
                name(&other)
            ))),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Case, Objects};

    #[tokio::test]
    async fn pods_get_the_number_of_their_class() {
        let objects = Arc::new(Objects::default());
        let put = |class: Value| objects.put("scheduling.k8s.io", "priorityclasses", class);
        put(json!({"metadata": {"name": "pc"}, "value": 1000, "preemptionPolicy": "Never"}));
        let plugin = Priority::new(objects.clone());
        let check = async |spec: Value, want: Result<Value, &str>| {
            let case = Case::create("", "pods", "a", json!({"metadata": {"name": "p"}, "spec": spec}));
            let got = case.mutate(&plugin).await.map(|pod| pod["spec"].clone()).map_err(|e| e.0.message);
            assert_eq!(got, want.map_err(|why| format!("pods \"p\" is forbidden: {why}")));
        };
        check(json!({}), Ok(json!({"priority": 0, "preemptionPolicy": PREEMPT_LOWER}))).await;
        check(
            json!({"priorityClassName": "pc"}),
            Ok(json!({"priorityClassName": "pc", "priority": 1000, "preemptionPolicy": "Never"})),
        )
        .await;
        check(json!({"priorityClassName": "nope"}), Err("no PriorityClass with name nope was found")).await;
        check(json!({"priority": 7}), Err("the integer value of priority (7) must not be provided in pod spec; priority admission controller computed 0 from the given PriorityClass name")).await;
        check(json!({"priorityClassName": "pc", "preemptionPolicy": PREEMPT_LOWER}), Err("the string value of PreemptionPolicy (PreemptLowerPriority) must not be provided in pod spec; priority admission controller computed Never from the given PriorityClass name")).await;

        put(json!({"metadata": {"name": "d"}, "value": 5, "globalDefault": true}));
        check(json!({}), Ok(json!({"priority": 5, "preemptionPolicy": PREEMPT_LOWER, "priorityClassName": "d"}))).await;
        let another = json!({"metadata": {"name": "e"}, "globalDefault": true});
        let case = Case::create("scheduling.k8s.io", "priorityclasses", "", another);
        assert_eq!(
            case.validate(&plugin).await.expect_err("a second default").0.message,
            "priorityclasses.scheduling.k8s.io \"e\" is forbidden: PriorityClass d is already marked as default. Only one default can exist"
        );
    }
}
