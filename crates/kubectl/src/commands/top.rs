//! `kubectl top`: what pods and nodes use, of a server that has the metrics API.

use std::cmp::Reverse;

use ferry_meta::quantity::{Format as Unit, Quantity};
use serde_json::Value;

use super::{Command, common, group, leaf, list_pods};
use crate::discovery::Resource;
use crate::error::{Error, Result};
use crate::flags::{Flag, Kind, switch, text};
use crate::print::tabs;
use crate::resource::{Selection, get, list};
use crate::session::Context;
use crate::text::{print, warn};

pub const COMMAND: Command = group(
    "top",
    "Display resource (CPU/memory) usage",
    &[
        leaf("node", "[NAME | -l label]", "Display resource (CPU/memory) usage of nodes", node_flags, |c| {
            Box::pin(nodes(c))
        })
        .aliases(&["nodes", "no"]),
        leaf("pod", "[NAME | -l label]", "Display resource (CPU/memory) usage of pods", pod_flags, |c| {
            Box::pin(pods(c))
        })
        .aliases(&["pods", "po"]),
    ],
)
.usage("[flags]");

const SHARED: [Flag; 5] = [
    common::SELECTOR,
    text("sort-by", "cpu or memory."),
    switch("no-headers", "Do not print headers."),
    Flag::new("use-protocol-buffers", Kind::Bool, "true", "Kept for scripts: JSON is spoken."),
    switch("show-swap", "Show swap as well."),
];

fn node_flags() -> Vec<Flag> {
    let mut flags = SHARED.to_vec();
    flags.push(switch("show-capacity", "In percent of the capacity, not of what can be allocated."));
    flags
}

fn pod_flags() -> Vec<Flag> {
    let mut flags = SHARED.to_vec();
    flags.extend([
        common::FIELD_SELECTOR,
        common::ALL_NAMESPACES,
        switch("containers", "Show each container."),
        switch("sum", "Show the sum."),
    ]);
    flags
}

/// cpu and memory, and swap where it is asked for.
fn measured(context: &Context) -> Vec<&'static str> {
    let mut all = vec!["cpu", "memory"];
    if context.flags.is("show-swap") {
        all.push("swap");
    }
    all
}

fn named<'a>(context: &'a Context, usage: &str, complaint: &str) -> Result<Option<&'a str>> {
    let flags = &context.flags;
    let name = match context.words() {
        [] => None,
        [name] => Some(name.as_str()),
        _ => return Err(context.usage(usage)),
    };
    if flags.given("sort-by").is_some_and(|by| !matches!(by, "cpu" | "memory")) {
        return Err(Error::say("--sort-by accepts only cpu or memory"));
    }
    if name.is_some() && (flags.given("selector").is_some() || flags.given("field-selector").is_some()) {
        return Err(Error::say(complaint));
    }
    Ok(name)
}

/// The kind of the metrics API, of the newest version that is known.
async fn metrics(context: &Context, plural: &str) -> Result<Resource> {
    let find = || {
        context.with_mapper(|mapper| {
            let of = |version: &str| {
                let is_it = |r: &&Resource| r.group == "metrics.k8s.io" && r.version == version && r.plural == plural;
                mapper.found.resources.iter().find(is_it).cloned()
            };
            of("v1").or_else(|| of("v1beta1")).ok_or_else(|| Error::say("Metrics API not available"))
        })
    };
    find().await
}

fn quantity(value: &Value) -> Quantity {
    let zero = || Quantity::from_units(0, Unit::DecimalSi);
    value.as_str().and_then(|text| Quantity::parse(text).ok()).unwrap_or_else(zero)
}

fn shown(resource: &str, quantity: &Quantity) -> String {
    match resource {
        "cpu" => format!("{}m", quantity.milli_value()),
        _ => format!("{}Mi", quantity.value() / (1024 * 1024)),
    }
}

async fn read(
    context: &Context,
    resource: &Resource,
    namespace: Option<String>,
    name: Option<&str>,
) -> Result<Vec<Value>> {
    if let Some(name) = name {
        return Ok(vec![get(context, resource, namespace.as_deref(), name).await?]);
    }
    let labels = context.flags.text("selector").to_owned();
    list(context, &Selection { resource: resource.clone(), namespace, labels, fields: String::new() }, 0).await
}

fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// By what is asked for, the greatest first, else by name.
fn sort<T>(context: &Context, items: &mut [T], name: impl Fn(&T) -> String, usage: impl Fn(&T, &str) -> Quantity) {
    match context.flags.given("sort-by") {
        Some(by) => items.sort_by_key(|item| (Reverse(usage(item, by).milli_value()), name(item))),
        None => items.sort_by_key(name),
    }
}

async fn nodes(context: &Context) -> Result<()> {
    let name = named(context, "node [NAME | -l label]", "only one of NAME or --selector can be provided")?;
    let resource = metrics(context, "nodes").await?;
    let mut items = read(context, &resource, None, name).await?;
    if items.is_empty() {
        return Err(Error::say("metrics not available yet"));
    }
    let known = read(context, &context.kind("v1", "Node").await?, None, name).await?;
    let field = if context.flags.is("show-capacity") { "capacity" } else { "allocatable" };
    let measured = measured(context);
    sort(context, &mut items, |item| name_of(item).to_owned(), |item, by| quantity(&item["usage"][by]));
    let mut text = String::new();
    if !context.flags.is("no-headers") {
        text.push_str("NAME\tCPU(cores)\tCPU(%)\tMEMORY(bytes)\tMEMORY(%)\t");
        text.push_str(if context.flags.is("show-swap") { "SWAP(bytes)\tSWAP(%)\t\n" } else { "\n" });
    }
    for item in &items {
        text.push_str(&format!("{}\t", name_of(item)));
        let node = known.iter().find(|node| name_of(node) == name_of(item));
        for resource in &measured {
            let used = quantity(&item["usage"][*resource]);
            let available = match *resource {
                "swap" => {
                    let bytes = node.and_then(|node| node["status"]["nodeInfo"]["swap"]["capacity"].as_i64());
                    bytes.map(|bytes| Quantity::from_units(bytes, Unit::BinarySi))
                }
                name => {
                    let value = node.map(|node| &node["status"][field][name]).filter(|value| value.is_string());
                    value.map(quantity)
                }
            };
            match available {
                None if *resource == "swap" => text.push_str("<unknown>\t<unknown>\t"),
                None => text.push_str(&format!("{}\t", shown(resource, &used))),
                Some(available) => {
                    text.push_str(&format!("{}\t{}%\t", shown(resource, &used), percent(&used, &available)));
                }
            }
        }
        text.push('\n');
    }
    for node in known.iter().filter(|node| !items.iter().any(|item| name_of(item) == name_of(node))) {
        text.push_str(&format!("{}\t{}\n", name_of(node), "<unknown>\t<unknown>\t".repeat(measured.len())));
    }
    print(tabs::align(&text, 6, 3));
    Ok(())
}

fn percent(used: &Quantity, available: &Quantity) -> i64 {
    match available.milli_value() {
        0 => 0,
        whole => (used.milli_value() as f64 / whole as f64 * 100.0) as i64,
    }
}

fn of_pod(pod: &Value, resource: &str) -> Quantity {
    let containers = pod["containers"].as_array().map_or(&[][..], Vec::as_slice);
    let zero = Quantity::from_units(0, Unit::DecimalSi);
    containers.iter().fold(zero, |sum, container| sum.add(&quantity(&container["usage"][resource])))
}

async fn pods(context: &Context) -> Result<()> {
    let flags = &context.flags;
    let name = named(context, "pod [NAME | -l label]", "only one of NAME or selector can be provided")?;
    let resource = metrics(context, "pods").await?;
    let own = context.namespace().await?;
    let namespace = if flags.is("all-namespaces") { None } else { Some(own.clone()) };
    let mut items = read(context, &resource, namespace.clone(), name).await?;
    if let Some(fields) = flags.given("field-selector").filter(|_| !items.is_empty()) {
        let pods = list_pods(context, namespace.clone(), flags.text("selector"), fields).await?;
        let place = |object: &Value| (object["metadata"]["namespace"].clone(), object["metadata"]["name"].clone());
        items.retain(|item| pods.iter().any(|pod| place(pod) == place(item)));
    }
    if items.is_empty() {
        // Metrics come some time behind the pods.
        let pods = list_pods(context, Some(own.clone()), flags.text("selector"), flags.text("field-selector")).await?;
        if !pods.is_empty() {
            return Err(Error::say("metrics not available yet"));
        }
        warn(match namespace {
            Some(namespace) => format!("No resources found in {namespace} namespace."),
            None => "No resources found".to_owned(),
        });
        return Ok(());
    }
    let all = flags.is("all-namespaces");
    let place = |item: &Value| {
        let namespace = item["metadata"]["namespace"].as_str().unwrap_or_default();
        if all { format!("{namespace}\0{}", name_of(item)) } else { name_of(item).to_owned() }
    };
    sort(context, &mut items, place, of_pod);
    print(tabs::align(&table(context, &mut items), 6, 3));
    Ok(())
}

fn table(context: &Context, items: &mut [Value]) -> String {
    let flags = &context.flags;
    let (all, each) = (flags.is("all-namespaces"), flags.is("containers"));
    let measured = measured(context);
    let mut text = String::new();
    let mut columns = measured.len() + 1;
    if !flags.is("no-headers") {
        for (wanted, name) in [(all, "NAMESPACE\t"), (each, "POD\t")] {
            text.push_str(if wanted { name } else { "" });
            columns += usize::from(wanted);
        }
        text.push_str("NAME\tCPU(cores)\tMEMORY(bytes)\t");
        text.push_str(if flags.is("show-swap") { "SWAP(bytes)\t\n" } else { "\n" });
    }
    let usage = |of: &dyn Fn(&str) -> Quantity| -> String {
        measured.iter().map(|resource| format!("{}\t", shown(resource, &of(resource)))).collect()
    };
    for item in &mut *items {
        let name = name_of(item).to_owned();
        let namespace = item["metadata"]["namespace"].as_str().unwrap_or_default();
        let before = if all { format!("{namespace}\t") } else { String::new() };
        if !each {
            text.push_str(&format!("{before}{name}\t{}\n", usage(&|resource| of_pod(item, resource))));
            continue;
        }
        let containers = item["containers"].as_array_mut().map_or(&mut [][..], Vec::as_mut_slice);
        let of_container = |container: &Value| container["name"].as_str().unwrap_or_default().to_owned();
        sort(context, containers, of_container, |container, by| quantity(&container["usage"][by]));
        for container in containers.iter() {
            let used = usage(&|resource| quantity(&container["usage"][resource]));
            text.push_str(&format!("{before}{name}\t{}\t{used}\n", of_container(container)));
        }
    }
    if flags.is("sum") {
        let zero = Quantity::from_units(0, Unit::DecimalSi);
        let sum = |resource: &str| items.iter().fold(zero.clone(), |sum, item| sum.add(&of_pod(item, resource)));
        text.push_str(&format!("{}________\t________\t\n", "\t".repeat(columns.saturating_sub(2))));
        text.push_str(&format!("{}\t{}\n", "\t".repeat(columns.saturating_sub(3)), usage(&sum)));
    }
    text
}
