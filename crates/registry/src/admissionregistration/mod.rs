//! The group admissionregistration.k8s.io: webhooks and policies that take part in admission.

pub mod policy;
mod reserved;
mod rules;
pub mod webhook;
