//! `ferry why`: what holds an object up, and what to do about it.

use std::process::ExitCode;

use anyhow::Result;
use ferry_insight::why;

use super::object::{Named, ON_ITS_WAY, STUCK, exit, find};
use crate::insight_options::{Output, WhyOptions};

pub fn run(options: &WhyOptions) -> ExitCode {
    exit(tell(options))
}

async fn tell(options: &WhyOptions) -> Result<u8> {
    let Named { cluster, resource, namespace, name } = find(&options.object).await?;
    let world = why::look(&cluster, &resource, &namespace, &name).await?;
    let findings = why::findings(&world);
    match options.output {
        Output::Text => print!("{}", why::render(&world, &findings)),
        Output::Json => println!("{:#}", why::to_json(&world, &findings)),
    }
    Ok(match why::held(&findings) {
        None => 0,
        Some(first) if first.underway => ON_ITS_WAY,
        Some(_) => STUCK,
    })
}
