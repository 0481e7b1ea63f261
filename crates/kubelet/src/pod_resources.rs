//! The PodResources API: what devices the pods of this node have, for monitoring agents on the node.

use std::sync::Arc;
use std::time::Duration;

use ferry_client::Informer;
use ferry_plugins::podresources::pod_resources_lister_server::{PodResourcesLister, PodResourcesListerServer};
use ferry_plugins::podresources::{
    AllocatableResourcesRequest, AllocatableResourcesResponse, CdiDevice, ClaimResource, ContainerDevices,
    ContainerMemory, ContainerResources, DynamicResource, GetPodResourcesRequest, GetPodResourcesResponse,
    ListPodResourcesRequest, ListPodResourcesResponse, NumaNode, PodResources, TopologyInfo,
};
use ferry_plugins::{Request, Response, Routes, Status};
use k8s_openapi::api::core::v1::{Container, Pod};

use crate::context::Context;
use crate::cpu_manager::CpuSet;
use crate::device_plugins::Held;
use crate::dra::{PreparedDevice, Shown};
use crate::memory_manager::Block;
use crate::metrics::Counter;
use crate::pod;

/// Before the socket is opened again, should that have failed.
const RETRY: Duration = Duration::from_secs(5);

/// Serves it, for ever.
pub(crate) async fn serve(context: Arc<Context>, pods: Informer<Pod>) {
    let folder = context.config.root_dir.join("pod-resources");
    loop {
        let lister = Lister { context: context.clone(), pods: pods.clone() };
        let served = match std::fs::create_dir_all(&folder) {
            Ok(()) => {
                let routes = Routes::new(PodResourcesListerServer::new(lister));
                ferry_plugins::serve(&folder.join("kubelet.sock"), routes).await
            }
            Err(error) => Err(error),
        };
        if let Err(error) = served {
            tracing::warn!("the resources of pods are not told: {}: {error}", folder.display());
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// Of this API, as metrics tell it.
const VERSION: [(&str, &str); 1] = [("server_api_version", "v1")];

struct Lister {
    context: Arc<Context>,
    pods: Informer<Pod>,
}

impl Lister {
    fn count(&self, kind: Counter) {
        self.context.metrics.count(Counter::PodResourcesRequests, &VERSION);
        self.context.metrics.count(kind, &VERSION);
    }

    fn of_pod(&self, of: &Pod) -> PodResources {
        let uid = self.context.mirrors.runtime_uid(of).unwrap_or_else(|| pod::uid(of).to_owned());
        let (mut held, claims) = (self.context.hardware.devices.held(&uid), self.context.hardware.dra.shown(&uid));
        let sidecars = pod::init_containers(of).iter().filter(|container| pod::is_sidecar(container));
        let containers = sidecars.chain(pod::containers(of)).map(|container| ContainerResources {
            name: container.name.clone(),
            devices: held.remove(&container.name).unwrap_or_default().into_iter().map(devices).collect(),
            dynamic_resources: dynamic(of, container, &claims),
            cpu_ids: ids(&self.context.hardware.cpus.exclusive(&uid, &container.name)),
            memory: memory(self.context.hardware.memory.blocks(&uid, &container.name)),
        });
        PodResources {
            name: pod::name(of).to_owned(),
            namespace: pod::namespace(of).to_owned(),
            containers: containers.collect(),
            ..PodResources::default()
        }
    }
}

fn ids(cpus: &CpuSet) -> Vec<i64> {
    cpus.iter().map(i64::from).collect()
}

fn memory(blocks: Vec<Block>) -> Vec<ContainerMemory> {
    let shown = blocks.into_iter().map(|block| ContainerMemory {
        memory_type: block.kind,
        size: block.size,
        topology: Some(TopologyInfo {
            nodes: block.numa_affinity.into_iter().map(|id| NumaNode { id: i64::from(id) }).collect(),
        }),
    });
    shown.collect()
}

fn devices(held: Held) -> ContainerDevices {
    let nodes: Vec<NumaNode> = held.nodes.into_iter().map(|id| NumaNode { id }).collect();
    ContainerDevices {
        resource_name: held.resource,
        device_ids: held.devices,
        topology: (!nodes.is_empty()).then_some(TopologyInfo { nodes }),
    }
}

/// The claims of a pod that a container uses.
fn dynamic(of: &Pod, container: &Container, claims: &[Shown]) -> Vec<DynamicResource> {
    let used = crate::dra::used(of, container);
    let mine = claims.iter().filter(|claim| used.iter().any(|(name, _)| *name == claim.name));
    let shown = mine.map(|claim| DynamicResource {
        claim_name: claim.name.clone(),
        claim_namespace: claim.namespace.clone(),
        claim_resources: (claim.drivers.iter())
            .flat_map(|(driver, devices)| devices.iter().map(|device| claimed(driver, device)))
            .collect(),
    });
    shown.collect()
}

fn claimed(driver: &str, device: &PreparedDevice) -> ClaimResource {
    ClaimResource {
        cdi_devices: device.cdi_device_ids.iter().map(|name| CdiDevice { name: name.clone() }).collect(),
        driver_name: driver.to_owned(),
        pool_name: device.pool_name.clone(),
        device_name: device.device_name.clone(),
        share_id: device.share_id.clone(),
    }
}

#[async_trait::async_trait]
impl PodResourcesLister for Lister {
    async fn list(&self, _: Request<ListPodResourcesRequest>) -> Result<Response<ListPodResourcesResponse>, Status> {
        self.count(Counter::PodResourcesList);
        let active = self.pods.list().into_iter().filter(|of| !pod::is_terminal(pod::status(of)));
        let pod_resources = active.map(|of| self.of_pod(&of)).collect();
        Ok(Response::new(ListPodResourcesResponse { pod_resources }))
    }

    async fn get_allocatable_resources(
        &self,
        _: Request<AllocatableResourcesRequest>,
    ) -> Result<Response<AllocatableResourcesResponse>, Status> {
        self.count(Counter::PodResourcesGetAllocatable);
        let healthy = self.context.hardware.devices.healthy().into_iter().map(devices).collect();
        let answer = AllocatableResourcesResponse {
            devices: healthy,
            cpu_ids: ids(&self.context.hardware.cpus.allocatable()),
            memory: memory(self.context.hardware.memory.allocatable()),
        };
        Ok(Response::new(answer))
    }

    async fn get(&self, request: Request<GetPodResourcesRequest>) -> Result<Response<GetPodResourcesResponse>, Status> {
        self.count(Counter::PodResourcesGet);
        let asked = request.into_inner();
        let found = self.pods.get(&asked.pod_namespace, &asked.pod_name);
        let found = found.filter(|of| !pod::is_terminal(pod::status(of)));
        let found = found.ok_or_else(|| {
            self.context.metrics.count(Counter::PodResourcesGetErrors, &VERSION);
            Status::not_found(format!("pod {} in namespace {} not found", asked.pod_name, asked.pod_namespace))
        })?;
        Ok(Response::new(GetPodResourcesResponse { pod_resources: Some(self.of_pod(&found)) }))
    }
}
