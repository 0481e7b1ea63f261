//! `ferry why` on real situations: one namespace full of things that are wrong, each in its own way, and some that are well.

use std::process::Stdio;

use crate::cluster::{Cluster, until};
use crate::insight::ask;

const NAMESPACE: &str = "why";

/// The object, the exit code, and what must be said of it.
type Case = (&'static str, i32, &'static [&'static str]);

const CASES: &[Case] = &[
    ("po/well", 0, &["nothing holds it up"]),
    ("svc/well", 0, &["nothing holds it up"]),
    ("sts/well", 0, &["nothing holds it up"]),
    ("job/well", 0, &["nothing holds it up"]),
    ("cj/well", 0, &["nothing holds it up"]),
    ("po/no-label", 1, &["does not have the label disk=ssd", "kubectl label node e2e disk=ssd"]),
    ("po/spread", 1, &["does not have the label example.com/zone, which topologySpreadConstraints needs"]),
    ("po/never-fits", 1, &["the pod asks for 4k: it will never fit"]),
    ("po/gated", 1, &["scheduling gates hold it back: example.com/wait"]),
    ("po/no-claim", 1, &["its volume \"v\" needs the PersistentVolumeClaim \"gone\""]),
    ("pvc/too-small", 1, &["the nearest, why-small, is too small: it has 1Mi, and the claim asks for 1Gi"]),
    ("pvc/kept", 1, &["the nearest, why-kept, is kept for the claim elsewhere/other"]),
    ("pvc/no-class", 1, &["StorageClass \"why-nope\" does not exist"]),
    ("pvc/no-source", 1, &["to be filled from the PersistentVolumeClaim \"gone\"", "there is none in namespace why"]),
    ("pvc/no-snapshots", 1, &["no server of the cluster has the kind VolumeSnapshot of snapshot.storage.k8s.io"]),
    ("po/no-image", 1, &["has no such image or tag", "kubectl edit -n why pod/no-image"]),
    ("po/no-image-of-volume", 1, &["no-such-data:1 of volume \"data\" cannot be pulled"]),
    ("po/no-host", 1, &["the name of the registry, registry.invalid, does not resolve"]),
    ("po/no-config", 1, &["needs the ConfigMap \"gone\", and there is none in namespace why"]),
    ("po/no-key", 1, &["needs the key \"b\" of the ConfigMap \"there\"", "it has a"]),
    ("po/no-secret", 1, &["its volume \"v\" needs the Secret \"gone\""]),
    ("po/no-command", 1, &["its command `nosuch` is not in the image"]),
    ("po/init-fails", 1, &["init container setup ends", "no table users"]),
    ("po/ends", 1, &["it ends as if its work were done"]),
    ("po/probe-port", 1, &["names the port \"http\", which the container does not have"]),
    ("po/probe-host", 1, &["the probe asks the host 127.0.0.1, not the pod"]),
    ("po/slow-start", 3, &["it is on its way", "it may fail 1000 times, one every 10 s"]),
    ("po/restarted", 1, &["is restarted by its kubelet because its livenessProbe fails"]),
    ("deploy/zero", 0, &["nothing holds it up", "scaled to zero", "kubectl scale -n why deployment/zero --replicas=1"]),
    ("deploy/paused", 0, &["nothing holds it up", "it is paused", "kubectl rollout resume -n why deployment/paused"]),
    (
        "deploy/no-account",
        1,
        &["their ServiceAccount \"gone\" does not exist", "kubectl create serviceaccount -n why gone"],
    ),
    (
        "sts/no-service",
        1,
        &["its Service \"gone\" (spec.serviceName) does not exist", "kubectl set selector -n why service/gone"],
    ),
    ("ds/nowhere", 1, &["is not meant for it", "kubectl label node e2e gpu=yes"]),
    ("svc/typo", 1, &["its selector app=wel matches no pod in why", "app="]),
    ("svc/port-name", 1, &["targetPort \"http\" (port 80/TCP) is the name of no container port"]),
    ("svc/address", 1, &["10.1.2.3 is an address"]),
    ("svc/no-other", 1, &["means the Service \"gone\" of namespace why, which does not exist"]),
    ("svc/balancer-class", 1, &["a load balancer of the class \"example.com/lb\""]),
    ("ing/no-class", 1, &["probably", "names no ingressClassName"]),
    ("ing/no-backend", 1, &["the Service \"gone\", does not exist in namespace why"]),
    ("ing/bucket", 1, &["the Bucket \"static\", is no Service", "sends requests to Services alone"]),
    ("ing/annotated", 1, &["probably", "kubernetes.io/ingress.class names the class \"why-nope\""]),
    ("netpol/nothing", 1, &["selects no pod"]),
    (
        "netpol/from-nobody",
        1,
        &["no namespace has the labels name=default", "use kubernetes.io/metadata.name: default"],
    ),
    ("role/well", 0, &["nothing holds it up"]),
    ("role/other-group", 1, &["its rule 1 grants nothing for deployments", "deployments are of \"apps\""]),
    ("secret/no-certificate", 1, &["it holds no certificate"]),
    ("pv/why-nowhere", 1, &["no node can have it", "kubernetes.io/hostname=gone"]),
    ("cj/never", 1, &["no day of the calendar fits its schedule"]),
    ("cj/suspended", 0, &["nothing holds it up", "it is suspended"]),
    ("job/fails", 1, &["backoffLimit=0", "exit code 7", "cannot reach db"]),
    ("job/suspended", 0, &["nothing holds it up", "it is suspended"]),
    ("pdb/nothing", 1, &["selects no pod"]),
    ("hpa/no-target", 1, &["its target deployment/gone does not exist"]),
    ("quota/full", 0, &["nothing holds it up", "it is used up", "configmaps: "]),
    ("cm/held", 1, &["the finalizer example.com/cleanup", "kubectl patch -n why configmap/held --type=merge"]),
    ("lease/lost", 1, &["its holder \"somebody\" has not renewed it", "it is good for 15 s"]),
    ("resourceclaim/unused", 0, &["nothing holds it up", "no devices are allocated: that happens when a pod uses it"]),
    ("validatingadmissionpolicybinding/why-limits", 1, &["the ConfigMap \"gone\" of namespace why, does not exist"]),
    (
        "deploy/own-port",
        1,
        &["its new pods find no node as long as its old ones", "kubectl patch -n why deployment/own-port --type=merge"],
    ),
    ("po/waits", 1, &["probably", "its command names the Service \"nowhere\"", "kubectl get services -n why"]),
    ("svc/other-family", 1, &["lists addresses of IPv6, and the Service has IPv4 alone"]),
    ("svc/other-protocol", 1, &["in its EndpointSlice other-protocol-1 that port is TCP"]),
    ("svc/loop", 1, &["is its own name"]),
    ("svc/short", 1, &["there is a Service well in namespace why", "well.why.svc.cluster.local"]),
    ("svc/two-labels", 1, &["pod/well has app=well, and not tier=front"]),
    ("ing/no-paths", 1, &["its rule for no-paths.example has no paths"]),
    ("netpol/no-port", 1, &["has a port with the name htp; they have web"]),
    ("pvc/other-attributes", 1, &["has no volumeAttributesClassName", "the claim wants \"why-gold\""]),
    ("volumeattachment/why-attach", 1, &["probably", "nobody in the cluster calls itself csi.nobody.example"]),
    ("role/no-verb", 1, &["read is no verb", "write get,list,watch instead"]),
    ("role/no-namespace", 1, &["grants nothing for nodes", "--resource=nodes"]),
    ("validatingwebhookconfiguration/why-dead", 1, &["its Service why/gone does not exist"]),
    ("endpointslice/stray-1", 1, &["no Service has it: it has no label kubernetes.io/service-name"]),
    ("role/by-name", 0, &["nothing holds it up", "its rule 1 has resourceNames, and so hardly grants create"]),
    ("resourceclaimtemplate/no-devices", 1, &["the DeviceClass \"why-no-class\", which does not exist"]),
    ("job/queued", 0, &["nothing holds it up", "until its queue lets it run (kueue.x-k8s.io/queue-name)"]),
    (
        "po/by-hand",
        1,
        &["has node e2e without the scheduler (spec.nodeName)", "by nodeSelector: kubernetes.io/hostname: e2e"],
    ),
    ("volumeattributesclass/why-nobody", 1, &["probably", "its driver csi.nobody.example is not there"]),
];

pub fn causes_are_named_and_what_is_well_is_left_alone(cluster: &mut Cluster) {
    cluster.kubectl(&["create", "namespace", NAMESPACE]);
    let manifest = include_str!("situations.yaml").replace("REGISTRY", cluster.registry());
    cluster.apply(&manifest);
    // A quota holds from when it was counted on.
    until("the quota holds", || {
        let quota = cluster.json(&["get", "quota", "no-sets", "-n", "why-full"]);
        quota["status"]["hard"].is_object().then_some(())
    });
    cluster.kubectl(&["create", "deployment", "no-set", "--image=busybox:1.36", "-n", "why-full"]);
    cluster.kubectl(&["delete", "configmap", "held", "-n", NAMESPACE, "--wait=false"]);
    cluster.kubectl(&["rollout", "status", "deployment/own-port", "-n", NAMESPACE]);
    cluster.kubectl(&["set", "env", "deployment/own-port", "NEW=1", "-n", NAMESPACE]);
    for &(object, code, words) in CASES {
        let mut last = String::new();
        until(&format!("ferry why {object}: {words:?}"), || {
            let (seen, text) = ask(cluster, &["why", "-n", NAMESPACE, object]);
            let said = seen == Some(code) && words.iter().all(|word| text.contains(word));
            if !said && text != last {
                println!("{object} so far ({seen:?}): {text}");
                last = text;
            }
            said.then_some(())
        });
    }
    let words = ["its ReplicaSet is refused", "kubectl edit -n why-full resourcequota/no-sets"];
    until("ferry why of a Deployment without a ReplicaSet", || {
        let (code, text) = ask(cluster, &["why", "-n", "why-full", "deploy/no-set"]);
        (code == Some(1) && words.iter().all(|word| text.contains(word))).then_some(())
    });
    // A trace goes as far as the object, and names the step that comes next.
    let (code, text) = ask(cluster, &["trace", "-n", NAMESPACE, "po/no-label"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("stuck  10  scheduler") && text.contains("disk=ssd"), "{text}");
    assert_eq!(ask(cluster, &["trace", "-n", NAMESPACE, "po/well"]).0, Some(0));
    // Who follows is told the same in the end.
    for follow in [&[][..], &["--follow"]] {
        let (code, text) = ask(cluster, &[&["trace", "-n", NAMESPACE, "job/fails"], follow].concat());
        assert!(code == Some(1) && text.contains("backoffLimit=0"), "{code:?}: {text}");
    }
    let none = r#"{"metadata":{"finalizers":null}}"#;
    cluster.kubectl(&["patch", "configmap", "held", "-n", NAMESPACE, "--type=merge", "-p", none]);
    cluster.kubectl(&["delete", "validatingwebhookconfiguration", "why-dead"]);
    cluster.kubectl(&["delete", "validatingadmissionpolicybinding/why-limits", "validatingadmissionpolicy/why-limits"]);
    cluster.kubectl(&[
        "delete",
        "storageclass/why-csi",
        "storageclass/why-wait",
        "csidriver/csi.why.example",
        "deviceclass/why-devices",
    ]);
    cluster.kubectl(&["delete", "volumeattachment/why-attach", "volumeattributesclass/why-nobody"]);
    cluster.kubectl(&["delete", "pv", "why-small", "why-kept", "why-nowhere", "why-attributes"]);
    cluster.kubectl(&["delete", "namespace", NAMESPACE, "why-full", "--wait=false"]);
}

/// `ferry … | head -1`: no panic, and no hang.
pub fn a_reader_that_goes_away_is_no_error(cluster: &mut Cluster) {
    let kubeconfig = cluster.data_dir().join("kubeconfig");
    let kubeconfig = kubeconfig.to_str().unwrap();
    for arguments in [
        &["trace", "deploy/nginx-demo", "--kubeconfig", kubeconfig][..],
        &["trace", "-f", "deploy/nginx-demo", "--kubeconfig", kubeconfig],
        &["why", "deploy/nginx-demo", "--kubeconfig", kubeconfig],
        &["why", "-o", "json", "deploy/nginx-demo", "--kubeconfig", kubeconfig],
        &["node", "list", "--kubeconfig", kubeconfig],
        &["completion", "bash"],
        &["kubectl", "--kubeconfig", kubeconfig, "get", "pods", "-A", "-o", "json"],
    ] {
        let mut child =
            cluster.ferry().args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("ferry runs");
        // The other end is closed before a word is said.
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("ferry ends");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!errors.contains("panicked"), "{arguments:?}: {errors}");
    }
}
