//! Nobody may give rights away that they do not have: the check before a role or a binding is written.

use ferry_meta::object::{items, name, namespace, text};
use ferry_meta::user::MASTERS;
use ferry_meta::{ApiError, GroupResource, Reason, UserInfo};
use serde_json::Value;

use super::covers::{count, covers};
use super::{PolicyRule, Rbac, compact, rules_of, uncovered};
use crate::authorize::{Attributes, Authorizer};
use crate::chain::aggregate;

const GROUP: &str = "rbac.authorization.k8s.io";
/// Single permissions that are compared. No role of people comes near it, and a role of a few kilobytes can stand for
/// thousands of millions.
const MOST_PIECES: usize = 100_000;
/// Missing permissions that are told one by one.
const MOST_NAMED: usize = 1000;

/// To be called before a write of roles, clusterroles, rolebindings or clusterrolebindings is stored, with the object
/// as it would be stored; other resources pass. `authorizer` is the whole chain: the verbs `escalate` and `bind` lift
/// the check.
pub async fn check_write(
    rbac: &Rbac,
    authorizer: &dyn Authorizer,
    user: &UserInfo,
    resource: &GroupResource,
    object: &Value,
    old: Option<&Value>,
) -> Result<(), ApiError> {
    if resource.group != GROUP || user.in_group(MASTERS) {
        return Ok(());
    }
    match resource.resource.as_str() {
        "roles" | "clusterroles" => check_role(rbac, authorizer, user, resource, object, old).await,
        "rolebindings" | "clusterrolebindings" => check_binding(rbac, authorizer, user, resource, object, old).await,
        _ => Ok(()),
    }
}

/// Whether a write changes nothing but what the garbage collector does, which gives nothing away. Labels may: by them, other
/// ClusterRoles take in the rules of one, and pods choose whom they trust.
pub fn changes_only_references(object: &Value, old: &Value) -> bool {
    const REFERENCES: [&str; 5] = ["finalizers", "managedFields", "ownerReferences", "resourceVersion", "selfLink"];
    let rest = |object: &Value| {
        let mut rest = object.clone();
        if let Some(fields) = rest.as_object_mut() {
            fields.retain(|name, _| name != "apiVersion" && name != "kind");
        }
        if let Some(metadata) = rest.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.retain(|name, _| !REFERENCES.contains(&name.as_str()));
        }
        rest
    };
    rest(object) == rest(old)
}

fn is_aggregated(role: &Value) -> bool {
    !items(role, "/aggregationRule/clusterRoleSelectors").is_empty()
}

async fn check_role(
    rbac: &Rbac,
    authorizer: &dyn Authorizer,
    user: &UserInfo,
    resource: &GroupResource,
    object: &Value,
    old: Option<&Value>,
) -> Result<(), ApiError> {
    if old.is_some_and(|old| changes_only_references(object, old)) {
        return Ok(());
    }
    let rules = rules_of(object);
    let escalate = Attributes {
        version: "v1",
        namespace: namespace(object),
        name: name(object),
        ..Attributes::resource(user, "escalate", GROUP, &resource.resource)
    };
    if authorizer.authorize(&escalate).await.is_allowed() {
        return Ok(());
    }
    let refuse = |why: &str| ApiError::forbidden(resource, name(object), why);
    confirm(rbac, user, namespace(object), &rules).map_err(|why| refuse(&why))?;
    // Whoever takes the selectors away keeps what they gathered so far.
    if is_aggregated(object) || old.is_some_and(is_aggregated) {
        let everything = [
            PolicyRule::new(&["*"], &["*"], &["*"]),
            PolicyRule { verbs: vec!["*".into()], non_resource_urls: vec!["*".into()], ..PolicyRule::default() },
        ];
        confirm(rbac, user, "", &everything)
            .map_err(|_| refuse("must have cluster-admin privileges to use the aggregationRule"))?;
    }
    Ok(())
}

async fn check_binding(
    rbac: &Rbac,
    authorizer: &dyn Authorizer,
    user: &UserInfo,
    resource: &GroupResource,
    object: &Value,
    old: Option<&Value>,
) -> Result<(), ApiError> {
    if old.is_some_and(|old| changes_only_references(object, old)) {
        return Ok(());
    }
    let (kind, role) = (text(object, "/roleRef/kind"), text(object, "/roleRef/name"));
    let referred = match kind {
        "ClusterRole" => "clusterroles",
        "Role" => "roles",
        // Nobody can be allowed to bind what nobody knows.
        other => {
            let message = format!("unsupported role reference kind: {other:?}");
            return Err(ApiError::new(500, Reason::Unknown, message));
        }
    };
    let bind = Attributes {
        version: "v1",
        namespace: namespace(object),
        name: role,
        ..Attributes::resource(user, "bind", GROUP, referred)
    };
    if authorizer.authorize(&bind).await.is_allowed() {
        return Ok(());
    }
    let rules = rbac.role_rules(namespace(object), kind, role).map_err(|_| ApiError::not_found(resource, role))?;
    confirm(rbac, user, namespace(object), &rules).map_err(|why| ApiError::forbidden(resource, name(object), &why))
}

/// The text that lists what the user lacks.
fn confirm(rbac: &Rbac, user: &UserInfo, namespace: &str, rules: &[PolicyRule]) -> Result<(), String> {
    let held = rbac.rules_for(user, namespace);
    // What one rule gives as a whole need not be looked at piece by piece.
    let open: Vec<PolicyRule> =
        rules.iter().filter(|wanted| !held.rules.iter().any(|rule| covers(rule, wanted))).cloned().collect();
    let pieces = open.iter().map(count).fold(0, usize::saturating_add);
    if pieces > MOST_PIECES {
        return Err(format!(
            "the rules stand for {pieces} single permissions, of which at most {MOST_PIECES} can be compared with those held"
        ));
    }
    let mut missing: Vec<PolicyRule> = uncovered(&held.rules, &open).take(MOST_NAMED + 1).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let more = missing.len() > MOST_NAMED;
    missing.truncate(MOST_NAMED);
    let mut lines: Vec<String> = compact(missing).iter().map(PolicyRule::compact).collect();
    lines.sort();
    if more {
        lines.push("... and more".to_owned());
    }
    let groups: Vec<String> = user.groups.iter().map(|group| ferry_meta::field::quote(group)).collect();
    let mut text = format!(
        "user {} (groups=[{}]) is attempting to grant RBAC permissions not currently held:\n{}",
        ferry_meta::field::quote(&user.name),
        groups.join(" "),
        lines.join("\n")
    );
    if !held.errors.is_empty() {
        text.push_str(&format!("; resolution errors: {}", aggregate(held.errors)));
    }
    Err(text)
}
