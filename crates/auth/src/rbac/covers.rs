//! Whether some rules give everything that other rules give.

use super::rule::{PolicyRule, url_matches};

/// The parts of `wanted` that `held` does not give, each as a rule of one verb on one thing.
pub fn uncovered(held: &[PolicyRule], wanted: &[PolicyRule]) -> Vec<PolicyRule> {
    let mut missing = Vec::new();
    for part in wanted.iter().flat_map(parts) {
        if !held.iter().any(|rule| covers(rule, &part)) && !missing.contains(&part) {
            missing.push(part);
        }
    }
    missing
}

/// Every combination that a rule stands for: one verb, and one resource (and name) or one URL.
fn parts(rule: &PolicyRule) -> Vec<PolicyRule> {
    let one = |text: &String| vec![text.clone()];
    let mut parts = Vec::new();
    for group in &rule.api_groups {
        for resource in &rule.resources {
            for verb in &rule.verbs {
                let part = PolicyRule {
                    verbs: one(verb),
                    api_groups: one(group),
                    resources: one(resource),
                    ..PolicyRule::default()
                };
                if rule.resource_names.is_empty() {
                    parts.push(part);
                } else {
                    parts.extend(
                        rule.resource_names.iter().map(|name| PolicyRule { resource_names: one(name), ..part.clone() }),
                    );
                }
            }
        }
    }
    for url in &rule.non_resource_urls {
        for verb in &rule.verbs {
            parts.push(PolicyRule { verbs: one(verb), non_resource_urls: one(url), ..PolicyRule::default() });
        }
    }
    parts
}

fn covers(held: &PolicyRule, part: &PolicyRule) -> bool {
    let all = |list: &[String], wanted: &[String]| {
        list.iter().any(|text| text == "*") || wanted.iter().all(|text| list.contains(text))
    };
    let resources = held.resources.iter().any(|r| r == "*")
        || part.resources.iter().all(|wanted| {
            held.resources.contains(wanted)
                || wanted.split_once('/').is_some_and(|(_, sub)| {
                    held.resources.iter().any(|r| r.strip_prefix("*/").is_some_and(|s| s == sub))
                })
        });
    let names = held.resource_names.is_empty()
        || (!part.resource_names.is_empty() && part.resource_names.iter().all(|n| held.resource_names.contains(n)));
    let urls =
        part.non_resource_urls.iter().all(|url| held.non_resource_urls.iter().any(|held| url_matches(held, url)));
    all(&held.verbs, &part.verbs) && all(&held.api_groups, &part.api_groups) && resources && names && urls
}

/// Joins the verbs of rules on the same thing, for reading.
pub fn compact(rules: Vec<PolicyRule>) -> Vec<PolicyRule> {
    let mut out: Vec<PolicyRule> = Vec::new();
    for rule in rules {
        let known = out.iter_mut().find(|known| {
            known.api_groups == rule.api_groups
                && known.resources == rule.resources
                && known.resource_names == rule.resource_names
                && known.non_resource_urls == rule.non_resource_urls
        });
        // Upstream joins only plain rules on one resource; those with names or URLs stay apart.
        match known.filter(|_| rule.resource_names.is_empty() && rule.non_resource_urls.is_empty()) {
            Some(known) => known.verbs.extend(rule.verbs),
            None => out.push(rule),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_and_nothing_else() {
        let held = [
            PolicyRule::new(&["get", "list"], &[""], &["configmaps"]),
            PolicyRule::new(&["*"], &["apps"], &["deployments"]),
            PolicyRule::new(&["get"], &[""], &["*/scale"]),
            PolicyRule { verbs: vec!["get".into()], non_resource_urls: vec!["/a/*".into()], ..PolicyRule::default() },
            PolicyRule { resource_names: vec!["x".into()], ..PolicyRule::new(&["get"], &[""], &["secrets"]) },
        ];
        let check = |wanted: PolicyRule, want: &[&str]| {
            let mut missing: Vec<String> =
                compact(uncovered(&held, &[wanted])).iter().map(PolicyRule::compact).collect();
            missing.sort();
            assert_eq!(missing, want);
        };
        check(
            PolicyRule::new(&["get", "delete", "patch"], &[""], &["configmaps"]),
            &[r#"{APIGroups:[""], Resources:["configmaps"], Verbs:["delete" "patch"]}"#],
        );
        check(PolicyRule::new(&["*"], &["apps"], &["deployments"]), &[]);
        check(
            PolicyRule::new(&["get"], &["apps"], &["deployments/scale"]),
            &[r#"{APIGroups:["apps"], Resources:["deployments/scale"], Verbs:["get"]}"#],
        );
        check(PolicyRule::new(&["get"], &[""], &["pods/scale"]), &[]);
        let named = |names: &[&str]| PolicyRule {
            resource_names: names.iter().map(|n| (*n).to_owned()).collect(),
            ..PolicyRule::new(&["get"], &[""], &["secrets"])
        };
        check(named(&["x"]), &[]);
        check(named(&["x", "y"]), &[r#"{APIGroups:[""], Resources:["secrets"], ResourceNames:["y"], Verbs:["get"]}"#]);
        check(named(&[]), &[r#"{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}"#]);
        let url = |url: &str| PolicyRule {
            verbs: vec!["get".into()],
            non_resource_urls: vec![url.into()],
            ..PolicyRule::default()
        };
        check(url("/a/b"), &[]);
        check(url("/b"), &[r#"{NonResourceURLs:["/b"], Verbs:["get"]}"#]);
    }
}
