//! `ferry scheduler`: the scheduler as a process of its own, against any API server.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use ferry_client::Informers;
use ferry_client::finishing;
use ferry_client::leader::{self, Fence};
use ferry_cluster::component::{self, server};
use ferry_cluster::{kubeconfig, log};
use ferry_scheduler::{Configuration, Scheduler, config::LeaderElection};
use ferry_tasks::Tasks;

use crate::arguments::SchedulerOptions;

pub fn run(options: &SchedulerOptions) -> Result<()> {
    let configuration = configuration(options.config.as_deref())?;
    log::start();
    tokio::runtime::Runtime::new()?.block_on(serve(options, configuration))
}

/// A file that cannot be used is refused before anything is asked of the API server.
fn configuration(path: Option<&Path>) -> Result<Configuration> {
    let Some(path) = path else { return Ok(Configuration::default()) };
    let text = ferry_server::server_options::read_file(path)?;
    let (content, duplicates) =
        ferry_schema::yaml::parse_value(&text).map_err(|problem| anyhow::anyhow!("{}: {problem}", path.display()))?;
    if let Some(first) = duplicates.first() {
        bail!("{}: strict decoding error: yaml: unmarshal errors:\n  {first}", path.display());
    }
    // Names the field; what is left for the parser are values.
    ferry_server::configuration::check("KubeSchedulerConfiguration", &content)
        .with_context(|| format!("{} cannot be used", path.display()))?;
    Configuration::parse(content).with_context(|| format!("{} cannot be used", path.display()))
}

/// What the file says, unless a flag says otherwise.
fn election(options: &SchedulerOptions, file: &LeaderElection) -> LeaderElection {
    LeaderElection {
        leader_elect: options.leader_elect.unwrap_or(file.leader_elect),
        lease_duration: options.leader_elect_lease_duration.unwrap_or(file.lease_duration),
        renew_deadline: options.leader_elect_renew_deadline.unwrap_or(file.renew_deadline),
        retry_period: options.leader_elect_retry_period.unwrap_or(file.retry_period),
        resource_name: options.leader_elect_resource_name.clone().unwrap_or_else(|| file.resource_name.clone()),
        resource_namespace: options
            .leader_elect_resource_namespace
            .clone()
            .unwrap_or_else(|| file.resource_namespace.clone()),
        resource_lock: file.resource_lock.clone(),
    }
}

async fn serve(options: &SchedulerOptions, configuration: Configuration) -> Result<()> {
    let given = configuration.client_connection.kubeconfig.as_str();
    let given = options.kubeconfig.as_deref().or_else(|| Some(Path::new(given)).filter(|_| !given.is_empty()));
    let client = kubeconfig::client_of(given, options.master.as_deref(), "kube-scheduler").await?;
    let tasks = Tasks::new("scheduler");
    // Looked at before anything is asked of the server; who is elected builds it with the client that binds.
    configuration.build(&client, &[]).context("the configuration cannot be used")?;
    // Nobody is elected yet: then there is nothing to tell.
    let running: Arc<std::sync::OnceLock<Scheduler>> = Arc::default();
    if options.secure_port != 0 {
        let (told, asked) = (running.clone(), running.clone());
        let component = server::Component {
            client: client.clone(),
            metrics: Box::new(move || told.get().map(|scheduler| scheduler.metrics().render()).unwrap_or_default()),
            debug: Some(Box::new(move |path| {
                let (namespace, name) = path.strip_prefix("/debug/verdicts/")?.split_once('/')?;
                asked.get()?.explanation(namespace, name)
            })),
        };
        let address = SocketAddr::new(options.bind_address, options.secure_port);
        let tls = server::serving(options.certificate.files(), None)?;
        server::start(component, address, tls, &tasks).await?;
    }
    let (own, started, settings) = (client.clone(), running.clone(), configuration.clone());
    let lead = move |group: Tasks, fence: Option<Fence>| {
        let own = match fence {
            Some(fence) => fence.client(own.clone()),
            None => finishing::client(own.clone(), &group),
        };
        let informers = Informers::new(own.clone(), group.clone());
        let tasks = group.clone();
        group.spawn_until_stopped("start", async move {
            let started_one = match settings.build(&own, &[]) {
                Ok(config) => ferry_scheduler::start(config, own, &informers, &tasks).await,
                Err(error) => Err(error),
            };
            match started_one {
                Ok(scheduler) => drop(started.set(scheduler)),
                Err(error) => tracing::error!("the scheduler cannot start: {error}"),
            }
            std::future::pending().await
        });
    };
    let election = election(options, &configuration.leader_election);
    let election = election.leader_elect.then(|| leader::Config {
        namespace: election.resource_namespace,
        lease_duration: election.lease_duration,
        renew_deadline: election.renew_deadline,
        retry_period: election.retry_period,
        ..leader::Config::new(&election.resource_name, &component::identity())
    });
    component::lead(client, election, &tasks, lead).await
}
