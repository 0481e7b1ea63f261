use serde_json::{Value, json};

use super::*;
use crate::container::document::DeviceRule;

fn resources(value: Value) -> Resources {
    serde_json::from_value(value).expect("resources")
}

fn written(unified: bool, value: Value) -> Vec<(String, String)> {
    let folder = tempfile::tempdir().expect("a folder");
    let entries =
        if unified { limits::unified(&resources(value)) } else { limits::first_generation(&resources(value)) };
    limits::write(&entries, |file| Some(folder.path().join(file))).expect("written");
    let mut all: Vec<(String, String)> = fs::read_dir(folder.path())
        .expect("a folder")
        .flatten()
        .map(|entry| {
            let text = fs::read_to_string(entry.path()).expect("a file");
            (entry.file_name().to_string_lossy().into_owned(), text)
        })
        .collect();
    all.sort();
    all
}

fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn amounts_become_files() {
    let asked = json!({
        "cpu": {"shares": 1024, "quota": 50_000, "period": 100_000, "cpus": "0-1"},
        "memory": {"limit": 1000, "swap": 1500},
        "pids": {"limit": 7},
        "hugepageLimits": [{"pageSize": "2MB", "limit": 0}],
        "unified": {"memory.high": "900"},
    });
    let wanted = [
        ("cpu.max", "50000 100000"),
        ("cpu.weight", "39"),
        ("cpuset.cpus", "0-1"),
        ("hugetlb.2MB.max", "0"),
        ("memory.high", "900"),
        ("memory.max", "1000"),
        ("memory.swap.max", "500"),
        ("pids.max", "7"),
    ];
    assert_eq!(written(true, asked.clone()), pairs(&wanted));
    let wanted = [
        ("cpu.cfs_period_us", "100000"),
        ("cpu.cfs_quota_us", "50000"),
        ("cpu.shares", "1024"),
        ("cpuset.cpus", "0-1"),
        ("hugetlb.2MB.limit_in_bytes", "0"),
        ("memory.limit_in_bytes", "1000"),
        ("memory.memsw.limit_in_bytes", "1500"),
        ("pids.max", "7"),
    ];
    assert_eq!(written(false, asked), pairs(&wanted));
    assert_eq!(written(true, json!({"memory": {"swap": 0}})), pairs(&[("memory.swap.max", "0")]));
    assert_eq!(written(true, json!({"cpu": {"quota": -1, "period": 1000}})), pairs(&[("cpu.max", "max 1000")]));
    assert_eq!(
        written(true, json!({"memory": {"limit": -1}, "pids": {"limit": -1}})),
        pairs(&[("memory.max", "max"), ("pids.max", "max")])
    );
}

/// A limit that the machine cannot keep is an error; one that forbids what the machine does not have is not.
#[test]
fn limits_are_not_left_out() {
    let none = |_: &str| None;
    let entries = limits::unified(&resources(json!({"memory": {"limit": 1000}})));
    assert!(limits::write(&entries, none).is_err());
    let entries = limits::unified(&resources(json!({"hugepageLimits": [{"pageSize": "2MB", "limit": 0}]})));
    assert!(limits::write(&entries, none).is_ok());
}

/// A kernel that does not count swap has no file to forbid it with.
#[test]
fn no_swap_needs_no_file() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("memory.max"), "max").expect("a file");
    let group = Group { unified: true, folders: vec![folder.path().to_owned()], scope: None };
    group.write(&resources(json!({"memory": {"limit": 1000, "swap": 1000}}))).expect("limited");
    assert_eq!(fs::read_to_string(folder.path().join("memory.max")).expect("a file"), "1000");
    assert!(!folder.path().join("memory.swap.max").exists());
    let error = group.write(&resources(json!({"memory": {"limit": 1000, "swap": 1500}}))).expect_err("no such file");
    assert!(error.to_string().contains("memory.swap.max"), "{error}");
}

/// The kernel takes the program that decides about devices, and follows it.
#[test]
fn devices_are_decided_by_a_program() {
    let Some(mount) =
        [MOUNTS, "/sys/fs/cgroup/unified"].into_iter().find(|m| Path::new(m).join("cgroup.procs").exists())
    else {
        return ferry_testkit::skip("no control groups of the second generation are mounted");
    };
    if !rustix::process::geteuid().is_root() {
        return ferry_testkit::skip("control groups need root");
    }
    let folder = Path::new(mount).join(format!("ferry-devices-{}", std::process::id()));
    fs::create_dir(&folder).expect("a group");
    let rule = |allow, kind: &str, major, minor| DeviceRule {
        allow,
        kind: kind.to_owned(),
        major,
        minor,
        access: "rwm".to_owned(),
    };
    let rules = [rule(false, "", None, None), rule(true, "c", Some(10), Some(200))];
    let attached = devices::attach(&folder, &rules);
    let script = format!(
        "echo $$ > {}/cgroup.procs; head -c1 /dev/zero | wc -c; head -c1 /dev/kmsg 2>&1 | head -1; mknod /tmp/ferry-kmsg-$$ c 1 11; echo made $?; rm /tmp/ferry-kmsg-$$",
        folder.display()
    );
    let seen = std::process::Command::new("sh").args(["-c", &script]).output().expect("a shell");
    fs::remove_dir(&folder).expect("removed");
    attached.expect("attached");
    let text = String::from_utf8_lossy(&seen.stdout).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.first().copied(), Some("1"), "{text}");
    assert!(lines.get(1).is_some_and(|line| line.contains("not permitted")), "{text}");
    assert_eq!(lines.last().copied(), Some("made 0"), "{text}");
}

/// A group above may be another's that is not ready yet: it gets its processors from here too.
#[test]
fn processors_come_from_the_top_also_where_others_made_a_group() {
    let mount = tempfile::tempdir().expect("a folder");
    let pod = mount.path().join("kubepods/pod");
    fs::create_dir_all(&pod).expect("folders");
    for (file, all) in [("cpuset.cpus", "0-1"), ("cpuset.mems", "0")] {
        fs::write(mount.path().join(file), format!("{all}\n")).expect("a file");
        for group in [pod.parent().expect("a parent"), &pod] {
            fs::write(group.join(file), "\n").expect("a file");
        }
    }
    let group = Group { unified: false, folders: vec![pod.clone()], scope: None };
    group.make_folder(&pod).expect("made");
    for group in [pod.parent().expect("a parent"), &pod] {
        assert_eq!(fs::read_to_string(group.join("cpuset.cpus")).expect("a file"), "0-1", "{}", group.display());
        assert_eq!(fs::read_to_string(group.join("cpuset.mems")).expect("a file"), "0", "{}", group.display());
    }
}

/// Only a group below the container's is joined in its place.
#[test]
fn a_command_follows_the_first_process_below_its_own_group() {
    let (mounts, own) = (Path::new("/groups"), Path::new("/groups/kubepods/pod/c"));
    for (groups, want) in [
        ("0::/kubepods/pod/c/init.scope\n", Some("/groups/kubepods/pod/c/init.scope")),
        ("1:name=systemd:/x\n0::/kubepods/pod/c/a/b\n", Some("/groups/kubepods/pod/c/a/b")),
        ("0::/kubepods/pod/c\n", None),
        ("0::/kubepods/pod/other\n", None),
        ("0::/kubepods/pod/c/../other\n", None),
        ("0::/../escaped\n", None),
        ("", None),
    ] {
        assert_eq!(inner_group(mounts, groups, own).as_deref(), want.map(Path::new), "{groups:?}");
    }
}
