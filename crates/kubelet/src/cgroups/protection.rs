//! Memory that is kept for pods (`memory.min`, `memory.low`), and pods that are slowed down before their limit (`memory.high`):
//! control groups of version 2. The kernel protects a group as far as those above it are.

use std::collections::HashMap;
use std::io;

use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;

use super::limits::entry;
use super::{CLASSES, ControlGroups, amounts};
use crate::memory_policy::MemoryPolicy;
use crate::pod;

#[derive(Default)]
pub(super) struct Protection {
    policy: MemoryPolicy,
    /// What guaranteed and burstable pods asked for, by uid.
    requested: Mutex<HashMap<String, Requested>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Requested {
    Guaranteed(i64),
    Burstable(i64),
}

impl Protection {
    pub(super) fn new(policy: MemoryPolicy) -> Self {
        Self { policy, requested: Mutex::default() }
    }

    fn reserves(&self) -> bool {
        self.policy.qos && self.policy.reserves
    }

    /// What all guaranteed pods asked for, and all burstable ones.
    fn sums(&self) -> (i64, i64) {
        self.requested.lock().values().fold((0, 0), |(guaranteed, burstable), requested| match requested {
            Requested::Guaranteed(bytes) => (guaranteed.saturating_add(*bytes), burstable),
            Requested::Burstable(bytes) => (guaranteed, burstable.saturating_add(*bytes)),
        })
    }
}

impl ControlGroups {
    /// Writes what the pod's group gets, and what the groups above it have together.
    pub(super) async fn protect(&self, pod: &Pod, limit: Option<i64>) -> io::Result<()> {
        let (_, request) = amounts::requests(pod);
        let group = self.group(pod);
        let own = pod::spec(pod).resources.is_some();
        if let Some(high) = self.protection.policy.high_of_pod(request, limit.unwrap_or(0)).filter(|_| own) {
            self.write(&group, &[entry("memory", "memory.high", high)]).await?;
        }
        if !self.protection.reserves() {
            return self.write_protection().await;
        }
        let requested = match pod::qos_class(pod) {
            _ if request <= 0 => return self.write_protection().await,
            "Guaranteed" => Requested::Guaranteed(request),
            _ => Requested::Burstable(request),
        };
        self.protection.requested.lock().insert(pod::uid(pod).to_owned(), requested);
        // Those above first: without them the pod's own does nothing.
        self.write_protection().await?;
        let kept = match requested {
            Requested::Guaranteed(bytes) => entry("memory", "memory.min", bytes),
            Requested::Burstable(bytes) => entry("memory", "memory.low", bytes),
        };
        self.write(&group, &[kept]).await
    }

    pub(super) async fn unprotect(&self, uid: &str) -> io::Result<()> {
        let gone = self.protection.requested.lock().remove(uid);
        if gone.is_some() { self.write_protection().await } else { Ok(()) }
    }

    /// Zeroes where nothing is reserved: it may have been before.
    async fn write_protection(&self) -> io::Result<()> {
        let (guaranteed, burstable) = self.protection.sums();
        let low = || entry("memory", "memory.low", burstable);
        let both = [entry("memory", "memory.min", guaranteed.saturating_add(burstable)), low()];
        self.write(&self.top, &both).await?;
        let class = self.top.join(CLASSES[0]);
        if self.folder("memory", &class).exists() { self.write(&class, &[low()]).await } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use serde_json::{Value, json};

    use super::*;
    use crate::cgroups::amounts_of;
    use crate::node_resources::Quotas;

    fn pod(uid: &str, resources: Value, of_pod: Value) -> Pod {
        let container = json!({"name": "c", "resources": resources});
        let spec = json!({"containers": [container], "resources": of_pod});
        serde_json::from_value(json!({"metadata": {"name": "p", "uid": uid}, "spec": spec})).expect("a pod")
    }

    fn groups(mounts: &Path, policy: MemoryPolicy) -> ControlGroups {
        fs::write(mounts.join("cgroup.controllers"), "cpu memory\n").expect("written");
        ControlGroups::new(mounts, Path::new("/")).with_memory(policy)
    }

    /// Plain folders stand for the kernel's.
    #[tokio::test]
    async fn requested_memory_is_kept_for_pods_and_those_above_them() {
        let mounts = tempfile::tempdir().expect("a folder");
        let read = |path: &str| fs::read_to_string(mounts.path().join("kubepods").join(path)).unwrap_or_default();
        let groups = groups(mounts.path(), MemoryPolicy { reserves: true, ..MemoryPolicy::default() });
        let both = json!({"cpu": "1", "memory": "1Mi"});
        let guaranteed = pod("a", json!({"requests": both, "limits": both}), Value::Null);
        let burstable = pod("b", json!({"requests": {"memory": "2Mi"}}), Value::Null);
        let none = pod("c", json!({}), Value::Null);
        for pod in [&guaranteed, &burstable, &none] {
            groups.apply(pod, &amounts_of(pod, Quotas::default())).await.expect("applied");
        }
        assert_eq!((read("poda/memory.min"), read("burstable/podb/memory.low")), ("1048576".into(), "2097152".into()));
        assert_eq!(read("burstable/podb/memory.min") + &read("besteffort/podc/memory.low"), "");
        assert_eq!((read("memory.min"), read("memory.low")), ("3145728".into(), "2097152".into()));
        assert_eq!(read("burstable/memory.low"), "2097152");
        groups.remove("b").await;
        assert_eq!(
            (read("memory.min"), read("memory.low"), read("burstable/memory.low")),
            ("1048576".into(), "0".into(), "0".into())
        );
    }

    #[tokio::test]
    async fn nothing_is_kept_unless_it_is_wanted() {
        for policy in [MemoryPolicy::default(), MemoryPolicy { reserves: true, qos: false, ..MemoryPolicy::default() }]
        {
            let mounts = tempfile::tempdir().expect("a folder");
            let read = |path: &str| fs::read_to_string(mounts.path().join("kubepods").join(path)).unwrap_or_default();
            let burstable = pod("b", json!({"requests": {"memory": "2Mi"}}), Value::Null);
            groups(mounts.path(), policy)
                .apply(&burstable, &amounts_of(&burstable, Quotas::default()))
                .await
                .expect("applied");
            assert_eq!(
                (read("memory.min"), read("memory.low"), read("burstable/memory.low")),
                ("0".into(), "0".into(), "0".into())
            );
            assert_eq!(read("burstable/podb/memory.low"), "");
        }
    }

    #[tokio::test]
    async fn a_pod_with_a_limit_of_its_own_is_slowed_down_as_a_whole() {
        let mounts = tempfile::tempdir().expect("a folder");
        let high =
            |uid: &str| fs::read_to_string(mounts.path().join(format!("kubepods/burstable/pod{uid}/memory.high"))).ok();
        let groups = groups(mounts.path(), MemoryPolicy { throttling_factor: Some(0.5), ..MemoryPolicy::default() });
        let own = json!({"requests": {"memory": "1Mi"}, "limits": {"memory": "3Mi"}});
        for pod in [pod("a", json!({}), own.clone()), pod("b", own, Value::Null)] {
            groups.apply(&pod, &amounts_of(&pod, Quotas::default())).await.expect("applied");
        }
        assert_eq!((high("a").as_deref(), high("b")), (Some("2097152"), None));
    }
}
