//! Several servers on one etcd: they start together, know of each other, and hand nothing out twice.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Endpoints, ResourceQuota, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Client;
use kube::api::{Api, ListParams, PostParams};
use serde_json::json;

use crate::alone::{Apiserver, Etcd, runtime};
use crate::cluster::PATIENCE;

const SERVERS: usize = 3;
const SERVICES: usize = 20;
const QUOTA: usize = 10;

fn advertised(number: usize) -> String {
    format!("192.0.2.{}", number + 1)
}

fn start(etcd: &Etcd, folder: &tempfile::TempDir, number: usize) -> Apiserver {
    let (url, address) = (etcd.url(), advertised(number));
    let flags = ["--etcd-servers", &url, "--advertise-address", &address];
    Apiserver::start(&folder.path().join(number.to_string()), &flags)
}

/// The addresses behind the `kubernetes` Service, as both kinds tell them.
async fn listed(client: &Client) -> [BTreeSet<String>; 2] {
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), "default");
    let endpoints: Api<Endpoints> = Api::namespaced(client.clone(), "default");
    let slice = slices.get("kubernetes").await.unwrap();
    let subsets = endpoints.get("kubernetes").await.unwrap().subsets.unwrap_or_default();
    let addresses = subsets.into_iter().flat_map(|subset| subset.addresses.unwrap_or_default());
    [
        slice.endpoints.into_iter().flatten().flat_map(|endpoint| endpoint.addresses).collect(),
        addresses.map(|address| address.ip).collect(),
    ]
}

async fn until_listed(client: &Client, servers: &[usize]) {
    let wanted: BTreeSet<String> = servers.iter().map(|number| advertised(*number)).collect();
    let begin = std::time::Instant::now();
    loop {
        let there = listed(client).await;
        if there.iter().all(|there| *there == wanted) {
            println!("    the servers are {wanted:?} after {:.1} s", begin.elapsed().as_secs_f64());
            return;
        }
        assert!(begin.elapsed() < PATIENCE, "the kubernetes Service leads to {there:?}, not to {wanted:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Services through all servers at once: no address and no node port is given twice.
async fn services(clients: &[Client]) {
    let made = (0..SERVICES * SERVERS).map(|number| {
        let api: Api<Service> = Api::namespaced(clients[number % SERVERS].clone(), "default");
        async move {
            let service = serde_json::from_value(json!({
                "metadata": { "name": format!("s{number}") },
                "spec": { "type": "NodePort", "ports": [{ "port": 80 }] },
            }));
            api.create(&PostParams::default(), &service.unwrap()).await.expect("a Service")
        }
    });
    let made = futures::future::join_all(made).await;
    let specs: Vec<_> = made.iter().filter_map(|service| service.spec.as_ref()).collect();
    let addresses: BTreeSet<_> = specs.iter().filter_map(|spec| spec.cluster_ip.clone()).collect();
    let ports: BTreeSet<_> = specs.iter().filter_map(|spec| spec.ports.as_ref()?[0].node_port).collect();
    assert_eq!((addresses.len(), ports.len()), (made.len(), made.len()), "{addresses:?} {ports:?}");
}

/// More objects than a quota allows, through all servers at once.
async fn quota(clients: &[Client]) {
    let quotas: Api<ResourceQuota> = Api::namespaced(clients[0].clone(), "default");
    let before =
        Api::<ConfigMap>::namespaced(clients[0].clone(), "default").list(&ListParams::default()).await.unwrap();
    let most = before.items.len() + QUOTA;
    let quota = json!({
        "metadata": { "name": "few" }, "spec": { "hard": { "count/configmaps": most.to_string() } },
    });
    quotas.create(&PostParams::default(), &serde_json::from_value(quota).unwrap()).await.unwrap();
    // No controller counts what was there: the usage is told as it would.
    let mut quota = quotas.get("few").await.unwrap();
    let amount = |number: usize| {
        std::collections::BTreeMap::from([(
            "count/configmaps".to_owned(),
            k8s_openapi::apimachinery::pkg::api::resource::Quantity(number.to_string()),
        )])
    };
    quota.status = Some(k8s_openapi::api::core::v1::ResourceQuotaStatus {
        hard: Some(amount(most)),
        used: Some(amount(before.items.len())),
    });
    quotas.replace_status("few", &PostParams::default(), &quota).await.unwrap();
    for client in clients {
        // Each server has to know of it before it can hold to it.
        while quotas_of(client).await == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    let made = (0..QUOTA * 4).map(|number| {
        let client = clients[number % SERVERS].clone();
        async move { crate::alone::create(&client, &format!("quota-{number}")).await.is_ok() }
    });
    let made = futures::future::join_all(made).await.into_iter().filter(|made| *made).count();
    assert_eq!(made, QUOTA);
    quotas.delete("few", &Default::default()).await.unwrap();
}

async fn quotas_of(client: &Client) -> usize {
    let api: Api<ResourceQuota> = Api::namespaced(client.clone(), "default");
    let there = api.list(&ListParams::default()).await.unwrap();
    there.items.iter().filter(|quota| quota.status.as_ref().is_some_and(|status| status.hard.is_some())).count()
}

pub fn three_servers_start_together_on_an_empty_etcd() {
    let etcd = Etcd::start("http", Vec::new());
    let folder = tempfile::tempdir().unwrap();
    runtime().block_on(async {
        let mut servers: Vec<Apiserver> = (0..SERVERS).map(|number| start(&etcd, &folder, number)).collect();
        let mut clients = Vec::new();
        for server in &mut servers {
            clients.push(server.client().await);
        }
        until_listed(&clients[0], &[0, 1, 2]).await;
        services(&clients).await;
        quota(&clients).await;

        // Killed, it leaves when its lease ends; stopped, it says so.
        servers.pop().unwrap().end();
        until_listed(&clients[0], &[0, 1]).await;
        servers.pop().unwrap().stop();
        until_listed(&clients[0], &[0]).await;
        // The last one stays: nodes that come back look where it was.
        servers.pop().unwrap().stop();
        let mut back = start(&etcd, &folder, 2);
        let client = back.client().await;
        until_listed(&client, &[2]).await;
    });
}
