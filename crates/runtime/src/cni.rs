//! Pod networks by the CNI exec protocol: plug-ins are programs that get a configuration on standard input.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use ferry_cri::v1;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

const PATIENCE: Duration = Duration::from_secs(60);
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

struct List {
    name: String,
    version: String,
    plugins: Vec<Value>,
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

    /// Attaches a pod; the result of the last plug-in names its addresses.
    pub(crate) async fn add(&self, to: &Attachment<'_>) -> Result<Value, NetworkError> {
        let list = self.list()?;
        let mut result = Value::Null;
        for plugin in &list.plugins {
            let input = configuration(&list, plugin, to.config, &result);
            match self.call("ADD", plugin, &input, to).await {
                Ok(answer) => result = answer,
                Err(error) => {
                    let _ = self.remove(to, &result).await;
                    return Err(error);
                }
            }
        }
        Ok(result)
    }

    /// Takes a pod off its network; may be called again.
    pub(crate) async fn remove(&self, from: &Attachment<'_>, result: &Value) -> Result<(), NetworkError> {
        let list = self.list()?;
        let mut failed = None;
        for plugin in list.plugins.iter().rev() {
            let input = configuration(&list, plugin, from.config, result);
            if let Err(error) = self.call("DEL", plugin, &input, from).await {
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
        let mut program = tokio::process::Command::new(self.plugins.join(name));
        program
            .env("CNI_COMMAND", command)
            .env("CNI_CONTAINERID", to.id)
            .env("CNI_NETNS", to.namespace)
            .env("CNI_IFNAME", INTERFACE)
            .env("CNI_PATH", &self.plugins)
            .env("CNI_ARGS", arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child = program.spawn().map_err(|e| failed(e.to_string()))?;
        let mut stdin = child.stdin.take();
        let text = input.to_string();
        let talk = async {
            if let Some(stdin) = stdin.as_mut() {
                let _ = stdin.write_all(text.as_bytes()).await;
            }
            drop(stdin);
            child.wait_with_output().await
        };
        let output = tokio::time::timeout(PATIENCE, talk).await.map_err(|_| failed("it hangs".to_owned()))?;
        let output = output.map_err(|e| failed(e.to_string()))?;
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        if output.status.success() {
            return Ok(answer);
        }
        let why = ["msg", "details"].map(|key| answer[key].as_str().unwrap_or_default()).join(" ");
        let why = if why.trim().is_empty() { String::from_utf8_lossy(&output.stderr).into_owned() } else { why };
        Err(failed(why.trim().to_owned()))
    }
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
    input
}

/// The addresses in a result, without the lengths of their networks.
pub(crate) fn addresses(result: &Value) -> Vec<String> {
    let list = result["ips"].as_array().into_iter().flatten();
    list.filter_map(|ip| ip["address"].as_str()?.split('/').next().map(str::to_owned)).collect()
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
        assert_eq!(addresses(&json!({"ips": [{"address": "10.0.0.2/24"}]})), ["10.0.0.2"]);
    }
}
