//! Images: pulled from registries, kept as folders of layers, known by an index that survives a crash.

mod import;
mod pull;
mod registry;
mod trust;
mod unpack;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

use ferry_cri::image_name::Reference;
use ferry_cri::v1;
use ferry_outbound::HttpsClient;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

pub use registry::Mirrors;
pub(crate) use registry::PullError;
pub use unpack::unpack_layer;

/// What an image says of how it is run.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct RunConfig {
    pub(crate) user: String,
    pub(crate) env: Option<Vec<String>>,
    pub(crate) entrypoint: Option<Vec<String>>,
    pub(crate) cmd: Option<Vec<String>>,
    pub(crate) working_dir: String,
    pub(crate) stop_signal: String,
    pub(crate) volumes: Option<BTreeMap<String, serde_json::Value>>,
}

#[derive(Serialize, Deserialize, Clone, Debug)]
pub(crate) struct Image {
    /// The digest of its configuration.
    pub(crate) id: String,
    pub(crate) tags: Vec<String>,
    pub(crate) digests: Vec<String>,
    pub(crate) size: u64,
    /// Chain ids, bottom first.
    pub(crate) layers: Vec<String>,
    pub(crate) config: RunConfig,
}

#[derive(Serialize, Deserialize, Clone, Debug)]
struct Layer {
    folder: u64,
    bytes: u64,
    files: u64,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default)]
struct Index {
    images: Vec<Image>,
    layers: HashMap<String, Layer>,
    next: u64,
}

pub(crate) struct Images {
    root: PathBuf,
    client: HttpsClient,
    mirrors: Mirrors,
    pinned: Vec<String>,
    index: Mutex<Index>,
    /// One layer is unpacked at a time: two images may share it.
    unpacking: tokio::sync::Mutex<()>,
}

impl Images {
    pub(crate) fn open(
        root: &Path,
        client: HttpsClient,
        mirrors: Mirrors,
        pinned: Vec<String>,
    ) -> std::io::Result<Self> {
        std::fs::create_dir_all(root.join("layers"))?;
        std::fs::create_dir_all(root.join("incoming"))?;
        let file = root.join("index.json");
        let mut index = match std::fs::read(&file) {
            Ok(bytes) => serde_json::from_slice::<Index>(&bytes).unwrap_or_else(|error| {
                tracing::error!("{} is damaged ({error}); images are pulled anew", file.display());
                Index::default()
            }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Index::default(),
            Err(error) => return Err(error),
        };
        clean(root, &mut index);
        let images = Self {
            root: root.to_owned(),
            client,
            mirrors,
            pinned,
            index: Mutex::new(index),
            unpacking: Default::default(),
        };
        images.save()?;
        Ok(images)
    }

    fn save(&self) -> std::io::Result<()> {
        // Under the lock, so that an older state never replaces a newer one.
        let index = self.index.lock();
        crate::state::write(&self.root.join("index.json"), &serde_json::to_vec(&*index)?)
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// By id, the beginning of one, name or digest.
    pub(crate) fn find(&self, name: &str) -> Option<Image> {
        let index = self.index.lock();
        let bare = name.strip_prefix("sha256:").unwrap_or(name);
        let by_id = index.images.iter().find(|image| image.id == name || image.id["sha256:".len()..] == *bare);
        let short = || {
            let fits = bare.len() >= 6 && bare.bytes().all(|b| b.is_ascii_hexdigit());
            fits.then(|| index.images.iter().find(|image| image.id["sha256:".len()..].starts_with(bare))).flatten()
        };
        let by_name = || {
            let reference = Reference::parse(name).ok()?;
            index.images.iter().find(|image| match &reference.digest {
                Some(digest) => image.digests.contains(&reference.with_digest(digest)),
                None => reference.tagged().is_some_and(|tag| image.tags.contains(&tag)),
            })
        };
        by_id.or_else(by_name).or_else(short).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Image> {
        self.index.lock().images.clone()
    }

    /// The folders of an image's layers, bottom first.
    pub(crate) fn folders(&self, layers: &[String]) -> std::io::Result<Vec<PathBuf>> {
        let index = self.index.lock();
        let folder = |chain: &String| {
            let layer =
                index.layers.get(chain).ok_or_else(|| std::io::Error::other(format!("layer {chain} is gone")))?;
            Ok(self.folder(layer.folder).join("fs"))
        };
        layers.iter().map(folder).collect()
    }

    fn folder(&self, number: u64) -> PathBuf {
        self.root.join("layers").join(number.to_string())
    }

    /// Forgets a tag or digest, or by id the whole image, and what layers are then of no use. `used` are those of containers.
    pub(crate) fn remove(&self, name: &str, used: &HashSet<String>) -> std::io::Result<()> {
        let Some(image) = self.find(name) else { return Ok(()) };
        let unused = {
            let mut index = self.index.lock();
            index.images.retain(|known| known.id != image.id);
            let kept: HashSet<&String> = index.images.iter().flat_map(|i| &i.layers).chain(used).collect();
            let unused: Vec<String> = image.layers.into_iter().filter(|layer| !kept.contains(layer)).collect();
            unused.iter().filter_map(|chain| index.layers.remove(chain)).collect::<Vec<_>>()
        };
        self.save()?;
        for layer in unused {
            let folder = self.folder(layer.folder);
            if let Err(error) = ferry_podfs::remove_all(&folder) {
                tracing::warn!("{} not removed: {error}", folder.display());
            }
        }
        Ok(())
    }

    /// Removes layers that belong to no image and to none of the containers. Not while images are pulled.
    pub(crate) fn sweep(&self, used: &HashSet<String>) {
        let unused: Vec<Layer> = {
            let mut index = self.index.lock();
            let kept: HashSet<String> =
                index.images.iter().flat_map(|i| i.layers.clone()).chain(used.clone()).collect();
            let unused: Vec<String> = index.layers.keys().filter(|chain| !kept.contains(*chain)).cloned().collect();
            unused.iter().filter_map(|chain| index.layers.remove(chain)).collect()
        };
        if let Err(error) = self.save() {
            tracing::warn!("the index of images is not written: {error}");
            return;
        }
        for layer in unused {
            let _ = ferry_podfs::remove_all(&self.folder(layer.folder));
        }
    }

    /// Bytes and files of all layers.
    pub(crate) fn usage(&self) -> (u64, u64) {
        let index = self.index.lock();
        index.layers.values().fold((0, 0), |(bytes, files), layer| (bytes + layer.bytes, files + layer.files))
    }

    pub(crate) fn show(&self, image: &Image) -> v1::Image {
        let (uid, username) = user_of(&image.config.user);
        v1::Image {
            id: image.id.clone(),
            repo_tags: image.tags.clone(),
            repo_digests: image.digests.clone(),
            size: image.size,
            uid: uid.map(|value| v1::Int64Value { value }),
            username,
            spec: None,
            pinned: self.pinned.iter().any(|pinned| image.tags.contains(pinned)),
        }
    }
}

/// `1000`, `web`, `1000:1000`.
fn user_of(text: &str) -> (Option<i64>, String) {
    let user = text.split(':').next().unwrap_or_default();
    if user.is_empty() {
        return (None, String::new());
    }
    match user.parse() {
        Ok(uid) => (Some(uid), String::new()),
        Err(_) => (None, user.to_owned()),
    }
}

/// Takes away what a crash left, and forgets images whose layers are gone.
fn clean(root: &Path, index: &mut Index) {
    let layers = root.join("layers");
    for point in crate::overlay::mount_points().into_iter().filter(|point| point.starts_with(&layers)).rev() {
        crate::overlay::take_away(&point);
    }
    let known: HashSet<String> = index.layers.values().map(|layer| layer.folder.to_string()).collect();
    for folder in [layers.clone(), root.join("incoming")] {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            if !known.contains(&*entry.file_name().to_string_lossy()) {
                let path = entry.path();
                let removed = ferry_podfs::remove_all(&path);
                if let Err(error) = removed {
                    tracing::warn!("{} not removed: {error}", path.display());
                }
            }
        }
    }
    index.layers.retain(|_, layer| layers.join(layer.folder.to_string()).join("fs").is_dir());
    let Index { images, layers, .. } = index;
    images.retain(|image| {
        let whole = image.layers.iter().all(|chain| layers.contains_key(chain));
        if !whole {
            tracing::warn!("image {} has lost a layer and is forgotten", image.id);
        }
        whole
    });
}
