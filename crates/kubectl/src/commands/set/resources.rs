//! `kubectl set resources`.

use serde_json::{Map, Value, json};

use super::super::{Command, leaf};
use super::{Ending, about};
use crate::commands::common::{self, Report};
use crate::error::{Error, Result};
use crate::flags::{Flag, Kind, text};
use crate::session::Context;

pub const COMMAND: Command = leaf(
    "resources",
    "(-f FILENAME | TYPE NAME)  ([--limits=LIMITS & --requests=REQUESTS]",
    "Update resource requests/limits on objects with pod templates",
    || {
        super::flags(&[
            common::SELECTOR,
            super::record::FLAG,
            Flag::new("containers", Kind::Text, "*", "Names of the containers to change; * stands for any text.")
                .short('c'),
            text("limits", "The limits: cpu=100m,memory=256Mi."),
            text("requests", "The requests: cpu=100m,memory=256Mi."),
        ])
    },
    |c| Box::pin(run(c)),
);

async fn run(context: &Context) -> Result<()> {
    let flags = &context.flags;
    let report = Report::of(context)?;
    let infos = super::selected(context, &report).await?;
    if flags.given("limits").is_none() && flags.given("requests").is_none() {
        return Err(Error::say(
            "you must specify an update to requests or limits (in the form of --requests/--limits)",
        ));
    }
    let wanted = [("limits", parse(flags.text("limits"))?), ("requests", parse(flags.text("requests"))?)];
    let pattern = flags.text("containers");
    let ending = Ending {
        report: &report,
        what: "resource requirements updated",
        failed: "failed to patch resources update to pod template",
        always: false,
    };
    let mut errors = Vec::new();
    for info in &infos {
        let mut changed = info.object.clone();
        let spec = match super::pod_spec(&mut changed) {
            Ok(spec) => spec,
            Err(why) => {
                errors.push(about(info, &why));
                continue;
            }
        };
        let containers = super::containers(spec, pattern);
        if containers.is_empty() {
            errors.push(Error::say(format!("error: unable to find container named {pattern}")));
            continue;
        }
        for container in containers {
            if !container["resources"].is_object() {
                container["resources"] = json!({});
            }
            for (field, list) in wanted.iter().filter(|(_, list)| !list.is_empty()) {
                let known = &mut container["resources"][*field];
                if !known.is_object() {
                    *known = json!({});
                }
                known.as_object_mut().into_iter().for_each(|known| known.extend(list.clone()));
            }
        }
        errors.extend(ending.send(context, info, changed).await.err());
    }
    Error::all(errors)
}

fn parse(text: &str) -> Result<Map<String, Value>> {
    let mut list = Map::new();
    for part in text.split(',').filter(|_| !text.is_empty()) {
        let halves: Vec<&str> = part.split('=').collect();
        let [name, quantity] = &*halves else {
            return Err(Error::say(format!("invalid argument syntax {part}, expected <resource>=<value>")));
        };
        let quantity =
            ferry_meta::quantity::Quantity::parse(quantity).map_err(|error| Error::say(error.to_string()))?;
        list.insert((*name).to_owned(), quantity.to_string().into());
    }
    Ok(list)
}
