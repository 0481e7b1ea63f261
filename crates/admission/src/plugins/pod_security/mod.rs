//! Pod security standards: a namespace's labels say which level its pods must keep.

mod checks;
mod policy;
mod restricted;
mod settings;

use std::collections::HashMap;
use std::sync::Arc;

use ferry_meta::object::{annotations, items, labels, name, text};
use ferry_meta::{ApiError, GroupKind, ObjectReader};
use serde_json::Value;

use crate::resources::{NAMESPACES, PODS};
use crate::{Operation, Plugin, Request};
use checks::{Violation, violations};
use policy::{Level, LevelVersion, Policy};
pub(crate) use settings::Settings;

/// How many pods a namespace's new level is tried on.
const MOST_PODS: usize = 3000;
const ENFORCED: &str = "pod-security.kubernetes.io/enforce-policy";
const EXEMPT: &str = "pod-security.kubernetes.io/exempt";

pub(crate) struct PodSecurity {
    reader: Arc<dyn ObjectReader>,
    settings: Settings,
}

impl PodSecurity {
    pub(crate) fn new(reader: Arc<dyn ObjectReader>) -> Self {
        Self { reader, settings: Settings::default() }
    }

    pub(crate) fn with(self, settings: Settings) -> Self {
        Self { settings, ..self }
    }

    /// Whether the standards are of no matter for this request, which the audit log is told.
    fn is_exempt(&self, request: &mut Request<'_>) -> bool {
        let reason = self.settings.exemption(request.namespace, &request.user.name);
        request.annotations.extend(reason.map(|reason| (EXEMPT.to_owned(), reason.to_owned())));
        reason.is_some()
    }

    fn policy(&self, request: &Request<'_>) -> Result<Policy, ApiError> {
        let namespace = self
            .reader
            .get(&NAMESPACES, "", request.namespace)
            .ok_or_else(|| ApiError::internal(format_args!("failed to lookup namespace {}", request.namespace)))?;
        Ok(Policy::of(labels(&namespace), self.settings.defaults).0)
    }

    fn namespace(&self, request: &mut Request<'_>) -> Result<(), ApiError> {
        let Some(namespace) = request.object.as_deref().filter(|_| request.subresource.is_empty()) else {
            return Ok(());
        };
        let (policy, errors) = Policy::of(labels(namespace), self.settings.defaults);
        let old = request.old.map(|old| Policy::of(labels(old), self.settings.defaults));
        if !errors.is_empty() && old.as_ref().is_none_or(|(_, old_errors)| *old_errors != errors) {
            let kind = GroupKind { group: String::new(), kind: "Namespace".into() };
            return Err(ApiError::invalid(&kind, name(namespace), &errors));
        }
        let exempt = self.settings.is_exempt_namespace(name(namespace));
        let ignored = exempt.then(|| self.settings.ignored(name(namespace), &policy, labels(namespace))).flatten();
        let Some((old, _)) = old else {
            request.warnings.extend(ignored);
            return Ok(());
        };
        let relaxed = policy.enforce.version == old.enforce.version && policy.enforce.level <= old.enforce.level;
        if policy.enforce.level == Level::Privileged || relaxed {
            return Ok(());
        }
        if exempt {
            request.warnings.extend(ignored);
            return Ok(());
        }
        let warnings = self.existing_pods(name(namespace), policy.enforce);
        request.warnings.extend(warnings);
        Ok(())
    }

    /// What pods that are already there would be refused for.
    fn existing_pods(&self, namespace: &str, enforce: LevelVersion) -> Vec<String> {
        let pods = self.reader.list(&PODS, namespace);
        let mut warnings = Vec::new();
        if pods.len() > MOST_PODS {
            warnings.push(format!(
                "new PodSecurity enforce level only checked against the first {MOST_PODS} of {} existing pods",
                pods.len()
            ));
        }
        let mut found: HashMap<String, (String, usize)> = HashMap::new();
        for pod in pods.iter().take(MOST_PODS) {
            let Some(spec) = pod.get("spec") else { continue };
            let reasons: Vec<&str> = violations(enforce, pod, spec).iter().map(|v| v.reason).collect();
            if !reasons.is_empty() {
                let entry = found.entry(reasons.join(", ")).or_insert_with(|| (name(pod).to_owned(), 0));
                if name(pod) < entry.0.as_str() {
                    entry.0 = name(pod).to_owned();
                }
                entry.1 += 1;
            }
        }
        if found.is_empty() {
            return warnings;
        }
        warnings.push(format!(
            "existing pods in namespace {namespace:?} violate the new PodSecurity enforce level \"{enforce}\""
        ));
        let mut lines: Vec<String> = found
            .into_iter()
            .map(|(reasons, (first, count))| match count {
                1 => format!("{first}: {reasons}"),
                2 => format!("{first} (and 1 other pod): {reasons}"),
                more => format!("{first} (and {} other pods): {reasons}", more - 1),
            })
            .collect();
        lines.sort();
        warnings.extend(lines);
        warnings
    }

    fn pod(&self, request: &mut Request<'_>) -> Result<(), ApiError> {
        if matches!(
            request.subresource,
            "exec" | "attach" | "binding" | "eviction" | "log" | "portforward" | "proxy" | "status"
        ) {
            return Ok(());
        }
        if self.is_exempt(request) {
            return Ok(());
        }
        let policy = self.policy(request)?;
        let enforced = (ENFORCED.to_owned(), policy.enforce.to_string());
        let strictest = [policy.enforce, policy.warn, policy.audit].iter().any(|p| p.level != Level::Privileged);
        if !strictest {
            request.annotations.push(enforced);
            return Ok(());
        }
        let Some(pod) = request.object.as_deref() else { return Ok(()) };
        let Some(spec) = pod.get("spec") else { return Ok(()) };
        if request.operation == Operation::Update && request.old.is_some_and(|old| !is_significant(pod, old)) {
            return Ok(());
        }
        if self.settings.is_exempt_runtime(spec) {
            request.annotations.push((EXEMPT.to_owned(), "runtimeClass".to_owned()));
            return Ok(());
        }
        request.annotations.push(enforced);
        if let Some(note) = violation_note(policy.audit, pod, spec) {
            request.annotations.push(note);
        }
        let found = violations(policy.enforce, pod, spec);
        if !found.is_empty() {
            let detail = details(&found);
            return Err(request.forbidden(format_args!("violates PodSecurity \"{}\": {detail}", policy.enforce)));
        }
        let warning = warning(policy.warn, pod, spec);
        request.warnings.extend(warning);
        Ok(())
    }

    /// Workloads are never refused: their pods will be. They are warned.
    fn workload(&self, request: &mut Request<'_>, template: &str) -> Result<(), ApiError> {
        if self.is_exempt(request) {
            return Ok(());
        }
        let policy = self.policy(request)?;
        let template = request.object.as_deref().and_then(|object| object.pointer(template));
        let wanted = policy.warn.level != Level::Privileged || policy.audit.level != Level::Privileged;
        let Some(template) = template.filter(|_| wanted) else { return Ok(()) };
        let Some(spec) = template.get("spec") else { return Ok(()) };
        if self.settings.is_exempt_runtime(spec) {
            request.annotations.push((EXEMPT.to_owned(), "runtimeClass".to_owned()));
            return Ok(());
        }
        let warning = warning(policy.warn, template, spec);
        let note = violation_note(policy.audit, template, spec);
        request.annotations.extend(note);
        request.warnings.extend(warning);
        Ok(())
    }
}

fn warning(policy: LevelVersion, metadata: &Value, spec: &Value) -> Option<String> {
    let found = violations(policy, metadata, spec);
    (!found.is_empty()).then(|| format!("would violate PodSecurity \"{policy}\": {}", details(&found)))
}

/// What the audit log is told of a pod that breaks the level it is audited by.
fn violation_note(policy: LevelVersion, metadata: &Value, spec: &Value) -> Option<(String, String)> {
    let text = warning(policy, metadata, spec)?;
    Some(("pod-security.kubernetes.io/audit-violations".to_owned(), text))
}

fn details(found: &[Violation]) -> String {
    let texts: Vec<String> = found
        .iter()
        .map(|v| if v.detail.is_empty() { v.reason.to_owned() } else { format!("{} ({})", v.reason, v.detail) })
        .collect();
    texts.join(", ")
}

/// Whether an update touches anything the standards look at: images, new containers, old annotations.
fn is_significant(pod: &Value, old: &Value) -> bool {
    let annotation = |pod: &Value, key: &str| annotations(pod).get(key).cloned();
    let changed = |key: &str| annotation(pod, key) != annotation(old, key);
    let container_changed = |new: &Value, old: &Value| {
        let key = format!("container.seccomp.security.alpha.kubernetes.io/{}", text(new, "/name"));
        text(new, "/image") != text(old, "/image") || changed(&key)
    };
    if changed("seccomp.security.alpha.kubernetes.io/pod") {
        return true;
    }
    for list in ["/spec/containers", "/spec/initContainers"] {
        let (new, old) = (items(pod, list), items(old, list));
        if new.len() != old.len() || new.iter().zip(old).any(|(new, old)| container_changed(new, old)) {
            return true;
        }
    }
    items(pod, "/spec/ephemeralContainers").iter().any(|new| {
        let before = items(old, "/spec/ephemeralContainers").iter().find(|o| text(o, "/name") == text(new, "/name"));
        before.is_none_or(|before| container_changed(new, before))
    })
}

#[async_trait::async_trait]
impl Plugin for PodSecurity {
    fn name(&self) -> &'static str {
        "PodSecurity"
    }

    fn handles(&self, operation: Operation) -> bool {
        matches!(operation, Operation::Create | Operation::Update)
    }

    async fn validate(&self, request: &mut Request<'_>) -> Result<(), ApiError> {
        let template = match (request.resource.group.as_str(), request.resource.resource.as_str()) {
            ("", "namespaces") => return self.namespace(request),
            ("", "pods") => return self.pod(request),
            ("", "podtemplates") => "/template",
            ("", "replicationcontrollers")
            | ("apps", "deployments" | "replicasets" | "statefulsets" | "daemonsets")
            | ("batch", "jobs") => "/spec/template",
            ("batch", "cronjobs") => "/spec/jobTemplate/spec/template",
            _ => return Ok(()),
        };
        if request.subresource.is_empty() { self.workload(request, template) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests;
