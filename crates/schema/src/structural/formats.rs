//! The formats of strings that are checked; unknown ones allow everything, as upstream has it.

use std::net::{Ipv4Addr, Ipv6Addr};

use base64::Engine;

pub(super) fn fits(format: &str, text: &str) -> bool {
    match format {
        "date-time" | "datetime" => {
            jiff::Timestamp::strptime("%Y-%m-%dT%H:%M:%S%.f%:z", text.replace(['Z', 'z'], "+00:00").replace('t', "T"))
                .is_ok()
        }
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
        "bsonobjectid" => text.len() == 24 && text.bytes().all(|b| b.is_ascii_hexdigit()),
        _ => true,
    }
}

fn is_uuid(text: &str, version: Option<char>) -> bool {
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    let shape = digits.len() == 32 && digits.bytes().all(|b| b.is_ascii_hexdigit());
    shape && version.is_none_or(|version| digits.chars().nth(12) == Some(version))
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
