//! Help in kubectl's form: what it is for, commands below, options, usage.

use crate::commands::{COMMANDS, Command, Run};
use crate::flags::{Flag, Kind};
use crate::text::line;

/// The headings of the first page and what stands below them.
const GROUPS: &[(&str, &[&str])] = &[
    ("Basic Commands (Beginner):", &["create", "expose", "run", "set"]),
    ("Basic Commands (Intermediate):", &["explain", "get", "edit", "delete"]),
    ("Deploy Commands:", &["rollout", "scale", "autoscale"]),
    ("Cluster Management Commands:", &["certificate", "cluster-info", "top", "cordon", "uncordon", "drain", "taint"]),
    (
        "Troubleshooting and Debugging Commands:",
        &["describe", "logs", "attach", "exec", "port-forward", "proxy", "cp", "auth", "debug", "events"],
    ),
    ("Advanced Commands:", &["diff", "apply", "patch", "replace", "wait", "kustomize"]),
    ("Settings Commands:", &["label", "annotate", "completion"]),
    ("Other Commands:", &["api-resources", "api-versions", "config", "kuberc", "plugin", "version"]),
];

const GLOBAL_OPTIONS: &str =
    "Use \"kubectl options\" for a list of global command-line options (applies to all commands).";

pub fn overview() {
    line("kubectl controls the Kubernetes cluster manager.\n\n This one is part of ferry.\n");
    for (heading, names) in GROUPS {
        let of = |name: &&str| COMMANDS.iter().find(|command| command.name == *name).copied();
        if *heading == "Other Commands:" {
            line("Subcommands provided by plugins:");
            line(plugins());
        }
        line(heading);
        line(listed(&names.iter().filter_map(of).collect::<Vec<_>>(), COMMANDS));
    }
    line("Usage:\n  kubectl [flags] [options]\n");
    line("Use \"kubectl <command> --help\" for more information about a given command.");
    line(GLOBAL_OPTIONS);
}

/// The first words that the plug-ins of PATH answer to.
fn plugins() -> String {
    let names = crate::commands::plugin::first_words();
    let width = names.iter().map(String::len).max().unwrap_or(0).max(11) + 3;
    names.iter().map(|name| format!("  {name:<width$}The command {name} is a plugin installed by the user\n")).collect()
}

/// Names as wide as the longest of all that stand side by side.
fn listed(commands: &[Command], beside: &[Command]) -> String {
    let width = beside.iter().map(|command| command.name.len()).max().unwrap_or(0).max(11) + 3;
    commands.iter().map(|command| format!("  {:<width$}{}\n", command.name, command.about)).collect()
}

fn sorted(below: &[Command]) -> Vec<Command> {
    let mut below = below.to_vec();
    below.sort_by_key(|command| command.name);
    below
}

/// Told to those who ask, and to those who name no command.
pub fn group(path: &str, command: &Command, below: &[Command]) -> String {
    let (about, usage, below) = (command.about, command.usage, listed(&sorted(below), below));
    let aliases = match command.aliases {
        [] => String::new(),
        aliases => format!("Aliases:\n{}, {}\n\n", command.name, aliases.join(", ")),
    };
    format!(
        "{about}.\n\n{aliases}Available Commands:\n{below}\nUsage:\n  {path} {usage} [options]\n\nUse \"{path} <command> --help\" for more information about a given command.\n{GLOBAL_OPTIONS}\n"
    )
}

/// The help of the command that a path names.
pub fn of_path(path: &str) {
    let (mut known, mut found): (&[Command], Option<&Command>) = (COMMANDS, None);
    for name in path.split(' ').skip(1) {
        found = known.iter().find(|command| command.name == name);
        known = match found.map(|command| command.run) {
            Some(Run::Group(below) | Run::Both(_, below)) => below,
            _ => &[],
        };
    }
    if let Some(found) = found {
        command(path, found);
    }
}

pub fn command(path: &str, command: &Command) {
    line(format!("{}.\n", command.about));
    if !command.aliases.is_empty() {
        line(format!("Aliases:\n{}, {}\n", command.name, command.aliases.join(", ")));
    }
    let below = match command.run {
        Run::Both(_, below) => below,
        _ => &[],
    };
    if !below.is_empty() {
        line(format!("Available Commands:\n{}", listed(&sorted(below), below)));
    }
    let flags = (command.flags)();
    if !flags.is_empty() {
        line(format!("Options:\n{}", options(&flags).trim_end()));
        line("");
    }
    // Where the options stand before the last words, they do not stand again.
    let options = if command.usage.contains("[options]") { "" } else { " [options]" };
    line(format!("Usage:\n  {path} {}{options}\n", command.usage).replace("  [options]", " [options]"));
    if !below.is_empty() {
        line(format!("Use \"{path} <command> --help\" for more information about a given command."));
    }
    line(GLOBAL_OPTIONS);
}

/// Flags with their defaults, one below the other.
pub fn options(flags: &[Flag]) -> String {
    let mut flags: Vec<&Flag> = flags.iter().filter(|flag| flag.deprecated.is_none()).collect();
    flags.sort_by_key(|flag| flag.name);
    let mut out = String::new();
    for flag in flags {
        let short = flag.short.map_or(String::new(), |short| format!("-{short}, "));
        let default = match flag.kind {
            Kind::Bool | Kind::Int | Kind::Duration => flag.default.to_owned(),
            Kind::Text => format!("'{}'", flag.default),
            Kind::Array | Kind::Slice => format!("[{}]", flag.default),
        };
        out.push_str(&format!("    {short}--{}={default}:\n", flag.name));
        out.push_str(&format!("\t{}\n\n", flag.help));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A command that no heading names would not be found.
    #[test]
    fn every_command_has_a_heading() {
        let named: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        for command in COMMANDS.iter().filter(|command| !matches!(command.name, "alpha" | "options")) {
            assert_eq!(named.iter().filter(|name| **name == command.name).count(), 1, "{}", command.name);
        }
        assert!(named.iter().all(|name| COMMANDS.iter().any(|command| command.name == *name)));
    }
}
