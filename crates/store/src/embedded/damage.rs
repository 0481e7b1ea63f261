//! What happens to files must not happen to data: damage is named, interrupted writes are dropped, a full disk passes.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use super::{EmbeddedStore, Options};
use crate::{Op, Range, Result, Revision, Store, StoreError, Transaction};

fn options() -> Options {
    Options { memtable_bytes: 64 << 10, minimum_free_bytes: 0, ..Options::default() }
}

fn open(path: &Path) -> Result<Arc<EmbeddedStore>> {
    EmbeddedStore::open(path, options())
}

fn value(number: usize) -> Bytes {
    Bytes::from(format!("{number}:{}", "ferry ".repeat(200 + number % 7)))
}

async fn create(store: &EmbeddedStore, number: usize) -> Result<Revision> {
    let key = format!("/registry/things/t{number:05}");
    let op = Op::Create { key, value: value(number), lease: None };
    Ok(store.commit(Transaction::one(op)).await?.revision)
}

/// How many things there are; each must be what it was, and none may be missing before the last.
async fn count(store: &EmbeddedStore) -> usize {
    let range = Range { prefix: "/registry/things/".into(), ..Range::default() };
    let found = store.range(range).await.expect("range").entries;
    for (number, entry) in found.iter().enumerate() {
        assert_eq!(&*entry.key, format!("/registry/things/t{number:05}"));
        assert_eq!(entry.value, value(number));
    }
    found.len()
}

async fn filled(path: &Path, things: usize) {
    let store = open(path).expect("open");
    for number in 0..things {
        create(&store, number).await.expect("create");
    }
    drop(store);
    // Without the room it keeps for more, a log is quickly copied.
    let log = log_of(path);
    let end = end_of_data(&log);
    OpenOptions::new().write(true).open(&log).and_then(|file| file.set_len(end)).expect("cut");
}

fn files(folder: &Path, matches: &dyn Fn(&Path) -> bool) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for file in fs::read_dir(folder).expect("folder") {
        let path = file.expect("file").path();
        if path.is_dir() {
            found.extend(files(&path, matches));
        } else if matches(&path) {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn log_of(path: &Path) -> PathBuf {
    let logs = files(path, &|file| file.extension().is_some_and(|extension| extension == "jnl"));
    logs.into_iter().next_back().expect("a log")
}

/// Where the data in a preallocated file ends.
fn end_of_data(path: &Path) -> u64 {
    let content = fs::read(path).expect("read");
    content.iter().rposition(|byte| *byte != 0).map_or(0, |at| at as u64 + 1)
}

fn flip(path: &Path, at: u64) {
    let mut file = OpenOptions::new().read(true).write(true).open(path).expect("open");
    let mut byte = [0];
    file.seek(SeekFrom::Start(at)).and_then(|_| file.read_exact(&mut byte)).expect("read");
    file.seek(SeekFrom::Start(at)).and_then(|_| file.write_all(&[byte[0] ^ 0x55])).expect("write");
}

fn refusal(path: &Path) -> String {
    match open(path).err().expect("refused") {
        StoreError::Corrupt(text) => text,
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn an_interrupted_write_is_dropped_and_nothing_else() {
    let folder = tempfile::tempdir().expect("folder");
    filled(folder.path(), 20).await;
    let log = log_of(folder.path());
    let end = end_of_data(&log);
    // Cut short, garbled, and followed by rubbish.
    for (round, damage) in ["cut", "flip", "rubbish"].into_iter().enumerate() {
        let copy = tempfile::tempdir().expect("folder");
        copy_folder(folder.path(), copy.path());
        let log = copy.path().join(log.strip_prefix(folder.path()).expect("inside"));
        match damage {
            "cut" => OpenOptions::new().write(true).open(&log).and_then(|file| file.set_len(end - 5)).expect("cut"),
            "flip" => flip(&log, end - 300),
            _ => {
                let mut file = OpenOptions::new().write(true).open(&log).expect("open");
                file.seek(SeekFrom::Start(end)).and_then(|_| file.write_all(&[1; 100])).expect("write");
            }
        }
        let expected = if damage == "rubbish" { 20 } else { 19 };
        let store = open(copy.path()).expect(damage);
        assert_eq!(count(&store).await, expected, "{damage} {round}");
        create(&store, expected).await.expect("writes go on");
        drop(store);
        assert_eq!(count(&open(copy.path()).expect(damage)).await, expected + 1, "{damage}");
    }
}

fn copy_folder(from: &Path, to: &Path) {
    for file in files(from, &|_| true) {
        let target = to.join(file.strip_prefix(from).expect("inside"));
        fs::create_dir_all(target.parent().expect("a folder")).expect("create");
        fs::copy(&file, &target).expect("copy");
    }
}

#[tokio::test]
async fn damage_is_refused_and_the_file_is_named() {
    let folder = tempfile::tempdir().expect("folder");
    filled(folder.path(), 300).await;
    let log = log_of(folder.path());
    let table = files(folder.path(), &|file| {
        file.parent().is_some_and(|parent| parent.ends_with("tables"))
            && file.extension().is_none()
            && file.components().any(|part| part.as_os_str() == "1")
    });
    let table = table.first().expect("a table was written").clone();
    for (what, file, at) in [
        ("the log", &log, end_of_data(&log) / 2),
        ("the log's start", &log, 0),
        ("a table", &table, end_of_data(&table) / 3),
    ] {
        flip(file, at);
        let text = refusal(folder.path());
        assert!(text.contains(&file.display().to_string()), "{what}: {text}");
        flip(file, at);
        assert_eq!(count(&open(folder.path()).expect("mended")).await, 300, "{what}");
    }
    let aside = folder.path().join("aside");
    for (what, file) in [("a log", &log), ("a table", &table)] {
        fs::rename(file, &aside).expect("rename");
        let text = refusal(folder.path());
        assert!(text.contains("tables"), "{what}: {text}");
        fs::rename(&aside, file).expect("rename");
        assert_eq!(count(&open(folder.path()).expect("mended")).await, 300, "{what}");
    }
}

/// Whatever byte is hit: no panic, and what is served is what was written.
#[tokio::test]
async fn no_single_byte_of_damage_is_served() {
    let folder = tempfile::tempdir().expect("folder");
    filled(folder.path(), 150).await;
    let all = files(folder.path(), &|file| end_of_data(file) > 0);
    let mut refused = 0;
    let mut dice: u64 = 42;
    for _ in 0..100 {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let file = &all[(dice >> 33) as usize % all.len()];
        let copy = tempfile::tempdir().expect("folder");
        copy_folder(folder.path(), copy.path());
        let target = copy.path().join(file.strip_prefix(folder.path()).expect("inside"));
        let at = (dice >> 13) % end_of_data(&target);
        flip(&target, at);
        match open(copy.path()) {
            Ok(store) => {
                let found = count(&store).await;
                // The last write cannot be told from an interrupted one.
                assert!(found >= 149, "byte {at} of {}: {found} left", file.display());
            }
            Err(StoreError::Corrupt(_) | StoreError::Incompatible { .. }) => refused += 1,
            Err(other) => panic!("byte {at} of {}: {other}", file.display()),
        }
    }
    assert!(refused > 10, "{refused}");
}

/// A file system of a few megabytes; unmounted when it goes.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn new() -> Option<Self> {
        let folder = tempfile::tempdir().expect("folder");
        let data = c"size=24m";
        match rustix::mount::mount("ferry-test", folder.path(), "tmpfs", rustix::mount::MountFlags::empty(), data) {
            Ok(()) => Some(Self(folder)),
            Err(error) => {
                ferry_testkit::skip(&format!("a small disk cannot be mounted: {error}"));
                None
            }
        }
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Nothing else can be done in a destructor.
        let _ = rustix::mount::unmount(self.0.path(), rustix::mount::UnmountFlags::DETACH);
    }
}

#[tokio::test]
async fn a_disk_that_fills_up_loses_nothing_and_recovers() {
    let Some(disk) = SmallDisk::new() else { return };
    let ballast = disk.path().join("ballast");
    File::create(&ballast).and_then(|mut file| file.write_all(&vec![7; 16 << 20])).expect("ballast");
    let store = open(&disk.path().join("data")).expect("open");
    let mut written = 0;
    let error = loop {
        match create(&store, written).await {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 100_000, "the disk never filled up");
    };
    assert!(matches!(error, StoreError::Unavailable(_) | StoreError::Undecided(_)), "{error}");
    assert!(count(&store).await >= written, "reads go on");
    fs::remove_file(&ballast).expect("remove");
    // The write whose outcome was unknown may be there.
    let known = loop {
        if store.health().await.is_ok() {
            break count(&store).await;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    };
    assert!(known == written || known == written + 1, "{known} of {written}");
    for number in known..known + 10 {
        create(&store, number).await.expect("writes go on");
    }
    drop(store);
    assert_eq!(count(&open(&disk.path().join("data")).expect("open")).await, known + 10);
}

/// The tables may fail in the background after they were looked at and before they are written to.
#[tokio::test]
async fn tables_that_fail_in_the_background_fail_no_write() {
    let folder = tempfile::tempdir().expect("folder");
    let store = open(folder.path()).expect("open");
    for number in 0..30 {
        if number % 3 == 1 {
            let disk = store.shared.disk().expect("tables");
            disk.failed.store(true, std::sync::atomic::Ordering::SeqCst);
        }
        create(&store, number).await.expect("create");
    }
    let lease = store.grant_lease(1000).await.expect("lease");
    store.shared.disk().expect("tables").failed.store(true, std::sync::atomic::Ordering::SeqCst);
    store.revoke_lease(lease).await.expect("revoke");
    assert_eq!(count(&store).await, 30);
    drop(store);
    assert_eq!(count(&open(folder.path()).expect("open")).await, 30);
}

/// A write that failed may be on the disk: whoever sent it must not take it for refused.
#[tokio::test]
async fn a_write_that_fails_is_undecided_and_told_of_once_it_is_found() {
    let folder = tempfile::tempdir().expect("folder");
    let store = open(folder.path()).expect("open");
    create(&store, 0).await.expect("create");
    store.shared.disk().expect("tables").unconfirmed.store(true, std::sync::atomic::Ordering::SeqCst);
    let error = create(&store, 1).await.expect_err("not confirmed");
    assert!(matches!(error, StoreError::Undecided(_)), "{error:?}");
    let error = create(&store, 2).await.expect_err("the tables are not open yet");
    assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
    while store.health().await.is_err() {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert_eq!(count(&store).await, 2, "the one of which nobody knew was written, the one after it was not");
    let lease = store.grant_lease(1000).await.expect("lease");
    store.shared.disk().expect("tables").unconfirmed.store(true, std::sync::atomic::Ordering::SeqCst);
    let error = store.revoke_lease(lease).await.expect_err("not confirmed");
    assert!(matches!(error, StoreError::Undecided(_)), "{error:?}");
}

/// A disk with a journal, which its system makes read-only when it fails.
struct JournaledDisk {
    folder: tempfile::TempDir,
    image: PathBuf,
}

impl JournaledDisk {
    fn new() -> Option<Self> {
        let folder = tempfile::tempdir().expect("folder");
        let image = folder.path().join("image");
        File::create(&image).and_then(|file| file.set_len(64 << 20)).expect("image");
        fs::create_dir(folder.path().join("disk")).expect("folder");
        let disk = Self { folder, image };
        disk.run("mkfs.ext4", &["-q", disk.image.to_str().expect("a plain path")]);
        match disk.mount() {
            true => Some(disk),
            false => {
                ferry_testkit::skip("an image of a disk cannot be mounted: it takes root and loop devices");
                None
            }
        }
    }

    fn run(&self, program: &str, arguments: &[&str]) -> bool {
        std::process::Command::new(program).args(arguments).status().expect(program).success()
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("disk")
    }

    fn mount(&self) -> bool {
        let (image, path) = (self.image.to_str().expect("a plain path"), self.path());
        self.run("mount", &["-o", "loop,errors=remount-ro", image, path.to_str().expect("a plain path")])
    }
}

impl Drop for JournaledDisk {
    fn drop(&mut self) {
        // Nothing else can be done in a destructor.
        let _ = rustix::mount::unmount(self.path(), rustix::mount::UnmountFlags::DETACH);
    }
}

#[tokio::test]
async fn a_disk_that_fails_under_way_refuses_writes_and_loses_nothing() {
    let Some(disk) = JournaledDisk::new() else { return };
    let path = disk.path().join("data");
    let store = open(&path).expect("open");
    for number in 0..20 {
        create(&store, number).await.expect("create");
    }
    rustix::mount::mount_remount(disk.path(), rustix::mount::MountFlags::empty(), c"abort").expect("abort");
    // The first one may have been written, those after it are not even tried.
    for attempt in 0..3 {
        let error = create(&store, 20).await.expect_err("nothing can be written");
        let expected = if attempt == 0 { "Undecided" } else { "Unavailable" };
        assert!(format!("{error:?}").starts_with(expected), "{attempt}: {error:?}");
    }
    assert_eq!(count(&store).await, 20, "reads go on");
    assert!(store.health().await.is_err());
    drop(store);
    rustix::mount::unmount(disk.path(), rustix::mount::UnmountFlags::empty()).expect("unmount");
    assert!(disk.mount(), "the disk is back");
    let store = open(&path).expect("open");
    assert_eq!(count(&store).await, 20);
    create(&store, 20).await.expect("writes go on");
}

#[tokio::test]
async fn a_read_only_disk_is_an_error_that_says_so() {
    let Some(disk) = SmallDisk::new() else { return };
    let path = disk.path().join("data");
    filled(&path, 3).await;
    rustix::mount::mount_remount(disk.path(), rustix::mount::MountFlags::RDONLY, c"").expect("remount");
    let error = open(&path).err().expect("refused");
    assert!(matches!(&error, StoreError::Unavailable(text) if text.contains("Read-only")), "{error}");
    rustix::mount::mount_remount(disk.path(), rustix::mount::MountFlags::empty(), c"").expect("remount");
    assert_eq!(count(&open(&path).expect("open")).await, 3);
}
