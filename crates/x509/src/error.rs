//! Why a certificate or a request is not believed.

/// What could not be read, or is not clear enough to be judged. The words reach whoever asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("x509: {0}")]
    Certificate(String),
    #[error("x509: the attribute {0} of the subject is no text")]
    Subject(String),
    #[error("PEM block type must be {0}")]
    Label(&'static str),
    #[error("there must be one PEM block of type {0} and nothing after it")]
    Blocks(&'static str),
    #[error("the PEM block is no base64 text")]
    Base64,
    #[error("not a certificate request: {0}")]
    Request(String),
    #[error("not a public key: {0}")]
    Key(String),
    #[error("{0}")]
    Signature(&'static str),
    #[error("the certificate request asks for its extensions twice")]
    ExtensionsTwice,
    #[error("the subjectAltNames cannot be read")]
    Names,
    #[error("the subject has {0} common names, where one is meant")]
    CommonNames(usize),
}
