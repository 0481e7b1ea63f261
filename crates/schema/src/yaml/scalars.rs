//! The texts of a document: in blocks, in quotes and plain.

use super::cursor::{Mistake, Place};
use super::scanner::{Scanner, column};

/// Line breaks within a text: the first, and those of empty lines behind it.
#[derive(Default)]
struct Breaks {
    first: String,
    others: String,
}

impl Breaks {
    /// One break is a space, each further one stays. Separators of lines and paragraphs stay as they are.
    fn fold_into(&mut self, text: &mut String) {
        if !self.first.starts_with('\n') {
            text.push_str(&self.first);
            text.push_str(&self.others);
        } else if self.others.is_empty() {
            text.push(' ');
        } else {
            text.push_str(&self.others);
        }
        self.first.clear();
        self.others.clear();
    }
}

/// What happens to the line breaks at the end of a block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Chomping {
    Clip,
    Strip,
    Keep,
}

impl Scanner<'_> {
    /// A block behind `|` or `>`, and where it ends.
    pub(super) fn block_scalar(&mut self, literal: bool) -> Result<(String, Place), Mistake> {
        let start = self.cursor.place;
        self.cursor.skip(1);
        let (chomping, increment) = self.block_header(start)?;
        self.cursor.skip_blanks();
        self.cursor.skip_comment();
        if !self.cursor.is_break_or_end(0) {
            return Err(self.cursor.mistake(start, "did not find expected comment or line break"));
        }
        self.cursor.skip_break();
        let mut end = self.cursor.place;
        // Zero: as far as the first line with something in it.
        let mut indent = if increment > 0 { self.indent.max(0) + increment } else { 0 };
        let mut text = String::new();
        let mut breaks = Breaks::default();
        self.block_breaks(&mut indent, &mut breaks.others, start, &mut end)?;
        let mut after_blank = false;
        while column(self.cursor.place) == indent && !self.cursor.at_end() {
            let blank = self.cursor.is_blank(0);
            if !literal && !after_blank && !blank && breaks.first.starts_with('\n') {
                if breaks.others.is_empty() {
                    text.push(' ');
                }
            } else {
                text.push_str(&breaks.first);
            }
            text.push_str(&breaks.others);
            breaks = Breaks::default();
            after_blank = blank;
            while !self.cursor.is_break_or_end(0) {
                text.extend(self.cursor.take());
            }
            self.cursor.take_break(&mut breaks.first);
            self.block_breaks(&mut indent, &mut breaks.others, start, &mut end)?;
        }
        if chomping != Chomping::Strip {
            text.push_str(&breaks.first);
        }
        if chomping == Chomping::Keep {
            text.push_str(&breaks.others);
        }
        Ok((text, end))
    }

    /// How a block is chomped, and how far it is indented, if that is said: in either order.
    fn block_header(&mut self, start: Place) -> Result<(Chomping, isize), Mistake> {
        let mut chomping = None;
        let mut increment = None;
        for _ in 0..2 {
            match self.cursor.byte(0) {
                b'+' if chomping.is_none() => chomping = Some(Chomping::Keep),
                b'-' if chomping.is_none() => chomping = Some(Chomping::Strip),
                b'0' if increment.is_none() => {
                    return Err(self.cursor.mistake(start, "found an indentation indicator equal to 0"));
                }
                digit @ b'1'..=b'9' if increment.is_none() => increment = Some(isize::from(digit - b'0')),
                _ => break,
            }
            self.cursor.skip(1);
        }
        Ok((chomping.unwrap_or(Chomping::Clip), increment.unwrap_or_default()))
    }

    /// The empty lines before a line of a block, and its indentation.
    fn block_breaks(
        &mut self,
        indent: &mut isize,
        breaks: &mut String,
        start: Place,
        end: &mut Place,
    ) -> Result<(), Mistake> {
        *end = self.cursor.place;
        let mut furthest = 0;
        loop {
            let inside = |at: Place| *indent == 0 || column(at) < *indent;
            while inside(self.cursor.place) && self.cursor.byte(0) == b' ' {
                self.cursor.skip(1);
            }
            furthest = furthest.max(column(self.cursor.place));
            if inside(self.cursor.place) && self.cursor.byte(0) == b'\t' {
                let problem = "found a tab character where an indentation space is expected";
                return Err(self.cursor.mistake(start, problem));
            }
            if !self.cursor.is_break(0) {
                break;
            }
            self.cursor.take_break(breaks);
            *end = self.cursor.place;
        }
        if *indent == 0 {
            *indent = furthest.max(self.indent + 1).max(1);
        }
        Ok(())
    }

    pub(super) fn quoted_scalar(&mut self, quote: u8) -> Result<String, Mistake> {
        let start = self.cursor.place;
        self.cursor.skip(1);
        let mut text = String::new();
        loop {
            if self.cursor.at_document_indicator() {
                return Err(self.cursor.mistake(start, "found unexpected document indicator"));
            }
            if self.cursor.at_end() {
                return Err(self.cursor.mistake(start, "found unexpected end of stream"));
            }
            let mut broken = self.quoted_words(quote, start, &mut text)?;
            if self.cursor.byte(0) == quote {
                break;
            }
            let mut blanks = String::new();
            let mut breaks = Breaks::default();
            let escaped = broken;
            while self.cursor.is_blank(0) || self.cursor.is_break(0) {
                if !self.cursor.is_blank(0) {
                    self.cursor.take_break(if broken { &mut breaks.others } else { &mut breaks.first });
                    broken = true;
                } else if broken {
                    self.cursor.skip(1);
                } else {
                    blanks.extend(self.cursor.take());
                }
            }
            match (broken, escaped) {
                // The break behind a backslash is none.
                (true, true) => text.push_str(&breaks.others),
                (true, false) => breaks.fold_into(&mut text),
                (false, _) => text.push_str(&blanks),
            }
        }
        self.cursor.skip(1);
        Ok(text)
    }

    /// What is in quotes up to a space, a line break or the quote. Whether a backslash at the end of a line was last.
    fn quoted_words(&mut self, quote: u8, start: Place, text: &mut String) -> Result<bool, Mistake> {
        while !self.cursor.is_gap(0) {
            match self.cursor.byte(0) {
                b'\'' if quote == b'\'' && self.cursor.byte(1) == b'\'' => {
                    text.push('\'');
                    self.cursor.skip(2);
                }
                byte if byte == quote => break,
                b'\\' if quote == b'"' && self.cursor.is_break(1) => {
                    self.cursor.skip(1);
                    self.cursor.skip_break();
                    return Ok(true);
                }
                b'\\' if quote == b'"' => text.push(self.escape(start)?),
                _ => text.extend(self.cursor.take()),
            }
        }
        Ok(false)
    }

    fn escape(&mut self, start: Place) -> Result<char, Mistake> {
        let (character, digits) = match self.cursor.byte(1) {
            b'0' => ('\0', 0),
            b'a' => ('\u{7}', 0),
            b'b' => ('\u{8}', 0),
            b't' | b'\t' => ('\t', 0),
            b'n' => ('\n', 0),
            b'v' => ('\u{b}', 0),
            b'f' => ('\u{c}', 0),
            b'r' => ('\r', 0),
            b'e' => ('\u{1b}', 0),
            same @ (b' ' | b'"' | b'\'' | b'\\') => (char::from(same), 0),
            b'N' => ('\u{85}', 0),
            b'_' => ('\u{a0}', 0),
            b'L' => ('\u{2028}', 0),
            b'P' => ('\u{2029}', 0),
            b'x' => ('\0', 2),
            b'u' => ('\0', 4),
            b'U' => ('\0', 8),
            _ => return Err(self.cursor.mistake(start, "found unknown escape character")),
        };
        self.cursor.skip(2);
        if digits == 0 {
            return Ok(character);
        }
        let mut code = 0_u32;
        for at in 0..digits {
            let Some(digit) = char::from(self.cursor.byte(at)).to_digit(16) else {
                return Err(self.cursor.mistake(start, "did not find expected hexdecimal number"));
            };
            code = code << 4 | digit;
        }
        // Halves of characters cannot be written, though JSON has them.
        let Some(character) = char::from_u32(code) else {
            return Err(self.cursor.mistake(start, "found invalid Unicode character escape code"));
        };
        self.cursor.skip(digits);
        Ok(character)
    }

    /// A text without quotes, and where it ends.
    pub(super) fn plain_scalar(&mut self) -> Result<(String, Place), Mistake> {
        let start = self.cursor.place;
        let mut end = start;
        let mut text = String::new();
        let mut blanks = String::new();
        let mut breaks = Breaks::default();
        let mut broken = false;
        while !self.cursor.at_document_indicator() && self.cursor.byte(0) != b'#' {
            while !self.cursor.is_gap(0) && !self.ends_plain() {
                if std::mem::take(&mut broken) {
                    breaks.fold_into(&mut text);
                } else {
                    text.push_str(&blanks);
                }
                blanks.clear();
                text.extend(self.cursor.take());
                end = self.cursor.place;
            }
            if !self.cursor.is_blank(0) && !self.cursor.is_break(0) {
                break;
            }
            while self.cursor.is_blank(0) || self.cursor.is_break(0) {
                if !self.cursor.is_blank(0) {
                    blanks.clear();
                    self.cursor.take_break(if broken { &mut breaks.others } else { &mut breaks.first });
                    broken = true;
                } else if !broken {
                    blanks.extend(self.cursor.take());
                } else if column(self.cursor.place) <= self.indent && self.cursor.byte(0) == b'\t' {
                    return Err(self.cursor.mistake(start, "found a tab character that violates indentation"));
                } else {
                    self.cursor.skip(1);
                }
            }
            if self.flow_level == 0 && column(self.cursor.place) <= self.indent {
                break;
            }
        }
        self.key_allowed |= broken;
        Ok((text, end))
    }

    fn ends_plain(&self) -> bool {
        match self.cursor.byte(0) {
            b':' => self.cursor.is_gap(1),
            b',' | b'?' | b'[' | b']' | b'{' | b'}' => self.flow_level > 0,
            _ => false,
        }
    }
}
