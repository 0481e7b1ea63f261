//! Semantic versions.

use std::cmp::Ordering;
use std::sync::Arc;

use super::{Outcome, text};
use crate::error::Error;
use crate::program::Bindings;
use crate::value::Value;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Semver {
    numbers: [u64; 3],
    before: Vec<Identifier>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Identifier {
    Number(u64),
    Text(String),
}

impl Ord for Semver {
    fn cmp(&self, other: &Self) -> Ordering {
        let early = |version: &Self| !version.before.is_empty();
        self.numbers.cmp(&other.numbers).then_with(|| match (early(self), early(other)) {
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            _ => self.before.cmp(&other.before),
        })
    }
}

impl PartialOrd for Semver {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

fn number(text: &str, what: &str) -> Result<u64, String> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!("Invalid character(s) found in {what} number {}", ferry_meta::field::quote(text)));
    }
    if text.len() > 1 && text.starts_with('0') {
        return Err(format!(
            "{} number must not contain leading zeroes {}",
            capital(what),
            ferry_meta::field::quote(text)
        ));
    }
    text.parse().map_err(|_| format!("strconv.ParseUint: parsing \"{text}\": value out of range"))
}

fn capital(word: &str) -> String {
    let mut characters = word.chars();
    characters.next().map(|first| first.to_ascii_uppercase().to_string() + characters.as_str()).unwrap_or_default()
}

fn identifier_ok(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

impl Semver {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("Version string empty".to_owned());
        }
        let parts: Vec<&str> = text.splitn(3, '.').collect();
        let [major, minor, rest] = parts.as_slice() else {
            return Err("No Major.Minor.Patch elements found".to_owned());
        };
        let (rest, build) = rest.split_once('+').map_or((*rest, None), |(rest, build)| (rest, Some(build)));
        let (patch, early) = rest.split_once('-').map_or((rest, None), |(patch, early)| (patch, Some(early)));
        let numbers = [number(major, "major")?, number(minor, "minor")?, number(patch, "patch")?];
        let mut before = Vec::new();
        for part in early.into_iter().flat_map(|early| early.split('.')) {
            if part.is_empty() {
                return Err("Prerelease is empty".to_owned());
            }
            if !identifier_ok(part) {
                return Err(format!("Invalid character(s) found in prerelease {}", ferry_meta::field::quote(part)));
            }
            if part.bytes().all(|b| b.is_ascii_digit()) {
                if part.len() > 1 && part.starts_with('0') {
                    let quoted = ferry_meta::field::quote(part);
                    return Err(format!("Numeric PreRelease version must not contain leading zeroes {quoted}"));
                }
                before.push(Identifier::Number(part.parse().map_err(|_| "value out of range".to_owned())?));
            } else {
                before.push(Identifier::Text(part.to_owned()));
            }
        }
        for part in build.into_iter().flat_map(|build| build.split('.')) {
            if part.is_empty() {
                return Err("Build meta data is empty".to_owned());
            }
            if !identifier_ok(part) {
                return Err(format!(
                    "Invalid character(s) found in build meta data {}",
                    ferry_meta::field::quote(part)
                ));
            }
        }
        Ok(Self { numbers, before })
    }

    /// Takes a leading `v`, leading zeros and missing parts as they are meant.
    fn lenient(text: &str) -> Result<Self, String> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let mut parts: Vec<String> = text.splitn(3, '.').map(str::to_owned).collect();
        for part in parts.iter_mut().filter(|part| part.len() > 1) {
            let trimmed = part.trim_start_matches('0');
            let digit = trimmed.starts_with(|c: char| c.is_ascii_digit());
            *part = if digit { trimmed.to_owned() } else { format!("0{trimmed}") };
        }
        if parts.len() < 3 {
            if parts.last().is_some_and(|last| last.contains(['+', '-'])) {
                return Err("short version cannot contain PreRelease/Build meta data".to_owned());
            }
            parts.resize(3, "0".to_owned());
        }
        Self::parse(&parts.join("."))
    }
}

fn read(arguments: &[Value<'_>]) -> Result<Result<Semver, String>, Error> {
    let text = text(arguments, 0)?;
    match arguments.get(1) {
        None | Some(Value::Bool(false)) => Ok(Semver::parse(text)),
        Some(Value::Bool(true)) => Ok(Semver::lenient(text)),
        Some(_) => Err(Error::no_such_overload()),
    }
}

pub(crate) fn semver<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    read(arguments)?.map(|version| Value::Semver(Arc::new(version))).map_err(Error::new)
}

pub(crate) fn is_semver<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    Ok(Value::Bool(read(arguments)?.is_ok()))
}

fn of<'a>(arguments: &[Value<'a>], index: usize) -> Outcome<'a> {
    match &arguments[0] {
        Value::Semver(version) => Ok(Value::Int(i64::try_from(version.numbers[index]).unwrap_or(i64::MAX))),
        _ => Err(Error::no_such_overload()),
    }
}

pub(crate) fn major<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    of(arguments, 0)
}

pub(crate) fn minor<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    of(arguments, 1)
}

pub(crate) fn patch<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    of(arguments, 2)
}
