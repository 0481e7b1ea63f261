//! Conditions of all kinds that have them: same rules, different structs.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// One entry of a status' conditions.
pub(crate) trait Condition: Clone {
    fn kind(&self) -> &str;
    fn state(&self) -> &str;
    fn reason(&self) -> &str;
    fn transition(&self) -> Option<&Time>;
    fn set_transition(&mut self, at: Option<Time>);
}

/// The generated structs disagree on whether these fields are optional.
trait Text {
    fn text(&self) -> &str;
}

impl Text for String {
    fn text(&self) -> &str {
        self
    }
}

impl Text for Option<String> {
    fn text(&self) -> &str {
        self.as_deref().unwrap_or_default()
    }
}

macro_rules! condition {
    ($($kind:ty),* $(,)?) => {$(
        impl Condition for $kind {
            fn kind(&self) -> &str {
                self.type_.text()
            }
            fn state(&self) -> &str {
                self.status.text()
            }
            fn reason(&self) -> &str {
                self.reason.as_deref().unwrap_or_default()
            }
            fn transition(&self) -> Option<&Time> {
                self.last_transition_time.as_ref()
            }
            fn set_transition(&mut self, at: Option<Time>) {
                self.last_transition_time = at;
            }
        }
    )*};
}

condition!(
    k8s_openapi::api::apps::v1::DeploymentCondition,
    k8s_openapi::api::apps::v1::ReplicaSetCondition,
    k8s_openapi::api::core::v1::NamespaceCondition,
    k8s_openapi::api::core::v1::NodeCondition,
    k8s_openapi::api::core::v1::PodCondition,
);

pub(crate) fn find<'a, C: Condition>(conditions: Option<&'a Vec<C>>, kind: &str) -> Option<&'a C> {
    conditions?.iter().find(|condition| condition.kind() == kind)
}

/// Adds or replaces the condition of that type. One with the same status and reason stays as it is, and the time of
/// transition moves with the status only.
pub(crate) fn set<C: Condition>(conditions: &mut Option<Vec<C>>, mut condition: C) {
    let list = conditions.get_or_insert_default();
    if let Some(at) = list.iter().position(|known| known.kind() == condition.kind()) {
        if list[at].state() == condition.state() {
            if list[at].reason() == condition.reason() {
                return;
            }
            condition.set_transition(list[at].transition().cloned());
        }
        list.remove(at);
    }
    list.push(condition);
}

pub(crate) fn remove<C: Condition>(conditions: &mut Option<Vec<C>>, kind: &str) {
    if let Some(list) = conditions {
        list.retain(|condition| condition.kind() != kind);
        if list.is_empty() {
            *conditions = None;
        }
    }
}
