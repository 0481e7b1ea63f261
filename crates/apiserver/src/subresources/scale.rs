//! The scale subresource: the replicas of a workload as an object of its own.

use std::sync::Arc;

use bytes::Bytes;
use ferry_admission::Operation;
use ferry_meta::{ApiError, FieldErrors, GroupVersionKind, object};
use ferry_registry::apiextensions::custom::ScalePaths;
use ferry_registry::{Resource, scale};
use ferry_schema::managed;
use http::Method;
use serde_json::Value;

use crate::admission::{self, Attributes};
use crate::answer::Answer;
use crate::context::RequestContext;
use crate::objects::{self, Stored};
use crate::options::WriteOptions;
use crate::patching::Patch;
use crate::server::Core;
use crate::verbs::{match_name, patch as patch_verb};
use crate::write::{Write, Written};
use crate::{codec, negotiate, scale_table};

const ATTEMPTS: usize = 64;

fn kind() -> GroupVersionKind {
    GroupVersionKind::new("autoscaling", "v1", "Scale")
}

/// Where the replicas are, in the only version the workloads have.
fn mappings(row: &Resource) -> [(String, String); 1] {
    let path = row.strategy.scale_paths().map(|paths| ScalePaths::fields(&paths.spec).join("."));
    [(row.gvk.api_version(), path.unwrap_or_else(|| "spec.replicas".to_owned()))]
}

/// What a custom resource must have to be shown as a Scale.
fn check(row: &Resource, parent: &Value) -> Result<(), ApiError> {
    let Some(paths) = row.strategy.scale_paths() else { return Ok(()) };
    if ScalePaths::value(&paths.spec, parent).is_none() {
        return Err(ApiError::internal(format!("the spec replicas field {:?} does not exist", paths.spec)));
    }
    Ok(())
}

fn scale_of(row: &Resource, parent: &Value) -> Value {
    match row.strategy.scale_paths() {
        Some(paths) => scale::of_custom(parent, paths),
        None => scale::of(parent),
    }
}

pub(crate) async fn handle(
    core: &Arc<Core>,
    context: &RequestContext,
    row: &Arc<Resource>,
    body: Bytes,
) -> Result<Answer, ApiError> {
    let info = &context.info;
    if context.method == Method::GET {
        let parent = objects::must_load(core, row, &info.namespace, &info.name).await?;
        check(row, &parent.object)?;
        return scale_table::scale(core, context, row, &scale_of(row, &parent.object));
    }
    let change = if context.method == Method::PUT {
        let options = WriteOptions::read(&context.query, "UpdateOptions", None)?;
        let encoding = negotiate::input(&context.headers)?;
        let scale = codec::decode(context, &kind(), encoding, &body, options.field_validation)?;
        match_name(&scale, &info.name)?;
        (options, Change::Put(scale))
    } else {
        let of = patch_verb::check_route(&context.headers)?;
        patch_verb::check_kind(row, of)?;
        let apply = of == patch_verb::PatchKind::Apply;
        let options = WriteOptions::read(&context.query, "PatchOptions", Some(apply))?;
        let patch = Patch::read(context, of, &body)?;
        (options, Change::Patch(patch))
    };
    let (options, change) = change;
    // The parent goes the way of a main write, so that its generation counts.
    let write = Write {
        core,
        context,
        row,
        subresource: "",
        namespace: &info.namespace,
        name: &info.name,
        options: &options,
        admits: false,
    };
    for _ in 0..ATTEMPTS {
        let live = objects::must_load(core, row, &info.namespace, &info.name).await?;
        if let Some(written) = attempt(&write, &change, live).await? {
            return scale_table::scale(core, context, row, &scale_of(row, &written.object));
        }
    }
    Err(ApiError::modified(&row.group_resource(), &info.name))
}

enum Change {
    Put(Value),
    Patch(Patch),
}

/// `None`: another writer was faster.
async fn attempt(write: &Write<'_>, change: &Change, live: Stored) -> Result<Option<Written>, ApiError> {
    let (row, context, options) = (write.row, write.context, write.options);
    let mut before = scale_of(row, &live.object);
    let owners = mappings(row);
    let owners: Vec<(&str, &str)> = owners.iter().map(|(version, path)| (version.as_str(), path.as_str())).collect();
    let fields = managed::scale::to_scale(live.object.pointer("/metadata/managedFields"), &owners);
    object::metadata_mut(&mut before).insert("managedFields".into(), fields);

    let mut new = match change {
        Change::Put(scale) => scale.clone(),
        Change::Patch(patch) => {
            let ty = codec::type_of(&kind()).ok_or_else(|| ApiError::internal("the catalogue has no Scale"))?;
            let tracked = managed::Write {
                gvk: &kind(),
                manager: &options.field_manager,
                subresource: "scale",
                reset: &[],
                now: ferry_meta::time::now(),
                versions: None,
            };
            patch.apply_to(context, &ty, &tracked, Some(&before), options, write.name)?
        }
    };
    match_name(&new, write.name)?;
    write.match_namespace(&mut new)?;
    let (given, have) = (object::uid(&new), object::uid(&live.object));
    if !given.is_empty() && given != have {
        return Err(write.uid_conflict(given, have));
    }
    if !matches!(change, Change::Patch(Patch::Apply(..))) {
        let ty = codec::type_of(&kind()).ok_or_else(|| ApiError::internal("the catalogue has no Scale"))?;
        let manager = options.manager(context.agent());
        codec::track(&ty, &kind(), "scale", &[], &mut new, Some(&before), &manager);
    }
    let seen = options.object();
    let scale_kind = kind();
    let attributes = Attributes {
        operation: Operation::Update,
        row,
        kind: &scale_kind,
        subresource: "scale",
        namespace: write.namespace,
        name: write.name,
        dry_run: options.dry_run,
        options: &seen,
    };
    admission::mutate(write.core, context, &attributes, Some(&mut new), Some(&before)).await?;
    let replicas = new.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(0);
    // A custom resource says itself what is wrong with it.
    let custom = row.strategy.scale_paths();
    let errors = if custom.is_some() { FieldErrors::new() } else { scale::validate(&new) };
    if !errors.is_empty() {
        return Err(ApiError::invalid(&kind().group_kind(), write.name, &errors));
    }
    admission::validate(write.core, context, &attributes, Some(&mut new), Some(&before)).await?;

    let mut parent = live.object.clone();
    match custom {
        Some(paths) => scale::set(&mut parent, &ScalePaths::fields(&paths.spec), replicas),
        None => drop(object::child_mut(&mut parent, "spec").insert("replicas".into(), replicas.into())),
    }
    let changed = managed::scale::to_parent(
        live.object.pointer("/metadata/managedFields"),
        new.pointer("/metadata/managedFields"),
        &row.gvk.api_version(),
        &owners,
    );
    let metadata = object::metadata_mut(&mut parent);
    metadata.insert("managedFields".into(), changed);
    match object::resource_version(&new) {
        "" if custom.is_some() => metadata.insert("resourceVersion".into(), live.revision.to_string().into()),
        "" => metadata.remove("resourceVersion"),
        version => metadata.insert("resourceVersion".into(), version.into()),
    };
    write.try_update(parent, live).await
}
