//! Events of the core group and of events.k8s.io: one stored object, two versions.

use ferry_meta::{FieldError, FieldErrors, Path, names, object};
use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::cells;
use crate::cursor::{Cursor, Report};
use crate::plain::Plain;
use crate::strategy::{Context, Strategy};

/// The version of the core group, in which events are stored.
pub struct CoreEvent(pub Plain);

/// The version of events.k8s.io.
pub struct Event(pub Plain);

/// (name in events.k8s.io, name in the core group)
const FIELDS: [(&str, &str); 8] = [
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
    ("", ""),
];

fn renamed(value: Value, version: &str, rename: impl Fn(&str) -> Option<&'static str>) -> Value {
    let Value::Object(map) = value else { return value };
    let mut out: Map<String, Value> =
        map.into_iter().map(|(key, value)| (rename(&key).map_or(key, str::to_owned), value)).collect();
    out.insert("apiVersion".into(), version.into());
    Value::Object(out)
}

fn to_core(event: Value) -> Value {
    renamed(event, "v1", |key| FIELDS.iter().find(|(new, _)| *new == key).map(|(_, old)| *old))
}

fn from_core(event: Value) -> Value {
    renamed(event, "events.k8s.io/v1", |key| FIELDS.iter().find(|(_, old)| *old == key).map(|(new, _)| *new))
}

/// The rules both versions share; `event` has the names of the core group.
fn legacy(errors: &mut FieldErrors, event: &Cursor<'_>, controller_field: &str) {
    let namespace = event.get("metadata").text("namespace");
    let involved = event.get("involvedObject");
    let theirs = involved.text("namespace");
    let mismatch =
        |errors: &mut FieldErrors| errors.invalid(involved.at("namespace"), theirs, "does not match event.namespace");
    if !event.has("eventTime") {
        let fits = if theirs.is_empty() { ["", "default"].contains(&namespace) } else { namespace == theirs };
        if !fits {
            mismatch(errors);
        }
        return;
    }
    if theirs.is_empty() && !["default", "kube-system"].contains(&namespace) {
        mismatch(errors);
    }
    let controller = event.text("reportingComponent");
    if controller.is_empty() {
        errors.required(Path::new(controller_field), "");
    }
    errors.reasons(Path::new(controller_field), controller, names::qualified_name(controller));
    for field in ["reportingInstance", "action", "reason"] {
        match event.text(field) {
            "" => errors.required(event.at(field), ""),
            text if text.len() > 128 => errors.invalid(event.at(field), "", "can have at most 128 characters"),
            _ => {}
        }
    }
    if event.text("message").len() > 1024 {
        errors.invalid(event.at("message"), "", "can have at most 1024 characters");
    }
}

fn series(errors: &mut FieldErrors, event: &Cursor<'_>) {
    let series = event.get("series");
    if series.exists() {
        if series.number("count") < 2 {
            errors.invalid(Path::new("series.count"), "", "should be at least 2");
        }
        if !series.has("lastObservedTime") {
            errors.required(Path::new("series.lastObservedTime"), "");
        }
    }
}

impl Strategy for CoreEvent {
    fn plain(&self) -> &Plain {
        &self.0
    }

    fn prepare_create(&self, _context: &Context<'_>, _object: &mut Value) {}

    fn prepare_update(&self, _context: &Context<'_>, _object: &mut Value, _old: &Value) {}

    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        legacy(&mut errors, &Cursor::root(object), "reportingComponent");
        errors
    }

    /// The metadata is looked at once the rest is in order.
    fn in_order(&self, metadata: FieldErrors, own: FieldErrors) -> FieldErrors {
        if own.is_empty() { metadata } else { own }
    }

    fn selectable_fields(&self) -> Vec<&str> {
        vec![
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ]
    }

    fn field(&self, object: &Value, field: &str) -> String {
        core_field(&Cursor::root(object), field)
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        row(&Cursor::root(object), now)
    }
}

fn core_field(event: &Cursor<'_>, field: &str) -> String {
    match field {
        "source" => {
            let component = event.get("source").text("component");
            if component.is_empty() { event.text("reportingComponent") } else { component }.to_owned()
        }
        _ => crate::strategy::common::field_text(event.value, field),
    }
}

fn row(event: &Cursor<'_>, now: Timestamp) -> Vec<Value> {
    let first = match event.text("firstTimestamp") {
        "" => cells::since(event.text("eventTime"), now),
        time => cells::since(time, now),
    };
    let mut last = match event.text("lastTimestamp") {
        "" => first.clone(),
        time => cells::since(time, now),
    };
    let mut count = event.number("count").max(1);
    let series = event.get("series");
    if series.exists() {
        last = cells::since(series.text("lastObservedTime"), now);
        count = series.number("count");
    }
    let involved = event.get("involvedObject");
    let mut target = involved.text("kind").to_lowercase();
    if !involved.text("name").is_empty() {
        target = format!("{target}/{}", involved.text("name"));
    }
    let first_of = |one: &'static str, other: &str| {
        let text = event.get("source").text(one).to_owned();
        if text.is_empty() { event.text(other).to_owned() } else { text }
    };
    let (component, host) = (first_of("component", "reportingComponent"), first_of("host", "reportingInstance"));
    let source = if host.is_empty() { component } else { format!("{component}, {host}") };
    vec![
        last.into(),
        event.text("type").into(),
        event.text("reason").into(),
        target.into(),
        involved.text("fieldPath").into(),
        source.into(),
        event.text("message").trim().into(),
        first.into(),
        count.into(),
        object::name(event.value).into(),
    ]
}

impl Strategy for Event {
    fn plain(&self) -> &Plain {
        &self.0
    }

    fn prepare_create(&self, _context: &Context<'_>, _object: &mut Value) {}

    fn prepare_update(&self, _context: &Context<'_>, _object: &mut Value, _old: &Value) {}

    /// What the event is about comes first.
    fn in_order(&self, metadata: FieldErrors, mut own: FieldErrors) -> FieldErrors {
        let about = own.iter().take_while(|error| error.line().starts_with("involvedObject")).count();
        let rest = own.split_off(about);
        own.into_iter().chain(metadata).chain(rest).collect()
    }

    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let core = to_core(object.clone());
        let event = Cursor::root(&core);
        legacy(&mut errors, &event, "reportingController");
        series(&mut errors, &event);
        if !event.has("eventTime") {
            errors.required(event.at("eventTime"), "");
        }
        let kind = event.text("type");
        if !["Normal", "Warning"].contains(&kind) {
            errors.invalid(event.at("type"), "", format!("has invalid value: {kind}"));
        }
        for field in ["firstTimestamp", "lastTimestamp"] {
            if event.has(field) {
                errors.invalid(event.at(field), "", "needs to be unset");
            }
        }
        if event.number("count") != 0 {
            errors.invalid(event.at("count"), "", "needs to be unset");
        }
        if !event.map("source").is_empty() {
            errors.invalid(event.at("source"), "", "needs to be unset");
        }
        errors
    }

    /// All but the series is written once.
    fn validate_update(&self, _context: &Context<'_>, object: &Value, old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let (new, old) = (to_core(object.clone()), to_core(old.clone()));
        let (new, old) = (Cursor::root(&new), Cursor::root(&old));
        legacy(&mut errors, &new, "reportingController");
        if new.raw("series") != old.raw("series") {
            series(&mut errors, &new);
        }
        for (field, shown) in [
            ("involvedObject", "involvedObject"),
            ("reason", "reason"),
            ("message", "message"),
            ("source", "source"),
            ("firstTimestamp", "firstTimestamp"),
            ("lastTimestamp", "lastTimestamp"),
            ("count", "count"),
            ("type", "type"),
            ("eventTime", "eventTime"),
            ("action", "action"),
            ("related", "related"),
            ("reportingComponent", "reportingController"),
            ("reportingInstance", "reportingInstance"),
        ] {
            // A text that is not there is an empty one.
            let nothing = |value: &Value| value.is_null() || *value == "";
            if new.raw(field) == old.raw(field) || (nothing(new.raw(field)) && nothing(old.raw(field))) {
                continue;
            }
            let value = new.raw(field);
            let error = FieldError::invalid(&new.at(shown), value.clone(), crate::cursor::IMMUTABLE);
            errors.push(match field {
                "involvedObject" => error.shown_as(crate::internal::show("ObjectReference", value)),
                "related" => error.shown_as(crate::internal::show_pointer("ObjectReference", value)),
                "source" => error.shown_as(crate::internal::show("EventSource", value)),
                "count" if value.is_null() => error.shown_as("0"),
                "firstTimestamp" | "lastTimestamp" | "eventTime" => error,
                _ if value.is_null() => error.shown_as("\"\""),
                _ => error,
            });
        }
        errors
    }

    fn selectable_fields(&self) -> Vec<&str> {
        vec![
            "reason",
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "regarding.apiVersion",
            "regarding.resourceVersion",
            "regarding.fieldPath",
            "reportingController",
            "type",
        ]
    }

    fn to_storage(&self, object: Value) -> Value {
        to_core(object)
    }

    fn from_storage(&self, object: Value) -> Value {
        from_core(object)
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        row(&Cursor::root(&to_core(object.clone())), now)
    }
}
