//! Follows the Corefile of the cluster: the key `Corefile` of the ConfigMap `kube-system/coredns`.

use std::collections::BTreeMap;
use std::sync::Arc;

use ferry_client::{Api, EventType, Informer, Recorder, Selection};
use ferry_tasks::Tasks;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::DnsError;
use crate::cluster::Cluster;
use crate::corefile::CorefileError;
use crate::handler::Handler;
use crate::settings::{Files, Settings, Surroundings};

const NAMESPACE: &str = "kube-system";
const NAME: &str = "coredns";
const KEY: &str = "Corefile";
/// What an Event may hold.
const LONGEST_MESSAGE: usize = 1000;

/// What somebody wrote: a Corefile, where there is one, and what stands beside it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Written {
    text: Option<String>,
    files: Files,
}

impl Written {
    pub(crate) fn of(map: &ConfigMap) -> Self {
        let mut data: BTreeMap<String, String> = map.data.clone().unwrap_or_default();
        Self { text: data.remove(KEY), files: Files(data) }
    }
}

/// The server with the Corefile that is in force.
pub(crate) struct Live {
    handler: Handler,
    surroundings: Surroundings,
    /// In force where nobody wrote one.
    usual: String,
    written: Written,
}

impl Live {
    pub(crate) fn start(
        usual: String,
        surroundings: Surroundings,
        cluster: Cluster,
        tasks: &Tasks,
    ) -> Result<Self, DnsError> {
        let settings = Settings::read(&usual, &Files::default(), &surroundings)
            .map_err(|error| DnsError::Corefile(error.to_string()))?;
        let metrics = surroundings.metrics.clone();
        let handler = Handler::new(settings, cluster, metrics, tasks.child("dns questions"));
        Ok(Self { handler, surroundings, usual, written: Written::default() })
    }

    pub(crate) fn handler(&self) -> &Handler {
        &self.handler
    }

    /// Puts another one in force. One that cannot be read changes nothing. Says what is not known of it.
    pub(crate) async fn apply(&mut self, written: Written) -> Option<Result<Arc<Settings>, CorefileError>> {
        if written == self.written {
            return None;
        }
        let text = written.text.as_ref().unwrap_or(&self.usual);
        let read = Settings::read(text, &written.files, &self.surroundings);
        self.written = written;
        Some(match read {
            Ok(settings) => {
                settings.prepare().await;
                self.handler.replace(settings);
                Ok(self.handler.settings())
            }
            Err(error) => {
                self.handler.metrics().reload_failed();
                Err(error)
            }
        })
    }
}

/// Looks at Corefiles for somebody else's server.
pub(crate) struct Judge {
    usual: String,
    surroundings: Surroundings,
    passed_on: watch::Sender<Option<Written>>,
}

impl Judge {
    pub(crate) fn new(
        usual: String,
        surroundings: Surroundings,
    ) -> Result<(Self, watch::Receiver<Option<Written>>), DnsError> {
        let (passed_on, receiver) = watch::channel(None);
        Settings::read(&usual, &Files::default(), &surroundings)
            .map_err(|error| DnsError::Corefile(error.to_string()))?;
        Ok((Self { usual, surroundings, passed_on }, receiver))
    }
}

/// Whoever is told what somebody wrote, and says what is not known of it.
pub(crate) trait Reader: Send + 'static {
    /// None where it is what was written before.
    fn take(&mut self, written: Written) -> impl Future<Output = Option<Result<Vec<String>, CorefileError>>> + Send;
}

impl Reader for Live {
    async fn take(&mut self, written: Written) -> Option<Result<Vec<String>, CorefileError>> {
        Some(self.apply(written).await?.map(|settings| settings.complaints.clone()))
    }
}

impl Reader for Judge {
    async fn take(&mut self, written: Written) -> Option<Result<Vec<String>, CorefileError>> {
        if self.passed_on.borrow().as_ref() == Some(&written) {
            return None;
        }
        let first = self.passed_on.borrow().is_none() && written == Written::default();
        let text = written.text.as_ref().unwrap_or(&self.usual);
        let read = Settings::read(text, &written.files, &self.surroundings).map(|settings| settings.complaints);
        self.passed_on.send_replace(Some(written));
        // That nobody wrote one is nothing new.
        (!first).then_some(read)
    }
}

/// Follows the ConfigMap until the group stops.
pub(crate) fn follow(mut reader: impl Reader, client: Client, tasks: &Tasks) {
    let maps: Informer<ConfigMap> = Informer::over(
        Api::namespaced(client.clone(), NAMESPACE),
        tasks,
        Selection::fields(format!("metadata.name={NAME}")),
    );
    let recorder = Recorder::new(client, "ferry-dns", tasks);
    let mut changes = maps.subscribe();
    tasks.spawn_critical_once("corefile", async move {
        maps.synced().await;
        loop {
            let map = maps.get(NAMESPACE, NAME);
            let written = map.as_deref().map(Written::of).unwrap_or_default();
            match (reader.take(written).await, map) {
                (Some(Err(error)), map) => {
                    let text = format!("the Corefile cannot be read, and the one before it stays in force: {error}");
                    tell(&recorder, map.as_deref(), "CorefileNotRead", &text);
                }
                (Some(Ok(complaints)), map) if !complaints.is_empty() => {
                    let text = format!("parts of the Corefile are not in force: {}", complaints.join("; "));
                    tell(&recorder, map.as_deref(), "CorefilePartlyKnown", &text);
                }
                (Some(Ok(_)), _) => tracing::info!("a Corefile is in force"),
                (None, _) => {}
            }
            changes.next().await;
        }
    });
}

fn tell(recorder: &Recorder, map: Option<&ConfigMap>, reason: &str, text: &str) {
    tracing::warn!("{NAMESPACE}/{NAME}: {text}");
    if let Some(map) = map {
        let short: String = text.chars().take(LONGEST_MESSAGE).collect();
        recorder.event(map, EventType::Warning, reason, short);
    }
}
