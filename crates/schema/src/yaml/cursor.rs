//! A place in a text, and the characters there.

/// Lines and columns count from zero, in characters.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Place {
    pub(super) index: usize,
    pub(super) line: usize,
    pub(super) column: usize,
}

/// Who finds a mistake: the two count lines differently in what they say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finder {
    Scanner,
    Parser,
}

/// What is wrong with a text.
#[derive(Debug)]
pub(super) struct Mistake {
    pub(super) finder: Finder,
    pub(super) problem: String,
    pub(super) at: Place,
    /// Where the thing begins that is broken.
    pub(super) context: Place,
}

impl Mistake {
    /// Upstream's words. The first line is not named: zero stands for no line there.
    pub(super) fn said(&self) -> String {
        let line = match (self.at.line, self.finder) {
            (0, _) => self.context.line,
            (line, Finder::Scanner) => line + 1,
            (line, Finder::Parser) => line,
        };
        match line {
            0 => format!("yaml: {}", self.problem),
            line => format!("yaml: line {line}: {}", self.problem),
        }
    }
}

/// Upstream decodes a text in pieces of so many bytes; what no text may have is found with its piece, before that is read.
const PIECE: usize = 512;
/// What is looked at in advance.
const AHEAD: usize = 4;

pub(super) struct Cursor<'t> {
    text: &'t str,
    offset: usize,
    pub(super) place: Place,
}

impl<'t> Cursor<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, offset: 0, place: Place::default() }
    }

    /// How many bytes upstream has decoded by now.
    pub(super) fn decoded(&self) -> usize {
        (self.offset + AHEAD).div_ceil(PIECE).max(1) * PIECE
    }

    /// The byte so many bytes ahead; zero behind the end, as no text has it.
    pub(super) fn byte(&self, ahead: usize) -> u8 {
        self.text.as_bytes().get(self.offset + ahead).copied().unwrap_or_default()
    }

    fn rest(&self) -> &'t [u8] {
        &self.text.as_bytes()[self.offset.min(self.text.len())..]
    }

    pub(super) fn at_end(&self) -> bool {
        self.offset >= self.text.len()
    }

    pub(super) fn is_blank(&self, ahead: usize) -> bool {
        matches!(self.byte(ahead), b' ' | b'\t')
    }

    pub(super) fn is_break(&self, ahead: usize) -> bool {
        match self.byte(ahead) {
            b'\r' | b'\n' => true,
            0xc2 => self.byte(ahead + 1) == 0x85,
            0xe2 => self.byte(ahead + 1) == 0x80 && matches!(self.byte(ahead + 2), 0xa8 | 0xa9),
            _ => false,
        }
    }

    pub(super) fn is_break_or_end(&self, ahead: usize) -> bool {
        self.byte(ahead) == 0 || self.is_break(ahead)
    }

    /// A space, a tab, a line break or the end.
    pub(super) fn is_gap(&self, ahead: usize) -> bool {
        self.is_blank(ahead) || self.is_break_or_end(ahead)
    }

    /// What names of anchors, tags and directives are made of.
    pub(super) fn is_word(&self) -> bool {
        matches!(self.byte(0), b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'_' | b'-')
    }

    /// `---` or `...` alone at the beginning of a line.
    pub(super) fn at_document_indicator(&self) -> bool {
        self.place.column == 0 && (self.rest().starts_with(b"---") || self.rest().starts_with(b"...")) && self.is_gap(3)
    }

    /// Goes over a character, which is given.
    pub(super) fn take(&mut self) -> Option<char> {
        let character = self.text[self.offset..].chars().next()?;
        self.offset += character.len_utf8();
        self.place.index += 1;
        self.place.column += 1;
        Some(character)
    }

    pub(super) fn skip(&mut self, characters: usize) {
        for _ in 0..characters {
            self.take();
        }
    }

    /// Goes over a line break: all but the separators of lines and paragraphs mean the same.
    pub(super) fn take_break(&mut self, into: &mut String) {
        if !self.is_break(0) {
            return;
        }
        if self.rest().starts_with(b"\r\n") {
            self.take();
        }
        let character = self.take().unwrap_or('\n');
        into.push(if matches!(character, '\u{2028}' | '\u{2029}') { character } else { '\n' });
        self.place.line += 1;
        self.place.column = 0;
    }

    pub(super) fn skip_break(&mut self) {
        self.take_break(&mut String::new());
    }

    pub(super) fn skip_blanks(&mut self) {
        while self.is_blank(0) {
            self.take();
        }
    }

    pub(super) fn skip_comment(&mut self) {
        if self.byte(0) == b'#' {
            while !self.is_break_or_end(0) {
                self.take();
            }
        }
    }

    /// The end of a text stands on a line of its own.
    pub(super) fn end_line(&mut self) {
        if self.place.column != 0 {
            self.place.column = 0;
            self.place.line += 1;
        }
    }

    /// A mistake that the scanner finds here, in what begins at `context`.
    pub(super) fn mistake(&self, context: Place, problem: &str) -> Mistake {
        Mistake { finder: Finder::Scanner, problem: problem.to_owned(), at: self.place, context }
    }
}

/// What keeps a body from being text: bytes that are no UTF-8, and characters that YAML does not have. With the place in bytes.
pub(super) fn unreadable(body: &[u8]) -> Option<(usize, &'static str)> {
    let text = match std::str::from_utf8(body) {
        Ok(text) => text,
        Err(error) => {
            let (valid, rest) = body.split_at(error.valid_up_to());
            let earlier = std::str::from_utf8(valid).ok().and_then(control_character);
            return Some(earlier.unwrap_or_else(|| (valid.len(), broken_sequence(rest))));
        }
    };
    control_character(text)
}

fn control_character(text: &str) -> Option<(usize, &'static str)> {
    let is_control = |c: char| !matches!(c, '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..);
    text.find(is_control).map(|at| (at, "control characters are not allowed"))
}

/// Of bytes that begin with no character.
fn broken_sequence(bytes: &[u8]) -> &'static str {
    let width = match bytes.first().copied().unwrap_or_default() {
        0xc0..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf7 => 4,
        _ => return "invalid leading UTF-8 octet",
    };
    if bytes.len() < width {
        return "incomplete UTF-8 octet sequence";
    }
    if bytes[1..width].iter().any(|byte| byte & 0xc0 != 0x80) {
        return "invalid trailing UTF-8 octet";
    }
    match bytes {
        [0xc0 | 0xc1, ..] | [0xe0, ..0xa0, ..] | [0xf0, ..0x90, ..] => "invalid length of a UTF-8 sequence",
        _ => "invalid Unicode character",
    }
}
