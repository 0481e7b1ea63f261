//! What random changes of a cluster leave in the kernel: the same by either way, and the same as the whole table written anew.

use std::time::{SystemTime, UNIX_EPOCH};

use ferry_nft::{Nft, Writer};
use ferry_testkit::network::Namespaces;
use serde_json::{Value, json};

use crate::family::Family;
use crate::plan_tests::{service, slice, state_of};
use crate::proxier::Proxier;

const MAPS: [&str; 9] = [
    "services",
    "node-ports",
    "no-endpoints",
    "no-endpoint-node-ports",
    "firewall",
    "endpoints-tcp",
    "endpoints-udp",
    "node-endpoints-tcp",
    "node-endpoints-udp",
];
const SETS: [&str; 2] = ["cluster-addresses", "hairpin"];

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) % end
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[usize::try_from(self.below(of.len() as u64)).unwrap_or_default()]
    }

    fn service(&mut self, number: u64) -> (Value, Value) {
        let kind = self.one(&["ClusterIP", "NodePort", "LoadBalancer"]);
        let protocol = self.one(&["TCP", "UDP"]);
        let mut port = json!({"port": 80 + self.below(2), "protocol": protocol});
        let mut spec = json!({"type": kind, "clusterIP": format!("10.96.0.{number}")});
        if kind != "ClusterIP" {
            port["nodePort"] = json!(30_000 + number);
            spec["externalTrafficPolicy"] = json!(self.one(&["Cluster", "Local"]));
        }
        if self.below(4) == 0 {
            spec["internalTrafficPolicy"] = json!("Local");
        }
        if self.below(4) == 0 {
            spec["sessionAffinity"] = json!("ClientIP");
        }
        if self.below(3) == 0 {
            // Some are wanted by several.
            spec["externalIPs"] = json!([format!("203.0.113.{}", self.below(3))]);
        }
        let mut status = Value::Null;
        if kind == "LoadBalancer" {
            status = json!({"loadBalancer": {"ingress": [{"ip": format!("192.0.2.{number}")}]}});
            spec["loadBalancerSourceRanges"] = json!(["198.51.100.0/24"]);
        }
        spec["ports"] = json!([port]);
        (spec, status)
    }

    fn endpoints(&mut self) -> Value {
        let count = self.below(6);
        let all = (0..count).map(|_| {
            let node = self.one(&["here", "there"]);
            json!({"addresses": [format!("10.244.{}.{}", self.below(2), 1 + self.below(20))], "nodeName": node})
        });
        all.collect()
    }

    fn change(&mut self, state: &mut Proxier) {
        for _ in 0..=self.below(4) {
            let number = 1 + self.below(12);
            let name = format!("s{number}");
            match self.below(5) {
                0 => {
                    let (spec, status) = self.service(number);
                    state.service(&service(&name, spec, status), false);
                }
                1 | 2 => {
                    let (spec, status) = self.service(number);
                    state.service(&service(&name, spec, status), true);
                }
                kind => {
                    let protocol = self.one(&["TCP", "UDP"]);
                    state.slice(&slice(&name, 8080, protocol, self.endpoints()), kind == 3);
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_lead_to_what_the_whole_table_is() {
    let Some(lab) = Namespaces::with_node("e") else { return };
    lab.add("straight", "straight");
    lab.add("anew", "anew");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |time| time.as_secs());
    let seed = std::env::var("FERRY_TEST_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(now);
    println!("FERRY_TEST_SEED={seed}");
    let mut random = Random(2 * seed + 1);
    let by_text = Nft::new(lab.command("node", "nft"));
    let writer = lab.within("straight", || Writer::open().expect("a socket"));
    let straight = Nft::with_writer(lab.command("straight", "nft"), writer);
    let anew = Nft::new(lab.command("anew", "nft"));
    let (mut state, mut elements_alone) = (state_of(Family::Ipv4, &[]), 0);
    let empty = state.resync();
    for nft in [&by_text, &straight] {
        nft.apply(&empty).await.expect("the empty table");
    }
    for step in 0..60 {
        random.change(&mut state);
        let transaction = state.transaction();
        let script = transaction.script();
        elements_alone += usize::from(!transaction.is_empty() && !script.contains("chain"));
        by_text.apply(&script).await.unwrap_or_else(|error| panic!("step {step}: {error}\n{script}"));
        straight.commit(&transaction).await.unwrap_or_else(|error| panic!("step {step}: {error}\n{script}"));
        let list = |place: &str| lab.inside(place, "nft list table ip t");
        assert_eq!(list("node"), list("straight"), "step {step}:\n{script}");
        if step % 10 == 9 {
            anew.apply(&state.resync()).await.expect("the whole table");
            let all = MAPS.iter().map(|name| ("map", name)).chain(SETS.iter().map(|name| ("set", name)));
            for (kind, name) in all {
                let list = |place: &str| lab.inside(place, &format!("nft list {kind} ip t {name}"));
                assert_eq!(list("straight"), list("anew"), "step {step}: {name}");
            }
            // From here on, all of them have the chains that the table has now.
            for nft in [&by_text, &straight] {
                nft.apply(&state.resync()).await.expect("the whole table");
            }
        }
    }
    assert!(elements_alone > 3, "{elements_alone} of the changes went straight to the kernel");
}
