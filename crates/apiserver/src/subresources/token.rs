//! serviceaccounts/token: a token for an account, bound to what the request names.

use ferry_admission::Operation;
use ferry_meta::{ApiError, FieldError, GroupVersionKind, Path, object};

use crate::request::call::Call;
use crate::request::negotiate;
use crate::request::options::WriteOptions;
use crate::response::answer::Answer;
use crate::response::render;
use crate::storage::codec;
use crate::write::Write;
use crate::write::admission::{self, Attributes};

pub(crate) async fn handle(call: Call<'_>) -> Result<Answer, ApiError> {
    let Call { core, context, row, body } = call;
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
    admission::note_duplicate_owners(context, &mut request);
    let ty = codec::type_of(&kind);
    let manager = options.manager(context.agent());
    if let Some(ty) = &ty {
        codec::track(ty, &kind, "token", &[], &mut request, None, &manager);
    }
    let fields = request.pointer("/metadata/managedFields").cloned();
    let seen = options.object();
    let write = Write::new(core, context, row, &options);
    let attributes = Attributes { kind: &kind, ..write.attributes(Operation::Create, name, &seen) };
    admission::mutate(core, context, &attributes, Some(&mut request), None).await?;
    // Plug-ins go by the audiences that were asked for; where there are none, the server chooses.
    issuer.default_request(&mut request);
    admission::validate(core, context, &attributes, Some(&mut request), None).await?;
    let mut answer = issuer.request(namespace, name, &request, options.dry_run)?;
    // What else was said of it is said again.
    for key in ["generateName", "labels", "annotations", "ownerReferences", "finalizers"] {
        let said = request.pointer(&format!("/metadata/{key}")).filter(|said| !said.is_null() && **said != "");
        if let Some(said) = said {
            object::metadata_mut(&mut answer).insert(key.into(), said.clone());
        }
    }
    if let Some(fields) = fields {
        object::metadata_mut(&mut answer).insert("managedFields".into(), fields);
    }
    render::object(context, row, 201, &kind, codec::encode(&kind, &answer).into())
}
