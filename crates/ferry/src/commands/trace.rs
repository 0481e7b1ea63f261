//! `ferry trace`: the hops of an object, and where the time went.

use std::process::ExitCode;

use anyhow::Result;
use ferry_insight::trace::{self, Story, Trace};

use super::object::{Named, exit, find};
use crate::insight_options::{Output, TraceOptions};

pub fn run(options: &TraceOptions) -> ExitCode {
    exit(tell(options))
}

/// 0: it is ready; 1: it is not.
async fn tell(options: &TraceOptions) -> Result<u8> {
    let Named { cluster, resource, namespace, name } = find(&options.object).await?;
    if !options.follow {
        let story = trace::read(&cluster, &resource, &namespace, &name).await?;
        let hops = trace::hops(&story);
        show(options, &story, &hops);
        return Ok(u8::from(!hops.finished));
    }
    let mut shown: Vec<String> = Vec::new();
    let mut last = None;
    let step = |story: &Story, hops: &Trace| {
        let lines = trace::lines(hops);
        if options.output == Output::Text {
            lines.iter().skip(shown.len()).for_each(|line| println!("{line}"));
            // Another pod is the last one now, and the hops are told of that.
            if hops.finished && !lines.starts_with(&shown) {
                println!("\n{}", lines.join("\n"));
            }
        }
        shown.extend(lines.into_iter().skip(shown.len()));
        last = Some(match options.output {
            Output::Text => {
                let (head, tail) = trace::summary(story, hops);
                format!("\n{head}\n{tail}")
            }
            Output::Json => format!("{:#}\n", trace::to_json(story, hops)),
        });
    };
    let ready = trace::follow(&cluster, &resource, &namespace, &name, options.timeout, step).await?;
    print!("{}", last.unwrap_or_default());
    Ok(u8::from(!ready))
}

fn show(options: &TraceOptions, story: &Story, hops: &Trace) {
    if options.output == Output::Json {
        println!("{:#}", trace::to_json(story, hops));
        return;
    }
    if options.writes {
        print!("{}", trace::writes(story));
        return;
    }
    let (head, tail) = trace::summary(story, hops);
    println!("{head}\n");
    trace::lines(hops).iter().for_each(|line| println!("{line}"));
    print!("{tail}");
}
