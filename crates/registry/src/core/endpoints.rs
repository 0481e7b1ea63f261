//! Endpoints, the older list of a Service's addresses.

use std::net::IpAddr;

use ferry_meta::{FieldErrors, Path, names, object};
use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::cells;
use crate::check;
use crate::cursor::{Cursor, Report, default_to, maps_mut};
use crate::plain::Plain;
use crate::strategy::{Context, Strategy};

pub struct Endpoints(pub Plain);

pub const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];

/// An address that can be reached from elsewhere.
pub fn reachable(errors: &mut FieldErrors, path: Path, text: &str) {
    let Ok(address) = text.parse::<IpAddr>() else {
        return errors.invalid(path, text, "must be a valid IP address");
    };
    if address.is_unspecified() {
        errors.invalid(path.clone(), text, format!("may not be unspecified ({text})"));
    }
    if address.is_loopback() {
        errors.invalid(path.clone(), text, "may not be in the loopback range (127.0.0.0/8, ::1/128)");
    }
    let (link_local, link_local_multicast) = match address {
        IpAddr::V4(four) => (four.is_link_local(), four.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(six) => (six.is_unicast_link_local(), six.segments()[0] & 0xff0f == 0xff02),
    };
    if link_local {
        errors.invalid(path.clone(), text, "may not be in the link-local range (169.254.0.0/16, fe80::/10)");
    }
    if link_local_multicast {
        errors.invalid(path, text, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)");
    }
}

impl Strategy for Endpoints {
    fn plain(&self) -> &Plain {
        &self.0
    }

    fn default(&self, object: &mut Value) {
        let none = &mut Map::new();
        for subset in maps_mut(object.as_object_mut().unwrap_or(none), "subsets") {
            for port in maps_mut(subset, "ports") {
                default_to(port, "protocol", "TCP");
            }
        }
    }

    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        for subset in Cursor::root(object).items("subsets") {
            let lists = [subset.items("addresses"), subset.items("notReadyAddresses")];
            if lists.iter().all(Vec::is_empty) {
                errors.required(subset.path.clone(), "must specify `addresses` or `notReadyAddresses`");
            }
            for address in lists.iter().flatten() {
                check::ip(&mut errors, address.at("ip"), address.text("ip"));
                for (key, check) in [
                    ("hostname", names::dns1123_label as fn(&str) -> Vec<String>),
                    ("nodeName", names::dns1123_subdomain),
                ] {
                    if !address.text(key).is_empty() || (key == "nodeName" && address.has(key)) {
                        errors.reasons(address.at(key), address.text(key), check(address.text(key)));
                    }
                }
                reachable(&mut errors, address.at("ip"), address.text("ip"));
            }
            let ports = subset.items("ports");
            for port in &ports {
                let name = port.text("name");
                if ports.len() > 1 && name.is_empty() {
                    errors.required(port.at("name"), "");
                } else if !name.is_empty() {
                    errors.reasons(port.at("name"), name, names::dns1123_label(name));
                }
                for reason in names::port_number(port.number("port")) {
                    errors.invalid(port.at("port"), port.number("port"), reason);
                }
                errors.one_of(port.at("protocol"), port.text("protocol"), &PROTOCOLS);
                if let Some(protocol) = port.raw("appProtocol").as_str() {
                    errors.reasons(port.at("appProtocol"), protocol, names::qualified_name(protocol));
                }
            }
        }
        errors
    }

    fn validate_update(&self, context: &Context<'_>, object: &Value, old: &Value) -> FieldErrors {
        let same = object.get("subsets") == old.get("subsets");
        if same { FieldErrors::new() } else { self.validate_create(context, object) }
    }

    fn warnings(&self, _context: &Context<'_>, _object: &Value, _old: Option<&Value>) -> Vec<String> {
        Vec::new()
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        vec![object::name(object).into(), addresses(&Cursor::root(object)).into(), cells::age(object, now).into()]
    }
}

fn addresses(endpoints: &Cursor<'_>) -> String {
    let subsets = endpoints.items("subsets");
    if subsets.is_empty() {
        return "<none>".to_owned();
    }
    let mut all: Vec<String> = Vec::new();
    for subset in subsets {
        let hosts: Vec<&str> = subset.array("addresses").iter().filter_map(|a| a["ip"].as_str()).collect();
        let ports = subset.items("ports");
        if ports.is_empty() {
            all.extend(hosts.iter().map(|h| (*h).to_owned()));
        }
        for port in ports {
            let number = port.number("port");
            all.extend(
                hosts.iter().map(|h| if h.contains(':') { format!("[{h}]:{number}") } else { format!("{h}:{number}") }),
            );
        }
    }
    first_three(&all)
}

/// The first three, and how many more there are.
pub fn first_three(all: &[String]) -> String {
    let shown = all.iter().take(3).cloned().collect::<Vec<_>>().join(",");
    if all.len() > 3 { format!("{shown} + {} more...", all.len() - 3) } else { shown }
}
