//! On loop devices, with the machine's own programs; scripts stand in for those that have to fail.

use std::os::unix::fs::symlink;
use std::process::Command;

use ferry_tasks::Tasks;
use serde_json::json;

use super::super::directory;
use super::super::programs::tests::script;
use super::*;

/// A kubelet's folder with what is beside it. All of it goes at the end, whatever failed.
struct Ground {
    root: tempfile::TempDir,
    loops: Vec<PathBuf>,
}

impl Drop for Ground {
    fn drop(&mut self) {
        for mount in mount_table::below(self.root.path()).unwrap_or_default() {
            let _ = rustix::mount::unmount(&mount.place, UnmountFlags::DETACH);
        }
        for device in &self.loops {
            let _ = Command::new("losetup").arg("-d").arg(device).status();
        }
    }
}

fn run(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

impl Ground {
    /// None, with a note, where loop devices or programs are missing.
    fn new() -> Option<Self> {
        let mut ground = Self { root: tempfile::tempdir().expect("a folder"), loops: Vec::new() };
        fs::create_dir_all(ground.path("pods")).expect("a folder");
        fs::create_dir_all(ground.path("bin")).expect("a folder");
        if run("mkfs.ext4", &["-V"]).is_some() && ground.add_loop().is_some() {
            return Some(ground);
        }
        ferry_testkit::skip("loop devices or mkfs.ext4 are missing");
        None
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// A new, empty device.
    fn add_loop(&mut self) -> Option<PathBuf> {
        let file = self.path(&format!("disk{}", self.loops.len()));
        fs::File::create(&file).and_then(|file| file.set_len(32 << 20)).expect("a file");
        // Somebody else may be given the same free one.
        let device = (0..20).find_map(|_| run("losetup", &["-f", "--show", file.to_str()?]))?;
        self.loops.push(device.clone().into());
        Some(device.into())
    }

    /// As after a start of the kubelet.
    fn disks(&self) -> Disks {
        let folders = ["bin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(|folder| self.path(folder));
        let jobs = Jobs::new(&Tasks::new("test"));
        Disks::new(self.root.path(), Arc::new(Programs::in_folders(folders.into())), Arc::new(jobs))
    }

    fn pod(&self, name: &str) -> PathBuf {
        self.path("pods").join(name)
    }

    fn mounted(&self) -> Option<MountPoint> {
        mount_table::at(&self.path("plugins/kubernetes.io/local-volume/mounts/pv")).expect("read")
    }
}

fn try_disk(path: &Path, kind: Option<&str>, options: &[&str], read_only: bool) -> Result<Disk, String> {
    let source = serde_json::from_value(json!({"path": path, "fsType": kind})).expect("a source");
    Disk::new("pv", &source, options.iter().map(|option| (*option).to_owned()).collect(), read_only)
}

fn disk(path: &Path) -> Disk {
    try_disk(path, None, &[], false).expect("a disk")
}

/// As the worker of a pod does.
async fn mount(disks: &Disks, pod: &Path, disk: &Disk) -> Result<Bound, String> {
    loop {
        match disks.mount(pod, disk.clone()).await {
            Err(Unmounted::NotYet(_)) => tokio::time::sleep(Duration::from_millis(20)).await,
            other => return other.map_err(|why| why.to_string()),
        }
    }
}

async fn end(disks: &Disks, pod: &Path) {
    disks.unmount(pod).await.expect("unmounted");
    directory::remove_all(pod).expect("removed");
}

#[tokio::test]
async fn a_disk_is_formatted_once_and_stays_mounted_while_a_pod_uses_it() {
    let Some(ground) = Ground::new() else { return };
    let (disks, disk, a, b) = (ground.disks(), disk(&ground.loops[0]), ground.pod("a"), ground.pod("b"));
    let bound = mount(&disks, &a, &disk).await.expect("mounted");
    assert_eq!((bound.path.as_path(), bound.is_writable), (target(&a, "pv").as_path(), true));
    fs::write(bound.path.join("data"), "kept").expect("written");
    fs::create_dir(bound.path.join("part")).expect("made");
    super::super::subpath::bind(&bound.path, "part", &a.join("volume-subpaths/v/c/0")).expect("bound");
    assert_eq!(mount(&disks, &a, &disk).await.expect("again").path, bound.path);

    let other = mount(&disks, &b, &disk).await.expect("mounted");
    assert_eq!(fs::read_to_string(other.path.join("data")).expect("there"), "kept");
    end(&disks, &a).await;
    assert!(ground.mounted().is_some(), "the other pod uses it");

    // A kubelet that begins anew knows who uses it, and goes on.
    let disks = ground.disks();
    mount(&disks, &b, &disk).await.expect("still there");
    end(&disks, &b).await;
    assert_eq!(ground.mounted(), None);
    disks.unmount(&b).await.expect("nothing is there");

    let bound = mount(&disks, &a, &disk).await.expect("mounted");
    assert_eq!(fs::read_to_string(bound.path.join("data")).expect("there"), "kept");
}

/// Killed between any two steps, a kubelet finds what is mounted.
#[tokio::test]
async fn a_kubelet_that_was_killed_goes_on_from_what_is_mounted() {
    let Some(ground) = Ground::new() else { return };
    let (disk, pod) = (disk(&ground.loops[0]), ground.pod("a"));
    let disks = ground.disks();
    mount(&disks, &pod, &disk).await.expect("mounted");
    // Before it was bound.
    rustix::mount::unmount(target(&pod, "pv"), UnmountFlags::DETACH).expect("unmounted");
    script(&ground.path("bin"), "mount", "exit 1");
    mount(&ground.disks(), &pod, &disk).await.expect("bound");
    // Before the note was removed.
    end(&ground.disks(), &pod).await;
    write_note(&note(&pod, USED, "pv")).expect("noted");
    end(&ground.disks(), &pod).await;
    assert_eq!(ground.mounted(), None);
}

#[tokio::test]
async fn options_and_read_only_are_followed() {
    let Some(ground) = Ground::new() else { return };
    let (disks, a, b) = (ground.disks(), ground.pod("a"), ground.pod("b"));
    let reader = try_disk(&ground.loops[0], Some("ext4"), &["noatime", "nodev"], true).expect("a disk");
    let writer = Disk { read_only: false, ..reader.clone() };
    let refused = mount(&disks, &a, &reader).await.expect_err("nothing is on it");
    assert!(refused.contains("cannot mount unformatted disk /dev/loop"), "{refused}");
    assert!(refused.ends_with(" as it is in read-only mode"), "{refused}");

    let bound = mount(&disks, &a, &writer).await.expect("mounted");
    let seen = mount_table::at(&bound.path).expect("read").expect("mounted");
    assert!(["rw", "noatime", "nodev"].iter().all(|option| is_option(&seen.options, option)), "{seen:?}");
    end(&disks, &a).await;

    let bound = mount(&disks, &a, &reader).await.expect("mounted");
    assert!(!bound.is_writable);
    let options = ground.mounted().expect("mounted").file_system_options;
    assert!(is_option(&options, "ro"), "{options:?}");
    // The next pod writes to it; the first does not, for all that.
    let bound = mount(&disks, &b, &writer).await.expect("mounted");
    assert!(bound.is_writable);
    fs::write(bound.path.join("data"), "new").expect("written");
    fs::write(target(&a, "pv").join("data"), "old").expect_err("it is read-only");
    let seen = mount_table::at(&target(&a, "pv")).expect("read").expect("mounted");
    assert!(["ro", "noatime", "nodev"].iter().all(|option| is_option(&seen.options, option)), "{seen:?}");
    end(&disks, &a).await;
    end(&disks, &b).await;

    let other = try_disk(&ground.loops[0], None, &["-o", "nonsense, --bind"], false).expect("a disk");
    let refused = mount(&disks, &a, &other).await.expect_err("no such option");
    assert!(refused.contains("Mounting arguments: -t ext4 -o -o,nonsense, --bind,defaults -- /dev/loop"), "{refused}");
    let protected = try_disk(&ground.loops[0], None, &["ro"], false).expect("a disk");
    assert!(!mount(&disks, &a, &protected).await.expect("mounted").is_writable);
}

#[tokio::test]
async fn what_is_on_a_disk_is_not_written_over() {
    let Some(ground) = Ground::new() else { return };
    let (disks, pod, device) = (ground.disks(), ground.pod("a"), ground.loops[0].clone());
    // A table with one partition, as of MS-DOS.
    let mut table = vec![0u8; 512];
    table[450] = 0x83;
    table[454..458].copy_from_slice(&2048u32.to_le_bytes());
    table[458..462].copy_from_slice(&2048u32.to_le_bytes());
    table[510..512].copy_from_slice(&[0x55, 0xaa]);
    fs::write(ground.path("table"), &table).expect("written");
    let copied = format!("of={}", device.display());
    run("dd", &[&format!("if={}", ground.path("table").display()), &copied, "conv=notrunc,fsync"]).expect("copied");
    let refused = mount(&disks, &pod, &disk(&device)).await.expect_err("partitions");
    let words = "failed to mount the volume as \"ext4\", it already contains unknown data, probably partitions";
    assert!(refused.ends_with(words), "{refused}");
    assert!(refused.starts_with(&format!("local: failed to mount device {} at ", device.display())), "{refused}");

    run("mkfs.ext4", &["-q", "-F", device.to_str().expect("text")]).expect("formatted");
    let other = try_disk(&device, Some("xfs"), &[], false).expect("a disk");
    let refused = mount(&disks, &pod, &other).await.expect_err("another file system");
    assert!(refused.ends_with("failed to mount the volume as \"xfs\", it already contains ext4"), "{refused}");

    // blkid finds nothing on what it cannot read, and on what is another's.
    script(&ground.path("bin"), "blkid", "exit 2");
    let folder = ground.path("elsewhere");
    fs::create_dir(&folder).expect("a folder");
    run("mount", &[device.to_str().expect("text"), folder.to_str().expect("text")]).expect("mounted");
    let refused = mount(&disks, &pod, &disk(&device)).await.expect_err("it is in use");
    assert!(
        refused.ends_with(&format!("{} is in use on this node, and is not formatted", device.display())),
        "{refused}"
    );
    script(&ground.path("bin"), "blkid", "echo DEVNAME=x");
    let refused = mount(&disks, &pod, &disk(&device)).await.expect_err("neither this nor that");
    assert!(refused.contains("blkid returns invalid output"), "{refused}");
    script(&ground.path("bin"), "blkid", "echo ambivalent result >&2; exit 8");
    let refused = mount(&disks, &pod, &disk(&device)).await.expect_err("ambivalent");
    assert!(refused.contains("exit status 8: ambivalent result"), "{refused}");
}

#[tokio::test]
async fn a_disk_is_checked_before_it_is_mounted() {
    let Some(ground) = Ground::new() else { return };
    let (disks, pod, bin) = (ground.disks(), ground.pod("a"), ground.path("bin"));
    run("mkfs.ext4", &["-q", "-F", ground.loops[0].to_str().expect("text")]).expect("formatted");
    script(&bin, "fsck", "echo \"bad blocks $*\"; exit 4");
    let refused = mount(&disks, &pod, &disk(&ground.loops[0])).await.expect_err("broken");
    let words = format!("could not correct them: bad blocks -a {}", ground.loops[0].display());
    assert!(refused.contains("'fsck' found errors on device") && refused.ends_with(&words), "{refused}");
    for code in [0, 1, 8] {
        script(&bin, "fsck", &format!("exit {code}"));
        mount(&disks, &pod, &disk(&ground.loops[0])).await.expect("mounted");
        end(&disks, &pod).await;
    }
    // What another has mounted is not repaired under it.
    let folder = ground.path("elsewhere");
    fs::create_dir(&folder).expect("a folder");
    run("mount", &[ground.loops[0].to_str().expect("text"), folder.to_str().expect("text")]).expect("mounted");
    script(&bin, "fsck", "exit 4");
    mount(&disks, &pod, &disk(&ground.loops[0])).await.expect("mounted");
}

#[tokio::test]
async fn a_program_that_hangs_or_is_missing_holds_up_its_own_pod_alone() {
    let Some(ground) = Ground::new() else { return };
    let (mut disks, pod, bin) = (ground.disks(), ground.pod("a"), ground.path("bin"));
    disks.limits.format = Duration::from_millis(300);
    script(&bin, "mkfs.ext4", "echo begun; sleep 1000");
    let hung = mount(&disks, &pod, &disk(&ground.loops[0])).await.expect_err("it hangs");
    let device = ground.loops[0].display();
    let words =
        format!("format of disk \"{device}\" failed: type:(\"ext4\") errcode:(killed after 300ms) output:(begun)");
    assert!(hung.ends_with(&words), "{hung}");
    let other = try_disk(&ground.loops[0], Some("nosuch"), &[], false).expect("a disk");
    let missing = mount(&disks, &pod, &other).await.expect_err("there is none");
    assert!(missing.contains("this node has no program mkfs.nosuch"), "{missing}");
    // And when the pod is deleted meanwhile, nothing goes on.
    disks.limits.format = Duration::from_secs(1000);
    let waits = disks.mount(&pod, disk(&ground.loops[0])).await.expect_err("it hangs");
    assert!(matches!(waits, Unmounted::NotYet(_)), "{waits}");
    end(&disks, &pod).await;
    assert_eq!(ground.mounted(), None);
}

/// The path is a link, as those of udev are, and comes to mean another disk while the first is looked at.
#[tokio::test]
async fn a_path_that_changes_its_meaning_formats_no_other_disk() {
    let Some(mut ground) = Ground::new() else { return };
    let Some(other) = ground.add_loop() else { return };
    let (disks, pod, link) = (ground.disks(), ground.pod("a"), ground.path("by id, x"));
    symlink(&ground.loops[0], &link).expect("a link");
    let swap = format!("ln -sfn {} '{}'; exec /usr/sbin/blkid \"$@\"", other.display(), link.display());
    script(&ground.path("bin"), "blkid", &swap);
    let want = disk(&link);
    mount(&disks, &pod, &want).await.expect("mounted");
    assert_eq!(ground.mounted().expect("mounted").source, ground.loops[0].to_string_lossy());
    assert_eq!(run("blkid", &["-p", other.to_str().expect("text")]), None, "nothing was written to the other");

    // Another pod means the other disk by the same volume: it does not get the first one.
    let refused = mount(&disks, &ground.pod("b"), &want).await.expect_err("the other disk");
    assert!(refused.contains("is mounted at") && refused.contains("for another pod"), "{refused}");
    end(&disks, &ground.pod("b")).await;
    // Once nobody uses it, it gives way.
    let alone = target(&pod, "pv");
    rustix::mount::unmount(&alone, UnmountFlags::DETACH).expect("unmounted");
    mount(&disks, &pod, &want).await.expect("mounted");
    assert_eq!(ground.mounted().expect("mounted").source, other.to_string_lossy());
}

/// The path means an empty disk while it is looked at, and the one with data before and after that.
#[tokio::test]
async fn what_is_looked_at_is_what_would_be_formatted() {
    let Some(mut ground) = Ground::new() else { return };
    let Some(other) = ground.add_loop() else { return };
    let (disks, pod, node) = (ground.disks(), ground.pod("a"), ground.path("node"));
    let make = |device: &Path| {
        let about = std::os::unix::fs::MetadataExt::rdev(&fs::metadata(device).expect("there"));
        format!("mknod {} b {} {}", node.display(), rustix::fs::major(about), rustix::fs::minor(about))
    };
    let (own, empty, remove) = (make(&ground.loops[0]), make(&other), format!("rm -f {}", node.display()));
    run("mkfs.ext4", &["-q", "-F", "-L", "kept", ground.loops[0].to_str().expect("text")]).expect("formatted");
    run("sh", &["-c", &own]).expect("a node");
    let swap = format!("{remove}; {empty}; /usr/sbin/blkid \"$@\"; code=$?; {remove}; {own}; exit $code");
    script(&ground.path("bin"), "blkid", &swap);
    mount(&disks, &pod, &disk(&node)).await.expect("mounted");
    let label = run("blkid", &["-p", "-s", "LABEL", "-o", "value", ground.loops[0].to_str().expect("text")]);
    assert_eq!(label.as_deref(), Some("kept"));
}

#[tokio::test]
async fn a_device_that_vanishes_is_said_to_be_gone() {
    let Some(ground) = Ground::new() else { return };
    let (disks, pod, node) = (ground.disks(), ground.pod("a"), ground.path("node"));
    let about = std::os::unix::fs::MetadataExt::rdev(&fs::metadata(&ground.loops[0]).expect("there"));
    let numbers = [rustix::fs::major(about).to_string(), rustix::fs::minor(about).to_string()];
    let node_path = node.to_str().expect("text");
    run("mknod", &[node_path, "b", &numbers[0], &numbers[1]]).expect("a node");
    script(&ground.path("bin"), "blkid", &format!("rm -f {node_path}; exit 2"));
    let gone = mount(&disks, &pod, &disk(&node)).await.expect_err("it is gone");
    assert!(gone.ends_with(&format!("{node_path}: No such file or directory (os error 2)")), "{gone}");
    let gone = mount(&disks, &pod, &disk(&node)).await.expect_err("it is gone");
    assert_eq!(gone, format!("local: device {node_path}: No such file or directory (os error 2)"));
    fs::write(&node, "a file").expect("written");
    let gone = mount(&disks, &pod, &disk(&node)).await.expect_err("a file");
    assert_eq!(gone, format!("local: {node_path} is not a block device"));
}

#[test]
fn a_type_of_a_file_system_is_a_plain_word() {
    for kind in ["ext4; rm", "../x", "ext4 -d", "-x", "EXT4", "ext4\n", "crypto_LUKS", &"x".repeat(33)] {
        let refused = try_disk(Path::new("/dev/null"), Some(kind), &[], false).expect_err(kind);
        assert!(refused.contains("is no type of a file system"), "{refused}");
    }
    for kind in ["ext4", "xfs", "ntfs3", ""] {
        try_disk(Path::new("/dev/null"), Some(kind), &[], false).expect(kind);
    }
}
