//! What bodies decode to, and the words of refusals.

use ferry_schema::{DecodeError, Format, Validation, decode, encode_json};
use serde_json::{Value, json};

use crate::kind;

fn deployment(spec: Value) -> String {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": spec}).to_string()
}

fn check_error(body: &str, expected: &str) {
    let ty = kind("apps", "v1", "Deployment");
    let error = decode(&ty, body.as_bytes(), Format::Json, Validation::Warn).expect_err(body);
    assert_eq!(error.message("Deployment", "v1", "Deployment", body.as_bytes()), expected);
}

/// Times, quantities and numbers that may be texts have readers of their own: these stop at the first mistake, and it counts
/// more than values of wrong types before and behind it.
#[test]
fn what_has_a_reader_of_its_own_is_told_before_wrong_types() {
    let check = |group: &str, name: &str, body: Value, expected: &str| {
        let text = body.to_string();
        let decoded = decode(&kind(group, "v1", name), text.as_bytes(), Format::Json, Validation::Warn);
        assert_eq!(decoded.map(|_| ()).map_err(|error| error.to_string()), Err(expected.to_owned()), "{text}");
    };
    let quantity = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
    check("", "ResourceQuota", json!({"metadata": true, "spec": {"hard": {"pods": "a.b"}}}), quantity);
    check(
        "",
        "ConfigMap",
        json!({"data": {"a": 1}, "metadata": {"name": 1, "creationTimestamp": "a\n\u{e9}\"", "namespace": 2}}),
        r#"parsing time "a\x0a\xc3\xa9\"" as "2006-01-02T15:04:05Z07:00": cannot parse "a\x0a\xc3\xa9\"" as "2006""#,
    );
    check(
        "",
        "ConfigMap",
        json!({"data": {"a": 1}, "metadata": {"creationTimestamp": {}}}),
        "json: cannot unmarshal object into Go struct field ObjectMeta.metadata.creationTimestamp of type string",
    );
    check(
        "apps",
        "Deployment",
        json!({"spec": {"replicas": "x", "strategy": {"rollingUpdate": {"maxSurge": true, "maxUnavailable": 1.5}}}}),
        "json: cannot unmarshal bool into Go struct field RollingUpdateDeployment.spec.strategy.rollingUpdate.maxSurge of type int32",
    );
    // Of values of wrong types the first counts.
    check(
        "apps",
        "Deployment",
        json!({"spec": {"paused": 1, "replicas": "x"}}),
        "json: cannot unmarshal number into Go struct field DeploymentSpec.spec.paused of type bool",
    );
}

#[test]
fn wrong_types_are_named_as_go_names_them() {
    let prefix = "Deployment in version \"v1\" cannot be handled as a Deployment: ";
    for (spec, error) in [
        (json!({"replicas": "3"}), "string into Go struct field DeploymentSpec.spec.replicas of type int32"),
        (json!({"replicas": 1.5}), "number 1.5 into Go struct field DeploymentSpec.spec.replicas of type int32"),
        (json!({"paused": "true"}), "string into Go struct field DeploymentSpec.spec.paused of type bool"),
        (json!({"template": []}), "array into Go struct field DeploymentSpec.spec.template of type v1.PodTemplateSpec"),
        (
            json!({"template": {"spec": {"containers": {"name": "c"}}}}),
            "object into Go struct field PodSpec.spec.template.spec.containers of type []v1.Container",
        ),
        (
            json!({"template": {"spec": {"containers": ["c"]}}}),
            "string into Go struct field PodSpec.spec.template.spec.containers of type v1.Container",
        ),
        (
            json!({"strategy": {"rollingUpdate": {"maxSurge": true}}}),
            "bool into Go struct field RollingUpdateDeployment.spec.strategy.rollingUpdate.maxSurge of type int32",
        ),
        (
            json!({"template": {"spec": {"restartPolicy": 5}}}),
            "number into Go struct field PodSpec.spec.template.spec.restartPolicy of type v1.RestartPolicy",
        ),
        (
            json!({"template": {"spec": {"volumes": [{"name": "v", "emptyDir": 1}]}}}),
            "number into Go struct field Volume.spec.template.spec.volumes.VolumeSource.emptyDir of type v1.EmptyDirVolumeSource",
        ),
        (
            json!({"template": {"spec": {"containers": [{"envFrom": [{"secretRef": {"name": 5}}]}]}}}),
            "number into Go struct field SecretEnvSource.spec.template.spec.containers.envFrom.secretRef.LocalObjectReference.name of type string",
        ),
    ] {
        check_error(&deployment(spec), &format!("{prefix}json: cannot unmarshal {error}"));
    }
}

#[test]
fn what_cannot_be_read_is_unrecognized() {
    let prefix = "the object provided is unrecognized (must be of type Deployment): couldn't get version/kind; json parse error: ";
    for (body, error) in [
        ("", "unexpected end of JSON input (<empty>)"),
        ("{", "unexpected end of JSON input ({)"),
        (
            "{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\"} x",
            "invalid character 'x' after top-level value ({\"apiVersion\":\"v1\",\"kind\":\"Con ...)",
        ),
        ("a", "invalid character 'a' looking for beginning of value (61)"),
        (
            "[]",
            "json: cannot unmarshal array into Go value of type struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" } (5b5d)",
        ),
    ] {
        check_error(body, &format!("{prefix}{error}"));
    }
}

#[test]
fn unknown_and_duplicate_fields_are_found_in_order() {
    let body = br#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"s","name":"s","foo":1},"data":{"k":"1","k":"2"},"Data":{"z":"1"},"extra":true}"#;
    let ty = kind("", "v1", "ConfigMap");
    let expected = [
        "duplicate field \"metadata.name\"",
        "unknown field \"metadata.foo\"",
        "duplicate field \"data.k\"",
        "unknown field \"Data\"",
        "unknown field \"extra\"",
    ];
    let strict = decode(&ty, body, Format::Json, Validation::Strict);
    assert_eq!(strict, Err(DecodeError::Strict(expected.map(str::to_owned).to_vec())));
    let warned = decode(&ty, body, Format::Json, Validation::Warn).expect("an object");
    assert_eq!(warned.warnings, expected);
    assert_eq!(warned.object["data"], json!({"k": "2"}));
    assert_eq!(warned.object.get("extra"), None);
    assert_eq!(decode(&ty, body, Format::Json, Validation::Ignore).map(|d| d.warnings), Ok(Vec::new()));
}

#[test]
fn deep_unknown_fields_have_their_path() {
    let body = deployment(json!({"template": {"spec": {"containers": [
        {"name": "c", "imagee": "x", "ports": [{"containerPort": 1, "nope": 2}]}], "x": {}}}, "zz": 1}));
    let error = decode(&kind("apps", "v1", "Deployment"), body.as_bytes(), Format::Json, Validation::Strict);
    assert_eq!(
        error.expect_err("strict").to_string(),
        "strict decoding error: unknown field \"spec.template.spec.containers[0].imagee\", \
         unknown field \"spec.template.spec.containers[0].ports[0].nope\", \
         unknown field \"spec.template.spec.x\", unknown field \"spec.zz\""
    );
}

#[test]
fn yaml_duplicates_are_worded_by_the_yaml_reader() {
    let ty = kind("", "v1", "ConfigMap");
    let body = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: yy}\ndata:\n  a: \"1\"\n  a: \"2\"\nfoo: 1\n";
    assert_eq!(
        decode(&ty, body, Format::Yaml, Validation::Strict).expect_err("strict").to_string(),
        "strict decoding error: yaml: unmarshal errors:\n  line 6: key \"a\" already set in map, unknown field \"foo\""
    );
    let warned = decode(&ty, body, Format::Yaml, Validation::Warn).expect("an object");
    assert_eq!(warned.warnings, ["line 6: key \"a\" already set in map", "unknown field \"foo\""]);
    let json = br#"{"apiVersion":"v1","kind":"ConfigMap","data":{"k":"1","k":"2"}}"#;
    let warned = decode(&ty, json, Format::Yaml, Validation::Warn).expect("an object");
    assert_eq!(warned.warnings, ["line 1: key \"k\" already set in map"]);
    let unsorted = br#"{"apiVersion":"v1","kind":"ConfigMap","z":1,"b":2}"#;
    let warned = decode(&ty, unsorted, Format::Yaml, Validation::Warn).expect("an object");
    assert_eq!(warned.warnings, ["unknown field \"b\"", "unknown field \"z\""]);
    let half = br#"{"apiVersion":"v1","kind":"ConfigMap","data":{"a":"\ud800"}}"#;
    assert!(
        decode(&ty, half, Format::Yaml, Validation::Warn).is_err()
            && decode(&ty, half, Format::Json, Validation::Warn).is_ok()
    );
}

#[test]
fn objects_take_the_form_of_a_go_round_trip() {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"a": null}, "annotations": {},
        "creationTimestamp": null, "deletionTimestamp": "2024-01-02T03:04:05.5+01:00"},
        "spec": {"containers": [{"name": "c", "image": "", "tty": false, "ports": [],
            "env": [{"name": "E", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}],
            "resources": {"limits": {"memory": "1048576Ki", "cpu": 1.5}},
            "livenessProbe": {"httpGet": {"port": "http"}, "initialDelaySeconds": 0}}],
            "hostNetwork": false, "automountServiceAccountToken": false, "nodeSelector": null, "terminationGracePeriodSeconds": 0}});
    let ty = kind("", "v1", "Pod");
    let decoded = decode(&ty, pod.to_string().as_bytes(), Format::Json, Validation::Strict).expect("a pod");
    assert_eq!(
        String::from_utf8(encode_json(&ty, &decoded.object)).expect("UTF-8"),
        r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","deletionTimestamp":"2024-01-02T02:04:05Z","labels":{"a":""}},"spec":{"containers":[{"name":"c","env":[{"name":"E","valueFrom":{"resourceFieldRef":{"resource":"limits.cpu","divisor":"0"}}}],"resources":{"limits":{"cpu":"1500m","memory":"1Gi"}},"livenessProbe":{"httpGet":{"port":"http"}}}],"terminationGracePeriodSeconds":0,"automountServiceAccountToken":false},"status":{}}"#
    );
    let role = decode(&kind("rbac.authorization.k8s.io", "v1", "Role"), b"{}", Format::Json, Validation::Strict);
    assert_eq!(role.map(|d| d.object), Ok(json!({"metadata": {}, "rules": null})));
}

#[test]
fn secrets_must_be_base64() {
    let ty = kind("", "v1", "Secret");
    let error = decode(&ty, br#"{"data":{"a":"!!!="}}"#, Format::Json, Validation::Warn).expect_err("no base64");
    assert_eq!(error.to_string(), "illegal base64 data at input byte 0");
    let ok = decode(&ty, br#"{"data":{"a":"aGk="}}"#, Format::Json, Validation::Warn).expect("base64");
    assert_eq!(ok.object["data"]["a"], "aGk=");
}

#[test]
fn deep_nesting_is_refused_or_skipped_without_recursion() {
    let deep = |levels: usize| format!("{}{}", "{\"a\":".repeat(levels) + "1", "}".repeat(levels));
    let ty = kind("apps", "v1", "ControllerRevision");
    for levels in [90, 5_000, 9_990, 20_000] {
        let kept = format!("{{\"data\":{}}}", deep(levels));
        let skipped = format!("{{\"zzz\":{}}}", deep(levels));
        assert_eq!(decode(&ty, kept.as_bytes(), Format::Json, Validation::Warn).is_ok(), levels < 100);
        assert_eq!(decode(&ty, skipped.as_bytes(), Format::Json, Validation::Warn).is_ok(), levels < 10_000);
    }
}
