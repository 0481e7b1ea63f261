//! What commands say. A reader that goes away early (`ferry trace deploy/web | head`) is no error of the command: the
//! rest is thrown away, and what the command does goes on. The macros of the standard library panic instead, so that
//! these take their names in the whole crate. Nothing that is said can steer a terminal: much of it was written by others,
//! by containers and servers that are looked into.

use std::borrow::Cow;
use std::fmt::{Arguments, Write as _};
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

static CLOSED: AtomicBool = AtomicBool::new(false);

/// Whether nobody reads the standard output any more: a command that only shows something can stop.
pub fn is_closed() -> bool {
    CLOSED.load(Ordering::Relaxed)
}

pub fn write(text: Arguments<'_>) {
    if write_to(&mut io::stdout().lock(), text).is_err() {
        CLOSED.store(true, Ordering::Relaxed);
    }
}

pub fn write_error(text: Arguments<'_>) {
    // Nobody is left to be told.
    let _ = write_to(&mut io::stderr().lock(), text);
}

fn write_to(out: &mut impl Write, text: Arguments<'_>) -> io::Result<()> {
    let text = text.as_str().map_or_else(|| text.to_string().into(), Cow::Borrowed);
    out.write_all(harmless(&text).as_bytes())?;
    out.flush()
}

fn steers(letter: char) -> bool {
    letter.is_control() && !matches!(letter, '\n' | '\t')
}

fn harmless(text: &str) -> Cow<'_, str> {
    if !text.contains(steers) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        match u8::try_from(letter) {
            Ok(code) if code.is_ascii() && steers(letter) => {
                let _ = write!(shown, "^{}", char::from(code ^ 0x40));
            }
            _ if steers(letter) => shown.push(char::REPLACEMENT_CHARACTER),
            _ => shown.push(letter),
        }
    }
    shown.into()
}

#[macro_export]
macro_rules! print {
    ($($text:tt)*) => { $crate::output::write(format_args!($($text)*)) };
}

#[macro_export]
macro_rules! println {
    () => { $crate::output::write(format_args!("\n")) };
    ($($text:tt)*) => { $crate::output::write(format_args!("{}\n", format_args!($($text)*))) };
}

#[macro_export]
macro_rules! eprintln {
    ($($text:tt)*) => { $crate::output::write_error(format_args!("{}\n", format_args!($($text)*))) };
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_others_wrote_steers_no_terminal() {
        let mut out = Vec::new();
        let (said, name) = ("\u{1b}]0;x\u{7}a\r\u{9b}2J\u{7f}", "é");
        super::write_to(&mut out, format_args!("{name}:\t{said}\n")).expect("written");
        assert_eq!(String::from_utf8_lossy(&out), "é:\t^[]0;x^Ga^M\u{fffd}2J^?\n");
    }
}
