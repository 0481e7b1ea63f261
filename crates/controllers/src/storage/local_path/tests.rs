use std::sync::Arc;

use ferry_semantics::local_volumes::{PROVISIONER, SERVES};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use serde_json::{Value, json};

use super::plan::*;

const UID: &str = "0f8fad5b-d9cb-469f-a165-70867728950e";
const NAME: &str = "pvc-0f8fad5b-d9cb-469f-a165-70867728950e";

fn merged(mut into: Value, from: Value) -> Value {
    fn merge(into: &mut Value, from: Value) {
        match (into, from) {
            (Value::Object(into), Value::Object(from)) => {
                for (key, value) in from {
                    merge(into.entry(key).or_insert(Value::Null), value);
                }
            }
            (into, from) => *into = from,
        }
    }
    merge(&mut into, from);
    into
}

fn a_claim(change: Value) -> PersistentVolumeClaim {
    let object = json!({
        "metadata": { "name": "data", "namespace": "n", "uid": UID, "annotations": {
            "volume.kubernetes.io/storage-provisioner": PROVISIONER, SELECTED_NODE: "one",
        } },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "local-path",
            "resources": { "requests": { "storage": "1Gi" } },
        },
    });
    serde_json::from_value(merged(object, change)).expect("a claim")
}

fn a_class(change: Value) -> StorageClass {
    let object = json!({
        "metadata": { "name": "local-path" }, "provisioner": PROVISIONER, "volumeBindingMode": "WaitForFirstConsumer",
        "reclaimPolicy": "Delete",
    });
    serde_json::from_value(merged(object, change)).expect("a class")
}

fn a_node(change: Value) -> Arc<Node> {
    let object = json!({
        "metadata": { "name": "one", "labels": { "kubernetes.io/hostname": "one" }, "annotations": { SERVES: "/x" } },
        "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
    });
    Arc::new(serde_json::from_value(merged(object, change)).expect("a node"))
}

fn said(step: ClaimStep) -> String {
    match step {
        ClaimStep::Ignore => "ignored".into(),
        ClaimStep::Refuse(why) => format!("refused: {why}"),
        ClaimStep::Reschedule(why) => format!("elsewhere: {why}"),
        ClaimStep::Provision { node, name, bytes } => format!("{node} {name} {bytes}"),
    }
}

fn check(change: Value, class: Value, node: Option<Value>, want: &str) {
    let found = said(claim(&a_claim(change.clone()), Some(&a_class(class.clone())), |_| node.map(a_node), true));
    assert!(found.contains(want) && !want.is_empty(), "{change} {class}: {found:?} is not {want:?}");
}

#[test]
fn claims_get_a_folder_or_hear_why_not() {
    let here = || Some(json!({}));
    let spec = |field: &str, value: Value| json!({ "spec": { field: value } });
    let made = format!("one {NAME} 1073741824");
    check(json!({}), json!({}), here(), &made);
    check(spec("accessModes", json!(["ReadWriteOncePod"])), json!({}), here(), &made);
    check(spec("volumeMode", json!("Filesystem")), json!({}), here(), &made);
    for mode in ["ReadWriteMany", "ReadOnlyMany"] {
        let why = format!("refused: access mode {mode} is not supported");
        check(spec("accessModes", json!(["ReadWriteOnce", mode])), json!({}), here(), &why);
    }
    check(spec("volumeMode", json!("Block")), json!({}), here(), "refused: volumeMode Block is not supported");
    check(spec("selector", json!({})), json!({}), here(), "refused: the claim has a selector");
    let source = json!({ "kind": "PersistentVolumeClaim", "name": "other" });
    check(spec("dataSource", source.clone()), json!({}), here(), "refused: the claim has a data source");
    check(spec("dataSourceRef", source), json!({}), here(), "refused: the claim has a data source");
    let attributes = spec("volumeAttributesClassName", json!("gold"));
    check(attributes, json!({}), here(), "refused: the claim has a volumeAttributesClassName");
    check(
        spec("resources", json!({ "requests": { "storage": "0" } })),
        json!({}),
        here(),
        "refused: the claim requests no",
    );

    let unknown = json!({ "parameters": { "nodePath": "/etc", "../x": "", "c": "", "d": "" } });
    check(json!({}), unknown, here(), r#"unknown parameters: "../x", "c", "d". It takes none"#);
    let long = json!({ "parameters": { "x".repeat(9000): "" } });
    check(json!({}), long, here(), &format!("\"{}\"", "x".repeat(63)));
    check(json!({}), json!({ "mountOptions": ["noatime"] }), here(), "has mountOptions");
    check(json!({}), json!({ "volumeBindingMode": "Immediate" }), here(), "no volumeBindingMode: WaitForFirstConsumer");

    let annotation = |key: &str, value: Value| json!({ "metadata": { "annotations": { key: value } } });
    check(annotation("volume.kubernetes.io/storage-provisioner", json!("other")), json!({}), here(), "ignored");
    check(annotation(SELECTED_NODE, json!("")), json!({}), here(), "ignored");
    check(json!({}), json!({ "provisioner": "other" }), here(), "ignored");
    check(spec("volumeName", json!("there")), json!({}), here(), "ignored");
    check(json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } }), json!({}), here(), "ignored");
    assert_eq!(said(claim(&a_claim(json!({})), None, |_| Some(a_node(json!({}))), true)), "ignored");
    check(json!({ "metadata": { "uid": "../../etc" } }), json!({}), here(), "refused: the claim has no UID");
    let off = said(claim(&a_claim(json!({})), Some(&a_class(json!({}))), |_| Some(a_node(json!({}))), false));
    assert!(off.contains("--local-path=false"), "{off}");
}

#[test]
fn a_node_that_cannot_have_it_is_given_back() {
    check(json!({}), json!({}), None, "elsewhere: the node that was chosen for it does not exist");
    let away = json!({ "status": { "conditions": [{ "type": "Ready", "status": "Unknown" }] } });
    check(json!({}), json!({}), Some(away), "elsewhere: node one is not ready");
    let other = json!({ "metadata": { "annotations": null } });
    check(json!({}), json!({}), Some(other), "elsewhere: node one makes no local volumes");
    // It would lead pods, and the path that it names, to another node.
    let label = json!({ "metadata": { "labels": { "kubernetes.io/hostname": "two" } } });
    check(json!({}), json!({}), Some(label), "label kubernetes.io/hostname that is not its name");
}

#[test]
fn a_node_names_no_other_path() {
    for (path, want) in [
        (format!("/var/lib/ferry/local-path/{NAME}"), true),
        (format!("/{NAME}"), true),
        ("/etc".to_owned(), false),
        (format!("/etc/../{NAME}"), false),
        (format!("local-path/{NAME}"), false),
        (format!("/x/{NAME}/"), false),
        (format!("/x/{NAME}/.."), false),
        (format!("/{}/{NAME}", "x".repeat(5000)), false),
        (String::new(), false),
    ] {
        assert_eq!(is_path(&path, NAME), want, "{path}");
    }
}

fn a_volume(change: Value) -> PersistentVolume {
    let claim = a_claim(json!({}));
    let made = volume_for(&claim, &a_class(json!({})), "one", NAME, &format!("/d/local-path/{NAME}"));
    let object = serde_json::to_value(made).expect("a value");
    let released = json!({ "status": { "phase": "Released" } });
    serde_json::from_value(merged(merged(object, released), change)).expect("a volume")
}

#[test]
fn a_volume_says_all_that_its_pods_need() {
    let volume = serde_json::to_value(a_volume(json!({}))).expect("a value");
    assert_eq!(volume["metadata"]["annotations"]["pv.kubernetes.io/provisioned-by"], PROVISIONER);
    assert_eq!(volume["metadata"]["finalizers"], json!([FINALIZER]));
    let spec = &volume["spec"];
    assert_eq!(spec["capacity"], json!({ "storage": "1Gi" }));
    assert_eq!((&spec["accessModes"], &spec["volumeMode"]), (&json!(["ReadWriteOnce"]), &json!("Filesystem")));
    assert_eq!(spec["local"], json!({ "path": format!("/d/local-path/{NAME}") }));
    assert_eq!((&spec["claimRef"]["uid"], &spec["claimRef"]["name"]), (&json!(UID), &json!("data")));
    assert_eq!(spec["persistentVolumeReclaimPolicy"], "Delete");
    let term = json!({ "key": "kubernetes.io/hostname", "operator": "In", "values": ["one"] });
    assert_eq!(spec["nodeAffinity"]["required"]["nodeSelectorTerms"], json!([{ "matchExpressions": [term] }]));
    assert_eq!(node_of(&a_volume(json!({}))), Some("one"));
}

#[test]
fn data_goes_when_its_volume_is_given_up_and_not_before() {
    use NodeState::{Away, Gone, Ready};
    let check = |change: Value, state: NodeState, want: &str| {
        let step = match volume(&a_volume(change.clone()), |_| state) {
            VolumeStep::Leave => "leave".to_owned(),
            VolumeStep::LetGo => "let go".to_owned(),
            VolumeStep::Remove { node } => format!("remove on {node}"),
            VolumeStep::Tell(why) => format!("told: {why}"),
        };
        assert!(step.contains(want), "{change} {state:?}: {step:?} is not {want:?}");
    };
    let phase = |phase: &str| json!({ "status": { "phase": phase } });
    let spec = |field: &str, value: Value| json!({ "spec": { field: value } });
    let going = |finalizers: &[&str]| json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": finalizers } });
    check(json!({}), Ready, "remove on one");
    check(json!({}), Away, "told: node one is not ready. Its data is removed when the node is back");
    check(json!({}), Gone, "told: node one has left the cluster");
    for other in ["Bound", "Available", "Pending", "Failed"] {
        check(phase(other), Ready, "leave");
    }
    let retain = spec("persistentVolumeReclaimPolicy", json!("Retain"));
    check(retain.clone(), Ready, "leave");
    check(merged(retain, going(&[FINALIZER])), Ready, "let go");
    // Deleted while a claim has it: the claim comes first.
    let bound = |finalizers: &[&str]| merged(phase("Bound"), going(finalizers));
    check(bound(&[FINALIZER, "kubernetes.io/pv-protection"]), Ready, "leave");
    // Without StorageObjectInUseProtection, or where somebody took the finalizer away.
    for state in [Ready, Away, Gone] {
        check(bound(&[FINALIZER]), state, "leave");
    }
    check(going(&[FINALIZER, "kubernetes.io/pv-protection"]), Ready, "leave");
    check(going(&[FINALIZER]), Ready, "remove on one");
    check(going(&[FINALIZER]), Away, "told: node one is not ready");
    check(going(&[FINALIZER]), Gone, "let go");
    // Nobody had it yet.
    check(merged(phase("Pending"), going(&[FINALIZER])), Ready, "remove on one");
    check(going(&["example.com/other"]), Ready, "leave");
    // What the provisioner did not make is not its to remove.
    let by = json!({ "metadata": { "annotations": { "pv.kubernetes.io/provisioned-by": "other" } } });
    check(by, Ready, "leave");
    let elsewhere = spec("local", json!({ "path": "/etc" }));
    check(elsewhere.clone(), Ready, "told: it is not as the provisioner makes volumes");
    check(merged(elsewhere, going(&[FINALIZER])), Ready, "let go");
    let name = json!({ "metadata": { "name": "etc" }, "spec": { "local": { "path": "/etc" } } });
    check(name, Ready, "told: it is not as");
    let affinity = |term: Value| spec("nodeAffinity", json!({ "required": { "nodeSelectorTerms": [term] } }));
    let label = |key: &str, values: &[&str]| {
        affinity(json!({ "matchExpressions": [{ "key": key, "operator": "In", "values": values }] }))
    };
    check(label("kubernetes.io/hostname", &["one", "two"]), Ready, "told: it is not as");
    check(label("zone", &["one"]), Ready, "told: it is not as");
}

#[test]
fn an_empty_folder_is_left_where_its_volume_is_not() {
    assert!(is_left(None, "one"));
    assert!(!is_left(Some(&a_volume(json!({}))), "one"));
    // The attempt on that node failed without a word, and another node made the volume.
    assert!(is_left(Some(&a_volume(json!({}))), "two"));
    // Where the volume is, nobody can tell: it may be here.
    let changed = json!({ "spec": { "nodeAffinity": null } });
    assert!(!is_left(Some(&a_volume(changed)), "two"));
    let by = json!({ "metadata": { "annotations": { "pv.kubernetes.io/provisioned-by": "other" } } });
    assert!(!is_left(Some(&a_volume(by)), "two"));
}

#[test]
fn a_claim_that_goes_without_a_volume_may_leave_a_folder() {
    let going = json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } });
    assert_eq!(attempted_on(&a_claim(going)), Some("one"));
    let none = |change: Value| assert_eq!(attempted_on(&a_claim(change.clone())), None, "{change}");
    none(json!({ "metadata": { "annotations": { SELECTED_NODE: "" } } }));
    none(json!({ "metadata": { "annotations": { "volume.kubernetes.io/storage-provisioner": "other" } } }));
    none(json!({ "spec": { "volumeName": NAME } }));
}
