//! `kubernetes`: how the names of the cluster are answered.

use hickory_proto::rr::Name;

use super::{Fallthrough, Words, zones};
use crate::answer::Zone;
use crate::corefile::{CorefileError, Directive};
use crate::settings::Surroundings;

/// Seconds a positive answer may be kept, where nothing else is said.
const TTL: u32 = 5;
const LONGEST_TTL: u32 = 3600;

#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) ttl: u32,
    /// Names such as `10-244-0-5.default.pod`.
    pub(crate) pods: bool,
    /// Names of single endpoints.
    pub(crate) endpoints: bool,
    pub(crate) endpoint_pod_names: bool,
    pub(crate) ignore_empty_service: bool,
    /// Only these, where any is named.
    pub(crate) namespaces: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            ttl: TTL,
            pods: false,
            endpoints: true,
            endpoint_pod_names: false,
            ignore_empty_service: false,
            namespaces: Vec::new(),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Kubernetes {
    pub(crate) zones: Vec<Zone>,
    /// `in-addr.arpa`, `ip6.arpa` and what is below.
    reverse: Vec<Name>,
    pub(crate) fallthrough: Fallthrough,
}

impl Kubernetes {
    pub(crate) fn read(
        directive: &Directive,
        surroundings: &Surroundings,
        block: &[Name],
        complaints: &mut Vec<String>,
    ) -> Result<Self, CorefileError> {
        let words = Words::of(directive);
        let (mut options, mut fallthrough) = (Options::default(), Fallthrough::default());
        for line in &directive.lines {
            match words.at(line, 0)? {
                "ttl" => {
                    options.ttl = words.number(words.at(line, 1)?)?;
                    if options.ttl > LONGEST_TTL {
                        return Err(words.wrong(format_args!("ttl must be between 0 and {LONGEST_TTL}")));
                    }
                }
                "pods" => match words.at(line, 1)? {
                    "disabled" => options.pods = false,
                    "insecure" => options.pods = true,
                    "verified" => {
                        options.pods = false;
                        complaints.push(format!(
                            "line {}: kubernetes: pods verified is not known: names of pods are not answered",
                            directive.line
                        ));
                    }
                    other => return Err(words.wrong(format_args!("pods {other:?} is none of disabled and insecure"))),
                },
                "fallthrough" => fallthrough = Fallthrough::read(&line[1..], directive.line)?,
                "noendpoints" => options.endpoints = false,
                "endpoint_pod_names" => options.endpoint_pod_names = true,
                "ignore" if line.get(1).is_some_and(|word| word == "empty_service") => {
                    options.ignore_empty_service = true;
                }
                "namespaces" => options.namespaces.extend(line[1..].iter().cloned()),
                // Who is asked is said where DNS is started.
                "endpoint"
                | "tls"
                | "kubeconfig"
                | "apiserver_qps"
                | "apiserver_burst"
                | "apiserver_max_inflight"
                | "startup_timeout" => {}
                other => complaints.push(format!("line {}: kubernetes: {other} is not known", directive.line)),
            }
        }
        let named = match directive.arguments.is_empty() {
            true => block.to_vec(),
            false => zones(&directive.arguments, directive.line)?,
        };
        let arpa = Name::from_labels([b"arpa".as_slice()]).map_err(|error| words.wrong(error))?;
        let (reverse, forward): (Vec<Name>, Vec<Name>) = named.into_iter().partition(|zone| arpa.zone_of(zone));
        let own = surroundings.service_addresses.clone();
        let zones = forward.into_iter().map(|zone| Zone::named(zone, own.clone(), options.clone()));
        Ok(Self { zones: zones.collect(), reverse, fallthrough })
    }

    /// The zone that a name is in.
    pub(crate) fn zone(&self, name: &Name) -> Option<&Zone> {
        let within = self.zones.iter().filter(|zone| zone.contains(name));
        within.max_by_key(|zone| zone.depth())
    }

    /// Whether addresses are given back as names here.
    pub(crate) fn reverses(&self, name: &Name) -> bool {
        self.reverse.iter().any(|zone| zone.zone_of(name))
    }
}
