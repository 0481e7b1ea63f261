//! How plug-ins come to be known: they call the kubelet at its socket, or put theirs into the folder of plug-ins.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ferry_plugins::deviceplugin::registration_server::{Registration, RegistrationServer};
use ferry_plugins::deviceplugin::{DevicePluginOptions, Empty, RegisterRequest};
use ferry_plugins::{DevicePlugin, Request, Response, Routes, Status};

use super::checkpoint;
use super::paced::Paced;
use super::{Devices, Endpoint, VERSION};
use crate::metrics::Counter;

const SOCKET: &str = "kubelet.sock";
/// The Node tells of all of them, and has to stay an object that can be written.
const MOST_RESOURCES: usize = 512;
/// Before the socket is opened again, should that have failed.
const RETRY: Duration = Duration::from_secs(5);

/// Serves the registration of device plug-ins, for ever. What an earlier kubelet left is removed: plug-ins see by that
/// that they have to register again.
pub(crate) async fn serve(devices: Arc<Devices>) {
    loop {
        let served = match clear(&devices.folder) {
            Ok(()) => {
                let routes = Routes::new(RegistrationServer::new(Registrar(devices.clone())));
                ferry_plugins::serve(&devices.folder.join(SOCKET), routes).await
            }
            Err(error) => Err(error),
        };
        if let Err(error) = served {
            tracing::warn!("device plug-ins cannot register: {}: {error}", devices.folder.display());
        }
        tokio::time::sleep(RETRY).await;
    }
}

fn clear(folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name() != checkpoint::FILE && !entry.file_type()?.is_dir() {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

struct Registrar(Arc<Devices>);

#[async_trait::async_trait]
impl Registration for Registrar {
    async fn register(&self, request: Request<RegisterRequest>) -> Result<Response<Empty>, Status> {
        let request = request.into_inner();
        let refused = |why: String| {
            tracing::warn!("a device plug-in is not registered: {why}");
            Status::invalid_argument(why)
        };
        if request.version != VERSION {
            let why = format!(
                "requested API version {:?} is not supported by kubelet. Supported version is {VERSION:?}",
                request.version
            );
            return Err(refused(why));
        }
        let socket = self.0.socket_of(&request.endpoint).map_err(&refused)?;
        let options = request.options.unwrap_or_default();
        self.0.register(&request.resource_name, &socket, options).map_err(&refused)?;
        Ok(Response::new(Empty {}))
    }
}

impl Devices {
    /// A plug-in's socket by the name it gives: one in the kubelet's own folder.
    fn socket_of(&self, endpoint: &str) -> Result<PathBuf, String> {
        let mut parts = Path::new(endpoint).components();
        match (parts.next(), parts.next()) {
            (Some(Component::Normal(name)), None) => Ok(self.folder.join(name)),
            _ => Err(format!("{endpoint:?} is no name of a socket in {}", self.folder.display())),
        }
    }

    /// A plug-in that registered by the folder of plug-ins; it is asked what it wants.
    pub(crate) async fn register_watched(self: &Arc<Self>, resource: &str, socket: &Path) -> Result<(), String> {
        let plugin = DevicePlugin::new(ferry_cri::channel(socket));
        let options = plugin.options().await.map_err(|status| status.message().to_owned())?;
        self.register(resource, socket, options)
    }

    fn register(self: &Arc<Self>, resource: &str, socket: &Path, options: DevicePluginOptions) -> Result<(), String> {
        if !is_extended_resource(resource) {
            return Err(format!("the ResourceName {resource:?} is invalid"));
        }
        let plugin = DevicePlugin::new(ferry_cri::channel(socket));
        let generation = {
            let mut endpoints = self.endpoints.lock();
            if !endpoints.contains_key(resource) && endpoints.len() >= MOST_RESOURCES {
                return Err(format!("this node has plug-ins for {MOST_RESOURCES} resources already"));
            }
            let generation = endpoints.get(resource).map_or(1, |known| known.generation + 1);
            endpoints.insert(resource.to_owned(), Endpoint { plugin: plugin.clone(), options, generation });
            generation
        };
        tracing::info!("a device plug-in for {resource} has registered");
        self.metrics.count(Counter::DevicePluginRegistrations, &[("resource_name", resource)]);
        let (devices, resource) = (self.clone(), resource.to_owned());
        self.tasks.spawn_until_stopped("device plug-in", async move {
            devices.follow(&resource, &plugin, generation).await;
        });
        Ok(())
    }

    fn is_current(&self, resource: &str, generation: u64) -> bool {
        self.endpoints.lock().get(resource).is_some_and(|known| known.generation == generation)
    }

    /// Keeps the books current with what a plug-in tells, until it goes or another takes its place.
    async fn follow(&self, resource: &str, plugin: &DevicePlugin, generation: u64) {
        let ended = self.listen(resource, plugin, generation).await;
        if !self.is_current(resource, generation) {
            return;
        }
        tracing::warn!("the device plug-in for {resource} is gone: {ended}");
        self.ledger.lock().gone(resource, Instant::now());
        self.changes.send_modify(|count| *count += 1);
    }

    /// Gives why nothing comes any more.
    async fn listen(&self, resource: &str, plugin: &DevicePlugin, generation: u64) -> String {
        let mut told = match plugin.devices().await {
            Ok(told) => Paced::new(told),
            Err(status) => return status.message().to_owned(),
        };
        loop {
            let devices = match told.next().await {
                Ok(devices) => devices,
                Err(why) => return why,
            };
            if !self.is_current(resource, generation) {
                return "another has taken its place".to_owned();
            }
            if self.ledger.lock().told(resource, devices) {
                self.changes.send_modify(|count| *count += 1);
                self.write().await;
            }
        }
    }
}

/// Names with a domain that is not Kubernetes' own.
fn is_extended_resource(name: &str) -> bool {
    let Some((domain, _)) = name.split_once('/') else { return false };
    let own = domain == "kubernetes.io" || domain.ends_with(".kubernetes.io");
    !own && !name.starts_with("requests.") && ferry_meta::names::qualified_name(name).is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_node_has_no_end_of_resources() {
        let folder = tempfile::tempdir().expect("a folder");
        let tasks = ferry_tasks::Tasks::new("test");
        let devices = Devices::open(folder.path(), Arc::default(), &tasks);
        let register =
            |name: &str| devices.register(name, &folder.path().join("nobody.sock"), DevicePluginOptions::default());
        for number in 0..MOST_RESOURCES {
            register(&format!("example.com/gpu-{number}")).expect("registered");
        }
        let refused = register("example.com/one-more").expect_err("refused");
        assert!(refused.contains("already"), "{refused}");
        // One that is known comes back.
        register("example.com/gpu-0").expect("registered");
        tasks.stop(Duration::from_secs(5)).await;
    }

    #[test]
    fn only_names_of_extended_resources_are_taken() {
        for (name, taken) in [
            ("example.com/gpu", true),
            ("gpu", false),
            ("kubernetes.io/gpu", false),
            ("x.kubernetes.io/gpu", false),
            ("requests.example.com/gpu", false),
            ("example.com/g p", false),
            ("/x", false),
        ] {
            assert_eq!(is_extended_resource(name), taken, "{name}");
        }
    }
}
