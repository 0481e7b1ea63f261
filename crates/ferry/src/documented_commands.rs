//! Commands that the documents show: every `ferry …` in them has subcommands and flags that exist.

use std::path::{Path, PathBuf};

use clap::CommandFactory;

use crate::arguments::Arguments;

fn documents() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found: Vec<PathBuf> =
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(|name| root.join(name)).into();
    let mut folders = vec![root.join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    found.into_iter().map(|path| (path.clone(), std::fs::read_to_string(path).unwrap())).collect()
}

/// What follows `ferry` in code: lines of fenced blocks, with or without a prompt, and words in backticks.
fn commands(text: &str) -> Vec<&str> {
    let (mut found, mut fenced) = (Vec::new(), false);
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if fenced {
            let line = line.split(" # ").next().unwrap_or_default();
            let starts = |part: &str| {
                part.trim().trim_start_matches("server# ").trim_start_matches("node# ").trim_start_matches("$ ").len()
            };
            let parts = line.split("&&").map(|part| &part.trim()[part.trim().len() - starts(part)..]);
            found.extend(parts.filter_map(|part| part.strip_prefix("ferry ")));
        } else {
            found.extend(line.split('`').skip(1).step_by(2).filter_map(|code| code.strip_prefix("ferry ")));
        }
    }
    // A word that is no command: the name of the binary in a sentence or a drawing.
    found.retain(|command| command.starts_with(|c: char| c.is_ascii_lowercase()));
    found
}

/// What is wrong with the arguments of one command.
fn fault(arguments: &str) -> Option<String> {
    let mut command = Arguments::command();
    // So that flags for all subcommands are known to each of them.
    command.build();
    let mut current = &command;
    for word in arguments.split_whitespace() {
        let word = word.trim_matches(['[', ']', ',', '\'']);
        // Its words are another command line's, as those of `ferry get` are kubectl's.
        if current.get_arguments().any(clap::Arg::is_trailing_var_arg_set) {
            return None;
        }
        if let Some(flag) = word.strip_prefix("--") {
            let name = flag.split('=').next().unwrap_or_default();
            let known = current.get_arguments().any(|argument| {
                argument.get_long() == Some(name) || argument.get_all_aliases().is_some_and(|all| all.contains(&name))
            });
            if !known && name != "help" {
                return Some(format!("{} has no flag --{name}", current.get_name()));
            }
        } else if current.has_subcommands() && word.starts_with(|c: char| c.is_ascii_lowercase()) {
            match current.find_subcommand(word) {
                Some(found) => current = found,
                None => return Some(format!("{} has no command {word}", current.get_name())),
            }
        }
    }
    None
}

#[test]
fn commands_in_documents_exist() {
    let documents = documents();
    let all: Vec<_> =
        documents.iter().flat_map(|(path, text)| commands(text).into_iter().map(move |c| (path, c))).collect();
    assert!(all.len() > 50, "commands are no longer found in the documents: {}", all.len());
    let wrong: Vec<String> = all
        .into_iter()
        .filter_map(|(path, command)| Some(format!("{}: ferry {command}: {}", path.display(), fault(command)?)))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn what_does_not_exist_is_found() {
    assert_eq!(
        commands("see `ferry up` and\n```\n$ ferry why po/x && ferry down  # ends\n```\n"),
        ["up", "why po/x", "down"]
    );
    assert_eq!(fault("store backup FILE --data-dir DIR"), None);
    assert_eq!(fault("store shrink"), Some("store has no command shrink".to_owned()));
    assert_eq!(fault("up --no-such-flag"), Some("up has no flag --no-such-flag".to_owned()));
}
