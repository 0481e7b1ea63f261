use super::*;
use crate::testing::{Case, Objects};
use serde_json::json;

fn plugin(labels: Value) -> PodSecurity {
    let objects = Objects::default();
    objects.put("", "namespaces", json!({"metadata": {"name": "a", "labels": labels}}));
    objects.put("", "pods", json!({"metadata": {"name": "h", "namespace": "a"}, "spec": {"hostNetwork": true}}));
    PodSecurity::new(Arc::new(objects))
}

async fn refusal(level: &str, spec: Value) -> Option<String> {
    let plugin = plugin(json!({"pod-security.kubernetes.io/enforce": level}));
    let mut pod = json!({"metadata": {"name": "x"}, "spec": spec});
    if pod["spec"].get("containers").is_none() {
        pod["spec"]["containers"] = json!([{"name": "c"}]);
    }
    let error = Case::create("", "pods", "a", pod).validate(&plugin).await.err()?;
    let head = format!("pods \"x\" is forbidden: violates PodSecurity \"{level}:latest\": ");
    Some(error.0.message.strip_prefix(&head).expect("a refusal").to_owned())
}

fn container(security: Value) -> Value {
    json!({"containers": [{"name": "c", "securityContext": security}]})
}

#[tokio::test]
async fn every_control_of_the_baseline() {
    for (spec, want) in [
        (json!({"hostPID": true, "hostIPC": true}), "host namespaces (hostPID=true, hostIPC=true)"),
        (
            container(json!({"privileged": true})),
            r#"privileged (container "c" must not set securityContext.privileged=true)"#,
        ),
        (
            container(json!({"capabilities": {"add": ["NET_ADMIN", "CHOWN", "SYS_TIME"]}})),
            r#"non-default capabilities (container "c" must not include "NET_ADMIN", "SYS_TIME" in securityContext.capabilities.add)"#,
        ),
        (
            json!({"volumes": [{"name": "v", "hostPath": {"path": "/"}}, {"name": "w"}]}),
            r#"hostPath volumes (volume "v")"#,
        ),
        (
            json!({"containers": [{"name": "c", "ports": [{"hostPort": 80}]}, {"name": "d", "ports": [{"hostPort": 81}]}]}),
            r#"hostPort (containers "c", "d" use hostPorts 80, 81)"#,
        ),
        (
            container(json!({"appArmorProfile": {"type": "Unconfined"}})),
            r#"forbidden AppArmor profile (container "c" must not set AppArmor profile type to "Unconfined")"#,
        ),
        (
            container(json!({"seLinuxOptions": {"type": "bad_t", "user": "u"}})),
            r#"seLinuxOptions (container "c" set forbidden securityContext.seLinuxOptions: type "bad_t"; user may not be set)"#,
        ),
        (
            container(json!({"procMount": "Unmasked"})),
            r#"procMount (container "c" must not set securityContext.procMount to "Unmasked")"#,
        ),
        (
            json!({"securityContext": {"seccompProfile": {"type": "Unconfined"}}}),
            r#"seccompProfile (pod must not set securityContext.seccompProfile.type to "Unconfined")"#,
        ),
        (
            json!({"securityContext": {"sysctls": [{"name": "kernel.msgmax"}, {"name": "net.ipv4.tcp_rmem"}]}}),
            "forbidden sysctls (kernel.msgmax)",
        ),
        (
            json!({"securityContext": {"windowsOptions": {"hostProcess": true}}, "hostNetwork": true}),
            "host namespaces (hostNetwork=true), hostProcess (pod must not set securityContext.windowsOptions.hostProcess=true)",
        ),
        (
            json!({"containers": [{"name": "c", "livenessProbe": {"httpGet": {"host": "10.0.0.1"}}}]}),
            r#"probe or lifecycle host (container "c" uses probe or lifecycle host "10.0.0.1")"#,
        ),
    ] {
        assert_eq!(refusal("baseline", spec).await.as_deref(), Some(want));
    }
    assert_eq!(refusal("baseline", json!({})).await, None);
    let mut relaxed = container(json!({"procMount": "Unmasked"}));
    relaxed["hostUsers"] = json!(false);
    assert_eq!(refusal("baseline", relaxed).await, None);
}

#[tokio::test]
async fn every_control_of_the_restricted_level() {
    let good = json!({"allowPrivilegeEscalation": false, "runAsNonRoot": true, "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"}});
    let with = |field: &str, value: Value| {
        let mut security = good.clone();
        security[field] = value;
        container(security)
    };
    assert_eq!(refusal("restricted", container(good.clone())).await, None);
    let bare = r#"allowPrivilegeEscalation != false (container "c" must set securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container "c" must set securityContext.capabilities.drop=["ALL"]), runAsNonRoot != true (pod or container "c" must set securityContext.runAsNonRoot=true), seccompProfile (pod or container "c" must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")"#;
    let mut volumes = container(good.clone());
    volumes["volumes"] =
        json!([{"name": "n", "nfs": {}}, {"name": "h", "hostPath": {}}, {"name": "ok", "configMap": {}}]);
    let mut unmasked = with("procMount", json!("Unmasked"));
    unmasked["hostUsers"] = json!(false);
    for (spec, want) in [
        (
            json!({"hostUsers": false, "containers": [{"name": "c", "securityContext": {"procMount": "Unmasked"}}]}),
            r#"allowPrivilegeEscalation != false (container "c" must set securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container "c" must set securityContext.capabilities.drop=["ALL"]), procMount (container "c" must not set securityContext.procMount to "Unmasked"), seccompProfile (pod or container "c" must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")"#,
        ),
        (unmasked, r#"procMount (container "c" must not set securityContext.procMount to "Unmasked")"#),
        (json!({}), bare),
        (
            with("runAsNonRoot", json!(false)),
            r#"runAsNonRoot != true (container "c" must not set securityContext.runAsNonRoot=false)"#,
        ),
        (with("runAsUser", json!(0)), r#"runAsUser=0 (container "c" must not set runAsUser=0)"#),
        (
            with("capabilities", json!({"drop": ["CHOWN"], "add": ["NET_BIND_SERVICE", "CHOWN"]})),
            r#"unrestricted capabilities (container "c" must set securityContext.capabilities.drop=["ALL"]; container "c" must not include "CHOWN" in securityContext.capabilities.add)"#,
        ),
        (volumes, r#"restricted volume types (volumes "n", "h" use restricted volume types "hostPath", "nfs")"#),
    ] {
        assert_eq!(refusal("restricted", spec).await.as_deref(), Some(want));
    }
}

#[tokio::test]
async fn workloads_are_warned_and_labels_checked() {
    let plugin = plugin(json!({"pod-security.kubernetes.io/enforce": "baseline"}));
    let template = json!({"spec": {"hostNetwork": true, "containers": [{"name": "c"}]}});
    let deployment = json!({"metadata": {"name": "d"}, "spec": {"template": template}});
    let warnings = Case::create("apps", "deployments", "a", deployment).validate(&plugin).await.expect("admitted");
    assert_eq!(warnings, [r#"would violate PodSecurity "baseline:latest": host namespaces (hostNetwork=true)"#]);

    let namespace = |labels: Value| json!({"metadata": {"name": "a", "labels": labels}});
    let update = async |labels: Value| {
        let case = Case::update("", "namespaces", "a", namespace(labels), namespace(json!({})));
        case.validate(&plugin).await.map_err(|error| error.0.message)
    };
    assert_eq!(
        update(json!({"pod-security.kubernetes.io/enforce": "baseline"})).await.expect("admitted"),
        [
            r#"existing pods in namespace "a" violate the new PodSecurity enforce level "baseline:latest""#,
            "h: host namespaces"
        ]
    );
    assert_eq!(update(json!({"pod-security.kubernetes.io/enforce": "strict"})).await, Err("Namespace \"a\" is invalid: metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \"strict\": must be one of privileged, baseline, restricted".into()));
    assert_eq!(update(json!({"pod-security.kubernetes.io/warn-version": "1.22"})).await, Err("Namespace \"a\" is invalid: metadata.labels[pod-security.kubernetes.io/warn-version]: Invalid value: \"1.22\": must be \"latest\" or \"v1.x\"".into()));
}

#[tokio::test]
async fn a_configuration_gives_defaults_and_exemptions() {
    let settings = |defaults: Value, exemptions: Value| {
        Settings::read(&json!({
            "apiVersion": "pod-security.admission.config.k8s.io/v1", "kind": "PodSecurityConfiguration",
            "defaults": defaults, "exemptions": exemptions,
        }))
    };
    let exempt = json!({"usernames": ["root"], "namespaces": ["system"], "runtimeClasses": ["vm"]});
    let baseline = json!({"enforce": "baseline", "enforce-version": "v1.30"});
    let check = async |labels: Value, namespace: &str, user: &str, class: &str| {
        let objects = Objects::default();
        objects.put("", "namespaces", json!({"metadata": {"name": namespace, "labels": labels}}));
        let plugin = PodSecurity::new(Arc::new(objects));
        let plugin = plugin.with(settings(baseline.clone(), exempt.clone()).expect("a configuration"));
        let spec = json!({"hostPID": true, "runtimeClassName": class, "containers": [{"name": "c"}]});
        let pod = json!({"metadata": {"name": "x"}, "spec": spec});
        Case::create("", "pods", namespace, pod)
            .by(ferry_meta::UserInfo::new(user, &[]))
            .validate(&plugin)
            .await
            .err()
            .map(|error| error.0.message)
    };
    let refused = check(json!({}), "a", "bob", "").await.expect("refused by default");
    assert!(refused.contains("violates PodSecurity \"baseline:v1.30\": host namespaces"), "{refused}");
    assert_eq!(check(json!({"pod-security.kubernetes.io/enforce": "privileged"}), "a", "bob", "").await, None);
    for (namespace, user, class) in [("system", "bob", ""), ("a", "root", ""), ("a", "bob", "vm")] {
        assert_eq!(check(json!({}), namespace, user, class).await, None, "{namespace} {user} {class}");
    }
    assert!(check(json!({}), "a", "bob", "other").await.is_some());
    for (defaults, exemptions, why) in [
        (json!({"enforce": "baselin"}), json!({}), "defaults.enforce: Invalid value: \"baselin\""),
        (json!({"warn-version": "1.30"}), json!({}), "defaults.warn-version: Invalid value"),
        (json!({}), json!({"namespaces": ["a", "a"]}), "exemptions.namespaces[1]: Duplicate value"),
        (json!({}), json!({"namespaces": ["A"]}), "exemptions.namespaces[0]: Invalid value"),
        (json!({}), json!({"usernames": [""]}), "username must not be empty"),
    ] {
        let error = settings(defaults, exemptions).expect_err("refused");
        assert!(error.contains(why), "{error}");
    }
    assert!(Settings::read(&json!({"kind": "Policy"})).is_err());
}

#[tokio::test]
async fn sysctls_are_allowed_from_the_version_on_that_knows_them() {
    for (name, minor) in [
        ("net.ipv4.ip_local_reserved_ports", 27),
        ("net.ipv4.tcp_keepalive_time", 29),
        ("net.ipv4.tcp_rmem", 32),
        ("net.ipv4.tcp_slow_start_after_idle", 37),
        ("net.ipv4.tcp_notsent_lowat", 37),
    ] {
        for (version, allowed) in [(minor - 1, false), (minor, true)] {
            let plugin = plugin(json!({"pod-security.kubernetes.io/enforce": "baseline",
                "pod-security.kubernetes.io/enforce-version": format!("v1.{version}")}));
            let pod = json!({"metadata": {"name": "x"},
                "spec": {"containers": [{"name": "c"}], "securityContext": {"sysctls": [{"name": name, "value": "1"}]}}});
            let refused = Case::create("", "pods", "a", pod).validate(&plugin).await.is_err();
            assert_eq!(!refused, allowed, "{name} in v1.{version}");
        }
    }
}
