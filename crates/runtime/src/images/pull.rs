//! From a name to an image on disk.

use std::path::{Path, PathBuf};

use ferry_cri::image_name::{Reference, is_digest};
use ferry_cri::v1::AuthConfig;
use futures::{FutureExt, StreamExt, TryStreamExt};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::registry::{Document, PullError, Session};
use super::{Image, Images, Layer, RunConfig, unpack};

pub(super) const MOST_LAYERS: usize = 500;
const DOWNLOADS_AT_ONCE: usize = 3;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    digest: String,
    size: u64,
    #[serde(default)]
    platform: Option<Platform>,
}

#[derive(Deserialize)]
struct Platform {
    architecture: String,
    os: String,
}

#[derive(Deserialize)]
struct Manifest {
    config: Descriptor,
    layers: Vec<Descriptor>,
}

#[derive(Deserialize)]
struct Choice {
    manifests: Vec<Descriptor>,
}

#[derive(Deserialize)]
pub(super) struct Configuration {
    #[serde(default)]
    pub(super) config: Option<RunConfig>,
    pub(super) rootfs: RootFs,
}

#[derive(Deserialize)]
pub(super) struct RootFs {
    pub(super) diff_ids: Vec<String>,
}

impl Images {
    /// Pulls an image, from the first place that has it, and gives its id.
    pub(crate) async fn pull(&self, name: &str, auth: Option<&AuthConfig>) -> Result<String, PullError> {
        let reference = Reference::parse(name)?;
        let mut told: Option<PullError> = None;
        for place in self.mirrors.places(&reference) {
            let session = Session::new(&self.client, place, &reference, auth);
            match self.pull_from(&session, &reference).await {
                Ok(id) => return Ok(id),
                // That a place which answers does not have it says more than that the next one is not reached.
                Err(PullError::Request { .. }) if told.is_some() => {}
                Err(error) => told = Some(error),
            }
        }
        Err(told.unwrap_or_else(|| PullError::NotFound(reference.to_string())))
    }

    async fn pull_from(&self, session: &Session<'_>, reference: &Reference) -> Result<String, PullError> {
        let top = session.manifest(reference.version()).await?;
        let top_digest = top.digest.clone();
        let manifest = manifest(session, top).await?;
        check(&manifest)?;
        let bytes = session.small_blob(&manifest.config.digest).await?;
        let configuration: Configuration = parse(&bytes, "the image's configuration")?;
        let diff_ids = configuration.rootfs.diff_ids;
        if diff_ids.len() != manifest.layers.len() || !diff_ids.iter().all(|id| is_digest(id)) {
            let why = format!("{} layers, but {} digests of their content", manifest.layers.len(), diff_ids.len());
            return Err(PullError::Malformed { what: "the image's configuration".into(), why });
        }
        let chains = chains(&diff_ids);
        let incoming = self.root.join("incoming");
        let mut downloads = Vec::with_capacity(chains.len());
        for (layer, chain) in manifest.layers.iter().zip(&chains) {
            downloads.push(self.download(session, layer, chain, incoming.join(crate::short_id())).boxed());
        }
        let mut downloads = futures::stream::iter(downloads).buffered(DOWNLOADS_AT_ONCE);
        let mut place = 0;
        while let Some(file) = downloads.try_next().await? {
            if let Some(file) = file {
                let unpacked =
                    self.add_layer(&file, &chains[..=place], &diff_ids[place], &manifest.layers[place].digest).await;
                let _ = tokio::fs::remove_file(&file).await;
                unpacked?;
            }
            place += 1;
        }
        drop(downloads);
        let size = manifest.layers.iter().fold(bytes.len() as u64, |sum, layer| sum.saturating_add(layer.size));
        let config = configuration.config.unwrap_or_default();
        self.name(reference, Some(&top_digest), manifest.config.digest, size, chains, config)
    }

    /// The file of a layer; none where it is unpacked already.
    async fn download(
        &self,
        session: &Session<'_>,
        layer: &Descriptor,
        chain: &String,
        file: PathBuf,
    ) -> Result<Option<PathBuf>, PullError> {
        if self.index.lock().layers.contains_key(chain) {
            return Ok(None);
        }
        let result = session.blob(&layer.digest, layer.size, &file).await;
        if result.is_err() {
            let _ = tokio::fs::remove_file(&file).await;
        }
        result.map(|()| Some(file))
    }

    /// Unpacks one layer on top of the ones before it. `chain` ends with its own.
    pub(super) async fn add_layer(
        &self,
        file: &Path,
        chain: &[String],
        diff_id: &str,
        digest: &str,
    ) -> Result<(), PullError> {
        let _one = self.unpacking.lock().await;
        let Some((own, before)) = chain.split_last() else { return Ok(()) };
        let lower = self.folders(before).map_err(PullError::disk("cannot unpack"))?;
        let number = {
            let mut index = self.index.lock();
            if index.layers.contains_key(own) {
                return Ok(());
            }
            index.next += 1;
            index.next
        };
        let (folder, file, id) = (self.folder(number), file.to_owned(), diff_id.to_owned());
        let unpacked = tokio::task::spawn_blocking(move || {
            let result = unpack_into(&folder, &file, &lower, &id);
            if result.is_err() {
                let _ = ferry_podfs::remove_all(&folder.with_extension("new"));
            }
            result
        });
        let unpacked =
            unpacked.await.map_err(|e| PullError::Malformed { what: digest.to_owned(), why: e.to_string() })?;
        let (bytes, files) = match unpacked {
            Ok(usage) => usage,
            Err(unpack::UnpackError::Corrupt(found)) => {
                return Err(PullError::Corrupt {
                    what: format!("layer {digest}, which should contain {diff_id},"),
                    found,
                });
            }
            Err(error) => return Err(PullError::Unpack { layer: digest.to_owned(), why: error.to_string() }),
        };
        self.index.lock().layers.insert(own.clone(), Layer { folder: number, bytes, files });
        self.save().map_err(PullError::disk("cannot write the index of images"))
    }

    /// Enters an image whose layers are there; a tag that another image had is now this one's.
    pub(super) fn name(
        &self,
        reference: &Reference,
        digest: Option<&str>,
        id: String,
        size: u64,
        layers: Vec<String>,
        config: RunConfig,
    ) -> Result<String, PullError> {
        {
            let mut index = self.index.lock();
            let tag = reference.tagged();
            for image in &mut index.images {
                image.tags.retain(|known| Some(known) != tag.as_ref());
            }
            if let Some(gone) = layers.iter().find(|chain| !index.layers.contains_key(*chain)) {
                let error = std::io::Error::other(format!("layer {gone} was removed meanwhile"));
                return Err(PullError::Disk { what: "cannot enter the image".into(), error });
            }
            let place = index.images.iter().position(|image| image.id == id);
            let place = place.unwrap_or_else(|| {
                let (tags, digests) = (Vec::new(), Vec::new());
                index.images.push(Image { id: id.clone(), tags, digests, size, layers, config });
                index.images.len() - 1
            });
            let image = &mut index.images[place];
            image.tags.extend(tag);
            let named = digest.map(|digest| reference.with_digest(digest));
            if let Some(named) = named.filter(|named| !image.digests.contains(named)) {
                image.digests.push(named);
            }
        }
        self.save().map_err(PullError::disk("cannot write the index of images"))?;
        Ok(id)
    }
}

fn unpack_into(
    folder: &Path,
    archive: &Path,
    lower: &[PathBuf],
    diff_id: &str,
) -> Result<(u64, u64), unpack::UnpackError> {
    let read = unpack::UnpackError::Read;
    let new = folder.with_extension("new");
    let (own, work, merged) = (new.join("fs"), new.join("work"), new.join("merged"));
    for part in [&own, &work, &merged] {
        std::fs::create_dir_all(part).map_err(read)?;
    }
    crate::state::open_to_all(&own).map_err(read)?;
    let archive = std::fs::File::open(archive).map_err(read)?;
    let limits = unpack::Limits::of(archive.metadata().map_err(read)?.len());
    if lower.is_empty() {
        unpack::unpack(archive, &own, diff_id, limits)?;
    } else {
        let extra = ",index=off,metacopy=off,redirect_dir=off";
        crate::overlay::assemble(lower, Some((&own, &work)), extra, &merged).map_err(read)?;
        let unpacked = unpack::unpack(archive, &merged, diff_id, limits);
        crate::overlay::take_away(&merged);
        unpacked?;
    }
    let _ = ferry_podfs::remove_all(&work);
    let _ = std::fs::remove_dir(merged);
    // The index will say that the layer is there: it has to be, whatever happens to the machine.
    let opened = std::fs::File::open(&new).map_err(read)?;
    rustix::fs::syncfs(&opened).map_err(|error| read(error.into()))?;
    std::fs::rename(&new, folder).map_err(read)?;
    Ok(crate::state::usage(&folder.join("fs")))
}

pub(super) fn chains(diff_ids: &[String]) -> Vec<String> {
    let mut chains: Vec<String> = Vec::with_capacity(diff_ids.len());
    for id in diff_ids {
        let chain = match chains.last() {
            None => id.clone(),
            Some(below) => format!("sha256:{:x}", Sha256::digest(format!("{below} {id}"))),
        };
        chains.push(chain);
    }
    chains
}

pub(super) fn parse<T: for<'a> Deserialize<'a>>(bytes: &[u8], what: &str) -> Result<T, PullError> {
    serde_json::from_slice(bytes).map_err(|e| PullError::Malformed { what: what.to_owned(), why: e.to_string() })
}

/// The manifest for this machine.
async fn manifest(session: &Session<'_>, top: Document) -> Result<Manifest, PullError> {
    let Ok(choice) = serde_json::from_slice::<Choice>(&top.bytes) else {
        return parse(&top.bytes, &format!("the manifest ({})", top.kind));
    };
    let wanted = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let fits = |d: &&Descriptor| d.platform.as_ref().is_some_and(|p| p.os == "linux" && p.architecture == wanted);
    let Some(chosen) = choice.manifests.iter().find(fits).filter(|d| is_digest(&d.digest)) else {
        let why = format!("no match for platform linux/{wanted}");
        return Err(PullError::Malformed { what: "the image's index".into(), why });
    };
    let document = session.manifest(&chosen.digest).await?;
    parse(&document.bytes, &format!("the manifest ({})", document.kind))
}

fn check(manifest: &Manifest) -> Result<(), PullError> {
    let wrong = |why: String| PullError::Malformed { what: "the manifest".into(), why };
    if manifest.layers.is_empty() || manifest.layers.len() > MOST_LAYERS {
        return Err(wrong(format!("{} layers", manifest.layers.len())));
    }
    for part in manifest.layers.iter().chain([&manifest.config]) {
        if !is_digest(&part.digest) {
            return Err(wrong(format!("{:?} is no digest", part.digest)));
        }
    }
    Ok(())
}
