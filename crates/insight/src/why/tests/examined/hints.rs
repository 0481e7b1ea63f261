//! What a container that ends has written, and what of its pod and its namespace that is about.

use serde_json::json;

use super::*;

#[test]
fn what_logs_lead_to() {
    let liveness = json!({ "spec": { "containers": [{ "name": "c", "image": "img", "livenessProbe": { "httpGet": { "path": "/", "port": 80 } } }] } });
    let unhealthy = warned(
        "Pod/p",
        "Unhealthy",
        "Liveness probe failed: Get \"http://10.0.0.1:80/\": dial tcp 10.0.0.1:80: connect: connection refused",
    );
    let killing = |text: &str| {
        with(
            warned("Pod/p", "Killing", text),
            &json!({ "type": "Normal", "involvedObject": { "fieldPath": "spec.containers{c}" } }),
        )
    };
    let since = json!({ "lastTimestamp": "2026-01-01T11:57:10Z" });
    let service = |name: &str, parts: Value| {
        made(
            "Service",
            name,
            with(
                json!({ "spec": { "clusterIP": "10.96.0.7", "selector": { "app": name }, "ports": [{ "port": 5432 }] } }),
                &parts,
            ),
        )
    };
    let slice = |of: &str, ready: bool| {
        made(
            "EndpointSlice",
            &format!("{of}-1"),
            json!({ "metadata": { "labels": { "kubernetes.io/service-name": of } }, "endpoints": [{ "addresses": ["10.0.0.9"], "conditions": { "ready": ready } }] }),
        )
    };
    let context =
        |parts: Value| json!({ "spec": { "containers": [{ "name": "c", "image": "img", "securityContext": parts }] } });
    let start = |message: &str, command: Value| {
        crashing(
            json!({ "exitCode": 128, "reason": "StartError", "message": message }),
            json!({ "spec": { "containers": [{ "name": "c", "image": "img", "command": command }] } }),
        )
    };
    let cases: Vec<Case<'_>> = vec![
        (
            "a command in one word",
            "pod/p",
            json!([start(
                "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: exec: \"python app.py\": executable file not found in $PATH: unknown",
                json!(["python app.py"])
            )]),
            Stuck(Reason::CommandMissing),
            &["its first word is \"python app.py\", spaces and all"],
        ),
        (
            "two words, and no program",
            "pod/p",
            json!([start(
                "unable to start container process: exec: \"pyton\": executable file not found in $PATH: unknown",
                json!(["pyton", "app.py"])
            )]),
            Stuck(Reason::CommandMissing),
            &["`pyton app.py`", "!spaces and all"],
        ),
        (
            "an end of its own beside a probe that failed once",
            "pod/p",
            json!([
                crashing(json!({}), liveness.clone()),
                with(unhealthy.clone(), &since),
                log("p/c", "panic: no configuration\n")
            ]),
            Stuck(Reason::Crash),
            &["its log says: panic: no configuration", "!is restarted by its kubelet"],
        ),
        (
            "killed for its probe, and ends with a code of its own",
            "pod/p",
            json!([
                crashing(json!({ "exitCode": 2 }), liveness.clone()),
                with(unhealthy.clone(), &since),
                with(
                    killing("Container c failed liveness probe, will be restarted"),
                    &json!({ "lastTimestamp": "2026-01-01T11:57:15Z" })
                )
            ]),
            Stuck(Reason::LivenessRestarts),
            &["livenessProbe fails (5 restarts so far)"],
        ),
        (
            "killed for its probe, by a signal",
            "pod/p",
            json!([crashing(json!({ "exitCode": 137 }), liveness), with(unhealthy, &since)]),
            Stuck(Reason::LivenessRestarts),
            &["livenessProbe fails (5 restarts so far)"],
        ),
        (
            "a Service without endpoints, by its address",
            "pod/p",
            json!([
                crashing(json!({}), json!({})),
                service("db", json!({})),
                slice("db", false),
                log("p/c", "connecting\nerror: dial tcp 10.96.0.7:5432: connect: connection refused\n")
            ]),
            Stuck(Reason::Crash),
            &["the Service db", "ferry why -n d service/db"],
        ),
        (
            "a Service without endpoints, by its name",
            "pod/p",
            json!([
                crashing(json!({}), json!({})),
                service("db", json!({})),
                log(
                    "p/c",
                    "psycopg2.OperationalError: connection to server at \"db\" (10.96.0.7), port 5432 failed: Connection refused\n"
                )
            ]),
            Stuck(Reason::Crash),
            &["the Service db", "ferry why -n d service/db"],
        ),
        (
            "a Service that answers",
            "pod/p",
            json!([
                crashing(json!({}), json!({})),
                service("db", json!({})),
                slice("db", true),
                log("p/c", "error: connect db:5432: password authentication failed\n")
            ]),
            Stuck(Reason::Crash),
            &["password authentication failed", "!ferry why -n d service/db"],
        ),
        (
            "a name that is no Service",
            "pod/p",
            json!([
                crashing(json!({}), json!({})),
                service("redis-master", json!({})),
                slice("redis-master", true),
                log("p/c", "Error: dial tcp: lookup redis on 10.96.0.10:53: no such host\n")
            ]),
            Stuck(Reason::Crash),
            &["there is no Service \"redis\" in namespace d", "redis-master"],
        ),
        (
            "a name of another namespace",
            "pod/p",
            json!([crashing(json!({}), json!({})), log("p/c", "getaddrinfo ENOTFOUND cache.prod.svc.cluster.local\n")]),
            Stuck(Reason::Crash),
            &["cache.prod.svc.cluster.local", "!there is no Service"],
        ),
        (
            "a name of the outside",
            "pod/p",
            json!([crashing(json!({}), json!({})), log("p/c", "could not resolve host: api.example.com\n")]),
            Stuck(Reason::Crash),
            &["api.example.com", "!Service"],
        ),
        (
            "a file system that may not be written to",
            "pod/p",
            json!([
                crashing(json!({}), context(json!({ "readOnlyRootFilesystem": true }))),
                log("p/c", "mkdir: cannot create directory '/var/cache/nginx': Read-only file system\n")
            ]),
            Stuck(Reason::Crash),
            &["readOnlyRootFilesystem", "emptyDir"],
        ),
        (
            "a volume that may not be written to",
            "pod/p",
            json!([
                crashing(
                    json!({}),
                    json!({ "spec": { "containers": [{ "name": "c", "image": "img", "volumeMounts": [{ "name": "cfg", "mountPath": "/etc/app" }] }], "volumes": [{ "name": "cfg", "configMap": { "name": "cfg" } }] } })
                ),
                made("ConfigMap", "cfg", json!({ "data": { "a": "1" } })),
                log("p/c", "sh: can't create /etc/app/x: Read-only file system\n")
            ]),
            Stuck(Reason::Crash),
            &["its volume \"cfg\"", "cannot be written to"],
        ),
        (
            "a user without rights",
            "pod/p",
            json!([
                crashing(json!({}), context(json!({ "runAsUser": 1000, "capabilities": { "drop": ["ALL"] } }))),
                log("p/c", "bind() to 0.0.0.0:80 failed (13: Permission denied)\n")
            ]),
            Stuck(Reason::Crash),
            &["runs as user 1000", "capabilities"],
        ),
        (
            "another kind of machine",
            "pod/p",
            json!([crashing(json!({ "exitCode": 255 }), json!({})), log("p/c", "exec /app: exec format error\n")]),
            Stuck(Reason::CommandMissing),
            &["not made for the node's kind of machine"],
        ),
        (
            "a script whose interpreter is missing",
            "pod/p",
            json!([
                crashing(
                    json!({ "exitCode": 127 }),
                    json!({ "spec": { "containers": [{ "name": "c", "image": "img", "command": ["/run.sh"] }] } })
                ),
                log("p/c", "exec /run.sh: no such file or directory\n")
            ]),
            Stuck(Reason::Crash),
            &["exec /run.sh: no such file or directory", "interpreter"],
        ),
    ];
    examine(&cases);
}
