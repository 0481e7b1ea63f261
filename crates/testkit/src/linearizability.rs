//! Whether the answers to operations on one object can be explained: by one order of the operations in which none stands before
//! one that had ended when it began, and in which each finds what those before it left.
//!
//! The search is that of Wing and Gong with the memory of Lowe: a set of operations that were done, with what they left, is
//! looked at once.

use std::collections::HashSet;

/// What stands there: every write leaves a value of its own.
pub type Value = u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Read,
    /// Refused where something is there.
    Create(Value),
    /// Refused unless this very value is there.
    Update {
        expected: Value,
        new: Value,
    },
    /// Refused unless this very value is there.
    Delete {
        expected: Value,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To a read: what is there.
    Found(Option<Value>),
    Done,
    /// Something is there, and not what was expected.
    Conflict,
    /// Nothing is there.
    Missing,
    /// None came: it may have been done at any moment since, or never.
    Unknown,
}

#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// Moments on one clock.
    pub began: u64,
    /// Without meaning where no answer came.
    pub ended: u64,
    pub call: Call,
    pub answer: Answer,
}

/// What an operation leaves where it finds something; None where it cannot have been answered as it was.
fn step(operation: &Operation, found: Option<Value>) -> Option<Option<Value>> {
    let fits = |expected: Value| found == Some(expected);
    match (operation.call, operation.answer) {
        (Call::Read, Answer::Found(seen)) => (seen == found).then_some(found),
        (Call::Create(new), Answer::Done) => found.is_none().then_some(Some(new)),
        (Call::Create(_), Answer::Conflict) => found.is_some().then_some(found),
        (Call::Update { expected, new }, Answer::Done) => fits(expected).then_some(Some(new)),
        (Call::Delete { expected }, Answer::Done) => fits(expected).then_some(None),
        (Call::Update { expected, .. } | Call::Delete { expected }, Answer::Conflict) => {
            (found.is_some() && !fits(expected)).then_some(found)
        }
        (Call::Update { .. } | Call::Delete { .. }, Answer::Missing) => found.is_none().then_some(found),
        // It changed something, or it is as if it had never been sent.
        (Call::Create(new), Answer::Unknown) => found.is_none().then_some(Some(new)),
        (Call::Update { expected, new }, Answer::Unknown) => fits(expected).then_some(Some(new)),
        (Call::Delete { expected }, Answer::Unknown) => fits(expected).then_some(None),
        _ => None,
    }
}

type Done = Vec<u64>;

fn is_done(done: &Done, index: usize) -> bool {
    done[index / 64] >> (index % 64) & 1 == 1
}

/// Fails with the operations that no order explains, or with the longest beginning that could be explained and what then
/// stood there.
pub fn check(operations: &[Operation]) -> Result<(), String> {
    let mut operations: Vec<Operation> = operations
        .iter()
        .filter(|operation| !(operation.call == Call::Read && operation.answer == Answer::Unknown))
        .copied()
        .collect();
    operations.sort_by_key(|operation| operation.began);
    let certain = operations.iter().filter(|operation| operation.answer != Answer::Unknown).count();
    let mut seen: HashSet<(Done, Option<Value>)> = HashSet::new();
    let mut left = vec![(vec![0_u64; operations.len().div_ceil(64).max(1)], None, 0_usize)];
    let mut best = (0, None, Vec::new());
    while let Some((done, found, explained)) = left.pop() {
        if explained == certain {
            return Ok(());
        }
        if explained >= best.0 {
            best = (explained, found, done.clone());
        }
        // Whoever began after one of the rest had ended comes after it.
        let first_end = (0..operations.len())
            .filter(|index| !is_done(&done, *index) && operations[*index].answer != Answer::Unknown)
            .map(|index| operations[index].ended)
            .min()
            .unwrap_or(u64::MAX);
        for (index, operation) in operations.iter().enumerate() {
            if operation.began > first_end {
                break;
            }
            if is_done(&done, index) {
                continue;
            }
            let Some(after) = step(operation, found) else { continue };
            let mut next = done.clone();
            next[index / 64] |= 1 << (index % 64);
            if seen.insert((next.clone(), after)) {
                left.push((next, after, explained + usize::from(operation.answer != Answer::Unknown)));
            }
        }
    }
    let (explained, found, done) = best;
    let rest: Vec<String> = operations
        .iter()
        .enumerate()
        .filter(|(index, _)| !is_done(&done, *index))
        .take(8)
        .map(|(_, operation)| format!("{operation:?}"))
        .collect();
    Err(format!(
        "after {explained} of {certain} operations {found:?} is there, and none of these can follow: {}",
        rest.join("; ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(began: u64, ended: u64, call: Call, answer: Answer) -> Operation {
        Operation { began, ended, call, answer }
    }

    fn create(began: u64, ended: u64, value: Value) -> Operation {
        operation(began, ended, Call::Create(value), Answer::Done)
    }

    fn read(began: u64, ended: u64, found: Option<Value>) -> Operation {
        operation(began, ended, Call::Read, Answer::Found(found))
    }

    fn update(began: u64, ended: u64, expected: Value, new: Value, answer: Answer) -> Operation {
        operation(began, ended, Call::Update { expected, new }, answer)
    }

    #[test]
    fn histories_that_can_be_are_accepted() {
        let delete = |began, ended, expected| operation(began, ended, Call::Delete { expected }, Answer::Done);
        for (what, history) in [
            ("nothing", vec![]),
            ("one after the other", vec![create(0, 1, 1), read(2, 3, Some(1)), update(4, 5, 1, 2, Answer::Done)]),
            ("two at once, seen in one order", vec![create(0, 9, 1), read(1, 2, None), read(3, 4, Some(1))]),
            (
                "a refusal at the same time",
                vec![create(0, 1, 1), update(2, 9, 1, 2, Answer::Done), update(2, 9, 1, 3, Answer::Conflict)],
            ),
            ("gone and made again", vec![create(0, 1, 1), delete(2, 3, 1), create(4, 5, 2), read(6, 7, Some(2))]),
            ("unknown and done", vec![create(0, 1, 1), update(2, 3, 1, 2, Answer::Unknown), read(8, 9, Some(2))]),
            ("unknown and never done", vec![create(0, 1, 1), update(2, 3, 1, 2, Answer::Unknown), read(8, 9, Some(1))]),
            (
                "unknown and done late",
                vec![create(0, 1, 1), update(2, 3, 1, 2, Answer::Unknown), read(4, 5, Some(1)), read(8, 9, Some(2))],
            ),
            ("missing", vec![update(0, 1, 1, 2, Answer::Missing)]),
        ] {
            assert_eq!(check(&history), Ok(()), "{what}");
        }
    }

    #[test]
    fn histories_that_cannot_be_are_refused() {
        for (what, history) in [
            ("a stale read", vec![create(0, 1, 1), read(2, 3, None)]),
            ("a read of what nobody wrote", vec![create(0, 1, 1), read(2, 3, Some(7))]),
            ("reads that go back", vec![create(0, 9, 1), read(1, 2, Some(1)), read(3, 4, None)]),
            (
                "a lost update",
                vec![create(0, 1, 1), update(2, 5, 1, 2, Answer::Done), update(3, 6, 1, 3, Answer::Done)],
            ),
            ("two that created", vec![create(0, 5, 1), create(1, 6, 2)]),
            ("a lost write", vec![create(0, 1, 1), update(2, 3, 1, 2, Answer::Done), read(4, 5, Some(1))]),
            ("a refusal without a reason", vec![create(0, 1, 1), update(2, 3, 1, 2, Answer::Conflict)]),
            (
                "an unknown write that came back",
                vec![create(0, 1, 1), update(2, 3, 1, 2, Answer::Unknown), read(4, 5, Some(2)), read(6, 7, Some(1))],
            ),
            (
                "an unknown write before it was sent",
                vec![create(0, 1, 1), read(2, 3, Some(2)), update(4, 5, 1, 2, Answer::Unknown)],
            ),
        ] {
            assert!(check(&history).is_err(), "{what}");
        }
    }

    /// Real registers with many clients at once: every history of one is accepted, and with one answer changed most are not.
    #[test]
    fn what_a_register_did_is_accepted_and_what_it_did_not_is_found() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = move |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        let mut found_wrong = 0;
        for _ in 0..50 {
            let (mut register, mut history, mut next) = (None, Vec::new(), 1);
            for moment in 0..120_u64 {
                let expected = register.filter(|_| random(3) > 0).unwrap_or(1 + random(next));
                let call = match random(4) {
                    0 => Call::Create(next),
                    1 => Call::Update { expected, new: next },
                    2 => Call::Delete { expected },
                    _ => Call::Read,
                };
                next += 1;
                let answer =
                    match (call, register) {
                        (Call::Read, found) => Answer::Found(found),
                        (Call::Create(_), Some(_)) => Answer::Conflict,
                        (Call::Create(_), None) => Answer::Done,
                        (_, None) => Answer::Missing,
                        (Call::Update { expected, .. } | Call::Delete { expected }, Some(found)) => {
                            if expected == found { Answer::Done } else { Answer::Conflict }
                        }
                    };
                if answer == Answer::Done {
                    register = match call {
                        Call::Create(new) | Call::Update { new, .. } => Some(new),
                        _ => None,
                    };
                }
                let unknown = call != Call::Read && random(10) == 0;
                let at = 100 * moment;
                let (began, ended) = (at.saturating_sub(random(250)), at + random(250));
                let answer = if unknown { Answer::Unknown } else { answer };
                history.push(operation(began, ended, call, answer));
            }
            assert_eq!(check(&history), Ok(()), "{history:?}");
            let reads: Vec<usize> =
                (0..history.len()).filter(|index| matches!(history[*index].answer, Answer::Found(Some(_)))).collect();
            if let Some(index) = reads.last() {
                history[*index].answer = Answer::Found(Some(1_000_000));
                found_wrong += usize::from(check(&history).is_err());
            }
        }
        assert!(found_wrong > 40, "{found_wrong}");
    }
}
