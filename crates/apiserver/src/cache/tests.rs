//! The cache on the real embedded engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use ferry_meta::selector::{FieldSelector, LabelSelector};
use ferry_meta::{GroupResource, ObjectReader};
use ferry_store::{EmbeddedStore, Op, Options, Range, Revision, Store, Transaction};
use ferry_tasks::Tasks;
use futures::StreamExt;
use serde_json::{Value, json};

use super::resource::ResourceCache;
use super::{Cache, CacheError, CachedObject, FrameKind, Frames, Registration, StartFrom, WatchFrame, WatchOptions};

struct Kit {
    _folder: tempfile::TempDir,
    store: Arc<EmbeddedStore>,
    tasks: Tasks,
    cache: Arc<Cache>,
}

fn pods() -> Registration {
    let fields = vec!["spec.nodeName".to_owned(), "status.phase".to_owned()];
    Registration::new(GroupResource::new("", "pods"), "pods", true, fields, |object, field| {
        ferry_meta::object::text(object, &format!("/{}", field.replace('.', "/"))).to_owned()
    })
}

fn services() -> Registration {
    Registration::new(GroupResource::new("", "services"), "services/specs", true, Vec::new(), |_, _| String::new())
}

fn pod(name: &str, node: &str, color: &str) -> Value {
    json!({
        "kind": "Pod", "apiVersion": "v1",
        "metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}"), "labels": {"color": color, "a": "b"}},
        "spec": {"containers": [{"name": "c"}], "nodeName": node},
        "status": {"phase": "Running"},
    })
}

impl Kit {
    async fn new() -> Self {
        let folder = tempfile::tempdir().expect("folder");
        let store = EmbeddedStore::open(folder.path(), Options::default()).expect("store");
        Self::on(folder, store).await
    }

    async fn on(folder: tempfile::TempDir, store: Arc<EmbeddedStore>) -> Self {
        let tasks = Tasks::new("test");
        let cache = Cache::start(store.clone(), &tasks, vec![pods(), services()]).await.expect("cache");
        Self { _folder: folder, store, tasks, cache }
    }

    async fn put(&self, name: &str, object: &Value) -> Revision {
        let key = format!("/registry/pods/ns/{name}");
        let value = Bytes::from(object.to_string());
        let expected = self.store.get(&key).await.expect("get").entry.map_or(0, |entry| entry.modified);
        let op = match expected {
            0 => Op::Create { key, value, lease: None },
            expected => Op::Update { key, value, expected, lease: None },
        };
        self.store.commit(Transaction::one(op)).await.expect("commit").revision
    }

    async fn delete(&self, name: &str) -> Revision {
        let key = format!("/registry/pods/ns/{name}");
        let expected = self.store.get(&key).await.expect("get").entry.expect("it is there").modified;
        self.store.commit(Transaction::one(Op::Delete { key, expected })).await.expect("commit").revision
    }

    async fn watch(&self, options: WatchOptions) -> Frames {
        let resource = self.cache.resource("pods").expect("pods");
        self.cache.watch(&resource, options).await.expect("watch")
    }
}

async fn next(frames: &mut Frames) -> Option<WatchFrame> {
    tokio::time::timeout(Duration::from_secs(30), frames.next()).await.expect("the watch says nothing")
}

/// `KIND name@revision color`, checked against the frame that goes over the wire.
async fn line(frames: &mut Frames) -> String {
    let Some(frame) = next(frames).await else { return "end".into() };
    let sent = frame.line().expect("a line");
    let wire: Value = serde_json::from_slice(&sent).expect("a JSON line");
    assert!(sent.ends_with(b"\n"));
    assert_eq!(wire["type"], frame.kind.as_str());
    let version = ferry_meta::object::resource_version(&wire["object"]).to_owned();
    assert_eq!(version, frame.revision.to_string());
    let name = ferry_meta::object::name(&wire["object"]).to_owned();
    let color = ferry_meta::object::text(&wire["object"], "/metadata/labels/color").to_owned();
    format!("{} {name}@{version} {color}", frame.kind.as_str()).trim_end().to_owned()
}

#[tokio::test]
async fn objects_carry_their_version_whatever_their_form() {
    let registration = Arc::new(pods());
    let cases = [
        r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","uid":"u","labels":{"x":"1"}},"spec":{"nodeName":"n1"}}"#,
        r#"{"spec":{"containers":[{"nodeName":"no"}],"nodeName":"n1"},"metadata": {"labels":{"x":"1"},"uid":"u"}}"#,
        r#"{"metadata":{"uid":"u","labels":{"x":"1"},"resourceVersion":"9"},"spec":{"nodeName":"n1"},"status":null}"#,
    ];
    for text in cases {
        let read = CachedObject::ingest(&registration, "/registry/pods/ns/a".into(), &Bytes::from(text), 3, 77);
        let object = read.expect(text);
        let parsed: Value = serde_json::from_slice(&object.json()).expect(text);
        let mut expected: Value = serde_json::from_str(text).expect(text);
        expected["metadata"]["resourceVersion"] = json!("77");
        assert_eq!(parsed, expected, "{text}");
        assert_eq!((object.namespace(), object.name()), ("ns", "a"));
        assert_eq!(
            (object.label("x"), object.field("spec.nodeName"), object.field("status.phase")),
            (Some("1"), "n1", "")
        );
        expected["metadata"]["resourceVersion"] = json!("123456");
        assert_eq!(object.at(123_456).parse().expect(text), expected, "{text}");
    }
    let empty =
        CachedObject::ingest(&registration, "/registry/pods/ns/a".into(), &Bytes::from(r#"{"metadata":{}}"#), 1, 2);
    assert_eq!(&*empty.expect("empty").at(3).json(), br#"{"metadata":{"resourceVersion":"3"}}"#);
    for bad in ["", "[]", "{}", r#"{"metadata":1}"#, r#"{"metadata":{"labels":{"a":1}}}"#, "\u{1}"] {
        let read = CachedObject::ingest(&registration, "/registry/pods/ns/a".into(), &Bytes::from(bad), 1, 2);
        assert!(read.is_err(), "{bad}");
    }
}

#[tokio::test]
async fn reads_see_every_acknowledged_write() {
    let kit = Kit::new().await;
    let resource = kit.cache.resource("pods").expect("pods");
    for step in 0..50 {
        let revision = kit.put(&format!("p{step:02}"), &pod(&format!("p{step:02}"), "n", "red")).await;
        let snapshot = kit.cache.snapshot(&resource, None).await.expect("snapshot");
        assert_eq!(snapshot.len(), step + 1);
        assert!(snapshot.revision >= revision);
    }
    let before = kit.cache.snapshot(&resource, None).await.expect("snapshot");
    let then = before.revision;
    kit.delete("p03").await;
    kit.put("p04", &pod("p04", "n", "blue")).await;
    let now = kit.cache.snapshot(&resource, None).await.expect("snapshot");
    assert_eq!((before.len(), now.len()), (50, 49));
    let past = resource.snapshot_at(then).expect("the log reaches back");
    let keys = |snapshot: &super::Snapshot| snapshot.range("ns", None).map(|o| format!("{o:?}")).collect::<Vec<_>>();
    assert_eq!(keys(&past), keys(&before));
    assert_eq!(now.range("ns", Some("/registry/pods/ns/p47")).count(), 2);
    assert_eq!(now.range("other", None).count(), 0);
    assert_eq!(now.get("ns", "p04").expect("p04").label("color"), Some("blue"));
    assert!(resource.snapshot_at(now.revision + 1).is_none());
    let far = kit.cache.snapshot(&resource, Some(now.revision + 1)).await.err();
    assert!(matches!(far, Some(CacheError::TooLarge { .. })));

    let reader: &dyn ObjectReader = &*kit.cache;
    let names = GroupResource::new("", "pods");
    assert_eq!(reader.get(&names, "ns", "p04").expect("p04")["metadata"]["labels"]["color"], "blue");
    assert_eq!(reader.list(&names, "").len(), 49);
    assert_eq!(reader.list(&names, "other").len(), 0);
    let version = reader.version(&names);
    let last = kit.delete("p05").await;
    kit.cache.wait_for(last).await.expect("wait");
    assert_ne!(reader.version(&names), version);
}

#[tokio::test]
async fn selectors_see_objects_come_and_go() {
    let kit = Kit::new().await;
    let start = kit.put("x", &pod("x", "", "blue")).await;
    let enter = kit.put("x", &pod("x", "", "red")).await;
    let within = kit.put("x", &pod("x", "n1", "red")).await;
    let leave = kit.put("x", &pod("x", "n1", "green")).await;
    kit.put("x", &pod("x", "n1", "green")).await;
    let again = kit.put("x", &pod("x", "n2", "red")).await;
    let gone = kit.delete("x").await;
    kit.cache.wait_for(gone).await.expect("wait");
    let red = WatchOptions {
        labels: LabelSelector::parse("color=red").expect("selector"),
        from: StartFrom::After(start),
        namespace: "ns".into(),
        ..WatchOptions::default()
    };
    let expected = [
        format!("ADDED x@{enter} red"),
        format!("MODIFIED x@{within} red"),
        format!("DELETED x@{leave} red"),
        format!("ADDED x@{again} red"),
        format!("DELETED x@{gone} red"),
    ];
    let mut frames = kit.watch(red).await;
    for line_expected in &expected {
        assert_eq!(&line(&mut frames).await, line_expected);
    }
    // By node: past events through the log, later ones through the index.
    let on_node = |from| WatchOptions {
        fields: FieldSelector::parse("spec.nodeName=n1").expect("selector"),
        from,
        ..WatchOptions::default()
    };
    let mut frames = kit.watch(on_node(StartFrom::After(start))).await;
    assert_eq!(line(&mut frames).await, format!("ADDED x@{within} red"));
    assert_eq!(line(&mut frames).await, format!("MODIFIED x@{leave} green"));
    line(&mut frames).await;
    assert_eq!(line(&mut frames).await, format!("DELETED x@{again} green"));
    let mut fresh = kit.watch(on_node(StartFrom::Unset)).await;
    kit.put("elsewhere", &pod("elsewhere", "n2", "red")).await;
    let here = kit.put("here", &pod("here", "n1", "red")).await;
    let moved = kit.put("here", &pod("here", "n3", "red")).await;
    for frames in [&mut frames, &mut fresh] {
        assert_eq!(line(frames).await, format!("ADDED here@{here} red"));
        assert_eq!(line(frames).await, format!("DELETED here@{moved} red"));
    }
    // By name.
    let by_name = WatchOptions { namespace: "ns".into(), name: "here".into(), ..WatchOptions::default() };
    let mut frames = kit.watch(by_name).await;
    assert_eq!(line(&mut frames).await, format!("ADDED here@{moved} red"));
    kit.put("here2", &pod("here2", "n1", "red")).await;
    let gone = kit.delete("here").await;
    assert_eq!(line(&mut frames).await, format!("DELETED here@{gone} red"));
}

#[tokio::test]
async fn a_watch_begins_where_it_is_asked_to() {
    let kit = Kit::new().await;
    let a = kit.put("a", &pod("a", "", "red")).await;
    let b = kit.put("b", &pod("b", "", "red")).await;
    let present = [format!("ADDED a@{a} red"), format!("ADDED b@{b} red")];
    for from in [StartFrom::Zero, StartFrom::Unset] {
        kit.cache.wait_for(b).await.expect("wait");
        let mut frames = kit.watch(WatchOptions { from, ..WatchOptions::default() }).await;
        for expected in &present {
            assert_eq!(&line(&mut frames).await, expected);
        }
    }
    let listing = WatchOptions { send_initial_events: Some(true), allow_bookmarks: true, ..WatchOptions::default() };
    let mut frames = kit.watch(listing.clone()).await;
    for expected in &present {
        assert_eq!(&line(&mut frames).await, expected);
    }
    let end = next(&mut frames).await.expect("a bookmark");
    assert!(end.initial_events_end);
    assert_eq!((end.kind, end.revision), (FrameKind::Bookmark, b));
    let c = kit.put("c", &pod("c", "", "red")).await;
    assert_eq!(line(&mut frames).await, format!("ADDED c@{c} red"));

    let mut after = kit.watch(WatchOptions { from: StartFrom::After(a), ..WatchOptions::default() }).await;
    assert_eq!(line(&mut after).await, format!("ADDED b@{b} red"));
    let silent = WatchOptions { send_initial_events: Some(false), ..WatchOptions::default() };
    let mut silent = kit.watch(silent).await;
    let ahead = WatchOptions { from: StartFrom::After(c + 1), ..WatchOptions::default() };
    let mut ahead = kit.watch(ahead).await;
    let d = kit.put("d", &pod("d", "", "red")).await;
    let e = kit.put("e", &pod("e", "", "red")).await;
    assert_eq!(line(&mut silent).await, format!("ADDED d@{d} red"));
    assert_eq!(line(&mut ahead).await, format!("ADDED e@{e} red"), "nothing at or below the version asked for");
}

#[tokio::test]
async fn a_watch_ends_at_its_timeout() {
    let kit = Kit::new().await;
    let timeout = Some(Duration::from_millis(20));
    let options = WatchOptions { allow_bookmarks: true, timeout, ..WatchOptions::default() };
    let mut frames = kit.watch(options).await;
    assert_eq!(line(&mut frames).await, "end");
    // Encoders look ahead for what is ready: the end is found twice.
    assert!(next(&mut frames).await.is_none());
}

#[tokio::test]
async fn watches_go_on_across_a_restart_but_not_from_compacted_history() {
    let kit = Kit::new().await;
    let a = kit.put("a", &pod("a", "", "red")).await;
    let b = kit.put("b", &pod("b", "", "red")).await;
    let Kit { _folder: folder, store, tasks, cache } = kit;
    assert!(tasks.stop(Duration::from_secs(30)).await);
    drop(cache);
    drop(store);
    let store = EmbeddedStore::open(folder.path(), Options::default()).expect("store");
    let kit = Kit::on(folder, store).await;
    let mut frames = kit.watch(WatchOptions { from: StartFrom::After(a), ..WatchOptions::default() }).await;
    assert_eq!(line(&mut frames).await, format!("ADDED b@{b} red"));

    kit.store.compact(b).await.expect("compact");
    let Kit { _folder: folder, store, tasks, cache } = kit;
    assert!(tasks.stop(Duration::from_secs(30)).await);
    drop((cache, frames));
    let kit = Kit::on(folder, store).await;
    let resource = kit.cache.resource("pods").expect("pods");
    let refused =
        kit.cache.watch(&resource, WatchOptions { from: StartFrom::After(a), ..WatchOptions::default() }).await;
    assert!(matches!(refused.err(), Some(CacheError::Expired { requested, oldest }) if requested == a && oldest == b));
}

/// Pods whose reading ends in a panic while the fuse is lit, which it puts out.
fn explosive(fuse: Arc<AtomicBool>) -> Registration {
    let resource = GroupResource::new("", "pods");
    Registration::new(resource, "pods", true, vec!["spec.nodeName".to_owned()], move |_, _| {
        assert!(!fuse.swap(false, Ordering::SeqCst), "on purpose");
        String::new()
    })
}

#[tokio::test]
async fn a_panic_while_changes_are_read_costs_a_pause_and_is_told_meanwhile() {
    let folder = tempfile::tempdir().expect("folder");
    let store = EmbeddedStore::open(folder.path(), Options::default()).expect("store");
    let (tasks, fuse) = (Tasks::new("test"), Arc::new(AtomicBool::new(false)));
    let registrations = vec![explosive(fuse.clone()), services()];
    let cache = Cache::start(store.clone(), &tasks, registrations).await.expect("cache");
    let kit = Kit { _folder: folder, store, tasks, cache };
    kit.put("before", &pod("before", "", "red")).await;
    let mut watch = kit.watch(WatchOptions { from: StartFrom::Unset, ..WatchOptions::default() }).await;
    assert!(line(&mut watch).await.starts_with("ADDED before@"));
    assert_eq!(kit.tasks.failure(), None);
    fuse.store(true, Ordering::SeqCst);
    let bomb = kit.put("bomb", &pod("bomb", "", "red")).await;
    while kit.tasks.failure().is_none() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(kit.tasks.failure().as_deref(), Some("task/test/watch-cache: it panicked: on purpose"));
    tokio::time::timeout(Duration::from_secs(30), kit.cache.wait_for(bomb))
        .await
        .expect("it starts again")
        .expect("read");
    assert_eq!(line(&mut watch).await, "end", "who watched starts anew");
    let after = kit.put("after", &pod("after", "", "red")).await;
    kit.cache.wait_for(after).await.expect("changes are read again");
    let names: Vec<String> = kit
        .cache
        .list(&GroupResource::new("", "pods"), "ns")
        .iter()
        .map(|pod| ferry_meta::object::name(pod).to_owned())
        .collect();
    assert_eq!(names, ["after", "before", "bomb"]);
    assert_eq!(kit.tasks.failure(), None);
    assert!(kit.tasks.stop(Duration::from_secs(30)).await);
}

#[tokio::test]
async fn resources_come_and_go_while_the_server_runs() {
    let kit = Kit::new().await;
    let put = |name: &str| {
        let key = format!("/registry/stable.example.com/crontabs/ns/{name}");
        let value = Bytes::from(json!({"metadata": {"name": name}}).to_string());
        kit.store.commit(Transaction::one(Op::Create { key, value, lease: None }))
    };
    put("early").await.expect("commit");
    let registration = || {
        let resource = GroupResource::new("stable.example.com", "crontabs");
        Registration::new(resource, "stable.example.com/crontabs", true, Vec::new(), |_, _| String::new())
    };
    let resource = kit.cache.register(registration()).await.expect("register");
    assert!(resource.get("ns", "early").is_some());
    let mut frames = kit.cache.watch(&resource, WatchOptions::default()).await.expect("watch");
    assert!(line(&mut frames).await.starts_with("ADDED early@"));
    let too_old = WatchOptions { from: StartFrom::After(1), ..WatchOptions::default() };
    assert!(matches!(kit.cache.watch(&resource, too_old).await.err(), Some(CacheError::Expired { .. })));
    put("late").await.expect("commit");
    assert!(line(&mut frames).await.starts_with("ADDED late@"));
    kit.cache.unregister("stable.example.com/crontabs");
    assert_eq!(line(&mut frames).await, "end");
    assert!(kit.cache.resource("stable.example.com/crontabs").is_none());
    assert!(kit.cache.find(&GroupResource::new("stable.example.com", "crontabs")).is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_writers_and_watchers_agree() {
    let kit = Kit::new().await;
    let mut watchers = Vec::new();
    for namespace in ["", "ns"] {
        watchers.push(kit.watch(WatchOptions { namespace: namespace.into(), ..WatchOptions::default() }).await);
    }
    let writers = (0..8).map(|writer| {
        let kit = &kit;
        async move {
            for step in 0..25 {
                let name = format!("w{writer}-{step}");
                kit.put(&name, &pod(&name, "n", "red")).await;
            }
        }
    });
    futures::future::join_all(writers).await;
    for frames in &mut watchers {
        let mut last = 0;
        for _ in 0..200 {
            let frame = next(frames).await.expect("an event");
            assert!(frame.revision > last);
            last = frame.revision;
        }
    }
}

/// A new resource is read from the store, and meanwhile the hub starts over: the older of the two states does not win.
#[tokio::test]
async fn a_new_resource_does_not_go_back_behind_the_hub() {
    let kit = Kit::new().await;
    let before =
        kit.store.range(Range { prefix: "/registry/pods/".into(), ..Range::default() }).await.expect("a range");
    kit.put("late", &pod("late", "n", "red")).await;
    let after = kit.store.range(Range { prefix: "/registry/pods/".into(), ..Range::default() }).await.expect("a range");
    let resource = ResourceCache::new(pods(), Arc::default());
    resource.load(after.revision, &after.entries);
    resource.load_new(before.revision, &before.entries);
    assert!(resource.get("ns", "late").is_some());
    // What the hub has not loaded yet is taken as it was read.
    let resource = ResourceCache::new(pods(), Arc::default());
    resource.load_new(after.revision, &after.entries);
    assert!(resource.get("ns", "late").is_some());
    kit.tasks.stop(Duration::from_secs(10)).await;
}
