use super::*;

fn token(reference: Value, audiences: Value) -> Case {
    let object = json!({"spec": {"boundObjectRef": reference, "audiences": audiences}});
    Case::create("", "serviceaccounts", "a", object).named("default").at("token")
}

fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": name})
}

#[tokio::test]
async fn tokens_are_bound_to_pods_of_the_node() {
    let own = |key: &str, value: &str| {
        let mut reference = pod("own");
        reference[key] = json!(value);
        token(reference, json!([]))
    };
    let unbound = "node requested token not bound to a pod";
    for (what, case, want) in [
        ("its own pod's", token(pod("own"), json!([])), ""),
        ("nobody's", token(Value::Null, json!([])), unbound),
        ("another version's", own("apiVersion", "v2"), unbound),
        ("another kind's", own("kind", "Secret"), unbound),
        ("a nameless pod's", own("name", ""), unbound),
        ("one without a uid", own("uid", ""), "node requested token with a pod binding without a uid"),
        (
            "a former pod's",
            own("uid", "former"),
            "the UID in the bound object reference (former) does not match the UID in record. The object might have been deleted and then recreated",
        ),
        ("what is not there", token(pod("none"), json!([])), "pod \"none\" not found"),
        (
            "another node's",
            token(pod("other"), json!([])),
            "node requested token bound to a pod scheduled on a different node",
        ),
    ] {
        check(what, case, want).await;
    }
}

#[tokio::test]
async fn audiences_are_those_that_the_pod_mounts() {
    let refused =
        |audience: &str| format!("system:node:n1 is not authorized to request tokens for audience {audience:?}");
    for (what, audiences, want) in [
        ("none, as mounted", json!([]), String::new()),
        ("the empty one, as mounted", json!([""]), String::new()),
        ("one that is mounted", json!(["vault"]), String::new()),
        ("one that is not", json!(["bank"]), refused("bank")),
        ("several", json!(["vault", ""]), "node may only request 0 or 1 audiences".to_owned()),
    ] {
        check(what, token(pod("own"), audiences), &want).await;
    }
    check("none, for a pod that mounts none", token(pod("mirror"), json!([])), &refused("")).await;
}

#[tokio::test]
async fn audiences_may_be_granted() {
    let rule = |audiences: &[&str], account: &str| PolicyRule {
        resource_names: vec![account.to_owned()],
        ..PolicyRule::new(&["request-serviceaccounts-token-audience"], &[""], audiences)
    };
    let granted = |rule: PolicyRule| Arc::new(Granted(vec![rule]));
    let asked = || token(pod("own"), json!(["bank"]));
    let no = "system:node:n1 is not authorized to request tokens for audience \"bank\"";
    check_with("granted", objects(), granted(rule(&["bank"], "default")), asked(), "").await;
    check_with("another audience", objects(), granted(rule(&["shop"], "default")), asked(), no).await;
    check_with("another account", objects(), granted(rule(&["bank"], "other")), asked(), no).await;
    let why = "error authorizing system:node:n1 to request tokens for audience \"bank\": no answer";
    check_with("nobody knows", objects(), Arc::new(Broken), asked(), why).await;
}

#[tokio::test]
async fn drivers_ask_for_audiences_of_their_own() {
    let with = |volumes: Value, missing: &str| {
        let objects = Objects::default();
        let spec = json!({"nodeName": "n1", "volumes": volumes});
        objects.put("", "pods", json!({"metadata": {"name": "own", "namespace": "a", "uid": "own"}, "spec": spec}));
        for (claim, volume) in [("c", "v"), ("own-e", "v"), ("disk", "w"), ("unbound", "")] {
            let claim = json!({"metadata": {"name": claim, "namespace": "a"}, "spec": {"volumeName": volume}});
            objects.put("", "persistentvolumeclaims", claim);
        }
        objects.put("", "persistentvolumes", json!({"metadata": {"name": "v"}, "spec": {"csi": {"driver": "d"}}}));
        objects.put("", "persistentvolumes", json!({"metadata": {"name": "w"}, "spec": {"azureDisk": {}}}));
        for driver in ["d", "disk.csi.azure.com", "ebs.csi.aws.com"] {
            let spec = json!({"tokenRequests": [{"audience": "x"}, {"audience": "bank"}]});
            objects.put("storage.k8s.io", "csidrivers", json!({"metadata": {"name": driver}, "spec": spec}));
        }
        objects.remove("storage.k8s.io", "csidrivers", "", missing);
        objects
    };
    let no = "system:node:n1 is not authorized to request tokens for audience \"bank\"";
    let failed = "error validating audience \"bank\": ";
    let claim = |name: &str| json!([{"name": "v", "persistentVolumeClaim": {"claimName": name}}]);
    for (what, volumes, missing, want) in [
        ("an inline volume", json!([{"name": "v", "csi": {"driver": "d"}}]), "", String::new()),
        ("a claim", claim("c"), "", String::new()),
        (
            "an ephemeral claim",
            json!([{"name": "e", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]),
            "",
            String::new(),
        ),
        ("a volume that a driver took over", claim("disk"), "", String::new()),
        (
            "an inline volume that a driver took over",
            json!([{"name": "v", "awsElasticBlockStore": {}}]),
            "",
            String::new(),
        ),
        ("a volume without a driver", json!([{"name": "v", "emptyDir": {}}]), "", no.to_owned()),
        ("a missing driver", claim("c"), "d", format!("{failed}csidriver.storage.k8s.io \"d\" not found")),
        ("a missing claim", claim("none"), "", format!("{failed}persistentvolumeclaim \"none\" not found")),
        ("an unbound claim", claim("unbound"), "", format!("{failed}persistentvolume \"\" not found")),
        (
            "a missing claim and a missing driver",
            json!([{"persistentVolumeClaim": {"claimName": "none"}}, {"csi": {"driver": "d"}}]),
            "d",
            format!("{failed}[persistentvolumeclaim \"none\" not found, csidriver.storage.k8s.io \"d\" not found]"),
        ),
        (
            "a missing claim, and a driver that asks",
            json!([{"persistentVolumeClaim": {"claimName": "none"}}, {"csi": {"driver": "d"}}]),
            "",
            String::new(),
        ),
    ] {
        let case = token(pod("own"), json!(["bank"]));
        check_with(what, with(volumes, missing), Arc::new(Granted(Vec::new())), case, &want).await;
    }
}
