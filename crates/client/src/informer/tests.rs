use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::*;

fn map(name: &str, uid: &str, version: u32) -> ConfigMap {
    let (namespace, name) = name.split_once('/').unwrap_or(("", name));
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.into()),
            namespace: Some(namespace.into()),
            uid: Some(uid.into()),
            resource_version: Some(version.to_string()),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    }
}

fn text(change: &Change<ConfigMap>) -> String {
    let show = |object: &ConfigMap| {
        let meta = &object.metadata;
        format!("{}{}", meta.uid.as_deref().unwrap_or_default(), meta.resource_version.as_deref().unwrap_or_default())
    };
    match change {
        Change::Added(new) => format!("+{}", show(new)),
        Change::Modified { old, new } => format!("{}>{}", show(old), show(new)),
        Change::Deleted(old) => format!("-{}", show(old)),
    }
}

/// Steps: `+u1` applies the object a/x with uid u and revision 1, `-u1` removes it.
fn check(before: &[&str], unread: &[&str], expected: &[&str]) {
    let informer = Informer::<ConfigMap>::detached();
    let step = |text: &&str| {
        let object = map("a/x", &text[1..2], text[2..].parse().expect("a revision"));
        if text.starts_with('+') { informer.apply(object) } else { informer.remove(object) }
    };
    before.iter().for_each(step);
    let mut subscription = informer.subscribe();
    while subscription.try_next().is_some() {}
    unread.iter().for_each(step);
    let seen: Vec<String> = std::iter::from_fn(|| subscription.try_next()).map(|change| text(&change)).collect();
    assert_eq!(seen, expected, "{before:?} then {unread:?}");
}

#[test]
fn a_slow_reader_sees_merged_changes() {
    check(&[], &["+u1"], &["+u1"]);
    check(&[], &["+u1", "+u2", "+u3"], &["+u3"]);
    check(&[], &["+u1", "-u2"], &[]);
    check(&["+u1"], &["+u2", "+u3"], &["u1>u3"]);
    check(&["+u1"], &["+u2", "-u3"], &["-u3"]);
    check(&["+u1"], &["-u2", "+v3"], &["-u2", "+v3"]);
    check(&["+u1"], &["+v2"], &["-u1", "+v2"]);
    check(&["+u1"], &["-u2", "+v3", "-v4", "+w5", "+w6"], &["-u2", "+w6"]);
    // A resumed watch repeats the last event.
    check(&["+u1"], &["+u1"], &[]);
}

#[test]
fn a_new_list_replaces_the_cache() {
    let informer = Informer::<ConfigMap>::detached();
    let index = informer.index("uid", |object: &ConfigMap| object.metadata.uid.clone().into_iter().collect());
    for object in [map("a/x", "u", 1), map("a/y", "v", 2), map("b/z", "w", 3)] {
        informer.apply(object);
    }
    let mut subscription = informer.subscribe();
    while subscription.try_next().is_some() {}
    informer.shared.replace(vec![map("a/x", "u", 1), map("b/z", "w", 5), map("c/n", "n", 4)]);
    let seen: Vec<String> = std::iter::from_fn(|| subscription.try_next()).map(|change| text(&change)).collect();
    assert_eq!(seen, ["w3>w5", "+n4", "-v2"]);
    assert!(informer.is_synced());
    assert_eq!(informer.list_in("a").len(), 1);
    assert_eq!(informer.len(), 3);
    assert!(index.get("v").is_empty());
    assert_eq!(index.get("w").len(), 1);
    assert_eq!(index.get("w")[0].metadata.resource_version.as_deref(), Some("5"));
}

#[tokio::test]
async fn a_subscriber_is_woken() {
    let informer = Informer::<ConfigMap>::detached();
    let mut subscription = informer.subscribe();
    let (change, ()) = tokio::join!(subscription.next(), async { informer.apply(map("a/x", "u", 1)) });
    assert_eq!(text(&change), "+u1");
    drop(subscription);
    informer.apply(map("a/x", "u", 2));
    assert!(informer.shared.listeners.lock().mailboxes.is_empty());
}
