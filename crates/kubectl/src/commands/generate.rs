//! What the generators share: flags, and the way from an object to the server.

use serde_json::Value;

use super::common::{self, DryRun, Report, VALIDATE, with};
use crate::error::{Error, Result};
use crate::flags::{Flag, switch};
use crate::resource::Info;
use crate::session::Context;

/// Flags of every generator, and its own.
pub fn flags(own: &[Flag]) -> Vec<Flag> {
    let mut flags = with(own, "kubectl-create");
    flags.push(VALIDATE);
    flags.push(switch("save-config", "Keep the configuration of the object in its annotation."));
    flags
}

/// The one word that a generator takes.
pub fn name(context: &Context) -> Result<String> {
    match context.words() {
        [name] => Ok(name.clone()),
        words => Err(context.usage(format!("exactly one NAME is required, got {}", words.len()))),
    }
}

/// Sends the object, or shows it.
pub async fn finish(context: &Context, object: Value) -> Result<()> {
    let asked = object.clone();
    finish_as(context, object, "created").await.map_err(|error| failed(&asked, error))
}

pub async fn finish_as(context: &Context, object: Value, what: &str) -> Result<()> {
    finish_with(context, &Report::of(context)?, object, what).await
}

/// The same for one of several objects, which are told one after the other.
pub async fn finish_with(context: &Context, report: &Report, object: Value, what: &str) -> Result<()> {
    let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
    let resource = match report.dry_run {
        // A look at the object needs no server, but for its name.
        DryRun::Client => known(&text("apiVersion"), &text("kind")),
        _ => context.kind(&text("apiVersion"), &text("kind")).await?,
    };
    let mut object = common::normalized(object);
    // As it was made, before the namespace of the context came to it.
    let asked = object.clone();
    let namespace = if resource.namespaced { Some(context.namespace().await?) } else { None };
    if let Some(namespace) =
        namespace.as_ref().filter(|_| context.namespace_is_explicit() || report.dry_run != DryRun::Client)
    {
        object["metadata"]["namespace"] = namespace.clone().into();
    }
    if context.flags.is("save-config") {
        let mut asked = asked;
        if let Some(namespace) = namespace.as_ref().filter(|_| context.namespace_is_explicit()) {
            asked["metadata"]["namespace"] = namespace.clone().into();
        }
        let text = crate::print::typed_line(&asked).unwrap_or_default();
        object["metadata"]["annotations"][common::LAST_APPLIED] = text.into();
    }
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let info = Info { resource, namespace, name, object, source: String::new() };
    if report.dry_run == DryRun::Client {
        return report.made(&info, &info.object, what);
    }
    let validation = common::validation(&context.flags)?;
    let made = common::create(context, &info, &info.object, report.dry_run, validation).await;
    report.made(&info, &made?, what)
}

/// Most generators say what they failed to make; some leave it to the server.
fn failed(object: &Value, error: Error) -> Error {
    let kind = object["kind"].as_str().unwrap_or_default();
    let what = match kind {
        "ClusterRoleBinding" | "ConfigMap" | "CronJob" | "Deployment" | "Ingress" | "Job" | "PriorityClass"
        | "RoleBinding" | "ServiceAccount" => format!("{}:", kind.to_lowercase()),
        "PodDisruptionBudget" => "poddisruptionbudgets:".to_owned(),
        "ResourceQuota" => "quota:".to_owned(),
        "Secret" => "secret".to_owned(),
        "Service" => format!("{} service:", object["spec"]["type"].as_str().unwrap_or("ClusterIP")),
        _ => return error,
    };
    match error {
        Error::Status(_) => Error::say(format!("failed to create {what} {}", error.inner())),
        other => other,
    }
}

/// What is known of a kind without asking.
fn known(api_version: &str, kind: &str) -> crate::discovery::Resource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let cluster = ["Namespace", "ClusterRole", "ClusterRoleBinding", "PriorityClass"].contains(&kind);
    crate::discovery::Resource {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: kind.to_owned(),
        namespaced: !cluster,
        ..crate::discovery::Resource::default()
    }
}
