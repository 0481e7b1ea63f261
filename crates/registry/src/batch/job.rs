//! Jobs.

use ferry_meta::{FieldError, FieldErrors, names, object};
use jiff::Timestamp;
use serde_json::Value;

use super::{job_policies, job_status};
use crate::apps::{counts, default_template, name_warning};
use crate::cells;
use crate::check;
use crate::core::pod;
use crate::cursor::{Cursor, Report, default_absent, default_to, map_mut, maps_mut, object_at};
use crate::plain::Plain;
use crate::strategy::{Context, Strategy, common};

pub struct Job(pub Plain);

const NAME_LABELS: [&str; 2] = ["job-name", "batch.kubernetes.io/job-name"];
const UID_LABELS: [&str; 2] = ["controller-uid", "batch.kubernetes.io/controller-uid"];

/// Unless the author says that labels are their own affair, a Job finds its pods by its uid.
fn generate_selector(object: &mut Value) {
    if object.pointer("/spec/manualSelector") == Some(&Value::Bool(true)) {
        return;
    }
    let (name, uid) = (object::name(object).to_owned(), object::uid(object).to_owned());
    let labels = object_at(object, &["spec", "template", "metadata", "labels"]);
    for (keys, value) in [(NAME_LABELS, &name), (UID_LABELS, &uid)] {
        for key in keys {
            labels.entry(key).or_insert_with(|| value.as_str().into());
        }
    }
    object_at(object, &["spec", "selector", "matchLabels"]).entry(UID_LABELS[1]).or_insert_with(|| uid.into());
}

/// An object without labels has those of its template.
pub(crate) fn default_labels(object: &mut Value) {
    let labels = object.pointer("/spec/template/metadata/labels").filter(|l| l.is_object()).cloned();
    if let Some(labels) = labels
        && object::labels(object).is_empty()
    {
        object::metadata_mut(object).insert("labels".into(), labels);
    }
}

impl Strategy for Job {
    fn plain(&self) -> &Plain {
        &self.0
    }

    fn deletion_warning(&self) -> Option<&'static str> {
        Some(
            "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or \
             set propagationPolicy=Orphan to suppress this warning",
        )
    }

    fn default(&self, object: &mut Value) {
        let spec = object_at(object, &["spec"]);
        let unset = |spec: &serde_json::Map<String, Value>, key: &str| spec.get(key).is_none_or(Value::is_null);
        if unset(spec, "completions") && unset(spec, "parallelism") {
            spec.insert("completions".into(), 1.into());
        }
        default_to(spec, "parallelism", 1);
        let limit = if unset(spec, "backoffLimitPerIndex") { 6 } else { i32::MAX };
        default_to(spec, "backoffLimit", limit);
        default_absent(spec, "completionMode", "NonIndexed");
        default_to(spec, "suspend", false);
        let replacement = if unset(spec, "podFailurePolicy") { "TerminatingOrFailed" } else { "Failed" };
        default_absent(spec, "podReplacementPolicy", replacement);
        default_to(spec, "manualSelector", false);
        default_template(spec);
        default_failure_policy(spec);
        default_labels(object);
    }

    fn prepare_create(&self, context: &Context<'_>, object: &mut Value) {
        common::prepare_create(true, true, context, object);
        generate_selector(object);
        default_labels(object);
    }

    /// Labels that an update leaves out are those of the template, as they are whenever the Job is read.
    fn prepare_update(&self, context: &Context<'_>, object: &mut Value, old: &Value) {
        common::prepare_update(self.has_status(), self.has_generation(), context, object, old);
        default_labels(object);
    }

    fn share_labels(&self, object: &mut Value) {
        if let Some(labels) = object.pointer("/spec/template/metadata/labels").filter(|l| l.is_object()).cloned() {
            object::metadata_mut(object).insert("labels".into(), labels);
        }
    }

    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let job = Cursor::root(object);
        let spec = job.get("spec");
        generated_selector(&mut errors, &job);
        validate_spec(&mut errors, &spec);
        selects_template(&mut errors, &spec);
        name_allows_completions(&mut errors, &job);
        errors
    }

    fn validate_update(&self, context: &Context<'_>, object: &Value, old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let (new, was) = (Cursor::root(object), Cursor::root(old));
        if context.subresource == "status" {
            job_status::validate(&mut errors, &new, &was);
            return errors;
        }
        let spec = new.get("spec");
        validate_spec(&mut errors, &spec);
        selects_template(&mut errors, &spec);
        changes(&mut errors, &new, &was);
        name_allows_completions(&mut errors, &new);
        errors
    }

    fn warnings(&self, context: &Context<'_>, object: &Value, old: Option<&Value>) -> Vec<String> {
        if context.subresource == "status" {
            return Vec::new();
        }
        let mut found: Vec<String> = name_warning(object).filter(|_| old.is_none()).into_iter().collect();
        if old.is_none_or(|old| common::generation(old) != common::generation(object)) {
            found.extend(spec_warnings(&Cursor::root(object).get("spec")));
        }
        found
    }

    fn selectable_fields(&self) -> Vec<&str> {
        vec!["status.successful"]
    }

    fn field(&self, object: &Value, _field: &str) -> String {
        Cursor::root(object).get("status").number("succeeded").to_string()
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let job = Cursor::root(object);
        let (spec, status) = (job.get("spec"), job.get("status"));
        let done = status.number("succeeded");
        let completions = match (spec.int("completions"), spec.number("parallelism")) {
            (Some(total), _) => format!("{done}/{total}"),
            (None, parallel) if parallel > 1 => format!("{done}/1 of {parallel}"),
            (None, _) => format!("{done}/1"),
        };
        let time = |key: &str| ferry_meta::time::parse(status.text(key)).map(Timestamp::as_second);
        let duration = time("startTime")
            .map(|start| cells::human_duration(time("completionTime").unwrap_or_else(|| now.as_second()) - start));
        let template = spec.get("template").get("spec");
        let column = |key: &str| {
            template
                .array("containers")
                .iter()
                .map(|c| c[key].as_str().unwrap_or_default())
                .collect::<Vec<_>>()
                .join(",")
        };
        vec![
            object::name(object).into(),
            state(object).into(),
            completions.into(),
            duration.unwrap_or_default().into(),
            cells::age(object, now).into(),
            column("name").into(),
            column("image").into(),
            cells::none_if_empty(cells::selector(Some(spec.raw("selector")))).into(),
        ]
    }
}

/// What is doubtful in the spec of a Job, or of the Jobs of a CronJob.
pub(super) fn spec_warnings(spec: &Cursor<'_>) -> Vec<String> {
    let indexed = spec.text("completionMode") == "Indexed";
    let mut found = Vec::new();
    if indexed && spec.number("completions") > 100_000 && spec.number("parallelism") > 10_000 {
        found.push(format!(
            "{}: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail",
            spec.path
        ));
    }
    found.extend(pod::warnings::of(&spec.get("template")));
    found
}

pub(super) fn default_failure_policy(spec: &mut serde_json::Map<String, Value>) {
    for rule in map_mut(spec, "podFailurePolicy").into_iter().flat_map(|policy| maps_mut(policy, "rules")) {
        maps_mut(rule, "onPodConditions").for_each(|condition| default_to(condition, "status", "True"));
    }
}

pub(super) fn has_condition(job: &Value, kind: &str) -> bool {
    let conditions = object::items(job, "/status/conditions").iter();
    conditions.map(Cursor::root).any(|c| c.text("type") == kind && c.text("status") == "True")
}

fn state(job: &Value) -> &'static str {
    match () {
        () if has_condition(job, "Complete") => "Complete",
        () if has_condition(job, "Failed") => "Failed",
        () if object::is_being_deleted(job) => "Terminating",
        () if has_condition(job, "Suspended") => "Suspended",
        () if has_condition(job, "FailureTarget") => "FailureTarget",
        () if has_condition(job, "SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    }
}

/// The labels and the selector must be those that would be generated.
fn generated_selector(errors: &mut FieldErrors, job: &Cursor<'_>) {
    let (metadata, spec) = (job.get("metadata"), job.get("spec"));
    if spec.is_true("manualSelector") {
        return;
    }
    let uid = metadata.text("uid");
    let labels = spec.get("template").get("metadata").get("labels");
    for (keys, want) in [(UID_LABELS, uid), (NAME_LABELS, metadata.text("name"))] {
        for key in keys {
            if labels.text(key) != want {
                errors.invalid(labels.path.clone(), labels.value.clone(), format!("must be '{want}'"));
            }
        }
    }
    let selector = spec.get("selector");
    // Whoever adds to it finds nothing with it.
    let mut expected = serde_json::Map::new();
    for (keys, value) in [(UID_LABELS, uid), (NAME_LABELS, metadata.text("name"))] {
        expected.extend(keys.map(|key| (key.to_owned(), Value::from(value))));
    }
    if check::is_sound_selector(&selector) && !check::selects(selector.value, &expected) {
        let detail = "`selector` not auto-generated";
        check::bad_selector(errors, &selector, detail);
    }
}

fn selects_template(errors: &mut FieldErrors, spec: &Cursor<'_>) {
    let (selector, metadata) = (spec.get("selector"), spec.get("template").get("metadata"));
    if !selector.exists() {
        errors.required(selector.path.clone(), "");
    }
    check::label_selector(errors, &selector);
    if check::is_sound_selector(&selector) && !check::selects(selector.value, metadata.map("labels")) {
        let labels = metadata.raw("labels").clone();
        errors.invalid(metadata.at("labels"), labels, "`selector` does not match template `labels`");
    }
}

pub(super) fn validate_spec(errors: &mut FieldErrors, spec: &Cursor<'_>) {
    let keys = [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ];
    counts(errors, spec, &keys);
    if spec.has("maxFailedIndexes") && !spec.has("backoffLimitPerIndex") {
        errors.required(spec.at("backoffLimitPerIndex"), "when maxFailedIndexes is specified");
    }
    managed_by(errors, spec);
    completion_mode(errors, spec);
    job_policies::failure(errors, spec);
    job_policies::success(errors, spec);
    let replacement = spec.text("podReplacementPolicy");
    let supported: &[&str] =
        if spec.has("podFailurePolicy") { &["Failed"] } else { &["Failed", "TerminatingOrFailed"] };
    if spec.has("podReplacementPolicy") && !supported.contains(&replacement) {
        errors.unsupported(spec.at("podReplacementPolicy"), replacement, supported);
    }
    let template = spec.get("template");
    pod::validate_template(errors, &template);
    let restart = template.get("spec");
    let path = restart.at("restartPolicy");
    match restart.text("restartPolicy") {
        "Always" | "" => errors.required(path, "valid values: \"OnFailure\", \"Never\""),
        policy @ ("OnFailure" | "Never") => {
            if spec.has("podFailurePolicy") && policy != "Never" {
                errors.invalid(path, policy, "only \"Never\" is supported when podFailurePolicy is specified");
            }
        }
        other => errors.unsupported(path, other, &["OnFailure", "Never"]),
    }
}

fn managed_by(errors: &mut FieldErrors, spec: &Cursor<'_>) {
    let Some(manager) = spec.raw("managedBy").as_str() else { return };
    let path = || spec.at("managedBy");
    match manager.split_once('/') {
        _ if manager.is_empty() => errors.required(path(), ""),
        Some((domain, rest)) if !domain.is_empty() && !rest.is_empty() => {
            errors.reasons(path(), domain, names::dns1123_subdomain(domain));
        }
        _ => errors.invalid(path(), manager, "must be a domain-prefixed path (such as \"acme.io/foo\")"),
    }
    if manager.len() > 63 {
        errors.push(FieldError::too_long(&path(), 63));
    }
}

fn completion_mode(errors: &mut FieldErrors, spec: &Cursor<'_>) {
    let mode = spec.text("completionMode");
    if spec.has("completionMode") && !["NonIndexed", "Indexed"].contains(&mode) {
        errors.unsupported(spec.at("completionMode"), mode, &["NonIndexed", "Indexed"]);
    }
    let (completions, failed) = (spec.int("completions"), spec.int("maxFailedIndexes"));
    if mode == "Indexed" {
        if completions.is_none() {
            errors.required(spec.at("completions"), "when completion mode is Indexed");
        }
        let parallelism = spec.number("parallelism");
        if parallelism > 100_000 {
            let detail = "must be less than or equal to 100000 when completion mode is Indexed";
            errors.invalid(spec.at("parallelism"), parallelism, detail);
        }
        if let (Some(completions), Some(failed)) = (completions, failed)
            && failed > completions
        {
            errors.invalid(spec.at("maxFailedIndexes"), failed, "must be less than or equal to completions");
        }
    } else if !spec.has("completionMode") || mode == "NonIndexed" {
        for key in ["backoffLimitPerIndex", "maxFailedIndexes"] {
            if let Some(value) = spec.int(key) {
                errors.invalid(spec.at(key), value, "requires indexed completion mode");
            }
        }
    }
}

/// An indexed Job's pods carry their index in the name.
fn name_allows_completions(errors: &mut FieldErrors, job: &Cursor<'_>) {
    let spec = job.get("spec");
    let last = spec.number("completions") - 1;
    if spec.text("completionMode") != "Indexed" || last < 0 {
        return;
    }
    let name = job.get("metadata").text("name");
    let host = format!("{name}-{last}");
    let reasons = names::dns1123_label(&host);
    if !reasons.is_empty() {
        let detail = format!("will not able to create pod with invalid DNS label: {host}");
        errors.invalid(job.at("metadata").child("name"), name, detail);
    }
}

fn changes(errors: &mut FieldErrors, job: &Cursor<'_>, old: &Cursor<'_>) {
    let (spec, was) = (job.get("spec"), old.get("spec"));
    let (completions, before) = (spec.raw("completions"), was.raw("completions"));
    if spec.text("completionMode") == "Indexed" {
        if completions != before && !completions.is_null() && completions != spec.raw("parallelism") {
            let detail = "can only be modified in tandem with spec.parallelism";
            errors.invalid(spec.at("completions"), completions.clone(), detail);
        }
    } else {
        errors.immutable(spec.at("completions"), completions, before);
    }
    check::same_selector(errors, &spec.get("selector"), &was.get("selector"));
    template_changes(errors, job, old);
    for key in ["completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"] {
        if spec.raw(key) == was.raw(key) {
            continue;
        }
        let error = FieldError::invalid(&spec.at(key), spec.raw(key).clone(), crate::cursor::IMMUTABLE);
        errors.push(match key {
            "podFailurePolicy" => error.shown_as(crate::internal::show_pointer("PodFailurePolicy", spec.raw(key))),
            "successPolicy" => error.shown_as(crate::internal::show_pointer("SuccessPolicy", spec.raw(key))),
            _ => error,
        });
    }
}

/// A suspended Job without pods may still be told where its pods run and what they use.
fn template_changes(errors: &mut FieldErrors, job: &Cursor<'_>, old: &Cursor<'_>) {
    let (spec, was) = (job.get("spec"), old.get("spec"));
    let (template, before) = (spec.raw("template"), was.raw("template"));
    let status = old.get("status");
    let idle = (!status.has("startTime") || has_condition(old.value, "Suspended")) && status.number("active") == 0;
    if !was.is_true("suspend") || !idle {
        if template != before {
            let error = FieldError::invalid(&spec.at("template"), template.clone(), crate::cursor::IMMUTABLE);
            errors.push(error.shown_as(crate::internal::show("PodTemplateSpec", template)));
        }
        return;
    }
    let pod = template.get("spec").cloned().unwrap_or_default();
    let old_pod = before.get("spec").cloned().unwrap_or_default();
    if with_mutable_parts_of(pod.clone(), &old_pod) != old_pod {
        let error = FieldError::invalid(&spec.at("template.spec"), pod.clone(), crate::cursor::IMMUTABLE);
        errors.push(error.shown_as(crate::internal::show("PodSpec", &pod)));
    }
}

fn with_mutable_parts_of(mut pod: Value, old: &Value) -> Value {
    let restore = |target: &mut Value, source: &Value, keys: &[&str]| {
        let Some(target) = target.as_object_mut() else { return };
        for key in keys {
            match source.get(key) {
                Some(value) => target.insert((*key).to_owned(), value.clone()),
                None => target.remove(*key),
            };
        }
    };
    restore(&mut pod, old, &["nodeSelector", "tolerations", "schedulingGates"]);
    match (pod.get_mut("affinity"), old.get("affinity")) {
        (Some(affinity), Some(before)) => restore(affinity, before, &["nodeAffinity"]),
        (Some(affinity), None) if affinity.as_object().is_some_and(|a| a.keys().all(|key| key == "nodeAffinity")) => {
            restore(&mut pod, old, &["affinity"]);
        }
        (None, Some(before)) if before.as_object().is_some_and(|a| a.keys().all(|key| key == "nodeAffinity")) => {
            restore(&mut pod, old, &["affinity"]);
        }
        _ => {}
    }
    for list in ["containers", "initContainers"] {
        let before = old.get(list).and_then(Value::as_array).cloned().unwrap_or_default();
        let Some(now) = pod.get_mut(list).and_then(Value::as_array_mut).filter(|now| now.len() == before.len()) else {
            continue;
        };
        for (container, before) in now.iter_mut().zip(&before).filter(|(new, old)| new["name"] == old["name"]) {
            restore(container, before, &["resources"]);
        }
    }
    pod
}
