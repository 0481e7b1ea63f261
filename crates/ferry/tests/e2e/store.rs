//! `ferry store` with the real binary: on a store that is being written to, and on folders.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams};

use crate::alone::{Apiserver, create, refused, runtime, succeeds, text};

/// The number behind "revision " in what a command printed.
fn revision(printed: &str) -> u64 {
    let after = printed.split("revision ").nth(1).unwrap_or_else(|| panic!("no revision: {printed}"));
    after.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
}

/// Writes until told to stop; returns each acknowledged name with its revision.
async fn write(client: kube::Client, writer: usize, stop: Arc<AtomicBool>) -> Vec<(String, u64)> {
    let mut acknowledged = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let name = format!("w{writer}-{}", acknowledged.len());
        let revision = create(&client, &name).await.expect("a write beside a backup succeeds");
        acknowledged.push((name, revision));
    }
    acknowledged
}

pub fn a_live_store_is_backed_up_and_restored() {
    let folder = tempfile::tempdir().unwrap();
    let (data, copy) = (folder.path().join("data"), folder.path().join("copy"));
    let files = ["first", "second", "folder"].map(|name| folder.path().join(name));
    let runtime = runtime();
    let mut server = Apiserver::start(&data, &[]);
    let client = runtime.block_on(server.client());
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..4).map(|writer| runtime.spawn(write(client.clone(), writer, stop.clone()))).collect();
    let before = runtime.block_on(create(&client, "before")).unwrap();
    let printed = succeeds(&["store", "backup", text(&files[0]), "--data-dir", text(&data)]);
    let (taken, between) = (revision(&printed), runtime.block_on(create(&client, "between")).unwrap());
    assert!(before <= taken && taken < between, "{before} {taken} {between}");
    let second = revision(&succeeds(&["store", "backup", text(&files[1]), "--data-dir", text(&data)]));
    assert!(second >= between);
    succeeds(&["store", "check", "--data-dir", text(&data)]);
    let printed = succeeds(&["store", "history", "/registry/configmaps/default/before", "--data-dir", text(&data)]);
    assert!(revision_column(&printed) == [before] && printed.contains("create"), "{printed}");
    stop.store(true, Ordering::Relaxed);
    let mut acknowledged: Vec<(String, u64)> =
        writers.into_iter().flat_map(|writer| runtime.block_on(writer).unwrap()).collect();
    acknowledged.extend([("before".into(), before), ("between".into(), between)]);
    assert!(acknowledged.iter().any(|(_, revision)| *revision > second), "the writers went on");
    let message = refused(1, &["store", "restore", text(&files[0]), "--data-dir", text(&data)]);
    assert!(message.contains("already holds a store"), "{message}");

    server.end();
    let message = refused(1, &["store", "restore", text(&files[0]), "--data-dir", text(&data)]);
    assert!(message.contains("already holds a store"), "{message}");
    let newest = revision(&succeeds(&["store", "check", "--data-dir", text(&data)]));
    assert!(acknowledged.iter().all(|(_, revision)| *revision <= newest));
    let whole = succeeds(&["store", "backup", text(&files[2]), "--data-dir", text(&data)]);
    assert_eq!(revision(&whole), newest);
    let history = ["store", "history", "/registry/configmaps/default/before", "--values", "--data-dir", text(&data)];
    assert!(succeeds(&history).contains(r#""name":"before""#));

    for (file, taken) in files.iter().zip([taken, second, newest]) {
        let _ = std::fs::remove_dir_all(&copy);
        succeeds(&["store", "check", "--backup", text(file)]);
        assert_eq!(revision(&succeeds(&["store", "restore", text(file), "--data-dir", text(&copy)])), taken);
        has_all(&runtime, &copy, &acknowledged, taken);
    }
}

fn revision_column(printed: &str) -> Vec<u64> {
    printed.lines().map(|line| line.split_whitespace().next().unwrap().parse().unwrap()).collect()
}

/// Every acknowledged write up to the revision is served, and none above it.
fn has_all(runtime: &tokio::runtime::Runtime, data: &Path, acknowledged: &[(String, u64)], taken: u64) {
    let mut server = Apiserver::start(data, &[]);
    runtime.block_on(async {
        let api: Api<ConfigMap> = Api::namespaced(server.client().await, "default");
        let found = api.list(&ListParams::default()).await.unwrap();
        let there = |name: &str| {
            let object = found.items.iter().find(|item| item.metadata.name.as_deref() == Some(name))?;
            object.metadata.resource_version.as_ref()?.parse::<u64>().ok()
        };
        for (name, revision) in acknowledged {
            assert_eq!(there(name), (*revision <= taken).then_some(*revision), "{name} at {taken}");
        }
    });
}

pub fn store_commands_refuse_what_cannot_be() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (data, file) = (path("data"), path("backup"));
    let at_data = ["--data-dir", text(&data)];
    for words in [&["backup", text(&file)][..], &["check"], &["history", "/registry/pods/a/b"]] {
        let message = refused(1, &[&["store"], words, &at_data].concat());
        assert!(message.contains("there is no folder") && message.contains("--data-dir"), "{message}");
    }
    assert!(!data.exists() && !file.exists(), "nothing is made by looking");
    std::fs::create_dir(&data).unwrap();
    let message = refused(1, &[&["store", "check"], &at_data[..]].concat());
    assert!(message.contains("holds no store"), "{message}");
    for key in ["pods/a", "/registry/pods", "/registry/pods/../x", ""] {
        let message = refused(2, &[&["store", "history", key], &at_data[..]].concat());
        assert!(message.contains("invalid key"), "{message}");
    }
    refused(2, &["store"]);
    refused(2, &["store", "backup"]);

    let runtime = runtime();
    let mut server = Apiserver::start(&data, &[]);
    runtime.block_on(async {
        let client = server.client().await;
        for number in 0..20 {
            create(&client, &format!("c{number}")).await.unwrap();
        }
    });
    let second = ["apiserver", "--bind-address=127.0.0.1", "--secure-port=0", at_data[0], at_data[1]];
    let message = refused(1, &second);
    assert!(message.contains("in use by another process") && message.contains(text(&data)), "{message}");
    succeeds(&["store", "check", at_data[0], at_data[1]]);
    let unwritable = ["store", "backup", "/proc/nowhere/backup", at_data[0], at_data[1]];
    assert!(refused(1, &unwritable).contains("/proc/nowhere/backup"));
    let unknown = ["store", "history", "/registry/configmaps/default/never", at_data[0], at_data[1]];
    assert!(refused(1, &unknown).contains("no change of"));
    server.end();
    assert!(refused(1, &unknown).contains("no change of"));
    succeeds(&["store", "backup", text(&file), at_data[0], at_data[1]]);

    let target = path("target");
    let at_target = ["--data-dir", text(&target)];
    let content = std::fs::read(&file).unwrap();
    let mut flipped = content.clone();
    flipped[content.len() / 2] ^= 1;
    let mut newer = content.clone();
    newer[b"ferry-backup ".len()] = b'9';
    for (what, bytes, code, expected) in [
        ("flipped", &flipped[..], 3, "damaged"),
        ("cut", &content[..content.len() - 9], 3, "damaged"),
        ("longer", &[&content[..], b"x"].concat(), 3, "damaged"),
        ("newer", &newer, 1, "another version"),
        ("text", b"hello, this is no backup", 1, "no backup"),
        ("empty", b"", 1, "no backup"),
    ] {
        let bad = path(what);
        std::fs::write(&bad, bytes).unwrap();
        for words in [["restore", text(&bad)].as_slice(), &["check", "--backup", text(&bad)]] {
            let message = refused(code, &[&["store"], words, &at_target].concat());
            assert!(message.contains(expected) && message.contains(text(&bad)), "{what}: {message}");
        }
        assert!(!target.exists(), "{what}");
    }
    let message = refused(1, &["store", "restore", text(&path("absent")), at_target[0], at_target[1]]);
    assert!(message.contains("there is no file"), "{message}");

    let format = data.join("store/FORMAT");
    let ours = std::fs::read(&format).unwrap();
    std::fs::write(&format, "ferry-store 9\n").unwrap();
    for words in [&["check"][..], &["backup", text(&target)], &["history", "/registry/pods/a/b"]] {
        let message = refused(1, &[&["store"], words, &at_data].concat());
        assert!(message.contains("ferry-store 9") && message.contains(text(&data)), "{message}");
    }
    std::fs::write(&format, ours).unwrap();
    let log = std::fs::read_dir(data.join("store/tables")).unwrap().flatten().map(|entry| entry.path());
    let log = log.into_iter().find(|path| path.extension().is_some_and(|end| end == "jnl")).unwrap();
    let mut bytes = std::fs::read(&log).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&log, bytes).unwrap();
    for words in [&["check"][..], &["backup", text(&target)], &["history", "/registry/pods/a/b"]] {
        let message = refused(3, &[&["store"], words, &at_data].concat());
        assert!(message.contains(text(&log)), "the damaged file is named: {message}");
    }
    let message = refused(3, &second);
    assert!(message.contains(text(&log)), "never silently empty: {message}");
}
