//! What the documents say, by rule.

use super::*;
use crate::catalogue::META;

fn operation(path: &str, method: &str, action: &str, kind: (&str, &str, &str)) -> Operation {
    let kind = GroupVersionKind::new(kind.0, kind.1, kind.2);
    Operation {
        path: path.into(),
        method: method.into(),
        action: action.into(),
        body: kind.clone(),
        list_kind: format!("{}List", kind.kind),
        parent: kind.kind.clone(),
        everywhere: false,
        custom: false,
        watched: true,
        returns_deleted: false,
        kind,
    }
}

fn document() -> Value {
    let deployment = ("apps", "v1", "Deployment");
    v3(
        "apis/apps/v1",
        &[
            operation("/apis/apps/v1/namespaces/{namespace}/deployments", "get", "list", deployment),
            operation("/apis/apps/v1/namespaces/{namespace}/deployments", "post", "post", deployment),
            operation("/apis/apps/v1/namespaces/{namespace}/deployments", "delete", "deletecollection", deployment),
            operation("/apis/apps/v1/namespaces/{namespace}/deployments/{name}", "patch", "patch", deployment),
            operation("/apis/apps/v1/namespaces/{namespace}/deployments/{name}", "get", "get", deployment),
        ],
    )
}

fn names(parameters: &Value) -> Vec<&str> {
    parameters.as_array().into_iter().flatten().filter_map(|p| p["name"].as_str()).collect()
}

#[test]
fn every_reference_is_there_and_nothing_else() {
    let document = document();
    let schemas = document.pointer("/components/schemas").and_then(Value::as_object).expect("schemas");
    let mut referred = references(&document);
    referred.sort();
    let known: Vec<&String> = schemas.keys().collect();
    assert_eq!(referred.iter().collect::<Vec<_>>(), known);
    assert!(schemas.len() > 100, "{}", schemas.len());
}

#[test]
fn types_are_described_as_upstream_does() {
    let document = document();
    let schema = |name: &str| document["components"]["schemas"][name].clone();
    let deployment = schema("io.k8s.api.apps.v1.Deployment");
    let gvk = |group: &str, kind: &str| json!({"group": group, "kind": kind, "version": "v1"});
    assert_eq!(deployment["x-kubernetes-group-version-kind"], json!([gvk("apps", "Deployment")]));
    let options = schema(&format!("{META}.DeleteOptions"));
    assert_eq!(
        options["x-kubernetes-group-version-kind"],
        json!([gvk("", "DeleteOptions"), gvk("apps", "DeleteOptions")])
    );
    assert_eq!(
        deployment["properties"]["spec"]["allOf"],
        json!([{"$ref": "#/components/schemas/io.k8s.api.apps.v1.DeploymentSpec"}])
    );
    assert_eq!(deployment["required"], json!(["spec"]));
    let containers = &schema("io.k8s.api.core.v1.PodSpec")["properties"]["containers"];
    assert_eq!(containers["x-kubernetes-list-type"], "map");
    assert_eq!(containers["x-kubernetes-list-map-keys"], json!(["name"]));
    assert_eq!(containers["x-kubernetes-patch-strategy"], "merge");
    assert!(containers["description"].as_str().is_some_and(|d| !d.is_empty()));
    assert_eq!(schema("io.k8s.api.core.v1.PodSpec")["required"], json!(["containers"]));
    // Defaults: those that are told, those of fields that are always written, and none for pointers.
    for (of, field, default) in [
        ("core.v1.ContainerPort", "protocol", Some(json!("TCP"))),
        ("apps.v1.DeploymentCondition", "status", Some(json!(""))),
        ("core.v1.GRPCAction", "service", Some(json!(""))),
        ("apps.v1.DeploymentSpec", "replicas", None),
        ("core.v1.Container", "image", None),
    ] {
        assert_eq!(schema(&format!("io.k8s.api.{of}"))["properties"][field].get("default"), default.as_ref(), "{of}");
    }
    let policy = &schema("io.k8s.api.core.v1.Container")["properties"]["imagePullPolicy"];
    assert_eq!(policy["enum"], json!(["Always", "IfNotPresent", "Never"]));
    assert!(
        policy["description"].as_str().is_some_and(|text| text.contains("\n\nPossible enum values:\n - `\"Always\"`"))
    );
    assert_eq!(
        schema("io.k8s.api.core.v1.SeccompProfile")["x-kubernetes-unions"],
        json!([{"discriminator": "type", "fields-to-discriminateBy": {"localhostProfile": "LocalhostProfile"}}])
    );
}

#[test]
fn what_all_operations_of_a_path_take_is_said_once() {
    let document = document();
    let collection = &document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments"];
    assert_eq!(names(&collection["parameters"]), ["namespace", "pretty"]);
    assert_eq!(names(&collection["post"]["parameters"]), ["dryRun", "fieldManager", "fieldValidation"]);
    assert_eq!(collection["delete"]["operationId"], "deleteAppsV1CollectionNamespacedDeployment");
    let one = &document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"];
    assert_eq!(names(&one["parameters"]), ["name", "namespace", "pretty"]);
    assert_eq!(names(&one["patch"]["parameters"]), ["dryRun", "fieldManager", "fieldValidation", "force"]);
    assert_eq!(one["get"].get("parameters"), None);
    assert_eq!(one["patch"]["operationId"], "patchAppsV1NamespacedDeployment");
    assert_eq!(one["patch"]["x-kubernetes-group-version-kind"]["kind"], "Deployment");
    assert_eq!(document["paths"]["/apis/apps/v1/"]["get"]["operationId"], "getAppsV1APIResources");
}

#[test]
fn operations_are_named_as_upstream_names_them() {
    let pods = "/api/v1/namespaces/{namespace}/pods";
    for (path, method, action, kind, identifier, description) in [
        (pods, "get", "list", "Pod", "listCoreV1NamespacedPod", "list or watch objects of kind Pod"),
        (
            "/api/v1/namespaces/{namespace}/endpoints",
            "post",
            "post",
            "Endpoints",
            "createCoreV1NamespacedEndpoints",
            "create Endpoints",
        ),
        (
            "/api/v1/namespaces/{namespace}/events",
            "post",
            "post",
            "Event",
            "createCoreV1NamespacedEvent",
            "create an Event",
        ),
        (
            "/api/v1/watch/namespaces/{namespace}/pods",
            "get",
            "watchlist",
            "Pod",
            "watchCoreV1NamespacedPodList",
            "watch individual changes to a list of Pod. deprecated: use the 'watch' parameter with a list operation instead.",
        ),
    ] {
        let said = v3("api/v1", &[operation(path, method, action, ("", "v1", kind))]);
        let said = &said["paths"][path][method];
        assert_eq!((said["operationId"].as_str(), said["description"].as_str()), (Some(identifier), Some(description)));
    }
    let mut exec = operation(&format!("{pods}/{{name}}/exec"), "post", "connect", ("", "v1", "PodExecOptions"));
    exec.parent = "Pod".into();
    let said = v3("api/v1", &[exec]);
    let said = &said["paths"][format!("{pods}/{{name}}/exec")];
    assert_eq!(said["post"]["operationId"], "connectCoreV1PostNamespacedPodExec");
    assert_eq!(
        names(&said["parameters"]),
        ["command", "container", "name", "namespace", "stderr", "stdin", "stdout", "tty"]
    );
}

#[test]
fn paths_that_are_no_resources() {
    for (name, identifier) in [
        ("version", "getCodeVersion"),
        ("api", "getCoreAPIVersions"),
        ("apis/rbac.authorization.k8s.io", "getRbacAuthorizationAPIGroup"),
        ("apis/batch/v1", "getBatchV1APIResources"),
        ("openid/v1/jwks", "getServiceAccountIssuerOpenIDKeyset"),
    ] {
        let document = v3(name, &[]);
        assert_eq!(document["paths"][format!("/{name}/")]["get"]["operationId"], identifier, "{name}");
    }
}

#[test]
fn swagger_refers_beside_descriptions() {
    let list = operation("/apis/apps/v1/deployments", "get", "list", ("apps", "v1", "Deployment"));
    let document = v2(&["apis/apps".to_owned()], &[list], &[]);
    let spec = &document["definitions"]["io.k8s.api.apps.v1.Deployment"]["properties"]["spec"];
    assert_eq!(spec["$ref"], "#/definitions/io.k8s.api.apps.v1.DeploymentSpec");
    assert!(spec["description"].is_string());
    assert_eq!(document["paths"]["/apis/apps/"]["get"]["operationId"], "getAppsAPIGroup");
}

fn widget(schema: &Value) -> CustomKind<'_> {
    let kind = GroupVersionKind::new("stable.example.com", "v1", "Widget");
    CustomKind { kind, list_kind: "WidgetCollection", plural: "widgets", schema }
}

#[test]
fn swagger_lists_no_fields_where_any_is_allowed() {
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"a": {}}});
    let descriptions = built_in::schemas();
    let own = |schema: &Value, dialect| custom::schemas(&widget(schema), &descriptions, dialect).remove(0).1;
    let gvk = json!([{"group": "stable.example.com", "kind": "Widget", "version": "v1"}]);
    assert_eq!(own(&any, Dialect::V2), json!({"type": "object", "x-kubernetes-group-version-kind": gvk}));
    assert!(own(&any, Dialect::V3)["properties"]["a"].is_object());
    let below = json!({"type": "object", "properties": {
        "any": any,
        "null": {"type": "string", "nullable": true},
        "set": {"type": "string", "default": "x"},
        "inner": {"type": "object", "x-kubernetes-embedded-resource": true},
    }});
    let two = own(&below, Dialect::V2);
    let shown = json!({"x-kubernetes-preserve-unknown-fields": true});
    assert_eq!((&two["properties"]["any"], &two["properties"]["null"]), (&shown, &json!({})));
    assert_eq!(two["properties"]["set"], json!({"type": "string"}));
    assert!(two["properties"]["metadata"]["$ref"].is_string());
    let three = own(&below, Dialect::V3);
    assert_eq!(three["properties"]["set"]["default"], "x");
    assert_eq!(three["properties"]["inner"]["required"], json!(["kind", "apiVersion"]));
    assert!(three["properties"]["inner"]["properties"]["metadata"]["allOf"].is_array());
}

#[test]
fn definitions_are_published() {
    let schema = json!({"description": "A widget.", "type": "object", "properties": {"spec": {"type": "object",
        "properties": {"i": {"x-kubernetes-int-or-string": true}, "n": {"type": "string", "nullable": true}}}}});
    let kind = ("stable.example.com", "v1", "Widget");
    let root = "/apis/stable.example.com/v1/namespaces/{namespace}/widgets";
    let of = |path: &str, method: &str, action: &str| Operation {
        custom: true,
        list_kind: "WidgetCollection".into(),
        ..operation(path, method, action, kind)
    };
    let one = format!("{root}/{{name}}");
    let operations = [
        of(root, "get", "list"),
        of(root, "delete", "deletecollection"),
        of(&one, "get", "get"),
        of(&one, "put", "put"),
    ];
    let document = v3_custom(&operations, &[widget(&schema)]);
    let schemas = &document["components"]["schemas"];
    let shown = &schemas["com.example.stable.v1.Widget"];
    assert_eq!(
        shown["properties"]["spec"]["properties"]["i"]["anyOf"],
        json!([{"type": "integer"}, {"type": "string"}])
    );
    assert_eq!(shown["x-kubernetes-group-version-kind"][0]["kind"], "Widget");
    assert!(schemas[format!("{META}.ObjectMeta")].is_object());
    let text = document["paths"].to_string();
    assert!(!text.contains("protobuf"));
    assert!(text.contains("#/components/schemas/com.example.stable.v1.WidgetCollection"), "{text}");
    assert_eq!(names(&document["paths"][&one]["get"]["parameters"]), ["resourceVersion"]);
    assert_eq!(document["paths"][root]["get"]["description"], "list objects of kind Widget");
    assert_eq!(document["paths"][root]["delete"].get("requestBody"), None);
    assert_eq!(document["components"].get("securitySchemes"), None);
}
