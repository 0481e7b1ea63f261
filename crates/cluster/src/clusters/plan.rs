//! What a cluster consists of, as it is kept on disk: everything else follows from it, so that a reboot loses nothing.

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use ferry_server::pki::write_private;
use serde::{Deserialize, Serialize};

use super::file::PortMapping;
use crate::folders::read_if_there;

pub const API_PORT: u16 = 6443;
const FILE: &str = "cluster.json";
/// A node's address is made of one byte.
const MOST_MACHINES: usize = 200;
const MOST_SERVERS: usize = 7;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Role {
    Server,
    Node,
}

/// One node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Machine {
    pub role: Role,
    /// The Node's name.
    pub name: String,
    pub labels: Vec<String>,
    pub taints: Vec<String>,
    pub port_mappings: Vec<PortMapping>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Plan {
    pub name: String,
    /// Which of this machine's clusters it is: bridge, links, range and control groups are named after it.
    pub number: u8,
    pub machines: Vec<Machine>,
    pub registry_mirrors: BTreeMap<String, String>,
    pub pod_network: Option<String>,
    pub cluster_cidr: Option<String>,
    pub service_cidr: Option<String>,
    /// The file that the cluster's context was put into.
    pub kubeconfig: PathBuf,
}

impl Plan {
    pub fn check_name(name: &str) -> Result<()> {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let fits = name.len() <= 32 && name.bytes().all(|byte| plain(byte) || byte == b'-');
        let ends = name.bytes().next().is_some_and(plain) && name.bytes().last().is_some_and(plain);
        ensure!(
            fits && ends,
            "{name:?} is not a valid cluster name: at most 32 lower-case letters, digits and '-', which must not be first or last"
        );
        Ok(())
    }

    pub fn servers(&self) -> usize {
        self.machines.iter().filter(|machine| machine.role == Role::Server).count()
    }

    pub fn check(&self) -> Result<()> {
        let servers = self.servers();
        ensure!(servers > 0, "a cluster needs a server");
        ensure!(
            servers <= MOST_SERVERS,
            "{servers} servers are more than the {MOST_SERVERS} that make sense: each write waits for most of them"
        );
        ensure!(
            self.machines.len() <= MOST_MACHINES,
            "{} nodes are more than the {MOST_MACHINES} that a cluster on one machine can have",
            self.machines.len()
        );
        let mut taken = BTreeMap::new();
        for machine in &self.machines {
            for mapping in &machine.port_mappings {
                if let Some(other) = taken.insert((mapping.host_port, mapping.protocol), &machine.name) {
                    anyhow::bail!(
                        "the host's port {} is mapped twice, to {other} and {}",
                        mapping.host_port,
                        machine.name
                    );
                }
            }
        }
        Ok(())
    }

    pub fn bridge(&self) -> String {
        format!("ferry-c{}", self.number)
    }

    /// The host's end of a node's link.
    pub fn link(&self, index: usize) -> String {
        format!("fc{}-{index}", self.number)
    }

    pub fn control_group(&self, index: usize) -> String {
        format!("/ferry-c{}-{index}", self.number)
    }

    pub fn table(&self) -> String {
        format!("ferry-c{}", self.number)
    }

    pub fn range(&self) -> String {
        range(self.number)
    }

    /// The host's address on the bridge.
    pub fn gateway(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 213, self.number, 1)
    }

    /// The hardware address of the bridge.
    pub fn hardware_address(&self) -> String {
        hardware_address(self.gateway())
    }

    /// The hardware address of a node, the same each time it starts: the others go on with the one they know.
    pub fn node_hardware_address(&self, index: usize) -> String {
        hardware_address(self.address(index))
    }

    pub fn address(&self, index: usize) -> Ipv4Addr {
        Ipv4Addr::new(10, 213, self.number, u8::try_from(index + 2).unwrap_or(u8::MAX))
    }

    /// Whether pods have addresses of IPv6, so that nodes must have some, too.
    pub fn has_ipv6(&self) -> bool {
        self.cluster_cidr.as_ref().is_some_and(|ranges| ranges.contains(':'))
    }

    /// Of IPv6, where there are such.
    pub fn ipv6_range(&self) -> String {
        format!("fd00:213:{:x}::/64", self.number)
    }

    pub fn ipv6_gateway(&self) -> Ipv6Addr {
        Ipv6Addr::new(0xfd00, 0x213, self.number.into(), 0, 0, 0, 0, 1)
    }

    pub fn ipv6_address(&self, index: usize) -> Ipv6Addr {
        let last = u16::try_from(index + 2).unwrap_or(u16::MAX);
        Ipv6Addr::new(0xfd00, 0x213, self.number.into(), 0, 0, 0, 0, last)
    }

    /// Where the host and the nodes reach the API server: by an address of the family that nodes are known by.
    pub fn server(&self) -> String {
        let first = self.cluster_cidr.as_deref().and_then(|ranges| ranges.split(',').next());
        match first.is_some_and(|range| range.contains(':')) {
            true => format!("[{}]:{API_PORT}", self.ipv6_address(0)),
            false => format!("{}:{API_PORT}", self.address(0)),
        }
    }

    pub fn context(&self) -> String {
        format!("ferry-{}", self.name)
    }

    /// What an image's registry is asked by first, as a node reaches it, and the ports of the host's loopback that are led
    /// to for that.
    pub fn mirrors(&self) -> (Vec<String>, Vec<u16>) {
        let (mut flags, mut ports) = (Vec::new(), Vec::new());
        for (registry, url) in &self.registry_mirrors {
            let local = ["http://127.0.0.1", "http://localhost"].iter().find_map(|prefix| url.strip_prefix(prefix));
            match local.map(|rest| rest.strip_prefix(':').unwrap_or("80").trim_end_matches('/').parse::<u16>()) {
                Some(Ok(port)) => {
                    flags.push(format!("{registry}=http://{}:{port}", self.gateway()));
                    if !ports.contains(&port) {
                        ports.push(port);
                    }
                }
                _ => flags.push(format!("{registry}={url}")),
            }
        }
        (flags, ports)
    }

    /// The flags of the node's process.
    pub fn flags(&self, index: usize, data_dir: &Path) -> Vec<String> {
        let machine = &self.machines[index];
        let mut flags = vec![
            format!("--data-dir={}", data_dir.display()),
            format!("--run-dir={}", super::init::RUN_DIR),
            format!("--node-name={}", machine.name),
            format!("--cgroup-root={}", self.control_group(index)),
            "--container-runtime-endpoint=embedded".to_owned(),
        ];
        flags.extend(self.mirrors().0.into_iter().map(|mirror| format!("--registry-mirror={mirror}")));
        flags.extend(machine.labels.iter().map(|label| format!("--node-label={label}")));
        flags.extend(machine.taints.iter().map(|taint| format!("--node-taint={taint}")));
        if self.has_ipv6() {
            flags.push(format!("--node-ip={},{}", self.address(index), self.ipv6_address(index)));
        } else if machine.role == Role::Server && self.servers() > 1 {
            // Known to the others by it.
            flags.push(format!("--node-ip={}", self.address(index)));
        }
        // The other servers have the rest from the first.
        if index == 0 {
            flags.extend((self.servers() > 1).then(|| "--cluster-init".to_owned()));
            let given = [
                ("pod-network", &self.pod_network),
                ("cluster-cidr", &self.cluster_cidr),
                ("service-cluster-ip-range", &self.service_cidr),
            ];
            flags.extend(given.into_iter().filter_map(|(flag, value)| Some(format!("--{flag}={}", value.as_ref()?))));
        }
        flags
    }
}

/// Locally administered, and made of the address on the link.
fn hardware_address(address: Ipv4Addr) -> String {
    let [a, b, c, d] = address.octets();
    format!("0a:58:{a:02x}:{b:02x}:{c:02x}:{d:02x}")
}

pub fn range(number: u8) -> String {
    format!("10.213.{number}.0/24")
}

/// Where the clusters of this machine are.
#[derive(Clone, Debug)]
pub struct Home(pub PathBuf);

impl Home {
    pub fn folder(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn write(&self, plan: &Plan) -> Result<()> {
        write_private(&self.folder(&plan.name).join(FILE), &format!("{:#}\n", serde_json::to_value(plan)?))
    }

    pub fn read(&self, name: &str) -> Result<Option<Plan>> {
        Plan::check_name(name)?;
        let path = self.folder(name).join(FILE);
        let Some(text) = read_if_there(&path)? else { return Ok(None) };
        let plan: Plan = serde_json::from_slice(&text).with_context(|| format!("{} is damaged", path.display()))?;
        Ok(Some(plan))
    }

    pub fn find(&self, name: &str) -> Result<Plan> {
        self.read(name)?.with_context(|| {
            format!("there is no cluster called {name}; `ferry cluster list` shows those of this machine")
        })
    }

    pub fn all(&self) -> Result<Vec<Plan>> {
        let entries = match fs::read_dir(&self.0) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", self.0.display())),
        };
        let mut plans = Vec::new();
        for entry in entries {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if Plan::check_name(&name).is_ok() {
                plans.extend(self.read(&name)?);
            }
        }
        plans.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(plans)
    }

    /// Held by a node's first process, with its number on the host.
    pub fn lock(&self, plan: &Plan, index: usize) -> PathBuf {
        self.folder(&plan.name).join(format!("{}.lock", plan.machines[index].name))
    }

    pub fn data_dir(&self, plan: &Plan, index: usize) -> PathBuf {
        self.folder(&plan.name).join(&plan.machines[index].name)
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn plan(nodes: usize) -> Plan {
        let machine = |role, name: String| Machine {
            role,
            name,
            labels: Vec::new(),
            taints: Vec::new(),
            port_mappings: Vec::new(),
        };
        let mut machines = vec![machine(Role::Server, "dev-server-0".into())];
        machines.extend((0..nodes).map(|node| machine(Role::Node, format!("dev-node-{node}"))));
        Plan {
            name: "dev".into(),
            number: 3,
            machines,
            registry_mirrors: BTreeMap::new(),
            pod_network: None,
            cluster_cidr: None,
            service_cidr: None,
            kubeconfig: "/root/.kube/config".into(),
        }
    }

    #[test]
    fn plans_are_kept_and_found_again() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home(folder.path().join("clusters"));
        assert!(home.all().unwrap().is_empty());
        let plan = plan(2);
        fs::create_dir_all(home.folder("dev")).unwrap();
        home.write(&plan).unwrap();
        assert_eq!(home.all().unwrap(), std::slice::from_ref(&plan));
        assert_eq!(home.find("dev").unwrap(), plan);
        assert!(home.find("other").unwrap_err().to_string().contains("no cluster called other"));
        for bad in ["", "..", "a/b", "A", "-a", "a-", &"a".repeat(33)] {
            assert!(home.find(bad).is_err(), "{bad:?}");
        }
        assert_eq!(
            (plan.address(0).to_string(), plan.address(2).to_string()),
            ("10.213.3.2".into(), "10.213.3.4".into())
        );
        assert_eq!(
            [plan.hardware_address(), plan.node_hardware_address(0), plan.node_hardware_address(2)],
            ["0a:58:0a:d5:03:01", "0a:58:0a:d5:03:02", "0a:58:0a:d5:03:04"]
        );
        assert!(plan.link(199).len() <= 15 && plan.bridge().len() <= 15);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let mut many = plan(7);
        let single = many.flags(0, Path::new("/data")).join(" ");
        assert!(!single.contains("--cluster-init") && !single.contains("--node-ip"), "{single}");
        many.machines.iter_mut().for_each(|machine| machine.role = Role::Server);
        assert!(many.check().unwrap_err().to_string().contains("8 servers are more than the 7"));
        many.machines.truncate(3);
        many.check().unwrap();
        let flags = [0, 1].map(|index| many.flags(index, Path::new("/data")).join(" "));
        assert!(flags[0].contains("--cluster-init") && flags[0].contains("--node-ip=10.213.3.2"), "{flags:?}");
        assert!(!flags[1].contains("--cluster-init") && flags[1].contains("--node-ip=10.213.3.3"), "{flags:?}");
        assert!(plan(200).check().unwrap_err().to_string().contains("200"));
        plan(199).check().unwrap();
        let mut twice = plan(1);
        let mapping = PortMapping { host_port: 80, port: 30080, ..PortMapping::default() };
        twice.machines[0].port_mappings = vec![mapping.clone()];
        twice.machines[1].port_mappings = vec![mapping];
        assert!(twice.check().unwrap_err().to_string().contains("mapped twice"));
    }

    #[test]
    fn a_mirror_on_the_hosts_loopback_is_reached_by_the_bridge() {
        let mut plan = plan(0);
        plan.registry_mirrors = [
            ("docker.io".to_owned(), "http://127.0.0.1:5000".to_owned()),
            ("ghcr.io".to_owned(), "http://localhost:5000/".to_owned()),
            ("quay.io".to_owned(), "https://mirror.example".to_owned()),
        ]
        .into();
        let (flags, ports) = plan.mirrors();
        assert_eq!(
            flags,
            ["docker.io=http://10.213.3.1:5000", "ghcr.io=http://10.213.3.1:5000", "quay.io=https://mirror.example"]
        );
        assert_eq!(ports, [5000]);
    }
}
