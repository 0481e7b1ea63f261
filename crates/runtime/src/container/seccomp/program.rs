//! Instructions of the packet filter, and the search they make.

use std::collections::BTreeMap;

/// `struct sock_filter`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Instruction {
    pub(crate) code: u16,
    pub(crate) if_true: u8,
    pub(crate) if_false: u8,
    pub(crate) value: u32,
}

const LOAD: u16 = 0x20;
const RETURN: u16 = 0x06;
const JUMP: u16 = 0x05;
const IF_EQUAL: u16 = 0x15;
const IF_GREATER: u16 = 0x25;
const IF_AT_LEAST: u16 = 0x35;
const AND: u16 = 0x54;

/// Where `struct seccomp_data` has what.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENTS: u32 = 16;
/// The bit of numbers of the x32 ABI, whose calls come as those of x86_64.
const X32: u32 = 0x4000_0000;

fn plain(code: u16, value: u32) -> Instruction {
    Instruction { code, if_true: 0, if_false: 0, value }
}

fn test(code: u16, value: u32, if_true: u8, if_false: u8) -> Instruction {
    Instruction { code, if_true, if_false, value }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equal,
    Unequal,
    Less,
    AtMost,
    AtLeast,
    Greater,
    /// What the mask leaves of the argument.
    Masked(u64),
}

/// What an argument of a call has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Condition {
    index: u32,
    operator: Operator,
    value: u64,
}

impl Condition {
    pub(super) fn new(index: u32, operator: &str, value: u64, second: u64) -> Option<Self> {
        let (operator, value) = match operator {
            "SCMP_CMP_EQ" => (Operator::Equal, value),
            "SCMP_CMP_NE" => (Operator::Unequal, value),
            "SCMP_CMP_LT" => (Operator::Less, value),
            "SCMP_CMP_LE" => (Operator::AtMost, value),
            "SCMP_CMP_GE" => (Operator::AtLeast, value),
            "SCMP_CMP_GT" => (Operator::Greater, value),
            "SCMP_CMP_MASKED_EQ" => (Operator::Masked(value), second),
            _ => return None,
        };
        Some(Self { index, operator, value })
    }

    /// Goes on behind itself where the condition holds; `None` stands for a jump to where it does not.
    fn emit(self) -> Vec<Step> {
        let low = ARGUMENTS + 8 * self.index;
        let (value_high, value_low) = ((self.value >> 32) as u32, (self.value & 0xFFFF_FFFF) as u32);
        let halves = |high: Vec<Step>, rest: Vec<Step>| -> Vec<Step> {
            let mut steps = vec![Step::Plain(plain(LOAD, low + 4))];
            steps.extend(high);
            steps.push(Step::Plain(plain(LOAD, low)));
            steps.extend(rest);
            steps
        };
        match self.operator {
            Operator::Equal => {
                halves(vec![Step::Need(IF_EQUAL, value_high, true)], vec![Step::Need(IF_EQUAL, value_low, true)])
            }
            Operator::Masked(mask) => halves(
                vec![Step::Plain(plain(AND, (mask >> 32) as u32)), Step::Need(IF_EQUAL, value_high, true)],
                vec![Step::Plain(plain(AND, (mask & 0xFFFF_FFFF) as u32)), Step::Need(IF_EQUAL, value_low, true)],
            ),
            // The high half decides alone where it differs: over the load and the test of the low one.
            Operator::Unequal => {
                halves(vec![Step::Skip(IF_EQUAL, value_high, false, 2)], vec![Step::Need(IF_EQUAL, value_low, false)])
            }
            Operator::Greater => halves(
                vec![Step::Skip(IF_GREATER, value_high, true, 3), Step::Need(IF_EQUAL, value_high, true)],
                vec![Step::Need(IF_GREATER, value_low, true)],
            ),
            Operator::AtLeast => halves(
                vec![Step::Skip(IF_GREATER, value_high, true, 3), Step::Need(IF_EQUAL, value_high, true)],
                vec![Step::Need(IF_AT_LEAST, value_low, true)],
            ),
            Operator::Less => halves(
                vec![Step::Need(IF_GREATER, value_high, false), Step::Skip(IF_EQUAL, value_high, false, 2)],
                vec![Step::Need(IF_AT_LEAST, value_low, false)],
            ),
            Operator::AtMost => halves(
                vec![Step::Need(IF_GREATER, value_high, false), Step::Skip(IF_EQUAL, value_high, false, 2)],
                vec![Step::Need(IF_GREATER, value_low, false)],
            ),
        }
    }
}

enum Step {
    Plain(Instruction),
    /// The rule does not apply unless the test ends so.
    Need(u16, u32, bool),
    /// Where the test ends so, this many steps are left out.
    Skip(u16, u32, bool, u8),
}

/// What becomes of one call: the rules in order, then what is left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Leaf {
    pub(super) tried: Vec<(Vec<Condition>, u32)>,
    pub(super) otherwise: u32,
}

#[derive(Default)]
pub(super) struct Program(Vec<Instruction>);

impl Program {
    /// The part of one architecture: passed over by calls of others.
    pub(super) fn architecture(&mut self, audit: u32, leaves: &BTreeMap<u32, Leaf>, fallback: u32, newer: u32) {
        let plain_leaf = |action| Leaf { tried: Vec::new(), otherwise: action };
        // Each part begins with the first of its numbers and ends before the next part.
        let mut parts: Vec<(u32, Leaf)> = vec![(0, plain_leaf(fallback))];
        let mut add = |from: u32, leaf: Leaf| match parts.last_mut() {
            Some(last) if last.0 == from => last.1 = leaf,
            Some(last) if last.1 == leaf => {}
            _ => parts.push((from, leaf)),
        };
        for (number, leaf) in leaves {
            add(*number, leaf.clone());
            add(number + 1, plain_leaf(fallback));
        }
        // The numbers of ARM's own calls lie far behind the others.
        if let Some(last) = leaves.keys().rfind(|number| **number < 0xF_0000) {
            let place = parts.partition_point(|(from, _)| *from <= *last);
            parts.insert(place, (last + 1, plain_leaf(newer)));
            parts.dedup_by(|later, earlier| {
                let same = later.0 == earlier.0;
                if same {
                    earlier.1 = plain_leaf(newer);
                }
                same
            });
        }
        if audit == 0xC000_003E {
            parts.push((X32, plain_leaf(0x0005_0000 | super::ENOSYS)));
        }
        let mut body = vec![plain(LOAD, NUMBER)];
        search(&parts, &mut body);
        self.0.push(plain(LOAD, ARCHITECTURE));
        self.0.push(test(IF_EQUAL, audit, 1, 0));
        self.0.push(plain(JUMP, u32::try_from(body.len()).unwrap_or(u32::MAX)));
        self.0.extend(body);
    }

    pub(super) fn finish(mut self, otherwise: u32) -> Vec<Instruction> {
        self.0.push(plain(RETURN, otherwise));
        self.0
    }
}

/// Halves the parts until one is left. The register holds the number all the way down.
fn search(parts: &[(u32, Leaf)], out: &mut Vec<Instruction>) {
    match parts {
        [] => {}
        [(_, leaf)] => decide(leaf, out),
        _ => {
            let (left, right) = parts.split_at(parts.len() / 2);
            let mut lower = Vec::new();
            search(left, &mut lower);
            let first = right.first().map_or(0, |(from, _)| *from);
            // A conditional jump is short; the long one beside it is not.
            out.push(test(IF_AT_LEAST, first, 0, 1));
            out.push(plain(JUMP, u32::try_from(lower.len()).unwrap_or(u32::MAX)));
            out.extend(lower);
            search(right, out);
        }
    }
}

fn decide(leaf: &Leaf, out: &mut Vec<Instruction>) {
    for (conditions, action) in &leaf.tried {
        let steps: Vec<Step> = conditions.iter().flat_map(|condition| condition.emit()).collect();
        let length = steps.len();
        for (place, step) in steps.into_iter().enumerate() {
            // Behind the last step stands what is returned, and behind that the next rule.
            let away = u8::try_from(length - place).unwrap_or(u8::MAX);
            out.push(match step {
                Step::Plain(instruction) => instruction,
                Step::Need(code, value, true) => test(code, value, 0, away),
                Step::Need(code, value, false) => test(code, value, away, 0),
                Step::Skip(code, value, true, count) => test(code, value, count, 0),
                Step::Skip(code, value, false, count) => test(code, value, 0, count),
            });
        }
        out.push(plain(RETURN, *action));
    }
    out.push(plain(RETURN, leaf.otherwise));
}
