//! `kubectl version`.

use serde_json::{Value, json};

use super::{Command, leaf};
use crate::client::Call;
use crate::error::{Error, Result};
use crate::flags::{Flag, switch, text};
use crate::session::Context;
use crate::text::{line, warn};

pub const COMMAND: Command =
    leaf("version", "[flags]", "Print the client and server version information", flags, |c| Box::pin(run(c)));

fn flags() -> Vec<Flag> {
    vec![
        text("output", "yaml or json.").short('o'),
        switch("client", "Show the client's version only; no server is needed."),
    ]
}

async fn run(context: &Context) -> Result<()> {
    if !context.words().is_empty() {
        return Err(Error::say(format!("extra arguments: [{}]", context.words().join(" "))));
    }
    let output = context.flags.text("output");
    if !matches!(output, "" | "yaml" | "json") || (output.is_empty() && context.flags.changed("output")) {
        return Err(Error::say("--output must be 'yaml' or 'json'"));
    }
    let mut whole = json!({
        "clientVersion": {
            "major": "1", "minor": "37", "gitVersion": "v1.37.0",
            "gitCommit": "", "gitTreeState": "", "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "rustc",
            "platform": format!("linux/{}", if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" }),
        },
        "kustomizeVersion": "v5.8.1",
    });
    let mut failed = None;
    if !context.flags.is("client") {
        let answer = async {
            let body = context.client().await?.bytes(Call::get("/version").unheard()).await?;
            serde_json::from_slice(&body).map_err(|error| {
                let why = crate::refusal::unread(&body, &error);
                Error::say(format!("unable to parse the server version: {why}"))
            })
        };
        match answer.await {
            Ok(server) => whole["serverVersion"] = server,
            Err(error) => failed = Some(error),
        }
    }
    match output {
        "json" => line(crate::print::in_order(&whole, &[&[], ORDER], 0, 2)),
        "yaml" => line(ferry_schema::yaml::to_yaml(&whole)),
        _ => {
            line("Client Version: v1.37.0");
            line("Kustomize Version: v5.8.1");
            if let Some(version) = whole["serverVersion"]["gitVersion"].as_str() {
                line(format!("Server Version: {version}"));
                skew(&whole["serverVersion"]);
            }
        }
    }
    failed.map_or(Ok(()), Err)
}

const ORDER: &[&str] = &[
    "major",
    "minor",
    "emulationMajor",
    "emulationMinor",
    "minCompatibilityMajor",
    "minCompatibilityMinor",
    "gitVersion",
    "gitCommit",
    "gitTreeState",
    "buildDate",
    "goVersion",
    "compiler",
    "platform",
];

/// One minor version apart is what is supported.
fn skew(server: &Value) {
    let text = server["minor"].as_str().unwrap_or_default();
    let minor: i64 = text.trim_matches(|c: char| !c.is_ascii_digit()).parse().unwrap_or(37);
    if (37 - minor).abs() > 1 {
        warn(format!(
            "Warning: version difference between client (1.37) and server ({}.{minor}) exceeds the supported minor version skew of +/-1",
            server["major"].as_str().unwrap_or_default()
        ));
    }
}
