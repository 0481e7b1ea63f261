//! The runtime as a kubelet sees it: real pods on this machine, over the CRI socket.
//!
//! Needs root, the CNI plug-ins and the busybox of `hack/setup.sh --test`. This program is also the binary that the
//! runtime executes again for its shims.

mod confinement;
mod hostile;
mod kubelet;
mod registry;
mod scenarios;
mod streaming_client;
mod users;

use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ferry_testkit::Report;
use futures::FutureExt;
use serde_json::json;

use kubelet::Kubelet;
use registry::{Entry, Registry, layer};

const BRIDGE: &str = "ferryrttest0";
const APPLETS: [&str; 16] = [
    "sh", "sleep", "echo", "cat", "id", "true", "false", "ls", "head", "tail", "nc", "kill", "hostname", "mount", "ps",
    "wc",
];

fn busybox() -> PathBuf {
    ferry_testkit::cache().join("busybox/bin/busybox")
}

/// Why no pod can run on this machine.
fn missing() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("containers need root".into());
    }
    let needs = [("CNI plug-ins", kubelet::plugins().is_some()), ("static busybox", busybox().exists())];
    let missing = needs.iter().find(|(_, there)| !there);
    missing.map(|(name, _)| format!("there is no {name}; hack/setup.sh --test installs it"))
}

fn images() -> Registry {
    let busybox = std::fs::read(busybox()).expect("busybox");
    let mut base = vec![
        Entry::Folder("bin/"),
        Entry::Folder("etc/"),
        Entry::Folder("old/"),
        Entry::File("bin/busybox", &busybox, 0o755),
        Entry::File("etc/passwd", b"root:x:0:0::/root:/bin/sh\nweb:x:33:34::/:\n", 0o644),
        Entry::File("etc/group", b"root:x:0:\nextra:x:50:web\n", 0o644),
        Entry::File("gone", b"below", 0o644),
        Entry::File("old/file", b"below", 0o644),
        Entry::Link("lib", "usr/lib"),
        Entry::Folder("usr/lib/"),
    ];
    let links: Vec<String> = APPLETS.iter().map(|name| format!("bin/{name}")).collect();
    base.extend(links.iter().map(|path| Entry::Link(path, "busybox")));
    let base = layer(&base);
    let above = layer(&[
        Entry::File(".wh.gone", b"", 0o644),
        Entry::File("old/.wh..wh..opq", b"", 0o644),
        Entry::File("old/new", b"above", 0o644),
        // Through the link of the layer below.
        Entry::File("lib/through", b"link", 0o644),
        Entry::HardLink("hard", "etc/passwd"),
    ]);
    let mut registry = Registry::default();
    let config = json!({"Env": ["PATH=/bin"], "Cmd": ["sh"], "User": "web"});
    let layers = [base.clone(), above];
    registry.add("base", &layers, config.clone(), false);
    let pause = json!({"Env": ["PATH=/bin"], "Entrypoint": ["sleep", "100000"]});
    registry.add("pause", std::slice::from_ref(&base), pause, false);
    registry.add("private/base", &layers, config.clone(), false);
    registry.add("spoilt", &[layer(&[Entry::File("file", b"text", 0o644)])], config.clone(), true);
    registry.add("climbing", &[layer(&[Entry::File("../../outside", b"x", 0o644)])], config.clone(), false);
    let trap = layer(&[Entry::Link("trap", "/"), Entry::File("trap/ferry-escape-test", b"x", 0o644)]);
    registry.add("trap", &[trap], config, false);
    hostile::add_images(&mut registry, &base);
    registry
}

type Scenario = (&'static str, for<'a> fn(&'a mut Kubelet) -> futures::future::BoxFuture<'a, ()>);

const SCENARIOS: &[Scenario] = &[
    ("images_are_pulled_checked_and_removed", |k| scenarios::images(k).boxed()),
    ("a_container_runs_logs_and_ends", |k| scenarios::life(k).boxed()),
    ("failures_say_what_failed", |k| scenarios::failures(k).boxed()),
    ("commands_run_in_containers", |k| scenarios::commands(k).boxed()),
    ("streams_reach_containers", |k| scenarios::streams(k).boxed()),
    ("pods_have_namespaces_of_their_own", |k| scenarios::isolation(k).boxed()),
    ("layers_without_end_are_refused", |k| hostile::layers(k).boxed()),
    ("working_directories_stay_inside", |k| hostile::working_directories(k).boxed()),
    ("nothing_takes_the_place_of_proc", |k| hostile::proc(k).boxed()),
    ("programs_are_not_found_by_descriptors", |k| hostile::programs(k).boxed()),
    ("a_container_stays_out_of_the_nodes_namespaces", |k| hostile::namespaces(k).boxed()),
    ("commands_read_the_nodes_null_device", |k| hostile::null_devices(k).boxed()),
    ("commands_do_not_outlive_their_time", |k| hostile::held_up(k).boxed()),
    ("outputs_of_commands_are_bounded", |k| hostile::outputs(k).boxed()),
    ("containers_are_confined", |k| confinement::limits(k).boxed()),
    ("profiles_mean_what_other_runtimes_make_of_them", |k| confinement::profiles(k).boxed()),
    ("mounts_of_the_node_keep_their_promises", |k| confinement::mounts(k).boxed()),
    ("the_program_of_the_node_cannot_be_written", |k| confinement::program(k).boxed()),
    ("root_of_a_user_namespace_is_nobody_outside", |k| users::root_of_a_user_namespace_is_nobody_outside(k).boxed()),
    ("a_user_namespace_ends_at_its_pod", |k| users::a_user_namespace_ends_at_its_pod(k).boxed()),
    ("pods_with_user_namespaces_are_pods", |k| users::pods_with_user_namespaces_are_pods(k).boxed()),
    ("memory_is_limited", |k| scenarios::memory(k).boxed()),
    ("pods_outlive_the_server", |k| scenarios::survival(k).boxed()),
    ("nothing_is_left", |k| scenarios::cleanliness(k).boxed()),
];

fn main() -> ExitCode {
    if let Some(code) = ferry_runtime::helper(std::env::args_os()) {
        return code;
    }
    if std::env::args().nth(1).as_deref() == Some(kubelet::SERVE) {
        return kubelet::serve();
    }
    let mut report = Report::from_arguments();
    let chosen: Vec<&Scenario> = SCENARIOS.iter().filter(|(name, _)| report.wants(name)).collect();
    if let Some(reason) = missing() {
        chosen.iter().for_each(|(name, _)| report.skip(name, &reason));
        return report.finish();
    }
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let folder = tempfile::tempdir().expect("a folder");
    runtime.block_on(async {
        let tasks = ferry_tasks::Tasks::new("test");
        let registry = images().serve(&tasks).await;
        let mut kubelet = Kubelet::start(folder.path(), registry).await;
        for (name, scenario) in chosen {
            let begin = Instant::now();
            let end = AssertUnwindSafe(scenario(&mut kubelet)).catch_unwind().await;
            report.ended(name, begin, end);
        }
        kubelet.end().await;
        tasks.stop(Duration::from_secs(5)).await;
    });
    let _ = std::process::Command::new("ip").args(["link", "delete", BRIDGE]).output();
    report.finish()
}
