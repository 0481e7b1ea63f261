//! Volumes that are folders of this node: made and removed when the API server asks for it, and only by the names of volumes
//! that were made for claims.
//!
//! All of them are directly in one folder that nobody else gets at. A pod has one of them mounted, and so neither sees nor
//! moves what is beside it. Decision 270 has the reasons.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ferry_podfs::Root;
pub(crate) use ferry_semantics::local_volumes::SERVES;
use ferry_semantics::local_volumes::is_name;
use ferry_tasks::Tasks;
use http::StatusCode;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, oneshot};

use crate::volumes::{blocking, uses_local_volume};

/// As emptyDir has it: the pod's user is not known here, and changes. Whoever is no pod does not get to it.
const MODE: u32 = 0o777;
/// Volumes whose files are removed at the same time: each takes a thread, and the disk.
const REMOVED_AT_ONCE: usize = 2;
/// How long a caller waits for a removal, which goes on without it.
const PATIENCE: Duration = Duration::from_secs(10);
/// An empty folder that was asked for less than this ago is not removed: its volume is being written, and whoever found that
/// there is none may have looked before. Longer than the API server waits for the kubelet, and the provisioner for the API
/// server.
const LATELY: Duration = Duration::from_secs(120);
/// Names in one answer.
const MOST_LISTED: usize = 10_000;

/// Why something is not done.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) code: StatusCode,
    pub(crate) why: String,
}

fn refuse(code: StatusCode, why: impl Into<String>) -> Refusal {
    Refusal { code, why: why.into() }
}

impl From<String> for Refusal {
    fn from(why: String) -> Self {
        refuse(StatusCode::INTERNAL_SERVER_ERROR, why)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Removal {
    Done,
    /// There is a lot to remove.
    Underway,
    /// Only an empty one was to be removed.
    NotEmpty,
    /// Only an empty one was to be removed, and somebody is about to use it.
    MadeLately,
}

pub(crate) struct LocalVolumes {
    root: PathBuf,
    /// Where pods note what they use.
    pods: PathBuf,
    /// Whoever is at work on a volume has its name here.
    busy: Arc<Mutex<HashSet<String>>>,
    /// When volumes were last asked for, of those of the time [`LATELY`].
    made: Mutex<HashMap<String, Instant>>,
    lately: Duration,
    room: Arc<Semaphore>,
    tasks: Tasks,
}

/// A name for as long as something is done with it.
struct Busy(Arc<Mutex<HashSet<String>>>, String);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.lock().remove(&self.1);
    }
}

impl LocalVolumes {
    pub(crate) fn new(root: PathBuf, pods: PathBuf, tasks: &Tasks) -> Self {
        Self {
            root,
            pods,
            busy: Arc::default(),
            made: Mutex::default(),
            lately: LATELY,
            room: Arc::new(Semaphore::new(REMOVED_AT_ONCE)),
            tasks: tasks.clone(),
        }
    }

    fn take(&self, name: &str) -> Option<Busy> {
        self.busy.lock().insert(name.to_owned()).then(|| Busy(self.busy.clone(), name.to_owned()))
    }

    /// Makes the folder of a volume of so many bytes, and tells where it is. May be repeated.
    pub(crate) async fn make(&self, name: &str, bytes: u64) -> Result<PathBuf, Refusal> {
        check(name)?;
        let busy = self.take(name);
        let busy = busy.ok_or_else(|| refuse(StatusCode::CONFLICT, format!("{name} is being made or removed")))?;
        self.asked_for(name);
        let (root, name) = (self.root.clone(), name.to_owned());
        blocking(move || {
            let _busy = busy;
            Ok(make(&root, Path::new(&name), bytes))
        })
        .await?
    }

    fn asked_for(&self, name: &str) {
        let mut made = self.made.lock();
        made.retain(|_, at| at.elapsed() < self.lately);
        made.insert(name.to_owned(), Instant::now());
    }

    fn was_made_lately(&self, name: &str) -> bool {
        self.made.lock().get(name).is_some_and(|at| at.elapsed() < self.lately)
    }

    /// Removes a volume with all that is in it, or only when nothing is.
    pub(crate) async fn remove(&self, name: &str, only_empty: bool) -> Result<Removal, Refusal> {
        check(name)?;
        let Some(busy) = self.take(name) else { return Ok(Removal::Underway) };
        // Nobody makes it from here on.
        if only_empty && self.was_made_lately(name) {
            return Ok(Removal::MadeLately);
        }
        let (root, pods, folder) = (self.root.clone(), self.pods.clone(), name.to_owned());
        let (tell, told) = oneshot::channel();
        let room = self.room.clone();
        self.tasks.spawn_until_stopped("removal of a volume", async move {
            let Ok(_room) = room.acquire_owned().await else { return };
            let removed = blocking(move || {
                let _busy = busy;
                Ok(remove(&root, &pods, &folder, only_empty))
            });
            let removed = removed.await.map_err(Refusal::from).and_then(|removed| removed);
            // Whoever asked has gone on; they ask again.
            let _ = tell.send(removed);
        });
        match tokio::time::timeout(PATIENCE, told).await {
            Ok(Ok(removed)) => removed,
            Ok(Err(_)) => Err(refuse(StatusCode::SERVICE_UNAVAILABLE, "the kubelet stops")),
            Err(_) => Ok(Removal::Underway),
        }
    }

    /// The volumes that have nothing in them.
    pub(crate) async fn empty(&self) -> Result<Vec<String>, Refusal> {
        let root = self.root.clone();
        let names = blocking(move || {
            let listed = Root::open(&root).and_then(|root| ferry_podfs::empty_folders(&root, MOST_LISTED));
            listed.map_err(|error| error.to_string())
        });
        let names = names.await?.into_iter().filter_map(|name| name.into_string().ok());
        Ok(names.filter(|name| is_name(name)).collect())
    }
}

fn check(name: &str) -> Result<(), Refusal> {
    if is_name(name) {
        return Ok(());
    }
    Err(refuse(StatusCode::BAD_REQUEST, "a local volume is called pvc-UID, after the UID of its claim"))
}

fn make(root: &Path, name: &Path, bytes: u64) -> Result<PathBuf, Refusal> {
    let failed = |error: std::io::Error| Refusal::from(format!("making {}: {error}", root.join(name).display()));
    let folder = Root::open(root).map_err(failed)?;
    if !ferry_podfs::is_folder_at(&folder, name).map_err(failed)? {
        let free = ferry_podfs::free_bytes(root).map_err(failed)?;
        if free < bytes {
            let why = format!("its disk has {} free, and the claim requests {}", roughly(free), roughly(bytes));
            return Err(refuse(StatusCode::INSUFFICIENT_STORAGE, why));
        }
    }
    ferry_podfs::make_at(&folder, name, MODE).map_err(failed)?;
    Ok(root.join(name))
}

/// Rounded down: an Event that says the same again is one Event.
fn roughly(bytes: u64) -> String {
    match bytes >> 30 {
        0 => format!("{}Mi", bytes >> 20),
        whole => format!("{whole}Gi"),
    }
}

fn remove(root: &Path, pods: &Path, name: &str, only_empty: bool) -> Result<Removal, Refusal> {
    let failed = |error: std::io::Error| Refusal::from(format!("removing {}: {error}", root.join(name).display()));
    let unknown = |error: std::io::Error| Refusal::from(format!("whether a pod uses {name} is not known: {error}"));
    if let Some(pod) = uses_local_volume(pods, name).map_err(unknown)? {
        return Err(refuse(StatusCode::CONFLICT, format!("the pod with the UID {pod} still uses it")));
    }
    let folder = Root::open(root).map_err(failed)?;
    if only_empty {
        let gone = ferry_podfs::remove_empty_at(&folder, Path::new(name)).map_err(failed)?;
        return Ok(if gone { Removal::Done } else { Removal::NotEmpty });
    }
    ferry_podfs::remove_at(&folder, Path::new(name)).map_err(failed)?;
    Ok(Removal::Done)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    const NAME: &str = "pvc-0f8fad5b-d9cb-469f-a165-70867728950e";

    fn volumes(at: &Path) -> LocalVolumes {
        for folder in ["volumes", "pods"] {
            fs::create_dir_all(at.join(folder)).expect("a folder");
        }
        let volumes = LocalVolumes::new(at.join("volumes"), at.join("pods"), &Tasks::new("test"));
        LocalVolumes { lately: Duration::ZERO, ..volumes }
    }

    /// Its claim was given to the node a second time, after somebody had seen that it has no volume.
    #[tokio::test]
    async fn an_empty_volume_that_was_asked_for_again_is_not_removed() {
        let place = tempfile::tempdir().expect("a folder");
        let volumes = LocalVolumes { lately: LATELY, ..volumes(place.path()) };
        let made = volumes.make(NAME, 1).await.expect("made");
        assert_eq!(volumes.remove(NAME, true).await.expect("asked"), Removal::MadeLately);
        assert!(made.exists());
        // Who gives the volume up has it removed at once.
        assert_eq!(volumes.remove(NAME, false).await.expect("removed"), Removal::Done);
        assert!(!made.exists());
        volumes.make(NAME, 1).await.expect("made");
        let later = LocalVolumes { lately: Duration::ZERO, ..volumes };
        assert_eq!(later.remove(NAME, true).await.expect("removed"), Removal::Done);
        later.make("pvc-1f8fad5b-d9cb-469f-a165-70867728950e", 1).await.expect("made");
        assert_eq!(later.made.lock().len(), 1, "what is long ago is forgotten");
    }

    #[tokio::test]
    async fn a_volume_is_made_once_and_removed_as_a_whole() {
        let place = tempfile::tempdir().expect("a folder");
        let volumes = volumes(place.path());
        let made = volumes.make(NAME, 1).await.expect("made");
        assert_eq!(made, place.path().join("volumes").join(NAME));
        let mode = || fs::metadata(&made).expect("there").permissions().mode() & 0o7777;
        assert_eq!(mode(), 0o777);
        assert_eq!(volumes.empty().await.expect("listed"), [NAME]);

        // What a pod has done with it stays as it is.
        fs::write(made.join("data"), "kept").expect("written");
        fs::set_permissions(&made, fs::Permissions::from_mode(0o700)).expect("by the pod");
        volumes.make(NAME, u64::MAX).await.expect("there already, whatever its size");
        assert_eq!((mode(), fs::read_to_string(made.join("data")).expect("kept")), (0o700, "kept".to_owned()));
        assert!(volumes.empty().await.expect("listed").is_empty());

        assert_eq!(volumes.remove(NAME, true).await.expect("asked"), Removal::NotEmpty);
        // A link leads nowhere when things are removed.
        let beside = place.path().join("beside");
        fs::write(&beside, "others'").expect("written");
        symlink(&beside, made.join("link")).expect("a link");
        symlink(place.path(), made.join("up")).expect("a link");
        assert_eq!(volumes.remove(NAME, false).await.expect("removed"), Removal::Done);
        assert!(!made.exists() && beside.exists());
        assert_eq!(volumes.remove(NAME, false).await.expect("again"), Removal::Done);
    }

    #[tokio::test]
    async fn what_is_used_or_too_large_is_refused() {
        let place = tempfile::tempdir().expect("a folder");
        let volumes = volumes(place.path());
        let full = volumes.make(NAME, u64::MAX).await.expect_err("no disk has that");
        assert_eq!(full.code, StatusCode::INSUFFICIENT_STORAGE);
        assert!(full.why.contains("i free, and the claim requests 17179869183Gi"), "{}", full.why);
        assert_eq!((roughly((5 << 30) - 1), roughly(3 << 19)), ("4Gi".to_owned(), "1Mi".to_owned()));
        let made = volumes.make(NAME, 0).await.expect("made");

        let pod = place.path().join("pods/the-pod");
        crate::volumes::note_local_volume(&pod, NAME).expect("noted");
        let used = volumes.remove(NAME, false).await.expect_err("used");
        assert_eq!(used.code, StatusCode::CONFLICT);
        assert!(used.why.contains("the-pod") && made.exists(), "{}", used.why);
        fs::remove_dir_all(pod).expect("the pod is gone");
        assert_eq!(volumes.remove(NAME, false).await.expect("removed"), Removal::Done);
    }

    /// Who cannot look for the users of a volume has not found that there are none.
    #[tokio::test]
    async fn a_volume_stays_where_its_users_are_not_known() {
        let place = tempfile::tempdir().expect("a folder");
        let volumes = volumes(place.path());
        let made = volumes.make(NAME, 0).await.expect("made");
        let pods = place.path().join("pods");
        fs::remove_dir(&pods).expect("empty");
        fs::write(&pods, "no folder").expect("written");
        let refused = volumes.remove(NAME, false).await.expect_err("not known");
        assert_eq!(refused.code, StatusCode::INTERNAL_SERVER_ERROR);
        assert!(refused.why.contains("whether a pod uses") && made.exists(), "{}", refused.why);
        fs::remove_file(&pods).expect("removed");
        assert_eq!(volumes.remove(NAME, false).await.expect("no pod was here yet"), Removal::Done);
    }

    #[tokio::test]
    async fn nothing_else_is_reached_by_a_name() {
        let place = tempfile::tempdir().expect("a folder");
        let volumes = volumes(place.path());
        let outside = place.path().join("outside");
        fs::create_dir(&outside).expect("a folder");
        for name in ["..", "../outside", "", ".", "pvc-", "/etc", "other"] {
            assert_eq!(volumes.make(name, 0).await.expect_err(name).code, StatusCode::BAD_REQUEST);
            assert_eq!(volumes.remove(name, false).await.expect_err(name).code, StatusCode::BAD_REQUEST);
        }
        // Somebody has put a link where the volume would be: it is not followed, and only it is removed.
        symlink(&outside, place.path().join("volumes").join(NAME)).expect("a link");
        volumes.make(NAME, 0).await.expect_err("a link");
        assert!(volumes.empty().await.expect("listed").is_empty());
        volumes.remove(NAME, false).await.expect("the link");
        assert!(outside.exists());
    }
}
