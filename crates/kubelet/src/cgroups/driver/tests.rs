//! Plain folders stand for the kernel's, a bus of the test's own for systemd.

use std::fs;

use ferry_systemd::bus::Bus;
use ferry_systemd::{ANSWER, Message, SIGNAL, Value};
use serde_json::json;
use tokio::net::UnixListener;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::*;
use crate::cgroups::amounts_of;
use crate::node_resources::Quotas;

fn groups(mounts: &Path, root: &str) -> ControlGroups {
    fs::write(mounts.join("cgroup.controllers"), "cpu memory pids\n").expect("written");
    ControlGroups::new(mounts, Path::new(root))
}

#[test]
fn drivers_have_upstreams_names() {
    for (name, driver) in [("systemd", CgroupDriver::Systemd), ("cgroupfs", CgroupDriver::Cgroupfs)] {
        assert_eq!((CgroupDriver::parse(name), driver.name()), (Some(driver), name));
    }
    assert_eq!(CgroupDriver::parse("Systemd"), None);
}

#[test]
fn slices_are_found_again_by_their_names() {
    let mounts = tempfile::tempdir().expect("a folder");
    let groups = groups(mounts.path(), "/my-box").sliced(Systemd::at("/nowhere", "/nowhere"));
    let top = mounts.path().join("my_box.slice/my_box-kubepods.slice");
    for pod in [
        "my_box-kubepods-pod1_2.slice",
        "my_box-kubepods-burstable.slice/my_box-kubepods-burstable-pod3_4.slice",
        "my_box-kubepods-besteffort.slice/other.slice",
        "a.scope",
    ] {
        fs::create_dir_all(top.join(pod)).expect("a folder");
    }
    let mut known = groups.known();
    known.sort();
    assert_eq!(known, ["1-2", "3-4"]);
    let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p", "uid": "3-4"},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}))
    .expect("a pod");
    let slice =
        "/my_box.slice/my_box-kubepods.slice/my_box-kubepods-burstable.slice/my_box-kubepods-burstable-pod3_4.slice";
    assert_eq!(groups.parent(&pod), slice);
    for (runtime, scope) in
        [("ferry", "ferry-1.scope"), ("containerd", "cri-containerd-1.scope"), ("cri-o", "crio-1.scope")]
    {
        assert_eq!(groups.of_container(&pod, runtime, "1"), format!("{slice}/{scope}"));
    }
    assert_eq!(groups.read_name("/system.slice/system-a.slice"), Path::new("system/a"));
    assert_eq!(groups.place(Path::new("system/a")), Path::new("system.slice/system-a.slice"));
}

#[test]
fn processes_that_another_driver_placed_are_seen() {
    for sliced in [false, true] {
        let mounts = tempfile::tempdir().expect("a folder");
        let mut groups = groups(mounts.path(), "/");
        if sliced {
            groups = groups.sliced(Systemd::at("/nowhere", "/nowhere"));
        }
        let [plain, slice] =
            ["kubepods/burstable/poda-b", "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poda_b.slice"]
                .map(|group| mounts.path().join(group));
        for (folder, populated) in [(&plain, sliced), (&slice, !sliced)] {
            fs::create_dir_all(folder).expect("a folder");
            fs::write(folder.join("cgroup.events"), format!("populated {}\nfrozen 0\n", u8::from(populated)))
                .expect("written");
        }
        assert!(groups.is_elsewhere("a-b"), "{sliced}");
        assert!(!groups.is_elsewhere("other"), "{sliced}");
        let other = if sliced { &plain } else { &slice };
        fs::write(other.join("cgroup.events"), "populated 0\nfrozen 0\n").expect("written");
        assert!(!groups.is_elsewhere("a-b"), "{sliced}");
    }
}

/// Does whatever it is asked for, and tells what that was.
async fn systemd(listener: UnixListener, asked: UnboundedSender<String>) {
    const OBJECT: &str = "/org/freedesktop/systemd1";
    while let Ok((stream, _)) = listener.accept().await {
        let mut bus = Bus::of(stream);
        for answer in ["OK 1234\r\n", "AGREE_UNIX_FD\r\n", ""] {
            bus.line().await.expect("a line");
            bus.write(answer.as_bytes()).await.expect("written");
        }
        while let Ok(call) = bus.read().await {
            let job = Value::Text("/job/1".to_owned());
            let answer =
                Message { kind: ANSWER, answers: call.serial, values: vec![job.clone()], ..Message::default() };
            bus.send(answer).await.expect("sent");
            let Some(Value::Text(unit)) = call.values.first().filter(|_| call.path == OBJECT) else { continue };
            asked.send(format!("{} {unit}", call.member)).expect("told");
            // Nobody waits for the end of a job that was none.
            if !["StartTransientUnit", "StopUnit"].contains(&call.member.as_str()) {
                continue;
            }
            let values = vec![Value::Number(1), job, Value::Text(unit.clone()), Value::Text("done".to_owned())];
            let (interface, member) = ("org.freedesktop.systemd1.Manager".to_owned(), "JobRemoved".to_owned());
            let path = OBJECT.to_owned();
            let removed = Message { kind: SIGNAL, path, interface, member, values, ..Message::default() };
            bus.send(removed).await.expect("sent");
        }
    }
}

fn all(asked: &mut UnboundedReceiver<String>) -> Vec<String> {
    std::iter::from_fn(|| asked.try_recv().ok()).collect()
}

/// A limit that only the file has is gone when systemd looks at its units again.
#[tokio::test]
async fn systemd_knows_what_is_written() {
    let mounts = tempfile::tempdir().expect("a folder");
    let socket = mounts.path().join("bus");
    let (sender, mut asked) = unbounded_channel();
    let listener = UnixListener::bind(&socket).expect("a socket");
    let answering = systemd(listener, sender);
    let pod = |cpu: &str| -> Pod {
        let resources = json!({"requests": {"cpu": "100m"}, "limits": {"cpu": cpu}});
        let spec = json!({"containers": [{"name": "c", "resources": resources}]});
        serde_json::from_value(json!({"metadata": {"name": "p", "uid": "1-2"}, "spec": spec})).expect("a pod")
    };
    let work = async {
        let groups = groups(mounts.path(), "/").sliced(Systemd::at(&socket, "/nowhere"));
        let apply = async |cpu: &str| {
            let pod = pod(cpu);
            groups.apply(&pod, &amounts_of(&pod, Quotas::default())).await.expect("applied");
        };
        let pods = "kubepods-burstable-pod1_2.slice";
        let max = || {
            let file = format!("kubepods.slice/kubepods-burstable.slice/{pods}/cpu.max");
            fs::read_to_string(mounts.path().join(file)).expect("written")
        };
        apply("255m").await;
        assert_eq!(max(), "26000 100000");
        let start =
            ["kubepods.slice", "kubepods-burstable.slice", pods].map(|unit| format!("StartTransientUnit {unit}"));
        let set = ["kubepods.slice", "kubepods-burstable.slice", pods, "kubepods.slice", "kubepods-burstable.slice"]
            .map(|unit| format!("SetUnitProperties {unit}"));
        assert_eq!(all(&mut asked), [&start[..], &set[..]].concat());
        // Only what is new is told.
        apply("255m").await;
        assert_eq!(all(&mut asked), Vec::<String>::new());
        apply("300m").await;
        assert_eq!((max().as_str(), all(&mut asked)), ("30000 100000", vec![format!("SetUnitProperties {pods}")]));
        groups.remove("1-2").await;
        let stopped = [format!("StopUnit {pods}"), format!("ResetFailedUnit {pods}")];
        assert_eq!(all(&mut asked)[..2], stopped);
    };
    tokio::select! {
        () = work => {}
        () = answering => panic!("systemd is gone"),
    }
}
