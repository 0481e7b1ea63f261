//! Who uses which volume, with which label; tells who is in whose way.

use std::collections::{BTreeSet, HashMap, HashSet};

use ferry_client::ObjectKey;
use ferry_metrics::{Kind, Page};

use super::labels::{self, Label};

/// How a pod uses a volume.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Use {
    pub(super) label: Label,
    /// `MountOption` or `Recursive`.
    pub(super) policy: String,
}

/// A pod that another is in the way of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Conflict {
    pub(super) property: &'static str,
    pub(super) pod: ObjectKey,
    pub(super) value: String,
    pub(super) other: ObjectKey,
    pub(super) other_value: String,
}

impl Conflict {
    pub(super) fn reason(&self) -> String {
        format!("{}Conflict", self.property)
    }

    /// Pods of another namespace are not named: who sees this one's events need not know of them.
    pub(super) fn message(&self) -> String {
        let Self { property, value, other, other_value, .. } = self;
        let with = if self.pod.namespace == other.namespace {
            let name = &other.name;
            format!(
                "{property} \"{value}\" conflicts with pod {name} that uses the same volume as this pod with {property} \"{other_value}\""
            )
        } else {
            format!(
                "{property}\"{value}\" conflicts with another pod that uses the same volume as this pod with a different {property}"
            )
        };
        format!("{with}. If both pods land on the same node, only one of them may access the volume.")
    }

    fn turned(&self) -> Self {
        Self {
            property: self.property,
            pod: self.other.clone(),
            value: self.other_value.clone(),
            other: self.pod.clone(),
            other_value: self.value.clone(),
        }
    }
}

#[derive(Default)]
struct Volume {
    driver: String,
    pods: HashMap<ObjectKey, Use>,
    conflicts: Vec<Conflict>,
}

#[derive(Default)]
pub(super) struct Users {
    volumes: HashMap<String, Volume>,
    by_pod: HashMap<ObjectKey, HashSet<String>>,
}

impl Users {
    /// Puts down that the pod uses the volume, and tells whom that is news to.
    pub(super) fn add(&mut self, volume: &str, driver: &str, pod: &ObjectKey, wanted: Use) -> Vec<Conflict> {
        self.by_pod.entry(pod.clone()).or_default().insert(volume.to_owned());
        let known = self.volumes.entry(volume.to_owned()).or_default();
        driver.clone_into(&mut known.driver);
        if known.pods.get(pod) == Some(&wanted) {
            return Vec::new();
        }
        let mut found = Vec::new();
        for (other, has) in known.pods.iter().filter(|(other, _)| *other != pod) {
            let mut add = |property, value: String, other_value: String| {
                let conflict = Conflict { property, pod: pod.clone(), value, other: other.clone(), other_value };
                found.extend([conflict.turned(), conflict]);
            };
            if has.policy != wanted.policy {
                add("SELinuxChangePolicy", wanted.policy.clone(), has.policy.clone());
            }
            if labels::conflict(&has.label, &wanted.label) {
                add("SELinuxLabel", labels::text(&wanted.label), labels::text(&has.label));
            }
        }
        known.pods.insert(pod.clone(), wanted);
        known.conflicts.retain(|one| one.pod != *pod && one.other != *pod);
        known.conflicts.extend(found.iter().cloned());
        found
    }

    pub(super) fn remove(&mut self, pod: &ObjectKey) {
        for name in self.by_pod.remove(pod).unwrap_or_default() {
            let Some(volume) = self.volumes.get_mut(&name) else { continue };
            volume.pods.remove(pod);
            volume.conflicts.retain(|one| one.pod != *pod && one.other != *pod);
            if volume.pods.is_empty() {
                self.volumes.remove(&name);
            }
        }
    }

    /// The pods with volumes of that driver.
    pub(super) fn of_driver(&self, driver: &str) -> Vec<ObjectKey> {
        let volumes = self.volumes.values().filter(|volume| volume.driver == driver);
        volumes.flat_map(|volume| volume.pods.keys().cloned()).collect()
    }

    /// All conflicts there are, as Prometheus reads them.
    pub(super) fn metrics(&self) -> String {
        const NAME: &str = "selinux_warning_controller_selinux_volume_conflict";
        let all: BTreeSet<&Conflict> = self.volumes.values().flat_map(|volume| &volume.conflicts).collect();
        let mut page = Page::new();
        let mut family = page.family(NAME, Kind::Gauge, "Conflict between two Pods using the same volume");
        for Conflict { property, pod, value, other, other_value } in all {
            let labels = ferry_metrics::labels([
                ("property", &**property),
                ("pod1_namespace", &*pod.namespace),
                ("pod1_name", &*pod.name),
                ("pod1_value", &**value),
                ("pod2_namespace", &*other.namespace),
                ("pod2_name", &*other.name),
                ("pod2_value", &**other_value),
            ]);
            family.sample(&labels, 1);
        }
        page.into_text()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wants(level: &str, policy: &str) -> Use {
        Use { label: [String::new(), String::new(), String::new(), level.into()], policy: policy.into() }
    }

    #[test]
    fn both_are_told_once_and_forgotten_together() {
        let (one, two, far) = (ObjectKey::new("a", "one"), ObjectKey::new("a", "two"), ObjectKey::new("b", "far"));
        let mut users = Users::default();
        assert_eq!(users.add("v", "d", &one, wants("s0:c1", "MountOption")), []);
        let told = users.add("v", "d", &two, wants("s0:c2", "MountOption"));
        let messages: Vec<_> = told.iter().map(|one| (one.pod.name.as_str(), one.reason(), one.message())).collect();
        assert_eq!(messages.len(), 2);
        assert_eq!(messages[1].0, "two");
        assert_eq!(messages[1].1, "SELinuxLabelConflict");
        assert_eq!(
            messages[1].2,
            "SELinuxLabel \":::s0:c2\" conflicts with pod one that uses the same volume as this pod with SELinuxLabel \
             \":::s0:c1\". If both pods land on the same node, only one of them may access the volume."
        );
        assert_eq!(users.add("v", "d", &two, wants("s0:c2", "MountOption")), [], "nothing new");
        assert!(
            users
                .metrics()
                .contains("pod1_name=\"two\",pod1_value=\":::s0:c2\",pod2_namespace=\"a\",pod2_name=\"one\"")
        );
        let told = users.add("v", "d", &far, wants("s0:c1", "Recursive"));
        assert!(told.iter().all(|one| !one.message().contains("pod far") && !one.message().contains("pod one")));
        assert_eq!(users.of_driver("d").len(), 3);
        users.remove(&two);
        users.remove(&far);
        assert_eq!(users.metrics().lines().count(), 2, "no conflict is left");
        users.remove(&one);
        assert!(users.volumes.is_empty() && users.by_pod.is_empty());
    }
}
