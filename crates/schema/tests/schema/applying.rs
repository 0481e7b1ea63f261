//! Managed fields and server-side apply, in the situations clients bring about.

use ferry_meta::{ApiError, GroupVersionKind};
use ferry_schema::managed::{self, Write};
use ferry_schema::structural::{Schema, custom_type};
use ferry_schema::{Format, Type, Validation, decode};
use serde_json::{Value, json};

use crate::kind;

/// A store of one object.
struct Server {
    ty: Type,
    gvk: GroupVersionKind,
    live: Option<Value>,
    clock: i64,
    reset: &'static [&'static str],
}

impl Server {
    fn new(group: &str, version: &str, name: &str) -> Self {
        let gvk = GroupVersionKind::new(group, version, name);
        Self { ty: kind(group, version, name), gvk, live: None, clock: 1_700_000_000, reset: &["status"] }
    }

    fn write<'a>(&'a self, manager: &'a str, subresource: &'a str) -> Write<'a> {
        let reset: &[&str] = if subresource.is_empty() { self.reset } else { &["spec"] };
        let now = jiff::Timestamp::from_second(self.clock).expect("a time");
        Write { gvk: &self.gvk, manager, subresource, reset, now, versions: None }
    }

    fn update(&mut self, manager: &str, mut body: Value) -> Value {
        self.clock += 1;
        body["apiVersion"] = self.gvk.api_version().into();
        body["kind"] = (&*self.gvk.kind).into();
        let decoded =
            decode(&self.ty, body.to_string().as_bytes(), Format::Json, Validation::Strict).expect("an object");
        let mut new = decoded.object;
        managed::update(&self.ty, &self.write(manager, ""), self.live.as_ref(), &mut new);
        self.store(new)
    }

    fn apply_to(
        &mut self,
        manager: &str,
        subresource: &str,
        force: bool,
        mut config: Value,
    ) -> Result<Value, ApiError> {
        self.clock += 1;
        config["apiVersion"] = self.gvk.api_version().into();
        config["kind"] = (&*self.gvk.kind).into();
        let result = managed::apply(&self.ty, &self.write(manager, subresource), self.live.as_ref(), &config, force)?;
        Ok(self.store(result))
    }

    fn apply(&mut self, manager: &str, config: Value) -> Result<Value, ApiError> {
        self.apply_to(manager, "", false, config)
    }

    fn store(&mut self, mut object: Value) -> Value {
        object["metadata"]["uid"] = "u".into();
        self.live = Some(object.clone());
        object
    }

    /// (manager, operation, fields, whether it has a time) of each entry.
    fn entries(&self) -> Value {
        let live = self.live.as_ref().expect("an object");
        let entries = live.pointer("/metadata/managedFields").and_then(Value::as_array).cloned().unwrap_or_default();
        entries.iter().map(|e| json!([e["manager"], e["operation"], e["fieldsV1"], e.get("time").is_some()])).collect()
    }
}

fn config_map(data: Value) -> Value {
    json!({"metadata": {"name": "a"}, "data": data})
}

#[test]
fn updates_and_applies_of_one_name_are_two_managers() {
    let mut server = Server::new("", "v1", "ConfigMap");
    server.update("cli", config_map(json!({"k": "v", "l": "w"})));
    assert_eq!(server.entries(), json!([["cli", "Update", {"f:data": {".": {}, "f:k": {}, "f:l": {}}}, true]]));
    server.apply("cli", config_map(json!({"k": "v", "m": "x"}))).expect("applied");
    assert_eq!(
        server.entries(),
        json!([
        ["cli", "Apply", {"f:data": {"f:k": {}, "f:m": {}}}, true],
        ["cli", "Update", {"f:data": {".": {}, "f:k": {}, "f:l": {}}}, true]])
    );
    let error = server.apply("other", config_map(json!({"k": "changed"}))).expect_err("conflicts");
    assert_eq!(
        error.0.message,
        "Apply failed with 2 conflicts: conflicts with \"cli\":\n- .data.k\nconflicts with \"cli\" using v1:\n- .data.k"
    );
    let error = server.apply("cli", config_map(json!({"k": "v2"}))).expect_err("a conflict");
    assert_eq!(
        (error.code(), &*error.0.message),
        (409, "Apply failed with 1 conflict: conflict with \"cli\" using v1: .data.k")
    );
    let forced = server.apply_to("cli", "", true, config_map(json!({"k": "v2"}))).expect("forced");
    assert_eq!(forced["data"], json!({"k": "v2", "l": "w"}));
    assert_eq!(
        server.entries(),
        json!([
        ["cli", "Apply", {"f:data": {"f:k": {}}}, true], ["cli", "Update", {"f:data": {".": {}, "f:l": {}}}, true]])
    );
    server.update("cli", config_map(json!({"k": "v3"})));
    assert_eq!(server.entries(), json!([["cli", "Update", {"f:data": {".": {}, "f:k": {}}}, true]]));
    server.update("second", config_map(json!({"k": "v4"})));
    assert_eq!(
        server.entries(),
        json!([
        ["cli", "Update", {"f:data": {}}, true], ["second", "Update", {"f:data": {"f:k": {}}}, true]])
    );
    server.apply("cli", config_map(json!({}))).expect("applied");
    assert_eq!(server.entries()[0], json!(["cli", "Apply", {"f:data": {}}, false]), "nothing changed: no time");
}

#[test]
fn an_unchanged_update_keeps_the_time() {
    let mut server = Server::new("", "v1", "ConfigMap");
    let first = server.update("cli", config_map(json!({"k": "v"})));
    let second = server.update("cli", config_map(json!({"k": "v"})));
    assert_eq!(first["metadata"]["managedFields"], second["metadata"]["managedFields"]);
}

#[test]
fn what_only_this_manager_set_goes_away_with_it() {
    let mut server = Server::new("", "v1", "ConfigMap");
    server
        .apply("m1", json!({"metadata": {"name": "x", "labels": {"l": "1"}}, "data": {"a": "1", "b": "2"}}))
        .expect("applied");
    let mut updated = server.live.clone().expect("an object");
    updated["data"]["c"] = "3".into();
    server.update("u", updated);
    assert_eq!(server.entries()[1], json!(["u", "Update", {"f:data": {"f:c": {}}}, true]));
    let after = server.apply("m1", json!({"metadata": {"name": "x"}})).expect("applied");
    assert_eq!((&after["data"], after["metadata"].get("labels")), (&json!({"c": "3"}), None));
    assert_eq!(server.entries(), json!([["u", "Update", {"f:data": {"f:c": {}}}, true]]));
    server.apply("m1", json!({"metadata": {"name": "x"}, "data": {}})).expect("applied");
    assert_eq!(server.entries()[0], json!(["m1", "Apply", {"f:data": {}}, false]));
}

#[test]
fn list_items_are_owned_by_key_and_keys_have_defaults() {
    let mut server = Server::new("", "v1", "Service");
    let ports = |ports: Value| json!({"metadata": {"name": "s"}, "spec": {"ports": ports}});
    server.apply("m1", ports(json!([{"name": "http", "port": 80}]))).expect("applied");
    assert_eq!(
        server.entries(),
        json!([["m1", "Apply",
        {"f:spec": {"f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:name": {}, "f:port": {}}}}}, true]])
    );
    let second =
        json!([{"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53, "protocol": "TCP"}]);
    let after = server.apply("m2", ports(second)).expect("applied");
    let names: Vec<&str> =
        after["spec"]["ports"].as_array().into_iter().flatten().filter_map(|p| p["name"].as_str()).collect();
    assert_eq!(names, ["http", "dns", "dns-tcp"]);
    let error = server.apply("m3", ports(json!([{"name": "web", "port": 80}]))).expect_err("a conflict");
    assert_eq!(
        error.0.message,
        "Apply failed with 1 conflict: conflict with \"m1\": .spec.ports[port=80,protocol=\"TCP\"].name"
    );
    let error =
        server.apply("m4", ports(json!([{"name": "a", "port": 90}, {"name": "b", "port": 90}]))).expect_err("twice");
    assert_eq!(
        (error.code(), &*error.0.message),
        (
            500,
            "failed to create typed patch object (/s; /v1, Kind=Service): .spec.ports: duplicate entries for key [port=90,protocol=\"TCP\"]"
        )
    );
}

#[test]
fn sets_and_atomic_fields() {
    let mut server = Server::new("", "v1", "ConfigMap");
    let finalizers = |list: Value| json!({"metadata": {"name": "a", "finalizers": list}});
    server.apply("m1", finalizers(json!(["example.com/a", "example.com/b"]))).expect("applied");
    let after = server.apply("m2", finalizers(json!(["example.com/c", "example.com/b"]))).expect("applied");
    assert_eq!(after["metadata"]["finalizers"], json!(["example.com/a", "example.com/c", "example.com/b"]));
    let after = server.apply("m1", json!({"metadata": {"name": "a"}})).expect("applied");
    assert_eq!(after["metadata"]["finalizers"], json!(["example.com/c", "example.com/b"]));
    let after = server.apply("m2", json!({"metadata": {"name": "a"}})).expect("applied");
    assert_eq!(after["metadata"].get("finalizers"), None);
}

fn deployment(containers: Value) -> Value {
    json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"app": "d"}},
        "template": {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": containers}}}})
}

#[test]
fn creating_owns_what_go_would_write() {
    let mut server = Server::new("apps", "v1", "Deployment");
    server.update("kubectl", deployment(json!([{"name": "c", "image": "i", "args": ["a"]}])));
    assert_eq!(
        server.entries(),
        json!([["kubectl", "Update", {"f:spec": {"f:selector": {}, "f:template": {
        "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
        "f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:args": {}, "f:image": {}, "f:name": {}, "f:resources": {}}}}}}}, true]])
    );
}

#[test]
fn items_follow_the_appliers_order() {
    let mut server = Server::new("apps", "v1", "Deployment");
    let env = |names: &[&str]| -> Value { names.iter().map(|n| json!({"name": n, "value": "1"})).collect() };
    let names = |object: &Value| -> Vec<String> {
        let env = object
            .pointer("/spec/template/spec/containers/0/env")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        env.iter().filter_map(|e| e["name"].as_str().map(str::to_owned)).collect()
    };
    server.apply("m1", deployment(json!([{"name": "c", "image": "i", "env": env(&["B", "A"])}]))).expect("applied");
    let after = server.apply("m2", deployment(json!([{"name": "c", "env": env(&["C", "B"])}]))).expect("applied");
    assert_eq!(names(&after), ["C", "B", "A"]);
    let after =
        server.apply("m1", deployment(json!([{"name": "c", "image": "i", "env": env(&["A", "B"])}]))).expect("applied");
    assert_eq!(names(&after), ["C", "A", "B"]);
}

#[test]
fn subresources_have_entries_of_their_own() {
    let mut server = Server::new("", "v1", "Pod");
    server
        .apply("m1", json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}))
        .expect("applied");
    let status = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "evil"}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    server.apply_to("kubelet", "status", false, status).expect("applied");
    assert_eq!(server.live.as_ref().expect("an object")["metadata"]["managedFields"][1]["subresource"], "status");
    assert_eq!(
        server.entries()[1],
        json!(["kubelet", "Apply",
        {"f:status": {"f:conditions": {"k:{\"type\":\"Ready\"}": {".": {}, "f:status": {}, "f:type": {}}}, "f:phase": {}}}, true])
    );
    let error =
        server.apply_to("other", "status", false, json!({"metadata": {"name": "p"}, "status": {"phase": "Failed"}}));
    assert_eq!(
        error.expect_err("a conflict").0.message,
        "Apply failed with 1 conflict: conflict with \"kubelet\" with subresource \"status\": .status.phase"
    );
}

#[test]
fn cleared_entries_stay_away_until_an_apply() {
    let mut server = Server::new("", "v1", "ConfigMap");
    server.apply("m1", config_map(json!({"k": "v"}))).expect("applied");
    server.update("x", json!({"metadata": {"name": "a", "managedFields": []}, "data": {"k": "v"}}));
    assert_eq!(server.entries(), json!([]));
    server.update("u", config_map(json!({"k": "v", "z": "1"})));
    assert_eq!(server.entries(), json!([]));
    let error = server.apply("m1", config_map(json!({"k": "w"}))).expect_err("a conflict");
    assert_eq!(error.0.message, "Apply failed with 1 conflict: conflict with \"before-first-apply\" using v1: .data.k");
    let entries = json!([{"manager": "made-up", "operation": "Apply", "apiVersion": "v1", "time": "2020-01-01T00:00:00Z",
        "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:k": {}}}}]);
    server.update("y", json!({"metadata": {"name": "a", "managedFields": entries}, "data": {"k": "v", "z": "1"}}));
    assert_eq!(server.entries(), json!([["made-up", "Apply", {"f:data": {"f:k": {}}}, true]]));
    let bad =
        json!([{"manager": "x", "operation": "Explode", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {}}]);
    server.update("z", json!({"metadata": {"name": "a", "managedFields": bad}, "data": {"k": "v", "z": "1"}}));
    assert_eq!(server.entries(), json!([["made-up", "Apply", {"f:data": {"f:k": {}}}, true]]));
}

#[test]
fn refusals_have_upstreams_code_and_words() {
    let mut server = Server::new("", "v1", "ConfigMap");
    for (config, code, message) in [
        (
            json!({"metadata": {"name": "a"}, "dada": {"k": "v"}}),
            500,
            "failed to create typed patch object (/a; /v1, Kind=ConfigMap): .dada: field not declared in schema",
        ),
        (json!({"metadata": {"name": "a", "managedFields": [{}]}}), 400, "metadata.managedFields must be nil"),
        (
            config_map(json!({"k": 5})),
            500,
            "failed to create typed patch object (/a; /v1, Kind=ConfigMap): .data.k: expected string, got &value.valueUnstructured{Value:5}",
        ),
    ] {
        let error = server.apply("m", config).expect_err("refused");
        assert_eq!((error.code(), &*error.0.message), (code, message));
    }
    let write = server.write("m", "");
    let error = managed::apply(&server.ty, &write, None, &json!({"apiVersion": "v1", "kind": "Secret"}), false);
    assert_eq!(error.expect_err("refused").to_string(), "invalid object type: /v1, Kind=Secret");
}

#[test]
fn kubectl_takes_over_what_it_applied_from_the_client() {
    let mut server = Server::new("", "v1", "ConfigMap");
    let last =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}}).to_string();
    server.update(
        "kubectl-client-side-apply",
        json!({"metadata": {"name": "a", "annotations":
        {"kubectl.kubernetes.io/last-applied-configuration": last}}, "data": {"k": "v"}}),
    );
    let after = server.apply("kubectl", config_map(json!({"k": "new"}))).expect("taken over");
    assert_eq!(after["data"], json!({"k": "new"}));
    let annotation = &after["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"];
    assert!(annotation.as_str().is_some_and(|a| a.contains("new")), "{annotation}");
}

#[test]
fn many_updaters_are_lumped_together() {
    let mut server = Server::new("", "v1", "ConfigMap");
    let mut data = serde_json::Map::new();
    for i in 0..14 {
        data.insert(format!("k{i:02}"), "v".into());
        server.update(&format!("m{i:02}"), config_map(Value::Object(data.clone())));
    }
    let entries = server.entries();
    let managers: Vec<&str> = entries.as_array().into_iter().flatten().filter_map(|e| e[0].as_str()).collect();
    assert_eq!(managers.len(), 10, "{managers:?}");
    assert_eq!(managers[0], "ancient-changes");
}

#[test]
fn applying_twice_changes_nothing() {
    let mut server = Server::new("apps", "v1", "Deployment");
    let config = deployment(
        json!([{"name": "c", "image": "i", "ports": [{"containerPort": 80}], "resources": {"limits": {"cpu": "1"}}}]),
    );
    let first = server.apply("m1", config.clone()).expect("applied");
    let second = server.apply("m1", config).expect("applied");
    assert_eq!(first, second);
}

/// What is stored has no null: an item that was applied with one is the same item the next time.
#[test]
fn a_key_of_null_adds_no_item_again() {
    let pod = |spec: Value| json!({"metadata": {"name": "p"}, "spec": spec});
    let container = |ports: Value| json!({"containers": [{"name": "c", "image": "i", "ports": ports}]});
    for (config, path, count) in [
        (pod(json!({"imagePullSecrets": [{"name": null}]})), "/spec/imagePullSecrets", 1),
        (pod(json!({"imagePullSecrets": [{"name": null}, {"name": "a"}]})), "/spec/imagePullSecrets", 2),
        (pod(container(json!([{"containerPort": 80, "protocol": null}]))), "/spec/containers/0/ports", 1),
        (pod(container(json!([{"containerPort": null}]))), "/spec/containers/0/ports", 1),
        (pod(json!({"containers": [{"name": null, "image": "i"}]})), "/spec/containers", 1),
    ] {
        let mut server = Server::new("", "v1", "Pod");
        for _ in 0..3 {
            let object = server.apply("m", config.clone()).expect("applied");
            let items = object.pointer(path).and_then(Value::as_array).map(Vec::len);
            assert_eq!(items, Some(count), "{config}: {object}");
        }
        // Who leaves it out takes it away.
        let object = server.apply("m", pod(json!({"nodeName": "n"}))).expect("applied");
        assert!(object.pointer(path).and_then(Value::as_array).is_none_or(Vec::is_empty), "{object}");
    }
    // The same key twice, one of them in other words.
    let twice = pod(json!({"imagePullSecrets": [{"name": null}, {"name": ""}]}));
    let error = Server::new("", "v1", "Pod").apply("m", twice).expect_err("a key that stands twice");
    assert!(error.to_string().contains("duplicate entries for key [name=\"\"]"), "{error}");
}

/// What has no type in a custom resource may become a map, or stop being one: who did it owns what is there now.
#[test]
fn values_without_a_type_that_become_maps() {
    let gvk = GroupVersionKind::new("e.com", "v1", "E");
    let schema = Schema::parse(&json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}));
    let ty = custom_type(&gvk, schema);
    let update = |live: Option<&Value>, spec: Value| {
        let now = jiff::Timestamp::from_second(1_700_000_000).expect("a time");
        let write = Write { gvk: &gvk, manager: "me", subresource: "", reset: &[], now, versions: None };
        let mut new = json!({"apiVersion": "e.com/v1", "kind": "E", "metadata": {"name": "a"}, "spec": spec});
        new["metadata"]["managedFields"] = live.map_or(Value::Null, |live| live["metadata"]["managedFields"].clone());
        managed::update(&ty, &write, live, &mut new);
        new
    };
    let first = update(None, json!(5));
    let owned = |object: &Value| object["metadata"]["managedFields"][0]["fieldsV1"].clone();
    assert_eq!(owned(&first), json!({"f:spec": {}}));
    let map = update(Some(&first), json!({"a": 1}));
    assert_eq!(owned(&map), json!({"f:spec": {".": {}, "f:a": {}}}));
    let list = update(Some(&map), json!([1]));
    assert_eq!(owned(&list), json!({"f:spec": {}}));
}

/// An object with an item that does not say its key is beyond what can be tracked: owners stay as they are, and nobody applies.
#[test]
fn items_without_a_key_are_not_tracked() {
    let account = |secrets: Value| json!({"metadata": {"name": "a"}, "secrets": secrets});
    let mut server = Server::new("", "v1", "ServiceAccount");
    let owned = |object: &Value| object["metadata"]["managedFields"].clone();
    let first = server.update("m", account(json!([{"name": "s"}])));
    let keyless = server.update("other", account(json!([{"name": "t"}, {"kind": "Secret"}])));
    assert_eq!(owned(&keyless), owned(&first));
    let error = server.apply("m", account(json!([{"name": "u"}]))).expect_err("a live object without a key");
    assert_eq!(
        error.to_string(),
        "failed to create typed live object (/a; /v1, Kind=ServiceAccount): .secrets: element 1: associative list with \
         keys has an element that omits all key fields [\"name\"] (and doesn't have default values for any key fields)"
    );
    let whole = server.update("other", account(json!([{"name": "t"}])));
    assert_eq!(owned(&whole), owned(&first), "what was there is still beyond it");
    assert_ne!(owned(&server.update("other", account(json!([])))), owned(&first));
}

/// A schema may let pass what has no type.
#[test]
fn custom_resources_that_do_not_fit_their_type_are_not_tracked() {
    let gvk = GroupVersionKind::new("e.com", "v1", "E");
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"t": {"type": "string"},
        "l": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}}}}});
    let ty = custom_type(&gvk, Schema::parse(&schema));
    for (spec, tracked) in [(json!({"t": "x"}), true), (json!({"l": ["a", "a"]}), true), (json!({"t": [null]}), false)]
    {
        let now = jiff::Timestamp::from_second(1_700_000_000).expect("a time");
        let write = Write { gvk: &gvk, manager: "me", subresource: "", reset: &[], now, versions: None };
        let mut new = json!({"apiVersion": "e.com/v1", "kind": "E", "metadata": {"name": "a"}, "spec": spec});
        managed::update(&ty, &write, None, &mut new);
        assert_eq!(new["metadata"]["managedFields"].is_array(), tracked, "{spec}");
    }
}
