//! Which Secrets and ConfigMaps are in use: what machines that may not read Secrets are handed, and no more of each than it is
//! used for.

use std::collections::BTreeMap;

use ferry_client::ObjectKey;

use super::Resolved;
use super::objects::{Objects, Referrer, namespace};
use crate::api::{GROUP, Listener};

/// What is referred to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Source {
    pub kind: &'static str,
    pub key: ObjectKey,
}

/// What of it is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// Its certificate and the key to that.
    pub pair: bool,
    /// Its users and their passwords.
    pub users: bool,
}

/// All that somebody refers to who may. Whether it is there is another question.
pub fn in_use(objects: &Objects, resolved: &Resolved) -> BTreeMap<Source, Parts> {
    let mut all = InUse { objects, found: BTreeMap::new(), left_out: Parts::default() };
    for state in &resolved.gateways.list {
        let Some(gateway) = objects.gateways.get(&state.key) else { continue };
        let own = Referrer { group: GROUP, kind: "Gateway", namespace: namespace(&gateway.metadata) };
        all.listeners(own, &gateway.spec.listeners);
        for set in state.frontend.sets.iter().filter(|set| set.refused.is_none()) {
            let from = Referrer { group: GROUP, kind: "ListenerSet", namespace: namespace(&set.set.metadata) };
            all.listeners(from, &set.set.spec.listeners);
        }
        let Some(tls) = &gateway.spec.tls else { continue };
        if let Some(one) = tls.backend.as_ref().and_then(|backend| backend.client_certificate_ref.as_ref()) {
            all.add(own, "Secret", one.namespace.as_deref(), &one.name).pair = true;
        }
        if let Some(frontend) = &tls.frontend {
            let rules = frontend.per_port.iter().map(|port| &port.tls).chain(std::iter::once(&frontend.default));
            for one in rules.filter_map(|tls| tls.validation.as_ref()).flat_map(|rules| &rules.ca_certificate_refs) {
                all.add(own, "ConfigMap", one.namespace.as_deref(), &one.name);
            }
        }
    }
    for policy in objects.policies.iter() {
        let own = Referrer { group: GROUP, kind: "BackendTLSPolicy", namespace: namespace(&policy.metadata) };
        for one in &policy.spec.validation.ca_certificate_refs {
            all.add(own, "ConfigMap", one.namespace.as_deref(), &one.name);
        }
    }
    // Ingresses refer to Secrets of their own namespaces alone.
    for (key, used) in resolved.ingress.secrets() {
        let parts = all.found.entry(Source { kind: "Secret", key: key.clone() }).or_default();
        (parts.pair, parts.users) = (parts.pair | used.pair, parts.users | used.users);
    }
    all.found
}

struct InUse<'a> {
    objects: &'a Objects,
    found: BTreeMap<Source, Parts>,
    left_out: Parts,
}

impl InUse<'_> {
    fn listeners(&mut self, from: Referrer<'_>, listeners: &[Listener]) {
        let named = listeners.iter().filter_map(|one| one.tls.as_ref()).flat_map(|tls| &tls.certificate_refs);
        for one in named.filter(|one| one.group.is_empty() && one.kind == "Secret") {
            self.add(from, "Secret", one.namespace.as_deref(), &one.name).pair = true;
        }
    }

    /// Something that was left out is nobody's: what is noted of it is lost.
    fn add(&mut self, from: Referrer<'_>, kind: &'static str, namespace: Option<&str>, name: &str) -> &mut Parts {
        let key = ObjectKey::new(namespace.unwrap_or(from.namespace), name);
        if !self.objects.permits(from, "", kind, &key) {
            self.left_out = Parts::default();
            return &mut self.left_out;
        }
        self.found.entry(Source { kind, key }).or_default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::INGRESS_CONTROLLER;
    use crate::testing::{gateway, objects, read, resolved, settings};

    /// A node asks for nothing by name: what is not in use here, or is not permitted, does not get to it.
    #[test]
    fn what_is_in_use_and_permitted_is_handed_over_and_nothing_else() {
        let mut objects = objects();
        let tls = |names: &[(&str, &str)]| {
            let named = names.iter().map(|(namespace, name)| json!({ "namespace": namespace, "name": name }));
            json!({ "certificateRefs": named.collect::<Vec<_>>() })
        };
        let names = [("n", "own"), ("granted", "b"), ("granted", "c"), ("refused", "d")];
        let mut made = gateway("g", json!([{ "name": "a", "port": 443, "protocol": "HTTPS", "tls": tls(&names) }]));
        made["spec"]["tls"] = json!({
            "backend": { "clientCertificateRef": { "name": "client" } },
            "frontend": { "default": { "validation": { "caCertificateRefs": [
                { "group": "", "kind": "ConfigMap", "name": "ca" },
                { "group": "", "kind": "ConfigMap", "name": "ca", "namespace": "refused" },
            ] } } },
        });
        objects.gateways.push(read(made));
        let mut foreign = gateway(
            "foreign",
            json!([{ "name": "a", "port": 443, "protocol": "HTTPS", "tls": tls(&[("n", "foreign")]) }]),
        );
        foreign["spec"]["gatewayClassName"] = json!("another");
        objects.gateways.push(read(foreign));
        let grant = json!({
            "metadata": { "namespace": "granted", "name": "g" },
            "spec": { "from": [{ "group": GROUP, "kind": "Gateway", "namespace": "n" }], "to": [{ "group": "", "kind": "Secret", "name": "b" }] },
        });
        objects.set_grant(&ObjectKey::new("granted", "g"), Some(read(grant)));
        for (name, class) in [("ours", "ferry"), ("others", "another")] {
            objects.ingresses.push(read(json!({
                "metadata": {
                    "name": name, "namespace": "n",
                    "annotations": {
                        "nginx.ingress.kubernetes.io/auth-type": "basic",
                        "nginx.ingress.kubernetes.io/auth-secret": format!("{name}-users"),
                    },
                },
                "spec": { "ingressClassName": class, "tls": [{ "hosts": ["a.com"], "secretName": format!("{name}-tls") }] },
            })));
        }
        let class = json!({ "metadata": { "name": "ferry" }, "spec": { "controller": INGRESS_CONTROLLER } });
        objects.ingress_classes.push(read(class));
        let found = in_use(&objects, &resolved(&objects, &settings()));
        let shown: Vec<_> = found
            .iter()
            .map(|(source, parts)| format!("{} {} {} {}", source.kind, source.key, parts.pair, parts.users))
            .collect();
        assert_eq!(
            shown,
            [
                "ConfigMap n/ca false false",
                "Secret granted/b true false",
                "Secret n/client true false",
                "Secret n/ours-tls true false",
                "Secret n/ours-users false true",
                "Secret n/own true false",
            ]
        );
    }
}
