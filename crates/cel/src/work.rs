//! What evaluations may do beyond what they cost.
//!
//! Costs are upstream's: comparing two lists costs their lengths, whatever is in them, and putting lists together costs one. Values
//! can share parts, so that a few of them are huge when they are gone through. What is compared, shown and made is counted here
//! beside the costs, and an evaluation that goes too far ends as one that is too dear.

use std::cell::Cell;

use ferry_meta::bounds::HEAVIEST;

use crate::error::Error;

/// As many values are compared or shown by one evaluation and those in it; about a second.
const MOST_STEPS: u64 = 20_000_000;
/// Bytes of texts and lists that it may make.
const MOST_MADE: u64 = HEAVIEST as u64;
/// What a step is of a text.
const BYTES_PER_STEP: usize = 64;
/// What an item of a list that is made takes.
pub(crate) const ITEM: usize = 48;

#[derive(Clone, Copy)]
struct Usage {
    /// Evaluations stand in each other, through lazy variables.
    evaluations: u32,
    steps: u64,
    made: u64,
}

thread_local! {
    /// Evaluations never wait, so that one is on one thread from beginning to end.
    static STATE: Cell<Usage> = const { Cell::new(Usage { evaluations: 0, steps: 0, made: 0 }) };
}

/// Counts until it is dropped. The outermost one decides how much there is.
pub(crate) struct Counting;

impl Counting {
    pub fn start() -> Self {
        let mut state = STATE.get();
        if state.evaluations == 0 {
            (state.steps, state.made) = (MOST_STEPS, MOST_MADE);
        }
        state.evaluations += 1;
        STATE.set(state);
        Self
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        let mut state = STATE.get();
        state.evaluations -= 1;
        STATE.set(state);
    }
}

/// Counts steps. False when there are no more: whoever walks then ends with any result, since the evaluation fails.
pub(crate) fn step(steps: usize) -> bool {
    let mut state = STATE.get();
    state.steps = state.steps.saturating_sub(steps as u64);
    STATE.set(state);
    state.steps > 0 || state.evaluations == 0
}

/// Counts the steps that a text takes.
pub(crate) fn text(length: usize) -> bool {
    step(1 + length / BYTES_PER_STEP)
}

/// Fails where too much was walked.
pub(crate) fn check() -> Result<(), Error> {
    if step(0) { Ok(()) } else { Err(Error::CostLimit) }
}

/// Asks for room before something is made.
pub(crate) fn make(bytes: usize) -> Result<(), Error> {
    let mut state = STATE.get();
    if state.evaluations == 0 {
        return Ok(());
    }
    let left = state.made.checked_sub(bytes as u64);
    state.made = left.unwrap_or_default();
    STATE.set(state);
    left.map(|_| ()).ok_or(Error::CostLimit)
}
