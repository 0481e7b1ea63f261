//! Images that cannot be had.

use ferry_meta::object;
use serde_json::Value;

use super::containers::{SPECS, called, change_image, edit, waiting};
use super::pull_failure::PullFailure;
use super::references::{self, Place};
use super::{Finding, Reason, named, near};
use crate::world::{Presence, World, word};

/// The reasons with which a kubelet says that an image is the trouble.
const REASONS: [&str; 7] = [
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "ImageInspectError",
    "RegistryUnavailable",
    "SignatureValidationFailed",
];

/// A container of `kubectl debug` that does not start. The pod is none the worse for it.
pub(super) fn of_debugger(_: &World, pod: &Value) -> Option<Finding> {
    let (status, state) = object::items(pod, "/status/ephemeralContainerStatuses").iter().find_map(|status| {
        let state = status.pointer("/state/waiting")?;
        let reason = object::text(state, "/reason");
        (REASONS.contains(&reason) || reason.ends_with("Error")).then_some((status, state))
    })?;
    let (name, image) = (object::text(status, "/name"), object::text(status, "/image"));
    let cause = format!("its ephemeral container {name} (image {image}) does not start: {}", super::said(state));
    Some(Finding::new(Reason::EphemeralContainer, pod, cause).note().advise(format!(
        "such a container cannot be changed or removed; start another one: kubectl debug {}{} -it --image=IMAGE",
        super::in_namespace(pod),
        object::name(pod)
    )))
}

pub(super) fn image(world: &World, pod: &Value) -> Option<Finding> {
    let (status, state) = waiting(pod, &REASONS)?;
    let container = object::text(status, "/name");
    // A container also waits for the images that its volumes are made of.
    let volume = of_volume(pod, object::text(state, "/message"));
    let (image, user) = match volume {
        Some((volume, image)) => (image, format!("volume {volume:?}")),
        None => (asked(pod, container).unwrap_or(object::text(status, "/image")), called(pod, container)),
    };
    let why = told(world, pod, container, image, state);
    let finding = |reason: Reason, why: &str| {
        let why = if why.is_empty() { String::new() } else { format!(": {why}") };
        Finding::new(reason, pod, format!("the image {image} of {user} cannot be pulled{why}"))
    };
    let correct = match volume {
        Some(_) => format!("correct the image: {}", edit(world, pod)),
        None => format!("correct the image: {}", change_image(world, pod)),
    };
    let host = registry(image);
    let found = match object::text(state, "/reason") {
        "InvalidImageName" => finding(Reason::ImageName, "that is no name of an image").advise(correct),
        "ErrImageNeverPull" => {
            finding(Reason::ImageNeverPulled, "imagePullPolicy is Never, and the node does not have it")
                .advise(format!("load the image on node {}", object::text(pod, "/spec/nodeName")))
                .advise(format!("or change imagePullPolicy to IfNotPresent: {}", edit(world, pod)))
        }
        "SignatureValidationFailed" => finding(Reason::ImagePull, "its signature could not be validated")
            .advise("sign it as the runtime's policy wants, or name one that is signed")
            .advise(format!("or change the runtime's policy on node {}", object::text(pod, "/spec/nodeName"))),
        _ => match PullFailure::read(&why) {
            PullFailure::Unresolvable => finding(
                Reason::RegistryUnresolvable,
                &format!("the name of the registry, {host}, does not resolve on the node"),
            )
            .advise(correct)
            .advise(format!("if {host} is right, see that the node's DNS knows it")),
            PullFailure::Refused => {
                finding(Reason::RegistryUnreachable, &format!("nothing listens at the registry {host}"))
                    .advise(format!("see that the registry {host} runs, and that its port is the right one"))
            }
            PullFailure::Unreachable => {
                finding(Reason::RegistryUnreachable, &format!("the node gets no answer from the registry {host}"))
                    .advise("check the node's network, firewall and proxy, or use a mirror")
            }
            PullFailure::Proxy => finding(
                Reason::RegistryUnreachable,
                &format!("the proxy that the node asks for the registry {host} does not let it through"),
            )
            .advise(format!(
                "see that this proxy runs, or correct HTTPS_PROXY and NO_PROXY of the runtime on node {}",
                object::text(pod, "/spec/nodeName")
            )),
            PullFailure::Expired => finding(
                Reason::RegistryCertificate,
                &format!("the certificate of the registry {host} is not valid now, by the clock of the node"),
            )
            .advise(format!("renew the certificate of {host}, or set the node's clock right")),
            PullFailure::OtherName => finding(
                Reason::RegistryCertificate,
                &format!("the certificate of the registry is for other names than {host}"),
            )
            .advise(format!("give {host} a certificate for this name, or name the registry as its certificate does")),
            PullFailure::Certificate => finding(
                Reason::RegistryCertificate,
                &format!("the node does not trust the certificate of the registry {host}"),
            )
            .advise(format!("give the node the CA of {host}, or the registry a certificate that the node trusts")),
            PullFailure::PlainHttp => finding(
                Reason::RegistryCertificate,
                &format!("the registry {host} speaks HTTP, and the node expects HTTPS"),
            )
            .advise(format!("give {host} a certificate, or tell the runtime that it is an HTTP mirror")),
            PullFailure::RateLimit => finding(
                Reason::RegistryLimit,
                &format!("the registry {host} limits how often it may be asked, and the limit is reached (429)"),
            )
            .advise("wait, pull with credentials (spec.imagePullSecrets), or use a mirror"),
            PullFailure::Denied => return Some(denied(world, pod, &finding, image, &why, &correct)),
            PullFailure::NotFound => {
                let found = finding(Reason::ImageNotFound, &format!("the registry {host} has no such image or tag"));
                // Some registries say so to whoever may not see it.
                match missing_secret(world, pod) {
                    Some(name) => found
                        .detail(format!("the Secret {name:?} of spec.imagePullSecrets does not exist; some registries hide images from those without credentials"))
                        .advise(correct),
                    None => found.advise(correct),
                }
            }
            PullFailure::Status(status) => {
                finding(Reason::RegistryError, &format!("the registry {host} answers with status {status}"))
                    .advise(format!("see what the registry {host} says of it; it is tried again"))
            }
            PullFailure::Platform => finding(Reason::ImagePlatform, "it is not made for the node's kind of machine")
                .detail(machine(world, pod))
                .advise(
                    "use an image for this architecture, or a node of the image's (nodeSelector kubernetes.io/arch)",
                ),
            PullFailure::Disk => finding(Reason::ImageDisk, "the node's disk is full")
                .advise(format!("make room on node {}", object::text(pod, "/spec/nodeName"))),
            PullFailure::Unknown => finding(Reason::ImagePull, "").advise(format!(
                "see all attempts: kubectl describe pod {}{}",
                super::in_namespace(pod),
                object::name(pod)
            )),
        },
    };
    Some(found.detail(why))
}

/// The volume, and its image, that the kubelet's message is about: it names the image in quotes.
fn of_volume<'a>(pod: &'a Value, message: &str) -> Option<(&'a str, &'a str)> {
    let begins = |image: &str| {
        let quoted = format!("{image:?}");
        ["Back-off pulling image ", "Failed to pull image ", "failed to pull and unpack image "]
            .iter()
            .filter_map(|words| message.find(words).map(|at| &message[at + words.len()..]))
            .any(|rest| rest.starts_with(&quoted))
    };
    let used =
        SPECS.into_iter().flat_map(|list| object::items(pod, list)).any(|one| begins(object::text(one, "/image")));
    let volumes = object::items(pod, "/spec/volumes").iter().filter(|_| !used);
    volumes
        .map(|volume| (object::text(volume, "/name"), object::text(volume, "/image/reference")))
        .find(|(_, image)| !image.is_empty() && begins(image))
}

/// As the pod names it, not as the runtime does.
fn asked<'a>(pod: &'a Value, container: &str) -> Option<&'a str> {
    let lists = SPECS.into_iter().flat_map(|list| object::items(pod, list));
    lists.into_iter().find(|one| object::text(one, "/name") == container).map(|one| object::text(one, "/image"))
}

/// What the runtime said: beside the state, or while it backs off in the Event of the last attempt.
fn told(world: &World, pod: &Value, container: &str, image: &str, state: &Value) -> String {
    let message = object::text(state, "/message");
    if let Some(rest) = message.strip_prefix("Back-off pulling image") {
        let rest = rest.trim_start().strip_prefix(&format!("{image:?}")).unwrap_or(rest);
        let rest = rest.trim_start_matches(": ").trim_start_matches("ErrImagePull: ");
        if !rest.is_empty() {
            return rest.to_owned();
        }
    } else if !message.is_empty() {
        return message.to_owned();
    }
    let prefix = format!("Failed to pull image {image:?}: ");
    let field = format!("{{{container}}}");
    let failed = world.events(pod).into_iter().rfind(|event| {
        let of = object::text(event, "/involvedObject/fieldPath");
        object::text(event, "/reason") == "Failed"
            && object::text(event, "/message").starts_with(&prefix)
            && (of.is_empty() || of.ends_with(&field))
    });
    failed.and_then(|event| object::text(event, "/message").strip_prefix(&prefix)).unwrap_or(message).to_owned()
}

/// What the node is, as it says itself.
fn machine(world: &World, pod: &Value) -> String {
    let name = object::text(pod, "/spec/nodeName");
    let info = world.find("nodes", name).map(|node| &node["status"]["nodeInfo"]);
    let of = |field: &str| info.map(|info| object::text(info, field)).unwrap_or_default();
    match (of("/operatingSystem"), of("/architecture")) {
        ("", _) | (_, "") => String::new(),
        (system, architecture) => format!("node {name} is {system}/{architecture}"),
    }
}

/// A pull Secret that the pod names and that is not there.
fn missing_secret(world: &World, pod: &Value) -> Option<String> {
    let all = references::of_pod(pod).into_iter().filter(|one| one.place == Place::PullSecret);
    all.map(|one| one.name).find(|name| world.is_absent("secrets", name))
}

/// Not allowed to pull: are there credentials, and are they for this registry?
fn denied(
    world: &World,
    pod: &Value,
    finding: &dyn Fn(Reason, &str) -> Finding,
    image: &str,
    why: &str,
    correct: &str,
) -> Finding {
    let (host, namespace) = (registry(image), object::namespace(pod));
    let secrets: Vec<String> =
        references::of_pod(pod).into_iter().filter(|one| one.place == Place::PullSecret).map(|one| one.name).collect();
    let fits = |name: &String| match world.presence("secrets", name) {
        Presence::Present(content) => content.registries.iter().any(|known| serves(known, host)),
        _ => false,
    };
    let create = |name: &str| {
        format!(
            "kubectl create secret docker-registry -n {namespace} {} --docker-server={} --docker-username=USER --docker-password=PASSWORD",
            word(name),
            word(host)
        )
    };
    let fitting = secrets.iter().find(|name| fits(name));
    let absent = secrets.iter().find(|name| world.is_absent("secrets", name)).filter(|_| fitting.is_none());
    if let Some(name) = absent {
        let cause = format!(
            "the registry {host} wants credentials, and the Secret {name:?} of spec.imagePullSecrets does not exist in namespace {namespace}"
        );
        let there = near::elsewhere(world, "secrets", name);
        return finding(Reason::PullSecretMissing, &cause).detail(there).detail(why).advise(create(name));
    }
    let seen = |name: &&String| matches!(world.presence("secrets", name), Presence::Present(_));
    let none_fits = !secrets.is_empty() && fitting.is_none() && secrets.iter().all(|name| seen(&name));
    let cause = match (none_fits, secrets.as_slice()) {
        (true, [one]) => format!(
            "the registry {host} wants credentials, and the Secret {one:?} of spec.imagePullSecrets has none for {host}"
        ),
        (true, _) => format!(
            "the registry {host} wants credentials, and none of the Secrets of spec.imagePullSecrets has any for {host}"
        ),
        _ => format!(
            "the registry {host} does not give it to this caller: it wants other credentials, or has no such repository"
        ),
    };
    let mut found = finding(Reason::PullUnauthorized, &cause).detail(why);
    for name in &secrets {
        match world.presence("secrets", name) {
            Presence::Present(content) if content.registries.is_empty() => {
                found = found.detail(format!(
                    "the pull Secret {name:?} is of type {:?} and has no credentials for any registry",
                    content.kind
                ));
            }
            Presence::Present(content) if !fits(name) => {
                found = found.detail(format!(
                    "the pull Secret {name:?} has credentials for {}, not for {host}",
                    named(&content.registries)
                ));
            }
            Presence::Unknown => {
                found = found.detail(format!("the pull Secret {name:?} could not be looked at"));
            }
            _ => {}
        }
    }
    if secrets.is_empty() {
        found = found
            .detail(
                "the pod names no imagePullSecrets; those of its ServiceAccount are copied into it when it is created",
            )
            .advise(create("pull-secret"))
            .advise(
                "and name it in spec.imagePullSecrets of the pod, or of its ServiceAccount before the pod is created",
            );
    } else if none_fits {
        found = found
            .advise(create("pull-secret"))
            .advise(format!("and name it in spec.imagePullSecrets: {}", edit(world, pod)));
    } else {
        found = found.advise(format!("see that the Secret has the right user and password for {host}"));
    }
    found.advise(format!("if the repository is misspelt, {correct}"))
}

/// Whether credentials under this key of a Secret are for a host.
fn serves(key: &str, host: &str) -> bool {
    let bare = key.trim_start_matches("https://").trim_start_matches("http://");
    let bare = bare.split('/').next().unwrap_or_default();
    let docker = |name: &str| matches!(name, "docker.io" | "index.docker.io" | "registry-1.docker.io");
    let wild = bare.strip_prefix('*').is_some_and(|rest| host.ends_with(rest));
    bare == host || wild || (docker(bare) && docker(host))
}

/// The registry that an image names, as runtimes read it.
pub(super) fn registry(image: &str) -> &str {
    match image.split_once('/') {
        Some((first, _)) if first.contains(['.', ':']) || first == "localhost" => first,
        _ => "docker.io",
    }
}
