//! The controllers of the core group.

pub(crate) mod endpoints;
pub(crate) mod legacy_token_cleaner;
pub(crate) mod namespace;
pub(crate) mod resource_quota;
pub(crate) mod root_ca;
pub(crate) mod service_account;
pub(crate) mod token_secret;
