//! Whether some rules give everything that other rules give.

use std::collections::HashSet;

use super::rule::{PolicyRule, url_matches};

/// The parts of `wanted` that `held` does not give, each as a rule of one verb on one thing, found one after the other.
pub fn uncovered<'a>(held: &'a [PolicyRule], wanted: &'a [PolicyRule]) -> impl Iterator<Item = PolicyRule> + 'a {
    let mut seen = HashSet::new();
    wanted
        .iter()
        .flat_map(parts)
        .filter(move |part| !held.iter().any(|rule| covers(rule, part)) && seen.insert(part.clone()))
}

/// How many combinations a rule stands for. A short rule stands for very many: four lists are multiplied.
pub(super) fn count(rule: &PolicyRule) -> usize {
    let (verbs, names) = (rule.verbs.len(), rule.resource_names.len().max(1));
    let things = rule.api_groups.len().saturating_mul(rule.resources.len()).saturating_mul(names);
    things.saturating_add(rule.non_resource_urls.len()).saturating_mul(verbs)
}

/// Every combination that a rule stands for: one verb, and one resource (and name) or one URL.
fn parts(rule: &PolicyRule) -> impl Iterator<Item = PolicyRule> + '_ {
    let names = || {
        let any = rule.resource_names.is_empty().then_some(None);
        rule.resource_names.iter().map(Some).chain(any)
    };
    let things = rule.api_groups.iter().flat_map(|group| rule.resources.iter().map(move |resource| (group, resource)));
    let of_resources = things.flat_map(move |(group, resource)| {
        rule.verbs.iter().flat_map(move |verb| {
            names().map(move |name| PolicyRule {
                verbs: vec![verb.clone()],
                api_groups: vec![group.clone()],
                resources: vec![resource.clone()],
                resource_names: name.cloned().into_iter().collect(),
                ..PolicyRule::default()
            })
        })
    });
    let of_urls = rule.non_resource_urls.iter().flat_map(|url| {
        rule.verbs.iter().map(|verb| PolicyRule {
            verbs: vec![verb.clone()],
            non_resource_urls: vec![url.clone()],
            ..PolicyRule::default()
        })
    });
    of_resources.chain(of_urls)
}

/// Whether one rule gives everything that another gives.
pub(super) fn covers(held: &PolicyRule, part: &PolicyRule) -> bool {
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
                compact(uncovered(&held, &[wanted]).collect()).iter().map(PolicyRule::compact).collect();
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
