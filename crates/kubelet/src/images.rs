//! Images: whether one is there, pulling it when it is not, and waiting after a failure.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ferry_client::EventType;
use ferry_cri::v1;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Secret};
use parking_lot::Mutex;

use crate::backoff::{Backoff, go_duration};
use crate::credentials;
use crate::events::PodEvents;
use crate::runtime::Runtime;
use crate::spec::security::ImageUser;
use crate::status::WaitReason;

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
}

impl Images {
    pub(crate) fn new(runtime: Arc<dyn Runtime>) -> Self {
        Self { runtime, pulling: Mutex::default() }
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
        let present = match self.runtime.image(&image).await {
            Ok(found) => found,
            Err(error) => {
                let message = format!("Failed to inspect image {asked:?}: {error}");
                say(EventType::Warning, "InspectFailed", message.clone());
                return Err(unavailable("ImageInspectError", message, Duration::from_secs(10)));
            }
        };
        if let Some(found) = present.filter(|_| policy != "Always") {
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
            return Err(unavailable("ErrImageNeverPull", message, Duration::from_secs(30)));
        }
        let now = Timestamp::now();
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
        match self.pull(&image, policy, secrets, sandbox).await {
            Ok((found, pulling)) => {
                let (pulled, waited) = (go_duration(pulling), go_duration(started.elapsed()));
                let size = found.size;
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
                let now = Timestamp::now();
                let backoff = Backoff::next(backoffs.get(asked).map(|(b, _)| *b), now, now);
                backoffs.insert(asked.to_owned(), (backoff, format!("ErrImagePull: {error}")));
                Err(unavailable("ErrImagePull", error, NOTICE))
            }
        }
    }

    async fn pull(
        &self,
        image: &str,
        policy: &str,
        secrets: &[Arc<Secret>],
        sandbox: &v1::PodSandboxConfig,
    ) -> Result<(v1::Image, Duration), String> {
        let turn = self.pulling.lock().entry(image.to_owned()).or_default().clone();
        let result = {
            let _turn = turn.lock().await;
            let started = Instant::now();
            // Another pod may have pulled it while this one waited for its turn.
            let found = if policy == "Always" { None } else { self.runtime.image(image).await.ok().flatten() };
            match found {
                Some(found) => Ok((found, started.elapsed())),
                None => self.pull_with_credentials(image, secrets, sandbox).await.map(|i| (i, started.elapsed())),
            }
        };
        let mut pulling = self.pulling.lock();
        // Two: the table's and ours.
        if pulling.get(image).is_some_and(|lock| Arc::strong_count(lock) <= 2) {
            pulling.remove(image);
        }
        result
    }

    async fn pull_with_credentials(
        &self,
        image: &str,
        secrets: &[Arc<Secret>],
        sandbox: &v1::PodSandboxConfig,
    ) -> Result<v1::Image, String> {
        let mut tries: Vec<Option<v1::AuthConfig>> =
            credentials::matching(image, secrets).into_iter().map(Some).collect();
        if tries.is_empty() {
            tries.push(None);
        }
        let mut failure = String::new();
        for auth in tries {
            let request = v1::PullImageRequest {
                image: Some(v1::ImageSpec { image: image.to_owned(), ..v1::ImageSpec::default() }),
                auth,
                sandbox_config: Some(sandbox.clone()),
            };
            match self.runtime.pull(request).await {
                Ok(reference) => {
                    let found = self.runtime.image(&reference).await.map_err(|e| e.to_string())?;
                    return found.ok_or_else(|| format!("image {image:?} is gone right after its pull"));
                }
                Err(error) => failure = error.to_string(),
            }
        }
        Err(failure)
    }
}

fn unavailable(reason: &str, message: String, wait: Duration) -> Unavailable {
    let now = Timestamp::now();
    Unavailable { why: WaitReason { reason: reason.into(), message }, not_before: now.checked_add(wait).unwrap_or(now) }
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
