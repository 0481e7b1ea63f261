//! Which controllers run: `*` for all, a name for one, `-name` for all but one.

/// Upstream's controllers that have nothing to do here: the kinds they are for are alpha or off by default, and not
/// served. Scripts may name them all the same.
const OTHERS: [&str; 3] = [
    "podgroup-protection-controller",
    "storageversion-garbage-collector-controller",
    "resourcepoolstatusrequest-controller",
];

/// Those that `*` does not stand for.
const OFF_BY_DEFAULT: [&str; 1] = ["selinux-warning-controller"];

/// The names that upstream's controllers had before.
const ALIASES: [(&str, &str); 43] = [
    ("attachdetach", "persistentvolume-attach-detach-controller"),
    ("bootstrapsigner", "bootstrap-signer-controller"),
    ("cloud-node", "cloud-node-controller"),
    ("cloud-node-lifecycle", "cloud-node-lifecycle-controller"),
    ("clusterrole-aggregation", "clusterrole-aggregation-controller"),
    ("cronjob", "cronjob-controller"),
    ("csrapproving", "certificatesigningrequest-approving-controller"),
    ("csrcleaner", "certificatesigningrequest-cleaner-controller"),
    ("csrsigning", "certificatesigningrequest-signing-controller"),
    ("daemonset", "daemonset-controller"),
    ("deployment", "deployment-controller"),
    ("disruption", "disruption-controller"),
    ("endpoint", "endpoints-controller"),
    ("endpointslice", "endpointslice-controller"),
    ("endpointslicemirroring", "endpointslice-mirroring-controller"),
    ("ephemeral-volume", "ephemeral-volume-controller"),
    ("garbagecollector", "garbage-collector-controller"),
    ("horizontalpodautoscaling", "horizontal-pod-autoscaler-controller"),
    ("job", "job-controller"),
    ("legacy-service-account-token-cleaner", "legacy-serviceaccount-token-cleaner-controller"),
    ("namespace", "namespace-controller"),
    ("nodeipam", "node-ipam-controller"),
    ("nodelifecycle", "node-lifecycle-controller"),
    ("persistentvolume-binder", "persistentvolume-binder-controller"),
    ("persistentvolume-expander", "persistentvolume-expander-controller"),
    ("podgc", "pod-garbage-collector-controller"),
    ("pv-protection", "persistentvolume-protection-controller"),
    ("pvc-protection", "persistentvolumeclaim-protection-controller"),
    ("replicaset", "replicaset-controller"),
    ("replicationcontroller", "replicationcontroller-controller"),
    ("resource-claim-controller", "resourceclaim-controller"),
    ("resourcequota", "resourcequota-controller"),
    ("root-ca-cert-publisher", "root-ca-certificate-publisher-controller"),
    ("route", "node-route-controller"),
    ("service", "service-lb-controller"),
    ("serviceaccount", "serviceaccount-controller"),
    ("serviceaccount-token", "serviceaccount-token-controller"),
    ("statefulset", "statefulset-controller"),
    ("storage-version-gc", "storageversion-garbage-collector-controller"),
    ("svm", "storage-version-migrator-controller"),
    ("tokencleaner", "token-cleaner-controller"),
    ("ttl", "ttl-controller"),
    ("ttl-after-finished", "ttl-after-finished-controller"),
];

/// As `--controllers` gives it. The default is all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    words: Vec<String>,
}

impl Default for Selection {
    fn default() -> Self {
        Self { words: vec!["*".into()] }
    }
}

/// A name that no controller has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not in the list of known controllers")]
pub struct UnknownController(pub String);

impl Selection {
    /// Reads `*,-job-controller`.
    pub fn parse(text: &str) -> Result<Self, UnknownController> {
        let read = |word: &str| {
            let (minus, name) = word.strip_prefix('-').map_or(("", word), |name| ("-", name));
            let name = ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, name)| name);
            let known = name == "*" || crate::names().chain(OTHERS).any(|known| known == name);
            if known { Ok(format!("{minus}{name}")) } else { Err(UnknownController(name.to_owned())) }
        };
        Ok(Self { words: text.split(',').map(|word| read(word.trim())).collect::<Result<_, _>>()? })
    }

    pub(crate) fn includes(&self, name: &str) -> bool {
        let has = |wanted: &str| self.words.iter().any(|word| word == wanted);
        !has(&format!("-{name}")) && (has(name) || has("*") && !OFF_BY_DEFAULT.contains(&name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, job: bool, deployment: bool) {
        let selection = Selection::parse(text).expect("a selection");
        assert_eq!(selection.includes("job-controller"), job, "{text}");
        assert_eq!(selection.includes("deployment-controller"), deployment, "{text}");
    }

    #[test]
    fn controllers_are_selected_as_upstream() {
        check("*", true, true);
        check("*,-job-controller", false, true);
        check("job-controller", true, false);
        check("-job-controller", false, false);
        check("*,-job", false, true);
        check("deployment,selinux-warning-controller,bootstrapsigner", false, true);
        let warns = |text| Selection::parse(text).expect("a selection").includes("selinux-warning-controller");
        assert_eq!([warns("*"), warns("*,selinux-warning-controller")], [false, true]);
        assert!(Selection::parse("*,nonsense").is_err());
        assert_eq!(Selection::default(), Selection::parse("*").expect("all"));
        for (alias, name) in ALIASES {
            assert!(crate::names().chain(OTHERS).any(|known| known == name), "{alias} stands for {name}");
        }
    }
}
