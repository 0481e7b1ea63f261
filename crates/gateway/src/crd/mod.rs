//! The CustomResourceDefinitions of the Gateway API: installed where there are none, left alone where somebody else's are.

mod schema;

use ferry_client::{Api, write};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{ListParams, PostParams};
use serde_json::{Value, json};

use crate::api::GROUP;

/// The release whose standard channel these are.
pub const BUNDLE_VERSION: &str = "v1.7.0";
const BUNDLE: &str = "gateway.networking.k8s.io/bundle-version";
/// The names of the group are protected; this says that somebody may define them.
const APPROVED: &str = "api-approved.kubernetes.io";

struct Row {
    kind: &'static str,
    plural: &'static str,
    short: Option<&'static str>,
    namespaced: bool,
    spec: &'static str,
    /// Empty: the kind has none.
    status: &'static str,
    /// The first is stored.
    versions: &'static [&'static str],
    columns: &'static [(&'static str, &'static str)],
}

const ACCEPTED: (&str, &str) = ("Accepted", r#".status.conditions[?(@.type=="Accepted")].status"#);
const PROGRAMMED: (&str, &str) = ("Programmed", r#".status.conditions[?(@.type=="Programmed")].status"#);
const HOSTNAMES: (&str, &str) = ("Hostnames", ".spec.hostnames");

const ROWS: &[Row] = &[
    Row {
        kind: "GatewayClass",
        plural: "gatewayclasses",
        short: Some("gc"),
        namespaced: false,
        spec: "GatewayClassSpec",
        status: "GatewayClassStatus",
        versions: &["v1", "v1beta1"],
        columns: &[("Controller", ".spec.controllerName"), ACCEPTED],
    },
    Row {
        kind: "Gateway",
        plural: "gateways",
        short: Some("gtw"),
        namespaced: true,
        spec: "GatewaySpec",
        status: "GatewayStatus",
        versions: &["v1", "v1beta1"],
        columns: &[("Class", ".spec.gatewayClassName"), ("Address", ".status.addresses[*].value"), PROGRAMMED],
    },
    Row {
        kind: "ListenerSet",
        plural: "listenersets",
        short: Some("lset"),
        namespaced: true,
        spec: "ListenerSetSpec",
        status: "ListenerSetStatus",
        versions: &["v1"],
        columns: &[ACCEPTED, PROGRAMMED],
    },
    Row {
        kind: "HTTPRoute",
        plural: "httproutes",
        short: None,
        namespaced: true,
        spec: "HTTPRouteSpec",
        status: "RouteStatus",
        versions: &["v1", "v1beta1"],
        columns: &[HOSTNAMES],
    },
    Row {
        kind: "GRPCRoute",
        plural: "grpcroutes",
        short: None,
        namespaced: true,
        spec: "GRPCRouteSpec",
        status: "RouteStatus",
        versions: &["v1"],
        columns: &[HOSTNAMES],
    },
    Row {
        kind: "TLSRoute",
        plural: "tlsroutes",
        short: None,
        namespaced: true,
        spec: "TLSRouteSpec",
        status: "RouteStatus",
        versions: &["v1"],
        columns: &[],
    },
    Row {
        kind: "TCPRoute",
        plural: "tcproutes",
        short: None,
        namespaced: true,
        spec: "StreamRouteSpec",
        status: "RouteStatus",
        versions: &["v1"],
        columns: &[],
    },
    Row {
        kind: "UDPRoute",
        plural: "udproutes",
        short: None,
        namespaced: true,
        spec: "StreamRouteSpec",
        status: "RouteStatus",
        versions: &["v1"],
        columns: &[],
    },
    Row {
        kind: "ReferenceGrant",
        plural: "referencegrants",
        short: Some("refgrant"),
        namespaced: true,
        spec: "ReferenceGrantSpec",
        status: "",
        versions: &["v1beta1", "v1"],
        columns: &[],
    },
    Row {
        kind: "BackendTLSPolicy",
        plural: "backendtlspolicies",
        short: Some("btlspolicy"),
        namespaced: true,
        spec: "BackendTLSPolicySpec",
        status: "PolicyStatus",
        versions: &["v1"],
        columns: &[],
    },
];

fn definition(types: &schema::Types, row: &Row) -> Value {
    let mut properties = json!({
        "apiVersion": { "type": "string" },
        "kind": { "type": "string" },
        "metadata": { "type": "object" },
        "spec": types.schema(row.spec),
    });
    if !row.status.is_empty() {
        properties["status"] = types.schema(row.status);
        // The first status of a new object says that nobody has looked at it yet.
        if let Some(conditions) = properties["status"].pointer("/properties/conditions/default").cloned() {
            properties["status"]["default"] = json!({ "conditions": conditions });
        }
    }
    let column = |(name, path): &(&str, &str)| json!({ "name": name, "type": "string", "jsonPath": path });
    let age = json!({ "name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp" });
    let columns: Vec<Value> = row.columns.iter().map(column).chain(std::iter::once(age)).collect();
    let versions = row.versions.iter().enumerate().map(|(place, version)| {
        let mut version = json!({
            "name": version, "served": true, "storage": place == 0,
            "schema": { "openAPIV3Schema": { "type": "object", "required": ["spec"], "properties": properties } },
            "additionalPrinterColumns": columns,
        });
        if !row.status.is_empty() {
            version["subresources"] = json!({ "status": {} });
        }
        version
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{}.{GROUP}", row.plural),
            "annotations": {
                BUNDLE: BUNDLE_VERSION,
                "gateway.networking.k8s.io/channel": "standard",
                APPROVED: "https://github.com/kubernetes-sigs/gateway-api",
            },
            "labels": { "app.kubernetes.io/managed-by": "ferry" },
        },
        "spec": {
            "group": GROUP,
            "scope": if row.namespaced { "Namespaced" } else { "Cluster" },
            "names": {
                "kind": row.kind,
                "listKind": format!("{}List", row.kind),
                "plural": row.plural,
                "singular": row.kind.to_lowercase(),
                "shortNames": row.short.into_iter().collect::<Vec<_>>(),
                "categories": ["gateway-api"],
            },
            "versions": versions.collect::<Vec<_>>(),
        },
    })
}

/// All definitions.
pub fn definitions() -> Vec<Value> {
    let types = schema::Types::read();
    ROWS.iter().map(|row| definition(&types, row)).collect()
}

/// Installs what is missing, and says which kinds there will be. Where the group is somebody else's, nothing is touched.
pub async fn install(client: &Client) -> Result<Vec<String>, kube::Error> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let known = api.list(&ListParams::default()).await?;
    let of_group: Vec<_> = known.items.iter().filter(|one| one.spec.group == GROUP).collect();
    let foreign = of_group.iter().find(|one| {
        let labels = one.metadata.labels.as_ref();
        labels.and_then(|labels| labels.get("app.kubernetes.io/managed-by")).map(String::as_str) != Some("ferry")
    });
    if let Some(foreign) = foreign {
        let version = foreign.metadata.annotations.as_ref().and_then(|all| all.get(BUNDLE)).cloned();
        let version = version.unwrap_or_else(|| "an unknown version".to_owned());
        tracing::info!(
            "the CustomResourceDefinitions of the Gateway API are somebody else's ({version}) and stay as they are"
        );
        return Ok(of_group.iter().map(|one| one.spec.names.kind.clone()).filter(|kind| is_read(kind)).collect());
    }
    for definition in definitions() {
        let definition: CustomResourceDefinition =
            serde_json::from_value(definition).map_err(kube::Error::SerdeError)?;
        let name = definition.metadata.name.clone().unwrap_or_default();
        match of_group.iter().find(|one| one.metadata.name.as_deref() == Some(&name)) {
            None => match api.create(&PostParams::default(), &definition).await {
                Err(error) if !write::is_already_exists(&error) => return Err(error),
                _ => {}
            },
            Some(old) if is_older(old) => {
                let mut newer = definition;
                newer.metadata.resource_version.clone_from(&old.metadata.resource_version);
                api.replace(&name, &PostParams::default(), &newer).await?;
            }
            Some(_) => {}
        }
    }
    Ok(kinds())
}

/// All that are read here.
pub fn kinds() -> Vec<String> {
    ROWS.iter().map(|row| row.kind.to_owned()).collect()
}

fn is_read(kind: &str) -> bool {
    ROWS.iter().any(|row| row.kind == kind)
}

/// Those of an earlier release of Ferry are replaced.
fn is_older(definition: &CustomResourceDefinition) -> bool {
    definition.metadata.annotations.as_ref().and_then(|all| all.get(BUNDLE)).map(String::as_str) != Some(BUNDLE_VERSION)
}

/// The kinds that the server has in the version that is read here.
pub async fn served(client: &Client) -> Result<Vec<String>, kube::Error> {
    let kinds = ferry_client::discovery::kinds(client).await?;
    let version = |kind: &str| if kind == "ReferenceGrant" { "v1beta1" } else { "v1" };
    Ok(kinds
        .into_iter()
        .filter(|one| one.group == GROUP && one.version == version(&one.kind))
        .map(|one| one.kind)
        .collect())
}
