//! Limits that a pod set itself: a pod that has more on disk than it said it would has to go, shortage or not.

use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::usage::PodUsage;
use crate::cgroups::limit_of;
use crate::pod;
use crate::quantity;

const KEY: &str = "ephemeral-storage";

fn limit(container: &Container) -> Option<&Quantity> {
    container.resources.as_ref()?.limits.as_ref()?.get(KEY)
}

fn printed(quantity: &Quantity) -> String {
    ferry_meta::quantity::Quantity::parse(&quantity.0).map_or_else(|_| quantity.0.clone(), |q| q.to_string())
}

/// Containers whose own limit counts: those that run beside each other.
fn limited(pod: &Pod) -> impl Iterator<Item = &Container> {
    pod::containers(pod).iter().chain(pod::init_containers(pod).iter().filter(|c| pod::is_sidecar(c)))
}

/// Whether it has to be measured at all.
pub(crate) fn has_limits(pod: &Pod) -> bool {
    let volumes = || pod::spec(pod).volumes.iter().flatten();
    volumes().any(|v| v.empty_dir.as_ref().is_some_and(|e| e.size_limit.is_some()))
        || limit_of(pod, KEY).is_some()
        || limited(pod).any(|c| limit(c).is_some())
}

/// Why the pod has to go: the name of the limit, and what it is told. `dedicated`: images and what containers write lie on a disk of their own.
pub(crate) fn exceeded(pod: &Pod, usage: &PodUsage, dedicated: bool) -> Option<(&'static str, String)> {
    for volume in pod::spec(pod).volumes.iter().flatten() {
        let Some(source) = &volume.empty_dir else { continue };
        let Some(size) = source.size_limit.as_ref() else { continue };
        let used = usage.volumes.get(&volume.name);
        let most = quantity::value(size).filter(|most| *most > 0);
        // One in memory is not measured: the kernel itself keeps it to its size.
        if let (Some(used), Some(most)) = (used, most)
            && used.bytes > most
        {
            let (name, size) = (&volume.name, printed(size));
            let message = format!("Usage of EmptyDir volume {name:?} exceeds the limit {size:?}. ");
            return Some(("emptydirfs.limit", message));
        }
    }
    if let Some(most) = limit_of(pod, KEY)
        && usage.ephemeral().bytes > most.value()
    {
        let message = format!("Pod ephemeral local storage usage exceeds the total limit of containers {most}. ");
        return Some(("ephemeralpodfs.limit", message));
    }
    for container in limited(pod) {
        let Some(size) = limit(container) else { continue };
        let Some(most) = quantity::value(size).filter(|most| *most != 0) else { continue };
        let Some(used) = usage.containers.iter().find(|c| c.name == container.name) else { continue };
        let root = used.root.filter(|_| !dedicated).unwrap_or_default();
        if root.bytes.saturating_add(used.logs.unwrap_or_default().bytes) > most {
            let (name, size) = (&container.name, printed(size));
            let message = format!("Container {name} exceeded its local ephemeral storage limit {size:?}. ");
            return Some(("ephemeralcontainerfs.limit", message));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::usage::{ContainerUsage, Usage};
    use super::*;

    const MEBI: i64 = 1 << 20;

    fn of(size: i64) -> Usage {
        Usage { bytes: size * MEBI, inodes: 1 }
    }

    #[test]
    fn a_pod_over_a_limit_of_its_own_has_to_go() {
        let check = |spec: Value, root: i64, logs: i64, volume: i64, dedicated: bool, want: Option<&str>| {
            let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).expect("a pod");
            let container =
                ContainerUsage { name: "a".into(), memory: None, root: Some(of(root)), logs: Some(of(logs)) };
            let usage = PodUsage {
                containers: vec![container],
                volumes: [("scratch".to_owned(), of(volume))].into(),
                ..PodUsage::default()
            };
            let got = exceeded(&pod, &usage, dedicated).map(|(_, message)| message);
            assert_eq!(got.as_deref(), want, "{spec}");
            if want.is_some() {
                assert!(has_limits(&pod), "{spec}");
            }
        };
        let sized = |size: &str| json!({"containers": [{"name": "a"}], "volumes": [{"name": "scratch", "emptyDir": {"sizeLimit": size}}]});
        check(sized("10Mi"), 99, 99, 10, false, None);
        let message = "Usage of EmptyDir volume \"scratch\" exceeds the limit \"10Mi\". ";
        check(sized("10Mi"), 0, 0, 11, false, Some(message));
        check(sized("0"), 0, 0, 11, false, None);
        let held = json!({"limits": {"ephemeral-storage": "20Mi"}});
        let limited = json!({"containers": [{"name": "a", "resources": held}, {"name": "b", "resources": held}]});
        // Together they may have 40, but neither more than 20.
        check(limited.clone(), 10, 10, 20, false, None);
        let together = "Pod ephemeral local storage usage exceeds the total limit of containers 40Mi. ";
        check(limited.clone(), 10, 10, 21, false, Some(together));
        let alone = "Container a exceeded its local ephemeral storage limit \"20Mi\". ";
        check(limited.clone(), 11, 10, 0, false, Some(alone));
        check(limited, 11, 10, 0, true, None);
        check(
            json!({"containers": [{"name": "a"}], "volumes": [{"name": "scratch", "emptyDir": {}}]}),
            9,
            9,
            9,
            false,
            None,
        );
    }
}
