//! Room for what walks an expression: by recursion, on a stack that is made larger where the expression is deep.

/// More than any step of parsing, checking, planning, pricing or evaluating needs for one level of nesting.
const PER_LEVEL: usize = if cfg!(debug_assertions) { 24 << 10 } else { 6 << 10 };
/// What the grammar's limits and the macros make of the deepest text.
const MOST_LEVELS: usize = 2_000;
/// What must be left for an expression that is not deep: evaluations can stand in each other, through lazy variables.
const RESERVE: usize = 256 << 10;

/// Calls `walk` with room for that many levels. Memory is only taken for those that are there.
pub(crate) fn with_room<R>(levels: usize, walk: impl FnOnce() -> R) -> R {
    let needed = RESERVE + PER_LEVEL * levels.min(MOST_LEVELS);
    stacker::maybe_grow(needed, needed + RESERVE, walk)
}
