//! Controllers of admissionregistration.k8s.io.

pub(crate) mod policy_status;
