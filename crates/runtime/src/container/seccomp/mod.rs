//! Seccomp profiles of the OCI specification as programs of the kernel's packet filter (BPF).
//!
//! Every architecture of the profile gets a binary search over the numbers of its system calls, so that a call costs a
//! handful of instructions. What differs from libseccomp: calls of the x32 ABI do not exist, and a call that is newer than
//! all calls the profile names does not exist either, so that programs fall back to older ones (as runc has it). Of several
//! rules with conditions that hold, the first counts.

mod program;

use std::collections::BTreeMap;

use serde::Deserialize;

pub(crate) use program::Instruction;
use program::{Condition, Leaf, Program};

/// A row per system call: its name, and its number on each architecture.
const NUMBERS: &str = include_str!("numbers.tsv");
const ENOSYS: u32 = 38;
const EPERM: u32 = 1;
/// The kernel takes no longer programs.
const LONGEST: usize = 4096;

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Profile {
    default_action: String,
    default_errno_ret: Option<u32>,
    #[serde(default)]
    architectures: Vec<String>,
    #[serde(default)]
    flags: Vec<String>,
    #[serde(default)]
    syscalls: Vec<Calls>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Calls {
    names: Vec<String>,
    action: String,
    errno_ret: Option<u32>,
    #[serde(default)]
    args: Vec<Argument>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Argument {
    index: u32,
    value: u64,
    #[serde(default)]
    value_two: u64,
    op: String,
}

/// What the kernel is handed over.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    pub(crate) instructions: Vec<Instruction>,
    /// Of seccomp(2).
    pub(crate) flags: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Architecture {
    name: &'static str,
    /// As the kernel tells it in `seccomp_data`.
    audit: u32,
    /// The column of the table.
    column: usize,
}

const ARCHITECTURES: [Architecture; 4] = [
    Architecture { name: "SCMP_ARCH_X86_64", audit: 0xC000_003E, column: 1 },
    Architecture { name: "SCMP_ARCH_X86", audit: 0x4000_0003, column: 2 },
    Architecture { name: "SCMP_ARCH_AARCH64", audit: 0xC000_00B7, column: 3 },
    Architecture { name: "SCMP_ARCH_ARM", audit: 0x4000_0028, column: 4 },
];

/// Those that programs of this machine can have, its own first.
fn native() -> Result<&'static [Architecture], String> {
    match std::env::consts::ARCH {
        "x86_64" => Ok(&ARCHITECTURES[..2]),
        "aarch64" => Ok(&ARCHITECTURES[2..]),
        other => Err(format!("seccomp profiles are not known for {other}")),
    }
}

fn action(name: &str, errno: Option<u32>) -> Result<u32, String> {
    Ok(match name {
        "SCMP_ACT_KILL" | "SCMP_ACT_KILL_THREAD" => 0,
        "SCMP_ACT_KILL_PROCESS" => 0x8000_0000,
        "SCMP_ACT_TRAP" => 0x0003_0000,
        "SCMP_ACT_ERRNO" => 0x0005_0000 | (errno.unwrap_or(EPERM) & 0xFFFF),
        "SCMP_ACT_TRACE" => 0x7FF0_0000 | (errno.unwrap_or(EPERM) & 0xFFFF),
        "SCMP_ACT_LOG" => 0x7FFC_0000,
        "SCMP_ACT_ALLOW" => 0x7FFF_0000,
        other => return Err(format!("seccomp action {other:?} is not supported")),
    })
}

fn flags(names: &[String]) -> Result<u32, String> {
    names.iter().try_fold(0, |all, name| {
        Ok(all
            | match name.as_str() {
                // There is one thread when the filter is put into place.
                "SECCOMP_FILTER_FLAG_TSYNC" => 0,
                "SECCOMP_FILTER_FLAG_LOG" => 2,
                "SECCOMP_FILTER_FLAG_SPEC_ALLOW" => 4,
                other => return Err(format!("seccomp flag {other:?} is not supported")),
            })
    })
}

/// The rules of each named call, in the order of the profile.
type Rules<'a> = BTreeMap<&'a str, Vec<(Vec<Condition>, u32)>>;

fn rules(profile: &Profile) -> Result<Rules<'_>, String> {
    let mut rules: Rules<'_> = BTreeMap::new();
    for calls in &profile.syscalls {
        let action = action(&calls.action, calls.errno_ret)?;
        let conditions = calls.args.iter().map(condition).collect::<Result<Vec<_>, _>>()?;
        let mut indexes: Vec<u32> = calls.args.iter().map(|argument| argument.index).collect();
        indexes.sort_unstable();
        indexes.dedup();
        for name in &calls.names {
            let known = rules.entry(name).or_default();
            if indexes.len() < conditions.len() {
                // Several conditions on one argument: any of them, as the specification's first implementation has it.
                known.extend(conditions.iter().map(|condition| (vec![*condition], action)));
            } else {
                known.push((conditions.clone(), action));
            }
        }
    }
    Ok(rules)
}

fn condition(argument: &Argument) -> Result<Condition, String> {
    if argument.index > 5 {
        return Err(format!("a system call has no argument {}", argument.index));
    }
    Condition::new(argument.index, &argument.op, argument.value, argument.value_two)
        .ok_or_else(|| format!("seccomp operator {:?} is not supported", argument.op))
}

/// What is done with each number, where it is not the default.
fn leaves(rules: &Rules<'_>, architecture: Architecture, fallback: u32) -> BTreeMap<u32, Leaf> {
    let mut leaves = BTreeMap::new();
    for line in NUMBERS.lines().filter(|line| !line.starts_with('#')) {
        let mut columns = line.split('\t');
        let name = columns.next().unwrap_or_default();
        let number = columns.nth(architecture.column - 1).and_then(|number| number.parse::<u32>().ok());
        let (Some(number), Some(known)) = (number, rules.get(name)) else { continue };
        leaves.insert(number, leaf(known, fallback));
    }
    leaves
}

/// As libseccomp decides, and runc by it: a rule that does what is done anyway is none, and beside a rule without conditions
/// those with conditions say nothing, wherever they stand.
fn leaf(known: &[(Vec<Condition>, u32)], fallback: u32) -> Leaf {
    let counted = || known.iter().filter(|(_, action)| *action != fallback);
    match counted().find(|(conditions, _)| conditions.is_empty()) {
        Some((_, action)) => Leaf { tried: Vec::new(), otherwise: *action },
        None => Leaf { tried: counted().cloned().collect(), otherwise: fallback },
    }
}

pub(crate) fn compile(profile: &Profile) -> Result<Filter, String> {
    let fallback = action(&profile.default_action, profile.default_errno_ret)?;
    let rules = rules(profile)?;
    let machine = native()?;
    let listed = |one: &Architecture| profile.architectures.iter().any(|name| name == one.name);
    let mut program = Program::default();
    for (place, one) in machine.iter().enumerate() {
        // The machine's own is always meant.
        if place == 0 || listed(one) {
            let leaves = leaves(&rules, *one, fallback);
            // Where calls are allowed by default, traced or only told of, newer ones are, too.
            let lets_through = matches!(fallback & 0xFFFF_0000, 0x7FFF_0000 | 0x7FFC_0000 | 0x7FF0_0000);
            let newer = if lets_through { fallback } else { 0x0005_0000 | ENOSYS };
            program.architecture(one.audit, &leaves, fallback, newer);
        }
    }
    // Another architecture's numbers mean something else.
    let instructions = program.finish(0x8000_0000);
    if instructions.len() > LONGEST {
        return Err(format!("a seccomp profile of {} instructions is too long", instructions.len()));
    }
    Ok(Filter { instructions, flags: flags(&profile.flags)? })
}

#[cfg(test)]
mod tests;
