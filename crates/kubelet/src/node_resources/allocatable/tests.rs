use super::super::Statements;
use super::*;

const MACHINE: Capacity = Capacity {
    cpu: 4000,
    memory: 8 << 30,
    storage: 100 << 30,
    processes: 1000,
    kept_memory: 100 << 20,
    kept_storage: 10 << 30,
};

fn taken(system: &[(&str, &str)], kube: &[(&str, &str)], enforced: &[&str]) -> NodeResources {
    let map = |list: &[(&str, &str)]| list.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    NodeResources::new(&Statements {
        system_reserved: map(system),
        kube_reserved: map(kube),
        enforce_node_allocatable: Some(enforced.iter().map(|name| (*name).to_owned()).collect()),
        ..Statements::default()
    })
    .expect("taken")
}

#[test]
fn what_is_reserved_is_taken_off_and_the_rest_is_the_limit_of_all_pods() {
    let limits = |cpu, memory, processes| TopLimits { cpu, memory, processes };
    let check = |resources: NodeResources, want: (i64, i64, i64), top: TopLimits| {
        let seen = resources.allocatable(&MACHINE);
        assert_eq!((seen.cpu, seen.memory, seen.storage), want, "{resources:?}");
        assert_eq!(resources.top_limits(&MACHINE, 900), top, "{resources:?}");
    };
    let (usual, disk) = ((8 << 30) - (100 << 20), 90 << 30);
    check(taken(&[], &[], &["pods"]), (4000, usual, disk), limits(4000, 8 << 30, 900));
    let system = [("cpu", "500m"), ("memory", "1Gi"), ("pid", "100")];
    let kube = [("cpu", "250m"), ("memory", "512Mi"), ("ephemeral-storage", "5Gi"), ("pid", "50")];
    let (left, memory) = ((8 << 30) - (1536 << 20), (8 << 30) - (1636 << 20));
    check(taken(&system, &kube, &["pods"]), (3250, memory, 85 << 30), limits(3250, left, 850));
    // Not enforced, it is taken off all the same.
    for enforced in [&["none"][..], &[]] {
        check(taken(&system, &kube, enforced), (3250, memory, 85 << 30), limits(4000, 8 << 30, 1000));
    }
    check(taken(&[("cpu", "9")], &[], &["pods"]), (0, usual, disk), limits(0, 8 << 30, 900));
}

#[test]
fn more_than_there_is_cannot_be_reserved() {
    let check = |resources: NodeResources, want: Result<(), &str>| {
        assert_eq!(resources.fits(&MACHINE).as_ref().map_err(String::as_str), want.as_ref().map_err(|w| *w));
    };
    check(taken(&[("cpu", "2")], &[("cpu", "2")], &["pods"]), Ok(()));
    check(
        taken(&[("cpu", "2")], &[("cpu", "2001m"), ("memory", "8Gi")], &["pods"]),
        Err(
            "invalid Node Allocatable configuration. Resource \"cpu\" has a reservation of 4001m but capacity of 4000m. \
             Expected capacity >= reservation. Resource \"memory\" has a reservation of 8694792192 but capacity of \
             8589934592. Expected capacity >= reservation.",
        ),
    );
    check(
        taken(&[], &[("ephemeral-storage", "91Gi")], &["none"]),
        Err(
            "invalid Node Allocatable configuration. Resource \"ephemeral-storage\" has a reservation of 108447924224 but \
             capacity of 107374182400. Expected capacity >= reservation.",
        ),
    );
    check(
        taken(&[("pid", "1001")], &[], &["pods"]),
        Err(
            "invalid Node Allocatable configuration. Resource \"pid\" has a reservation of 1001 but capacity of 1000. \
             Expected capacity >= reservation.",
        ),
    );
}

#[test]
fn pods_per_core_cannot_exceed_max_pods() {
    for (per_core, processors, want) in [(0, 2, 110), (10, 2, 20), (100, 2, 110), (u32::MAX, 2, 110)] {
        let resources = NodeResources { pods_per_core: per_core, ..NodeResources::default() };
        assert_eq!(resources.most_pods(110, processors), want, "{per_core}");
    }
}
