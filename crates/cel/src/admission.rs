//! What expressions of admission see: policies and conditions of webhooks have the same variables.

use crate::environment::Environment;
use crate::error::ExpressionError;
use crate::program::Program;
use crate::schema::Decl;
use crate::types::Type;

/// Slots of the variables; those of `variables` follow [`VARIABLES`].
pub const OBJECT: usize = 0;
pub const OLD_OBJECT: usize = 1;
pub const NAMESPACE_OBJECT: usize = 2;
pub const REQUEST: usize = 3;
pub const PARAMS: usize = 4;
pub const AUTHORIZER: usize = 5;
pub const REQUEST_RESOURCE: usize = 6;
/// `variables` itself, which is never asked for.
pub const VARIABLES: usize = 7;

/// Which variables there are besides those that are always there.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    pub params: bool,
    pub authorizer: bool,
    /// Whether objects and patches can be made.
    pub mutating: bool,
    /// Variables of a policy and their types; None where a policy has none.
    pub variables: Option<Vec<(String, Type)>>,
}

/// The environment of expressions in a scope. Every variable has its slot, whether it is there or not.
pub fn environment(scope: &Scope) -> Environment {
    let hidden = |name: &'static str, there: bool| if there { name } else { "@absent" };
    let mut environment = Environment::new()
        .variable("object", Type::Dyn)
        .variable("oldObject", Type::Dyn)
        .variable("namespaceObject", namespace())
        .variable("request", request())
        .variable(hidden("params", scope.params), Type::Dyn)
        .variable(hidden("authorizer", scope.authorizer), Type::Opaque("kubernetes.authorization.Authorizer"))
        .variable(
            hidden("authorizer.requestResource", scope.authorizer),
            Type::Opaque("kubernetes.authorization.ResourceCheck"),
        );
    if scope.mutating {
        environment = environment.mutating();
    }
    match &scope.variables {
        Some(variables) => environment.lazy("variables", "kubernetes.variables", variables),
        None => environment,
    }
}

/// Compiles an expression that has to give one of the types; the error is worded as upstream's.
pub fn compile(scope: &Scope, text: &str, wanted: &[Type]) -> Result<Program, ExpressionError> {
    let program = environment(scope).compile(text)?;
    if wanted.is_empty() || wanted.contains(program.result()) {
        return Ok(program);
    }
    let wanted = match wanted {
        [one] => one.go_name(),
        many => {
            let names: Vec<String> = many.iter().map(Type::go_name).collect();
            format!("one of [{}]", names.join(" "))
        }
    };
    Err(ExpressionError::Result { wanted, found: program.result().go_name() })
}

/// What is known of the objects that an expression is about.
#[derive(Clone, Debug)]
pub struct Known {
    pub object: Type,
    /// None where `params` is not there.
    pub params: Option<Type>,
    /// Variables of the policy and their types.
    pub variables: Vec<(String, Type)>,
}

/// The environment of expressions whose objects are of a known type. It is for checking alone: slots are none of [`environment`]'s,
/// and as upstream's type checker has it, `authorizer.requestResource` is not there.
pub fn typed_environment(known: &Known) -> Environment {
    let mut environment = Environment::new()
        .variable("object", known.object.clone())
        .variable("oldObject", known.object.clone())
        .variable("namespaceObject", namespace())
        .variable("request", request())
        .variable("authorizer", Type::Opaque("kubernetes.authorization.Authorizer"));
    if let Some(params) = &known.params {
        environment = environment.variable("params", params.clone());
    }
    environment.lazy("variables", "kubernetes.variables", &known.variables)
}

/// The type under which other expressions see a variable that gives this one: objects lose theirs.
pub fn variable_type(result: &Type) -> Type {
    match result {
        Type::Bool
        | Type::Bytes
        | Type::Double
        | Type::Duration
        | Type::Int
        | Type::Null
        | Type::String
        | Type::Timestamp
        | Type::Uint => result.clone(),
        Type::List(of) => Type::list(variable_type(of)),
        Type::Map(key, value) => Type::map(variable_type(key), variable_type(value)),
        _ => Type::Dyn,
    }
}

/// The type that mutations by apply configuration give.
pub fn object_type() -> Type {
    Environment::new().mutating().type_named("Object").unwrap_or(Type::Dyn)
}

/// The type that mutations by JSON patch give.
pub fn patch_type() -> Type {
    Type::list(Environment::new().mutating().type_named("JSONPatch").unwrap_or(Type::Dyn))
}

fn string() -> Decl {
    Decl::of(Type::String)
}

fn strings() -> Decl {
    Decl::list(string())
}

fn request() -> Type {
    let group_version =
        |name: &str, last: &str| Decl::object(name, &[("group", string()), ("version", string()), (last, string())]);
    let kind = || group_version("kubernetes.GroupVersionKind", "kind");
    let resource = || group_version("kubernetes.GroupVersionResource", "resource");
    let user = Decl::object(
        "kubernetes.UserInfo",
        &[("username", string()), ("uid", string()), ("groups", strings()), ("extra", Decl::map(strings()))],
    );
    let request = Decl::object(
        "kubernetes.AdmissionRequest",
        &[
            ("kind", kind()),
            ("resource", resource()),
            ("subResource", string()),
            ("requestKind", kind()),
            ("requestResource", resource()),
            ("requestSubResource", string()),
            ("name", string()),
            ("namespace", string()),
            ("operation", string()),
            ("userInfo", user),
            ("dryRun", Decl::of(Type::Bool)),
            ("options", Decl::of(Type::Dyn)),
        ],
    );
    request.ty
}

fn namespace() -> Type {
    let time = || Decl::of(Type::Timestamp);
    let texts = || Decl::map(string());
    let metadata = Decl::object(
        "kubernetes.NamespaceMetadata",
        &[
            ("name", string()),
            ("generateName", string()),
            ("namespace", string()),
            ("labels", texts()),
            ("annotations", texts()),
            ("UID", string()),
            ("creationTimestamp", time()),
            ("deletionGracePeriodSeconds", Decl::of(Type::Int)),
            ("deletionTimestamp", time()),
            ("generation", Decl::of(Type::Int)),
            ("resourceVersion", string()),
            ("finalizers", strings()),
        ],
    );
    let condition = Decl::object(
        "kubernetes.NamespaceCondition",
        &[
            ("status", string()),
            ("type", string()),
            ("lastTransitionTime", time()),
            ("message", string()),
            ("reason", string()),
        ],
    );
    let spec = Decl::object("kubernetes.NamespaceSpec", &[("finalizers", strings())]);
    let status =
        Decl::object("kubernetes.NamespaceStatus", &[("conditions", Decl::list(condition)), ("phase", string())]);
    Decl::object("kubernetes.Namespace", &[("metadata", metadata), ("spec", spec), ("status", status)]).ty
}
