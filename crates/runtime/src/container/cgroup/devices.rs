//! Which devices a container may use: lists in the first generation of control groups, a small program of the kernel's
//! (eBPF) in the second.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use crate::container::document::DeviceRule;
use crate::container::system;

/// What every container may use: (kind, major, minor, access). None stands for any number.
const USUAL: [(&str, Option<i64>, Option<i64>, &str); 10] = [
    ("c", None, None, "m"),
    ("b", None, None, "m"),
    ("c", Some(1), Some(3), "rwm"),
    ("c", Some(1), Some(5), "rwm"),
    ("c", Some(1), Some(7), "rwm"),
    ("c", Some(1), Some(8), "rwm"),
    ("c", Some(1), Some(9), "rwm"),
    ("c", Some(5), Some(0), "rwm"),
    ("c", Some(5), Some(2), "rwm"),
    ("c", Some(136), None, "rwm"),
];

fn usual() -> impl Iterator<Item = DeviceRule> {
    USUAL.iter().map(|(kind, major, minor, access)| DeviceRule {
        allow: true,
        kind: (*kind).to_owned(),
        major: *major,
        minor: *minor,
        access: (*access).to_owned(),
    })
}

/// All devices, where nothing is said against it.
fn everything(rules: &[DeviceRule]) -> bool {
    rules.iter().all(|rule| rule.allow) && rules.iter().any(|rule| rule.kind.is_empty() || rule.kind == "a")
}

pub(super) fn write(folder: Option<&Path>, rules: &[DeviceRule]) -> io::Result<()> {
    if everything(rules) {
        // As the groups above have it.
        return Ok(());
    }
    let folder = folder.ok_or_else(|| io::Error::other("this machine has no control groups of devices"))?;
    let number = |number: Option<i64>| number.filter(|n| *n >= 0).map_or("*".to_owned(), |n| n.to_string());
    for rule in rules.iter().cloned().chain(usual()) {
        let line = if rule.kind.is_empty() || rule.kind == "a" {
            "a".to_owned()
        } else {
            format!("{} {}:{} {}", rule.kind, number(rule.major), number(rule.minor), rule.access)
        };
        let file = if rule.allow { "devices.allow" } else { "devices.deny" };
        fs::write(folder.join(file), &line)
            .map_err(|error| io::Error::new(error.kind(), format!("cannot write {line:?} to {file}: {error}")))?;
    }
    Ok(())
}

/// `struct bpf_insn`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    value: i32,
}

fn instruction(code: u8, target: u8, source: u8, offset: i16, value: i32) -> Instruction {
    Instruction { code, registers: source << 4 | target, offset, value }
}

const LOAD: u8 = 0x61;
const AND: u8 = 0x54;
const SHIFT_RIGHT: u8 = 0x74;
const COPY: u8 = 0xBC;
const SET: u8 = 0xB4;
const IF_UNEQUAL: u8 = 0x56;
const EXIT: u8 = 0x95;

/// Registers: what is asked for, the device's kind, its numbers, and what is answered.
const ANSWER: u8 = 0;
const CONTEXT: u8 = 1;
const ACCESS: u8 = 2;
const KIND: u8 = 3;
const MAJOR: u8 = 4;
const MINOR: u8 = 5;

/// The last rule that covers what is asked for counts; without one it is refused.
pub(crate) fn program(rules: &[DeviceRule]) -> Vec<Instruction> {
    let mut program = vec![
        instruction(LOAD, KIND, CONTEXT, 0, 0),
        instruction(COPY, ACCESS, KIND, 0, 0),
        instruction(AND, KIND, 0, 0, 0xFFFF),
        instruction(SHIFT_RIGHT, ACCESS, 0, 0, 16),
        instruction(LOAD, MAJOR, CONTEXT, 4, 0),
        instruction(LOAD, MINOR, CONTEXT, 8, 0),
    ];
    let all: Vec<DeviceRule> = rules.iter().cloned().chain(usual()).collect();
    for rule in all.iter().rev() {
        let mut tests = Vec::new();
        match rule.kind.as_str() {
            "b" => tests.push((KIND, 1)),
            "c" | "u" => tests.push((KIND, 2)),
            _ => {}
        }
        let bits = [('m', 1), ('r', 2), ('w', 4)];
        let bits = bits.iter().filter(|(letter, _)| rule.access.contains(*letter)).fold(0, |all, (_, bit)| all | bit);
        if bits != 7 {
            // What is left of it after what the rule covers.
            program.push(instruction(COPY, ANSWER, ACCESS, 0, 0));
            program.push(instruction(AND, ANSWER, 0, 0, !bits));
            tests.push((ANSWER, 0));
        }
        for (register, number) in [(MAJOR, rule.major), (MINOR, rule.minor)] {
            if let Some(number) = number.and_then(|n| i32::try_from(n).ok()).filter(|n| *n >= 0) {
                tests.push((register, number));
            }
        }
        for (place, (register, number)) in tests.iter().enumerate() {
            // Over the remaining tests and the answer.
            let away = i16::try_from(tests.len() - place + 1).unwrap_or(i16::MAX);
            program.push(instruction(IF_UNEQUAL, *register, 0, away, *number));
        }
        program.push(instruction(SET, ANSWER, 0, 0, i32::from(rule.allow)));
        program.push(instruction(EXIT, 0, 0, 0, 0));
        if tests.is_empty() {
            // It covers all; the kernel refuses programs with parts that are never reached.
            return program;
        }
    }
    program.push(instruction(SET, ANSWER, 0, 0, 0));
    program.push(instruction(EXIT, 0, 0, 0, 0));
    program
}

pub(super) fn attach(folder: &Path, rules: &[DeviceRule]) -> io::Result<()> {
    if everything(rules) {
        return Ok(());
    }
    let failed =
        |error: io::Error| io::Error::new(error.kind(), format!("cannot limit the container's devices: {error}"));
    let loaded = system::load_device_program(&program(rules)).map_err(failed)?;
    let group = fs::File::open(folder)?;
    system::attach_device_program(group.as_fd(), loaded.as_fd()).map_err(failed)
}
