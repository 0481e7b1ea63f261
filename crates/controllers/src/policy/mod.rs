//! The controllers of the `policy` group.

pub(crate) mod disruption;
