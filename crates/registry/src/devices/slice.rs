//! ResourceSlices: the devices of a driver's pool.

use ferry_meta::field::quote;
use ferry_meta::{FieldError, FieldErrors, Path, names, time};
use regex::Regex;
use serde_json::Value;
use std::sync::LazyLock;

use super::{binding_conditions, fits, policy, pool_name, qualified_name, repeated, repeated_items, taint};
use crate::core::pod::csi_driver_name;
use crate::core::pod::scheduling::node_selector;
use crate::cursor::{Cursor, Report, default_to, maps_mut, object_at};
use crate::plain::Plain;
use crate::strategy::{Context, Strategy, subdomain_name};

pub struct ResourceSlice(pub Plain);

static VERSION: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let number = r"(0|[1-9]\d*)";
    let early = r"(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)";
    let build = r"[0-9a-zA-Z-]+";
    let text = format!(r"^{number}\.{number}\.{number}(-{early}(\.{early})*)?(\+{build}(\.{build})*)?$");
    Regex::new(&text).ok()
});

impl Strategy for ResourceSlice {
    fn plain(&self) -> &Plain {
        &self.0
    }

    fn default(&self, object: &mut Value) {
        for device in maps_mut(object_at(object, &["spec"]), "devices") {
            for taint in maps_mut(device, "taints") {
                default_to(taint, "timeAdded", time::time(time::now()));
            }
        }
    }

    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> FieldErrors {
        validate(object, None)
    }

    fn validate_update(&self, _context: &Context<'_>, object: &Value, old: &Value) -> FieldErrors {
        validate(object, Some(old))
    }

    fn warnings(&self, _context: &Context<'_>, object: &Value, _old: Option<&Value>) -> Vec<String> {
        let driver = Cursor::root(object).get("spec").text("driver").to_owned();
        let capitals = driver != driver.to_lowercase();
        let warning = || {
            format!("spec.driver: driver names should be lowercase; {} contains uppercase characters", quote(&driver))
        };
        capitals.then(warning).into_iter().collect()
    }

    fn selectable_fields(&self) -> Vec<&str> {
        vec!["spec.nodeName", "spec.driver", "spec.pool.name"]
    }
}

fn validate(object: &Value, old: Option<&Value>) -> FieldErrors {
    let (mut errors, mut late) = (FieldErrors::new(), FieldErrors::new());
    let spec = Cursor::root(object).get("spec");
    csi_driver_name(&mut errors, spec.at("driver"), spec.text("driver"));
    let pool = spec.get("pool");
    pool_name(&mut errors, &pool.at("name"), pool.text("name"));
    errors.positive(pool.at("resourceSliceCount"), pool.number("resourceSliceCount"));
    if pool.number("generation") < 0 {
        let detail = "must be greater than or equal to zero";
        errors.invalid(pool.at("generation"), pool.number("generation"), detail);
    }
    let was = old.map(|old| Cursor::root(old).get("spec"));
    if let Some(was) = &was {
        errors.immutable(pool.at("name"), pool.raw("name"), was.get("pool").raw("name"));
        errors.immutable(spec.at("driver"), spec.raw("driver"), was.raw("driver"));
        errors.immutable(spec.at("nodeName"), spec.raw("nodeName"), was.raw("nodeName"));
    }
    where_it_is(&mut errors, &spec);
    if spec.has("sharedCounters") && spec.has("devices") {
        errors.invalid(spec.path.clone(), "", "only one of `sharedCounters` or `devices` is allowed");
    }
    let devices = spec.items("devices");
    let advanced =
        devices.iter().any(|device| !device.array("taints").is_empty() || !device.array("consumesCounters").is_empty());
    let most = if advanced { 64 } else { 128 };
    if devices.len() > most {
        errors.push(FieldError::too_many(&spec.at("devices"), devices.len(), most));
    } else {
        for device in &devices {
            let before = was.as_ref().and_then(|was| {
                was.items("devices").into_iter().find(|before| before.raw("name") == device.raw("name"))
            });
            one_device(&mut errors, &mut late, device, before.as_ref(), spec.is_true("perDeviceNodeSelection"));
        }
        repeated(&mut errors, &devices, |device| device.raw("name").clone());
    }
    if fits(&mut late, &spec, "sharedCounters", 8) {
        let sets = spec.items("sharedCounters");
        for set in &sets {
            counters(&mut errors, &mut late, set, "name");
        }
        repeated_items(&mut late, "CounterSet", &sets, |set| set.raw("name").clone());
    }
    errors.extend(late);
    errors
}

/// Exactly one field says which nodes reach the devices.
fn where_it_is(errors: &mut FieldErrors, spec: &Cursor<'_>) {
    let mut set = Vec::new();
    if let Some(name) = spec.raw("nodeName").as_str() {
        if name.is_empty() {
            errors.invalid(spec.at("nodeName"), name, "must be either unset or set to a non-empty string");
        } else {
            set.push("`nodeName`");
            errors.reasons(spec.at("nodeName"), name, subdomain_name(name, false));
        }
    }
    let selector = spec.get("nodeSelector");
    if selector.exists() {
        set.push("`nodeSelector`");
        node_selector(errors, &selector);
        if selector.array("nodeSelectorTerms").len() != 1 {
            let terms = selector.raw("nodeSelectorTerms").clone();
            let shown = crate::internal::show_list("NodeSelectorTerm", &terms);
            let error = FieldError::invalid(
                &selector.at("nodeSelectorTerms"),
                terms,
                "must have exactly one node selector term",
            );
            errors.push(error.shown_as(shown));
        }
    }
    for (key, shown) in [("allNodes", "`allNodes`"), ("perDeviceNodeSelection", "`perDeviceNodeSelection`")] {
        match spec.flag(key) {
            Some(true) => set.push(shown),
            Some(false) => errors.invalid(spec.at(key), false, "must be either unset or set to true"),
            None => {}
        }
    }
    const RULE: &str = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    match set.len() {
        0 => errors.required(spec.path.clone(), RULE),
        1 => {}
        _ => {
            let detail = format!("{RULE}, but multiple fields are set");
            errors.invalid(spec.path.clone(), format!("{{{}}}", set.join(", ")), detail);
        }
    }
}

/// A set of counters, or what a device takes of one.
fn counters(errors: &mut FieldErrors, late: &mut FieldErrors, set: &Cursor<'_>, name: &str) {
    late.named(set.at(name), set.text(name), names::dns1123_label);
    let all = set.map("counters");
    if all.is_empty() {
        late.required(set.at("counters"), "");
    } else if all.len() > 32 {
        errors.push(FieldError::too_many(&set.at("counters"), all.len(), 32));
    } else {
        for key in all.keys() {
            late.reasons(set.at("counters"), key, names::dns1123_label(key));
        }
    }
}

fn one_device(
    errors: &mut FieldErrors,
    late: &mut FieldErrors,
    device: &Cursor<'_>,
    before: Option<&Cursor<'_>>,
    per_device: bool,
) {
    errors.reasons(device.at("name"), device.text("name"), names::dns1123_label(device.text("name")));
    let count = device.map("attributes").len() + device.map("capacity").len();
    if count > 32 {
        let detail = "the total number of attributes and capacities must not exceed 32";
        errors.invalid(device.path.clone(), count, detail);
    }
    let values = device.map("attributes").len();
    if values > 48 {
        errors.invalid(device.path.clone(), values, "the total number of attribute values must not exceed 48");
    }
    for (name, attribute) in device.entries("attributes") {
        qualified_name(errors, &device.at("attributes"), name);
        one_attribute(errors, late, &attribute);
    }
    if before.is_none_or(|before| before.raw("capacity") != device.raw("capacity")) {
        for (name, capacity) in device.entries("capacity") {
            qualified_name(errors, &device.at("capacity"), name);
            if capacity.has("requestPolicy") && !device.is_true("allowMultipleAllocations") {
                errors.forbidden(capacity.at("requestPolicy"), "allowMultipleAllocations must be true");
            } else if capacity.has("requestPolicy") {
                policy::check(errors, &capacity);
            }
        }
    }
    if before.is_none_or(|before| before.raw("taints") != device.raw("taints")) {
        let taints = device.items("taints");
        if taints.len() > 16 {
            errors.push(FieldError::too_many(&device.at("taints"), taints.len(), 16));
        } else {
            for item in &taints {
                taint(errors, late, item, None);
            }
        }
    }
    if fits(late, device, "consumesCounters", 2) {
        let taken = device.items("consumesCounters");
        for set in &taken {
            counters(errors, late, set, "counterSet");
        }
        repeated_items(late, "DeviceCounterConsumption", &taken, |set| set.raw("counterSet").clone());
    }
    device_nodes(errors, device, per_device);
    binding_conditions(errors, late, device);
}

fn device_nodes(errors: &mut FieldErrors, device: &Cursor<'_>, per_device: bool) {
    if !per_device {
        if ["nodeName", "nodeSelector", "allNodes"].iter().any(|key| device.has(key)) {
            let detail = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to \
                          true in the ResourceSlice spec";
            errors.invalid(device.path.clone(), Value::Null, detail);
        }
        return;
    }
    let mut set = Vec::new();
    if let Some(name) = device.raw("nodeName").as_str() {
        if name.is_empty() {
            errors.invalid(device.at("nodeName"), name, "must not be empty");
        } else {
            set.push("`nodeName`");
            errors.reasons(device.at("nodeName"), name, subdomain_name(name, false));
        }
    }
    if device.has("nodeSelector") {
        set.push("`nodeSelector`");
        node_selector(errors, &device.get("nodeSelector"));
    }
    match device.flag("allNodes") {
        Some(true) => set.push("`allNodes`"),
        Some(false) => errors.invalid(device.at("allNodes"), false, "must be either unset or set to true"),
        None => {}
    }
    const RULE: &str = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when \
                        `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
    match set.len() {
        0 => errors.required(device.path.clone(), RULE),
        1 => {}
        _ => errors.invalid(device.path.clone(), format!("{{{}}}", set.join(", ")), RULE),
    }
}

fn one_attribute(errors: &mut FieldErrors, late: &mut FieldErrors, attribute: &Cursor<'_>) {
    const LONGEST: usize = 64;
    let too_long = |path: &Path| FieldError::too_long(path, LONGEST);
    let version = |errors: &mut FieldErrors, at: &Cursor<'_>| {
        let text = at.as_text();
        if !VERSION.as_ref().is_some_and(|pattern| pattern.is_match(text)) {
            errors.invalid(at.path.clone(), text, "must be a string compatible with semver.org spec 2.0.0");
        }
        if text.len() > LONGEST {
            errors.push(too_long(&at.path));
        }
    };
    if attribute.text("string").len() > LONGEST {
        errors.push(too_long(&attribute.at("string")));
    }
    if attribute.has("version") {
        version(errors, &attribute.get("version"));
    }
    let kinds = ["int", "bool", "string", "version", "ints", "bools", "strings", "versions"];
    let set: Vec<&str> = kinds.into_iter().filter(|key| attribute.has(key)).collect();
    let all = kinds.map(|key| format!("`{key}`")).join(", ");
    match set.len() {
        0 => late.invalid(attribute.path.clone(), "", format!("must specify one of: {all}")),
        1 => {}
        _ => {
            let detail = format!("must specify exactly one of: {all}");
            late.invalid(attribute.path.clone(), format!("{{{}}}", set.join(", ")), detail);
        }
    }
}
