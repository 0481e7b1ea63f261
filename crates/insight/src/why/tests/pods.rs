//! Pods, from the scheduler to their probes.

use serde_json::{Value, json};

use super::{Hop, Row, check, conditions, event, node, pod, ready_pod, waiting, world};

#[test]
fn pods_on_their_way_to_a_node() {
    let unscheduled = |message: &str, spec: Value| {
        let condition =
            json!([{ "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message }]);
        pod(json!({ "spec": spec, "status": { "phase": "Pending", "conditions": condition } }))
    };
    let nowhere = json!({ "nodeName": "" });
    let greedy =
        json!({ "nodeName": "", "containers": [{ "name": "c", "resources": { "requests": { "cpu": "8" } } }] });
    let nodes = [("nodes", json!([node("n", "True"), node("m", "True")]))];
    let sentence = "0/2 nodes are available: 2 Insufficient cpu. preemption: 0/2 nodes are available: 2 No preemption victims found.";
    let rows: Vec<Row<'_>> = vec![
        (
            "cpu",
            world(unscheduled(sentence, greedy.clone()), &nodes),
            Some((
                Hop::Scheduler,
                &[
                    "2 nodes: Insufficient cpu",
                    "has 2 cpu in all, and the pod asks for 8: it will never fit",
                    "resources.requests",
                ],
            )),
        ),
        (
            "taint",
            world(unscheduled("0/1 nodes are available: 1 node(s) had untolerated taint(s).", nowhere.clone()), &nodes),
            Some((Hop::Scheduler, &["1 node: node(s) had untolerated taint", "the scheduler says"])),
        ),
        (
            "selector",
            world(
                unscheduled(
                    "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.",
                    json!({ "nodeName": "", "nodeSelector": { "disk": "ssd" } }),
                ),
                &nodes,
            ),
            Some((Hop::Scheduler, &["kubectl label node n disk=ssd"])),
        ),
        (
            "cordoned",
            world(unscheduled("0/1 nodes are available: 1 node(s) were unschedulable.", nowhere.clone()), &nodes),
            Some((Hop::Scheduler, &["were unschedulable"])),
        ),
        (
            "gates",
            world(
                pod(
                    json!({ "spec": { "nodeName": "", "schedulingGates": [{ "name": "example.com/wait" }] }, "status": { "phase": "Pending" } }),
                ),
                &[],
            ),
            Some((Hop::Scheduler, &["scheduling gates", "example.com/wait"])),
        ),
        (
            "no scheduler",
            world(
                pod(json!({ "spec": { "nodeName": "", "schedulerName": "mine" }, "status": { "phase": "Pending" } })),
                &[],
            ),
            Some((Hop::Scheduler, &["\"mine\" has not looked at it", "it waits for 10 min"])),
        ),
        (
            "no claim",
            world(
                pod(
                    json!({ "spec": { "nodeName": "", "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "data" } }] }, "status": { "phase": "Pending" } }),
                ),
                &[("persistentvolumeclaims", json!([]))],
            ),
            Some((Hop::Storage, &["the PersistentVolumeClaim \"data\"", "there is none"])),
        ),
    ];
    for (what, world, want) in &rows {
        check(what, world, *want);
    }
    // With the scheduler's own verdicts the nodes have names.
    let mut told = world(unscheduled(sentence, greedy), &nodes);
    let verdict = |node: &str, reason: &str| json!({ "node": node, "plugin": "P", "reasons": [reason] });
    let verdicts = json!({ "message": sentence, "nodes": [verdict("n", "Insufficient cpu"), verdict("m", "node(s) were unschedulable")] });
    told.verdicts.insert("p".into(), verdicts);
    check(
        "verdicts",
        &told,
        Some((Hop::Scheduler, &["1 node (n): Insufficient cpu", "1 node (m): node(s) were unschedulable"])),
    );
}

#[test]
fn pods_on_their_node() {
    let nodes = [("nodes", json!([node("n", "True")]))];
    let mut rows: Vec<Row<'_>> = vec![
        ("ready", world(ready_pod(), &nodes), None),
        ("done", world(pod(json!({ "status": { "phase": "Succeeded" } })), &nodes), None),
        (
            "node lost",
            world(pod(json!({})), &[("nodes", json!([node("n", "Unknown")]))]),
            Some((Hop::Node, &["n is not ready since 5 min", "ferry why node/n"])),
        ),
        ("node gone", world(pod(json!({})), &[("nodes", json!([]))]), Some((Hop::Node, &["does not exist"]))),
        (
            "image name",
            world(waiting("InvalidImageName", "bad"), &nodes),
            Some((Hop::Kubelet, &["img of container c cannot be pulled", "correct the image"])),
        ),
        (
            "never pull",
            world(waiting("ErrImageNeverPull", ""), &nodes),
            Some((Hop::Kubelet, &["imagePullPolicy is Never"])),
        ),
        (
            "image absent",
            world(waiting("ErrImagePull", "manifest unknown"), &nodes),
            Some((Hop::Kubelet, &["has no such image or tag"])),
        ),
        (
            "image forbidden",
            world(waiting("ErrImagePull", "pull access denied"), &nodes),
            Some((Hop::Kubelet, &["imagePullSecrets"])),
        ),
        (
            "registry away",
            world(waiting("ErrImagePull", "dial tcp: i/o timeout"), &nodes),
            Some((Hop::Kubelet, &["gets no answer from the registry docker.io"])),
        ),
        (
            "config",
            world(waiting("CreateContainerConfigError", "configmap \"x\" not found"), &nodes),
            Some((Hop::Kubelet, &["cannot be made", "configmap \"x\" not found"])),
        ),
        (
            "root",
            world(
                waiting("CreateContainerConfigError", "container has runAsNonRoot and image will run as root"),
                &nodes,
            ),
            Some((Hop::Kubelet, &["runAsNonRoot and image"])),
        ),
        (
            "starting",
            world(waiting("ContainerCreating", ""), &nodes),
            Some((Hop::Kubelet, &["on its way", "c (ContainerCreating)"])),
        ),
        (
            "gate",
            world(
                pod(
                    json!({ "spec": { "readinessGates": [{ "conditionType": "lb" }] }, "status": { "conditions": conditions(&[("ContainersReady", "True"), ("Ready", "False")]) } }),
                ),
                &nodes,
            ),
            Some((Hop::Ready, &["readiness gates are not: lb"])),
        ),
        (
            "evicted",
            world(
                pod(json!({ "status": { "phase": "Failed", "reason": "Evicted", "message": "low on memory" } })),
                &nodes,
            ),
            Some((Hop::Node, &["evicted", "low on memory"])),
        ),
        (
            "failed",
            world(
                pod(
                    json!({ "status": { "phase": "Failed", "containerStatuses": [{ "name": "c", "state": { "terminated": { "exitCode": 3 } } }] } }),
                ),
                &nodes,
            ),
            Some((Hop::Kubelet, &["exit code 3"])),
        ),
        (
            "init",
            world(
                pod(
                    json!({ "spec": { "initContainers": [{ "name": "i" }] }, "status": { "phase": "Pending", "initContainerStatuses": [{ "name": "i", "state": { "running": {} } }] } }),
                ),
                &nodes,
            ),
            Some((Hop::Kubelet, &["init container i still runs"])),
        ),
    ];
    let mounting = waiting("ContainerCreating", "");
    let failed = event(&mounting, "FailedMount", "MountVolume.SetUp failed: configmap \"cfg\" not found");
    rows.push((
        "mount",
        world(mounting.clone(), &[nodes[0].clone(), ("events", json!([failed]))]),
        Some((Hop::Kubelet, &["cannot be mounted", "configmap \"cfg\" not found"])),
    ));
    let failed = event(&mounting, "FailedCreatePodSandBox", "plugin type=\"bridge\" failed");
    rows.push((
        "sandbox",
        world(mounting, &[nodes[0].clone(), ("events", json!([failed]))]),
        Some((Hop::Kubelet, &["sandbox", "network plug-in"])),
    ));
    let backing_off = waiting("ImagePullBackOff", "Back-off pulling image");
    let failed = event(&backing_off, "Failed", "Failed to pull image \"img\": unauthorized: authentication required");
    rows.push((
        "back-off",
        world(backing_off, &[nodes[0].clone(), ("events", json!([failed]))]),
        Some((Hop::Kubelet, &["unauthorized: authentication", "imagePullSecrets"])),
    ));
    for (what, world, want) in &rows {
        check(what, world, *want);
    }
}

#[test]
fn containers_that_end_or_fail_their_probes() {
    let crashing = |reason: &str, code: i64| {
        let status = json!({
            "name": "c", "restartCount": 4, "ready": false, "state": { "waiting": { "reason": "CrashLoopBackOff" } },
            "lastState": { "terminated": { "exitCode": code, "reason": reason } },
        });
        let limits = json!([{ "name": "c", "resources": { "limits": { "memory": "64Mi" } } }]);
        pod(json!({ "spec": { "containers": limits }, "status": { "containerStatuses": [status] } }))
    };
    let mut loud = world(crashing("Error", 1), &[]);
    loud.last_lines.insert("p/c".into(), "cannot open the database".into());
    check(
        "crash",
        &loud,
        Some((
            Hop::Kubelet,
            &[
                "4 restarts",
                "exit code 1",
                "its log says: cannot open the database",
                "kubectl logs -n d p -c c --previous",
            ],
        )),
    );
    let mut unread = world(crashing("Error", 1), &[]);
    unread.unread_logs.insert("p/c".into(), "you may not read its log".into());
    check("unread", &unread, Some((Hop::Kubelet, &["you may not read its log"])));
    for (reason, code, texts) in [
        ("OOMKilled", 137, &["OOMKilled", "raise resources.limits.memory (now 64Mi)"][..]),
        ("Completed", 0, &["exit code 0 (success)", "is a Job"]),
        ("Error", 127, &["was not found", "correct command and args"]),
    ] {
        check(reason, &world(crashing(reason, code), &[]), Some((Hop::Kubelet, texts)));
    }
    let probed = |probe: &str, started: bool| {
        let status = json!({ "name": "c", "ready": false, "started": started, "state": { "running": {} } });
        let container =
            json!([{ "name": "c", probe: { "httpGet": { "path": "/healthz", "port": 8080 }, "periodSeconds": 3 } }]);
        pod(json!({ "spec": { "containers": container }, "status": { "containerStatuses": [status] } }))
    };
    let failing = probed("readinessProbe", true);
    let refused =
        event(&failing, "Unhealthy", "Readiness probe failed: dial tcp 10.0.0.1:8080: connect: connection refused");
    for (what, world, texts) in [
        (
            "readiness",
            world(failing.clone(), &[("events", json!([refused]))]),
            &["readinessProbe fails", "GET /healthz on port 8080, every 3 s", "nothing listens on port 8080"][..],
        ),
        ("not yet", world(failing, &[]), &["on its way", "has not succeeded yet"]),
        ("startup", world(probed("startupProbe", false), &[]), &["its startupProbe has not succeeded yet"]),
    ] {
        check(what, &world, Some((Hop::Ready, texts)));
    }
}
