//! The group storage.k8s.io.

pub mod classes;
pub mod csi;
pub mod volume_attachment;
