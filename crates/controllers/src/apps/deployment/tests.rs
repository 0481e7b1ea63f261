//! A small world in which plans are carried out and pods become ready or not.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, ReplicaSetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use serde_json::json;

use super::plan::{Plan, plan};

struct World {
    deployment: Deployment,
    sets: Vec<ReplicaSet>,
    clock: i64,
    events: Vec<String>,
}

impl World {
    fn new(spec: serde_json::Value) -> Self {
        let mut json = json!({
            "metadata": { "name": "web", "namespace": "a", "uid": "d", "generation": 1 },
            "spec": {
                "replicas": 10, "selector": { "matchLabels": { "app": "web" } },
                "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxSurge": "25%", "maxUnavailable": "25%" } },
                "template": { "metadata": { "labels": { "app": "web" } }, "spec": { "containers": [] } },
                "progressDeadlineSeconds": 600, "revisionHistoryLimit": 10,
            },
        });
        for (key, value) in spec.as_object().expect("a spec") {
            json["spec"][key] = value.clone();
        }
        let deployment = serde_json::from_value(json).expect("a deployment");
        Self { deployment, sets: Vec::new(), clock: 0, events: Vec::new() }
    }

    fn change(&mut self, spec: serde_json::Value) {
        let mut json = serde_json::to_value(&self.deployment).expect("JSON");
        for (key, value) in spec.as_object().expect("a spec") {
            json["spec"][key] = value.clone();
        }
        self.deployment = serde_json::from_value(json).expect("a deployment");
        *self.deployment.metadata.generation.get_or_insert_default() += 1;
    }

    fn image(&mut self, image: &str) {
        let spec = json!({ "containers": [{ "name": "c", "image": image }] });
        self.change(json!({ "template": { "metadata": { "labels": { "app": "web" } }, "spec": spec } }));
    }

    fn plan(&mut self) -> Plan {
        self.clock += 1;
        let now = Timestamp::from_second(self.clock).expect("a time");
        let sets = self.sets.iter().cloned().map(Arc::new).collect();
        let running = |new: Option<&str>| {
            self.sets.iter().any(|set| set.metadata.uid.as_deref() != new && status(set).replicas > 0)
        };
        plan(&Arc::new(self.deployment.clone()), sets, running, now)
    }

    /// Carries one plan out; true when it wrote anything.
    fn step(&mut self) -> bool {
        let plan = self.plan();
        let wrote = plan.create.is_some() || !plan.update.is_empty() || plan.status.is_some() || plan.rewrite.is_some();
        if let Some(mut set) = plan.create {
            set.metadata.uid = set.metadata.name.clone();
            set.metadata.generation = Some(1);
            set.metadata.creation_timestamp = Timestamp::from_second(self.clock).ok().map(Time);
            self.sets.push(set);
        }
        for set in plan.update {
            let at = self.sets.iter().position(|known| known.metadata.uid == set.metadata.uid).expect("a set");
            self.sets[at] = set;
        }
        for set in plan.delete {
            self.sets.retain(|known| known.metadata.uid != set.metadata.uid);
        }
        if let Some(status) = plan.status {
            self.deployment.metadata.annotations = status.metadata.annotations;
            self.deployment.status = status.status;
        }
        if let Some(mut rewritten) = plan.rewrite {
            *rewritten.metadata.generation.get_or_insert_default() += 1;
            self.deployment = rewritten;
        }
        self.events.extend(plan.notes.into_iter().map(|note| note.message));
        wrote
    }

    /// The ReplicaSet controller: makes pods, of which those `healthy` says become available.
    fn make_pods(&mut self, healthy: &dyn Fn(&ReplicaSet) -> bool) -> bool {
        let mut changed = false;
        for set in &mut self.sets {
            let replicas = set.spec.replicas.unwrap_or_default();
            let before = status(set);
            let healthy = healthy(set);
            let available =
                if healthy { replicas } else { before.available_replicas.unwrap_or_default().min(replicas) };
            let now = ReplicaSetStatus {
                replicas,
                ready_replicas: Some(available),
                available_replicas: Some(available),
                terminating_replicas: Some(0),
                observed_generation: Some(1),
                ..before.clone()
            };
            changed |= now != before;
            set.status = Some(now);
        }
        changed
    }

    /// Runs until nothing changes any more, checking the bounds at every step.
    fn settle(&mut self, bounds: Option<(i32, i32)>, healthy: &dyn Fn(&ReplicaSet) -> bool) {
        for _ in 0..200 {
            let wrote = self.step();
            if let Some((most, least)) = bounds {
                let total: i32 = self.sets.iter().filter_map(|set| set.spec.replicas).sum();
                let available: i32 = self
                    .sets
                    .iter()
                    .map(|set| {
                        let wanted = set.spec.replicas.unwrap_or_default();
                        status(set).available_replicas.unwrap_or_default().min(wanted)
                    })
                    .sum();
                assert!(total <= most, "{total} pods, {most} allowed");
                assert!(available >= least, "{available} available, {least} needed");
            }
            if !self.make_pods(healthy) && !wrote {
                return;
            }
        }
        panic!("does not come to rest");
    }

    fn sizes(&self) -> Vec<i32> {
        self.sets.iter().filter_map(|set| set.spec.replicas).collect()
    }

    fn condition(&self, kind: &str) -> String {
        let conditions = self.deployment.status.as_ref().and_then(|status| status.conditions.clone());
        let found = conditions.into_iter().flatten().find(|condition| condition.type_.as_deref() == Some(kind));
        found
            .map(|found| format!("{} {}", found.status.unwrap_or_default(), found.reason.unwrap_or_default()))
            .unwrap_or_default()
    }
}

fn status(set: &ReplicaSet) -> ReplicaSetStatus {
    set.status.clone().unwrap_or_default()
}

const ALL: &dyn Fn(&ReplicaSet) -> bool = &|_| true;

#[test]
fn a_new_deployment_becomes_available_and_rests() {
    let mut world = World::new(json!({ "replicas": 3 }));
    world.settle(None, ALL);
    assert_eq!(world.sizes(), [3]);
    let set = &world.sets[0];
    let hash = set.labels()["pod-template-hash"].clone();
    assert_eq!(set.name_any(), format!("web-{hash}"));
    assert_eq!(set.annotations()["deployment.kubernetes.io/revision"], "1");
    assert_eq!(set.annotations()["deployment.kubernetes.io/desired-replicas"], "3");
    assert_eq!(set.annotations()["deployment.kubernetes.io/max-replicas"], "4");
    assert_eq!(world.deployment.annotations()["deployment.kubernetes.io/revision"], "1");
    assert_eq!(world.condition("Progressing"), "True NewReplicaSetAvailable");
    assert_eq!(world.condition("Available"), "True MinimumReplicasAvailable");
    assert_eq!(world.events, [format!("Scaled up replica set web-{hash} from 0 to 3")]);
    assert!(!world.step(), "a plan at rest writes nothing");
}

/// Rolls to another image and back; `most` and `least` must hold all the way.
fn check(spec: serde_json::Value, most: i32, least: i32) {
    let mut world = World::new(spec.clone());
    world.settle(None, ALL);
    let replicas = world.sizes()[0];
    world.image("two");
    world.settle(Some((most, least)), ALL);
    assert_eq!(world.sizes(), [0, replicas], "{spec}");
    world.deployment.annotations_mut().insert("deprecated.deployment.rollback.to".into(), "0".into());
    world.settle(Some((most, least)), ALL);
    assert_eq!(world.sizes(), [replicas, 0], "{spec}");
    assert_eq!(world.sets[0].annotations()["deployment.kubernetes.io/revision"], "3");
    assert_eq!(world.sets[0].annotations()["deployment.kubernetes.io/revision-history"], "1");
    assert!(world.events.iter().any(|event| event == "Rolled back deployment \"web\" to revision 1"));
}

#[test]
fn rollouts_stay_within_their_bounds() {
    let rolling = |surge: serde_json::Value, unavailable: serde_json::Value| json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": surge, "maxUnavailable": unavailable } });
    check(json!({}), 13, 8);
    check(json!({ "strategy": rolling(json!(1), json!(0)) }), 11, 10);
    check(json!({ "strategy": rolling(json!(0), json!(1)) }), 10, 9);
    check(json!({ "strategy": rolling(json!(0), json!(0)) }), 10, 9);
    check(json!({ "strategy": rolling(json!("100%"), json!("100%")) }), 20, 0);
    check(json!({ "replicas": 1 }), 2, 1);
    check(json!({ "strategy": { "type": "Recreate" } }), 10, 0);
}

#[test]
fn a_rollout_that_fails_stops_and_reports() {
    let mut world = World::new(json!({}));
    world.settle(None, ALL);
    world.image("broken");
    let first = world.sets[0].name_any();
    world.settle(Some((13, 8)), &|set| set.name_any() == first);
    assert_eq!(world.sizes(), [8, 5]);
    assert_eq!(world.condition("Progressing"), "True ReplicaSetUpdated");
    assert!(world.plan().again.is_some(), "the deadline is watched");
    world.clock += 700;
    world.settle(None, &|set| set.name_any() == first);
    assert_eq!(world.condition("Progressing"), "False ProgressDeadlineExceeded");
    assert_eq!(world.condition("Available"), "True MinimumReplicasAvailable");
}

#[test]
fn scaling_in_the_middle_keeps_proportions() {
    let mut world = World::new(json!({}));
    world.settle(None, ALL);
    world.image("broken");
    let first = world.sets[0].name_any();
    let healthy = |set: &ReplicaSet| set.name_any() == first;
    world.settle(None, &healthy);
    assert_eq!(world.sizes(), [8, 5]);
    world.change(json!({ "replicas": 20 }));
    world.step();
    assert_eq!(world.sizes(), [15, 10]);
    assert!(!world.sets.iter().any(|set| set.annotations()["deployment.kubernetes.io/desired-replicas"] != "20"));
    world.change(json!({ "replicas": 0 }));
    world.settle(None, &healthy);
    assert_eq!(world.sizes(), [0, 0]);
}

#[test]
fn a_paused_deployment_scales_but_does_not_roll() {
    let mut world = World::new(json!({ "replicas": 4 }));
    world.settle(None, ALL);
    world.change(json!({ "paused": true }));
    world.image("two");
    world.settle(None, ALL);
    assert_eq!(world.sizes(), [4]);
    assert_eq!(world.condition("Progressing"), "Unknown DeploymentPaused");
    world.change(json!({ "replicas": 6 }));
    world.settle(None, ALL);
    assert_eq!(world.sizes(), [6]);
    world.change(json!({ "paused": false }));
    world.settle(None, ALL);
    assert_eq!(world.sizes(), [0, 6]);
    assert_eq!(world.condition("Progressing"), "True NewReplicaSetAvailable");
}

#[test]
fn history_is_limited() {
    let mut world = World::new(json!({ "replicas": 2, "revisionHistoryLimit": 1 }));
    for image in ["one", "two", "three", "four"] {
        world.image(image);
        world.settle(None, ALL);
    }
    let revisions: Vec<String> =
        world.sets.iter().map(|set| set.annotations()["deployment.kubernetes.io/revision"].clone()).collect();
    assert_eq!(revisions, ["3", "4"]);
}
