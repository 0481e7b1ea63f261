use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;

use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;

use super::*;

fn limits() -> Limits {
    Limits { header: 1 << 20, entries: 1000, names: 1 << 20, content: 8 << 20 }
}

/// An entry with exactly this name and content, whatever `tar` thinks of it.
fn put(archive: &mut Vec<u8>, kind: tar::EntryType, name: &str, content: &[u8]) {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(1);
    header.set_mode(if kind.is_dir() { 0o755 } else { 0o644 });
    header.set_size(content.len() as u64);
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    header.set_cksum();
    archive.extend_from_slice(header.as_bytes());
    archive.extend_from_slice(content);
    archive.resize(archive.len().next_multiple_of(512), 0);
}

/// A link, or anything else that says where it leads.
fn put_link(archive: &mut Vec<u8>, kind: tar::EntryType, name: &str, target: &str) {
    let mut link = Vec::new();
    put(&mut link, kind, name, b"");
    let mut header = tar::Header::from_byte_slice(&link[..512]).clone();
    header.set_link_name_literal(target).expect("a short target");
    header.set_cksum();
    archive.extend_from_slice(header.as_bytes());
}

/// One record of a pax header: its length counts itself.
fn record(key: &str, value: &str) -> Vec<u8> {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    format!("{length} {key}={value}\n").into_bytes()
}

fn packed(plain: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(plain).expect("packed");
    packed.finish().expect("packed")
}

fn attempt(plain: &[u8], limits: Limits) -> (tempfile::TempDir, Result<(), UnpackError>) {
    let folder = tempfile::tempdir().expect("a folder");
    let id = format!("sha256:{:x}", Sha256::digest(plain));
    let result = unpack(&*packed(plain), folder.path(), &id, limits);
    (folder, result)
}

#[track_caller]
fn refused(plain: &[u8], limits: Limits, want: &str) {
    let (_folder, result) = attempt(plain, limits);
    let why = result.expect_err("refused").to_string();
    assert!(why.contains(want), "{why}");
}

#[test]
fn a_usual_layer_is_unpacked() {
    let mut archive = Vec::new();
    let long = format!("deep/{}/file", "n".repeat(200));
    put(&mut archive, tar::EntryType::XGlobalHeader, "pax_global_header", &record("comment", "x"));
    put(&mut archive, tar::EntryType::XHeader, "pax", &record("path", &long));
    put(&mut archive, tar::EntryType::Regular, "short", b"content");
    put(&mut archive, tar::EntryType::GNULongName, "././@LongLink", format!("{}\0", "m".repeat(200)).as_bytes());
    put(&mut archive, tar::EntryType::Directory, "short", b"");
    archive.resize(archive.len() + 20 * 512, 0);
    let (folder, result) = attempt(&archive, limits());
    result.expect("unpacked");
    assert_eq!(fs::read(folder.path().join(&long)).expect("read"), b"content");
    assert_eq!(fs::metadata(folder.path().join("m".repeat(200))).expect("there").mode() & 0o777, 0o755);
    assert_eq!(fs::metadata(folder.path().join("deep")).expect("there").mode() & 0o777, 0o755);
}

/// A few kilobytes of gzip became gigabytes of memory.
#[test]
fn headers_are_bounded() {
    let huge = "x".repeat(2 << 20);
    for (kind, content) in [
        (tar::EntryType::XHeader, record("comment", &huge)),
        (tar::EntryType::GNULongName, huge.clone().into_bytes()),
        (tar::EntryType::GNULongLink, huge.clone().into_bytes()),
    ] {
        let mut archive = Vec::new();
        put(&mut archive, kind, "bomb", &content);
        put(&mut archive, tar::EntryType::Regular, "file", b"");
        refused(&archive, limits(), "a header of more than 1048576 bytes");
    }
    // As content of an entry that is passed over, it is none.
    let mut archive = Vec::new();
    put(&mut archive, tar::EntryType::XGlobalHeader, "global", huge.as_bytes());
    put(&mut archive, tar::EntryType::Regular, "file", huge.as_bytes());
    put(&mut archive, tar::EntryType::Regular, "after", b"");
    attempt(&archive, limits()).1.expect("unpacked");
}

#[test]
fn paths_are_bounded() {
    let mut archive = Vec::new();
    put(&mut archive, tar::EntryType::XHeader, "pax", &record("path", &"a/".repeat(100_000)));
    put(&mut archive, tar::EntryType::Directory, "short", b"");
    refused(&archive, limits(), "a path of 200000 bytes");
}

#[test]
fn entries_and_the_folders_they_need_are_counted() {
    let few = Limits { entries: 10, ..limits() };
    let mut archive = Vec::new();
    for number in 0..10 {
        put(&mut archive, tar::EntryType::Regular, &format!("file{number}"), b"");
    }
    attempt(&archive, few).1.expect("unpacked");
    put(&mut archive, tar::EntryType::Regular, "one-more", b"");
    refused(&archive, few, "too many entries");
    let mut archive = Vec::new();
    put(&mut archive, tar::EntryType::Regular, "a/b/c/d/e/f/g/h/i/j/k", b"");
    refused(&archive, few, "too many entries");
    let short = Limits { names: 20, ..limits() };
    let mut archive = Vec::new();
    for number in 0..5 {
        put(&mut archive, tar::EntryType::Directory, &format!("folder{number}"), b"");
    }
    refused(&archive, short, "too many entries");
}

#[test]
fn content_is_counted_while_it_is_copied() {
    let mut archive = Vec::new();
    put(&mut archive, tar::EntryType::Regular, "zeros", &vec![0; 9 << 20]);
    refused(&archive, limits(), "content of more than 8388608 bytes");
    // Behind the end of the archive as well.
    let mut archive = Vec::new();
    put(&mut archive, tar::EntryType::Regular, "file", b"");
    archive.resize(9 << 20, 0);
    refused(&archive, limits(), "content of more than 8388608 bytes");
    assert_eq!(Limits::of(1).content, 1 << 30);
    assert_eq!(Limits::of(1 << 30).content, 200 << 30);
    assert_eq!(Limits::of(u64::MAX).content, 256 << 30);
}

/// Some bytes that say a file is as large as the disk, and empty.
#[test]
fn holes_are_content() {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::GNUSparse);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(1);
    header.set_mode(0o644);
    header.set_size(0);
    header.as_old_mut().name[..4].copy_from_slice(b"hole");
    let gnu = header.as_gnu_mut().expect("a GNU header");
    gnu.realsize.copy_from_slice(b"00777777777\0");
    gnu.sparse[0].offset.copy_from_slice(b"00777777777\0");
    gnu.sparse[0].numbytes.copy_from_slice(b"00000000000\0");
    header.set_cksum();
    refused(header.as_bytes(), limits(), "content of more than 8388608 bytes");
}

/// Folders deeper than the stack of a thread, made through links, and a mark that removes them.
#[test]
fn the_deepest_folders_are_removed_by_a_mark() {
    let many = Limits { entries: 20_000, ..limits() };
    let mut archive = Vec::new();
    let step = "d/".repeat(40);
    put(&mut archive, tar::EntryType::Directory, "top", b"");
    // The kernel follows 40 links of one path, and counts those of a look-up that it begins anew twice.
    for number in 0..19 {
        let at = if number == 0 { "top".to_owned() } else { format!("l{number}") };
        put(&mut archive, tar::EntryType::Directory, &format!("{at}/{step}"), b"");
        let mut target = format!("{at}/{step}");
        target.truncate(target.len() - 1);
        put_link(&mut archive, tar::EntryType::Symlink, &format!("l{}", number + 1), &target);
    }
    put(&mut archive, tar::EntryType::Regular, ".wh.top", b"");
    let (folder, result) = attempt(&archive, many);
    result.expect("unpacked");
    assert!(!folder.path().join("top").exists());
}

const NAMES: [&str; 16] = [
    "a",
    "a/b",
    "a/b/c",
    "l",
    "l/x",
    "l/victim/kept",
    "h",
    "../victim/new",
    "/victim/new",
    "a/../../victim/new",
    ".wh.a",
    "l/.wh.victim",
    "a/.wh..wh..opq",
    ".wh...",
    ".wh..",
    "l/../victim/new",
];
const TARGETS: [&str; 10] = [
    "/",
    "..",
    "../..",
    "a",
    "l",
    "../victim/kept",
    "/victim/kept",
    "/proc/self/root",
    "/proc/self/cwd/..",
    "../victim",
];
const KINDS: [tar::EntryType; 9] = [
    tar::EntryType::Regular,
    tar::EntryType::Directory,
    tar::EntryType::Symlink,
    tar::EntryType::Link,
    tar::EntryType::Fifo,
    tar::EntryType::Char,
    tar::EntryType::Block,
    tar::EntryType::GNULongName,
    tar::EntryType::XHeader,
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever a layer says, and however it is damaged: it ends, and what stands beside the image stays as it is.
    #[test]
    fn nothing_beside_the_image_changes(
        entries in prop::collection::vec((0..KINDS.len(), 0..NAMES.len(), 0..TARGETS.len()), 1..24),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let folder = tempfile::tempdir().expect("a folder");
        let [image, victim] = ["image", "victim"].map(|name| folder.path().join(name));
        fs::create_dir(&image).expect("a folder");
        fs::create_dir(&victim).expect("a folder");
        fs::write(victim.join("kept"), "kept").expect("a file");
        let mut archive = Vec::new();
        for (kind, name, target) in entries {
            let (kind, name, target) = (KINDS[kind], NAMES[name], TARGETS[target]);
            match kind {
                tar::EntryType::Regular | tar::EntryType::GNULongName => put(&mut archive, kind, name, target.as_bytes()),
                tar::EntryType::XHeader => {
                    let records = [record("path", target), record("linkpath", name)].concat();
                    put(&mut archive, kind, name, &records);
                }
                _ => put_link(&mut archive, kind, name, target),
            }
        }
        for (at, byte) in damage {
            let at = at.index(archive.len());
            archive[at] = byte;
        }
        let id = format!("sha256:{:x}", Sha256::digest(&archive));
        let _ = unpack(&*archive, &image, &id, limits());
        let listed = |folder: &Path| {
            let mut names: Vec<_> = fs::read_dir(folder).expect("a folder").map(|e| e.expect("a name").file_name()).collect();
            names.sort();
            names
        };
        prop_assert_eq!(listed(folder.path()), ["image", "victim"]);
        prop_assert_eq!(listed(&victim), ["kept"]);
        prop_assert_eq!(fs::read_to_string(victim.join("kept")).expect("a file"), "kept");
        prop_assert_eq!(fs::metadata(victim.join("kept")).expect("a file").nlink(), 1);
    }
}
