//! `kubectl set env`: environment variables of containers, from the line, another object or standard input.

use serde_json::{Value, json};

use super::super::{Command, leaf};
use super::{Ending, about};
use crate::commands::common::{self, DryRun, Report};
use crate::error::{Error, Result};
use crate::flags::{Flag, Kind, array, slice, switch, text};
use crate::resource::{Builder, Info, get, read};
use crate::session::Context;
use crate::text::{line, quote, warn};

pub const COMMAND: Command = leaf(
    "env",
    "RESOURCE/NAME KEY_1=VAL_1 ... KEY_N=VAL_N",
    "Update environment variables on a pod template",
    || {
        super::flags(&[
            common::SELECTOR,
            Flag::new("containers", Kind::Text, "*", "Names of the containers to change; * stands for any text.")
                .short('c'),
            text("from", "A ConfigMap or Secret to take variables from."),
            text("prefix", "Stands before the names of variables."),
            array("env", "A variable to set in each container, as key=value.").short('e'),
            slice("keys", "The keys to take of --from."),
            switch("list", "Show the variables and what would change."),
            switch("resolve", "Show the values of references where variables are listed."),
            Flag::new("overwrite", Kind::Bool, "true", "Change variables that are there."),
        ])
    },
    |c| Box::pin(run(c)),
);

#[derive(Default)]
struct Wanted {
    set: Vec<Value>,
    remove: Vec<String>,
}

async fn run(context: &Context) -> Result<()> {
    let flags = &context.flags;
    if flags.is("all") && flags.given("selector").is_some() {
        return Err(Error::say(super::ALL_OR_SELECTOR));
    }
    let is_variable = |word: &String| word.find('=').is_some_and(|at| at > 0) || word.ends_with('-');
    let at = context.words().iter().position(is_variable).unwrap_or(context.words().len());
    let (resources, variables) = context.words().split_at(at);
    if !variables.iter().all(is_variable) {
        let all = context.words().join(" ");
        return Err(Error::say(format!("all resources must be specified before environment changes: {all}")));
    }
    let report = Report::of(context)?;
    if flags.is("local") && report.dry_run == DryRun::Server {
        return Err(Error::say(super::LOCAL_OR_SERVER));
    }
    if flags.list("filename").is_empty() && resources.is_empty() {
        return Err(Error::say("one or more resources must be specified as <resource> <name> or <resource>/<name>"));
    }
    if flags.is("list") && flags.given("output").is_some() {
        return Err(Error::say("--list and --output may not be specified together"));
    }
    if !flags.list("keys").is_empty() && flags.given("from").is_none() {
        return Err(Error::say("when specifying --keys, a configmap or secret must be provided with --from"));
    }
    let mut all = flags.list("env");
    all.extend_from_slice(variables);
    let mut wanted = parse(&all)?;
    if let Some(from) = flags.given("from") {
        wanted.set.extend(taken(context, from).await?);
    }
    if let Some(prefix) = flags.given("prefix") {
        for variable in &mut wanted.set {
            variable["name"] = format!("{prefix}{}", variable["name"].as_str().unwrap_or_default()).into();
        }
    }
    let resources = if flags.is("local") { &[] } else { resources };
    let ending = Ending {
        report: &report,
        what: "env updated",
        failed: "failed to patch env update to pod template:",
        always: false,
    };
    let mut errors = Vec::new();
    for info in super::objects(context, resources).await? {
        let mut changed = info.object.clone();
        if let Err(why) = change(context, &info, &mut changed, &wanted).await {
            errors.push(about(&info, &why));
            continue;
        }
        if !flags.is("list") {
            errors.extend(ending.send(context, &info, changed).await.err());
        }
    }
    if flags.is("list") { Ok(()) } else { Error::all(errors) }
}

fn parse(words: &[String]) -> Result<Wanted> {
    let mut wanted = Wanted::default();
    for word in words {
        if word == "-" {
            let text = std::io::read_to_string(std::io::stdin()).map_err(|error| Error::say(error.to_string()))?;
            let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
            wanted.set.extend(lines.filter_map(|line| line.split_once('=')).map(variable));
        } else if let Some((name, value)) = word.split_once('=') {
            if !is_name(name) {
                let rule = "a valid environment variable name must consist of alphabetic characters, digits, '_', '-', or '.', and must not start with a digit";
                let examples = ["my.env-name", "MY_ENV.NAME", "MyEnvName1"];
                let reason = ferry_meta::names::regex_reason(rule, "[-._a-zA-Z][-._a-zA-Z0-9]*", &examples);
                return Err(Error::say(format!("{} is not a valid key name: {reason}", quote(name))));
            }
            wanted.set.push(variable((name, value)));
        } else if let Some(name) = word.strip_suffix('-') {
            wanted.remove.push(name.to_owned());
        } else {
            return Err(Error::say(format!("unknown environment variable: {word}")));
        }
    }
    if wanted.remove.iter().any(|name| wanted.set.iter().any(|variable| variable["name"] == **name)) {
        return Err(Error::say("can not both modify and remove the same environment variable in the same command"));
    }
    Ok(wanted)
}

/// What shells take as well; the server takes more.
fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !name.is_empty() && name.chars().all(plain) && !name.starts_with(|c: char| c.is_ascii_digit())
}

fn variable((name, value): (&str, &str)) -> Value {
    if value.is_empty() { json!({"name": name}) } else { json!({"name": name, "value": value}) }
}

/// Variables that refer to the keys of a ConfigMap or Secret.
async fn taken(context: &Context, from: &str) -> Result<Vec<Value>> {
    let mut builder = Builder::of(context).words(&[from.to_owned()]).latest();
    builder.files = Vec::new();
    let built = builder.build(context).await?;
    let wanted = context.flags.list("keys");
    let mut variables = Vec::new();
    for info in read(context, &built.targets).await? {
        let reference = match &*info.resource.kind {
            "Secret" => "secretKeyRef",
            "ConfigMap" => "configMapKeyRef",
            _ => return Err(Error::say("unsupported resource specified in --from")),
        };
        for key in info.object["data"].as_object().into_iter().flat_map(|data| data.keys()) {
            if !wanted.is_empty() && !wanted.contains(key) {
                continue;
            }
            let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c.to_ascii_uppercase() } else { '_' };
            let name: String = key.chars().map(plain).collect();
            if name != *key {
                warn(format!("Warning: key {key} transferred to {name}"));
            }
            variables.push(json!({"name": name, "valueFrom": {reference: {"name": info.name, "key": key}}}));
        }
    }
    Ok(variables)
}

async fn change(context: &Context, info: &Info, object: &mut Value, wanted: &Wanted) -> Result<(), String> {
    let flags = &context.flags;
    let pattern = flags.text("containers");
    let whole = object.clone();
    let spec = super::pod_spec(object)?;
    let containers = super::containers(spec, pattern);
    if containers.is_empty() {
        warn(format!(
            "Warning: {}/{} does not have any containers matching {}",
            info.resource.kind,
            info.name,
            quote(pattern)
        ));
    }
    let mut unresolved = false;
    for container in containers {
        let known = container["env"].as_array().cloned().unwrap_or_default();
        if !flags.is("overwrite") {
            for variable in &wanted.set {
                let old = known.iter().find(|old| old["name"] == variable["name"] && old["value"] != variable["value"]);
                if let Some(old) = old {
                    let text = |field: &str| old[field].as_str().unwrap_or_default();
                    let (name, value) = (text("name"), text("value"));
                    return Err(format!("'{name}' already has a value ({value}), and --overwrite is false"));
                }
            }
        }
        let updated = updated(&known, wanted);
        if flags.is("list") {
            let name = container["name"].as_str().unwrap_or_default();
            line(format!("# {} {}, container {name}", info.resource.kind, info.name));
            unresolved |= !list(context, &whole, &updated).await;
        }
        if updated.is_empty() {
            container.as_object_mut().into_iter().for_each(|map| drop(map.remove("env")));
        } else {
            container["env"] = updated.into();
        }
    }
    if unresolved { Err("failed to retrieve valueFrom references".into()) } else { Ok(()) }
}

fn updated(known: &[Value], wanted: &Wanted) -> Vec<Value> {
    let mut done: Vec<&str> = wanted.remove.iter().map(String::as_str).collect();
    let mut out = Vec::new();
    for variable in known {
        let name = variable["name"].as_str().unwrap_or_default();
        if done.contains(&name) {
            continue;
        }
        match wanted.set.iter().find(|new| new["name"] == name) {
            Some(new) => {
                done.push(name);
                out.push(new.clone());
            }
            None => out.push(variable.clone()),
        }
    }
    for variable in &wanted.set {
        let name = variable["name"].as_str().unwrap_or_default();
        if !done.contains(&name) {
            done.push(name);
            out.push(variable.clone());
        }
    }
    out
}

/// Whether all references could be followed.
async fn list(context: &Context, object: &Value, variables: &[Value]) -> bool {
    let mut errors: Vec<String> = Vec::new();
    for variable in variables {
        let name = variable["name"].as_str().unwrap_or_default();
        let from = &variable["valueFrom"];
        if from.is_null() {
            line(format!("{name}={}", variable["value"].as_str().unwrap_or_default()));
            continue;
        }
        if context.flags.is("resolve") {
            match value(context, object, from).await {
                Ok(value) => {
                    line(format!("{name}={value}"));
                    continue;
                }
                Err(error) => errors.push(format!("error retrieving reference for {name}: {}", error.inner())),
            }
        }
        line(format!("# {name} from {}", shown(from)));
    }
    errors.sort();
    errors.iter().for_each(warn);
    errors.is_empty()
}

fn shown(from: &Value) -> String {
    let of = |reference: &str, field: &str| from[reference][field].as_str().unwrap_or_default().to_owned();
    let key = |kind: &str, reference: &str| format!("{kind} {}, key {}", of(reference, "name"), of(reference, "key"));
    if from["configMapKeyRef"].is_object() {
        key("configmap", "configMapKeyRef")
    } else if from["secretKeyRef"].is_object() {
        key("secret", "secretKeyRef")
    } else if from["fieldRef"].is_object() {
        format!("field path {}", of("fieldRef", "fieldPath"))
    } else if from["resourceFieldRef"].is_object() {
        let container = of("resourceFieldRef", "containerName");
        let before = if container.is_empty() { container } else { container + "/" };
        format!("resource field {before}{}", of("resourceFieldRef", "resource"))
    } else {
        "invalid valueFrom".to_owned()
    }
}

async fn value(context: &Context, object: &Value, from: &Value) -> Result<String> {
    let namespace = context.namespace().await?;
    for (reference, kind, shown) in
        [("configMapKeyRef", "ConfigMap", "config map"), ("secretKeyRef", "Secret", "secret")]
    {
        let Some(name) = from[reference]["name"].as_str() else { continue };
        let resource = context.kind("v1", kind).await?;
        let found = get(context, &resource, Some(&namespace), name).await?;
        let key = from[reference]["key"].as_str().unwrap_or_default();
        let Some(text) = found["data"][key].as_str() else {
            return Err(Error::say(format!("key {key} not found in {shown} {name}")));
        };
        if kind == "ConfigMap" {
            return Ok(text.to_owned());
        }
        use base64::Engine;
        let bytes = base64::engine::general_purpose::STANDARD.decode(text).unwrap_or_default();
        return Ok(String::from_utf8_lossy(&bytes).into_owned());
    }
    let path = from["fieldRef"]["fieldPath"].as_str().unwrap_or_default();
    match path {
        "metadata.name" | "metadata.namespace" | "metadata.uid" => {
            let field = path.trim_start_matches("metadata.");
            Ok(object["metadata"][field].as_str().unwrap_or_default().to_owned())
        }
        "" => resource_value(object, &from["resourceFieldRef"]),
        _ => Err(Error::say(format!("unsupported fieldPath: {path}"))),
    }
}

/// What a container asks for or may have, in units of the divisor and rounded up.
fn resource_value(object: &Value, reference: &Value) -> Result<String> {
    let resource = reference["resource"].as_str().unwrap_or_default();
    let wanted = reference["containerName"].as_str().unwrap_or_default();
    let spec = match object["kind"].as_str() {
        Some("Pod") => &object["spec"],
        Some("CronJob") => &object["spec"]["jobTemplate"]["spec"]["template"]["spec"],
        _ => &object["spec"]["template"]["spec"],
    };
    let all = ["containers", "initContainers"].iter().flat_map(|list| spec[*list].as_array().into_iter().flatten());
    let Some(container) = all.into_iter().find(|container| container["name"] == wanted) else {
        return Err(Error::say(format!("container {wanted} not found")));
    };
    crate::describe::amount(container, reference)
        .ok_or_else(|| Error::say(format!("Unsupported container resource : {resource}")))
}
