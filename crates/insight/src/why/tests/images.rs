//! Images that cannot be pulled.

use serde_json::json;

use super::super::Reason;
use super::{Situation, check_all, merge, node, pod, waiting, world};
use crate::world::{Content, Presence, World};

fn pulling(reason: &str, message: &str, image: &str) -> World {
    let mut pod = waiting(reason, message);
    merge(
        &mut pod,
        &json!({ "spec": { "containers": [{ "name": "c", "image": image }], "imagePullSecrets": [{ "name": "regcred" }] } }),
    );
    world(pod, &[("nodes", json!([node("n", "True")]))])
}

#[test]
fn images() {
    let denied = "pull access denied, repository does not exist or may require authorization: server message: insufficient_scope: authorization failed";
    let image = "r.example.com/a:1";
    let mut no_secret = pulling("ErrImagePull", denied, image);
    no_secret.note("secrets", "regcred", Presence::Absent);
    let mut other_host = pulling("ErrImagePull", denied, image);
    let content = Content {
        keys: vec![".dockerconfigjson".into()],
        kind: "kubernetes.io/dockerconfigjson".into(),
        registries: vec!["other.example.com".into()],
        certificate: crate::world::Serving::Unseen,
    };
    other_host.note("secrets", "regcred", Presence::Present(content));
    let back_off = format!("Back-off pulling image \"{image}\": ErrImagePull: {image}: not found");
    let init = json!({ "spec": { "initContainers": [{ "name": "i", "image": "img" }] }, "status": { "initContainerStatuses": [{ "name": "i", "state": { "waiting": { "reason": "ErrImagePull", "message": "img: not found" } } }] } });
    let rows: Vec<Situation<'_>> = vec![
        (
            "unresolvable",
            pulling(
                "ErrImagePull",
                "failed to do request: Head \"https://r.example.com/v2\": dial tcp: lookup r.example.com: no such host",
                image,
            ),
            Reason::RegistryUnresolvable,
            &["r.example.com, does not resolve"],
        ),
        (
            "limit",
            pulling(
                "ErrImagePull",
                "unexpected status from HEAD request to https://r/v2: 429 Too Many Requests",
                image,
            ),
            Reason::RegistryLimit,
            &["limits how often", "429"],
        ),
        (
            "refused",
            pulling("ErrImagePull", "dial tcp 10.0.0.1:5000: connect: connection refused", "10.0.0.1:5000/a:1"),
            Reason::RegistryUnreachable,
            &["nothing listens at the registry 10.0.0.1:5000"],
        ),
        (
            "timeout",
            pulling("ErrImagePull", "dial tcp 10.0.0.1:5000: i/o timeout", image),
            Reason::RegistryUnreachable,
            &["no answer from the registry"],
        ),
        (
            "certificate",
            pulling(
                "ErrImagePull",
                "tls: failed to verify certificate: x509: certificate signed by unknown authority",
                image,
            ),
            Reason::RegistryCertificate,
            &["does not trust the certificate"],
        ),
        (
            "plain",
            pulling("ErrImagePull", "http: server gave HTTP response to HTTPS client", image),
            Reason::RegistryCertificate,
            &["speaks HTTP"],
        ),
        (
            "not there",
            pulling("ErrImagePull", "rpc error: code = NotFound desc = failed to resolve reference", image),
            Reason::ImageNotFound,
            &["the registry r.example.com has no such image or tag", "kubectl edit -n d pod/p"],
        ),
        ("backing off", pulling("ImagePullBackOff", &back_off, image), Reason::ImageNotFound, &["no such image"]),
        (
            "server",
            pulling(
                "ErrImagePull",
                "unexpected status from HEAD request to https://r/v2: 503 Service Unavailable",
                image,
            ),
            Reason::RegistryError,
            &["status 503"],
        ),
        (
            "no secret",
            no_secret,
            Reason::PullSecretMissing,
            &[
                "the Secret \"regcred\" of spec.imagePullSecrets does not exist in namespace d",
                "kubectl create secret docker-registry -n d regcred --docker-server=r.example.com",
            ],
        ),
        (
            "secret of another",
            other_host,
            Reason::PullUnauthorized,
            &["has credentials for other.example.com, not for r.example.com"],
        ),
        (
            "words in a name",
            pulling(
                "ErrImagePull",
                "failed to resolve reference \"r/404-not-found-denied:1\": unexpected end",
                "r/404-not-found-denied:1",
            ),
            Reason::ImagePull,
            &["unexpected end"],
        ),
        (
            "name",
            pulling("InvalidImageName", "Failed to apply default image tag \"A B\"", "A B"),
            Reason::ImageName,
            &["no name of an image"],
        ),
        (
            "never",
            pulling("ErrImageNeverPull", "Container image is not present with pull policy of Never", image),
            Reason::ImageNeverPulled,
            &["imagePullPolicy is Never"],
        ),
        (
            "init container",
            world(pod(init), &[("nodes", json!([node("n", "True")]))]),
            Reason::ImageNotFound,
            &["of init container i"],
        ),
    ];
    check_all(&rows);
}
