//! `ferry console`: a link that signs a browser in as the user of a kubeconfig.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow};
use serde_json::Value;

use super::object;
use crate::insight_options::ConsoleOptions;

/// What opens a link on the desktops there are.
const OPENERS: [&str; 2] = ["xdg-open", "open"];

pub fn run(options: &ConsoleOptions) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let link = runtime.block_on(link(options))?;
    println!("{link}");
    eprintln!("The link signs one browser in, once, within a minute.");
    if options.open && !open(&link) {
        eprintln!("There is nothing here that opens a browser: open the link yourself.");
    }
    Ok(())
}

async fn link(options: &ConsoleOptions) -> Result<String> {
    let access = object::access(options.kubeconfig.as_deref()).await?;
    let server = access.cluster_url.to_string();
    let client = ferry_cluster::kubeconfig::connect(access)?;
    let request = http::Request::post("/console/code").body(Vec::new())?;
    let answer: Value = match client.request(request).await {
        Ok(answer) => answer,
        Err(kube::Error::Api(status)) if status.code == 404 => {
            return Err(anyhow!("{server} serves no console: it is no Ferry, or runs with --console=false"));
        }
        Err(error) => return Err(error).context(format!("{server} gives no code")),
    };
    let code = answer["code"].as_str().context("the server answered without a code")?;
    // Behind the hash: browsers send it to nobody.
    Ok(format!("{}/console/#code={code}", server.trim_end_matches('/')))
}

fn open(link: &str) -> bool {
    OPENERS.iter().any(|opener| {
        let quiet =
            Command::new(opener).arg(link).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        quiet.is_ok_and(|status| status.success())
    })
}
