//! `ferry kubectl cp`: what is copied is what was there, and it ends whatever the container does.

use std::path::Path;
use std::process::Output;

use crate::alone::text;
use crate::cluster::Cluster;

/// More than all buffers on the way hold together.
const LARGE: usize = 5 << 20;

fn cp(cluster: &Cluster, from: &str, to: &str) -> Output {
    let kubeconfig = cluster.data_dir().join("kubeconfig");
    let words = ["kubectl", "--kubeconfig", text(&kubeconfig), "cp", from, to];
    cluster.ferry().args(words).env("HOME", cluster.data_dir()).output().expect("ferry runs")
}

fn copied(cluster: &Cluster, from: &str, to: &str) {
    let output = cp(cluster, from, to);
    assert!(output.status.success(), "cp {from} {to}: {}", String::from_utf8_lossy(&output.stderr));
}

fn refused(cluster: &Cluster, from: &str, to: &str) {
    let output = cp(cluster, from, to);
    assert!(!output.status.success(), "cp {from} {to}: {}", String::from_utf8_lossy(&output.stdout));
}

pub fn files_are_copied_both_ways(cluster: &mut Cluster) {
    cluster.apply(
        r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"copying"},"spec":{"terminationGracePeriodSeconds":0,
        "containers":[{"name":"c","image":"busybox:1.36","command":["sleep","1000"],
        "volumeMounts":[{"name":"here","mountPath":"/here"},{"name":"closed","mountPath":"/closed","readOnly":true}]}],
        "volumes":[{"name":"here","emptyDir":{}},{"name":"closed","emptyDir":{}}]}}"#,
    );
    cluster.kubectl(&["wait", "pod/copying", "--for=condition=Ready", "--timeout=180s"]);
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let content: Vec<u8> = (0..LARGE).map(|place| (place.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
    std::fs::create_dir_all(at("tree/below")).unwrap();
    std::fs::write(at("tree/below/large"), &content).unwrap();
    std::fs::write(at("tree/small"), "small").unwrap();

    copied(cluster, text(&at("tree")), "copying:/here/tree");
    copied(cluster, "copying:/here/tree", text(&at("back")));
    assert!(std::fs::read(at("back/below/large")).unwrap() == content, "what came back is what was sent");
    assert_eq!(std::fs::read_to_string(at("back/small")).unwrap(), "small");

    // tar ends before it has read what it is sent.
    refused(cluster, text(&at("tree")), "copying:/closed/tree");
    refused(cluster, "copying:/here/nothing", text(&at("nothing")));
    // There is no such folder to write to: whoever unpacks ends before the container does.
    std::fs::write(at("in-the-way"), "").unwrap();
    refused(cluster, "copying:/here/tree", text(&at("in-the-way/tree")));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3, "tree, back and in-the-way");
    assert!(!Path::new("/here").exists());
    cluster.kubectl(&["delete", "pod", "copying", "--wait=true"]);
}
