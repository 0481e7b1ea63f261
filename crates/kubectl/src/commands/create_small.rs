//! `create namespace`, `serviceaccount`, `quota`, `poddisruptionbudget`, `priorityclass` and `token`.

use http::Method;
use serde_json::{Value, json};

use super::{Command, generate, leaf};
use crate::client::Call;
use crate::error::{Error, Result};
use crate::flags::{Flag, Kind, slice, switch, text};
use crate::print::Format;
use crate::session::Context;
use crate::text::{line, print};

pub const NAMESPACE: Command = leaf(
    "namespace",
    "NAME [--dry-run=server|client|none]",
    "Create a namespace with the specified name",
    || generate::flags(&[]),
    |c| Box::pin(namespace(c)),
)
.aliases(&["ns"]);

pub const SERVICE_ACCOUNT: Command = leaf(
    "serviceaccount",
    "NAME [--dry-run=server|client|none]",
    "Create a service account with the specified name",
    || generate::flags(&[]),
    |c| Box::pin(service_account(c)),
)
.aliases(&["sa"]);

pub const QUOTA: Command = leaf(
    "quota",
    "NAME [--hard=key1=value1,key2=value2] [--scopes=Scope1,Scope2] [--dry-run=server|client|none]",
    "Create a quota with the specified name",
    || {
        generate::flags(&[
            text("hard", "Limits: key1=value1,key2=value2."),
            text("scopes", "Scopes, separated by commas."),
        ])
    },
    |c| Box::pin(quota(c)),
)
.aliases(&["resourcequota"]);

pub const POD_DISRUPTION_BUDGET: Command = leaf(
    "poddisruptionbudget",
    "NAME --selector=SELECTOR --min-available=N [--dry-run=server|client|none]",
    "Create a pod disruption budget with the specified name",
    || {
        generate::flags(&[
            text("min-available", "How many pods must stay, or a percentage."),
            text("max-unavailable", "How many pods may be gone, or a percentage."),
            text("selector", "A label selector of the pods."),
        ])
    },
    |c| Box::pin(budget(c)),
)
.aliases(&["pdb"]);

pub const PRIORITY_CLASS: Command = leaf(
    "priorityclass",
    "NAME --value=VALUE --global-default=BOOL [--dry-run=server|client|none]",
    "Create a priority class with the specified name",
    || {
        generate::flags(&[
            Flag::new("value", Kind::Int, "0", "The value of this priority class."),
            switch("global-default", "Whether this is the class of pods that name none."),
            text("description", "When this class should be used."),
            Flag::new("preemption-policy", Kind::Text, "PreemptLowerPriority", "Whether pods of it preempt others."),
        ])
    },
    |c| Box::pin(priority_class(c)),
)
.aliases(&["pc"]);

pub const TOKEN: Command =
    leaf("token", "SERVICE_ACCOUNT_NAME", "Request a service account token", token_flags, |c| Box::pin(token(c)));

async fn namespace(context: &Context) -> Result<()> {
    let name = generate::name(context)?;
    if name.is_empty() {
        return Err(Error::say("name must be specified"));
    }
    generate::finish(context, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})).await
}

async fn service_account(context: &Context) -> Result<()> {
    let name = generate::name(context)?;
    generate::finish(context, json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}})).await
}

async fn quota(context: &Context) -> Result<()> {
    let name = generate::name(context)?;
    let mut hard = serde_json::Map::new();
    for part in context.flags.text("hard").split(',').filter(|part| !part.is_empty()) {
        let (key, value) = part
            .split_once('=')
            .ok_or_else(|| Error::say(format!("Invalid argument syntax {part}, expected <resource>=<value>")))?;
        let quantity = ferry_meta::Quantity::parse(value).map_err(|error| Error::say(error.to_string()))?;
        hard.insert(key.to_owned(), quantity.to_string().into());
    }
    let mut spec = json!({"hard": hard});
    let scopes: Vec<&str> = context.flags.text("scopes").split(',').filter(|scope| !scope.is_empty()).collect();
    if !scopes.is_empty() {
        spec["scopes"] = scopes.into();
    }
    let object = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name}, "spec": spec});
    generate::finish(context, object).await
}

/// A number, or a text such as `50%`.
fn amount(text: &str) -> Value {
    text.parse::<i64>().map_or_else(|_| text.into(), Value::from)
}

async fn budget(context: &Context) -> Result<()> {
    let flags = &context.flags;
    let name = generate::name(context)?;
    if flags.text("selector").is_empty() {
        return Err(Error::say("a selector must be specified"));
    }
    if flags.text("max-unavailable").is_empty() && flags.text("min-available").is_empty() {
        return Err(Error::say("one of min-available or max-unavailable must be specified"));
    }
    if !flags.text("max-unavailable").is_empty() && !flags.text("min-available").is_empty() {
        return Err(Error::say("min-available and max-unavailable cannot be both specified"));
    }
    for flag in ["min-available", "max-unavailable"] {
        let digits = flags.text(flag).strip_suffix('%').unwrap_or(flags.text(flag));
        if flags.given(flag).is_some() && (digits.is_empty() || !digits.bytes().all(|c| c.is_ascii_digit())) {
            return Err(Error::say(format!("invalid format specified for {flag}")));
        }
    }
    let mut spec = json!({"selector": crate::commands::create_service::selector(flags.text("selector"))?});
    for (flag, field) in [("min-available", "minAvailable"), ("max-unavailable", "maxUnavailable")] {
        if let Some(value) = flags.given(flag) {
            spec[field] = amount(value);
        }
    }
    let object =
        json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": spec});
    generate::finish(context, object).await
}

async fn priority_class(context: &Context) -> Result<()> {
    let flags = &context.flags;
    let name = generate::name(context)?;
    if i32::try_from(flags.int("value")).is_err() {
        let value = flags.text("value");
        return Err(Error::say(format!(
            "invalid argument \"{value}\" for \"--value\" flag: strconv.ParseInt: parsing \"{value}\": value out of range\nSee '{} --help' for usage.",
            context.path
        )));
    }
    let object = json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name},
        "value": flags.int("value"), "globalDefault": flags.is("global-default"),
        "description": flags.text("description"), "preemptionPolicy": flags.text("preemption-policy"),
    });
    generate::finish(context, object).await
}

fn token_flags() -> Vec<Flag> {
    let mut flags = vec![
        slice("audience", "Audience of the token; may be given several times."),
        Flag::new("duration", Kind::Duration, "0s", "Requested lifetime of the token."),
        text("bound-object-kind", "Kind of an object to bind the token to: Pod, Secret or Node."),
        text("bound-object-name", "Name of the object."),
        text("bound-object-uid", "UID of the object."),
    ];
    flags.extend(crate::print::FLAGS);
    flags
}

async fn token(context: &Context) -> Result<()> {
    let flags = &context.flags;
    let [name] = context.words() else {
        return Err(context.usage(format!("exactly one NAME is required, got {}", context.words().len())));
    };
    let (kind, bound) = (flags.text("bound-object-kind"), flags.text("bound-object-name"));
    let api_version = match kind {
        "" | "Pod" | "Secret" | "Node" => "v1",
        _ => {
            return Err(Error::say("supported --bound-object-kind values are Node, Pod, Secret"));
        }
    };
    if kind.is_empty() && !bound.is_empty() {
        return Err(Error::say("--bound-object-name can only be set if --bound-object-kind is provided"));
    }
    if !kind.is_empty() && bound.is_empty() {
        return Err(Error::say("--bound-object-name is required if --bound-object-kind is provided"));
    }
    if kind.is_empty() && flags.given("bound-object-uid").is_some() {
        return Err(Error::say("--bound-object-uid can only be set if --bound-object-kind is provided"));
    }
    if flags.duration("duration") < 0 {
        return Err(Error::say("--duration must be greater than or equal to 0"));
    }
    let mut spec = json!({});
    let audiences = flags.list("audience");
    if !audiences.is_empty() {
        spec["audiences"] = audiences.into();
    }
    let seconds = flags.duration("duration") / 1_000_000_000;
    if seconds > 0 {
        spec["expirationSeconds"] = seconds.into();
    }
    if !kind.is_empty() {
        spec["boundObjectRef"] = json!({"kind": kind, "apiVersion": api_version, "name": bound});
        if let Some(uid) = flags.given("bound-object-uid") {
            spec["boundObjectRef"]["uid"] = uid.into();
        }
    }
    let request =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {}, "spec": spec});
    let path = context.kind("v1", "ServiceAccount").await?.object(Some(&context.namespace().await?), name) + "/token";
    let answer =
        context.client().await?.json(Call::new(Method::POST, path).json(&request)).await.map_err(
            |error| match error {
                Error::Status(mut status) => {
                    let said = status["message"].as_str().unwrap_or_default();
                    status["message"] = format!("failed to create token: {said}").into();
                    Error::say(status["message"].as_str().unwrap_or_default())
                }
                other => other,
            },
        )?;
    match Format::for_writing(flags)? {
        Format::Human { .. } => line(answer["status"]["token"].as_str().unwrap_or_default()),
        format => print(format.object(&answer, true)?),
    }
    Ok(())
}
