//! Running the admission plug-ins over one write.

use ferry_admission::{Operation, Request};
use ferry_meta::{ApiError, GroupVersionResource};
use ferry_registry::{Resource, object_meta};
use serde_json::Value;

use crate::request::context::RequestContext;
use crate::server::Core;
use crate::write::equivalents::OtherVersions;

/// What the plug-ins are told of a write besides the objects.
pub(crate) struct Attributes<'a> {
    pub operation: Operation,
    pub row: &'a Resource,
    pub kind: &'a ferry_meta::GroupVersionKind,
    pub subresource: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
    pub dry_run: bool,
    pub options: &'a Value,
}

pub(crate) async fn mutate(
    core: &Core,
    context: &RequestContext,
    attributes: &Attributes<'_>,
    mut object: Option<&mut Value>,
    old: Option<&Value>,
) -> Result<(), ApiError> {
    run(core, context, attributes, object.as_deref_mut(), old, false).await?;
    if let Some(object) = object {
        note_duplicate_owners(context, object);
    }
    Ok(())
}

/// Owners that stand twice in what a client sent, or in what a plug-in made of it, stand there once, with a warning.
pub(crate) fn note_duplicate_owners(context: &RequestContext, object: &mut Value) {
    if let Some(warning) = object_meta::remove_duplicate_owners(object) {
        context.warn(warning);
    }
}

pub(crate) async fn validate(
    core: &Core,
    context: &RequestContext,
    attributes: &Attributes<'_>,
    object: Option<&mut Value>,
    old: Option<&Value>,
) -> Result<(), ApiError> {
    run(core, context, attributes, object, old, true).await
}

async fn run(
    core: &Core,
    context: &RequestContext,
    attributes: &Attributes<'_>,
    object: Option<&mut Value>,
    old: Option<&Value>,
    validating: bool,
) -> Result<(), ApiError> {
    let resource =
        GroupVersionResource::new(&*attributes.row.gvk.group, &*attributes.row.gvk.version, &*attributes.row.plural);
    let other_versions = OtherVersions::new(core, attributes);
    let mut request = Request {
        operation: attributes.operation,
        kind: attributes.kind,
        resource: &resource,
        subresource: attributes.subresource,
        namespace: attributes.namespace,
        name: attributes.name,
        user: &context.user,
        dry_run: attributes.dry_run,
        object,
        old,
        options: attributes.options,
        warnings: Vec::new(),
        annotations: Vec::new(),
        reinvoked: false,
        calls: Vec::new(),
        equivalents: Some(&other_versions),
        requested: None,
    };
    let whole_object = !validating && *attributes.kind == attributes.row.gvk;
    let schema = attributes.row.strategy.custom_type().filter(|_| whole_object).and_then(ferry_schema::Type::schema);
    let before = schema.and_then(|_| request.object.as_deref().cloned());
    let mut outcome = Ok(());
    for plugin in core.admission.iter().filter(|p| p.handles(attributes.operation)) {
        outcome = if validating { plugin.validate(&mut request).await } else { plugin.mutate(&mut request).await };
        if outcome.is_err() {
            break;
        }
    }
    // What a webhook adds to a custom resource is held to its schema as what the client sent was. What nobody
    // changed is left alone: a null that an apply makes is for validation to refuse.
    if let (Some(object), Some(schema)) = (request.object.as_deref_mut(), schema)
        && before.as_ref() != Some(object)
    {
        schema.prune(object);
        schema.fill_defaults(object);
    }
    for warning in std::mem::take(&mut request.warnings) {
        context.warn(warning);
    }
    context.stages.called(std::mem::take(&mut request.calls));
    if let Some(record) = &context.audit {
        for (key, value) in &request.annotations {
            record.annotate(key, value);
        }
    }
    outcome
}
