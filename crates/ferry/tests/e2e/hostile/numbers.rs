//! Numbers that nobody means: seconds beyond every calendar, processes and lines without end.

use serde_json::{Value, json};

use super::limited::{JSON, call, grant, rule};
use crate::alone::{Apiserver, runtime};
use crate::cluster::{Cluster, until};
use crate::{Alone, Scenario};

pub const ALONE: &[Alone] =
    &[("hostile::numbers::seconds_beyond_every_calendar_harm_nobody", seconds_beyond_every_calendar_harm_nobody)];

pub const SCENARIOS: &[Scenario] = &[
    ("hostile::numbers::a_grace_period_without_end_ends_with_the_pod", a_grace_period_without_end_ends_with_the_pod),
    ("hostile::numbers::processes_of_all_pods_are_limited", processes_of_all_pods_are_limited),
];

const PODS: &str = "/api/v1/namespaces/default/pods";

fn seconds_beyond_every_calendar_harm_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Apiserver::start(folder.path(), &["--disable-admission-plugins=ServiceAccount"]);
    runtime().block_on(async {
        let (admin, mallory) = (server.client().await, server.mallory().await);
        let id = server.id();
        grant(&admin, json!([rule("", &["pods"], &["get", "watch", "list", "create", "delete", "deletecollection"])])).await;
        for (name, seconds) in [("a", i64::MAX), ("b", i64::MAX / 1000), ("c", 400_000_000_000)] {
            let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
                "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}], "terminationGracePeriodSeconds": seconds}});
            let (code, answer) = call(&mallory, "POST", PODS, &[JSON], &pod).await;
            assert_eq!(code, 201, "{answer}");
            let path = format!("{PODS}/{name}");
            // As the pod says, then as the request says, then sooner.
            for query in [String::new(), format!("?gracePeriodSeconds={}", seconds - 1), "?gracePeriodSeconds=5".into()] {
                let (code, answer) = call(&mallory, "DELETE", &format!("{path}{query}"), &[], &Value::Null).await;
                assert_eq!(code, 200, "{query}: {answer}");
                assert!(answer["metadata"]["deletionTimestamp"].is_string(), "{answer}");
            }
            let (_, left) = call(&mallory, "GET", &path, &[], &Value::Null).await;
            assert_eq!(left["metadata"]["deletionGracePeriodSeconds"], 5, "{left}");
        }
        for seconds in ["9223372036854775807", "-9223372036854775808"] {
            let path = format!("{PODS}?watch=1&timeoutSeconds={seconds}");
            let request = http::Request::get(path).body(Vec::new().into()).unwrap();
            assert_eq!(mallory.send(request).await.unwrap().status(), 200, "{seconds}");
            let path = format!("{PODS}?gracePeriodSeconds={seconds}&timeoutSeconds={seconds}");
            let (code, answer) = call(&mallory, "DELETE", &path, &[], &Value::Null).await;
            assert_eq!(code, 200, "{answer}");
        }
        let (code, _) = call(&admin, "GET", "/livez", &[], &Value::Null).await;
        assert_eq!((code, server.id()), (200, id));
    });
}

/// The runtime's protocol has no words for so many seconds: the pod's worker ended with a panic, again and again.
fn a_grace_period_without_end_ends_with_the_pod(cluster: &mut Cluster) {
    cluster.apply(
        "
apiVersion: v1
kind: Pod
metadata: {name: patient}
spec:
  terminationGracePeriodSeconds: 9223372036854775807
  containers:
  - name: main
    image: busybox:1.36
    command: [sh, -c, 'trap \"exit 0\" TERM; while :; do sleep 1; done']
",
    );
    until("the pod runs", || {
        let shown = cluster.kubectl(&["get", "pod", "patient", "-o", "jsonpath={.status.phase}"]);
        (shown == "Running").then_some(())
    });
    cluster.kubectl(&["delete", "pod", "patient", "--wait=false"]);
    until("the pod is gone", || (!cluster.try_kubectl(&["get", "pod", "patient"], "").status.success()).then_some(()));
}

/// One group holds all pods, and leaves processes for the node.
fn processes_of_all_pods_are_limited(cluster: &mut Cluster) {
    cluster.apply(
        "
apiVersion: v1
kind: Pod
metadata: {name: counted}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: main, image: 'busybox:1.36', command: [sleep, '3600']}]
",
    );
    until("the pod runs", || {
        let shown = cluster.kubectl(&["get", "pod", "counted", "-o", "jsonpath={.status.phase}"]);
        (shown == "Running").then_some(())
    });
    let uid = cluster.kubectl(&["get", "pod", "counted", "-o", "jsonpath={.metadata.uid}"]);
    let groups =
        ["/sys/fs/cgroup/pids/ferrytest/kubepods", "/sys/fs/cgroup/ferrytest/kubepods"].map(std::path::Path::new);
    let all = groups.into_iter().find(|path| path.join("pids.max").exists()).expect("a group that counts processes");
    let number = |path: &std::path::Path| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let machine = number("/proc/sys/kernel/pid_max".as_ref()).expect("the machine's limit");
    let limit = number(&all.join("pids.max")).expect("a limit");
    assert!(limit < machine, "{limit} of {machine}");
    let pod = all.join("besteffort").join(format!("pod{uid}"));
    assert!(number(&pod.join("pids.current")).is_some_and(|count| count >= 1), "its processes are counted");
    cluster.kubectl(&["delete", "pod", "counted", "--wait=false"]);
}
