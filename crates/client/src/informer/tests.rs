use futures::StreamExt;
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
    informer.shared.replace(vec![
        Arc::new(map("a/x", "u", 1)),
        Arc::new(map("b/z", "w", 5)),
        Arc::new(map("c/n", "n", 4)),
    ]);
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

/// What the scripted server answers: a path's part that the request must have, the code, the body.
type Answers = &'static [(&'static str, u16, &'static str)];

/// A server that gives these answers in this order, and no answer once they are used up.
fn scripted(answers: Answers) -> Client {
    let next = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let number = next.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        async move {
            let Some((part, code, body)) = answers.get(number) else { return std::future::pending().await };
            let target = request.uri().to_string();
            assert!(target.contains(part), "{number}: {target} should have {part}");
            let body = kube::client::Body::from(body.as_bytes().to_vec());
            Ok::<_, std::convert::Infallible>(http::Response::builder().status(*code).body(body).expect("an answer"))
        }
    });
    Client::new(service, "default")
}

async fn seen_with(answers: Answers, count: usize) -> Vec<String> {
    let tasks = Tasks::new("test");
    let informer = Informer::<ConfigMap>::with(scripted(answers), &tasks, Selection::labels("a=b"));
    let (told, mut hears) = tokio::sync::mpsc::unbounded_channel();
    informer.on_change(move |change| told.send(text(change)).expect("the test listens"));
    let mut seen = Vec::new();
    for _ in 0..count {
        seen.push(hears.recv().await.expect("a change"));
    }
    assert!(informer.is_synced());
    assert!(tasks.stop(std::time::Duration::from_secs(5)).await);
    seen
}

#[tokio::test]
async fn a_list_streams_and_a_watch_goes_on_where_it_ended() {
    let seen = seen_with(
        &[
            (
                "sendInitialEvents=true",
                200,
                r#"{"type":"ADDED","object":{"metadata":{"name":"x","uid":"u","resourceVersion":"1"}}}
{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"4","annotations":{"k8s.io/initial-events-end":"true"}}}}
{"type":"MODIFIED","object":{"metadata":{"name":"x","uid":"u","resourceVersion":"5"}}}
{"type":"ADDED","object":{"metadata":{"name":7}}}
{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"8"}}}
"#,
            ),
            (
                "resourceVersion=8",
                200,
                r#"{"type":"DELETED","object":{"metadata":{"name":"x","uid":"u","resourceVersion":"9"}}}
{"type":"ERROR","object":{"kind":"Status","status":"Failure","code":410,"reason":"Expired","message":"too old"}}
"#,
            ),
            (
                "sendInitialEvents=true",
                200,
                r#"{"type":"ADDED","object":{"metadata":{"name":"y","uid":"v","resourceVersion":"12"}}}
{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"13","annotations":{"k8s.io/initial-events-end":"true"}}}}
"#,
            ),
        ],
        4,
    )
    .await;
    assert_eq!(seen, ["+u1", "u1>u5", "-u9", "+v12"]);
}

#[tokio::test]
async fn what_goes_while_the_list_streams_is_not_in_it() {
    let seen = seen_with(
        &[(
            "sendInitialEvents=true",
            200,
            r#"{"type":"ADDED","object":{"metadata":{"name":"x","uid":"u","resourceVersion":"1"}}}
{"type":"ADDED","object":{"metadata":{"name":"y","uid":"v","resourceVersion":"2"}}}
{"type":"DELETED","object":{"metadata":{"name":"x","uid":"u","resourceVersion":"3"}}}
{"type":"MODIFIED","object":{"metadata":{"name":"y","uid":"v","resourceVersion":"4"}}}
{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"4","annotations":{"k8s.io/initial-events-end":"true"}}}}
{"type":"ADDED","object":{"metadata":{"name":"z","uid":"w","resourceVersion":"5"}}}
"#,
        )],
        3,
    )
    .await;
    assert_eq!(seen, ["+v2", "v2>v4", "+w5"]);
}

#[tokio::test]
async fn watches_that_end_at_once_are_asked_for_less_and_less() {
    let (told, mut asked) = tokio::sync::mpsc::unbounded_channel();
    let service = tower::service_fn(move |_: http::Request<kube::client::Body>| {
        let _ = told.send(std::time::Instant::now());
        async { Ok::<_, std::convert::Infallible>(http::Response::new(kube::client::Body::empty())) }
    });
    let tasks = Tasks::new("test");
    let _informer = Informer::<ConfigMap>::with(Client::new(service, "default"), &tasks, Selection::default());
    let mut times = Vec::new();
    for _ in 0..5 {
        times.push(asked.recv().await.expect("a request"));
    }
    assert!(tasks.stop(std::time::Duration::from_secs(5)).await);
    // However slow the machine is, it is never sooner: 50, 100, 200 and 400 ms.
    assert!(times[4] - times[0] >= std::time::Duration::from_millis(750), "{times:?}");
}

#[tokio::test]
async fn a_server_that_cannot_stream_is_listed_in_pages() {
    let seen = seen_with(
        &[
            (
                "sendInitialEvents=true",
                422,
                r#"{"kind":"Status","status":"Failure","code":422,"reason":"Invalid","message":"sendInitialEvents is forbidden"}"#,
            ),
            (
                "limit=500",
                200,
                r#"{"metadata":{"resourceVersion":"3","continue":"next"},"items":[{"metadata":{"name":"x","uid":"u","resourceVersion":"1"}}]}"#,
            ),
            (
                "continue=next",
                200,
                r#"{"metadata":{"resourceVersion":"3"},"items":[{"metadata":{"name":"y","uid":"v","resourceVersion":"2"}}]}"#,
            ),
            (
                "resourceVersion=3",
                200,
                r#"{"type":"MODIFIED","object":{"metadata":{"name":"y","uid":"v","resourceVersion":"4"}}}
"#,
            ),
        ],
        3,
    )
    .await;
    assert_eq!(seen, ["+u1", "+v2", "v2>v4"]);
}

/// Before v1.27 `sendInitialEvents` means nothing: what there is comes as events, and no bookmark says that it is all.
#[tokio::test]
async fn a_server_that_does_not_know_lists_by_watches_is_listed_in_pages() {
    const LISTED: &str =
        r#"{"metadata":{"resourceVersion":"3"},"items":[{"metadata":{"name":"x","uid":"u","resourceVersion":"1"}}]}"#;
    let seen = seen_with(
        &[
            (
                "sendInitialEvents=true",
                200,
                r#"{"type":"ADDED","object":{"metadata":{"name":"x","uid":"u","resourceVersion":"1"}}}
{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"2"}}}
"#,
            ),
            ("limit=500", 200, LISTED),
            (
                "resourceVersion=3",
                200,
                r#"{"type":"MODIFIED","object":{"metadata":{"name":"x","uid":"u","resourceVersion":"4"}}}
"#,
            ),
        ],
        2,
    )
    .await;
    assert_eq!(seen, ["+u1", "u1>u4"]);
}

#[tokio::test]
async fn a_server_that_never_says_that_a_list_is_complete_is_not_waited_for() {
    let (told, mut asked) = tokio::sync::mpsc::unbounded_channel();
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let target = request.uri().to_string();
        let (listed, first) = (target.contains("limit=500"), target.contains("sendInitialEvents=true"));
        let _ = told.send(target);
        async move {
            let text = if listed {
                r#"{"metadata":{"resourceVersion":"3"},"items":[]}"#.to_owned()
            } else if first {
                let event = r#"{"type":"ADDED","object":{"metadata":{"name":"x","uid":"u","resourceVersion":"1"}}}"#;
                format!("{event}\n")
            } else {
                String::new()
            };
            let first = futures::stream::iter([Ok::<_, kube::Error>(http_body::Frame::data(bytes::Bytes::from(text)))]);
            let rest =
                if listed { futures::stream::empty().left_stream() } else { futures::stream::pending().right_stream() };
            let body = http_body_util::StreamBody::new(first.chain(rest));
            Ok::<_, std::convert::Infallible>(http::Response::new(body))
        }
    });
    let tasks = Tasks::new("test");
    let informer = Informer::<ConfigMap>::with(Client::new(service, "default"), &tasks, Selection::default());
    informer.synced().await;
    assert_eq!(informer.len(), 0, "what the list says counts");
    let mut targets = Vec::new();
    for _ in 0..3 {
        targets.push(asked.recv().await.expect("a request"));
    }
    assert!(targets[0].contains("sendInitialEvents=true"), "{targets:?}");
    assert!(targets[1].contains("limit=500"), "{targets:?}");
    assert!(targets[2].contains("resourceVersion=3"), "{targets:?}");
    assert!(tasks.stop(std::time::Duration::from_secs(5)).await);
}

/// The pages of a long list may outlive the revision they are of.
#[tokio::test]
async fn a_list_whose_pages_expire_is_asked_for_as_a_whole() {
    const EXPIRED: &str = r#"{"kind":"Status","status":"Failure","code":410,"reason":"Expired","message":"the continue parameter is too old"}"#;
    let seen = seen_with(
        &[
            ("sendInitialEvents=true", 400, r#"{"kind":"Status","status":"Failure","code":400,"message":"no"}"#),
            ("limit=500", 200, r#"{"metadata":{"resourceVersion":"3","continue":"next"},"items":[]}"#),
            ("continue=next", 410, EXPIRED),
            (
                "configmaps?&labelSelector=a%3Db",
                200,
                r#"{"metadata":{"resourceVersion":"5"},"items":[{"metadata":{"name":"x","uid":"u","resourceVersion":"1"}}]}"#,
            ),
        ],
        1,
    )
    .await;
    assert_eq!(seen, ["+u1"]);
}

#[test]
fn a_handler_that_panics_keeps_no_other_from_hearing() {
    let informer: Informer<ConfigMap> = Informer::detached();
    informer.on_change(|_| panic!("a bug"));
    let heard = Arc::new(Mutex::new(Vec::new()));
    let told = heard.clone();
    informer.on_change(move |change| told.lock().push(text(change)));
    informer.apply(map("n/a", "a", 1));
    informer.apply(map("n/b", "b", 2));
    assert_eq!(*heard.lock(), ["+a1", "+b2"]);
    assert_eq!(informer.len(), 2);
}

#[tokio::test]
async fn one_object_is_waited_for() {
    const FILLED: &str = r#"{"type":"ADDED","object":{"metadata":{"name":"x","uid":"u","resourceVersion":"1"}}}
{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"4","annotations":{"k8s.io/initial-events-end":"true"}}}}
{"type":"MODIFIED","object":{"metadata":{"name":"x","uid":"u","resourceVersion":"5"},"data":{"a":"b"}}}
"#;
    const GONE: &str = r#"{"type":"ADDED","object":{"metadata":{"name":"x","uid":"u","resourceVersion":"1"}}}
{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"4","annotations":{"k8s.io/initial-events-end":"true"}}}}
{"type":"DELETED","object":{"metadata":{"name":"x","uid":"u","resourceVersion":"6"}}}
"#;
    let api = |answers: Answers| Api::<ConfigMap>::all(scripted(answers));
    let filled = api(&[("fieldSelector=metadata.name%3Dx", 200, FILLED)]);
    let filled = until(filled, "x", |map| map.is_some_and(|map| map.data.is_some())).await;
    assert_eq!(filled.expect("a map").metadata.resource_version.as_deref(), Some("5"));
    let asked_for_none = std::cell::Cell::new(false);
    let gone = api(&[("fieldSelector=metadata.name%3Dx", 200, GONE)]);
    let gone = until(gone, "x", |map| {
        asked_for_none.set(map.is_none());
        map.is_none()
    });
    assert!(gone.await.is_none());
    // An answer of none could also mean that the watch broke off.
    assert!(asked_for_none.get());
}

#[tokio::test]
async fn who_does_not_mind_the_kind_shares_the_informer_that_is_there() {
    let tasks = Tasks::new("test");
    let informers = Informers::new(scripted(&[]), tasks.clone());
    assert!(informers.held("/api/v1/configmaps").is_none());
    let maps = informers.of::<ConfigMap>();
    let objects = informers.held("/api/v1/configmaps").expect("an informer");
    let heard = Arc::new(Mutex::new(Vec::new()));
    let told = heard.clone();
    objects.on_change(move |change| told.lock().push(change.object().object_meta().name.clone()));
    maps.apply(map("n/a", "a", 1));
    assert_eq!(*heard.lock(), [Some("a".to_owned())]);
    assert_eq!(objects.list().len(), 1);
    assert!(tasks.stop(std::time::Duration::from_secs(5)).await);
}

/// Those who come first have a watch of their own, and the parts are what the whole ones are.
#[tokio::test]
async fn parts_of_objects_follow_the_whole_ones() {
    use crate::endpoint_slices::Slice;
    use k8s_openapi::api::discovery::v1::EndpointSlice;
    let tasks = Tasks::new("test");
    let informers = Informers::new(scripted(&[]), tasks.clone());
    let slice = |name: &str, version: &str| {
        let mut slice = EndpointSlice { address_type: "IPv4".into(), ..EndpointSlice::default() };
        slice.metadata.name = Some(name.into());
        slice.metadata.resource_version = Some(version.into());
        slice
    };
    let whole = informers.of::<EndpointSlice>();
    whole.apply(slice("a", "1"));
    let parts = informers.projected::<Slice>();
    let mut changes = parts.subscribe();
    let names = || parts.list().iter().filter_map(|slice| slice.meta().name.clone()).collect::<Vec<_>>();
    assert_eq!(names(), ["a"]);
    whole.apply(slice("b", "2"));
    whole.apply(slice("a", "3"));
    whole.remove(slice("a", "3"));
    assert_eq!(names(), ["b"]);
    assert!(matches!(changes.try_next(), Some(Change::Added(slice)) if slice.meta().name.as_deref() == Some("b")));
    assert!(!parts.is_synced());
    whole.mark_synced();
    parts.synced().await;
    assert_eq!(informers.projected::<Slice>().len(), 1, "it is shared");
    assert!(informers.held("/apis/discovery.k8s.io/v1/endpointslices").is_some_and(|whole| whole.list().len() == 1));
    assert!(tasks.stop(std::time::Duration::from_secs(5)).await);
}
