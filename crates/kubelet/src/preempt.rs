//! Room for a critical pod: which others have to go so that the node can take it.

use k8s_openapi::api::core::v1::Pod;

use crate::cgroups::{request_of, requests};
use crate::eviction::is_critical;
use crate::pod;

/// What a pod is short of on this node: the resource and the amount.
pub(crate) type Lack = (String, i64);

fn request(of: &Pod, key: &str) -> i64 {
    let (processor, memory) = requests(of);
    match key {
        "cpu" => processor,
        "memory" => memory,
        // The place of a pod.
        "pods" => 1,
        other => request_of(of, other),
    }
}

/// What is still lacking without those pods.
fn without(lacks: &[Lack], pods: &[&Pod]) -> Vec<Lack> {
    let left = lacks.iter().map(|(key, amount)| {
        let freed = pods.iter().map(|pod| request(pod, key)).fold(0, i64::saturating_add);
        (key.clone(), amount.saturating_sub(freed))
    });
    left.filter(|(_, amount)| *amount > 0).collect()
}

/// How far a pod alone is from being enough: each resource counts the same, whatever its unit.
fn distance(lacks: &[Lack], pod: &Pod) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    let share = |(key, amount): &Lack| (amount - request(pod, key)).max(0) as f64 / *amount as f64;
    lacks.iter().map(|lack| share(lack).powi(2)).sum()
}

/// As few of the pods as possible: each time the one that brings the most, the smaller one of two.
fn fewest(mut pods: Vec<&Pod>, mut lacks: Vec<Lack>) -> Vec<&Pod> {
    let mut chosen = Vec::new();
    while !lacks.is_empty() && !pods.is_empty() {
        let size = |pod: &Pod| (request(pod, "memory"), request(pod, "cpu"));
        let order = |one: &&Pod, other: &&Pod| {
            let near = distance(&lacks, one).total_cmp(&distance(&lacks, other));
            near.then_with(|| size(one).cmp(&size(other)))
        };
        let Some(best) = pods.iter().copied().min_by(|one, other| order(one, other)) else { break };
        pods.retain(|pod| !std::ptr::eq(*pod, best));
        lacks = without(&lacks, &[best]);
        chosen.push(best);
    }
    chosen
}

fn may_go(for_pod: &Pod, pod: &Pod) -> bool {
    let priority = |pod: &Pod| pod::spec(pod).priority;
    let less = matches!((priority(for_pod), priority(pod)), (Some(new), Some(old)) if new > old);
    (is_critical(for_pod) && !is_critical(pod)) || less
}

/// The pods to end, those that asked for nothing before those that asked for much; an error when no set is enough.
pub(crate) fn victims<'a>(new: &Pod, others: &[&'a Pod], lacks: &[Lack]) -> Result<Vec<&'a Pod>, String> {
    let of_class = |class: &str| -> Vec<&'a Pod> {
        let all = others.iter().copied();
        all.filter(|pod| pod::qos_class(pod) == class && may_go(new, pod)).collect()
    };
    let (cheap, middling, dear) = (of_class("BestEffort"), of_class("Burstable"), of_class("Guaranteed"));
    let missing = without(lacks, &[cheap.clone(), middling.clone(), dear.clone()].concat());
    if !missing.is_empty() {
        let list: Vec<String> = missing.iter().map(|(key, amount)| format!("(res: {key}, q: {amount}), ")).collect();
        return Err(format!("no set of running pods found to reclaim resources: [{}]", list.concat()));
    }
    let dear = fewest(dear, without(lacks, &[cheap.clone(), middling.clone()].concat()));
    let middling = fewest(middling, without(lacks, &[cheap.clone(), dear.clone()].concat()));
    let cheap = fewest(cheap, without(lacks, &[middling.clone(), dear.clone()].concat()));
    Ok([cheap, middling, dear].concat())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, priority: i32, cpu: &str, guaranteed: bool) -> Pod {
        let amounts = json!({"cpu": cpu, "memory": "1Mi"});
        let resources = match (cpu, guaranteed) {
            ("0", _) => json!({}),
            (_, true) => json!({"requests": amounts, "limits": amounts}),
            (_, false) => json!({"requests": amounts}),
        };
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"priority": priority,
            "containers": [{"name": "c", "resources": resources}]}}))
        .expect("a pod")
    }

    #[test]
    fn as_few_and_as_cheap_pods_as_possible_go() {
        let others = [
            pod("idle", 0, "0", false),
            pod("small", 0, "100m", false),
            pod("large", 0, "800m", false),
            pod("sure", 0, "900m", true),
            pod("critical", 2_000_000_000, "900m", true),
        ];
        let others: Vec<&Pod> = others.iter().collect();
        let critical = pod("new", 2_000_000_000, "1", true);
        let check = |lacks: &[Lack], want: Result<&[&str], &str>| {
            let got = victims(&critical, &others, lacks);
            let got = got.map(|pods| pods.into_iter().map(pod::name).collect::<Vec<_>>());
            match (got, want) {
                (Ok(got), Ok(want)) => assert_eq!(got, want, "{lacks:?}"),
                (Err(got), Err(want)) => assert_eq!(got, want),
                (got, want) => panic!("{lacks:?}: {got:?} instead of {want:?}"),
            }
        };
        check(&[], Ok(&[]));
        check(&[("cpu".to_owned(), 50)], Ok(&["small"]));
        check(&[("cpu".to_owned(), 500)], Ok(&["large"]));
        check(&[("cpu".to_owned(), 900)], Ok(&["large", "small"]));
        check(&[("cpu".to_owned(), 1000)], Ok(&["small", "sure"]));
        check(&[("pods".to_owned(), 1)], Ok(&["idle"]));
        let none = "no set of running pods found to reclaim resources: [(res: cpu, q: 200), ]";
        check(&[("cpu".to_owned(), 2000)], Err(none));
    }
}
