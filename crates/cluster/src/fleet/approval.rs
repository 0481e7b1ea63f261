//! Which certificates nodes of Ferry's get without an administrator: a kubelet's serving certificate for its own name and
//! addresses, and client certificates for its proxy and its gateway. Upstream leaves both to others. `judge` is pure.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ferry_client::{Api, Informers, write};
use ferry_tasks::Tasks;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Client;
use kube::api::PostParams;

use super::certificates::{CLIENT, GATEWAY, GATEWAYS, KUBELET_SERVING, PROXIES, PROXY};
use super::servers;
use crate::ranges::Ranges;

const NODE: &str = "system:node:";
const RETRY: Duration = Duration::from_secs(1);

/// Approves what nodes may have, as the requests come; a request whose Node does not tell its addresses yet is looked at again
/// when it does.
pub fn start(client: Client, informers: &Informers, service_cidr: Ranges, tasks: &Tasks) {
    let (requests, nodes) = (informers.of::<CertificateSigningRequest>(), informers.of::<Node>());
    let slices = informers.of::<EndpointSlice>();
    tasks.spawn_critical_once("node-certificate-approval", async move {
        let api: Api<CertificateSigningRequest> = Api::all(client);
        let (mut changed_requests, mut changed_nodes) = (requests.subscribe(), nodes.subscribe());
        nodes.synced().await;
        slices.synced().await;
        loop {
            let mut failed = false;
            let taken = Taken { services: service_cidr.clone(), servers: servers::addresses(&slices) };
            for request in requests.list().iter().filter(|request| is_open(request)) {
                let Some(message) = approval(request, &nodes.list(), &taken) else { continue };
                match approve(&api, request, message).await {
                    Ok(()) => {}
                    // Every server approves: another was faster, or the request ended. What became of it comes as a change.
                    Err(error) if is_overtaken(&error) => {
                        tracing::debug!("a node's certificate request has changed: {}", write::short(&error));
                    }
                    Err(error) => {
                        tracing::warn!("a node's certificate request cannot be approved: {}", write::short(&error));
                        failed = true;
                    }
                }
            }
            if failed {
                tokio::time::sleep(RETRY).await;
                continue;
            }
            tokio::select! {
                _ = changed_requests.next() => {}
                _ = changed_nodes.next() => {}
            }
        }
    });
}

/// Nobody judged it yet.
fn is_open(request: &CertificateSigningRequest) -> bool {
    let Some(status) = &request.status else { return true };
    status.certificate.is_none() && status.conditions.as_ref().is_none_or(|conditions| conditions.is_empty())
}

/// Addresses that are no node's.
struct Taken {
    services: Ranges,
    /// Of API servers. One that runs a node as well makes that node's certificate itself.
    servers: Vec<IpAddr>,
}

fn approval(request: &CertificateSigningRequest, nodes: &[Arc<Node>], taken: &Taken) -> Option<&'static str> {
    let spec = &request.spec;
    if ![CLIENT, KUBELET_SERVING].contains(&spec.signer_name.as_str()) {
        return None;
    }
    let asked = ferry_x509::Request::from_pem(&spec.request.0).ok()?;
    if asked.mails > 0 || asked.uris > 0 || asked.subject.odd {
        return None;
    }
    let request = NodeRequest {
        signer: &spec.signer_name,
        user: spec.username.as_deref()?,
        groups: spec.groups.as_deref().unwrap_or_default(),
        common_name: asked.common_name().ok()?,
        organizations: &asked.subject.organizations,
        names: &asked.dns_names,
        addresses: &asked.addresses,
    };
    judge(&request, nodes, taken)
}

/// The request is not what it was when it was judged.
fn is_overtaken(error: &kube::Error) -> bool {
    write::is_conflict(error) || write::is_not_found(error)
}

async fn approve(
    api: &Api<CertificateSigningRequest>,
    request: &CertificateSigningRequest,
    message: &str,
) -> kube::Result<()> {
    let mut approved = request.clone();
    let condition = CertificateSigningRequestCondition {
        type_: "Approved".to_owned(),
        status: "True".to_owned(),
        reason: Some("AutoApproved".to_owned()),
        message: Some(message.to_owned()),
        last_update_time: Some(write::now()),
        ..CertificateSigningRequestCondition::default()
    };
    approved.status.get_or_insert_default().conditions.get_or_insert_default().push(condition);
    let name = request.metadata.name.clone().unwrap_or_default();
    api.replace_subresource("approval", &name, &PostParams::default(), &approved).await.map(|_| ())
}

/// What is asked for, and by whom.
#[derive(Debug, Default)]
struct NodeRequest<'a> {
    signer: &'a str,
    user: &'a str,
    groups: &'a [String],
    common_name: &'a str,
    organizations: &'a [String],
    names: &'a [String],
    addresses: &'a [IpAddr],
}

/// Whether it may be given, and the words for the approval; none leaves it to an administrator. The signer's own rules hold
/// beside these.
fn judge(request: &NodeRequest<'_>, nodes: &[Arc<Node>], taken: &Taken) -> Option<&'static str> {
    let name = request.user.strip_prefix(NODE)?;
    if !request.groups.iter().any(|group| group == "system:nodes") || name.is_empty() {
        return None;
    }
    match request.signer {
        KUBELET_SERVING => {
            let node = nodes.iter().find(|node| node.metadata.name.as_deref() == Some(name))?;
            let others: Vec<&Arc<Node>> =
                nodes.iter().filter(|other| other.metadata.name.as_deref() != Some(name)).collect();
            // What another node tells as well, or is called, is nobody's: clients may know that one by it. A node's own name is
            // its own, whoever tells it.
            let is_own_name = |text: &str| {
                let is_told = || {
                    told(node).any(|known| known == text)
                        && text.parse::<IpAddr>().is_err()
                        && !others.iter().any(|other| is_called(other, text))
                };
                !is_reserved(text) && (text == name || is_told())
            };
            let is_own_address = |address: &IpAddr| {
                let same = |text: &str| text.parse::<IpAddr>().is_ok_and(|known| known == *address);
                told(node).any(same)
                    && !address.is_loopback()
                    && !taken.services.contains(address)
                    && !taken.servers.contains(address)
                    && !others.iter().any(|other| told(other).any(same))
            };
            (request.common_name == request.user
                && request.names.iter().all(|name| is_own_name(name))
                && request.addresses.iter().all(is_own_address))
            .then_some("Auto approving the serving certificate of a kubelet for its own name and addresses.")
        }
        CLIENT => {
            let is = |prefix: &str, group: &str| {
                request.common_name.strip_prefix(prefix) == Some(name) && request.organizations == [group]
            };
            let message = match () {
                () if is(PROXY, PROXIES) => "Auto approving the client certificate of a node's own proxy.",
                () if is(GATEWAY, GATEWAYS) => "Auto approving the client certificate of a node's own gateway.",
                () => return None,
            };
            (request.names.is_empty() && request.addresses.is_empty()).then_some(message)
        }
        _ => None,
    }
}

/// Names by which clients know API servers and Services. A node may call itself so, but is not believed: with a certificate of
/// the cluster's CA for such a name it could stand in for them.
fn is_reserved(name: &str) -> bool {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    let of_services = name.split('.').any(|label| label == "svc");
    name.contains('*') || of_services || ["localhost", "kubernetes", "kubernetes.default"].contains(&name.as_str())
}

fn is_called(node: &Node, text: &str) -> bool {
    let plain = |name: &str| name.trim_end_matches('.').to_ascii_lowercase();
    let text = plain(text);
    node.metadata.name.as_deref().is_some_and(|name| plain(name) == text) || told(node).any(|name| plain(name) == text)
}

/// The addresses and names that a node tells of itself.
fn told(node: &Node) -> impl Iterator<Item = &str> {
    let addresses = node.status.as_ref().and_then(|status| status.addresses.as_ref());
    addresses.into_iter().flatten().map(|address| address.address.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{NodeAddress, NodeStatus};

    fn node(name: &str, addresses: &[&str]) -> Arc<Node> {
        let mut node = Node::default();
        node.metadata.name = Some(name.into());
        let address = |text: &&str| NodeAddress { address: (*text).into(), type_: "InternalIP".into() };
        node.status =
            Some(NodeStatus { addresses: Some(addresses.iter().map(address).collect()), ..NodeStatus::default() });
        node.into()
    }

    fn taken() -> Taken {
        let services = Ranges::parse("service-cluster-ip-range", "10.96.0.0/16").unwrap();
        Taken { services, servers: vec![[192, 0, 2, 100].into()] }
    }

    #[test]
    fn nodes_get_what_is_their_own_and_nothing_else() {
        let nodes = [
            node(
                "a",
                &[
                    "192.0.2.1",
                    "a.example",
                    "127.0.0.1",
                    "kubernetes",
                    "kubernetes.default.svc",
                    "*.example",
                    "10.96.0.1",
                    "192.0.2.100",
                    "b",
                    "C.Example",
                    "2001:db8::2",
                ],
            ),
            node("kubernetes", &["192.0.2.3"]),
            node("b", &["192.0.2.2", "192.0.2.9", "2001:DB8:0::2"]),
            node("c", &["192.0.2.9", "c.example"]),
        ];
        let group = ["system:nodes".to_owned(), "system:authenticated".to_owned()];
        let serving = |user: &str, subject: &str, names: &[&str], addresses: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let addresses: Vec<IpAddr> = addresses.iter().map(|address| address.parse().unwrap()).collect();
            let request = NodeRequest {
                signer: KUBELET_SERVING,
                user,
                groups: &group,
                common_name: subject,
                organizations: &["system:nodes".to_owned()],
                names: &names,
                addresses: &addresses,
            };
            judge(&request, &nodes, &taken()).is_some()
        };
        let a = "system:node:a";
        assert!(serving(a, a, &["a"], &["192.0.2.1"]));
        assert!(serving(a, a, &["a", "a.example"], &[]));
        // Another node's telling takes nobody's name away.
        assert!(serving("system:node:b", "system:node:b", &["b"], &["192.0.2.2"]));
        for (user, subject, names, addresses, why) in [
            (a, "system:node:b", &["a"][..], &["192.0.2.1"][..], "another's name in the subject"),
            (a, a, &["b"], &[], "another's name, though the node tells it"),
            (a, a, &["C.Example"], &[], "a name that another tells, in other letters"),
            (a, a, &["192.0.2.1"], &[], "an address as a name"),
            (a, a, &["a"], &["192.0.2.100"], "an API server's address"),
            (a, a, &["a"], &["2001:db8::2"], "another's address, written in another way"),
            (a, a, &["kubernetes.default.svc"], &[], "a name of the API server"),
            (a, a, &["kubernetes"], &[], "the name by which nodes know API servers"),
            (a, a, &["*.example"], &[], "any name"),
            (a, a, &["a"], &["10.96.0.1"], "a Service's address"),
            ("system:node:kubernetes", "system:node:kubernetes", &["kubernetes"], &[], "a node of that name"),
            (a, a, &["a"], &["192.0.2.2"], "another's address"),
            (a, a, &["a"], &["127.0.0.1"], "loopback, though the node tells it"),
            ("system:node:c", "system:node:c", &["c"], &["192.0.2.9"], "an address that two nodes tell"),
            ("system:node:d", "system:node:d", &["d"], &[], "a node that is not there"),
            ("system:node:", "system:node:", &[], &[], "no name"),
            ("jane", a, &["a"], &["192.0.2.1"], "not a node"),
        ] {
            assert!(!serving(user, subject, names, addresses), "{why}");
        }
    }

    #[test]
    fn a_proxy_and_a_gateway_have_their_nodes_name() {
        let group = ["system:nodes".to_owned()];
        let (proxies, gateways) = ([PROXIES.to_owned()], [GATEWAYS.to_owned()]);
        let masters = [PROXIES.to_owned(), "system:masters".to_owned()];
        let request = |user, groups, common_name, organizations| NodeRequest {
            signer: CLIENT,
            user,
            groups,
            common_name,
            organizations,
            ..NodeRequest::default()
        };
        assert!(judge(&request("system:node:a", &group, "ferry:node-proxy:a", &proxies), &[], &taken()).is_some());
        let own = request("system:node:a", &group, "ferry:node-gateway:a", &gateways);
        assert!(judge(&own, &[], &taken()).is_some());
        for (wrong, why) in [
            (request("system:node:a", &group, "ferry:node-gateway:b", &gateways), "another's gateway"),
            (request("system:node:a", &group, "ferry:node-gateway:a", &proxies), "the group of proxies"),
            (request("system:node:a", &group, "ferry:node-proxy:a", &gateways), "the group of gateways"),
            (request("ferry:node-gateway:a", &gateways, "ferry:node-gateway:a", &gateways), "a gateway itself"),
            (request("system:node:a", &group, "ferry:node-proxy:b", &proxies), "another's"),
            (request("system:node:a", &group, "system:kube-controller-manager", &proxies), "somebody else"),
            (request("system:node:a", &group, "ferry:node-proxy:a", &masters), "more groups"),
            (request("system:node:a", &[], "ferry:node-proxy:a", &proxies), "a user who only has a node's name"),
            (request("ferry:node-proxy:a", &proxies, "ferry:node-proxy:a", &proxies), "a proxy itself"),
        ] {
            assert!(judge(&wrong, &[], &taken()).is_none(), "{why}");
        }
    }

    /// Several servers approve: the one that comes second must neither warn nor wait.
    #[test]
    fn another_approver_was_faster() {
        let refused = |code, reason: &str| {
            kube::Error::Api(Box::new(kube::core::Status {
                code,
                reason: reason.into(),
                ..kube::core::Status::default()
            }))
        };
        assert!(is_overtaken(&refused(409, "Conflict")));
        assert!(is_overtaken(&refused(404, "NotFound")));
        for (code, reason) in [(403, "Forbidden"), (503, "ServiceUnavailable"), (504, "Timeout")] {
            assert!(!is_overtaken(&refused(code, reason)), "{reason}");
        }
    }
}
