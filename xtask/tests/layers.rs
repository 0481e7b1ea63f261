//! What holds for the whole code base: the allowed edges between crates, where unsafe code may stand,
//! how long files are, whose clock controllers act by.
//! An edge that is not listed here is a mistake, or a decision to write down.

use std::fs;
use std::path::Path;

/// (crate, the Ferry crates it may depend on)
const ALLOWED: &[(&str, &[&str])] = &[
    ("meta", &[]),
    ("semantics", &["meta"]),
    ("metrics", &[]),
    ("tasks", &[]),
    ("tls", &[]),
    ("connections", &["tasks"]),
    // Static files and the sessions of browsers; it knows nothing of objects.
    ("console", &["meta"]),
    ("remotecommand", &[]),
    ("x509", &[]),
    ("schema", &["meta", "semantics"]),
    ("cel", &["meta", "semantics"]),
    // Server side.
    ("store", &["meta", "semantics", "tasks"]),
    ("outbound", &["meta", "tasks"]),
    ("audit", &["meta", "metrics", "outbound", "tasks"]),
    ("fairness", &["meta"]),
    ("auth", &["cel", "meta", "outbound", "tasks", "x509"]),
    ("admission", &["auth", "cel", "meta", "outbound", "schema", "semantics", "tasks", "x509"]),
    ("registry", &["cel", "meta", "schema", "semantics", "x509"]),
    (
        "apiserver",
        &[
            "admission",
            "audit",
            "auth",
            "cel",
            "connections",
            "console",
            "fairness",
            "meta",
            "metrics",
            "registry",
            "schema",
            "semantics",
            "store",
            "tasks",
            "tls",
            "x509",
        ],
    ),
    // Client side: talks to the API and nothing else.
    ("client", &["meta", "metrics", "semantics", "tasks"]),
    ("controllers", &["cel", "client", "meta", "metrics", "semantics", "tasks", "x509"]),
    ("scheduler", &["cel", "client", "meta", "metrics", "semantics", "tasks"]),
    ("proxy", &["client", "connections", "meta", "metrics", "nft", "tasks"]),
    ("policy", &["client", "meta", "nft", "semantics", "tasks"]),
    ("dns", &["client", "connections", "meta", "metrics", "semantics", "tasks"]),
    ("gateway", &["client", "connections", "meta", "metrics", "semantics", "tasks", "tls"]),
    ("simulator", &["client", "semantics", "tasks"]),
    ("insight", &["meta", "policy", "semantics", "x509"]),
    ("network", &["client", "semantics", "tasks"]),
    ("kubectl", &["meta", "schema", "semantics"]),
    // Node side.
    ("cri", &[]),
    ("plugins", &[]),
    ("nft", &["tasks"]),
    ("bridge", &["nft", "semantics"]),
    ("podfs", &[]),
    ("systemd", &[]),
    (
        "kubelet",
        &[
            "client",
            "connections",
            "cri",
            "meta",
            "metrics",
            "plugins",
            "podfs",
            "remotecommand",
            "semantics",
            "systemd",
            "tasks",
            "tls",
            "x509",
        ],
    ),
    // Pulls images with the HTTPS client that the server calls others with.
    ("runtime", &["bridge", "cri", "meta", "outbound", "podfs", "remotecommand", "systemd", "tasks"]),
    // For tests only; see `FOR_TESTS`.
    ("testkit", &[]),
    // The API server as a process runs it. Some of what it keeps up to date it writes through its own API.
    (
        "server",
        &[
            "admission",
            "apiserver",
            "audit",
            "auth",
            "client",
            "fairness",
            "meta",
            "outbound",
            "registry",
            "schema",
            "semantics",
            "store",
            "tasks",
        ],
    ),
    // Puts both sides together on the machines of a cluster.
    (
        "cluster",
        &[
            "apiserver",
            "auth",
            "bridge",
            "client",
            "connections",
            "controllers",
            "cri",
            "dns",
            "gateway",
            "insight",
            "kubelet",
            "meta",
            "network",
            "nft",
            "podfs",
            "policy",
            "proxy",
            "registry",
            "runtime",
            "scheduler",
            "schema",
            "semantics",
            "server",
            "store",
            "tasks",
            "x509",
        ],
    ),
    // For tests only: a control plane in the test's process.
    ("testbed", &["apiserver", "client", "controllers", "meta", "scheduler", "server", "simulator", "tasks"]),
    // Arguments, checked configuration, calls.
    (
        "ferry",
        &[
            "apiserver",
            "auth",
            "bridge",
            "client",
            "cluster",
            "controllers",
            "cri",
            "dns",
            "gateway",
            "insight",
            "kubectl",
            "kubelet",
            "meta",
            "plugins",
            "podfs",
            "proxy",
            "registry",
            "runtime",
            "scheduler",
            "schema",
            "server",
            "simulator",
            "store",
            "tasks",
            "tls",
        ],
    ),
];

/// Every crate's tests may use them, and nothing that is shipped.
const FOR_TESTS: &[&str] = &["testbed", "testkit"];
/// The controllers' tests run with a whole control plane beside them.
const BESIDE_TESTS: (&str, &[&str]) = ("controllers", &["auth", "insight", "scheduler", "server", "simulator"]);

#[test]
fn crates_depend_downward_only() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("crates");
    let mut wrong = Vec::new();
    for folder in fs::read_dir(&crates).unwrap().flatten() {
        let name = folder.file_name().into_string().unwrap();
        let manifest = fs::read_to_string(folder.path().join("Cargo.toml")).unwrap();
        let Some((_, allowed)) = ALLOWED.iter().find(|(known, _)| *known == name) else {
            wrong.push(format!("crate {name} is not in the table of allowed edges"));
            continue;
        };
        let mut section = "";
        for line in manifest.lines().map(str::trim_start) {
            if line.starts_with('[') {
                section = line;
            }
            let Some(edge) = line.strip_prefix("ferry-") else { continue };
            let target = edge.split(['.', ' ', '=']).next().unwrap_or_default();
            let beside = BESIDE_TESTS.0 == name && BESIDE_TESTS.1.contains(&target);
            let for_tests = section == "[dev-dependencies]" && (FOR_TESTS.contains(&target) || beside);
            if !for_tests && !allowed.contains(&target) {
                wrong.push(format!("{name} must not depend on {target}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Where code may lift the workspace's ban on unsafe code, each time with its reason.
const UNSAFE: &[&str] =
    &["crates/cri/", "crates/kubelet/", "crates/network/", "crates/runtime/", "crates/cluster/src/node/"];

/// Every Rust file below a folder, by its path from the repository.
fn sources(folder: &str) -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a folder above");
    let (mut folders, mut found) = (vec![root.join(folder)], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs" || e == "toml") {
                let place = path.strip_prefix(root).expect("a file of the repository").to_string_lossy().into_owned();
                found.push((place, fs::read_to_string(&path).expect("a text")));
            }
        }
    }
    found
}

#[test]
fn unsafe_code_stands_in_node_side_code_only() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap();
    assert!(manifest.contains("unsafe_code = \"deny\""), "the workspace denies unsafe code by default");
    let lifted = sources("crates").into_iter().filter(|(_, text)| text.contains("unsafe_code"));
    let wrong: Vec<String> = lifted
        .map(|(place, _)| place)
        .filter(|place| !UNSAFE.iter().any(|allowed| place.starts_with(allowed)))
        .collect();
    assert!(wrong.is_empty(), "unsafe code outside the node side: {wrong:?}");
}

/// The most lines of a file, of half of them, and of nine in ten.
const LONGEST: usize = 500;
const MEDIAN: usize = 150;
const NINE_IN_TEN: usize = 350;

#[test]
fn files_are_short() {
    let files = ["crates", "xtask", "fuzz"].into_iter().flat_map(sources);
    let rust = files.filter(|(place, _)| place.ends_with(".rs"));
    let mut lengths: Vec<(usize, String)> = rust.map(|(place, text)| (text.lines().count(), place)).collect();
    lengths.sort();
    let long: Vec<_> = lengths.iter().filter(|(lines, _)| *lines > LONGEST).collect();
    assert!(long.is_empty(), "a file that a reader cannot hold in the head is two files: {long:?}");
    let share = |tenths: usize| lengths[(lengths.len() - 1) * tenths / 10].0;
    assert!(share(5) <= MEDIAN && share(9) <= NINE_IN_TEN, "median {}, ninth of ten {}", share(5), share(9));
}

#[test]
fn controllers_act_by_the_clock_they_are_given() {
    let clocks = ["Timestamp::now", "time::now", "write::now", "now_utc()", "SystemTime::now"];
    let own = |line: &&str| clocks.iter().any(|clock| line.contains(clock));
    let mut wrong = Vec::new();
    for (place, text) in sources("crates/controllers/src") {
        let shipped = text.split("#[cfg(test)]").next().unwrap_or_default();
        wrong.extend(shipped.lines().filter(own).map(|line| format!("{place}: {}", line.trim())));
    }
    assert!(wrong.is_empty(), "the time comes from `Config::clock`: {wrong:#?}");
}
