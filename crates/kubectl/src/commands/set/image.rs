//! `kubectl set image`.

use super::super::{Command, leaf};
use super::{Ending, about};
use crate::commands::common::{self, DryRun, Report};
use crate::error::{Error, Result};
use crate::session::Context;
use crate::text::quote;

pub const COMMAND: Command = leaf(
    "image",
    "(-f FILENAME | TYPE NAME) CONTAINER_NAME_1=CONTAINER_IMAGE_1 ... CONTAINER_NAME_N=CONTAINER_IMAGE_N",
    "Update the image of a pod template",
    || super::flags(&[common::SELECTOR, super::record::FLAG]),
    |c| Box::pin(run(c)),
);

async fn run(context: &Context) -> Result<()> {
    let flags = &context.flags;
    let report = Report::of(context)?;
    let (resources, pairs) = super::pairs(context.words(), "image")?;
    let mut images: Vec<(&str, &str)> = Vec::new();
    let mut invalid = Vec::new();
    for pair in pairs {
        match pair.split_once('=').filter(|(name, _)| !name.is_empty()) {
            Some((name, image)) => {
                images.retain(|(known, _)| *known != name);
                images.push((name, image));
            }
            None => invalid.push(&**pair),
        }
    }
    if !invalid.is_empty() {
        return Err(Error::say(format!("invalid image format: {}", invalid.join(", "))));
    }
    if flags.is("local") && !resources.is_empty() {
        return Err(Error::say(super::LOCAL_NEEDS_FILES));
    }
    let infos = super::objects(context, &resources).await?;
    let mut wrong = Vec::new();
    if flags.is("all") && flags.given("selector").is_some() {
        wrong.push(Error::say(super::ALL_OR_SELECTOR));
    }
    if images.is_empty() {
        wrong.push(Error::say("at least one image update is required"));
    } else if images.len() > 1 && images.iter().any(|(name, _)| *name == "*") {
        wrong.push(Error::say(
            "all containers are already specified by *, but saw more than one container_name=container_image pairs",
        ));
    }
    if flags.is("local") && report.dry_run == DryRun::Server {
        wrong.push(Error::say(super::LOCAL_OR_SERVER));
    }
    Error::all(wrong)?;
    let ending = Ending {
        report: &report,
        what: "image updated",
        failed: "failed to patch image update to pod template:",
        always: false,
    };
    let (mut errors, mut changes) = (Vec::new(), Vec::new());
    for info in &infos {
        let mut changed = info.object.clone();
        match super::pod_spec(&mut changed) {
            Ok(spec) => {
                for (name, image) in &images {
                    let mut found = false;
                    for container in super::containers(spec, "*") {
                        if *name == "*" || container["name"] == *name {
                            container["image"] = (*image).into();
                            found = true;
                        }
                    }
                    if !found {
                        errors.push(Error::say(format!("error: unable to find container named {}", quote(name))));
                    }
                }
                changes.push(Ok(changed));
            }
            Err(why) => changes.push(Err(about(info, &why))),
        }
    }
    for (info, change) in infos.iter().zip(changes) {
        let sent = match change {
            Ok(changed) => ending.send(context, info, changed).await,
            Err(error) => Err(error),
        };
        errors.extend(sent.err());
    }
    Error::all(errors)
}
