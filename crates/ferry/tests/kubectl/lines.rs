//! The lines, what kubectl answered, and what must be made equal before answers are compared.

use std::path::PathBuf;
use std::sync::LazyLock;

use regex::Regex;

pub fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/kubectl")
}

/// The lines of one file.
pub fn all(file: &str) -> Vec<String> {
    let text = std::fs::read_to_string(folder().join(file)).unwrap();
    text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect()
}

/// A line as a shell would read it: variables before the words, a file for standard input behind them.
#[derive(Default)]
pub struct Line {
    pub environment: Vec<(String, String)>,
    pub words: Vec<String>,
    pub stdin: Option<String>,
}

impl Line {
    pub fn parse(line: &str) -> Self {
        let mut parsed = Self::default();
        let mut rest = words(line).into_iter().peekable();
        let is_variable = |word: &String| {
            word.split_once('=')
                .is_some_and(|(name, _)| !name.is_empty() && name.bytes().all(|c| c.is_ascii_uppercase() || c == b'_'))
        };
        while let Some(variable) = rest.next_if(is_variable) {
            let (name, value) = variable.split_once('=').unwrap();
            let here = folder().display().to_string();
            parsed.environment.push((name.to_owned(), value.replace("$PWD", &here)));
        }
        while let Some(word) = rest.next() {
            match &*word {
                "<" => parsed.stdin = rest.next(),
                _ => parsed.words.push(word),
            }
        }
        parsed
    }
}

/// Words between spaces; quotes keep spaces.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted, mut begun) = (Vec::new(), String::new(), false, false);
    for c in line.chars() {
        match c {
            '\'' => {
                quoted = !quoted;
                begun = true;
            }
            ' ' if !quoted => {
                if std::mem::take(&mut begun) {
                    words.push(std::mem::take(&mut word));
                }
            }
            c => {
                word.push(c);
                begun = true;
            }
        }
    }
    if begun {
        words.push(word);
    }
    words
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    pub output: String,
    pub errors: String,
    pub code: i32,
}

impl Answer {
    /// As it stands in the file: output behind `|`, errors behind `!`, the code behind `=`.
    pub fn written(&self, line: &str) -> String {
        let marked = |mark: char, text: &str| -> String {
            let lines = text.split_inclusive('\n').map(|part| match part.strip_suffix('\n') {
                Some(part) => format!("{mark}{part}\n"),
                // The last line has no end.
                None => format!("{mark}{part}\\\n"),
            });
            lines.collect()
        };
        format!("$ {line}\n{}{}={}\n", marked('|', &self.output), marked('!', &self.errors), self.code)
    }
}

/// What kubectl answered.
pub fn recorded(file: &str) -> Vec<(String, Answer)> {
    let text = std::fs::read_to_string(folder().join(file)).unwrap();
    let mut found = Vec::new();
    let (mut line, mut answer) = (String::new(), Answer::default());
    let mut lines = text.lines().peekable();
    while let Some(written) = lines.next() {
        // A backslash before more of the same text is kubectl's own.
        let is_last = !lines.peek().is_some_and(|next| next.starts_with(&written[..1]));
        let unmarked = |text: &str| match text.strip_suffix('\\') {
            Some(text) if is_last => text.to_owned(),
            _ => format!("{text}\n"),
        };
        match written.split_at(1) {
            ("$", rest) => line = rest.trim_start().to_owned(),
            ("|", rest) => answer.output.push_str(&unmarked(rest)),
            ("!", rest) => answer.errors.push_str(&unmarked(rest)),
            ("=", code) => {
                answer.code = code.parse().unwrap();
                found.push((std::mem::take(&mut line), std::mem::take(&mut answer)));
            }
            _ => panic!("{file}: {written}"),
        }
    }
    found
}

/// What differs from run to run, and how it is written instead. kubectl's own log lines are not for users.
static VARIES: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    let of = |pattern: &str, instead: &'static str| (Regex::new(pattern).unwrap(), instead);
    vec![
        of(r"(?m)^[EWI]\d{4} .*\n", ""),
        of(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UID"),
        // The API server's Lease is named after the machine.
        of(r"apiserver-[a-z2-7]{26}", "apiserver-ID"),
        of(r#"resourceVersion"?: "\d+""#, "resourceVersion: \"N\""),
        of(r#"(resourceVersion"?: ?)"?\d+"?"#, "${1}N"),
        of(r"Resource Version:( *)\d+", "Resource Version:${1}N"),
        of(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME"),
        of(r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d [+-]\d{4}", "DATE"),
        of(r"(?m) +(?:\d+m(?:\d+s)?|\d+s)( *$|  +)", " AGE "),
        // Objects whose files say when they were made grow older by the day.
        of(r"\b\d+y(?:\d+d)?\b", "AGE"),
        of(r"/tmp/(LIVE|MERGED)-\w+", "${1}"),
        of(r"/tmp/\w+-edit-\w+", "EDITED"),
        of(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)? [+-]\d{4}", "TIME"),
        of(r"10\.\d+\.\d+\.\d+", "IP"),
        // Their columns are as wide as what stands in them.
        of(r"(AGE\)?|IP|LAST SEEN) +", "${1} "),
    ]
});

pub fn made_equal(text: &[u8], port: u16, here: &str) -> String {
    let mut text = String::from_utf8_lossy(text).replace(&format!(":{port}"), ":PORT").replace(here, "FOLDER");
    for here in [folder(), folder().canonicalize().unwrap()] {
        text = text.replace(&here.display().to_string(), "TESTDATA");
    }
    for (pattern, instead) in VARIES.iter() {
        text = pattern.replace_all(&text, *instead).into_owned();
    }
    text
}
