//! What is remembered on disk of a volume while it is published, beside it and in upstream's words: a kubelet that
//! starts again, of whatever make, knows whom to ask to take it back.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

const FILE: &str = "vol_data.json";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) driver: String,
    pub(super) handle: String,
    pub(super) name: String,
    pub(super) lifecycle: String,
    pub(super) attachment: String,
    pub(super) node: String,
}

impl Record {
    pub(super) fn write(&self, folder: &Path) -> io::Result<()> {
        fs::create_dir_all(folder)?;
        let text = json!({
            "attachmentID": self.attachment,
            "driverName": self.driver,
            "nodeName": self.node,
            "specVolID": self.name,
            "volumeHandle": self.handle,
            "volumeLifecycleMode": self.lifecycle,
        });
        // Whole or not at all: half a record would hide a volume.
        let (file, half) = (folder.join(FILE), folder.join(format!("{FILE}.new")));
        fs::write(&half, text.to_string())?;
        fs::rename(half, file)
    }

    /// None where nothing was published.
    pub(super) fn read(folder: &Path) -> io::Result<Option<Self>> {
        let text = match fs::read(folder.join(FILE)) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let value: Value = serde_json::from_slice(&text)?;
        let field = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        Ok(Some(Self {
            driver: field("driverName"),
            handle: field("volumeHandle"),
            name: field("specVolID"),
            lifecycle: field("volumeLifecycleMode"),
            attachment: field("attachmentID"),
            node: field("nodeName"),
        }))
    }

    pub(super) fn remove(folder: &Path) -> io::Result<()> {
        match fs::remove_file(folder.join(FILE)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => fs::remove_dir(folder),
        }
    }

    pub(super) fn is_of(&self, driver: &str, handle: &str) -> bool {
        self.driver == driver && self.handle == handle
    }
}

/// The folders in which volumes are recorded.
pub(super) fn folders(all: &Path) -> Vec<PathBuf> {
    fs::read_dir(all).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_back_and_a_torn_one_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = folder.path().join("volume");
        assert_eq!(Record::read(&place).expect("nothing"), None);
        let record = Record {
            driver: "d".into(),
            handle: "h".into(),
            name: "n".into(),
            lifecycle: "Persistent".into(),
            attachment: "a".into(),
            node: "node".into(),
        };
        record.write(&place).expect("written");
        assert_eq!(Record::read(&place).expect("read"), Some(record));
        fs::write(place.join(FILE), "{").expect("torn");
        assert!(Record::read(&place).is_err());
        Record::remove(&place).expect("removed");
        assert!(!place.exists());
    }
}
