//! serviceaccounts/token: a token for an account, bound to what the request names.

use std::sync::Arc;

use bytes::Bytes;
use ferry_admission::Operation;
use ferry_meta::{ApiError, FieldError, GroupVersionKind, Path, object};
use ferry_registry::Resource;

use crate::admission::{self, Attributes};
use crate::answer::Answer;
use crate::context::RequestContext;
use crate::options::WriteOptions;
use crate::server::Core;
use crate::{codec, negotiate, render};

pub(crate) async fn handle(
    core: &Arc<Core>,
    context: &RequestContext,
    row: &Arc<Resource>,
    body: Bytes,
) -> Result<Answer, ApiError> {
    let Some(issuer) = &core.token_issuer else {
        return Err(ApiError::internal("this server issues no service account tokens"));
    };
    let kind = GroupVersionKind::new("authentication.k8s.io", "v1", "TokenRequest");
    let options = WriteOptions::read(&context.query, "CreateOptions", None)?;
    let encoding = negotiate::input(&context.headers)?;
    let mut request = codec::decode(context, &kind, encoding, &body, options.field_validation)?;
    let (namespace, name) = (&context.info.namespace, &context.info.name);
    super::same_namespace(&request, namespace)?;
    let given = object::name(&request);
    if !given.is_empty() && given != name {
        let why = "must match the service account name if specified";
        let error = FieldError::invalid(&Path::new("metadata").child("name"), given, why);
        return Err(ApiError::invalid(&kind.group_kind(), name, &error.into()));
    }
    let spec = object::child_mut(&mut request, "spec");
    if spec.get("expirationSeconds").is_none_or(serde_json::Value::is_null) {
        spec.insert("expirationSeconds".into(), 3600.into());
    }
    let ty = codec::type_of(&kind);
    let manager = options.manager(context.agent());
    if let Some(ty) = &ty {
        codec::track(ty, &kind, "token", &[], &mut request, None, &manager);
    }
    let fields = request.pointer("/metadata/managedFields").cloned();
    let seen = options.object();
    let attributes = Attributes {
        operation: Operation::Create,
        row,
        kind: &kind,
        subresource: "token",
        namespace,
        name,
        dry_run: options.dry_run,
        options: &seen,
    };
    admission::mutate(core, context, &attributes, Some(&mut request), None).await?;
    // Plug-ins go by the audiences that were asked for; where there are none, the server chooses.
    issuer.default_request(&mut request);
    admission::validate(core, context, &attributes, Some(&mut request), None).await?;
    let mut answer = issuer.request(namespace, name, &request, options.dry_run)?;
    if let Some(base) = request.pointer("/metadata/generateName").filter(|base| **base != "") {
        object::metadata_mut(&mut answer).insert("generateName".into(), base.clone());
    }
    if let Some(fields) = fields {
        object::metadata_mut(&mut answer).insert("managedFields".into(), fields);
    }
    render::object(context, row, 201, &kind, codec::encode(&kind, &answer).into())
}
