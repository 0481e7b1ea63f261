use serde_json::json;

use super::numa::NumaNode;
use super::*;

/// Whoever asks is told of one node, another one for each container; given is what was asked for.
#[derive(Default)]
struct Provider {
    given: Vec<(String, Hint)>,
    fails: bool,
}

fn at(nodes: &[u32], preferred: bool) -> Hint {
    Hint { nodes: Some(nodes.iter().copied().collect()), preferred }
}

impl HintProvider for Provider {
    fn container_hints(&self, _: &Pod, container: &Container) -> Hints {
        let hints = match container.name.as_str() {
            "first" => vec![at(&[0], true)],
            "second" => vec![at(&[1], true)],
            "both" => vec![at(&[0, 1], false)],
            _ => return Hints::new(),
        };
        Hints::from([("cpu".to_owned(), Some(hints))])
    }

    fn pod_hints(&self, of: &Pod) -> Hints {
        let hint = if pod::containers(of).len() == 1 { at(&[1], true) } else { at(&[0, 1], false) };
        Hints::from([("cpu".to_owned(), Some(vec![hint]))])
    }

    fn allocate(&mut self, _: &Pod, container: &Container, at: Hint) -> Result<(), WaitReason> {
        self.given.push((container.name.clone(), at));
        if self.fails { Err(unexpected("a reason")) } else { Ok(()) }
    }
}

fn manager(policy: &str, scope: &str) -> TopologyManager {
    let numa = Numa::of((0..2).map(|id| NumaNode { id, ..NumaNode::default() }).collect());
    let settings = TopologySettings::parse(policy, scope, &Default::default()).expect("settings");
    TopologyManager::new(&settings, numa).expect("a manager")
}

fn of(containers: &[&str]) -> Pod {
    let containers: Vec<_> = containers.iter().map(|name| json!({"name": name})).collect();
    serde_json::from_value(json!({"metadata": {"uid": "u"}, "spec": {"containers": containers}})).expect("a pod")
}

fn admit(manager: &TopologyManager, containers: &[&str]) -> Result<Vec<(String, Hint)>, (String, String)> {
    let mut provider = Provider::default();
    let admitted = manager.admit(&of(containers), &mut [&mut provider]);
    admitted.map(|()| provider.given).map_err(|why| (why.reason, why.message))
}

fn refused() -> (String, String) {
    ("TopologyAffinityError".to_owned(), "Resources cannot be allocated with Topology locality".to_owned())
}

#[test]
fn containers_are_placed_one_by_one() {
    let given = |all: &[(&str, Hint)]| Ok(all.iter().map(|(name, at)| ((*name).to_owned(), *at)).collect::<Vec<_>>());
    let manager = manager("single-numa-node", "container");
    let two = admit(&manager, &["first", "second", "other"]);
    let anywhere = Hint { nodes: None, preferred: true };
    assert_eq!(two, given(&[("first", at(&[0], true)), ("second", at(&[1], true)), ("other", anywhere)]));
    assert_eq!(admit(&manager, &["first", "both"]), Err(refused()));
    let metrics = manager.metrics();
    for line in [
        "kubelet_topology_manager_admission_requests_total 2",
        "kubelet_topology_manager_admission_errors_total 1",
        "kubelet_topology_manager_admission_duration_ms_count 2",
        "kubelet_topology_manager_admission_duration_ms_bucket{le=\"0.05\"} ",
        "kubelet_topology_manager_admission_duration_ms_bucket{le=\"819.2\"} 2",
    ] {
        assert!(metrics.lines().any(|seen| seen.starts_with(line)), "{line} in {metrics}");
    }
    let alignments = [(TopologyScope::Container, 4, 1), (TopologyScope::Pod, 0, 0)];
    assert_eq!(manager.alignments(), Some(alignments));
    // A container that needs more is taken where nobody minds.
    assert_eq!(admit(&self::manager("best-effort", "container"), &["both"]), given(&[("both", at(&[0, 1], false))]));
    assert_eq!(admit(&self::manager("restricted", "container"), &["both"]), Err(refused()));
}

#[test]
fn a_pod_is_placed_as_a_whole_where_that_is_the_scope() {
    let manager = manager("single-numa-node", "pod");
    assert_eq!(admit(&manager, &["first"]), Ok(vec![("first".to_owned(), at(&[1], true))]));
    assert_eq!(admit(&manager, &["first", "second"]), Err(refused()));
    assert_eq!(manager.alignments(), Some([(TopologyScope::Container, 0, 0), (TopologyScope::Pod, 1, 1)]));
}

#[test]
fn without_a_policy_nobody_is_asked() {
    let manager = manager("none", "pod");
    assert_eq!(admit(&manager, &["both"]), Ok(vec![("both".to_owned(), Hint::default())]));
    assert_eq!(manager.alignments(), None);
    let mut provider = Provider { fails: true, ..Provider::default() };
    let why = manager.admit(&of(&["first", "second"]), &mut [&mut provider]).expect_err("refused");
    let message = "Allocate failed due to a reason, which is unexpected";
    assert_eq!((why.reason.as_str(), why.message.as_str()), ("UnexpectedAdmissionError", message));
    assert_eq!(provider.given.len(), 1);
    assert!(manager.metrics().contains("kubelet_topology_manager_admission_errors_total 0\n"));
}
