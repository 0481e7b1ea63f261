//! Why a regular expression is refused, in the words of Go.

use regex_syntax::ast::{ErrorKind, parse::Parser};

pub fn refusal(pattern: &str) -> Option<String> {
    let error = Parser::new().parse(pattern).err()?;
    let start = error.span().start.offset;
    let rest = &pattern[start..];
    let (what, shown) = match error.kind() {
        ErrorKind::ClassUnclosed => ("missing closing ]", rest),
        ErrorKind::GroupUnclosed => ("missing closing )", pattern),
        ErrorKind::GroupUnopened => ("unexpected )", pattern),
        ErrorKind::RepetitionMissing => ("missing argument to repetition operator", first(rest)),
        ErrorKind::RepetitionCountInvalid => ("invalid repeat count", spanned(pattern, &error)),
        ErrorKind::ClassRangeInvalid => ("invalid character class range", spanned(pattern, &error)),
        ErrorKind::EscapeUnexpectedEof => ("trailing backslash at end of expression", ""),
        ErrorKind::UnsupportedBackreference | ErrorKind::EscapeUnrecognized => {
            ("invalid escape sequence", spanned(pattern, &error))
        }
        ErrorKind::UnsupportedLookAround => ("invalid or unsupported Perl syntax", spanned(pattern, &error)),
        ErrorKind::GroupNameDuplicate { .. } => ("duplicate capture group name", spanned(pattern, &error)),
        ErrorKind::GroupNameInvalid | ErrorKind::GroupNameEmpty | ErrorKind::GroupNameUnexpectedEof => {
            ("invalid named capture", rest)
        }
        ErrorKind::NestLimitExceeded(_) => ("expression nests too deeply", pattern),
        _ => ("invalid syntax", spanned(pattern, &error)),
    };
    Some(format!("error parsing regexp: {what}: `{shown}`"))
}

fn first(text: &str) -> &str {
    &text[..text.chars().next().map_or(0, char::len_utf8)]
}

fn spanned<'a>(pattern: &'a str, error: &regex_syntax::ast::Error) -> &'a str {
    let span = error.span();
    pattern.get(span.start.offset..span.end.offset).unwrap_or(pattern)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_those_of_go() {
        let check = |pattern: &str, want: Option<&str>| {
            let want = want.map(|text| format!("error parsing regexp: {text}"));
            assert_eq!(refusal(pattern), want, "{pattern}");
        };
        check("^[a-z]+$", None);
        check("([", Some("missing closing ]: `[`"));
        check("(a", Some("missing closing ): `(a`"));
        check("a)", Some("unexpected ): `a)`"));
        check("*a", Some("missing argument to repetition operator: `*`"));
        check("a(?=b)", Some("invalid or unsupported Perl syntax: `(?=`"));
        check(r"\y", Some(r"invalid escape sequence: `\y`"));
    }
}
