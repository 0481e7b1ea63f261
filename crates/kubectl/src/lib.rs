//! kubectl, in the binary: the same commands, flags, output and exit codes as upstream's, against any API server.
//!
//! | question | where |
//! |---|---|
//! | which commands there are | [`commands`], one file each |
//! | how a line is read | [`flags`], [`dispatch`] |
//! | where the cluster is and who asks | [`config`] |
//! | what `deploy` means | [`discovery`] |
//! | which objects are meant | [`resource`] |
//! | how they are shown | [`print`] |
//! | what a user prefers | [`preferences`] |
//! | what a client-side apply sends | [`patch`] |
//! | what `-k` reads | [`kustomize`] |
//!
//! Talks to the API and nothing else; no server code.

mod client;
mod commands;
mod config;
mod describe;
mod discovery;
mod dispatch;
mod error;
mod fetch;
mod flags;
mod go_time;
mod help;
mod kustomize;
mod lean;
mod log;
mod patch;
mod preferences;
mod print;
mod refusal;
mod resource;
mod session;
mod text;

pub use dispatch::{apply, live, main};
pub use session::Applied;
