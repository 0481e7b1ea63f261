//! The plug-ins in the order they run.

use std::collections::HashMap;
use std::sync::Arc;

use ferry_auth::Authorizer;
use ferry_meta::{ApiError, ObjectReader};
use serde_json::Value;

use crate::plugins::{
    CertificateApproval, CertificateSigning, CertificateSubjectRestriction, ClusterTrustBundleAttest,
    DENY_EXTERNAL_IPS, DefaultIngressClass, DefaultStorageClass, DefaultTolerationSeconds, DenyServiceExternalIps,
    EventRateLimit, LimitRanger, NamespaceLifecycle, NetworkPolicyWarning, NodeRestriction,
    PersistentVolumeClaimResize, PodResizeValidator, PodSecurity, PodTopologyLabels, Priority, ResourceQuota,
    RuntimeClass, ServiceAccount, Settings, StorageObjectInUseProtection, TaintNodesByCondition,
};
use crate::policy::{MutatingPolicies, PolicyOptions, ValidatingPolicies};
use crate::webhook::{MutatingWebhooks, ValidatingWebhooks, WebhookOptions};
use crate::{Plugin, PluginsError, QuotaStore, Request};

/// What the plug-ins need from the server.
#[derive(Clone)]
pub struct Dependencies {
    pub reader: Arc<dyn ObjectReader>,
    /// The whole authorization chain: some plug-ins ask for rights of their own.
    pub authorizer: Arc<dyn Authorizer>,
    /// Where quota usage is reserved; None leaves quotas unenforced.
    pub quotas: Option<Arc<dyn QuotaStore>>,
    /// A quicker way to the labels of nodes than through the reader, where there is one.
    pub node_labels: Option<NodeLabels>,
}

/// The value of one label of the node of that name.
pub type NodeLabels = Arc<dyn Fn(&str, &str) -> Option<String> + Send + Sync>;

pub struct Chain {
    plugins: Vec<Arc<dyn Plugin>>,
    dependencies: Option<(Arc<dyn ObjectReader>, Arc<dyn Authorizer>)>,
}

impl Chain {
    /// The built-in plug-ins that upstream runs by default, and NodeRestriction.
    pub fn new(dependencies: Dependencies) -> Self {
        let Dependencies { reader, authorizer, quotas, node_labels } = dependencies;
        let mut plugins: Vec<Arc<dyn Plugin>> = vec![
            Arc::new(NamespaceLifecycle::new(reader.clone())),
            Arc::new(LimitRanger::new(reader.clone())),
            Arc::new(ServiceAccount::new(reader.clone())),
            Arc::new(NodeRestriction::new(reader.clone(), authorizer.clone())),
            Arc::new(TaintNodesByCondition),
            Arc::new(PodSecurity::new(reader.clone())),
            Arc::new(Priority::new(reader.clone())),
            Arc::new(DefaultTolerationSeconds),
            Arc::new(DefaultStorageClass::new(reader.clone())),
            Arc::new(StorageObjectInUseProtection),
            Arc::new(PersistentVolumeClaimResize::new(reader.clone())),
            Arc::new(RuntimeClass::new(reader.clone())),
            Arc::new(CertificateApproval::new(authorizer.clone())),
            Arc::new(CertificateSigning::new(authorizer.clone())),
            Arc::new(ClusterTrustBundleAttest::new(authorizer.clone())),
            Arc::new(CertificateSubjectRestriction),
            Arc::new(DefaultIngressClass::new(reader.clone())),
            Arc::new(PodTopologyLabels::new(reader.clone(), node_labels)),
            Arc::new(PodResizeValidator::new(reader.clone())),
        ];
        // Last, so that only what everyone else lets pass is reserved.
        if let Some(quotas) = quotas {
            plugins.push(Arc::new(ResourceQuota::new(reader.clone(), quotas)));
        }
        Self { plugins, dependencies: Some((reader, authorizer)) }
    }

    /// For clusters whose pod network does not enforce NetworkPolicies: each of them is answered with a warning.
    #[must_use]
    pub fn with_network_policy_warnings(mut self) -> Self {
        self.plugins.push(Arc::new(NetworkPolicyWarning));
        self
    }

    /// Switches plug-ins on and off by their names. `configuration` gives those that need one theirs.
    pub fn select(
        mut self,
        enabled: &[String],
        disabled: &[String],
        configuration: &HashMap<String, Value>,
    ) -> Result<Self, PluginsError> {
        for name in enabled.iter().chain(disabled).chain(configuration.keys()) {
            let known = self.plugins.iter().any(|plugin| plugin.name() == name)
                || ["EventRateLimit", DENY_EXTERNAL_IPS].contains(&&**name)
                || ["MutatingAdmissionWebhook", "ValidatingAdmissionWebhook"].contains(&&**name)
                || name.ends_with("AdmissionPolicy");
            if !known {
                return Err(PluginsError::Unknown(name.clone()));
            }
            if enabled.contains(name) && disabled.contains(name) {
                return Err(PluginsError::Both(name.clone()));
            }
        }
        // What is not followed is refused: who wrote it counts on it.
        for (name, _) in configuration.iter().filter(|(_, own)| !own.is_null()) {
            if !["EventRateLimit", "PodSecurity"].contains(&&**name) {
                return Err(PluginsError::NotConfigurable(name.clone()));
            }
        }
        if let Some(own) = configuration.get("PodSecurity").filter(|own| !own.is_null())
            && let Some((reader, _)) = &self.dependencies
        {
            let settings = Settings::read(own).map_err(PluginsError::of("PodSecurity"))?;
            let configured: Arc<dyn Plugin> = Arc::new(PodSecurity::new(reader.clone()).with(settings));
            for plugin in self.plugins.iter_mut().filter(|plugin| plugin.name() == "PodSecurity") {
                *plugin = configured.clone();
            }
        }
        if enabled.iter().any(|name| name == "EventRateLimit") {
            let own = configuration.get("EventRateLimit").filter(|own| !own.is_null());
            let own = own.ok_or(PluginsError::NotConfigured("EventRateLimit"))?;
            let plugin = EventRateLimit::read(own).map_err(PluginsError::of("EventRateLimit"))?;
            let place = self.plugins.iter().position(|plugin| plugin.name() == "DefaultStorageClass");
            self.plugins.insert(place.unwrap_or(0), Arc::new(plugin));
        }
        if enabled.iter().any(|name| name == DENY_EXTERNAL_IPS) {
            let place = self.place("");
            self.plugins.insert(place, Arc::new(DenyServiceExternalIps));
        }
        self.plugins.retain(|plugin| !disabled.iter().any(|name| name == plugin.name()));
        Ok(self)
    }

    /// Where the cluster's own policies and webhooks begin: before what is named, or before quotas are reserved.
    fn place(&self, before: &str) -> usize {
        let place = |name: &str| self.plugins.iter().position(|plugin| plugin.name() == name);
        place(before).or_else(|| place("ResourceQuota")).unwrap_or(self.plugins.len())
    }

    /// Adds the policies of the cluster: after the built-in plug-ins, each kind before the webhooks of its kind.
    #[must_use]
    pub fn with_policies(mut self, options: &PolicyOptions) -> Self {
        let Some((reader, authorizer)) = self.dependencies.clone() else { return self };
        let place = self.place("MutatingAdmissionWebhook");
        let before = self.plugins[..place].to_vec();
        let mutating = MutatingPolicies::new(reader.clone(), authorizer.clone(), options, before);
        self.plugins.insert(place, Arc::new(mutating));
        let place = self.place("ValidatingAdmissionWebhook");
        self.plugins.insert(place, Arc::new(ValidatingPolicies::new(reader, authorizer, options)));
        self
    }

    /// Adds the webhooks of the cluster: after built-in plug-ins and policies, before quotas are reserved.
    #[must_use]
    pub fn with_webhooks(mut self, options: &WebhookOptions) -> Self {
        let Some((reader, authorizer)) = self.dependencies.clone() else { return self };
        let place = self.place("ValidatingAdmissionPolicy");
        let before = self.plugins[..place].to_vec();
        let mutating = MutatingWebhooks::new(reader.clone(), authorizer.clone(), options, before);
        self.plugins.insert(place, Arc::new(mutating));
        let place = self.place("");
        self.plugins.insert(place, Arc::new(ValidatingWebhooks::new(reader, authorizer, options)));
        self
    }

    pub fn of(plugins: Vec<Arc<dyn Plugin>>) -> Self {
        Self { plugins, dependencies: None }
    }

    pub fn plugins(&self) -> &[Arc<dyn Plugin>] {
        &self.plugins
    }

    pub async fn mutate(&self, request: &mut Request<'_>) -> Result<(), ApiError> {
        let operation = request.operation;
        for plugin in self.plugins.iter().filter(|plugin| plugin.handles(operation)) {
            plugin.mutate(request).await?;
        }
        Ok(())
    }

    pub async fn validate(&self, request: &mut Request<'_>) -> Result<(), ApiError> {
        let operation = request.operation;
        for plugin in self.plugins.iter().filter(|plugin| plugin.handles(operation)) {
            plugin.validate(request).await?;
        }
        Ok(())
    }
}
