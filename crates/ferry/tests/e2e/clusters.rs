//! `ferry cluster`: several nodes on this machine, each in namespaces of its own, with real containers.

use std::path::{Path, PathBuf};

use crate::cluster::{end, http_get, until};
use crate::cluster_bed::{Bed, sh};

/// What clusters of this command have on the host: links, packet rules, control groups, mounts, processes. The name of a
/// link does not begin in the middle of a word: uids of pods have such letters, too.
fn traces() -> Vec<String> {
    let all = sh(
        "(ip -o link | cut -d: -f2; nft list tables; ls -d /sys/fs/cgroup/*/ferry-c* /sys/fs/cgroup/ferry-c*; \
                  cut -d' ' -f2 /proc/mounts; ps -eo args) 2>/dev/null | grep -E 'ferry-c[0-9]|(^|[^0-9a-z-])fc[0-9]+-|ferry-clusters-' \
                  | grep -v grep || true",
    );
    let mut lines: Vec<String> = all.lines().map(|line| line.trim().to_owned()).collect();
    lines.sort();
    lines
}

/// Pods on different nodes reach each other, the host reaches Services, and nothing is left at the end.
pub fn nodes_work_together_and_leave_nothing() {
    let before = traces();
    let bed = Bed::new("a");
    let several = bed.refused(&["cluster", "create", "x", "--servers", "9"]);
    assert!(several.contains("more than the 7"), "{several}");
    let config = bed.folder.path().join("cluster.yaml");
    std::fs::write(
        &config,
        "apiVersion: ferry.dev/v1alpha1\nkind: Cluster\nservers: [{}]\nnodes:\n- {labels: {disk: ssd}, portMappings: [{hostPort: 18089, port: 30089}]}\n- {taints: ['only=db:NoSchedule']}\n- {}\n",
    )
    .unwrap();
    bed.create(&["--config", config.to_str().unwrap()]);
    let again = bed.refused(&["cluster", "create", &bed.name]);
    assert!(again.contains("already"), "{again}");
    let merged = std::fs::read_to_string(bed.kubeconfig()).unwrap();
    assert!(merged.contains("https://192.0.2.1") && merged.contains("colors"), "{merged}");
    let list = bed.ferry(&["node", "list"]);
    assert_eq!(list.lines().filter(|line| line.contains(" Ready ")).count(), 4, "{list}");
    let node = bed.json(&["get", "node", &bed.node(0)]);
    assert_eq!(node["metadata"]["labels"]["disk"], "ssd");
    assert_eq!(bed.json(&["get", "node", &bed.node(1)])["spec"]["taints"][0]["key"], "only");

    let names = ["p0", "p1", "p2"];
    for (number, name) in names.iter().enumerate() {
        bed.run_pod(name, &bed.node(number));
        bed.kubectl(&["expose", "pod", name, "--port=80"]);
    }
    let addresses = names.map(|name| bed.pod_address(name));
    for (from, to) in [(0, 1), (1, 2), (2, 0)] {
        for url in [
            format!("http://{}/", addresses[to]),
            format!("http://{}/", names[to]),
            format!("http://{}.default.svc.cluster.local/", names[to]),
        ] {
            until(&format!("{} reaches {url}", names[from]), || {
                (bed.ask(names[from], &url)? == names[to]).then_some(())
            });
        }
        assert!(bed.kubectl(&["logs", names[from]]).contains("GET /"), "the logs of every node are read");
        bed.forwards(names[from]);
    }
    // From the host: a node port at every node, a mapped port, and a load balancer's address.
    let (range, number) = bed.range();
    bed.kubectl(&[
        "patch",
        "service",
        "p2",
        "-p",
        r#"{"spec":{"type":"LoadBalancer","ports":[{"port":80,"nodePort":30089}]}}"#,
    ]);
    for address in ["2", "3", "4", "5"] {
        until("the node port answers", || (http_get(&format!("{range}.{address}"), 30089)? == "p2").then_some(()));
    }
    until("the mapped port answers", || (http_get("127.0.0.1", 18089)? == "p2").then_some(()));
    let balanced = until("the Service has an address", || {
        let service = bed.json(&["get", "service", "p2"]);
        service["status"]["loadBalancer"]["ingress"][0]["ip"].as_str().map(str::to_owned)
    });
    until("the load balancer answers", || (http_get(&balanced, 80)? == "p2").then_some(()));

    // An archive reaches every node, and a pod runs from it though no registry has it.
    let archive = saved_image(bed.folder.path());
    let loaded = bed.ferry(&["cluster", "load", &bed.name, archive.to_str().unwrap()]);
    assert_eq!(loaded.lines().filter(|line| line.contains("docker.io/library/saved:1")).count(), 4, "{loaded}");
    assert!(bed.refused(&["cluster", "load", &bed.name, "./nothing.tar"]).contains("no file"));

    // Killed, Ferry comes back in its node and finds its pods.
    let old = bed.ferry_pid(&bed.node(0)).expect("Ferry runs");
    end(old);
    until("Ferry runs again", || bed.ferry_pid(&bed.node(0)).filter(|new| *new != old));
    until("exec works again", || (bed.ask("p0", "http://p1/")? == "p1").then_some(()));
    assert_eq!(bed.pod_address("p0"), addresses[0], "it is the same pod");

    // A node with another address is the same node.
    let moved = format!("{range}.99");
    bed.inside(
        &bed.node(1),
        &format!("ip addr del {range}.4/24 dev eth0 && ip addr add {moved}/24 dev eth0 && ip route replace default via {range}.1"),
    );
    end(bed.ferry_pid(&bed.node(1)).unwrap());
    until("the Node tells its new address", || bed.ferry(&["node", "list"]).contains(&moved).then_some(()));
    until("its pods are reached", || (bed.ask("p0", "http://p1/")? == "p1").then_some(()));
    until("and reach others", || (bed.ask("p1", "http://p2/")? == "p2").then_some(()));

    // A stopped cluster starts again with what it had.
    let hardware =
        || (0..3).map(|number| bed.inside(&bed.node(number), "cat /sys/class/net/eth0/address")).collect::<Vec<_>>();
    let known = hardware();
    bed.ferry(&["cluster", "stop", &bed.name]);
    assert!(bed.ferry(&["cluster", "list"]).contains("stopped"));
    print!("{}", bed.ferry(&["cluster", "start", &bed.name]));
    assert_eq!(hardware(), known, "what others remember of a node stays true");
    until("its pods run again", || (bed.ask("p0", "http://p1/")? == "p1").then_some(()));

    // Two clusters beside each other.
    let other = Bed::new("b");
    other.create(&[]);
    assert_ne!(other.range().1, number);
    assert_eq!(other.json(&["get", "nodes"])["items"].as_array().unwrap().len(), 1);
    other.ferry(&["cluster", "delete", &other.name]);
    bed.kubectl(&["get", "nodes"]);

    bed.ferry(&["cluster", "delete", &bed.name]);
    let after = std::fs::read_to_string(bed.kubeconfig()).unwrap();
    assert!(after.contains("https://192.0.2.1") && !after.contains(&bed.name), "{after}");
    assert_eq!(traces(), before);
    assert_eq!(std::fs::read_dir(bed.home()).unwrap().count(), 0, "no file is left");
}

/// An archive as `docker save` writes it: one layer with one file.
fn saved_image(folder: &Path) -> PathBuf {
    let (work, archive) = (folder.join("saved"), folder.join("saved.tar"));
    sh(&format!(
        "mkdir -p {w}/root && cd {w} && echo hello > root/file && tar -C root -cf layer.tar file \
         && printf '{{\"config\":{{}},\"rootfs\":{{\"type\":\"layers\",\"diff_ids\":[\"sha256:%s\"]}}}}' $(sha256sum layer.tar | cut -d' ' -f1) > config.json \
         && printf '[{{\"Config\":\"config.json\",\"RepoTags\":[\"saved:1\"],\"Layers\":[\"layer.tar\"]}}]' > manifest.json \
         && tar -cf {a} config.json layer.tar manifest.json",
        w = work.display(),
        a = archive.display()
    ));
    archive
}

/// Several servers on this machine: one is killed, and comes back; one is lost, and the cluster goes on without it.
pub fn a_cluster_of_several_servers_outlives_one() {
    let before = traces();
    let bed = Bed::new("q");
    bed.create(&["--servers", "3", "--nodes", "1"]);
    let list = bed.ferry(&["node", "list"]);
    assert_eq!(list.lines().filter(|line| line.contains(" Ready ")).count(), 4, "{list}");
    let first = bed.home().join(&bed.name).join(format!("{}-server-0", bed.name));
    let servers = || sh(&format!("{} server list --data-dir {}", env!("CARGO_BIN_EXE_ferry"), first.display()));
    let healthy = || servers().lines().filter(|line| line.ends_with("healthy") && !line.contains("learner")).count();
    until("three servers vote", || (healthy() == 3).then_some(()));

    // Every server leads into the pods of every node.
    let nodes = [&bed.node(0), &format!("{}-server-0", bed.name), &format!("{}-server-1", bed.name)];
    for (number, node) in nodes.iter().enumerate() {
        bed.run_pod(&format!("at{number}"), node);
        bed.pod_address(&format!("at{number}"));
    }
    for server in 2..5 {
        let server = format!("--server=https://{}.{server}:6443", bed.range().0);
        for pod in ["at0", "at1", "at2"] {
            let inside = bed.kubectl(&[&server, "exec", pod, "--", "hostname"]);
            assert_eq!(inside.trim(), pod, "exec by {server}");
            until("the logs tell of a probe", || bed.kubectl(&[&server, "logs", pod]).contains("GET /").then_some(()));
            bed.forwards_by(&[&server], pod);
        }
    }
    bed.kubectl(&["delete", "pod", "at0", "at1", "at2"]);

    // The whole machine of a server, at once: nodes and pods go on, writes too.
    let lost = format!("{}-server-2", bed.name);
    let number = bed.range().1;
    let bridge = || std::fs::read_to_string(format!("/sys/class/net/ferry-c{number}/address")).unwrap();
    let known = bridge();
    sh(&format!("kill -9 {}", bed.pid(&lost)));
    bed.kubectl(&["create", "configmap", "while-one-is-away"]);
    assert_eq!(bridge(), known, "the others would send to an address that nobody has");
    bed.run_pod("p0", &bed.node(0));
    bed.pod_address("p0");
    until("the kubernetes Service leads to two servers", || {
        let slice = bed.json(&["get", "endpointslice", "kubernetes"]);
        (slice["endpoints"].as_array()?.len() == 2).then_some(())
    });
    assert!(bed.ferry(&["cluster", "list"]).contains("3 of 4 nodes run"));
    // Started again it is what it was.
    bed.ferry(&["cluster", "start", &bed.name]);
    until("three servers vote", || (healthy() == 3).then_some(()));

    // All of them stop, and come back together.
    bed.ferry(&["cluster", "stop", &bed.name]);
    bed.ferry(&["cluster", "start", &bed.name]);
    until("three servers vote", || (healthy() == 3).then_some(()));
    bed.kubectl(&["get", "configmap", "while-one-is-away"]);
    bed.ferry(&["cluster", "delete", &bed.name]);
    assert_eq!(traces(), before);
}
