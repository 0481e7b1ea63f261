//! The data folder around the tables: one owner at a time, and a file that says which format lies there.
//!
//! `FORMAT.new` is renamed to `FORMAT` only once the tables exist: a folder with the first alone was never used,
//! a folder with the second must have tables, or data was lost.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::{Result, StoreError};

pub(crate) const FORMAT: &str = "FORMAT";
const FORMAT_NEW: &str = "FORMAT.new";
const LOCK: &str = "LOCK";
const CONTENT: &str = "ferry-store 1\n";

/// An opened data folder; the lock goes with it.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    fresh: bool,
    lock: File,
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Closing alone is not enough: a process that is being started at this moment has a copy of the descriptor, and
        // with it the lock, until it becomes the program it is to be.
        let _ = self.lock.unlock();
    }
}

pub(crate) fn io_error(what: &str, path: &Path, error: &io::Error) -> StoreError {
    StoreError::Unavailable(format!("cannot {what} {}: {error}", path.display()))
}

impl Folder {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        fs::create_dir_all(path).map_err(|e| io_error("create", path, &e))?;
        let lock = lock(path)?;
        let format = path.join(FORMAT);
        let fresh = match fs::read_to_string(&format) {
            Ok(content) if content == CONTENT => false,
            Ok(content) => {
                let found: String = content.lines().next().unwrap_or_default().chars().take(64).collect();
                let wanted = CONTENT.trim_end();
                let why = format!("its format is {found:?}, this version reads {wanted:?}");
                return Err(StoreError::Incompatible { path: path.to_owned(), why });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => true,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return Err(StoreError::Corrupt(format!("{} is not text", format.display())));
            }
            Err(error) => return Err(io_error("read", &format, &error)),
        };
        let folder = Self { path: path.to_owned(), fresh, lock };
        if fresh {
            folder.prepare()?;
        } else if !folder.tables().join("version").exists() {
            return Err(StoreError::Corrupt(format!("{} is missing", folder.tables().join("version").display())));
        }
        Ok(folder)
    }

    pub(crate) fn tables(&self) -> PathBuf {
        self.path.join("tables")
    }

    /// Whether there were no tables when it was opened.
    pub(crate) fn is_fresh(&self) -> bool {
        self.fresh
    }

    fn prepare(&self) -> Result<()> {
        let marker = self.path.join(FORMAT_NEW);
        let interrupted = marker.exists();
        let foreign = fs::read_dir(&self.path)
            .map_err(|e| io_error("read", &self.path, &e))?
            .filter_map(io::Result::ok)
            .map(|file| file.file_name())
            .find(|name| name != LOCK && !(interrupted && (name == FORMAT_NEW || name == "tables")));
        if let Some(name) = foreign {
            let why = format!("it has {name:?} but no {FORMAT} file");
            return Err(StoreError::Incompatible { path: self.path.clone(), why });
        }
        if interrupted && self.tables().exists() {
            fs::remove_dir_all(self.tables()).map_err(|e| io_error("remove", &self.tables(), &e))?;
        }
        let mut file = File::create(&marker).map_err(|e| io_error("create", &marker, &e))?;
        file.write_all(CONTENT.as_bytes())
            .and_then(|()| file.sync_all())
            .map_err(|e| io_error("write", &marker, &e))?;
        self.sync()
    }

    /// Says that the tables are there from now on.
    pub(crate) fn seal(&mut self) -> Result<()> {
        if self.fresh {
            let target = self.path.join(FORMAT);
            fs::rename(self.path.join(FORMAT_NEW), &target).map_err(|e| io_error("create", &target, &e))?;
            self.sync()?;
            self.fresh = false;
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        File::open(&self.path).and_then(|folder| folder.sync_all()).map_err(|e| io_error("sync", &self.path, &e))
    }
}

fn lock(path: &Path) -> Result<File> {
    let file_path = path.join(LOCK);
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&file_path)
        .map_err(|e| io_error("open", &file_path, &e))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(StoreError::Locked(path.to_owned())),
        Err(TryLockError::Error(error)) => Err(io_error("lock", &file_path, &error)),
    }
}
