use super::super::topology::machines;
use super::*;

#[test]
fn cpus_come_evenly_from_the_fewest_nodes() {
    let check = |topology: &Topology, free: &str, count: usize, group: usize, by_socket: bool, want: &str| {
        let free = CpuSet::parse(free).expect("a set");
        let how = Distribution { group, by_socket };
        let got = distribute(topology, &free, count, Manner::default(), how).map(|cpus| cpus.to_string());
        assert_eq!(got, Ok(want.to_owned()), "{count} of {free} in groups of {group}");
    };
    let two = machines::two_sockets();
    // One node is enough.
    check(&two, "0-15", 4, 1, false, "0-1,8-9");
    // Two are needed: half from each, where packing would use one up.
    check(&two, "0-15", 10, 1, false, "0-2,4-6,8-9,12-13");
    check(&two, "0-15", 12, 2, false, "0-2,4-6,8-10,12-14");
    // The rest in whole cores.
    check(&two, "0-15", 10, 2, false, "0-2,4-5,8-10,12-13");
    // An odd number is not for groups of two.
    check(&two, "0-15", 9, 2, false, "0-4,8-11");
    let four = machines::four_nodes();
    check(&four, "0-15", 6, 1, false, "0-2,4-6");
    check(&four, "0-15", 12, 2, false, "0-11");
    // Of the pairs, the one that leaves the others most even.
    check(&four, "0-3,4-5,8-11,12-15", 6, 1, false, "0-2,8-10");
    // No nodes can give the same: the first are used up.
    check(&machines::uneven(), "0-7", 7, 1, false, "0-4,6-7");
    check(&machines::small(), "0-1", 1, 1, false, "0");
    check(&machines::small(), "0-1", 0, 1, false, "");
}

#[test]
fn nodes_of_one_socket_are_chosen_where_that_is_wanted() {
    // Two sockets of two nodes of four CPUs.
    let place = |cpu: u32| super::super::topology::CpuLocation {
        node: cpu / 4,
        socket: cpu / 8,
        cache: cpu / 4 * 4,
        core: cpu,
    };
    let topology = Topology::of((0..16).map(|cpu| (cpu, place(cpu))));
    let free = CpuSet::parse("0-3,6-15").expect("a set");
    let take = |by_socket| {
        let how = Distribution { group: 1, by_socket };
        distribute(&topology, &free, 6, Manner::default(), how).map(|cpus| cpus.to_string())
    };
    assert_eq!(take(false), Ok("0-2,8-10".to_owned()));
    assert_eq!(take(true), Ok("8-10,12-14".to_owned()));
}

#[test]
fn what_is_not_there_cannot_be_given() {
    let how = Distribution { group: 1, by_socket: false };
    let got = distribute(&machines::small(), &machines::small().all(), 3, Manner::default(), how);
    let lack = "not enough cpus available to satisfy request: requested=3, available=2";
    assert_eq!(got, Err(lack.to_owned()));
}
