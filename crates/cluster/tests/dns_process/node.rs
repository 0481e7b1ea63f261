//! What plays the node's process: its informers are filled by its arguments.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};

use ferry_client::Informer;
use ferry_cluster::node::dns_process::{self, Arguments};
use ferry_tasks::Tasks;
use k8s_openapi::api::core::v1::{Namespace, Service, ServiceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::Bed;

const ROLE: &str = "node";
const READY: &str = "ready";
/// Instead of an address.
pub const ENDLESS: &str = "endless";

pub struct Node(Child);

impl Node {
    /// Returns once it has found or started DNS.
    pub fn start(bed: &Bed, services: &[&str], zone: &str) -> Self {
        Self::start_at(bed, &bed.address.to_string(), services, zone)
    }

    /// At several addresses.
    pub fn start_at(bed: &Bed, addresses: &str, services: &[&str], zone: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .arg(ROLE)
            .args([bed.data_dir(), bed.run_dir()])
            .args([addresses, zone])
            .args(services)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let said = BufReader::new(child.stdout.take().expect("its output")).lines().next();
        assert_eq!(said.expect("a line").expect("read"), READY);
        Self(child)
    }

    pub fn kill(mut self) {
        self.0.kill().expect("killed");
        self.0.wait().expect("waited");
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn played(mut arguments: impl Iterator<Item = String>) -> Option<ExitCode> {
    if arguments.nth(1)? != ROLE {
        return None;
    }
    let mut next = || arguments.next().expect("an argument");
    let (data_dir, run_dir): (PathBuf, PathBuf) = (next().into(), next().into());
    let (listen, zone) = (next().split(',').map(|text| text.parse().expect("an address")).collect(), next());
    let dns = ferry_dns::Config {
        listen,
        corefile: Some(format!(".:53 {{\nkubernetes {zone}\n}}\n")),
        zone,
        upstreams: ferry_dns::Upstreams::These(Vec::new()),
        service_addresses: Vec::new(),
    };
    let services: Informer<Service> = Informer::detached();
    for text in arguments {
        let (name, address) = text.split_once('=').expect("a name and an address");
        let metadata = meta(name, Some("default"));
        // More than a DNS process takes in.
        let address = if address == ENDLESS { "x".repeat(17 << 20) } else { address.to_owned() };
        let spec = ServiceSpec { cluster_ip: Some(address), ..ServiceSpec::default() };
        services.apply(Service { metadata, spec: Some(spec), ..Service::default() });
    }
    let (slices, namespaces) = (Informer::detached(), Informer::detached());
    namespaces.apply(Namespace { metadata: meta("default", None), ..Namespace::default() });
    // Without any it never knows them all.
    if !services.is_empty() {
        services.mark_synced();
    }
    slices.mark_synced();
    namespaces.mark_synced();
    let feeder = ferry_dns::Feeder::of(services, slices, namespaces);
    tokio::runtime::Runtime::new().expect("a runtime").block_on(async {
        let tasks = Tasks::new("node");
        dns_process::start(Arguments { dns, data_dir, run_dir }, feeder, &tasks).await.expect("DNS");
        println!("{READY}");
        std::future::pending::<()>().await;
    });
    Some(ExitCode::SUCCESS)
}

fn meta(name: &str, namespace: Option<&str>) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), namespace: namespace.map(str::to_owned), ..ObjectMeta::default() }
}
