//! Labels and annotations are changed alike: `key=value`, `key-`, and nothing that is there without `--overwrite`.

use serde_json::{Map, Value, json};

use super::common::{self, DryRun, MERGE, Report, with};
use super::record;
use crate::error::{Error, Result};
use crate::flags::{Flag, switch, text};
use crate::resource::{Builder, Info, read_all};
use crate::session::Context;
use crate::text::{line, quote};

pub struct Words {
    pub field: &'static str,
    /// `label`.
    pub one: &'static str,
    pub done: &'static str,
    pub undone: &'static str,
    pub modified: &'static str,
    pub not_done: &'static str,
}

pub fn flags(manager: &'static str) -> Vec<Flag> {
    let mut flags = with(&common::FILES, manager);
    flags.extend([
        record::FLAG,
        common::SELECTOR,
        common::FIELD_SELECTOR,
        common::ALL,
        common::ALL_NAMESPACES,
        common::LOCAL,
        switch("overwrite", "Change values that are there."),
        switch("list", "Show what the resource has."),
        text("resource-version", "Only if this is the resource's version."),
    ]);
    flags
}

/// Resources first, then pairs; the first word with `=` or a dash at its end begins them.
fn split(words: &[String], one: &str) -> Result<(Vec<String>, Vec<String>)> {
    let is_pair = |word: &String| (word.contains('=') && !word.starts_with('=')) || word.ends_with('-');
    let at = words.iter().position(is_pair).unwrap_or(words.len());
    let (resources, pairs) = words.split_at(at);
    if let Some(stray) = pairs.iter().find(|word| !is_pair(word)) {
        return Err(Error::say(format!("all resources must be specified before {one} changes: {stray}")));
    }
    Ok((resources.to_vec(), pairs.to_vec()))
}

type Pairs = (Vec<(String, String)>, Vec<String>);

fn parse(pairs: &[String], words: &Words) -> Result<Pairs> {
    let (mut set, mut remove) = (Vec::new(), Vec::new());
    for pair in pairs {
        match pair.split_once('=') {
            Some((key, value)) => {
                if words.field == "labels" && value.contains('=') {
                    return Err(Error::say(format!("invalid {} spec: {pair}", words.one)));
                }
                if words.field == "labels" {
                    let reasons = ferry_meta::names::label_value(value);
                    if !reasons.is_empty() {
                        return Err(Error::say(format!("invalid label value: {}: {}", quote(pair), reasons.join(";"))));
                    }
                }
                set.push((key.to_owned(), value.to_owned()));
            }
            None => remove.push(pair.trim_end_matches('-').to_owned()),
        }
    }
    if let Some(both) = remove.iter().find(|key| set.iter().any(|(known, _)| known == *key)) {
        return Err(Error::say(match words.field {
            "labels" => "can not both modify and remove a label in the same command".to_owned(),
            _ => format!("can not both modify and remove the following annotation(s) in the same command: {both}"),
        }));
    }
    Ok((set, remove))
}

pub async fn run(context: &Context, words: &Words) -> Result<()> {
    let flags = &context.flags;
    let mut report = Report::of(context)?;
    if words.field == "labels" {
        report = report.each_alone();
    }
    let (resources, pairs) = split(context.words(), words.one)?;
    let (set, remove) = parse(&pairs, words)?;
    if flags.is("all") && flags.given("selector").is_some() {
        return Err(Error::say("cannot set --all and --selector at the same time"));
    }
    if flags.is("all") && flags.given("field-selector").is_some() {
        return Err(Error::say("cannot set --all and --field-selector at the same time"));
    }
    if flags.is("list") && flags.given("output").is_some() {
        return Err(Error::say("--list and --output may not be specified together"));
    }
    if flags.is("local") && !resources.is_empty() {
        return Err(Error::say(
            "can only use local files by -f pod.yaml or --filename=pod.json when --local=true is set",
        ));
    }
    if resources.is_empty() && flags.list("filename").is_empty() {
        return Err(Error::say("one or more resources must be specified as <resource> <name> or <resource>/<name>"));
    }
    if set.is_empty() && remove.is_empty() && !flags.is("list") {
        return Err(Error::say(format!("at least one {} update is required", words.one)));
    }
    let mut builder = Builder::of(context).words(&resources);
    // Names may stand beside it, and are meant then.
    builder.empty_selector = flags.is("all");
    builder.all = false;
    builder.latest = !flags.is("local");
    let built = builder.build(context).await?;
    if !built.single && flags.given("resource-version").is_some() {
        return Err(Error::say("--resource-version may only be used with a single resource"));
    }
    let (infos, mut unread) = read_all(context, &built.targets, 500).await;
    unread.extend(built.errors);
    let mut errors = Vec::new();
    for info in infos {
        if flags.is("list") {
            list(&info, words, built.single);
            continue;
        }
        if let Err(error) = one(context, &info, words, &set, &remove, &report).await {
            errors.push(error);
        }
    }
    // What went wrong with objects is told before what could not be read.
    errors.extend(unread);
    Error::all(errors)
}

fn list(info: &Info, words: &Words, single: bool) {
    let marks = ferry_meta::object::map(&info.object, &format!("/metadata/{}", words.field));
    if !single {
        line(format!("Listing {} for {}.{}/{}:", words.field, info.resource.kind, info.resource.group, info.name));
    }
    for (key, value) in marks {
        line(format!("{}{key}={}", if single { "" } else { " " }, value.as_str().unwrap_or_default()));
    }
}

async fn one(
    context: &Context,
    info: &Info,
    words: &Words,
    set: &[(String, String)],
    remove: &[String],
    report: &Report,
) -> Result<()> {
    let empty = Map::new();
    let known = info.object["metadata"][words.field].as_object().unwrap_or(&empty).clone();
    let local = report.dry_run == DryRun::Client || context.flags.is("local");
    for key in remove.iter().filter(|key| !known.contains_key(*key) && !local && words.field == "labels") {
        line(format!("{} {} not found.", words.one, quote(key)));
    }
    if !context.flags.is("overwrite") {
        let mut taken = Vec::new();
        for (key, value) in set {
            if let Some(old) = known.get(key).and_then(Value::as_str).filter(|old| old != value) {
                taken.push(match words.field {
                    "labels" => Error::say(format!("'{key}' already has a value ({old}), and --overwrite is false")),
                    _ => Error::say(format!("--overwrite is false but found the following declared annotation(s): '{key}' already has a value ({old})")),
                });
            }
        }
        Error::all(taken)?;
    }
    let mut patch = Map::new();
    let mut added = false;
    for (key, value) in set {
        if known.get(key).and_then(Value::as_str) != Some(value) {
            patch.insert(key.clone(), value.clone().into());
            added = true;
        }
    }
    let mut removed = false;
    for key in remove.iter().filter(|key| known.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
        removed = true;
    }
    let what = match (added, removed) {
        (true, true) => words.modified,
        (true, false) => words.done,
        (false, true) => words.undone,
        (false, false) => words.not_done,
    };
    let mut body = json!({"metadata": {words.field: patch}});
    if let Some(version) = context.flags.given("resource-version") {
        body["metadata"]["resourceVersion"] = version.into();
    }
    // What is asked for by name counts more.
    let own = set.iter().map(|(key, _)| key).chain(remove).any(|key| key == record::CAUSE && words.field != "labels");
    let recorded = context.flags.is(record::FLAG.name) && !own;
    if recorded {
        record::record(context, &mut body);
    }
    let object = if !added && !removed && words.field == "labels" && !recorded {
        info.object.clone()
    } else if local {
        let mut object = info.object.clone();
        super::apply::merge(&mut object, &body);
        object
    } else {
        common::patch(context, info, MERGE, &body, report.dry_run).await?
    };
    report.done(info, &object, what)
}
