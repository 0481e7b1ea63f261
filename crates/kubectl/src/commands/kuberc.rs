//! `kubectl kuberc`: the user's preferences, shown and changed. `kubectl alpha` has no commands.

use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};

use super::{Command, group, leaf};
use crate::error::{Error, Result};
use crate::flags::{Flag, array, switch, text};
use crate::preferences::{self, Alias, Allowed, Defaults, OptionDefault, Preference, Unread};
use crate::print::{self, Format};
use crate::session::Context;
use crate::text::{flush, line, print, quote};

pub const COMMAND: Command = group(
    "kuberc",
    "Manage kuberc configuration files",
    &[
        leaf("view", "", "Display the current kuberc configuration", view_flags, |c| Box::pin(view(c))),
        leaf(
            "set",
            "--section (defaults|aliases) --command COMMAND",
            "Set values in the kuberc configuration",
            set_flags,
            |c| Box::pin(set(c)),
        ),
    ],
);

pub const ALPHA: Command =
    leaf("alpha", "", "Commands for features in alpha", Vec::new, |_| Box::pin(async { no_alpha() }));

fn no_alpha() -> Result<()> {
    crate::text::warn("No alpha commands are available in this version of kubectl");
    Ok(())
}

const FILE: Flag = text("kuberc", "Path to the preferences file.");

fn view_flags() -> Vec<Flag> {
    let mut flags = print::FLAGS.to_vec();
    flags[0].default = "yaml";
    flags.push(FILE);
    flags
}

fn set_flags() -> Vec<Flag> {
    vec![
        FILE,
        text("section", "Section to change: 'defaults', 'aliases', or 'credentialplugin'"),
        text("command", "Command to configure (e.g., 'get', 'create', 'set env')"),
        text("name", "Alias name (required for --section=aliases)"),
        text("policy", "Which credential plug-ins may run: 'AllowAll', 'DenyAll' or 'Allowlist'"),
        array("option", "A flag and its value as flag=value; may be given several times."),
        array("prependarg", "Argument before those of the line; may be given several times, for aliases only."),
        array("appendarg", "Argument behind those of the line; may be given several times, for aliases only."),
        array("allowlist-entry", "A program that may run as field=value; may be given several times."),
        switch("overwrite", "Allow to change entries that are there."),
    ]
}

fn file(context: &Context) -> Result<(PathBuf, bool)> {
    preferences::file(context.flags.text("kuberc"))
        .map_err(Error::say)?
        .ok_or_else(|| Error::say("KUBERC is disabled via KUBERC=off environment variable"))
}

async fn view(context: &Context) -> Result<()> {
    let (path, named) = file(context)?;
    let mut found = match preferences::read(&path) {
        Ok(Some((found, None))) => found,
        Ok(Some((_, Some(unknown)))) => return Err(unread(&unknown)),
        Ok(None) => Preference::empty(),
        Err(Unread::Broken(why)) => return Err(unread(&why)),
        Err(Unread::Missing(_)) if named => {
            return Err(Error::say(format!("kuberc file not found at {}", path.display())));
        }
        Err(Unread::Missing(_)) => {
            line(format!("kuberc file not found at {}", path.display()));
            print("Would you like to generate a default kuberc file with recommended options? (y/N): ");
            flush();
            let mut answer = String::new();
            let read = std::io::stdin().lock().read_line(&mut answer);
            if read.is_err() || !answer.trim().eq_ignore_ascii_case("y") {
                return Ok(());
            }
            return save(&recommended(), &path);
        }
    };
    found.defaults.get_or_insert_default();
    found.aliases.get_or_insert_default();
    match Format::for_writing(&context.flags)? {
        Format::Json { .. } => print(ordered(&found)?),
        Format::Kyaml { .. } => print(print::kyaml::of_json(&ordered(&found)?).unwrap_or_default()),
        format => print(format.object(&value(&found)?, true)?),
    }
    Ok(())
}

fn unread(why: &str) -> Error {
    Error::say(format!("error reading kuberc file: {why}"))
}

fn value(preference: &Preference) -> Result<serde_json::Value> {
    serde_json::to_value(preference).map_err(|error| Error::say(format!("failed to marshal preferences: {error}")))
}

/// JSON in the order of the fields.
fn ordered(preference: &Preference) -> Result<String> {
    let text = serde_json::to_vec_pretty(preference);
    text.map(print::four_spaces).map_err(|error| Error::say(format!("failed to marshal preferences: {error}")))
}

/// Server-side apply, and a question before anything is deleted.
fn recommended() -> Preference {
    let default = |command: &str, name: &str| Defaults {
        command: command.into(),
        options: Some(vec![OptionDefault { name: name.into(), default: "true".into() }]),
    };
    Preference {
        defaults: Some(vec![default("apply", "server-side"), default("delete", "interactive")]),
        ..Preference::empty()
    }
}

/// Written beside and renamed: a full disk loses nothing.
fn save(preference: &Preference, path: &Path) -> Result<()> {
    let fail = |error: std::io::Error| Error::say(format!("failed to write kuberc file: {error}"));
    let real = path.canonicalize();
    let target = real.as_deref().unwrap_or(path);
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)
        .map_err(|error| Error::say(format!("failed to create directory {}: {error}", folder.display())))?;
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(fail)?;
    file.write_all(ferry_schema::yaml::to_yaml(&value(preference)?).as_bytes()).map_err(fail)?;
    file.persist(target).map_err(|error| fail(error.error))?;
    line(format!("Updated {}", path.display()));
    Ok(())
}

async fn set(context: &Context) -> Result<()> {
    let flags = &context.flags;
    if !flags.changed("section") {
        return Err(Error::say("required flag(s) \"section\" not set"));
    }
    let (path, _) = file(context)?;
    let (section, command, name) = (flags.text("section"), flags.text("command"), flags.text("name"));
    let (before, behind) = (flags.list("prependarg"), flags.list("appendarg"));
    let fail = |why: &str| Err(Error::say(why));
    match section {
        "defaults" | "aliases" | "credentialplugin" => {}
        other => {
            return Err(Error::say(format!(
                "--section must be \"defaults\", \"aliases\", or \"credentialplugin\", got: {other}"
            )));
        }
    }
    if section == "aliases" && name.is_empty() {
        return fail("--name is required when --section=aliases");
    }
    if section == "defaults" && !name.is_empty() {
        return fail("--name should not be specified when --section=defaults");
    }
    if section == "defaults" && !(before.is_empty() && behind.is_empty()) {
        return fail("--prependarg and --appendarg are only valid for --section=aliases");
    }
    if section != "credentialplugin" && command.is_empty() {
        return fail("--command is required when --section=aliases or --section=defaults");
    }
    if section == "credentialplugin" {
        check_policy(flags.text("policy"), flags.list("allowlist-entry").is_empty())?;
    }
    let mut found = match preferences::read(&path) {
        Ok(Some((found, None))) => found,
        Ok(Some((_, Some(why)))) => return Err(unread(&why)),
        Ok(None) | Err(Unread::Missing(_)) => Preference::empty(),
        Err(Unread::Broken(why)) => return Err(unread(&why)),
    };
    let options = options(&flags.list("option"))?;
    let overwrite = flags.is("overwrite");
    match section {
        "defaults" => set_defaults(&mut found, command, options, overwrite)?,
        "aliases" => {
            let alias = Alias {
                name: name.into(),
                command: command.into(),
                prepend_args: before,
                append_args: behind,
                options,
            };
            set_alias(&mut found, alias, overwrite)?;
        }
        _ => {
            if flags.text("policy") == "Allowlist" {
                found.credential_plugin_allowlist = Some(entries(&flags.list("allowlist-entry"))?);
            }
            found.credential_plugin_policy = flags.text("policy").to_owned();
        }
    }
    save(&found, &path)
}

fn check_policy(policy: &str, no_entries: bool) -> Result<()> {
    let why = match (policy, no_entries) {
        ("", _) => "--policy is required when --section=credentialplugin".to_owned(),
        ("AllowAll" | "DenyAll", false) => {
            "--allowlist-entry may only be used when --section=credentialplugin and --policy=Allowlist".to_owned()
        }
        ("Allowlist", true) => {
            "--allowlist-entry is required when --section=credentialplugin and --policy=Allowlist".to_owned()
        }
        ("AllowAll" | "DenyAll" | "Allowlist", _) => return Ok(()),
        (other, _) => {
            format!(" --policy must be  \"AllowAll\", \"DenyAll\", or \"Allowlist\", got: {other}")
        }
    };
    Err(Error::say(why))
}

fn options(written: &[String]) -> Result<Vec<OptionDefault>> {
    let one = |option: &String| match option.split_once('=') {
        Some((name, value)) => {
            Ok(OptionDefault { name: name.trim_start_matches('-').to_owned(), default: value.to_owned() })
        }
        None => Err(Error::say(format!("invalid option format {}, expected flag=value", quote(option)))),
    };
    written.iter().map(one).collect()
}

fn set_defaults(found: &mut Preference, command: &str, options: Vec<OptionDefault>, overwrite: bool) -> Result<()> {
    let all = found.defaults.get_or_insert_default();
    match all.iter_mut().find(|known| known.command == command) {
        Some(_) if !overwrite => {
            return Err(Error::say(format!(
                "defaults for command {} already exist, use --overwrite to replace",
                quote(command)
            )));
        }
        Some(known) => {
            // None given leaves those that are there.
            if !options.is_empty() {
                known.options = Some(options);
            }
        }
        None => {
            let options = Some(options).filter(|options| !options.is_empty());
            all.push(Defaults { command: command.to_owned(), options });
        }
    }
    Ok(())
}

/// What is not said of an alias stays as it was.
fn set_alias(found: &mut Preference, alias: Alias, overwrite: bool) -> Result<()> {
    let all = found.aliases.get_or_insert_default();
    match all.iter_mut().find(|known| known.name == alias.name) {
        Some(_) if !overwrite => {
            return Err(Error::say(format!("alias {} already exists, use --overwrite to replace", quote(&alias.name))));
        }
        Some(known) => {
            fn or<T>(new: Vec<T>, old: &mut Vec<T>) -> Vec<T> {
                if new.is_empty() { std::mem::take(old) } else { new }
            }
            *known = Alias {
                prepend_args: or(alias.prepend_args, &mut known.prepend_args),
                append_args: or(alias.append_args, &mut known.append_args),
                options: or(alias.options, &mut known.options),
                ..alias
            };
        }
        None => all.push(alias),
    }
    Ok(())
}

fn entries(written: &[String]) -> Result<Vec<Allowed>> {
    let (mut found, mut errors) = (Vec::new(), Vec::new());
    for pair in written.iter().flat_map(|entry| entry.split(',')) {
        match pair.split_once('=') {
            None => errors.push(format!("improperly formatted allowlist entry: {}", quote(pair))),
            Some(("name", _)) => {
                errors.push("allowlist entry field \"name\" is deprecated, use \"command\" instead".to_owned());
            }
            Some(("command", value)) if value.trim().is_empty() => {
                errors.push("empty value in allowlist entry for field \"command\"".to_owned());
            }
            Some(("command", value)) => found.push(Allowed { command: value.to_owned(), ..Allowed::default() }),
            Some((field, _)) => errors.push(format!("unrecognized allowlist entry field: {}", quote(field))),
        }
    }
    match &*errors {
        [] => Ok(found),
        [one] => Err(Error::say(one.clone())),
        many => Err(Error::say(format!("[{}]", many.join(", ")))),
    }
}
