//! The users of pods with `hostUsers: false`: each pod gets a range of the machine's ids that is nobody else's.
//!
//! A range is a file in the pod's folder, and nothing else knows of it. So it is kept over restarts, and given back when the
//! folder is removed, which happens after the pod's last container is gone. Name and form of the file are upstream's, so that
//! either kubelet can take over from the other.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use ferry_cri::v1::{IdMapping, NamespaceMode, UserNamespace};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// How many ids a pod has, unless more are wanted: those that fit into 16 bits, which is what images use.
pub(crate) const LENGTH: u32 = 65_536;
/// Beyond it are ids that some programs take for negative ones.
const END: u32 = 1 << 31;
const FILE: &str = "userns";
/// Files of upstream's kubelet are a line.
const LONGEST_FILE: u64 = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mapping {
    host_id: u32,
    container_id: u32,
    length: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mappings {
    uid_mappings: Vec<Mapping>,
    gid_mappings: Vec<Mapping>,
}

impl Mappings {
    fn new(host_id: u32, length: u32) -> Self {
        let all = vec![Mapping { host_id, container_id: 0, length }];
        Self { uid_mappings: all.clone(), gid_mappings: all }
    }

    /// The one range that both users and groups have.
    fn range(&self) -> Option<(u32, u32)> {
        match (self.uid_mappings.as_slice(), self.gid_mappings.as_slice()) {
            ([one], [same]) if one == same && one.container_id == 0 && one.host_id >= LENGTH && one.length > 0 => {
                Some((one.host_id, one.host_id.checked_add(one.length)?))
            }
            _ => None,
        }
    }

    fn options(&self) -> UserNamespace {
        let told = |list: &[Mapping]| {
            let one = |m: &Mapping| IdMapping { host_id: m.host_id, container_id: m.container_id, length: m.length };
            list.iter().map(one).collect()
        };
        UserNamespace {
            mode: NamespaceMode::Pod.into(),
            uids: told(&self.uid_mappings),
            gids: told(&self.gid_mappings),
        }
    }
}

pub(crate) struct UserNamespaces {
    /// Holds a folder for each pod.
    pods: PathBuf,
    /// Ids that the machine's administrator has given to others.
    others: [PathBuf; 2],
    /// Of pods that have none yet.
    ids_per_pod: u32,
    one_at_a_time: Mutex<()>,
}

impl UserNamespaces {
    pub(crate) fn new(root: &Path, ids_per_pod: u32) -> Self {
        let others = ["/etc/subuid", "/etc/subgid"].map(PathBuf::from);
        Self { pods: root.join("pods"), others, ids_per_pod, one_at_a_time: Mutex::default() }
    }

    /// The users of a pod, which are the same from its first container to its last. Blocks.
    pub(crate) fn of(&self, uid: &str) -> Result<UserNamespace, String> {
        let _only = self.one_at_a_time.lock();
        let folder = self.pods.join(uid);
        if let Some(known) = read(&folder.join(FILE)).map_err(|why| format!("user namespace: {why}"))? {
            return Ok(known.options());
        }
        let failed = |why: String| format!("create user namespace: {why}");
        let taken = self.taken().map_err(failed)?;
        let host_id = free(&taken, self.first(), self.ids_per_pod)
            .ok_or_else(|| failed("could not find an empty slot to allocate a user namespace".to_owned()))?;
        let new = Mappings::new(host_id, self.ids_per_pod);
        write(&folder, &new).map_err(|error| failed(format!("{}: {error}", folder.display())))?;
        Ok(new.options())
    }

    /// Nodes on one machine know nothing of each other's pods, and begin in different places.
    fn first(&self) -> u32 {
        let mut hasher = DefaultHasher::new();
        self.pods.hash(&mut hasher);
        u32::try_from(hasher.finish() % u64::from(ranges(self.ids_per_pod).max(1))).unwrap_or(0)
    }

    /// Ranges that are somebody's, with their ends.
    fn taken(&self) -> Result<Vec<(u32, u32)>, String> {
        let mut taken: Vec<(u32, u32)> = self.others.iter().flat_map(|file| granted(file)).collect();
        let entries = match fs::read_dir(&self.pods) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(taken),
            other => other.map_err(|error| format!("{}: {error}", self.pods.display()))?,
        };
        for entry in entries {
            let entry = entry.map_err(|error| format!("{}: {error}", self.pods.display()))?;
            // One that cannot be read could be any range.
            taken.extend(read(&entry.path().join(FILE))?.and_then(|known| known.range()));
        }
        Ok(taken)
    }
}

/// How many ranges of so many ids there are. The ids of the first are the machine's own.
pub(crate) fn ranges(ids_per_pod: u32) -> u32 {
    (END / ids_per_pod.max(LENGTH)).saturating_sub(1)
}

/// The first range from slot `first` on that overlaps none.
fn free(taken: &[(u32, u32)], first: u32, ids_per_pod: u32) -> Option<u32> {
    let slots = ranges(ids_per_pod);
    (0..slots).map(|number| ((first + number) % slots + 1) * ids_per_pod).find(|begin| {
        let end = begin + ids_per_pod;
        taken.iter().all(|(from, to)| end <= *from || *to <= *begin)
    })
}

/// Ranges that users of this machine have for containers of their own: `name:first:count`.
fn granted(file: &Path) -> Vec<(u32, u32)> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let range = |line: &str| {
        let mut numbers = line.split(':').skip(1).map(|number| number.trim().parse::<u32>().ok());
        let (first, count) = (numbers.next()??, numbers.next()??);
        Some((first, first.saturating_add(count)))
    };
    text.lines().filter_map(range).collect()
}

fn read(file: &Path) -> Result<Option<Mappings>, String> {
    let wrong = |why: String| format!("invalid user namespace mappings file {}: {why}", file.display());
    let opened = match fs::File::open(file) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        other => other.map_err(|error| wrong(error.to_string()))?,
    };
    let mappings: Mappings =
        serde_json::from_reader(io::Read::take(opened, LONGEST_FILE)).map_err(|error| wrong(error.to_string()))?;
    match mappings.range() {
        Some(_) => Ok(Some(mappings)),
        None => Err(wrong("one range for users and groups from 0 on is expected".to_owned())),
    }
}

/// On the disk before anybody gets an id of it: two pods with the same ids could read each other's files.
fn write(folder: &Path, mappings: &Mappings) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let (file, new) = (folder.join(FILE), folder.join("userns.new"));
    let mut written = fs::File::create(&new)?;
    written.write_all(&serde_json::to_vec(mappings)?)?;
    written.sync_all()?;
    fs::rename(&new, &file)?;
    fs::File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(root: &Path, others: &Path) -> UserNamespaces {
        UserNamespaces { others: [others.to_owned(), root.join("absent")], ..UserNamespaces::new(root, LENGTH) }
    }

    fn first(told: &UserNamespace) -> u32 {
        assert_eq!((told.mode(), &told.uids), (NamespaceMode::Pod, &told.gids));
        assert_eq!((told.uids.len(), told.uids[0].container_id, told.uids[0].length), (1, 0, LENGTH));
        told.uids[0].host_id
    }

    #[test]
    fn ranges_are_kept_never_overlap_and_are_given_back() {
        let root = tempfile::tempdir().expect("a folder");
        let others = root.path().join("subuid");
        fs::write(&others, "").expect("written");
        let users = open(root.path(), &others);
        let mut given: Vec<u32> = ["a", "b", "c"].iter().map(|uid| first(&users.of(uid).expect("users"))).collect();
        assert_eq!(given.iter().map(|id| id % LENGTH).sum::<u32>(), 0);
        assert!(given.iter().all(|id| *id >= LENGTH), "root of the machine is in none: {given:?}");
        // Another kubelet on the same folder: after a restart, or upstream's.
        let again = open(root.path(), &others);
        assert_eq!(given, ["a", "b", "c"].map(|uid| first(&again.of(uid).expect("users"))));
        given.push(first(&again.of("d").expect("users")));
        let mut distinct = given.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), 4, "{given:?}");
        fs::remove_dir_all(root.path().join("pods/b")).expect("removed");
        assert_eq!(first(&again.of("e").expect("users")), given[1], "what was given back is free");
    }

    #[test]
    fn ids_of_others_are_left_alone() {
        let root = tempfile::tempdir().expect("a folder");
        let others = root.path().join("subuid");
        let own = open(root.path(), &others);
        let wanted = (own.first() % (END / LENGTH - 1) + 1) * LENGTH;
        fs::write(&others, format!("podman:{}:2\n", wanted + 7)).expect("written");
        assert_eq!(
            free(&own.taken().expect("ranges"), own.first(), LENGTH),
            Some(((own.first() + 1) % (END / LENGTH - 1) + 1) * LENGTH)
        );
        assert_eq!(free(&[(0, u32::MAX)], 3, LENGTH), None);
    }

    #[test]
    fn a_pod_has_as_many_ids_as_the_node_gives() {
        let root = tempfile::tempdir().expect("a folder");
        let others = root.path().join("subuid");
        let few = first(&open(root.path(), &others).of("few").expect("users"));
        let many = UserNamespaces { ids_per_pod: 4 * LENGTH, ..open(root.path(), &others) };
        let told = many.of("many").expect("users");
        let (begin, length) = (told.uids[0].host_id, told.uids[0].length);
        assert_eq!((length, begin % length), (4 * LENGTH, 0));
        assert!(few + LENGTH <= begin || begin + length <= few, "{few} is in {begin}");
        // What a pod has stays.
        assert_eq!(first(&many.of("few").expect("users")), few);
        assert_eq!((ranges(LENGTH), ranges(1 << 30), ranges(1 << 31), ranges(u32::MAX)), (32_767, 1, 0, 0));
    }

    #[test]
    fn a_file_that_says_nothing_clear_keeps_pods_out() {
        let root = tempfile::tempdir().expect("a folder");
        let users = open(root.path(), &root.path().join("subuid"));
        fs::create_dir_all(root.path().join("pods/broken")).expect("a folder");
        let file = root.path().join("pods/broken/userns");
        let one = |host: u32, inside: u32| format!("[{{\"hostId\":{host},\"containerId\":{inside},\"length\":65536}}]");
        let both = |uids: String, gids: String| format!("{{\"uidMappings\":{uids},\"gidMappings\":{gids}}}");
        for text in [
            String::new(),
            "{".to_owned(),
            both(one(65_536, 0), one(131_072, 0)),
            both(one(65_536, 1), one(65_536, 1)),
            both(one(0, 0), one(0, 0)),
        ] {
            fs::write(&file, &text).expect("written");
            for uid in ["broken", "other"] {
                let why = users.of(uid).expect_err("refused");
                assert!(why.contains("invalid user namespace mappings file"), "{text}: {why}");
            }
        }
        fs::write(&file, both(one(131_072, 0), one(131_072, 0))).expect("written");
        assert_eq!(first(&users.of("broken").expect("users")), 131_072);
    }
}
