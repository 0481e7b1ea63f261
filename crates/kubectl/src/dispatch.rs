//! From a command line to a command, and from its end to an exit code.

use crate::commands::{COMMANDS, Command, GLOBAL, Run, Runner, completion, plugin};
use crate::error::Error;
use crate::flags::{Flag, HELP, Parsed};
use crate::help;
use crate::preferences;
use crate::session::{Applied, Context};
use crate::text::{flush, print, quote, warn};

/// Runs one line: the arguments behind the program's name. Returns the exit code.
pub fn main(arguments: &[String]) -> u8 {
    let (code, _) = run(arguments, false);
    flush();
    code
}

/// `kubectl get`, and the table stays: every change is shown in its place, until it is interrupted.
pub fn live(arguments: &[String]) -> u8 {
    let line: Vec<String> = std::iter::once("get".to_owned()).chain(arguments.iter().cloned()).collect();
    let (code, _) = run(&line, true);
    flush();
    code
}

/// `kubectl apply --server-side`: the exit code, and what was applied.
pub fn apply(arguments: &[String]) -> (u8, Vec<Applied>) {
    let line = ["apply", "--server-side"].map(str::to_owned);
    let line: Vec<String> = line.into_iter().chain(arguments.iter().cloned()).collect();
    let outcome = run(&line, false);
    flush();
    outcome
}

fn runtime() -> Option<tokio::runtime::Runtime> {
    let made = tokio::runtime::Builder::new_current_thread().enable_all().build();
    if made.is_err() {
        warn("error: cannot start: no more threads or files");
    }
    made.ok()
}

fn run(arguments: &[String], live: bool) -> (u8, Vec<Applied>) {
    match prepare(arguments, live) {
        Ok((context, run)) => carry_out(context, run),
        Err(code) => (code, Vec::new()),
    }
}

/// A line that is a command with its flags; the exit code where it is none, or where all is said.
fn prepare(arguments: &[String], live: bool) -> Result<(Context, Runner), u8> {
    if let Some(asked) = arguments.first().filter(|word| matches!(&***word, "__complete" | "__completeNoDesc")) {
        let Some(runtime) = runtime() else { return Err(1) };
        runtime.block_on(completion::answer(&arguments[1..], asked == "__complete"));
        runtime.shutdown_background();
        return Err(0);
    }
    let preferred = match preferences::apply(arguments) {
        Ok(preferred) => preferred,
        Err(why) => {
            warn(format!("error occurred while applying preferences {why}"));
            return Err(1);
        }
    };
    let mut path = "kubectl".to_owned();
    let mut rest = preferred.arguments.clone();
    let mut known: &[Command] = COMMANDS;
    let mut found: Option<&Command> = None;
    while let Some(at) = first_word(&rest, found) {
        let word = rest[at].clone();
        if found.is_none() && word == "help" {
            rest.remove(at);
            rest.push("--help".to_owned());
            continue;
        }
        let Some(command) = known.iter().find(|c| c.name == word || c.aliases.contains(&&*word)) else {
            match found {
                None => {
                    return Err(match plugin::run(arguments) {
                        Some(failed) => {
                            warn(failed);
                            1
                        }
                        None => unknown(&word),
                    });
                }
                // A word of its own, or a subcommand that is not there.
                Some(group) if matches!(group.run, Run::Group(_)) && group.name != "certificate" => {
                    return Err(no_subcommand(&path, &rest));
                }
                Some(_) => break,
            }
        };
        rest.remove(at);
        path = format!("{path} {}", command.name);
        found = Some(command);
        match command.run {
            Run::Group(below) | Run::Both(_, below) => known = below,
            Run::Leaf(_) => break,
        }
        if matches!(command.run, Run::Both(..)) {
            let next = first_word(&rest, found).map(|at| rest[at].clone());
            if next.is_none_or(|word| !known.iter().any(|c| c.name == word || c.aliases.contains(&&*word))) {
                break;
            }
        }
    }
    let Some(command) = found else {
        return Err(overview(&rest));
    };
    let run = match command.run {
        Run::Leaf(run) | Run::Both(run, _) => run,
        Run::Group(below) => {
            let asked = rest.iter().any(|word| word == "--help" || word == "-h");
            let told = help::group(&path, command, below);
            // Two groups tell it on standard output, and one of them finds nothing wrong.
            if asked || matches!(command.name, "certificate" | "rollout") {
                print(told)
            } else {
                warn(told)
            }
            return Err(u8::from(!asked && command.name != "certificate"));
        }
    };
    let path = preferred.alias.clone().unwrap_or(path);
    let mut specs: Vec<Flag> = (command.flags)();
    let shadowed =
        GLOBAL.iter().map(|flag| flag.name).filter(|name| specs.iter().any(|own| own.name == *name)).collect();
    for flag in GLOBAL {
        if !specs.iter().any(|own| own.name == flag.name) {
            let taken = flag.short.is_some_and(|short| specs.iter().any(|own| own.short == Some(short)));
            specs.push(Flag { short: flag.short.filter(|_| !taken), ..*flag });
        }
    }
    let mut parsed = match Parsed::parse(specs, &rest) {
        Ok(parsed) => parsed,
        Err(why) if why == HELP => {
            help::command(&path, command);
            return Err(0);
        }
        Err(why) => {
            // The code 1 of a diff says that there are differences.
            if command.name == "diff" {
                warn(format!("error: {why}\nSee '{path} -h' for help and examples"));
                return Err(2);
            }
            warn(format!("error: {why}\nSee '{path} --help' for usage."));
            return Err(1);
        }
    };
    parsed.deprecations().for_each(warn);
    parsed.shadowed = shadowed;
    for option in &preferred.options {
        if let Err(why) = parsed.prefer(&option.name, &option.default) {
            let (what, why) = why.split_once('\n').unwrap_or((&why, ""));
            let whose = match &preferred.alias {
                Some(alias) if why.is_empty() => format!("{what} in alias {alias}"),
                None if why.is_empty() => format!("{what} for command {}", preferred.of),
                Some(alias) => format!("could not apply{what} in alias {alias} err: {why}"),
                None => format!("could not apply override{what} in command {} err: {why}", preferred.of),
            };
            warn(format!("error occurred while applying preferences {whose}"));
            return Err(1);
        }
    }
    if let Some(profile) = parsed.global("profile").filter(|name| !PROFILES.contains(name)) {
        warn(format!("error: unknown profile '{profile}'"));
        return Err(1);
    }
    let mut context = Context::new(parsed, path, preferred.policy);
    context.live = live;
    Ok((context, run))
}

/// Of the Go program that kubectl is; there is nothing to capture here.
const PROFILES: [&str; 8] = ["none", "cpu", "heap", "goroutine", "threadcreate", "block", "mutex", "trace"];

fn carry_out(context: Context, run: Runner) -> (u8, Vec<Applied>) {
    let Some(runtime) = runtime() else { return (1, Vec::new()) };
    let result = runtime.block_on(run(&context)).and_then(|()| context.warned());
    flush();
    // A thread may still wait for standard input.
    runtime.shutdown_background();
    let code = match result {
        Ok(()) => 0,
        Err(error) => finish(&error),
    };
    (code, context.applied())
}

fn finish(error: &Error) -> u8 {
    let text = error.shown();
    if !text.is_empty() {
        warn(text);
    }
    error.exit_code()
}

/// Where the first word is that is no flag, nor the value of one.
pub fn first_word(arguments: &[String], command: Option<&Command>) -> Option<usize> {
    let own = command.map(|command| (command.flags)()).unwrap_or_default();
    let takes_value = |argument: &str| {
        let long = argument.strip_prefix("--");
        if argument.contains('=') {
            return false;
        }
        let flag = GLOBAL.iter().chain(&own).find(|flag| match long {
            Some(name) => flag.name == name,
            None => argument.len() == 2 && flag.short == argument.chars().nth(1),
        });
        match flag {
            Some(flag) => flag.bare.is_none(),
            // Before the command, one that nobody knows takes the word behind it.
            None => {
                command.is_none() && !matches!(argument, "--help" | "-h") && (long.is_some() || argument.len() == 2)
            }
        }
    };
    let mut at = 0;
    while let Some(argument) = arguments.get(at) {
        match argument.as_str() {
            "--" => return None,
            flag if flag.starts_with('-') && flag.len() > 1 => at += if takes_value(flag) { 2 } else { 1 },
            _ => return Some(at),
        }
    }
    None
}

/// What people of other tools type, and mean.
const OTHER_WORDS: [(&str, &str); 6] =
    [("list", "get"), ("ls", "get"), ("rm", "delete"), ("remove", "delete"), ("inspect", "describe"), ("stats", "top")];

fn unknown(word: &str) -> u8 {
    let mut text = format!("error: unknown command {} for \"kubectl\"\n", quote(word));
    let near = |name: &&str| distance(name, word) <= 2 || name.to_lowercase().starts_with(&word.to_lowercase());
    let other = |name: &&str| OTHER_WORDS.iter().any(|(other, of)| of == name && other.eq_ignore_ascii_case(word));
    let close: Vec<&str> =
        COMMANDS.iter().map(|command| command.name).filter(|name| near(name) || other(name)).collect();
    if !close.is_empty() {
        text.push_str("\nDid you mean this?\n");
        close.iter().for_each(|name| text.push_str(&format!("\t{name}\n")));
    }
    warn(text);
    1
}

fn no_subcommand(path: &str, rest: &[String]) -> u8 {
    let words: Vec<&str> = rest.iter().map(String::as_str).filter(|word| !word.starts_with('-')).collect();
    warn(format!("error: unknown command {}\nSee '{path} -h' for help and examples", quote(&words.join(" "))));
    1
}

fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.to_lowercase().chars().collect(), b.to_lowercase().chars().collect());
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let next = (row[j + 1] + 1).min(row[j] + 1).min(corner + usize::from(x != y));
            corner = std::mem::replace(&mut row[j + 1], next);
        }
    }
    row[b.len()]
}

fn overview(rest: &[String]) -> u8 {
    let asked = rest.iter().any(|argument| argument == "--help" || argument == "-h");
    if !asked && let Err(why) = Parsed::parse(GLOBAL.to_vec(), rest) {
        warn(format!("error: {why}\nSee 'kubectl --help' for usage."));
        return 1;
    }
    help::overview();
    0
}
