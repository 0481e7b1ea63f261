//! Which kinds a policy is about, and what is wrong with its expressions for objects of these.

use std::collections::BTreeSet;

use ferry_cel::Type;
use ferry_cel::admission::{Known, typed_environment, variable_type};
use ferry_client::discovery::ServerKind;
use k8s_openapi::api::admissionregistration::v1::{
    ExpressionWarning, NamedRuleWithOperations, ValidatingAdmissionPolicy,
};

/// So many kinds are looked at; a policy about more is a policy about anything.
const MOST_KINDS: usize = 10;

/// A group, a version and a kind, in the order upstream's warnings have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Kind {
    pub group: String,
    pub version: String,
    pub kind: String,
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}, Kind={}", self.group, self.version, self.kind)
    }
}

impl Kind {
    fn of(known: &ServerKind) -> Self {
        Self { group: known.group.clone(), version: known.version.clone(), kind: known.kind.clone() }
    }
}

/// The types of a policy's objects, as far as they are known.
#[derive(Default)]
pub(super) struct Types {
    pub objects: Vec<(Kind, Type)>,
    pub params: Option<Type>,
}

/// The kinds that the policy's rules name. Rules with a wildcard for group or version name none.
pub(super) fn matched_kinds(policy: &ValidatingAdmissionPolicy, known: &[ServerKind]) -> Vec<Kind> {
    let constraints = policy.spec.as_ref().and_then(|spec| spec.match_constraints.as_ref());
    let rules = constraints.and_then(|constraints| constraints.resource_rules.as_deref()).unwrap_or_default();
    let mut kinds = BTreeSet::new();
    for rule in rules {
        let mut count = 0;
        for kind in kinds_of(rule, known) {
            kinds.insert(kind);
            count += 1;
            if count == MOST_KINDS {
                return kinds.into_iter().collect();
            }
        }
    }
    kinds.into_iter().collect()
}

fn kinds_of(rule: &NamedRuleWithOperations, known: &[ServerKind]) -> Vec<Kind> {
    let sorted = |list: &Option<Vec<String>>| {
        let mut list = list.clone().unwrap_or_default();
        list.sort();
        list
    };
    let exact = |list: Vec<String>| if list.iter().any(|entry| entry.contains('*')) { Vec::new() } else { list };
    let (groups, versions) = (exact(sorted(&rule.api_groups)), exact(sorted(&rule.api_versions)));
    let resources = sorted(&rule.resources);
    let mut found = Vec::new();
    for group in &groups {
        for version in &versions {
            for resource in resources.iter().filter(|resource| !resource.contains(['*', '/'])) {
                let resource = resource.to_lowercase();
                // To upstream's mapper the core group is no group at all, so that a resource of any is found.
                found.extend(known.iter().filter(|kind| group.is_empty() || kind.group == *group).filter_map(|kind| {
                    let named = kind.plural == resource || kind.singular == resource;
                    (named && kind.version == *version && !kind.kind.is_empty()).then(|| Kind::of(kind))
                }));
            }
        }
    }
    found
}

/// The kind of the policy's parameters, where the server has it.
pub(super) fn param_kind(policy: &ValidatingAdmissionPolicy, known: &[ServerKind]) -> Option<Kind> {
    let param = policy.spec.as_ref()?.param_kind.as_ref()?;
    let (group, version) = match param.api_version.as_deref()?.split_once('/') {
        Some((group, version)) => (group, version),
        None => ("", param.api_version.as_deref()?),
    };
    let named =
        |kind: &&ServerKind| kind.group == group && kind.version == version && Some(&kind.kind) == param.kind.as_ref();
    known.iter().find(named).map(Kind::of)
}

/// What upstream's type checker says of a policy.
pub(super) fn warnings(policy: &ValidatingAdmissionPolicy, types: &Types) -> Vec<ExpressionWarning> {
    let Some(spec) = &policy.spec else { return Vec::new() };
    let environments: Vec<_> = types
        .objects
        .iter()
        .map(|(kind, object)| {
            let mut known = Known { object: object.clone(), params: types.params.clone(), variables: Vec::new() };
            // Each variable sees those before it.
            for variable in spec.variables.iter().flatten() {
                let compiled = typed_environment(&known).compile(&variable.expression);
                let ty = compiled.map_or(Type::Dyn, |program| variable_type(program.result()));
                known.variables.push((variable.name.clone(), ty));
            }
            (kind, typed_environment(&known))
        })
        .collect();
    let check = |expression: &str| {
        let wrong = environments.iter().filter_map(|(kind, environment)| {
            environment.compile(expression).err().map(|issues| format!("{kind}: {issues}\n"))
        });
        wrong.collect::<Vec<_>>().join("\n")
    };
    let mut warnings = Vec::new();
    for (index, validation) in spec.validations.iter().flatten().enumerate() {
        let message = validation.message_expression.as_deref().filter(|text| !text.is_empty());
        let expressions = [("expression", Some(validation.expression.as_str())), ("messageExpression", message)];
        for (field, expression) in expressions {
            let warning = expression.map(&check).unwrap_or_default();
            if !warning.is_empty() {
                warnings.push(ExpressionWarning { field_ref: format!("spec.validations[{index}].{field}"), warning });
            }
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn policy(rules: Value) -> ValidatingAdmissionPolicy {
        let json = json!({ "metadata": { "name": "p" }, "spec": { "matchConstraints": { "resourceRules": rules } } });
        serde_json::from_value(json).expect("a policy")
    }

    fn known() -> Vec<ServerKind> {
        let kind = |group: &str, kind: &str, plural: &str| ServerKind {
            group: group.into(),
            version: "v1".into(),
            kind: kind.into(),
            plural: plural.into(),
            singular: kind.to_lowercase(),
        };
        let mut known = vec![
            kind("", "Pod", "pods"),
            kind("", "Event", "events"),
            kind("apps", "Deployment", "deployments"),
            kind("events.k8s.io", "Event", "events"),
        ];
        known.extend((0..20).map(|number| kind("many", &format!("Kind{number:02}"), &format!("kinds{number:02}"))));
        known
    }

    #[test]
    fn rules_name_kinds() {
        let many: Vec<String> = (0..20).map(|number| format!("kinds{number:02}")).collect();
        let cases = [
            (
                json!([{ "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods", "pods/status", "*"] }]),
                vec!["/v1, Kind=Pod"],
            ),
            (
                json!([{ "apiGroups": [""], "apiVersions": ["v1"], "resources": ["events"] }]),
                vec!["/v1, Kind=Event", "events.k8s.io/v1, Kind=Event"],
            ),
            (
                json!([{ "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployment", "pods"] }]),
                vec!["apps/v1, Kind=Deployment"],
            ),
            (json!([{ "apiGroups": ["apps", "*"], "apiVersions": ["v1"], "resources": ["deployments"] }]), vec![]),
            (json!([{ "apiGroups": ["apps"], "apiVersions": ["*"], "resources": ["deployments"] }]), vec![]),
            (
                json!([{ "apiGroups": ["many"], "apiVersions": ["v1"], "resources": many },
                       { "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"] }]),
                vec![
                    "many/v1, Kind=Kind00",
                    "many/v1, Kind=Kind01",
                    "many/v1, Kind=Kind02",
                    "many/v1, Kind=Kind03",
                    "many/v1, Kind=Kind04",
                    "many/v1, Kind=Kind05",
                    "many/v1, Kind=Kind06",
                    "many/v1, Kind=Kind07",
                    "many/v1, Kind=Kind08",
                    "many/v1, Kind=Kind09",
                ],
            ),
        ];
        for (rules, wanted) in cases {
            let found: Vec<String> =
                matched_kinds(&policy(rules.clone()), &known()).iter().map(ToString::to_string).collect();
            assert_eq!(found, wanted, "{rules}");
        }
    }
}
