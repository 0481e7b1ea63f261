use base64::Engine;
use rcgen::{CertificateParams, DnType, KeyPair};

use super::*;

fn asked(change: impl Fn(&mut Value)) -> Case {
    let mut spec = json!({"nodeName": "n1", "nodeUID": "u1", "podName": "own", "podUID": "own",
        "serviceAccountName": "default", "serviceAccountUID": "default", "signerName": "example.com/pods"});
    change(&mut spec);
    let object = json!({"metadata": {"name": "r"}, "spec": spec});
    Case::create("certificates.k8s.io", "podcertificaterequests", "a", object)
}

fn with(field: &'static str, value: &'static str) -> Case {
    asked(move |spec| spec[field] = json!(value))
}

#[tokio::test]
async fn pod_certificates_are_for_pods_of_the_node() {
    let mirror = asked(|spec| {
        spec["podName"] = json!("mirror");
        spec["podUID"] = json!("mirror");
    });
    let other = asked(|spec| {
        spec["podName"] = json!("other");
        spec["podUID"] = json!("other");
    });
    let empty = || json!({"metadata": {"name": "r"}, "spec": {}});
    let update = || Case::update("certificates.k8s.io", "podcertificaterequests", "a", empty(), empty());
    for (what, case, want) in [
        ("its own pod's", asked(|_| {}), ""),
        ("an update", update(), "unexpected operation UPDATE"),
        ("a status", update().at("status"), "unexpected operation UPDATE"),
        ("creating a status", asked(|_| {}).at("status"), "unexpected subresource status"),
        (
            "deleting one",
            Case::delete("certificates.k8s.io", "podcertificaterequests", "a", "r"),
            "unexpected operation DELETE",
        ),
        (
            "in the name of another node",
            with("nodeName", "n2"),
            "PodCertificateRequest.Spec.NodeName=\"n2\", which is not the requesting node \"n1\"",
        ),
        (
            "in the name of a former node",
            with("nodeUID", "u0"),
            "PodCertificateRequest for pod \"a/own\" names node UID \"u0\", inconsistent with the running node (\"u1\")",
        ),
        (
            "what is not there",
            with("podName", "none"),
            "while retrieving pod \"a/none\" named in the PodCertificateRequest: pod \"none\" not found",
        ),
        (
            "a former pod's",
            with("podUID", "former"),
            "PodCertificateRequest for pod \"a/own\" contains pod UID (\"former\") which differs from running pod \"own\"",
        ),
        (
            "another node's pod",
            other,
            "pod \"a/other\" is not running on node \"n1\" named in the PodCertificateRequest",
        ),
        ("a mirror pod", mirror, "pod \"a/mirror\" is a mirror pod"),
        (
            "another account",
            with("serviceAccountName", "other"),
            "PodCertificateRequest for pod \"a/own\" contains serviceAccountName (\"other\") that differs from running pod (\"default\")",
        ),
        (
            "a former account",
            with("serviceAccountUID", "former"),
            "PodCertificateRequest for pod \"a/own\" names service account UID \"former\", which differs from the running service account (\"default\")",
        ),
        (
            "a signer that it does not mount",
            with("signerName", "example.com/bank"),
            "pod \"a/own\" does not mount a podCertificate projected volume for signer \"example.com/bank\"",
        ),
    ] {
        check(what, case, want).await;
    }
    let without = |resource: &str, namespace: &str, name: &str| {
        let objects = objects();
        objects.remove("", resource, namespace, name);
        objects
    };
    let nobody = || Arc::new(Granted(Vec::new()));
    let why = "while retrieving node \"n1\" named in the PodCertificateRequest: node \"n1\" not found";
    check_with("no node", without("nodes", "", "n1"), nobody(), asked(|_| {}), why).await;
    let why = "while retrieving service account \"a/default\" named in the PodCertificateRequest: serviceaccount \"default\" not found";
    check_with("no account", without("serviceaccounts", "a", "default"), nobody(), asked(|_| {}), why).await;
}

#[tokio::test]
async fn signers_may_be_granted() {
    let rule = |signer: &str, account: &str| PolicyRule {
        resource_names: vec![account.to_owned()],
        ..PolicyRule::new(&["request-serviceaccounts-podcertificate-signer"], &["certificates.k8s.io"], &[signer])
    };
    let granted = |rule: PolicyRule| Arc::new(Granted(vec![rule]));
    let bank = || with("signerName", "example.com/bank");
    let no = "pod \"a/own\" does not mount a podCertificate projected volume for signer \"example.com/bank\"";
    check_with("granted", objects(), granted(rule("example.com:bank", "default")), bank(), "").await;
    check_with("another signer", objects(), granted(rule("example.com:shop", "default")), bank(), no).await;
    check_with("another account", objects(), granted(rule("example.com:bank", "other")), bank(), no).await;
    let why =
        "error authorizing system:node:n1 to request podcertificaterequests for signer \"example.com/bank\": no answer";
    check_with("nobody knows", objects(), Arc::new(Broken), bank(), why).await;
}

/// A request in PEM for these common names.
fn request(names: &[&str]) -> String {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = rcgen::DistinguishedName::new();
    for (number, name) in names.iter().enumerate() {
        // rcgen keeps one value per type; the same type under another spelling is a second one.
        let kind = if number == 0 { DnType::CommonName } else { DnType::CustomDnType(vec![2, 5, 4, 3]) };
        parameters.distinguished_name.push(kind, *name);
    }
    let key = KeyPair::generate().expect("a key");
    parameters.serialize_request(&key).expect("a request").pem().expect("pem")
}

#[tokio::test]
async fn own_certificates_carry_the_nodes_name() {
    let signing = |signer: &str, pem: &str| {
        let encoded = base64::engine::general_purpose::STANDARD.encode(pem);
        let object = json!({"metadata": {"name": "r"}, "spec": {"signerName": signer, "request": encoded}});
        Case::create("certificates.k8s.io", "certificatesigningrequests", "", object)
    };
    let no = "can only create a node CSR with CN=system:node:n1";
    let label = "unable to parse csr: PEM block type must be CERTIFICATE REQUEST";
    let blocks = "unable to parse csr: there must be one PEM block of type CERTIFICATE REQUEST and nothing after it";
    let two_blocks = format!("{}{}", request(&["system:node:n1"]), request(&["system:node:n2"]));
    for signer in ["kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet"] {
        for (what, pem, want) in [
            ("its own", request(&["system:node:n1"]), ""),
            ("another node's", request(&["system:node:n2"]), no),
            ("a longer one", request(&["system:node:n11"]), no),
            ("somebody's", request(&["n1"]), no),
            ("no name", request(&[]), no),
            ("two names", request(&["system:node:n1", "system:kube-controller-manager"]), no),
            ("two names, its own last", request(&["system:kube-controller-manager", "system:node:n1"]), no),
            ("two blocks", two_blocks.clone(), blocks),
            ("another label", request(&["system:node:n1"]).replace(" REQUEST", ""), label),
            ("nothing", String::new(), label),
        ] {
            check(&format!("{signer}: {what}"), signing(signer, &pem), want).await;
        }
    }
    check("another signer", signing("example.com/any", &request(&["bob"])), "").await;
    check("another signer's nonsense", signing("example.com/any", "x"), "").await;
    let object = || json!({"metadata": {"name": "r"}, "spec": {"signerName": "kubernetes.io/kubelet-serving"}});
    let update = Case::update("certificates.k8s.io", "certificatesigningrequests", "", object(), object());
    check("an update", update, "").await;
}
