//! What a runtime says it can do. One that says nothing can do none of it: old runtimes pass over what they do not know.

use std::collections::BTreeMap;

use ferry_cri::v1;
use k8s_openapi::api::core::v1::{NodeFeatures, NodeRuntimeHandler, NodeRuntimeHandlerFeatures};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Abilities {
    /// It tells of its features at all.
    pub(crate) told: bool,
    /// Groups of the image can be left out.
    pub(crate) supplemental_groups_policy: bool,
    /// By the name that a RuntimeClass knows it by; the empty one is the default.
    pub(crate) handlers: BTreeMap<String, Handler>,
}

/// One way of the runtime to run containers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Handler {
    pub(crate) recursive_read_only: bool,
    pub(crate) user_namespaces: bool,
}

/// Whether a runtime of this name and version gives containers the CDI devices that they are promised. It does not say so
/// itself, and an old one passes over their names.
pub(crate) fn knows_cdi((name, version): (&str, &str)) -> bool {
    let mut numbers = version.trim_start_matches('v').split('.').map(|number| number.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    match name {
        "containerd" => version >= (1, 7),
        "cri-o" => version >= (1, 23),
        _ => true,
    }
}

impl Abilities {
    pub(crate) fn read(status: v1::StatusResponse) -> Self {
        let handler = |told: v1::RuntimeHandler| {
            let features = told.features.unwrap_or_default();
            let handler = Handler {
                recursive_read_only: features.recursive_read_only_mounts,
                user_namespaces: features.user_namespaces,
            };
            (told.name, handler)
        };
        Self {
            told: status.features.is_some(),
            supplemental_groups_policy: status.features.unwrap_or_default().supplemental_groups_policy,
            handlers: status.runtime_handlers.into_iter().map(handler).collect(),
        }
    }

    pub(crate) fn handler(&self, name: &str) -> Handler {
        self.handlers.get(name).copied().unwrap_or_default()
    }

    /// As the Node's status has them.
    pub(crate) fn features(&self) -> Option<NodeFeatures> {
        let features = NodeFeatures { supplemental_groups_policy: Some(self.supplemental_groups_policy) };
        self.told.then_some(features)
    }

    pub(crate) fn runtime_handlers(&self) -> Option<Vec<NodeRuntimeHandler>> {
        let handler = |(name, handler): (&String, &Handler)| NodeRuntimeHandler {
            name: Some(name.clone()),
            features: Some(NodeRuntimeHandlerFeatures {
                recursive_read_only_mounts: Some(handler.recursive_read_only),
                user_namespaces: Some(handler.user_namespaces),
            }),
        };
        (!self.handlers.is_empty()).then(|| self.handlers.iter().map(handler).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_runtimes_pass_over_cdi_devices() {
        for (name, version, knows) in [
            ("containerd", "1.6.20~ds1", false),
            ("containerd", "v1.7.3", true),
            ("containerd", "2.0.0", true),
            ("cri-o", "1.30.1", true),
            ("ferry", "0.1.0", true),
        ] {
            assert_eq!(knows_cdi((name, version)), knows, "{name} {version}");
        }
    }

    #[test]
    fn a_runtime_that_says_nothing_can_do_nothing() {
        let silent = Abilities::read(v1::StatusResponse::default());
        assert_eq!(silent, Abilities::default());
        assert_eq!((silent.features(), silent.runtime_handlers()), (None, None));
        let features = v1::RuntimeHandlerFeatures { recursive_read_only_mounts: true, user_namespaces: false };
        let told = Abilities::read(v1::StatusResponse {
            runtime_handlers: vec![v1::RuntimeHandler { name: "runc".into(), features: Some(features) }],
            features: Some(v1::RuntimeFeatures { supplemental_groups_policy: true, ..Default::default() }),
            ..Default::default()
        });
        assert!(told.supplemental_groups_policy && told.handler("runc").recursive_read_only);
        assert!(!told.handler("").recursive_read_only && !told.handler("runc").user_namespaces);
        assert_eq!(told.features().and_then(|features| features.supplemental_groups_policy), Some(true));
        let handlers = told.runtime_handlers().unwrap_or_default();
        assert_eq!(handlers.first().and_then(|handler| handler.name.as_deref()), Some("runc"));
    }
}
