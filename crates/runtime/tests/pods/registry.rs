//! A registry for the tests: a few images in memory, on loopback.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io::Write;
use std::sync::Arc;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::json;
use sha2::{Digest, Sha256};

/// What is answered, by path.
#[derive(Default)]
pub struct Registry {
    files: HashMap<String, Bytes>,
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{:x}", Sha256::digest(bytes))
}

/// One entry of a layer.
pub enum Entry<'a> {
    File(&'a str, &'a [u8], u32),
    Folder(&'a str),
    Link(&'a str, &'a str),
    HardLink(&'a str, &'a str),
}

pub fn layer(entries: &[Entry<'_>]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for entry in entries {
        let mut header = tar::Header::new_gnu();
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(1);
        header.set_size(0);
        match entry {
            Entry::File(path, content, mode) => {
                header.set_size(content.len() as u64);
                header.set_mode(*mode);
                put(&mut archive, &mut header, path, content);
            }
            Entry::Folder(path) => {
                header.set_entry_type(tar::EntryType::Directory);
                header.set_mode(0o755);
                put(&mut archive, &mut header, path, &[]);
            }
            Entry::Link(path, target) | Entry::HardLink(path, target) => {
                let hard = matches!(entry, Entry::HardLink(..));
                header.set_entry_type(if hard { tar::EntryType::Link } else { tar::EntryType::Symlink });
                header.set_mode(0o777);
                header.set_link_name_literal(target).expect("a short target");
                put(&mut archive, &mut header, path, &[]);
            }
        }
    }
    archive.into_inner().expect("an archive")
}

/// Writes the name as it is, however wrong: `tar` itself would refuse one that climbs.
fn put(archive: &mut tar::Builder<Vec<u8>>, header: &mut tar::Header, path: &str, content: &[u8]) {
    let name = &mut header.as_old_mut().name;
    name.fill(0);
    name[..path.len()].copy_from_slice(path.as_bytes());
    header.set_cksum();
    archive.append(header, content).expect("appended");
}

impl Registry {
    /// Adds an image of these layers. `spoil` changes the bytes that are sent.
    pub fn add(&mut self, name: &str, layers: &[Vec<u8>], config: serde_json::Value, spoil: bool) {
        let mut described = Vec::new();
        for plain in layers {
            let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
            packed.write_all(plain).expect("packed");
            let packed = packed.finish().expect("packed");
            let id = digest(&packed);
            described.push(
                json!({"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": id, "size": packed.len()}),
            );
            let mut sent = packed;
            if spoil && let Some(byte) = sent.last_mut() {
                *byte ^= 1;
            }
            self.files.insert(format!("/v2/{name}/blobs/{id}"), sent.into());
        }
        let ids: Vec<String> = layers.iter().map(|plain| digest(plain)).collect();
        let config = json!({"architecture": "amd64", "os": "linux", "config": config, "rootfs": {"type": "layers", "diff_ids": ids}});
        let config = config.to_string();
        let id = digest(config.as_bytes());
        let manifest = json!({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": id, "size": config.len()},
            "layers": described});
        self.files.insert(format!("/v2/{name}/blobs/{id}"), config.into());
        self.files.insert(format!("/v2/{name}/manifests/latest"), manifest.to_string().into());
    }

    /// Serves; the address is the registry's name. `private/` asks for a token, which a password gets.
    pub async fn serve(self, tasks: &ferry_tasks::Tasks) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let (registry, own, all) = (Arc::new(self), address.clone(), tasks.clone());
        tasks.spawn_until_stopped("registry", async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (registry, own) = (registry.clone(), own.clone());
                all.spawn_until_stopped("connection", async move {
                    let service = hyper::service::service_fn(move |request| {
                        let response = registry.answer(&request, &own);
                        async move { Ok::<_, Infallible>(response) }
                    });
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        address
    }

    fn answer(&self, request: &Request<Incoming>, own: &str) -> Response<Full<Bytes>> {
        let path = request.uri().path();
        let shown = request.headers().get("authorization").and_then(|v| v.to_str().ok()).unwrap_or_default();
        let answer = Response::builder();
        let built = if path == "/token" {
            let fits = shown == "Basic bWU6c2VjcmV0";
            let status = if fits { StatusCode::OK } else { StatusCode::UNAUTHORIZED };
            answer.status(status).body(Full::from(r#"{"token": "ticket"}"#))
        } else if path.starts_with("/v2/private/") && shown != "Bearer ticket" {
            let challenge = format!("Bearer realm=\"http://{own}/token\",service=\"test\"");
            answer.status(StatusCode::UNAUTHORIZED).header("www-authenticate", challenge).body(Full::default())
        } else {
            match self.files.get(path) {
                Some(bytes) => answer.body(Full::from(bytes.clone())),
                None => answer.status(StatusCode::NOT_FOUND).body(Full::default()),
            }
        };
        built.expect("a response")
    }
}
