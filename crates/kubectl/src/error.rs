//! What can go wrong, and how kubectl says it.

use serde_json::Value;

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Clone, Debug)]
pub enum Error {
    /// A Status of the server; the text stands before its message where one command says more.
    Status(Box<Value>),
    /// The server cannot be reached.
    Connection {
        host: String,
        refused: bool,
        why: String,
    },
    /// The kubeconfig cannot be used.
    Configuration(String),
    /// The line cannot be understood: says where help is.
    Usage {
        path: String,
        why: String,
    },
    /// Nothing but a code, or a text as it is and a code.
    Exit {
        code: u8,
        text: String,
    },
    Many(Vec<Error>),
    Message(String),
}

impl Error {
    pub fn say(text: impl Into<String>) -> Self {
        Self::Message(text.into())
    }

    /// The text as it is, without kubectl's beginning.
    pub fn plain(self) -> Self {
        match self {
            Self::Message(text) => Self::Exit { code: 1, text },
            other => other,
        }
    }

    /// Ends with a code; what is to be said was said.
    pub fn quiet() -> Self {
        Self::Exit { code: 1, text: String::new() }
    }

    /// None where nothing went wrong.
    pub fn all(mut errors: Vec<Error>) -> Result<()> {
        match errors.len() {
            0 => Ok(()),
            1 => Err(errors.remove(0)),
            _ => Err(Self::Many(errors)),
        }
    }

    pub fn reason(&self) -> &str {
        match self {
            Self::Status(status) => status["reason"].as_str().unwrap_or_default(),
            _ => "",
        }
    }

    pub fn is_not_found(&self) -> bool {
        self.reason() == "NotFound"
    }

    pub fn is_conflict(&self) -> bool {
        self.reason() == "Conflict"
    }

    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Exit { code, .. } => *code,
            _ => 1,
        }
    }

    /// The error without kubectl's beginning, as it stands inside another.
    pub fn inner(&self) -> String {
        match self {
            Self::Status(status) => status["message"].as_str().unwrap_or_default().to_owned(),
            Self::Connection { why, .. } | Self::Configuration(why) | Self::Usage { why, .. } => why.clone(),
            Self::Exit { text, .. } => text.clone(),
            Self::Many(errors) => {
                let all: Vec<String> = errors.iter().map(Self::inner).collect();
                format!("[{}]", all.join(", "))
            }
            Self::Message(text) => text.clone(),
        }
    }

    /// A Status keeps its reason and gets a longer message: `error when creating "x.yaml": …`.
    pub fn with_source(self, verb: &str, source: &str) -> Self {
        if source.is_empty() {
            return self;
        }
        let source = crate::text::quote(source);
        match self {
            Self::Status(mut status) => {
                let message = status["message"].as_str().unwrap_or_default();
                status["message"] = format!("error when {verb} {source}: {message}").into();
                Self::Status(status)
            }
            other => Self::Message(format!("error when {verb} {source}: {}", other.inner())),
        }
    }

    /// Everything that goes to standard error, with its last newline.
    pub fn shown(&self) -> String {
        // Each of several ends with a newline, whatever it ends with itself.
        if let Self::Many(errors) = self {
            return errors.iter().map(|error| error.bare() + "\n").collect();
        }
        let text = match self {
            Self::Status(status) if self.reason() == "Invalid" => invalid(status),
            Self::Exit { text, .. } => text.clone(),
            other => other.line(),
        };
        if text.is_empty() || text.ends_with('\n') { text } else { text + "\n" }
    }

    /// One of several: only what the server says has a beginning.
    fn bare(&self) -> String {
        match self {
            Self::Message(text) => text.clone(),
            Self::Many(errors) => errors.iter().map(Self::bare).collect::<Vec<_>>().join("\n"),
            other => other.line(),
        }
    }

    fn line(&self) -> String {
        match self {
            Self::Status(status) => {
                let message = status["message"].as_str().unwrap_or_default();
                match self.reason() {
                    "Unauthorized" => format!("error: You must be logged in to the server ({message})"),
                    "" => format!("Error from server: {message}"),
                    reason => format!("Error from server ({reason}): {message}"),
                }
            }
            Self::Connection { host, refused: true, .. } => {
                format!("The connection to the server {host} was refused - did you specify the right host or port?")
            }
            Self::Connection { why, .. } => format!("Unable to connect to the server: {why}"),
            Self::Configuration(why) => format!("Error in configuration: {why}"),
            Self::Usage { path, why } => format!("error: {why}\nSee '{path} -h' for help and examples"),
            Self::Exit { text, .. } => text.clone(),
            Self::Many(_) => self.bare(),
            Self::Message(text) if text.starts_with("error: ") => text.clone(),
            Self::Message(text) => format!("error: {text}"),
        }
    }
}

fn invalid(status: &Value) -> String {
    let message = status["message"].as_str().unwrap_or_default();
    let details = &status["details"];
    if details.is_null() {
        return if message.is_empty() {
            "The request is invalid".into()
        } else {
            format!("The request is invalid: {message}")
        };
    }
    let (kind, name) = (details["kind"].as_str().unwrap_or_default(), details["name"].as_str().unwrap_or_default());
    let mut causes: Vec<String> = Vec::new();
    for cause in details["causes"].as_array().into_iter().flatten() {
        let line = format!(
            "{}: {}",
            cause["field"].as_str().unwrap_or_default(),
            cause["message"].as_str().unwrap_or_default()
        );
        if !causes.contains(&line) {
            causes.push(line);
        }
    }
    let subject = if !kind.is_empty() || !name.is_empty() {
        format!("The {kind} {} is invalid", crate::text::quote(name))
    } else if causes.is_empty() && !message.is_empty() {
        format!("The request is invalid: {message}")
    } else {
        "The request is invalid".to_owned()
    };
    match &*causes {
        [] => subject,
        [one] => format!("{subject}: {one}\n"),
        many => format!("{subject}: \n{}", many.iter().map(|cause| format!("* {cause}\n")).collect::<String>()),
    }
}

impl From<String> for Error {
    fn from(text: String) -> Self {
        Self::Message(text)
    }
}

impl From<&str> for Error {
    fn from(text: &str) -> Self {
        Self::Message(text.to_owned())
    }
}
