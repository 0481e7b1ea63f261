//! Which level applies: the labels of a namespace.

use std::fmt;

use ferry_meta::{FieldError, FieldErrors, Path};
use serde_json::{Map, Value};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Privileged,
    Baseline,
    Restricted,
}

/// A minor version of Kubernetes, or the latest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    Minor(u32),
    Latest,
}

impl Version {
    /// Whether rules of that minor version are in force.
    pub(super) fn has(self, minor: u32) -> bool {
        match self {
            Self::Latest => true,
            Self::Minor(own) => own >= minor,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LevelVersion {
    pub(super) level: Level,
    pub(super) version: Version,
}

impl fmt::Display for LevelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.level {
            Level::Privileged => "privileged",
            Level::Baseline => "baseline",
            Level::Restricted => "restricted",
        })?;
        match self.version {
            Version::Latest => f.write_str(":latest"),
            Version::Minor(minor) => write!(f, ":v1.{minor}"),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Policy {
    pub(super) enforce: LevelVersion,
    pub(super) warn: LevelVersion,
    pub(super) audit: LevelVersion,
}

const PREFIX: &str = "pod-security.kubernetes.io/";
const LEVELS: &str = "must be one of privileged, baseline, restricted";
const VERSIONS: &str = "must be \"latest\" or \"v1.x\"";

impl Default for Policy {
    /// Everything is allowed.
    fn default() -> Self {
        let open = LevelVersion { level: Level::Privileged, version: Version::Latest };
        Self { enforce: open, warn: open, audit: open }
    }
}

impl Policy {
    /// What a configuration file says of namespaces that say nothing.
    pub(super) fn of_defaults(defaults: &Value) -> Result<Self, String> {
        let read = |mode: &str| -> Result<LevelVersion, String> {
            let text = |key: &str, default| match ferry_meta::object::text(defaults, &format!("/{key}")) {
                "" => default,
                text => text.to_owned(),
            };
            let (level, version) =
                (text(mode, "privileged".to_owned()), text(&format!("{mode}-version"), "latest".to_owned()));
            Ok(LevelVersion {
                level: parse_level(&level)
                    .ok_or_else(|| format!("defaults.{mode}: Invalid value: {level:?}: {LEVELS}"))?,
                version: parse_version(&version)
                    .ok_or_else(|| format!("defaults.{mode}-version: Invalid value: {version:?}: {VERSIONS}"))?,
            })
        };
        Ok(Self { enforce: read("enforce")?, warn: read("warn")?, audit: read("audit")? })
    }

    /// There is always a policy: labels that cannot be read enforce the strictest level and warn of nothing.
    pub(super) fn of(labels: &Map<String, Value>, defaults: Self) -> (Self, FieldErrors) {
        let mut errors = FieldErrors::new();
        let mut read = |mode: &str, mut result: LevelVersion, on_error: Level| {
            let (mut levelled, mut versioned) = (false, false);
            let label = format!("{PREFIX}{mode}");
            if let Some(text) = labels.get(&label).and_then(Value::as_str) {
                let level = parse_level(text);
                levelled = level.is_some() || mode != "enforce";
                result.level = level.unwrap_or_else(|| {
                    errors.push(FieldError::invalid(&Path::new("metadata.labels").key(&label), text, LEVELS));
                    on_error
                });
            }
            let label = format!("{PREFIX}{mode}-version");
            if let Some(text) = labels.get(&label).and_then(Value::as_str) {
                versioned = true;
                result.version = parse_version(text).unwrap_or_else(|| {
                    errors.push(FieldError::invalid(&Path::new("metadata.labels").key(&label), text, VERSIONS));
                    Version::Latest
                });
            }
            (result, levelled, versioned)
        };
        let (enforce, enforced, _) = read("enforce", defaults.enforce, Level::Restricted);
        let (audit, ..) = read("audit", defaults.audit, Level::Privileged);
        let (mut warn, warned, own_version) = read("warn", defaults.warn, Level::Privileged);
        // Workloads are warned of what their pods will be refused for.
        if enforced && !warned && enforce.level > warn.level {
            warn.level = enforce.level;
            if !own_version {
                warn.version = enforce.version;
            }
        }
        (Self { enforce, warn, audit }, errors)
    }
}

fn parse_level(text: &str) -> Option<Level> {
    Some(match text {
        "privileged" => Level::Privileged,
        "baseline" => Level::Baseline,
        "restricted" => Level::Restricted,
        _ => return None,
    })
}

fn parse_version(text: &str) -> Option<Version> {
    if text == "latest" {
        return Some(Version::Latest);
    }
    let digits = text.strip_prefix("v1.")?;
    let canonical = digits == "0" || (!digits.starts_with('0') && digits.bytes().all(|b| b.is_ascii_digit()));
    digits.parse().ok().filter(|_| canonical).map(Version::Minor)
}
