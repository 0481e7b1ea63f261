//! What an admission configuration may not have, or has in vain: names of files' objects, and resources that no webhook sees.

use std::collections::HashSet;

use ferry_meta::{FieldErrors, object};
use serde_json::Value;

use crate::cursor::{Cursor, Report};

/// Names with this end are those of objects that a server reads from files when it starts.
const OF_FILES: &str = ".static.k8s.io";
const RESERVED: &str = "names ending with \".static.k8s.io\" are reserved for static manifest-based configurations and cannot be \
                        managed via the API";

/// Reviews that webhooks are not asked about: a webhook that fails would lock everybody out.
const UNSEEN: [(&str, &str); 6] = [
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authentication.k8s.io", "tokenreviews"),
    ("authorization.k8s.io", "localsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("authorization.k8s.io", "subjectaccessreviews"),
];

/// Refuses a new object with the name of one from a file.
pub(super) fn name(errors: &mut FieldErrors, object: &Value) {
    let name = object::name(object);
    if name.ends_with(OF_FILES) {
        errors.invalid(Cursor::root(object).at("metadata").child("name"), name, RESERVED);
    }
}

/// An object that has such a name already is only warned about.
pub(super) fn name_warning(object: &Value, old: Option<&Value>) -> Vec<String> {
    let reserved = old.is_some() && object::name(object).ends_with(OF_FILES);
    reserved.then(|| format!("metadata.name: {RESERVED}")).into_iter().collect()
}

/// Rules of webhooks that name what no webhook sees.
pub(super) fn rule_warnings(configuration: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let hooks = Cursor::root(configuration).items("webhooks");
    for rule in hooks.iter().flat_map(|hook| hook.items("rules")) {
        // Who asks for everything need not mean these.
        if ["apiGroups", "resources"].iter().any(|key| rule.texts(key).any(|text| text == "*")) {
            continue;
        }
        let mut told = HashSet::new();
        for group in rule.texts("apiGroups") {
            let unseen = rule.texts("resources").filter(|resource| UNSEEN.contains(&(group, *resource)));
            for resource in unseen.filter(|resource| told.insert((group, *resource))) {
                found.push(format!(
                    "{}: {resource}.{group} is excluded from admission webhooks; this rule will have no effect",
                    rule.path
                ));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_of_files_are_reserved() {
        let object = json!({"metadata": {"name": "a.static.k8s.io"}});
        let mut errors = FieldErrors::new();
        name(&mut errors, &object);
        assert_eq!(errors.iter().map(|error| error.path.to_string()).collect::<Vec<_>>(), ["metadata.name"]);
        assert_eq!(name_warning(&object, None), [] as [String; 0]);
        assert_eq!(
            name_warning(&object, Some(&object)),
            [
                "metadata.name: names ending with \".static.k8s.io\" are reserved for static manifest-based configurations and cannot be managed via the API"
            ]
        );
    }

    #[test]
    fn rules_for_reviews_have_no_effect() {
        let of = |groups: Value, resources: Value| {
            rule_warnings(&json!({"webhooks": [{"rules": [{"apiGroups": groups, "resources": resources}]}]}))
        };
        let group = "authentication.k8s.io";
        assert_eq!(
            of(json!(["", group, group]), json!(["pods", "tokenreviews", "tokenreviews"])),
            [
                "webhooks[0].rules[0]: tokenreviews.authentication.k8s.io is excluded from admission webhooks; this rule will have no effect"
            ]
        );
        assert_eq!(of(json!(["*"]), json!(["tokenreviews"])), [] as [String; 0]);
        assert_eq!(of(json!([group]), json!(["*"])), [] as [String; 0]);
        assert_eq!(of(json!([group]), json!(["tokenreviews/status"])), [] as [String; 0]);
    }
}
