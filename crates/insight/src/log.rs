//! The line of a log that says what went wrong.

/// Words of the line that matters.
const LOUD: [&str; 14] = [
    "panic:",
    "fatal",
    "traceback",
    "exception",
    "error",
    "cannot",
    "failed",
    "refused",
    "denied",
    "forbidden",
    "invalid",
    "unrecognized",
    "unknown option",
    "no such file",
];

/// So many characters of a line are shown.
const LONGEST: usize = 400;

/// The last line that names an error, else the last line. What programs print after an error (stack frames, goodbyes)
/// tells less than the error. Control characters do not reach the terminal.
pub(crate) fn line_that_matters(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let is_frame =
        |line: &str| line.starts_with("at ") || line.starts_with("goroutine ") || line.starts_with("File \"");
    // A Python traceback ends with the exception itself.
    let traced = lines.iter().any(|line| line.starts_with("Traceback"));
    let loud = |line: &&&str| {
        let lower = line.to_lowercase();
        LOUD.iter().any(|word| lower.contains(word)) && !is_frame(line)
    };
    let chosen = if traced { lines.last() } else { lines.iter().rfind(loud).or(lines.last()) };
    let clean: String = chosen.unwrap_or(&"").chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    clean.chars().take(LONGEST).collect()
}

#[cfg(test)]
mod tests {
    use super::line_that_matters;

    #[test]
    fn the_line_that_names_the_error_is_chosen() {
        for (log, want) in [
            ("", ""),
            ("one\ntwo\n", "two"),
            (
                "starting\nERROR: cannot open /data: permission denied\nbye\n",
                "ERROR: cannot open /data: permission denied",
            ),
            ("panic: boom\n\ngoroutine 1 [running]:\nmain.main()\n", "panic: boom"),
            ("Traceback (most recent call last):\n  File \"a.py\", line 1\nKeyError: 'DB'\n", "KeyError: 'DB'"),
            ("going down\n", "going down"),
            ("nc: invalid option -- 's'\nUsage: nc [-l]\n\t-e PROG\tRun it\n", "nc: invalid option -- 's'"),
            ("a\u{1b}[31mfatal: x\n", "a [31mfatal: x"),
        ] {
            assert_eq!(line_that_matters(log), want, "{log:?}");
        }
        assert_eq!(line_that_matters(&"x".repeat(10_000)).len(), 400);
    }
}
