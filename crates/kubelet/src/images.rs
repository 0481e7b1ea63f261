//! Images: whether one is there, pulling it when it is not, and waiting after a failure.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ferry_client::{Clock, EventType};
use ferry_cri::image_name::Reference;
use ferry_cri::v1;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Secret};
use parking_lot::Mutex;

use crate::backoff::{Backoff, RestartDelays, go_duration};
use crate::credentials::{self, Credential};
use crate::events::PodEvents;
use crate::metrics::{self, Histogram, Metrics};
use crate::pull_limits::PullLimits;
use crate::pulled::PullRecords;
use crate::runtime::Runtime;
use crate::spec::security::ImageUser;
use crate::status::WaitReason;
use crate::volumes::blocking;

/// How soon after a failed pull the pod says that it backs off.
const NOTICE: Duration = Duration::from_secs(2);

/// Failed pulls of one pod, by image.
pub(crate) type PullBackoffs = HashMap<String, (Backoff, String)>;

pub(crate) struct Image {
    /// As the runtime names it: what a container is made from.
    pub(crate) id: String,
    pub(crate) user: ImageUser,
}

/// Why there is no image, and when to ask again.
pub(crate) struct Unavailable {
    pub(crate) why: WaitReason,
    pub(crate) not_before: Timestamp,
}

pub(crate) struct Images {
    runtime: Arc<dyn Runtime>,
    /// One pull per image at a time: others wait for it and then find the image.
    pulling: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
    records: Arc<PullRecords>,
    limits: PullLimits,
    metrics: Arc<Metrics>,
    clock: Clock,
}

impl Images {
    pub(crate) fn new(
        runtime: Arc<dyn Runtime>,
        records: PullRecords,
        limits: PullLimits,
        metrics: Arc<Metrics>,
        clock: Clock,
    ) -> Self {
        Self { runtime, clock, pulling: Mutex::default(), records: Arc::new(records), limits, metrics }
    }

    /// Asks or changes the records of who pulled what.
    async fn with_records<T: Send + 'static>(
        &self,
        work: impl FnOnce(&PullRecords) -> T + Send + 'static,
    ) -> Result<T, String> {
        let records = self.records.clone();
        blocking(move || Ok(work(&records))).await
    }

    /// Finds out what became of pulls that the kubelet did not see the end of.
    pub(crate) async fn recover(&self) -> Result<(), String> {
        let images = self.runtime.images().await.map_err(|error| error.to_string())?;
        self.with_records(move |records| records.recover(&images)).await
    }

    /// Forgets who pulled images that are gone; `ids` are those that were there at `since`.
    pub(crate) async fn keep_only(&self, ids: Vec<String>, since: Timestamp) -> Result<(), String> {
        self.with_records(move |records| records.keep_only(&ids.iter().map(String::as_str).collect(), since)).await
    }

    /// Whether a pod with these credentials may use an image that is there.
    async fn allows(&self, image: &str, id: &str, credentials: &[Credential]) -> bool {
        let (image, id, credentials) = (image.to_owned(), id.to_owned(), credentials.to_vec());
        self.with_records(move |records| records.allows(&image, &id, &credentials)).await.unwrap_or(false)
    }

    pub(crate) async fn ensure(
        &self,
        events: &PodEvents<'_>,
        container: &Container,
        secrets: &[Arc<Secret>],
        sandbox: &v1::PodSandboxConfig,
        backoffs: &mut PullBackoffs,
    ) -> Result<Image, Unavailable> {
        let asked = container.image.as_deref().unwrap_or_default();
        let image = with_default_tag(asked);
        let policy = container.image_pull_policy.as_deref().unwrap_or("IfNotPresent");
        let say = |kind, reason: &str, message: String| events.container(&container.name, kind, reason, message);
        if let Err(why) = Reference::parse(asked) {
            let message = format!("Failed to apply default image tag {asked:?}: {why}");
            say(EventType::Warning, "InspectFailed", message.clone());
            return Err(self.unavailable("InvalidImageName", message, Duration::from_secs(30)));
        }
        let present = match self.runtime.image(&image).await {
            Ok(found) => found,
            Err(error) => {
                let message = format!("Failed to inspect image {asked:?}: {error}");
                say(EventType::Warning, "InspectFailed", message.clone());
                return Err(self.unavailable("ImageInspectError", message, Duration::from_secs(10)));
            }
        };
        let credentials = credentials::matching(&image, secrets);
        let mut present = present.filter(|_| policy != "Always");
        if let Some(found) = &present
            && !self.allows(asked, &found.id, &credentials).await
        {
            // As though it were not there: whether it is, is for those to know who may have it.
            present = None;
        }
        if let Some(found) = present {
            let message =
                format!("Container image {asked:?} already present on machine and can be accessed by the pod");
            say(EventType::Normal, "Pulled", message);
            backoffs.remove(asked);
            return Ok(usable(found));
        }
        if policy == "Never" {
            let message = format!("Container image {asked:?} is not present with pull policy of Never");
            say(EventType::Warning, "ErrImageNeverPull", message.clone());
            say(EventType::Warning, "Failed", "Error: ErrImageNeverPull".to_owned());
            return Err(self.unavailable("ErrImageNeverPull", message, Duration::from_secs(30)));
        }
        let now = self.clock.now();
        if let Some((backoff, last_error)) = backoffs.get(asked)
            && let Some(at) = backoff.not_before(backoff.updated()).filter(|at| *at > now)
        {
            let message = format!("Back-off pulling image {asked:?}");
            say(EventType::Normal, "BackOff", message.clone());
            say(EventType::Warning, "Failed", "Error: ImagePullBackOff".to_owned());
            let why = WaitReason { reason: "ImagePullBackOff".into(), message: format!("{message}: {last_error}") };
            return Err(Unavailable { why, not_before: at });
        }
        say(EventType::Normal, "Pulling", format!("Pulling image {asked:?}"));
        let started = Instant::now();
        match self.pull((asked, &image), policy, &credentials, sandbox).await {
            Ok((found, pulling)) => {
                let (pulled, waited) = (go_duration(pulling), go_duration(started.elapsed()));
                let size = found.size;
                let with = [("image_size_in_bytes", metrics::image_size(size))];
                self.metrics.took(Histogram::ImagePull, &with, started.elapsed());
                say(
                    EventType::Normal,
                    "Pulled",
                    format!(
                        "Successfully pulled image {asked:?} in {pulled} ({waited} including waiting). Image size: {size} bytes."
                    ),
                );
                backoffs.remove(asked);
                Ok(usable(found))
            }
            Err(error) => {
                say(EventType::Warning, "Failed", format!("Failed to pull image {asked:?}: {error}"));
                say(EventType::Warning, "Failed", "Error: ErrImagePull".to_owned());
                let now = self.clock.now();
                let backoff = Backoff::next(backoffs.get(asked).map(|(b, _)| *b), now, now, RestartDelays::default());
                backoffs.insert(asked.to_owned(), (backoff, format!("ErrImagePull: {error}")));
                Err(self.unavailable("ErrImagePull", error, NOTICE))
            }
        }
    }

    async fn pull(
        &self,
        (asked, image): (&str, &str),
        policy: &str,
        credentials: &[Credential],
        sandbox: &v1::PodSandboxConfig,
    ) -> Result<(v1::Image, Duration), String> {
        let turn = self.pulling.lock().entry(image.to_owned()).or_default().clone();
        let result = {
            let _turn = turn.lock().await;
            let started = Instant::now();
            // Another pod may have pulled it while this one waited for its turn.
            let found = if policy == "Always" { None } else { self.runtime.image(image).await.ok().flatten() };
            match found {
                Some(found) if self.allows(asked, &found.id, credentials).await => Ok((found, started.elapsed())),
                _ => {
                    let _turn = self.limits.turn().await;
                    let started = Instant::now();
                    let pulled = self.pull_and_record((asked, image), credentials, sandbox).await;
                    pulled.map(|image| (image, started.elapsed()))
                }
            }
        };
        let mut pulling = self.pulling.lock();
        // Two: the table's and ours.
        if pulling.get(image).is_some_and(|lock| Arc::strong_count(lock) <= 2) {
            pulling.remove(image);
        }
        result
    }

    async fn pull_and_record(
        &self,
        (asked, image): (&str, &str),
        credentials: &[Credential],
        sandbox: &v1::PodSandboxConfig,
    ) -> Result<v1::Image, String> {
        let name = asked.to_owned();
        let begun = self.with_records(move |records| records.begin(&name).map_err(|error| error.to_string())).await;
        begun
            .flatten()
            .map_err(|why| format!("Failed to record image pull intent for container image {asked:?}: {why}"))?;
        let pulled = self.pull_with_credentials(image, credentials, sandbox).await;
        let name = asked.to_owned();
        match pulled {
            Ok((found, used)) => {
                let id = found.id.clone();
                self.with_records(move |records| records.succeeded(&name, &id, used.as_ref())).await?;
                Ok(found)
            }
            Err(why) => {
                self.with_records(move |records| records.failed(&name)).await?;
                Err(why)
            }
        }
    }

    /// The image, and the credentials that it was given for.
    async fn pull_with_credentials(
        &self,
        image: &str,
        credentials: &[Credential],
        sandbox: &v1::PodSandboxConfig,
    ) -> Result<(v1::Image, Option<Credential>), String> {
        let mut tries: Vec<Option<Credential>> = credentials.iter().cloned().map(Some).collect();
        if tries.is_empty() {
            tries.push(None);
        }
        self.limits.admit(Instant::now())?;
        let mut failure = String::new();
        for used in tries {
            let request = v1::PullImageRequest {
                image: Some(v1::ImageSpec { image: image.to_owned(), ..v1::ImageSpec::default() }),
                auth: used.as_ref().map(|credential| credential.auth.clone()),
                sandbox_config: Some(sandbox.clone()),
            };
            match self.runtime.pull(request).await {
                Ok(reference) => {
                    let found = self.runtime.image(&reference).await.map_err(|e| e.to_string())?;
                    let found = found.ok_or_else(|| format!("image {image:?} is gone right after its pull"))?;
                    return Ok((found, used));
                }
                Err(error) => failure = error.to_string(),
            }
        }
        Err(failure)
    }

    fn unavailable(&self, reason: &str, message: String, wait: Duration) -> Unavailable {
        let now = self.clock.now();
        Unavailable {
            why: WaitReason { reason: reason.into(), message },
            not_before: now.checked_add(wait).unwrap_or(now),
        }
    }
}

fn usable(image: v1::Image) -> Image {
    Image { id: image.id, user: ImageUser { uid: image.uid.map(|u| u.value), name: image.username } }
}

/// `nginx` means `nginx:latest`.
pub(crate) fn with_default_tag(image: &str) -> String {
    let last = image.rsplit('/').next().unwrap_or(image);
    if image.contains('@') || last.contains(':') { image.to_owned() } else { format!("{image}:latest") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_tag_is_latest() {
        let check = |image: &str, full: &str| assert_eq!(with_default_tag(image), full);
        check("nginx", "nginx:latest");
        check("nginx:1.25", "nginx:1.25");
        check("localhost:5000/nginx", "localhost:5000/nginx:latest");
        check("nginx@sha256:0", "nginx@sha256:0");
    }
}
