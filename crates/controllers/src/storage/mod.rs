//! Controllers of the storage group: claims and volumes, as far as no driver is needed.

pub(crate) mod attach_detach;
mod attaching;
pub(crate) mod binder;
pub(crate) mod class_protection;
pub(crate) mod ephemeral;
pub(crate) mod expand;
pub(crate) mod local_path;
pub(crate) mod protection;
pub(crate) mod selinux_warning;
