//! The resource table: one row per kind and version, one strategy file per kind for what is truly its own.
//!
//! Routes, discovery, OpenAPI, RBAC attributes, storage keys and tables derive from a row. Pure: no I/O, no runtime.

pub mod admissionregistration;
pub mod apiextensions;
pub mod apiregistration;
pub mod apps;
pub mod autoscaling;
pub mod batch;
mod builtin;
pub mod cells;
pub mod certificates;
pub mod check;
pub mod coordination;
pub mod core;
pub mod cursor;
pub mod devices;
pub mod discovery;
mod feature_gates;
#[cfg(test)]
mod field_path_tests;
pub mod flowcontrol;
pub mod internal;
pub mod networking;
pub mod node;
pub mod object_meta;
pub mod plain;
pub mod policy;
pub mod rbac;
pub mod resource;
pub mod resource_metrics;
pub mod scale;
pub mod scheduling;
pub mod storage;
pub mod storagemigration;
mod strategies;
pub mod strategy;
#[cfg(test)]
mod update_tests;

pub use plain::{Plain, WriteHook};
pub use resource::{Column, Resource, ResourceTable, Subresource};
pub use strategy::{Context, Strategy};
