//! `kubectl auth`.

use http::Method;
use serde_json::{Value, json};

use super::{Command, group, leaf};
use crate::client::Call;
use crate::error::{Error, Result};
use crate::flags::{Flag, switch, text};
use crate::print::{self, Format, tabs};
use crate::session::Context;
use crate::text::{line, print as out, warn};

pub const COMMAND: Command = group(
    "auth",
    "Inspect authorization",
    &[
        leaf(
            "can-i",
            "VERB [TYPE | TYPE/NAME | NONRESOURCEURL]",
            "Check whether an action is allowed",
            can_i_flags,
            |c| Box::pin(can_i(c)),
        ),
        super::auth_reconcile::COMMAND,
        leaf(
            "whoami",
            "",
            "Experimental: Check self subject attributes",
            || print::FLAGS.to_vec(),
            |c| Box::pin(whoami(c)),
        ),
    ],
)
.usage("[flags]");

fn can_i_flags() -> Vec<Flag> {
    vec![
        super::common::ALL_NAMESPACES,
        switch("quiet", "Say nothing; the exit code tells.").short('q'),
        text("subresource", "Subresource such as pod/log or deployment/scale."),
        switch("list", "Print all allowed actions."),
        switch("no-headers", "Print allowed actions without headers."),
    ]
}

/// What resources and paths can be asked for; others are told, and asked for all the same.
const VERBS: [&str; 16] = [
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
    "use",
    "bind",
    "impersonate",
    "*",
    "approve",
    "sign",
    "escalate",
    "attest",
];
const URL_VERBS: [&str; 8] = ["get", "put", "post", "head", "options", "delete", "patch", "*"];

async fn can_i(context: &Context) -> Result<()> {
    let flags = &context.flags;
    if flags.is("list") {
        if !context.words().is_empty() {
            return Err(Error::say("list option must be specified with no arguments"));
        }
        if flags.is("quiet") || flags.is("all-namespaces") || flags.given("subresource").is_some() {
            return Err(Error::say(
                "list option can't be specified with neither quiet, all-namespaces nor subresource options",
            ));
        }
        return list(context).await;
    }
    let (verb, target) = match context.words() {
        [verb] => (verb, None),
        [verb, target] => (verb, Some(target)),
        _ => {
            return Err(Error::say(
                "you must specify two arguments: verb resource or verb resource/resourceName.\nSee 'kubectl auth can-i -h' for help and examples.",
            ));
        }
    };
    let Some(target) = target else {
        return Err(Error::say(
            "you must specify two arguments: verb resource or verb resource/resourceName.\nSee 'kubectl auth can-i -h' for help and examples.",
        ));
    };
    let known: &[&str] = if target.starts_with('/') { &URL_VERBS } else { &VERBS };
    let strange = !known.contains(&&**verb);
    if target.starts_with('/') && flags.given("subresource").is_some() {
        return Err(Error::say("--subresource can not be used with NonResourceURL"));
    }
    let spec = if target.starts_with('/') {
        json!({"nonResourceAttributes": {"path": target, "verb": verb}})
    } else {
        let (kind, name) = target.split_once('/').unwrap_or((target, ""));
        let (group, plural, namespaced) = match context.resource(kind).await {
            _ if kind == "*" => ("*".to_owned(), "*".to_owned(), true),
            Ok(resource) => (resource.group, resource.plural, resource.namespaced),
            Err(Error::Message(_)) => {
                let (name, group) = kind.split_once('.').unwrap_or((kind, ""));
                match group {
                    "" => warn(format!("Warning: the server doesn't have a resource type '{name}'\n\n")),
                    group => warn(format!(
                        "Warning: the server doesn't have a resource type '{name}' in group '{group}'\n\n"
                    )),
                }
                (group.to_owned(), name.to_owned(), true)
            }
            Err(error) => return Err(error),
        };
        if !namespaced && !flags.is("all-namespaces") {
            let group = if group.is_empty() { String::new() } else { format!(" in group '{group}'") };
            warn(format!("Warning: resource '{plural}' is not namespace scoped{group}\n\n"));
        }
        let namespace = if flags.is("all-namespaces") { String::new() } else { context.namespace().await? };
        json!({"resourceAttributes": {"namespace": namespace, "verb": verb, "group": group, "resource": plural,
            "subresource": flags.text("subresource"), "name": name}})
    };
    if strange {
        warn(format!("Warning: verb '{verb}' is not a known verb\n\n"));
    }
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": spec});
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let answer = context.client().await?.json(Call::new(Method::POST, path).json(&review)).await?;
    let status = &answer["status"];
    let allowed = status["allowed"] == true;
    if !flags.is("quiet") {
        let mut text = if allowed { "yes".to_owned() } else { "no".to_owned() };
        for (field, form) in [("reason", " - "), ("evaluationError", " - ")] {
            if let Some(said) = status[field].as_str().filter(|said| !said.is_empty() && !allowed) {
                text.push_str(&format!("{form}{said}"));
            }
        }
        line(text);
    }
    if allowed { Ok(()) } else { Err(Error::quiet()) }
}

async fn list(context: &Context) -> Result<()> {
    let namespace = context.namespace().await?;
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": namespace}});
    let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let answer = context.client().await?.json(Call::new(Method::POST, path).json(&review)).await?;
    let status = &answer["status"];
    if status["incomplete"] == true {
        warn(format!(
            "warning: the list may be incomplete: {}",
            status["evaluationError"].as_str().unwrap_or_default()
        ));
    }
    let joined =
        |list: &Value| list.as_array().into_iter().flatten().filter_map(Value::as_str).collect::<Vec<_>>().join(" ");
    // In the order of how Go prints a rule.
    let key = |verbs: &str, group: &str, resource: &str, names: &str, url: &str| {
        format!("{verbs}],APIGroups:[{group}],Resources:[{resource}],ResourceNames:[{names}],NonResourceURLs:[{url}]")
    };
    let mut rows: Vec<(String, [String; 4])> = Vec::new();
    for rule in status["resourceRules"].as_array().into_iter().flatten() {
        let groups = rule["apiGroups"].as_array().cloned().unwrap_or_default();
        for resource in rule["resources"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            for group in groups.iter().filter_map(Value::as_str) {
                let (name, sub) = resource.split_once('/').unwrap_or((resource, ""));
                let full = crate::discovery::qualified(name, group);
                let full = if sub.is_empty() { full } else { format!("{full}/{sub}") };
                let (names, verbs) = (joined(&rule["resourceNames"]), joined(&rule["verbs"]));
                rows.push((
                    key(&verbs, group, resource, &names, ""),
                    [full, "[]".into(), format!("[{names}]"), format!("[{verbs}]")],
                ));
            }
        }
    }
    for rule in status["nonResourceRules"].as_array().into_iter().flatten() {
        for url in rule["nonResourceURLs"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            let verbs = joined(&rule["verbs"]);
            rows.push((
                key(&verbs, "", "", "", url),
                [String::new(), format!("[{url}]"), "[]".into(), format!("[{verbs}]")],
            ));
        }
    }
    rows.sort_by(|one, other| one.0.cmp(&other.0));
    let mut text = String::new();
    if !context.flags.is("no-headers") {
        text.push_str("Resources\tNon-Resource URLs\tResource Names\tVerbs\n");
    }
    rows.iter().for_each(|(_, row)| text.push_str(&format!("{}\n", row.join("\t"))));
    out(tabs::align(&text, 6, 3));
    Ok(())
}

async fn whoami(context: &Context) -> Result<()> {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview", "metadata": {}});
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let answer = context.client().await?.json(Call::new(Method::POST, path).json(&review)).await?;
    match Format::for_writing(&context.flags)? {
        Format::Human { .. } => {
            let user = &answer["status"]["userInfo"];
            let mut text = "ATTRIBUTE\tVALUE\n".to_owned();
            for (title, field) in [("Username", "username"), ("UID", "uid")] {
                if let Some(value) = user[field].as_str().filter(|value| !value.is_empty()) {
                    text.push_str(&format!("{title}\t{value}\n"));
                }
            }
            let shown = |list: &Value| {
                list.as_array().into_iter().flatten().filter_map(Value::as_str).collect::<Vec<_>>().join(" ")
            };
            if user["groups"].as_array().is_some_and(|groups| !groups.is_empty()) {
                text.push_str(&format!("Groups\t[{}]\n", shown(&user["groups"])));
            }
            for (key, values) in user["extra"].as_object().into_iter().flatten() {
                text.push_str(&format!("Extra: {key}\t[{}]\n", shown(values)));
            }
            out(tabs::align(&text, 6, 3));
        }
        Format::Json { .. } => out(print::typed_json(&answer).unwrap_or_else(|| print::json(&answer))),
        format => out(format.object(&answer, true)?),
    }
    Ok(())
}
