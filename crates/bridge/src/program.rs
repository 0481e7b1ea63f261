//! This program as a CNI plug-in: a request in the environment and on standard input, the answer on standard output.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use serde_json::{Value, json};

use crate::attach::run;
use crate::configuration::Request;
use crate::error::BridgeError;
use crate::inside::{inside, loopback};
use crate::{PLUGIN, PROGRAMS};

/// Those whose results this plug-in can write.
const VERSIONS: [&str; 6] = ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0", ""];
/// No configuration of a network is larger.
const MOST_BYTES: u64 = 4 * 1024 * 1024;

/// Answers a request, if the program was called as a plug-in: by one of its names, and with a command.
pub fn program(mut arguments: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    let called = arguments.next()?;
    let name = Path::new(&called).file_name().and_then(OsStr::to_str)?;
    let name = PROGRAMS.into_iter().find(|known| *known == name)?;
    let command = std::env::var("CNI_COMMAND").ok()?;
    let mut input = String::new();
    let read = std::io::stdin().take(MOST_BYTES).read_to_string(&mut input);
    let configuration: Value = read.ok().and_then(|_| serde_json::from_str(&input).ok()).unwrap_or_default();
    let version = configuration["cniVersion"].as_str().unwrap_or_default().to_owned();
    match answer(name, &command, configuration, &version) {
        Ok(answer) => {
            if !answer.is_null() {
                println!("{answer}");
            }
            Some(ExitCode::SUCCESS)
        }
        Err(error) => {
            println!("{}", error.to_json(&version, command == "STATUS"));
            Some(ExitCode::FAILURE)
        }
    }
}

fn answer(name: &str, command: &str, configuration: Value, version: &str) -> Result<Value, BridgeError> {
    let known = VERSIONS.iter().filter(|known| !known.is_empty()).collect::<Vec<_>>();
    if command == "VERSION" {
        let version = if version.is_empty() { "1.1.0" } else { version };
        return Ok(json!({ "cniVersion": version, "supportedVersions": known }));
    }
    if !VERSIONS.contains(&version) {
        return Err(BridgeError::Version(version.to_owned()));
    }
    let variable = |name: &'static str| match std::env::var(name) {
        Ok(value) if !value.is_empty() => Ok(value),
        _ => Err(BridgeError::Environment(name)),
    };
    let of_pod = matches!(command, "ADD" | "DEL" | "CHECK");
    let needed = |name: &'static str, wanted: bool| if wanted { variable(name) } else { Ok(String::new()) };
    let request = Request {
        command: command.to_owned(),
        container_id: needed("CNI_CONTAINERID", of_pod)?,
        // The namespace of a pod that is taken away may be gone.
        namespace: needed("CNI_NETNS", of_pod && command != "DEL")?.into(),
        interface: needed("CNI_IFNAME", of_pod)?,
        arguments: std::env::var("CNI_ARGS").unwrap_or_default(),
        configuration,
    };
    if name == PLUGIN { run(&request) } else { loopback_of(&request, version) }
}

/// The loopback goes with its namespace; there is nothing to take away.
fn loopback_of(request: &Request, version: &str) -> Result<Value, BridgeError> {
    if request.command != "ADD" {
        return Ok(Value::Null);
    }
    inside(&request.namespace, async |handle| loopback(&handle).await)?;
    let interface = json!({ "name": request.interface, "sandbox": request.namespace });
    Ok(json!({ "cniVersion": version, "interfaces": [interface], "ips": [], "routes": [], "dns": {} }))
}
