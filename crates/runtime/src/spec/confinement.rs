//! Confinement by the kernel's security modules. What cannot be enforced is an error, never left out.

use ferry_cri::v1::LinuxContainerSecurityContext;
use ferry_cri::v1::security_profile::ProfileType;

/// The AppArmor profile that confines the container.
pub(super) fn apparmor(context: &LinuxContainerSecurityContext, enabled: bool) -> Result<Option<String>, String> {
    let Some(profile) = &context.apparmor else { return Ok(None) };
    match profile.profile_type() {
        ProfileType::Unconfined => Ok(None),
        // What is privileged is confined by what it names alone, as by other runtimes.
        ProfileType::RuntimeDefault if enabled && context.privileged => Ok(None),
        ProfileType::Localhost if enabled => {
            Ok(Some(profile.localhost_ref.trim_start_matches("localhost/").to_owned()))
        }
        ProfileType::RuntimeDefault if enabled => {
            Err("this runtime has no AppArmor profile of its own: load one into \
            the kernel and name it with the type Localhost"
                .to_owned())
        }
        _ => Err("apparmor is not supported".to_owned()),
    }
}

/// Where the kernel has no SELinux, labels say nothing to anybody, here as with any other runtime.
pub(super) fn selinux(context: &LinuxContainerSecurityContext, enabled: bool) -> Result<(), String> {
    let labels = context.selinux_options.as_ref();
    let labelled = labels.is_some_and(|l| ![&l.user, &l.role, &l.r#type, &l.level].iter().all(|part| part.is_empty()));
    if enabled && labelled {
        return Err("this runtime does not set SELinux labels, which the kernel would enforce".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use ferry_cri::v1::{SeLinuxOption, SecurityProfile};

    use super::*;

    #[test]
    fn what_cannot_be_enforced_is_refused() {
        let context = |kind: ProfileType| LinuxContainerSecurityContext {
            apparmor: Some(SecurityProfile { profile_type: kind.into(), localhost_ref: "localhost/mine".into() }),
            ..Default::default()
        };
        let none = LinuxContainerSecurityContext::default();
        assert_eq!((apparmor(&none, true), apparmor(&none, false)), (Ok(None), Ok(None)));
        assert_eq!(apparmor(&context(ProfileType::Unconfined), false), Ok(None));
        assert_eq!(apparmor(&context(ProfileType::Localhost), true), Ok(Some("mine".to_owned())));
        for (kind, enabled) in
            [(ProfileType::Localhost, false), (ProfileType::RuntimeDefault, false), (ProfileType::RuntimeDefault, true)]
        {
            assert!(apparmor(&context(kind), enabled).is_err(), "{kind:?} {enabled}");
        }
        let privileged = |kind| LinuxContainerSecurityContext { privileged: true, ..context(kind) };
        assert_eq!(apparmor(&privileged(ProfileType::RuntimeDefault), true), Ok(None));
        assert_eq!(apparmor(&privileged(ProfileType::Localhost), true), Ok(Some("mine".to_owned())));
        assert!(apparmor(&privileged(ProfileType::Localhost), false).is_err());
        let label = SeLinuxOption { level: "s0:c1".into(), ..Default::default() };
        let labelled = LinuxContainerSecurityContext { selinux_options: Some(label), ..Default::default() };
        assert!(selinux(&labelled, true).is_err() && selinux(&labelled, false).is_ok() && selinux(&none, true).is_ok());
    }
}
