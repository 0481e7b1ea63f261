//! From characters to tokens.
//!
//! Written by the rules of the reader that upstream uses, as these decide which texts are documents and what is said of the others:
//! where a key may begin, how far ahead its colon may be, when a tab counts as space.

use std::collections::{HashMap, VecDeque};

use super::cursor::{Cursor, Mistake, Place};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    StreamEnd,
    Version(u8, u8),
    TagPrefix { handle: String, prefix: String },
    DocumentStart,
    DocumentEnd,
    BlockListStart,
    BlockMapStart,
    BlockEnd,
    FlowListStart,
    FlowListEnd,
    FlowMapStart,
    FlowMapEnd,
    BlockEntry,
    FlowEntry,
    Key,
    Value,
    Alias(String),
    Anchor(String),
    Tag { handle: String, suffix: String },
    Scalar { text: String, plain: bool },
}

#[derive(Clone, Debug)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) start: Place,
    pub(super) end: Place,
}

/// Where a key may have begun whose colon is still to come.
#[derive(Clone, Copy, Default)]
struct PossibleKey {
    possible: bool,
    /// Nothing else can stand there.
    required: bool,
    token: usize,
    place: Place,
}

/// How far ahead of its colon a key without a question mark may begin.
const LONGEST_KEY: usize = 1024;
/// How deep brackets and indentation may go.
const DEEPEST: usize = 10_000;

pub(super) struct Scanner<'t> {
    pub(super) cursor: Cursor<'t>,
    pub(super) flow_level: usize,
    /// The column of the innermost block, -1 outside.
    pub(super) indent: isize,
    indents: Vec<isize>,
    pub(super) key_allowed: bool,
    /// One for each level of brackets.
    keys: Vec<PossibleKey>,
    keys_by_token: HashMap<usize, usize>,
    tokens: VecDeque<Token>,
    taken: usize,
    ended: bool,
}

impl<'t> Scanner<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self {
            cursor: Cursor::new(text),
            flow_level: 0,
            indent: -1,
            indents: Vec::new(),
            key_allowed: true,
            keys: vec![PossibleKey::default()],
            keys_by_token: HashMap::new(),
            tokens: VecDeque::new(),
            taken: 0,
            ended: false,
        }
    }

    /// The next token, which stays.
    pub(super) fn peek(&mut self) -> Result<&Token, Mistake> {
        while self.needs_more()? && !self.ended {
            self.fetch()?;
        }
        if self.tokens.is_empty() {
            let place = self.cursor.place;
            self.tokens.push_back(Token { kind: Kind::StreamEnd, start: place, end: place });
        }
        Ok(&self.tokens[0])
    }

    pub(super) fn next(&mut self) -> Result<Token, Mistake> {
        let Token { start, .. } = *self.peek()?;
        self.taken += 1;
        // There is one, or it could not have been looked at.
        Ok(self.tokens.pop_front().unwrap_or(Token { kind: Kind::StreamEnd, start, end: start }))
    }

    pub(super) fn skip(&mut self) {
        self.taken += usize::from(self.tokens.pop_front().is_some());
    }

    /// Whether the first token is not known yet: a key begins with its colon.
    fn needs_more(&mut self) -> Result<bool, Mistake> {
        if self.tokens.is_empty() {
            return Ok(true);
        }
        match self.keys_by_token.get(&self.taken).copied() {
            Some(level) if level < self.keys.len() => self.is_key_valid(level),
            _ => Ok(false),
        }
    }

    fn is_key_valid(&mut self, level: usize) -> Result<bool, Mistake> {
        let key = self.keys[level];
        if !key.possible {
            return Ok(false);
        }
        let here = self.cursor.place;
        if key.place.line < here.line || key.place.index + LONGEST_KEY < here.index {
            if key.required {
                return Err(self.cursor.mistake(key.place, "could not find expected ':'"));
            }
            self.keys[level].possible = false;
            return Ok(false);
        }
        Ok(true)
    }

    fn last_key(&mut self) -> &mut PossibleKey {
        if self.keys.is_empty() {
            self.keys.push(PossibleKey::default());
        }
        let last = self.keys.len() - 1;
        &mut self.keys[last]
    }

    /// A key may begin here.
    fn save_key(&mut self) -> Result<(), Mistake> {
        if !self.key_allowed {
            return Ok(());
        }
        let place = self.cursor.place;
        let required = self.flow_level == 0 && self.indent == column(place);
        let token = self.taken + self.tokens.len();
        self.remove_key()?;
        *self.last_key() = PossibleKey { possible: true, required, token, place };
        self.keys_by_token.insert(token, self.keys.len() - 1);
        Ok(())
    }

    fn remove_key(&mut self) -> Result<(), Mistake> {
        let key = *self.last_key();
        if key.possible {
            if key.required {
                return Err(self.cursor.mistake(key.place, "could not find expected ':'"));
            }
            self.last_key().possible = false;
            self.keys_by_token.remove(&key.token);
        }
        Ok(())
    }

    fn push(&mut self, kind: Kind, start: Place, end: Place) {
        self.tokens.push_back(Token { kind, start, end });
    }

    /// Begins a block at this column, with a token at this place of the queue.
    fn roll(&mut self, to: isize, at: Option<usize>, kind: Kind, place: Place) -> Result<(), Mistake> {
        if self.flow_level > 0 || self.indent >= to {
            return Ok(());
        }
        self.indents.push(self.indent);
        self.indent = to;
        if self.indents.len() > DEEPEST {
            return Err(self.cursor.mistake(place, &format!("exceeded max depth of {DEEPEST}")));
        }
        let token = Token { kind, start: place, end: place };
        match at {
            Some(at) => self.tokens.insert(at.min(self.tokens.len()), token),
            None => self.tokens.push_back(token),
        }
        Ok(())
    }

    /// Ends the blocks that are indented further.
    fn unroll(&mut self, to: isize) {
        if self.flow_level > 0 {
            return;
        }
        while self.indent > to {
            let place = self.cursor.place;
            self.push(Kind::BlockEnd, place, place);
            self.indent = self.indents.pop().unwrap_or(-1);
        }
    }

    fn skip_to_token(&mut self) {
        loop {
            let tabs = self.flow_level > 0 || !self.key_allowed;
            while self.cursor.byte(0) == b' ' || (tabs && self.cursor.byte(0) == b'\t') {
                self.cursor.skip(1);
            }
            self.cursor.skip_comment();
            if !self.cursor.is_break(0) {
                return;
            }
            self.cursor.skip_break();
            self.key_allowed |= self.flow_level == 0;
        }
    }

    fn fetch(&mut self) -> Result<(), Mistake> {
        self.skip_to_token();
        let start = self.cursor.place;
        self.unroll(column(start));
        if self.cursor.at_end() {
            return self.stream_end();
        }
        let in_flow = self.flow_level > 0;
        let gap = self.cursor.is_gap(1);
        match self.cursor.byte(0) {
            b'%' if start.column == 0 => {
                self.outside()?;
                let kind = self.directive()?;
                self.push(kind, start, self.cursor.place);
            }
            first @ (b'-' | b'.') if self.cursor.at_document_indicator() => {
                self.outside()?;
                self.indicator(3, if first == b'-' { Kind::DocumentStart } else { Kind::DocumentEnd });
            }
            b'[' => self.flow_start(Kind::FlowListStart)?,
            b'{' => self.flow_start(Kind::FlowMapStart)?,
            b']' => self.flow_end(Kind::FlowListEnd)?,
            b'}' => self.flow_end(Kind::FlowMapEnd)?,
            b',' => {
                self.remove_key()?;
                self.key_allowed = true;
                self.indicator(1, Kind::FlowEntry);
            }
            b'-' if gap => {
                self.begins(Kind::BlockListStart, "block sequence entries are not allowed in this context")?;
                self.remove_key()?;
                self.key_allowed = true;
                self.indicator(1, Kind::BlockEntry);
            }
            b'?' if in_flow || gap => {
                self.begins(Kind::BlockMapStart, "mapping keys are not allowed in this context")?;
                self.remove_key()?;
                self.key_allowed = !in_flow;
                self.indicator(1, Kind::Key);
            }
            b':' if in_flow || gap => self.value()?,
            first @ (b'*' | b'&') => {
                self.node()?;
                let name = self.anchor()?;
                let kind = if first == b'*' { Kind::Alias(name) } else { Kind::Anchor(name) };
                self.push(kind, start, self.cursor.place);
            }
            b'!' => {
                self.node()?;
                let kind = self.tag()?;
                self.push(kind, start, self.cursor.place);
            }
            style @ (b'|' | b'>') if !in_flow => {
                self.remove_key()?;
                self.key_allowed = true;
                let (text, end) = self.block_scalar(style == b'|')?;
                self.push(Kind::Scalar { text, plain: false }, start, end);
            }
            quote @ (b'\'' | b'"') => {
                self.node()?;
                let text = self.quoted_scalar(quote)?;
                self.push(Kind::Scalar { text, plain: false }, start, self.cursor.place);
            }
            first if begins_plain(first, gap, self.cursor.is_blank(1), in_flow) => {
                self.node()?;
                let (text, end) = self.plain_scalar()?;
                self.push(Kind::Scalar { text, plain: true }, start, end);
            }
            _ => return Err(self.cursor.mistake(start, "found character that cannot start any token")),
        }
        Ok(())
    }

    fn stream_end(&mut self) -> Result<(), Mistake> {
        self.cursor.end_line();
        self.outside()?;
        let place = self.cursor.place;
        self.push(Kind::StreamEnd, place, place);
        self.ended = true;
        Ok(())
    }

    /// Nothing of a document is open behind this.
    fn outside(&mut self) -> Result<(), Mistake> {
        self.unroll(-1);
        self.remove_key()?;
        self.key_allowed = false;
        Ok(())
    }

    /// A node begins here that may be a key.
    fn node(&mut self) -> Result<(), Mistake> {
        self.save_key()?;
        self.key_allowed = false;
        Ok(())
    }

    fn indicator(&mut self, length: usize, kind: Kind) {
        let start = self.cursor.place;
        self.cursor.skip(length);
        self.push(kind, start, self.cursor.place);
    }

    fn flow_start(&mut self, kind: Kind) -> Result<(), Mistake> {
        self.save_key()?;
        let place = self.cursor.place;
        self.keys.push(PossibleKey { token: self.taken + self.tokens.len(), place, ..PossibleKey::default() });
        self.flow_level += 1;
        if self.flow_level > DEEPEST {
            return Err(self.cursor.mistake(place, &format!("exceeded max depth of {DEEPEST}")));
        }
        self.key_allowed = true;
        self.indicator(1, kind);
        Ok(())
    }

    fn flow_end(&mut self, kind: Kind) -> Result<(), Mistake> {
        self.remove_key()?;
        if self.flow_level > 0 {
            self.flow_level -= 1;
            if let Some(key) = self.keys.pop() {
                self.keys_by_token.remove(&key.token);
            }
        }
        self.key_allowed = false;
        self.indicator(1, kind);
        Ok(())
    }

    /// An indicator that begins a block unless it is within one of its kind.
    fn begins(&mut self, kind: Kind, otherwise: &str) -> Result<(), Mistake> {
        if self.flow_level > 0 {
            return Ok(());
        }
        let place = self.cursor.place;
        if !self.key_allowed {
            return Err(self.cursor.mistake(place, otherwise));
        }
        self.roll(column(place), None, kind, place)
    }

    /// The colon of a key.
    fn value(&mut self) -> Result<(), Mistake> {
        let level = self.keys.len() - 1;
        if self.is_key_valid(level)? {
            let key = self.keys[level];
            let at = key.token.saturating_sub(self.taken);
            let token = Token { kind: Kind::Key, start: key.place, end: key.place };
            self.tokens.insert(at.min(self.tokens.len()), token);
            self.roll(column(key.place), Some(at), Kind::BlockMapStart, key.place)?;
            self.keys[level].possible = false;
            self.keys_by_token.remove(&key.token);
            self.key_allowed = false;
        } else {
            self.begins(Kind::BlockMapStart, "mapping values are not allowed in this context")?;
            self.key_allowed = self.flow_level == 0;
        }
        self.indicator(1, Kind::Value);
        Ok(())
    }
}

pub(super) fn column(place: Place) -> isize {
    isize::try_from(place.column).unwrap_or(isize::MAX)
}

/// Whether a text without quotes may begin with this byte.
fn begins_plain(first: u8, gap: bool, blank: bool, in_flow: bool) -> bool {
    match first {
        b'-' => !blank,
        b'?' | b':' => !in_flow && !gap,
        b' ' | b'\t' | b'\r' | b'\n' | 0 => false,
        b',' | b'[' | b']' | b'{' | b'}' | b'#' | b'&' | b'*' | b'!' | b'|' | b'>' | b'\'' | b'"' | b'%' | b'@'
        | b'`' => false,
        _ => true,
    }
}
