//! `ferry completion` and `ferry man`: made from the same declaration as the flags.

use std::path::Path;

use anyhow::{Context, Result};
use clap::CommandFactory;
use clap_complete::Shell;

use crate::arguments::Arguments;

pub fn completion(shell: Shell) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "ferry", &mut script);
    print!("{}", String::from_utf8_lossy(&script));
    Ok(())
}

/// A page per command: `ferry.1`, `ferry-up.1` and so on.
pub fn man(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    clap_mangen::generate_to(Arguments::command(), folder)
        .with_context(|| format!("cannot write the man pages to {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_and_every_shell_its_completions() {
        let folder = tempfile::tempdir().expect("folder");
        man(folder.path()).expect("pages");
        for command in Arguments::command().get_subcommands().filter(|command| !command.is_hide_set()) {
            let page = folder.path().join(format!("ferry-{}.1", command.get_name()));
            let text = std::fs::read_to_string(&page).unwrap_or_else(|error| panic!("{}: {error}", page.display()));
            assert!(text.contains(".SH SYNOPSIS"), "{}", page.display());
        }
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "ferry", &mut script);
            let script = String::from_utf8(script).expect("text");
            assert!(script.contains("controller-manager"), "{shell}: {script}");
        }
    }
}
