//! Who may change what in the status of a claim of devices: giving devices away is a right of its own, and so is speaking for a
//! driver, on the claim's own node or on any.

use std::collections::{BTreeMap, BTreeSet};

use ferry_auth::{Attributes, Authorizer};
use ferry_meta::{FieldError, FieldErrors, Path, UserInfo};
use serde_json::Value;

use crate::request::context::RequestContext;
use crate::request::verb::Subresource;
use crate::server::Core;

/// On the user of a service account's token: the node of its pod.
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";

pub(super) async fn errors(
    core: &Core,
    context: &RequestContext,
    subresource: &Subresource,
    object: &Value,
    old: &Value,
) -> FieldErrors {
    let mut errors = FieldErrors::new();
    if *subresource != Subresource::Status {
        return errors;
    }
    let status = Path::new("status");
    let request = Request { core, context };
    let verb = context.info.verb.as_str();
    if part(object, "allocation") != part(old, "allocation") || part(object, "reservedFor") != part(old, "reservedFor")
    {
        let refused = request.refused(&[verb.to_owned()], "binding", "", "").await;
        errors.extend(refused.into_iter().map(|why| {
            let detail = format!(
                "changing status.allocation or status.reservedFor requires resource=\"resourceclaims/binding\", \
                 verb=\"{verb}\" permission: {why}"
            );
            FieldError::forbidden(&status.child("allocation"), detail)
        }));
    }
    // Without devices nothing is left of what is told about them.
    if part(object, "allocation").is_null() {
        return errors;
    }
    let mut verbs = vec![format!("arbitrary-node:{verb}")];
    if is_on(&context.user, only_node(part(object, "allocation"))) {
        verbs.insert(0, format!("associated-node:{verb}"));
    }
    for driver in changed_drivers(object, old) {
        let refused = request.refused(&verbs, "driver", &context.info.namespace, &driver).await;
        errors.extend(refused.into_iter().map(|why| {
            let detail = format!(
                "changing status.devices requires resource=\"resourceclaims/driver\", verb=\"[{}]\" permission: {why}",
                verbs.join(" ")
            );
            FieldError::forbidden(&status.child("devices"), detail)
        }));
    }
    errors
}

struct Request<'a> {
    core: &'a Core,
    context: &'a RequestContext,
}

impl Request<'_> {
    /// Nothing where one of the verbs is allowed; else why the first is not.
    async fn refused(&self, verbs: &[String], subresource: &str, namespace: &str, name: &str) -> Option<String> {
        let mut first = None;
        for verb in verbs {
            let info = &self.context.info;
            let wanted = Attributes {
                namespace,
                version: &info.version,
                subresource,
                name,
                path: &info.path,
                ..Attributes::resource(&self.context.user, verb, &info.group, &info.resource)
            };
            let decision = self.core.authorization.authorize(&wanted).await;
            if decision.is_allowed() {
                return None;
            }
            let reason = match (decision.error(), decision.reason()) {
                (Some(error), "") => error.to_owned(),
                (Some(error), reason) => format!("{error}: {reason}"),
                (None, reason) => reason.to_owned(),
            };
            first.get_or_insert_with(|| ferry_auth::forbidden(&wanted, &reason).to_string());
        }
        first
    }
}

/// A part of the status; an empty list is none.
fn part<'a>(claim: &'a Value, name: &str) -> &'a Value {
    let found = claim.get("status").and_then(|status| status.get(name)).unwrap_or(&Value::Null);
    if found.as_array().is_some_and(Vec::is_empty) { &Value::Null } else { found }
}

/// The drivers whose devices are told something else about than before.
fn changed_drivers(object: &Value, old: &Value) -> BTreeSet<String> {
    type Told<'a> = BTreeMap<[&'a str; 4], &'a Value>;
    fn told(claim: &Value) -> Told<'_> {
        let devices = part(claim, "devices").as_array().map(Vec::as_slice).unwrap_or_default();
        devices.iter().map(|device| (key(device), device)).collect()
    }
    fn key(device: &Value) -> [&str; 4] {
        ["driver", "pool", "device", "shareID"].map(|name| device.get(name).and_then(Value::as_str).unwrap_or_default())
    }
    let (now, before) = (told(object), told(old));
    let changed = now.iter().filter(|(key, device)| before.get(*key) != Some(*device)).map(|(key, _)| key[0]);
    let gone = before.keys().filter(|key| !now.contains_key(*key)).map(|key| key[0]);
    changed.chain(gone).map(str::to_owned).collect()
}

/// The node that the devices can be used on, where there is only one.
fn only_node(allocation: &Value) -> Option<&str> {
    let [term] = allocation.pointer("/nodeSelector/nodeSelectorTerms")?.as_array()?.as_slice() else { return None };
    let list = |name: &str| term.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let ([], [field]) = (list("matchExpressions"), list("matchFields")) else { return None };
    let [name] = field.get("values")?.as_array()?.as_slice() else { return None };
    (field.get("key")? == "metadata.name" && field.get("operator")? == "In").then(|| name.as_str())?
}

fn is_on(user: &UserInfo, node: Option<&str>) -> bool {
    let Some([own]) = user.extra.get(NODE_NAME).map(Vec::as_slice) else { return false };
    user.name.starts_with("system:serviceaccount:") && node.is_some_and(|node| !node.is_empty() && node == own)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn drivers_whose_devices_change_are_found() {
        let claim = |devices: Value| json!({"status": {"devices": devices}});
        let device = |driver: &str, device: &str, data: i64| json!({"driver": driver, "pool": "p", "device": device, "data": data});
        for (old, new, expected) in [
            (json!([]), json!([]), ""),
            (json!([]), json!([device("a", "x", 1)]), "a"),
            (json!([device("a", "x", 1)]), json!([device("a", "x", 1)]), ""),
            (json!([device("a", "x", 1), device("b", "x", 1)]), json!([device("b", "x", 1), device("a", "x", 2)]), "a"),
            (json!([device("a", "x", 1)]), json!(null), "a"),
            (json!([device("a", "x", 1)]), json!([device("c", "x", 1)]), "a c"),
        ] {
            let found = changed_drivers(&claim(new.clone()), &claim(old.clone()));
            assert_eq!(found.into_iter().collect::<Vec<_>>().join(" "), expected, "{old} → {new}");
        }
    }

    #[test]
    fn an_account_is_on_the_node_of_the_devices() {
        let on = |terms: Value| json!({"nodeSelector": {"nodeSelectorTerms": terms}});
        let field = |values: Value| json!({"key": "metadata.name", "operator": "In", "values": values});
        let named = on(json!([{"matchFields": [field(json!(["n"]))]}]));
        assert_eq!(only_node(&named), Some("n"));
        assert_eq!(only_node(&on(json!([{"matchFields": [field(json!(["n", "m"]))]}]))), None);
        assert_eq!(only_node(&on(json!([{"matchFields": [field(json!(["n"]))], "matchExpressions": [{}]}]))), None);
        assert_eq!(only_node(&json!({})), None);
        let mut user = UserInfo::new("system:serviceaccount:ns:driver", &[]);
        assert!(!is_on(&user, Some("n")));
        user.extra.insert(NODE_NAME.into(), vec!["n".into()]);
        assert!(is_on(&user, Some("n")) && !is_on(&user, Some("m")) && !is_on(&user, None));
        user.name = "somebody".into();
        assert!(!is_on(&user, Some("n")));
    }
}
