//! One who watches all objects through whichever server is there, and goes on at another one from where it was.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::{DEADLINE, World, revision_of, value_of};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Added,
    Modified,
    Deleted,
}

/// The object after which watchers look no further.
pub const END: &str = "end-of-history";

/// What was told, by revision.
#[derive(Default)]
pub struct Watcher {
    events: BTreeMap<u64, (Kind, String, u64)>,
    /// From where on it knows everything: it began, or was told to begin anew.
    begins: Vec<(u64, BTreeMap<String, u64>)>,
    /// The last revision before each new beginning.
    ends: Vec<u64>,
    reached: u64,
    connections: usize,
}

impl Watcher {
    pub async fn run(world: Arc<World>, seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let mut watcher = Self::default();
        let mut positioned = false;
        loop {
            let api: Api<ConfigMap> = Api::namespaced(world.some_client(&mut random).await, "default");
            if !positioned {
                positioned = watcher.begin(&api).await;
                continue;
            }
            match watcher.follow(&world, &api, &mut random).await {
                Followed::End => return watcher,
                Followed::Lost => {}
                Followed::Expired => positioned = false,
            }
        }
    }

    async fn begin(&mut self, api: &Api<ConfigMap>) -> bool {
        let Ok(Ok(list)) = tokio::time::timeout(DEADLINE, api.list(&ListParams::default())).await else { return false };
        let revision: u64 = list.metadata.resource_version.unwrap().parse().unwrap();
        assert!(revision >= self.reached, "a list at {revision} after {} was told", self.reached);
        if !self.begins.is_empty() {
            self.ends.push(self.reached);
        }
        let there = list.items.iter().map(|item| (item.metadata.name.clone().unwrap(), value_of(item))).collect();
        self.begins.push((revision, there));
        self.reached = revision;
        true
    }

    /// Until this server says nothing any more, or the watcher wants another one.
    async fn follow(&mut self, world: &World, api: &Api<ConfigMap>, random: &mut StdRng) -> Followed {
        self.connections += 1;
        let from = self.reached.to_string();
        let opened = tokio::time::timeout(DEADLINE, api.watch(&WatchParams::default(), &from)).await;
        let stream = match opened {
            Ok(Ok(stream)) => stream,
            Ok(Err(kube::Error::Api(status))) if status.code == 410 => return Followed::Expired,
            _ => return Followed::Lost,
        };
        let mut stream = Box::pin(stream);
        let leave_after = random.random_range(5..80);
        for _ in 0..leave_after {
            // One that is stopped says nothing, and so does one where nothing happens: another one is asked.
            let patience = if world.done.load(Ordering::SeqCst) { DEADLINE } else { Duration::from_millis(1500) };
            let Ok(Some(event)) = tokio::time::timeout(patience, stream.next()).await else { return Followed::Lost };
            let (kind, object) = match event {
                Ok(WatchEvent::Added(object)) => (Kind::Added, object),
                Ok(WatchEvent::Modified(object)) => (Kind::Modified, object),
                Ok(WatchEvent::Deleted(object)) => (Kind::Deleted, object),
                Ok(WatchEvent::Bookmark(_)) => continue,
                Ok(WatchEvent::Error(status)) if status.code == 410 => return Followed::Expired,
                _ => return Followed::Lost,
            };
            let (revision, name) = (revision_of(&object), object.metadata.name.clone().unwrap());
            assert!(revision > self.reached, "{name} at {revision} was told after {}", self.reached);
            self.reached = revision;
            let ends = name == END;
            self.events.insert(revision, (kind, name, value_of(&object)));
            if ends {
                return Followed::End;
            }
        }
        Followed::Lost
    }

    /// Complete, in order, and nothing that was not written.
    pub fn check(&self, world: &World, last: u64) {
        assert_eq!(self.reached, last);
        let covered = |revision: u64| {
            self.begins.iter().enumerate().any(|(index, (begin, _))| {
                let end = self.ends.get(index).copied().unwrap_or(last);
                *begin < revision && revision <= end
            })
        };
        for (name, value, revision) in world.written.lock().unwrap().iter() {
            if covered(*revision) {
                let told = self.events.get(revision);
                let expected =
                    told.is_some_and(|(kind, told, is)| *kind != Kind::Deleted && told == name && is == value);
                assert!(expected, "{name}={value} was acknowledged at {revision}, and a watch told {told:?}");
            }
        }
        for (index, (begin, there)) in self.begins.iter().enumerate() {
            let end = self.ends.get(index).copied().unwrap_or(last);
            let mut there = there.clone();
            for (revision, (kind, name, value)) in self.events.range(begin + 1..=end) {
                let before = match kind {
                    Kind::Deleted => there.remove(name),
                    _ => there.insert(name.clone(), *value),
                };
                assert_eq!(before.is_none(), *kind == Kind::Added, "{kind:?} of {name} at {revision} after {before:?}");
            }
        }
        println!(
            "    a watch told {} changes in order over {} connections, and began anew {} times",
            self.events.len(),
            self.connections,
            self.ends.len()
        );
    }
}

enum Followed {
    End,
    Lost,
    Expired,
}
