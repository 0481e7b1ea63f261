//! The controllers of the autoscaling group.

pub(crate) mod hpa;
