//! From the events of a document to its value.
//!
//! What has an anchor is kept as the events it came from, once; an alias goes through them again. So whatever an alias makes is
//! held to the same bounds as what stands in the text, before it is made.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use ferry_meta::bounds::{self, DEEPEST, ENTRY, Excess, HEAVIEST, ITEM, MAP};
use granit_parser::{Event, ScalarStyle};
use serde_json::{Map, Value};

use super::{Duplicates, Error, resolve};

/// Of an alias of what is not whole yet; who knows the text says which.
pub(super) const UNKNOWN_ANCHOR: &str = "yaml: unknown anchor referenced";
pub(super) const NULL_KEY: &str = "yaml: unsupported map key of type: invalid";

/// What aliases may add to any document, in bytes of JSON; to long ones they may add twice their length.
const ALIASES_ADD: usize = 1 << 20;
/// What a kept event takes.
const KEPT: usize = 96;
/// As many keys that stand twice are told.
const MAX_DUPLICATES: usize = 100;

/// An event of a document.
#[derive(Clone)]
pub(super) enum Step<'t> {
    Scalar { text: Cow<'t, str>, plain: bool, tag: Option<Box<str>> },
    List,
    Map,
    End,
    Alias(usize),
}

enum Open {
    List { items: Vec<Value>, anchor: usize },
    Map { map: Map<String, Value>, key: Option<Key>, merged: Vec<Value>, anchor: usize },
}

struct Key {
    text: String,
    /// Upstream quotes texts in the complaint about a duplicate.
    is_text: bool,
    line: usize,
    merge: bool,
}

pub(super) struct Builder<'t> {
    open: Vec<Open>,
    root: Option<Value>,
    duplicates: Duplicates,
    weight: usize,
    /// What aliases may still add.
    aliases_left: usize,
    /// The events of what has an anchor, each with its line.
    kept: Vec<(Step<'t>, usize)>,
    /// The events of each anchor; those that are not whole have no end yet.
    anchors: HashMap<usize, (usize, Option<usize>)>,
    /// Collections with an anchor that are being read.
    keeping: usize,
    /// Whether this is an alias being gone through.
    again: bool,
}

impl<'t> Builder<'t> {
    pub(super) fn new(length: usize) -> Self {
        Self {
            open: Vec::new(),
            root: None,
            duplicates: Duplicates::default(),
            weight: 0,
            aliases_left: ALIASES_ADD.max(2 * length),
            kept: Vec::new(),
            anchors: HashMap::new(),
            keeping: 0,
            again: false,
        }
    }

    pub(super) fn finish(self) -> (Value, Duplicates) {
        (self.root.unwrap_or_default(), self.duplicates)
    }

    pub(super) fn event(&mut self, event: Event<'t>, line: usize) -> Result<(), Error> {
        let (step, anchor) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                let tag = tag.as_deref().and_then(|tag| tag.core_suffix()).map(Box::from);
                (Step::Scalar { text, plain: style == ScalarStyle::Plain, tag }, anchor)
            }
            Event::SequenceStart(_, anchor, _) => (Step::List, anchor),
            Event::MappingStart(_, anchor, _) => (Step::Map, anchor),
            Event::SequenceEnd | Event::MappingEnd => (Step::End, 0),
            Event::Alias(anchor) => (Step::Alias(anchor), 0),
            _ => return Ok(()),
        };
        if self.keeping > 0 || anchor > 0 {
            self.keep(&step, anchor, line)?;
        }
        self.step(step, anchor, line)
    }

    /// Keeps an event for the aliases of what it belongs to.
    fn keep(&mut self, step: &Step<'t>, anchor: usize, line: usize) -> Result<(), Error> {
        let length = if let Step::Scalar { text: Cow::Owned(text), .. } = step { text.len() } else { 0 };
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

    fn step(&mut self, step: Step<'t>, anchor: usize, line: usize) -> Result<(), Error> {
        match step {
            Step::Scalar { text, plain, tag } => {
                if self.expects_key() {
                    return self.key(&text, plain, tag.as_deref(), line);
                }
                let value = resolve::scalar(&text, plain, tag.as_deref())?;
                self.value(value)
            }
            Step::List => self.start(Open::List { items: Vec::new(), anchor }),
            Step::Map => self.start(Open::Map { map: Map::new(), key: None, merged: Vec::new(), anchor }),
            Step::End => self.end(),
            Step::Alias(anchor) => match self.anchors.get(&anchor) {
                Some((start, Some(end))) => self.go_again(*start..*end),
                _ => Err(UNKNOWN_ANCHOR.to_owned().into()),
            },
        }
    }

    /// Goes through kept events again. Aliases among them stand in a collection that is among them too: they go no deeper than values.
    fn go_again(&mut self, range: Range<usize>) -> Result<(), Error> {
        let outer = std::mem::replace(&mut self.again, true);
        for at in range {
            let Some((step, line)) = self.kept.get(at).cloned() else { break };
            let length = if let Step::Scalar { text, .. } = &step { text.len() } else { 0 };
            self.aliases_left = self
                .aliases_left
                .checked_sub(length + 3)
                .ok_or_else(|| Error::from("yaml: document contains excessive aliasing".to_owned()))?;
            // It is not the anchor's definition.
            self.step(step, 0, line)?;
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
        if self.expects_key() {
            return Err("yaml: invalid map key".to_owned().into());
        }
        self.check_depth()?;
        self.open.push(open);
        Ok(())
    }

    fn end(&mut self) -> Result<(), Error> {
        let (value, anchor) = match self.open.pop() {
            Some(Open::List { items, anchor }) => (Value::Array(items), anchor),
            Some(Open::Map { mut map, merged, anchor, .. }) => {
                for source in merged {
                    let sources = if let Value::Array(list) = source { list } else { vec![source] };
                    for source in sources {
                        let Value::Object(source) = source else {
                            let why = "yaml: map merge requires map or sequence of maps as the value";
                            return Err(why.to_owned().into());
                        };
                        for (key, value) in source {
                            map.entry(key).or_insert(value);
                        }
                    }
                }
                (Value::Object(map), anchor)
            }
            None => return Ok(()),
        };
        if anchor > 0 {
            self.keeping -= 1;
            if let Some((_, end)) = self.anchors.get_mut(&anchor) {
                *end = Some(self.kept.len());
            }
        }
        self.value(value)
    }

    fn key(&mut self, text: &str, plain: bool, tag: Option<&str>, line: usize) -> Result<(), Error> {
        let resolved = resolve::scalar(text, plain, tag)?;
        let (text, is_text) = match resolved {
            Value::String(text) => (text, true),
            Value::Null => return Err(NULL_KEY.to_owned().into()),
            other => (other.to_string(), false),
        };
        let merge = plain && text == "<<";
        if let Some(Open::Map { key, .. }) = self.open.last_mut() {
            *key = Some(Key { text, is_text, line, merge });
        }
        Ok(())
    }

    /// Puts a whole value where it belongs.
    fn value(&mut self, value: Value) -> Result<(), Error> {
        self.check_depth()?;
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
            Some(Open::Map { map, key, merged, .. }) => match key.take() {
                Some(key) if key.merge => merged.push(value),
                Some(key) => {
                    if map.contains_key(&key.text) {
                        self.duplicates.add(&key.text, key.is_text, key.line);
                    }
                    map.insert(key.text, value);
                }
                None => {}
            },
        }
        Ok(())
    }
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
