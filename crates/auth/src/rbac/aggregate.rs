//! Aggregated ClusterRoles: their rules are those of the roles their selectors match.

use std::collections::HashSet;
use std::sync::Arc;

use ferry_meta::object::{items, labels, name};
use ferry_meta::selector::LabelSelector;
use serde_json::Value;

use super::rule::{PolicyRule, rules_of};

/// The rules an aggregated role must have, or `None` when it is not aggregated. `all` are all ClusterRoles.
pub fn aggregated_rules(role: &Value, all: &[Arc<Value>]) -> Option<Vec<PolicyRule>> {
    role.get("aggregationRule").filter(|rule| !rule.is_null())?;
    let mut visited = HashSet::from([name(role)]);
    Some(collect(role, all, &mut visited))
}

/// Follows aggregated roles that are selected in turn (admin takes edit's, edit takes view's), each at most once.
fn collect<'a>(role: &'a Value, all: &'a [Arc<Value>], visited: &mut HashSet<&'a str>) -> Vec<PolicyRule> {
    let mut rules: Vec<PolicyRule> = Vec::new();
    for selector in items(role, "/aggregationRule/clusterRoleSelectors") {
        // A selector that cannot be read selects nothing.
        let selector = LabelSelector::from_object(selector).unwrap_or_else(|_| LabelSelector::nothing());
        let mut selected: Vec<&'a Arc<Value>> = all.iter().filter(|other| selector.matches(labels(other))).collect();
        selected.sort_by_key(|other| name(other));
        for other in selected {
            // Once: roles may select one another, in more orders than could be tried.
            if !visited.insert(name(other)) {
                continue;
            }
            let found = if other.get("aggregationRule").is_some_and(|rule| !rule.is_null()) {
                collect(other, all, visited)
            } else {
                rules_of(other)
            };
            for rule in found {
                if !rules.contains(&rule) {
                    rules.push(rule);
                }
            }
        }
    }
    rules
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn role(name: &str, labels: Value, resources: &[&str], select: &[&str]) -> Arc<Value> {
        let mut role = json!({"metadata": {"name": name, "labels": labels}, "rules": []});
        role["rules"] = resources
            .iter()
            .map(|r| serde_json::to_value(PolicyRule::new(&["get"], &[""], &[r])).expect("a rule"))
            .collect();
        if !select.is_empty() {
            let selectors: Vec<Value> = select.iter().map(|label| json!({"matchLabels": {*label: "true"}})).collect();
            role["aggregationRule"] = json!({"clusterRoleSelectors": selectors});
        }
        Arc::new(role)
    }

    #[test]
    fn rules_come_sorted_once_and_through_other_aggregated_roles() {
        let all = vec![
            role("admin", json!({}), &[], &["to-admin"]),
            role("edit", json!({"to-admin": "true"}), &[], &["to-edit"]),
            role("z", json!({"to-edit": "true", "to-admin": "true"}), &["pods"], &[]),
            role("a", json!({"to-edit": "true"}), &["secrets"], &[]),
            role("loop", json!({"to-loop": "true"}), &["nodes"], &["to-loop"]),
        ];
        let names = |name: &str| -> Option<Vec<String>> {
            let role = all.iter().find(|r| super::name(r) == name).expect("a role");
            Some(aggregated_rules(role, &all)?.into_iter().flat_map(|rule| rule.resources).collect())
        };
        assert_eq!(names("admin").expect("aggregated"), ["secrets", "pods"]);
        assert_eq!(names("z"), None);
        assert_eq!(names("loop").expect("aggregated"), Vec::<String>::new());
    }

    /// Were every way through them tried, there would be more ways than can be counted.
    #[test]
    fn roles_that_all_select_one_another_are_gone_through_once() {
        let mut all: Vec<Arc<Value>> =
            (0..40).map(|number| role(&format!("r{number}"), json!({"all": "true"}), &[], &["all"])).collect();
        all.push(role("plain", json!({"all": "true"}), &["pods"], &[]));
        let rules = aggregated_rules(&all[0], &all).expect("aggregated");
        assert_eq!(rules.len(), 1);
    }
}
