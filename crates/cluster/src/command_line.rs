//! The command line of a process: which flags there are, what they are, and which of them somebody gave.

use std::collections::BTreeMap;
use std::ffi::OsString;

use clap::Command;
use clap::parser::ValueSource;

#[derive(Clone, Debug, Default)]
pub struct CommandLine {
    /// By their names without dashes in front, as they are declared.
    flags: Vec<(String, Flag)>,
}

#[derive(Clone, Debug)]
struct Flag {
    values: Vec<String>,
    is_given: bool,
}

impl CommandLine {
    /// The flags of the subcommand that was called; none where the arguments are not those of the command.
    pub fn read(command: &Command, arguments: impl Iterator<Item = OsString>) -> Self {
        let Ok(matches) = command.clone().try_get_matches_from(arguments) else { return Self::default() };
        let Some((name, matches)) = matches.subcommand() else { return Self::default() };
        let Some(command) = command.find_subcommand(name) else { return Self::default() };
        let flags = command.get_arguments().filter_map(|argument| {
            let (flag, id) = (argument.get_long()?.to_owned(), argument.get_id().as_str());
            let values = matches.try_get_raw(id).ok()?;
            let values = values.into_iter().flatten().map(|value| value.to_string_lossy().into_owned()).collect();
            Some((flag, Flag { values, is_given: matches.value_source(id) == Some(ValueSource::CommandLine) }))
        });
        Self { flags: flags.collect() }
    }

    /// Every flag with the value it has.
    pub fn in_use(&self) -> Vec<(String, String)> {
        self.flags.iter().map(|(name, flag)| (name.clone(), flag.values.join(","))).collect()
    }

    /// What was given of `wanted`.
    pub fn given(&self, wanted: &[String]) -> BTreeMap<String, Vec<String>> {
        let given = self.flags.iter().filter(|(name, flag)| flag.is_given && wanted.contains(name));
        given.map(|(name, flag)| (name.clone(), flag.values.clone())).collect()
    }
}
