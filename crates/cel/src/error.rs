//! Why an evaluation gave no value.

use std::fmt;

use crate::authorization::Question;

#[derive(Clone, Debug)]
pub enum Error {
    /// The expression failed; `&&`, `||` and their like may make up for it.
    Failed(Box<str>),
    /// The expression cost more than one may.
    CostLimit,
    /// All expressions together cost more than they may.
    BudgetExhausted,
    /// An answer is needed that takes time: give it to the bindings and evaluate again.
    Undecided(Box<Question>),
}

impl Error {
    pub fn new(message: impl Into<Box<str>>) -> Self {
        Self::Failed(message.into())
    }

    pub(crate) fn no_such_overload() -> Self {
        Self::new("no such overload")
    }

    pub(crate) fn no_such_key(key: impl fmt::Display) -> Self {
        Self::new(format!("no such key: {key}"))
    }

    /// Whether the evaluation as a whole is over, so that nothing makes up for it.
    pub(crate) fn is_final(&self) -> bool {
        !matches!(self, Self::Failed(_))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(message) => f.write_str(message),
            Self::CostLimit => f.write_str("operation cancelled: actual cost limit exceeded"),
            Self::BudgetExhausted => f.write_str(
                "validation failed due to running out of cost budget, no further validation rules will be run",
            ),
            Self::Undecided(_) => f.write_str("authorization has not been decided yet"),
        }
    }
}

impl std::error::Error for Error {}
