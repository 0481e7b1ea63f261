use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, mkdirat, mknodat, openat};

use super::*;

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().canonicalize().expect("a path without links");
    (folder, path)
}

fn fifo(path: &Path) {
    mknodat(rustix::fs::CWD, path, FileType::Fifo, Mode::from_raw_mode(0o666), 0).expect("a FIFO");
}

/// Deeper than any path, any stack and any number of descriptors.
fn deep(top: &Path, levels: usize) {
    fs::create_dir(top).expect("a folder");
    let mut at = fs::File::open(top).expect("opened").into();
    for _ in 0..levels {
        mkdirat(&at, "d", Mode::from_raw_mode(0o755)).expect("a folder");
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        at = openat(&at, "d", flags, Mode::empty()).expect("opened");
    }
}

#[test]
fn only_regular_files_are_read_and_nothing_waits() {
    let (_keep, at) = folder();
    fs::write(at.join("file"), "0123456789").expect("written");
    symlink(at.join("file"), at.join("link")).expect("a link");
    symlink(&at, at.join("round")).expect("a link");
    fifo(&at.join("fifo"));
    let check = |path: PathBuf, want: &str| {
        let error = read_start(&path, 4).expect_err("not read").to_string();
        assert!(error.contains(want), "{}: {error}", path.display());
    };
    check(at.join("fifo"), "it is a FIFO");
    check(PathBuf::from("/dev/null"), "it is a device");
    check(at.clone(), "it is a directory");
    check(at.join("link"), "it is a symbolic link");
    check(at.join("round/file"), "symbolic links");
    assert_eq!(read_start(&at.join("file"), 4).expect("read"), b"0123");
    assert_eq!(read_end(&at.join("file"), 4).expect("read"), b"6789");
    assert_eq!(read_end(&at.join("file"), 99).expect("read"), b"0123456789");
}

#[test]
fn only_regular_files_are_written() {
    let (_keep, at) = folder();
    fs::write(at.join("secret"), "kept").expect("written");
    symlink(at.join("secret"), at.join("link")).expect("a link");
    fifo(&at.join("fifo"));
    for bad in ["link", "fifo"] {
        assert!(append(&at.join(bad), 0o600).is_err(), "{bad}");
        assert!(overwrite(&at.join(bad), b"lost", 0o600).is_err(), "{bad}");
    }
    assert_eq!(fs::read_to_string(at.join("secret")).expect("read"), "kept");
    let hosts = at.join("hosts");
    overwrite(&hosts, b"a longer text", 0o646).expect("written");
    overwrite(&hosts, b"short", 0o644).expect("written");
    std::io::Write::write_all(&mut append(&hosts, 0o600).expect("opened"), b"er").expect("written");
    assert_eq!(fs::read_to_string(&hosts).expect("read"), "shorter");
    assert_eq!(fs::metadata(&hosts).expect("there").mode() & 0o777, 0o644);
    make_folders(&at.join("new-a/new-b"), 0o777).expect("made");
    for name in ["new-a", "new-a/new-b"] {
        assert_eq!(fs::metadata(at.join(name)).expect("there").mode() & 0o777, 0o777, "{name}");
    }
    create(&at.join("fifo"), 0o644).expect("left as it is");
    create(&at.join("new"), 0o644).expect("made");
    assert!(fs::metadata(at.join("new")).expect("there").is_file());
}

#[test]
fn links_of_an_image_stay_inside() {
    let (_keep, at) = folder();
    fs::create_dir(at.join("etc")).expect("a folder");
    fs::write(at.join("etc/own"), "inside").expect("written");
    symlink("/etc/own", at.join("absolute")).expect("a link");
    symlink("../../../../etc/own", at.join("climbing")).expect("a link");
    symlink("/etc/passwd", at.join("etc/outside")).expect("a link");
    symlink("/proc/self/root/etc/passwd", at.join("magic")).expect("a link");
    fifo(&at.join("etc/fifo"));
    let root = Root::open(&at).expect("opened");
    for name in ["etc/own", "/etc/own", "absolute", "climbing"] {
        let mut text = String::new();
        root.file(Path::new(name)).expect(name).read_to_string(&mut text).expect("read");
        assert_eq!(text, "inside", "{name}");
        assert_eq!(root.resolve(Path::new(name)).expect(name), at.join("etc/own"), "{name}");
    }
    for name in ["etc/outside", "magic", "etc/fifo", "etc", "none"] {
        assert!(root.file(Path::new(name)).is_err(), "{name}");
    }
}

#[test]
fn parts_of_a_volume_are_found_or_made_beneath_it() {
    let (_keep, at) = folder();
    fs::set_permissions(&at, fs::Permissions::from_mode(0o777)).expect("a mode");
    symlink("/etc", at.join("evil")).expect("a link");
    symlink("inner", at.join("fine")).expect("a link");
    let root = Root::open(&at).expect("opened");
    root.part(Path::new("inner/deeper")).expect("made");
    let mode = |name: &str| fs::metadata(at.join(name)).expect("there").mode() & 0o777;
    assert_eq!((mode("inner"), mode("inner/deeper")), (0o777, 0o777), "as the volume itself");
    root.part(Path::new("fine/deeper")).expect("through a link that stays inside");
    for bad in ["evil", "evil/passwd", "evil/new", "../x", "inner/../../x", "/etc", "none/../../x"] {
        assert!(root.part(Path::new(bad)).is_err(), "{bad}");
    }
}

#[test]
fn files_are_counted_once_and_links_are_not_followed() {
    let (_keep, at) = folder();
    fs::create_dir_all(at.join("a/b")).expect("folders");
    fs::write(at.join("a/b/file"), vec![1; 100_000]).expect("written");
    let before = count(&at.join("a"));
    assert!(before.bytes >= 100_000 && before.bytes < 200_000, "{before:?}");
    assert_eq!(before.inodes, 3);
    fs::hard_link(at.join("a/b/file"), at.join("a/again")).expect("linked");
    symlink("/usr", at.join("a/elsewhere")).expect("linked");
    let after = count(&at.join("a"));
    assert_eq!(after.inodes, 4);
    assert!(after.bytes - before.bytes < 50_000, "{before:?} {after:?}");
    assert_eq!(count(&at.join("none")), Usage::default());
    assert_eq!(count(&at.join("a/b/file")).inodes, 1);
}

/// A process has one thread's stack and some thousand descriptors; a pod can make folders deeper than both.
#[test]
fn the_deepest_folders_are_counted_and_removed() {
    let (_keep, at) = folder();
    deep(&at.join("deep"), 5_000);
    assert_eq!(count(&at.join("deep")).inodes, 5_001);
    remove_all(&at.join("deep")).expect("removed");
    assert!(!at.join("deep").exists());
}

#[test]
fn removing_follows_no_link_and_takes_all() {
    let (_keep, at) = folder();
    fs::create_dir_all(at.join("kept")).expect("folders");
    fs::write(at.join("kept/file"), "").expect("written");
    for outer in 0..20 {
        for inner in 0..50 {
            let place = at.join(format!("gone/{outer}/{inner}"));
            fs::create_dir_all(&place).expect("folders");
            fs::write(place.join("file"), "").expect("written");
        }
    }
    symlink(at.join("kept"), at.join("gone/link")).expect("a link");
    fifo(&at.join("gone/fifo"));
    remove_all(&at.join("gone")).expect("removed");
    assert!(!at.join("gone").exists() && at.join("kept/file").exists());
    remove_all(&at.join("gone")).expect("not there");
    symlink(at.join("kept"), at.join("link")).expect("a link");
    remove_all(&at.join("link")).expect("removed");
    assert!(at.join("kept/file").exists());
}

#[test]
fn everything_below_is_given() {
    let (_keep, at) = folder();
    let (inner, file) = (at.join("inner"), at.join("inner/file"));
    fs::create_dir(&inner).expect("a folder");
    fs::write(&file, "").expect("a file");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("a mode");
    let (_other, outside) = folder();
    fs::write(outside.join("other"), "").expect("a file");
    fs::set_permissions(outside.join("other"), fs::Permissions::from_mode(0o600)).expect("a mode");
    symlink(outside.join("other"), at.join("link")).expect("a link");
    symlink(&outside, at.join("inner/folder")).expect("a link");
    give(&at, 4711, Access::ReadWrite, true).expect("given");
    for (path, mode) in [(&at, 0o2770), (&inner, 0o2770), (&file, 0o660)] {
        let about = fs::metadata(path).expect("metadata");
        assert_eq!((about.gid(), about.mode() & mode), (4711, mode), "{}", path.display());
    }
    let untouched = fs::metadata(outside.join("other")).expect("metadata");
    assert_eq!((untouched.gid() == 4711, untouched.mode() & 0o777), (false, 0o600));
    // Found done, it is left alone.
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("a mode");
    give(&at, 4711, Access::ReadWrite, true).expect("given");
    assert_eq!(fs::metadata(&file).expect("metadata").mode() & 0o777, 0o600);
}

/// A container swaps a folder of its volume for a link to the node's root while the kubelet looks for it.
#[test]
fn a_folder_that_is_swapped_for_a_link_leads_nowhere_else() {
    let (_keep, at) = folder();
    let (_other, outside) = folder();
    fs::create_dir_all(outside.join("part")).expect("folders");
    fs::create_dir_all(at.join("a/part")).expect("folders");
    symlink(&outside, at.join("b")).expect("a link");
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let flags = rustix::fs::RenameFlags::EXCHANGE;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let (a, b) = (at.join("a"), at.join("b"));
                rustix::fs::renameat_with(rustix::fs::CWD, a, rustix::fs::CWD, b, flags).expect("swapped");
            }
        });
        let root = Root::open(&at).expect("opened");
        let (mut found, mut refused) = (0, 0);
        while found < 1000 || refused < 1000 {
            match root.part(Path::new("a/part")) {
                Ok(part) => {
                    let place = fs::read_link(file::own_path(&part)).expect("a path");
                    assert!(place.starts_with(&at), "{}", place.display());
                    found += 1;
                }
                Err(_) => refused += 1,
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert_eq!(fs::read_dir(outside.join("part")).expect("listed").count(), 0);
}

/// A pod swaps a folder for links out of its volume as fast as it can: a part of the volume is found, or nothing is.
#[test]
fn a_part_that_is_swapped_a_thousand_times_leads_nowhere_else() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let (_keep, at) = folder();
    let (volume, outside) = (at.join("volume"), at.join("outside"));
    fs::create_dir_all(volume.join("part/deep")).expect("folders");
    fs::create_dir_all(outside.join("deep")).expect("folders");
    let identity = |path: &Path| fs::metadata(path).map(|found| (found.dev(), found.ino())).expect("there");
    let inside = [identity(&volume.join("part")), identity(&volume.join("part/deep"))];
    let root = Root::open(&volume).expect("a root");
    let done = AtomicBool::new(false);
    let (mut found, mut tried, mut wrong) = (0, 0_u64, None);
    std::thread::scope(|scope| {
        let swap = || {
            let (part, real) = (volume.join("part"), volume.join("real"));
            for target in [outside.as_path(), Path::new("../outside"), Path::new("/")].iter().cycle() {
                if done.load(Ordering::Relaxed) {
                    return;
                }
                fs::rename(&part, &real).expect("moved");
                // What was asked for meanwhile may have been made in its place.
                while symlink(target, &part).is_err() {
                    let _ = fs::remove_dir_all(&part);
                }
                fs::remove_file(&part).expect("removed");
                while fs::rename(&real, &part).is_err() {
                    let _ = fs::remove_dir_all(&part);
                }
            }
        };
        scope.spawn(swap);
        // Nothing may panic here: the other thread would go on.
        while found < 2000 && tried < 10_000_000 && wrong.is_none() {
            tried += 1;
            for path in ["part", "part/deep"] {
                let Ok(handle) = root.part(Path::new(path)) else { continue };
                let place = fs::read_link(file::own_path(&handle)).unwrap_or_default();
                let known = rustix::fs::fstat(&handle).is_ok_and(|stat| inside.contains(&(stat.st_dev, stat.st_ino)));
                found += 1;
                if !known && !place.starts_with(&volume) {
                    wrong = Some((path, place));
                }
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(wrong, None);
    assert!(found >= 2000, "found {found} times in {tried} looks");
    assert_eq!(fs::read_dir(outside.join("deep")).expect("a folder").count(), 0);
}

#[test]
fn folders_are_made_once_and_removed_while_they_are_empty() {
    let (_keep, at) = folder();
    let root = Root::open(&at).expect("opened");
    let mode = |name: &str| fs::metadata(at.join(name)).expect("there").mode() & 0o7777;
    make_at(&root, Path::new("a"), 0o777).expect("made");
    make_at(&root, Path::new("b"), 0o777).expect("made");
    fs::set_permissions(at.join("a"), fs::Permissions::from_mode(0o700)).expect("half made");
    make_at(&root, Path::new("a"), 0o777).expect("completed");
    assert_eq!((mode("a"), mode("b")), (0o777, 0o777));
    fs::write(at.join("b/file"), "").expect("written");
    fs::set_permissions(at.join("b"), fs::Permissions::from_mode(0o750)).expect("by its owner");
    make_at(&root, Path::new("b"), 0o777).expect("there");
    assert_eq!(mode("b"), 0o750, "what has something in it is its owner's");
    symlink(at.join("a"), at.join("link")).expect("a link");
    fs::write(at.join("plain"), "").expect("written");
    for name in ["link", "plain", "../a"] {
        make_at(&root, Path::new(name), 0o777).expect_err(name);
        is_folder_at(&root, Path::new(name)).expect_err(name);
    }
    assert!(
        is_folder_at(&root, Path::new("a")).expect("asked") && !is_folder_at(&root, Path::new("z")).expect("asked")
    );
    assert_eq!(empty_folders(&root, 9).expect("listed"), ["a"]);
    assert!(empty_folders(&root, 0).expect("listed").is_empty());
    for (name, gone) in [("a", true), ("a", true), ("b", false), ("link", false), ("plain", false)] {
        assert_eq!(remove_empty_at(&root, Path::new(name)).expect("asked"), gone, "{name}");
    }
    assert!(free_bytes(&at).expect("asked") > 0);
}
