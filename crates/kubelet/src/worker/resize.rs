//! New amounts of processor and memory for containers that run.

use std::collections::HashMap;

use ferry_client::EventType;
use k8s_openapi::api::core::v1::{Container, Pod};

use super::Worker;
use crate::pod;
use crate::runtime::PodState;
use crate::spec::resources::{self, Size};

/// What the running containers have been given, by container id.
#[derive(Default)]
pub(super) struct Sizes {
    given: HashMap<String, Size>,
    /// What the runtime would not give: asked for again only when the pod wants something else.
    refused: HashMap<String, Size>,
}

impl Sizes {
    pub(super) fn given(&self) -> &HashMap<String, Size> {
        &self.given
    }

    /// The sizes the planner is to take as reached.
    pub(super) fn settled(&self) -> HashMap<String, Size> {
        let mut all = self.given.clone();
        all.extend(self.refused.iter().map(|(id, size)| (id.clone(), *size)));
        all
    }

    /// Whether a running container is still to get what the pod wants for it.
    pub(super) fn unsettled(&self, pod: &Pod, state: &PodState) -> bool {
        let settled = self.settled();
        state.running().any(|record| {
            let wanted = pod::container(pod, &record.name).map(|(_, container)| resources::size(&container));
            settled.get(&record.id).is_some_and(|given| wanted.is_some_and(|wanted| wanted != *given))
        })
    }

    pub(super) fn started(&mut self, id: &str, size: Size) {
        self.given.insert(id.to_owned(), size);
    }
}

impl Worker {
    /// Containers that another kubelet, or this one before a restart, has started: their status says what they have.
    pub(super) fn adopt_sizes(&mut self, state: &PodState) {
        let is_there = |id: &String| state.running().any(|record| record.id == *id);
        self.sizes.given.retain(|id, _| is_there(id));
        self.sizes.refused.retain(|id, _| is_there(id));
        for record in state.running() {
            if self.sizes.given.contains_key(&record.id) {
                continue;
            }
            let Some((_, container)) = pod::container(&self.pod, &record.name) else { continue };
            let reported = pod::container_status(&self.status, &record.name).and_then(|s| s.resources.clone());
            let container =
                Container { resources: reported.or_else(|| container.resources.clone()), ..container.into_owned() };
            self.sizes.given.insert(record.id.clone(), resources::size(&container));
        }
    }

    /// Why what runs cannot have what the pod wants for it: CPUs and memory are given out once.
    pub(super) fn cannot_be_resized(&self, state: &PodState) -> Option<&'static str> {
        if pod::qos_class(&self.pod) != "Guaranteed" {
            return None;
        }
        let differs = |of: fn(&Size) -> i64| {
            state.running().any(|record| {
                let wanted = pod::container(&self.pod, &record.name).map(|(_, container)| resources::size(&container));
                wanted.zip(self.sizes.given.get(&record.id)).is_some_and(|(wanted, given)| of(&wanted) != of(given))
            })
        };
        let hardware = &self.context.hardware;
        if hardware.cpus.is_static() && differs(|size| size.shares) {
            return Some("Resize is infeasible for Guaranteed Pods alongside CPU Manager policy \"static\"");
        }
        if hardware.memory.is_static() && differs(|size| size.memory) {
            return Some("Resize is infeasible for Guaranteed Pods alongside Memory Manager policy \"Static\"");
        }
        None
    }

    pub(super) async fn resize(&mut self, state: &PodState, id: &str, name: &str) {
        let pod = self.pod.clone();
        let Some((_, container)) = pod::container(&pod, name) else { return };
        let wanted = resources::size(&container);
        if let Some(text) = self.cannot_be_resized(state) {
            self.events().pod(EventType::Warning, "ResizeInfeasible", text);
            self.sizes.refused.insert(id.to_owned(), wanted);
            return;
        }
        let machine = self.context.memory_machine();
        let amounts = resources::linux(&pod, &container, &self.context.placement(&self.uid, name));
        let amounts = self.context.config.settings.memory.applied(amounts, &pod, &container, &machine);
        let (runtime, resized) = (self.context.runtime.clone(), id.to_owned());
        let call = async move { runtime.update_resources(&resized, amounts).await };
        match self.context.see_through(call).await {
            Ok(()) => {
                self.sizes.given.insert(id.to_owned(), wanted);
                self.sizes.refused.remove(id);
            }
            Err(error) => {
                let text = format!("Container {name} could not be resized: {}", error.message);
                self.events().container(name, EventType::Warning, "ResizeError", text);
                self.sizes.refused.insert(id.to_owned(), wanted);
            }
        }
    }
}
