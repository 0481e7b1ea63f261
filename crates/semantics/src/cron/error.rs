//! Why a schedule cannot be read, in the words of upstream's library.

use std::fmt;

use crate::duration::DurationError;

#[derive(Clone, Debug, PartialEq)]
pub enum ScheduleError {
    Empty,
    Location(String),
    Descriptor(String),
    Duration {
        line: String,
        error: DurationError,
    },
    /// Another number of fields than five.
    Fields {
        found: usize,
        line: String,
    },
    /// A field, with the part of it that is wrong, and how.
    Field {
        part: String,
        problem: FieldProblem,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldProblem {
    TooManyHyphens,
    TooManySlashes,
    Below {
        start: u64,
        minimum: u64,
    },
    Above {
        end: u64,
        maximum: u64,
    },
    Backwards {
        start: u64,
        end: u64,
    },
    NoStep,
    Negative(i64),
    /// No number, or one that no integer holds.
    NoNumber {
        too_large: bool,
    },
}

impl fmt::Display for ScheduleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("empty spec string"),
            Self::Location(name) => write!(f, "provided bad location {name}: unknown time zone {name}"),
            Self::Descriptor(line) => write!(f, "unrecognized descriptor: {line}"),
            Self::Duration { line, error } => write!(f, "failed to parse duration {line}: {error}"),
            Self::Fields { found, line } => write!(f, "expected exactly 5 fields, found {found}: [{line}]"),
            Self::Field { part, problem } => problem.show(f, part),
        }
    }
}

impl FieldProblem {
    fn show(self, f: &mut fmt::Formatter<'_>, part: &str) -> fmt::Result {
        match self {
            Self::TooManyHyphens => write!(f, "too many hyphens: {part}"),
            Self::TooManySlashes => write!(f, "too many slashes: {part}"),
            Self::Below { start, minimum } => {
                write!(f, "beginning of range ({start}) below minimum ({minimum}): {part}")
            }
            Self::Above { end, maximum } => write!(f, "end of range ({end}) above maximum ({maximum}): {part}"),
            Self::Backwards { start, end } => {
                write!(f, "beginning of range ({start}) beyond end of range ({end}): {part}")
            }
            Self::NoStep => write!(f, "step of range should be a positive number: {part}"),
            Self::Negative(number) => write!(f, "negative number ({number}) not allowed: {part}"),
            Self::NoNumber { too_large } => {
                let why = if too_large { "value out of range" } else { "invalid syntax" };
                write!(f, "failed to parse int from {part}: strconv.Atoi: parsing {part:?}: {why}")
            }
        }
    }
}

impl std::error::Error for ScheduleError {}

/// For answers and events, which are texts.
impl From<ScheduleError> for String {
    fn from(error: ScheduleError) -> Self {
        error.to_string()
    }
}
