use super::*;

const GPU: &str = "example.com/gpu";

fn set(ids: &[&str]) -> BTreeSet<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

fn wish<'a>(uid: &'a str, container: &'a str, count: usize) -> Wish<'a> {
    Wish { uid, container, resource: GPU, count }
}

fn with(devices: &[(&str, bool)]) -> Ledger {
    let mut ledger = Ledger::default();
    let health = |healthy: bool| if healthy { HEALTHY } else { "Unhealthy" }.to_owned();
    let told = devices.iter().map(|(id, ok)| Device { id: (*id).to_owned(), health: health(*ok), topology: None });
    assert!(ledger.told(GPU, told.collect()));
    ledger
}

fn take(ledger: &mut Ledger, uid: &str, container: &str, ids: &[&str]) {
    assert!(ledger.reserve(wish(uid, container, ids.len()), &set(ids), &set(&[])));
    ledger.settle((uid, container, GPU), set(ids), Some(ContainerAllocateResponse::default()));
}

#[test]
fn what_cannot_be_given_says_why() {
    let none = set(&[]);
    let ask =
        |ledger: &Ledger, count: usize| ledger.choice(wish("u", "c", count), &none).map(|choice| choice.is_some());
    let unknown = "cannot allocate unregistered device example.com/gpu";
    assert_eq!(ask(&Ledger::default(), 1), Err(unknown.to_owned()));
    let sick = "no healthy devices present; cannot allocate unhealthy devices example.com/gpu";
    assert_eq!(ask(&with(&[("a", false)]), 1), Err(sick.to_owned()));
    let mut ledger = with(&[("a", true), ("b", true), ("c", false)]);
    take(&mut ledger, "other", "c", &["a"]);
    let few = "requested number of devices unavailable for example.com/gpu. Requested: 2, Available: 1";
    assert_eq!(ask(&ledger, 2), Err(few.to_owned()));
    assert_eq!(ask(&ledger, 1), Ok(true));
    take(&mut ledger, "u", "c", &["b"]);
    assert_eq!(ask(&ledger, 1), Ok(false), "it has what it asks for");
    assert!(ask(&ledger, 2).is_err(), "a container does not ask for another number later");
    assert!(ledger.release("other") && !ledger.release("other"));
    assert_eq!(ledger.choice(wish("v", "c", 1), &none).map(|c| c.map(|c| c.available)), Ok(Some(set(&["a"]))));
}

#[test]
fn what_is_being_given_is_not_given_twice() {
    let mut ledger = with(&[("a", true)]);
    assert!(ledger.reserve(wish("u", "c", 1), &set(&["a"]), &set(&[])));
    assert!(!ledger.reserve(wish("u", "c", 1), &set(&["a"]), &set(&[])));
    assert!(ledger.choice(wish("u", "c", 1), &set(&[])).is_err());
    // The plug-in died in the middle of it.
    ledger.settle(("u", "c", GPU), set(&["a"]), None);
    assert!(ledger.choice(wish("u", "c", 1), &set(&[])).is_ok_and(|choice| choice.is_some()));
    assert!(ledger.holders().is_empty());
}

#[test]
fn devices_of_init_containers_are_used_again() {
    let mut ledger = with(&[("a", true), ("b", true)]);
    take(&mut ledger, "u", "init", &["b"]);
    let choice = ledger.choice(wish("u", "main", 2), &set(&["b"])).expect("enough").expect("to choose");
    assert_eq!((choice.available, choice.first), (set(&["a", "b"]), set(&["b"])));
    assert!(ledger.reserve(wish("u", "main", 2), &set(&["a", "b"]), &set(&["b"])));
}

#[test]
fn a_plugin_that_is_gone_leaves_nothing_to_use_and_later_nothing_at_all() {
    let now = Instant::now();
    let mut ledger = with(&[("a", true), ("b", false)]);
    assert_eq!(ledger.amounts(now)[GPU], (2, 1));
    ledger.gone(GPU, now);
    assert_eq!(ledger.amounts(now)[GPU], (2, 0));
    assert_eq!(ledger.amounts(now + GRACE)[GPU], (0, 0));
    ledger.remember("example.com/known", now);
    assert_eq!(ledger.amounts(now)["example.com/known"], (0, 0));
}

#[test]
fn devices_are_told_of_by_place() {
    let mut ledger = Ledger::default();
    let at = |id: &str, node: Option<i64>| Device {
        id: id.to_owned(),
        health: HEALTHY.to_owned(),
        topology: node.map(|id| ferry_plugins::deviceplugin::TopologyInfo {
            nodes: vec![ferry_plugins::deviceplugin::NumaNode { id }],
        }),
    };
    ledger.told(GPU, vec![at("a", Some(0)), at("b", Some(1)), at("c", Some(0)), at("d", None)]);
    take(&mut ledger, "u", "c", &["a", "b", "c"]);
    let held = |nodes: &[i64], ids: &[&str]| Held {
        resource: GPU.to_owned(),
        devices: ids.iter().map(|id| (*id).to_owned()).collect(),
        nodes: nodes.to_vec(),
    };
    assert_eq!(ledger.held("u")["c"], [held(&[0], &["a", "c"]), held(&[1], &["b"])]);
    assert_eq!(ledger.healthy().len(), 3);
}

/// Two devices at each of two nodes, one at both and one at a place that is not known.
fn placed() -> Ledger {
    use ferry_plugins::deviceplugin::{NumaNode, TopologyInfo};
    let mut ledger = Ledger::default();
    let at = |id: &str, nodes: &[i64]| Device {
        id: id.to_owned(),
        health: HEALTHY.to_owned(),
        topology: Some(TopologyInfo { nodes: nodes.iter().map(|id| NumaNode { id: *id }).collect() }),
    };
    let devices = vec![at("a0", &[0]), at("b0", &[0]), at("c1", &[1]), at("d1", &[1]), at("e", &[0, 1]), at("f", &[])];
    assert!(ledger.told(GPU, devices));
    ledger
}

fn mask(nodes: &[u32]) -> NumaMask {
    nodes.iter().copied().collect()
}

fn shown(hints: Option<Vec<Hint>>) -> Vec<String> {
    let mut shown: Vec<String> = hints
        .expect("a preference")
        .into_iter()
        .map(|hint| format!("{:?}{}", hint.nodes.expect("nodes"), if hint.preferred { "!" } else { "" }))
        .collect();
    shown.sort();
    shown
}

#[test]
fn devices_have_places_that_they_could_be_had_at() {
    let (mut ledger, none, machine) = (placed(), set(&[]), mask(&[0, 1, 2]));
    let hints = |ledger: &Ledger, count: usize| shown(ledger.hints(wish("u", "c", count), machine, &none));
    assert_eq!(hints(&ledger, 1), ["{0, 1}", "{0}!", "{1}!"]);
    assert_eq!(hints(&ledger, 4), ["{0, 1}!"]);
    assert_eq!(hints(&ledger, 6), Vec::<String>::new());
    take(&mut ledger, "other", "c", &["a0", "e"]);
    // Two could be at the first node, and cannot any more.
    assert_eq!(hints(&ledger, 2), ["{0, 1}", "{1}!"]);
    take(&mut ledger, "u", "c", &["b0"]);
    assert_eq!(hints(&ledger, 1), ["{0, 1}", "{0}!"]);
    assert_eq!(hints(&ledger, 2), Vec::<String>::new(), "it has another number");
    // What an init container had is to be used again.
    let again = ledger.hints(wish("u", "main", 1), machine, &set(&["b0"]));
    assert_eq!(shown(again), ["{0, 1}", "{0}!"]);
    assert_eq!(with(&[("a", true)]).hints(wish("u", "c", 1), machine, &none), None);
    let of_pod = ledger.pod_hints(wish("u", "", 1), &["c"], machine);
    assert_eq!(shown(of_pod), ["{0, 1}", "{0}!"]);
    assert_eq!(shown(ledger.pod_hints(wish("new", "", 2), &["c"], machine)), ["{0, 1}", "{1}!"]);
}

#[test]
fn devices_are_set_aside_at_their_place_until_they_are_asked_for() {
    let (mut ledger, none) = (placed(), set(&[]));
    assert_eq!(ledger.hold(wish("u", "c", 2), Some(mask(&[1])), &none), set(&["c1", "d1"]));
    assert_eq!(ledger.hold(wish("u", "c", 2), Some(mask(&[0])), &none), set(&["c1", "d1"]), "they stay");
    // Others do not get them.
    let others = ledger.choice(wish("v", "c", 1), &none).expect("enough").expect("to choose");
    assert_eq!(others.available, set(&["a0", "b0", "e", "f"]));
    assert!(!ledger.reserve(wish("v", "c", 1), &set(&["c1"]), &none));
    // The plug-in may prefer another one of the same place.
    let own = ledger.choice(wish("u", "c", 2), &none).expect("enough").expect("to choose");
    assert_eq!((own.available, own.first), (set(&["c1", "d1", "e"]), none.clone()));
    let chosen = set(&["c1", "e"]);
    assert!(ledger.reserve(wish("u", "c", 2), &chosen, &none));
    ledger.settle(("u", "c", GPU), chosen, Some(ContainerAllocateResponse::default()));
    assert_eq!(
        ledger.choice(wish("v", "c", 1), &none).map(|c| c.map(|c| c.available)),
        Ok(Some(set(&["a0", "b0", "d1", "f"])))
    );
    // What is at the place is taken first, then what is elsewhere, then what is nowhere.
    let want = ["d1", "a0", "b0"];
    assert_eq!(ledger.hold(wish("w", "c", 3), Some(mask(&[1])), &none), set(&want));
    assert!(!ledger.release("w") && ledger.choice(wish("v", "c", 4), &none).is_ok());
    assert_eq!(ledger.hold(wish("w", "c", 9), Some(mask(&[1])), &none), none, "found out later");
}

#[test]
fn what_is_set_aside_for_an_init_container_is_so_for_those_after_it() {
    let (mut ledger, none) = (placed(), set(&[]));
    let at = Some(mask(&[1]));
    let init = ledger.hold(wish("u", "init", 1), at, &none);
    assert_eq!(ledger.hold(wish("u", "main", 1), at, &init), init);
    assert_eq!(ledger.hold(wish("u", "side", 2), at, &none), set(&["d1", "e"]));
    // Each of them gets what is set aside, in their order.
    let ask = |ledger: &Ledger, container: &str, count: usize, reusable: &BTreeSet<String>| {
        ledger.choice(wish("u", container, count), reusable).expect("enough").expect("to choose").plain()
    };
    assert_eq!(ask(&ledger, "init", 1, &none), init);
    take(&mut ledger, "u", "init", &["c1"]);
    assert_eq!(ask(&ledger, "main", 1, &init), init);
    assert!(ledger.reserve(wish("u", "main", 1), &init, &init));
    assert_eq!(ask(&ledger, "side", 2, &none), set(&["d1", "e"]));
}

/// Machines and devices at random, and the hints that upstream's source has for them.
#[test]
fn devices_could_be_had_where_upstream_says() {
    use ferry_plugins::deviceplugin::{NumaNode, TopologyInfo};
    let cases = ferry_testkit::data::read("kubelet/device-hints.tsv.gz").expect("recorded cases");
    assert_eq!(cases.lines().count(), 200);
    let words = |text: &str| text.split(' ').filter(|id| !id.is_empty()).map(str::to_owned).collect::<BTreeSet<_>>();
    for case in cases.lines() {
        let columns: Vec<&str> = case.split('\t').collect();
        let [machine, devices, available, reusable, count, want] = columns.as_slice() else { panic!("{case}") };
        let device = |text: &str| {
            let (id, nodes) = text.split_once('@').expect("a place");
            let nodes = nodes.split('+').filter_map(|node| Some(NumaNode { id: node.parse().ok()? })).collect();
            Device { id: id.to_owned(), health: HEALTHY.to_owned(), topology: Some(TopologyInfo { nodes }) }
        };
        let mut ledger = Ledger::default();
        ledger.told(GPU, devices.split(' ').map(device).collect());
        let machine = (0..machine.parse().expect("a number")).collect();
        let count = count.parse().expect("a number");
        let got = ledger.resources[GPU].hints(&words(available), &words(reusable), count, machine);
        let mut got: Vec<String> = got
            .iter()
            .map(|hint| {
                let nodes: Vec<String> = hint.nodes.expect("nodes").nodes().map(|node| node.to_string()).collect();
                nodes.join("+") + if hint.preferred { "!" } else { "" }
            })
            .collect();
        got.sort();
        let mut want: Vec<&str> = want.split(' ').filter(|hint| *hint != "nowhere").collect();
        want.sort_unstable();
        assert_eq!(got, want, "{case}");
    }
}
