//! The rules of security contexts, user namespaces and the operating system a pod asks for.

use std::collections::HashSet;

use std::sync::LazyLock;

use ferry_meta::{FieldError, FieldErrors, names};
use regex::Regex;
use serde_json::Value;

use super::spec::all_containers;
use crate::check;
use crate::cursor::{Cursor, Report};
use crate::internal;

const SYSCTL: &str = r"^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";

static SYSCTL_NAME: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(SYSCTL).ok());

pub fn validate_pod(errors: &mut FieldErrors, spec: &Cursor<'_>) {
    let context = spec.get("securityContext");
    for key in ["fsGroup", "runAsUser", "runAsGroup"] {
        check::unix_id(errors, &context, key);
    }
    for group in context.items("supplementalGroups") {
        let id = group.value.as_i64().unwrap_or_default();
        if !(0..=i64::from(i32::MAX)).contains(&id) {
            errors.invalid(group.path, id, names::in_range(0, i32::MAX.into()));
        }
    }
    sysctls(errors, spec, &context);
    enumerated(errors, &context, "fsGroupChangePolicy", &["Always", "OnRootMismatch"]);
    seccomp(errors, &context.get("seccompProfile"));
    windows_options(errors, &context.get("windowsOptions"));
    app_armor(errors, &context.get("appArmorProfile"));
    enumerated(errors, &context, "supplementalGroupsPolicy", &["Merge", "Strict"]);
    enumerated(errors, &context, "seLinuxChangePolicy", &["MountOption", "Recursive"]);
}

fn enumerated(errors: &mut FieldErrors, parent: &Cursor<'_>, key: &str, values: &[&str]) {
    if let Some(value) = parent.raw(key).as_str().filter(|value| !values.contains(value)) {
        errors.unsupported(parent.at(key), value, values);
    }
}

fn sysctls(errors: &mut FieldErrors, spec: &Cursor<'_>, context: &Cursor<'_>) {
    let mut seen: HashSet<&str> = HashSet::new();
    for sysctl in context.items("sysctls") {
        let name = sysctl.text("name");
        let well_formed = name.len() <= 253 && SYSCTL_NAME.as_ref().is_some_and(|pattern| pattern.is_match(name));
        if name.is_empty() {
            errors.required(sysctl.at("name"), "");
        } else if !well_formed {
            let detail = format!("must have at most 253 characters and match regex {SYSCTL}");
            errors.invalid(sysctl.at("name"), name, detail);
        } else if seen.contains(&name) {
            errors.duplicate(sysctl.at("name"), name);
        }
        let dotted = name.replace('/', ".");
        let of_ipc = ["kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue."].iter().any(|p| dotted.starts_with(p));
        if spec.is_true("hostNetwork") && dotted.starts_with("net.") {
            errors.invalid(sysctl.at("name"), name, "may not be specified when 'hostNetwork' is true");
        } else if spec.is_true("hostIPC") && of_ipc {
            errors.invalid(sysctl.at("name"), name, "may not be specified when 'hostIPC' is true");
        }
        seen.insert(name);
    }
}

fn seccomp(errors: &mut FieldErrors, profile: &Cursor<'_>) {
    if !profile.exists() {
        return;
    }
    let kinds = ["Localhost", "RuntimeDefault", "Unconfined"];
    match profile.text("type") {
        "" => errors.required(profile.at("type"), "type is required when seccompProfile is set"),
        kind if !kinds.contains(&kind) => errors.unsupported(profile.at("type"), kind, &kinds),
        _ => {}
    }
    let path = profile.at("localhostProfile");
    match (profile.text("type") == "Localhost", profile.raw("localhostProfile").as_str()) {
        (true, None) => errors.required(path, "must be set when seccomp type is Localhost"),
        (true, Some(file)) => check::descending_path(errors, path, file),
        (false, Some(_)) => errors.push(
            FieldError::invalid(&path, profile.value.clone(), "can only be set when seccomp type is Localhost")
                .shown_as(internal::show("SeccompProfile", profile.value)),
        ),
        (false, None) => {}
    }
}

fn app_armor(errors: &mut FieldErrors, profile: &Cursor<'_>) {
    if !profile.exists() {
        return;
    }
    let path = || profile.at("localhostProfile");
    const NEEDED: &str = "must be set when AppArmor type is Localhost";
    match (profile.text("type"), profile.raw("localhostProfile").as_str()) {
        ("Localhost", None) => errors.required(path(), NEEDED),
        ("Localhost", Some(name)) => {
            if name.trim() != name {
                errors.invalid(path(), name, "must not be padded with whitespace");
            } else if name.is_empty() {
                errors.required(path(), NEEDED);
            }
            if name.len() > 4095 {
                errors.push(FieldError::too_long(&path(), 4095));
            }
        }
        ("RuntimeDefault" | "Unconfined", Some(name)) => {
            errors.invalid(path(), name, "can only be set when AppArmor type is Localhost");
        }
        ("RuntimeDefault" | "Unconfined", None) => {}
        ("", _) => errors.required(profile.at("type"), "type is required when appArmorProfile is set"),
        (other, _) => errors.unsupported(profile.at("type"), other, &["Localhost", "RuntimeDefault", "Unconfined"]),
    }
}

pub fn validate_container(errors: &mut FieldErrors, container: &Cursor<'_>, host_users: bool) {
    let context = container.get("securityContext");
    if !context.exists() {
        return;
    }
    check::unix_id(errors, &context, "runAsUser");
    check::unix_id(errors, &context, "runAsGroup");
    if let Some(mount) = context.raw("procMount").as_str() {
        if !["Default", "Unmasked"].contains(&mount) {
            errors.unsupported(context.at("procMount"), mount, &["Default", "Unmasked"]);
        }
        if host_users && mount == "Unmasked" {
            errors.invalid(context.at("procMount"), mount, "`hostUsers` must be false to use `Unmasked`");
        }
    }
    seccomp(errors, &context.get("seccompProfile"));
    if context.flag("allowPrivilegeEscalation") == Some(false) {
        let whole = |detail: &str| {
            FieldError::invalid(&context.path, context.value.clone(), detail)
                .shown_as(internal::show("SecurityContext", context.value))
        };
        if context.is_true("privileged") {
            errors.push(whole("cannot set `allowPrivilegeEscalation` to false and `privileged` to true"));
        }
        if context.get("capabilities").texts("add").any(|c| c == "CAP_SYS_ADMIN") {
            errors.push(whole("cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"));
        }
    }
    windows_options(errors, &context.get("windowsOptions"));
    app_armor(errors, &context.get("appArmorProfile"));
}

fn windows_options(errors: &mut FieldErrors, options: &Cursor<'_>) {
    if let Some(name) = options.raw("gmsaCredentialSpecName").as_str() {
        errors.reasons(options.at("gmsaCredentialSpecName"), name, names::dns1123_subdomain(name));
    }
    if let Some(text) = options.raw("gmsaCredentialSpec").as_str() {
        if text.is_empty() {
            let detail = "gmsaCredentialSpec cannot be an empty string";
            errors.invalid(options.at("gmsaCredentialSpec"), text, detail);
        } else if text.len() > 64 << 10 {
            errors.invalid(options.at("gmsaCredentialSpec"), text, "gmsaCredentialSpec size must be under 64 KiB");
        }
    }
    let Some(name) = options.raw("runAsUserName").as_str() else { return };
    let mut refuse = |detail: &str| errors.invalid(options.at("runAsUserName"), name, detail);
    if name.is_empty() {
        return refuse("runAsUserName cannot be an empty string");
    }
    if name.chars().any(|c| c.is_ascii_control()) {
        return refuse("runAsUserName cannot contain control characters");
    }
    let (domain, user) = match name.split('\\').collect::<Vec<_>>().as_slice() {
        [user] => (None, *user),
        [domain, user] => (Some(*domain), *user),
        _ => return refuse("runAsUserName cannot contain more than one backslash"),
    };
    if domain.is_some_and(|domain| domain.len() >= 256) {
        refuse("runAsUserName's Domain length must be under 256 characters");
    }
    if domain.is_some_and(|domain| !is_windows_domain(domain)) {
        refuse("runAsUserName's Domain doesn't match the NetBios nor the DNS format");
    }
    if user.is_empty() {
        refuse("runAsUserName's User cannot be empty");
    } else if user.len() > 104 {
        refuse("runAsUserName's User length must not be longer than 104 characters");
    }
    if !user.is_empty() && user.chars().all(|c| c == '.' || c == ' ') {
        refuse("runAsUserName's User cannot contain only periods or spaces");
    }
    if user.contains(['"', '/', '\\', ':', ';', '|', '=', ',', '+', '*', '?', '<', '>', '@', '[', ']']) {
        refuse("runAsUserName's User cannot contain the following characters: \"/\\:;|=,+*?<>@[]");
    }
}

fn is_windows_domain(domain: &str) -> bool {
    let odd = ['\\', '/', ':', '*', '?', '"', '<', '>', '|'];
    let net_bios = (1..=15).contains(&domain.chars().count()) && !domain.contains(odd) && !domain.starts_with('.');
    let part = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !part.starts_with('-')
            && !part.ends_with('-')
    };
    net_bios || domain.split('.').all(part)
}

pub fn windows_host_process(errors: &mut FieldErrors, spec: &Cursor<'_>) {
    let flag = |at: &Cursor<'_>| at.get("securityContext").get("windowsOptions").flag("hostProcess");
    let pod = flag(spec);
    let containers = all_containers(spec);
    let mut count = 0;
    for container in &containers {
        let own = flag(container);
        if let (Some(pod), Some(own)) = (pod, own)
            && pod != own
        {
            let detail = format!("pod hostProcess value must be identical if both are specified, was {pod}");
            let path = container.at("securityContext").child("windowsOptions").child("hostProcess");
            errors.invalid(path, own, detail);
        }
        if own.or(pod) == Some(true) {
            count += 1;
        }
    }
    if count == 0 {
        return;
    }
    if count != containers.len() {
        let detail = "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        errors.invalid(spec.path.clone(), "", detail);
    }
    if !spec.is_true("hostNetwork") {
        let detail = "hostNetwork must be true if pod contains any hostProcess containers";
        errors.invalid(spec.at("hostNetwork"), false, detail);
    }
}

/// What a pod in a user namespace may not share with the host.
pub fn host_users(errors: &mut FieldErrors, spec: &Cursor<'_>) {
    if spec.flag("hostUsers") != Some(false) {
        return;
    }
    for (key, shown) in [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
        if spec.is_true(key) {
            errors.forbidden(spec.at(shown), "when `hostUsers` is false");
        }
    }
}

const NOT_ON_WINDOWS: [&str; 11] = [
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "fsGroup",
    "fsGroupChangePolicy",
    "sysctls",
    "runAsUser",
    "runAsGroup",
    "supplementalGroups",
    "supplementalGroupsPolicy",
    "seLinuxChangePolicy",
];

const NOT_IN_WINDOWS_CONTAINERS: [&str; 10] = [
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
];

pub fn operating_system(errors: &mut FieldErrors, spec: &Cursor<'_>) {
    let os = spec.get("os");
    if !os.exists() {
        return;
    }
    match os.text("name") {
        "" => errors.required(os.at("name"), ""),
        "linux" => {
            for part in std::iter::once(spec.clone()).chain(all_containers(spec)) {
                let context = part.get("securityContext");
                if context.has("windowsOptions") {
                    errors.forbidden(context.at("windowsOptions"), "windows options cannot be set for a linux pod");
                }
            }
        }
        "windows" => windows(errors, spec),
        other => errors.unsupported(os.path.clone(), other, &["linux", "windows"]),
    }
}

fn windows(errors: &mut FieldErrors, spec: &Cursor<'_>) {
    let mut refuse = |parent: &Cursor<'_>, keys: &[&str], set: &dyn Fn(&Value) -> bool| {
        for key in keys.iter().filter(|key| set(parent.raw(key))) {
            errors.forbidden(parent.at(key), "cannot be set for a windows pod");
        }
    };
    let given = |value: &Value| !value.is_null() && value.as_array().is_none_or(|items| !items.is_empty());
    refuse(&spec.get("securityContext"), &NOT_ON_WINDOWS, &given);
    refuse(spec, &["hostUsers"], &given);
    refuse(spec, &["hostPID", "hostIPC"], &|value| value.as_bool() == Some(true));
    refuse(spec, &["shareProcessNamespace"], &given);
    for container in all_containers(spec) {
        refuse(&container.get("securityContext"), &NOT_IN_WINDOWS_CONTAINERS, &given);
    }
}
