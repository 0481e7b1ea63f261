//! Reviews: a question in, the same object with its answer out.

use std::collections::BTreeMap;

use ferry_admission::Operation;
use ferry_auth::{Attributes as Access, Authorizer};
use ferry_meta::{ApiError, FieldError, FieldErrors, GroupKind, Path, UserInfo, object, time};
use serde_json::{Value, json};

use crate::filters::audit;
use crate::request::call::Call;
use crate::request::context::RequestContext;
use crate::request::negotiate;
use crate::request::options::WriteOptions;
use crate::request::route::not_found;
use crate::request::verb::Subresource;
use crate::response::answer::Answer;
use crate::response::render;
use crate::server::Core;
use crate::storage::codec;
use crate::write::{Write, admission};

pub(crate) async fn handle(call: Call<'_>) -> Result<Answer, ApiError> {
    let Call { core, context, row, body } = call;
    let options = WriteOptions::read(&context.query, "CreateOptions", None)?;
    let encoding = negotiate::input(&context.headers)?;
    let mut review = codec::decode(context, &row.gvk, encoding, &body, options.field_validation)?;
    row.strategy.default(&mut review);
    let namespace = &context.info.namespace;
    let subresource = &Subresource::Main;
    let write = Write { subresource, name: "", ..Write::new(core, context, row, &options) };
    ferry_registry::object_meta::wipe_system_fields(&mut review);
    write.match_namespace(&mut review)?;
    admission::note_duplicate_owners(context, &mut review);
    write.track_fields(&mut review, None)?;
    let seen = options.object();
    let name = object::name(&review).to_owned();
    let attributes = write.attributes(Operation::Create, &name, &seen);
    admission::mutate(core, context, &attributes, Some(&mut review), None).await?;
    admission::validate(core, context, &attributes, Some(&mut review), None).await?;
    match &*row.gvk.kind {
        "SelfSubjectReview" => self_review(context, &mut review),
        "TokenReview" => token_review(core, context, &mut review).await?,
        "SelfSubjectAccessReview" => {
            let mut errors = attribute_errors(&review, false);
            errors.extend(metadata_error(&review, false).into_iter());
            refuse(errors)?;
            access(core, &context.user, &mut review).await;
        }
        "SubjectAccessReview" | "LocalSubjectAccessReview" => {
            let local = row.gvk.kind == "LocalSubjectAccessReview";
            let mut errors = attribute_errors(&review, true);
            errors.extend(metadata_error(&review, local).into_iter());
            if local {
                errors.extend(local_errors(&review, namespace));
            }
            refuse(errors)?;
            let user = subject(&review);
            access(core, &user, &mut review).await;
        }
        "SelfSubjectRulesReview" => rules(core, &context.user, &mut review)?,
        _ => return Err(not_found()),
    }
    render::object(context, row, 201, &row.gvk, codec::encode(&row.gvk, &review).into())
}

fn self_review(context: &RequestContext, review: &mut Value) {
    review["metadata"] = json!({"creationTimestamp": time::time(time::now())});
    review["status"] = json!({"userInfo": context.user});
}

async fn token_review(core: &Core, context: &RequestContext, review: &mut Value) -> Result<(), ApiError> {
    let token = object::text(review, "/spec/token").to_owned();
    if token.is_empty() {
        return Err(ApiError::bad_request("token is required for TokenReview in authentication"));
    }
    let audiences: Vec<String> =
        object::items(review, "/spec/audiences").iter().filter_map(|a| a.as_str().map(str::to_owned)).collect();
    let notes = ferry_auth::Notes::default();
    review["status"] = match core.authentication.review(&token, &audiences, &notes).await {
        Ok(identity) => json!({"authenticated": true, "user": identity.user, "audiences": identity.audiences}),
        Err(error) => json!({"user": {}, "error": error.to_string()}),
    };
    audit::noted(context, &notes);
    Ok(())
}

fn refuse(errors: FieldErrors) -> Result<(), ApiError> {
    let kind = GroupKind { group: "authorization.k8s.io".into(), kind: String::new() };
    if errors.is_empty() { Ok(()) } else { Err(ApiError::invalid(&kind, "", &errors)) }
}

/// As upstream's own types print.
fn shown(attributes: &Value) -> Value {
    json!({"Path": object::text(attributes, "/path"), "Verb": object::text(attributes, "/verb")})
}

fn attribute_errors(review: &Value, subject: bool) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let given = |pointer: &str| review.pointer(pointer).filter(|v| !v.is_null());
    let (resource, path) = (given("/spec/resourceAttributes"), given("/spec/nonResourceAttributes"));
    let spec = Path::new("spec");
    let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
    match (resource, path) {
        (Some(_), Some(path)) => errors.push(FieldError::invalid(&spec, shown(path), why)),
        (None, None) => errors.push(FieldError::invalid(&spec, Value::Null, why)),
        _ => {}
    }
    let nobody = object::text(review, "/spec/user").is_empty() && object::items(review, "/spec/groups").is_empty();
    if subject && nobody {
        let why = "at least one of user or group must be specified";
        errors.push(FieldError::invalid(&spec.child("user"), "", why));
    }
    for kind in ["fieldSelector", "labelSelector"] {
        if let Some(selector) = resource.and_then(|r| r.get(kind)).filter(|s| !s.is_null()) {
            selector_errors(&mut errors, selector, &spec.child("resourceAttributes").child(kind));
        }
    }
    errors
}

/// A selector is given as text or as requirements. Operators that are not known may be those of a later version.
fn selector_errors(errors: &mut FieldErrors, selector: &Value, path: &Path) {
    let (text, requirements) = (object::text(selector, "/rawSelector"), object::items(selector, "/requirements"));
    if !text.is_empty() && !requirements.is_empty() {
        let why = "may not specified at the same time as requirements";
        errors.push(FieldError::invalid(&path.child("rawSelector"), text, why));
    }
    if text.is_empty() && requirements.is_empty() {
        let why = format!("when {path} is specified, requirements or rawSelector is required");
        errors.push(FieldError::required(&path.child("requirements"), &why));
    }
    for (index, requirement) in requirements.iter().enumerate() {
        let at = path.child("requirements").index(index);
        let values = object::items(requirement, "/values");
        match object::text(requirement, "/operator") {
            "In" | "NotIn" if values.is_empty() => {
                let why = "must be specified when `operator` is 'In' or 'NotIn'";
                errors.push(FieldError::required(&at.child("values"), why));
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                errors.push(FieldError::forbidden(&at.child("values"), why));
            }
            _ => {}
        }
        let key = object::text(requirement, "/key");
        if path.to_string().ends_with("labelSelector") {
            for reason in ferry_meta::names::label_key(key) {
                errors.push(FieldError::invalid(&at.child("key"), key, reason));
            }
            for (number, value) in values.iter().filter_map(Value::as_str).enumerate() {
                for reason in ferry_meta::names::label_value(value) {
                    errors.push(FieldError::invalid(&at.child("values").index(number), value, reason));
                }
            }
        } else if key.is_empty() {
            errors.push(FieldError::required(&at.child("key"), "must be specified"));
        }
    }
}

/// A review is asked and answered; it has no place among objects. What the server wrote down of who sent it does not count.
fn metadata_error(review: &Value, local: bool) -> Option<FieldError> {
    let metadata = review.get("metadata")?.as_object()?;
    let mut given = metadata.keys().filter(|key| *key != "managedFields" && !(local && *key == "namespace"));
    let why = if local { "must be empty except for namespace" } else { "must be empty" };
    given.next()?;
    let error = FieldError::invalid(&Path::new("metadata"), Value::Object(metadata.clone()), why);
    let ty = ferry_schema::builtin().named("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")?;
    let shown = ferry_schema::encode_json(&ty, &Value::Object(metadata.clone()));
    Some(error.shown_as(String::from_utf8_lossy(&shown).into_owned()))
}

fn local_errors(review: &Value, namespace: &str) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let spec = Path::new("spec");
    let resource = review.pointer("/spec/resourceAttributes").filter(|v| !v.is_null());
    let wanted = resource.map_or("", |resource| object::text(resource, "/namespace"));
    if resource.is_some() && wanted != namespace {
        let path = spec.child("resourceAttributes").child("namespace");
        errors.push(FieldError::invalid(&path, wanted, "must match metadata.namespace"));
    }
    if let Some(path) = review.pointer("/spec/nonResourceAttributes").filter(|v| !v.is_null()) {
        let why = "disallowed on this kind of request";
        errors.push(FieldError::invalid(&spec.child("nonResourceAttributes"), shown(path), why));
    }
    errors
}

fn subject(review: &Value) -> UserInfo {
    let texts = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(|v| v.as_str().map(str::to_owned)).collect()
    };
    let extra: BTreeMap<String, Vec<String>> =
        object::map(review, "/spec/extra").iter().map(|(key, value)| (key.to_lowercase(), texts(value))).collect();
    UserInfo {
        name: object::text(review, "/spec/user").to_owned(),
        uid: object::text(review, "/spec/uid").to_owned(),
        groups: review.pointer("/spec/groups").map(texts).unwrap_or_default(),
        extra,
    }
}

async fn access(core: &Core, user: &UserInfo, review: &mut Value) {
    let of = |pointer: &str| object::text(review, pointer).to_owned();
    let resource = review.pointer("/spec/resourceAttributes").unwrap_or(&Value::Null);
    let (fields, unread_fields) = super::review_selectors::fields(&resource["fieldSelector"]);
    let unread_labels = super::review_selectors::labels(&resource["labelSelector"]);
    let decision = if review.pointer("/spec/resourceAttributes").is_some_and(|v| !v.is_null()) {
        let names = ["verb", "namespace", "group", "version", "resource", "subresource", "name"];
        let [verb, namespace, group, version, resource, subresource, name] =
            names.map(|field| of(&format!("/spec/resourceAttributes/{field}")));
        let attributes = Access {
            namespace: &namespace,
            version: &version,
            subresource: &subresource,
            name: &name,
            fields: &fields,
            ..Access::resource(user, &verb, &group, &resource)
        };
        core.authorization.authorize(&attributes).await
    } else {
        let (path, verb) = (of("/spec/nonResourceAttributes/path"), of("/spec/nonResourceAttributes/verb"));
        core.authorization.authorize(&Access::path(user, &verb, &path)).await
    };
    let mut status = json!({"allowed": decision.is_allowed()});
    if decision.denies() {
        status["denied"] = true.into();
    }
    // What cannot be read of a selector is left out, and told.
    let mut errors: Vec<String> = decision.error().map(str::to_owned).into_iter().collect();
    for (kind, unread) in [("fieldSelector", unread_fields), ("labelSelector", unread_labels)] {
        errors.extend(unread.map(|part| format!("spec.resourceAttributes.{kind} {part}ignored due to parse error")));
    }
    if !errors.is_empty() {
        status["evaluationError"] = errors.join("; ").into();
    }
    if !decision.reason().is_empty() {
        status["reason"] = decision.reason().into();
    }
    review["status"] = status;
}

fn rules(core: &Core, user: &UserInfo, review: &mut Value) -> Result<(), ApiError> {
    let namespace = object::text(review, "/spec/namespace").to_owned();
    if namespace.is_empty() {
        return Err(ApiError::bad_request("no namespace on request"));
    }
    let (mut resources, mut paths, mut errors) = (Vec::new(), Vec::new(), Vec::new());
    // Whoever decides without a list of rules makes the answer incomplete. A role that is missing does not.
    let mut incomplete = false;
    for name in core.authorization.names() {
        match name {
            "always-allow" => {
                resources.push(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}));
                paths.push(json!({"verbs": ["*"], "nonResourceURLs": ["*"]}));
            }
            "rbac" => {
                let found = core.rbac.as_ref().map(|rbac| rbac.rules_for(user, &namespace)).unwrap_or_default();
                for rule in &found.rules {
                    let rule = serde_json::to_value(rule).unwrap_or_default();
                    resources.extend(part(&rule, "resources", &["apiGroups", "resources", "resourceNames"]));
                    paths.extend(part(&rule, "nonResourceURLs", &["nonResourceURLs"]));
                }
                errors.extend(found.errors);
            }
            // What a node may do follows from its pods.
            "node" if ferry_auth::node_name(user).is_none() => {}
            "node" | "webhook" => {
                incomplete = true;
                errors.push(format!("{name} authorizer does not support user rule resolution"));
            }
            _ => {}
        }
    }
    // The answer is an object of its own, not the question.
    review["metadata"] = json!({});
    review["spec"] = json!({});
    review["status"] = json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": incomplete});
    if !errors.is_empty() {
        review["status"]["evaluationError"] = ferry_auth::aggregate(errors).into();
    }
    Ok(())
}

/// The part of a rule that is about resources, or about paths; None where it names none.
fn part(rule: &Value, named: &str, fields: &[&str]) -> Option<Value> {
    let listed = |field: &str| rule.get(field).filter(|value| value.as_array().is_some_and(|list| !list.is_empty()));
    listed(named)?;
    let mut kept = json!({"verbs": rule.get("verbs").cloned().unwrap_or_else(|| json!([]))});
    for field in fields {
        if let Some(value) = listed(field) {
            kept[*field] = value.clone();
        }
    }
    Some(kept)
}
