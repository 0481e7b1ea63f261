//! From the events of a document to its value.
//!
//! What has an anchor is kept as the events it came from, once; an alias goes through them again. So whatever an alias makes is
//! held to the same bounds as what stands in the text, before it is made.

use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

use ferry_meta::bounds::{self, DEEPEST, ENTRY, Excess, HEAVIEST, ITEM, MAP};
use serde_json::{Map, Value};

use super::event::{Event, Tag};
use super::{Duplicates, Error, go_syntax, resolve};

/// What aliases may add to any document, in bytes of JSON; to long ones they may add twice their length.
const ALIASES_ADD: usize = 1 << 20;
/// What a kept event takes.
const KEPT: usize = 96;
/// As many keys that stand twice are told.
const MAX_DUPLICATES: usize = 100;

/// An event of a document.
#[derive(Clone)]
enum Step {
    Scalar { text: Rc<str>, plain: bool, tag: Option<Tag> },
    List,
    Map,
    End,
    Alias(usize, Rc<str>),
}

enum Open {
    List { items: Vec<Value>, anchor: usize, line: usize },
    Map { map: Map<String, Value>, key: Option<Key>, anchor: usize, line: usize },
}

struct Key {
    text: String,
    /// Upstream quotes texts in the complaint about a duplicate.
    is_text: bool,
    kind: Kind,
    merge: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Usual,
    Null,
    /// A number that is larger than upstream allows.
    Wide,
}

pub(super) struct Builder {
    open: Vec<Open>,
    root: Option<Value>,
    duplicates: Duplicates,
    weight: usize,
    /// What aliases may still add.
    aliases_left: usize,
    /// The events of what has an anchor, each with its line.
    kept: Vec<(Step, usize)>,
    /// The events of each anchor; those that are not whole have no end yet.
    anchors: HashMap<usize, (usize, Option<usize>)>,
    /// The latest anchor of each name.
    names: HashMap<String, usize>,
    /// Collections with an anchor that are being read.
    keeping: usize,
    /// What YAML has and JSON has not: it is told last.
    unsupported: Option<String>,
    /// Whether this is an alias being gone through.
    again: bool,
}

impl Builder {
    pub(super) fn new(length: usize) -> Self {
        Self {
            open: Vec::new(),
            root: None,
            duplicates: Duplicates::default(),
            weight: 0,
            aliases_left: ALIASES_ADD.max(2 * length),
            kept: Vec::new(),
            anchors: HashMap::new(),
            names: HashMap::new(),
            keeping: 0,
            unsupported: None,
            again: false,
        }
    }

    pub(super) fn finish(self) -> Result<(Value, Duplicates), Error> {
        match self.unsupported {
            Some(why) => Err(why.into()),
            None => Ok((self.root.unwrap_or_default(), self.duplicates)),
        }
    }

    pub(super) fn event(&mut self, event: Event, line: usize) -> Result<(), Error> {
        let (step, anchor) = match event {
            Event::Scalar { text, plain, tag, anchor } => (Step::Scalar { text: text.into(), plain, tag }, anchor),
            Event::List { anchor } => (Step::List, anchor),
            Event::Map { anchor } => (Step::Map, anchor),
            Event::End => (Step::End, None),
            // Whether there is such an anchor the parser has asked.
            Event::Alias(name) => (Step::Alias(self.names.get(&name).copied().unwrap_or_default(), name.into()), None),
        };
        let anchor = anchor.map_or(0, |name| {
            let number = self.anchors.len() + 1;
            self.names.insert(name, number);
            self.anchors.insert(number, (0, None));
            number
        });
        if self.keeping > 0 || anchor > 0 {
            self.keep(&step, anchor, line)?;
        }
        self.step(step, anchor, line)
    }

    /// Keeps an event for the aliases of what it belongs to.
    fn keep(&mut self, step: &Step, anchor: usize, line: usize) -> Result<(), Error> {
        let length = match step {
            Step::Scalar { text, tag, .. } => text.len() + tag.as_ref().map_or(0, Tag::len),
            _ => 0,
        };
        self.weigh(KEPT + length)?;
        let start = self.kept.len();
        self.kept.push((step.clone(), line));
        if anchor > 0 {
            let whole = matches!(step, Step::Scalar { .. }).then_some(start + 1);
            self.keeping += usize::from(whole.is_none());
            self.anchors.insert(anchor, (start, whole));
        }
        Ok(())
    }

    fn step(&mut self, step: Step, anchor: usize, line: usize) -> Result<(), Error> {
        match step {
            Step::Scalar { text, plain, tag } => {
                if self.expects_key() {
                    return self.key(&text, plain, tag.as_ref());
                }
                let value = resolve::scalar(&text, plain, tag.as_ref())?;
                self.value(value, line)
            }
            Step::List => self.start(Open::List { items: Vec::new(), anchor, line }),
            Step::Map => self.start(Open::Map { map: Map::new(), key: None, anchor, line }),
            Step::End => self.end(),
            Step::Alias(anchor, name) => match self.anchors.get(&anchor) {
                Some((start, Some(end))) => self.go_again(*start..*end, line),
                _ => Err(format!("yaml: anchor '{name}' value contains itself").into()),
            },
        }
    }

    /// Goes through kept events again. Aliases among them stand in a collection that is among them too: they go no deeper than values.
    fn go_again(&mut self, range: Range<usize>, alias: usize) -> Result<(), Error> {
        let first = range.start;
        let outer = std::mem::replace(&mut self.again, true);
        for at in range {
            let Some((step, line)) = self.kept.get(at).cloned() else { break };
            let length = if let Step::Scalar { text, .. } = &step { text.len() } else { 0 };
            self.aliases_left = self
                .aliases_left
                .checked_sub(length + 3)
                .ok_or_else(|| Error::from("yaml: document contains excessive aliasing".to_owned()))?;
            // It is not the anchor's definition.
            self.step(step, 0, if at == first { alias } else { line })?;
        }
        self.again = outer;
        Ok(())
    }

    fn expects_key(&self) -> bool {
        matches!(self.open.last(), Some(Open::Map { key: None, .. }))
    }

    fn weigh(&mut self, bytes: usize) -> Result<(), Error> {
        self.weight += bytes;
        if self.weight > HEAVIEST { Err(Error::TooLarge(Excess::Weight)) } else { Ok(()) }
    }

    /// Whether a value may stand here.
    fn check_depth(&self) -> Result<(), Error> {
        if self.open.len() > DEEPEST {
            return Err(format!("yaml: exceeded max depth of {DEEPEST}").into());
        }
        Ok(())
    }

    fn start(&mut self, open: Open) -> Result<(), Error> {
        self.check_depth()?;
        self.open.push(open);
        Ok(())
    }

    fn end(&mut self) -> Result<(), Error> {
        let (value, anchor, line) = match self.open.pop() {
            Some(Open::List { items, anchor, line }) => (Value::Array(items), anchor, line),
            Some(Open::Map { map, anchor, line, .. }) => (Value::Object(map), anchor, line),
            None => return Ok(()),
        };
        if anchor > 0 {
            self.keeping -= 1;
            if let Some((_, end)) = self.anchors.get_mut(&anchor) {
                *end = Some(self.kept.len());
            }
        }
        self.value(value, line)
    }

    fn key(&mut self, text: &str, plain: bool, tag: Option<&Tag>) -> Result<(), Error> {
        let resolved = match resolve::infinite(text) {
            // As a key it is text.
            Some(shown) if plain && tag.is_none() => {
                Value::String(shown.trim_start_matches('+').replace("Inf", ".inf").replace("NaN", ".nan"))
            }
            _ => resolve::scalar(text, plain, tag)?,
        };
        let mut kind = if resolved.is_null() { Kind::Null } else { Kind::Usual };
        let (text, is_text) = match resolved {
            Value::String(text) => (text, true),
            Value::Number(number) if number.is_f64() || !resolve::is_whole(text) => {
                (crate::text::go_float_32(number.as_f64().unwrap_or_default()), false)
            }
            Value::Number(number) if number.as_i64().is_none() => {
                kind = Kind::Wide;
                (format!("{:#x}", number.as_u64().unwrap_or_default()), false)
            }
            other => (other.to_string(), false),
        };
        let merge = text == "<<" && (plain || tag == Some(&Tag::Core("merge".into())));
        if let Some(Open::Map { key, .. }) = self.open.last_mut() {
            *key = Some(Key { text, is_text, kind, merge });
        }
        Ok(())
    }

    /// Puts a whole value where it belongs.
    fn value(&mut self, value: Value, line: usize) -> Result<(), Error> {
        self.check_depth()?;
        if self.expects_key() {
            return Err(format!("yaml: invalid map key: {}", go_syntax::of(&value)).into());
        }
        let text = if let Value::String(text) = &value { text.len() } else { 0 };
        let weight = match self.open.last() {
            None => 0,
            Some(Open::List { .. }) => ITEM,
            Some(Open::Map { map, key, .. }) => {
                let first = if map.is_empty() { MAP } else { 0 };
                first + ENTRY + key.as_ref().map_or(0, |key| key.text.len())
            }
        };
        self.weigh(text + weight)?;
        match self.open.last_mut() {
            None => self.root = self.root.take().or(Some(value)),
            Some(Open::List { items, .. }) => items.push(value),
            Some(Open::Map { map, key, .. }) => match key.take() {
                Some(key) if key.kind != Kind::Usual => {
                    let (shown, (ty, name)) = match key.kind {
                        Kind::Wide => (go_syntax::of(&value), ("uint64", &*key.text)),
                        _ => (go_syntax::of(&value), ("%!s(<nil>)", "<nil>")),
                    };
                    let why = || format!("unsupported map key of type: {ty}, key: {name}, value: {shown}");
                    self.unsupported.get_or_insert_with(why);
                }
                Some(key) if key.merge => merge(map, value, line, &mut self.duplicates)?,
                Some(key) => {
                    if map.contains_key(&key.text) {
                        self.duplicates.add(&key.text, key.is_text, line);
                    }
                    map.insert(key.text, value);
                }
                None => {}
            },
        }
        Ok(())
    }
}

/// What stands behind `<<`: its keys count from there on, those of the first of several maps most.
fn merge(map: &mut Map<String, Value>, source: Value, line: usize, duplicates: &mut Duplicates) -> Result<(), Error> {
    let sources = if let Value::Array(list) = source { list } else { vec![source] };
    for source in sources.into_iter().rev() {
        let Value::Object(source) = source else {
            return Err("yaml: map merge requires map or sequence of maps as the value".to_owned().into());
        };
        for (key, value) in source {
            if map.contains_key(&key) {
                duplicates.add(&key, true, line);
            }
            map.insert(key, value);
        }
    }
    Ok(())
}

impl Duplicates {
    fn add(&mut self, key: &str, is_text: bool, line: usize) {
        if self.lines.len() >= MAX_DUPLICATES {
            return;
        }
        let key = bounds::cut(key, 1024);
        let shown = if is_text { crate::text::quote(&key) } else { key.into_owned() };
        self.lines.push(format!("line {line}: key {shown} already set in map"));
    }
}
