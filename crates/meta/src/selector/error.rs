//! Why a selector cannot be read, in upstream's words.

use crate::field::FieldError;

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SelectorError {
    #[error("unable to parse requirement: {0}")]
    Requirement(Box<Self>),
    #[error("found '{found}', expected: {expected}")]
    Unexpected { found: String, expected: &'static str },
    #[error("found '{0}' expected: '('")]
    NoParenthesis(String),
    /// A key or a value that no label can have.
    #[error("{}", .0.line())]
    Label(Box<FieldError>),
    #[error("{0:?} is not a valid label selector operator")]
    Operator(String),
    /// A part of a field selector that compares nothing.
    #[error("invalid selector: '{selector}'; can't understand '{term}'")]
    Term { selector: String, term: String },
    #[error("invalid field selector: invalid escape sequence: \\{0}")]
    Escape(String),
    #[error("invalid field selector: unescaped character in value: {0}")]
    Unescaped(u32),
}

/// For answers, which are texts.
impl From<SelectorError> for String {
    fn from(error: SelectorError) -> Self {
        error.to_string()
    }
}
