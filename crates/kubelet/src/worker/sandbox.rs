//! Making and replacing the sandbox of a pod.

use std::time::Duration;

use ferry_client::{Api, EventType};
use ferry_cri::v1::{PodSandboxConfig, UserNamespace};
use k8s_openapi::api::node::v1::RuntimeClass;

use super::Worker;
use crate::metrics::Counter;
use crate::pod;
use crate::runtime::PodState;
use crate::spec::{dns, sandbox};
use crate::status::WaitReason;
use crate::{sysctls, volumes};

impl Worker {
    /// The users of a pod that does not want the host's. Where it cannot have them it does not run: to run it as the host's
    /// users in spite of that would be to say that it is safe when it is not.
    pub(super) async fn users(&self) -> Result<Option<UserNamespace>, String> {
        if pod::spec(&self.pod).host_users != Some(false) {
            return Ok(None);
        }
        let handler = self.runtime_handler().await?;
        let abilities = self.context.abilities().await.map_err(|error| error.to_string())?;
        if !abilities.handler(&handler).user_namespaces {
            let who =
                if handler.is_empty() { "runtime".to_owned() } else { format!("RuntimeClass handler {handler:?}") };
            return Err(format!("can't set `spec.hostUsers: false`, {who} does not support user namespaces"));
        }
        let (users, uid) = (self.context.users.clone(), self.uid.clone());
        volumes::blocking(move || users.of(&uid)).await.map(Some)
    }

    pub(super) fn sandbox_config(
        &self,
        attempt: u32,
        users: Option<&UserNamespace>,
    ) -> Result<PodSandboxConfig, String> {
        let config = &self.context.config;
        let host = dns::HostResolver::read(&config.resolv_conf);
        let resolver = dns::config(&self.pod, &config.cluster_dns, &config.cluster_domain, &host);
        let mut made = sandbox::config(
            &self.pod,
            attempt,
            users,
            resolver,
            &config.cluster_domain,
            &config.log_dir,
            self.context.hardware.groups.parent(&self.pod),
        )?;
        if let Some(linux) = &mut made.linux {
            sysctls::add_defaults(&config.settings.default_sysctls, &self.pod, &mut linux.sysctls);
        }
        Ok(made)
    }

    /// How the pod's RuntimeClass is called in the runtime; nothing for the usual way.
    pub(super) async fn runtime_handler(&self) -> Result<String, String> {
        let Some(class) = pod::spec(&self.pod).runtime_class_name.as_deref().filter(|c| !c.is_empty()) else {
            return Ok(String::new());
        };
        let api: Api<RuntimeClass> = Api::all(self.context.client.clone());
        match api.get(class).await {
            Ok(found) => Ok(found.handler),
            Err(error) => Err(format!("failed to get RuntimeClass {class:?}: {}", ferry_client::write::short(&error))),
        }
    }

    pub(super) async fn create_sandbox(&mut self, attempt: u32) {
        let has_users = pod::spec(&self.pod).host_users == Some(false);
        self.context.metrics.count(Counter::StartedPods, &[]);
        if has_users {
            self.context.metrics.count(Counter::StartedUserNamespacedPods, &[]);
        }
        if attempt > 0 && self.backoffs.sandbox_failures == 0 {
            let message = "Pod sandbox changed, it will be killed and re-created.";
            self.events().pod(EventType::Normal, "SandboxChanged", message);
        }
        if let Err(why) = self.context.hardware.devices.allocate(&self.pod).await {
            return self.refuse_for_devices(&why);
        }
        if let Err(why) = self.context.hardware.dra.prepare(&self.context.client, &self.pod).await {
            let message = format!("Failed to prepare dynamic resources: {why}");
            self.events().pod(EventType::Warning, "FailedPrepareDynamicResources", message);
            return self.sandbox_failed();
        }
        let users = self.users().await;
        let made = match users.and_then(|users| self.sandbox_config(attempt, users.as_ref())) {
            Ok(config) => {
                let folder = std::path::PathBuf::from(&config.log_directory);
                let _ = tokio::fs::create_dir_all(&folder).await;
                match self.runtime_handler().await {
                    Ok(handler) => {
                        let runtime = self.context.runtime.clone();
                        let made =
                            self.context.see_through(async move { runtime.run_sandbox(config, &handler).await }).await;
                        made.map_err(|error| error.to_string())
                    }
                    Err(why) => Err(why),
                }
            }
            Err(why) => Err(why),
        };
        match made {
            Ok(_) => {
                self.backoffs.sandbox_failures = 0;
                self.backoffs.sandbox_not_before = None;
            }
            Err(why) => {
                self.context.metrics.count(Counter::StartedPodErrors, &[]);
                if has_users {
                    self.context.metrics.count(Counter::StartedUserNamespacedPodErrors, &[]);
                }
                self.events().pod(
                    EventType::Warning,
                    "FailedCreatePodSandBox",
                    format!("Failed to create pod sandbox: {why}"),
                );
                self.sandbox_failed();
            }
        }
    }

    /// Devices are given out to a pod once: one that cannot have them does not run here.
    fn refuse_for_devices(&mut self, why: &str) {
        let reason = "UnexpectedAdmissionError";
        self.context.metrics.refused(reason);
        let message = format!("Allocate failed due to {why}, which is unexpected");
        self.events().pod(EventType::Warning, reason, message.clone());
        let message = format!("Pod was rejected: {message}");
        self.mailbox.refuse(WaitReason { reason: reason.to_owned(), message });
    }

    /// Each failure is followed by a longer wait.
    fn sandbox_failed(&mut self) {
        let wait = Duration::from_secs(1 << self.backoffs.sandbox_failures.min(6)).min(Duration::from_secs(60));
        self.backoffs.sandbox_failures += 1;
        self.backoffs.sandbox_not_before = self.later(wait);
    }

    pub(super) async fn stop_changed_sandbox(&mut self, state: &PodState, id: &str) {
        for record in state.running().filter(|r| r.sandbox == id) {
            let _ = self.context.runtime.stop_container(&record.id, 2).await;
        }
        if let Err(error) = self.context.runtime.stop_sandbox(id).await {
            let message = format!("error killing pod: failed to stop sandbox {id:?}: {error}");
            self.events().pod(EventType::Warning, "FailedKillPod", message);
        }
    }
}
