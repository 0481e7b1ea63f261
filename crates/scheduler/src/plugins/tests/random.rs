//! The fast path against a plain reading of the rules, over random clusters: the same allowed nodes, the same scores.
//!
//! The reading here goes through all pods of all nodes for every question, as the rules are written down.

use std::collections::{BTreeMap, BTreeSet};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::framework::Point;
use crate::model::NodeInfo;
use crate::model::labels::Labels;
use crate::model::pod::AffinityTerm;
use crate::model::spread::Constraint;

const KEYS: [&str; 3] = ["kubernetes.io/hostname", "topology.kubernetes.io/zone", "rack"];
const APPS: [&str; 3] = ["web", "db", "cache"];

struct Random(StdRng);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0.random_range(0..limit)
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }

    fn node(&mut self, name: &str) -> Arc<Node> {
        let mut labels = json!({});
        if self.chance(90) {
            labels["topology.kubernetes.io/zone"] = self.one(&["east", "west", "north"]).into();
        }
        if self.chance(70) {
            labels["rack"] = self.one(&["r1", "r2"]).into();
        }
        if self.chance(10) {
            labels["kubernetes.io/hostname"] = self.one(&["shared", "odd"]).into();
        }
        let taints = if self.chance(20) {
            json!([{"key": "k", "effect": self.one(&["NoSchedule", "PreferNoSchedule"])}])
        } else {
            json!([])
        };
        node(name, json!({"metadata": {"labels": labels}, "spec": {"taints": taints, "unschedulable": self.chance(5)}}))
    }

    fn selector(&mut self) -> Value {
        match self.below(6) {
            0 => json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "db", "web"]}]}),
            1 => json!({"matchExpressions": [{"key": "app", "operator": "Exists"}]}),
            2 => json!({}),
            _ => json!({"matchLabels": {"app": self.one(&APPS)}}),
        }
    }

    fn term(&mut self) -> Value {
        let mut term = json!({"topologyKey": self.one(&KEYS), "labelSelector": self.selector()});
        match self.below(6) {
            0 => term["namespaces"] = json!(["default", "other"]),
            1 => term["namespaceSelector"] = json!({"matchLabels": {"team": "x"}}),
            2 => term["namespaceSelector"] = json!({}),
            _ => {}
        }
        term
    }

    fn affinity(&mut self) -> Value {
        let mut affinity = json!({});
        for sort in ["podAffinity", "podAntiAffinity"] {
            if self.chance(25) {
                let count = 1 + self.below(2);
                let terms: Vec<Value> = (0..count).map(|_| self.term()).collect();
                affinity[sort]["requiredDuringSchedulingIgnoredDuringExecution"] = terms.into();
            }
            if self.chance(30) {
                let wish = json!({"weight": 1 + self.below(100), "podAffinityTerm": self.term()});
                affinity[sort]["preferredDuringSchedulingIgnoredDuringExecution"] = json!([wish]);
            }
        }
        if self.chance(25) {
            let term =
                json!({"matchExpressions": [{"key": "rack", "operator": self.one(&["Exists", "DoesNotExist"])}]});
            affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] =
                json!([term]);
        }
        affinity
    }

    fn spread(&mut self) -> Value {
        let mut seen = BTreeSet::new();
        let mut constraints = Vec::new();
        for _ in 0..self.below(4) {
            let (key, action) = (self.one(&KEYS), self.one(&["DoNotSchedule", "ScheduleAnyway"]));
            if seen.insert((key, action)) {
                let mut constraint = json!({
                    "maxSkew": 1 + self.below(3), "topologyKey": key, "whenUnsatisfiable": action, "labelSelector": self.selector(),
                    "nodeAffinityPolicy": self.one(&["Honor", "Ignore"]), "nodeTaintsPolicy": self.one(&["Honor", "Ignore"]),
                });
                if action == "DoNotSchedule" && self.chance(20) {
                    constraint["minDomains"] = 3.into();
                }
                constraints.push(constraint);
            }
        }
        constraints.into()
    }

    fn pod(&mut self, name: &str, node: Option<&str>) -> Arc<PodInfo> {
        let mut object = json!({
            "metadata": {"namespace": self.one(&["default", "other"]), "labels": {}},
            "spec": {"nodeName": node, "affinity": self.affinity(), "topologySpreadConstraints": self.spread()},
        });
        if self.chance(85) {
            object["metadata"]["labels"]["app"] = self.one(&APPS).into();
        }
        if self.chance(20) {
            object["spec"]["tolerations"] = json!([{"key": "k", "operator": "Exists"}]);
        }
        if node.is_some() && self.chance(10) {
            object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        }
        let cpu = format!("{}m", self.below(900));
        object["spec"]["containers"] = json!([{"name": "c", "resources": {"requests": {"cpu": cpu}}}]);
        pod_with(name, object)
    }
}

/// All pods with their nodes, and the rules as they are written.
struct Plain<'a> {
    world: &'a World,
    pod: &'a PodInfo,
}

impl<'a> Plain<'a> {
    fn placed(&self) -> impl Iterator<Item = (&'a NodeInfo, &'a Arc<PodInfo>)> {
        self.world.cache.nodes().flat_map(|node| node.pods.iter().map(move |pod| (node, pod)))
    }

    fn matches(&self, term: &AffinityTerm, pod: &PodInfo) -> bool {
        let pods = &term.rule.pods[0];
        let none = Labels::new();
        let labels = self.world.cache.namespaces().get(&pod.namespace).unwrap_or(&none);
        (pods.namespaces.contains(&pod.namespace) || pods.namespace_selector.matches(labels))
            && pods.selector.matches(&pod.labels)
    }

    fn together(node: &NodeInfo, other: &NodeInfo, key: &str) -> bool {
        node.labels.get(key).is_some_and(|value| other.labels.get(key) == Some(value))
    }

    fn affinity_allows(&self, node: &NodeInfo) -> bool {
        let own = &self.pod.affinities;
        let fits_all = |pod: &PodInfo| own.required.iter().all(|term| self.matches(term, pod));
        let in_topology = own.required.iter().all(|term| node.labels.contains_key(term.topology_key()));
        let near = own.required.iter().all(|term| {
            self.placed().any(|(other, pod)| fits_all(pod) && Self::together(node, other, term.topology_key()))
        });
        let anyone = own.required.iter().any(|term| {
            self.placed().any(|(other, pod)| fits_all(pod) && other.labels.contains_key(term.topology_key()))
        });
        let away = own.required_anti.iter().all(|term| {
            !self
                .placed()
                .any(|(other, pod)| self.matches(term, pod) && Self::together(node, other, term.topology_key()))
        });
        let welcome = !self.placed().any(|(other, pod)| {
            let repelling = pod.affinities.required_anti.iter();
            repelling
                .filter(|term| self.matches(term, self.pod))
                .any(|term| Self::together(node, other, term.topology_key()))
        });
        in_topology && (near || (!anyone && fits_all(self.pod))) && away && welcome
    }

    fn affinity_score(&self, node: &NodeInfo) -> i64 {
        let own = &self.pod.affinities;
        let mut sum = 0;
        for (other, pod) in self.placed() {
            for (list, sign) in [(&own.preferred, 1), (&own.preferred_anti, -1)] {
                for wish in list.iter().filter(|wish| self.matches(&wish.term, pod)) {
                    sum += sign * wish.weight * i64::from(Self::together(node, other, wish.term.topology_key()));
                }
            }
            let theirs = &pod.affinities;
            for (list, sign) in [(&theirs.preferred, 1), (&theirs.preferred_anti, -1)] {
                for wish in list.iter().filter(|wish| self.matches(&wish.term, self.pod)) {
                    sum += sign * wish.weight * i64::from(Self::together(node, other, wish.term.topology_key()));
                }
            }
            for term in theirs.required.iter().filter(|term| self.matches(term, self.pod)) {
                sum += i64::from(Self::together(node, other, term.topology_key()));
            }
        }
        sum
    }

    fn counted(&self, constraint: &Constraint, node: &NodeInfo) -> i64 {
        let counts = |pod: &&Arc<PodInfo>| {
            !constraint.selector.is_empty()
                && pod.namespace == self.pod.namespace
                && !pod.is_terminating
                && constraint.selector.matches(&pod.labels)
        };
        node.pods.iter().filter(counts).count() as i64
    }

    /// Counts per domain over the nodes that count.
    fn domains(&self, constraint: &Constraint, all: &[Constraint]) -> BTreeMap<String, i64> {
        let mut domains = BTreeMap::new();
        for node in self.world.cache.nodes() {
            let labelled = all.iter().all(|other| node.labels.contains_key(other.topology_key()));
            if let Some(value) = node.labels.get(constraint.topology_key())
                && labelled
                && constraint.counts_on(self.pod, node)
            {
                *domains.entry(value.clone()).or_default() += self.counted(constraint, node);
            }
        }
        domains
    }

    fn spread_allows(&self, node: &NodeInfo) -> bool {
        let all = &self.pod.hard_spread;
        all.iter().all(|constraint| {
            let Some(value) = node.labels.get(constraint.topology_key()) else { return false };
            let domains = self.domains(constraint, all);
            let fewest = domains.values().min().copied().unwrap_or(i64::from(i32::MAX));
            let fewest = if domains.len() < constraint.min_domains { 0 } else { fewest };
            let own = i64::from(constraint.selector.matches(&self.pod.labels));
            domains.get(value).copied().unwrap_or_default() + own - fewest <= constraint.max_skew
        })
    }

    fn spread_scores(&self, nodes: &[&NodeInfo]) -> Vec<i64> {
        let all = &self.pod.soft_spread;
        let is_scored = |node: &&&NodeInfo| all.iter().all(|c| node.labels.contains_key(c.topology_key()));
        let scored: Vec<&&NodeInfo> = nodes.iter().filter(is_scored).collect();
        let mut raw: Vec<Option<i64>> = Vec::new();
        for node in nodes {
            if !is_scored(&node) {
                raw.push(None);
                continue;
            }
            let mut score = 0.0;
            for constraint in all {
                let key = constraint.topology_key();
                let hosts = key == "kubernetes.io/hostname";
                let size = match hosts {
                    true => scored.len(),
                    false => scored.iter().map(|n| n.labels.get(key)).collect::<BTreeSet<_>>().len(),
                };
                let count = match hosts {
                    true => self.counted(constraint, node),
                    false => self.domains(constraint, all).get(&node.labels[key]).copied().unwrap_or_default(),
                };
                score += count as f64 * ((size + 2) as f64).ln() + (constraint.max_skew - 1) as f64;
            }
            raw.push(Some(score.round() as i64));
        }
        let (low, high) =
            (raw.iter().flatten().min().copied().unwrap_or(0), raw.iter().flatten().max().copied().unwrap_or(0));
        raw.into_iter()
            .map(|score| match score {
                None => 0,
                Some(_) if high == 0 => 100,
                Some(score) => 100 * (high + low - score) / high,
            })
            .collect()
    }
}

fn plugin_scores(search: &Search<'_>, plugin: &str, nodes: &[&NodeInfo]) -> Option<Vec<i64>> {
    let (_, registered) = search.profile.at(Point::Score).find(|(_, r)| r.plugin.name() == plugin)?;
    let data = match registered.plugin.pre_score(&search.cycle, nodes) {
        crate::framework::PreScore::Skip => return None,
        crate::framework::PreScore::Continue(data) => data,
    };
    let data = data.as_ref().map(|data| (**data).any());
    let mut scores = registered.plugin.scores(&search.cycle, data, nodes);
    let alone: Vec<i64> = nodes.iter().map(|node| registered.plugin.score(&search.cycle, data, node)).collect();
    assert_eq!(scores, alone, "{plugin}, all nodes at once and one by one");
    registered.plugin.normalize(&search.cycle, data, nodes, &mut scores);
    Some(scores)
}

/// The other filters, which look at one node alone, are asked as they are: the plain reading is of those that look at pods.
fn check(world: &World, pod: &PodInfo, seed: u64) {
    let plain = Plain { world, pod };
    world.search(pod, |search| {
        let alone = pod_with("alone", json!({"metadata": {"namespace": pod.namespace}, "spec": {
            "containers": pod.pod.spec.as_ref().map(|spec| &spec.containers),
            "tolerations": pod.tolerations(),
            "affinity": {"nodeAffinity": pod.pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref()?.node_affinity.as_ref())},
        }}));
        let possible: Vec<&NodeInfo> = world.search(&alone, |search| search.feasible(&mut 0).map(|(nodes, _)| nodes.iter().map(|n| n.name.clone()).collect::<Vec<_>>()))
            .unwrap_or_default().iter().filter_map(|name| world.cache.node(name)).collect();
        let expected: BTreeSet<&str> = possible.iter()
            .filter(|node| plain.affinity_allows(node) && plain.spread_allows(node)).map(|node| &*node.name).collect();
        let found = search.feasible(&mut 0).map(|(nodes, _)| nodes).unwrap_or_default();
        let seen: BTreeSet<&str> = found.iter().map(|node| &*node.name).collect();
        assert_eq!(seen, expected, "allowed nodes, seed {seed}");
        if found.is_empty() {
            return;
        }
        let wishes: Vec<i64> = found.iter().map(|node| plain.affinity_score(node)).collect();
        let (low, high) = (wishes.iter().min().copied().unwrap_or(0), wishes.iter().max().copied().unwrap_or(0));
        let share = |score: &i64| if high > low { (100.0 * (score - low) as f64 / (high - low) as f64) as i64 } else { 0 };
        let normalized: Vec<i64> = wishes.iter().map(share).collect();
        let seen = plugin_scores(search, "InterPodAffinity", &found).unwrap_or_else(|| vec![0; found.len()]);
        assert_eq!(seen, normalized, "affinity scores, seed {seed}");
        for plugin in ["NodeResourcesFit", "NodeResourcesBalancedAllocation"] {
            // Compares what is remembered with what is worked out.
            plugin_scores(search, plugin, &found);
        }
        if !pod.soft_spread.is_empty() {
            let seen = plugin_scores(search, "PodTopologySpread", &found).unwrap_or_default();
            assert_eq!(seen, plain.spread_scores(&found), "spread scores, seed {seed}");
        }
    });
}

#[test]
fn the_fast_path_reads_the_rules_as_they_are_written() {
    let first: u64 = std::env::var("FERRY_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or_else(rand::random);
    println!("FERRY_SEED={first}");
    for seed in (0..60).map(|n| first.wrapping_add(n)) {
        let mut random = Random(StdRng::seed_from_u64(seed));
        let mut world = World::new(&[], &[]);
        world.cache.set_namespace("other", Some([("team".to_owned(), "x".to_owned())].into()));
        let names: Vec<String> = (0..8).map(|n| format!("n{n}")).collect();
        let mut pods: Vec<String> = Vec::new();
        // Nodes and pods come, change and go in between, so that what is kept must keep up.
        for step in 0..70 {
            let name = &names[random.below(names.len())];
            match random.below(12) {
                0..=2 => world.cache.set_node(random.node(name)),
                3 => world.cache.remove_node(name),
                4 if !pods.is_empty() => {
                    let gone = pods.swap_remove(random.below(pods.len()));
                    world.cache.remove_pod(&gone);
                }
                5 => {
                    let team = random.one(&["x", "y"]).to_owned();
                    world.cache.set_namespace("default", Some([("team".to_owned(), team)].into()));
                }
                6 | 7 => {
                    let pod = random.pod("asked", None);
                    check(&world, &pod, seed);
                }
                8 => world.cache.assume(random.pod(&format!("p{step}"), None), name),
                _ => {
                    let pod = format!("p{step}");
                    world.cache.set_pod(random.pod(&pod, Some(name)));
                    pods.push(pod);
                }
            }
        }
    }
}
