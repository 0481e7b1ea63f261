//! Images nobody uses: which of them go when the disk fills up, or when they have not been used for long.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use ferry_client::EventType;
use ferry_cri::v1;
use jiff::Timestamp;
use parking_lot::Mutex;

use crate::context::Context;
use crate::metrics::Counter;
use crate::node::{self, capacity};

/// When images are removed. Upstream's figures by default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageCollection {
    /// At so many percent of the disk in use, images are removed until it is `low_percent`; 100 turns it off.
    pub high_percent: u8,
    pub low_percent: u8,
    /// A younger image may be about to be used.
    pub minimum_age: Duration,
    /// Unused for longer than this, an image goes whatever the disk; zero turns it off.
    pub maximum_age: Duration,
}

impl Default for ImageCollection {
    fn default() -> Self {
        Self { high_percent: 85, low_percent: 80, minimum_age: Duration::from_secs(120), maximum_age: Duration::ZERO }
    }
}

#[derive(Clone, Debug, PartialEq)]
struct Known {
    id: String,
    size: u64,
    pinned: bool,
    first_seen: Timestamp,
    last_used: Option<Timestamp>,
}

/// What is known of the images of the node.
pub(crate) struct Images {
    known: Mutex<HashMap<String, Known>>,
    began: Timestamp,
    failed_before: Mutex<bool>,
}

impl Images {
    pub(crate) fn new(began: Timestamp) -> Self {
        Self { known: Mutex::default(), began, failed_before: Mutex::default() }
    }
}

/// Those that may go, the longest unused first.
fn in_order(known: impl IntoIterator<Item = Known>, in_use: &HashSet<String>) -> Vec<Known> {
    let unused = known.into_iter().filter(|image| !image.pinned && !in_use.contains(&image.id));
    let mut unused: Vec<Known> = unused.collect();
    unused.sort_by(|one, other| {
        (one.last_used, one.first_seen, &one.id).cmp(&(other.last_used, other.first_seen, &other.id))
    });
    unused
}

fn age(since: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(since)).unwrap_or(Duration::ZERO)
}

/// Takes those out that have not been used for too long. Nothing is old before the kubelet itself is.
fn take_old(images: &mut Vec<Known>, maximum: Duration, began: Timestamp, now: Timestamp) -> Vec<Known> {
    if maximum.is_zero() || age(began, now) <= maximum {
        return Vec::new();
    }
    let is_old = |image: &Known| age(image.last_used.unwrap_or(Timestamp::UNIX_EPOCH), now) > maximum;
    let (old, young) = std::mem::take(images).into_iter().partition(is_old);
    *images = young;
    old
}

/// Those to remove for so many bytes.
fn for_space(images: Vec<Known>, bytes: u64, minimum_age: Duration, now: Timestamp) -> Vec<Known> {
    let mut freed = 0_u64;
    let mut chosen = Vec::new();
    for image in images.into_iter().filter(|image| age(image.first_seen, now) >= minimum_age) {
        if freed >= bytes {
            break;
        }
        freed = freed.saturating_add(image.size);
        chosen.push(image);
    }
    chosen
}

/// How many bytes have to be freed on a disk of this size; none when there is room enough.
fn wanted(settings: &ImageCollection, size: u64, free: u64, enough_room: Option<u64>) -> Option<(u64, u64)> {
    let free = free.min(size);
    let used_percent = 100 - free.saturating_mul(100).checked_div(size)?;
    if used_percent < settings.high_percent.into() || enough_room.is_some_and(|enough| free >= enough) {
        return None;
    }
    let target = size / 100 * (100 - u64::from(settings.low_percent.min(100)));
    let target = enough_room.map_or(target, |enough| target.min(enough));
    Some((target.saturating_sub(free), used_percent))
}

/// As upstream prints the size of a disk.
fn printed(bytes: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "one digit is shown")]
    let size = bytes as f64;
    let units = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let (mut scaled, mut unit) = (size / 1024.0, 0);
    while scaled >= 1024.0 && unit + 1 < units.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    format!("{scaled:.1} {}", units[unit])
}

impl Images {
    /// Learns which images there are and which are in use; gives those that may go, the longest unused first.
    async fn look(&self, context: &Context, now: Timestamp) -> Result<Vec<Known>, String> {
        let images = context.runtime.images().await.map_err(|e| e.to_string())?;
        context.images.keep_only(images.iter().map(|image| image.id.clone()).collect(), now).await?;
        let mut in_use = context.runtime.images_in_use().await.map_err(|e| e.to_string())?;
        // A container may name its image by any of its names.
        for image in &images {
            if image.repo_tags.iter().chain(&image.repo_digests).any(|name| in_use.contains(name)) {
                in_use.insert(image.id.clone());
            }
        }
        let sandbox = context.config.sandbox_image.as_deref();
        let keeps = |image: &v1::Image| image.pinned || image.repo_tags.iter().any(|tag| Some(tag.as_str()) == sandbox);
        let mut known = self.known.lock();
        known.retain(|id, _| images.iter().any(|image| image.id == *id));
        for image in &images {
            let fresh = || Known { id: image.id.clone(), size: 0, pinned: false, first_seen: now, last_used: None };
            let one = known.entry(image.id.clone()).or_insert_with(fresh);
            one.size = image.size;
            one.pinned = keeps(image);
            if in_use.contains(&image.id) {
                one.last_used = Some(now);
            }
        }
        Ok(in_order(known.values().cloned(), &in_use))
    }

    async fn remove(&self, context: &Context, images: Vec<Known>, reason: &str) -> (u64, Vec<String>) {
        let (mut freed, mut errors) = (0_u64, Vec::new());
        for image in images {
            tracing::info!(image = image.id, size = image.size, "removing an unused image");
            match context.runtime.remove_image(&image.id).await {
                Ok(()) => {
                    context.metrics.count(Counter::ImagesCollected, &[("reason", reason)]);
                    self.known.lock().remove(&image.id);
                    freed = freed.saturating_add(image.size);
                }
                Err(error) => errors.push(error.to_string()),
            }
        }
        (freed, errors)
    }

    /// Removes every image that nobody uses and that is not brand new.
    pub(crate) async fn remove_unused(&self, context: &Context) -> Result<(), String> {
        let now = context.clock.now();
        let images = self.look(context, now).await?;
        let chosen = for_space(images, u64::MAX, context.config.images.minimum_age, now);
        let (_, errors) = self.remove(context, chosen, "space").await;
        if errors.is_empty() { Ok(()) } else { Err(errors.join(", ")) }
    }

    /// One round: the old ones, then as many as the disk needs.
    pub(crate) async fn collect(&self, context: &Context) {
        let failure = self.try_collect(context).await.err();
        let failed_before = std::mem::replace(&mut *self.failed_before.lock(), failure.is_some());
        let Some(why) = failure else { return };
        tracing::warn!("images not collected: {why}");
        if failed_before {
            // Once may be a passing trouble.
            context.recorder.event_for(node::reference(context), EventType::Warning, "ImageGCFailed", why);
        }
    }

    async fn try_collect(&self, context: &Context) -> Result<(), String> {
        let settings = &context.config.images;
        let now = context.clock.now();
        let mut images = self.look(context, now).await?;
        let old = take_old(&mut images, settings.maximum_age, self.began, now);
        let (_, errors) = self.remove(context, old, "age").await;
        if !errors.is_empty() {
            let age = crate::backoff::go_duration(settings.maximum_age);
            let errors = errors.join(", ");
            return Err(format!(
                "wanted to free images older than {age}, encountered errors in image deletion: {errors}"
            ));
        }
        if settings.high_percent >= 100 {
            return Ok(());
        }
        let disk = capacity::disk(&context.pressure.measures.images(context).await);
        if disk.size == 0 {
            let why = "invalid capacity 0 on image filesystem".to_owned();
            let warn = (EventType::Warning, "InvalidDiskCapacity");
            context.recorder.event_for(node::reference(context), warn.0, warn.1, why.clone());
            return Err(why);
        }
        let enough = context.config.eviction.enough_room;
        let Some((bytes, percent)) = wanted(settings, disk.size, disk.available, enough) else { return Ok(()) };
        let chosen = for_space(images, bytes, settings.minimum_age, now);
        let (freed, errors) = self.remove(context, chosen, "space").await;
        if !errors.is_empty() {
            return Err(format!(
                "wanted to free {bytes} bytes, but freed {freed} bytes space with errors in image deletion: {}",
                errors.join(", ")
            ));
        }
        if freed < bytes {
            let message = format!(
                "Insufficient free disk space on the node's image filesystem ({percent}% of {} used). Failed to free \
                 sufficient space by deleting unused images (freed {freed} bytes). Investigate disk usage, as it could \
                 be used by active images, logs, volumes, or other data.",
                printed(disk.size)
            );
            let warn = (EventType::Warning, "FreeDiskSpaceFailed");
            context.recorder.event_for(node::reference(context), warn.0, warn.1, message.clone());
            return Err(message);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).expect("a time")
    }

    fn image(id: &str, first_seen: i64, last_used: Option<i64>) -> Known {
        Known {
            id: id.into(),
            size: 10,
            pinned: id.starts_with("pinned"),
            first_seen: at(first_seen),
            last_used: last_used.map(at),
        }
    }

    fn ids(images: &[Known]) -> Vec<&str> {
        images.iter().map(|i| i.id.as_str()).collect()
    }

    #[test]
    fn the_longest_unused_go_first_and_the_needed_stay() {
        let all = [
            image("recent", 0, Some(900)),
            image("busy", 0, Some(1000)),
            image("never", 50, None),
            image("never-older", 10, None),
            image("pinned", 0, None),
            image("old", 0, Some(100)),
        ];
        let in_order = in_order(all, &HashSet::from(["busy".to_owned()]));
        assert_eq!(ids(&in_order), ["never-older", "never", "old", "recent"]);
        let check = |bytes: u64, minimum_age: u64, want: &[&str]| {
            let chosen = for_space(in_order.clone(), bytes, Duration::from_secs(minimum_age), at(1000));
            assert_eq!(ids(&chosen), want, "{bytes} {minimum_age}");
        };
        check(0, 0, &[]);
        check(1, 0, &["never-older"]);
        check(11, 0, &["never-older", "never"]);
        check(u64::MAX, 0, &["never-older", "never", "old", "recent"]);
        // `never` was seen first 950 seconds ago.
        check(u64::MAX, 960, &["never-older", "old", "recent"]);
        let old = |maximum: u64, began: i64| {
            let mut images = in_order.clone();
            let old = take_old(&mut images, Duration::from_secs(maximum), at(began), at(1000));
            (ids(&old).join(" "), ids(&images).join(" "))
        };
        assert_eq!(old(500, 0), ("never-older never old".to_owned(), "recent".to_owned()));
        assert_eq!(old(0, 0).0, "");
        assert_eq!(old(500, 600).0, "");
    }

    #[test]
    fn a_full_disk_is_freed_to_the_lower_mark() {
        let settings = ImageCollection::default();
        let check = |size: u64, free: u64, enough: Option<u64>, want: Option<(u64, u64)>| {
            assert_eq!(wanted(&settings, size, free, enough), want, "{size} {free} {enough:?}");
        };
        check(1000, 500, None, None);
        check(1000, 160, None, None);
        check(1000, 150, None, Some((50, 85)));
        check(1000, 0, None, Some((200, 100)));
        check(1000, 100, Some(100), None);
        check(1000, 99, Some(100), Some((1, 91)));
        check(0, 0, None, None);
    }

    #[test]
    fn sizes_print_as_upstream_does() {
        for (bytes, text) in [(12, "12 B"), (1536, "1.5 KiB"), (252 << 30, "252.0 GiB"), (3 << 40, "3.0 TiB")] {
            assert_eq!(printed(bytes), text);
        }
    }
}
