//! pods/binding: a pod gets its node, once.

use ferry_admission::Operation;
use ferry_meta::{ApiError, FieldError, FieldErrors, GroupResource, GroupVersionKind, Path, object, time};
use ferry_registry::Resource;
use ferry_store::{Op, StoreError, Transaction};
use serde_json::{Value, json};

use super::binding_fast_path;
use crate::request::call::Call;
use crate::request::context::{RequestContext, Stage};
use crate::request::negotiate;
use crate::request::options::WriteOptions;
use crate::response::answer::Answer;
use crate::server::Core;
use crate::storage::codec;
use crate::storage::live;
use crate::storage::objects::{self, bare_error, modify};
use crate::write::admission::{self, Attributes};

/// `name` is that of the path; empty for the collection, where the body names the pod.
pub(crate) async fn handle(call: Call<'_>, name: &str) -> Result<Answer, ApiError> {
    let Call { core, context, body, .. } = call;
    let row = core.core_row("pods")?;
    let kind = GroupVersionKind::new("", "v1", "Binding");
    let options = WriteOptions::read(&context.query, "CreateOptions", None)?;
    let encoding = negotiate::input(&context.headers)?;
    let mut binding = codec::decode(context, &kind, encoding, &body, options.field_validation)?;
    let namespace = &context.info.namespace;
    super::same_namespace(&binding, namespace)?;
    admission::note_duplicate_owners(context, &mut binding);
    let collected = name.is_empty();
    if collected {
        // The collection is asked for a pod by its name alone.
        object::metadata_mut(&mut binding).remove("uid");
    }
    if !name.is_empty() && object::name(&binding) != name {
        return Err(ApiError::bad_request("name in URL does not match name in Binding object"));
    }
    let name = object::name(&binding).to_owned();
    let seen = options.object();
    // Plug-ins see what the path names: a subresource of a pod, or a binding of its own.
    let own = context.row.as_ref().filter(|_| collected);
    let attributes = Attributes {
        operation: Operation::Create,
        row: own.unwrap_or(&row),
        kind: &kind,
        subresource: if collected { "" } else { "binding" },
        namespace,
        name: &name,
        dry_run: options.dry_run,
        options: &seen,
    };
    context.stages.done(Stage::Decode);
    admission::mutate(core, context, &attributes, Some(&mut binding), None).await?;
    admission::validate(core, context, &attributes, Some(&mut binding), None).await?;
    context.stages.done(Stage::Validate);
    check(&binding)?;
    if name.is_empty() {
        return Err(ApiError::bad_request("Name parameter required."));
    }
    let key = row.key(namespace, &name);
    // A dry run does not come as far as the store, which adds its prefix.
    let key = if options.dry_run { key.trim_start_matches("/registry") } else { &*key };
    let assign = |pod: &mut Value| assign(pod, &binding, key);
    if options.dry_run {
        let mut live = objects::must_load(core, &row, namespace, &name).await?;
        assign(&mut live.object)?;
    } else if !place(core, context, &row, &name, &binding).await? {
        modify(core, &row, namespace, &name, Some(&context.stages), assign).await?;
    }
    super::status(&objects::success(201))
}

/// Whether the pod was a plain one, and has its node now.
async fn place(
    core: &Core,
    context: &RequestContext,
    row: &Resource,
    name: &str,
    binding: &Value,
) -> Result<bool, ApiError> {
    let namespace = &*context.info.namespace;
    if !object::annotations(binding).is_empty() || !object::resource_version(binding).is_empty() {
        return Ok(false);
    }
    // One that the cache does not have, or has as it was before, is looked at by others.
    let Some(entry) = live::cached(core, row, namespace, name) else { return Ok(false) };
    let (uid, node) = (object::uid(binding), object::text(binding, "/target/name"));
    let placed = binding_fast_path::place(&entry.value, uid, node, object::labels(binding), &time::time(time::now()));
    let Some(value) = placed else { return Ok(false) };
    let op = Op::Update { key: row.key(namespace, name), value, expected: entry.modified, lease: None };
    match core.commit(Transaction::one(op), Some(&context.stages)).await {
        Ok(_) => Ok(true),
        // Whoever was faster may have left it another pod.
        Err(StoreError::Conflict { .. }) => Ok(false),
        Err(error) => Err(objects::store_error(&error)),
    }
}

fn check(binding: &Value) -> Result<(), ApiError> {
    let mut errors = FieldErrors::new();
    let target = Path::new("target");
    let kind = object::text(binding, "/target/kind");
    if !matches!(kind, "" | "Node") {
        errors.push(FieldError::not_supported(&target.child("kind"), kind, &["Node", "<empty>"]));
    }
    let node = object::text(binding, "/target/name");
    if node.is_empty() {
        errors.push(FieldError::required(&target.child("name"), ""));
    } else {
        let reasons = ferry_meta::names::dns1123_subdomain(node);
        errors.extend(reasons.into_iter().map(|why| FieldError::invalid(&target.child("name"), node, why)));
    }
    match &*errors {
        [] => Ok(()),
        [one] => Err(bare_error(one.line())),
        many => Err(bare_error(format!("[{}]", many.iter().map(FieldError::line).collect::<Vec<_>>().join(", ")))),
    }
}

fn assign(pod: &mut Value, binding: &Value, key: &str) -> Result<(), ApiError> {
    let name = object::name(pod).to_owned();
    for (what, of) in [("UID", object::uid as fn(&Value) -> &str), ("ResourceVersion", object::resource_version)] {
        let (wanted, have) = (of(binding), of(pod));
        if !wanted.is_empty() && wanted != have {
            let why = format!(
                "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition \
                 failed: {what} in precondition: {wanted}, {what} in object meta: {have}"
            );
            return Err(ApiError::conflict(&GroupResource::new("", "pods"), &name, &why));
        }
    }
    let refuse = |why: String| Err(ApiError::conflict(&GroupResource::new("", "pods/binding"), &name, &why));
    if object::is_being_deleted(pod) {
        return refuse(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    let node = object::text(pod, "/spec/nodeName");
    if !node.is_empty() {
        return refuse(format!("pod {name} is already assigned to node {node:?}"));
    }
    if !object::items(pod, "/spec/schedulingGates").is_empty() {
        return refuse(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    let host = object::text(binding, "/target/name").to_owned();
    object::child_mut(pod, "spec").insert("nodeName".into(), host.into());
    for (field, values) in [("annotations", object::annotations(binding)), ("labels", object::labels(binding))] {
        for (key, value) in values {
            let metadata = object::metadata_mut(pod);
            let map = metadata.entry(field).or_insert_with(|| json!({}));
            // Labels of the pod win over those the scheduler copies from the node.
            if field == "annotations" || map.get(key).is_none() {
                map[key.as_str()] = value.clone();
            }
        }
    }
    set_condition(pod, json!({"type": "PodScheduled", "status": "True"}));
    Ok(())
}

/// Replaces the condition of this type, keeping the time of its last change where its status stays.
pub(super) fn set_condition(pod: &mut Value, mut condition: Value) {
    condition["lastProbeTime"] = Value::Null;
    condition["lastTransitionTime"] = time::time(time::now()).into();
    objects::set_condition(object::child_mut(pod, "status"), condition);
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    #[test]
    fn targets_are_nodes_with_a_name() {
        let why = "target.name: Invalid value: \"N_\": a lowercase RFC 1123 subdomain";
        for (target, want) in [
            (json!({"name": "n"}), None),
            (json!({"kind": "Node", "name": "n.example"}), None),
            (json!({}), Some("target.name: Required value")),
            (json!({"name": "N_"}), Some(why)),
        ] {
            let said = check(&json!({"target": target})).err().map(|error| error.0.message);
            assert_eq!(said.is_none(), want.is_none(), "{target}");
            assert!(said.unwrap_or_default().starts_with(want.unwrap_or_default()), "{target}");
        }
    }

    #[test]
    fn a_binding_means_the_pod_and_the_version_that_it_names() {
        let pod = json!({"metadata": {"name": "p", "uid": "u", "resourceVersion": "7"}});
        for (named, refused) in [
            (json!({}), None),
            (json!({"uid": "u", "resourceVersion": "7"}), None),
            (json!({"uid": "v", "resourceVersion": "1"}), Some("UID in precondition: v, UID in object meta: u")),
            (
                json!({"resourceVersion": "1"}),
                Some("ResourceVersion in precondition: 1, ResourceVersion in object meta: 7"),
            ),
        ] {
            let binding = json!({"metadata": named, "target": {"name": "n"}});
            let message = assign(&mut pod.clone(), &binding, "key").err().map(|error| error.0.message);
            assert_eq!(message.is_some(), refused.is_some(), "{named}");
            assert!(message.unwrap_or_default().ends_with(refused.unwrap_or_default()), "{named}");
        }
    }

    /// What the long way makes of a pod.
    pub(crate) fn assigned(pod: &mut Value, node: &str, labels: &Value, now: &str) {
        let binding = json!({"metadata": {"labels": labels}, "target": {"name": node}});
        assert!(assign(pod, &binding, "key").is_ok());
        pod["status"]["conditions"][0]["lastTransitionTime"] = now.into();
    }
}
