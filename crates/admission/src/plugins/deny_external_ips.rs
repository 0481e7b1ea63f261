//! Nobody claims new addresses by `externalIPs`; those that a Service has may stay and go. Off unless it is asked for.

use ferry_meta::ApiError;
use serde_json::Value;

use crate::{Operation, Plugin, Request};

pub(crate) struct DenyServiceExternalIps;

pub(crate) const NAME: &str = "DenyServiceExternalIPs";

fn addresses(service: Option<&Value>) -> &[Value] {
    let list = service.and_then(|service| service.pointer("/spec/externalIPs")).and_then(Value::as_array);
    list.map_or(&[], Vec::as_slice)
}

#[async_trait::async_trait]
impl Plugin for DenyServiceExternalIps {
    fn name(&self) -> &'static str {
        NAME
    }

    fn handles(&self, operation: Operation) -> bool {
        matches!(operation, Operation::Create | Operation::Update)
    }

    async fn validate(&self, request: &mut Request<'_>) -> Result<(), ApiError> {
        if !request.is("", "services") {
            return Ok(());
        }
        let had = addresses(request.old);
        if addresses(request.object.as_deref()).iter().all(|address| had.contains(address)) {
            return Ok(());
        }
        Err(request.forbidden("Use of external IPs is denied by admission control"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::Case;

    #[tokio::test]
    async fn addresses_may_stay_and_go_but_not_come() {
        let service = |ips: &[&str]| json!({"metadata": {"name": "s"}, "spec": {"externalIPs": ips}});
        let create = async |ips: &[&str]| {
            Case::create("", "services", "a", service(ips)).validate(&DenyServiceExternalIps).await.is_ok()
        };
        assert!(create(&[]).await && !create(&["192.0.2.1"]).await);
        let update = async |new: &[&str], old: &[&str]| {
            let case = Case::update("", "services", "a", service(new), service(old));
            case.validate(&DenyServiceExternalIps).await
        };
        for new in [&[][..], &["192.0.2.1"], &["192.0.2.2", "192.0.2.1"]] {
            assert!(update(new, &["192.0.2.1", "192.0.2.2"]).await.is_ok(), "{new:?}");
        }
        let error = update(&["192.0.2.1", "192.0.2.3"], &["192.0.2.1"]).await.expect_err("refused");
        let want = "services \"s\" is forbidden: Use of external IPs is denied by admission control";
        assert_eq!(error.0.message, want);
        let status = Case::update("", "services", "a", service(&["192.0.2.1"]), service(&[])).at("status");
        assert!(status.validate(&DenyServiceExternalIps).await.is_ok(), "the status has none of them");
        let other = Case::create("", "endpoints", "a", service(&["192.0.2.1"]));
        assert!(other.validate(&DenyServiceExternalIps).await.is_ok());
    }
}
