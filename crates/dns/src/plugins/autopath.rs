//! `autopath`: the rest of a pod's search path is walked here, so that the pod asks once instead of once for each domain.

use hickory_proto::rr::Name;

use super::{Words, zone};
use crate::corefile::{CorefileError, Directive};
use crate::settings::Files;

/// The C library reads no more.
const MOST: usize = 32;

#[derive(Debug)]
pub(crate) enum Autopath {
    /// The path of the pods of the namespace that the question ends in: `NAMESPACE.svc.ZONE`, `svc.ZONE`, `ZONE`.
    Kubernetes,
    /// That of a file in the form of `/etc/resolv.conf`.
    These(Vec<Name>),
}

impl Autopath {
    pub(crate) fn read(directive: &Directive, files: &Files) -> Result<Self, CorefileError> {
        let words = Words::of(directive);
        let source = directive.arguments.last().ok_or_else(|| words.wrong("it names no search path"))?;
        if source == "@kubernetes" {
            return Ok(Self::Kubernetes);
        }
        if source.starts_with('@') {
            return Err(words.wrong(format_args!("{source} is not known: @kubernetes and files are")));
        }
        let text = files.get(source).map_err(|problem| words.wrong(problem))?;
        let mut path = Vec::new();
        for line in text.lines() {
            let mut parts = line.split_whitespace();
            if parts.next() == Some("search") {
                path = parts.take(MOST).map(|part| zone(part, directive.line)).collect::<Result<_, _>>()?;
            }
        }
        Ok(Self::These(path))
    }

    /// The other names that a question stands for, in their order; nothing when it is not the first of a search path.
    pub(crate) fn others(&self, name: &Name, zone: Option<&Name>) -> Vec<Name> {
        let path = match (self, zone) {
            (Self::These(path), _) => path.clone(),
            (Self::Kubernetes, Some(zone)) => {
                // NAMESPACE.svc of the zone, and a name of its own before it.
                let keep = usize::from(zone.num_labels()) + 2;
                if usize::from(name.num_labels()) <= keep {
                    return Vec::new();
                }
                let first = name.trim_to(keep);
                vec![first.clone(), first.base_name(), zone.clone()]
            }
            (Self::Kubernetes, None) => return Vec::new(),
        };
        let Some((first, rest)) = path.split_first() else { return Vec::new() };
        if !first.zone_of(name) || first.num_labels() >= name.num_labels() {
            return Vec::new();
        }
        let own = usize::from(name.num_labels() - first.num_labels());
        let base = || Name::from_labels(name.iter().take(own)).ok();
        let below = |domain: &Name| base()?.append_domain(domain).ok();
        rest.iter().filter_map(below).chain(below(&Name::root())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_a_search_path_is_known() {
        let zone = Name::from_ascii("cluster.local.").expect("a name");
        let check = |path: &Autopath, name: &str, expected: &[&str]| {
            let others = path.others(&Name::from_ascii(name).expect("a name"), Some(&zone));
            let shown: Vec<String> = others.iter().map(Name::to_ascii).collect();
            assert_eq!(shown, expected, "{name}");
        };
        let pods = Autopath::Kubernetes;
        check(
            &pods,
            "example.com.default.svc.cluster.local.",
            &["example.com.svc.cluster.local.", "example.com.cluster.local.", "example.com."],
        );
        check(&pods, "default.svc.cluster.local.", &[]);
        let file = Autopath::These(vec![zone.clone(), Name::from_ascii("corp.example.").expect("a name")]);
        check(&file, "www.cluster.local.", &["www.corp.example.", "www."]);
        check(&file, "www.example.com.", &[]);
        check(&file, "cluster.local.", &[]);
    }
}
