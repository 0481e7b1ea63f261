//! Who may name the parameters of an admission policy: who may read them. What a policy says of its parameters is told to everybody
//! whom it refuses.

use ferry_auth::{Attributes, Authorizer};
use ferry_meta::user::MASTERS;
use ferry_meta::{FieldError, FieldErrors, GroupResource, GroupVersionKind, ObjectReader, Path, UserInfo, object};
use serde_json::Value;

use crate::request::context::RequestContext;
use crate::request::verb::Subresource;
use crate::server::Core;

const GROUP: &str = "admissionregistration.k8s.io";

pub(super) async fn errors(
    core: &Core,
    context: &RequestContext,
    subresource: &Subresource,
    object: &Value,
    old: Option<&Value>,
) -> FieldErrors {
    if *subresource != Subresource::Main || context.user.in_group(MASTERS) {
        return FieldErrors::new();
    }
    let names = |pointers: &[&str]| {
        let is_same = |old: &Value| pointers.iter().all(|pointer| old.pointer(pointer) == object.pointer(pointer));
        object.pointer(pointers[0]).is_some_and(|value| !value.is_null()) && !old.is_some_and(is_same)
    };
    let (field, refused) = if names(&["/spec/paramKind"]) {
        ("paramKind", kind(core, &context.user, object).await)
    } else if names(&["/spec/paramRef", "/spec/policyName"]) {
        let mutates = context.info.resource.starts_with("mutating");
        let policies = if mutates { "mutatingadmissionpolicies" } else { "validatingadmissionpolicies" };
        ("paramRef", reference(core, &context.user, policies, object).await)
    } else {
        return FieldErrors::new();
    };
    match refused {
        Err(why) => FieldError::forbidden(&Path::new("spec").child(field), why).into(),
        Ok(()) => FieldErrors::new(),
    }
}

/// What the parameters of a policy are called where rights are given. What is not known may be anything.
struct Kind {
    group: String,
    version: String,
    resource: String,
    is_known: bool,
}

impl Kind {
    fn of(core: &Core, policy: Option<&Value>) -> Self {
        let any = || "*".to_owned();
        let Some(kind) = policy.and_then(|policy| policy.pointer("/spec/paramKind")).filter(|kind| !kind.is_null())
        else {
            return Self { group: any(), version: any(), resource: any(), is_known: false };
        };
        let api_version = object::text(kind, "/apiVersion");
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let row = core.table().find_kind(&GroupVersionKind::new(group, version, object::text(kind, "/kind"))).cloned();
        let is_known = row.is_some();
        let resource = row.map_or_else(any, |row| row.group_resource().resource);
        Self { group: group.to_owned(), version: version.to_owned(), resource, is_known }
    }

    async fn may(&self, core: &Core, user: &UserInfo, verb: &str, namespace: &str, name: &str) -> bool {
        let wanted = Attributes {
            version: &self.version,
            namespace,
            name,
            ..Attributes::resource(user, verb, &self.group, &self.resource)
        };
        core.authorization.authorize(&wanted).await.is_allowed()
    }
}

async fn kind(core: &Core, user: &UserInfo, policy: &Value) -> Result<(), String> {
    if Kind::of(core, Some(policy)).may(core, user, "get", "*", "*").await {
        return Ok(());
    }
    Err(format!(
        "user {} must have \"get\" permission on all objects of the referenced paramKind (kind={}, apiVersion={})",
        shown(user),
        object::text(policy, "/spec/paramKind/kind"),
        object::text(policy, "/spec/paramKind/apiVersion"),
    ))
}

async fn reference(core: &Core, user: &UserInfo, policies: &str, binding: &Value) -> Result<(), String> {
    let policy_name = object::text(binding, "/spec/policyName");
    let policy = core.cache.get(&GroupResource::new(GROUP, policies), "", policy_name);
    let kind = Kind::of(core, policy.as_deref());
    let at = |field: &str| object::text(binding, &format!("/spec/paramRef/{field}")).to_owned();
    let (namespace, name) = (at("namespace"), at("name"));
    // Those that a selector finds are listed.
    let verb = if name.is_empty() { "list" } else { "get" };
    if kind.may(core, user, verb, &namespace, &name).await {
        return Ok(());
    }
    let user = shown(user);
    let least = format!(
        "to determine minimum required permissions and user {user} does not have {verb:?} permission for all groups, versions and resources"
    );
    Err(match policy {
        None => format!("unable to get policy {policy_name} {least}"),
        Some(policy) if !kind.is_known && kind.group != "*" => {
            format!("unable to resolve paramKind {} {least}", object::text(&policy, "/spec/paramKind/kind"))
        }
        Some(_) => format!("user {user} does not have {verb:?} permission on the object referenced by paramRef"),
    })
}

/// As upstream's text shows a user.
fn shown(user: &UserInfo) -> String {
    let extra = user.extra.iter().map(|(key, values)| format!("{key}:[{}]", values.join(" ")));
    let extra = extra.collect::<Vec<_>>().join(" ");
    format!("&{{{} {} [{}] map[{extra}]}}", user.name, user.uid, user.groups.join(" "))
}
