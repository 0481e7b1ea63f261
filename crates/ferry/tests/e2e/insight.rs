//! `ferry trace` and `ferry why` on real pods.

use crate::cluster::Cluster;

/// The exit code and what was printed.
pub fn ask(cluster: &Cluster, arguments: &[&str]) -> (Option<i32>, String) {
    let kubeconfig = cluster.data_dir().join("kubeconfig");
    let output = cluster.ferry().args(arguments).arg("--kubeconfig").arg(kubeconfig).output().expect("ferry runs");
    let text = [output.stdout, output.stderr].map(|part| String::from_utf8_lossy(&part).into_owned()).concat();
    (output.status.code(), text)
}

/// What holds an object up says so in these words.
pub fn why(cluster: &Cluster, object: &str, words: &[&str]) {
    let (code, text) = ask(cluster, &["why", object]);
    assert_eq!(code, Some(1), "{text}");
    for word in words {
        assert!(text.contains(word), "{word:?} is not in {text}");
    }
}

/// Follows the pods that the first scenario left behind.
pub fn a_trace_shows_every_hop(cluster: &mut Cluster) {
    let (code, text) = ask(cluster, &["trace", "deploy/nginx-demo", "--follow"]);
    assert_eq!(code, Some(0), "{text}");
    for hop in [
        "request: create deployment.apps/nginx-demo",
        "05  schema validation",
        "06  validating admission",
        "07  store",
        "controller: ReplicaSet nginx-demo-",
        "controller: Pod nginx-demo-",
        "scheduler binds it to e2e",
        "kubelet: containers started",
        "pod is Ready",
        "service nginx-demo: EndpointSlice lists it",
        "where the time went",
    ] {
        assert!(text.contains(hop), "{hop:?} is not in {text}");
    }
    // However often it was looked at, each hop is there once.
    for hop in ["request: create", "07  store", "scheduler binds it", "pod is Ready"] {
        assert_eq!(text.matches(hop).count(), 1, "{hop:?} in {text}");
    }
    let (code, text) = ask(cluster, &["why", "deployment", "nginx-demo"]);
    assert_eq!((code, text.contains("nothing holds it up")), (Some(0), true), "{text}");
    assert_eq!(ask(cluster, &["why", "po/absent"]).0, Some(2));
    assert_eq!(ask(cluster, &["why", "nonsense/x"]).0, Some(2));
}
