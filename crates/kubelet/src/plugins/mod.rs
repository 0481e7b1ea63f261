//! Plug-ins of this node: whoever puts a socket into the folder of plug-ins is asked what it is, and known from then on
//! until the socket is gone.

mod csi_node;

use std::collections::{BTreeMap, HashMap};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ferry_plugins::csi::node_service_capability::Type as Capability;
use ferry_plugins::csi::node_service_capability::rpc::Type as Rpc;
use ferry_plugins::csi::{NodeGetCapabilitiesRequest, NodeGetInfoRequest};
use ferry_plugins::{Registrant, Status, Storage};
use futures::StreamExt;
use parking_lot::Mutex;

use crate::context::Context;
use crate::logs::FolderWatch;
use crate::{device_plugins, dra};

/// The folder is read again so often, should nothing tell of a change.
const LOOK: Duration = Duration::from_secs(30);
/// A plug-in that could not be registered is asked again after this.
const RETRY: Duration = Duration::from_secs(1);

/// So many are asked at a time.
const AT_ONCE: usize = 64;

/// What a plug-in is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Storage,
    Device,
    Claims,
}

impl Kind {
    fn of(name: &str) -> Option<Self> {
        match name {
            "CSIPlugin" => Some(Self::Storage),
            "DevicePlugin" => Some(Self::Device),
            "DRAPlugin" => Some(Self::Claims),
            _ => None,
        }
    }

    /// Whether a version of its interface is spoken here.
    fn speaks(self, version: &str) -> bool {
        match self {
            Self::Storage => is_first(version),
            Self::Device => version == device_plugins::VERSION,
            Self::Claims => version == dra::SERVICE,
        }
    }
}

/// A storage driver that has registered.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) storage: Storage,
    /// Volumes are staged once for the node before they are published to pods.
    pub(crate) stages: bool,
    pub(crate) single_writers: bool,
    /// It gives a volume to a group itself.
    pub(crate) groups: bool,
    /// A file system that has more room has to be told.
    pub(crate) expands: bool,
}

/// The drivers of this node by name.
#[derive(Default)]
pub(crate) struct Plugins {
    storage: Mutex<BTreeMap<String, Arc<Driver>>>,
    /// What the Node says of all drivers is one text, changed by one at a time.
    telling: tokio::sync::Mutex<()>,
}

impl Plugins {
    pub(crate) fn storage(&self, name: &str) -> Option<Arc<Driver>> {
        self.storage.lock().get(name).cloned()
    }
}

/// What tells one socket from another at the same place.
type Identity = (u64, i64, i64);

#[derive(Default)]
struct Known {
    identity: Identity,
    /// None: it could not be registered.
    name: Option<(Kind, String)>,
}

/// Follows the folder, for ever.
pub(crate) async fn follow(context: Arc<Context>) {
    let folder = context.config.root_dir.join("plugins_registry");
    if let Err(error) = std::fs::create_dir_all(&folder) {
        tracing::warn!("no plug-ins can register: {}: {error}", folder.display());
        return;
    }
    let mut shown = false;
    let watch = FolderWatch::new(&folder).ok();
    let mut known: HashMap<PathBuf, Known> = HashMap::new();
    loop {
        shown = shown || csi_node::ensure(&context).await;
        let failed = look(&context, &folder, &mut known).await || !shown;
        let changed = async {
            match &watch {
                Some(watch) if watch.changed().await.is_ok() => {}
                _ => std::future::pending().await,
            }
        };
        let _ = tokio::time::timeout(if failed { RETRY } else { LOOK }, changed).await;
    }
}

fn sockets(folder: &Path) -> HashMap<PathBuf, Identity> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let about = entry.metadata().ok().filter(|about| about.file_type().is_socket())?;
            Some((entry.path(), (about.ino(), about.ctime(), about.ctime_nsec())))
        })
        .collect()
}

/// Registers who is new and forgets who is gone. Gives whether somebody has to be asked again.
async fn look(context: &Arc<Context>, folder: &Path, known: &mut HashMap<PathBuf, Known>) -> bool {
    let there = sockets(folder);
    let gone: Vec<PathBuf> = known.keys().filter(|path| !there.contains_key(*path)).cloned().collect();
    for path in gone {
        let Some(named) = known.remove(&path).and_then(|known| known.name) else { continue };
        // The driver's next version may be there already, by another socket.
        if !known.values().any(|other| other.name.as_ref() == Some(&named)) {
            forget(context, named).await;
        }
    }
    let is_known = |(path, identity): &(PathBuf, Identity)| {
        known.get(path).is_some_and(|known| known.identity == *identity && known.name.is_some())
    };
    let new: Vec<(PathBuf, Identity)> = there.into_iter().filter(|one| !is_known(one)).collect();
    // One that does not answer holds nobody else up.
    let asked = futures::stream::iter(new).map(|(path, identity)| async move {
        let registered = register(context, &path).await;
        (path, identity, registered)
    });
    let mut answers = std::pin::pin!(asked.buffer_unordered(AT_ONCE));
    let mut failed = false;
    while let Some((path, identity, registered)) = answers.next().await {
        let name = match registered {
            Ok(name) => Some(name),
            Err(why) => {
                tracing::warn!("the plug-in at {} is not registered: {why}", path.display());
                failed = true;
                None
            }
        };
        known.insert(path, Known { identity, name });
    }
    failed
}

async fn forget(context: &Arc<Context>, (kind, name): (Kind, String)) {
    match kind {
        Kind::Storage => {
            context.hardware.plugins.storage.lock().remove(&name);
            csi_node::remove(context, &name).await;
            tracing::info!("the storage driver {name} is gone");
        }
        // Its stream of devices ends with it.
        Kind::Device => {}
        Kind::Claims => {
            context.hardware.dra.forget(&name);
            dra::withdraw(context, &name);
        }
    }
}

async fn register(context: &Context, socket: &Path) -> Result<(Kind, String), String> {
    let mut registrant = Registrant::new(ferry_cri::channel(socket));
    let short = |status: Status| status.message().to_owned();
    let info = registrant.info().await.map_err(short)?;
    let endpoint = if info.endpoint.is_empty() { socket } else { Path::new(&info.endpoint) };
    let outcome = match Kind::of(&info.r#type) {
        None => Err(format!("plug-ins of type {:?} are not known here", info.r#type)),
        Some(kind) if !info.supported_versions.iter().any(|version| kind.speaks(version)) => {
            Err(format!("none of the versions {:?} is spoken here", info.supported_versions))
        }
        Some(kind) => added(context, kind, &info.name, endpoint).await.map(|()| kind),
    };
    let told = registrant.told(outcome.clone().map(drop)).await.map_err(short);
    let kind = outcome?;
    told.map(|()| (kind, info.name))
}

async fn added(context: &Context, kind: Kind, name: &str, endpoint: &Path) -> Result<(), String> {
    match kind {
        Kind::Storage => add(context, name, endpoint).await,
        Kind::Device => context.hardware.devices.register_watched(name, endpoint).await,
        Kind::Claims => {
            context.hardware.dra.register(name, endpoint);
            Ok(())
        }
    }
}

/// Whether a version is one of `1.x`.
fn is_first(version: &str) -> bool {
    let version = version.trim_start_matches('v');
    version == "1" || version.starts_with("1.")
}

async fn add(context: &Context, name: &str, endpoint: &Path) -> Result<(), String> {
    // Volumes of the driver have folders of its name.
    let reasons = ferry_meta::names::dns1123_subdomain(&name.to_ascii_lowercase());
    if !reasons.is_empty() {
        return Err(format!("{name:?} is no name of a driver: {}", reasons.join("; ")));
    }
    let storage = Storage::new(ferry_cri::channel(endpoint));
    let short = |status: Status| status.message().to_owned();
    let about = storage.info(NodeGetInfoRequest {}).await.map_err(short)?;
    let offered = storage.capabilities(NodeGetCapabilitiesRequest {}).await.map_err(short)?.capabilities;
    let offers = |wanted: Rpc| {
        let rpcs = offered.iter().filter_map(|one| one.r#type.as_ref());
        rpcs.into_iter().any(|Capability::Rpc(rpc)| rpc.r#type() == wanted)
    };
    let driver = Driver {
        storage,
        stages: offers(Rpc::StageUnstageVolume),
        single_writers: offers(Rpc::SingleNodeMultiWriter),
        groups: offers(Rpc::VolumeMountGroup),
        expands: offers(Rpc::ExpandVolume),
    };
    let telling = context.hardware.plugins.telling.lock().await;
    csi_node::add(context, name, &about).await?;
    drop(telling);
    context.hardware.plugins.storage.lock().insert(name.to_owned(), Arc::new(driver));
    tracing::info!("the storage driver {name} has registered");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::is_first;

    #[test]
    fn versions_of_the_first_generation_are_spoken() {
        for (version, spoken) in [("1.0.0", true), ("v1.2", true), ("1", true), ("0.3.0", false), ("10.0", false)] {
            assert_eq!(is_first(version), spoken, "{version}");
        }
    }
}
