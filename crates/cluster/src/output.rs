//! What commands say. A reader that goes away early (`ferry trace deploy/web | head`) is no error of the command: the
//! rest is thrown away, and what the command does goes on. The macros of the standard library panic instead, so that
//! these take their names in the whole crate.

use std::fmt::Arguments;
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
    out.write_fmt(text)?;
    out.flush()
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
