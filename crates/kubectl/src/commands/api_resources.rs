//! `kubectl api-resources`.

use super::{Command, leaf};
use crate::discovery::Resource;
use crate::error::{Error, Result};
use crate::flags::{Flag, Kind, slice, switch, text};
use crate::session::Context;
use crate::text::{line, print};

pub const COMMAND: Command =
    leaf("api-resources", "[flags]", "Print the supported API resources on the server", flags, |c| Box::pin(run(c)));

fn flags() -> Vec<Flag> {
    vec![
        text("output", "Output format: wide, name, json or yaml.").short('o'),
        text("api-group", "Only resources of this API group."),
        Flag::new("namespaced", Kind::Bool, "true", "Only namespaced resources, or only others."),
        slice("verbs", "Only resources that support these verbs."),
        text("sort-by", "Sort by name or kind."),
        switch("cached", "Use the cached list of resources if available."),
        slice("categories", "Only resources of these categories."),
        switch("no-headers", "Print no headers."),
        switch("show-managed-fields", ""),
    ]
}

async fn run(context: &Context) -> Result<()> {
    let flags = &context.flags;
    if !context.words().is_empty() {
        return Err(context.usage(format!("unexpected arguments: [{}]", context.words().join(" "))));
    }
    let output = flags.text("output");
    if !matches!(output, "" | "wide" | "name" | "json" | "yaml") {
        return Err(Error::say(format!(
            "unable to match a printer suitable for the output format {}, allowed formats are: json,kyaml,name,wide,yaml",
            crate::text::quote(output)
        )));
    }
    if !matches!(flags.text("sort-by"), "" | "name" | "kind") {
        return Err(Error::say("--sort-by accepts only name or kind"));
    }
    if !flags.is("cached") {
        context.refresh().await?;
    }
    let mut found: Vec<Resource> = context
        .with_mapper(|mapper| {
            Ok(mapper.found.resources.iter().filter(|r| r.preferred && !r.verbs.is_empty()).cloned().collect())
        })
        .await?;
    found.retain(|resource| {
        (!flags.changed("api-group") || resource.group == flags.text("api-group"))
            && (!flags.changed("namespaced") || resource.namespaced == flags.is("namespaced"))
            && flags.list("verbs").iter().all(|verb| resource.allows(verb))
            && flags.list("categories").iter().all(|category| resource.categories.contains(category))
    });
    match flags.text("sort-by") {
        "name" => found.sort_by(|a, b| a.plural.cmp(&b.plural)),
        "kind" => found.sort_by(|a, b| a.kind.cmp(&b.kind)),
        _ => found.sort_by(|a, b| (&a.group, &a.plural).cmp(&(&b.group, &b.plural))),
    }
    match output {
        "name" => found.iter().for_each(|resource| line(resource.qualified())),
        "json" | "yaml" => {
            let resources: Vec<serde_json::Value> = found.iter().map(entry).collect();
            let list = serde_json::json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "", "resources": resources});
            match output {
                "json" => line(crate::print::in_order(&list, &[LIST, ENTRY], 0, 4)),
                _ => print(ferry_schema::yaml::to_yaml(&list)),
            }
        }
        _ => print(table(&found, output == "wide", flags.is("no-headers"))),
    }
    Ok(())
}

const LIST: &[&str] = &["kind", "apiVersion", "groupVersion", "resources"];
const ENTRY: &[&str] =
    &["name", "singularName", "namespaced", "group", "version", "kind", "verbs", "shortNames", "categories"];

fn entry(resource: &Resource) -> serde_json::Value {
    let mut entry = serde_json::json!({
        "name": resource.plural, "singularName": resource.singular, "namespaced": resource.namespaced,
        "version": resource.version, "kind": resource.kind, "verbs": resource.verbs,
    });
    if !resource.group.is_empty() {
        entry["group"] = resource.group.clone().into();
    }
    for (field, list) in [("shortNames", &resource.short_names), ("categories", &resource.categories)] {
        if !list.is_empty() {
            entry[field] = list.clone().into();
        }
    }
    entry
}

fn table(found: &[Resource], wide: bool, no_headers: bool) -> String {
    let mut text = String::new();
    if !no_headers {
        text.push_str("NAME\tSHORTNAMES\tAPIVERSION\tNAMESPACED\tKIND");
        text.push_str(if wide { "\tVERBS\tCATEGORIES\n" } else { "\n" });
    }
    for r in found {
        text.push_str(&format!(
            "{}\t{}\t{}\t{}\t{}",
            r.plural,
            r.short_names.join(","),
            r.api_version(),
            r.namespaced,
            r.kind
        ));
        if wide {
            text.push_str(&format!("\t{}\t{}", r.verbs.join(","), r.categories.join(",")));
        }
        text.push('\n');
    }
    crate::print::tabs::align(&text, 6, 3)
}
