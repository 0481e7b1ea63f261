//! Who may answer a PodCertificateRequest: who may sign for its signer, or for all signers of its domain.

use ferry_auth::{Attributes, Authorizer};
use ferry_meta::field::quote;
use ferry_meta::{FieldError, FieldErrors, Path, object};
use serde_json::Value;

use crate::request::context::RequestContext;
use crate::request::verb::Subresource;
use crate::server::Core;

const GROUP: &str = "certificates.k8s.io";

pub(super) async fn errors(
    core: &Core,
    context: &RequestContext,
    subresource: &Subresource,
    object: &Value,
    old: &Value,
) -> FieldErrors {
    if *subresource != Subresource::Status || status(object) == status(old) {
        return FieldErrors::new();
    }
    let signer = object::text(old, "/spec/signerName");
    let domain = format!("{}/*", signer.split('/').next().unwrap_or_default());
    for name in [signer, &domain] {
        let wanted = Attributes { name, version: "*", ..Attributes::resource(&context.user, "sign", GROUP, "signers") };
        if core.authorization.authorize(&wanted).await.is_allowed() {
            return FieldErrors::new();
        }
    }
    let detail =
        format!("User {} is not permitted to \"sign\" for signer {}", quote(&context.user.name), quote(signer));
    FieldError::forbidden(&Path::new("spec").child("signerName"), detail).into()
}

/// An empty status is none.
fn status(request: &Value) -> Option<&Value> {
    request.get("status").filter(|status| status.as_object().is_some_and(|fields| !fields.is_empty()))
}
