use super::*;

#[test]
fn options_are_taken_or_refused_by_name() {
    let check = |policy: &str, given: &[(&str, &str)], want: Result<[bool; 4], &str>| {
        let given = given.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let got = CpuManagerPolicy::parse(policy, &given, false).map(|policy| match policy {
            CpuManagerPolicy::None => [false; 4],
            CpuManagerPolicy::Static(o) => [o.full_cores_only, o.across_nodes, o.strict_reservation, o.by_cache],
        });
        assert_eq!(got.as_ref().map_err(String::as_str), want.as_ref().map_err(|why| *why), "{policy} {given:?}");
    };
    check("none", &[], Ok([false; 4]));
    check("static", &[], Ok([false; 4]));
    check("static", &[(FULL_CORES, "true"), (STRICT, "1")], Ok([true, false, true, false]));
    check("static", &[(ACROSS_NODES, "True"), (BY_CACHE, "false")], Ok([false, true, false, false]));
    check("dynamic", &[], Err("unknown policy: \"dynamic\""));
    check(
        "none",
        &[(STRICT, "true")],
        Err("new none policy error: None policy: received unsupported options=strict-cpu-reservation=true"),
    );
    check("static", &[("fast", "true")], Err("new static policy error: unknown CPU Manager Policy option: \"fast\""));
    check(
        "static",
        &[(FULL_CORES, "yes")],
        Err("new static policy error: bad value for option \"full-pcpus-only\": \"yes\" is neither true nor false"),
    );
    check(
        "static",
        &[("align-by-socket", "true")],
        Err("new static policy error: CPU Manager Policy Alpha-level Options not enabled, but option \
             \"align-by-socket\" provided"),
    );
    check(
        "static",
        &[(ACROSS_NODES, "true"), (BY_CACHE, "true")],
        Err("new static policy error: static policy options prefer-align-cpus-by-uncorecache and \
             distribute-cpus-across-numa can not be used at the same time"),
    );
}

#[test]
fn alpha_options_need_their_gate() {
    let given = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), "true".to_owned())).collect();
    let check = |names: &[&str], want: Result<(bool, bool), &str>| {
        let got = StaticOptions::parse(&given(names), true).map(|options| (options.by_socket, options.across_cores));
        assert_eq!(got.as_ref().map_err(String::as_str), want.as_ref().map_err(|why| *why), "{names:?}");
    };
    check(&ALPHA, Ok((true, true)));
    check(
        &[FULL_CORES, ACROSS_CORES],
        Err("static policy options full-pcpus-only and distribute-cpus-across-cores can not be used at the same time"),
    );
    check(
        &[ACROSS_NODES, ACROSS_CORES],
        Err(
            "static policy options distribute-cpus-across-numa and distribute-cpus-across-cores can not be used at the \
             same time",
        ),
    );
}
