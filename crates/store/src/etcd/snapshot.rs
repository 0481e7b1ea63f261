//! The whole of one member in a file, and a file as the beginning of a new cluster.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use aws_lc_rs::digest::{Context, SHA256, SHA256_OUTPUT_LEN};

use super::EtcdTls;
use super::api::rpc::{DefragmentRequest, SnapshotRequest};
use super::api::{Client, describe};
use super::bolt::Database;
use crate::types::Revision;
use crate::{Result, StoreError};

/// A member that sends nothing for so long is given up.
const PATIENCE: Duration = Duration::from_secs(30);
/// A member answers nothing else meanwhile; large ones take their time.
const DEFRAGMENT_PATIENCE: Duration = Duration::from_secs(300);

/// What a snapshot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshot {
    pub revision: Revision,
    /// Changes in the history.
    pub changes: u64,
}

/// Writes what a member has to a new file. It is whole: the member sends a checksum behind it.
pub async fn save(endpoint: &str, tls: Option<&EtcdTls>, target: &Path) -> Result<Snapshot> {
    let silent = || StoreError::Unavailable(format!("etcd sent nothing for {PATIENCE:?}"));
    let failed =
        |error: &std::io::Error| StoreError::Unavailable(format!("cannot write {}: {error}", target.display()));
    let client = Client::new(endpoint, tls)?;
    let mut maintenance = client.maintenance();
    let refused = |status: &tonic::Status| StoreError::Unavailable(format!("etcd: {}", describe(status)));
    let asked = tokio::time::timeout(PATIENCE, maintenance.snapshot(SnapshotRequest {})).await;
    let mut pieces = asked.map_err(|_| silent())?.map_err(|status| refused(&status))?.into_inner();
    let mut file = create(target).map_err(|error| failed(&error))?;
    let received = async {
        let (mut sum, mut last) = (Context::new(&SHA256), Vec::new());
        loop {
            let piece = tokio::time::timeout(PATIENCE, pieces.message()).await.map_err(|_| silent())?;
            let Some(piece) = piece.map_err(|status| refused(&status))? else { break };
            last.extend_from_slice(&piece.blob);
            let ready = last.len().saturating_sub(SHA256_OUTPUT_LEN);
            sum.update(&last[..ready]);
            file.write_all(&last[..ready]).map_err(|error| failed(&error))?;
            last.drain(..ready);
        }
        if sum.finish().as_ref() != last {
            return Err(StoreError::Corrupt("etcd did not send a whole snapshot".into()));
        }
        file.sync_all().map_err(|error| failed(&error))?;
        examine(target)
    };
    received.await.inspect_err(|_| {
        // So that another member can be asked.
        let _ = std::fs::remove_file(target);
    })
}

fn create(target: &Path) -> std::io::Result<File> {
    // Secrets may be in it. What is there already is somebody else's, and so is what a link leads to.
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(target)
}

/// Reads all of a snapshot.
pub fn examine(path: &Path) -> Result<Snapshot> {
    let (revision, changes) = Database::open(path, false)?.summary()?;
    Ok(Snapshot { revision, changes })
}

/// Where the members serve their clients, as the database of one that does not run knows them.
pub fn client_urls(path: &Path) -> Result<Vec<String>> {
    Database::open(path, false)?.client_urls()
}

/// Makes a snapshot one that a new cluster can begin with.
pub fn forget_members(path: &Path) -> Result<()> {
    Database::open(path, true)?.forget_members()
}

/// Gives back what one member's file holds in vain. The member answers nothing meanwhile.
pub async fn defragment(endpoint: &str, tls: Option<&EtcdTls>) -> Result<()> {
    let client = Client::new(endpoint, tls)?;
    let mut maintenance = client.maintenance();
    match tokio::time::timeout(DEFRAGMENT_PATIENCE, maintenance.defragment(DefragmentRequest {})).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(status)) => Err(StoreError::Unavailable(format!("etcd: {}", describe(&status)))),
        Err(_) => Err(StoreError::Unavailable(format!("etcd was not done within {DEFRAGMENT_PATIENCE:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_there_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, link) = (folder.path().join("mine"), folder.path().join("link"));
        std::fs::write(&path, "mine").expect("written");
        std::os::unix::fs::symlink(&path, &link).expect("linked");
        assert!(create(&path).is_err() && create(&link).is_err());
        assert_eq!(std::fs::read_to_string(&path).expect("read"), "mine");
    }

    #[test]
    fn what_is_no_database_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("db");
        for bytes in [vec![], b"hello".to_vec(), vec![0; 8192], vec![0xff; 65536]] {
            std::fs::write(&path, &bytes).expect("written");
            assert!(matches!(examine(&path), Err(StoreError::Corrupt(_))), "{} bytes", bytes.len());
            assert!(forget_members(&path).is_err());
        }
    }

    /// An empty database of etcd's, made by hand: two meta pages, a list of free pages, and a root with two buckets in it.
    fn small() -> Vec<u8> {
        let mut bytes = vec![0_u8; 4 * 4096];
        let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
        let bucket = |key: &[u8], value: &[u8]| {
            let mut inline = vec![0_u8; 16];
            inline.extend([0; 8]);
            inline.extend([2, 0, 1, 0, 0, 0, 0, 0]);
            for number in [0, 16, key.len(), value.len()] {
                inline.extend(u32::try_from(number).expect("small").to_le_bytes());
            }
            inline.extend([key, value].concat());
            inline
        };
        let mut revision = 7_u64.to_be_bytes().to_vec();
        revision.push(b'_');
        revision.extend(0_u64.to_be_bytes());
        let all = [
            (&b"key"[..], bucket(&revision, b"x")),
            (b"members", bucket(b"1", br#"{"clientURLs":["https://192.0.2.1:2379"]}"#)),
            (b"meta", bucket(b"consistent_index", &9_u64.to_be_bytes())),
        ];
        let page = 3 * 4096;
        put(page + 8, &[2, 0, 3, 0]);
        let mut free = 16 + all.len() * 16;
        for (index, (key, value)) in all.iter().enumerate() {
            let element = 16 + index * 16;
            for (field, number) in [1, free - element, key.len(), value.len()].into_iter().enumerate() {
                put(page + element + field * 4, &u32::try_from(number).expect("small").to_le_bytes());
            }
            put(page + free, &[*key, value].concat());
            free += key.len() + value.len();
        }
        for number in 0..2_u64 {
            let mut meta = Vec::new();
            for word in [0xED0C_DAED_u32, 2, 4096, 0] {
                meta.extend(word.to_le_bytes());
            }
            for long in [3_u64, 0, 2, 4, number] {
                meta.extend(long.to_le_bytes());
            }
            let sum = meta
                .iter()
                .fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
            meta.extend(sum.to_le_bytes());
            put(usize::try_from(number).expect("small") * 4096 + 16, &meta);
        }
        bytes
    }

    #[test]
    fn members_are_forgotten_and_keys_are_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("db");
        let before = small();
        std::fs::write(&path, &before).expect("written");
        assert_eq!(examine(&path).expect("whole"), Snapshot { revision: 7, changes: 1 });
        assert_eq!(client_urls(&path).expect("whole"), ["https://192.0.2.1:2379"]);
        forget_members(&path).expect("done");
        assert!(client_urls(&path).expect("whole").is_empty());
        assert_eq!(examine(&path).expect("whole"), Snapshot { revision: 7, changes: 1 });
        let after = std::fs::read(&path).expect("read");
        let index = after.windows(16).position(|part| part == b"consistent_index").expect("there") + 16;
        assert_eq!(after[index..index + 8], [0; 8]);
        let changed = before.iter().zip(&after).filter(|(one, other)| one != other).count();
        assert_eq!(changed, 2, "the index, and the number of members");

        // Cut off or changed anywhere, it is refused or read, and nothing else.
        for at in (0..200).chain(3 * 4096..3 * 4096 + 600) {
            let mut bent = before.clone();
            bent[at] ^= 0xff;
            std::fs::write(&path, &bent).expect("written");
            let _ = examine(&path).and_then(|_| forget_members(&path));
        }
        for length in [0, 16, 100, 4096, 4096 * 3, before.len() - 1] {
            std::fs::write(&path, &before[..length]).expect("written");
            assert!(examine(&path).is_err(), "{length} bytes");
        }
    }
}
