//! `ferry`: arguments → checked configuration → calls. One file per command; what they call is in the crates below.

// What is printed must not end the command when nobody reads it.
#[macro_use(eprintln, print, println)]
extern crate ferry_cluster;

mod arguments;
mod commands;
mod component_options;
#[cfg(test)]
mod documented_commands;
mod envtest;
mod fleet_options;
mod insight_options;
mod node_component_options;
mod store_options;

use clap::Parser;
use ferry_cluster::node::{descriptors, dns_process};
use ferry_cluster::{folders, process};
use ferry_server::store_socket;

use crate::arguments::{Arguments, Command, NodeCommand, SecretsCommand};

/// Objects are trees of small texts, made and dropped with every write. `.cargo/config.toml` has its settings.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> std::process::ExitCode {
    // A helper of the container runtime is this program again, and nothing else of it.
    if let Some(code) = ferry_runtime::helper(std::env::args_os()) {
        return code;
    }
    if let Some(code) = ferry_bridge::program(std::env::args_os()) {
        return code;
    }
    if let Some(code) = dns_process::helper(std::env::args_os()) {
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
    descriptors::close_on_exec();
    if !matches!(arguments.command, Command::Completion { .. } | Command::Man { .. }) {
        folders::keep_private();
    }
    let result = match arguments.command {
        Command::Up(options) => commands::up::run(&options),
        Command::Down(options) => commands::down::run(&options),
        Command::Run(options) => commands::run::run(&options),
        Command::Apiserver(options) => commands::apiserver::run(&options),
        Command::Scheduler(options) => commands::scheduler::run(&options),
        Command::Gateway(options) => commands::gateway::run(&options),
        Command::ControllerManager(options) => commands::controller_manager::run(&options),
        Command::Kubelet(options) => commands::kubelet::run(&options),
        Command::Proxy(options) => commands::proxy::run(&options),
        Command::Dns(options) => commands::dns::run(&options),
        Command::Join(options) => commands::join::run(&options),
        Command::Leave(options) => commands::leave::run(&options),
        Command::Token(options) => commands::token::run(&options),
        Command::Server(options) => commands::server::run(&options),
        Command::Witness(options) => commands::witness::run(&options),
        Command::Envtest { folder } => envtest::prepare(folder),
        Command::Cluster(options) => commands::cluster::run(&options),
        Command::Node { command: NodeCommand::Run(options) } => commands::node::run(&options),
        Command::Node { command: NodeCommand::List(options) } => commands::nodes::list(&options),
        Command::Node { command: NodeCommand::Drain(options) } => commands::nodes::drain(&options),
        Command::Node { command: NodeCommand::Remove(options) } => commands::nodes::remove(&options),
        Command::Node { command: NodeCommand::Simulate(options) } => commands::simulate::run(&options),
        Command::Image(options) => commands::image::run(&options),
        Command::Store(options) => commands::store::run(&options),
        Command::Secrets(SecretsCommand::Rotate(options)) => commands::secrets::rotate(&options),
        Command::Console(options) => commands::console::run(&options),
        Command::Apply(options) => return commands::apply::run(&options),
        Command::Get { arguments } => return commands::kubectl::get(&arguments),
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
