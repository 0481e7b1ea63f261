//! One line with the preferences: an alias becomes its command, flags that are not written get their defaults.

use super::{OptionDefault, Policy, Preference, load};
use crate::commands::{COMMANDS, Command, GLOBAL, Run};
use crate::dispatch::first_word;
use crate::text::{quote, warn};

/// What is left to run.
#[derive(Default)]
pub struct Applied {
    pub arguments: Vec<String>,
    /// `kubectl getn`, where an alias was written.
    pub alias: Option<String>,
    /// Whose flags, and their values where none are written.
    pub of: String,
    pub options: Vec<OptionDefault>,
    pub policy: Policy,
}

/// A command by its words.
fn find(words: &[&str]) -> Option<&'static Command> {
    let mut known = COMMANDS;
    let mut found: Option<&'static Command> = None;
    for word in words {
        let next = known.iter().find(|command| command.name == *word || command.aliases.contains(word));
        let Some(next) = next else {
            // Words behind the last command are its own.
            return found.filter(|command| !matches!(command.run, Run::Group(_)));
        };
        found = Some(next);
        known = match next.run {
            Run::Group(below) | Run::Both(_, below) => below,
            Run::Leaf(_) => &[],
        };
    }
    found
}

fn explicit(arguments: &[String]) -> Result<&str, String> {
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let value = match argument.as_str() {
            "--" => break,
            "--kuberc" => rest.next().map(String::as_str),
            other => match other.strip_prefix("--kuberc=") {
                Some(value) => Some(value),
                None => continue,
            },
        };
        return value.filter(|value| !value.is_empty()).ok_or_else(|| "kuberc file is not found".to_owned());
    }
    Ok("")
}

pub fn apply(arguments: &[String]) -> Result<Applied, String> {
    let plain = Applied { arguments: arguments.to_vec(), ..Applied::default() };
    if arguments.is_empty() {
        return Ok(plain);
    }
    let flag = explicit(arguments)?;
    let Some(preference) = load(flag).map_err(|why| format!("kuberc error {why}"))? else {
        return Ok(plain);
    };
    let policy = Policy {
        kind: preference.credential_plugin_policy.clone(),
        allowed: preference.credential_plugin_allowlist.clone(),
    };
    validate(&preference, &policy)?;
    let Some(at) = first_word(arguments, None) else {
        return Ok(Applied { policy, ..plain });
    };
    let known = arguments[at] == "help" || arguments[at] == "__complete" || find(&[&arguments[at]]).is_some();
    let mut applied = match known {
        true => defaults(&preference, arguments, at)?,
        false => alias(&preference, arguments, at)?,
    };
    applied.policy = policy;
    Ok(applied)
}

fn defaults(preference: &Preference, arguments: &[String], at: usize) -> Result<Applied, String> {
    let mut applied = Applied { arguments: arguments.to_vec(), ..Applied::default() };
    let words: Vec<&str> = arguments[at..].iter().map(String::as_str).filter(|word| !word.starts_with('-')).collect();
    let asked = find(&words);
    for default in preference.defaults.iter().flatten() {
        let wanted: Vec<&str> = default.command.split_whitespace().collect();
        let Some(command) = find(&wanted) else {
            warn(format!("Warning: command {} not found to set kuberc override", quote(&default.command)));
            continue;
        };
        if asked.is_some_and(|asked| asked.name == command.name) {
            let options = default.options.as_deref().unwrap_or_default();
            has_all(command, options).map_err(|name| format!("invalid flag {name} for command {}", default.command))?;
            applied.of = default.command.clone();
            applied.options.extend(default.options.iter().flatten().cloned());
        }
    }
    Ok(applied)
}

fn alias(preference: &Preference, arguments: &[String], at: usize) -> Result<Applied, String> {
    let plain = Applied { arguments: arguments.to_vec(), ..Applied::default() };
    let Some(alias) = preference.aliases.iter().flatten().find(|alias| alias.name == arguments[at]) else {
        return Ok(plain);
    };
    let words: Vec<&str> = alias.command.split_whitespace().collect();
    if find(&words).is_none() {
        return Err(format!(
            "command {} not found to set alias {}: [{}]",
            quote(&alias.command),
            quote(&alias.name),
            words.join(" ")
        ));
    }
    if let Some(command) = find(&words) {
        has_all(command, &alias.options).map_err(|name| format!("invalid alias flag {name} in alias kubectl"))?;
    }
    let mut line: Vec<String> = arguments[..at].to_vec();
    line.extend(words.into_iter().map(str::to_owned));
    line.extend(alias.prepend_args.iter().cloned());
    line.extend(arguments[at + 1..].iter().cloned());
    line.extend(alias.append_args.iter().cloned());
    Ok(Applied {
        arguments: line,
        alias: Some(format!("kubectl {}", alias.name)),
        options: alias.options.clone(),
        ..Applied::default()
    })
}

/// The first flag that a command does not have.
fn has_all(command: &Command, options: &[OptionDefault]) -> Result<(), String> {
    let own = (command.flags)();
    let known = |name: &str| own.iter().chain(GLOBAL).any(|flag| flag.name == name);
    match options.iter().find(|option| !known(&option.name)) {
        Some(option) => Err(option.name.clone()),
        None => Ok(()),
    }
}

fn validate(preference: &Preference, policy: &Policy) -> Result<(), String> {
    let long = |options: &[OptionDefault]| {
        let dashed = options.iter().find(|option| option.name.starts_with('-'));
        dashed.map_or(Ok(()), |option| Err(format!("flag name {} should be in long form without dashes", option.name)))
    };
    let mut names: Vec<&str> = Vec::new();
    for alias in preference.aliases.iter().flatten() {
        if alias.name.is_empty() || !alias.name.bytes().all(|byte| byte.is_ascii_alphabetic()) {
            return Err("invalid alias name, can only include alphabetical characters".into());
        }
        long(&alias.options)?;
        if names.contains(&&*alias.name) {
            return Err(format!("duplicate alias name {}", alias.name));
        }
        names.push(&alias.name);
    }
    for default in preference.defaults.iter().flatten() {
        long(default.options.as_deref().unwrap_or_default())?;
    }
    policy.validate()
}
