//! Has devices prepared before a pod starts, and given back after its end.

use std::collections::BTreeSet;

use ferry_client::{Api, write};
use ferry_plugins::dra::{Claim as Asked, NodePrepareResourcesRequest, NodeUnprepareResourcesRequest};
use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::Client;

use super::record::PreparedDevice;
use super::{Dra, claims};
use crate::pod;

impl Dra {
    /// Prepares the devices of all claims of a pod. What is prepared already is not prepared again.
    pub(crate) async fn prepare(&self, client: &Client, of: &Pod) -> Result<(), String> {
        let api: Api<ResourceClaim> = Api::namespaced(client.clone(), pod::namespace(of));
        let failed = |why: String| format!("prepare dynamic resources: {why}");
        for (name, own) in claims::claims(of).map_err(failed)? {
            let claim = api.get(&name).await;
            let claim =
                claim.map_err(|error| failed(format!("fetch ResourceClaim {name}: {}", write::short(&error))))?;
            let drivers = claims::drivers(of, &claim, own).map_err(failed)?;
            self.prepare_claim(of, &claim, &drivers).await.map_err(failed)?;
        }
        Ok(())
    }

    async fn prepare_claim(&self, of: &Pod, claim: &ResourceClaim, drivers: &BTreeSet<String>) -> Result<(), String> {
        let uid = claim.metadata.uid.clone().unwrap_or_default();
        let name = claim.metadata.name.clone().unwrap_or_default();
        let turn = self.turn(&uid);
        let _turn = turn.lock().await;
        // A driver that is not there has nothing to give back either: it is not written down as asked.
        let unprepared: Vec<String> = self.state.lock().unprepared_of(&uid, drivers);
        for driver in &unprepared {
            self.driver(driver)?;
        }
        let missing = self.state.lock().begin(&uid, pod::uid(of), (pod::namespace(of), &name), drivers);
        // Written before a driver is asked: a kubelet that starts again gives back what it may have got.
        self.write().await?;
        let asked = Asked { namespace: pod::namespace(of).to_owned(), uid: uid.clone(), name: name.clone() };
        for driver in missing {
            let devices = self.ask(&driver, &asked).await?;
            self.state.lock().prepared(&uid, &driver, devices);
            self.write().await?;
        }
        Ok(())
    }

    async fn ask(&self, driver: &str, asked: &Asked) -> Result<Vec<PreparedDevice>, String> {
        let request = NodePrepareResourcesRequest { claims: vec![asked.clone()] };
        let answer = self.driver(driver)?.prepare(request).await;
        let mut answer =
            answer.map_err(|status| format!("NodePrepareResources of driver {driver}: {}", status.message()))?;
        let answer = answer.claims.remove(&asked.uid);
        let answer =
            answer.ok_or_else(|| format!("NodePrepareResources of driver {driver} skipped claim {}", asked.name))?;
        if !answer.error.is_empty() {
            return Err(format!(
                "NodePrepareResources failed for ResourceClaim {}: driver {driver}: {}",
                asked.name, answer.error
            ));
        }
        let devices = answer.devices.into_iter().map(|device| PreparedDevice {
            request_names: device.request_names,
            pool_name: device.pool_name,
            device_name: device.device_name,
            cdi_device_ids: device.cdi_device_ids,
            share_id: device.share_id,
        });
        Ok(devices.collect())
    }

    /// Gives the devices of a pod back, those that no other pod uses.
    pub(crate) async fn unprepare(&self, pod: &str) -> Result<(), String> {
        let used = self.state.lock().of_pod(pod);
        for uid in used {
            let turn = self.turn(&uid);
            let _turn = turn.lock().await;
            let Some(claim) = self.state.lock().get(&uid).cloned() else { continue };
            let last = claim.pods.iter().all(|user| user == pod);
            let asked = Asked { namespace: claim.namespace, uid: uid.clone(), name: claim.name.clone() };
            for driver in claim.drivers.into_keys().filter(|_| last) {
                self.give_back(&driver, &asked).await?;
                self.state.lock().unprepared(&uid, &driver);
            }
            self.state.lock().leave(&uid, pod);
            if last {
                self.state.lock().forget(&uid);
                self.turns.lock().remove(&uid);
            }
            self.write().await?;
        }
        Ok(())
    }

    async fn give_back(&self, driver: &str, asked: &Asked) -> Result<(), String> {
        let request = NodeUnprepareResourcesRequest { claims: vec![asked.clone()] };
        let answer = self.driver(driver)?.unprepare(request).await;
        let mut answer =
            answer.map_err(|status| format!("NodeUnprepareResources of driver {driver}: {}", status.message()))?;
        match answer.claims.remove(&asked.uid) {
            Some(answer) if answer.error.is_empty() => Ok(()),
            Some(answer) => Err(format!(
                "NodeUnprepareResources failed for ResourceClaim {}: driver {driver}: {}",
                asked.name, answer.error
            )),
            None => Err(format!("NodeUnprepareResources of driver {driver} skipped claim {}", asked.name)),
        }
    }

    /// The CDI devices that a container gets by its claims.
    pub(crate) fn cdi_devices(&self, of: &Pod, container: &Container) -> Result<Vec<String>, String> {
        let state = self.state.lock();
        let mut names = Vec::new();
        for (claim, request) in claims::used(of, container) {
            let prepared = state.of_name(pod::uid(of), &claim);
            let prepared = prepared.ok_or_else(|| format!("ResourceClaim {claim} is not prepared"))?;
            for devices in prepared.drivers.values() {
                let devices = devices.as_ref().ok_or_else(|| format!("ResourceClaim {claim} is not prepared"))?;
                let wanted = devices.iter().filter(|device| is_for(device, request.as_deref()));
                names.extend(wanted.flat_map(|device| device.cdi_device_ids.iter().cloned()));
            }
        }
        Ok(names)
    }
}

/// Whether a device was prepared for a request of its claim.
fn is_for(device: &PreparedDevice, request: Option<&str>) -> bool {
    let Some(request) = request.filter(|request| !request.is_empty()) else { return true };
    // A request of several kinds is named with the one that was found: `request/kind`.
    let main = |name: &String| name == request || name.split('/').next() == Some(request);
    device.request_names.is_empty() || device.request_names.iter().any(main)
}
