//! Tokens that a node asks for: bound to one of its pods, and for an audience that this pod has a use for.

use ferry_meta::object::{items, name, text, uid};
use serde_json::Value;

use super::{Answer, GrantAnswer, NodeRestriction, Refusal, missing, refuse};
use crate::Request;
use crate::pod::is_set;
use crate::resources::{CLAIMS, CSI_DRIVERS, VOLUMES};

/// Sources of volumes that CSI drivers took over, and the drivers that serve them.
const MIGRATED: [(&str, &str); 7] = [
    ("awsElasticBlockStore", "ebs.csi.aws.com"),
    ("azureDisk", "disk.csi.azure.com"),
    ("azureFile", "file.csi.azure.com"),
    ("cinder", "cinder.csi.openstack.org"),
    ("gcePersistentDisk", "pd.csi.storage.gke.io"),
    ("portworxVolume", "pxd.portworx.com"),
    ("vsphereVolume", "csi.vsphere.vmware.com"),
];

impl NodeRestriction {
    pub(super) async fn token(&self, node: &str, request: &Request<'_>) -> Answer {
        let reference = request.object.as_deref().and_then(|object| object.pointer("/spec/boundObjectRef"));
        let Some(reference) = reference
            .filter(|r| text(r, "/apiVersion") == "v1" && text(r, "/kind") == "Pod" && !text(r, "/name").is_empty())
        else {
            return refuse("node requested token not bound to a pod");
        };
        let wanted = text(reference, "/uid");
        if wanted.is_empty() {
            return refuse("node requested token with a pod binding without a uid");
        }
        let pod = self.existing_pod(request.namespace, text(reference, "/name")).map_err(Refusal::Other)?;
        if wanted != uid(&pod) {
            return refuse(format!(
                "the UID in the bound object reference ({wanted}) does not match the UID in record. The object might have been deleted and then recreated"
            ));
        }
        if text(&pod, "/spec/nodeName") != node {
            return refuse("node requested token bound to a pod scheduled on a different node");
        }
        self.audience(&pod, request).await
    }

    async fn audience(&self, pod: &Value, request: &Request<'_>) -> Answer {
        let object = request.object.as_deref();
        let audience = match object.map(|object| items(object, "/spec/audiences")).unwrap_or_default() {
            [] => "",
            [one] => one.as_str().unwrap_or_default(),
            _ => return refuse("node may only request 0 or 1 audiences"),
        };
        match self.pod_uses(pod, request.namespace, audience) {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(why) => return refuse(format!("error validating audience {audience:?}: {why}")),
        }
        let user = &request.user.name;
        match self.is_granted(request, "request-serviceaccounts-token-audience", audience, request.name).await {
            GrantAnswer::Granted => Ok(()),
            GrantAnswer::Refused => {
                refuse(format!("{user} is not authorized to request tokens for audience {audience:?}"))
            }
            GrantAnswer::Unknown(why) => {
                refuse(format!("error authorizing {user} to request tokens for audience {audience:?}: {why}"))
            }
        }
    }

    /// Whether a volume of the pod projects a token for this audience, or belongs to a driver that asks for one.
    fn pod_uses(&self, pod: &Value, namespace: &str, audience: &str) -> Result<bool, String> {
        let mut errors = Vec::new();
        for volume in items(pod, "/spec/volumes") {
            let mut projected = items(volume, "/projected/sources").iter().filter_map(|s| s.get("serviceAccountToken"));
            if projected.any(|token| token.is_object() && text(token, "/audience") == audience) {
                return Ok(true);
            }
            match self.driver(pod, volume, namespace).and_then(|driver| self.driver_asks(driver.as_deref(), audience)) {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(why) => errors.push(why),
            }
        }
        match errors.as_slice() {
            [] => Ok(false),
            [one] => Err(one.clone()),
            many => Err(format!("[{}]", many.join(", "))),
        }
    }

    fn driver(&self, pod: &Value, volume: &Value, namespace: &str) -> Result<Option<String>, String> {
        if is_set(volume, "/ephemeral/volumeClaimTemplate") {
            let claim = format!("{}-{}", name(pod), text(volume, "/name"));
            return self.driver_of_claim(namespace, &claim);
        }
        if is_set(volume, "/persistentVolumeClaim") {
            return self.driver_of_claim(namespace, text(volume, "/persistentVolumeClaim/claimName"));
        }
        Ok(driver_of_source(volume))
    }

    fn driver_of_claim(&self, namespace: &str, claim: &str) -> Result<Option<String>, String> {
        let found = self.reader.get(&CLAIMS, namespace, claim);
        let found = found.ok_or_else(|| missing("", "persistentvolumeclaim", claim).to_string())?;
        let volume = text(&found, "/spec/volumeName");
        let found = self.reader.get(&VOLUMES, "", volume);
        let found = found.ok_or_else(|| missing("", "persistentvolume", volume).to_string())?;
        Ok(found.get("spec").and_then(driver_of_source))
    }

    fn driver_asks(&self, driver: Option<&str>, audience: &str) -> Result<bool, String> {
        let Some(driver) = driver else { return Ok(false) };
        let found = self.reader.get(&CSI_DRIVERS, "", driver);
        let found = found.ok_or_else(|| missing("storage.k8s.io", "csidriver", driver).to_string())?;
        Ok(items(&found, "/spec/tokenRequests").iter().any(|asked| text(asked, "/audience") == audience))
    }
}

fn driver_of_source(source: &Value) -> Option<String> {
    let own = text(source, "/csi/driver");
    if !own.is_empty() {
        return Some(own.to_owned());
    }
    let migrated = MIGRATED.iter().find(|(field, _)| source.get(field).is_some_and(Value::is_object));
    migrated.map(|(_, driver)| (*driver).to_owned())
}
