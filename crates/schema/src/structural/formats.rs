//! The formats that are checked; others are as if they were not there, as upstream has it.

use std::net::{Ipv4Addr, Ipv6Addr};

use base64::Engine;

/// Whether a type can have this format.
pub fn is_known(kind: &str, format: &str) -> bool {
    match kind {
        "" | "string" => STRINGS.contains(&&*format.replace('-', "")),
        "integer" => matches!(format, "int32" | "int64"),
        "number" => matches!(format, "float" | "double"),
        _ => false,
    }
}

/// Without their hyphens.
const STRINGS: [&str; 26] = [
    "bsonobjectid",
    "uri",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "cidr",
    "mac",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
    "isbn",
    "isbn10",
    "isbn13",
    "creditcard",
    "ssn",
    "hexcolor",
    "rgbcolor",
    "byte",
    "password",
    "date",
    "duration",
    "datetime",
    "k8sshortname",
    "k8slongname",
];

pub(super) fn fits(format: &str, text: &str) -> bool {
    match format {
        "date-time" | "datetime" => is_time(text),
        "date" => text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok(),
        "duration" => ferry_semantics::duration::parse_format(text).is_some(),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.contains(':') && text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => is_network(text),
        "byte" => base64::engine::general_purpose::STANDARD.decode(text).is_ok(),
        "uuid" => is_uuid(text, None),
        "uuid3" => is_uuid(text, Some('3')),
        "uuid4" => is_uuid(text, Some('4')),
        "uuid5" => is_uuid(text, Some('5')),
        "hostname" => is_hostname(text),
        "email" => text.split_once('@').is_some_and(|(user, host)| {
            !user.is_empty() && !user.contains(char::is_whitespace) && !host.contains('@') && is_hostname(host)
        }),
        "uri" => is_uri(text),
        "mac" => is_mac(text),
        "hexcolor" => {
            let digits = text.strip_prefix('#').unwrap_or(text);
            matches!(digits.len(), 3 | 6) && digits.bytes().all(|b| b.is_ascii_hexdigit())
        }
        "k8s-short-name" => ferry_meta::names::dns1123_label(text).is_empty(),
        "k8s-long-name" => ferry_meta::names::dns1123_subdomain(text).is_empty(),
        "bsonobjectid" => text.len() == 24 && text.bytes().all(|b| b.is_ascii_hexdigit()),
        _ => true,
    }
}

/// Up to the last second of the year 9999, which a timestamp has no room for.
fn is_time(text: &str) -> bool {
    let text = text.replace(['Z', 'z'], "+00:00").replace('t', "T");
    let parsed = jiff::fmt::strtime::parse("%Y-%m-%dT%H:%M:%S%.f%:z", text);
    parsed.is_ok_and(|parsed| parsed.to_datetime().is_ok())
}

fn is_uuid(text: &str, version: Option<char>) -> bool {
    // Each hyphen may be left out, and stands nowhere else.
    let mut digits = String::with_capacity(32);
    let mut rest = text;
    for (index, length) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if index > 0 {
            rest = rest.strip_prefix('-').unwrap_or(rest);
        }
        let Some((part, left)) = rest.split_at_checked(length) else { return false };
        digits.push_str(part);
        rest = left;
    }
    let shape = rest.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit());
    let variant = || matches!(digits.as_bytes()[16], b'8' | b'9' | b'a' | b'b' | b'A' | b'B');
    let of_version = |version: char| digits.chars().nth(12) == Some(version) && (version == '3' || variant());
    shape && version.is_none_or(of_version)
}

fn is_hostname(text: &str) -> bool {
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.chars().all(|c| c.is_alphanumeric() || c == '-' || c == '_')
    };
    !text.is_empty() && text.len() <= 255 && text.trim_end_matches('.').split('.').all(label)
}

fn is_uri(text: &str) -> bool {
    let absolute = text.split_once(':').is_some_and(|(scheme, rest)| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
            && !rest.is_empty()
    });
    let clean = !text.contains(|c: char| c.is_whitespace() || c.is_control());
    clean && (absolute || text.starts_with('/'))
}

fn is_network(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let (Ok(address), Ok(bits)) = (address.parse::<std::net::IpAddr>(), bits.parse::<u8>()) else { return false };
    bits <= if address.is_ipv4() { 32 } else { 128 }
}

fn is_mac(text: &str) -> bool {
    let separator = if text.contains('-') { '-' } else { ':' };
    let parts: Vec<&str> = text.split(separator).collect();
    matches!(parts.len(), 6 | 8 | 20) && parts.iter().all(|p| p.len() == 2 && p.bytes().all(|b| b.is_ascii_hexdigit()))
}
