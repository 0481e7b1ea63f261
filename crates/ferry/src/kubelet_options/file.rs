//! A KubeletConfiguration file: what it says counts where no flag says otherwise.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value};

use super::KubeletOptions;
use crate::configuration;
use crate::server_options::duration;

/// Read elsewhere.
const SILENT: [&str; 3] = ["kind", "apiVersion", "mergeDefaultEvictionSettings"];
/// What is so here anyway, and only so.
const ALWAYS: [(&str, &str); 6] = [
    ("cpuManagerPolicy", "none"),
    ("memoryManagerPolicy", "None"),
    ("topologyManagerPolicy", "none"),
    ("cgroupDriver", "cgroupfs"),
    ("registerNode", "true"),
    ("cgroupsPerQOS", "true"),
];
/// Upstream's hard thresholds, for a file that adds to them.
const DEFAULTS: [(&str, &str); 5] = [
    ("memory.available", "100Mi"),
    ("nodefs.available", "10%"),
    ("nodefs.inodesFree", "5%"),
    ("imagefs.available", "15%"),
    ("imagefs.inodesFree", "5%"),
];

/// Fills in what no flag has set. Gives the fields that are not followed here.
pub(super) fn complete(options: &mut KubeletOptions, path: &Path) -> Result<Vec<String>> {
    let document = configuration::read(path, "KubeletConfiguration")?;
    take(options, &document).with_context(|| path.display().to_string())
}

fn take(options: &mut KubeletOptions, document: &Value) -> Result<Vec<String>> {
    let kind = document["kind"].as_str().unwrap_or_default();
    let version = document["apiVersion"].as_str().unwrap_or_default();
    ensure!(
        (kind, version) == ("KubeletConfiguration", "kubelet.config.k8s.io/v1beta1"),
        "it is a {kind:?} of {version:?} and no KubeletConfiguration of kubelet.config.k8s.io/v1beta1"
    );
    let none = Map::new();
    let fields = document.as_object().unwrap_or(&none);
    let merges = fields.get("mergeDefaultEvictionSettings") == Some(&Value::Bool(true));
    let mut ignored = Vec::new();
    for (key, value) in fields {
        match key.as_str() {
            "evictionHard" => {
                let defaults: &[(&str, &str)] = if merges { &DEFAULTS } else { &[] };
                put(&mut options.eviction_hard, || pairs(key, value, '<', defaults))?;
            }
            "evictionSoft" => put(&mut options.eviction_soft, || pairs(key, value, '<', &[]))?,
            "evictionSoftGracePeriod" => {
                put(&mut options.eviction_soft_grace_period, || pairs(key, value, '=', &[]))?;
            }
            "evictionMinimumReclaim" => put(&mut options.eviction_minimum_reclaim, || pairs(key, value, '=', &[]))?,
            "evictionPressureTransitionPeriod" => {
                put(&mut options.eviction_pressure_transition_period, || time(key, value))?;
            }
            "evictionMaxPodGracePeriod" => put(&mut options.eviction_max_pod_grace_period, || number(key, value))?,
            "imageGCHighThresholdPercent" => put(&mut options.image_gc_high_threshold, || percent(key, value))?,
            "imageGCLowThresholdPercent" => put(&mut options.image_gc_low_threshold, || percent(key, value))?,
            "imageMinimumGCAge" => put(&mut options.minimum_image_ttl_duration, || time(key, value))?,
            "imageMaximumGCAge" => put(&mut options.image_maximum_gc_age, || time(key, value))?,
            "containerLogMaxSize" => put(&mut options.container_log_max_size, || text(key, value))?,
            "containerLogMaxFiles" => put(&mut options.container_log_max_files, || number(key, value))?,
            "allowedUnsafeSysctls" => put(&mut options.allowed_unsafe_sysctls, || texts(key, value))?,
            "imagePullCredentialsVerificationPolicy" => {
                put(&mut options.image_pull_credentials_verification_policy, || text(key, value))?;
            }
            "preloadedImagesVerificationAllowlist" => {
                put(&mut options.preloaded_images_verification_allowlist, || texts(key, value))?;
            }
            "maxPods" => put(&mut options.max_pods, || number(key, value))?,
            "staticPodPath" => put(&mut options.pod_manifest_path, || text(key, value).map(Into::into))?,
            silent if SILENT.contains(&silent) => {}
            fixed
                if ALWAYS.iter().any(|(name, word)| *name == fixed && value.to_string().trim_matches('"') == *word) => {
            }
            other => ignored.push(other.to_owned()),
        }
    }
    Ok(ignored)
}

fn put<T>(place: &mut Option<T>, read: impl FnOnce() -> Result<T>) -> Result<()> {
    let value = read()?;
    place.get_or_insert(value);
    Ok(())
}

fn text(key: &str, value: &Value) -> Result<String> {
    value.as_str().map(str::to_owned).with_context(|| format!("{key} is no text: {value}"))
}

fn texts(key: &str, value: &Value) -> Result<Vec<String>> {
    let list = value.as_array().with_context(|| format!("{key} is no list: {value}"))?;
    list.iter().map(|item| text(key, item)).collect()
}

fn time(key: &str, value: &Value) -> Result<std::time::Duration> {
    duration(&text(key, value)?).map_err(|why| anyhow::anyhow!("{key}: {why}"))
}

fn number<T: TryFrom<i64>>(key: &str, value: &Value) -> Result<T> {
    value.as_i64().and_then(|n| T::try_from(n).ok()).with_context(|| format!("{key} is no number that fits: {value}"))
}

fn percent(key: &str, value: &Value) -> Result<u8> {
    let percent = number(key, value)?;
    ensure!(percent <= 100, "{key} is no percentage: {value}");
    Ok(percent)
}

/// A map as the flag would give it.
fn pairs(key: &str, value: &Value, separator: char, defaults: &[(&str, &str)]) -> Result<String> {
    let map = value.as_object().with_context(|| format!("{key} is no map: {value}"))?;
    let mut all = Vec::new();
    for (name, amount) in defaults.iter().filter(|(name, _)| !map.contains_key(*name)) {
        all.push(format!("{name}{separator}{amount}"));
    }
    for (name, amount) in map {
        all.push(format!("{name}{separator}{}", text(&format!("{key}[{name}]"), amount)?));
    }
    Ok(all.join(","))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn configuration(mut fields: Value) -> Value {
        fields["kind"] = json!("KubeletConfiguration");
        fields["apiVersion"] = json!("kubelet.config.k8s.io/v1beta1");
        fields
    }

    #[test]
    fn a_file_says_what_no_flag_says() {
        let mut options = KubeletOptions { max_pods: Some(7), ..KubeletOptions::default() };
        let file = configuration(json!({
            "evictionHard": {"memory.available": "1Gi"}, "evictionPressureTransitionPeriod": "1m", "maxPods": 50,
            "imageGCHighThresholdPercent": 90, "imageMaximumGCAge": "12h0m0s", "staticPodPath": "/etc/pods",
            "containerLogMaxSize": "1Mi", "cpuManagerPolicy": "static", "cgroupsPerQOS": true,
        }));
        assert_eq!(take(&mut options, &file).expect("taken"), ["cpuManagerPolicy"]);
        assert_eq!(options.eviction_hard.as_deref(), Some("memory.available<1Gi"));
        assert_eq!(options.eviction_pressure_transition_period, Some(std::time::Duration::from_secs(60)));
        assert_eq!((options.max_pods, options.image_gc_high_threshold), (Some(7), Some(90)));
        assert_eq!(options.pod_manifest_path.as_deref(), Some(Path::new("/etc/pods")));
        assert!(options.check().is_ok());
    }

    #[test]
    fn thresholds_may_add_to_the_defaults() {
        let mut options = KubeletOptions::default();
        let hard = json!({"evictionHard": {"memory.available": "1Gi"}, "mergeDefaultEvictionSettings": true});
        take(&mut options, &configuration(hard)).expect("taken");
        let hard = options.eviction_hard.expect("thresholds");
        assert!(hard.contains("nodefs.available<10%") && hard.contains("memory.available<1Gi"), "{hard}");
        assert!(!hard.contains("100Mi"), "{hard}");
    }

    #[test]
    fn a_wrong_file_is_told_what_is_wrong() {
        let refused = |document: Value, why: &str| {
            let error = take(&mut KubeletOptions::default(), &document).expect_err("refused");
            assert!(error.to_string().contains(why), "{error}");
        };
        refused(json!({"kind": "Pod"}), "no KubeletConfiguration");
        refused(json!(null), "no KubeletConfiguration");
        refused(configuration(json!({"maxPods": "many"})), "maxPods is no number that fits: \"many\"");
        refused(
            configuration(json!({"evictionHard": {"memory.available": 5}})),
            "evictionHard[memory.available] is no text",
        );
        refused(configuration(json!({"imageGCHighThresholdPercent": 101})), "is no percentage");
        refused(configuration(json!({"imageMinimumGCAge": "2 minutes"})), "is no duration");
    }
}
