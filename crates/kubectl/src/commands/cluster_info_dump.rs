//! `kubectl cluster-info dump`: what helps to find out what is wrong with a cluster.

use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{Command, leaf};
use crate::client::Call;
use crate::discovery::Resource;
use crate::error::{Error, Result};
use crate::flags::{Flag, Kind, slice, text};
use crate::print::{self, Format};
use crate::resource::{Pages, Selection};
use crate::session::Context;
use crate::text::{line, print as out};

pub const COMMAND: Command =
    leaf("dump", "[flags]", "Dump relevant information for debugging and diagnosis", flags, |c| Box::pin(run(c)));

fn flags() -> Vec<Flag> {
    let mut flags: Vec<Flag> = print::FLAGS.to_vec();
    flags[0].default = "json";
    flags.extend([
        text("output-directory", "Where the files go; standard output where it is empty or '-'."),
        slice("namespaces", "A comma separated list of namespaces to dump."),
        super::common::ALL_NAMESPACES,
        Flag::new("pod-running-timeout", Kind::Duration, "20s", "How long to wait until a pod runs."),
    ]);
    flags
}

/// Lists of a namespace, with the names of their files.
const LISTS: [(&str, &str, &str); 7] = [
    ("v1", "Event", "events"),
    ("v1", "ReplicationController", "replication-controllers"),
    ("v1", "Service", "services"),
    ("apps/v1", "DaemonSet", "daemonsets"),
    ("apps/v1", "Deployment", "deployments"),
    ("apps/v1", "ReplicaSet", "replicasets"),
    ("v1", "Pod", "pods"),
];

/// Standard output, or a folder.
struct Sink {
    folder: Option<PathBuf>,
    format: Format,
    ending: &'static str,
    /// A line stands between two documents of YAML, in whatever file they are.
    first: std::cell::Cell<bool>,
}

impl Sink {
    /// For the owner alone: logs may have secrets in them.
    fn write(&self, name: &str, ending: &str, text: impl AsRef<[u8]>) -> Result<()> {
        let Some(folder) = &self.folder else {
            out(text);
            return Ok(());
        };
        let inside = PathBuf::from(format!("{name}{ending}"));
        // Names are the server's.
        if !inside.components().all(|part| matches!(part, std::path::Component::Normal(_))) {
            return Err(Error::say(format!("{} leads out of the folder", crate::text::quote(name))));
        }
        let path = folder.join(inside);
        let fail = |error: std::io::Error| Error::say(crate::config::file::go_error("open", &path, &error));
        let parent = path.parent().unwrap_or(Path::new("."));
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(parent).map_err(fail)?;
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&path).map_err(fail)?;
        file.write_all(text.as_ref()).map_err(fail)
    }

    fn list(&self, name: &str, resource: &Resource, list: &Value) -> Result<()> {
        let text = match &self.format {
            Format::Json { .. } => typed(resource, list),
            format => format.object(list, self.first.replace(false))?,
        };
        self.write(name, self.ending, text)
    }
}

/// JSON in the order of Go's structs.
fn typed(resource: &Resource, list: &Value) -> String {
    let gvk = ferry_meta::GroupVersionKind::new(&*resource.group, &*resource.version, &*resource.kind);
    let Some(ty) = ferry_schema::builtin().kind(&gvk) else { return print::json(list) };
    let items = list["items"].as_array().map_or(&[][..], Vec::as_slice);
    let shown: Vec<String> = items
        .iter()
        .map(|item| {
            let mut item = item.clone();
            for (part, field) in [("", "kind"), ("", "apiVersion"), ("/metadata", "managedFields")] {
                item.pointer_mut(part)
                    .and_then(Value::as_object_mut)
                    .into_iter()
                    .for_each(|map| drop(map.remove(field)));
            }
            let text = print::four_spaces(ferry_schema::encode_json_pretty(&ty, &item));
            text.trim_end().replace('\n', "\n        ")
        })
        .collect();
    let version = print::compact(&list["metadata"]["resourceVersion"]);
    let items = match shown.is_empty() {
        true => "[]".to_owned(),
        false => format!("[\n        {}\n    ]", shown.join(",\n        ")),
    };
    format!(
        "{{\n    \"kind\": \"{}List\",\n    \"apiVersion\": \"{}\",\n    \"metadata\": {{\n        \"resourceVersion\": {version}\n    }},\n    \"items\": {items}\n}}\n",
        resource.kind,
        resource.api_version()
    )
}

async fn whole(context: &Context, resource: &Resource, namespace: Option<String>) -> Result<Value> {
    let selection = Selection { resource: resource.clone(), namespace, ..Selection::default() };
    let page = Pages::new(&selection, 0, "").next(context, crate::client::JSON).await?;
    page.ok_or_else(|| Error::say("the server gave no list"))
}

async fn run(context: &Context) -> Result<()> {
    let flags = &context.flags;
    let format = Format::for_writing(flags)?;
    let ending = match flags.text("output") {
        "json" => ".json",
        "yaml" => ".yaml",
        _ => ".txt",
    };
    let folder = flags.given("output-directory").filter(|folder| *folder != "-").map(PathBuf::from);
    let sink = Sink { folder, format, ending, first: true.into() };
    let nodes = context.kind("v1", "Node").await?;
    sink.list("nodes", &nodes, &whole(context, &nodes, None).await?)?;
    let namespaces = if flags.is("all-namespaces") {
        let all = whole(context, &context.kind("v1", "Namespace").await?, None).await?;
        let items = all["items"].as_array().cloned().unwrap_or_default();
        items.iter().filter_map(|item| item["metadata"]["name"].as_str()).map(str::to_owned).collect()
    } else if flags.list("namespaces").is_empty() {
        vec!["kube-system".to_owned(), context.namespace().await?]
    } else {
        flags.list("namespaces")
    };
    for namespace in namespaces {
        for (api_version, kind, file) in LISTS {
            let resource = context.kind(api_version, kind).await?;
            let list = whole(context, &resource, Some(namespace.clone())).await?;
            sink.list(&format!("{namespace}/{file}"), &resource, &list)?;
            if kind == "Pod" {
                for pod in list["items"].as_array().into_iter().flatten() {
                    logs(context, &sink, &resource, &namespace, pod).await?;
                }
            }
        }
    }
    if let Some(folder) = &sink.folder {
        line(format!("Cluster info dumped to {}", folder.display()));
    }
    Ok(())
}

/// Of all containers; what cannot be read is told in its place.
async fn logs(context: &Context, sink: &Sink, pods: &Resource, namespace: &str, pod: &Value) -> Result<()> {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let mut text = Vec::new();
    let containers = ["initContainers", "containers"].map(|list| pod["spec"][list].as_array().into_iter().flatten());
    for container in containers.into_iter().flatten() {
        let container = container["name"].as_str().unwrap_or_default();
        let about = format!("logs for container {container} of pod {namespace}/{name} ====\n");
        text.extend_from_slice(format!("==== START {about}").as_bytes());
        let path = format!("{}/log", pods.object(Some(namespace), name));
        let path = crate::client::query(&path, &[("container", container)]);
        match context.client().await?.bytes(Call::get(path).accept("*/*")).await {
            Ok(body) => text.extend_from_slice(&body),
            Err(error) => text.extend_from_slice(format!("Request log error: {}\n", error.inner()).as_bytes()),
        }
        text.extend_from_slice(format!("==== END {about}").as_bytes());
    }
    sink.write(&format!("{namespace}/{name}/logs"), ".txt", text)
}
