//! IPAddresses and ServiceCIDRs: the books of who has which ClusterIP.

use ferry_meta::{FieldErrors, Path, names};
use ferry_semantics::cidr;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::cells;
use crate::check;
use crate::cursor::{Cursor, IMMUTABLE, Report};
use crate::plain::Plain;
use crate::strategy::{Context, Strategy};

pub struct IpAddress(pub Plain);
pub struct ServiceCidr(pub Plain);

impl Strategy for IpAddress {
    fn plain(&self) -> &Plain {
        &self.0
    }

    /// An address names its object.
    fn validate_name(&self, name: &str, _prefix: bool) -> Vec<String> {
        let mut errors = FieldErrors::new();
        check::canonical_ip(&mut errors, Path::new("name"), name);
        errors.into_iter().map(|error| error.detail).collect()
    }

    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> FieldErrors {
        // What is missing altogether is found by a later pass, on an update in its place.
        let (mut errors, missing) = parent_errors(object, true);
        errors.extend(missing);
        errors
    }

    fn validate_update(&self, _context: &Context<'_>, object: &Value, old: &Value) -> FieldErrors {
        let (mut errors, _) = parent_errors(object, false);
        let (new, old) = (Cursor::root(object).get("spec"), Cursor::root(old).get("spec"));
        if new.raw("parentRef") != old.raw("parentRef") {
            errors.invalid(new.at("parentRef"), Value::Null, IMMUTABLE);
        }
        errors
    }

    /// Upstream's rows have one cell more than the table has columns.
    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let mut cells: Vec<Value> =
            self.0.cells.iter().map(|expression| cells::evaluate(expression, object, now)).collect();
        cells.push(cells::age(object, now).into());
        cells
    }
}

/// What is wrong with the owner of an address, and what of it is missing where that is told later.
fn parent_errors(object: &Value, later: bool) -> (FieldErrors, FieldErrors) {
    let (mut errors, mut missing) = (FieldErrors::new(), FieldErrors::new());
    let parent = Cursor::root(object).get("spec").get("parentRef");
    if !parent.exists() {
        errors.required(parent.path, "");
        return (errors, missing);
    }
    let group = parent.text("group");
    if !group.is_empty() {
        errors.reasons(parent.at("group"), group, names::dns1123_subdomain(group));
    }
    for key in ["resource", "name", "namespace"] {
        let text = parent.text(key);
        errors.reasons(parent.at(key), text, names::path_segment(text));
        if text.is_empty() && key != "namespace" {
            let found = if later { &mut missing } else { &mut errors };
            found.required(parent.at(key), "");
        }
    }
    (errors, missing)
}

impl Strategy for ServiceCidr {
    fn plain(&self) -> &Plain {
        &self.0
    }

    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        networks(&mut errors, &Cursor::root(object).get("spec"));
        errors
    }

    fn validate_update(&self, context: &Context<'_>, object: &Value, old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        if !context.subresource.is_empty() {
            return errors;
        }
        let (spec, was) = (Cursor::root(object).get("spec"), Cursor::root(old).get("spec"));
        let (new, before) = (spec.items("cidrs"), was.array("cidrs"));
        match (before.len(), new.len()) {
            (a, b) if a == b => {
                for (cidr, _) in new.iter().zip(before).filter(|(cidr, before)| cidr.value != *before) {
                    errors.invalid(cidr.path.clone(), cidr.as_text(), IMMUTABLE);
                }
            }
            (1, 2) => {
                if new[0].value != &before[0] {
                    errors.invalid(new[0].path.clone(), new[0].as_text(), IMMUTABLE);
                }
                networks(&mut errors, &spec);
            }
            _ => errors.invalid(spec.at("cidrs"), spec.raw("cidrs").clone(), IMMUTABLE),
        }
        errors
    }
}

fn networks(errors: &mut FieldErrors, spec: &Cursor<'_>) {
    let cidrs = spec.items("cidrs");
    match cidrs.len() {
        0 => return errors.required(spec.at("cidrs"), "at least one CIDR required"),
        1 | 2 => {}
        _ => {
            let shown = json!({"CIDRs": spec.raw("cidrs")});
            return errors.invalid(spec.at("cidrs"), shown, "may only hold up to 2 values");
        }
    }
    for cidr in &cidrs {
        check::canonical_cidr(errors, cidr.path.clone(), cidr.as_text());
    }
    let six = |at: &Cursor<'_>| at.as_text().contains(':');
    if let [first, second] = cidrs.as_slice()
        && cidrs.iter().all(|at| cidr::parse(at.as_text()).is_some())
        && six(first) == six(second)
    {
        let detail = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
        errors.invalid(spec.at("cidrs"), spec.raw("cidrs").clone(), detail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A second name for one address would be a second owner of it.
    #[test]
    fn an_address_has_one_name() {
        for (name, wanted) in [
            ("10.0.0.1", ""),
            ("fd00::1", ""),
            ("FD00::1", "must be in canonical form (\"fd00::1\")"),
            ("::ffff:10.0.0.1", "must not be an IPv4-mapped IPv6 address"),
            ("10.0.0.01", "must not have leading 0s"),
            ("a", "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"),
        ] {
            let strategy = IpAddress(<Plain as Default>::default());
            assert_eq!(strategy.validate_name(name, false).join(";"), wanted, "{name}");
        }
    }

    #[test]
    fn more_than_two_networks_are_shown_as_upstreams_code_names_them() {
        let mut errors = FieldErrors::new();
        networks(&mut errors, &Cursor::root(&json!({"cidrs": ["a", "b", "c"]})));
        let line = "cidrs: Invalid value: {\"CIDRs\":[\"a\",\"b\",\"c\"]}: may only hold up to 2 values";
        assert_eq!(errors.iter().map(|error| error.line()).collect::<Vec<_>>(), [line]);
    }

    #[test]
    fn networks_are_written_in_one_way() {
        for (cidrs, wanted) in [
            (json!(["10.0.0.0/24", "fd00::/64"]), ""),
            (json!(["FD00::/64"]), "must be in canonical form (\"fd00::/64\")"),
            (json!(["10.0.0.1/24"]), "must not have bits set beyond the prefix length"),
        ] {
            let mut errors = FieldErrors::new();
            networks(&mut errors, &Cursor::root(&json!({"cidrs": cidrs})));
            let said: Vec<&str> = errors.iter().map(|error| &*error.detail).collect();
            assert_eq!(said.join(";"), wanted, "{cidrs}");
        }
    }
}
