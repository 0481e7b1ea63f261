use serde_json::json;

use super::*;
use crate::node_resources::Statements;
use crate::topology_manager::numa::NumaNode;
use crate::topology_manager::{TopologyManager, TopologySettings};

const KEPT: u64 = 100 << 20;

fn numa(nodes: u32) -> Numa {
    Numa::of((0..nodes).map(|id| NumaNode { id, memory: 1 << 30, ..NumaNode::default() }).collect())
}

fn resources(policy: &str) -> NodeResources {
    NodeResources::new(&Statements {
        memory_manager_policy: Some(policy.to_owned()),
        reserved_memory: vec![(0, [("memory".to_owned(), "100Mi".to_owned())].into())],
        ..Statements::default()
    })
    .expect("taken")
}

fn pod(uid: &str, memory: &str) -> Pod {
    let amounts = json!({"cpu": "100m", "memory": memory});
    let container = json!({"name": "a", "resources": {"limits": amounts, "requests": amounts}});
    let pod = json!({"metadata": {"name": uid, "uid": uid}, "spec": {"containers": [container]}});
    serde_json::from_value(pod).expect("a pod")
}

fn admit(manager: &MemoryManager, of: &Pod) -> Result<(), WaitReason> {
    let topology = TopologyManager::new(&TopologySettings::default(), numa(2)).expect("no policy");
    let mut draft = manager.draft();
    let mut providers: Vec<&mut dyn HintProvider> = Vec::new();
    providers.extend(draft.iter_mut().map(|draft| draft as &mut dyn HintProvider));
    topology.admit(of, &mut providers)?;
    draft.map_or(Ok(()), Draft::commit)
}

#[test]
fn memory_is_given_out_written_down_and_given_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let open = |policy: &str| MemoryManager::open(folder.path(), &resources(policy), &numa(2), KEPT);
    let manager = open("Static").expect("opened");
    admit(&manager, &pod("p", "1Gi")).expect("given");
    admit(&manager, &pod("q", "900Mi")).expect("given");
    assert_eq!((manager.nodes("p", "a"), manager.nodes("q", "a")), ("1".to_owned(), "0".to_owned()));
    let why = admit(&manager, &pod("r", "100Mi")).expect_err("refused");
    let message = "Allocate failed due to [memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough \
                   memory is available, which is unexpected";
    assert_eq!((why.reason.as_str(), why.message.as_str()), ("UnexpectedAdmissionError", message));
    let metrics = manager.metrics();
    for line in ["kubelet_memory_manager_pinning_requests_total 3", "kubelet_memory_manager_pinning_errors_total 1"] {
        assert!(metrics.lines().any(|seen| seen == line), "{line} in {metrics}");
    }
    let sizes: Vec<u64> = manager.allocatable().iter().map(|block| block.size).collect();
    assert_eq!(sizes, [(1 << 30) - KEPT, 1 << 30]);
    // Another kubelet of the same node goes on with it.
    let again = open("Static").expect("opened");
    assert_eq!((again.holders(), again.nodes("p", "a")), (vec!["p".to_owned(), "q".to_owned()], "1".to_owned()));
    admit(&again, &pod("p", "1Gi")).expect("kept");
    again.release("p");
    again.release("p");
    assert_eq!(
        (again.nodes("p", "a"), open("Static").expect("opened").holders()),
        (String::new(), vec!["q".to_owned()])
    );
    let why = open("None").expect_err("refused");
    assert!(why.contains("configured policy \"None\" differs from state checkpoint policy \"Static\""), "{why}");
    // A machine that has lost memory starts only once the node is drained.
    let why = MemoryManager::open(folder.path(), &resources("Static"), &numa(1), KEPT).expect_err("refused");
    assert!(why.starts_with("invalid state, please drain node and remove policy state file"), "{why}");
}

#[test]
fn what_is_not_written_down_is_not_given() {
    let folder = tempfile::tempdir().expect("a folder");
    let manager = MemoryManager::open(folder.path(), &resources("Static"), &numa(2), KEPT).expect("opened");
    std::fs::create_dir(folder.path().join("memory_manager_state.new")).expect("in the way");
    assert!(admit(&manager, &pod("p", "1Mi")).is_err() && manager.holders().is_empty());
}

#[test]
fn without_a_policy_memory_is_the_kernels() {
    let folder = tempfile::tempdir().expect("a folder");
    let open = |resources: &NodeResources| MemoryManager::open(folder.path(), resources, &numa(2), KEPT);
    // What is reserved at the nodes is not looked at.
    let manager = open(&resources("None")).expect("opened");
    admit(&manager, &pod("p", "9Gi")).expect("nothing to do");
    assert!(manager.nodes("p", "a").is_empty() && manager.allocatable().is_empty() && !manager.is_static());
    let text = std::fs::read_to_string(folder.path().join("memory_manager_state")).expect("a file");
    assert!(text.starts_with("{\"policyName\":\"None\",\"machineState\":{},"), "{text}");
}

#[test]
fn a_reservation_that_is_not_the_nodes_is_refused() {
    let check = |kept: u64, nodes: u32, want: &str| {
        let folder = tempfile::tempdir().expect("a folder");
        let got = MemoryManager::open(folder.path(), &resources("Static"), &numa(nodes), kept);
        assert_eq!(got.err().as_deref(), Some(want));
    };
    check(
        0,
        2,
        "the total amount \"100Mi\" of type \"memory\" is not equal to the value \"0\" determined by Node Allocatable \
         feature",
    );
    check(KEPT, 9, "[memorymanager] unsupported on machines with more than 8 NUMA Nodes");
}
