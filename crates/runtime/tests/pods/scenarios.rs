//! What the runtime promises, one scenario after the other.

use std::time::Duration;

use ferry_cri::{Code, v1};

use crate::kubelet::Kubelet;
use crate::streaming_client;

pub async fn images(kubelet: &mut Kubelet) {
    let id = kubelet.pull("base").await.expect("pulled");
    let of = |name: String| v1::ImageStatusRequest {
        image: Some(v1::ImageSpec { image: name, ..Default::default() }),
        verbose: false,
    };
    let client = &kubelet.client;
    let shown = client.image_status(of(kubelet.image("base"))).await.expect("a status").image.expect("an image");
    assert_eq!((&shown.id, shown.username.as_str()), (&id, "web"));
    assert_eq!(shown.repo_tags, [kubelet.image("base")]);
    assert!(client.image_status(of(id.clone())).await.expect("a status").image.is_some());

    let check = |error: ferry_cri::Status, word: &str| assert!(error.message().contains(word), "{}", error.message());
    check(kubelet.pull("spoilt").await.expect_err("spoilt"), "is corrupt");
    check(kubelet.pull("climbing").await.expect_err("climbing"), "leads out of the image");
    check(kubelet.pull("missing").await.expect_err("missing"), "not found");
    // A link to the host's root is followed inside the image.
    kubelet.pull("trap").await.expect("pulled");
    assert!(!std::path::Path::new("/ferry-escape-test").exists());

    let private = |password: &str| v1::PullImageRequest {
        image: Some(v1::ImageSpec { image: kubelet.image("private/base"), ..Default::default() }),
        auth: Some(v1::AuthConfig { username: "me".into(), password: password.into(), ..Default::default() }),
        sandbox_config: None,
    };
    let refused = client.pull_image(private("wrong")).await.expect_err("refused");
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert_eq!(client.pull_image(private("secret")).await.expect("pulled").image_ref, id);

    let trap = client.image_status(of(kubelet.image("trap"))).await.expect("a status").image.expect("an image");
    let before = client.list_images(Default::default()).await.expect("a list").images.len();
    let image = Some(v1::ImageSpec { image: trap.id, ..Default::default() });
    client.remove_image(v1::RemoveImageRequest { image }).await.expect("removed");
    assert_eq!(client.list_images(Default::default()).await.expect("a list").images.len(), before - 1);
    let told = client.image_fs_info(Default::default()).await.expect("figures").image_filesystems;
    assert!(told[0].used_bytes.as_ref().is_some_and(|used| used.value > 100_000));
}

pub async fn life(kubelet: &mut Kubelet) {
    let pod = kubelet.run_pod(kubelet.pod_config("life")).await;
    let request = v1::PodSandboxStatusRequest { pod_sandbox_id: pod.clone(), verbose: false };
    let status = kubelet.client.pod_sandbox_status(request).await.expect("a status").status.expect("a status");
    assert!(status.network.expect("a network").ip.starts_with("10.239.77."));

    let script = "echo one; echo two >&2; echo -n three; exit 7";
    let short = kubelet.create(&pod, kubelet.container_config("short", script)).await.expect("a container");
    assert_eq!(kubelet.status(&short).await.state(), v1::ContainerState::ContainerCreated);
    kubelet.start_container(&short).await.expect("started");
    let ended = kubelet.ended(&short).await;
    assert_eq!((ended.exit_code, ended.reason.as_str()), (7, "Error"));
    assert!(ended.started_at > 0 && ended.finished_at >= ended.started_at);
    let mut log = kubelet.log("life", "short");
    log.sort();
    assert_eq!(log, ["stderr F two", "stdout F one", "stdout P three"]);

    // It listens to its signal; another does not and is killed.
    let script = "trap 'echo bye; exit 0' TERM; echo ready; while true; do sleep 0.1; done";
    let polite = kubelet.run(&pod, kubelet.container_config("polite", script)).await;
    while !kubelet.log("life", "polite").iter().any(|line| line.contains("ready")) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let stop = |id: &str, timeout| v1::StopContainerRequest { container_id: id.into(), timeout };
    kubelet.client.stop_container(stop(&polite, 20)).await.expect("stopped");
    assert_eq!(kubelet.status(&polite).await.exit_code, 0);
    assert!(kubelet.log("life", "polite").contains(&"stdout F bye".to_owned()));
    let mut config = kubelet.container_config("odd", "trap 'exit 6' 37; echo ready; while true; do sleep 0.1; done");
    config.stop_signal = v1::Signal::Sigrtminplus3.into();
    let odd = kubelet.run(&pod, config).await;
    while !kubelet.log("life", "odd").iter().any(|line| line.contains("ready")) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    kubelet.client.stop_container(stop(&odd, 20)).await.expect("stopped");
    assert_eq!(kubelet.status(&odd).await.exit_code, 6);
    let stubborn = kubelet.run(&pod, kubelet.container_config("stubborn", "sleep 1000")).await;
    kubelet.client.stop_container(stop(&stubborn, 0)).await.expect("stopped");
    assert_eq!(kubelet.status(&stubborn).await.exit_code, 137);

    // The log goes on in a new file where the old one was.
    let talking = kubelet.container_config("talking", "while true; do echo word; sleep 0.1; done");
    let talking = kubelet.run(&pod, talking).await;
    let folder = kubelet.folder.join("logs/life");
    std::fs::rename(folder.join("talking.log"), folder.join("old.log")).expect("moved");
    let request = v1::ReopenContainerLogRequest { container_id: talking };
    kubelet.client.reopen_container_log(request).await.expect("reopened");
    while kubelet.log("life", "talking").is_empty() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    kubelet.remove_pod(&pod).await;
    assert!(kubelet.client.list_containers(Default::default()).await.expect("a list").containers.is_empty());
}

pub async fn failures(kubelet: &mut Kubelet) {
    let pod = kubelet.run_pod(kubelet.pod_config("failures")).await;
    let mut config = kubelet.container_config("absent", "");
    config.command = vec!["/no/such/program".into()];
    let absent = kubelet.create(&pod, config.clone()).await.expect("a container");
    let error = kubelet.start_container(&absent).await.expect_err("cannot start");
    assert!(error.message().contains("/no/such/program"), "{}", error.message());
    let status = kubelet.status(&absent).await;
    assert_eq!((status.exit_code, status.reason.as_str()), (128, "StartError"));

    config.image = Some(v1::ImageSpec { image: kubelet.image("nowhere"), ..Default::default() });
    assert_eq!(kubelet.create(&pod, config.clone()).await.expect_err("no image").code(), Code::NotFound);
    assert_eq!(kubelet.create("feedbeef", config).await.expect_err("no pod").code(), Code::NotFound);
    let request = v1::ContainerStatusRequest { container_id: "feedbeef".into(), verbose: false };
    assert_eq!(kubelet.client.container_status(request).await.expect_err("none").code(), Code::NotFound);
    // What is gone may be removed again.
    kubelet
        .client
        .remove_container(v1::RemoveContainerRequest { container_id: "feedbeef".into() })
        .await
        .expect("fine");
    kubelet.remove_pod(&pod).await;
}

pub async fn commands(kubelet: &mut Kubelet) {
    let pod = kubelet.run_pod(kubelet.pod_config("commands")).await;
    let id = kubelet.run(&pod, kubelet.container_config("c", "sleep 1000")).await;
    let answer = kubelet.exec(&id, &["sh", "-c", "echo out; echo err >&2; exit 3"]).await;
    assert_eq!((&answer.stdout[..], &answer.stderr[..], answer.exit_code), (&b"out\n"[..], &b"err\n"[..], 3));
    assert_eq!(kubelet.exec(&id, &["true"]).await.exit_code, 0);
    let request = |cmd: &[&str]| v1::ExecSyncRequest {
        container_id: id.clone(),
        cmd: cmd.iter().map(|word| (*word).to_owned()).collect(),
        timeout: 1,
    };
    let late = kubelet.client.exec_sync(request(&["sleep", "1000"])).await.expect_err("too long");
    assert_eq!(late.code(), Code::DeadlineExceeded);
    let absent = kubelet.client.exec_sync(request(&["/no/such"])).await.expect_err("absent");
    assert!(absent.message().contains("/no/such"), "{}", absent.message());
    kubelet.remove_pod(&pod).await;
}

/// One port for each way of forwarding: a server is away for a moment behind each connection.
const SERVERS: &str =
    "(while true; do echo pong | nc -l -p 8082; done) & while true; do echo pong | nc -l -p 8080; done";

pub async fn streams(kubelet: &mut Kubelet) {
    let pod = kubelet.run_pod(kubelet.pod_config("streams")).await;
    let server = kubelet.run(&pod, kubelet.container_config("server", SERVERS)).await;
    let exec = |tty: bool, script: &str| v1::ExecRequest {
        container_id: server.clone(),
        cmd: ["sh", "-c", script].map(str::to_owned).to_vec(),
        tty,
        stdin: true,
        stdout: true,
        stderr: !tty,
    };
    let url = kubelet
        .client
        .exec(exec(false, "read line; echo got $line; echo err >&2; exit 5"))
        .await
        .expect("an address")
        .url;
    let [_, out, err, status] = streaming_client::channels(&url, b"hello\n").await;
    assert_eq!((&out[..], &err[..]), (&b"got hello\n"[..], &b"err\n"[..]));
    assert!(String::from_utf8_lossy(&status).contains(r#""message":"5""#), "{}", String::from_utf8_lossy(&status));

    let url = kubelet.client.exec(exec(true, "tty; exit 0")).await.expect("an address").url;
    let [_, out, _, status] = streaming_client::channels(&url, b"").await;
    assert!(String::from_utf8_lossy(&out).contains("/dev/pts/"), "{}", String::from_utf8_lossy(&out));
    assert!(String::from_utf8_lossy(&status).contains("Success"));

    let mut config = kubelet.container_config("reader", "read line; echo read $line; exit 0");
    (config.stdin, config.stdin_once) = (true, true);
    let reader = kubelet.run(&pod, config).await;
    let request =
        v1::AttachRequest { container_id: reader.clone(), stdin: true, stdout: true, stderr: true, tty: false };
    let url = kubelet.client.attach(request).await.expect("an address").url;
    let [_, out, ..] = streaming_client::channels(&url, b"words\n").await;
    assert_eq!(String::from_utf8_lossy(&out), "read words\n");
    assert_eq!(kubelet.ended(&reader).await.exit_code, 0);

    // Whose input stays open for others goes on without the one that leaves.
    let mut config = kubelet.container_config("listener", "while read line; do echo read $line; done; exit 7");
    config.stdin = true;
    let listener = kubelet.run(&pod, config).await;
    for words in ["first", "second"] {
        let container_id = listener.clone();
        let request = v1::AttachRequest { container_id, stdin: true, stdout: true, stderr: true, tty: false };
        let url = kubelet.client.attach(request).await.expect("an address").url;
        let [_, out, _, status] = streaming_client::channels_closed(&url, format!("{words}\n").as_bytes()).await;
        assert_eq!(String::from_utf8_lossy(&out), format!("read {words}\n"));
        assert!(String::from_utf8_lossy(&status).contains("Success"), "{}", String::from_utf8_lossy(&status));
    }
    assert_eq!(kubelet.status(&listener).await.state(), v1::ContainerState::ContainerRunning);

    let forward = || v1::PortForwardRequest { pod_sandbox_id: pod.clone(), port: vec![8080] };
    let url = kubelet.client.port_forward(forward()).await.expect("an address").url;
    let (output, error) = streaming_client::forward(&url, 8080, b"ping\n").await;
    assert_eq!((String::from_utf8_lossy(&output), error.len()), ("pong\n".into(), 0));
    let by_channels = v1::PortForwardRequest { pod_sandbox_id: pod.clone(), port: vec![8082] };
    let url = kubelet.client.port_forward(by_channels).await.expect("an address").url;
    let output = streaming_client::forward_by_channels(&url, 8082, b"ping\n").await;
    assert_eq!(String::from_utf8_lossy(&output), "pong\n");
    let url = kubelet.client.port_forward(forward()).await.expect("an address").url;
    let (_, error) = streaming_client::forward(&url, 8081, b"").await;
    assert!(String::from_utf8_lossy(&error).contains("refused"), "{}", String::from_utf8_lossy(&error));
    kubelet.remove_pod(&pod).await;
}

pub async fn isolation(kubelet: &mut Kubelet) {
    let mut config = kubelet.pod_config("isolation");
    let linux = config.linux.get_or_insert_default();
    linux.sysctls.insert("net.ipv4.tcp_syncookies".into(), "0".into());
    let options = v1::NamespaceOption::default();
    linux.security_context.get_or_insert_default().namespace_options = Some(options.clone());
    let pod = kubelet.run_pod(config).await;
    let volume = v1::Mount {
        container_path: "/volume".into(),
        image: Some(v1::ImageSpec { image: kubelet.image("base"), ..Default::default() }),
        image_sub_path: "old".into(),
        readonly: true,
        ..Default::default()
    };
    let mut first = kubelet.container_config("first", "sleep 1000");
    first.mounts.push(volume);
    let context = v1::LinuxContainerSecurityContext { namespace_options: Some(options), ..Default::default() };
    let linux = |context| Some(v1::LinuxContainerConfig { security_context: Some(context), ..Default::default() });
    first.linux = linux(v1::LinuxContainerSecurityContext {
        seccomp: Some(v1::SecurityProfile { profile_type: 0, localhost_ref: String::new() }),
        readonly_rootfs: true,
        no_new_privs: true,
        supplemental_groups: vec![77],
        ..context.clone()
    });
    let mut second = kubelet.container_config("second", "sleep 2000");
    second.linux = linux(context);
    let first = kubelet.run(&pod, first).await;
    let second = kubelet.run(&pod, second).await;
    assert_eq!(kubelet.output(&first, "hostname").await, "isolation");
    assert_eq!(kubelet.output(&first, "id -u; id -g; id -G").await, "33\n34\n34 50 77");
    // The layers' links, deletions and opaque folders.
    let seen =
        kubelet.output(&first, "cat /old/* /usr/lib/through /hard | head -c 13; ls /gone 2>&1 | wc -l; ls /old").await;
    assert_eq!(seen, "abovelinkroot1\nnew");
    assert_eq!(
        kubelet.output(&first, "cat /volume/new; echo x > /volume/y || echo no; echo x > /z || echo no").await,
        "aboveno\nno"
    );
    assert_eq!(kubelet.output(&first, "cat /proc/sys/net/ipv4/tcp_syncookies").await, "0");
    let status = kubelet.output(&first, "cat /proc/self/status").await;
    assert!(status.contains("Seccomp:\t2") && status.contains("NoNewPrivs:\t1"), "{status}");
    let processes = kubelet.output(&second, "ps").await;
    assert!(processes.contains("sleep 1000") && processes.contains("sleep 2000"), "{processes}");
    let stats = kubelet.client.list_pod_sandbox_stats(Default::default()).await.expect("figures").stats;
    let linux = stats[0].linux.as_ref().expect("figures");
    assert_eq!(linux.containers.len(), 2);
    assert!(linux.containers.iter().all(|c| c.memory.as_ref().is_some_and(|m| m.working_set_bytes.is_some())));
    kubelet.remove_pod(&pod).await;
}

pub async fn memory(kubelet: &mut Kubelet) {
    let pod = kubelet.run_pod(kubelet.pod_config("memory")).await;
    let mut config = kubelet.container_config("greedy", "head -c 200m /dev/zero | tail");
    let amounts = |limit| v1::LinuxContainerResources { memory_limit_in_bytes: limit, ..Default::default() };
    config.linux.get_or_insert_default().resources = Some(amounts(16 << 20));
    let greedy = kubelet.run(&pod, config).await;
    assert_eq!(kubelet.ended(&greedy).await.reason, "OOMKilled");
    let mut config = kubelet.container_config("resized", "sleep 1000");
    config.linux.get_or_insert_default().resources = Some(amounts(16 << 20));
    let resized = kubelet.run(&pod, config).await;
    let linux = Some(amounts(32 << 20));
    let request = v1::UpdateContainerResourcesRequest { container_id: resized.clone(), linux, ..Default::default() };
    kubelet.client.update_container_resources(request).await.expect("resized");
    let now = kubelet.status(&resized).await.resources.and_then(|r| r.linux).map(|l| l.memory_limit_in_bytes);
    assert_eq!(now, Some(32 << 20));
    kubelet.remove_pod(&pod).await;
}

pub async fn survival(kubelet: &mut Kubelet) {
    let pod = kubelet.run_pod(kubelet.pod_config("survival")).await;
    let long = kubelet.run(&pod, kubelet.container_config("long", "while true; do echo word; sleep 0.1; done")).await;
    let short = kubelet.run(&pod, kubelet.container_config("short", "sleep 1; exit 9")).await;
    let waiting = kubelet.create(&pod, kubelet.container_config("waiting", "exit 4")).await.expect("a container");
    let before = kubelet.status(&long).await;
    kubelet.kill_and_restart().await;
    let after = kubelet.status(&long).await;
    assert_eq!((after.state(), after.started_at), (v1::ContainerState::ContainerRunning, before.started_at));
    assert_eq!(kubelet.ended(&short).await.exit_code, 9);
    assert_eq!(kubelet.output(&long, "echo still").await, "still");
    kubelet.start_container(&waiting).await.expect("started");
    assert_eq!(kubelet.ended(&waiting).await.exit_code, 4);
    let lines = kubelet.log("survival", "long").len();
    while kubelet.log("survival", "long").len() <= lines {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    // Without its shim the pod is not ready any more, and its containers have ended.
    let shim = rustix::process::Pid::from_raw(crate::kubelet::shim_of(&pod)).expect("a process");
    rustix::process::kill_process(shim, rustix::process::Signal::KILL).expect("killed");
    let lost = kubelet.ended(&long).await;
    assert_eq!((lost.exit_code, lost.reason.as_str()), (255, "Unknown"));
    let pods = kubelet.client.list_pod_sandbox(Default::default()).await.expect("a list").items;
    assert_eq!(pods[0].state(), v1::PodSandboxState::SandboxNotready);
    kubelet.remove_pod(&pod).await;
}

pub async fn cleanliness(kubelet: &mut Kubelet) {
    let pod = kubelet.run_pod(kubelet.pod_config("clean")).await;
    kubelet.run(&pod, kubelet.container_config("c", "sleep 1000")).await;
    kubelet.remove_pod(&pod).await;
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("mounts");
    let own = [kubelet.folder.join("data/"), kubelet.folder.join("run/namespaces/")];
    let left: Vec<&str> =
        mounts.lines().filter(|line| own.iter().any(|o| line.contains(&*o.to_string_lossy()))).collect();
    assert!(left.is_empty(), "{left:?}");
    for folder in ["data/containers", "data/sandboxes", "run/shims", "run/namespaces"] {
        let left: Vec<_> =
            std::fs::read_dir(kubelet.folder.join(folder)).expect("a folder").flatten().map(|e| e.path()).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}
