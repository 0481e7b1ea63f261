use super::super::topology::machines;
use super::*;

const PACKED: Manner = Manner { across_cores: false, by_cache: false };

fn check(topology: &Topology, available: &str, count: usize, manner: Manner, want: Result<&str, &str>) {
    let free = CpuSet::parse(available).expect("a set");
    let got = take(topology, &free, count, manner).map(|cpus| cpus.to_string());
    assert_eq!(got.as_deref().map_err(String::as_str), want, "{count} of {available}");
}

#[test]
fn few_cores_sockets_and_nodes_are_taken() {
    let small = machines::small();
    check(&small, "0-1", 0, PACKED, Ok(""));
    check(&small, "0-1", 1, PACKED, Ok("0"));
    check(&small, "1", 1, PACKED, Ok("1"));
    check(&small, "0-1", 2, PACKED, Ok("0-1"));
    let lack = "not enough cpus available to satisfy request: requested=3, available=2";
    check(&small, "0-1", 3, PACKED, Err(lack));

    let two = machines::two_sockets();
    check(&two, "0-15", 2, PACKED, Ok("0,8"));
    check(&two, "0-15", 3, PACKED, Ok("0-1,8"));
    check(&two, "0-15", 8, PACKED, Ok("0-3,8-11"));
    check(&two, "0-15", 10, PACKED, Ok("0-4,8-12"));
    // The socket that is broken into already.
    check(&two, "0-7,9-15", 2, PACKED, Ok("1,9"));
    check(&two, "0-7,9-15", 1, PACKED, Ok("0"));
    // A whole one for eight, although others have a lower number.
    check(&two, "1-15", 8, PACKED, Ok("4-7,12-15"));
    // Threads of broken cores last.
    check(&two, "0-3,8", 2, PACKED, Ok("0,8"));
    check(&two, "0-3", 2, PACKED, Ok("0-1"));

    let four = machines::four_nodes();
    check(&four, "0-15", 4, PACKED, Ok("0-3"));
    check(&four, "2-15", 4, PACKED, Ok("4-7"));
    check(&four, "2-15", 2, PACKED, Ok("2-3"));
    check(&four, "0-15", 16, PACKED, Ok("0-15"));

    let uneven = machines::uneven();
    check(&uneven, "0-7", 2, PACKED, Ok("6-7"));
    check(&uneven, "0-7", 3, PACKED, Ok("0,6-7"));
    check(&uneven, "0-7", 6, PACKED, Ok("0-3,6-7"));
    check(&uneven, "0-6", 6, PACKED, Ok("0-5"));
}

#[test]
fn threads_are_spread_over_cores_where_that_is_wanted() {
    let across = Manner { across_cores: true, by_cache: false };
    let two = machines::two_sockets();
    check(&two, "0-15", 2, across, Ok("0-1"));
    check(&two, "0-15", 5, across, Ok("0-3,8"));
    check(&two, "0-15", 8, across, Ok("0-3,8-11"));
    check(&machines::small(), "0-1", 1, across, Ok("0"));
}

#[test]
fn few_caches_are_taken_where_that_is_wanted() {
    let by_cache = Manner { across_cores: false, by_cache: true };
    let two = machines::two_caches();
    check(&two, "0-15", 8, by_cache, Ok("0-7"));
    check(&two, "0-15", 10, by_cache, Ok("0-9"));
    check(&two, "0-15", 3, by_cache, Ok("0-2"));
    // Six are behind the second cache only, where without the wish the broken core would come first.
    check(&two, "4-15", 6, by_cache, Ok("8-13"));
    check(&two, "4-15", 6, PACKED, Ok("4-9"));
    // Behind no cache is enough: as without the wish.
    check(&two, "4-7,12-15", 6, by_cache, Ok("4-7,12-13"));
}
