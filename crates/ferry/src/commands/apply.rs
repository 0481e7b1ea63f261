//! `ferry apply`: files applied on the server, followed until what they say is there, or until it is plain that it will not be.

use std::process::ExitCode;

use anyhow::Result;
use ferry_cluster::output;
use ferry_insight::trace::{self, Shown, State};
use ferry_insight::{Cluster, Resource, why};
use ferry_kubectl::Applied;

use super::object::{ON_ITS_WAY, STUCK, client, exit, own_kubeconfig};
use crate::insight_options::ApplyOptions;

pub fn run(options: &ApplyOptions) -> ExitCode {
    let (code, applied) = ferry_kubectl::apply(&arguments(options));
    if code != 0 || options.no_wait || applied.is_empty() {
        return code.into();
    }
    exit(follow(options, &applied))
}

/// What kubectl is asked for.
fn arguments(options: &ApplyOptions) -> Vec<String> {
    let mut line = Vec::new();
    let mut flag = |name: &str, value: &str| line.push(format!("--{name}={value}"));
    options.filename.iter().for_each(|file| flag("filename", file));
    if let Some(folder) = &options.kustomize {
        flag("kustomize", folder);
    }
    if let Some(namespace) = &options.namespace {
        flag("namespace", namespace);
    }
    let config = options.kubeconfig.clone().or_else(own_kubeconfig);
    if let Some(config) = config {
        flag("kubeconfig", &config.display().to_string());
    }
    flag("recursive", &options.recursive.to_string());
    flag("force-conflicts", &options.force_conflicts.to_string());
    line
}

fn resource(applied: &Applied) -> Resource {
    Resource {
        group: applied.group.clone(),
        version: applied.version.clone(),
        plural: applied.plural.clone(),
        kind: applied.kind.clone(),
        namespaced: applied.namespace.is_some(),
    }
}

async fn follow(options: &ApplyOptions, applied: &[Applied]) -> Result<u8> {
    let cluster = Cluster::new(client(options.kubeconfig.as_deref()).await?);
    let objects: Vec<(Resource, String, String)> = applied
        .iter()
        .map(|one| (resource(one), one.namespace.clone().unwrap_or_default(), one.name.clone()))
        .collect();
    let titles: Vec<String> =
        objects.iter().map(|(resource, _, name)| format!("{}/{name}", resource.title())).collect();
    let mut shown: Vec<Shown> = objects.iter().map(|_| Shown::default()).collect();
    let mut states = vec![State::OnItsWay; objects.len()];
    let followed = trace::follow_all(&cluster, &objects, options.timeout, |place, story, hops| {
        let before = if objects.len() > 1 { format!("{}  ", titles[place]) } else { String::new() };
        let (news, held) = (shown[place].news(hops), trace::waits(story, hops));
        for line in news.iter().chain(shown[place].waits(&held)) {
            println!("{before}{line}");
        }
        states[place] = trace::state(story, hops);
        // One that is stuck is explained below; waiting for it would help nobody.
        states[place] != State::Stuck && !output::is_closed()
    })
    .await;
    followed.into_iter().collect::<Result<Vec<()>, _>>()?;
    for (place, (resource, namespace, name)) in objects.iter().enumerate() {
        if states[place] != State::Done {
            let world = why::look(&cluster, resource, namespace, name).await?;
            print!("\n{}", why::render(&world, &why::findings(&world)));
        }
    }
    Ok(match (states.contains(&State::Stuck), states.contains(&State::OnItsWay)) {
        (true, _) => STUCK,
        (false, true) => ON_ITS_WAY,
        (false, false) => 0,
    })
}
