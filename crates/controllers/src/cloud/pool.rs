//! LoadBalancer Services with an address of their own, from a pool. Nodes announce it: see `ferry_network::announce`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{LoadBalancerIngress, Node, Service};
use kube::ResourceExt;
use parking_lot::Mutex;

use super::{AddressPool, Ensured, Provider};

#[derive(Debug)]
pub struct Pool {
    pool: AddressPool,
    /// Addresses by the uid of their Service: whoever asks next may be faster than the word of what the one before got.
    given: Mutex<BTreeMap<String, BTreeSet<IpAddr>>>,
}

impl Pool {
    pub fn new(pool: AddressPool) -> Self {
        Self { pool, given: Mutex::default() }
    }
}

/// Those that its status tells.
fn told(service: &Service) -> impl Iterator<Item = IpAddr> + '_ {
    let balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let ingress = balancer.and_then(|balancer| balancer.ingress.as_ref()).into_iter().flatten();
    ingress.filter_map(|one| one.ip.as_ref()?.parse().ok())
}

impl Provider for Pool {
    fn name(&self) -> &str {
        "pool"
    }

    fn ensure_load_balancer(
        &self,
        service: &Service,
        _nodes: &[Arc<Node>],
        services: &[Arc<Service>],
    ) -> Result<Ensured, String> {
        let uid = service.uid().unwrap_or_default();
        let mut given = self.given.lock();
        let others = services.iter().filter(|other| other.uid().unwrap_or_default() != uid);
        let mut taken: BTreeSet<IpAddr> = others.flat_map(|other| told(other)).collect();
        taken.extend(given.iter().filter(|(other, _)| **other != uid).flat_map(|(_, addresses)| addresses));
        let had: BTreeSet<IpAddr> = given.get(&uid).cloned().unwrap_or_else(|| told(service).collect());
        let spec = service.spec.clone().unwrap_or_default();
        let wanted: Option<IpAddr> = spec.load_balancer_ip.as_deref().and_then(|text| text.parse().ok());
        let families = spec.ip_families.filter(|families| !families.is_empty()).unwrap_or_else(|| vec!["IPv4".into()]);
        let (mut found, mut reasons) = (BTreeSet::new(), Vec::new());
        for family in &families {
            let is_ipv4 = family == "IPv4";
            let is_free = |address: &IpAddr| {
                address.is_ipv4() == is_ipv4 && self.pool.contains(*address) && !taken.contains(address)
            };
            let chosen = match wanted.filter(|address| address.is_ipv4() == is_ipv4) {
                Some(address) if is_free(&address) => Some(address),
                Some(address) => {
                    reasons.push(format!("{address} is another Service's, or not in the pool {}", self.pool));
                    continue;
                }
                None => had.iter().copied().find(is_free),
            };
            match chosen.or_else(|| self.pool.first_free(is_ipv4, |address| taken.contains(&address))) {
                Some(address) => {
                    found.insert(address);
                }
                None if self.pool.has_family(is_ipv4) => {
                    reasons.push(format!("every {family} address of the pool {} is in use", self.pool));
                }
                None => reasons.push(format!("the pool {} has no {family} addresses", self.pool)),
            }
        }
        given.insert(uid, found.clone());
        let ingress: Vec<_> = found
            .into_iter()
            .map(|ip| LoadBalancerIngress {
                ip: Some(ip.to_string()),
                ip_mode: Some("VIP".into()),
                ..LoadBalancerIngress::default()
            })
            .collect();
        Ok(match reasons.is_empty() {
            true => Ensured::Ready(ingress),
            false => Ensured::Limited { ingress, reason: "AddressNotAvailable", why: reasons.join("; ") },
        })
    }

    fn delete_load_balancer(&self, service: &Service) -> Result<(), String> {
        self.given.lock().remove(&service.uid().unwrap_or_default());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn service(name: &str, spec: Value, addresses: &[&str]) -> Arc<Service> {
        let ingress: Vec<Value> = addresses.iter().map(|ip| json!({"ip": ip})).collect();
        let object = json!({"metadata": {"name": name, "namespace": "a", "uid": name}, "spec": spec,
            "status": {"loadBalancer": {"ingress": ingress}}});
        Arc::new(serde_json::from_value(object).expect("a service"))
    }

    fn pool(text: &str) -> Pool {
        Pool::new(text.parse().expect("a pool"))
    }

    fn ensured(pool: &Pool, service: &Service, all: &[Arc<Service>]) -> (Vec<String>, String) {
        let (ingress, why) = match pool.ensure_load_balancer(service, &[], all) {
            Ok(Ensured::Ready(ingress)) => (ingress, String::new()),
            Ok(Ensured::Limited { ingress, why, .. }) => (ingress, why),
            other => panic!("{other:?}"),
        };
        (ingress.into_iter().filter_map(|one| one.ip).collect(), why)
    }

    #[test]
    fn each_service_has_an_address_of_its_own() {
        let pool = pool("192.0.2.1-192.0.2.2,fd00::1-fd00::9");
        let four = json!({"ipFamilies": ["IPv4"]});
        let (one, two, three) =
            (service("one", four.clone(), &[]), service("two", four.clone(), &[]), service("three", four, &[]));
        let all = [one.clone(), two.clone(), three.clone()];
        assert_eq!(ensured(&pool, &one, &all).0, ["192.0.2.1"]);
        assert_eq!(ensured(&pool, &two, &all).0, ["192.0.2.2"], "before anybody heard of the first");
        assert_eq!(ensured(&pool, &one, &all).0, ["192.0.2.1"], "asked again");
        let (none, why) = ensured(&pool, &three, &all);
        assert!(none.is_empty() && why.contains("every IPv4 address of the pool"), "{why}");
        pool.delete_load_balancer(&one).expect("given back");
        assert_eq!(ensured(&pool, &three, &[two, three.clone()]).0, ["192.0.2.1"]);
        let both = service("both", json!({"ipFamilies": ["IPv6", "IPv4"]}), &[]);
        let (found, why) = ensured(&pool, &both, &[]);
        assert!(found == ["fd00::1"] && why.contains("IPv4"), "{found:?} {why}");
    }

    #[test]
    fn addresses_are_kept_and_asked_for() {
        let pool = pool("192.0.2.1-192.0.2.9");
        let four = json!({"ipFamilies": ["IPv4"]});
        let kept = service("kept", four.clone(), &["192.0.2.5"]);
        assert_eq!(ensured(&pool, &kept, std::slice::from_ref(&kept)).0, ["192.0.2.5"], "of the controller before");
        let moved = service("moved", four, &["198.51.100.1"]);
        assert_eq!(ensured(&pool, &moved, &[kept.clone(), moved.clone()]).0, ["192.0.2.1"], "the pool was another");
        let asks = |address: &str| service("asks", json!({"ipFamilies": ["IPv4"], "loadBalancerIP": address}), &[]);
        assert_eq!(ensured(&pool, &asks("192.0.2.9"), std::slice::from_ref(&kept)).0, ["192.0.2.9"]);
        for address in ["192.0.2.5", "203.0.113.1"] {
            let (none, why) = ensured(&pool, &asks(address), std::slice::from_ref(&kept));
            assert!(none.is_empty() && why.contains(address), "{why}");
        }
    }
}
