//! What a request passes before its handler, beside authentication: audit, priority and fairness, rights, room for large objects.

pub(crate) mod audit;
pub(crate) mod fairness;
pub(crate) mod heavy;
pub(crate) mod per_user;
pub(crate) mod rights;
