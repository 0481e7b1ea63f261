//! `ferry why`: what holds an object up, and what to do about it.

use std::process::ExitCode;

use anyhow::Result;
use ferry_insight::{Error, connection, why};

use super::object::{Named, ON_ITS_WAY, STUCK, UNKNOWN, exit, find};
use crate::insight_options::{Output, WhyOptions};

pub fn run(options: &WhyOptions) -> ExitCode {
    exit(tell(options))
}

async fn tell(options: &WhyOptions) -> Result<u8> {
    let named = find(&options.object).await?;
    if let Some(to) = &options.to {
        return reach(options, &named, to).await;
    }
    let Named { cluster, resource, namespace, name } = named;
    let world = why::look(&cluster, &resource, &namespace, &name).await?;
    let findings = why::findings(&world);
    match options.output {
        Output::Text => print!("{}", why::render(&world, &findings)),
        Output::Json => println!("{:#}", why::to_json(&world, &findings)),
    }
    Ok(match why::verdict(&world, &findings) {
        why::Verdict::Fine => 0,
        why::Verdict::Stuck => STUCK,
        why::Verdict::Unknown => UNKNOWN,
        why::Verdict::OnItsWay => ON_ITS_WAY,
    })
}

/// The way from a pod to what `--to` names.
async fn reach(options: &WhyOptions, named: &Named, to: &str) -> Result<u8> {
    let Named { cluster, resource, namespace, name } = named;
    if resource.kind != "Pod" || !resource.group.is_empty() {
        return Err(
            Error::Usage("a connection begins at a pod: ferry why pod/NAME --to service/NAME:PORT".into()).into()
        );
    }
    let there = options.to_namespace.as_ref().unwrap_or(namespace);
    let scene = connection::look(cluster, namespace, name, connection::Target::parse(to, there)?).await?;
    let way = connection::walk(&scene);
    match options.output {
        Output::Text => print!("{}", connection::render(&scene, &way)),
        Output::Json => println!("{:#}", connection::to_json(&scene, &way)),
    }
    Ok(match connection::stopped(&way) {
        Some(_) => STUCK,
        None if scene.is_cut => UNKNOWN,
        None => 0,
    })
}
