//! A cluster in one file: its state, and its keys if a passphrase is given.
//!
//! `ferry-cluster-backup 1`, a line of JSON, then the engine's own form of the state (a backup of the embedded store, or the
//! database of etcd), then a SHA-256 of all before it.

pub mod keys;
pub mod rotation;

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use aws_lc_rs::digest::{Context as Digest, SHA256, SHA256_OUTPUT_LEN};
use ferry_store::StoreError;
use serde::{Deserialize, Serialize};

use self::keys::Sealed;
use crate::fleet::token::random_word;

const MAGIC: &str = "ferry-cluster-backup 1\n";
const FAMILY: &str = "ferry-cluster-backup ";
/// The line of JSON holds keys and a few files.
const LONGEST_HEADER: u64 = 16 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Engine {
    Embedded,
    Etcd,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Header {
    pub engine: Engine,
    /// When it was taken, as RFC 3339 writes it.
    pub taken: String,
    pub keys: Option<Sealed>,
}

/// A folder for what is not whole yet, removed when it is dropped.
pub struct Temporary(PathBuf);

impl Temporary {
    /// A new one beside a file, for nobody else: neither what has a similar name nor what a link leads to is touched.
    pub fn beside(target: &Path) -> Result<Self> {
        let mut name = target.as_os_str().to_owned();
        name.push(format!(".partial-{}", random_word(12)?));
        let path = PathBuf::from(name);
        let created = DirBuilder::new().mode(0o700).create(&path);
        created.with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Self(path))
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn create_private(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create_new(true).mode(0o600);
    options.open(path).with_context(|| format!("cannot write {}", path.display()))
}

/// Under its own name only once it is whole and durable.
pub fn write(target: &Path, header: &Header, state: &Path) -> Result<()> {
    let folder = Temporary::beside(target)?;
    let partial = folder.file("backup");
    let mut file = create_private(&partial)?;
    let mut sum = Digest::new(&SHA256);
    let mut put = |bytes: &[u8]| {
        sum.update(bytes);
        file.write_all(bytes).with_context(|| format!("cannot write {}", partial.display()))
    };
    put(MAGIC.as_bytes())?;
    put(format!("{}\n", serde_json::to_string(header)?).as_bytes())?;
    let mut source = File::open(state).with_context(|| format!("cannot read {}", state.display()))?;
    let mut buffer = vec![0; 1 << 20];
    loop {
        let count = source.read(&mut buffer).with_context(|| format!("cannot read {}", state.display()))?;
        if count == 0 {
            break;
        }
        put(&buffer[..count])?;
    }
    file.write_all(sum.finish().as_ref())
        .and_then(|()| file.sync_all())
        .context("cannot write the backup's checksum")?;
    fs::rename(&partial, target).with_context(|| format!("cannot create {}", target.display()))?;
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder).and_then(|folder| folder.sync_all()).with_context(|| format!("cannot sync {}", folder.display()))
}

/// A backup whose checksum is right.
pub struct Backup {
    pub header: Header,
    file: File,
    begin: u64,
    end: u64,
}

impl Backup {
    /// None where the file is of another kind.
    pub fn open(path: &Path) -> Result<Option<Self>> {
        let damaged = |why: &str| StoreError::Corrupt(format!("the backup {} is damaged: {why}", path.display()));
        let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
        let length = file.metadata()?.len();
        let mut reader = BufReader::with_capacity(1 << 20, &file);
        let mut magic = vec![0; MAGIC.len()];
        if reader.read_exact(&mut magic).is_err() || !magic.starts_with(FAMILY.as_bytes()) {
            return Ok(None);
        }
        ensure!(magic == MAGIC.as_bytes(), "the backup {} is from another version of Ferry", path.display());
        let mut line = Vec::new();
        (&mut reader).take(LONGEST_HEADER).read_until(b'\n', &mut line)?;
        let begin = (magic.len() + line.len()) as u64;
        let Some(end) =
            length.checked_sub(SHA256_OUTPUT_LEN as u64).filter(|end| *end >= begin && line.ends_with(b"\n"))
        else {
            bail!(damaged("it ends early"));
        };
        // Before anything in it is believed.
        let mut sum = Digest::new(&SHA256);
        sum.update(&magic);
        sum.update(&line);
        let (mut left, mut buffer) = (end - begin, vec![0; 1 << 20]);
        while left > 0 {
            let part = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
            reader.read_exact(&mut buffer[..part])?;
            sum.update(&buffer[..part]);
            left -= part as u64;
        }
        let mut told = [0; SHA256_OUTPUT_LEN];
        reader.read_exact(&mut told)?;
        if sum.finish().as_ref() != told {
            bail!(damaged("its checksum is wrong"));
        }
        let header = serde_json::from_slice(&line)
            .with_context(|| format!("the backup {} is from another version of Ferry", path.display()))?;
        Ok(Some(Self { header, file, begin, end }))
    }

    /// The state as its engine knows it, as a file of its own.
    pub fn extract(&self, target: &Path) -> Result<()> {
        let (mut source, mut copy) = (&self.file, create_private(target)?);
        source.seek(SeekFrom::Start(self.begin))?;
        let copied = std::io::copy(&mut source.take(self.end - self.begin), &mut copy)
            .with_context(|| format!("cannot write {}", target.display()))?;
        ensure!(copied == self.end - self.begin, "the backup changed while it was read");
        copy.sync_all().with_context(|| format!("cannot write {}", target.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::keys::Keys;
    use super::*;

    #[test]
    fn a_backup_is_whole_or_refused_and_its_keys_need_the_passphrase() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let pki = ferry_server::pki::Pki::open(&path("data/pki")).unwrap();
        pki.signing_key().unwrap();
        let keys = Keys::collect(&path("data"), None).unwrap();
        fs::write(path("state"), "the state\n").unwrap();
        let header =
            Header { engine: Engine::Etcd, taken: "now".into(), keys: Some(keys.seal(b"correct horse").unwrap()) };
        // Files beside it that are somebody's own stay, whatever they are called.
        let mine = ["backup.partial", "backup.state", "backup.check"].map(path);
        for file in &mine {
            fs::write(file, "mine").unwrap();
        }
        let before = fs::read_dir(folder.path()).unwrap().count();
        write(&path("backup"), &header, &path("state")).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), before + 1, "nothing else is left");
        assert!(mine.iter().all(|file| fs::read_to_string(file).unwrap() == "mine"));
        let bytes = fs::read(path("backup")).unwrap();
        assert!(!bytes.windows(11).any(|part| part == b"PRIVATE KEY"));

        let backup = Backup::open(&path("backup")).unwrap().unwrap();
        backup.extract(&path("copy")).unwrap();
        assert_eq!(fs::read_to_string(path("copy")).unwrap(), "the state\n");
        assert!(backup.extract(&mine[0]).is_err(), "a file that is there is not written over");
        let sealed = backup.header.keys.unwrap();
        let error = sealed.open(b"wrong horse").err().unwrap().to_string();
        assert!(error.contains("the passphrase is another one"), "{error}");
        sealed.open(b"correct horse").unwrap().unpack(&path("new")).unwrap();
        let copy = ferry_server::pki::Pki::open(&path("new/pki")).unwrap();
        assert_eq!(copy.ca_certificate(), pki.ca_certificate());
        assert_eq!(copy.signing_key().unwrap(), pki.signing_key().unwrap());
        let error = sealed.open(b"correct horse").unwrap().unpack(&path("new")).unwrap_err().to_string();
        assert!(error.contains("holds the keys of a cluster already"), "{error}");

        for at in [30, bytes.len() / 2, bytes.len() - 1] {
            let mut bent = bytes.clone();
            bent[at] ^= 1;
            fs::write(path("bent"), bent).unwrap();
            assert!(Backup::open(&path("bent")).is_err(), "byte {at}");
        }
        for length in [MAGIC.len(), 100, bytes.len() - 1] {
            fs::write(path("cut"), &bytes[..length]).unwrap();
            assert!(Backup::open(&path("cut")).is_err(), "{length} bytes");
        }
        fs::write(path("other"), "ferry-backup 1\n and so on").unwrap();
        assert!(Backup::open(&path("other")).unwrap().is_none());
        fs::write(path("newer"), "ferry-cluster-backup 2\n{}").unwrap();
        assert!(Backup::open(&path("newer")).err().unwrap().to_string().contains("another version"));
    }
}
