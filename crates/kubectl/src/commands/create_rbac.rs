//! `create role`, `clusterrole`, `rolebinding` and `clusterrolebinding`.

use serde_json::{Value, json};

use super::{Command, generate, leaf};
use crate::error::{Error, Result};
use crate::flags::{Flag, array, slice, text};
use crate::session::Context;

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
    "NAME --verb=verb --resource=resource.group/subresource",
    "Create a role with single rule",
    || generate::flags(&RULES),
    |c| Box::pin(role(c)),
);

pub const CLUSTER_ROLE: Command = leaf(
    "clusterrole",
    "NAME --verb=verb --resource=resource.group [--resource-name=resourcename]",
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
    "NAME --clusterrole=NAME|--role=NAME [--user=username] [--group=groupname]",
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
    "NAME --clusterrole=NAME [--user=username] [--group=groupname]",
    "Create a cluster role binding for a particular cluster role",
    || {
        let mut own = SUBJECTS.to_vec();
        own.push(text("clusterrole", "ClusterRole this ClusterRoleBinding should reference."));
        generate::flags(&own)
    },
    |c| Box::pin(binding(c, "ClusterRoleBinding")),
);

fn unique(list: Vec<String>) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for item in list {
        if !item.is_empty() && !found.contains(&item) {
            found.push(item);
        }
    }
    found
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
    let names = unique(flags.list("resource-name"));
    let resources = unique(flags.list("resource"));
    if resources.is_empty() {
        return Err(Error::say("at least one resource must be specified"));
    }
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    for argument in resources {
        let (kind, subresource) = match argument.split_once('/') {
            Some((kind, sub)) => (kind.to_owned(), Some(sub.to_owned())),
            None => (argument.clone(), None),
        };
        if kind == "*" && subresource.is_none() && !names.is_empty() {
            return Err(Error::say("can not restrict resource names when all resources are selected"));
        }
        let (group, plural) = match &*kind {
            "*" => ("*".to_owned(), "*".to_owned()),
            _ => {
                let missing = |error: Error| match error {
                    Error::Message(text) => Error::Exit { code: 1, text },
                    other => other,
                };
                let resource = context.resource(&kind).await.map_err(missing)?;
                (resource.group, resource.plural)
            }
        };
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
            return Err(Error::say("aggregation rule must be specified without nonResourceURLs, resources or rules"));
        }
        let labels: serde_json::Map<String, Value> = aggregation
            .iter()
            .flat_map(|rule| rule.split(','))
            .filter_map(|pair| pair.split_once('='))
            .map(|(key, value)| (key.to_owned(), value.into()))
            .collect();
        object["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": labels}]});
        object["rules"] = json!([]);
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
    for user in unique(flags.list("user")) {
        subjects.push(json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}));
    }
    for group in unique(flags.list("group")) {
        subjects.push(json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}));
    }
    for account in unique(flags.list("serviceaccount")) {
        let (namespace, account) = account
            .split_once(':')
            .filter(|(namespace, name)| !namespace.is_empty() && !name.is_empty())
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
