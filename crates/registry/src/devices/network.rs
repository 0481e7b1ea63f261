//! What a driver tells of a network device: the name of its interface, its addresses.

use std::net::{IpAddr, Ipv6Addr};

use ferry_meta::{FieldError, FieldErrors};

use super::{fits, repeated};
use crate::check::without_leading_zeros;
use crate::cursor::{Cursor, Report};

pub(super) fn check(errors: &mut FieldErrors, late: &mut FieldErrors, device: &Cursor<'_>) {
    let data = device.get("networkData");
    let short = |late: &mut FieldErrors, key: &str, most: usize| {
        if data.text(key).len() > most {
            late.push(FieldError::too_long(&data.at(key), most));
        }
    };
    short(late, "interfaceName", 256);
    if fits(late, &data, "ips", 16) {
        let addresses = data.items("ips");
        for address in &addresses {
            let text = address.as_text();
            let wrong = match canonical(text) {
                None => "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)".to_owned(),
                Some(canonical) if canonical != text => format!("must be in canonical form (\"{canonical}\")"),
                Some(_) => continue,
            };
            errors.invalid(address.path.clone(), text, wrong);
        }
        repeated(late, &addresses, |address| address.value.clone());
    }
    short(late, "hardwareAddress", 128);
}

/// An address with the length of its network's prefix, as it should be written.
fn canonical(text: &str) -> Option<String> {
    let (address, length) = text.split_once('/')?;
    let digits = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
    let length: u8 = digits.then(|| length.parse().ok())??;
    let parsed = address.parse().or_else(|_| without_leading_zeros(address).parse::<IpAddr>()).ok()?;
    let most = if parsed.is_ipv4() { 32 } else { 128 };
    if length > most {
        return None;
    }
    Some(match parsed {
        // An IPv4 address in an IPv6 one is taken out.
        IpAddr::V6(six) if six.to_ipv4_mapped().is_some() => {
            format!("{}/{}", mapped(six), if length > 32 { length.saturating_sub(96) } else { length })
        }
        address => format!("{address}/{length}"),
    })
}

fn mapped(six: Ipv6Addr) -> IpAddr {
    six.to_ipv4_mapped().map_or(six.into(), IpAddr::from)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn addresses_of_interfaces_are_written_in_one_way() {
        for (text, wanted) in [
            ("10.0.0.1/24", Some("10.0.0.1/24")),
            ("fd00::1/64", Some("fd00::1/64")),
            ("FD00::1/64", Some("fd00::1/64")),
            ("10.0.0.01/24", Some("10.0.0.1/24")),
            ("10.0.0.1/024", Some("10.0.0.1/24")),
            ("::ffff:10.0.0.1/120", Some("10.0.0.1/24")),
            ("10.0.0.1", None),
            ("10.0.0.1/33", None),
            ("10.0.0.1/", None),
            ("10.0.0.1/+8", None),
            ("fd00::1/129", None),
        ] {
            assert_eq!(canonical(text).as_deref(), wanted, "{text}");
        }
    }

    #[test]
    fn what_drivers_tell_is_bounded() {
        let addresses: Vec<String> = (0..17).map(|n| format!("10.0.0.{n}/24")).collect();
        for (data, wanted) in [
            (json!({"interfaceName": "n".repeat(256), "ips": addresses[..16], "hardwareAddress": "h".repeat(128)}), ""),
            (json!({"interfaceName": "n".repeat(257)}), "networkData.interfaceName"),
            (json!({"hardwareAddress": "n".repeat(129)}), "networkData.hardwareAddress"),
            (json!({"ips": addresses}), "networkData.ips"),
            (json!({"ips": ["10.0.0.1/24", "10.0.0.1/24"]}), "networkData.ips[1]"),
        ] {
            let device = json!({"networkData": data});
            let (mut errors, mut late) = (FieldErrors::new(), FieldErrors::new());
            check(&mut errors, &mut late, &Cursor::root(&device));
            assert!(errors.is_empty(), "{errors:?}");
            let paths: Vec<String> = late.iter().map(|error| error.path.to_string()).collect();
            assert_eq!(paths.join(";"), wanted);
        }
    }
}
