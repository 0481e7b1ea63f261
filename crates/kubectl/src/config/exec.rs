//! Programs that tell who asks: the exec plug-ins of a kubeconfig.

use std::io::IsTerminal;
use std::process::{Command, Stdio};

use base64::Engine;
use serde_json::{Value, json};

use super::{Chosen, connect};
use crate::error::{Error, Result};
use crate::preferences::Policy;
use crate::text::{flush, quote};

const VERSIONS: [&str; 2] = ["client.authentication.k8s.io/v1beta1", "client.authentication.k8s.io/v1"];
const HELP: &str = "\n\nIt looks like you are trying to use a client-go credential plugin that is not installed.\n\nTo learn more about this feature, consult the documentation available at:\n      https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins";

/// What a plug-in of a user lacks, before it is run.
pub fn lacks(user_name: &str, user: &Value, lacking: &mut Vec<String>) {
    let exec = &user["exec"];
    if !exec.is_object() {
        return;
    }
    let text = |field: &str| exec[field].as_str().unwrap_or_default();
    if user["auth-provider"].is_object() {
        lacking.push(format!("authProvider cannot be provided in combination with an exec plugin for {user_name}"));
    }
    for (field, shown) in [("command", "command"), ("apiVersion", "apiVersion")] {
        if text(field).is_empty() {
            lacking.push(format!("{shown} must be specified for {user_name} to use exec authentication plugin"));
        }
    }
    for variable in exec["env"].as_array().into_iter().flatten() {
        if variable["name"].as_str().is_none_or(str::is_empty) {
            lacking
                .push(format!("env variable name must be specified for {user_name} to use exec authentication plugin"));
        }
    }
    match text("interactiveMode") {
        "Never" | "IfAvailable" | "Always" => {}
        // Only the version that is older than the field may leave it out.
        "" if text("apiVersion") == VERSIONS[0] => {}
        "" => {
            lacking.push(format!("interactiveMode must be specified for {user_name} to use exec authentication plugin"))
        }
        other => lacking.push(format!("invalid interactiveMode for {user_name}: {}", quote(other))),
    }
}

/// What was chosen, with the credentials of its plug-in in the plug-in's place. None where no plug-in is asked, and where
/// the command outlives credentials that expire: the client then asks the plug-in again itself.
pub fn completed(chosen: &Chosen, policy: &Policy, outlives: bool) -> Result<Option<Chosen>> {
    let given = |field: &str| chosen.user[field].as_str().is_some_and(|text| !text.is_empty());
    let known = ["token", "tokenFile", "username", "client-certificate", "client-certificate-data"];
    if !connect::is_secure(chosen) || !chosen.user["exec"].is_object() || known.into_iter().any(given) {
        return Ok(None);
    }
    let version = chosen.user["exec"]["apiVersion"].as_str().unwrap_or_default();
    if !VERSIONS.contains(&version) {
        return Err(Error::say(format!("exec plugin: invalid apiVersion {}", quote(version))));
    }
    let status = ask(chosen, version, policy).map_err(|why| Error::Connection {
        host: String::new(),
        refused: false,
        why: format!("getting credentials: {why}"),
    })?;
    if outlives && status["expirationTimestamp"].is_string() {
        return Ok(None);
    }
    let mut chosen = chosen.clone();
    let text = |field: &str| status[field].as_str().unwrap_or_default();
    chosen.user.as_object_mut().into_iter().for_each(|user| drop(user.remove("exec")));
    if !text("token").is_empty() {
        chosen.user["token"] = text("token").into();
    }
    for (field, data) in [("clientCertificateData", "client-certificate-data"), ("clientKeyData", "client-key-data")] {
        if !text(field).is_empty() {
            chosen.user[data] = base64::engine::general_purpose::STANDARD.encode(text(field)).into();
        }
    }
    Ok(Some(chosen))
}

/// The status that the program tells.
fn ask(chosen: &Chosen, version: &str, policy: &Policy) -> Result<Value, String> {
    let exec = &chosen.user["exec"];
    let text = |field: &str| exec[field].as_str().unwrap_or_default();
    let terminal = std::io::stdin().is_terminal();
    let interactive = match text("interactiveMode") {
        "Never" => false,
        "Always" if !terminal => {
            return Err("exec plugin cannot support interactive mode: standard input is not a terminal".into());
        }
        _ => terminal,
    };
    let mut spec = json!({ "interactive": interactive });
    if exec["provideClusterInfo"] == true {
        spec["cluster"] = cluster(chosen);
    }
    let info = json!({ "kind": "ExecCredential", "apiVersion": version, "spec": spec });
    let command = crate::preferences::cleaned(text("command"));
    policy.permits(&command)?;
    let mut process = Command::new(&command);
    let strings = |list: &Value| -> Vec<String> {
        list.as_array().into_iter().flatten().filter_map(|one| one.as_str().map(str::to_owned)).collect()
    };
    process.args(strings(&exec["args"]));
    for variable in exec["env"].as_array().into_iter().flatten() {
        process.env(variable["name"].as_str().unwrap_or_default(), variable["value"].as_str().unwrap_or_default());
    }
    // What it says on standard error is for the user: where to sign in, why it failed.
    process.env("KUBERNETES_EXEC_INFO", format!("{info}\n")).stdout(Stdio::piped()).stderr(Stdio::inherit());
    process.stdin(if interactive { Stdio::inherit() } else { Stdio::null() });
    flush();
    let output = process.output().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound | std::io::ErrorKind::PermissionDenied => {
            let hint =
                if text("installHint").is_empty() { String::new() } else { format!("\n\n{}", text("installHint")) };
            format!("exec: executable {command} not found{HELP}{hint}")
        }
        _ => format!("exec: fork/exec {command}: {}", super::file::go_reason(&error)),
    })?;
    if !output.status.success() {
        let code = output.status.code().unwrap_or(-1);
        return Err(format!("exec: executable {command} failed with exit code {code}"));
    }
    status(&output.stdout, version)
}

fn status(told: &[u8], version: &str) -> Result<Value, String> {
    let parsed = ferry_schema::yaml::parse_value(told).map_err(|error| format!("decoding stdout: {error}"))?.0;
    if !parsed.is_object() {
        let what = ferry_schema::go_type(&parsed);
        return Err(format!(
            "decoding stdout: couldn't get version/kind; json parse error: json: cannot unmarshal {what} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}"
        ));
    }
    let of = |field: &str| parsed[field].as_str().unwrap_or_default();
    let quoted = String::from_utf8_lossy(told);
    if of("kind").is_empty() {
        return Err(format!("decoding stdout: Object 'Kind' is missing in '{}'", quoted.trim_end()));
    }
    if of("kind") != "ExecCredential" || !VERSIONS.contains(&of("apiVersion")) {
        return Err(format!(
            "decoding stdout: no kind {} is registered for version {} in scheme \"pkg/client/auth/exec/exec.go:61\"",
            quote(of("kind")),
            quote(of("apiVersion"))
        ));
    }
    if of("apiVersion") != version {
        return Err(format!(
            "exec plugin is configured to use API version {version}, plugin returned version {}",
            of("apiVersion")
        ));
    }
    let status = &parsed["status"];
    let has = |field: &str| status[field].as_str().is_some_and(|text| !text.is_empty());
    let (certificate, key) = (has("clientCertificateData"), has("clientKeyData"));
    match status.is_object() {
        false => Err("exec plugin didn't return a status field".into()),
        true if !has("token") && !certificate && !key => {
            Err("exec plugin didn't return a token or cert/key pair".into())
        }
        true if certificate != key => Err("exec plugin returned only certificate or key, not both".into()),
        true => Ok(status.clone()),
    }
}

/// The cluster, as the program is told of it.
fn cluster(chosen: &Chosen) -> Value {
    let text = |field: &str| chosen.cluster[field].as_str().unwrap_or_default();
    let mut told = json!({ "server": connect::server_url(chosen) });
    for field in ["tls-server-name", "proxy-url"] {
        if !text(field).is_empty() {
            told[field] = text(field).into();
        }
    }
    if chosen.cluster["insecure-skip-tls-verify"] == true {
        told["insecure-skip-tls-verify"] = true.into();
    }
    let file = || std::fs::read(text("certificate-authority")).ok();
    let authority = match text("certificate-authority-data") {
        "" => file().map(|body| base64::engine::general_purpose::STANDARD.encode(body)),
        data => Some(data.to_owned()),
    };
    if let Some(authority) = authority {
        told["certificate-authority-data"] = authority.into();
    }
    let extensions = chosen.cluster["extensions"].as_array().into_iter().flatten();
    let mut own =
        extensions.filter(|one| one["name"] == "client.authentication.k8s.io/exec").map(|one| &one["extension"]);
    told["config"] = own.next_back().cloned().unwrap_or(Value::Null);
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(script: &str, mode: &str) -> Chosen {
        let exec = json!({"apiVersion": VERSIONS[1], "command": "/bin/sh", "args": ["-c", script],
            "env": [{"name": "WHO", "value": "me"}], "interactiveMode": mode, "provideClusterInfo": true});
        let cluster = json!({"server": "https://192.0.2.1:6443", "certificate-authority-data": "YQ==",
            "extensions": [{"name": "client.authentication.k8s.io/exec", "extension": {"audience": "x"}}]});
        Chosen { cluster, user: json!({ "exec": exec }), namespace: "default".into(), empty: false }
    }

    fn says(status: &str) -> String {
        format!(r#"echo '{{"apiVersion":"{}","kind":"ExecCredential"{status}}}'"#, VERSIONS[1])
    }

    fn why(script: &str) -> String {
        completed(&chosen(script, "Never"), &Policy::default(), false).unwrap_err().inner()
    }

    #[test]
    fn a_program_tells_who_asks() {
        let script = format!("test \"$WHO\" = me && {}", says(r#","status":{"token":"t"}"#));
        let completed = completed(&chosen(&script, "Never"), &Policy::default(), false).unwrap().unwrap();
        assert_eq!((&completed.user["token"], &completed.user["exec"]), (&json!("t"), &Value::Null));
        let script = says(r#","status":{"clientCertificateData":"c","clientKeyData":"k"}"#);
        let user = super::completed(&chosen(&script, "Never"), &Policy::default(), false).unwrap().unwrap().user;
        assert_eq!((&user["client-certificate-data"], &user["client-key-data"]), (&json!("Yw=="), &json!("aw==")));
    }

    #[test]
    fn it_is_told_of_the_cluster() {
        let spec = r#"{"cluster":{"certificate-authority-data":"YQ==","config":{"audience":"x"},"server":"https://192.0.2.1:6443"},"interactive":false}"#;
        let version = VERSIONS[1];
        let info = format!(r#"{{"apiVersion":"{version}","kind":"ExecCredential","spec":{spec}}}"#);
        let script = format!("test \"$(echo \"$KUBERNETES_EXEC_INFO\")\" = '{info}' && ");
        let script = format!("{script}{}", says(r#","status":{"token":"t"}"#));
        assert!(completed(&chosen(&script, "Never"), &Policy::default(), false).unwrap().is_some());
    }

    #[test]
    fn what_it_does_not_tell_is_an_error() {
        for (script, wanted) in [
            (says(""), "exec plugin didn't return a status field"),
            (says(r#","status":{}"#), "exec plugin didn't return a token or cert/key pair"),
            (says(r#","status":{"clientKeyData":"k"}"#), "exec plugin returned only certificate or key, not both"),
            ("exit 7".into(), "exec: executable /bin/sh failed with exit code 7"),
            (
                says(r#","status":{"token":"t"}"#).replace("io/v1", "io/v1beta1"),
                "exec plugin is configured to use API version client.authentication.k8s.io/v1, plugin returned version client.authentication.k8s.io/v1beta1",
            ),
        ] {
            assert_eq!(why(&script), format!("getting credentials: {wanted}"), "{script}");
        }
        assert!(why("echo token").contains("cannot unmarshal string into Go value"));
        let mut missing = chosen("", "Never");
        missing.user["exec"]["command"] = "/nowhere/at-all".into();
        missing.user["exec"]["installHint"] = "get it".into();
        let told = completed(&missing, &Policy::default(), false).unwrap_err().inner();
        assert!(told.starts_with("getting credentials: exec: executable /nowhere/at-all not found\n"), "{told}");
        assert!(told.ends_with("\n\nget it"), "{told}");
    }

    #[test]
    fn a_plug_in_is_complete() {
        let lacking = |user: &Value| {
            let mut all = Vec::new();
            lacks("u", user, &mut all);
            all.join("; ")
        };
        let exec = |command: &str, version: &str, mode: &str| json!({"exec": {"command": command, "apiVersion": version, "interactiveMode": mode}});
        assert_eq!(lacking(&exec("c", VERSIONS[1], "Never")), "");
        assert_eq!(lacking(&exec("c", VERSIONS[0], "")), "");
        assert_eq!(
            lacking(&exec("c", VERSIONS[1], "")),
            "interactiveMode must be specified for u to use exec authentication plugin"
        );
        assert_eq!(lacking(&exec("c", VERSIONS[1], "Now")), "invalid interactiveMode for u: \"Now\"");
        assert_eq!(
            lacking(&exec("", "", "Never")),
            "command must be specified for u to use exec authentication plugin; apiVersion must be specified for u to use exec authentication plugin"
        );
    }
}
