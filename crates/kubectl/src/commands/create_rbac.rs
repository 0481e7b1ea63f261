//! `create role`, `clusterrole`, `rolebinding` and `clusterrolebinding`.

use serde_json::{Value, json};

use super::{Command, generate, leaf};
use crate::error::{Error, Result};
use crate::flags::{Flag, array, slice, text};
use crate::session::Context;
use crate::text::warn;

const RULES: [Flag; 3] = [
    slice("verb", "Verb that applies to the resources contained in the rule."),
    slice("resource", "Resource that the rule applies to."),
    array("resource-name", "Resource in the white list that the rule applies to."),
];
const SUBJECTS: [Flag; 3] = [
    array("user", "Usernames to bind to the role."),
    array("group", "Groups to bind to the role."),
    array("serviceaccount", "Service accounts to bind to the role, in the form of namespace:name."),
];

pub const ROLE: Command = leaf(
    "role",
    "NAME --verb=verb --resource=resource.group/subresource [--resource-name=resourcename] [--dry-run=server|client|none]",
    "Create a role with single rule",
    || generate::flags(&RULES),
    |c| Box::pin(role(c)),
);

pub const CLUSTER_ROLE: Command = leaf(
    "clusterrole",
    "NAME --verb=verb --resource=resource.group [--resource-name=resourcename] [--dry-run=server|client|none]",
    "Create a cluster role",
    || {
        let mut own = RULES.to_vec();
        own.push(slice("non-resource-url", "A partial URL that users may have access to."));
        own.push(array("aggregation-rule", "An aggregation label selector for combining ClusterRoles."));
        generate::flags(&own)
    },
    |c| Box::pin(cluster_role(c)),
);

pub const ROLE_BINDING: Command = leaf(
    "rolebinding",
    "NAME --clusterrole=NAME|--role=NAME [--user=username] [--group=groupname] [--serviceaccount=namespace:serviceaccountname] [--dry-run=server|client|none]",
    "Create a role binding for a particular role or cluster role",
    || {
        let mut own = SUBJECTS.to_vec();
        own.push(text("role", "Role this RoleBinding should reference."));
        own.push(text("clusterrole", "ClusterRole this RoleBinding should reference."));
        generate::flags(&own)
    },
    |c| Box::pin(binding(c, "RoleBinding")),
);

pub const CLUSTER_ROLE_BINDING: Command = leaf(
    "clusterrolebinding",
    "NAME --clusterrole=NAME [--user=username] [--group=groupname] [--serviceaccount=namespace:serviceaccountname] [--dry-run=server|client|none]",
    "Create a cluster role binding for a particular cluster role",
    || {
        let mut own = SUBJECTS.to_vec();
        own.push(text("clusterrole", "ClusterRole this ClusterRoleBinding should reference."));
        generate::flags(&own)
    },
    |c| Box::pin(binding(c, "ClusterRoleBinding")),
);

/// Each name once; an empty one is a name.
fn once(list: Vec<String>) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for item in list {
        if !found.contains(&item) {
            found.push(item);
        }
    }
    found
}

fn unique(list: Vec<String>) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for item in list {
        if !item.is_empty() && !found.contains(&item) {
            found.push(item);
        }
    }
    found
}

const RESOURCE_VERBS: [&str; 14] = [
    "*",
    "get",
    "delete",
    "list",
    "create",
    "update",
    "patch",
    "watch",
    "proxy",
    "deletecollection",
    "use",
    "bind",
    "escalate",
    "impersonate",
];
const URL_VERBS: [&str; 8] = ["*", "get", "post", "put", "delete", "patch", "head", "options"];

/// Verbs that only some resources know, as resource and group.
fn special(verb: &str) -> Option<&'static [(&'static str, &'static str)]> {
    const ROLES: &[(&str, &str)] =
        &[("roles", "rbac.authorization.k8s.io"), ("clusterroles", "rbac.authorization.k8s.io")];
    match verb {
        "use" => Some(&[("podsecuritypolicies", "policy"), ("podsecuritypolicies", "extensions")]),
        "bind" | "escalate" => Some(ROLES),
        "impersonate" => {
            Some(&[("users", ""), ("serviceaccounts", ""), ("groups", ""), ("userextras", "authentication.k8s.io")])
        }
        _ => None,
    }
}

/// What a resource is called, and its group: `*` is not looked up, and neither is what has a special verb.
async fn resource(context: &Context, name: &str, verbs: &[String]) -> Result<(String, String)> {
    let (plain, group) = name.split_once('.').unwrap_or((name, ""));
    if plain == "*" {
        return Ok((plain.to_owned(), group.to_owned()));
    }
    // Only names and groups can stand here.
    let looked_up = context.resource(name).await.and_then(|found| match group.is_empty() || found.group == group {
        true => Ok(found),
        false => Err(Error::say(format!(
            "the server doesn't have a resource type {} in group {}",
            crate::text::quote(plain),
            crate::text::quote(group)
        ))),
    });
    let (found, missing) = match looked_up {
        Ok(resource) => ((resource.plural, resource.group), None),
        Err(Error::Message(text)) => ((plain.to_owned(), group.to_owned()), Some(Error::Exit { code: 1, text })),
        Err(other) => return Err(other),
    };
    let mut known = missing.is_none();
    for verb in verbs {
        let Some(for_these) = special(verb) else { continue };
        if !for_these.contains(&(&*found.0, &*found.1)) {
            return Err(Error::say(format!("can not perform '{verb}' on '{}' in group '{}'", found.0, found.1)));
        }
        known = true;
    }
    match missing {
        Some(missing) if !known => Err(missing),
        _ => Ok(found),
    }
}

/// One rule per group, as the resources are named.
async fn rules(context: &Context) -> Result<Vec<Value>> {
    let flags = &context.flags;
    let mut verbs = unique(flags.list("verb"));
    if verbs.iter().any(|verb| verb == "*") {
        verbs = vec!["*".into()];
    }
    if verbs.is_empty() {
        return Err(Error::say("at least one verb must be specified"));
    }
    for verb in verbs.iter().filter(|verb| !RESOURCE_VERBS.contains(&verb.as_str())) {
        warn(format!("Warning: '{verb}' is not a standard resource verb"));
    }
    let names = unique(flags.list("resource-name"));
    let resources = unique(flags.list("resource"));
    if resources.is_empty() {
        return Err(Error::say("at least one resource must be specified"));
    }
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    let mut all_known = false;
    for argument in resources {
        let (kind, subresource) = match argument.split_once('/') {
            Some((kind, sub)) => (kind.to_owned(), Some(sub.to_owned())),
            None => (argument.clone(), None),
        };
        if kind.is_empty() || kind.starts_with('.') {
            return Err(Error::say("resource must be specified if apiGroup/subresource specified"));
        }
        if kind == "*" && subresource.is_none() && !names.is_empty() {
            return Err(Error::say("can not restrict resource names when all resources are selected"));
        }
        // Behind one that stands for all, nothing is looked up.
        let (plural, group) = match all_known {
            true => kind.split_once('.').map_or((kind.clone(), String::new()), |(a, b)| (a.to_owned(), b.to_owned())),
            false => resource(context, &kind, &verbs).await?,
        };
        all_known |= plural == "*";
        let full = subresource.map_or(plural.clone(), |sub| format!("{plural}/{sub}"));
        match groups.iter_mut().find(|(known, _)| *known == group) {
            Some((_, list)) => list.push(full),
            None => groups.push((group, vec![full])),
        }
    }
    groups.sort();
    let rule = |(group, list): (String, Vec<String>)| {
        let mut rule = json!({"apiGroups": [group], "resources": list, "verbs": verbs});
        if !names.is_empty() {
            rule["resourceNames"] = names.clone().into();
        }
        rule
    };
    Ok(groups.into_iter().map(rule).collect())
}

async fn role(context: &Context) -> Result<()> {
    let name = generate::name(context)?;
    let rules = rules(context).await?;
    let object = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": name}, "rules": rules});
    generate::finish(context, object).await
}

async fn cluster_role(context: &Context) -> Result<()> {
    let flags = &context.flags;
    let name = generate::name(context)?;
    let mut object =
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}});
    let aggregation = flags.list("aggregation-rule");
    let urls = unique(flags.list("non-resource-url"));
    if !aggregation.is_empty() {
        if !flags.list("verb").is_empty() || !flags.list("resource").is_empty() || !urls.is_empty() {
            return Err(Error::say(
                "aggregation rule must be specified without nonResourceURLs, verbs, resources or resourceNames",
            ));
        }
        let mut labels = serde_json::Map::new();
        for pair in aggregation.iter().flat_map(|rule| rule.split(',')) {
            let Some((key, value)) = pair.split_once('=') else {
                return Err(Error::say(format!(
                    "invalid argument {} for \"--aggregation-rule\" flag: malformed pair, expect string=string\nSee '{} --help' for usage.",
                    crate::text::quote(&aggregation.join(",")),
                    context.path
                )));
            };
            labels.insert(key.to_owned(), value.into());
        }
        object["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": labels}]});
        object["rules"] = Value::Null;
        return generate::finish(context, object).await;
    }
    let mut all = Vec::new();
    if !flags.list("resource").is_empty() || urls.is_empty() {
        all = rules(context).await?;
    }
    if !urls.is_empty() {
        let verbs = unique(flags.list("verb"));
        if verbs.is_empty() {
            return Err(Error::say("at least one verb must be specified"));
        }
        if let Some(verb) = verbs.iter().find(|verb| !URL_VERBS.contains(&verb.as_str())) {
            return Err(Error::say(format!("invalid verb: '{verb}' for nonResourceURL")));
        }
        for url in urls.iter().filter(|url| *url != "*") {
            if !url.starts_with('/') {
                return Err(Error::say("nonResourceURL should start with /"));
            }
            if url.trim_end_matches('*').contains('*') || url.ends_with("**") {
                return Err(Error::say("nonResourceURL only supports wildcard matches when '*' is at the end"));
            }
        }
        all.push(json!({"nonResourceURLs": urls, "verbs": verbs}));
    }
    object["rules"] = all.into();
    generate::finish(context, object).await
}

async fn binding(context: &Context, kind: &str) -> Result<()> {
    let flags = &context.flags;
    let name = generate::name(context)?;
    let (role, cluster_role) = (flags.text("role"), flags.text("clusterrole"));
    if kind == "RoleBinding" && role.is_empty() == cluster_role.is_empty() {
        return Err(Error::say("exactly one of clusterrole or role must be specified"));
    }
    if kind == "ClusterRoleBinding" && cluster_role.is_empty() {
        return Err(Error::say("required flag(s) \"clusterrole\" not set"));
    }
    let (reference_kind, reference) = if role.is_empty() { ("ClusterRole", cluster_role) } else { ("Role", role) };
    let mut subjects = Vec::new();
    for user in once(flags.list("user")) {
        subjects.push(json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}));
    }
    for group in once(flags.list("group")) {
        subjects.push(json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}));
    }
    for account in unique(flags.list("serviceaccount")) {
        let (namespace, account) = account
            .split_once(':')
            .filter(|(namespace, name)| !namespace.is_empty() && !name.is_empty() && !name.contains(':'))
            .ok_or_else(|| Error::say("serviceaccount must be <namespace>:<name>"))?;
        subjects.push(json!({"kind": "ServiceAccount", "name": account, "namespace": namespace}));
    }
    let mut object = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": reference_kind, "name": reference},
    });
    if !subjects.is_empty() {
        object["subjects"] = subjects.into();
    }
    generate::finish(context, object).await
}
