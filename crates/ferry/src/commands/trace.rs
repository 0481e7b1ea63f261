//! `ferry trace`: the hops of an object, and where the time went.

use std::process::ExitCode;

use anyhow::Result;
use ferry_cluster::output;
use ferry_insight::Error;
use ferry_insight::trace::{self, Shown, State, Story, Trace};

use super::object::{Named, ON_ITS_WAY, STUCK, exit, find};
use super::trace_url;
use crate::insight_options::{Output, TraceOptions};

pub fn run(options: &TraceOptions) -> ExitCode {
    exit(tell(options))
}

async fn tell(options: &TraceOptions) -> Result<u8> {
    if let [url] = options.object.object.as_slice()
        && url.contains("://")
    {
        return trace_url::tell(options, url).await;
    }
    if options.address.is_some() {
        return Err(
            Error::Usage("--address is for a URL: ferry trace http://HOST/PATH --address ADDRESS".into()).into()
        );
    }
    let Named { cluster, resource, namespace, name } = find(&options.object).await?;
    if !options.follow {
        let mut story = trace::read(&cluster, &resource, &namespace, &name).await?;
        // The writes are a log: nothing is to be explained.
        if !options.writes {
            trace::explain(&cluster, &resource, &namespace, &name, &mut story).await?;
        }
        let hops = trace::hops(&story);
        show(options, &story, &hops);
        return Ok(code(trace::state(&story, &hops)));
    }
    let mut shown = Shown::default();
    let mut last = (String::new(), State::OnItsWay);
    let step = |story: &Story, hops: &Trace| {
        if options.output == Output::Text {
            shown.news(hops).iter().for_each(|line| println!("{line}"));
            shown.waits(&trace::waits(story, hops)).iter().for_each(|line| println!("{line}"));
        }
        let said = match options.output {
            Output::Text => {
                let (head, tail) = trace::summary(story, hops);
                format!("\n{head}\n{tail}")
            }
            Output::Json => format!("{:#}\n", trace::to_json(story, hops)),
        };
        last = (said, trace::state(story, hops));
        !output::is_closed()
    };
    trace::follow(&cluster, &resource, &namespace, &name, options.timeout, step).await?;
    print!("{}", last.0);
    Ok(code(last.1))
}

fn code(state: State) -> u8 {
    match state {
        State::Done => 0,
        State::Stuck => STUCK,
        State::OnItsWay => ON_ITS_WAY,
    }
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
    trace::waits(story, hops).iter().for_each(|line| println!("{line}"));
    print!("{tail}");
}
