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
mod tests {
    use super::*;

    #[test]
    fn options_are_taken_or_refused_by_name() {
        let check = |policy: &str, given: &[(&str, &str)], want: Result<[bool; 4], &str>| {
            let given = given.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            let got = CpuManagerPolicy::parse(policy, &given, false).map(|policy| match policy {
                CpuManagerPolicy::None => [false; 4],
                CpuManagerPolicy::Static(o) => [o.full_cores_only, o.across_nodes, o.strict_reservation, o.by_cache],
            });
            assert_eq!(got.as_ref().map_err(String::as_str), want.as_ref().map_err(|why| *why), "{policy} {given:?}");
        };
        check("none", &[], Ok([false; 4]));
        check("static", &[], Ok([false; 4]));
        check("static", &[(FULL_CORES, "true"), (STRICT, "1")], Ok([true, false, true, false]));
        check("static", &[(ACROSS_NODES, "True"), (BY_CACHE, "false")], Ok([false, true, false, false]));
        check("dynamic", &[], Err("unknown policy: \"dynamic\""));
        check(
            "none",
            &[(STRICT, "true")],
            Err("new none policy error: None policy: received unsupported options=strict-cpu-reservation=true"),
        );
        check(
            "static",
            &[("fast", "true")],
            Err("new static policy error: unknown CPU Manager Policy option: \"fast\""),
        );
        check(
            "static",
            &[(FULL_CORES, "yes")],
            Err("new static policy error: bad value for option \"full-pcpus-only\": \"yes\" is neither true nor false"),
        );
        check(
            "static",
            &[("align-by-socket", "true")],
            Err("new static policy error: CPU Manager Policy Alpha-level Options not enabled, but option \
                 \"align-by-socket\" provided"),
        );
        check(
            "static",
            &[(ACROSS_NODES, "true"), (BY_CACHE, "true")],
            Err("new static policy error: static policy options prefer-align-cpus-by-uncorecache and \
                 distribute-cpus-across-numa can not be used at the same time"),
        );
    }

    #[test]
    fn alpha_options_need_their_gate() {
        let given = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), "true".to_owned())).collect();
        let check = |names: &[&str], want: Result<(bool, bool), &str>| {
            let got =
                StaticOptions::parse(&given(names), true).map(|options| (options.by_socket, options.across_cores));
            assert_eq!(got.as_ref().map_err(String::as_str), want.as_ref().map_err(|why| *why), "{names:?}");
        };
        check(&ALPHA, Ok((true, true)));
        check(
            &[FULL_CORES, ACROSS_CORES],
            Err(
                "static policy options full-pcpus-only and distribute-cpus-across-cores can not be used at the same time",
            ),
        );
        check(
            &[ACROSS_NODES, ACROSS_CORES],
            Err(
                "static policy options distribute-cpus-across-numa and distribute-cpus-across-cores can not be used at the \
                 same time",
            ),
        );
    }
}
