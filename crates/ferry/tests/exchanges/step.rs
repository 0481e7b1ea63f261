//! A step of an exchange as it is written down, and the texts in it that stand for other texts.

use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

use regex::{Captures, Regex};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::values;

/// A field that is not known here would be one that is not checked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    pub id: String,
    #[serde(rename = "as", default = "admin")]
    pub user: String,
    pub method: String,
    pub path: String,
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// As it was sent: complaints come in the order of its fields.
    pub body: Option<Box<RawValue>>,
    pub raw: Option<String>,
    pub raw64: Option<String>,
    #[serde(default)]
    pub setup: bool,
    pub collect: Option<usize>,
    #[serde(default)]
    pub during: Vec<Step>,
    #[serde(default)]
    pub until: BTreeMap<String, Value>,
    #[serde(default)]
    pub keep: BTreeMap<String, BTreeMap<String, String>>,
    pub only: Option<Vec<String>>,
    #[serde(default)]
    pub ignore: Vec<String>,
    #[serde(default)]
    pub text: bool,
    pub prefix: Option<usize>,
    #[serde(default)]
    pub header: Vec<String>,
    pub want: Option<Value>,
}

fn admin() -> String {
    "admin".into()
}

static STANDS_FOR: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\{ns\}|\{pad:(\d+)\}|\$\{([^.}]+)\.([^}]+)\}").unwrap());

/// What requests are filled in with.
pub struct Known {
    pub namespace: String,
    /// The body of each answer so far, by the step's name.
    pub answers: HashMap<String, Value>,
}

impl Known {
    pub fn fill(&self, text: &str) -> Result<String, String> {
        let mut missing = None;
        let filled = STANDS_FOR.replace_all(text, |found: &Captures<'_>| {
            if let Some(length) = found.get(1) {
                return "x".repeat(length.as_str().parse().unwrap());
            }
            let (Some(step), Some(path)) = (found.get(2), found.get(3)) else { return self.namespace.clone() };
            let answer = self.answers.get(step.as_str()).and_then(|answer| values::get(answer, path.as_str()));
            match answer {
                Some(Value::String(text)) => text.clone(),
                Some(other) => other.to_string(),
                None => {
                    missing = Some(found[0].to_owned());
                    String::new()
                }
            }
        });
        let filled = filled.into_owned();
        missing.map_or(Ok(filled), |missing| Err(format!("no earlier answer has {missing}")))
    }
}
