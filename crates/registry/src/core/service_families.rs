//! The address families of a Service: what its writer left open is filled in by what the cluster has.

use ferry_meta::{FieldError, FieldErrors};
use serde_json::Value;

use super::service::{is_headless, needs_cluster_ip};
use super::service_rules;
use crate::cursor::{Cursor, object_at};

const SINGLE: &str = "SingleStack";
const PREFER: &str = "PreferDualStack";
const REQUIRE: &str = "RequireDualStack";

fn family_of(address: &str) -> &'static str {
    if address.contains(':') { "IPv6" } else { "IPv4" }
}

fn texts(spec: &Cursor<'_>, field: &str) -> Vec<String> {
    spec.texts(field).map(str::to_owned).collect()
}

/// Services that prefer both families are not changed by what became of the cluster, only by their writers.
fn is_left_alone(service: &Cursor<'_>, old: &Cursor<'_>) -> bool {
    let (spec, before) = (service.get("spec"), old.get("spec"));
    let is_preferring = |of: &Cursor<'_>| of.text("ipFamilyPolicy") == PREFER;
    let same = |field: &str| texts(&spec, field) == texts(&before, field);
    spec.text("type") == before.text("type")
        && is_preferring(&spec)
        && (is_preferring(&before) || before.text("ipFamilyPolicy").is_empty())
        && same("clusterIPs")
        && same("ipFamilies")
}

/// Fills in the address families of a cluster that has `families` (one, or both); errors are all that is told then.
pub fn default_families(object: &mut Value, old: Option<&Value>, families: &[&str]) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let service = Cursor::root(object);
    let spec = service.get("spec");
    let before = old.map(Cursor::root);
    if !needs_cluster_ip(&service) || before.as_ref().is_some_and(|old| is_left_alone(&service, old)) {
        return errors;
    }
    let old_spec = before.as_ref().map(|old| old.get("spec"));
    let free = is_headless(&service) && spec.map("selector").is_empty();
    let mut policy = spec.text("ipFamilyPolicy").to_owned();
    if policy.is_empty() {
        let known = old_spec.as_ref().map(|old| old.text("ipFamilyPolicy")).unwrap_or_default();
        policy = match known {
            "" if free => REQUIRE.to_owned(),
            "" => SINGLE.to_owned(),
            known => known.to_owned(),
        };
    }
    service_rules::cluster_ips(&mut errors, &service, before.as_ref());
    if !errors.is_empty() {
        return errors;
    }
    let (mut addresses, mut wanted) = (texts(&spec, "clusterIPs"), texts(&spec, "ipFamilies"));
    let wrong = |errors: &mut FieldErrors, detail: &str| {
        errors.push(FieldError::invalid(&spec.at("ipFamilyPolicy"), policy.as_str(), detail));
    };
    if let Some(old) = &old_spec {
        let (had, were) = (texts(old, "clusterIPs"), texts(old, "ipFamilies"));
        if policy == SINGLE {
            // To say so is enough: the second ones go.
            if addresses == had {
                addresses.truncate(1);
            }
            if wanted == were {
                wanted.truncate(1);
            }
        } else {
            if had.len() == 2 && addresses.len() == 1 {
                wrong(&mut errors, "must be 'SingleStack' to release the secondary cluster IP");
            }
            if were.len() == 2 && wanted.len() == 1 {
                wrong(&mut errors, "must be 'SingleStack' to release the secondary IP family");
            }
        }
    }
    if policy == SINGLE && addresses.len() == 2 {
        wrong(&mut errors, "must be 'RequireDualStack' or 'PreferDualStack' when multiple cluster IPs are specified");
    }
    if policy == SINGLE && wanted.len() == 2 {
        wrong(&mut errors, "must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified");
    }
    for (index, address) in addresses.iter().enumerate().take_while(|(_, address)| *address != "None") {
        if index < wanted.len() {
            continue;
        }
        let family = family_of(address);
        if families.contains(&family) {
            wanted.push(family.to_owned());
        } else {
            let path = spec.at("clusterIPs").index(index);
            let detail = format!("{family} is not configured on this cluster");
            errors.push(FieldError::invalid(&path, addresses.clone(), detail));
            // All are shown each time.
            if errors.is_full() {
                break;
            }
        }
    }
    if !errors.is_empty() {
        return errors;
    }
    if !free {
        if policy == REQUIRE && families.len() < 2 {
            wrong(&mut errors, "this cluster is not configured for dual-stack services");
        }
        for (index, family) in wanted.iter().enumerate().filter(|(_, family)| !families.contains(&family.as_str())) {
            let path = spec.at("ipFamilies").index(index);
            errors.push(FieldError::invalid(&path, family.as_str(), "not configured on this cluster"));
        }
        if !errors.is_empty() {
            return errors;
        }
    }
    if wanted.is_empty() {
        wanted.push(families.first().copied().unwrap_or("IPv4").to_owned());
    }
    if policy != SINGLE && wanted.len() == 1 && (free || families.len() == 2) {
        wanted.push(if wanted[0] == "IPv4" { "IPv6" } else { "IPv4" }.to_owned());
    }
    let spec = object_at(object, &["spec"]);
    if !addresses.is_empty() {
        spec.insert("clusterIPs".into(), addresses.into());
    }
    spec.insert("ipFamilyPolicy".into(), policy.into());
    spec.insert("ipFamilies".into(), wanted.into());
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ONE: &[&str] = &["IPv4"];
    const BOTH: &[&str] = &["IPv4", "IPv6"];

    fn outcome(spec: Value, old: Option<Value>, families: &[&str]) -> Result<Value, String> {
        let whole = |mut spec: Value| {
            spec["type"] = json!("ClusterIP");
            if spec["selector"].is_null() {
                spec["selector"] = json!({ "a": "b" });
            }
            json!({ "metadata": { "name": "s" }, "spec": spec })
        };
        let (mut service, old) = (whole(spec), old.map(whole));
        let errors = default_families(&mut service, old.as_ref(), families);
        match errors.first() {
            None => Ok(json!([service["spec"]["ipFamilyPolicy"], service["spec"]["ipFamilies"]])),
            Some(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn families_are_filled_in_as_upstream_does() {
        let single = |family: &str| json!([SINGLE, [family]]);
        for (spec, families, wanted) in [
            (json!({}), ONE, single("IPv4")),
            (json!({}), BOTH, single("IPv4")),
            (json!({}), &["IPv6", "IPv4"], single("IPv6")),
            (json!({ "ipFamilies": ["IPv6"] }), BOTH, single("IPv6")),
            (json!({ "clusterIP": "fd00::5", "clusterIPs": ["fd00::5"] }), BOTH, single("IPv6")),
            (json!({ "ipFamilyPolicy": PREFER }), ONE, json!([PREFER, ["IPv4"]])),
            (json!({ "ipFamilyPolicy": PREFER }), BOTH, json!([PREFER, ["IPv4", "IPv6"]])),
            (json!({ "ipFamilyPolicy": REQUIRE, "ipFamilies": ["IPv6"] }), BOTH, json!([REQUIRE, ["IPv6", "IPv4"]])),
            (
                json!({ "clusterIP": "None", "clusterIPs": ["None"], "selector": {} }),
                ONE,
                json!([REQUIRE, ["IPv4", "IPv6"]]),
            ),
        ] {
            assert_eq!(outcome(spec.clone(), None, families), Ok(wanted), "{spec}");
        }
        for (spec, families, wanted) in [
            (json!({ "ipFamilyPolicy": REQUIRE }), ONE, "not configured for dual-stack"),
            (json!({ "ipFamilies": ["IPv6"] }), ONE, "Invalid value: \"IPv6\": not configured"),
            (json!({ "ipFamilies": ["IPv4", "IPv6"] }), BOTH, "when multiple IP families are specified"),
            (
                json!({ "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1", "fd00::1"] }),
                BOTH,
                "when multiple cluster IPs are specified",
            ),
            (json!({ "clusterIP": "fd00::1", "clusterIPs": ["fd00::1"] }), ONE, "IPv6 is not configured"),
        ] {
            let error = outcome(spec.clone(), None, families).unwrap_err();
            assert!(error.contains(wanted), "{spec}: {error}");
        }
    }

    #[test]
    fn families_change_when_a_writer_says_so() {
        let two = json!({
            "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1", "fd00::1"], "ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": REQUIRE,
        });
        let one = json!({
            "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ipFamilies": ["IPv4"], "ipFamilyPolicy": SINGLE,
        });
        let with = |spec: &Value, field: &str, value: Value| {
            let mut spec = spec.clone();
            spec[field] = value;
            spec
        };
        let down = with(&two, "ipFamilyPolicy", json!(SINGLE));
        assert_eq!(outcome(down, Some(two.clone()), BOTH), Ok(json!([SINGLE, ["IPv4"]])));
        let up = with(&one, "ipFamilyPolicy", json!(PREFER));
        assert_eq!(outcome(up.clone(), Some(one.clone()), BOTH), Ok(json!([PREFER, ["IPv4", "IPv6"]])));
        // The cluster got a second family: nobody asked for it.
        assert_eq!(outcome(up.clone(), Some(up), BOTH), Ok(json!([PREFER, ["IPv4"]])));
        let fewer = with(&two, "clusterIPs", json!(["10.0.0.1"]));
        let error = outcome(fewer, Some(two), BOTH).unwrap_err();
        assert!(error.contains("must be 'SingleStack' to release the secondary cluster IP"), "{error}");
    }
}
