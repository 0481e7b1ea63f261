//! Volumes of a pod, of its template or of the cluster: one row for each kind of source.

use serde_json::Value;

use super::parts::{list, text};
use crate::print::go_value::show;

pub fn volumes(all: &Value, space: &str) -> String {
    let all = list(all);
    if all.is_empty() {
        return format!("{space}Volumes:\t<none>\n");
    }
    let indent = if space.is_empty() { "" } else { " " };
    let mut out = format!("{space}Volumes:\n");
    for volume in all {
        out.push_str(&format!("  {indent}{}:\n", text(volume, "name")));
        out.push_str(&source(volume).unwrap_or_else(|| "  <unknown>\n".into()));
    }
    out
}

/// How a field is shown, and what is shown where it is not there.
#[derive(Clone, Copy)]
enum Shown {
    Text,
    Or(&'static str),
    Flag,
    Number,
    List,
    Joined,
    /// A reference, as Go prints its struct.
    Reference,
}

use Shown::{Flag, Joined, List, Number, Or, Reference, Text};

type Row = (&'static str, &'static str, &'static [(&'static str, &'static str, Shown)]);

/// In the order in which the first that is there counts.
const SOURCES: &[Row] = &[
    (
        "hostPath",
        "HostPath (bare host directory volume)",
        &[("Path:", "path", Text), ("HostPathType:", "type", Or("<none>"))],
    ),
    (
        "emptyDir",
        "EmptyDir (a temporary directory that shares a pod's lifetime)",
        &[("Medium:", "medium", Text), ("SizeLimit:", "sizeLimit", Or("<unset>"))],
    ),
    (
        "gcePersistentDisk",
        "GCEPersistentDisk (a Persistent Disk resource in Google Compute Engine)",
        &[
            ("PDName:", "pdName", Text),
            ("FSType:", "fsType", Text),
            ("Partition:", "partition", Number),
            ("ReadOnly:", "readOnly", Flag),
        ],
    ),
    (
        "awsElasticBlockStore",
        "AWSElasticBlockStore (a Persistent Disk resource in AWS)",
        &[
            ("VolumeID:", "volumeID", Text),
            ("FSType:", "fsType", Text),
            ("Partition:", "partition", Number),
            ("ReadOnly:", "readOnly", Flag),
        ],
    ),
    (
        "gitRepo",
        "GitRepo (a volume that is pulled from git when the pod is created)",
        &[("Repository:", "repository", Text), ("Revision:", "revision", Text)],
    ),
    (
        "secret",
        "Secret (a volume populated by a Secret)",
        &[("SecretName:", "secretName", Text), ("Optional:", "optional", Flag)],
    ),
    (
        "configMap",
        "ConfigMap (a volume populated by a ConfigMap)",
        &[("Name:", "name", Text), ("Optional:", "optional", Flag)],
    ),
    (
        "nfs",
        "NFS (an NFS mount that lasts the lifetime of a pod)",
        &[("Server:", "server", Text), ("Path:", "path", Text), ("ReadOnly:", "readOnly", Flag)],
    ),
    (
        "iscsi",
        "ISCSI (an ISCSI Disk resource that is attached to a kubelet's host machine and then exposed to the pod)",
        &[
            ("TargetPortal:", "targetPortal", Text),
            ("IQN:", "iqn", Text),
            ("Lun:", "lun", Number),
            ("ISCSIInterface", "iscsiInterface", Text),
            ("FSType:", "fsType", Text),
            ("ReadOnly:", "readOnly", Flag),
            ("Portals:", "portals", List),
            ("DiscoveryCHAPAuth:", "chapAuthDiscovery", Flag),
            ("SessionCHAPAuth:", "chapAuthSession", Flag),
            ("SecretRef:", "secretRef", Reference),
            ("InitiatorName:", "initiatorName", Or("<none>")),
        ],
    ),
    (
        "persistentVolumeClaim",
        "PersistentVolumeClaim (a reference to a PersistentVolumeClaim in the same namespace)",
        &[("ClaimName:", "claimName", Text), ("ReadOnly:", "readOnly", Flag)],
    ),
    (
        "rbd",
        "RBD (a Rados Block Device mount on the host that shares a pod's lifetime)",
        &[
            ("CephMonitors:", "monitors", List),
            ("RBDImage:", "image", Text),
            ("FSType:", "fsType", Text),
            ("RBDPool:", "pool", Text),
            ("RadosUser:", "user", Text),
            ("Keyring:", "keyring", Text),
            ("SecretRef:", "secretRef", Reference),
            ("ReadOnly:", "readOnly", Flag),
        ],
    ),
    (
        "azureDisk",
        "AzureDisk (an Azure Data Disk mount on the host and bind mount to the pod)",
        &[
            ("DiskName:", "diskName", Text),
            ("DiskURI:", "diskURI", Text),
            ("Kind: ", "kind", Text),
            ("FSType:", "fsType", Text),
            ("CachingMode:", "cachingMode", Text),
            ("ReadOnly:", "readOnly", Flag),
        ],
    ),
    (
        "vsphereVolume",
        "vSphereVolume (a Persistent Disk resource in vSphere)",
        &[
            ("VolumePath:", "volumePath", Text),
            ("FSType:", "fsType", Text),
            ("StoragePolicyName:", "storagePolicyName", Text),
        ],
    ),
    (
        "cinder",
        "Cinder (a Persistent Disk resource in OpenStack)",
        &[
            ("VolumeID:", "volumeID", Text),
            ("FSType:", "fsType", Text),
            ("ReadOnly:", "readOnly", Flag),
            ("SecretRef:", "secretRef", Reference),
        ],
    ),
    ("portworxVolume", "PortworxVolume (a Portworx Volume resource)", &[("VolumeID:", "volumeID", Text)]),
    ("local", "LocalVolume (a persistent volume backed by local storage on a node)", &[("Path:", "path", Text)]),
    (
        "cephfs",
        "CephFS (a CephFS mount on the host that shares a pod's lifetime)",
        &[
            ("Monitors:", "monitors", List),
            ("Path:", "path", Text),
            ("User:", "user", Text),
            ("SecretFile:", "secretFile", Text),
            ("SecretRef:", "secretRef", Reference),
            ("ReadOnly:", "readOnly", Flag),
        ],
    ),
    (
        "fc",
        "FC (a Fibre Channel disk)",
        &[
            ("TargetWWNs:", "targetWWNs", Joined),
            ("LUN:", "lun", Or("<none>")),
            ("FSType:", "fsType", Text),
            ("ReadOnly:", "readOnly", Flag),
        ],
    ),
    (
        "azureFile",
        "AzureFile (an Azure File Service mount on the host and bind mount to the pod)",
        &[("SecretName:", "secretName", Text), ("ShareName:", "shareName", Text), ("ReadOnly:", "readOnly", Flag)],
    ),
    (
        "flexVolume",
        "FlexVolume (a generic volume resource that is provisioned/attached using an exec based plugin)",
        &[
            ("Driver:", "driver", Text),
            ("FSType:", "fsType", Text),
            ("SecretRef:", "secretRef", Reference),
            ("ReadOnly:", "readOnly", Flag),
            ("Options:", "options", List),
        ],
    ),
    (
        "image",
        "Image (a container image or OCI artifact)",
        &[("Reference:", "reference", Text), ("PullPolicy:", "pullPolicy", Text)],
    ),
];

fn field(source: &Value, name: &str, shown: Shown) -> String {
    let value = &source[name];
    match shown {
        Text => text(source, name).to_owned(),
        Or(otherwise) if value.is_null() => otherwise.to_owned(),
        Or(_) => show(value),
        Flag => (*value == true).to_string(),
        Number => value.as_i64().unwrap_or(0).to_string(),
        List if value.is_null() => if name == "options" { "map[]" } else { "[]" }.to_owned(),
        List => show(value),
        Joined => list(value).iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", "),
        Reference if value.is_null() => "nil".to_owned(),
        Reference => match value["namespace"].as_str() {
            Some(namespace) => format!("&SecretReference{{Name:{},Namespace:{namespace},}}", text(value, "name")),
            None => format!("&LocalObjectReference{{Name:{},}}", text(value, "name")),
        },
    }
}

/// The lines of the source that a volume has.
pub fn source(volume: &Value) -> Option<String> {
    for (name, title, fields) in SOURCES {
        let source = &volume[*name];
        if !source.is_object() {
            continue;
        }
        let mut out = format!("    Type:\t{title}\n");
        for (title, name, shown) in *fields {
            out.push_str(&format!("    {title}\t{}\n", field(source, name, *shown)));
        }
        return Some(out);
    }
    if volume["ephemeral"].is_object() {
        return Some(ephemeral(&volume["ephemeral"]["volumeClaimTemplate"]));
    }
    if volume["downwardAPI"].is_object() {
        return Some(downward(&volume["downwardAPI"]));
    }
    if volume["projected"].is_object() {
        return Some(projected(&volume["projected"]));
    }
    if volume["csi"].is_object() {
        return Some(csi(&volume["csi"]));
    }
    None
}

fn downward(source: &Value) -> String {
    let mut out = "    Type:\tDownwardAPI (a volume populated by information about the pod)\n    Items:\n".to_owned();
    for item in list(&source["items"]) {
        for (reference, field) in [("fieldRef", "fieldPath"), ("resourceFieldRef", "resource")] {
            if item[reference].is_object() {
                out.push_str(&format!("      {} -> {}\n", text(&item[reference], field), text(item, "path")));
            }
        }
    }
    out
}

fn projected(source: &Value) -> String {
    let mut lines = vec!["Type:\tProjected (a volume that contains injected data from multiple sources)".to_owned()];
    for source in list(&source["sources"]) {
        let named = |title: &str, source: &Value| {
            let optional = source["optional"] == true;
            vec![format!("{title}:\t{}", text(source, "name")), format!("Optional:\t{optional}")]
        };
        if source["secret"].is_object() {
            lines.extend(named("SecretName", &source["secret"]));
        } else if source["downwardAPI"].is_object() {
            lines.push("DownwardAPI:\ttrue".into());
        } else if source["configMap"].is_object() {
            lines.extend(named("ConfigMapName", &source["configMap"]));
        } else if source["serviceAccountToken"].is_object() {
            let seconds = show(&source["serviceAccountToken"]["expirationSeconds"]);
            lines.push(format!("TokenExpirationSeconds:\t{seconds}"));
        }
    }
    lines.iter().map(|line| format!("    {line}\n")).collect()
}

fn csi(source: &Value) -> String {
    let mut out = "    Type:\tCSI (a Container Storage Interface (CSI) volume source)\n".to_owned();
    out.push_str(&format!("    Driver:\t{}\n    FSType:\t{}\n", text(source, "driver"), text(source, "fsType")));
    if let Some(handle) = source["volumeHandle"].as_str() {
        out.push_str(&format!("    VolumeHandle:\t{handle}\n"));
    }
    out.push_str(&format!("    ReadOnly:\t{}\n    VolumeAttributes:\t", source["readOnly"] == true));
    let attributes: Vec<String> = source["volumeAttributes"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    if attributes.is_empty() {
        return out + "<none>\n";
    }
    for (at, attribute) in attributes.iter().enumerate() {
        const LONGEST: usize = 140;
        let short: String = attribute.chars().take(LONGEST).collect();
        let more = if short.len() < attribute.len() { "..." } else { "" };
        out.push_str(if at > 0 { "        \t" } else { "" });
        out.push_str(&format!("    {short}{more}\n"));
    }
    out
}

fn ephemeral(template: &Value) -> String {
    let title = "EphemeralVolume (an inline specification for a volume that gets created and deleted with the pod)";
    let mut out = format!("    Type:\t{title}\n");
    if template.is_object() {
        for line in super::policy::claim_lines(template, false).split_inclusive('\n') {
            // Labels and annotations are moved twice: their titles and their values.
            if let Some(rest) = line.strip_prefix('\t') {
                out.push_str(&format!("        \t    {rest}"));
            } else if line.starts_with("Labels:") || line.starts_with("Annotations:") {
                out.push_str(&format!("    {}", line.replacen('\t', "\t    ", 1)));
            } else {
                out.push_str(&format!("    {line}"));
            }
        }
    }
    out
}
