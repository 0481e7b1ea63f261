//! Containers that do not start, end, or are not ready.

use serde_json::{Value, json};

use super::super::Reason;
use super::{Situation, check_all, conditions, event, merge, node, pod, waiting, world};
use crate::world::{Content, Presence};

fn status(state: Value, more: Value) -> Value {
    let mut status = json!({ "name": "c", "image": "img", "ready": false, "state": state });
    merge(&mut status, &more);
    pod(json!({ "status": { "phase": "Running", "containerStatuses": [status] } }))
}

#[test]
fn containers() {
    let nodes = ("nodes", json!([node("n", "True")]));
    let here = |pod: Value| world(pod, std::slice::from_ref(&nodes));
    let noted = |pod: Value, plural: &str, name: &str, presence: Presence| {
        let mut world = here(pod);
        world.note(plural, name, presence);
        world
    };
    let mut env = waiting("CreateContainerConfigError", "configmap \"cfg\" not found");
    merge(
        &mut env,
        &json!({ "spec": { "containers": [{ "name": "c", "env": [{ "name": "A", "valueFrom": { "configMapKeyRef": { "name": "cfg", "key": "a" } } }] }] } }),
    );
    let mut all = waiting("CreateContainerConfigError", "secret \"s\" not found");
    merge(
        &mut all,
        &json!({ "spec": { "containers": [{ "name": "c", "envFrom": [{ "secretRef": { "name": "s" } }] }] } }),
    );
    let mut mounted = waiting("ContainerCreating", "");
    merge(
        &mut mounted,
        &json!({ "spec": { "volumes": [{ "name": "tls", "secret": { "secretName": "cert", "items": [{ "key": "tls.crt", "path": "x" }] } }] } }),
    );
    let keys = |keys: &[&str]| {
        Presence::Present(Content { keys: keys.iter().map(|key| (*key).to_owned()).collect(), ..Content::default() })
    };
    let ended = |code: i64, reason: &str, message: &str| json!({ "terminated": { "exitCode": code, "reason": reason, "message": message, "startedAt": "2026-01-01T11:58:00Z", "finishedAt": "2026-01-01T11:59:00Z" } });
    let again = |code: i64, reason: &str, message: &str| {
        status(
            json!({ "waiting": { "reason": "CrashLoopBackOff" } }),
            json!({ "restartCount": 3, "lastState": ended(code, reason, message) }),
        )
    };
    let running = json!({ "running": { "startedAt": "2026-01-01T11:59:30Z" } });
    let mut alive =
        status(running.clone(), json!({ "ready": true, "restartCount": 1, "lastState": ended(137, "Error", "") }));
    merge(
        &mut alive,
        &json!({ "spec": { "containers": [{ "name": "c", "livenessProbe": { "httpGet": { "path": "/x", "port": 81 } } }] }, "status": { "conditions": conditions(&[("Ready", "True")]) } }),
    );
    let killed = event(&alive, "Unhealthy", "Liveness probe failed: HTTP probe failed with statuscode: 500");
    let mut probed = status(running.clone(), json!({}));
    merge(
        &mut probed,
        &json!({ "spec": { "containers": [{ "name": "c", "ports": [{ "name": "web", "containerPort": 80 }], "readinessProbe": { "httpGet": { "path": "/", "port": "http" } } }] } }),
    );
    let refused = event(&probed, "Unhealthy", "Readiness probe errored: strconv.Atoi: invalid port");
    let mut root = waiting("CreateContainerConfigError", "container has runAsNonRoot and image will run as root");
    merge(&mut root, &json!({ "spec": { "securityContext": { "runAsNonRoot": true } } }));
    let init = json!({ "spec": { "initContainers": [{ "name": "setup" }] }, "status": { "phase": "Pending", "initContainerStatuses": [{ "name": "setup", "restartCount": 2, "state": { "waiting": { "reason": "CrashLoopBackOff" } }, "lastState": ended(1, "Error", "") }] } });
    let over = |reason: &str, message: &str| {
        pod(json!({ "status": { "phase": "Failed", "reason": reason, "message": message } }))
    };
    let host =
        json!({ "spec": { "volumes": [{ "name": "h", "hostPath": { "path": "/nope", "type": "Directory" } }] } });
    let mut hosting = waiting("ContainerCreating", "");
    merge(&mut hosting, &host);
    let not_there = event(
        &hosting,
        "FailedMount",
        "MountVolume.SetUp failed for volume \"h\" : hostPath type check failed: /nope is not a directory",
    );
    let mut hooked = waiting("PostStartHookError", "PostStartHook failed");
    merge(&mut hooked, &json!({}));
    let rows: Vec<Situation<'_>> = vec![
        (
            "config map",
            noted(env.clone(), "configmaps", "cfg", Presence::Absent),
            Reason::ConfigMapMissing,
            &[
                "the environment of container c needs the ConfigMap \"cfg\", and there is none in namespace d",
                "kubectl create configmap -n d cfg --from-literal=a=VALUE",
            ],
        ),
        (
            "its key",
            noted(env, "configmaps", "cfg", keys(&["b"])),
            Reason::KeyMissing,
            &["the key \"a\" of the ConfigMap \"cfg\"", "it has b", "kubectl edit -n d configmap/cfg"],
        ),
        ("secret", noted(all, "secrets", "s", Presence::Absent), Reason::SecretMissing, &["the Secret \"s\""]),
        (
            "volume's secret",
            noted(mounted.clone(), "secrets", "cert", Presence::Absent),
            Reason::SecretMissing,
            &["its volume \"tls\" needs the Secret \"cert\""],
        ),
        (
            "volume's key",
            noted(mounted, "secrets", "cert", keys(&["tls.key"])),
            Reason::KeyMissing,
            &["its volume \"tls\" needs the key \"tls.crt\" of the Secret \"cert\""],
        ),
        ("root", here(root), Reason::RunAsRoot, &["must not run as root", "securityContext.runAsUser"]),
        (
            "no command",
            here(waiting(
                "RunContainerError",
                "runc create failed: unable to start container process: exec: \"nosuch\": executable file not found in $PATH",
            )),
            Reason::CommandMissing,
            &["is not in the image"],
        ),
        (
            "start error",
            here(again(128, "StartError", "exec: \"x\": executable file not found in $PATH")),
            Reason::CommandMissing,
            &["is not in the image"],
        ),
        ("hook", here(hooked), Reason::HookFailed, &["postStart hook of container c"]),
        ("memory", here(again(137, "OOMKilled", "")), Reason::OutOfMemory, &["OOMKilled"]),
        ("success", here(again(0, "Completed", "")), Reason::ExitsAtOnce, &["as if its work were done"]),
        (
            "crash",
            here(again(139, "Error", "")),
            Reason::Crash,
            &["segmentation fault", "kubectl logs -n d p -c c --previous"],
        ),
        ("init crash", here(pod(init)), Reason::Crash, &["init container setup ends", "the other containers wait"]),
        (
            "between restarts",
            world(alive.clone(), &[nodes.clone(), ("events", json!([killed]))]),
            Reason::LivenessRestarts,
            &["restarted by its kubelet because its livenessProbe fails", "GET /x on port 81", "between two restarts"],
        ),
        (
            "port of the probe",
            world(probed, &[nodes.clone(), ("events", json!([refused]))]),
            Reason::ProbeFails,
            &["names the port \"http\", which the container does not have: it has web"],
        ),
        (
            "host path",
            world(hosting, &[nodes.clone(), ("events", json!([not_there]))]),
            Reason::Volume,
            &["wants the host's /nope to be a Directory"],
        ),
        (
            "evicted",
            here(over("Evicted", "The node was low on resource: memory.")),
            Reason::Evicted,
            &["node n evicted it", "nothing else does, since it has no controller"],
        ),
        (
            "rejected",
            here(over("OutOfcpu", "Node didn't have enough resource: cpu")),
            Reason::PodRejected,
            &["the kubelet of n refused it: OutOfcpu"],
        ),
        (
            "deadline",
            here(over("DeadlineExceeded", "Pod was active on the node longer than the specified deadline")),
            Reason::PodDeadline,
            &["activeDeadlineSeconds"],
        ),
        (
            "no node any more",
            world(
                pod(json!({ "status": { "conditions": conditions(&[("PodScheduled", "True")]) } })),
                &[("nodes", json!([]))],
            ),
            Reason::PodNodeMissing,
            &["its node n does not exist", "since it has no controller"],
        ),
    ];
    check_all(&rows);
}
