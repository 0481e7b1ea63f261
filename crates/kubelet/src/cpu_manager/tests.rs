use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use super::topology::machines;
use super::*;
use crate::node_resources::Statements;
use crate::status::WaitReason;
use crate::topology_manager::numa::Numa;
use crate::topology_manager::{HintProvider, TopologyManager, TopologySettings};

fn resources(policy: &str, cpu: &str, named: &str) -> NodeResources {
    NodeResources::new(&Statements {
        kube_reserved: [("cpu".to_owned(), cpu.to_owned())].into(),
        reserved_system_cpus: named.to_owned(),
        cpu_manager_policy: Some(policy.to_owned()),
        ..Statements::default()
    })
    .expect("taken")
}

fn pod(uid: &str) -> Pod {
    let amounts = json!({"cpu": "1", "memory": "1Mi"});
    let container = json!({"name": "a", "resources": {"limits": amounts, "requests": amounts}});
    let pod = json!({"metadata": {"name": uid, "uid": uid}, "spec": {"containers": [container]}});
    serde_json::from_value(pod).expect("a pod")
}

fn of_two(uid: &str) -> Pod {
    let mut both = pod(uid);
    let spec = both.spec.as_mut().expect("a spec");
    let other = k8s_openapi::api::core::v1::Container { name: "b".to_owned(), ..spec.containers[0].clone() };
    spec.containers.push(other);
    both
}

fn admit(manager: &CpuManager, of: &Pod) -> Result<(), WaitReason> {
    let topology = TopologyManager::new(&TopologySettings::default(), Numa::default()).expect("no policy");
    let mut draft = manager.draft();
    let mut providers: Vec<&mut dyn HintProvider> = Vec::new();
    providers.extend(draft.iter_mut().map(|draft| draft as &mut dyn HintProvider));
    topology.admit(of, &mut providers)?;
    draft.map_or(Ok(()), Draft::commit)
}

#[test]
fn cpus_are_given_out_written_down_and_given_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let open = |policy: &str| CpuManager::open(folder.path(), &resources(policy, "500m", ""), Ok(machines::small()));
    let manager = open("static").expect("opened");
    admit(&manager, &pod("p")).expect("given");
    assert_eq!(
        (manager.exclusive("p", "a").to_string(), manager.affinity("q", "a").to_string()),
        ("1".to_owned(), "0".to_owned())
    );
    assert!(admit(&manager, &pod("q")).is_err_and(|why| why.reason == "UnexpectedAdmissionError"));
    manager.release("p");
    // Nothing is given by halves.
    assert!(admit(&manager, &of_two("q")).is_err() && manager.holders().is_empty());
    admit(&manager, &pod("p")).expect("given");
    let metrics = manager.metrics(None);
    for line in [
        "kubelet_cpu_manager_pinning_requests_total 5",
        "kubelet_cpu_manager_pinning_errors_total 2",
        "kubelet_cpu_manager_shared_pool_size_millicores 0",
        "kubelet_cpu_manager_exclusive_cpu_allocation_count 1",
        "kubelet_cpu_manager_allocation_per_numa{numa_node=\"0\"} 1",
        "kubelet_container_aligned_compute_resources_count{scope=\"container\",boundary=\"uncore_cache\"} 3",
    ] {
        assert!(metrics.lines().any(|seen| seen == line), "{line} in {metrics}");
    }
    // Another kubelet of the same node goes on with it.
    let again = open("static").expect("opened");
    assert_eq!((again.holders(), again.exclusive("p", "a").to_string()), (vec!["p".to_owned()], "1".to_owned()));
    let why = open("none").expect_err("refused");
    assert!(why.contains("configured policy \"none\" differs from state checkpoint policy \"static\""), "{why}");
    let mut changes = again.changes();
    again.release("p");
    assert!(changes.has_changed().is_ok_and(|changed| changed) && !again.has_exclusive("p"));
    changes.borrow_and_update();
    again.release("p");
    assert!(changes.has_changed().is_ok_and(|changed| !changed));
    assert_eq!(open("static").expect("opened").affinity("q", "a").to_string(), "0-1");
}

#[test]
fn without_a_policy_nothing_is_said_of_cpus() {
    let folder = tempfile::tempdir().expect("a folder");
    let manager = CpuManager::open(folder.path(), &NodeResources::default(), Ok(machines::small())).expect("opened");
    admit(&manager, &pod("p")).expect("nothing to do");
    assert!(manager.affinity("p", "a").is_empty() && manager.allocatable().is_empty() && !manager.is_static());
}

/// A kubelet that gives no CPUs out runs where `/sys` says nothing of them.
#[test]
fn who_gives_cpus_out_has_to_know_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let open = |resources: &NodeResources| CpuManager::open(folder.path(), resources, Err("no CPUs".to_owned()));
    let of = |policy: &str, named: &str| open(&resources(policy, "1", named)).map(drop);
    open(&NodeResources::default()).expect("opened");
    assert_eq!(of("none", ""), Ok(()));
    assert_eq!((of("none", "0"), of("static", "")), (Err("no CPUs".to_owned()), Err("no CPUs".to_owned())));
}

#[test]
fn a_reservation_that_the_machine_cannot_keep_is_refused() {
    let check = |cpu: &str, named: &str, want: &str| {
        let folder = tempfile::tempdir().expect("a folder");
        let got = CpuManager::open(folder.path(), &resources("static", cpu, named), Ok(machines::small()));
        assert_eq!(got.err().as_deref(), Some(want));
    };
    let none = "[cpumanager] new static policy error: the static policy requires systemreserved.cpu + kubereserved.cpu to be \
                greater than zero";
    check("0", "", none);
    check("1", "1-3", "reserved-cpus: 1-3 is not a subset of online-cpus: 0-1");
}

/// The disk may take its time: whoever starts a container meanwhile is not held up by it.
#[test]
fn the_state_is_read_while_it_is_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let manager =
        CpuManager::open(folder.path(), &resources("static", "500m", ""), Ok(machines::small())).expect("opened");
    let manager = Arc::new(manager);
    let slow = folder.path().join("cpu_manager_state.new");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &slow, rustix::fs::FileType::Fifo, mode, 0).expect("a pipe");
    let writing = std::thread::spawn({
        let manager = manager.clone();
        move || admit(&manager, &pod("p"))
    });
    while manager.changing.try_lock().is_some() {
        std::thread::yield_now();
    }
    let (say, hear) = std::sync::mpsc::channel();
    std::thread::spawn({
        let manager = manager.clone();
        move || say.send((manager.affinity("q", "a").to_string(), manager.has_exclusive("p")))
    });
    let read = hear.recv_timeout(std::time::Duration::from_secs(20)).expect("read meanwhile");
    assert_eq!(read, ("0-1".to_owned(), false));
    // Nothing can be kept in a pipe: what is not written down is not given.
    drop(std::fs::File::open(&slow).expect("opened"));
    assert!(writing.join().expect("ended").is_err() && !manager.has_exclusive("p"));
}
