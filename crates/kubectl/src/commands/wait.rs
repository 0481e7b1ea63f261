//! `kubectl wait`, and the waiting of `delete`.

use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::get_watch::watch;
use super::{Command, common, leaf};
use crate::client::{Call, JSON};
use crate::error::{Error, Result};
use crate::flags::{Flag, Kind, array};
use crate::print::jsonpath::Template;
use crate::resource::{Builder, Info, Selection};
use crate::session::Context;
use crate::text::line;

pub const COMMAND: Command = leaf(
    "wait",
    "([-f FILENAME] | resource.group/resource.name | resource.group [(-l label | --all)]) [--for=create|--for=delete|--for condition=available|--for=jsonpath='{}'[=value]]",
    "Wait for a specific condition on one or many resources",
    flags,
    |c| Box::pin(run(c)),
);

/// For ever, in practice.
pub const LONG: Duration = Duration::from_secs(7 * 24 * 3600);

fn flags() -> Vec<Flag> {
    let mut flags = vec![common::FILES[0], Flag { default: "true", ..common::FILES[1] }];
    flags.extend(crate::print::FLAGS);
    flags.extend([
        common::SELECTOR,
        common::FIELD_SELECTOR,
        common::ALL,
        common::ALL_NAMESPACES,
        common::LOCAL,
        array(
            "for",
            "A condition to wait on: create, delete, condition=name[=value] or jsonpath='{path}'[=value]. Of several, all.",
        ),
        Flag::new("timeout", Kind::Duration, "30s", "How long to wait; zero means check once, negative means a week."),
    ]);
    flags
}

enum Condition {
    Delete,
    Create,
    Named { name: String, value: String },
    Path { path: Template, value: Option<String> },
}

/// Parts of a text between single `=`; two of them belong to a filter.
fn split(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let last = parts.len() - 1;
        match c {
            '=' if chars.next_if_eq(&'=').is_some() => parts[last].push_str("=="),
            '=' => parts.push(String::new()),
            c => parts[last].push(c),
        }
    }
    parts
}

impl Condition {
    fn parse(text: &str) -> Result<Self> {
        if text.eq_ignore_ascii_case("delete") {
            return Ok(Self::Delete);
        }
        if text.eq_ignore_ascii_case("create") {
            return Ok(Self::Create);
        }
        if let Some(rest) = text.strip_prefix("condition=") {
            let (name, value) = rest.split_once('=').unwrap_or((rest, "true"));
            return Ok(Self::Named { name: name.to_owned(), value: value.to_owned() });
        }
        if let Some(rest) = text.strip_prefix("jsonpath=") {
            let rest = rest.trim_matches('\'');
            if rest.is_empty() {
                return Err(Error::say("jsonpath expression cannot be empty"));
            }
            let (path, value) = match &*split(rest) {
                [path] => (path.clone(), None),
                [path, value] => (path.clone(), Some(value.trim_matches(['\'', '"']).to_owned())),
                _ => {
                    return Err(Error::say(
                        "jsonpath wait format must be --for=jsonpath='{.status.readyReplicas}'=3 or --for=jsonpath='{.status.readyReplicas}'",
                    ));
                }
            };
            let path = Template::relaxed(&path)?;
            if value.as_deref() == Some("") {
                return Err(Error::say(
                    "jsonpath wait has to have a value after equal sign, like --for=jsonpath='{.status.readyReplicas}'=3",
                ));
            }
            return Ok(Self::Path { path, value });
        }
        Err(Error::say(format!("unrecognized condition: {}", crate::text::quote(text))))
    }

    fn holds(&self, object: &Value) -> bool {
        match self {
            Self::Delete => false,
            Self::Create => true,
            Self::Named { name, value } => {
                let conditions = object["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
                let is =
                    |field: &Value, wanted: &str| field.as_str().is_some_and(|text| text.eq_ignore_ascii_case(wanted));
                conditions.iter().any(|condition| {
                    let generation = object["metadata"]["generation"].as_i64();
                    let observed = condition["observedGeneration"].as_i64();
                    let old = matches!((generation, observed), (Some(now), Some(seen)) if seen < now);
                    is(&condition["type"], name) && is(&condition["status"], value) && !old
                })
            }
            Self::Path { path, value } => match (path.find(object).unwrap_or_default().first(), value) {
                (None, _) => false,
                (Some(_), None) => true,
                (Some(found), Some(value)) => crate::print::go_value::show(found).trim() == value.trim(),
            },
        }
    }
}

/// How often a selector that finds nothing is asked again.
const AGAIN: Duration = Duration::from_millis(500);
const NO_CREATION: &str = "timed out waiting for the condition";

async fn run(context: &Context) -> Result<()> {
    let flags = &context.flags;
    let conditions = flags.list("for").iter().map(|text| Condition::parse(text)).collect::<Result<Vec<Condition>>>()?;
    if conditions.is_empty() {
        return Err(Error::say("unrecognized condition: []"));
    }
    let has = |wanted: fn(&Condition) -> bool| conditions.iter().any(wanted);
    let creates = has(|condition| matches!(condition, Condition::Create));
    let deletes = has(|condition| matches!(condition, Condition::Delete));
    let timeout = match flags.duration("timeout") {
        negative if negative < 0 => LONG,
        nanos => Duration::from_nanos(nanos.unsigned_abs()),
    };
    let deadline = Instant::now() + timeout;
    let built = Builder::of(context).build(context).await?;
    let (mut infos, mut errors) = named(context, &built.targets).await;
    while creates && infos.is_empty() && errors.is_empty() {
        if Instant::now() >= deadline {
            return Err(Error::say(NO_CREATION));
        }
        tokio::time::sleep_until(deadline.min(Instant::now() + AGAIN)).await;
        (infos, errors) = named(context, &built.targets).await;
    }
    if infos.is_empty() && errors.is_empty() && !deletes {
        return Err(Error::say("no matching resources found"));
    }
    for info in infos {
        for condition in &conditions {
            if let Err(error) = meet(context, &info, condition, deadline, timeout.is_zero()).await {
                errors.push(error);
                break;
            }
            match flags.text("output") {
                "" => line(format!("{} condition met", info.shown())),
                "name" => line(info.shown()),
                _ => crate::text::print(crate::print::Format::for_writing(flags)?.object(&info.object, true)?),
            }
        }
    }
    Error::all(errors)
}

/// Waits until one condition of an object holds.
async fn meet(context: &Context, info: &Info, condition: &Condition, deadline: Instant, once: bool) -> Result<()> {
    if let Condition::Path { path, value } = condition {
        let found = path.first(&info.object).unwrap_or_default();
        let wrong = match &*found {
            [_, _, ..] => Some("given jsonpath expression matches more than one value"),
            [one] if value.is_some() && (one.is_object() || one.is_array()) => {
                Some("jsonpath leads to a nested object or list which is not supported")
            }
            _ => None,
        };
        if let Some(why) = wrong {
            return Err(Error::say(why));
        }
    }
    match condition {
        Condition::Delete => until_gone_by(context, info, None, deadline, once).await,
        other => until(context, info, other, deadline, once).await,
    }
}

/// Waiting for an object needs its name, not the object.
async fn named(context: &Context, targets: &[crate::resource::Target]) -> (Vec<Info>, Vec<Error>) {
    let (mut infos, mut errors) = (Vec::new(), Vec::new());
    let asked = context.flags.list("for");
    let has = |wanted: &str| asked.iter().any(|text| text.eq_ignore_ascii_case(wanted));
    let (for_create, gone) = (has("create"), has("delete"));
    for target in targets {
        match target {
            crate::resource::Target::One { resource, namespace, name } if for_create => infos.push(Info {
                resource: resource.clone(),
                namespace: namespace.clone(),
                name: name.clone(),
                object: Value::Null,
                source: String::new(),
            }),
            other => {
                let (found, failed) = crate::resource::read_all(context, std::slice::from_ref(other), 500).await;
                infos.extend(found);
                errors.extend(failed.into_iter().filter(|error| !gone || !error.is_not_found()));
            }
        }
    }
    (infos, errors)
}

fn not_met(info: &Info) -> Error {
    Error::say(format!("condition not met for {}/{}", info.resource.plural, info.name))
}

fn timed_out(info: &Info) -> Error {
    Error::say(format!("timed out waiting for the condition on {}/{}", info.resource.plural, info.name))
}

fn selection(info: &Info) -> Selection {
    Selection {
        resource: info.resource.clone(),
        namespace: info.namespace.clone(),
        labels: String::new(),
        fields: format!("metadata.name={}", info.name),
    }
}

async fn until(context: &Context, info: &Info, condition: &Condition, deadline: Instant, once: bool) -> Result<()> {
    let not_found = || {
        let status = serde_json::json!({"kind": "Status", "code": 404, "reason": "NotFound",
            "message": format!("{} {} not found", info.resource.qualified(), crate::text::quote(&info.name))});
        Error::Status(Box::new(status))
    };
    loop {
        // A watch that begins at "0" tells first what is there.
        let mut met = false;
        let mut gone = false;
        let mut there = false;
        if once {
            let current = match context.client().await?.json(Call::get(info.path())).await {
                Err(error) if error.is_not_found() && matches!(condition, Condition::Create) => {
                    return Err(Error::say(NO_CREATION));
                }
                answer => answer?,
            };
            return match condition.holds(&current) {
                true => Ok(()),
                false => Err(not_met(info)),
            };
        }
        let current = context.client().await?.json(Call::get(info.path())).await;
        let version = match current {
            Ok(object) if condition.holds(&object) => return Ok(()),
            Ok(object) => object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned(),
            Err(error) if error.is_not_found() && matches!(condition, Condition::Create) => String::new(),
            Err(error) => return Err(error),
        };
        there |= !version.is_empty();
        let selection = selection(info);
        let watching = watch(context, &selection, &version, JSON, |kind, object| {
            gone = kind == "DELETED" && there;
            there |= kind != "DELETED";
            met = kind != "DELETED" && condition.holds(object);
            Ok(!met && !gone)
        });
        match tokio::time::timeout_at(deadline, watching).await {
            // Of what is not there, nothing is said.
            Err(_) if matches!(condition, Condition::Create) => {
                return Err(Error::say(NO_CREATION));
            }
            Err(_) => return Err(timed_out(info)),
            Ok(Err(error)) if error.reason() != "Expired" => return Err(error),
            Ok(_) => {}
        }
        if met {
            return Ok(());
        }
        if gone {
            return Err(not_found());
        }
        if Instant::now() >= deadline {
            return Err(timed_out(info));
        }
    }
}

/// Until the object with this UID is gone, or there is another in its place.
pub async fn until_gone(context: &Context, info: &Info, uid: Option<&str>, timeout: Duration) -> Result<()> {
    until_gone_by(context, info, uid, Instant::now() + timeout, false).await
}

async fn until_gone_by(context: &Context, info: &Info, uid: Option<&str>, deadline: Instant, once: bool) -> Result<()> {
    loop {
        let current = match context.client().await?.json(Call::get(info.path())).await {
            Ok(current) => current,
            Err(error) if error.is_not_found() => return Ok(()),
            Err(error) => return Err(error),
        };
        if uid.is_some_and(|uid| !uid.is_empty() && current["metadata"]["uid"] != uid) {
            return Ok(());
        }
        if once {
            return Err(not_met(info));
        }
        let version = current["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
        let mut gone = false;
        let selection = selection(info);
        let watching = watch(context, &selection, &version, JSON, |kind, _| {
            gone = kind == "DELETED";
            Ok(!gone)
        });
        match tokio::time::timeout_at(deadline, watching).await {
            Err(_) => return Err(timed_out(info)),
            Ok(Err(error)) if error.reason() != "Expired" => return Err(error),
            Ok(_) if gone => return Ok(()),
            Ok(_) => {}
        }
        if Instant::now() >= deadline {
            return Err(timed_out(info));
        }
    }
}
