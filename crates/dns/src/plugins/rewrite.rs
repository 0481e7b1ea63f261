//! `rewrite`: another name or type is asked for than the client did, and the answer is told as if it had been the client's.

use hickory_proto::rr::rdata::{CNAME, MX, NS, PTR, SRV};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use regex::Regex;

use super::Words;
use crate::corefile::{CorefileError, Directive};
use crate::message::Reply;

#[derive(Debug)]
enum Match {
    Exact(Name),
    Prefix(String),
    Suffix(String),
    Substring(String),
    Regex(Regex),
}

#[derive(Clone, Debug)]
enum Back {
    /// Names that a pattern fits, wherever a record has its own.
    Name(Regex, String),
    /// The same of the names that records lead to.
    Value(Regex, String),
    /// The name that was asked instead of the client's.
    Auto,
}

#[derive(Debug)]
enum Change {
    Name { to: String, back: Vec<Back> },
    Type(RecordType, RecordType),
    Ttl(u32, u32),
}

#[derive(Debug)]
pub(crate) struct Rule {
    /// Names it is for; all where there is none.
    names: Option<Match>,
    change: Change,
    goes_on: bool,
}

/// What was changed of a question, and has to be changed back in the answer.
#[derive(Debug, Default)]
pub(crate) struct Changed {
    back: Vec<(Back, Name, Name)>,
    ttl: Option<(u32, u32)>,
}

fn name(text: &str, words: &Words<'_>) -> Result<Name, CorefileError> {
    let mut name = Name::from_ascii(text.trim_end_matches('.'))
        .map_err(|_| words.wrong(format_args!("{text:?} is not a domain name")))?;
    name.set_fqdn(true);
    Ok(name)
}

fn pattern(text: &str, words: &Words<'_>) -> Result<Regex, CorefileError> {
    regex::RegexBuilder::new(text)
        .size_limit(1 << 20)
        .build()
        .map_err(|_| words.wrong(format_args!("{text:?} is not a pattern, or one that is too large")))
}

impl Match {
    /// By the word for its kind, where there is one, and by what is to match.
    fn read(kind: &str, text: &str, words: &Words<'_>) -> Result<Self, CorefileError> {
        Ok(match kind {
            "exact" => Self::Exact(name(text, words)?),
            "prefix" => Self::Prefix(text.to_lowercase()),
            "suffix" => Self::Suffix(text.to_lowercase()),
            "substring" => Self::Substring(text.to_lowercase()),
            _ => Self::Regex(pattern(text, words)?),
        })
    }

    /// The name with what matched replaced; nothing where it does not match.
    fn replaced(&self, asked: &Name, to: &str) -> Option<String> {
        let text = asked.to_ascii().to_lowercase();
        match self {
            Self::Exact(name) => (name == asked).then(|| to.to_owned()),
            Self::Prefix(prefix) => text.strip_prefix(prefix.as_str()).map(|rest| format!("{to}{rest}")),
            Self::Suffix(suffix) => {
                let with_dot = suffix.ends_with('.');
                let text = if with_dot { text.as_str() } else { text.trim_end_matches('.') };
                text.strip_suffix(suffix.as_str()).map(|rest| format!("{rest}{to}"))
            }
            Self::Substring(part) => text.contains(part.as_str()).then(|| text.replace(part.as_str(), to)),
            Self::Regex(regex) => filled(regex, &text, to),
        }
    }
}

/// The text made of a template whose `{1}` are the groups of a pattern that fits.
fn filled(regex: &Regex, text: &str, template: &str) -> Option<String> {
    let found = regex.captures(text).or_else(|| regex.captures(text.trim_end_matches('.')))?;
    let mut made = template.to_owned();
    for index in 0..found.len() {
        made = made.replace(&format!("{{{index}}}"), found.get(index).map_or("", |group| group.as_str()));
    }
    Some(made)
}

const KINDS: [&str; 5] = ["exact", "prefix", "suffix", "substring", "regex"];

impl Rule {
    /// Nothing where it is of a kind that is not known, which is said.
    pub(crate) fn read(directive: &Directive, complaints: &mut Vec<String>) -> Result<Option<Self>, CorefileError> {
        let words = Words::of(directive);
        let mut all = directive.arguments.clone();
        all.extend(directive.lines.iter().flatten().cloned());
        let goes_on = all.first().is_some_and(|word| word == "continue");
        if goes_on || all.first().is_some_and(|word| word == "stop") {
            all.remove(0);
        }
        let field = words.at(&all, 0)?.to_owned();
        let mut rest = all[1..].to_vec();
        // The kind of match may be left out.
        let kind = match rest.first() {
            Some(word) if KINDS.contains(&word.as_str()) && rest.len() > 2 => rest.remove(0),
            _ => "exact".to_owned(),
        };
        let (names, change) = match field.as_str() {
            "name" => {
                let names = Match::read(&kind, words.at(&rest, 0)?, &words)?;
                let to = words.at(&rest, 1)?.to_lowercase();
                let mut back = answers(&rest[2..], &words)?;
                if kind == "exact" {
                    name(&to, &words)?;
                    back.insert(0, Back::Auto);
                }
                (Some(names), Change::Name { to, back })
            }
            "type" => {
                let of = |word: &str| {
                    word.parse().map_err(|_| words.wrong(format_args!("{word:?} is not a type of records")))
                };
                (None, Change::Type(of(words.at(&rest, 0)?)?, of(words.at(&rest, 1)?)?))
            }
            "ttl" => {
                let names = Match::read(&kind, words.at(&rest, 0)?, &words)?;
                (Some(names), ttl(words.at(&rest, 1)?, &words)?)
            }
            other => {
                complaints.push(format!("line {}: rewrite {other} is not known", directive.line));
                return Ok(None);
            }
        };
        Ok(Some(Self { names, change, goes_on }))
    }
}

fn ttl(text: &str, words: &Words<'_>) -> Result<Change, CorefileError> {
    let of = |text: &str, otherwise: u32| match text {
        "" => Ok(otherwise),
        text => words.number(text),
    };
    Ok(match text.split_once('-') {
        Some((least, most)) => Change::Ttl(of(least, 0)?, of(most, u32::MAX)?),
        None => Change::Ttl(words.number(text)?, words.number(text)?),
    })
}

/// The options behind a rule for names: `answer auto`, `answer name FROM TO`, `answer value FROM TO`.
fn answers(rest: &[String], words: &Words<'_>) -> Result<Vec<Back>, CorefileError> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < rest.len() {
        if rest[at] == "answer" {
            at += 1;
        }
        match words.at(rest, at)? {
            "auto" => {
                found.push(Back::Auto);
                at += 1;
            }
            "name" if rest.get(at + 1).is_some_and(|word| word == "auto") => {
                found.push(Back::Auto);
                at += 2;
            }
            field @ ("name" | "value") => {
                let from = pattern(words.at(rest, at + 1)?, words)?;
                let to = words.at(rest, at + 2)?.to_owned();
                found.push(if field == "name" { Back::Name(from, to) } else { Back::Value(from, to) });
                at += 3;
            }
            other => return Err(words.wrong(format_args!("{other:?} is none of auto, name and value"))),
        }
    }
    Ok(found)
}

/// The question that is asked instead. A rule whose outcome is no name does not apply.
pub(crate) fn change(rules: &[Rule], asked: &Name, kind: RecordType) -> (Name, RecordType, Changed) {
    let (mut now, mut kind, mut changed) = (asked.clone(), kind, Changed::default());
    for rule in rules {
        let applied = match (&rule.names, &rule.change) {
            (Some(names), Change::Name { to, back }) => {
                let made = names.replaced(&now, to).and_then(|text| Name::from_ascii(text.trim_end_matches('.')).ok());
                made.is_some_and(|mut made| {
                    made.set_fqdn(true);
                    changed.back.extend(back.iter().map(|back| (back.clone(), now.clone(), made.clone())));
                    now = made;
                    true
                })
            }
            (Some(names), Change::Ttl(least, most)) => {
                let fits = names.replaced(&now, "x").is_some();
                if fits {
                    changed.ttl = Some((*least, *most));
                }
                fits
            }
            (None, Change::Type(from, to)) if *from == kind => {
                kind = *to;
                true
            }
            _ => false,
        };
        if applied && !rule.goes_on {
            break;
        }
    }
    (now, kind, changed)
}

impl Changed {
    /// Makes an answer to what was asked instead one to what the client asked.
    pub(crate) fn restore(&self, reply: &mut Reply) {
        let sections = [&mut reply.answers, &mut reply.authorities, &mut reply.additionals];
        for record in sections.into_iter().flatten() {
            if let Some((least, most)) = self.ttl {
                record.ttl = record.ttl.max(least).min(most);
            }
            for (back, asked, instead) in self.back.iter().rev() {
                restore(record, back, asked, instead);
            }
        }
    }
}

fn restore(record: &mut Record, back: &Back, asked: &Name, instead: &Name) {
    let renamed = |name: &Name, regex: &Regex, to: &str| {
        let made = filled(regex, &name.to_ascii(), to)?;
        let mut made = Name::from_ascii(made.trim_end_matches('.')).ok()?;
        made.set_fqdn(true);
        Some(made)
    };
    match back {
        Back::Auto => {
            if record.name == *instead {
                record.name = asked.clone();
            }
            lead(&mut record.data, |name| (name == instead).then(|| asked.clone()));
        }
        Back::Name(regex, to) => {
            if let Some(made) = renamed(&record.name, regex, to) {
                record.name = made;
            }
        }
        Back::Value(regex, to) => lead(&mut record.data, |name| renamed(name, regex, to)),
    }
}

/// Changes the name that a record leads to.
fn lead(data: &mut RData, change: impl Fn(&Name) -> Option<Name>) {
    let changed = match data {
        RData::CNAME(CNAME(name)) => change(name).map(|name| RData::CNAME(CNAME(name))),
        RData::NS(NS(name)) => change(name).map(|name| RData::NS(NS(name))),
        RData::PTR(PTR(name)) => change(name).map(|name| RData::PTR(PTR(name))),
        RData::MX(mx) => change(&mx.exchange).map(|name| RData::MX(MX::new(mx.preference, name))),
        RData::SRV(srv) => {
            change(&srv.target).map(|name| RData::SRV(SRV::new(srv.priority, srv.weight, srv.port, name)))
        }
        _ => None,
    };
    if let Some(changed) = changed {
        *data = changed;
    }
}
