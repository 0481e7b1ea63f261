//! Images from an archive, as `docker save`, `podman save` and `skopeo copy … docker-archive:` write it.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use ferry_cri::image_name::{Reference, is_digest};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::pull::{Configuration, MOST_LAYERS, chains, parse};
use super::{Images, PullError};

/// Documents are small; layers go to the disk.
const MOST_DOCUMENT: u64 = 4 << 20;
const MANIFEST: &str = "manifest.json";

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Entry {
    config: String,
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

/// What an image of the archive consists of, taken out of it.
struct Taken {
    configuration: Vec<u8>,
    names: Vec<Reference>,
    layers: Vec<PathBuf>,
}

/// Files that are removed when they are no longer needed, however that comes.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Images {
    /// Takes in the images of an archive; gives their names.
    pub(crate) async fn import(&self, archive: &Path) -> Result<Vec<String>, PullError> {
        let scratch = Scratch(self.root().join("incoming").join(crate::short_id()));
        let (from, to) = (archive.to_owned(), scratch.0.clone());
        let taken = tokio::task::spawn_blocking(move || take_out(&from, &to));
        let taken = taken.await.map_err(|error| wrong(error.to_string()))??;
        let mut names = Vec::new();
        for image in taken {
            let configuration: Configuration = parse(&image.configuration, "the image's configuration")?;
            let diff_ids = configuration.rootfs.diff_ids;
            if diff_ids.len() != image.layers.len() || !diff_ids.iter().all(|id| is_digest(id)) {
                return Err(wrong(format!("{} layers, but {} digests of them", image.layers.len(), diff_ids.len())));
            }
            let chains = chains(&diff_ids);
            let mut size = image.configuration.len() as u64;
            for (place, file) in image.layers.iter().enumerate() {
                size += std::fs::metadata(file).map_or(0, |file| file.len());
                self.add_layer(file, &chains[..=place], &diff_ids[place], &diff_ids[place]).await?;
            }
            let id = format!("sha256:{:x}", Sha256::digest(&image.configuration));
            let config = configuration.config.unwrap_or_default();
            for name in image.names {
                self.name(&name, None, id.clone(), size, chains.clone(), config.clone())?;
                names.push(name.to_string());
            }
        }
        Ok(names)
    }
}

fn wrong(why: String) -> PullError {
    PullError::Malformed { what: "the archive".into(), why }
}

fn open(archive: &Path) -> io::Result<tar::Archive<Box<dyn Read>>> {
    let mut magic = [0; 2];
    File::open(archive)?.read_exact(&mut magic)?;
    let file = BufReader::with_capacity(256 * 1024, File::open(archive)?);
    Ok(tar::Archive::new(match magic {
        [0x1f, 0x8b] => Box::new(flate2::bufread::MultiGzDecoder::new(file)),
        _ => Box::new(file),
    }))
}

fn plain(path: &Path) -> String {
    path.strip_prefix("./").unwrap_or(path).to_string_lossy().into_owned()
}

/// The archive is read twice: its list of images may come last.
fn take_out(archive: &Path, scratch: &Path) -> Result<Vec<Taken>, PullError> {
    let disk = || PullError::disk(format!("cannot read {}", archive.display()));
    let documents = read(archive, &mut |name| (name == MANIFEST).then_some(None)).map_err(disk())?;
    let Some(Found::Document(manifest)) = documents.get(MANIFEST) else {
        return Err(wrong(format!("it has no {MANIFEST}; make it with `docker save` or `podman save`")));
    };
    let entries: Vec<Entry> = parse(manifest, MANIFEST)?;
    if let Some(entry) = entries.iter().find(|entry| entry.layers.is_empty() || entry.layers.len() > MOST_LAYERS) {
        return Err(wrong(format!("an image with {} layers", entry.layers.len())));
    }
    std::fs::create_dir_all(scratch).map_err(PullError::disk("cannot make room for the archive"))?;
    let wanted: HashMap<String, bool> = entries
        .iter()
        .flat_map(|entry| {
            let layers = entry.layers.iter().map(|layer| (layer.clone(), true));
            layers.chain([(entry.config.clone(), false)])
        })
        .collect();
    let mut number = 0;
    let found = read(archive, &mut |name| {
        wanted.get(name).map(|is_layer| {
            number += 1;
            is_layer.then(|| scratch.join(number.to_string()))
        })
    });
    let found = found.map_err(disk())?;
    let mut images = Vec::new();
    for entry in entries {
        let names = entry.repo_tags.unwrap_or_default();
        let names = names.iter().map(|name| Reference::parse(name)).collect::<Result<Vec<_>, _>>()?;
        if names.is_empty() {
            return Err(wrong("it has an image without a name; save it by its name".into()));
        }
        let Some(Found::Document(configuration)) = found.get(&entry.config) else {
            return Err(wrong(format!("{} is missing", entry.config)));
        };
        let layers = entry.layers.iter().map(|layer| match found.get(layer) {
            Some(Found::File(path)) => Ok(path.clone()),
            _ => Err(wrong(format!("{layer} is missing"))),
        });
        images.push(Taken { configuration: configuration.clone(), names, layers: layers.collect::<Result<_, _>>()? });
    }
    Ok(images)
}

enum Found {
    Document(Vec<u8>),
    File(PathBuf),
}

/// Reads the entries that `wants` names: into memory, or into the file it gives.
fn read(archive: &Path, wants: &mut dyn FnMut(&str) -> Option<Option<PathBuf>>) -> io::Result<HashMap<String, Found>> {
    let mut found = HashMap::new();
    for entry in open(archive)?.entries()? {
        let mut entry = entry?;
        let name = plain(&entry.path()?);
        if !entry.header().entry_type().is_file() || found.contains_key(&name) {
            continue;
        }
        let Some(place) = wants(&name) else { continue };
        let taken = match place {
            Some(path) => {
                io::copy(&mut entry, &mut File::create_new(&path)?)?;
                Found::File(path)
            }
            None if entry.size() > MOST_DOCUMENT => return Err(io::Error::other(format!("{name} is too large"))),
            None => {
                let mut bytes = Vec::new();
                entry.take(MOST_DOCUMENT).read_to_end(&mut bytes)?;
                Found::Document(bytes)
            }
        };
        found.insert(name, taken);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archive(parts: &[(&str, &[u8])]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (name, bytes) in parts {
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            header.set_mode(0o644);
            header.set_uid(0);
            header.set_gid(0);
            header.set_mtime(0);
            header.set_cksum();
            builder.append_data(&mut header, name, *bytes).expect("an entry");
        }
        builder.into_inner().expect("an archive")
    }

    fn images(root: &Path, tasks: &ferry_tasks::Tasks) -> Images {
        let tls = ferry_outbound::roots(None).and_then(|roots| ferry_outbound::client_config(roots, None));
        let client = ferry_outbound::https(tasks.clone(), tls.expect("a client"), None);
        Images::open(root, client, super::super::Mirrors::default(), Vec::new()).expect("images")
    }

    #[tokio::test]
    async fn a_saved_image_is_known_by_its_name() {
        let tasks = ferry_tasks::Tasks::new("test");
        let folder = tempfile::tempdir().expect("a folder");
        let images = images(&folder.path().join("images"), &tasks);
        let layer = archive(&[("hello", &b"world"[..])]);
        let diff_id = format!("sha256:{:x}", Sha256::digest(&layer));
        let config = serde_json::json!({"config": {"Cmd": ["/hello"]}, "rootfs": {"diff_ids": [diff_id]}}).to_string();
        let manifest = serde_json::json!([{"Config": "c.json", "RepoTags": ["mine:1"], "Layers": ["l/layer.tar"]}]);
        let manifest = manifest.to_string();
        let (config, manifest) = (config.as_bytes(), manifest.as_bytes());
        let file = folder.path().join("a.tar");
        // The list comes last, as podman writes it.
        std::fs::write(&file, archive(&[("l/layer.tar", &layer[..]), ("c.json", config), ("manifest.json", manifest)]))
            .expect("a file");
        assert_eq!(images.import(&file).await.expect("imported"), ["docker.io/library/mine:1"]);
        let known = images.find("mine:1").expect("it is known");
        assert_eq!((known.id, known.digests.len()), (format!("sha256:{:x}", Sha256::digest(config)), 0));
        let root = images.folders(&known.layers).expect("its layers");
        assert_eq!(std::fs::read_to_string(root[0].join("hello")).expect("the file"), "world");

        let other = archive(&[("hello", &b"there"[..])]);
        for (parts, expected) in [
            (vec![("x", &b"y"[..])], "docker save"),
            (vec![("manifest.json", manifest), ("c.json", config)], "l/layer.tar is missing"),
            (vec![("manifest.json", manifest), ("l/layer.tar", &layer[..])], "c.json is missing"),
            (vec![("manifest.json", &b"[{}]"[..]), ("l/layer.tar", &layer[..])], "manifest.json"),
            (vec![("manifest.json", manifest), ("c.json", config), ("l/layer.tar", &other[..])], ""),
        ] {
            std::fs::write(&file, archive(&parts)).expect("a file");
            let outcome = images.import(&file).await;
            if expected.is_empty() {
                // The layer is there already under this digest, so that nothing of the wrong one is taken.
                outcome.expect("it has what it needs");
                continue;
            }
            let error = outcome.expect_err(expected).to_string();
            assert!(error.contains(expected), "{error}");
        }
        let left = std::fs::read_dir(images.root().join("incoming")).expect("a folder").count();
        assert_eq!(left, 0, "nothing is left of what was taken out");
        tasks.stop(std::time::Duration::from_secs(1)).await;
    }
}
