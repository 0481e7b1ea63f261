//! The plug-ins in the order they run.

use std::sync::Arc;

use ferry_auth::Authorizer;
use ferry_meta::{ApiError, ObjectReader};

use crate::plugins::{
    DefaultTolerationSeconds, NamespaceLifecycle, NodeRestriction, Priority, ServiceAccount, TaintNodesByCondition,
};
use crate::{Plugin, QuotaStore, Request};

/// What the plug-ins need from the server.
#[derive(Clone)]
pub struct Dependencies {
    pub reader: Arc<dyn ObjectReader>,
    /// The whole authorization chain: some plug-ins ask for rights of their own.
    pub authorizer: Arc<dyn Authorizer>,
    /// Where quota usage is reserved; None leaves quotas unenforced.
    pub quotas: Option<Arc<dyn QuotaStore>>,
}

pub struct Chain {
    plugins: Vec<Arc<dyn Plugin>>,
}

impl Chain {
    /// The built-in plug-ins that upstream runs by default, and NodeRestriction.
    pub fn new(dependencies: Dependencies) -> Self {
        let Dependencies { reader, authorizer: _, quotas: _ } = dependencies;
        Self::of(vec![
            Arc::new(NamespaceLifecycle::new(reader.clone())),
            Arc::new(ServiceAccount::new(reader.clone())),
            Arc::new(NodeRestriction::new(reader.clone())),
            Arc::new(TaintNodesByCondition),
            Arc::new(Priority::new(reader)),
            Arc::new(DefaultTolerationSeconds),
        ])
    }

    pub fn of(plugins: Vec<Arc<dyn Plugin>>) -> Self {
        Self { plugins }
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
