//! ResourceClaims and their templates.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use ferry_meta::{FieldError, FieldErrors, Path, names};
use serde_json::{Map, Value};

use super::{
    binding_conditions, configuration, fits, fully_qualified_name, pool_name, repeated, repeated_items, selectors,
    toleration,
};
use crate::check;
use crate::core::pod::csi_driver_name;
use crate::core::pod::scheduling::node_selector;
use crate::cursor::{Cursor, Report, default_number, default_to, map_mut, maps_mut, object_at};
use crate::object_meta;
use crate::plain::Plain;
use crate::strategy::{Context, Strategy, common};

pub struct ResourceClaim(pub Plain);
pub struct ResourceClaimTemplate(pub Plain);

/// Of one device.
const MOST_CONDITIONS: usize = 8;
const UNKNOWN_REQUEST: &str =
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";

impl Strategy for ResourceClaim {
    fn plain(&self) -> &Plain {
        &self.0
    }

    fn default(&self, object: &mut Value) {
        default_spec(object_at(object, &["spec"]));
    }

    fn prepare_update(&self, context: &Context<'_>, object: &mut Value, old: &Value) {
        common::prepare_update(self.has_status(), self.has_generation(), context, object, old);
        if context.subresource == "status" {
            common::keep_metadata(object, old);
            forget_deallocated(object, old);
        }
    }

    fn early_errors(&self, context: &Context<'_>, object: &Value, old: Option<&Value>) -> FieldErrors {
        super::administration::check("ResourceClaim", context, object, old)
    }

    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> FieldErrors {
        claim_errors(&Cursor::root(object).get("spec"))
    }

    fn validate_update(&self, context: &Context<'_>, object: &Value, old: &Value) -> FieldErrors {
        let claim = Cursor::root(object);
        if context.subresource == "status" {
            return status(&claim, &Cursor::root(old));
        }
        let mut errors = FieldErrors::new();
        if Some(claim.get("spec").value) != old.get("spec") {
            errors.invalid(claim.at("spec"), Value::Null, crate::cursor::IMMUTABLE);
        }
        errors
    }

    fn reset_fields(&self, subresource: &str) -> Vec<&'static str> {
        if subresource.is_empty() { vec!["status"] } else { vec!["metadata", "spec"] }
    }
}

impl Strategy for ResourceClaimTemplate {
    fn plain(&self) -> &Plain {
        &self.0
    }

    fn default(&self, object: &mut Value) {
        if let Some(spec) = map_mut(object_at(object, &["spec"]), "spec") {
            default_spec(spec);
        }
    }

    fn early_errors(&self, context: &Context<'_>, object: &Value, old: Option<&Value>) -> FieldErrors {
        super::administration::check("ResourceClaimTemplate", context, object, old)
    }

    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> FieldErrors {
        let (mut errors, late) = template_errors(&Cursor::root(object).get("spec"));
        errors.extend(late);
        errors
    }

    fn validate_update(&self, _context: &Context<'_>, object: &Value, old: &Value) -> FieldErrors {
        let spec = Cursor::root(object).get("spec");
        if Some(spec.value) == old.get("spec") {
            return FieldErrors::new();
        }
        let (mut errors, late) = template_errors(&spec);
        let error = FieldError::invalid(&spec.path, spec.value.clone(), crate::cursor::IMMUTABLE);
        errors.push(error.shown_as(crate::internal::show("ResourceClaimTemplateSpec", spec.value)));
        errors.extend(late);
        errors
    }
}

fn default_spec(spec: &mut Map<String, Value>) {
    let Some(devices) = map_mut(spec, "devices") else { return };
    for request in maps_mut(devices, "requests") {
        if let Some(exactly) = map_mut(request, "exactly") {
            default_request(exactly);
        }
        maps_mut(request, "firstAvailable").for_each(default_request);
    }
}

fn default_request(request: &mut Map<String, Value>) {
    default_to(request, "allocationMode", "ExactCount");
    if request.get("allocationMode").is_some_and(|mode| mode == "ExactCount") {
        default_number(request, "count", 1);
    }
    maps_mut(request, "tolerations").for_each(|toleration| default_to(toleration, "operator", "Equal"));
}

/// What is wrong with a template, and what the generic pass finds.
fn template_errors(spec: &Cursor<'_>) -> (FieldErrors, FieldErrors) {
    let metadata = spec.get("metadata");
    let mut errors = object_meta::annotation_errors(metadata.map("annotations"), &metadata.at("annotations"));
    errors.extend(object_meta::label_errors(metadata.map("labels"), &metadata.at("labels")));
    crate::core::persistent_volume_claim::unset_metadata(&mut errors, &metadata);
    let (of_claim, late) = spec_errors(&spec.get("spec"));
    errors.extend(of_claim);
    (errors, late)
}

fn claim_errors(spec: &Cursor<'_>) -> FieldErrors {
    let (mut errors, late) = spec_errors(spec);
    errors.extend(late);
    errors
}

fn spec_errors(spec: &Cursor<'_>) -> (FieldErrors, FieldErrors) {
    let (mut errors, mut late) = (FieldErrors::new(), FieldErrors::new());
    let devices = spec.get("devices");
    let known = Requests::of(&devices);
    if fits(&mut late, &devices, "requests", 32) {
        let requests = devices.items("requests");
        for request in &requests {
            one_request(&mut errors, &mut late, request);
        }
        repeated_items(&mut late, "DeviceRequest", &requests, |request| request.raw("name").clone());
    }
    if fits(&mut late, &devices, "constraints", 32) {
        for constraint in devices.items("constraints") {
            known.check_all(&mut errors, &mut late, &constraint);
            let mut given = false;
            for key in ["matchAttribute", "distinctAttribute"] {
                if let Some(name) = constraint.raw(key).as_str() {
                    fully_qualified_name(&mut late, &constraint.at(key), name);
                    given = true;
                }
            }
            if !given {
                let detail = "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple fields are set";
                errors.required(constraint.path.clone(), detail);
            }
        }
    }
    if fits(&mut late, &devices, "config", 32) {
        for config in devices.items("config") {
            known.check_all(&mut errors, &mut late, &config);
            configuration(&mut errors, &mut late, &config);
        }
    }
    (errors, late)
}

fn one_request(errors: &mut FieldErrors, late: &mut FieldErrors, request: &Cursor<'_>) {
    errors.reasons(request.at("name"), request.text("name"), names::dns1123_label(request.text("name")));
    let alternatives = request.items("firstAvailable");
    // The generic pass looks at both, whichever is meant.
    let mut unsaid = FieldErrors::new();
    match (request.has("exactly"), !alternatives.is_empty()) {
        (false, false) => {
            errors.required(request.path.clone(), "exactly one of `exactly` or `firstAvailable` is required");
        }
        (true, true) => {
            let detail = "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set";
            errors.invalid(request.path.clone(), Value::Null, detail);
            wanted(&mut unsaid, late, &request.get("exactly"), false);
            if fits(late, request, "firstAvailable", 8) {
                alternatives.iter().for_each(|alternative| wanted(&mut unsaid, late, alternative, true));
                repeated_items(late, "DeviceSubRequest", &alternatives, |item| item.raw("name").clone());
            }
        }
        (true, false) => wanted(errors, late, &request.get("exactly"), false),
        (false, true) => {
            if fits(late, request, "firstAvailable", 8) {
                for alternative in &alternatives {
                    let name = alternative.text("name");
                    errors.reasons(alternative.at("name"), name, names::dns1123_label(name));
                    wanted(errors, late, alternative, true);
                }
                repeated_items(late, "DeviceSubRequest", &alternatives, |item| item.raw("name").clone());
            }
        }
    }
}

/// What is asked for: a class, and how many of it.
fn wanted(errors: &mut FieldErrors, late: &mut FieldErrors, request: &Cursor<'_>, alternative: bool) {
    let class = if alternative { &mut *late } else { &mut *errors };
    let bytes = if alternative { names::long_name } else { names::dns1123_subdomain };
    class.named(request.at("deviceClassName"), request.text("deviceClassName"), bytes);
    selectors(errors, late, request, false);
    let count = request.number("count");
    match request.text("allocationMode") {
        "All" if count != 0 => {
            errors.invalid(request.at("count"), count, "must not be specified when allocationMode is 'All'");
        }
        "All" => {}
        "ExactCount" => errors.positive(request.at("count"), count),
        other => late.unsupported(request.at("allocationMode"), other, &["All", "ExactCount"]),
    }
    for item in request.items("tolerations") {
        toleration(errors, late, &item);
    }
}

/// The names of a claim's requests, with those of their alternatives.
struct Requests<'a>(BTreeMap<&'a str, BTreeSet<&'a str>>);

impl<'a> Requests<'a> {
    fn of(devices: &Cursor<'a>) -> Self {
        let names = |request: &Cursor<'a>| {
            let inner = request.items("firstAvailable").iter().map(|a| a.text("name")).collect();
            (request.text("name"), inner)
        };
        Self(devices.items("requests").iter().map(names).collect())
    }

    fn has(&self, name: &str) -> bool {
        match name.split_once('/') {
            None => self.0.contains_key(name),
            Some((request, inner)) => self.0.get(request).is_some_and(|known| known.contains(inner)),
        }
    }

    fn check(&self, errors: &mut FieldErrors, path: &Path, name: &str) {
        let segments: Vec<&str> = name.split('/').collect();
        if segments.len() > 2 {
            return errors.invalid(path.clone(), name, UNKNOWN_REQUEST);
        }
        for segment in segments {
            errors.reasons(path.clone(), segment, names::dns1123_label(segment));
        }
        if !self.has(name) {
            errors.invalid(path.clone(), name, UNKNOWN_REQUEST);
        }
    }

    /// The `requests` of a constraint or a configuration.
    fn check_all(&self, errors: &mut FieldErrors, late: &mut FieldErrors, parent: &Cursor<'_>) {
        if fits(late, parent, "requests", 32) {
            let names = parent.items("requests");
            for name in &names {
                self.check(errors, &name.path, name.as_text());
            }
            repeated(late, &names, |name| name.value.clone());
        }
    }
}

fn device_id(device: &Cursor<'_>) -> String {
    let share = device.text("shareID");
    let id = format!("{}/{}/{}", device.text("driver"), device.text("pool"), device.text("device"));
    if share.is_empty() { id } else { format!("{id}/{share}") }
}

/// What drivers told of devices goes with their allocation: who takes that back need not know of it.
fn forget_deallocated(object: &mut Value, old: &Value) {
    let allocated = |claim: &Value| -> BTreeSet<String> {
        let results = Cursor::root(claim).get("status").get("allocation").get("devices").items("results");
        results.iter().map(device_id).collect()
    };
    let now = allocated(object);
    let gone: BTreeSet<String> = allocated(old).into_iter().filter(|device| !now.contains(device)).collect();
    let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) else { return };
    let Some(devices) = status.get_mut("devices").and_then(Value::as_array_mut) else { return };
    devices.retain(|device| !gone.contains(&device_id(&Cursor::root(device))));
    if devices.is_empty() {
        status.remove("devices");
    }
}

fn is_lower_uuid(text: &str) -> bool {
    let hex = |part: &str| part.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    let parts: Vec<&str> = text.split('-').collect();
    parts.iter().map(|part| part.len()).eq([8, 4, 4, 4, 12]) && parts.iter().all(|part| hex(part))
}

fn share_id(late: &mut FieldErrors, device: &Cursor<'_>) {
    if let Some(share) = device.raw("shareID").as_str().filter(|share| !is_lower_uuid(share)) {
        late.invalid(device.at("shareID"), share, "must be a lowercase UUID in 8-4-4-4-12 format");
    }
}

fn status(claim: &Cursor<'_>, old: &Cursor<'_>) -> FieldErrors {
    let (mut errors, mut late) = (FieldErrors::new(), FieldErrors::new());
    let known = Requests::of(&claim.get("spec").get("devices"));
    let (status, was) = (claim.get("status"), old.get("status"));
    let allocation = status.get("allocation");
    if fits(&mut late, &status, "reservedFor", 256) {
        let users = status.items("reservedFor");
        for user in &users {
            for key in ["resource", "name", "uid"] {
                if user.text(key).is_empty() {
                    errors.required(user.at(key), "");
                }
            }
        }
        repeated_items(&mut late, "ResourceClaimConsumerReference", &users, |user| user.raw("uid").clone());
    }
    let allocated: BTreeSet<String> = allocation.get("devices").items("results").iter().map(device_id).collect();
    let devices = status.items("devices");
    for device in &devices {
        csi_driver_name(&mut errors, device.at("driver"), device.text("driver"));
        pool_name(&mut errors, &device.at("pool"), device.text("pool"));
        errors.reasons(device.at("device"), device.text("device"), names::dns1123_label(device.text("device")));
        let id = device_id(device);
        if !allocated.contains(&id) {
            let detail = "must be an allocated device in the claim";
            let error = FieldError::invalid(&device.path, id, detail);
            errors.push(error.shown_as(crate::internal::show("AllocatedDevice", device.value)));
        }
        let told = device.array("conditions").len();
        if told > MOST_CONDITIONS {
            errors.push(FieldError::too_many(&device.at("conditions"), told, MOST_CONDITIONS));
        }
        check::conditions(&mut errors, device, "conditions");
        if device.has("data") {
            super::raw_object(&mut errors, device, "data");
        }
        share_id(&mut late, device);
        super::network::check(&mut errors, &mut late, device);
    }
    repeated_items(&mut late, "AllocatedDeviceStatus", &devices, |device| device_id(device).into());
    if !status.array("reservedFor").is_empty() {
        let known: HashSet<&Value> = was.array("reservedFor").iter().collect();
        let added = status.array("reservedFor").iter().any(|user| !known.contains(user));
        if !allocation.exists() {
            errors.forbidden(status.at("reservedFor"), "may not be specified when `allocated` is not set");
        } else if ferry_meta::object::is_being_deleted(claim.value) && added {
            let detail = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set";
            errors.forbidden(status.at("reservedFor"), detail);
        }
    }
    if allocation.exists() && was.has("allocation") {
        if allocation.value != was.raw("allocation") {
            late.invalid(allocation.path.clone(), Value::Null, "field cannot be modified once set");
        }
    } else if allocation.exists() {
        allocated_devices(&mut errors, &mut late, &allocation, &known);
    }
    errors.extend(late);
    errors
}

fn allocated_devices(errors: &mut FieldErrors, late: &mut FieldErrors, allocation: &Cursor<'_>, known: &Requests<'_>) {
    let devices = allocation.get("devices");
    if fits(late, &devices, "results", 32) {
        for result in devices.items("results") {
            known.check(errors, &result.at("request"), result.text("request"));
            csi_driver_name(late, result.at("driver"), result.text("driver"));
            pool_name(late, &result.at("pool"), result.text("pool"));
            errors.reasons(result.at("device"), result.text("device"), names::dns1123_label(result.text("device")));
            binding_conditions(errors, late, &result);
            share_id(late, &result);
            for item in result.items("tolerations") {
                toleration(errors, late, &item);
            }
        }
    }
    if fits(late, &devices, "config", 64) {
        for config in devices.items("config") {
            late.one_of(config.at("source"), config.text("source"), &["FromClaim", "FromClass"]);
            known.check_all(errors, late, &config);
            configuration(errors, late, &config);
        }
    }
    if allocation.has("nodeSelector") {
        node_selector(errors, &allocation.get("nodeSelector"));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn shares_are_small_uuids() {
        assert!(is_lower_uuid("0148c728-46ea-4661-b159-75717446d199"));
        assert!(!is_lower_uuid("0148C728-46ea-4661-b159-75717446d199") && !is_lower_uuid("x"));
    }

    /// A scheduler that takes a device back leaves what its driver told of it.
    #[test]
    fn devices_that_are_given_back_are_forgotten() {
        let claim = |results: &[&str], devices: &[&str]| {
            let one = |device: &&str| json!({"driver": "d", "pool": "p", "device": device});
            let results: Vec<Value> = results.iter().map(one).collect();
            let devices: Vec<Value> = devices.iter().map(one).collect();
            json!({"status": {"allocation": {"devices": {"results": results}}, "devices": devices}})
        };
        let old = claim(&["a", "b"], &["a", "b"]);
        let mut new = claim(&["b"], &["a", "b"]);
        forget_deallocated(&mut new, &old);
        assert_eq!(new, claim(&["b"], &["b"]));
        let mut new = json!({"status": {"devices": old["status"]["devices"]}});
        forget_deallocated(&mut new, &old);
        assert_eq!(new, json!({"status": {}}));
        // What was never allocated is a mistake, and stays for it to be found.
        let mut new = claim(&[], &["c"]);
        forget_deallocated(&mut new, &claim(&[], &[]));
        assert_eq!(new, claim(&[], &["c"]));
    }

    #[test]
    fn claims_are_judged() {
        let check = |devices: Value, want: &[&str]| {
            let spec = json!({"devices": devices});
            let errors = claim_errors(&Cursor::new(&spec, Path::new("spec")));
            let lines: Vec<String> = errors.iter().map(FieldError::line).collect();
            assert_eq!(lines, want);
        };
        let one = json!({"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1});
        check(json!({"requests": [{"name": "a", "exactly": one}]}), &[]);
        check(
            json!({"requests": [{"name": "a"}], "constraints": [{"requests": ["b"], "matchAttribute": "x"}]}),
            &[
                "spec.devices.requests[0]: Required value: exactly one of `exactly` or `firstAvailable` is required",
                "spec.devices.constraints[0].requests[0]: Invalid value: \"b\": must be the name of a request in the claim or the name of a request and a subrequest separated by '/'",
                "spec.devices.constraints[0].matchAttribute: Invalid value: \"x\": a fully qualified name must be a domain and a name separated by a slash",
            ],
        );
        check(
            json!({
                "requests": [{"name": "a", "exactly": one, "firstAvailable": [{"allocationMode": "All"}]}],
                "constraints": [{"matchAttribute": "a/b", "distinctAttribute": "x"}],
            }),
            &[
                "spec.devices.requests[0]: Invalid value: null: exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set",
                "spec.devices.requests[0].firstAvailable[0].deviceClassName: Required value",
                "spec.devices.constraints[0].distinctAttribute: Invalid value: \"x\": a fully qualified name must be a domain and a name separated by a slash",
            ],
        );
        check(
            json!({"requests": [{"name": "a", "exactly": {"allocationMode": "All", "count": 2}}]}),
            &[
                "spec.devices.requests[0].exactly.deviceClassName: Required value",
                "spec.devices.requests[0].exactly.count: Invalid value: 2: must not be specified when allocationMode is 'All'",
            ],
        );
    }
}
