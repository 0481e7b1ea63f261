//! Why an expression cannot be used, and why an evaluation gave no value.

use std::fmt;

use crate::authorization::Question;

/// Why an expression does not compile: what cel-go says of it, laid out with the lines that are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompileError {
    /// It cannot be read.
    Syntax(String),
    /// It names what is not there, or its types do not fit.
    Types(String),
    /// It holds a literal that can be no duration, time or pattern, or a list of mixed types.
    Literals(String),
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Syntax(issues) | Self::Types(issues) | Self::Literals(issues)) = self;
        f.write_str(issues)
    }
}

impl std::error::Error for CompileError {}

/// Why an expression cannot serve where a value of certain types is wanted, in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExpressionError {
    Compile(CompileError),
    /// It gives another type.
    Result {
        wanted: String,
        found: String,
    },
}

impl fmt::Display for ExpressionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Compile(error) => write!(f, "compilation failed: {error}"),
            Self::Result { wanted, found } => write!(f, "must evaluate to {wanted} but got {found}"),
        }
    }
}

impl std::error::Error for ExpressionError {}

impl From<CompileError> for ExpressionError {
    fn from(error: CompileError) -> Self {
        Self::Compile(error)
    }
}

/// For answers, which are texts.
impl From<ExpressionError> for String {
    fn from(error: ExpressionError) -> Self {
        error.to_string()
    }
}

#[derive(Clone, Debug)]
pub enum Error {
    /// The expression failed; `&&`, `||` and their like may make up for it.
    Failed(Box<str>),
    /// It asked for a key or a field that is not there. Made up for as other failures are.
    NoSuchKey(Box<str>),
    /// A function or an operator has no form for these values; which one, where that is known.
    NoSuchOverload(Option<Box<str>>),
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
        Self::NoSuchOverload(None)
    }

    pub(crate) fn no_such_key(key: impl fmt::Display) -> Self {
        Self::NoSuchKey(key.to_string().into())
    }

    /// Whether the evaluation as a whole is over, so that nothing makes up for it.
    pub fn is_final(&self) -> bool {
        !matches!(self, Self::Failed(_) | Self::NoSuchKey(_) | Self::NoSuchOverload(_))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(message) => f.write_str(message),
            Self::NoSuchKey(key) => write!(f, "no such key: {key}"),
            Self::NoSuchOverload(None) => f.write_str("no such overload"),
            Self::NoSuchOverload(Some(of)) => write!(f, "no such overload: {of}"),
            Self::CostLimit => f.write_str("operation cancelled: actual cost limit exceeded"),
            Self::BudgetExhausted => f.write_str(
                "validation failed due to running out of cost budget, no further validation rules will be run",
            ),
            Self::Undecided(_) => f.write_str("authorization has not been decided yet"),
        }
    }
}

impl std::error::Error for Error {}
