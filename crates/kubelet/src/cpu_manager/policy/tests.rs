use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::super::CpuSet;
use super::super::options::{CpuManagerPolicy, StaticOptions};
use super::super::state::CpuState;
use super::super::topology::{Topology, machines};
use super::{Given, StaticPolicy};
use crate::pod;
use crate::status::WaitReason;
use crate::topology_manager::NumaMask;

fn set(text: &str) -> CpuSet {
    CpuSet::parse(text).expect("a set")
}

fn options(names: &[&str]) -> StaticOptions {
    let given = names.iter().map(|name| ((*name).to_owned(), "true".to_owned())).collect();
    match CpuManagerPolicy::parse("static", &given, true).expect("options") {
        CpuManagerPolicy::Static(options) => options,
        CpuManagerPolicy::None => StaticOptions::default(),
    }
}

fn policy(topology: Topology, reserved: &str, names: &[&str]) -> (StaticPolicy, CpuState) {
    let reserved = set(reserved);
    let milli = i64::try_from(reserved.len() * 1000).expect("a number");
    let policy = StaticPolicy::new(topology, milli, &reserved, options(names)).expect("a policy");
    let mut state = CpuState::default();
    policy.start(&mut state).expect("started");
    (policy, state)
}

fn container(name: &str, cpu: &str) -> Value {
    json!({"name": name, "resources": {"limits": {"cpu": cpu, "memory": "1Mi"}, "requests": {"cpu": cpu, "memory": "1Mi"}}})
}

fn pod(uid: &str, init: &[Value], containers: &[Value]) -> Pod {
    let spec = json!({"initContainers": init, "containers": containers});
    serde_json::from_value(json!({"metadata": {"name": uid, "uid": uid}, "spec": spec})).expect("a pod")
}

fn shown(state: &CpuState, uid: &str) -> Vec<String> {
    let sets = state.assigned.get(uid).into_iter().flatten();
    sets.map(|(name, cpus)| format!("{name}={cpus}")).collect()
}

const ANYWHERE: Option<NumaMask> = None;

/// All containers of a pod, one after the other.
fn allocate(
    policy: &StaticPolicy,
    state: &mut CpuState,
    of: &Pod,
    near: Option<NumaMask>,
) -> Result<Vec<Given>, WaitReason> {
    let mut reusable = CpuSet::default();
    let all = pod::init_containers(of).iter().chain(pod::containers(of));
    let given = all.map(|container| policy.allocate(state, of, container, near, &mut reusable));
    given.filter_map(Result::transpose).collect()
}

#[test]
fn whole_cpus_of_guaranteed_pods_are_their_own() {
    let check = |of: Pod, want: &[&str], shared: &str| {
        let (policy, mut state) = policy(machines::two_sockets(), "0", &[]);
        allocate(&policy, &mut state, &of, ANYWHERE).expect("given");
        assert_eq!(
            (shown(&state, "p"), state.shared.to_string()),
            (want.iter().map(|w| (*w).to_owned()).collect(), shared.to_owned())
        );
        assert_eq!(state.release("p"), !want.is_empty());
        assert_eq!(state.shared.to_string(), "0-15");
    };
    check(pod("p", &[], &[container("a", "2")]), &["a=1,9"], "0,2-8,10-15");
    check(pod("p", &[], &[container("a", "1500m")]), &[], "0-15");
    check(pod("p", &[], &[container("a", "2"), container("b", "500m")]), &["a=1,9"], "0,2-8,10-15");
    check(pod("p", &[], &[container("a", "2000m"), container("b", "1")]), &["a=1,9", "b=8"], "0,2-7,10-15");
    let burstable = json!({"name": "a", "resources": {"requests": {"cpu": "2"}}});
    check(pod("p", &[], &[burstable]), &[], "0-15");
    check(pod("p", &[], &[json!({"name": "a"})]), &[], "0-15");
    // A pod with resources of its own shares.
    let mut whole = pod("p", &[], &[container("a", "2")]);
    let resources = json!({"limits": {"cpu": "2", "memory": "1Mi"}, "requests": {"cpu": "2", "memory": "1Mi"}});
    whole.spec.as_mut().expect("a spec").resources = serde_json::from_value(resources).expect("resources");
    check(whole, &[], "0-15");
}

#[test]
fn what_init_containers_had_is_used_again_and_sidecars_keep_theirs() {
    let check = |init: &[Value], containers: &[Value], want: &[&str]| {
        let (policy, mut state) = policy(machines::two_sockets(), "0,8", &[]);
        allocate(&policy, &mut state, &pod("p", init, containers), ANYWHERE).expect("given");
        assert_eq!(shown(&state, "p"), want);
    };
    let sidecar = |cpu: &str| {
        let mut container = container("s", cpu);
        container["restartPolicy"] = json!("Always");
        container
    };
    check(&[container("i", "4")], &[container("a", "2")], &["a=1,9", "i=1-2,9-10"]);
    check(&[container("i", "2"), container("j", "2")], &[container("a", "4")], &["a=1-2,9-10", "i=1,9", "j=1,9"]);
    check(&[sidecar("2")], &[container("a", "2")], &["a=2,10", "s=1,9"]);
    // A sidecar takes what an init container before it had; those after it get something else.
    check(&[container("i", "2"), sidecar("2")], &[container("a", "2")], &["a=2,10", "i=1,9", "s=1,9"]);
    check(&[container("i", "4"), sidecar("2")], &[container("a", "4")], &["a=2-3,10-11", "i=1-2,9-10", "s=1,9"]);
}

#[test]
fn what_a_pod_has_it_keeps() {
    let (policy, mut state) = policy(machines::small(), "0", &[]);
    let first = pod("p", &[], &[container("a", "1")]);
    allocate(&policy, &mut state, &first, ANYWHERE).expect("given");
    let before = state.clone();
    allocate(&policy, &mut state, &first, ANYWHERE).expect("kept");
    assert_eq!(state, before);
    let why = allocate(&policy, &mut state, &pod("q", &[], &[container("a", "1")]), ANYWHERE).expect_err("refused");
    assert_eq!(why.reason, "UnexpectedAdmissionError");
    let lack = "Allocate failed due to not enough cpus available to satisfy request: requested=1, available=0, which is \
                unexpected";
    assert_eq!((why.message.as_str(), &state), (lack, &before));
    assert!(state.release("p"));
    assert_eq!(state.shared, set("0-1"));
}

#[test]
fn cores_are_given_whole_where_that_is_wanted() {
    let check = |reserved: &str, cpus: &str, want: Result<&[&str], &str>| {
        let (policy, mut state) = policy(machines::two_sockets(), reserved, &["full-pcpus-only"]);
        let got = allocate(&policy, &mut state, &pod("p", &[], &[container("a", cpus)]), ANYWHERE);
        let got = got.map(|_| shown(&state, "p")).map_err(|why| (why.reason, why.message));
        let want = want.map(|sets| sets.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>());
        assert_eq!(got, want.map_err(|message| ("SMTAlignmentError".to_owned(), message.to_owned())));
    };
    check("0,8", "2", Ok(&["a=1,9"]));
    check("0,8", "1", Err("SMT Alignment Error: requested 1 cpus not multiple cpus per core = 2"));
    check("0,8", "14", Ok(&["a=1-7,9-15"]));
    // The other threads of reserved CPUs belong to nobody.
    let lack = "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = 12, requested CPUs = 14, CPUs \
                per core = 2";
    check("0,1", "14", Err(lack));
    check("0,1", "12", Ok(&["a=2-7,10-15"]));
}

#[test]
fn a_container_is_given_cpus_near_what_it_is_to_be_near() {
    let check = |names: &[&str], near: &[u32], cpus: &str, want: &str| {
        let (policy, mut state) = policy(machines::four_nodes(), "0", names);
        let near: NumaMask = near.iter().copied().collect();
        let of = pod("p", &[], &[container("a", cpus)]);
        allocate(&policy, &mut state, &of, Some(near)).expect("given");
        assert_eq!(shown(&state, "p"), [format!("a={want}")], "{near:?}");
    };
    check(&[], &[2], "2", "8-9");
    check(&[], &[2, 3], "6", "8-13");
    // What there is not enough of comes from elsewhere.
    check(&[], &[2], "6", "2-3,8-11");
    check(&["align-by-socket"], &[2], "4", "4-7");
}

#[test]
fn a_strict_reservation_is_nobody_elses() {
    let (policy, state) = policy(machines::small(), "0", &["strict-cpu-reservation"]);
    assert_eq!((state.shared.to_string(), policy.allocatable().to_string()), ("1".to_owned(), "1".to_owned()));
    let (policy, state) = self::policy(machines::small(), "0", &[]);
    assert_eq!((state.shared.to_string(), policy.allocatable().to_string()), ("0-1".to_owned(), "1".to_owned()));
}

#[test]
fn cpus_are_reserved_from_the_first_cores() {
    let check = |milli: i64, named: &str, want: Result<&str, &str>| {
        let made = StaticPolicy::new(machines::two_sockets(), milli, &set(named), StaticOptions::default());
        let got = made.map(|policy| policy.reserved.to_string());
        assert_eq!(got.as_deref().map_err(String::as_str), want, "{milli} {named}");
    };
    check(500, "", Ok("0"));
    check(2000, "", Ok("0,8"));
    check(2001, "", Ok("0-1,8"));
    check(2000, "3-4", Ok("3-4"));
    check(0, "", Err("the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than zero"));
    check(17_000, "", Err("unable to reserve the required amount of CPUs (size of  did not equal 17)"));
}

#[test]
fn a_state_that_does_not_fit_is_refused() {
    let check = |names: &[&str], shared: &str, assigned: &[(&str, &str)], want: Result<&str, &str>| {
        let (policy, _) = policy(machines::small(), "0", names);
        let sets: BTreeMap<String, CpuSet> =
            assigned.iter().map(|(name, cpus)| ((*name).to_owned(), set(cpus))).collect();
        let assigned = if sets.is_empty() { BTreeMap::new() } else { BTreeMap::from([("p".to_owned(), sets)]) };
        let mut state = CpuState { shared: set(shared), assigned };
        let got = policy.start(&mut state).map(|()| state.shared.to_string());
        assert_eq!(got.as_deref().map_err(String::as_str), want, "{shared} {assigned:?}", assigned = state.assigned);
    };
    check(&[], "", &[], Ok("0-1"));
    check(&[], "0", &[("a", "1")], Ok("0"));
    check(&[], "", &[("a", "1")], Err("default cpuset cannot be empty"));
    check(&[], "1", &[("a", "0")], Err("not all reserved cpus: \"0\" are present in defaultCpuSet: \"1\""));
    check(&[], "0-1", &[("a", "1")], Err("pod: p, container: a cpuset: \"1\" overlaps with default cpuset \"0-1\""));
    let gone = "current set of available CPUs \"0-1\" doesn't match with CPUs in state \"0-3\"";
    check(&[], "0-1", &[("a", "2-3")], Err(gone));
    let strict = "some of strictly reserved cpus: \"0\" are present in defaultCpuSet: \"0-1\"";
    check(&["strict-cpu-reservation"], "0-1", &[], Err(strict));
    check(&["strict-cpu-reservation"], "1", &[], Ok("1"));
    // A kubelet whose CPUs are all given out starts again.
    check(&["strict-cpu-reservation"], "", &[("a", "1")], Ok(""));
    let other = "current set of available CPUs \"1\" doesn't match with CPUs in state \"1-2\"";
    check(&["strict-cpu-reservation"], "", &[("a", "1-2")], Err(other));
}
