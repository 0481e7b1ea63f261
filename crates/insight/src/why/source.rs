//! What a claim is to be filled from: another claim, a snapshot, or whatever a populator knows.

use ferry_meta::object;
use serde_json::Value;

use super::{Finding, Reason, grant};
use crate::named::{Found, Named};
use crate::world::World;

/// The object that a claim names as its source.
pub(super) fn of(claim: &Value) -> Option<Named> {
    let source = ["/spec/dataSourceRef", "/spec/dataSource"].into_iter().find_map(|pointer| claim.pointer(pointer))?;
    let namespace = match object::text(source, "/namespace") {
        "" => object::namespace(claim),
        namespace => namespace,
    };
    let named = Named {
        group: object::text(source, "/apiGroup").to_owned(),
        kind: object::text(source, "/kind").to_owned(),
        namespace: namespace.to_owned(),
        name: object::text(source, "/name").to_owned(),
    };
    (!named.kind.is_empty() && !named.name.is_empty()).then_some(named)
}

/// How whoever owns the namespace of the source lets the claim be filled from it, where that is another one.
pub(super) fn grant(claim: &Value) -> Option<String> {
    let source = of(claim).filter(|source| source.namespace != object::namespace(claim))?;
    let command = grant::command(claim, &source.group, &source.kind, &source.name, &source.namespace);
    Some(format!("a source of another namespace needs leave; if it has none: {command}"))
}

/// A claim whose volume cannot be made, because what it is to be filled from is not there or not ready.
pub(super) fn missing(world: &World, claim: &Value) -> Option<Finding> {
    let source = of(claim)?;
    let (kind, name, namespace) = (&source.kind, &source.name, &source.namespace);
    let what = format!("it is to be filled from the {kind} {name:?} (spec.dataSourceRef)");
    let anew = format!(
        "or create the claim without it, since a source cannot be changed: kubectl delete pvc -n {} {}",
        object::namespace(claim),
        object::name(claim)
    );
    let finding = |cause: String| Finding::new(Reason::DataSource, claim, cause);
    match source.find(world) {
        Found::Unserved => {
            let group = if source.group.is_empty() { String::new() } else { format!(" of {}", source.group) };
            Some(
                finding(format!("{what}, and no server of the cluster has the kind {kind}{group}"))
                    .advise(format!("install what brings the kind {kind}, with its CustomResourceDefinition"))
                    .advise(anew),
            )
        }
        Found::Absent => Some(
            finding(format!("{what}, and there is none in namespace {namespace}"))
                .advise(format!("create the {kind} {name} in namespace {namespace}"))
                .advise(anew),
        ),
        Found::There(found) => {
            let why = unready(kind, found)?;
            let cause = format!("{what}, which is not ready: {why}");
            Some(finding(cause).advise(format!("ferry why -n {namespace} {}", source.title())))
        }
        Found::Unknown => None,
    }
}

/// Why a source that is there cannot be used yet.
fn unready(kind: &str, source: &Value) -> Option<String> {
    match kind {
        "PersistentVolumeClaim" => {
            let phase = object::text(source, "/status/phase");
            (phase != "Bound").then(|| format!("no volume is bound to it (phase {phase})"))
        }
        "VolumeSnapshot" => (source.pointer("/status/readyToUse").and_then(Value::as_bool) != Some(true)).then(|| {
            match object::text(source, "/status/error/message") {
                "" => "nobody has made the snapshot yet (status.readyToUse)".to_owned(),
                error => error.to_owned(),
            }
        }),
        _ => None,
    }
}
