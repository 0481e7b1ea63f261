//! The rules of probes and of what runs when a container starts or stops.

use ferry_meta::{FieldErrors, names};
use serde_json::json;

use super::spec::Whole;
use crate::check;
use crate::cursor::{Cursor, Report};

pub fn all(errors: &mut FieldErrors, container: &Cursor<'_>, whole: &Whole<'_>) {
    for key in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let probe = container.get(key);
        if !probe.exists() {
            continue;
        }
        handler(errors, &probe, whole);
        for number in ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
        {
            errors.non_negative(probe.at(number), probe.number(number));
        }
        let grace = "terminationGracePeriodSeconds";
        if let Some(seconds) = probe.int(grace).filter(|s| *s <= 0) {
            errors.invalid(probe.at(grace), seconds, "must be greater than 0");
        }
        if key == "readinessProbe" {
            if let Some(seconds) = probe.int(grace) {
                errors.invalid(probe.at(grace), seconds, "must not be set for readinessProbes");
            }
        } else if probe.number("successThreshold") != 1 {
            errors.invalid(probe.at("successThreshold"), probe.number("successThreshold"), "must be 1");
        }
    }
}

pub fn lifecycle(errors: &mut FieldErrors, container: &Cursor<'_>, whole: &Whole<'_>) {
    let lifecycle = container.get("lifecycle");
    for key in ["postStart", "preStop"] {
        let hook = lifecycle.get(key);
        if hook.exists() {
            handler(errors, &hook, whole);
        }
    }
}

/// Exactly one way to act; those after the first are refused unseen.
fn handler(errors: &mut FieldErrors, parent: &Cursor<'_>, whole: &Whole<'_>) {
    let mut found = false;
    for key in ["exec", "httpGet", "tcpSocket", "grpc", "sleep"] {
        let action = parent.get(key);
        if !action.exists() {
            continue;
        }
        if std::mem::replace(&mut found, true) {
            errors.forbidden(action.path, "may not specify more than 1 handler type");
            continue;
        }
        match key {
            "exec" if action.array("command").is_empty() => errors.required(action.at("command"), ""),
            "exec" => {}
            "httpGet" => http_get(errors, &action),
            "tcpSocket" | "grpc" => check::port_number_or_name(errors, &action.get("port")),
            _ => sleep(errors, &action, whole.grace_period),
        }
    }
    if !found {
        errors.required(parent.path.clone(), "must specify a handler type");
    }
}

fn http_get(errors: &mut FieldErrors, action: &Cursor<'_>) {
    if action.text("path").is_empty() {
        errors.required(action.at("path"), "");
    }
    check::port_number_or_name(errors, &action.get("port"));
    let scheme = action.text("scheme");
    if !["HTTP", "HTTPS"].contains(&scheme) {
        errors.unsupported(action.at("scheme"), scheme, &["HTTP", "HTTPS"]);
    }
    for header in action.items("httpHeaders") {
        let name = header.text("name");
        errors.reasons(action.at("httpHeaders"), name, names::http_header_name(name));
    }
}

fn sleep(errors: &mut FieldErrors, action: &Cursor<'_>, grace_period: Option<i64>) {
    let seconds = action.number("seconds");
    if let Some(grace) = grace_period
        && !(0..=grace).contains(&seconds)
    {
        let detail = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
        errors.invalid(action.path.clone(), json!(seconds), detail);
    }
}
