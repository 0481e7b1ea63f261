use super::*;

#[test]
fn combinations_are_refused_as_upstream_refuses_them() {
    let check = |said: Statements, want: Result<&[&str], &str>| {
        let got = NodeResources::new(&said).map_err(|why| why.to_string());
        let got = got.map(|taken| taken.enforcements.iter().map(|one| one.name()).collect::<Vec<_>>());
        assert_eq!(got.as_deref().map_err(String::as_str), want, "{said:?}");
    };
    let enforcing = |names: &[&str], system: &str, kube: &str| Statements {
        enforce_node_allocatable: Some(names.iter().map(|name| (*name).to_owned()).collect()),
        system_reserved_cgroup: system.to_owned(),
        kube_reserved_cgroup: kube.to_owned(),
        ..Statements::default()
    };
    check(Statements::default(), Ok(&["pods"]));
    check(enforcing(&[], "", ""), Ok(&[]));
    check(enforcing(&["none"], "", ""), Ok(&["none"]));
    let all = ["pods", "system-reserved", "kube-reserved-compressible"];
    check(enforcing(&all, "/system.slice", "/kube"), Ok(&all));
    check(
        enforcing(&["none", "pods"], "", ""),
        Err("invalid configuration: enforceNodeAllocatable (--enforce-node-allocatable) may not contain additional \
             enforcements when \"none\" is specified"),
    );
    check(
        enforcing(&["pods", "pods"], "", ""),
        Err("invalid configuration: duplicated enforcements \"pods\" in enforceNodeAllocatable \
             (--enforce-node-allocatable)"),
    );
    check(
        enforcing(&["everything"], "", ""),
        Err("invalid configuration: option \"everything\" specified for enforceNodeAllocatable \
             (--enforce-node-allocatable). Valid options are \"pods\", \"system-reserved\", \
             \"system-reserved-compressible\", \"kube-reserved\", \"kube-reserved-compressible\" or \"none\""),
    );
    for kind in ["system-reserved", "system-reserved-compressible"] {
        check(
            enforcing(&["pods", kind], "", "/kube"),
            Err("invalid configuration: systemReservedCgroup (--system-reserved-cgroup) must be specified when \
                 \"system-reserved\" or \"system-reserved-compressible\" included in enforceNodeAllocatable \
                 (--enforce-node-allocatable)"),
        );
    }
    check(
        enforcing(&["kube-reserved"], "/system", ""),
        Err("invalid configuration: kubeReservedCgroup (--kube-reserved-cgroup) must be specified when \
             \"kube-reserved\" or \"kube-reserved-compressible\" included in enforceNodeAllocatable \
             (--enforce-node-allocatable)"),
    );
    check(
        enforcing(&["kube-reserved", "kube-reserved-compressible"], "", "/kube"),
        Err("invalid configuration: both \"kube-reserved\" and \"kube-reserved-compressible\" cannot be specified \
             together in enforceNodeAllocatable (--enforce-node-allocatable)"),
    );
    check(
        enforcing(&["pods"], "/a/../../b", ""),
        Err("invalid configuration: systemReservedCgroup \"/a/../../b\" must not contain \"..\""),
    );
}

#[test]
fn values_out_of_range_are_refused() {
    let check = |said: Statements, want: &str| {
        assert_eq!(NodeResources::new(&said).err().map(|why| why.to_string()).as_deref(), Some(want));
    };
    let none = Statements::default;
    let map = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
    check(
        Statements { system_reserved: map("gpu", "1"), ..none() },
        "--system-reserved value failed to parse: cannot reserve \"gpu\" resource",
    );
    check(
        Statements { kube_reserved: map("cpu", "-1"), ..none() },
        "--kube-reserved value failed to parse: resource quantity for \"cpu\" cannot be negative: -1",
    );
    check(
        Statements { pods_per_core: -1, ..none() },
        "invalid configuration: podsPerCore (--pods-per-core) -1 must not be a negative number",
    );
    let quota = |period| Statements { cpu_cfs_quota_period: Some(period), ..none() };
    check(
        quota(Duration::from_micros(999)),
        "invalid configuration: cpuCFSQuotaPeriod (--cpu-cfs-quota-period) 999µs must be between 1ms and 1sec, inclusive",
    );
    check(
        quota(Duration::from_millis(1001)),
        "invalid configuration: cpuCFSQuotaPeriod (--cpu-cfs-quota-period) 1.001s must be between 1ms and 1sec, inclusive",
    );
    let cpus = |text: &str| Statements { reserved_system_cpus: text.to_owned(), ..none() };
    check(
        cpus("0-x"),
        "invalid configuration: unable to parse reservedSystemCPUs (--reserved-cpus) 0-x, error: \"x\" is no number of \
         a CPU",
    );
    check(
        Statements { kube_reserved_cgroup: "/kube".into(), ..cpus("0") },
        "invalid configuration: can't use reservedSystemCPUs (--reserved-cpus) with systemReservedCgroup \
         (--system-reserved-cgroup) or kubeReservedCgroup (--kube-reserved-cgroup)",
    );
}

#[test]
fn named_cpus_take_the_place_of_amounts() {
    let map = |list: &[(&str, &str)]| list.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let said = Statements {
        reserved_system_cpus: "0-1,4".into(),
        system_reserved: map(&[("memory", "1Gi")]),
        kube_reserved: map(&[("cpu", "500m"), ("pid", "7")]),
        ..Statements::default()
    };
    let taken = NodeResources::new(&said).expect("taken");
    assert_eq!((taken.system_reserved.cpu, taken.kube_reserved.cpu), (Some(3000), None));
    assert_eq!(taken.system_reserved.given, map(&[("cpu", "3"), ("memory", "1Gi")]));
    assert_eq!(taken.kube_reserved.given, map(&[("pid", "7")]));
}
