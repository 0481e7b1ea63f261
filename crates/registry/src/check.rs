//! Checks that several kinds share.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};

use ferry_meta::{FieldErrors, Path, names};
use ferry_semantics::cidr;
use serde_json::Value;

use crate::cursor::{Cursor, Report};

/// A label selector; absent ones are fine.
pub fn label_selector(errors: &mut FieldErrors, selector: &Cursor<'_>) {
    errors.extend(crate::object_meta::label_errors(selector.map("matchLabels"), &selector.at("matchLabels")));
    for requirement in selector.items("matchExpressions") {
        let values = requirement.array("values");
        match requirement.text("operator") {
            "In" | "NotIn" if values.is_empty() => {
                errors.required(requirement.at("values"), "must be specified when `operator` is 'In' or 'NotIn'");
            }
            "In" | "NotIn" => {}
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                errors.forbidden(requirement.at("values"), detail);
            }
            "Exists" | "DoesNotExist" => {}
            other => errors.invalid(requirement.at("operator"), other, "not a valid selector operator"),
        }
        errors.reasons(requirement.at("key"), requirement.text("key"), names::label_key(requirement.text("key")));
        for value in requirement.items("values") {
            errors.reasons(value.path.clone(), value.as_text(), names::label_value(value.as_text()));
        }
    }
}

/// Whether the labels satisfy a label selector; an absent selector matches nothing, an empty one all.
pub fn selects(selector: &Value, labels: &serde_json::Map<String, Value>) -> bool {
    if selector.is_null() {
        return false;
    }
    let at = Cursor::root(selector);
    let equal = at.map("matchLabels").iter().all(|(key, value)| labels.get(key) == Some(value));
    equal
        && at.items("matchExpressions").iter().all(|requirement| {
            let value = labels.get(requirement.text("key"));
            let listed = value.is_some_and(|value| requirement.array("values").contains(value));
            match requirement.text("operator") {
                "In" => listed,
                "NotIn" => !listed,
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        })
}

/// A label selector as its type prints: labels before expressions.
pub fn shown_selector(selector: &Value) -> String {
    let part = |key: &str| selector.get(key).filter(|v| !v.is_null()).map(|v| format!("\"{key}\":{v}"));
    if selector.is_null() {
        return "null".to_owned();
    }
    format!(
        "{{{}}}",
        [part("matchLabels"), part("matchExpressions")].into_iter().flatten().collect::<Vec<_>>().join(",")
    )
}

pub fn bad_selector(errors: &mut FieldErrors, selector: &Cursor<'_>, detail: impl Into<String>) {
    let error = ferry_meta::FieldError::invalid(&selector.path, selector.value.clone(), detail);
    errors.push(error.shown_as(shown_selector(selector.value)));
}

/// The selector of a workload stays.
pub fn same_selector(errors: &mut FieldErrors, new: &Cursor<'_>, old: &Cursor<'_>) {
    if new.value != old.value {
        bad_selector(errors, new, crate::cursor::IMMUTABLE);
    }
}

/// Whether every requirement could be read at all.
pub fn is_sound_selector(selector: &Cursor<'_>) -> bool {
    let mut errors = FieldErrors::new();
    label_selector(&mut errors, selector);
    errors.is_empty()
}

pub fn is_empty_selector(selector: &Cursor<'_>) -> bool {
    selector.map("matchLabels").is_empty() && selector.array("matchExpressions").is_empty()
}

/// A port by number or by name.
pub fn port_number_or_name(errors: &mut FieldErrors, port: &Cursor<'_>) {
    match port.value {
        Value::String(name) => errors.reasons(port.path.clone(), name, names::port_name(name)),
        other => {
            let number = other.as_i64().unwrap_or_default();
            for reason in names::port_number(number) {
                errors.invalid(port.path.clone(), number, reason);
            }
        }
    }
}

/// An address as older fields take it: well-formed, no leading zeros, no IPv4 in IPv6.
pub fn ip(errors: &mut FieldErrors, path: Path, text: &str) {
    match text.parse::<IpAddr>() {
        Ok(IpAddr::V6(six)) if six.to_ipv4_mapped().is_some() => {
            errors.invalid(path, text, "must not be an IPv4-mapped IPv6 address");
        }
        Ok(_) => {}
        Err(_) if without_leading_zeros(text).parse::<Ipv4Addr>().is_ok() => {
            errors.invalid(path, text, "must not have leading 0s");
        }
        Err(_) => errors.invalid(path, text, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"),
    }
}

/// An address as newer fields take it: also in canonical form.
pub fn canonical_ip(errors: &mut FieldErrors, path: Path, text: &str) {
    let before = errors.len();
    ip(errors, path.clone(), text);
    if errors.len() == before
        && let Ok(address) = text.parse::<IpAddr>()
        && address.to_string() != text
    {
        errors.invalid(path, text, format!("must be in canonical form (\"{address}\")"));
    }
}

pub(crate) fn without_leading_zeros(text: &str) -> String {
    let part = |part: &str| match part.trim_start_matches('0') {
        "" if !part.is_empty() => "0".to_owned(),
        rest => rest.to_owned(),
    };
    text.split('.').map(part).collect::<Vec<_>>().join(".")
}

/// A network as older fields take it.
pub fn cidr(errors: &mut FieldErrors, path: Path, text: &str) {
    const WRONG: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
    let Some(range) = cidr::parse(text) else {
        let sloppy = text.split_once('/').map(|(address, length)| {
            let length = length.trim_start_matches('0');
            format!("{}/{}", without_leading_zeros(address), if length.is_empty() { "0" } else { length })
        });
        let zeros = sloppy.is_some_and(|text| cidr::parse(&text).is_some());
        let detail = if zeros { "must not have leading 0s in IP or prefix length" } else { WRONG };
        return errors.invalid(path, text, detail);
    };
    if matches!(range.addr(), IpAddr::V6(six) if six.to_ipv4_mapped().is_some()) {
        errors.invalid(path, text, "must not have an IPv4-mapped IPv6 address");
    } else if range.network() != range.addr() {
        errors.invalid(path, text, "must not have bits set beyond the prefix length");
    }
}

/// A network as newer fields take it: also in canonical form.
pub fn canonical_cidr(errors: &mut FieldErrors, path: Path, text: &str) {
    let before = errors.len();
    cidr(errors, path.clone(), text);
    if errors.len() == before
        && let Some(range) = cidr::parse(text)
        && range.to_string() != text
    {
        errors.invalid(path, text, format!("must be in canonical form (\"{range}\")"));
    }
}

/// The conditions of a status, as newer kinds have them. What is missing is found by a later pass and so comes last.
pub fn conditions(errors: &mut FieldErrors, status: &Cursor<'_>, key: &str) {
    const STATES: [&str; 3] = ["False", "True", "Unknown"];
    let mut seen: HashSet<&str> = HashSet::new();
    for condition in status.items(key) {
        let kind = condition.text("type");
        if seen.contains(&kind) {
            errors.duplicate(condition.path.clone(), kind);
        }
        seen.insert(kind);
        if kind.is_empty() {
            errors.required(condition.at("type"), "is required");
        } else {
            errors.reasons(condition.at("type"), kind, names::label_key(kind));
        }
        match condition.text("status") {
            "" => errors.required(condition.at("status"), ""),
            state if STATES.contains(&state) => {}
            state => errors.unsupported(condition.at("status"), state, &STATES),
        }
        let generation = condition.number("observedGeneration");
        if generation < 0 {
            errors.invalid(condition.at("observedGeneration"), generation, "must be greater than or equal to zero");
        }
        if condition.text("lastTransitionTime").is_empty() {
            errors.required(condition.at("lastTransitionTime"), "");
        }
        let reason = condition.text("reason");
        if reason.is_empty() {
            errors.required(condition.at("reason"), "");
        } else {
            if !is_condition_reason(reason) {
                let why = "a condition reason must start with alphabetic character, optionally followed by a string of \
                           alphanumeric characters or '_,:', and must end with an alphanumeric character or '_'";
                let examples = ["my_name", "MY_NAME", "MyName", "ReasonA,ReasonB", "ReasonA:ReasonB"];
                let detail = names::regex_reason(why, "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?", &examples);
                errors.invalid(condition.at("reason"), reason, detail);
            }
            if reason.len() > 1024 {
                errors.push(ferry_meta::FieldError::too_long(&condition.at("reason"), 1024));
            }
        }
        if condition.text("message").len() > 32 * 1024 {
            errors.push(ferry_meta::FieldError::too_long(&condition.at("message"), 32 * 1024));
        }
    }
}

fn is_condition_reason(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphabetic)
        && bytes.last().is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_')
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || b"_,:".contains(b))
}

/// A file's permission bits.
pub fn file_mode(errors: &mut FieldErrors, parent: &Cursor<'_>, key: &str) {
    if let Some(mode) = parent.int(key)
        && !(0..=0o777).contains(&mode)
    {
        errors.invalid(parent.at(key), mode, "must be a number between 0 and 0777 (octal), both inclusive");
    }
}

/// A user or group id.
pub fn unix_id(errors: &mut FieldErrors, parent: &Cursor<'_>, key: &str) {
    if let Some(id) = parent.int(key)
        && !(0..=i64::from(i32::MAX)).contains(&id)
    {
        errors.invalid(parent.at(key), id, names::in_range(0, i32::MAX.into()));
    }
}

pub fn no_backsteps(errors: &mut FieldErrors, path: Path, text: &str) {
    if text.split('/').any(|part| part == "..") {
        errors.invalid(path, text, "must not contain '..'");
    }
}

/// A relative path that stays inside its folder.
pub fn descending_path(errors: &mut FieldErrors, path: Path, text: &str) {
    if text.starts_with('/') {
        errors.invalid(path.clone(), text, "must be a relative path");
    }
    no_backsteps(errors, path, text);
}

/// As `descending_path`, and not a name that volumes keep for themselves.
pub fn unreserved_path(errors: &mut FieldErrors, path: Path, text: &str) {
    descending_path(errors, path.clone(), text);
    if text.starts_with("..") && !text.starts_with("../") {
        errors.invalid(path, text, "must not start with '..'");
    }
}

/// An amount or a share: `3` or `25%`, as rolling updates and disruption budgets take it.
pub fn int_or_percent(errors: &mut FieldErrors, at: &Cursor<'_>) {
    match at.value {
        Value::String(text) => {
            for reason in names::percent(text) {
                errors.invalid(at.path.clone(), text.as_str(), reason);
            }
        }
        other => errors.non_negative(at.path.clone(), other.as_i64().unwrap_or_default()),
    }
}

/// The share of a percent text.
pub fn percent_of(value: &Value) -> Option<i64> {
    value.as_str()?.strip_suffix('%')?.parse().ok()
}

pub fn at_most_hundred_percent(errors: &mut FieldErrors, at: &Cursor<'_>) {
    if percent_of(at.value).is_some_and(|share| share > 100) {
        errors.invalid(at.path.clone(), at.value.clone(), "must not be greater than 100%");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_networks_are_judged_as_upstream_does() {
        type Check = fn(&mut FieldErrors, Path, &str);
        let check = |rule: Check, text: &str, want: Option<&str>| {
            let mut errors = FieldErrors::new();
            rule(&mut errors, Path::new("a"), text);
            assert_eq!(errors.first().map(|e| e.detail.as_str()), want, "{text}");
        };
        check(ip, "10.0.0.1", None);
        check(ip, "10.0.0.01", Some("must not have leading 0s"));
        check(ip, "::ffff:1.2.3.4", Some("must not be an IPv4-mapped IPv6 address"));
        check(ip, "x", Some("must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"));
        check(canonical_ip, "2001:DB8::1", Some("must be in canonical form (\"2001:db8::1\")"));
        check(cidr, "10.0.0.0/8", None);
        check(cidr, "FD00::/64", None);
        check(canonical_cidr, "fd00::/64", None);
        check(canonical_cidr, "FD00::/64", Some("must be in canonical form (\"fd00::/64\")"));
        check(canonical_cidr, "10.0.0.1/8", Some("must not have bits set beyond the prefix length"));
        check(cidr, "10.0.0.1/8", Some("must not have bits set beyond the prefix length"));
        check(cidr, "10.0.0.0/08", Some("must not have leading 0s in IP or prefix length"));
        check(cidr, "10.0.0.0", Some("must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"));
    }

    #[test]
    fn selectors_select() {
        let labels = serde_json::json!({"app": "a", "tier": "x"});
        let labels = labels.as_object().expect("a map");
        let check = |selector: Value, want: bool| assert_eq!(selects(&selector, labels), want, "{selector}");
        check(Value::Null, false);
        check(serde_json::json!({}), true);
        check(serde_json::json!({"matchLabels": {"app": "a"}}), true);
        check(serde_json::json!({"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["x"]}]}), false);
        check(serde_json::json!({"matchExpressions": [{"key": "none", "operator": "DoesNotExist"}]}), true);
    }
}
