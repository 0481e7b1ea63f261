//! `kubectl certificate approve` and `deny`.

use http::Method;
use serde_json::{Value, json};

use super::common::{self, Report};
use super::{Command, group, leaf};
use crate::client::Call;
use crate::error::{Error, Result};
use crate::flags::{Flag, switch};
use crate::print;
use crate::resource::{Builder, Info, read_all};
use crate::session::Context;
use crate::text::{line, quote};

pub const COMMAND: Command = group(
    "certificate",
    "Modify certificate resources",
    &[
        leaf("approve", "(-f FILENAME | NAME)", "Approve a certificate signing request", flags, |c| {
            Box::pin(run(c, &APPROVE))
        }),
        leaf("deny", "(-f FILENAME | NAME)", "Deny a certificate signing request", flags, |c| Box::pin(run(c, &DENY))),
    ],
);

struct Verdict {
    condition: &'static str,
    opposite: &'static str,
    reason: &'static str,
    message: &'static str,
    done: &'static str,
}

const APPROVE: Verdict = Verdict {
    condition: "Approved",
    opposite: "Denied",
    reason: "KubectlApprove",
    message: "This CSR was approved by kubectl certificate approve.",
    done: "approved",
};
const DENY: Verdict = Verdict {
    condition: "Denied",
    opposite: "Approved",
    reason: "KubectlDeny",
    message: "This CSR was denied by kubectl certificate deny.",
    done: "denied",
};

/// A conflict is tried so often with what the server has now.
const ATTEMPTS: usize = 10;

fn flags() -> Vec<Flag> {
    let mut flags = common::FILES.to_vec();
    flags.extend(print::FLAGS);
    flags.push(switch("force", "Update the request even if it has the condition."));
    flags
}

async fn run(context: &Context, verdict: &Verdict) -> Result<()> {
    let report = Report::of_reading(context)?;
    let names = context.words();
    if names.is_empty() && context.flags.list("filename").is_empty() && context.flags.given("kustomize").is_none() {
        return Err(Error::say("one or more CSRs must be specified as <name> or -f <filename>"));
    }
    let mut words = names.to_vec();
    if !words.is_empty() {
        words.insert(0, "certificatesigningrequests".to_owned());
    }
    let built = Builder::of(context).words(&words).latest().build(context).await?;
    let (infos, mut unread) = read_all(context, &built.targets, 500).await;
    unread.extend(built.errors);
    let mut errors = Vec::new();
    if infos.is_empty() && unread.is_empty() {
        line("No resources found");
    }
    for info in infos {
        if let Err(error) = one(context, &info, verdict, &report).await {
            errors.push(error);
        }
    }
    // What went wrong with objects is told before what could not be read.
    errors.extend(unread);
    Error::all(errors)
}

async fn one(context: &Context, info: &Info, verdict: &Verdict, report: &Report) -> Result<()> {
    let wanted = "CertificateSigningRequest.certificates.k8s.io";
    let kind = crate::discovery::qualified(&info.resource.kind, &info.resource.group);
    if kind != wanted {
        return Err(Error::say(format!("can only handle {wanted} objects, got {kind}")));
    }
    let client = context.client().await?;
    let mut request = info.object.clone();
    for attempt in 1.. {
        let conditions = request["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
        if conditions.iter().any(|condition| condition["type"] == verdict.opposite) {
            let name = quote(&info.name);
            return Err(Error::say(format!("certificate signing request {name} is already {}", verdict.opposite)));
        }
        let has = conditions.iter().any(|condition| condition["type"] == verdict.condition);
        if has && !context.flags.is("force") {
            break;
        }
        if !has {
            add(&mut request, verdict);
        }
        match client.json(Call::new(Method::PUT, format!("{}/approval", info.path())).json(&request)).await {
            Ok(_) => break,
            Err(error) if error.is_conflict() && attempt < ATTEMPTS => {
                request = client.json(Call::get(info.path())).await?;
            }
            Err(error) => return Err(error),
        }
    }
    report.done(info, &info.object, verdict.done)
}

fn add(request: &mut Value, verdict: &Verdict) {
    let condition = json!({
        "type": verdict.condition,
        "status": "True",
        "reason": verdict.reason,
        "message": verdict.message,
        "lastUpdateTime": ferry_meta::time::time(ferry_meta::time::now()),
    });
    match request["status"]["conditions"].as_array_mut() {
        Some(conditions) => conditions.push(condition),
        None => request["status"]["conditions"] = json!([condition]),
    }
}
