//! Images made to harm: layers that grow without end, and working directories that lead to the node.

use std::os::unix::fs::PermissionsExt;

use ferry_cri::{Code, v1};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::json;

use crate::kubelet::Kubelet;
use crate::registry::{Entry, Registry, layer};

const BOMB: usize = 256 << 20;

/// What the node itself would run out of memory with.
pub fn add_images(registry: &mut Registry, base: &[u8]) {
    let config = json!({"Cmd": ["sh"]});
    for (name, kind) in [("bomb/pax", tar::EntryType::XHeader), ("bomb/name", tar::EntryType::GNULongName)] {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mode(0o644);
        header.set_mtime(1);
        header.set_size(BOMB as u64);
        header.set_cksum();
        let mut plain = header.as_bytes().to_vec();
        plain.resize(plain.len() + BOMB, b'a');
        plain.extend(layer(&[Entry::File("file", b"", 0o644)]));
        registry.add(name, &[plain], config.clone(), false);
    }
    let config = json!({"Env": ["PATH=/bin"], "Cmd": ["sh"], "WorkingDir": "/proc/self/fd/7"});
    registry.add("workdir", &[base.to_vec()], config, false);
    let config = json!({"Env": ["PATH=/bin"], "Cmd": ["sh"]});
    let moved = layer(&[Entry::Folder("elsewhere/"), Entry::Link("proc", "elsewhere")]);
    registry.add("moved-proc", &[base.to_vec(), moved], config.clone(), false);
    registry.add("door", &[base.to_vec(), layer(&[Entry::Link("door", "proc")])], config, false);
}

pub async fn layers(kubelet: &mut Kubelet) {
    let before = kubelet.peak_memory();
    for name in ["bomb/pax", "bomb/name"] {
        let error = kubelet.pull(name).await.expect_err("refused");
        assert!(error.message().contains("a header of more than"), "{}", error.message());
    }
    let more = kubelet.peak_memory() - before;
    assert!(more < 64 << 20, "{more} bytes for two small layers");
}

/// A working directory that is one of the runtime's own open folders is outside of the container.
pub async fn working_directories(kubelet: &mut Kubelet) {
    let mark = kubelet.folder.join("mark-of-the-node");
    std::fs::write(&mark, "the node").expect("written");
    let pod = kubelet.run_pod(kubelet.pod_config("workdir")).await;
    let script = format!("cat {}{}; ls /proc/self/fd", "../".repeat(16), mark.display());
    kubelet.pull("workdir").await.expect("pulled");
    for number in 2..16 {
        let mut config = kubelet.container_config(&format!("c{number}"), &script);
        if number == 2 {
            config.image = Some(v1::ImageSpec { image: kubelet.image("workdir"), ..Default::default() });
        } else {
            config.working_dir = format!("/proc/self/fd/{number}");
        }
        let id = kubelet.create(&pod, config).await.expect("a container");
        if kubelet.start_container(&id).await.is_ok() {
            kubelet.ended(&id).await;
            let log = kubelet.log("workdir", &format!("c{number}")).join("\n");
            assert!(!log.contains("the node"), "{log}");
        }
    }
    // What a container inherits is its three streams; the fourth is that of `ls` itself.
    let id = kubelet.run(&pod, kubelet.container_config("open", "ls /proc/self/fd")).await;
    kubelet.ended(&id).await;
    let log = kubelet.log("workdir", "open");
    assert_eq!(log, ["stdout F 0", "stdout F 1", "stdout F 2", "stdout F 3"]);
    kubelet.remove_pod(&pod).await;
}

/// What confines a container is written to /proc, and hidden there: neither an image nor a volume takes its place.
pub async fn proc(kubelet: &mut Kubelet) {
    let (folder, file) = (kubelet.folder.join("over-proc"), kubelet.folder.join("figures"));
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(&file, "figures").expect("written");
    let pod = kubelet.run_pod(kubelet.pod_config("proc")).await;
    for (name, image, place, why) in [
        ("moved", "moved-proc", None, "is a link in the image"),
        ("over", "base", Some("/proc"), "not of type proc"),
        ("inside", "base", Some("/proc/sys"), "inside /proc"),
        ("through", "door", Some("/door/sys"), "inside /proc"),
    ] {
        kubelet.pull(image).await.expect("pulled");
        let mut config = kubelet.container_config(name, "sleep 1000");
        config.image = Some(v1::ImageSpec { image: kubelet.image(image), ..Default::default() });
        config.mounts.extend(place.map(|place| v1::Mount {
            container_path: place.into(),
            host_path: folder.to_string_lossy().into_owned(),
            ..Default::default()
        }));
        let id = kubelet.create(&pod, config).await.expect("a container");
        let error = kubelet.start_container(&id).await.expect_err("refused");
        assert!(error.message().contains(why), "{name}: {}", error.message());
    }
    let mut config = kubelet.container_config("figures", "cat /proc/meminfo");
    config.mounts.push(v1::Mount {
        container_path: "/proc/meminfo".into(),
        host_path: file.to_string_lossy().into_owned(),
        ..Default::default()
    });
    let id = kubelet.run(&pod, config).await;
    kubelet.ended(&id).await;
    assert_eq!(kubelet.log("proc", "figures"), ["stdout P figures"]);
    kubelet.remove_pod(&pod).await;
}

/// A program may be named by a descriptor; those of the runtime are closed before it is looked for. One is left, which tells
/// the runtime how that went.
pub async fn programs(kubelet: &mut Kubelet) {
    let pod = kubelet.run_pod(kubelet.pod_config("programs")).await;
    let id = kubelet.run(&pod, kubelet.container_config("c", "sleep 1000")).await;
    let mut open = Vec::new();
    for number in 3..40 {
        let cmd = vec![format!("/proc/self/fd/{number}")];
        let request = v1::ExecSyncRequest { container_id: id.clone(), cmd, timeout: 20 };
        let answer = format!("{:?}", kubelet.client.exec_sync(request).await);
        if !answer.contains("no such file") {
            open.push(answer);
        }
    }
    assert!(open.len() <= 1, "{open:#?}");
    kubelet.remove_pod(&pod).await;
}

/// Where the pod's namespaces are gone, a container is not started in those of the node.
pub async fn namespaces(kubelet: &mut Kubelet) {
    let pod = kubelet.run_pod(kubelet.pod_config("bare")).await;
    let kept = kubelet.folder.join("run/namespaces").join(&pod);
    let away = kept.with_extension("away");
    std::fs::rename(&kept, &away).expect("namespaces of the pod");
    let started = match kubelet.create(&pod, kubelet.container_config("c", "sleep 1000")).await {
        Ok(id) => kubelet.start_container(&id).await,
        Err(error) => Err(error),
    };
    std::fs::rename(&away, &kept).expect("moved back");
    let error = started.expect_err("refused");
    assert!(error.message().contains("namespace"), "{}", error.message());
    kubelet.remove_pod(&pod).await;
}

/// What a command without input reads is the node's, and opened before the container has a say: a link in its place does not
/// lead to what only the node may read, and a pipe does not hold the command up.
pub async fn null_devices(kubelet: &mut Kubelet) {
    let folder = kubelet.folder.join("devices");
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("secret"), "of the node").expect("written");
    std::fs::set_permissions(folder.join("secret"), std::fs::Permissions::from_mode(0o600)).expect("permissions");
    let pod = kubelet.run_pod(kubelet.pod_config("null")).await;
    let mut config = kubelet.container_config("c", "sleep 1000");
    config.mounts.push(v1::Mount {
        container_path: "/dev".into(),
        host_path: folder.to_string_lossy().into_owned(),
        ..Default::default()
    });
    let id = kubelet.run(&pod, config).await;
    for (name, put) in [("null.link", "link"), ("null.pipe", "pipe")] {
        let place = folder.join(name);
        match put {
            "link" => std::os::unix::fs::symlink("secret", &place).expect("a link"),
            _ => mknodat(CWD, &place, FileType::Fifo, Mode::from_raw_mode(0o666), 0).expect("a pipe"),
        }
        std::fs::rename(&place, folder.join("null")).expect("in its place");
        let answer = kubelet.exec(&id, &["cat"]).await;
        assert_eq!((answer.exit_code, &*answer.stdout), (0, &b""[..]), "{put}");
    }
    assert_eq!(kubelet.output(&id, "id -u; cat /dev/secret").await, "33", "who could not read it");
    kubelet.remove_pod(&pod).await;
}

/// A command that is held up before it executes anything does not outlive its time.
pub async fn held_up(kubelet: &mut Kubelet) {
    let folder = kubelet.folder.join("held-up");
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).expect("permissions");
    let pod = kubelet.run_pod(kubelet.pod_config("held-up")).await;
    let mut config = kubelet.container_config("c", "sleep 1000");
    config.mounts.push(v1::Mount {
        container_path: "/shared".into(),
        host_path: folder.to_string_lossy().into_owned(),
        ..Default::default()
    });
    let id = kubelet.run(&pod, config).await;
    // Whoever joins a frozen group stands still.
    let (file, frozen, thawed) = freezer(&id);
    std::fs::write(&file, frozen).expect("frozen");
    let cmd = ["sh", "-c", "echo > /shared/ran; sleep 1000"].map(str::to_owned).to_vec();
    let late = kubelet.client.exec_sync(v1::ExecSyncRequest { container_id: id.clone(), cmd, timeout: 1 }).await;
    assert_eq!(late.expect_err("too long").code(), Code::DeadlineExceeded);
    std::fs::write(&file, thawed).expect("thawed");
    let left = kubelet.output(&id, "sleep 1; ps").await;
    assert!(left.contains("sleep 1000"), "{left}");
    assert!(!folder.join("ran").exists(), "it was executed after its time: {left}");
    kubelet.remove_pod(&pod).await;
}

/// The file that freezes a container, and what is written to it.
fn freezer(id: &str) -> (std::path::PathBuf, &'static str, &'static str) {
    let mounts = std::path::Path::new("/sys/fs/cgroup");
    let (mount, file, frozen, thawed) = if mounts.join("cgroup.controllers").exists() {
        (mounts.to_owned(), "cgroup.freeze", "1", "0")
    } else {
        (mounts.join("freezer"), "freezer.state", "FROZEN", "THAWED")
    };
    let mut folders = vec![mount];
    while let Some(folder) = folders.pop() {
        if folder.file_name().is_some_and(|name| name.to_string_lossy().contains(id)) {
            return (folder.join(file), frozen, thawed);
        }
        let inner = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        folders.extend(inner.map(|entry| entry.path()).filter(|path| path.is_dir()));
    }
    panic!("{id} has no control group");
}

/// What a command says without end is read, and little of it kept.
pub async fn outputs(kubelet: &mut Kubelet) {
    let pod = kubelet.run_pod(kubelet.pod_config("outputs")).await;
    let id = kubelet.run(&pod, kubelet.container_config("c", "sleep 1000")).await;
    let answer = kubelet.exec(&id, &["sh", "-c", "head -c 8000000 /dev/zero; head -c 8000000 /dev/zero >&2"]).await;
    assert_eq!(answer.exit_code, 0, "it was heard to its end");
    assert_eq!((answer.stdout.len(), answer.stderr.len()), (64 << 10, 64 << 10));
    kubelet.remove_pod(&pod).await;
}
