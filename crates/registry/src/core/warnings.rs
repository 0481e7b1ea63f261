//! What several kinds accept but warn of: labels of nodes that have new names, addresses in odd forms, fractions of bytes.

use std::net::IpAddr;

use ferry_meta::{Path, names};
use ferry_semantics::cidr::IpNet;

use crate::cursor::Cursor;

const OLD_LABELS: [(&str, &str); 8] = [
    ("beta.kubernetes.io/arch", "deprecated since v1.14; use \"kubernetes.io/arch\" instead"),
    ("beta.kubernetes.io/os", "deprecated since v1.14; use \"kubernetes.io/os\" instead"),
    (
        "failure-domain.beta.kubernetes.io/region",
        "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead",
    ),
    ("failure-domain.beta.kubernetes.io/zone", "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead"),
    ("beta.kubernetes.io/instance-type", "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead"),
    ("app.kubernetes.io/created-by", "deprecated since v1.9"),
    ("scheduler.alpha.kubernetes.io/preferAvoidPods", "deprecated since v1.22; use Taints and Tolerations instead"),
    ("node-role.kubernetes.io/master", "use \"node-role.kubernetes.io/control-plane\" instead"),
];

/// What to say of a label of nodes that has a new name.
pub fn old_label(key: &str) -> Option<&'static str> {
    OLD_LABELS.iter().find(|(old, _)| *old == key).map(|(_, message)| *message)
}

/// One term of a node selector; the values of mere wishes are not validated, and so are doubted here.
pub fn term(term: &Cursor<'_>, doubt_values: bool) -> Vec<String> {
    let mut found = Vec::new();
    for expression in term.items("matchExpressions") {
        let key = expression.text("key");
        found.extend(old_label(key).map(|message| format!("{}: {key} is {message}", expression.at("key"))));
        for value in expression.items("values").iter().filter(|_| doubt_values) {
            let text = value.as_text();
            let reasons = names::label_value(text).into_iter();
            found.extend(reasons.map(|reason| format!("{}: {text} is invalid, {reason}", value.path)));
        }
    }
    found
}

/// A quantity of bytes that is not whole.
pub fn fraction(resources: &Cursor<'_>, list: &str, name: &str) -> Option<String> {
    let quantity = resources.get(list).quantity(name)?;
    // Amounts too large to count in thousandths are whole.
    let milli = quantity.milli_value();
    (milli % 1000 != 0 && milli != i64::MAX).then(|| {
        let path = resources.at(list).key(name);
        format!("{path}: fractional byte value \"{quantity}\" is invalid, must be an integer")
    })
}

/// An address that is not written as it should be.
pub fn address(path: &Path, text: &str) -> Option<String> {
    let IpAddr::V6(address) = text.parse().ok()? else { return None };
    if let Some(four) = address.to_ipv4_mapped() {
        return Some(format!("{path}: non-standard IP address {text:?} is invalid: use \"{four}\""));
    }
    (address.to_string() != text)
        .then(|| format!("{path}: IPv6 address {text:?} should be in RFC 5952 canonical format (\"{address}\")"))
}

/// Addresses of a load balancer in the status of a Service or an Ingress.
pub fn balancer(object: &Cursor<'_>) -> Vec<String> {
    let balanced = object.get("status").get("loadBalancer").items("ingress");
    balanced.iter().filter_map(|ingress| address(&ingress.path, ingress.text("ip"))).collect()
}

/// A network with more bits than its prefix, or in an odd form.
pub fn network(path: &Path, text: &str) -> Vec<String> {
    let Some((address, bits)) = text.split_once('/') else { return Vec::new() };
    let (Ok(address), Ok(bits)) = (address.parse::<IpAddr>(), bits.parse::<u32>()) else { return Vec::new() };
    let mapped = matches!(address, IpAddr::V6(six) if six.to_ipv4_mapped().is_some());
    // An IPv4 address written as IPv6 is read as IPv4 upstream.
    let (address, bits) = if mapped { (address.to_canonical(), bits.saturating_sub(96)) } else { (address, bits) };
    let Some(range) = u8::try_from(bits).ok().and_then(|bits| IpNet::new(address, bits).ok()) else {
        return Vec::new();
    };
    let (first, length) = (range.network(), range.max_prefix_len());
    let mut found = Vec::new();
    if first != address {
        found.push(format!(
            "{path}: CIDR value {text:?} is ambiguous in this context (should be \"{first}/{bits}\" or \"{address}/{length}\"?)"
        ));
    }
    if mapped {
        found.push(format!("{path}: non-standard CIDR value {text:?} is invalid: use \"{first}/{bits}\""));
    }
    if found.is_empty() && length == 128 && format!("{address}/{bits}") != text {
        found.push(format!(
            "{path}: IPv6 CIDR value {text:?} should be in RFC 5952 canonical format (\"{address}/{bits}\")"
        ));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_addresses_of_balancers_are_named() {
        let object = serde_json::json!({"status": {"loadBalancer": {"ingress": [
            {"ip": "10.0.0.1"}, {"hostname": "a.example"}, {"ip": "FD00::1"},
        ]}}});
        assert_eq!(
            balancer(&Cursor::root(&object)),
            [
                "status.loadBalancer.ingress[2]: IPv6 address \"FD00::1\" should be in RFC 5952 canonical format (\"fd00::1\")"
            ]
        );
    }

    #[test]
    fn odd_networks_are_named() {
        let check = |text: &str, want: &[&str]| {
            assert_eq!(network(&Path::new("p"), text), want.iter().map(|w| format!("p: {w}")).collect::<Vec<_>>());
        };
        check("10.0.0.0/8", &[]);
        check("fd00::/64", &[]);
        check(
            "10.0.0.5/8",
            &["CIDR value \"10.0.0.5/8\" is ambiguous in this context (should be \"10.0.0.0/8\" or \"10.0.0.5/32\"?)"],
        );
        check("FD00::/64", &["IPv6 CIDR value \"FD00::/64\" should be in RFC 5952 canonical format (\"fd00::/64\")"]);
        check(
            "::ffff:10.0.0.0/104",
            &["non-standard CIDR value \"::ffff:10.0.0.0/104\" is invalid: use \"10.0.0.0/8\""],
        );
    }
}
