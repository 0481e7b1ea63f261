//! From an address and a token to a machine that knows its cluster, each step told as it is done.
//!
//! Every step can be repeated: a join that was cut off goes on where it was when the same command is given again.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ferry_client::Api;
use k8s_openapi::api::core::v1::Node;
use kube::Config;

use crate::config::NodeConfig;
use crate::fleet::certificates::{Certificates, Wanted};
use crate::fleet::discover::{self, Cluster};
use crate::fleet::membership::{self, Membership};
use crate::fleet::settings::Settings;
use crate::fleet::token::JoinToken;
use crate::kubeconfig::SERVER_NAME;
use crate::node::tools;
use crate::options::JoinOptions;
use crate::quorum::handover::Receiver;
use crate::quorum::join::Machine;
use crate::quorum::token::ServerToken;
use crate::{folders, kubeconfig, process, quorum};

const PATIENCE: Duration = Duration::from_secs(90);
/// Several may join at once, one after the other.
const SERVER_PATIENCE: Duration = Duration::from_secs(300);

/// Tells each step when it is done, and how long it took until then.
pub struct Hops {
    begin: Instant,
}

impl Hops {
    #[expect(clippy::new_without_default, reason = "the time begins now")]
    pub fn new() -> Self {
        Self { begin: Instant::now() }
    }

    pub fn done(&self, what: &str) {
        println!("{:>7.1} s  {what}", self.begin.elapsed().as_secs_f64());
    }
}

/// Everything up to the kubelet's certificate; `ferry node run` goes on from there.
pub fn prepare(options: &JoinOptions, hops: &Hops) -> Result<()> {
    let token: JoinToken = options.token.parse()?;
    let data_dir = std::path::absolute(&options.node.folders.data_dir)?;
    ensure!(
        !ferry_server::state::store_folder(&data_dir).exists(),
        "{} holds a cluster of its own; give this node another folder with --data-dir, or remove the cluster with `ferry down --purge`",
        data_dir.display()
    );
    refuse_running(options)?;
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let work = bootstrap(options, &token, &data_dir, hops);
    runtime
        .block_on(async { tokio::time::timeout(PATIENCE, work).await })
        .map_err(|_| anyhow::anyhow!("the cluster did not answer within {PATIENCE:?}; the steps above are done, and the same command continues from there"))?
}

fn running(options: &JoinOptions) -> Result<Option<i32>> {
    process::holder(&std::path::absolute(&options.node.folders.run_dir)?.join("ferry.lock"))
}

/// A node that runs already, and is given an address of its own cluster: it looks for its servers there from now on. Whether that
/// is so.
pub fn tell_running(options: &JoinOptions, hops: &Hops) -> Result<bool> {
    let data_dir = std::path::absolute(&options.node.folders.data_dir)?;
    let (Some(pid), Some(known)) = (running(options)?, Membership::read(&data_dir)?) else { return Ok(false) };
    let token: JoinToken = options.token.parse()?;
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let cluster = runtime.block_on(discover::discover(&options.address, &token))?;
    ensure!(
        cluster.ca == known.certificate_authority,
        "this machine is a node of another cluster (process {pid}); leave that first with `ferry leave`"
    );
    let server = authority(&cluster.server)?;
    Membership { servers: vec![server.clone()], ..known }.write(&data_dir)?;
    hops.done(&format!(
        "this machine is a node of that cluster already (process {pid}); it looks for servers at {server}"
    ));
    Ok(true)
}

fn refuse_running(options: &JoinOptions) -> Result<()> {
    if let Some(pid) = running(options)? {
        bail!(
            "this machine already runs a node or a cluster (process {pid}); stop it with `ferry leave` or `ferry down`"
        );
    }
    Ok(())
}

/// Everything up to the etcd of this machine, which is announced; `ferry run` goes on from there.
pub fn prepare_server(options: &JoinOptions, hops: &Hops) -> Result<NodeConfig> {
    let token: ServerToken = options.token.parse()?;
    let data_dir = std::path::absolute(&options.node.folders.data_dir)?;
    refuse_running(options)?;
    quorum::process::program(options.member.etcd_binary.as_deref())?;
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let work = enter(options, &token, &data_dir, hops);
        tokio::time::timeout(SERVER_PATIENCE, work).await.map_err(|_| {
            anyhow::anyhow!("the cluster did not answer within {SERVER_PATIENCE:?}; the steps above are done, and the same command continues from there")
        })?
    })
}

async fn enter(
    options: &JoinOptions,
    token: &ServerToken,
    data_dir: &std::path::Path,
    hops: &Hops,
) -> Result<NodeConfig> {
    let cluster = discover::discover(&options.address, &token.join).await?;
    hops.done(&format!("found the cluster at {} and know it by its CA", cluster.server));
    quorum::join::check_folder(data_dir, &cluster.ca, Receiver::Server)?;
    let client = with_token(&cluster, &token.join)?;
    let handover = quorum::join::fetch(&client, &cluster, token).await?;
    hops.done("have the cluster's keys and settings");
    let node = NodeConfig::check(&options.node, handover.settings.checked()?)?;
    tools::check(&node.container_runtime)?;
    node.check_ports()?;
    node.check_network().await?;
    let (name, address) = (node.node_name.clone(), node.node_ip);
    let machine = Machine { data_dir: node.data_dir.clone(), name, address, receiver: Receiver::Server };
    quorum::join::enter(&machine, &options.member, &handover).await?;
    hops.done(&format!("{} is a member of the cluster's etcd that does not vote yet", node.node_name));
    Ok(node)
}

/// Discovery, settings, the kubelet's certificate; what was learned is on disk at the end.
async fn bootstrap(options: &JoinOptions, token: &JoinToken, data_dir: &std::path::Path, hops: &Hops) -> Result<()> {
    let cluster = discover::discover(&options.address, token).await?;
    hops.done(&format!("found the cluster at {} and know it by its CA", cluster.server));
    let client = with_token(&cluster, token)?;
    let settings = Settings::read(&client).await?;
    hops.done(&format!(
        "learned its settings: pods {}, Services {}, domain {}",
        settings.cluster_cidr, settings.service_cidr, settings.cluster_domain
    ));
    let config = NodeConfig::check(&options.node, settings.checked()?)?;
    tools::check(&config.container_runtime)?;
    // Before the cluster knows of this machine: what cannot run leaves nothing behind.
    config.check_ports()?;
    config.check_network().await?;
    let name = config.node_name.as_str();
    let wanted = Wanted::kubelet_client(name);
    let membership = Membership {
        node_name: name.to_owned(),
        servers: vec![authority(&cluster.server)?],
        certificate_authority: cluster.ca.clone(),
        settings,
    };
    let known = Membership::read(data_dir)?.filter(|known| known.certificate_authority == cluster.ca);
    let keys = membership::folder(data_dir);
    let has_certificate = || keys.exists() && has(&keys, &wanted);
    let is_member = known.is_some_and(|known| known.node_name == name) && has_certificate();
    if !is_member {
        refuse_taken_name(&client, name).await?;
        folders::prepare(data_dir)?;
        let certificates = Certificates::open(&keys)?;
        certificates.obtain(&client, &wanted).await.context("this machine did not get a node certificate")?;
    }
    hops.done(&format!("have a certificate as system:node:{name}"));
    membership.write(data_dir)
}

fn has(keys: &std::path::Path, wanted: &Wanted) -> bool {
    Certificates::open(keys).is_ok_and(|certificates| certificates.have(wanted, jiff::Timestamp::now()).is_some())
}

/// A name that a node has already would take over that node's pods.
async fn refuse_taken_name(client: &kube::Client, name: &str) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    match nodes.get(name).await {
        Ok(_) => bail!(
            "the cluster has a node called {name} already; give this one another name with --node-name, or remove the other first (`ferry node remove {name}`)"
        ),
        Err(error) if ferry_client::write::is_not_found(&error) => Ok(()),
        // A cluster that does not let joining machines look is asked no further.
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(()),
        Err(error) => Err(error).context("cannot look whether the node's name is free"),
    }
}

fn authority(server: &str) -> Result<String> {
    let uri = discover::server_url(server)?;
    uri.authority().map(|authority| authority.to_string()).with_context(|| format!("{server:?} is not a valid address"))
}

/// How the cluster is asked with a token alone. The server has to be one by its certificate: nodes have certificates of the same
/// CA, for their own names and addresses, and one of them may be where the answer came from.
pub(crate) fn with_token(cluster: &Cluster, token: &JoinToken) -> Result<kube::Client> {
    let mut config = Config::new(discover::server_url(&cluster.server)?);
    let pem = cluster.ca.as_bytes();
    let certificates = <rustls::pki_types::CertificateDer as rustls::pki_types::pem::PemObject>::pem_slice_iter(pem);
    config.root_cert = Some(certificates.filter_map(|der| der.ok().map(|der| der.to_vec())).collect());
    config.tls_server_name = Some(SERVER_NAME.to_owned());
    config.auth_info.token = Some(format!("{}.{}", token.id, token.secret).into());
    kubeconfig::connect(config)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, SocketAddr, TcpListener};
    use std::sync::Arc;

    use ferry_server::certificate_rotation::Current;
    use ferry_server::pki::{Leaf, Pki, Use, server_tls};

    use super::*;

    /// Answers one connection that trusts the certificate.
    fn serve(pki: &Pki, names: &[&str]) -> SocketAddr {
        let usage = Use::Server {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            addresses: vec![Ipv4Addr::LOCALHOST.into()],
        };
        let leaf = Leaf { name: names.join("-"), common_name: "c".into(), organizations: Vec::new(), usage };
        let pair = pki.leaf(&leaf, jiff::Timestamp::now()).unwrap();
        let mut tls = (*server_tls(Current::new(&pair).unwrap(), pki.ca_certificate()).unwrap()).clone();
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            let mut session = rustls::ServerConnection::new(Arc::new(tls)).unwrap();
            let mut stream = rustls::Stream::new(&mut session, &mut socket);
            if stream.read(&mut [0; 4096]).is_ok() {
                let status = r#"{"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "nodes \"new\" not found", "reason": "NotFound", "code": 404}"#;
                let head = "HTTP/1.1 404 Not Found\r\ncontent-type: application/json\r\n";
                let _ = write!(stream, "{head}content-length: {}\r\n\r\n{status}", status.len());
            }
        });
        address
    }

    /// Nodes have certificates of the cluster's CA for their addresses: one of them could stand between a machine that joins and
    /// the servers.
    #[tokio::test]
    async fn a_nodes_certificate_makes_no_server() {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let folder = tempfile::tempdir().unwrap();
        let pki = Pki::open(folder.path()).unwrap();
        let token = JoinToken::new(pki.ca_certificate()).unwrap();
        for (names, is_server) in [(&["node-a"][..], false), (&["kubernetes", "node-a"][..], true)] {
            let server = format!("https://{}", serve(&pki, names));
            let cluster = Cluster { server, ca: pki.ca_certificate().to_owned() };
            let asked = refuse_taken_name(&with_token(&cluster, &token).unwrap(), "new").await;
            assert_eq!(asked.is_ok(), is_server, "{names:?}: {asked:?}");
        }
    }
}
