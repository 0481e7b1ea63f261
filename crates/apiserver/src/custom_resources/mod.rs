//! CustomResourceDefinitions at work, and the webhooks that convert their objects between versions.

pub(crate) mod conversion;
pub(crate) mod definitions;
