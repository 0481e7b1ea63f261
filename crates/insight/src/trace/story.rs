//! Everything that is known of an object and of what it led to.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use ferry_meta::object;
use ferry_meta::selector::LabelSelector;
use futures::future::join_all;
use jiff::Timestamp;
use serde_json::Value;

use super::flight::Flight;
use crate::cluster::{Cluster, Error};
use crate::gather;
use crate::resolve::Resource;
use crate::why::Finding;
use crate::why::workload::{current_pods, newest_set};
use crate::world::{World, condition, is_true, time_at};

/// Of so many pods the recorder is asked; the others are told by what they say of themselves.
const PODS: usize = 32;

pub struct Story {
    pub(super) world: World,
    pub(super) title: String,
    /// From the target to what makes the pods: Deployment, ReplicaSet.
    pub(super) chain: Vec<Value>,
    pub(super) pods: Vec<Value>,
    /// The slices that list one of the pods.
    pub(super) slices: Vec<Value>,
    /// By uid.
    flights: BTreeMap<String, Flight>,
    /// Whether the server has a recorder that may be asked.
    pub(super) recorded: bool,
    /// What holds it up, where that was found out.
    pub(super) held: Vec<Finding>,
}

impl Story {
    pub(super) fn flight(&self, item: &Value) -> Flight {
        self.flights.get(object::uid(item)).cloned().unwrap_or_default()
    }

    /// The pod that was ready last, or is not yet, comes first: it is the one to look at.
    fn urgency(&self, pod: &Value) -> (bool, Reverse<Option<Timestamp>>, String) {
        let is = |change: &Value| change["what"] == "condition" && change["name"] == "Ready" && change["to"] == "True";
        let seen =
            self.flights.get(object::uid(pod)).and_then(|flight| flight.change(is)).map(|(write, _)| write.received);
        let said = || condition(pod, "Ready").and_then(|c| time_at(c, "/lastTransitionTime"));
        (is_true(pod, "Ready"), Reverse(seen.or_else(said)), object::name(pod).to_owned())
    }

    /// Who follows an object sees the hops of one pod: of that which came first, as long as it is there.
    pub(super) fn keep_to(&mut self, followed: &mut Option<String>) {
        let known = self.pods.iter().position(|pod| followed.as_deref() == Some(object::uid(pod)));
        match known {
            Some(at) => self.pods[..=at].rotate_right(1),
            None => *followed = self.pods.first().map(|pod| object::uid(pod).to_owned()),
        }
    }

    /// Names of the Services that select a pod.
    pub(super) fn services(&self, pod: &Value) -> Vec<&Value> {
        let selects = |service: &&Value| {
            let selector = object::map(service, "/spec/selector");
            !selector.is_empty() && LabelSelector::from_map(selector).matches(object::labels(pod))
        };
        self.world.all("services").iter().filter(selects).collect()
    }

    pub fn target(&self) -> &Value {
        &self.world.target
    }

    #[cfg(test)]
    pub(super) fn of(world: World, flights: &[(&str, &Value)]) -> Self {
        let flights = flights.iter().map(|(uid, document)| ((*uid).to_owned(), Flight::read(document, uid))).collect();
        let mut story = arranged(world, "it".into());
        (story.flights, story.recorded) = (flights, true);
        story
    }
}

pub(super) async fn read(cluster: &Cluster, resource: &Resource, namespace: &str, name: &str) -> Result<Story, Error> {
    let path = resource.object(namespace, name);
    let absent = || Error::NotFound(format!("there is no {} {name:?}", resource.title()));
    let mut target = cluster.get(&path).await?.ok_or_else(absent)?;
    if let Some(map) = target.as_object_mut() {
        map.entry("kind").or_insert_with(|| resource.kind.clone().into());
    }
    let lists: &[&str] = match resource.namespaced {
        true => &["pods", "replicasets", "jobs", "events", "services", "endpointslices"],
        false => &[],
    };
    let world = gather::around_it(cluster, target, namespace, lists).await;
    let mut story = arranged(world, format!("{}/{name}", resource.title()));
    let mut asked: Vec<(String, String)> = vec![(object::uid(&story.world.target).to_owned(), path)];
    let known = [
        ("ReplicaSet", Resource::new("apps", "v1", "replicasets", "")),
        ("Job", Resource::new("batch", "v1", "jobs", "")),
        ("Pod", Resource::new("", "v1", "pods", "")),
        ("EndpointSlice", Resource::new("discovery.k8s.io", "v1", "endpointslices", "")),
    ];
    for item in story.chain.iter().chain(story.pods.iter().take(PODS)).chain(&story.slices) {
        let found = known.iter().find(|(kind, _)| object::text(item, "/kind") == *kind);
        let new = asked.iter().all(|(uid, _)| uid != object::uid(item));
        if let Some((_, resource)) = found.filter(|_| new) {
            asked.push((object::uid(item).to_owned(), resource.object(namespace, object::name(item))));
        }
    }
    let answers = join_all(asked.into_iter().map(|(uid, path)| async move {
        let answer = cluster.get(&format!("/debug/flight{path}")).await;
        (uid, answer)
    }));
    for (uid, answer) in answers.await {
        match answer {
            Ok(Some(document)) => {
                story.recorded = true;
                story.flights.insert(uid.clone(), Flight::read(&document, &uid));
            }
            Ok(None) => {}
            // The summary says that it was not asked.
            Err(Error::Refused { code: 401 | 403, .. }) => {}
            Err(error) => story.world.unseen.push(format!("the flight recorder: {error}")),
        }
    }
    let mut pods = std::mem::take(&mut story.pods);
    pods.sort_by_key(|pod| story.urgency(pod));
    story.pods = pods;
    Ok(story)
}

/// Finds the way from the target to its pods and their slices.
fn arranged(world: World, title: String) -> Story {
    let target = &world.target;
    let newest_job =
        || world.owned("jobs", target).max_by_key(|job| object::text(job, "/metadata/creationTimestamp").to_owned());
    let made = match object::text(target, "/kind") {
        "Deployment" => newest_set(&world, target),
        "CronJob" => newest_job(),
        _ => None,
    };
    let mut pods: Vec<Value> = match (object::text(target, "/kind"), made) {
        ("Pod", _) => vec![target.clone()],
        ("CronJob", None) => Vec::new(),
        ("CronJob", Some(job)) => world.owned("pods", job).cloned().collect(),
        _ => current_pods(&world, target).into_iter().cloned().collect(),
    };
    pods.retain(|pod| !object::is_being_deleted(pod) || object::text(target, "/kind") == "Pod");
    let lists = |slice: &&Value| {
        object::items(slice, "/endpoints").iter().any(|endpoint| {
            let uid = object::text(endpoint, "/targetRef/uid");
            !uid.is_empty() && pods.iter().any(|pod| object::uid(pod) == uid)
        })
    };
    let slices = world.all("endpointslices").iter().filter(lists).cloned().collect();
    let chain = std::iter::once(target).chain(made).cloned().collect();
    Story { title, chain, pods, slices, flights: BTreeMap::new(), recorded: false, held: Vec::new(), world }
}
