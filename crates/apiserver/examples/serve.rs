//! An API server alone: `serve --token admin=T,bob=T --data-dir DIR --port PORT --cert FILE --key FILE`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ferry_admission::Dependencies;
use ferry_apiserver::cache::{Cache, Registration};
use ferry_apiserver::{ApiServer, Config, Endpoint, Kubelets, Quotas, ServiceNetwork};
use ferry_auth::{
    AuthorizerChain, Chain, LoopbackTokens, NodeAuthorizer, Rbac, ServiceAccountTokens, SigningKey, StaticTokens,
    TokenIssuer, X509,
};
use ferry_meta::UserInfo;
use ferry_registry::ResourceTable;
use ferry_store::EmbeddedStore;
use ferry_tasks::Tasks;

type Error = Box<dyn std::error::Error + Send + Sync>;

fn argument(name: &str, default: &str) -> String {
    let mut arguments = std::env::args();
    arguments.find(|a| a == name).and_then(|_| arguments.next()).unwrap_or_else(|| default.to_owned())
}

fn tls() -> Result<Arc<rustls::ServerConfig>, Error> {
    use rustls_pki_types::pem::PemObject;
    use rustls_pki_types::{CertificateDer, PrivateKeyDer};
    let certificates = CertificateDer::pem_file_iter(argument("--cert", "cert.pem"))?.collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_file(argument("--key", "key.pem"))?;
    let mut config = rustls::ServerConfig::builder().with_no_client_auth().with_single_cert(certificates, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let tasks = Tasks::new("serve");
    let port: u16 = argument("--port", "6443").parse()?;
    let store = EmbeddedStore::open(&PathBuf::from(argument("--data-dir", "data")), Default::default())?;
    let table = ResourceTable::builtin();
    let cache = Cache::start(store, &tasks, Registration::of_table(&table)).await?;
    let issuer = "https://kubernetes.default.svc.cluster.local".to_owned();
    let audiences = vec![issuer.clone()];
    let key = SigningKey::from_pem(&SigningKey::generate_pem()?)?;
    let issuer = Arc::new(TokenIssuer::new(issuer, audiences.clone(), key, cache.clone()));
    let accounts = ServiceAccountTokens::new(
        vec![issuer.issuer().to_owned()],
        vec![issuer.signing_key().verifying_key().clone()],
        cache.clone(),
    );
    let mut file = String::new();
    for pair in argument("--token", "admin=admintoken,bob=bobtoken").split(',') {
        let (user, token) = pair.split_once('=').ok_or("--token takes user=token pairs")?;
        let group = if user == "admin" { "system:masters" } else { "devs" };
        file.push_str(&format!("{token},{user},{user}-uid,\"{group}\"\n"));
    }
    let loopback = Arc::new(LoopbackTokens::new(audiences.clone()));
    let token = loopback.issue(UserInfo::new("system:apiserver", &["system:masters"]));
    let authentication = Chain::new(audiences.clone())
        .with(Arc::new(X509))
        .with_tokens(loopback)
        .with_tokens(Arc::new(StaticTokens::parse(&file, audiences)?))
        .with_tokens(Arc::new(accounts));
    let rbac = Arc::new(Rbac::new(cache.clone()));
    let authorization = Arc::new(
        AuthorizerChain::new().with("node", Arc::new(NodeAuthorizer::new(cache.clone()))).with("rbac", rbac.clone()),
    );
    let quotas = Quotas::new(cache.clone(), &table).map(|q| -> Arc<dyn ferry_admission::QuotaStore> { Arc::new(q) });
    let admission =
        ferry_admission::Chain::new(Dependencies { reader: cache.clone(), authorizer: authorization.clone(), quotas });
    let server = ApiServer::new(
        Config {
            cache,
            table,
            authentication: Arc::new(authentication),
            authorization,
            rbac: Some(rbac),
            admission: admission.plugins().to_vec(),
            token_issuer: Some(issuer),
            service_network: ServiceNetwork::parse("10.96.0.0/16")?,
            node_ports: (30000, 32767),
            advertised: format!("127.0.0.1:{port}"),
            kubelets: Kubelets::default(),
        },
        &tasks,
    );
    server.bootstrap(&token, Some(Endpoint { address: argument("--advertise", "10.20.30.40").parse()?, port })).await?;
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    eprintln!("serving on {port}");
    let serving = server.clone();
    let tls = tls()?;
    tasks.spawn("serve", async move { serving.serve(listener, tls).await });
    tokio::signal::ctrl_c().await?;
    server.stop(Duration::from_secs(10)).await;
    tasks.stop(Duration::from_secs(10)).await;
    Ok(())
}
