//! Reading the files.

use std::collections::BTreeMap;
use std::fs;
use std::hash::Hasher;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use ferry_client::Wire;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::Manifests;
use crate::pod::{self, Fnv1a};

/// A larger file is none.
const LARGEST: u64 = 10 << 20;

/// What the files said when they were last read.
#[derive(Default)]
pub(crate) struct Files(BTreeMap<PathBuf, Pod>);

impl Files {
    /// Reads all files anew. One that says nothing sensible now stands for what it said before: it may be half written,
    /// and its pod runs.
    pub(crate) fn read(&mut self, manifests: &Manifests, node: &str) -> Vec<Pod> {
        let mut pods = BTreeMap::new();
        for path in list(&manifests.path) {
            match one(&path, manifests, node) {
                Ok(pod) => {
                    pods.insert(path, pod);
                }
                Err(why) => {
                    tracing::warn!(file = %path.display(), "no pod: {why}");
                    if let Some(known) = self.0.remove(&path) {
                        pods.insert(path, known);
                    }
                }
            }
        }
        self.0 = pods;
        self.0.values().cloned().collect()
    }
}

fn list(path: &Path) -> Vec<PathBuf> {
    let is_folder = fs::metadata(path).is_ok_and(|meta| meta.is_dir());
    if !is_folder {
        return if path.exists() { vec![path.to_owned()] } else { Vec::new() };
    }
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let shown = entries.filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'));
    let mut files: Vec<PathBuf> = shown.map(|entry| entry.path()).filter(|path| path.is_file()).collect();
    files.sort();
    files
}

fn one(path: &Path, manifests: &Manifests, node: &str) -> Result<Pod, String> {
    let read = || -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        fs::File::open(path)?.take(LARGEST + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().map_err(|error| error.to_string())?;
    if bytes.len() as u64 > LARGEST {
        return Err("it is larger than 10 MiB".to_owned());
    }
    let object = (manifests.parse)(&bytes)?;
    let pod = complete(object, &path.to_string_lossy(), node)?;
    if pod::spec(&pod).resource_claims.iter().flatten().next().is_some() {
        return Err("static pods may not use ResourceClaims".to_owned());
    }
    Ok(pod)
}

/// What a file does not say: which node, and an identity that follows from its content.
fn complete(mut object: Value, source: &str, node: &str) -> Result<Pod, String> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    if name.is_empty() {
        return Err("invalid pod: name is needed for the pod".to_owned());
    }
    let own = object["metadata"]["uid"].as_str().filter(|uid| !uid.is_empty()).map(str::to_owned);
    let uid = own.unwrap_or_else(|| identity(&object, source, node));
    let metadata = &mut object["metadata"];
    metadata["uid"] = json!(uid);
    metadata["name"] = json!(format!("{name}-{}", node.to_lowercase()));
    if metadata["namespace"].as_str().unwrap_or_default().is_empty() {
        metadata["namespace"] = json!("default");
    }
    metadata["annotations"]["kubernetes.io/config.hash"] = json!(uid);
    metadata["annotations"]["kubernetes.io/config.source"] = json!("file");
    object["spec"]["nodeName"] = json!(node);
    // Trouble with the node is no reason for it to go.
    let stays = json!({"operator": "Exists", "effect": "NoExecute"});
    match object["spec"]["tolerations"].as_array_mut() {
        Some(list) if list.contains(&stays) => {}
        Some(list) => list.push(stays),
        None => object["spec"]["tolerations"] = json!([stays]),
    }
    object["status"] = json!({"phase": "Pending"});
    // By the decoder that pods of the API server have. Where it stands in this text is of no use to whoever wrote the file.
    Pod::decode(object.to_string().as_bytes()).map_err(|error| {
        let text = error.to_string();
        text.split_once(" at line ").map_or(text.as_str(), |(what, _)| what).to_owned()
    })
}

fn identity(object: &Value, source: &str, node: &str) -> String {
    let text = object.to_string();
    let half = |seed: &[u8]| {
        let mut hasher = Fnv1a::new();
        for part in [seed, text.as_bytes(), b"host:", node.as_bytes(), b"file:", source.as_bytes()] {
            hasher.write(part);
        }
        hasher.finish()
    };
    format!("{:016x}{:016x}", half(b"1"), half(b"2"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bytes: &[u8]) -> Result<Value, String> {
        serde_json::from_slice(bytes).map_err(|error| error.to_string())
    }

    #[test]
    fn files_become_pods_of_the_node() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("written");
        let of = |name: &str, image: &str| {
            json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": image}]}}).to_string()
        };
        let manifests = Manifests { path: folder.path().to_owned(), parse };
        let mut files = Files::default();
        write("web.json", &of("web", "a"));
        write(".hidden", &of("hidden", "a"));
        write("broken", "{");
        let first = files.read(&manifests, "Node-1");
        let names: Vec<&str> = first.iter().map(pod::name).collect();
        assert_eq!(names, ["web-node-1"]);
        let pod = &first[0];
        assert!(pod::is_static(pod) && !pod::is_mirror(pod));
        assert_eq!((pod::namespace(pod), pod::uid(pod).len()), ("default", 32));
        assert_eq!(pod::spec(pod).node_name.as_deref(), Some("Node-1"));
        assert_eq!(pod::spec(pod).tolerations.as_ref().map(Vec::len), Some(1));
        // The same file is the same pod, another content another one.
        assert_eq!(pod::uid(&files.read(&manifests, "Node-1")[0]), pod::uid(pod));
        write("web.json", "half");
        assert_eq!(pod::uid(&files.read(&manifests, "Node-1")[0]), pod::uid(pod));
        write("web.json", &of("web", "b"));
        assert_ne!(pod::uid(&files.read(&manifests, "Node-1")[0]), pod::uid(pod));
        fs::remove_file(folder.path().join("web.json")).expect("removed");
        assert!(files.read(&manifests, "Node-1").is_empty());
        let alone = Manifests { path: folder.path().join(".hidden"), parse };
        assert_eq!(files.read(&alone, "n").len(), 1);
        assert!(files.read(&Manifests { path: "/none".into(), parse }, "n").is_empty());
        write("wrong.json", &json!({"metadata": {"name": "w"}, "spec": {"containers": "c"}}).to_string());
        let error = one(&folder.path().join("wrong.json"), &manifests, "n").expect_err("no list");
        assert!(error.ends_with("expected a sequence"), "{error}");
    }
}
