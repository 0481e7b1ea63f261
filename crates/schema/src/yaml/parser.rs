//! From tokens to the events of a document.

use std::collections::HashMap;

use super::cursor::{Finder, Mistake, Place};
use super::event::{Event, TAG_PREFIX, Tag};
use super::scanner::{Kind, Scanner, Token};

/// What is expected next.
#[derive(Clone, Copy)]
enum State {
    DocumentStart,
    DocumentContent,
    DocumentEnd,
    BlockNode,
    BlockEntry {
        first: bool,
    },
    /// Of a list that is not indented further than the map it is in.
    UnindentedEntry,
    BlockKey {
        first: bool,
    },
    BlockValue,
    FlowEntry {
        first: bool,
    },
    /// Of a pair in a list in brackets: `[a: b]`.
    PairKey,
    PairValue,
    PairEnd,
    FlowKey {
        first: bool,
    },
    FlowValue {
        empty: bool,
    },
}

/// As many prefixes of tags may be declared, of as many bytes: every tag is made from one. Upstream has no bound.
const MOST_PREFIXES: usize = 100;
const LONGEST_PREFIX: usize = 1024;

pub(super) struct Parser<'t> {
    pub(super) scanner: Scanner<'t>,
    state: State,
    states: Vec<State>,
    /// Where the open collections began.
    starts: Vec<Place>,
    /// By handle.
    tag_prefixes: HashMap<String, String>,
}

/// An event and the line it begins in, from one; none behind the document.
type Next = Result<Option<(Event, usize)>, Mistake>;

impl<'t> Parser<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self {
            scanner: Scanner::new(text),
            state: State::DocumentStart,
            states: Vec::new(),
            starts: Vec::new(),
            tag_prefixes: HashMap::new(),
        }
    }

    /// The next event of the first document.
    pub(super) fn next(&mut self) -> Next {
        loop {
            match self.state {
                State::DocumentStart => {
                    if !self.document_start()? {
                        return Ok(None);
                    }
                }
                State::DocumentEnd => {
                    // What follows must be a token, though nobody asks which.
                    self.scanner.peek()?;
                    return Ok(None);
                }
                State::DocumentContent => return self.document_content(),
                State::BlockNode => return self.node(true, false),
                State::BlockEntry { first } => return self.block_entry(first),
                State::UnindentedEntry => return self.unindented_entry(),
                State::BlockKey { first } => return self.block_key(first),
                State::BlockValue => return self.block_value(),
                State::FlowEntry { first } => return self.flow_entry(first),
                State::PairKey => return self.pair_key(),
                State::PairValue => return self.pair_value(),
                State::PairEnd => {
                    let place = self.scanner.peek()?.start;
                    self.state = State::FlowEntry { first: false };
                    return event(Event::End, place);
                }
                State::FlowKey { first } => return self.flow_key(first),
                State::FlowValue { empty } => return self.flow_value(empty),
            }
        }
    }

    fn peek(&mut self) -> Result<(Kind, Place), Mistake> {
        let token = self.scanner.peek()?;
        // Texts are taken with their token; here only what it is counts.
        let kind = if let Kind::Scalar { plain, .. } = token.kind {
            Kind::Scalar { text: String::new(), plain }
        } else {
            token.kind.clone()
        };
        Ok((kind, token.start))
    }

    fn back(&mut self) {
        self.state = self.states.pop().unwrap_or(State::DocumentEnd);
    }

    fn empty(&self, place: Place) -> Next {
        event(Event::Scalar { text: String::new(), plain: true, tag: None, anchor: None }, place)
    }

    /// Whether there is a document.
    fn document_start(&mut self) -> Result<bool, Mistake> {
        let (kind, _) = self.peek()?;
        match kind {
            Kind::StreamEnd => return Ok(false),
            Kind::Version(..) | Kind::TagPrefix { .. } | Kind::DocumentStart => {
                self.directives()?;
                let (kind, place) = self.peek()?;
                if kind != Kind::DocumentStart {
                    return Err(mistake("did not find expected <document start>", place, Place::default()));
                }
                self.scanner.skip();
                self.state = State::DocumentContent;
            }
            _ => {
                self.directives()?;
                self.state = State::BlockNode;
            }
        }
        self.states.push(State::DocumentEnd);
        Ok(true)
    }

    fn directives(&mut self) -> Result<(), Mistake> {
        let mut version = false;
        loop {
            let (kind, place) = self.peek()?;
            let refuse = |problem: &str| Err(mistake(problem, place, Place::default()));
            match kind {
                Kind::Version(..) if version => return refuse("found duplicate %YAML directive"),
                Kind::Version(1, 1) => version = true,
                Kind::Version(..) => return refuse("found incompatible YAML document"),
                Kind::TagPrefix { handle, prefix } => {
                    if self.tag_prefixes.contains_key(&handle) {
                        return refuse("found duplicate %TAG directive");
                    }
                    if self.tag_prefixes.len() == MOST_PREFIXES {
                        return refuse(&format!("found more than {MOST_PREFIXES} %TAG directives"));
                    }
                    if prefix.len() > LONGEST_PREFIX {
                        return refuse(&format!("found a %TAG directive of more than {LONGEST_PREFIX} bytes"));
                    }
                    self.tag_prefixes.insert(handle, prefix);
                }
                _ => return Ok(()),
            }
            self.scanner.skip();
        }
    }

    fn document_content(&mut self) -> Next {
        let (kind, place) = self.peek()?;
        match kind {
            Kind::Version(..) | Kind::TagPrefix { .. } | Kind::DocumentStart | Kind::DocumentEnd | Kind::StreamEnd => {
                self.back();
                self.empty(place)
            }
            _ => self.node(true, false),
        }
    }

    /// A value: in a block or in brackets; the value of a key may be a list that is not indented.
    fn node(&mut self, block: bool, unindented: bool) -> Next {
        let (mut kind, mut place) = self.peek()?;
        let start = place;
        if let Kind::Alias(name) = kind {
            self.back();
            self.scanner.skip();
            return event(Event::Alias(name), start);
        }
        let mut anchor = None;
        let mut tag = None;
        loop {
            match kind {
                Kind::Anchor(name) if anchor.is_none() => anchor = Some(name),
                Kind::Tag { handle, suffix } if tag.is_none() => tag = Some((handle, suffix, place)),
                _ => break,
            }
            self.scanner.skip();
            (kind, place) = self.peek()?;
        }
        let tag = tag.map(|(handle, suffix, place)| self.whole_tag(&handle, suffix, place, start)).transpose()?;
        match kind {
            Kind::BlockEntry if unindented => {
                self.state = State::UnindentedEntry;
                event(Event::List { anchor }, start)
            }
            Kind::Scalar { .. } => {
                self.back();
                let Token { kind: Kind::Scalar { text, plain }, .. } = self.scanner.next()? else {
                    return self.empty(start);
                };
                event(Event::Scalar { text, plain, tag: tag.map(|tag| Tag::of(&tag)), anchor }, start)
            }
            Kind::FlowListStart => {
                self.state = State::FlowEntry { first: true };
                event(Event::List { anchor }, start)
            }
            Kind::FlowMapStart => {
                self.state = State::FlowKey { first: true };
                event(Event::Map { anchor }, start)
            }
            Kind::BlockListStart if block => {
                self.state = State::BlockEntry { first: true };
                event(Event::List { anchor }, start)
            }
            Kind::BlockMapStart if block => {
                self.state = State::BlockKey { first: true };
                event(Event::Map { anchor }, start)
            }
            _ if anchor.is_some() || tag.is_some() => {
                self.back();
                let plain = tag.is_none();
                event(Event::Scalar { text: String::new(), plain, tag: tag.map(|tag| Tag::of(&tag)), anchor }, start)
            }
            _ => Err(mistake("did not find expected node content", place, start)),
        }
    }

    fn whole_tag(&self, handle: &str, suffix: String, place: Place, start: Place) -> Result<String, Mistake> {
        if handle.is_empty() {
            return Ok(suffix);
        }
        let declared = self.tag_prefixes.get(handle).map(String::as_str);
        let prefix = declared.or(match handle {
            "!" => Some("!"),
            "!!" => Some(TAG_PREFIX),
            _ => None,
        });
        match prefix {
            Some(prefix) => Ok(format!("{prefix}{suffix}")),
            None => Err(mistake("found undefined tag handle", place, start)),
        }
    }

    /// Goes over the token that began a collection.
    fn enter(&mut self, first: bool) -> Result<(), Mistake> {
        if first {
            let token = self.scanner.next()?;
            self.starts.push(token.start);
        }
        Ok(())
    }

    fn leave(&mut self, place: Place) -> Next {
        self.scanner.skip();
        self.starts.pop();
        self.back();
        event(Event::End, place)
    }

    fn broken<T>(&mut self, problem: &str, place: Place) -> Result<T, Mistake> {
        let start = self.starts.pop().unwrap_or_default();
        Err(mistake(problem, place, start))
    }

    fn block_entry(&mut self, first: bool) -> Next {
        self.enter(first)?;
        let (kind, place) = self.peek()?;
        match kind {
            Kind::BlockEntry => self.entry(State::BlockEntry { first: false }, &[Kind::BlockEntry, Kind::BlockEnd]),
            Kind::BlockEnd => self.leave(place),
            _ => self.broken("did not find expected '-' indicator", place),
        }
    }

    fn unindented_entry(&mut self) -> Next {
        let (kind, place) = self.peek()?;
        if kind == Kind::BlockEntry {
            let ends = [Kind::BlockEntry, Kind::Key, Kind::Value, Kind::BlockEnd];
            return self.entry(State::UnindentedEntry, &ends);
        }
        self.back();
        event(Event::End, place)
    }

    /// What stands behind a dash, if anything does.
    fn entry(&mut self, then: State, ends: &[Kind]) -> Next {
        let dash = self.scanner.next()?;
        let (kind, _) = self.peek()?;
        self.node_unless(ends.contains(&kind), then, dash.end, (true, false))
    }

    /// A value, or none where it is missing; then the state.
    fn node_unless(&mut self, missing: bool, then: State, place: Place, (block, unindented): (bool, bool)) -> Next {
        if missing {
            self.state = then;
            return self.empty(place);
        }
        self.states.push(then);
        self.node(block, unindented)
    }

    fn block_key(&mut self, first: bool) -> Next {
        self.enter(first)?;
        let (kind, place) = self.peek()?;
        match kind {
            Kind::Key => {
                let key = self.scanner.next()?;
                let (kind, _) = self.peek()?;
                let missing = matches!(kind, Kind::Key | Kind::Value | Kind::BlockEnd);
                self.node_unless(missing, State::BlockValue, key.end, (true, true))
            }
            Kind::BlockEnd => self.leave(place),
            _ => self.broken("did not find expected key", place),
        }
    }

    fn block_value(&mut self) -> Next {
        let (kind, place) = self.peek()?;
        let then = State::BlockKey { first: false };
        if kind != Kind::Value {
            self.state = then;
            return self.empty(place);
        }
        let colon = self.scanner.next()?;
        let (kind, _) = self.peek()?;
        let missing = matches!(kind, Kind::Key | Kind::Value | Kind::BlockEnd);
        self.node_unless(missing, then, colon.end, (true, true))
    }

    fn flow_entry(&mut self, first: bool) -> Next {
        self.enter(first)?;
        let (mut kind, mut place) = self.peek()?;
        if kind != Kind::FlowListEnd && !first {
            if kind != Kind::FlowEntry {
                return self.broken("did not find expected ',' or ']'", place);
            }
            self.scanner.skip();
            (kind, place) = self.peek()?;
        }
        match kind {
            Kind::FlowListEnd => self.leave(place),
            Kind::Key => {
                self.scanner.skip();
                self.state = State::PairKey;
                event(Event::Map { anchor: None }, place)
            }
            _ => self.node_unless(false, State::FlowEntry { first: false }, place, (false, false)),
        }
    }

    fn pair_key(&mut self) -> Next {
        let (kind, _) = self.peek()?;
        if matches!(kind, Kind::Value | Kind::FlowEntry | Kind::FlowListEnd) {
            // Upstream goes over the token here, whichever it is.
            let token = self.scanner.next()?;
            self.state = State::PairValue;
            return self.empty(token.end);
        }
        self.node_unless(false, State::PairValue, Place::default(), (false, false))
    }

    fn pair_value(&mut self) -> Next {
        let (mut kind, place) = self.peek()?;
        if kind == Kind::Value {
            self.scanner.skip();
            kind = self.peek()?.0;
            if !matches!(kind, Kind::FlowEntry | Kind::FlowListEnd) {
                return self.node_unless(false, State::PairEnd, place, (false, false));
            }
        }
        self.state = State::PairEnd;
        self.empty(place)
    }

    fn flow_key(&mut self, first: bool) -> Next {
        self.enter(first)?;
        let (mut kind, mut place) = self.peek()?;
        if kind != Kind::FlowMapEnd && !first {
            if kind != Kind::FlowEntry {
                return self.broken("did not find expected ',' or '}'", place);
            }
            self.scanner.skip();
            (kind, place) = self.peek()?;
        }
        match kind {
            Kind::FlowMapEnd => self.leave(place),
            Kind::Key => {
                self.scanner.skip();
                let (kind, place) = self.peek()?;
                let missing = matches!(kind, Kind::Value | Kind::FlowEntry | Kind::FlowMapEnd);
                self.node_unless(missing, State::FlowValue { empty: false }, place, (false, false))
            }
            _ => self.node_unless(false, State::FlowValue { empty: true }, place, (false, false)),
        }
    }

    fn flow_value(&mut self, empty: bool) -> Next {
        let (kind, place) = self.peek()?;
        let then = State::FlowKey { first: false };
        if empty || kind != Kind::Value {
            self.state = then;
            return self.empty(place);
        }
        self.scanner.skip();
        let (kind, place) = self.peek()?;
        self.node_unless(matches!(kind, Kind::FlowEntry | Kind::FlowMapEnd), then, place, (false, false))
    }
}

fn event(event: Event, place: Place) -> Next {
    Ok(Some((event, place.line + 1)))
}

fn mistake(problem: &str, at: Place, context: Place) -> Mistake {
    Mistake { finder: Finder::Parser, problem: problem.to_owned(), at, context }
}
