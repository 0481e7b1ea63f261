//! What commands that change objects share: dry runs, validation, field managers, the line about what was done.

use http::Method;
use serde_json::Value;

use crate::client::{Call, query};
use crate::error::{Error, Result};
use crate::flags::{Flag, Kind, Parsed, slice, switch, text};
use crate::print::{self, Format};
use crate::resource::Info;
use crate::session::Context;
use crate::text::{line, print};

pub const FILES: [Flag; 3] = [
    slice("filename", "File, folder or - for standard input.").short('f'),
    switch("recursive", "Read folders recursively.").short('R'),
    text("kustomize", "Process a kustomization folder.").short('k'),
];
pub const DRY_RUN: Flag =
    Flag::new("dry-run", Kind::Text, "none", "none, server or client: only show what would be sent.").bare("unchanged");
pub const VALIDATE: Flag =
    Flag::new("validate", Kind::Text, "strict", "strict, warn or ignore what is not in the schema.").bare("strict");
pub const SELECTOR: Flag = text("selector", "Selector (label query) to filter on.").short('l');
pub const FIELD_SELECTOR: Flag = text("field-selector", "Selector (field query) to filter on.");
pub const ALL: Flag = switch("all", "Select all resources of the given types.");
pub const ALL_NAMESPACES: Flag = switch("all-namespaces", "In all namespaces.").short('A');
pub const LOCAL: Flag = switch("local", "Do not contact the server.");

pub const fn manager(default: &'static str) -> Flag {
    Flag::new("field-manager", Kind::Text, default, "Name of the manager of the fields.")
}

/// For commands that read folders recursively unless they are told otherwise.
pub fn recursive(mut flags: Vec<Flag>) -> Vec<Flag> {
    flags.iter_mut().filter(|flag| flag.name == "recursive").for_each(|flag| flag.default = "true");
    flags
}

/// Flags of printing, dry runs and a manager, with those of the command.
pub fn with(own: &[Flag], manager_name: &'static str) -> Vec<Flag> {
    let mut flags = own.to_vec();
    flags.extend(print::FLAGS);
    flags.push(DRY_RUN);
    flags.push(manager(manager_name));
    flags
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DryRun {
    No,
    Client,
    Server,
}

impl DryRun {
    pub fn of(flags: &Parsed) -> Result<Self> {
        match flags.text("dry-run") {
            "none" | "false" => Ok(Self::No),
            // Without a value, as it was once.
            "client" | "true" | "unchanged" => Ok(Self::Client),
            "server" => Ok(Self::Server),
            other => Err(Error::say(format!(
                "Invalid dry-run value ({other}). Must be \"none\", \"server\", or \"client\"."
            ))),
        }
    }

    pub fn parameter(self) -> &'static str {
        if self == Self::Server { "All" } else { "" }
    }

    pub fn suffix(self) -> &'static str {
        match self {
            Self::No => "",
            Self::Client => " (dry run)",
            Self::Server => " (server dry run)",
        }
    }
}

/// What the server is to do with fields that it does not know.
pub fn validation(flags: &Parsed) -> Result<&'static str> {
    if !flags.knows("validate") {
        return Ok("");
    }
    Ok(match flags.text("validate") {
        "true" | "strict" => "Strict",
        "warn" => "Warn",
        "false" | "ignore" => "Ignore",
        other => {
            let other = crate::text::quote(other);
            return Err(Error::say(format!(
                "invalid - validate option {other}; must be one of: strict (or true), warn, ignore (or false)"
            )));
        }
    })
}

/// How a command ends for one object: a line, or the object.
pub struct Report {
    pub format: Format,
    pub dry_run: DryRun,
    /// Whether a line says that nothing was done.
    tells_dry_run: bool,
    /// Nothing stands between the YAML of two objects.
    alone: bool,
    shown: std::cell::Cell<bool>,
}

impl Report {
    pub fn of(context: &Context) -> Result<Self> {
        let dry_run = DryRun::of(&context.flags)?;
        Ok(Self { dry_run, ..Self::of_reading(context)? })
    }

    /// For commands that have no dry run.
    pub fn of_reading(context: &Context) -> Result<Self> {
        Ok(Self {
            format: Format::for_writing(&context.flags)?,
            dry_run: DryRun::No,
            tells_dry_run: true,
            alone: false,
            shown: false.into(),
        })
    }

    /// Commands that make a printer for each object write nothing between two.
    pub fn each_alone(mut self) -> Self {
        self.alone = true;
        self
    }

    /// kubectl's patch and taint say the same with a dry run and without.
    pub fn like_a_real_run(mut self) -> Self {
        self.tells_dry_run = false;
        self
    }

    pub fn done(&self, info: &Info, object: &Value, what: &str) -> Result<()> {
        // What a subresource answers is of another kind.
        let kind = match (object["kind"].as_str(), object["apiVersion"].as_str()) {
            (Some(kind), Some(version)) => {
                let group = version.split_once('/').map_or("", |(group, _)| group);
                crate::discovery::qualified(&kind.to_lowercase(), group)
            }
            _ => info.resource.kind_name(),
        };
        let name = object["metadata"]["name"].as_str().unwrap_or(&info.name);
        let name = if name.is_empty() { "<unknown>" } else { name };
        match &self.format {
            Format::Human { .. } => {
                let suffix = if self.tells_dry_run { self.dry_run.suffix() } else { "" };
                line(format!("{kind}/{name} {what}{suffix}"));
            }
            Format::Name => line(format!("{kind}/{name}")),
            format => print(format.object(object, !self.shown.replace(true) || self.alone)?),
        }
        Ok(())
    }

    /// The same for an object that was made here: its JSON and KYAML have the order of Go's structs.
    pub fn made(&self, info: &Info, object: &Value, what: &str) -> Result<()> {
        match (&self.format, print::typed_json(object)) {
            (Format::Json { .. }, Some(text)) => {
                print(text);
                Ok(())
            }
            (Format::Kyaml { .. }, Some(text)) => {
                print(print::kyaml::of_json(&text).unwrap_or_default());
                Ok(())
            }
            _ => self.done(info, object, what),
        }
    }
}

/// Creates an object; its name may be made by the server.
pub async fn create(
    context: &Context,
    info: &Info,
    object: &Value,
    dry_run: DryRun,
    validation: &str,
) -> Result<Value> {
    let path = query(
        &info.collection(),
        &[
            ("dryRun", dry_run.parameter()),
            ("fieldManager", context.flags.text("field-manager")),
            ("fieldValidation", validation),
        ],
    );
    context.client().await?.json(Call::new(Method::POST, path).json(object)).await
}

pub const MERGE: &str = "application/merge-patch+json";
pub const STRATEGIC: &str = "application/strategic-merge-patch+json";
pub const JSON_PATCH: &str = "application/json-patch+json";
pub const APPLY: &str = "application/apply-patch+yaml";

pub async fn patch(context: &Context, info: &Info, kind: &str, body: &Value, dry_run: DryRun) -> Result<Value> {
    patch_at(context, &info.path(), kind, body, dry_run).await
}

pub async fn patch_at(context: &Context, path: &str, kind: &str, body: &Value, dry_run: DryRun) -> Result<Value> {
    patch_bytes(context, path, kind, body.to_string().into_bytes(), dry_run).await
}

pub async fn patch_bytes(context: &Context, path: &str, kind: &str, body: Vec<u8>, dry_run: DryRun) -> Result<Value> {
    let path = query(path, &[("dryRun", dry_run.parameter()), ("fieldManager", context.flags.text("field-manager"))]);
    let call = Call::new(Method::PATCH, path).body(kind, body);
    context.client().await?.json(call).await
}

/// The object in the form that Go writes it.
pub fn normalized(mut object: Value) -> Value {
    let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let gvk = ferry_meta::GroupVersionKind::new(group, version, &*kind);
    if let Some(ty) = ferry_schema::builtin().kind(&gvk) {
        ferry_schema::normalize(&ty, &mut object);
        object["apiVersion"] = api_version.into();
        object["kind"] = kind.into();
    }
    object
}

/// Whether kubectl has a Go type of this kind.
pub fn is_built_in(info: &Info) -> bool {
    let r = &info.resource;
    ferry_schema::builtin().kind(&ferry_meta::GroupVersionKind::new(&*r.group, &*r.version, &*r.kind)).is_some()
}

/// What kubectl says of other kinds where it needs one.
pub fn not_registered(info: &Info) -> Error {
    let (kind, version) = (crate::text::quote(&info.resource.kind), crate::text::quote(&info.resource.api_version()));
    Error::say(format!("no kind {kind} is registered for version {version} in scheme \"pkg/runtime/scheme.go:111\""))
}

pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The object with itself as an annotation, for the next apply.
pub fn with_last_applied(object: &Value) -> Value {
    let mut plain = object.clone();
    if let Some(annotations) = plain["metadata"]["annotations"].as_object_mut() {
        annotations.remove(LAST_APPLIED);
    } else if plain["metadata"].is_object() {
        plain["metadata"]["annotations"] = serde_json::json!({});
    }
    let text = print::compact(&plain) + "\n";
    plain["metadata"]["annotations"][LAST_APPLIED] = text.into();
    plain
}

/// The files as they are to a path as it is, and what the server answers.
pub async fn send_raw(context: &Context, method: Method, path: &str) -> Result<()> {
    let mut body = Vec::new();
    for name in context.flags.list("filename") {
        body = match &*name {
            "-" => {
                std::io::Read::read_to_end(&mut std::io::stdin(), &mut body).map_err(|e| Error::say(e.to_string()))?;
                body
            }
            name => {
                std::fs::read(name).map_err(|e| Error::say(crate::config::file::go_error("open", name.as_ref(), &e)))?
            }
        };
    }
    let call = Call::new(method, path).body("application/json", body);
    print(context.client().await?.bytes(call).await?);
    Ok(())
}
