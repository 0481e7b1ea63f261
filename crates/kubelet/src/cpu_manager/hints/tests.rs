use serde_json::{Value, json};

use super::super::options::CpuManagerPolicy;
use super::super::topology::{CpuLocation, Topology};
use super::*;

fn set(text: &str) -> CpuSet {
    CpuSet::parse(text).expect("a set")
}

fn shown(hints: &[Hint]) -> Vec<String> {
    let one = |hint: &Hint| {
        let nodes: Vec<String> = hint.nodes.expect("nodes").nodes().map(|node| node.to_string()).collect();
        nodes.join("+") + if hint.preferred { "!" } else { "" }
    };
    let mut all: Vec<String> = hints.iter().map(one).collect();
    all.sort();
    all
}

/// Machines and free CPUs at random, and the hints that upstream's source has for them.
#[test]
fn cpus_could_be_had_where_upstream_says() {
    let cases = ferry_testkit::data::read("kubelet/cpu-hints.tsv.gz").expect("recorded cases");
    assert_eq!(cases.lines().count(), 200);
    for case in cases.lines() {
        let columns: Vec<&str> = case.split('\t').collect();
        let [sockets, per_socket, cores, option, free, reusable, count, want] = columns.as_slice() else {
            panic!("{case}")
        };
        let [sockets, per_socket, cores] =
            [sockets, per_socket, cores].map(|text| text.parse::<u32>().expect("a number"));
        let place = |cpu: u32| {
            let node = cpu / cores;
            (cpu, CpuLocation { node, socket: node / per_socket, cache: 0, core: cpu })
        };
        let topology = Topology::of((0..sockets * per_socket * cores).map(place));
        let given = [*option].into_iter().filter(|option| !option.is_empty());
        let given = given.map(|option| (option.to_owned(), "true".to_owned())).collect();
        let Ok(CpuManagerPolicy::Static(options)) = CpuManagerPolicy::parse("static", &given, true) else {
            panic!("{case}")
        };
        let policy = StaticPolicy::new(topology, 1000, &set("0"), options).expect("a policy");
        let got = hints(&policy, &set(free), &set(reusable), count.parse().expect("a number"));
        let mut want: Vec<&str> = want.split(' ').filter(|hint| *hint != "nowhere").collect();
        want.sort_unstable();
        assert_eq!(shown(&got), want, "{case}");
    }
}

#[test]
fn a_pod_needs_what_its_containers_have_at_the_same_time() {
    let check = |init: &[(&str, bool)], containers: &[&str], want: usize| {
        let container = |name: String, cpu: &str| {
            let amounts = json!({"cpu": cpu, "memory": "1Mi"});
            json!({"name": name, "resources": {"limits": amounts, "requests": amounts}})
        };
        let init: Vec<Value> = init
            .iter()
            .enumerate()
            .map(|(at, (cpu, stays))| {
                let mut made = container(format!("i{at}"), cpu);
                if *stays {
                    made["restartPolicy"] = json!("Always");
                }
                made
            })
            .collect();
        let containers: Vec<Value> =
            containers.iter().enumerate().map(|(at, cpu)| container(format!("c{at}"), cpu)).collect();
        let spec = json!({"initContainers": init, "containers": containers});
        let pod = serde_json::from_value(json!({"metadata": {"uid": "p"}, "spec": spec})).expect("a pod");
        assert_eq!(cpus_of_pod(&pod), want, "{init:?} {containers:?}");
    };
    check(&[], &["2", "1"], 3);
    check(&[], &["2", "1500m"], 2);
    check(&[("4", false)], &["2", "1"], 4);
    check(&[("1", true), ("3", false)], &["1", "1"], 4);
    check(&[("3", false), ("1", true)], &["1", "1"], 3);
    check(&[("1", true)], &["2"], 3);
    check(&[], &["500m"], 0);
}
