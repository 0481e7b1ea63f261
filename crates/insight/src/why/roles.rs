//! Roles whose rules are about nothing: the resource is of another API group, or is named in the singular.

use ferry_meta::object;
use serde_json::Value;

use super::{Finding, Reason, in_namespace, title_with_group};
use crate::world::World;

/// The groups of discovery, under which the world has them.
pub(crate) const SERVED: &str = "what the servers serve";

/// Every rule with a resource that none of its API groups has, while another group has it.
pub(super) fn findings(world: &World, role: &Value) -> Vec<Finding> {
    // Those of Kubernetes name what some clusters do not have; the rules of an aggregated one are of others.
    let of_others =
        object::labels(role).contains_key("kubernetes.io/bootstrapping") || role.get("aggregationRule").is_some();
    let Some(groups) = world.seen(SERVED).filter(|_| !of_others) else { return Vec::new() };
    let rules = object::items(role, "/rules").iter().enumerate();
    let found = rules.flat_map(|(place, rule)| {
        let resources = object::items(rule, "/resources").iter().filter_map(Value::as_str);
        resources.filter_map(move |resource| finding(role, groups, place, rule, resource))
    });
    found.take(4).collect()
}

fn finding(role: &Value, groups: &[Value], place: usize, rule: &Value, resource: &str) -> Option<Finding> {
    let named: Vec<&str> = object::items(rule, "/apiGroups").iter().filter_map(Value::as_str).collect();
    let plural = resource.split('/').next().unwrap_or_default();
    let known = |group: &str| groups.iter().any(|one| object::name(one) == group);
    // A group that nobody serves may have anything.
    if plural == "*" || named.contains(&"*") || !named.iter().all(|group| known(group)) {
        return None;
    }
    let has = |group: &&Value| resources(group).any(|one| object::text(one, "/resource") == plural);
    let of_named = |group: &&Value| named.contains(&object::name(group));
    if groups.iter().filter(of_named).any(|group| has(&group)) {
        return None;
    }
    let edit = format!("kubectl edit {}{}", in_namespace(role), title_with_group(role));
    let shown = |group: &str| if group.is_empty() { "the core group (\"\")".to_owned() } else { format!("{group:?}") };
    let own: Vec<String> = named.iter().map(|group| shown(group)).collect();
    let rule = place + 1;
    // The name of one object, or of the kind, where the plural is wanted.
    let meant = groups.iter().filter(of_named).flat_map(resources).find(|one| {
        let is = |pointer: &str| object::text(one, pointer).eq_ignore_ascii_case(plural);
        is("/singularResource") || is("/responseKind/kind") || is("/resource")
    });
    if let Some(meant) = meant.map(|one| object::text(one, "/resource")) {
        let cause = format!(
            "its rule {rule} grants nothing for {plural:?}: resources are named in the plural and in small letters, {meant:?}"
        );
        return Some(Finding::new(Reason::RoleRule, role, cause).advise(format!("write {meant} instead: {edit}")));
    }
    let other = groups.iter().find(has).map(object::name)?;
    let cause = format!(
        "its rule {rule} grants nothing for {plural}: apiGroups has {}, and {plural} are of {}",
        own.join(", "),
        shown(other)
    );
    Some(
        Finding::new(Reason::RoleRule, role, cause)
            .advise(format!("name the API group {other:?} in apiGroups: {edit}")),
    )
}

fn resources(group: &Value) -> impl Iterator<Item = &Value> {
    object::items(group, "/versions").iter().flat_map(|version| object::items(version, "/resources"))
}
