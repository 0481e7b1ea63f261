//! A KubeletConfiguration file: what it says counts where no flag says otherwise.
//!
//! `fields.tsv` says of every field whether it is followed, refused, or accepted without an effect and why.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use ferry_server::configuration;
use ferry_server::server_options::duration;
use serde_json::{Map, Value};

use super::KubeletOptions;

/// What becomes of each field.
const FIELDS: &str = include_str!("fields.tsv");
/// Read together with others.
const ELSEWHERE: [&str; 3] = ["kind", "apiVersion", "mergeDefaultEvictionSettings"];
/// Upstream's hard thresholds, for a file that adds to them.
const DEFAULTS: [(&str, &str); 5] = [
    ("memory.available", "100Mi"),
    ("nodefs.available", "10%"),
    ("nodefs.inodesFree", "5%"),
    ("imagefs.available", "15%"),
    ("imagefs.inodesFree", "5%"),
];

/// Fills in what no flag has set, from a file and from those of a folder. Gives the fields that have no effect here, and why.
pub(super) fn complete(
    options: &mut KubeletOptions,
    file: Option<&Path>,
    folder: Option<&Path>,
) -> Result<Vec<String>> {
    let mut whole: Option<Value> = None;
    let drop_ins = folder.map(drop_ins).transpose()?.unwrap_or_default();
    for path in file.map(Path::to_owned).into_iter().chain(drop_ins) {
        let document = configuration::read(&path, "KubeletConfiguration")?;
        // Each for itself, so that the file with a fault is named.
        take(&mut KubeletOptions::default(), &document).with_context(|| path.display().to_string())?;
        whole = Some(match whole {
            None => document,
            Some(before) => ferry_schema::patch::merge_patch(before, &document)
                .map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))?,
        });
    }
    whole.map_or(Ok(Vec::new()), |whole| take(options, &whole))
}

/// The files of a folder whose names end in `.conf`, in the order of their names: what a later one says counts.
fn drop_ins(folder: &Path) -> Result<Vec<PathBuf>> {
    let failed = || format!("cannot read {}", folder.display());
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(failed)? {
        let path = entry.with_context(failed)?.path();
        if path.extension().is_some_and(|end| end == "conf") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
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
    let mut without_effect = Vec::new();
    for (key, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
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
            "podPidsLimit" => put(&mut options.pod_max_pids, || number(key, value))?,
            "maxPods" => put(&mut options.max_pods, || number(key, value))?,
            "podLogsDir" => put(&mut options.pod_logs_dir, || text(key, value).map(Into::into))?,
            "staticPodPath" => put(&mut options.pod_manifest_path, || text(key, value).map(Into::into))?,
            elsewhere if ELSEWHERE.contains(&elsewhere) => {}
            own if options.file.take(own, value)? => {}
            resource if options.resources.take(resource, value)? => {}
            _ if is_empty(value) => {}
            _ => without_effect.extend(judge(key, value)?),
        }
    }
    Ok(without_effect)
}

/// What v1beta1 takes for a field that is not there.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(_) => false,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty() || duration(text).is_ok_and(|time| time.is_zero()),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.values().all(is_empty),
    }
}

/// An error where the field cannot be followed as it is; what to say where it has no effect.
fn judge(key: &str, value: &Value) -> Result<Option<String>> {
    let row = FIELDS.lines().find(|line| line.split('\t').next() == Some(key));
    let mut columns = row.map(|row| row.split('\t').skip(1)).into_iter().flatten();
    let (verdict, values, why) = (columns.next(), columns.next().unwrap_or_default(), columns.next());
    let why = why.unwrap_or_default();
    match verdict {
        Some("no effect") => Ok(Some(format!("{key} ({why})"))),
        Some("only") => {
            let same = |wanted: &str| serde_json::from_str(wanted).is_ok_and(|wanted: Value| equal(&wanted, value));
            ensure!(values.split(" | ").any(same), "{key}: {value} is not possible here, only {values}: {why}");
            Ok(None)
        }
        Some("refused") => bail!("{key} cannot be set here: {why}"),
        _ => bail!("{key} is not known here"),
    }
}

fn equal(wanted: &Value, given: &Value) -> bool {
    let time = |value: &Value| value.as_str().and_then(|text| duration(text).ok());
    wanted == given || time(wanted).is_some_and(|wanted| time(given) == Some(wanted))
}

pub(super) fn put<T>(place: &mut Option<T>, read: impl FnOnce() -> Result<T>) -> Result<()> {
    let value = read()?;
    place.get_or_insert(value);
    Ok(())
}

pub(super) fn text(key: &str, value: &Value) -> Result<String> {
    value.as_str().map(str::to_owned).with_context(|| format!("{key} is no text: {value}"))
}

pub(super) fn texts(key: &str, value: &Value) -> Result<Vec<String>> {
    let list = value.as_array().with_context(|| format!("{key} is no list: {value}"))?;
    list.iter().map(|item| text(key, item)).collect()
}

pub(super) fn time(key: &str, value: &Value) -> Result<std::time::Duration> {
    duration(&text(key, value)?).map_err(|why| anyhow::anyhow!("{key}: {why}"))
}

pub(super) fn number<T: TryFrom<i64>>(key: &str, value: &Value) -> Result<T> {
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
            "containerLogMaxSize": "1Mi", "cgroupsPerQOS": true, "contentType": "application/json", "featureGates": {},
        }));
        let without_effect = take(&mut options, &file).expect("taken");
        assert_eq!(without_effect, ["contentType (the API server is spoken to in JSON)"]);
        assert_eq!(options.eviction_hard.as_deref(), Some("memory.available<1Gi"));
        assert_eq!(options.eviction_pressure_transition_period, Some(std::time::Duration::from_secs(60)));
        assert_eq!((options.max_pods, options.image_gc_high_threshold), (Some(7), Some(90)));
        assert_eq!(options.pod_manifest_path.as_deref(), Some(Path::new("/etc/pods")));
        assert!(options.check().is_ok());
    }

    #[test]
    fn files_of_a_folder_add_to_the_file_in_the_order_of_their_names() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, fields: Value| {
            let path = folder.path().join(name);
            std::fs::write(&path, configuration(fields).to_string()).expect("written");
            path
        };
        let file = write("kubelet.yaml", json!({"maxPods": 50, "evictionHard": {"memory.available": "1Gi"}}));
        write("20-more.conf", json!({"maxPods": 70, "containerLogMaxFiles": 3}));
        write("10-less.conf", json!({"maxPods": 60, "evictionHard": {"pid.available": "5%"}}));
        write("30-notes.txt", json!({"maxPods": 80}));
        let mut options = KubeletOptions::default();
        complete(&mut options, Some(&file), Some(folder.path())).expect("taken");
        assert_eq!((options.max_pods, options.container_log_max_files), (Some(70), Some(3)));
        assert_eq!(options.eviction_hard.as_deref(), Some("memory.available<1Gi,pid.available<5%"));
        let mut options = KubeletOptions { max_pods: Some(7), ..KubeletOptions::default() };
        complete(&mut options, None, Some(folder.path())).expect("taken");
        assert_eq!((options.max_pods, options.container_log_max_files), (Some(7), Some(3)));
        write("40-wrong.conf", json!({"maxPods": "many"}));
        let error = complete(&mut options, None, Some(folder.path())).expect_err("refused");
        let error = format!("{error:#}");
        assert!(error.contains("40-wrong.conf") && error.contains("maxPods"), "{error}");
        assert!(complete(&mut options, None, Some(&folder.path().join("none"))).is_err());
    }

    /// A value of the type that is neither empty nor what a field of this name has here.
    fn sample(kind: &str) -> Value {
        match kind {
            "bool" => json!(true),
            "string" => json!("x"),
            "duration" => json!("7s"),
            "int" | "number" => json!(7),
            kind if kind.starts_with("[]") => json!([sample(&kind[2..])]),
            _ => json!({"x": "y"}),
        }
    }

    #[test]
    fn every_field_is_followed_or_refused_or_said_to_have_no_effect() {
        for row in FIELDS.lines().filter(|line| !line.starts_with('#')) {
            let mut columns = row.split('\t');
            let [key, verdict, values, why] = [(); 4].map(|()| columns.next().unwrap_or_default());
            let kind = configuration::field_type("KubeletConfiguration", key).unwrap_or_else(|| panic!("{key}"));
            let taken = |value: Value| take(&mut KubeletOptions::default(), &configuration(json!({key: value})));
            let empty = taken(Value::Null);
            match verdict {
                // That it is read shows in what is wrong with a value that nothing has.
                "followed" if ELSEWHERE.contains(&key) => {}
                "followed" => {
                    let error = taken(json!([[]])).expect_err(key).to_string();
                    assert!(!error.contains("is not known here"), "{error}");
                }
                "no effect" => {
                    assert_eq!(taken(sample(kind)).expect(key), [format!("{key} ({why})")]);
                    assert!(empty.expect(key).is_empty());
                }
                "refused" => {
                    let error = taken(sample(kind)).expect_err(key).to_string();
                    assert_eq!(error, format!("{key} cannot be set here: {why}"));
                    assert!(empty.expect(key).is_empty());
                }
                "only" => {
                    for value in values.split(" | ") {
                        let value: Value = serde_json::from_str(value).expect(key);
                        assert!(taken(value).expect(key).is_empty());
                    }
                    let other = if values == "true" { json!(false) } else { sample(kind) };
                    let error = taken(other).expect_err(key).to_string();
                    assert!(error.contains("is not possible here, only") && error.ends_with(why), "{error}");
                }
                other => panic!("{key}: {other}"),
            }
        }
    }

    #[test]
    fn every_field_of_the_type_has_a_row() {
        let rows: Vec<&str> = FIELDS.lines().filter(|line| !line.starts_with('#')).collect();
        let mut listed: Vec<&str> = rows.iter().filter_map(|row| row.split('\t').next()).collect();
        let mut known = configuration::fields("KubeletConfiguration");
        listed.sort_unstable();
        known.sort_unstable();
        assert_eq!(listed, known);
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
