use serde::Deserialize;
use serde_json::{Value, json};

use super::*;
use crate::node::capacity::HugePages;
use crate::topology_manager::numa::NumaNode;

/// A machine, and pods that come and go, with what upstream's source made of them.
#[derive(Deserialize)]
struct Case {
    nodes: Vec<Node>,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct Node {
    memory: u64,
    /// Of two mebibytes.
    pages: u64,
    reserved: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Step {
    pod: String,
    #[serde(default)]
    remove: bool,
    #[serde(default)]
    pod_hints: BTreeMap<String, Vec<Place>>,
    #[serde(default)]
    containers: Vec<Asked>,
    state: MachineState,
    /// The hints of the containers once they have their memory.
    #[serde(default)]
    again: BTreeMap<String, BTreeMap<String, Vec<Place>>>,
}

#[derive(Deserialize)]
struct Asked {
    name: String,
    kind: String,
    memory: u64,
    pages: u64,
    at: Place,
    hints: BTreeMap<String, Vec<Place>>,
    error: Option<String>,
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
struct Place {
    nodes: Option<Vec<u32>>,
    preferred: bool,
}

fn shown(hints: Hints) -> BTreeMap<String, Vec<Place>> {
    let place = |hint: Hint| Place { nodes: hint.nodes.map(|at| at.nodes().collect()), preferred: hint.preferred };
    let sorted = |list: Option<Vec<Hint>>| {
        let mut places: Vec<Place> = list.expect("a preference").into_iter().map(place).collect();
        places.sort_by_key(|place| place.nodes.clone());
        places
    };
    hints.into_iter().map(|(kind, list)| (kind, sorted(list))).collect()
}

fn recorded(hints: &BTreeMap<String, Vec<Place>>) -> BTreeMap<String, Vec<Place>> {
    let mut hints = hints.clone();
    hints.values_mut().for_each(|list| list.sort_by_key(|place| place.nodes.clone()));
    hints
}

fn of(uid: &str, asked: &[Asked]) -> Pod {
    let (mut init, mut main) = (Vec::new(), Vec::new());
    for one in asked {
        let mut amounts = json!({"cpu": "100m", "memory": one.memory.to_string()});
        if one.pages > 0 {
            amounts["hugepages-2Mi"] = json!(one.pages.to_string());
        }
        let mut container = json!({"name": one.name, "resources": {"limits": amounts, "requests": amounts}});
        match one.kind.as_str() {
            "main" => main.push(container),
            "sidecar" => {
                container["restartPolicy"] = json!("Always");
                init.push(container);
            }
            _ => init.push(container),
        }
    }
    let spec = json!({"initContainers": init, "containers": main});
    serde_json::from_value(json!({"metadata": {"name": uid, "uid": uid}, "spec": spec})).expect("a pod")
}

fn policy(nodes: &[Node]) -> StaticPolicy {
    let of_node = |(id, node): (u32, &Node)| NumaNode {
        id,
        memory: node.memory,
        huge_pages: vec![HugePages { size: 2 << 20, count: node.pages }],
        distances: Vec::new(),
    };
    let reserved: Vec<MemoryReservation> = (0..)
        .zip(nodes)
        .map(|(numa_node, node)| MemoryReservation {
            numa_node,
            limits: BTreeMap::from([(MEMORY.to_owned(), node.reserved)]),
            given: BTreeMap::new(),
        })
        .collect();
    StaticPolicy::new(&Numa::of((0..).zip(nodes).map(of_node).collect()), &reserved).expect("a policy")
}

/// Runs a step; a pod that cannot have all of its memory gets none of it.
fn follow(policy: &StaticPolicy, state: &mut MemoryState, step: &Step, text: &str) {
    let pod = of(&step.pod, &step.containers);
    if step.remove {
        assert!(StaticPolicy::release(state, &step.pod), "{text}");
        return;
    }
    // Of a pod that was refused, the containers after the one that could not have its memory are not recorded.
    let is_whole = step.containers.iter().all(|one| one.error.is_none());
    if is_whole {
        assert_eq!(shown(policy.pod_hints(state, &pod)), recorded(&step.pod_hints), "{} of {text}", step.pod);
    }
    let mut reusable = Reusable::new();
    for one in &step.containers {
        let (_, container) = pod::container(&pod, &one.name).expect("there");
        let hints = policy.container_hints(state, &pod, &container, &reusable);
        assert_eq!(shown(hints), recorded(&one.hints), "{} {} of {text}", step.pod, one.name);
        let nodes = one.at.nodes.as_ref().map(|nodes| nodes.iter().copied().collect());
        let at = Hint { nodes, preferred: one.at.preferred };
        let got = policy.allocate(state, &pod, &container, at, &mut reusable);
        assert_eq!(got.err(), one.error, "{} {} of {text}", step.pod, one.name);
    }
    if !is_whole {
        StaticPolicy::release(state, &step.pod);
        return;
    }
    for (name, hints) in &step.again {
        let (_, container) = pod::container(&pod, name).expect("there");
        let again = policy.container_hints(state, &pod, &container, &Reusable::new());
        assert_eq!(shown(again), recorded(hints), "{} {name} again, of {text}", step.pod);
    }
}

#[test]
fn memory_is_given_out_as_upstream_gives_it_out() {
    let cases = ferry_testkit::data::read("kubelet/memory-manager.jsonl.gz").expect("recorded cases");
    assert_eq!(cases.lines().count(), 120);
    for text in cases.lines() {
        let case: Case = serde_json::from_str(text).expect("a case");
        let policy = policy(&case.nodes);
        let mut state = MemoryState::default();
        policy.start(&mut state).expect("started");
        for step in &case.steps {
            follow(&policy, &mut state, step, text);
            assert_eq!(state.machine, step.state, "after {} of {text}", step.pod);
            // Another kubelet of this node goes on with it.
            policy.start(&mut state.clone()).expect("taken over");
        }
    }
}

#[test]
fn a_state_that_does_not_fit_is_refused() {
    let node = |memory: u64| Node { memory, pages: 0, reserved: 10 };
    let two = policy(&[node(1000), node(1000)]);
    let pod = of(
        "p",
        &[Asked {
            name: "c".into(),
            kind: "main".into(),
            memory: 100,
            pages: 0,
            at: Place { nodes: None, preferred: true },
            hints: BTreeMap::new(),
            error: None,
        }],
    );
    let mut state = MemoryState::default();
    two.start(&mut state).expect("started");
    let at = Hint { nodes: Some([1].into_iter().collect()), preferred: true };
    two.allocate(&mut state, &pod, &pod::containers(&pod)[0], at, &mut Reusable::new()).expect("given");
    let check = |policy: &StaticPolicy, state: &MemoryState, want: &str| {
        assert_eq!(policy.start(&mut state.clone()), Err(want.to_owned()));
    };
    let missing = "[memorymanager] (pod: p, container: c) the memory assignment uses the NUMA that does not exist";
    check(&policy(&[node(1000)]), &state, missing);
    let other = "[memorymanager] the expected machine state is different from the real one";
    check(&policy(&[node(1000), node(2000)]), &state, other);
    let mut forgot = state.clone();
    forgot.assigned.clear();
    check(&two, &forgot, other);
    let empty = "[memorymanager] machine state can not be empty when it has memory assignments";
    check(&two, &MemoryState { machine: MachineState::new(), ..state.clone() }, empty);
    let mut strange = state;
    strange.assigned.get_mut("p").expect("it").get_mut("c").expect("it")[0].kind = "hugepages-1Gi".into();
    let unknown =
        "[memorymanager] (pod: p, container: c) the memory assignment uses memory resource that does not exist";
    check(&two, &strange, unknown);
}

#[test]
fn only_guaranteed_pods_have_memory_of_their_own() {
    let check = |resources: Value, of_pod: Value, want: &[(&str, u64)]| {
        let spec = json!({"containers": [{"name": "c", "resources": resources}], "resources": of_pod});
        let pod: Pod = serde_json::from_value(json!({"metadata": {"uid": "u"}, "spec": spec})).expect("a pod");
        let got = amounts(&pod, &pod::containers(&pod)[0]);
        assert_eq!(got, want.iter().map(|(kind, size)| ((*kind).to_owned(), *size)).collect(), "{resources}");
    };
    let all = json!({"cpu": "1", "memory": "1Mi", "hugepages-2Mi": "4Mi", "ephemeral-storage": "1Gi"});
    check(json!({"limits": all, "requests": all}), Value::Null, &[("hugepages-2Mi", 4 << 20), (MEMORY, 1 << 20)]);
    check(json!({"limits": all}), Value::Null, &[("hugepages-2Mi", 4 << 20), (MEMORY, 1 << 20)]);
    check(json!({"requests": all}), Value::Null, &[]);
    check(json!({"limits": all, "requests": all}), json!({"limits": {"cpu": "1", "memory": "1Mi"}}), &[]);
}
