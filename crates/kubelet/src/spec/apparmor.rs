//! AppArmor profiles: which one a container is confined by, and whether the kernel knows any.

use std::path::Path;

use ferry_cri::v1::{SecurityProfile, security_profile::ProfileType};
use k8s_openapi::api::core::v1::{AppArmorProfile, Container, Pod};

use crate::pod;

/// Where profiles were named before they had fields of their own; pods of files may still have them there only.
const ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";

/// Whether the kernel enforces profiles.
pub(crate) fn is_enabled() -> bool {
    let enabled = std::fs::read("/sys/module/apparmor/parameters/enabled").unwrap_or_default();
    Path::new("/sys/kernel/security/apparmor").exists() && enabled.first() == Some(&b'Y')
}

/// The container's own profile, or the pod's.
pub(crate) fn profile(pod: &Pod, container: &Container) -> Option<AppArmorProfile> {
    let own = container.security_context.as_ref().and_then(|context| context.app_armor_profile.clone());
    let of_pod = || pod::spec(pod).security_context.as_ref().and_then(|context| context.app_armor_profile.clone());
    own.or_else(|| annotated(pod, &container.name)).or_else(of_pod)
}

fn annotated(pod: &Pod, container: &str) -> Option<AppArmorProfile> {
    let value = pod.metadata.annotations.as_ref()?.get(&format!("{ANNOTATION}{container}"))?;
    let of_type = |kind: &str| AppArmorProfile { type_: kind.to_owned(), localhost_profile: None };
    match value.as_str() {
        "runtime/default" => Some(of_type("RuntimeDefault")),
        "unconfined" => Some(of_type("Unconfined")),
        value => {
            let name = value.strip_prefix("localhost/")?.to_owned();
            Some(AppArmorProfile { localhost_profile: Some(name), ..of_type("Localhost") })
        }
    }
}

/// As the runtime is told it, in the present form and in the one for older runtimes.
pub(crate) fn for_runtime(pod: &Pod, container: &Container) -> (Option<SecurityProfile>, String) {
    let Some(profile) = profile(pod, container) else { return (None, String::new()) };
    let name = profile.localhost_profile.unwrap_or_default();
    let (kind, name, old) = match profile.type_.as_str() {
        "RuntimeDefault" => (ProfileType::RuntimeDefault, String::new(), "runtime/default".to_owned()),
        "Localhost" => (ProfileType::Localhost, name.clone(), format!("localhost/{name}")),
        _ => (ProfileType::Unconfined, String::new(), "unconfined".to_owned()),
    };
    (Some(SecurityProfile { profile_type: kind.into(), localhost_ref: name }), old)
}
