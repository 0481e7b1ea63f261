//! The `PodSecurityConfiguration`: levels of namespaces that name none, and what is exempt from all levels.

use ferry_meta::names;
use ferry_meta::object::{items, text};
use serde_json::{Map, Value};

use super::policy::{Level, Policy};

const GROUP: &str = "pod-security.admission.config.k8s.io/";

#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    pub(super) defaults: Policy,
    usernames: Vec<String>,
    namespaces: Vec<String>,
    runtime_classes: Vec<String>,
}

impl Settings {
    pub(crate) fn read(file: &Value) -> Result<Self, String> {
        let version = text(file, "/apiVersion").strip_prefix(GROUP);
        if text(file, "/kind") != "PodSecurityConfiguration" || !matches!(version, Some("v1" | "v1beta1" | "v1alpha1"))
        {
            return Err(format!("it is no PodSecurityConfiguration of {GROUP}v1"));
        }
        let exempt = |kind: &str, judge: &dyn Fn(&str) -> Vec<String>| -> Result<Vec<String>, String> {
            let mut all: Vec<String> = Vec::new();
            for (index, item) in items(file, &format!("/exemptions/{kind}")).iter().enumerate() {
                let (at, name) = (format!("exemptions.{kind}[{index}]"), item.as_str().unwrap_or_default());
                let reasons = judge(name);
                if !reasons.is_empty() {
                    return Err(format!("{at}: Invalid value: {name:?}: {}", reasons.join(", ")));
                }
                if all.iter().any(|known| known == name) {
                    return Err(format!("{at}: Duplicate value: {name:?}"));
                }
                all.push(name.to_owned());
            }
            Ok(all)
        };
        let not_empty = |name: &str| {
            if name.is_empty() { vec!["username must not be empty".to_owned()] } else { Vec::new() }
        };
        Ok(Self {
            defaults: Policy::of_defaults(file.get("defaults").unwrap_or(&Value::Null))?,
            usernames: exempt("usernames", &not_empty)?,
            namespaces: exempt("namespaces", &names::dns1123_label)?,
            runtime_classes: exempt("runtimeClasses", &names::dns1123_subdomain)?,
        })
    }

    /// Why nothing in this namespace, or of this user, is looked at.
    pub(super) fn exemption(&self, namespace: &str, user: &str) -> Option<&'static str> {
        let holds = |list: &[String], name: &str| list.iter().any(|known| known == name);
        if holds(&self.namespaces, namespace) {
            Some("namespace")
        } else if holds(&self.usernames, user) {
            Some("user")
        } else {
            None
        }
    }

    pub(super) fn is_exempt_namespace(&self, namespace: &str) -> bool {
        self.namespaces.iter().any(|known| known == namespace)
    }

    pub(super) fn is_exempt_runtime(&self, spec: &Value) -> bool {
        let class = text(spec, "/runtimeClassName");
        !class.is_empty() && self.runtime_classes.iter().any(|known| known == class)
    }

    /// Labels of an exempt namespace that lead nowhere.
    pub(super) fn ignored(&self, namespace: &str, policy: &Policy, labels: &Map<String, Value>) -> Option<String> {
        let mut parts = Vec::new();
        for (mode, level) in [("enforce", policy.enforce), ("audit", policy.audit), ("warn", policy.warn)] {
            let label = format!("pod-security.kubernetes.io/{mode}");
            let given = labels.contains_key(&label) || labels.contains_key(&format!("{label}-version"));
            if given && level.level != Level::Privileged {
                parts.push(format!("{mode}={level}"));
            }
        }
        let ignored = parts.join(", ");
        (!ignored.is_empty()).then(|| {
            format!("namespace {namespace:?} is exempt from Pod Security, and the policy ({ignored}) will be ignored")
        })
    }
}
