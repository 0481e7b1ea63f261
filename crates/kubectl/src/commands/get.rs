//! `kubectl get`.

use serde_json::{Value, json};

use super::{Command, get_live, get_watch, leaf};
use crate::client::{Call, JSON, TABLE, query};
use crate::discovery::Resource;
use crate::error::{Error, Result};
use crate::flags::{Flag, Kind, slice, switch, text};
use crate::print::columns::Columns;
use crate::print::table::{Options, Printer};
use crate::print::{self, Format, sort};
use crate::resource::{Builder, Info, Pages, Selection, Target, read_all};
use crate::session::Context;
use crate::text::{flush, print, warn};

pub const COMMAND: Command = leaf(
    "get",
    "[(-o|--output=)json|yaml|kyaml|name|go-template|go-template-file|template|templatefile|jsonpath|jsonpath-as-json|jsonpath-file|custom-columns|custom-columns-file|wide] (TYPE[.VERSION][.GROUP] [NAME | -l label] | TYPE[.VERSION][.GROUP]/NAME ...) [flags]",
    "Display one or many resources",
    flags,
    |c| Box::pin(run(c)),
);

fn flags() -> Vec<Flag> {
    let mut flags = vec![
        text("raw", "Raw URI to request from the server."),
        switch("watch", "After listing the objects, watch for changes.").short('w'),
        switch("watch-only", "Watch for changes without listing first."),
        switch("output-watch-events", "Output watch event objects when --watch or --watch-only is used."),
        Flag::new("chunk-size", Kind::Int, "500", "Return large lists in chunks."),
        switch("ignore-not-found", "Exit without error if the object does not exist."),
        text("selector", "Selector (label query) to filter on.").short('l'),
        text("field-selector", "Selector (field query) to filter on."),
        switch("all-namespaces", "List the objects of all namespaces.").short('A'),
        Flag::new("server-print", Kind::Bool, "true", "Have the server return the table."),
        text("subresource", "Operate on a subresource of the object."),
        text("sort-by", "Sort by this JSONPath expression."),
        switch("no-headers", "Print no headers."),
        switch("show-labels", "Show all labels as the last column."),
        switch("show-kind", "Show the kind of the objects."),
        slice("label-columns", "Labels to show as columns.").short('L'),
        slice("filename", "File, folder or - for standard input.").short('f'),
        switch("recursive", "Read folders recursively.").short('R'),
        text("kustomize", "Process a kustomization folder.").short('k'),
    ];
    flags.extend(print::FLAGS);
    flags
}

async fn run(context: &Context) -> Result<()> {
    let flags = &context.flags;
    if let Some(path) = flags.given("raw") {
        return raw(context, path).await;
    }
    check(context)?;
    let format = Format::for_reading(flags)?;
    if context.live {
        return get_live::run(context, &format).await;
    }
    if flags.is("watch") || flags.is("watch-only") {
        if flags.given("sort-by").is_some() {
            warn(match flags.is("watch") {
                true => "warning: --watch requested, --sort-by will be ignored for watch events received",
                false => "warning: --watch-only requested, --sort-by will be ignored",
            });
        }
        return get_watch::run(context, &format).await;
    }
    if context.words().is_empty() && flags.list("filename").is_empty() && flags.given("kustomize").is_none() {
        warn(
            "You must specify the type of resource to get. Use \"kubectl api-resources\" for a complete list of supported resources.\n\n",
        );
        return Err(context.usage(
            "Required resource not specified.\nUse \"kubectl explain <resource>\" for a detailed description of that resource (e.g. kubectl explain pods).",
        ));
    }
    let mut builder = Builder::of(context).empty_selector().latest();
    builder.subresource = flags.given("subresource").is_some();
    let built = builder.build(context).await?;
    let result = match &format {
        Format::Human { wide } => human(context, &built.targets, *wide).await,
        _ => generic(context, &built.targets, built.single, &format).await,
    };
    let mut errors = match result {
        Ok(()) => Vec::new(),
        Err(Error::Many(errors)) => errors,
        Err(error) => vec![error],
    };
    errors.extend(built.errors);
    Error::all(errors)
}

fn check(context: &Context) -> Result<()> {
    let flags = &context.flags;
    let output = flags.text("output");
    if flags.is("show-labels") && !matches!(output, "" | "wide") {
        return Err(Error::say(format!("--show-labels option cannot be used with {output} printer")));
    }
    if !flags.list("label-columns").is_empty() && output.starts_with("custom-columns") {
        return Err(Error::say(format!("--label-columns option cannot be used with {output} printer")));
    }
    if flags.is("output-watch-events") && !flags.is("watch") && !flags.is("watch-only") {
        return Err(Error::say("--output-watch-events option can only be used with --watch or --watch-only"));
    }
    Ok(())
}

async fn raw(context: &Context, path: &str) -> Result<()> {
    let flags = &context.flags;
    if flags.is("watch") || flags.is("watch-only") || flags.given("selector").is_some() {
        return Err(Error::say(
            "--raw may not be specified with other flags that filter the server request or alter the output",
        ));
    }
    if flags.given("output").is_some() {
        return Err(Error::say("--raw and --output are mutually exclusive"));
    }
    if !context.words().is_empty() {
        return Err(Error::say("arguments may not be passed when --raw is specified"));
    }
    let unfit =
        |why: String| Error::say(format!("--raw must be a valid URL path: parse {}: {why}", crate::text::quote(path)));
    // Of a whole address the path is asked for; the server is the kubeconfig's.
    let path = match path.split_once("://") {
        Some((scheme, rest)) if !scheme.contains('/') => rest.find('/').map_or("/", |at| &rest[at..]),
        _ => path,
    };
    if !path.starts_with('/') {
        return Err(unfit("invalid URI for request".into()));
    }
    if let Some(wrong) = wrong_escape(path.split('?').next().unwrap_or_default()) {
        return Err(unfit(format!("invalid URL escape {}", crate::text::quote(wrong))));
    }
    let mut body = context.client().await?.stream(Call::get(path).accept("*/*")).await?;
    get_watch::copy(&mut body, |part| {
        print(part);
        flush();
    })
    .await
}

pub fn table_options(context: &Context, wide: bool) -> Options {
    let flags = &context.flags;
    Options {
        wide,
        no_headers: flags.is("no-headers"),
        namespace: flags.is("all-namespaces"),
        show_labels: flags.is("show-labels"),
        label_columns: flags.list("label-columns"),
        kind: None,
    }
}

/// The first `%` of a path that no two digits follow, with what follows.
fn wrong_escape(path: &str) -> Option<&str> {
    path.match_indices('%').find_map(|(at, _)| {
        let digits = path.get(at + 1..at + 3).is_some_and(|two| two.bytes().all(|byte| byte.is_ascii_hexdigit()));
        (!digits).then(|| path.get(at..at + 3).unwrap_or(&path[at..]))
    })
}

/// The path of one object, or of its subresource.
fn object_path(context: &Context, target: &Target) -> String {
    let Target::One { resource, namespace, name } = target else { return String::new() };
    let path = resource.object(namespace.as_deref(), name);
    match context.flags.given("subresource") {
        Some(subresource) => format!("{path}/{subresource}"),
        None => path,
    }
}

async fn human(context: &Context, targets: &[Target], wide: bool) -> Result<()> {
    let flags = &context.flags;
    let first = targets.first().map(|target| target.resource().clone());
    let several = targets.iter().any(|target| Some(target.resource()) != first.as_ref());
    let sort_by = flags.given("sort-by");
    let include = if sort_by.is_some() { "Object" } else { "" };
    let limit = if sort_by.is_some() { 0 } else { flags.int("chunk-size") };
    let accept = if flags.is("server-print") { TABLE } else { JSON };
    // Several tables have no field that they could be sorted by.
    if let Some(by) = sort_by.filter(|_| targets.len() > 1) {
        let text = print::jsonpath::Template::relaxed(by)?.text().to_owned();
        let text = crate::text::quote(&text);
        return Err(Error::say(format!("couldn't find any field with path {text} in the list of objects")));
    }
    let one = matches!(targets, [Target::One { .. }]);
    let mut tables = Tables { context, wide, several, printer: None, separate: false, written: false, one };
    let (mut errors, mut all_namespaced) = (Vec::new(), !flags.is("all-namespaces"));
    if targets.iter().all(|target| matches!(target, Target::One { .. })) {
        let (found, failed) = named(context, targets, accept, include).await?;
        errors = failed;
        all_namespaced &= targets.iter().all(|target| target.resource().namespaced);
        tables.several = found.iter().any(|(resource, _)| *resource != found[0].0);
        for (resource, mut table) in joined(found) {
            tables.show(&resource, &mut table)?;
        }
    }
    for target in targets {
        let Target::Many(selection) = target else { continue };
        all_namespaced &= selection.resource.namespaced;
        let mut pages = Pages::new(selection, limit, include);
        loop {
            match pages.next(context, accept).await {
                Ok(Some(mut page)) => tables.show(&selection.resource, &mut page)?,
                Ok(None) => break,
                Err(error) => {
                    errors.push(error);
                    break;
                }
            }
        }
    }
    tables.release();
    if !tables.written && !flags.is("ignore-not-found") && errors.is_empty() {
        warn(match all_namespaced {
            true => format!("No resources found in {} namespace.", context.namespace().await?),
            false => "No resources found".to_owned(),
        });
    }
    // Only what the server says has a beginning here.
    Error::all(errors.into_iter().map(Error::plain).collect())
}

type Found = Vec<(Resource, Value)>;

/// The table of each object.
async fn named(context: &Context, targets: &[Target], accept: &str, include: &str) -> Result<(Found, Vec<Error>)> {
    let (mut found, mut errors) = (Vec::new(), Vec::new());
    for target in targets {
        let path = query(&object_path(context, target), &[("includeObject", include)]);
        let namespace = match target {
            Target::One { namespace, .. } => namespace.as_deref(),
            _ => None,
        };
        let answer = match context.client().await?.json(Call::get(path).accept(accept)).await {
            Err(error) => Err(crate::resource::missing(context, namespace, error).await),
            found => found,
        };
        match answer {
            Ok(table) => found.push((target.resource().clone(), table)),
            Err(error) if error.is_not_found() && context.flags.is("ignore-not-found") => {}
            Err(error) => errors.push(error),
        }
    }
    Ok((found, errors))
}

/// Neighbours of one resource in one table, so that their columns are aligned.
fn joined(found: Found) -> Found {
    let mut all: Found = Vec::new();
    for (resource, mut table) in found {
        match all.last_mut() {
            Some((known, last)) if *known == resource && last["columnDefinitions"] == table["columnDefinitions"] => {
                if let (Some(Value::Array(rows)), Some(Value::Array(more))) =
                    (last.get_mut("rows"), table.get_mut("rows"))
                {
                    rows.append(more);
                }
            }
            _ => all.push((resource, table)),
        }
    }
    all
}

/// Tables of one resource behind the other; those of another begin anew, below an empty line.
struct Tables<'a> {
    context: &'a Context,
    wide: bool,
    several: bool,
    printer: Option<(Resource, Printer)>,
    separate: bool,
    written: bool,
    /// One object is in no order.
    one: bool,
}

/// As much of a table is held until all of it is there, as kubectl does. What is longer is written in parts: memory has an end.
const MOST_HELD: usize = 8 << 20;

impl Tables<'_> {
    fn release(&mut self) {
        if let Some((_, printer)) = &mut self.printer {
            print(printer.release());
        }
    }

    fn show(&mut self, resource: &Resource, table: &mut Value) -> Result<()> {
        let flags = &self.context.flags;
        // A table that cannot be sorted is not shown.
        if let Some(by) = flags.given("sort-by").filter(|_| !self.one) {
            match sort_rows(table, by) {
                Err(error @ Error::Exit { .. }) => return Err(error),
                Err(_) => return Ok(()),
                Ok(()) => {}
            }
        }
        if self.printer.as_ref().is_none_or(|(known, _)| known != resource) {
            self.release();
            self.separate |= self.printer.is_some() && !flags.is("no-headers") && self.written;
            let mut options = table_options(self.context, self.wide);
            options.namespace &= resource.namespaced;
            if self.several || flags.is("show-kind") {
                options.kind = Some(resource.kind_name());
            }
            self.printer = Some((resource.clone(), Printer::new(options)));
        }
        let Some((_, printer)) = &mut self.printer else { return Ok(()) };
        if printer.hold(table, None) {
            self.written = true;
            let size = printer.size();
            if std::mem::take(&mut self.separate) {
                print("\n");
            }
            if size > MOST_HELD {
                self.release();
            }
        }
        Ok(())
    }
}

fn sort_rows(table: &mut Value, by: &str) -> Result<()> {
    match table.get_mut("rows") {
        Some(Value::Array(rows)) => sort::sort(rows, by, |row| &row["object"]),
        _ => Ok(()),
    }
}

async fn generic(context: &Context, targets: &[Target], single: bool, format: &Format) -> Result<()> {
    let flags = &context.flags;
    let sort_by = flags.given("sort-by");
    if let ([Target::Many(selection)], None, true) = (targets, sort_by, streams(format)) {
        return stream(context, selection, format).await;
    }
    if let ([Target::Many(selection)], None, Format::Columns(columns)) = (targets, sort_by, format) {
        return stream_columns(context, selection, columns).await;
    }
    let limit = if sort_by.is_some() { 0 } else { flags.int("chunk-size") };
    let (mut infos, mut errors) = if flags.given("subresource").is_some() {
        let (mut infos, mut errors) = (Vec::new(), Vec::new());
        for target in targets {
            match context.client().await?.json(Call::get(object_path(context, target))).await {
                Ok(object) => infos.push(crate::resource::of_object(target.resource(), object)),
                Err(error) => errors.push(error),
            }
        }
        (infos, errors)
    } else {
        read_all(context, targets, limit).await
    };
    if flags.is("ignore-not-found") {
        errors.retain(|error| !error.is_not_found());
    }
    if single {
        Error::all(errors)?;
        let Some(info) = infos.pop() else { return Ok(()) };
        print(format.object(&info.object, true)?);
        return Ok(());
    }
    if infos.is_empty() && flags.is("ignore-not-found") && matches!(targets.first(), Some(Target::One { .. })) {
        return Error::all(errors);
    }
    if let Some(by) = sort_by {
        sort::sort(&mut infos, by, |info: &Info| &info.object)?;
    }
    let items: Vec<Value> = infos.into_iter().map(|info| info.object).collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": items});
    print(format.object(&list, true)?);
    Error::all(errors)
}

/// Lists that need not be held as a whole.
fn streams(format: &Format) -> bool {
    matches!(format, Format::Json { .. } | Format::Yaml { .. } | Format::Name)
}

async fn stream(context: &Context, selection: &Selection, format: &Format) -> Result<()> {
    let mut pages = Pages::new(selection, context.flags.int("chunk-size"), "");
    let mut failed = None;
    let mut any = false;
    loop {
        let items = match pages.items(context).await {
            Ok(Some(items)) => items,
            Ok(None) => break,
            Err(error) => {
                failed = Some(error);
                break;
            }
        };
        for item in items {
            let item = item?;
            let text = format.object(&item, true)?;
            match format {
                Format::Json { .. } => {
                    print(if any { ",\n" } else { "{\n    \"apiVersion\": \"v1\",\n    \"items\": [\n" });
                    print(indent(text.trim_end_matches('\n'), "        "));
                }
                Format::Yaml { .. } => {
                    print(if any { "" } else { "apiVersion: v1\nitems:\n" });
                    print(format!("- {}", indent(&text, "  ").trim_start()));
                }
                _ => print(text),
            }
            any = true;
        }
    }
    let empty = json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": []});
    match format {
        Format::Name => {}
        _ if !any => print(format.object(&empty, true)?),
        Format::Json { .. } => print(
            "\n    ],\n    \"kind\": \"List\",\n    \"metadata\": {\n        \"resourceVersion\": \"\"\n    }\n}\n",
        ),
        _ => print("kind: List\nmetadata:\n  resourceVersion: \"\"\n"),
    }
    failed.map_or(Ok(()), Err)
}

/// The cells are held until all of them are there, for the columns are aligned; the objects are not.
async fn stream_columns(context: &Context, selection: &Selection, columns: &Columns) -> Result<()> {
    let mut pages = Pages::new(selection, context.flags.int("chunk-size"), "");
    let (mut rows, mut failed) = (columns.headers(), None);
    'all: loop {
        match pages.items(context).await {
            Ok(Some(items)) => {
                for item in items {
                    match columns.row(&item?) {
                        Ok(row) => rows.push_str(&row),
                        Err(why) => {
                            failed = Some(Error::say(why));
                            break 'all;
                        }
                    }
                }
            }
            Ok(None) => break,
            Err(error) => {
                failed = Some(error);
                break;
            }
        }
    }
    print(Columns::aligned(&rows));
    failed.map_or(Ok(()), Err)
}

/// Lines of a document, moved to the right; empty ones of texts stay as they are.
fn indent(text: &str, by: &str) -> String {
    let mut out = String::with_capacity(text.len() * 5 / 4);
    for line in text.split_inclusive('\n') {
        if line != "\n" {
            out.push_str(by);
        }
        out.push_str(line);
    }
    out
}
