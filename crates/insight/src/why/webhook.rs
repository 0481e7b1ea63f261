//! Admission webhooks and aggregated APIs that cannot be called.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ferry_meta::object;
use serde_json::Value;

use super::{Finding, Reason, cluster_objects, is_failing, is_young, said};
use crate::gather::{BEHIND, BEHIND_SLICES, CRDS, MUTATING, VALIDATING};
use crate::surroundings::UNLISTED;
use crate::world::{World, ago, standing, title, word};

/// Why the Service behind a webhook or an APIService does not answer, as far as the objects tell.
fn dead(world: &World, service: &Value) -> Option<String> {
    let (namespace, name) = (object::text(service, "/namespace"), object::text(service, "/name"));
    let of = |item: &&Value| object::name(item) == name && object::namespace(item) == namespace;
    let found = world.seen(BEHIND)?.iter().find(of)?;
    if found["absent"] == true {
        return Some(format!("its Service {namespace}/{name} does not exist"));
    }
    let port = service.get("port").and_then(Value::as_i64).unwrap_or(443);
    let ports = object::items(found, "/spec/ports");
    if !ports.iter().any(|known| known.get("port").and_then(Value::as_i64) == Some(port)) {
        return Some(format!("its Service {namespace}/{name} has no port {port}"));
    }
    if found[UNLISTED] == true {
        return None;
    }
    let ready = world.all(BEHIND_SLICES).iter().any(|slice| {
        let label = object::labels(slice).get("kubernetes.io/service-name").and_then(Value::as_str);
        let ready = |endpoint: &Value| endpoint.pointer("/conditions/ready").and_then(Value::as_bool) != Some(false);
        label == Some(name)
            && object::namespace(slice) == namespace
            && object::items(slice, "/endpoints").iter().any(ready)
    });
    (!ready).then(|| {
        let ask = format!("ferry why -n {} {}", word(namespace), word(&format!("svc/{name}")));
        format!("no pod is ready behind its Service {namespace}/{name}: {ask}")
    })
}

/// Why a webhook could not be called, as the last link of the API server's message says it.
#[derive(Debug, PartialEq, Eq)]
enum CallFailure {
    Timeout,
    Certificate,
    Refused,
    Other,
}

impl CallFailure {
    fn read(message: &str) -> Self {
        // What stands in quotes is an address or a name.
        let plain = message.split('"').step_by(2).collect::<Vec<_>>().join("");
        let links: Vec<&str> = plain.split(": ").map(str::trim).collect();
        let has = |text: &str| links.iter().any(|link| link.starts_with(text));
        if has("context deadline exceeded") || has("i/o timeout") {
            Self::Timeout
        } else if has("x509") || has("tls") || has("invalid peer certificate") {
            Self::Certificate
        } else if has("connection refused") {
            Self::Refused
        } else {
            Self::Other
        }
    }
}

/// Adds what is known of the webhook that could not be called.
pub(super) fn explain(world: &World, hook: &str, message: &str, finding: Finding) -> Finding {
    for (list, kind) in [(VALIDATING, "validatingwebhookconfiguration"), (MUTATING, "mutatingwebhookconfiguration")] {
        for configuration in world.all(list) {
            let Some(found) =
                object::items(configuration, "/webhooks").iter().find(|one| object::text(one, "/name") == hook)
            else {
                continue;
            };
            let name = object::name(configuration);
            let why = found.pointer("/clientConfig/service").and_then(|service| dead(world, service));
            let finding = match (&why, CallFailure::read(message)) {
                (Some(_), _) | (None, CallFailure::Other) => finding,
                (None, CallFailure::Timeout) => {
                    let seconds = found.get("timeoutSeconds").and_then(Value::as_i64).unwrap_or(10);
                    finding.detail(format!("it did not answer within its timeoutSeconds of {seconds} s"))
                }
                (None, CallFailure::Certificate) => finding
                    .detail("the API server does not trust its certificate: clientConfig.caBundle must be of the CA that signed it, and the certificate for its name"),
                (None, CallFailure::Refused) => finding.detail("nothing listens there"),
            };
            return finding
                .detail(format!("it is in {kind}/{name}, with failurePolicy {}", object::text(found, "/failurePolicy")))
                .detail(why.unwrap_or_default())
                .advise(format!("bring it back, or let requests pass while it is away (failurePolicy: Ignore): kubectl edit {kind} {name}"))
                .advise(format!("if it is not needed any more: kubectl delete {kind} {name}"));
        }
    }
    finding.advise(
        "see which configuration it is in: kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations",
    )
}

/// What is wrong with the CA by which a server is believed; None where it is good, or there is none.
fn bundle(world: &World, config: &Value) -> Option<String> {
    let text = object::text(config, "/caBundle");
    if text.is_empty() {
        return None;
    }
    let pem = STANDARD.decode(text).ok()?;
    let Ok(first) = ferry_x509::Certificate::first_of_pem(&pem) else {
        return Some("holds no certificate: it must be PEM, in base64".to_owned());
    };
    // Of several, another one may be the one that counts.
    let several = String::from_utf8_lossy(&pem).matches("BEGIN CERTIFICATE").count() > 1;
    if several || first.not_after >= world.now.as_second() {
        return None;
    }
    let since = jiff::Timestamp::from_second(first.not_after).map(|then| ago(world.now, then)).unwrap_or_default();
    Some(format!("holds a certificate that has expired {since} ago"))
}

/// A configuration of webhooks: those that cannot be called.
pub(super) fn configuration(world: &World, target: &Value) -> Vec<Finding> {
    let hooks = object::items(target, "/webhooks").iter();
    hooks
        .filter_map(|hook| {
            if let Some(wrong) = bundle(world, hook.get("clientConfig")?) {
                let cause =
                    format!("its webhook {:?} cannot be called: its caBundle {wrong}", object::text(hook, "/name"));
                return Some(Finding::new(Reason::CaBundle, target, cause).advise(format!(
                    "put the CA there that has signed the certificate of the webhook: kubectl edit {} {}",
                    object::text(target, "/kind").to_lowercase(),
                    object::name(target)
                )));
            }
            let service = hook.pointer("/clientConfig/service")?;
            let why = dead(world, service)?;
            let policy = object::text(hook, "/failurePolicy");
            let effect = if policy == "Ignore" {
                "requests pass without it (failurePolicy Ignore)"
            } else {
                "requests that it should judge are refused (failurePolicy Fail)"
            };
            let cause = format!("its webhook {:?} cannot be called: {why}", object::text(hook, "/name"));
            Some(Finding::new(Reason::WebhookUnreachable, target, cause).detail(effect).advise(format!(
                "bring its pods back, or delete it: kubectl delete {} {}",
                object::text(target, "/kind").to_lowercase(),
                object::name(target)
            )))
        })
        .collect()
}

/// A CustomResourceDefinition: how it says that it is, and the webhook that turns its versions into each other.
pub(super) fn conversion(world: &World, target: &Value) -> Vec<Finding> {
    // What is established follows from the names.
    let names = is_failing(target, "NamesAccepted").map(|refused| names_taken(world, target, refused));
    let mut found: Vec<Finding> = names.or_else(|| cluster_objects::other(world, target)).into_iter().collect();
    if let Some(unapproved) = unapproved(target) {
        // It is not established for this reason alone.
        if !unapproved.note {
            found.clear();
        }
        found.push(unapproved);
    }
    let why = target.pointer("/spec/conversion/webhook/clientConfig/service").and_then(|service| dead(world, service));
    if let Some(why) = why {
        let cause = format!("the webhook that converts its objects between versions cannot be called: {why}");
        let versions = object::items(target, "/spec/versions").len();
        let effect = match versions {
            1 => "with one version nothing is converted; it counts as soon as there is a second",
            _ => "its objects cannot be read, written or deleted in a version other than the stored one",
        };
        let finding = Finding::new(Reason::ConversionWebhook, target, cause).detail(effect);
        let finding = if versions == 1 { finding.note() } else { finding };
        found.push(finding.advise(format!(
            "bring its pods back; or, if all versions are alike, convert without it (spec.conversion.strategy: None): kubectl edit crd {}",
            object::name(target)
        )));
    }
    found.extend(unserved(target));
    found
}

/// Another definition of the group has one of its names.
fn names_taken(world: &World, target: &Value, refused: &Value) -> Finding {
    let cause = format!("its names are not accepted: {}", said(refused));
    let finding = Finding::new(Reason::NamesTaken, target, cause);
    let group = object::text(target, "/spec/group");
    let names = |item: &Value, at: &str| -> Vec<String> {
        let one = |field: &str| object::text(item, &format!("{at}/{field}")).to_owned();
        let short = object::items(item, &format!("{at}/shortNames")).iter().filter_map(Value::as_str);
        let all = [one("plural"), one("singular"), one("kind"), one("listKind")].into_iter();
        all.chain(short.map(str::to_owned)).filter(|name| !name.is_empty()).collect()
    };
    let wanted = names(target, "/spec/names");
    let has = |other: &&Value| {
        let accepted = names(other, "/status/acceptedNames");
        object::text(other, "/spec/group") == group
            && object::uid(other) != object::uid(target)
            && wanted.iter().any(|name| accepted.contains(name))
    };
    let finding = finding.detail("until then its objects are not served");
    match world.all(CRDS).iter().find(has).map(object::name) {
        Some(other) => finding
            .detail(format!("the CustomResourceDefinition {other} has them"))
            .advise(format!(
                "a definition's names cannot be changed: delete it and create it with others: kubectl delete crd {}",
                object::name(target)
            ))
            .advise(format!("or, if the other one and all its objects are not needed: kubectl delete crd {other}")),
        None => finding
            .advise(format!("see all of the group: kubectl get crd | grep '{group}'"))
            .advise(format!("delete it and create it with other names: kubectl delete crd {}", object::name(target))),
    }
}

/// Groups of Kubernetes itself want an annotation by which somebody stands for the definition.
fn unapproved(target: &Value) -> Option<Finding> {
    let condition = standing(target, "KubernetesAPIApprovalPolicyConformant", "False")?;
    let cause = format!(
        "its group {} is one of Kubernetes' own, which wants the annotation api-approved.kubernetes.io",
        object::text(target, "/spec/group")
    );
    let finding = Finding::new(Reason::Condition, target, cause).detail(said(condition)).advise(format!(
        "if it is no API of Kubernetes, use a group of your own; else: kubectl annotate crd {} api-approved.kubernetes.io=LINK",
        object::name(target)
    ));
    // One that is served stays so.
    Some(if standing(target, "Established", "True").is_some() { finding.note() } else { finding })
}

/// No version of it is to be served.
fn unserved(target: &Value) -> Option<Finding> {
    let versions = object::items(target, "/spec/versions");
    let none = !versions.is_empty() && versions.iter().all(|version| version["served"] != true);
    none.then(|| {
        let cause = "its objects can be read and written in no version: none of its versions is served";
        Finding::new(Reason::NotServed, target, cause)
            .note()
            .advise(format!("set served: true in a version: kubectl edit crd {}", object::name(target)))
    })
}

/// An API that another server serves.
pub(super) fn api_service(world: &World, target: &Value) -> Option<Finding> {
    let failing = is_failing(target, "Available")?;
    let why = target.pointer("/spec/service").and_then(|service| dead(world, service)).unwrap_or_default();
    if let Some(wrong) = bundle(world, &target["spec"]) {
        let cause = format!("its API is not available: its caBundle {wrong}");
        return Some(Finding::new(Reason::CaBundle, target, cause).detail(said(failing)).advise(format!(
            "put the CA there that has signed the certificate of its server: kubectl edit {}",
            title(target)
        )));
    }
    let cause = format!("its API is not available: {}", object::text(failing, "/reason"));
    let finding = Finding::new(Reason::ApiServiceUnavailable, target, cause).underway_if(is_young(world, target));
    let finding = finding.detail(said(failing));
    let service = target.pointer("/spec/service");
    let failure = CallFailure::read(object::text(failing, "/message"));
    let finding = match service.filter(|_| why.is_empty()) {
        Some(_) if failure == CallFailure::Certificate => finding
            .detail("the API server does not trust its certificate: spec.caBundle must be of the CA that signed it, and the certificate for its name")
            .advise(format!("put that CA there: kubectl edit {}", title(target))),
        Some(service) => finding.advise(format!(
            "see what its server says: ferry why -n {} service/{}, and the logs of its pods",
            object::text(service, "/namespace"),
            object::text(service, "/name")
        )),
        None => finding.detail(why).advise("bring its server back"),
    };
    Some(finding.advise(format!("only if nobody needs it any more: kubectl delete {}", title(target))))
}

#[cfg(test)]
mod tests {
    use super::CallFailure::{self, *};

    #[test]
    fn failed_calls_are_told_apart() {
        let call = "failed calling webhook \"a.b\": failed to call webhook: Post \"https://x.d.svc:443/?timeout=1s\": ";
        for (end, want) in [
            ("context deadline exceeded", Timeout),
            ("dial tcp 10.0.0.1:443: connect: connection refused", Refused),
            ("tls: failed to verify certificate: x509: certificate signed by unknown authority", Certificate),
            ("service \"tls: x\" not found", Other),
            ("no endpoints available for service \"x\"", Other),
        ] {
            assert_eq!(CallFailure::read(&format!("{call}{end}")), want, "{end}");
        }
    }
}
