//! Pod networks by the CNI protocol: plug-ins are programs that get a configuration on standard input. Ferry's own is called
//! within this process.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use ferry_cri::v1;
use ferry_meta::quantity::Quantity;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};

const PATIENCE: Duration = Duration::from_secs(60);
/// No answer of a plug-in is longer.
const MOST_BYTES: u64 = 1024 * 1024;
/// More of a complaint is not shown.
const MOST_CHARACTERS: usize = 1000;
const INTERFACE: &str = "eth0";

#[derive(Debug, thiserror::Error)]
pub(crate) enum NetworkError {
    #[error("cni plugin not initialized: no network configuration in {0}")]
    NoConfiguration(PathBuf),
    #[error("network configuration {path}: {why}")]
    Configuration { path: PathBuf, why: String },
    #[error("plugin type={plugin:?} failed ({command}): {why}")]
    Plugin { plugin: String, command: &'static str, why: String },
}

/// Where plug-ins and their configuration are.
#[derive(Clone, Debug)]
pub struct Network {
    pub configuration: PathBuf,
    pub plugins: PathBuf,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct List {
    name: String,
    version: String,
    plugins: Vec<Value>,
}

/// What a pod was given, and by which configuration: the same takes it away, whatever the folder has by then.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Attached {
    result: Value,
    list: Option<List>,
    /// Where its programs are.
    plugins: PathBuf,
}

/// Whom a network is for.
pub(crate) struct Attachment<'a> {
    pub(crate) id: &'a str,
    pub(crate) namespace: &'a Path,
    pub(crate) config: &'a v1::PodSandboxConfig,
}

impl Network {
    /// Whether pods can have a network yet.
    pub(crate) fn ready(&self) -> Result<(), NetworkError> {
        self.list().map(|_| ())
    }

    /// The first file by name, as every runtime does.
    fn list(&self) -> Result<List, NetworkError> {
        let entries = std::fs::read_dir(&self.configuration).into_iter().flatten().flatten();
        let mut files: Vec<PathBuf> = entries
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|e| e == "conflist" || e == "conf" || e == "json"))
            .collect();
        files.sort();
        let path = files.into_iter().next().ok_or_else(|| NetworkError::NoConfiguration(self.configuration.clone()))?;
        let wrong = |why: String| NetworkError::Configuration { path: path.clone(), why };
        let bytes = std::fs::read(&path).map_err(|e| wrong(e.to_string()))?;
        let read: Value = serde_json::from_slice(&bytes).map_err(|e| wrong(e.to_string()))?;
        let text = |key: &str| read[key].as_str().map(str::to_owned);
        let name = text("name").ok_or_else(|| wrong("no name".to_owned()))?;
        let version = text("cniVersion").unwrap_or_else(|| "0.4.0".to_owned());
        let plugins = match &read["plugins"] {
            Value::Array(plugins) if !plugins.is_empty() => plugins.clone(),
            Value::Null if read["type"].is_string() => vec![read.clone()],
            _ => return Err(wrong("no plugins".to_owned())),
        };
        Ok(List { name, version, plugins })
    }

    /// What a pod is to be given. Written down before anything is, so that whatever a crash leaves can be taken away.
    pub(crate) fn plan(&self) -> Result<Attached, NetworkError> {
        Ok(Attached { result: Value::Null, list: Some(self.list()?), plugins: self.plugins.clone() })
    }

    /// Attaches a pod; the result of the last plug-in names its addresses.
    pub(crate) async fn add(&self, to: &Attachment<'_>, attached: &mut Attached) -> Result<(), NetworkError> {
        let Some(list) = attached.list.clone() else { return Ok(()) };
        for plugin in &list.plugins {
            let input = configuration(&list, plugin, to.config, &attached.result);
            match self.call("ADD", plugin, &input, to).await {
                Ok(answer) if answer["ips"].is_array() || plugin["type"] == "loopback" => attached.result = answer,
                Ok(_) => {
                    let _ = self.remove(to, attached).await;
                    let plugin = plugin["type"].as_str().unwrap_or_default().to_owned();
                    let why = "it succeeded, and what it printed is no result".to_owned();
                    return Err(NetworkError::Plugin { plugin, command: "ADD", why });
                }
                Err(error) => {
                    let _ = self.remove(to, attached).await;
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Takes a pod off its network; may be called again.
    pub(crate) async fn remove(&self, from: &Attachment<'_>, attached: &Attached) -> Result<(), NetworkError> {
        let list = match &attached.list {
            Some(list) => list.clone(),
            None => self.list()?,
        };
        let plugins = if attached.plugins.as_os_str().is_empty() { &self.plugins } else { &attached.plugins };
        let network = Self { configuration: self.configuration.clone(), plugins: plugins.clone() };
        let mut failed = None;
        for plugin in list.plugins.iter().rev() {
            let input = configuration(&list, plugin, from.config, &attached.result);
            if let Err(error) = network.call("DEL", plugin, &input, from).await {
                failed.get_or_insert(error);
            }
        }
        failed.map_or(Ok(()), Err)
    }

    async fn call(
        &self,
        command: &'static str,
        plugin: &Value,
        input: &Value,
        to: &Attachment<'_>,
    ) -> Result<Value, NetworkError> {
        let name = plugin["type"].as_str().unwrap_or_default();
        let failed = |why: String| NetworkError::Plugin { plugin: name.to_owned(), command, why };
        if name.is_empty() || name.contains('/') {
            return Err(failed("no name of a program".to_owned()));
        }
        let metadata = to.config.metadata.clone().unwrap_or_default();
        let arguments = format!(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE={};K8S_POD_NAME={};K8S_POD_INFRA_CONTAINER_ID={};K8S_POD_UID={}",
            metadata.namespace, metadata.name, to.id, metadata.uid
        );
        if name == ferry_bridge::PLUGIN {
            let request = ferry_bridge::Request {
                command: command.to_owned(),
                container_id: to.id.to_owned(),
                namespace: to.namespace.to_owned(),
                interface: INTERFACE.to_owned(),
                arguments,
                configuration: input.clone(),
            };
            let answer = tokio::time::timeout(PATIENCE, ferry_bridge::call(request)).await;
            return answer.map_err(|_| failed("it hangs".to_owned()))?.map_err(|error| failed(error.to_string()));
        }
        let mut program = tokio::process::Command::new(self.plugins.join(name));
        program
            .env("CNI_COMMAND", command)
            .env("CNI_CONTAINERID", to.id)
            .env("CNI_NETNS", to.namespace)
            .env("CNI_IFNAME", INTERFACE)
            .env("CNI_PATH", &self.plugins)
            .env("CNI_ARGS", arguments);
        let (success, stdout, stderr) = talk(program, input.to_string()).await.map_err(failed)?;
        let answer: Value = serde_json::from_slice(&stdout).unwrap_or_default();
        if success {
            return Ok(answer);
        }
        let why = ["msg", "details"].map(|key| answer[key].as_str().unwrap_or_default()).join(" ");
        let why = if why.trim().is_empty() { String::from_utf8_lossy(&stderr).into_owned() } else { why };
        Err(failed(why.trim().chars().take(MOST_CHARACTERS).collect()))
    }
}

/// Runs a plug-in to its end: whether it succeeded, what it printed, and what it complained of. Neither how long it takes nor
/// how much it prints is without bounds.
async fn talk(mut program: tokio::process::Command, text: String) -> Result<(bool, Vec<u8>, Vec<u8>), String> {
    program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = program.spawn().map_err(|error| error.to_string())?;
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let write = async {
        if let Some(mut stdin) = stdin {
            let _ = stdin.write_all(text.as_bytes()).await;
        }
    };
    let conversation = async {
        let ((), stdout, stderr) = tokio::join!(write, bounded(stdout), bounded(stderr));
        let status = child.wait().await.map_err(|error| error.to_string())?;
        Ok((status.success(), stdout?, stderr?))
    };
    tokio::time::timeout(PATIENCE, conversation).await.map_err(|_| "it hangs".to_owned())?
}

async fn bounded(output: Option<impl AsyncRead + Unpin>) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    if let Some(output) = output {
        let read = output.take(MOST_BYTES + 1).read_to_end(&mut bytes).await;
        read.map_err(|error| error.to_string())?;
    }
    if bytes.len() as u64 > MOST_BYTES { Err("it prints without end".to_owned()) } else { Ok(bytes) }
}

fn configuration(list: &List, plugin: &Value, pod: &v1::PodSandboxConfig, previous: &Value) -> Value {
    let mut input = plugin.clone();
    input["name"] = json!(list.name);
    input["cniVersion"] = json!(list.version);
    if !previous.is_null() {
        input["prevResult"] = previous.clone();
    }
    let capabilities = plugin["capabilities"].clone();
    if let Some(object) = input.as_object_mut() {
        object.remove("capabilities");
    }
    if capabilities["portMappings"] == json!(true) {
        let ports = pod.port_mappings.iter().filter(|port| port.host_port > 0);
        let ports: Vec<Value> = ports
            .map(|port| {
                json!({
                    "hostPort": port.host_port,
                    "containerPort": port.container_port,
                    "protocol": port.protocol().as_str_name().to_lowercase(),
                    "hostIP": port.host_ip,
                })
            })
            .collect();
        if !ports.is_empty() {
            input["runtimeConfig"]["portMappings"] = Value::Array(ports);
        }
    }
    if capabilities["bandwidth"] == json!(true) {
        let bandwidth = bandwidth(pod);
        if !bandwidth.is_null() {
            input["runtimeConfig"]["bandwidth"] = bandwidth;
        }
    }
    input
}

/// What the annotations of a pod bound it to, in bits a second and bits; what is no quantity bounds nothing.
fn bandwidth(pod: &v1::PodSandboxConfig) -> Value {
    let mut bounds = Value::Null;
    for direction in ["ingress", "egress"] {
        let text = pod.annotations.get(&format!("kubernetes.io/{direction}-bandwidth"));
        let rate = text.and_then(|text| Quantity::parse(text).ok()).map(|rate| rate.value()).filter(|rate| *rate > 0);
        if let Some(rate) = rate {
            bounds[format!("{direction}Rate")] = json!(rate);
            bounds[format!("{direction}Burst")] = json!(i32::MAX);
        }
    }
    bounds
}

impl Attached {
    /// The addresses of the pod, without the lengths of their networks.
    pub(crate) fn addresses(&self) -> Vec<String> {
        let list = self.result["ips"].as_array().into_iter().flatten();
        list.filter_map(|ip| ip["address"].as_str()?.split('/').next().map(str::to_owned)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_reach_the_plugins_that_want_them() {
        let list = List { name: "n".into(), version: "1.0.0".into(), plugins: vec![] };
        let port = |host_port| v1::PortMapping { container_port: 80, host_port, ..Default::default() };
        let pod = v1::PodSandboxConfig { port_mappings: vec![port(0), port(8080)], ..Default::default() };
        let plugin = json!({"type": "portmap", "capabilities": {"portMappings": true}});
        let input = configuration(&list, &plugin, &pod, &json!({"ips": []}));
        assert_eq!(input["runtimeConfig"]["portMappings"][0]["hostPort"], 8080);
        assert_eq!(input["runtimeConfig"]["portMappings"].as_array().map(Vec::len), Some(1));
        assert_eq!(input["prevResult"], json!({"ips": []}));
        assert!(input.get("capabilities").is_none());
        let other = configuration(&list, &json!({"type": "bridge"}), &pod, &Value::Null);
        assert!(other.get("runtimeConfig").is_none() && other.get("prevResult").is_none());
        let attached = Attached { result: json!({"ips": [{"address": "10.0.0.2/24"}]}), ..Attached::default() };
        assert_eq!(attached.addresses(), ["10.0.0.2"]);
    }

    #[test]
    fn annotations_bound_what_a_pod_sends_and_receives() {
        let list = List { name: "n".into(), version: "1.0.0".into(), plugins: vec![] };
        let annotation = |name: &str, value: &str| (format!("kubernetes.io/{name}-bandwidth"), value.to_owned());
        let annotations = [annotation("ingress", "10M"), annotation("egress", "as much as there is")].into();
        let pod = v1::PodSandboxConfig { annotations, ..Default::default() };
        let plugin = json!({"type": "ferry-cni", "capabilities": {"bandwidth": true}});
        let bounds = configuration(&list, &plugin, &pod, &Value::Null)["runtimeConfig"]["bandwidth"].clone();
        assert_eq!(bounds["ingressRate"], 10_000_000);
        assert!(bounds.get("egressRate").is_none());
    }

    /// A plug-in that is this script, in a folder of its own.
    async fn run(script: &str) -> Result<Vec<String>, String> {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().expect("a folder");
        let (configuration, plugins) = (folder.path().join("net.d"), folder.path().join("bin"));
        for folder in [&configuration, &plugins] {
            std::fs::create_dir(folder).expect("a folder");
        }
        let list = json!({"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "own"}]});
        std::fs::write(configuration.join("10.conflist"), list.to_string()).expect("a file");
        std::fs::write(plugins.join("own"), format!("#!/bin/sh\n{script}\n")).expect("a file");
        std::fs::set_permissions(plugins.join("own"), std::fs::Permissions::from_mode(0o755)).expect("a program");
        let network = Network { configuration: configuration.clone(), plugins };
        let (namespace, config) = (Path::new("/proc/self/ns/net"), v1::PodSandboxConfig::default());
        let to = Attachment { id: "i", namespace, config: &config };
        let mut attached = network.plan().map_err(|error| error.to_string())?;
        // The configuration of its beginning is that of its end.
        std::fs::remove_file(configuration.join("10.conflist")).expect("removed");
        network.add(&to, &mut attached).await.map_err(|error| error.to_string())?;
        network.remove(&to, &attached).await.map_err(|error| error.to_string())?;
        Ok(attached.addresses())
    }

    #[tokio::test]
    async fn a_plugin_that_misbehaves_is_bounded() {
        let good = r#"if [ $CNI_COMMAND = ADD ]; then echo '{"ips":[{"address":"10.9.0.2/24"}]}'; fi"#;
        assert_eq!(run(good).await, Ok(vec!["10.9.0.2".to_owned()]));
        for (script, why) in [
            ("echo rubbish", "what it printed is no result"),
            ("yes", "it prints without end"),
            (r#"echo '{"msg":"no more","details":"of this"}'; exit 1"#, "no more of this"),
            ("echo complaint >&2; exit 1", "complaint"),
        ] {
            let error = run(script).await.expect_err("it fails");
            assert!(error.contains(why), "{script}: {error}");
        }
    }
}
