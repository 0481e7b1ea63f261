//! `kubectl plugin list`, and programs named `kubectl-…` that are commands.

use std::collections::{BTreeSet, HashMap};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

use super::{COMMANDS, Command, group, leaf};
use crate::error::{Error, Result};
use crate::flags::switch;
use crate::session::Context;
use crate::text::{flush, line, warn};

pub const COMMAND: Command = group(
    "plugin",
    "Provides utilities for interacting with plugins",
    &[leaf(
        "list",
        "[flags]",
        "List all visible plugin executables on a user's PATH",
        || vec![switch("name-only", "Show names, not paths.")],
        |c| Box::pin(list(c)),
    )],
)
.usage("[flags]");

fn folders() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = Vec::new();
    for folder in std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()) {
        if !folder.as_os_str().is_empty() && !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    folders
}

pub fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

async fn list(context: &Context) -> Result<()> {
    let mut found: Vec<(PathBuf, String)> = Vec::new();
    for folder in folders() {
        let entries = match std::fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) => {
                let why = crate::config::file::go_error("open", &folder, &error);
                let folder = folder.display().to_string();
                warn(format!("Unable to read directory {folder:?} from your PATH: {why}. Skipping..."));
                continue;
            }
        };
        let mut names: Vec<String> = entries
            .flatten()
            .filter(|entry| !entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| name.starts_with("kubectl-"))
            .collect();
        names.sort();
        found.extend(names.into_iter().map(|name| (folder.join(&name), name)));
    }
    let mut errors = String::new();
    if found.is_empty() {
        errors.push_str("error: unable to find any kubectl plugins in your PATH\n");
    } else {
        line("The following compatible plugins are available:\n");
    }
    let mut seen: HashMap<&str, &Path> = HashMap::new();
    let mut warnings = 0;
    for (path, name) in &found {
        let shown = path.display();
        line(if context.flags.is("name-only") { name.clone() } else { shown.to_string() });
        let mut say = |text: String| {
            warn(format!("  - warning: {text}"));
            warnings += 1;
        };
        if !is_executable(path) {
            say(format!("{shown} identified as a kubectl plugin, but it is not executable"));
        }
        match seen.get(&**name) {
            Some(first) => say(format!("{shown} is overshadowed by a similarly named plugin: {}", first.display())),
            None => drop(seen.insert(name, path)),
        }
        let first = name.split('-').nth(1).unwrap_or_default();
        if COMMANDS.iter().any(|command| command.name == first) {
            say(format!("{name} overwrites existing command: \"kubectl {first}\""));
        }
    }
    match warnings {
        0 => {}
        1 => errors.push_str("error: one plugin warning was found\n"),
        count => errors.push_str(&format!("error: {count} plugin warnings were found\n")),
    }
    if errors.is_empty() { Ok(()) } else { Err(Error::say(errors)) }
}

/// `deep` of `kubectl-deep-er_name`, in order.
pub fn first_words() -> BTreeSet<String> {
    let entries = folders().into_iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter_map(|name| Some(name.strip_prefix("kubectl-")?.split('-').next()?.to_owned())).collect()
}

/// Becomes the program of a command that kubectl does not have: `kubectl a b` is `kubectl-a-b`, or `kubectl-a` with `b`.
/// Returns where there is none. Folders of PATH that depend on where one stands are not looked into.
pub fn run(arguments: &[String]) -> Option<String> {
    if let Some(flag) = arguments.first().filter(|word| word.starts_with('-')) {
        return Some(format!("Error: flags cannot be placed before plugin name: {flag}"));
    }
    let words: Vec<String> =
        arguments.iter().take_while(|word| !word.starts_with('-')).map(|word| word.replace('-', "_")).collect();
    for count in (1..=words.len()).rev() {
        let name = format!("kubectl-{}", words[..count].join("-"));
        if name.contains('/') {
            continue;
        }
        let Some(path) =
            folders().into_iter().filter(|f| f.is_absolute()).map(|f| f.join(&name)).find(|path| is_executable(path))
        else {
            continue;
        };
        flush();
        let error = std::process::Command::new(&path).args(&arguments[count..]).exec();
        return Some(format!("error: cannot run {}: {error}", path.display()));
    }
    None
}
