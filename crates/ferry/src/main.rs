//! `ferry`: arguments → checked configuration → wiring. The only crate that sees both the client and the server side.

#[macro_use]
mod output;

mod arguments;
mod backup;
mod certificate_rotation;
mod cluster;
mod cluster_dns;
mod clusters;
mod commands;
mod component;
mod component_options;
mod config;
mod configuration;
mod control_plane;
#[cfg(test)]
mod documented_commands;
mod encryption;
mod envtest;
mod fleet;
mod fleet_options;
mod folders;
mod front_door;
mod insight_options;
mod kubeconfig;
mod kubelet_options;
mod labels;
mod legacy_tokens;
mod log;
#[cfg(test)]
mod loops;
mod node;
mod pki;
mod pki_plan;
mod process;
mod quorum;
mod reload;
mod server_options;
mod signals;
mod state;
mod store_options;
mod store_socket;
mod trust;

use clap::Parser;

use crate::arguments::{Arguments, Command, NodeCommand, SecretsCommand};

/// Objects are trees of small texts, made and dropped with every write. `.cargo/config.toml` has its settings.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> std::process::ExitCode {
    // A helper of the container runtime is this program again, and nothing else of it.
    if let Some(code) = ferry_runtime::helper(std::env::args_os()) {
        return code;
    }
    if let Some(arguments) = commands::kubectl::arguments(std::env::args_os()) {
        return ferry_kubectl::main(&arguments).into();
    }
    if let Some(code) = envtest::called_by_name(std::env::args_os()) {
        return code;
    }
    let arguments = Arguments::parse();
    process::allow_many_files();
    if !matches!(arguments.command, Command::Completion { .. } | Command::Man { .. }) {
        folders::keep_private();
    }
    let result = match arguments.command {
        Command::Up(options) => commands::up::run(&options),
        Command::Down(options) => commands::down::run(&options),
        Command::Run(options) => commands::run::run(&options),
        Command::Apiserver(options) => commands::apiserver::run(&options),
        Command::Scheduler(options) => commands::scheduler::run(&options),
        Command::ControllerManager(options) => commands::controller_manager::run(&options),
        Command::Join(options) => commands::join::run(&options),
        Command::Leave(options) => commands::leave::run(&options),
        Command::Token(options) => commands::token::run(&options),
        Command::Server(options) => commands::server::run(&options),
        Command::Envtest { folder } => envtest::prepare(folder),
        Command::Cluster(options) => commands::cluster::run(&options),
        Command::Node { command: NodeCommand::Run(options) } => commands::node::run(&options),
        Command::Node { command: NodeCommand::List(options) } => commands::nodes::list(&options),
        Command::Node { command: NodeCommand::Drain(options) } => commands::nodes::drain(&options),
        Command::Node { command: NodeCommand::Remove(options) } => commands::nodes::remove(&options),
        Command::Node { command: NodeCommand::Simulate(options) } => commands::simulate::run(&options),
        Command::Store(options) => commands::store::run(&options),
        Command::Secrets(SecretsCommand::Rotate(options)) => commands::secrets::rotate(&options),
        Command::Trace(options) => return commands::trace::run(&options),
        Command::Why(options) => return commands::why::run(&options),
        // Taken above, with its own flags.
        Command::Kubectl { arguments } => return ferry_kubectl::main(&arguments).into(),
        Command::Completion { shell } => commands::completion::completion(shell),
        Command::Man { folder } => commands::completion::man(&folder),
    };
    match result {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ferry: {error:#}");
            store_socket::exit_code(&error).into()
        }
    }
}
