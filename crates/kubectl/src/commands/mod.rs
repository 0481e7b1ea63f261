//! Every command, and the flags that all of them have.

mod annotate;
mod api_resources;
mod api_versions;
mod apply;
mod apply_prune;
mod apply_server;
mod apply_set;
mod attach;
mod auth;
mod auth_reconcile;
mod autoscale;
mod certificate;
mod cluster_info;
mod cluster_info_dump;
mod common;
pub mod completion;
mod config;
mod config_entries;
mod config_set;
mod config_view;
mod cordon;
mod cp;
mod create;
mod create_apps;
mod create_config;
mod create_rbac;
mod create_service;
mod create_small;
mod debug;
mod delete;
mod describe;
mod detach;
mod diff;
mod drain;
mod edit;
mod editor;
mod events;
mod exec;
mod explain;
mod expose;
mod generate;
mod get;
mod get_live;
mod get_watch;
mod kuberc;
mod kustomize;
mod label;
mod logs;
mod marks;
mod options;
mod patch;
pub mod plugin;
mod pods;
mod port_forward;
mod proxy;
mod record;
mod replace;
mod rollout;
mod rollout_history;
mod run;
mod run_attached;
mod scale;
mod set;
mod set_last_applied;
mod stream;
mod taint;
mod terminal;
mod top;
mod version;
mod wait;

pub use apply::merge;
pub use common::LAST_APPLIED;
pub use pods::{list_pods, selector_of};

use std::future::Future;
use std::pin::Pin;

use crate::error::Result;
use crate::flags::{Flag, Kind, array, switch, text};
use crate::session::Context;

pub type Running<'a> = Pin<Box<dyn Future<Output = Result<()>> + 'a>>;
pub type Runner = for<'a> fn(&'a Context) -> Running<'a>;

#[derive(Clone, Copy)]
pub enum Run {
    Leaf(Runner),
    Group(&'static [Command]),
    /// Does something itself, and has commands below it.
    Both(Runner, &'static [Command]),
}

#[derive(Clone, Copy)]
pub struct Command {
    pub name: &'static str,
    pub aliases: &'static [&'static str],
    pub usage: &'static str,
    pub about: &'static str,
    pub flags: fn() -> Vec<Flag>,
    pub run: Run,
}

pub const fn leaf(
    name: &'static str,
    usage: &'static str,
    about: &'static str,
    flags: fn() -> Vec<Flag>,
    run: Runner,
) -> Command {
    Command { name, aliases: &[], usage, about, flags, run: Run::Leaf(run) }
}

pub const fn group(name: &'static str, about: &'static str, below: &'static [Command]) -> Command {
    Command { name, aliases: &[], usage: "SUBCOMMAND", about, flags: Vec::new, run: Run::Group(below) }
}

impl Command {
    pub const fn aliases(mut self, aliases: &'static [&'static str]) -> Self {
        self.aliases = aliases;
        self
    }

    pub const fn usage(mut self, usage: &'static str) -> Self {
        self.usage = usage;
        self
    }

    pub const fn below(mut self, below: &'static [Command]) -> Self {
        if let Run::Leaf(run) = self.run {
            self.run = Run::Both(run, below);
        }
        self
    }
}

/// A static, so that all commands are compiled where it stands: a constant would bring them along wherever it is read.
pub static COMMANDS: &[Command] = &[
    create::COMMAND,
    expose::COMMAND,
    run::COMMAND,
    set::COMMAND,
    explain::COMMAND,
    get::COMMAND,
    edit::COMMAND,
    delete::COMMAND,
    rollout::COMMAND,
    scale::COMMAND,
    autoscale::COMMAND,
    certificate::COMMAND,
    cluster_info::COMMAND,
    top::COMMAND,
    cordon::CORDON,
    cordon::UNCORDON,
    drain::COMMAND,
    taint::COMMAND,
    describe::COMMAND,
    logs::COMMAND,
    attach::COMMAND,
    exec::COMMAND,
    port_forward::COMMAND,
    proxy::COMMAND,
    cp::COMMAND,
    auth::COMMAND,
    debug::COMMAND,
    events::COMMAND,
    diff::COMMAND,
    apply::COMMAND,
    patch::COMMAND,
    replace::COMMAND,
    wait::COMMAND,
    kustomize::COMMAND,
    label::COMMAND,
    annotate::COMMAND,
    completion::COMMAND,
    kuberc::ALPHA,
    kuberc::COMMAND,
    api_resources::COMMAND,
    api_versions::COMMAND,
    config::COMMAND,
    plugin::COMMAND,
    version::COMMAND,
    options::COMMAND,
];

pub const GLOBAL: &[Flag] = &[
    text("kubeconfig", "Path to the kubeconfig file to use."),
    text("context", "The name of the kubeconfig context to use."),
    text("cluster", "The name of the kubeconfig cluster to use."),
    text("user", "The name of the kubeconfig user to use."),
    text("namespace", "The namespace that is meant.").short('n'),
    text("server", "The address and port of the Kubernetes API server.").short('s'),
    text("token", "Bearer token for authentication to the API server."),
    text("username", "Username for basic authentication to the API server."),
    text("password", "Password for basic authentication to the API server."),
    text("as", "Username to impersonate for the operation."),
    array("as-group", "Group to impersonate; may be given several times."),
    text("as-uid", "UID to impersonate for the operation."),
    array("as-user-extra", "User extras to impersonate, as key=value; may be given several times."),
    text("certificate-authority", "Path to a file with the certificates of the authority."),
    text("client-certificate", "Path to a client certificate file for TLS."),
    text("client-key", "Path to a client key file for TLS."),
    switch("insecure-skip-tls-verify", "Do not check the server's certificate."),
    text("tls-server-name", "The name the server's certificate must have."),
    Flag::new("request-timeout", Kind::Text, "0", "How long to wait for an answer; zero means for ever."),
    text("cache-dir", "Where discovery is kept."),
    switch("match-server-version", "Require the server's version to be the client's."),
    switch("disable-compression", "Do not compress answers."),
    switch("warnings-as-errors", "End with an error if the server warned."),
    text("kuberc", "Path to the preferences file."),
    text("profile", "Name of a profile to capture."),
    text("profile-output", "Where the profile goes."),
    text("log-flush-frequency", "Kept for old scripts."),
    text("vmodule", "Kept for old scripts."),
    Flag::new("v", Kind::Int, "0", "Log level.").short('v'),
];
