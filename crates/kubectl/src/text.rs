//! Small texts in Go's form, and where they go.

use std::cell::RefCell;
use std::io::{BufWriter, Stdout, Write};
use std::sync::{LazyLock, Mutex, PoisonError};

static OUT: LazyLock<Mutex<BufWriter<Stdout>>> =
    LazyLock::new(|| Mutex::new(BufWriter::with_capacity(1 << 16, std::io::stdout())));

/// To standard output. Who reads it no longer ends the program, as a signal would.
pub fn print(text: impl AsRef<[u8]>) {
    let mut out = OUT.lock().unwrap_or_else(PoisonError::into_inner);
    if out.write_all(text.as_ref()).is_err() {
        std::process::exit(141);
    }
}

pub fn line(text: impl AsRef<str>) {
    print(format!("{}\n", text.as_ref()));
}

pub fn flush() {
    let mut out = OUT.lock().unwrap_or_else(PoisonError::into_inner);
    if out.flush().is_err() {
        std::process::exit(141);
    }
}

tokio::task_local! {
    /// Warnings of work that is under way beside other work, until it is its turn to be told.
    static HELD: RefCell<Vec<String>>;
}

/// To standard error, behind everything that was printed before.
pub fn warn(text: impl AsRef<str>) {
    let text = text.as_ref();
    if HELD.try_with(|held| held.borrow_mut().push(text.to_owned())).is_ok() {
        return;
    }
    flush();
    let end = if text.ends_with('\n') || text.is_empty() { "" } else { "\n" };
    let _ = std::io::stderr().write_all(format!("{text}{end}").as_bytes());
}

/// The work's result, and the warnings that it would have printed.
pub async fn held<T>(work: impl Future<Output = T>) -> (T, Vec<String>) {
    let telling = async {
        let result = work.await;
        (result, HELD.with(RefCell::take))
    };
    HELD.scope(RefCell::default(), telling).await
}

/// Go's %q.
pub fn quote(text: &str) -> String {
    ferry_meta::field::quote(text)
}

/// How long ago, in kubectl's short form: `5d3h`.
pub fn human_duration(seconds: i64) -> String {
    if seconds < -1 {
        return "<invalid>".into();
    }
    if seconds < 0 {
        return "0s".into();
    }
    if seconds < 120 {
        return format!("{seconds}s");
    }
    let minutes = seconds / 60;
    if minutes < 10 {
        let rest = seconds % 60;
        return if rest == 0 { format!("{minutes}m") } else { format!("{minutes}m{rest}s") };
    }
    if minutes < 180 {
        return format!("{minutes}m");
    }
    let hours = seconds / 3600;
    if hours < 8 {
        let rest = minutes % 60;
        return if rest == 0 { format!("{hours}h") } else { format!("{hours}h{rest}m") };
    }
    if hours < 48 {
        return format!("{hours}h");
    }
    let days = hours / 24;
    if hours < 192 {
        let rest = hours % 24;
        return if rest == 0 { format!("{days}d") } else { format!("{days}d{rest}h") };
    }
    if hours < 24 * 365 * 2 {
        return format!("{days}d");
    }
    let years = hours / 24 / 365;
    if hours < 24 * 365 * 8 {
        let rest = days % 365;
        return if rest == 0 { format!("{years}y") } else { format!("{years}y{rest}d") };
    }
    format!("{years}y")
}

/// The age of a time stamp: `<unknown>` where there is none.
pub fn age(stamp: &str) -> String {
    match ferry_meta::time::parse(stamp) {
        Some(at) => human_duration(ferry_meta::time::now().as_second() - at.as_second()),
        None => "<unknown>".into(),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn durations_are_short() {
        for (seconds, shown) in [
            (5, "5s"),
            (119, "119s"),
            (125, "2m5s"),
            (600, "10m"),
            (3 * 3600 + 60, "3h1m"),
            (9 * 3600, "9h"),
            (49 * 3600, "2d1h"),
            (10 * 86400, "10d"),
            (3 * 365 * 86400 + 86400, "3y1d"),
        ] {
            assert_eq!(super::human_duration(seconds), shown);
        }
    }
}
