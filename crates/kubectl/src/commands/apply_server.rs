//! `apply --server-side`, and what a client-side apply left behind: its fields become those of the server-side one.

use std::collections::BTreeSet;

use ferry_schema::managed::set::Set;
use http::Method;
use serde_json::{Value, json};

use super::common::{APPLY, JSON_PATCH, LAST_APPLIED, Report};
use super::record;
use crate::client::{Call, query};
use crate::error::{Error, Result};
use crate::print;
use crate::resource::Info;
use crate::session::Context;
use crate::text::warn;

/// Whoever changes nothing about it is called so.
const MANAGER: &str = "kubectl";
const ANNOTATION_MANAGER: &str = "kubectl-last-applied";
/// A conflict is tried so often with what the server has now.
const ATTEMPTS: usize = 5;

const CONFLICTS: &str = "Please review the fields above--they currently have other managers. Here
are the ways you can resolve this warning:
* If you intend to manage all of these fields, please re-run the apply
  command with the `--force-conflicts` flag.
* If you do not intend to manage all of the fields, please edit your
  manifest to remove references to the fields that should keep their
  current managers.
* You may co-own fields by updating your manifest to match the existing
  value; in this case, you'll become the manager if the other manager(s)
  stop managing the field (remove it from their configuration).
See https://kubernetes.io/docs/reference/using-api/server-side-apply/#conflicts";

struct Sender<'a> {
    context: &'a Context,
    info: &'a Info,
    dry_run: &'static str,
    validation: &'a str,
}

impl Sender<'_> {
    async fn patch(&self, manager: &str, kind: &str, path: &str, force: &str, body: Vec<u8>) -> Result<Value> {
        let parameters = [
            ("dryRun", self.dry_run),
            ("fieldManager", manager),
            ("fieldValidation", self.validation),
            ("force", force),
        ];
        let call = Call::new(Method::PATCH, query(path, &parameters)).body(kind, body);
        self.context.client().await?.json(call).await
    }
}

pub async fn apply(context: &Context, info: &Info, report: &Report, validation: &str) -> Result<(Value, &'static str)> {
    super::apply::named(info)?;
    let flags = &context.flags;
    let manager = if flags.changed("field-manager") { flags.text("field-manager") } else { MANAGER };
    let sender = Sender { context, info, dry_run: report.dry_run.parameter(), validation };
    let path = match flags.given("subresource") {
        Some(subresource) => format!("{}/{subresource}", info.path()),
        None => info.path(),
    };
    let force = if flags.is("force-conflicts") { "true" } else { "false" };
    let mut applied = info.object.clone();
    record::record(context, &mut applied);
    let body = print::compact(&applied).into_bytes();
    let mut object = match sender.patch(manager, APPLY, &path, force, body.clone()).await {
        Ok(object) => object,
        Err(error) if error.is_conflict() => {
            return Err(Error::say(format!("{}\n{CONFLICTS}", error.inner())));
        }
        Err(error) => return Err(error),
    };
    // Nothing of this ends the command: the object is applied, and the next apply tries again.
    if let Err(error) = keep_annotation(&sender, manager, &mut object).await {
        said("failed to migrate kubectl.kubernetes.io/last-applied-configuration for Server-Side Apply", &error);
    } else {
        match migrate(&sender, manager, &mut object).await {
            Err(error) => said("server rejected managed fields migration to Server-Side Apply", &error),
            Ok(false) => {}
            // What the files no longer name can go now.
            Ok(true) => match sender.patch(manager, APPLY, &info.path(), force, body).await {
                Ok(again) => object = again,
                Err(error) => {
                    said("failed to re-apply configuration after performing Server-Side Apply migration", &error);
                }
            },
        }
    }
    Ok((object, "serverside-applied"))
}

fn said(what: &str, error: &Error) {
    let why = error.inner();
    warn(format!("Warning: {what}. This is non-fatal and will be retried next time you apply. Error: {why}"));
}

fn entries(object: &Value) -> &[Value] {
    object["metadata"]["managedFields"].as_array().map_or(&[], Vec::as_slice)
}

/// Who owns the annotation that a client-side apply writes.
fn owners<'a>(object: &'a Value, operation: &str) -> impl Iterator<Item = &'a Value> {
    let key = format!("f:{LAST_APPLIED}");
    entries(object).iter().filter(move |entry| {
        entry["operation"] == operation && entry["fieldsV1"]["f:metadata"]["f:annotations"].get(&key).is_some()
    })
}

/// The annotation gets a manager of its own, so that it does not go with the fields of the client-side apply.
async fn keep_annotation(sender: &Sender<'_>, manager: &str, object: &mut Value) -> Result<()> {
    let annotation = &object["metadata"]["annotations"][LAST_APPLIED];
    if manager != MANAGER || annotation.is_null() || owners(object, "Apply").next().is_some() {
        return Ok(());
    }
    let info = sender.info;
    let mut only = json!({
        "apiVersion": object["apiVersion"], "kind": object["kind"],
        "metadata": {"name": info.name, "annotations": {LAST_APPLIED: annotation}},
    });
    if let Some(namespace) = &info.namespace {
        only["metadata"]["namespace"] = namespace.clone().into();
    }
    *object = sender.patch(ANNOTATION_MANAGER, APPLY, &info.path(), "", only.to_string().into_bytes()).await?;
    Ok(())
}

/// Makes the fields of client-side applies those of this manager. Tells whether there were any.
async fn migrate(sender: &Sender<'_>, manager: &str, object: &mut Value) -> Result<bool> {
    let names: BTreeSet<String> =
        owners(object, "Update").filter_map(|entry| entry["manager"].as_str()).map(str::to_owned).collect();
    let path = sender.info.path();
    for attempt in 1.. {
        let before = entries(object);
        let mut after = before.to_vec();
        for name in &names {
            after = upgraded(after, name, manager)?;
        }
        if after == before {
            return Ok(false);
        }
        let body = json!([
            {"op": "replace", "path": "/metadata/managedFields", "value": after},
            // Somebody else's write in between is a conflict.
            {"op": "replace", "path": "/metadata/resourceVersion", "value": object["metadata"]["resourceVersion"]},
        ]);
        match sender.patch(manager, JSON_PATCH, &path, "", body.to_string().into_bytes()).await {
            Ok(new) => {
                *object = new;
                return Ok(true);
            }
            Err(error) if error.is_conflict() && attempt < ATTEMPTS => {
                *object = sender.context.client().await?.json(Call::get(&*path)).await?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

/// The entries with the updates of `client` joined into the applies of `server`.
fn upgraded(mut entries: Vec<Value>, client: &str, server: &str) -> Result<Vec<Value>> {
    let is = |entry: &Value, manager: &str, operation: &str| {
        entry["manager"] == manager && entry["operation"] == operation && entry.get("subresource").is_none()
    };
    let place = match entries.iter().position(|entry| is(entry, server, "Apply")) {
        Some(place) => place,
        None => {
            let Some(place) = entries.iter().position(|entry| is(entry, client, "Update")) else { return Ok(entries) };
            entries[place]["operation"] = "Apply".into();
            entries[place]["manager"] = server.into();
            place
        }
    };
    let fields = |entry: &Value| {
        Set::from_fields(&entry["fieldsV1"]).ok_or_else(|| Error::say("failed to convert fields to set"))
    };
    let mut all = fields(&entries[place])?;
    let version = entries[place]["apiVersion"].clone();
    if let Some(other) = entries.iter().find(|entry| is(entry, client, "Update") && entry["apiVersion"] == version) {
        all.add(fields(other)?);
    }
    entries[place]["fieldsV1"] = all.to_fields();
    entries.retain(|entry| !is(entry, client, "Update"));
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(manager: &str, operation: &str, fields: Value) -> Value {
        json!({"manager": manager, "operation": operation, "apiVersion": "v1", "fieldsV1": fields})
    }

    #[test]
    fn updates_of_the_client_become_applies() {
        let (a, b) = (json!({"f:data": {"f:a": {}}}), json!({"f:data": {"f:b": {}}}));
        let both = json!({"f:data": {"f:a": {}, "f:b": {}}});
        let (client, server) = ("kubectl-client-side-apply", "kubectl");
        let other = entry("other", "Update", b.clone());
        for (before, after) in [
            (vec![entry(client, "Update", a.clone()), other.clone()], vec![entry(server, "Apply", a.clone()), other]),
            (vec![entry(server, "Apply", a.clone()), entry(client, "Update", b)], vec![entry(server, "Apply", both)]),
            (vec![entry(server, "Apply", a.clone())], vec![entry(server, "Apply", a)]),
            (Vec::new(), Vec::new()),
        ] {
            assert_eq!(upgraded(before, client, server).unwrap(), after);
        }
    }
}
