//! What the plug-ins of a Corefile do, one file for each that has settings of its own.

pub(crate) mod autopath;
pub(crate) mod cache;
pub(crate) mod hosts;
pub(crate) mod kubernetes;
pub(crate) mod rewrite;

use std::time::Duration;

use hickory_proto::rr::Name;

use crate::corefile::{CorefileError, Directive};

/// A zone as it is written: with or without the last dot.
pub(crate) fn zone(text: &str, line: usize) -> Result<Name, CorefileError> {
    let problem = || CorefileError::at(line, format!("{text:?} is not a domain name"));
    if text == "." {
        return Ok(Name::root());
    }
    let mut name = Name::from_ascii(text.trim_end_matches('.')).map_err(|_| problem())?;
    if name.is_root() {
        return Err(problem());
    }
    name.set_fqdn(true);
    Ok(name)
}

pub(crate) fn zones(words: &[String], line: usize) -> Result<Vec<Name>, CorefileError> {
    words.iter().map(|word| zone(word, line)).collect()
}

/// Which names a plug-in leaves to the next one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fallthrough(Vec<Name>);

impl Fallthrough {
    pub(crate) fn read(words: &[String], line: usize) -> Result<Self, CorefileError> {
        match words.is_empty() {
            true => Ok(Self(vec![Name::root()])),
            false => zones(words, line).map(Self),
        }
    }

    pub(crate) fn is_for(&self, name: &Name) -> bool {
        self.0.iter().any(|zone| zone.zone_of(name))
    }
}

/// Reads the words of one plug-in, and names it where they are wrong.
pub(crate) struct Words<'a> {
    directive: &'a Directive,
}

impl<'a> Words<'a> {
    pub(crate) fn of(directive: &'a Directive) -> Self {
        Self { directive }
    }

    pub(crate) fn wrong(&self, problem: impl std::fmt::Display) -> CorefileError {
        CorefileError::at(self.directive.line, format!("{}: {problem}", self.directive.name))
    }

    pub(crate) fn number<N: std::str::FromStr>(&self, word: &str) -> Result<N, CorefileError> {
        word.parse().map_err(|_| self.wrong(format_args!("{word:?} is not a number it can have")))
    }

    pub(crate) fn duration(&self, word: &str) -> Result<Duration, CorefileError> {
        ferry_semantics::duration::parse_unsigned(word)
            .ok_or_else(|| self.wrong(format_args!("{word:?} is not a duration")))
    }

    /// The argument at a place that must have one.
    pub(crate) fn at<'w>(&self, words: &'w [String], place: usize) -> Result<&'w str, CorefileError> {
        let missing = || self.wrong(format_args!("{} has too few arguments", words.join(" ")));
        words.get(place).map(String::as_str).ok_or_else(missing)
    }
}
