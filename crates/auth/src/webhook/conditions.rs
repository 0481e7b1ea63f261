//! Conditions under which a webhook is asked: expressions over the review that it would get.

use std::sync::Arc;

use ferry_cel::{Budget, Decl, Environment, ExpressionError, PER_CALL_LIMIT, Program, Type};
use serde_json::{Value, json};

use crate::authorize::Attributes;

/// A webhook has no more of them.
pub(crate) const MOST_CONDITIONS: usize = 64;

#[derive(Clone, Default)]
pub struct AccessConditions(Arc<Vec<Program>>);

/// Why a webhook cannot have its conditions, with the place of the one that is meant.
#[derive(Debug, thiserror::Error)]
pub enum ConditionsError {
    #[error("matchConditions: Too many: {0}: must have at most {most} items", most = MOST_CONDITIONS)]
    TooMany(usize),
    #[error("matchConditions[{0}].expression: Required value")]
    Empty(usize),
    #[error("matchConditions[{index}].expression: Duplicate value: {text:?}")]
    Duplicate { index: usize, text: String },
    #[error("matchConditions[{index}].expression: Invalid value: {text:?}: {why}")]
    Invalid { index: usize, text: String, why: ExpressionError },
}

impl AccessConditions {
    pub fn compile(expressions: &[&str]) -> Result<Self, ConditionsError> {
        if expressions.len() > MOST_CONDITIONS {
            return Err(ConditionsError::TooMany(expressions.len()));
        }
        let environment = Environment::new().variable("request", request_type());
        let mut programs: Vec<Program> = Vec::with_capacity(expressions.len());
        for (index, &text) in expressions.iter().enumerate() {
            if text.trim().is_empty() {
                return Err(ConditionsError::Empty(index));
            }
            if expressions[..index].contains(&text) {
                return Err(ConditionsError::Duplicate { index, text: text.to_owned() });
            }
            let invalid = |why: ExpressionError| ConditionsError::Invalid { index, text: text.to_owned(), why };
            let program = environment.compile(text).map_err(|why| invalid(why.into()))?;
            if *program.result() != Type::Bool {
                let (wanted, found) = (Type::Bool.go_name(), program.result().go_name());
                return Err(invalid(ExpressionError::Result { wanted, found }));
            }
            programs.push(program);
        }
        Ok(Self(Arc::new(programs)))
    }

    /// One that is false outweighs others that fail.
    pub(super) fn hold(&self, attributes: &Attributes<'_>) -> Result<bool, String> {
        if self.0.is_empty() {
            return Ok(true);
        }
        let request = describe(attributes);
        let mut failed = Vec::new();
        for program in self.0.iter() {
            let result = program.evaluate(&[ferry_cel::Value::json(&request)], &mut Budget::new(PER_CALL_LIMIT));
            match result.map(|value| value.as_bool()) {
                Ok(Some(true)) => {}
                Ok(_) => return Ok(false),
                Err(why) => failed.push(format!("{}: {why}", program.text())),
            }
        }
        if failed.is_empty() { Ok(true) } else { Err(failed.join(", ")) }
    }
}

/// The review as expressions see it: texts are there even where they are empty.
fn describe(attributes: &Attributes<'_>) -> Value {
    let user = attributes.user;
    let mut request = json!({ "user": user.name, "uid": user.uid, "groups": user.groups, "extra": user.extra });
    if !attributes.is_resource {
        request["nonResourceAttributes"] = json!({ "path": attributes.path, "verb": attributes.verb });
        return request;
    }
    let mut resource = json!({
        "namespace": attributes.namespace, "verb": attributes.verb, "group": attributes.group, "version": attributes.version,
        "resource": attributes.resource, "subresource": attributes.subresource, "name": attributes.name,
    });
    if !attributes.fields.is_empty() {
        let requirements =
            attributes.fields.iter().map(|(key, value)| json!({ "key": key, "operator": "In", "values": [value] }));
        resource["fieldSelector"] = json!({ "requirements": requirements.collect::<Vec<_>>() });
    }
    request["resourceAttributes"] = resource;
    request
}

fn request_type() -> Type {
    let string = || Decl::of(Type::String);
    let strings = || Decl::list(string());
    let requirement = || {
        Decl::object(
            "kubernetes.SelectorRequirement",
            &[("key", string()), ("operator", string()), ("values", strings())],
        )
    };
    let selector =
        |name: &str| Decl::object(name, &[("rawSelector", string()), ("requirements", Decl::list(requirement()))]);
    let resource = Decl::object(
        "kubernetes.ResourceAttributes",
        &[
            ("namespace", string()),
            ("verb", string()),
            ("group", string()),
            ("version", string()),
            ("resource", string()),
            ("subresource", string()),
            ("name", string()),
            ("fieldSelector", selector("kubernetes.FieldSelectorAttributes")),
            ("labelSelector", selector("kubernetes.LabelSelectorAttributes")),
        ],
    );
    let path = Decl::object("kubernetes.NonResourceAttributes", &[("path", string()), ("verb", string())]);
    let request = Decl::object(
        "kubernetes.SubjectAccessReviewSpec",
        &[
            ("resourceAttributes", resource),
            ("nonResourceAttributes", path),
            ("user", string()),
            ("groups", strings()),
            ("extra", Decl::map(strings())),
            ("uid", string()),
        ],
    );
    request.ty
}

#[cfg(test)]
mod tests {
    use ferry_meta::UserInfo;

    use super::*;

    #[test]
    fn conditions_see_the_review() {
        let user = UserInfo::new("eve", &["dev"]);
        let fields = [("metadata.name".to_owned(), "x".to_owned())];
        let pods = Attributes { namespace: "a", fields: &fields, ..Attributes::resource(&user, "list", "", "pods") };
        let path = Attributes::path(&user, "get", "/healthz");
        for (expressions, of_pods, of_path) in [
            (&["has(request.resourceAttributes)"][..], Ok(true), Ok(false)),
            (&["request.user == 'eve'", "'dev' in request.groups"], Ok(true), Ok(true)),
            (&["request.resourceAttributes.namespace == 'a'"], Ok(true), Err(())),
            // One that is false outweighs one that fails, in either order.
            (&["request.resourceAttributes.name == ''", "request.uid != ''"], Ok(false), Ok(false)),
            (
                &[
                    "request.resourceAttributes.fieldSelector.requirements.exists(r, r.key == 'metadata.name' && r.values == ['x'])",
                ],
                Ok(true),
                Err(()),
            ),
            (&["!has(request.resourceAttributes) || request.resourceAttributes.subresource == ''"], Ok(true), Ok(true)),
            (&["request.extra == {}"], Ok(true), Ok(true)),
        ] {
            let conditions = AccessConditions::compile(expressions).expect("they compile");
            assert_eq!(conditions.hold(&pods).map_err(|_| ()), of_pods, "{expressions:?}");
            assert_eq!(conditions.hold(&path).map_err(|_| ()), of_path, "{expressions:?}");
        }
    }

    #[test]
    fn conditions_that_mean_nothing_are_refused() {
        let many: Vec<String> = (0..65).map(|number| format!("request.user == '{number}'")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        for (expressions, wanted) in [
            (&["true", " "][..], "matchConditions[1].expression: Required value"),
            (&["true", "true"], "matchConditions[1].expression: Duplicate value"),
            (&["request.user"], "must evaluate to bool but got string"),
            (&["request.name == ''"], "undefined field 'name'"),
            (&["object.x"], "undeclared reference to 'object'"),
            (&many, "at most 64"),
        ] {
            let error = AccessConditions::compile(expressions).err().expect("refused").to_string();
            assert!(error.contains(wanted), "{error}");
        }
    }
}
