//! `ferry`: arguments → checked configuration → wiring. The only crate that sees both the client and the server side.

mod arguments;
mod cluster;
mod cluster_dns;
mod commands;
mod component;
mod config;
mod configuration;
mod encryption;
mod fleet;
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
mod reload;
mod renewal;
mod server_options;
mod signals;
mod state;
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
        Command::Node { command: NodeCommand::Run(options) } => commands::node::run(&options),
        Command::Node { command: NodeCommand::Simulate(options) } => commands::simulate::run(&options),
        Command::Store(options) => commands::store::run(&options),
        Command::Secrets(SecretsCommand::Rotate(options)) => commands::secrets::rotate(&options),
        Command::Trace(options) => return commands::trace::run(&options),
        Command::Why(options) => return commands::why::run(&options),
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
