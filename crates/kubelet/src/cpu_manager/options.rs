//! The policies of the CPU manager and the options of the static one.

use std::collections::BTreeMap;

/// `none` leaves CPUs to the kernel; `static` gives them out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CpuManagerPolicy {
    None,
    Static(StaticOptions),
}

/// Options of the static policy, and how they were written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StaticOptions {
    pub(crate) full_cores_only: bool,
    pub(crate) across_nodes: bool,
    pub(crate) strict_reservation: bool,
    pub(crate) by_cache: bool,
    pub(crate) by_socket: bool,
    pub(crate) across_cores: bool,
    pub(crate) given: BTreeMap<String, String>,
}

const FULL_CORES: &str = "full-pcpus-only";
const ACROSS_NODES: &str = "distribute-cpus-across-numa";
const STRICT: &str = "strict-cpu-reservation";
const BY_CACHE: &str = "prefer-align-cpus-by-uncorecache";
const BY_SOCKET: &str = "align-by-socket";
const ACROSS_CORES: &str = "distribute-cpus-across-cores";
/// Behind the feature gate CPUManagerPolicyAlphaOptions, which is off.
const ALPHA: [&str; 2] = [BY_SOCKET, ACROSS_CORES];

impl CpuManagerPolicy {
    pub(crate) fn parse(name: &str, options: &BTreeMap<String, String>, alpha: bool) -> Result<Self, String> {
        match name {
            "none" if options.is_empty() => Ok(Self::None),
            "none" => {
                let given: Vec<String> = options.iter().map(|(name, value)| format!("{name}={value}")).collect();
                Err(format!("new none policy error: None policy: received unsupported options={}", given.join(",")))
            }
            "static" => StaticOptions::parse(options, alpha)
                .map(Self::Static)
                .map_err(|why| format!("new static policy error: {why}")),
            _ => Err(format!("unknown policy: {name:?}")),
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Static(_) => "static",
        }
    }
}

impl StaticOptions {
    fn parse(given: &BTreeMap<String, String>, alpha: bool) -> Result<Self, String> {
        let mut options = Self { given: given.clone(), ..Self::default() };
        for (name, value) in given {
            let place = match name.as_str() {
                FULL_CORES => &mut options.full_cores_only,
                ACROSS_NODES => &mut options.across_nodes,
                STRICT => &mut options.strict_reservation,
                BY_CACHE => &mut options.by_cache,
                name if ALPHA.contains(&name) && !alpha => {
                    return Err(format!(
                        "CPU Manager Policy Alpha-level Options not enabled, but option {name:?} provided"
                    ));
                }
                BY_SOCKET => &mut options.by_socket,
                ACROSS_CORES => &mut options.across_cores,
                _ => return Err(format!("unknown CPU Manager Policy option: {name:?}")),
            };
            *place = match value.as_str() {
                "1" | "t" | "T" | "true" | "TRUE" | "True" => true,
                "0" | "f" | "F" | "false" | "FALSE" | "False" => false,
                _ => return Err(format!("bad value for option {name:?}: {value:?} is neither true nor false")),
            };
        }
        for (one, other, both) in [
            (FULL_CORES, ACROSS_CORES, options.full_cores_only && options.across_cores),
            (ACROSS_NODES, ACROSS_CORES, options.across_nodes && options.across_cores),
            (BY_CACHE, ACROSS_CORES, options.by_cache && options.across_cores),
            (BY_CACHE, ACROSS_NODES, options.by_cache && options.across_nodes),
        ] {
            if both {
                return Err(format!("static policy options {one} and {other} can not be used at the same time"));
            }
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests;
