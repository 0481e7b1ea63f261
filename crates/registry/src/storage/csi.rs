//! CSIDrivers and CSINodes.

use std::collections::{HashMap, HashSet};

use ferry_meta::{FieldError, FieldErrors, Path, names};
use serde_json::{Value, json};

use crate::apps::counts;
use crate::core::pod::csi_driver_name;
use crate::cursor::{Cursor, IMMUTABLE, Report, default_absent, default_to, object_at};
use crate::plain::Plain;
use crate::strategy::{Context, Strategy, common, subdomain_name};

pub struct CsiDriver(pub Plain);
pub struct CsiNode(pub Plain);

impl Strategy for CsiDriver {
    fn plain(&self) -> &Plain {
        &self.0
    }

    fn default(&self, object: &mut Value) {
        let spec = object_at(object, &["spec"]);
        default_to(spec, "attachRequired", true);
        default_absent(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
        if spec.get("volumeLifecycleModes").and_then(Value::as_array).is_none_or(Vec::is_empty) {
            spec.insert("volumeLifecycleModes".into(), json!(["Persistent"]));
        }
        let flags =
            ["podInfoOnMount", "storageCapacity", "requiresRepublish", "seLinuxMount", "preventPodSchedulingIfMissing"];
        for key in flags {
            default_to(spec, key, false);
        }
    }

    /// No generation on create, one more for each change.
    fn prepare_create(&self, _context: &Context<'_>, _object: &mut Value) {}

    fn prepare_update(&self, _context: &Context<'_>, object: &mut Value, old: &Value) {
        let changed = object.get("spec") != old.get("spec");
        common::set_generation(object, common::generation(old) + i64::from(changed));
    }

    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        validate_driver(&mut errors, &Cursor::root(object).get("spec"));
        errors
    }

    fn validate_update(&self, _context: &Context<'_>, object: &Value, old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let (spec, was) = (Cursor::root(object).get("spec"), Cursor::root(old).get("spec"));
        validate_driver(&mut errors, &spec);
        errors.immutable(spec.at("attachedRequired"), spec.raw("attachRequired"), was.raw("attachRequired"));
        if spec.raw("volumeLifecycleModes") != was.raw("volumeLifecycleModes") {
            let modes = spec.raw("volumeLifecycleModes").clone();
            errors.invalid(spec.at("volumeLifecycleModes"), modes, IMMUTABLE);
        }
        errors
    }

    fn warnings(&self, _context: &Context<'_>, object: &Value, old: Option<&Value>) -> Vec<String> {
        let spec = Cursor::root(object).get("spec");
        let same = |old: &Value| old["spec"]["tokenRequests"] == *spec.raw("tokenRequests");
        let asks = !spec.array("tokenRequests").is_empty() && !old.is_some_and(same);
        match asks && !spec.has("serviceAccountTokenInSecrets") {
            true => vec!["spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes".to_owned()],
            false => Vec::new(),
        }
    }

    fn validate_name(&self, name: &str, prefix: bool) -> Vec<String> {
        subdomain_name(name, prefix)
    }
}

fn validate_driver(errors: &mut FieldErrors, spec: &Cursor<'_>) {
    let policies = ["File", "None", "ReadWriteOnceWithFSType"];
    if let Some(policy) = spec.raw("fsGroupPolicy").as_str().filter(|p| !policies.contains(p)) {
        errors.unsupported(spec.at("fsGroupPolicy"), policy, &policies);
    }
    if let (true, Value::Bool(set)) = (spec.array("tokenRequests").is_empty(), spec.raw("serviceAccountTokenInSecrets"))
    {
        let detail = "serviceAccountTokenInSecrets is set but no tokenRequests are specified";
        errors.invalid(spec.at("serviceAccountTokenInSecrets"), *set, detail);
    }
    let mut seen: HashSet<&str> = HashSet::new();
    for request in spec.items("tokenRequests") {
        let audience = request.text("audience");
        if seen.contains(&audience) {
            errors.duplicate(request.at("audience"), audience);
            continue;
        }
        seen.insert(audience);
        match request.int("expirationSeconds") {
            Some(seconds) if seconds < 600 => {
                let detail = "may not specify a duration less than 10 minutes";
                errors.invalid(request.at("expirationSeconds"), seconds, detail);
            }
            Some(seconds) if seconds > 1 << 32 => {
                let detail = "may not specify a duration larger than 2^32 seconds";
                errors.invalid(request.at("expirationSeconds"), seconds, detail);
            }
            _ => {}
        }
    }
    for mode in spec.texts("volumeLifecycleModes").filter(|mode| !["Persistent", "Ephemeral"].contains(mode)) {
        errors.unsupported(spec.at("volumeLifecycleModes"), mode, &["Persistent", "Ephemeral"]);
    }
    let period = "nodeAllocatableUpdatePeriodSeconds";
    if let Some(seconds) = spec.int(period).filter(|seconds| *seconds < 10) {
        errors.invalid(spec.at(period), seconds, "must be greater than or equal to 10 seconds");
    }
}

impl Strategy for CsiNode {
    fn plain(&self) -> &Plain {
        &self.0
    }

    fn prepare_create(&self, _context: &Context<'_>, object: &mut Value) {
        common::keep(object, &Value::Null, "status");
    }

    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let mut seen: HashSet<&str> = HashSet::new();
        for driver in Cursor::root(object).get("spec").items("drivers") {
            let (name, id) = (driver.text("name"), driver.text("nodeID"));
            csi_driver_name(&mut errors, driver.at("name"), name);
            if id.is_empty() {
                errors.required(driver.at("nodeID"), "");
            } else if id.len() > 256 {
                errors.invalid(driver.at("nodeID"), id, "must be 256 characters or less");
            }
            counts(&mut errors, &driver.get("allocatable"), &["count"]);
            if seen.contains(&name) {
                errors.duplicate(driver.at("name"), name);
            }
            seen.insert(name);
            let mut keys: HashSet<&str> = HashSet::new();
            for key in driver.texts("topologyKeys") {
                if key.is_empty() {
                    errors.required(driver.path.clone(), "");
                }
                if keys.contains(&key) {
                    errors.duplicate(driver.path.clone(), key);
                }
                keys.insert(key);
                errors.reasons(driver.path.clone(), key, names::qualified_name(key));
            }
        }
        errors
    }

    fn validate_update(&self, context: &Context<'_>, object: &Value, old: &Value) -> FieldErrors {
        let mut errors = self.validate_create(context, object);
        let without_count = |driver: &Value| {
            let mut copy = driver.clone();
            if let Some(map) = copy.as_object_mut() {
                map.remove("allocatable");
            }
            copy
        };
        let new = Cursor::root(object).get("spec");
        let mut named = HashMap::new();
        for driver in new.array("drivers") {
            named.entry(&driver["name"]).or_insert(driver);
        }
        for was in Cursor::root(old).get("spec").array("drivers") {
            let same = named.get(&was["name"]);
            if let Some(driver) = same.filter(|driver| without_count(driver) != without_count(was)) {
                let error = FieldError::invalid(&Path::new("spec.drivers"), Value::clone(driver), IMMUTABLE);
                errors.push(error.shown_as(crate::internal::show("CSINodeDriver", &without_count(driver))));
            }
        }
        errors
    }
}
