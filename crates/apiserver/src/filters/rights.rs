//! What a request asks the authorizers, and what some requests ask beside it.

use ferry_auth::Attributes;
use ferry_meta::ApiError;
use ferry_meta::selector::FieldSelector;

use crate::request::context::RequestContext;
use crate::request::verb::Verb;
use crate::server::Core;

/// The request as the authorizers see it.
pub(crate) fn attributes<'a>(context: &'a RequestContext, fields: &'a [(String, String)]) -> Attributes<'a> {
    let info = &context.info;
    if !info.is_resource {
        return Attributes::path(&context.user, info.verb.as_str(), &info.path);
    }
    Attributes {
        user: &context.user,
        is_resource: true,
        verb: info.verb.as_str(),
        namespace: &info.namespace,
        group: &info.group,
        version: &info.version,
        resource: &info.resource,
        subresource: info.subresource.as_str(),
        name: &info.name,
        path: &info.path,
        fields,
    }
}

pub(crate) fn selector_fields(context: &RequestContext) -> Vec<(String, String)> {
    let parsed = FieldSelector::parse(context.query.text("fieldSelector")).unwrap_or_default();
    parsed.terms().iter().filter(|t| !t.negated).map(|t| (t.field.clone(), t.value.clone())).collect()
}

/// For a request that does more than its method says: a PUT or an apply of what does not exist yet, a GET that becomes
/// a session inside a pod. Whoever may not `create` may not do it that way either.
pub(crate) async fn must_create(core: &Core, context: &RequestContext) -> Result<(), ApiError> {
    if context.info.verb == Verb::Create {
        return Ok(());
    }
    let fields = selector_fields(context);
    core.authorization.check(&Attributes { verb: Verb::Create.as_str(), ..attributes(context, &fields) }).await
}
