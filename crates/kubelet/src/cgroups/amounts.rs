//! What a pod as a whole may use, from what its containers ask for.

use ferry_meta::quantity::Quantity;
use ferry_semantics::pod_resources::peak;
use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};

use crate::node_resources::Quotas;
use crate::spec::resources::{quota, shares};
use crate::{pod, quantity};

/// The numbers that are written for one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Amounts {
    /// Requested processor time, in thousandths.
    pub(crate) milli: i64,
    pub(crate) shares: i64,
    /// Microseconds of each period; none for no limit.
    pub(crate) quota: Option<i64>,
    /// In microseconds.
    pub(crate) period: i64,
    /// In bytes; none for no limit.
    pub(crate) memory: Option<i64>,
}

pub(crate) fn of(pod: &Pod, quotas: Quotas) -> Amounts {
    let milli = total(pod, |r| request(r, "cpu", quantity::milli)).unwrap_or(0);
    let limit = |key, number| if declared(pod, key) { total(pod, |r| limit(r, key, number)) } else { None };
    let best_effort = pod::qos_class(pod) == "BestEffort";
    Amounts {
        milli,
        shares: shares(if best_effort { 0 } else { milli }),
        quota: limit("cpu", quantity::milli)
            .map(|milli| quota(milli, quotas.period))
            .filter(|quota| *quota > 0 && quotas.enforced),
        period: quotas.period,
        memory: limit("memory", quantity::value).filter(|m| *m > 0),
    }
}

/// What the pod as a whole asks for: processor time in thousandths, memory in bytes.
pub(crate) fn requests(pod: &Pod) -> (i64, i64) {
    let of = |key, number: Number| total(pod, |r| request(r, key, number)).unwrap_or(0);
    (of("cpu", quantity::milli), of("memory", quantity::value))
}

/// What the pod as a whole asks for of anything, in units.
pub(crate) fn request_of(pod: &Pod, key: &str) -> i64 {
    total(pod, |r| request(r, key, quantity::value)).unwrap_or(0)
}

/// What all containers together may have of something; none where no container sets a limit.
pub(crate) fn limit_of(pod: &Pod, key: &str) -> Option<Quantity> {
    let all = pod::containers(pod).iter().chain(pod::init_containers(pod));
    let first = all.filter_map(|c| c.resources.as_ref()?.limits.as_ref()?.get(key)).next()?;
    let format = Quantity::parse(&first.0).map(|q| q.format()).unwrap_or_default();
    Some(Quantity::from_units(total(pod, |r| limit(r, key, quantity::value))?, format))
}

type Number = fn(&k8s_openapi::apimachinery::pkg::api::resource::Quantity) -> Option<i64>;

fn limit(resources: &ResourceRequirements, key: &str, number: Number) -> Option<i64> {
    resources.limits.as_ref()?.get(key).and_then(number)
}

/// Without a request, the limit is the request.
fn request(resources: &ResourceRequirements, key: &str, number: Number) -> Option<i64> {
    let asked = resources.requests.as_ref().and_then(|r| r.get(key)).and_then(number);
    asked.or_else(|| limit(resources, key, number))
}

/// A pod has a limit when it names one itself or when each of its containers does: one without may use anything.
fn declared(pod: &Pod, key: &str) -> bool {
    let names =
        |r: Option<&ResourceRequirements>| r.and_then(|r| r.limits.as_ref()).is_some_and(|l| l.contains_key(key));
    let mut all = pod::containers(pod).iter().chain(pod::init_containers(pod));
    names(pod::spec(pod).resources.as_ref()) || all.all(|c| names(c.resources.as_ref()))
}

/// The pod's own figure if it gives one; otherwise the most that runs at one time. Overhead comes on top.
fn total(pod: &Pod, read: impl Fn(&ResourceRequirements) -> Option<i64>) -> Option<i64> {
    let of = |c: &Container| c.resources.as_ref().and_then(&read).unwrap_or(0);
    let own = pod::spec(pod).resources.as_ref().and_then(&read);
    let most = own.unwrap_or_else(|| {
        let init = pod::init_containers(pod).iter().map(|container| (pod::is_sidecar(container), of(container)));
        peak(init, pod::containers(pod).iter().map(of))
    });
    let overhead = pod::spec(pod).overhead.clone();
    let above =
        overhead.and_then(|o| read(&ResourceRequirements { limits: Some(o), ..Default::default() })).unwrap_or(0);
    Some(most.saturating_add(above))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_pod_may_use_what_its_containers_may_use_together() {
        let check = |spec: Value, expected: (i64, Option<i64>, Option<i64>)| {
            let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).expect("a pod");
            let seen = of(&pod, Quotas::default());
            assert_eq!((seen.shares, seen.quota, seen.memory), expected, "{spec}");
        };
        let container = |requests: Value, limits: Value| json!({"name": "c", "resources": {"requests": requests, "limits": limits}});
        let full = container(json!({"cpu": "100m", "memory": "1Mi"}), json!({"cpu": "200m", "memory": "2Mi"}));
        let open = container(json!({"cpu": "100m"}), json!({"cpu": "200m"}));
        check(json!({"containers": [{"name": "c"}]}), (2, None, None));
        check(json!({"containers": [full, full]}), (204, Some(40_000), Some(4 << 20)));
        // One container without a limit: none for the pod.
        check(json!({"containers": [full, open]}), (204, Some(40_000), None));
        // An init container runs alone, a sidecar beside the others.
        check(
            json!({"containers": [full], "initContainers": [container(json!({"cpu": "1"}), json!({"cpu": "1", "memory": "1Mi"}))]}),
            (1024, Some(100_000), Some(2 << 20)),
        );
        let sidecar = json!({"name": "s", "restartPolicy": "Always", "resources": full["resources"]});
        check(json!({"containers": [full], "initContainers": [sidecar]}), (204, Some(40_000), Some(4 << 20)));
        check(
            json!({"containers": [full], "overhead": {"cpu": "100m", "memory": "1Mi"}}),
            (204, Some(30_000), Some(3 << 20)),
        );
        check(
            json!({"containers": [{"name": "c"}], "resources": {"limits": {"cpu": "500m", "memory": "8Mi"}}}),
            (512, Some(50_000), Some(8 << 20)),
        );
    }

    #[test]
    fn quotas_are_counted_in_the_period_or_not_at_all() {
        let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [
            {"name": "c", "resources": {"limits": {"cpu": "250m"}}}]}});
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        for (enforced, period, want) in [
            (true, 100_000, Some(25_000)),
            (true, 10_000, Some(2500)),
            // A millisecond is the least that the kernel knows.
            (true, 1000, Some(1000)),
            (false, 100_000, None),
        ] {
            let seen = of(&pod, Quotas { enforced, period });
            assert_eq!((seen.quota, seen.period, seen.shares), (want, period, 256), "{enforced} {period}");
        }
    }
}
