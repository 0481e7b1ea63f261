//! The scale subresource: the replicas of a workload as an object of its own.

use ferry_admission::Operation;
use ferry_meta::{ApiError, FieldErrors, GroupVersion, GroupVersionKind, Reason, object};
use ferry_registry::apiextensions::custom::ScalePaths;
use ferry_registry::{Resource, scale};
use ferry_schema::{Type, managed};
use http::Method;
use serde_json::Value;

use crate::request::call::Call;
use crate::request::negotiate;
use crate::request::options::WriteOptions;
use crate::request::verb::Subresource;
use crate::response::answer::Answer;
use crate::response::scale_table;
use crate::server::Core;
use crate::storage::codec;
use crate::storage::objects::{self, Stored};
use crate::verbs::match_name;
use crate::write::admission::{self, Attributes};
use crate::write::patching::{Patch, PatchType};
use crate::write::{Change, Write};

const SCALE: &str = "scale";

fn kind() -> GroupVersionKind {
    GroupVersionKind::new("autoscaling", "v1", "Scale")
}

fn scale_type() -> Result<Type, ApiError> {
    codec::type_of(&kind()).ok_or_else(|| ApiError::internal("the catalogue has no Scale"))
}

/// Where the replicas are in a version of the parent, if that has a Scale at all.
fn replicas_in(core: &Core, row: &Resource, api_version: &str) -> Option<Option<String>> {
    let path = |row: &Resource| row.strategy.scale_paths().map(|paths| ScalePaths::fields(&paths.spec).join("."));
    if row.gvk.api_version() == api_version {
        return Some(Some(path(row).unwrap_or_else(|| "spec.replicas".to_owned())));
    }
    let gvk = GroupVersion::parse(api_version)?.with_kind(&*row.gvk.kind);
    let table = core.table();
    let other = table.find_kind(&gvk).filter(|other| other.storage_prefix == row.storage_prefix);
    match other {
        Some(other) => Some(path(other)),
        // One that is not served any more.
        None => row.strategy.type_in(api_version).map(|_| None),
    }
}

/// What a custom resource must have to be shown as a Scale.
fn check(row: &Resource, parent: &Value) -> Result<(), ApiError> {
    let Some(paths) = row.strategy.scale_paths() else { return Ok(()) };
    if ScalePaths::value(&paths.spec, parent).is_none() {
        return Err(ApiError::internal(format!("the spec replicas field {:?} does not exist", paths.spec)));
    }
    Ok(())
}

/// Custom resources have a scheme of their own upstream, which does not even find the name of the kind for its refusal.
fn undecodable(row: &Resource, error: ApiError) -> ApiError {
    if row.strategy.scale_paths().is_none() || error.code() != 400 {
        return error;
    }
    ApiError::bad_request(
        "no kind is registered for the type v1.Scale in scheme \"pkg/apiserver/customresource_handler.go:781\"",
    )
}

/// Upstream cannot convert what an apply makes of the Scale of a custom resource.
fn unapplied(step: &str, object: &str) -> ApiError {
    let message = format!(
        "{step} ({object}; autoscaling/v1, Kind=Scale) to proper version: request to convert CR to an invalid \
         group/version: autoscaling/v1"
    );
    ApiError::new(500, Reason::Unknown, message)
}

fn scale_of(row: &Resource, parent: &Value) -> Value {
    match row.strategy.scale_paths() {
        Some(paths) => scale::of_custom(parent, paths),
        None => scale::of(parent),
    }
}

pub(crate) async fn handle(call: Call<'_>) -> Result<Answer, ApiError> {
    let Call { core, context, row, body } = call;
    let info = &context.info;
    if context.method == Method::GET {
        let parent = objects::must_load(core, row, &info.namespace, &info.name).await?;
        check(row, &parent.object)?;
        return scale_table::scale(core, context, row, &scale_of(row, &parent.object));
    }
    let (options, body) = if context.method == Method::PUT {
        let options = WriteOptions::read(&context.query, "UpdateOptions", None)?;
        let encoding = negotiate::input(&context.headers)?;
        let scale = codec::decode(context, &kind(), encoding, &body, options.field_validation)
            .map_err(|error| undecodable(row, error))?;
        // One without a name is told before the object is looked for.
        if object::name(&scale).is_empty() {
            match_name(&scale, &info.name)?;
        }
        (options, Sent::Scale(scale))
    } else {
        let of = context.patch_type()?;
        of.check(row)?;
        let options = WriteOptions::read(&context.query, "PatchOptions", Some(of == PatchType::Apply))?;
        let patch = Patch::read(context, of, &body)?;
        (options, Sent::Patch(patch))
    };
    // The parent goes the way of a main write, so that its generation counts.
    let subresource = &Subresource::Main;
    let write = Write { subresource, admits: false, ..Write::new(core, context, row, &options) };
    let written = write.update(&Scaled(body)).await?;
    scale_table::scale(core, context, row, &scale_of(row, &written.object))
}

/// The body of a request.
enum Sent {
    Scale(Value),
    Patch(Patch),
}

/// A change of the Scale of an object, which is what plug-ins see, carried over to the object.
struct Scaled(Sent);

impl Change for Scaled {
    async fn apply(&self, write: &Write<'_>, live: Option<&Stored>) -> Result<Value, ApiError> {
        let row = write.row;
        let live = live.ok_or_else(|| ApiError::not_found(&row.group_resource(), write.name))?;
        let owners = |api_version: &str| replicas_in(write.core, row, api_version);
        let managed_fields = live.object.pointer("/metadata/managedFields");
        let mut before = scale_of(row, &live.object);
        let shown = managed::scale::to_scale(managed_fields, &owners);
        let custom = row.strategy.scale_paths();
        let applied = match &self.0 {
            Sent::Patch(Patch::Apply(config, _)) => Some(config),
            _ => None,
        };
        if custom.is_some() && applied.is_some() && shown.is_null() {
            let step = "failed to create manager for existing fields: failed to convert live object";
            return Err(unapplied(step, "/"));
        }
        object::metadata_mut(&mut before).insert("managedFields".into(), shown);

        let mut scale = self.wanted(write, &before)?;
        if let (Some(config), true) = (applied, custom.is_some() && scale.get("spec") != before.get("spec")) {
            let object = format!("{}/{}", object::namespace(config), object::name(config));
            return Err(unapplied("failed to convert new object", &object));
        }
        write.match_namespace(&mut scale)?;
        match_name(&scale, write.name)?;
        if matches!(self.0, Sent::Scale(_)) {
            write.check_uid(&scale, Some(live))?;
        } else if custom.is_none() {
            write.check_patched_uid(&scale, live, SCALE)?;
        }
        if applied.is_none() {
            let manager = write.options.manager(write.context.agent());
            codec::track(&scale_type()?, &kind(), SCALE, &[], &mut scale, Some(&before), &manager);
        }
        admit(write, &mut scale, &before).await?;

        let mut parent = live.object.clone();
        let replicas = scale.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(0);
        match custom {
            Some(paths) => scale::set(&mut parent, &ScalePaths::fields(&paths.spec), replicas),
            None => drop(object::child_mut(&mut parent, "spec").insert("replicas".into(), replicas.into())),
        }
        let changed = managed::scale::to_parent(
            managed_fields,
            scale.pointer("/metadata/managedFields"),
            &row.gvk.api_version(),
            &owners,
        );
        let metadata = object::metadata_mut(&mut parent);
        metadata.insert("managedFields".into(), changed);
        match object::resource_version(&scale) {
            "" if custom.is_some() => metadata.insert("resourceVersion".into(), live.revision.to_string().into()),
            "" => metadata.remove("resourceVersion"),
            version => metadata.insert("resourceVersion".into(), version.into()),
        };
        Ok(parent)
    }
}

impl Scaled {
    fn wanted(&self, write: &Write<'_>, before: &Value) -> Result<Value, ApiError> {
        match &self.0 {
            Sent::Scale(scale) => Ok(scale.clone()),
            Sent::Patch(patch) => {
                let tracked = managed::Write {
                    gvk: &kind(),
                    manager: &write.options.field_manager,
                    subresource: SCALE,
                    reset: &[],
                    now: ferry_meta::time::now(),
                    versions: None,
                };
                patch.apply_to(write.context, &scale_type()?, &tracked, Some(before), write.options, write.name, None)
            }
        }
    }
}

/// Admission and validation of the Scale.
async fn admit(write: &Write<'_>, scale: &mut Value, before: &Value) -> Result<(), ApiError> {
    let (options, kind) = (write.options.object(), kind());
    let attributes =
        Attributes { kind: &kind, subresource: SCALE, ..write.attributes(Operation::Update, write.name, &options) };
    admission::mutate(write.core, write.context, &attributes, Some(&mut *scale), Some(before)).await?;
    // A custom resource says itself what is wrong with it.
    let custom = write.row.strategy.scale_paths().is_some();
    let errors = if custom { FieldErrors::new() } else { scale::validate(scale) };
    if !errors.is_empty() {
        return Err(ApiError::invalid(&kind.group_kind(), write.name, &errors));
    }
    admission::validate(write.core, write.context, &attributes, Some(scale), Some(before)).await
}
