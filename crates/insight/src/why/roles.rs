//! Roles whose rules are about nothing: the resource is of another API group, or is named in the singular.

use ferry_meta::object;
use serde_json::Value;

use super::{Finding, Reason, fit, in_namespace, title_with_group};
use crate::world::{World, word};

/// The groups of discovery, under which the world has them.
pub(crate) const SERVED: &str = "what the servers serve";

/// Every rule with a resource that none of its API groups has, while another group has it.
pub(super) fn findings(world: &World, role: &Value) -> Vec<Finding> {
    // Those of Kubernetes name what some clusters do not have; the rules of an aggregated one are of others.
    let of_others =
        object::labels(role).contains_key("kubernetes.io/bootstrapping") || role.get("aggregationRule").is_some();
    if let Some(nothing) = aggregates_nothing(role) {
        return vec![nothing];
    }
    let Some(groups) = world.seen(SERVED).filter(|_| !of_others) else { return Vec::new() };
    let rules = object::items(role, "/rules").iter().enumerate();
    let verbs = rules.clone().filter_map(|(place, rule)| verbs(role, place, rule));
    let scopes = rules.clone().filter_map(|(place, rule)| scope(role, groups, place, rule));
    let found = rules.flat_map(|(place, rule)| {
        let resources = object::items(rule, "/resources").iter().filter_map(Value::as_str);
        resources.filter_map(move |resource| finding(role, groups, place, rule, resource))
    });
    let by_name = object::items(role, "/rules").iter().enumerate().filter_map(|(place, rule)| names(role, place, rule));
    found.chain(scopes).chain(verbs).chain(by_name).take(4).collect()
}

/// Requests that name no object are granted by no rule with `resourceNames`.
fn names(role: &Value, place: usize, rule: &Value) -> Option<Finding> {
    if object::items(rule, "/resourceNames").is_empty() {
        return None;
    }
    let verbs: Vec<&str> = object::items(rule, "/verbs").iter().filter_map(Value::as_str).collect();
    // Subresources are made of an object that the request names.
    let mut whole = object::items(rule, "/resources").iter().filter_map(Value::as_str);
    let whole = whole.any(|resource| !resource.contains('/'));
    let one = |wanted: [&'static str; 2]| wanted.into_iter().filter(|verb| verbs.contains(verb)).collect::<Vec<_>>();
    let (nameless, listing) = (one(["create", "deletecollection"]), one(["list", "watch"]));
    let (which, why) = match (nameless.as_slice(), listing.as_slice()) {
        ([_, ..], _) if whole => (nameless, "such a request names no object, and resourceNames wants one of these"),
        (_, [_, ..]) if whole => {
            (listing, "it counts only for a request with --field-selector=metadata.name=NAME (fieldSelector)")
        }
        _ => return None,
    };
    let cause =
        format!("its rule {} has resourceNames, and so hardly grants {}: {why}", place + 1, super::named(&which));
    let edit = format!("kubectl edit {}{}", in_namespace(role), title_with_group(role));
    Some(
        Finding::new(Reason::RoleNames, role, cause).note().advise(format!(
            "if it is to hold for all objects, put these verbs into a rule without resourceNames: {edit}"
        )),
    )
}

/// Words that people write for verbs, and that the API server asks for under no circumstances; and what is meant.
const NO_VERBS: [(&str, &str); 9] = [
    ("read", "get,list,watch"),
    ("view", "get,list,watch"),
    ("write", "create,update,patch,delete"),
    ("edit", "update,patch"),
    ("modify", "update,patch"),
    ("put", "update"),
    ("post", "create"),
    ("remove", "delete"),
    ("all", "*"),
];

/// A rule with nothing but words that are no verbs.
fn verbs(role: &Value, place: usize, rule: &Value) -> Option<Finding> {
    // Paths that are no resources are asked for by the methods of HTTP.
    if object::items(rule, "/resources").is_empty() {
        return None;
    }
    let own: Vec<&str> = object::items(rule, "/verbs").iter().filter_map(Value::as_str).collect();
    let meant =
        |verb: &str| NO_VERBS.iter().find(|(known, _)| verb.eq_ignore_ascii_case(known)).map(|(_, meant)| *meant);
    let meant: Option<Vec<&str>> = own.iter().map(|verb| meant(verb)).collect();
    let meant = meant.filter(|all| !all.is_empty())?;
    let cause = format!(
        "its rule {} grants nothing: {} is no verb that the API server asks for",
        place + 1,
        super::named(&own)
    );
    let edit = format!("kubectl edit {}{}", in_namespace(role), title_with_group(role));
    Some(Finding::new(Reason::RoleVerb, role, cause).advise(format!("write {} instead: {edit}", meant.join(","))))
}

/// A Role is for the objects of its namespace: what has none, it grants to nobody.
fn scope(role: &Value, groups: &[Value], place: usize, rule: &Value) -> Option<Finding> {
    if object::text(role, "/kind") != "Role" {
        return None;
    }
    let named: Vec<&str> = object::items(rule, "/apiGroups").iter().filter_map(Value::as_str).collect();
    let of_named = |group: &&Value| named.contains(&object::name(group));
    let wanted: Vec<&str> = object::items(rule, "/resources").iter().filter_map(Value::as_str).collect();
    let all: Vec<&Value> = groups.iter().filter(of_named).flat_map(resources).collect();
    // Requests for a namespace itself count as made in it.
    let is_wide = |wanted: &&&str| {
        let plural = wanted.split('/').next().unwrap_or_default();
        let mut known = all.iter().filter(|one| object::text(one, "/resource") == plural).peekable();
        plural != "namespaces" && known.peek().is_some() && known.all(|one| object::text(one, "/scope") == "Cluster")
    };
    let wide: Vec<&str> = wanted.iter().filter(is_wide).copied().collect();
    let first = wide.first()?;
    let cause =
        format!("its rule {} grants nothing for {first}: these have no namespace, and a Role is for one", place + 1);
    let group = named.iter().find(|group| !group.is_empty()).map(|group| format!(".{group}")).unwrap_or_default();
    Some(Finding::new(Reason::RoleScope, role, cause).advise(format!(
        "grant it by a ClusterRole and a ClusterRoleBinding: kubectl create clusterrole {} --verb=get,list,watch {}",
        word(object::name(role)),
        word(&format!("--resource={first}{group}"))
    )))
}

/// Its rules are those of others, and there are no such others.
fn aggregates_nothing(role: &Value) -> Option<Finding> {
    let selectors = object::items(role.get("aggregationRule")?, "/clusterRoleSelectors");
    let texts: Vec<String> = selectors.iter().map(fit::selector_text).collect();
    object::items(role, "/rules").is_empty().then(|| {
        let cause = format!("it grants nothing so far: no ClusterRole has the labels {}", texts.join(", or "));
        Finding::new(Reason::RoleAggregatesNothing, role, cause)
            .note()
            .advise("see which labels they have: kubectl get clusterroles --show-labels")
    })
}

fn finding(role: &Value, groups: &[Value], place: usize, rule: &Value, resource: &str) -> Option<Finding> {
    let named: Vec<&str> = object::items(rule, "/apiGroups").iter().filter_map(Value::as_str).collect();
    let plural = resource.split('/').next().unwrap_or_default();
    let known = |group: &str| groups.iter().any(|one| object::name(one) == group);
    // A group that nobody serves may have anything.
    // The first home of Deployments, Ingresses and NetworkPolicies is no more in any cluster.
    let is_gone = |group: &str| group == "extensions";
    if plural == "*" || named.contains(&"*") || !named.iter().all(|group| known(group) || is_gone(group)) {
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
