//! `kubectl set subject`: who is bound to a role.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::super::{Command, leaf};
use super::{Ending, about};
use crate::commands::common::{self, Report};
use crate::error::{Error, Result};
use crate::flags::array;
use crate::session::Context;

pub const COMMAND: Command = leaf(
    "subject",
    "(-f FILENAME | TYPE NAME) [--user=username] [--group=groupname] [--serviceaccount=namespace:serviceaccountname] [--dry-run=server|client|none]",
    "Update the user, group, or service account in a role binding or cluster role binding",
    || {
        super::flags(&[
            common::SELECTOR,
            array("user", "Usernames to bind to the role."),
            array("group", "Groups to bind to the role."),
            array("serviceaccount", "Service accounts to bind to the role, as namespace:name."),
        ])
    },
    |c| Box::pin(run(c)),
);

async fn run(context: &Context) -> Result<()> {
    let flags = &context.flags;
    let report = Report::of(context)?;
    let infos = super::selected(context, &report).await?;
    let sorted = |name: &str| flags.list(name).into_iter().collect::<BTreeSet<String>>();
    let (users, groups, accounts) = (sorted("user"), sorted("group"), sorted("serviceaccount"));
    if users.is_empty() && groups.is_empty() && accounts.is_empty() {
        return Err(Error::say("you must specify at least one value of user, group or serviceaccount"));
    }
    let mut subjects: Vec<Value> = Vec::new();
    for (kind, names) in [("User", users), ("Group", groups)] {
        subjects.extend(
            names.iter().map(|name| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name})),
        );
    }
    for account in &accounts {
        let parts: Vec<&str> = account.split(':').collect();
        let [namespace, name] = &*parts else { return Err(Error::say("serviceaccount must be <namespace>:<name>")) };
        if name.is_empty() {
            return Err(Error::say("serviceaccount must be <namespace>:<name>"));
        }
        if namespace.is_empty() && infos.iter().any(|info| info.resource.kind == "ClusterRoleBinding") {
            return Err(Error::say("serviceaccount must be <namespace>:<name>, namespace must be specified"));
        }
        let namespace = if namespace.is_empty() { context.namespace().await? } else { (*namespace).to_owned() };
        subjects.push(json!({"kind": "ServiceAccount", "name": name, "namespace": namespace}));
    }
    let ending = Ending {
        report: &report,
        what: "subjects updated",
        failed: "failed to patch subjects to rolebinding:",
        always: false,
    };
    let mut errors = Vec::new();
    for info in &infos {
        if !matches!(&*info.resource.kind, "RoleBinding" | "ClusterRoleBinding") {
            errors.push(about(info, "setting subjects is only supported for RoleBinding/ClusterRoleBinding"));
            continue;
        }
        let mut changed = info.object.clone();
        let mut known = changed["subjects"].as_array().cloned().unwrap_or_default();
        let new: Vec<&Value> = subjects.iter().filter(|subject| !known.contains(subject)).collect();
        known.extend(new.into_iter().cloned());
        changed["subjects"] = known.into();
        errors.extend(ending.send(context, info, changed).await.err());
    }
    Error::all(errors)
}
