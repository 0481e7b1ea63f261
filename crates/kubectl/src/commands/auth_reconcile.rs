//! `kubectl auth reconcile`: roles and bindings as the files want them, by what they permit and not by how it is written.

use http::Method;
use serde_json::{Map, Value, json};

use super::common::{self, DryRun, Report};
use super::{Command, leaf};
use crate::client::Call;
use crate::error::{Error, Result};
use crate::flags::{Flag, switch};
use crate::print;
use crate::resource::{Builder, Info, Target};
use crate::session::Context;
use crate::text::warn;

pub const COMMAND: Command = leaf(
    "reconcile",
    "-f FILENAME",
    "Reconciles rules for RBAC role, role binding, cluster role, and cluster role binding objects",
    flags,
    |c| Box::pin(run(c)),
);

/// What others change meanwhile is looked at so often.
const ATTEMPTS: usize = 3;
const AUTO_UPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

fn flags() -> Vec<Flag> {
    let mut flags = common::FILES.to_vec();
    flags.extend(print::FLAGS);
    flags.extend([
        common::DRY_RUN,
        switch("remove-extra-permissions", "If true, removes extra permissions added to roles."),
        switch("remove-extra-subjects", "If true, removes extra subjects added to rolebindings."),
    ]);
    flags
}

async fn run(context: &Context) -> Result<()> {
    let flags = &context.flags;
    if flags.list("filename").is_empty() && flags.given("kustomize").is_none() {
        return Err(Error::say("must specify one of -f and -k"));
    }
    if !context.words().is_empty() {
        return Err(Error::say("no arguments are allowed"));
    }
    let of_flag = |error: Error| format!("error accessing --dry-run flag for command reconcile: {}", error.inner());
    DryRun::of(flags).map_err(|error| Error::say(of_flag(error)))?;
    let report = Report::of(context)?;
    if report.dry_run == DryRun::Server {
        return Err(Error::say("--dry-run=server for command reconcile is not supported yet"));
    }
    let built = Builder::of(context).build(context).await?;
    let mut errors = Vec::new();
    for target in &built.targets {
        let Target::File(info) = target else { continue };
        if info.resource.group != "rbac.authorization.k8s.io" {
            continue;
        }
        match reconcile(context, info, report.dry_run).await {
            Ok(outcome) => outcome.tell(context, &report, info)?,
            Err(error) => errors.push(error),
        }
    }
    // What went wrong with objects is told before what could not be read.
    errors.extend(built.errors);
    Error::all(errors)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Operation {
    Create,
    Update,
    Recreate,
    Nothing,
}

#[derive(Debug)]
struct Outcome {
    object: Value,
    operation: Operation,
    protected: bool,
    missing: Vec<Value>,
    extra: Vec<Value>,
}

impl Outcome {
    fn tell(&self, context: &Context, report: &Report, info: &Info) -> Result<()> {
        report.done(info, &self.object, "reconciled")?;
        let operation = match self.operation {
            Operation::Nothing => return Ok(()),
            Operation::Create => "create",
            Operation::Update => "update",
            Operation::Recreate => "recreate",
        };
        let opted_out = ", but object opted out (rbac.authorization.kubernetes.io/autoupdate: false)";
        warn(format!("\treconciliation required {operation}{}", if self.protected { opted_out } else { "" }));
        let (what, removed, fields): (&str, &str, &[(&str, &str)]) = match is_binding(info) {
            true => (
                "subjects",
                "remove-extra-subjects",
                &[("Kind", "kind"), ("APIGroup", "apiGroup"), ("Name", "name"), ("Namespace", "namespace")],
            ),
            false => (
                "rules",
                "remove-extra-permissions",
                &[
                    ("Verbs", "verbs"),
                    ("APIGroups", "apiGroups"),
                    ("Resources", "resources"),
                    ("ResourceNames", "resourceNames"),
                    ("NonResourceURLs", "nonResourceURLs"),
                ],
            ),
        };
        let list = |title: &str, all: &[Value]| {
            if !all.is_empty() {
                warn(format!("\t{title}:"));
                all.iter().for_each(|one| warn(format!("\t\t{}", go_struct(one, fields, !is_binding(info)))));
            }
        };
        list(&format!("missing {what} added"), &self.missing);
        if context.flags.is(removed) {
            list(&format!("extra {what} removed"), &self.extra);
        }
        Ok(())
    }
}

/// As Go prints a struct with its fields' names.
fn go_struct(value: &Value, fields: &[(&str, &str)], lists: bool) -> String {
    let shown = fields.iter().map(|(name, field)| match lists {
        true => format!("{name}:[{}]", texts(&value[*field]).join(" ")),
        false => format!("{name}:{}", value[*field].as_str().unwrap_or_default()),
    });
    format!("{{{}}}", shown.collect::<Vec<_>>().join(" "))
}

fn is_binding(info: &Info) -> bool {
    info.resource.kind.ends_with("Binding")
}

async fn reconcile(context: &Context, info: &Info, dry_run: DryRun) -> Result<Outcome> {
    let client = context.client().await?;
    let flags = &context.flags;
    for attempt in 1.. {
        let existing = match client.json(Call::get(info.path())).await {
            Ok(existing) => Some(existing),
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error),
        };
        let expected = &info.object;
        let mut outcome = match &existing {
            None => {
                let field = if is_binding(info) { "subjects" } else { "rules" };
                Outcome {
                    object: expected.clone(),
                    operation: Operation::Create,
                    protected: false,
                    missing: items(&expected[field]).to_vec(),
                    extra: Vec::new(),
                }
            }
            Some(existing) if is_binding(info) => binding(existing, expected, flags.is("remove-extra-subjects")),
            Some(existing) => role(existing, expected, flags.is("remove-extra-permissions")),
        };
        if outcome.protected || dry_run == DryRun::Client {
            return Ok(outcome);
        }
        let done = match (outcome.operation, &existing) {
            (Operation::Nothing, _) => return Ok(outcome),
            (Operation::Update, _) => client.json(Call::new(Method::PUT, info.path()).json(&outcome.object)).await,
            (Operation::Recreate, Some(existing)) => {
                let only = json!({"preconditions": {"uid": existing["metadata"]["uid"]}});
                match client.json(Call::new(Method::DELETE, info.path()).json(&only)).await {
                    Err(error) if !error.is_not_found() => Err(error),
                    _ => create(context, info, &outcome.object).await,
                }
            }
            _ => create(context, info, &outcome.object).await,
        };
        match done {
            Ok(object) => {
                outcome.object = object;
                return Ok(outcome);
            }
            Err(error) if attempt < ATTEMPTS && ["AlreadyExists", "NotFound", "Conflict"].contains(&error.reason()) => {
            }
            Err(error) => return Err(error),
        }
    }
    Err(Error::say("exceeded maximum attempts"))
}

/// With the namespace, where that is missing.
async fn create(context: &Context, info: &Info, object: &Value) -> Result<Value> {
    let client = context.client().await?;
    if let Some(namespace) = &info.namespace {
        let path = format!("/api/v1/namespaces/{}", crate::client::escaped(namespace));
        if client.json(Call::get(path)).await.is_err_and(|error| error.is_not_found()) {
            let new = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
            match client.json(Call::new(Method::POST, "/api/v1/namespaces").json(&new)).await {
                Err(error) if !["AlreadyExists", "Forbidden"].contains(&error.reason()) => return Err(error),
                _ => {}
            }
        }
    }
    client.json(Call::new(Method::POST, info.collection()).json(object)).await
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn texts(value: &Value) -> Vec<&str> {
    items(value).iter().filter_map(Value::as_str).collect()
}

/// The existing object with the labels and annotations of both; its own win.
fn begun(existing: &Value, expected: &Value) -> Outcome {
    let mut object = existing.clone();
    for field in ["annotations", "labels"] {
        let mut both: Map<String, Value> = expected["metadata"][field].as_object().cloned().unwrap_or_default();
        both.extend(existing["metadata"][field].as_object().cloned().unwrap_or_default());
        if !both.is_empty() {
            object["metadata"][field] = both.into();
        }
    }
    let operation = if object == *existing { Operation::Nothing } else { Operation::Update };
    let protected = existing["metadata"]["annotations"][AUTO_UPDATE] == "false";
    Outcome { object, operation, protected, missing: Vec::new(), extra: Vec::new() }
}

fn binding(existing: &Value, expected: &Value, remove: bool) -> Outcome {
    let mut outcome = begun(existing, expected);
    let same = |one: &Value, two: &Value, fields: &[&str]| {
        fields.iter().all(|field| one[*field].as_str().unwrap_or_default() == two[*field].as_str().unwrap_or_default())
    };
    if !same(&existing["roleRef"], &expected["roleRef"], &["apiGroup", "kind", "name"]) {
        // What a binding refers to cannot be changed.
        let protected = outcome.protected;
        let object = expected.clone();
        return Outcome { object, operation: Operation::Recreate, protected, missing: Vec::new(), extra: Vec::new() };
    }
    let without = |all: &Value, others: &Value| {
        let mut left: Vec<Value> = Vec::new();
        for one in items(all) {
            let known =
                |list: &[Value]| list.iter().any(|other| same(one, other, &["kind", "apiGroup", "name", "namespace"]));
            if !known(items(others)) && !known(&left) {
                left.push(one.clone());
            }
        }
        left
    };
    outcome.missing = without(&expected["subjects"], &existing["subjects"]);
    outcome.extra = without(&existing["subjects"], &expected["subjects"]);
    settle(&mut outcome, "subjects", expected, remove);
    outcome
}

fn role(existing: &Value, expected: &Value, remove: bool) -> Outcome {
    let mut outcome = begun(existing, expected);
    let selectors = |of: &Value| items(&of["aggregationRule"]["clusterRoleSelectors"]).to_vec();
    let aggregates = |of: &Value| !of["aggregationRule"].is_null();
    if !aggregates(expected) || !aggregates(existing) {
        outcome.extra = uncovered(&expected["rules"], &existing["rules"]);
    }
    outcome.missing = uncovered(&existing["rules"], &expected["rules"]);
    settle(&mut outcome, "rules", expected, remove);
    let (have, want) = (selectors(existing), selectors(expected));
    let lacks = |all: &[Value], of: &[Value]| of.iter().filter(|one| !all.contains(one)).cloned().collect::<Vec<_>>();
    let (missing, extra) = (lacks(&have, &want), lacks(&want, &have));
    if !aggregates(expected) && aggregates(existing) {
        outcome.object.as_object_mut().into_iter().for_each(|map| drop(map.remove("aggregationRule")));
        outcome.operation = Operation::Update;
    } else if remove && !(missing.is_empty() && extra.is_empty()) {
        outcome.object["aggregationRule"] = expected["aggregationRule"].clone();
        outcome.operation = Operation::Update;
    } else if !missing.is_empty() {
        let all: Vec<Value> = have.into_iter().chain(missing).collect();
        outcome.object["aggregationRule"]["clusterRoleSelectors"] = all.into();
        outcome.operation = Operation::Update;
    }
    outcome
}

/// Adds what is missing; or takes what is expected alone, where the rest is to go.
fn settle(outcome: &mut Outcome, field: &str, expected: &Value, remove: bool) {
    if remove && !(outcome.missing.is_empty() && outcome.extra.is_empty()) {
        outcome.object[field] = expected[field].clone();
        outcome.operation = Operation::Update;
    } else if !outcome.missing.is_empty() {
        let all: Vec<Value> = items(&outcome.object[field]).iter().chain(&outcome.missing).cloned().collect();
        outcome.object[field] = all.into();
        outcome.operation = Operation::Update;
    }
}

/// What the second rules permit and the first do not, each with one verb, group, resource and name.
fn uncovered(owner: &Value, servant: &Value) -> Vec<Value> {
    let parts = items(servant).iter().flat_map(broken_down);
    parts.filter(|part| !items(owner).iter().any(|rule| covers(rule, part))).collect()
}

fn broken_down(rule: &Value) -> Vec<Value> {
    let mut parts = Vec::new();
    let names = texts(&rule["resourceNames"]);
    for group in texts(&rule["apiGroups"]) {
        for resource in texts(&rule["resources"]) {
            for verb in texts(&rule["verbs"]) {
                let part = json!({"apiGroups": [group], "resources": [resource], "verbs": [verb]});
                if names.is_empty() {
                    parts.push(part.clone());
                }
                for name in &names {
                    let mut part = part.clone();
                    part["resourceNames"] = json!([name]);
                    parts.push(part);
                }
            }
        }
    }
    for path in texts(&rule["nonResourceURLs"]) {
        parts.extend(texts(&rule["verbs"]).iter().map(|verb| json!({"nonResourceURLs": [path], "verbs": [verb]})));
    }
    parts
}

fn covers(rule: &Value, part: &Value) -> bool {
    let of = |field: &str| (texts(&rule[field]), texts(&part[field]));
    let within = |field: &str| {
        let (have, want) = of(field);
        have.contains(&"*") || want.iter().all(|one| have.contains(one))
    };
    let (have, want) = of("resources");
    let resources = have.contains(&"*")
        || want.iter().all(|one| {
            let below = one.split_once('/').map(|(_, below)| format!("*/{below}"));
            have.contains(one) || below.is_some_and(|below| have.contains(&&*below))
        });
    let (have, want) = of("nonResourceURLs");
    let paths = want.iter().all(|path| {
        have.iter().any(|known| known == path || known.ends_with('*') && path.starts_with(known.trim_end_matches('*')))
    });
    let (have, want) = of("resourceNames");
    let names = have.is_empty() || (!want.is_empty() && want.iter().all(|one| have.contains(one)));
    within("verbs") && within("apiGroups") && resources && paths && names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(verbs: &[&str], resources: &[&str]) -> Value {
        json!({"verbs": verbs, "apiGroups": [""], "resources": resources})
    }

    #[test]
    fn rules_are_compared_by_what_they_permit() {
        for (have, want, missing) in [
            (rule(&["*"], &["pods"]), rule(&["get", "list"], &["pods"]), 0),
            (rule(&["get"], &["*"]), rule(&["get", "list"], &["pods", "secrets"]), 2),
            (rule(&["get"], &["*/log"]), rule(&["get"], &["pods/log"]), 0),
            (rule(&["get"], &["pods"]), json!({"verbs": ["get"], "nonResourceURLs": ["/x"]}), 1),
            (
                json!({"verbs": ["get"], "nonResourceURLs": ["/x/*"]}),
                json!({"verbs": ["get"], "nonResourceURLs": ["/x/y"]}),
                0,
            ),
        ] {
            assert_eq!(uncovered(&json!([have]), &json!([want])).len(), missing, "{have} {want}");
        }
    }

    #[test]
    fn a_role_keeps_what_it_has_unless_it_is_to_go() {
        let existing = json!({"metadata": {"labels": {"a": "1"}}, "rules": [rule(&["get"], &["pods"])]});
        let expected = json!({"metadata": {"labels": {"a": "2", "b": "2"}}, "rules": [rule(&["list"], &["pods"])]});
        let joined = role(&existing, &expected, false);
        assert_eq!((joined.operation, items(&joined.object["rules"]).len()), (Operation::Update, 2));
        assert_eq!(joined.object["metadata"]["labels"], json!({"a": "1", "b": "2"}));
        let replaced = role(&existing, &expected, true);
        assert_eq!((&replaced.object["rules"], replaced.extra.len()), (&expected["rules"], 1));
        assert_eq!(role(&existing, &existing, true).operation, Operation::Nothing);
    }

    #[test]
    fn a_binding_to_another_role_is_made_anew() {
        let to = |name: &str, users: &[&str]| {
            let subjects: Vec<Value> = users.iter().map(|user| json!({"kind": "User", "name": user})).collect();
            json!({"roleRef": {"kind": "Role", "name": name}, "subjects": subjects})
        };
        assert_eq!(binding(&to("a", &["x"]), &to("b", &["x"]), false).operation, Operation::Recreate);
        let added = binding(&to("a", &["x"]), &to("a", &["y", "y"]), false);
        assert_eq!((added.missing.len(), items(&added.object["subjects"]).len()), (1, 2));
        let replaced = binding(&to("a", &["x"]), &to("a", &["y"]), true);
        assert_eq!(replaced.object["subjects"], to("a", &["y"])["subjects"]);
    }
}
