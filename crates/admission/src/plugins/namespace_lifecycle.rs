//! Nothing is made in a namespace that is missing or going away, and some namespaces never go away.

use std::sync::Arc;
use std::time::Duration;

use ferry_meta::error::{StatusCause, StatusDetails};
use ferry_meta::object::{is_being_deleted, text};
use ferry_meta::{ApiError, ObjectReader};

use crate::resources::NAMESPACES;
use crate::{Operation, Plugin, Request};

const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];
/// How long a namespace that was made a moment ago may take to be seen here, as upstream allows it.
const MISSING_WAIT: Duration = Duration::from_millis(50);

pub(crate) struct NamespaceLifecycle {
    reader: Arc<dyn ObjectReader>,
}

impl NamespaceLifecycle {
    pub(crate) fn new(reader: Arc<dyn ObjectReader>) -> Self {
        Self { reader }
    }
}

#[async_trait::async_trait]
impl Plugin for NamespaceLifecycle {
    fn name(&self) -> &'static str {
        "NamespaceLifecycle"
    }

    fn handles(&self, operation: Operation) -> bool {
        operation != Operation::Connect
    }

    async fn mutate(&self, request: &mut Request<'_>) -> Result<(), ApiError> {
        if request.concerns("", "namespaces") {
            if request.operation == Operation::Delete && IMMORTAL.contains(&request.name) {
                return Err(request.forbidden("this namespace may not be deleted"));
            }
            return Ok(());
        }
        // A review asks about a namespace; it makes nothing in it.
        let review = request.concerns("authorization.k8s.io", "localsubjectaccessreviews");
        if request.namespace.is_empty() || request.operation == Operation::Delete || review {
            return Ok(());
        }
        let find = || self.reader.get(&NAMESPACES, "", request.namespace);
        let mut found = find();
        if found.is_none() {
            // The reader may lag a write and offers no event to wait for.
            tokio::time::sleep(MISSING_WAIT).await;
            found = find();
        }
        let Some(namespace) = found else { return Err(ApiError::not_found(&NAMESPACES, request.namespace)) };
        let terminating = text(&namespace, "/status/phase") == "Terminating" || is_being_deleted(&namespace);
        if request.operation != Operation::Create || !terminating {
            return Ok(());
        }
        let name = request.namespace;
        let mut error = request
            .forbidden(format_args!("unable to create new content in namespace {name} because it is being terminated"));
        error.0.details.get_or_insert_with(StatusDetails::default).causes.push(StatusCause {
            reason: "NamespaceTerminating".into(),
            message: format!("namespace {name} is being terminated"),
            field: "metadata.namespace".into(),
        });
        Err(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Case, Objects};
    use serde_json::json;

    #[tokio::test]
    async fn namespaces_are_guarded_on_both_ends() {
        let objects = Arc::new(Objects::default());
        objects.put("", "namespaces", json!({"metadata": {"name": "a"}, "status": {"phase": "Active"}}));
        objects.put("", "namespaces", json!({"metadata": {"name": "t"}, "status": {"phase": "Terminating"}}));
        let plugin = NamespaceLifecycle::new(objects);
        let create = |namespace: &str| Case::create("", "configmaps", namespace, json!({"metadata": {"name": "b"}}));
        assert!(create("a").mutate(&plugin).await.is_ok());
        let missing = create("none").mutate(&plugin).await.expect_err("missing");
        assert_eq!((missing.code(), missing.0.message.as_str()), (404, "namespaces \"none\" not found"));
        let going = create("t").mutate(&plugin).await.expect_err("terminating");
        assert_eq!(
            going.0.message,
            "configmaps \"b\" is forbidden: unable to create new content in namespace t because it is being terminated"
        );
        assert_eq!(going.0.details.expect("details").causes[0].reason, "NamespaceTerminating");
        assert!(Case::update("", "configmaps", "t", json!({}), json!({})).mutate(&plugin).await.is_ok());
        for (name, allowed) in [("default", false), ("kube-system", false), ("kube-public", false), ("a", true)] {
            let case = Case::delete("", "namespaces", name, name);
            assert_eq!(case.mutate(&plugin).await.is_ok(), allowed, "{name}");
        }
    }
}
