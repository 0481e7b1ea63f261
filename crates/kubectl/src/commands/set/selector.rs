//! `kubectl set selector`, of Services.

use serde_json::{Map, Value};

use super::super::{Command, leaf};
use super::Ending;
use crate::commands::common::Report;
use crate::error::{Error, Result};
use crate::flags::text;
use crate::session::Context;

pub const COMMAND: Command = leaf(
    "selector",
    "(-f FILENAME | TYPE NAME) EXPRESSIONS [--resource-version=version]",
    "Set the selector on a resource",
    || {
        let own = [super::record::FLAG, text("resource-version", "Only if this is the resource's version.")];
        let mut flags = super::common::recursive(super::flags(&own));
        flags.retain(|flag| flag.name != "kustomize");
        flags
    },
    |c| Box::pin(run(c)),
);

async fn run(context: &Context) -> Result<()> {
    let report = Report::of(context)?;
    let Some((expression, resources)) = context.words().split_last() else {
        return Err(Error::say("one selector is required"));
    };
    if context.flags.is("local") && !resources.is_empty() {
        return Err(Error::say(super::LOCAL_NEEDS_FILES));
    }
    if resources.is_empty() && context.flags.list("filename").is_empty() {
        return Err(Error::say(crate::resource::MISSING));
    }
    let labels = parse(expression)?;
    let ending = Ending { report: &report, what: "selector updated", failed: "", always: true };
    let (infos, unread) = super::objects_and_errors(context, resources).await?;
    let mut errors = Vec::new();
    for mut info in infos {
        let mut changed = info.object.clone();
        if info.resource.kind != "Service" || !info.resource.group.is_empty() {
            errors.push(Error::say("setting a selector is only supported for Services"));
            continue;
        }
        if !changed["spec"].is_object() {
            errors.push(Error::say(format!("the Service {} has no spec", info.name)));
            continue;
        }
        if let Some(version) = context.flags.given("resource-version") {
            // It must be part of what is sent.
            info.object["metadata"]["resourceVersion"] = Value::Null;
            changed["metadata"]["resourceVersion"] = version.into();
        }
        changed["spec"]["selector"] = labels.clone().into();
        errors.extend(ending.send(context, &info, changed).await.err());
    }
    errors.extend(unread);
    Error::all(errors)
}

/// `{a In [b c]}`, as Go prints it.
fn shown(requirement: &ferry_meta::selector::Requirement) -> String {
    format!(
        "{{{} {:?} [{}]}}",
        requirement.key,
        requirement.operator,
        requirement.values.iter().cloned().collect::<Vec<_>>().join(" ")
    )
}

/// `a=b,c=d`: a Service knows no other expressions.
fn parse(text: &str) -> Result<Map<String, Value>> {
    use ferry_meta::selector::{LabelSelector, Operator};
    // An equality and a set of one value mean the same, and only the first is taken.
    let one_of_a_set = text.split(',').any(|part| part.contains(" in "));
    let invalid = |why: String| Error::say(format!("couldn't parse the selector string {text:?}: {why}"));
    let selector = LabelSelector::parse(text).map_err(|why| invalid(why.into()))?;
    let mut labels = Map::new();
    for requirement in selector.requirements() {
        let mut values = requirement.values.iter();
        match (&requirement.operator, values.next(), values.next()) {
            (Operator::In, Some(value), None) if !one_of_a_set => {
                labels.insert(requirement.key.clone(), value.clone().into())
            }
            _ => {
                // Where the text names a set, what equals one value is shown among the labels, and not here.
                let is_set = |one: &&ferry_meta::selector::Requirement| {
                    one.operator != Operator::In || one.values.len() != 1 || text.contains(&format!("{} in ", one.key))
                };
                let all: Vec<String> = selector.requirements().iter().filter(is_set).map(shown).collect();
                return Err(Error::say(format!("match expression [{}] not supported on this object", all.join(" "))));
            }
        };
    }
    Ok(labels)
}
