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

pub(super) struct Policy {
    pub(super) enforce: LevelVersion,
    pub(super) warn: LevelVersion,
    pub(super) audit: LevelVersion,
}

const PREFIX: &str = "pod-security.kubernetes.io/";

impl Policy {
    /// There is always a policy: labels that cannot be read enforce the strictest level and warn of nothing.
    pub(super) fn of(labels: &Map<String, Value>) -> (Self, FieldErrors) {
        let mut errors = FieldErrors::new();
        let mut read = |mode: &str, on_error: Level| {
            let mut result = LevelVersion { level: Level::Privileged, version: Version::Latest };
            let label = format!("{PREFIX}{mode}");
            let level = labels.get(&label).and_then(Value::as_str);
            if let Some(text) = level {
                result.level = match text {
                    "privileged" => Level::Privileged,
                    "baseline" => Level::Baseline,
                    "restricted" => Level::Restricted,
                    _ => {
                        let path = Path::new("metadata.labels").key(&label);
                        errors.push(FieldError::invalid(
                            &path,
                            text,
                            "must be one of privileged, baseline, restricted",
                        ));
                        on_error
                    }
                };
            }
            let label = format!("{PREFIX}{mode}-version");
            if let Some(text) = labels.get(&label).and_then(Value::as_str) {
                result.version = parse_version(text).unwrap_or_else(|| {
                    let path = Path::new("metadata.labels").key(&label);
                    errors.push(FieldError::invalid(&path, text, "must be \"latest\" or \"v1.x\""));
                    Version::Latest
                });
            }
            (result, level.is_some())
        };
        let (enforce, enforced) = read("enforce", Level::Restricted);
        let (audit, _) = read("audit", Level::Privileged);
        let (mut warn, warned) = read("warn", Level::Privileged);
        // Workloads are warned of what their pods will be refused for.
        if enforced && !warned && enforce.level > warn.level {
            warn = enforce;
        }
        (Self { enforce, warn, audit }, errors)
    }
}

fn parse_version(text: &str) -> Option<Version> {
    if text == "latest" {
        return Some(Version::Latest);
    }
    let digits = text.strip_prefix("v1.")?;
    let canonical = digits == "0" || (!digits.starts_with('0') && digits.bytes().all(|b| b.is_ascii_digit()));
    digits.parse().ok().filter(|_| canonical).map(Version::Minor)
}
