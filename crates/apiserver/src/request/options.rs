//! The options of requests (CreateOptions, ListOptions, …) and what upstream says of bad ones.

use ferry_meta::selector::{FieldSelector, LabelSelector};
use ferry_meta::{ApiError, FieldError, FieldErrors, GroupKind, Path};
use serde_json::{Value, json};

use crate::request::query::Query;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

/// What create, update and patch have in common.
#[derive(Clone, Debug)]
pub(crate) struct WriteOptions {
    pub kind: &'static str,
    pub dry_run: bool,
    pub field_manager: String,
    pub field_validation: FieldValidation,
    pub force: Option<bool>,
    /// The new object came without labels.
    pub bare_labels: bool,
}

fn invalid(kind: &str, errors: &FieldErrors) -> ApiError {
    ApiError::invalid(&GroupKind { group: "meta.k8s.io".into(), kind: kind.into() }, "", errors)
}

impl WriteOptions {
    /// `kind` is CreateOptions, UpdateOptions or PatchOptions; `apply` tells an apply patch from the other three.
    pub(crate) fn read(query: &Query, kind: &'static str, apply: Option<bool>) -> Result<Self, ApiError> {
        let mut errors = FieldErrors::new();
        let manager = query.text("fieldManager").to_owned();
        let force = query.maybe_flag("force").filter(|_| kind == "PatchOptions");
        match apply {
            Some(true) if manager.is_empty() => {
                errors.push(FieldError::required(&Path::new("fieldManager"), "is required for apply patch"));
            }
            Some(false) if force.is_some() => {
                errors.push(FieldError::forbidden(&Path::new("force"), "may not be specified for non-apply patch"));
            }
            _ => {}
        }
        check_manager(&manager, &mut errors);
        let dry_run = dry_run(query.all("dryRun"), &mut errors);
        let field_validation = match query.text("fieldValidation") {
            "" | "Warn" => FieldValidation::Warn,
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            other => {
                let supported = ["", "Ignore", "Strict", "Warn"];
                errors.push(FieldError::not_supported(&Path::new("fieldValidation"), other, &supported));
                FieldValidation::Warn
            }
        };
        if errors.is_empty() {
            Ok(Self { kind, dry_run, field_manager: manager, field_validation, force, bare_labels: false })
        } else {
            Err(invalid(kind, &errors))
        }
    }

    /// Those of a write that removes an object; what it is asked for is in its DeleteOptions.
    pub(crate) fn for_deletion(dry_run: bool) -> Self {
        Self {
            kind: "DeleteOptions",
            dry_run,
            field_manager: String::new(),
            field_validation: FieldValidation::Ignore,
            force: None,
            bare_labels: false,
        }
    }

    /// As admission plug-ins see it.
    pub(crate) fn object(&self) -> Value {
        let mut object = json!({"kind": self.kind, "apiVersion": "meta.k8s.io/v1"});
        if self.dry_run {
            object["dryRun"] = json!(["All"]);
        }
        if !self.field_manager.is_empty() {
            object["fieldManager"] = json!(self.field_manager);
        }
        object
    }

    /// The manager named by the request, or else the first word of the agent.
    pub(crate) fn manager(&self, agent: &str) -> String {
        if !self.field_manager.is_empty() {
            return self.field_manager.clone();
        }
        let word = agent.split('/').next().unwrap_or_default();
        let printable: String = word.chars().filter(|c| !c.is_control()).collect();
        let mut end = printable.len().min(128);
        while !printable.is_char_boundary(end) {
            end -= 1;
        }
        printable[..end].to_owned()
    }
}

fn check_manager(manager: &str, errors: &mut FieldErrors) {
    let path = Path::new("fieldManager");
    if manager.len() > 128 {
        errors.push(FieldError::too_long(&path, 128));
    }
    for (at, c) in manager.char_indices() {
        if c.is_control() {
            let why = format!("invalid character U+{:04X} (at position {at})", c as u32);
            errors.push(FieldError::invalid(&path, manager, why));
        }
    }
}

fn dry_run<'a>(values: impl Iterator<Item = &'a str>, errors: &mut FieldErrors) -> bool {
    let values: Vec<&str> = values.collect();
    if values.iter().any(|v| *v != "All") {
        errors.push(FieldError::not_supported(&Path::new("dryRun"), json!(values), &["All"]));
    }
    !values.is_empty()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Match {
    Unset,
    Exact,
    NotOlderThan,
}

#[derive(Clone, Debug)]
pub(crate) struct ListOptions {
    pub label_selector: LabelSelector,
    pub field_selector: FieldSelector,
    pub resource_version: String,
    pub resource_version_match: Match,
    pub limit: usize,
    pub continue_token: String,
    pub timeout_seconds: Option<i64>,
    pub allow_bookmarks: bool,
    pub send_initial_events: Option<bool>,
}

impl ListOptions {
    pub(crate) fn read(query: &Query, watch: bool) -> Result<Self, ApiError> {
        let label_selector = LabelSelector::parse(query.text("labelSelector")).map_err(ApiError::bad_request)?;
        let field_selector = FieldSelector::parse(query.text("fieldSelector")).map_err(ApiError::bad_request)?;
        let limit = query.integer("limit")?.unwrap_or(0);
        let timeout_seconds = query.integer("timeoutSeconds")?;
        let resource_version = query.text("resourceVersion").to_owned();
        let continue_token = query.text("continue").to_owned();
        let mut send_initial_events = query.maybe_flag("sendInitialEvents");
        let mut matching = query.text("resourceVersionMatch").to_owned();
        if send_initial_events.is_none() && matching.is_empty() && watch && matches!(&*resource_version, "" | "0") {
            send_initial_events = Some(true);
            matching = "NotOlderThan".into();
        }
        let mut errors = FieldErrors::new();
        let path = Path::new("resourceVersionMatch");
        let mut forbid = |why: &str| errors.push(FieldError::forbidden(&path, why));
        if watch {
            if send_initial_events.is_some() && matching != "NotOlderThan" {
                forbid("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan");
            }
            if !matching.is_empty() {
                if send_initial_events.is_none() {
                    forbid("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided");
                }
                if !continue_token.is_empty() {
                    forbid("resourceVersionMatch is forbidden when continue is provided");
                }
                if matching != "NotOlderThan" {
                    errors.push(FieldError::not_supported(&path, &*matching, &["NotOlderThan"]));
                }
            }
        } else {
            if !matching.is_empty() {
                if resource_version.is_empty() {
                    forbid("resourceVersionMatch is forbidden unless resourceVersion is provided");
                }
                if !continue_token.is_empty() {
                    forbid("resourceVersionMatch is forbidden when continue is provided");
                }
                if !matches!(&*matching, "Exact" | "NotOlderThan") {
                    errors.push(FieldError::not_supported(&path, &*matching, &["Exact", "NotOlderThan", ""]));
                }
                if matching == "Exact" && resource_version == "0" {
                    let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
                    errors.push(FieldError::forbidden(&path, why));
                }
            }
            if send_initial_events.is_some() {
                let why = "sendInitialEvents is forbidden for list";
                errors.push(FieldError::forbidden(&Path::new("sendInitialEvents"), why));
            }
        }
        if !errors.is_empty() {
            return Err(invalid("ListOptions", &errors));
        }
        Ok(Self {
            label_selector,
            field_selector,
            resource_version,
            resource_version_match: match &*matching {
                "Exact" => Match::Exact,
                "NotOlderThan" => Match::NotOlderThan,
                _ => Match::Unset,
            },
            limit: usize::try_from(limit).unwrap_or(0),
            continue_token,
            timeout_seconds,
            allow_bookmarks: query.flag("allowWatchBookmarks"),
            send_initial_events,
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Propagation {
    Orphan,
    Background,
    Foreground,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct DeleteOptions {
    pub grace_period: Option<i64>,
    pub precondition_uid: Option<String>,
    pub precondition_version: Option<String>,
    pub orphan_dependents: Option<bool>,
    pub propagation: Option<Propagation>,
    pub dry_run: bool,
    /// Only what cannot be read from the store is to go.
    pub unreadable_only: bool,
}

/// Said of what cannot be read any more, whoever is left behind by it.
pub(crate) const IGNORE_READ_ERROR: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";

impl DeleteOptions {
    pub(crate) fn from_query(query: &Query) -> Result<Self, ApiError> {
        let mut object = json!({});
        if let Some(seconds) = query.integer("gracePeriodSeconds")? {
            object["gracePeriodSeconds"] = json!(seconds);
        }
        if let Some(orphan) = query.maybe_flag("orphanDependents") {
            object["orphanDependents"] = json!(orphan);
        }
        if let Some(policy) = query.get("propagationPolicy") {
            object["propagationPolicy"] = json!(policy);
        }
        if query.flag(IGNORE_READ_ERROR) {
            object[IGNORE_READ_ERROR] = json!(true);
        }
        let dry_run: Vec<&str> = query.all("dryRun").collect();
        if !dry_run.is_empty() {
            object["dryRun"] = json!(dry_run);
        }
        for key in ["uid", "resourceVersion"] {
            if let Some(text) = query.get(key).filter(|text| !text.is_empty()) {
                object["preconditions"][key] = json!(text);
            }
        }
        Self::from_object(&object)
    }

    /// From a decoded `DeleteOptions`.
    pub(crate) fn from_object(object: &Value) -> Result<Self, ApiError> {
        let mut errors = FieldErrors::new();
        let orphan_dependents = object.get("orphanDependents").and_then(Value::as_bool);
        let policy = object.get("propagationPolicy").and_then(Value::as_str);
        let path = Path::new("propagationPolicy");
        if let (Some(policy), Some(_)) = (policy, orphan_dependents) {
            errors.push(FieldError::invalid(
                &path,
                policy,
                "orphanDependents and deletionPropagation cannot be both set",
            ));
        }
        let propagation = match policy {
            None => None,
            Some("Orphan") => Some(Propagation::Orphan),
            Some("Background") => Some(Propagation::Background),
            Some("Foreground") => Some(Propagation::Foreground),
            Some(other) => {
                let supported = ["Foreground", "Background", "Orphan", "nil"];
                errors.push(FieldError::not_supported(&path, other, &supported));
                None
            }
        };
        let values = object.get("dryRun").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        let dry_run = dry_run(values, &mut errors);
        let unreadable_only = object.get(IGNORE_READ_ERROR).and_then(Value::as_bool).unwrap_or_default();
        if unreadable_only {
            let given = |key: &&str| object.get(*key).is_some_and(|value| !value.is_null());
            for key in ["propagationPolicy", "orphanDependents", "gracePeriodSeconds", "preconditions"]
                .iter()
                .filter(|key| given(key))
            {
                let why = format!("cannot be set together with .{key}");
                errors.push(FieldError::invalid(&Path::new(IGNORE_READ_ERROR), true, why));
            }
        }
        if !errors.is_empty() {
            return Err(invalid("DeleteOptions", &errors));
        }
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        Ok(Self {
            grace_period: object.get("gracePeriodSeconds").and_then(Value::as_i64),
            precondition_uid: text("/preconditions/uid"),
            precondition_version: text("/preconditions/resourceVersion"),
            orphan_dependents,
            propagation,
            dry_run,
            unreadable_only,
        })
    }

    /// As admission plug-ins see it.
    pub(crate) fn object(&self) -> Value {
        let mut object = json!({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"});
        if let Some(seconds) = self.grace_period {
            object["gracePeriodSeconds"] = json!(seconds);
        }
        if self.dry_run {
            object["dryRun"] = json!(["All"]);
        }
        if let Some(propagation) = self.propagation {
            object["propagationPolicy"] = json!(format!("{propagation:?}"));
        }
        object
    }
}
