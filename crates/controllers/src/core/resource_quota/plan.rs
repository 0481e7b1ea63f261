//! The status of a quota, given all objects it may be about.

use std::collections::BTreeMap;

use ferry_meta::quantity::{Format, Quantity};
use ferry_semantics::pod_resources::Amount;
use ferry_semantics::quota::amounts::Amounts;
use ferry_semantics::quota::{Measure, scope};
use jiff::Timestamp;
use serde_json::{Value, json};

/// Objects of one resource in the quota's namespace.
pub(super) struct Objects {
    pub(super) group: &'static str,
    pub(super) resource: &'static str,
    pub(super) objects: Vec<Value>,
}

/// What `spec.hard` limits by the number of objects of a resource that is not among those watched: `resource.group`.
pub(super) fn counted(hard: &BTreeMap<String, String>, watched: &[(&str, &str)]) -> Vec<(String, String)> {
    let name = |key: &String| {
        let (resource, group) = key.strip_prefix("count/")?.split_once('.').map_or_else(
            || (key.trim_start_matches("count/").to_owned(), String::new()),
            |(resource, group)| (resource.to_owned(), group.to_owned()),
        );
        let known = watched.iter().any(|(known_group, known)| *known == resource && *known_group == group);
        (!known).then_some((group, resource))
    };
    hard.keys().filter_map(name).collect()
}

/// `counts` are the numbers of objects asked for by [`counted`], by the quota's name for them.
pub(super) fn used(
    quota: &Value,
    hard: &BTreeMap<String, String>,
    all: &[Objects],
    counts: &BTreeMap<String, usize>,
    now: Timestamp,
) -> BTreeMap<String, String> {
    let mut sums = Amounts::new();
    for key in hard.keys() {
        sums.insert(key.clone(), Quantity::from_units(0, Format::DecimalSi));
    }
    for Objects { group, resource, objects } in all {
        let measure = Measure::of(group, resource);
        for object in objects {
            if scope::matches(quota, measure, object) {
                let mut usage = measure.usage(group, resource, object, now);
                usage.retain(|key, _| hard.contains_key(key));
                sums.add(&usage);
            }
        }
    }
    let mut used: BTreeMap<String, String> = sums.into_iter().map(|(key, sum)| (key, sum.to_string())).collect();
    used.extend(counts.iter().map(|(key, count)| (key.clone(), count.to_string())));
    used
}

/// Two maps of quantities say the same, in whatever words.
pub(super) fn same(one: &BTreeMap<String, String>, other: &BTreeMap<String, String>) -> bool {
    let read = |map: &BTreeMap<String, String>| -> Vec<(String, Option<Quantity>)> {
        map.iter().map(|(key, text)| (key.clone(), Quantity::parse(text).ok())).collect()
    };
    read(one) == read(other)
}

/// A quota as its measures read it.
pub(super) fn scopes_of(spec: &k8s_openapi::api::core::v1::ResourceQuotaSpec) -> Value {
    json!({ "spec": { "scopes": spec.scopes, "scopeSelector": spec.scope_selector } })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(scopes: Value, hard: &[(&str, &str)], expected: &[(&str, &str)]) {
        let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let pod = |cpu: &str, phase: &str| {
            json!({
                "spec": { "containers": [{ "resources": { "requests": { "cpu": cpu } } }] }, "status": { "phase": phase },
            })
        };
        let all = [
            Objects {
                group: "",
                resource: "pods",
                objects: vec![
                    pod("500m", "Running"),
                    pod("1", "Pending"),
                    pod("9", "Succeeded"),
                    json!({ "spec": {} }),
                ],
            },
            Objects { group: "", resource: "configmaps", objects: vec![json!({}), json!({})] },
        ];
        let quota = json!({ "spec": { "scopes": scopes } });
        let made = used(&quota, &map(hard), &all, &BTreeMap::new(), Timestamp::UNIX_EPOCH);
        assert!(same(&made, &map(expected)), "{made:?}");
    }

    #[test]
    fn objects_add_up() {
        check(json!([]), &[("pods", "5")], &[("pods", "3")]);
        check(
            json!([]),
            &[("requests.cpu", "5"), ("configmaps", "1")],
            &[("requests.cpu", "1500m"), ("configmaps", "2")],
        );
        check(json!(["BestEffort"]), &[("pods", "5")], &[("pods", "1")]);
        check(json!([]), &[("count/pods", "5"), ("services", "2")], &[("count/pods", "3"), ("services", "0")]);
    }

    #[test]
    fn counts_of_other_resources_are_asked_for() {
        let hard = BTreeMap::from([
            ("count/deployments.apps".to_owned(), String::new()),
            ("count/pods".to_owned(), String::new()),
            ("pods".to_owned(), String::new()),
        ]);
        assert_eq!(counted(&hard, &[("", "pods")]), [("apps".to_owned(), "deployments".to_owned())]);
    }
}
