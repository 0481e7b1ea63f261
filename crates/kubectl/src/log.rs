//! Lines of kubectl's log, in the form of its library: the place is the file and the line that say it there.

use std::time::Instant;

use http::{HeaderMap, Method};

use crate::text::{quote, warn};

fn write(severity: char, place: &str, text: &str) {
    let now = ferry_meta::time::now().strftime("%m%d %H:%M:%S%.6f");
    warn(format!("{severity}{now} {:7} {place}] {text}", std::process::id()));
}

pub fn warning(place: &str, text: &str) {
    write('W', place, text);
}

pub fn error(place: &str, text: &str) {
    write('E', place, text);
}

/// `key=value`; a text of several lines stands below.
fn pair(key: &str, value: &str) -> String {
    if !value.contains('\n') {
        return format!("{key}={}", quote(value));
    }
    let lines: String = value.split_inclusive('\n').map(|line| format!("\t{line}")).collect();
    let end = if lines.ends_with('\n') { "" } else { "\n" };
    format!("{key}=<\n{lines}{end} >")
}

/// One request, told as much of as `-v` asks for.
pub struct Exchange {
    verbosity: i64,
    verb: Method,
    url: String,
    begun: Instant,
}

const REQUEST: &str = "round_trippers.go:527";
const RESPONSE: &str = "round_trippers.go:632";

impl Exchange {
    /// None where nothing is told.
    pub fn begin(verbosity: i64, verb: &Method, url: String, headers: &HeaderMap, body: &[u8]) -> Option<Self> {
        if verbosity < 6 {
            return None;
        }
        if verbosity >= 8 && !body.is_empty() {
            write('I', "request.go", &format!("\"Request Body\" {}", pair("body", &shortened(body, verbosity))));
        }
        match verbosity {
            ..=6 => {}
            7 | 8 => {
                let (verb, url) = (pair("verb", verb.as_str()), pair("url", &url));
                write('I', REQUEST, &format!("\"Request\" {verb} {url} {}", pair("headers", &shown(headers))));
            }
            _ => {
                let given: String = shown(headers).lines().map(|header| format!(" -H {}", quote(header))).collect();
                let command = format!("curl -v -X{verb} {given} '{url}'\n");
                write('I', REQUEST, &format!("\"Request\" {}", pair("curlCommand", &command)));
            }
        }
        Some(Self { verbosity, verb: verb.clone(), url, begun: Instant::now() })
    }

    /// The answer's head; none where nobody answered.
    pub fn answered(&self, answer: Option<(http::StatusCode, &HeaderMap)>) {
        let status = answer.map_or(String::new(), |(code, _)| {
            format!("{} {}", code.as_u16(), code.canonical_reason().unwrap_or_default())
        });
        let mut told = Vec::new();
        if matches!(self.verbosity, 6 | 9..) {
            told.extend([pair("verb", self.verb.as_str()), pair("url", &self.url)]);
        }
        told.push(pair("status", status.trim_end()));
        if self.verbosity >= 8 {
            told.push(pair("headers", &answer.map(|(_, headers)| shown(headers)).unwrap_or_default()));
        }
        told.push(format!("milliseconds={}", self.begun.elapsed().as_millis()));
        write('I', RESPONSE, &format!("\"Response\" {}", told.join(" ")));
    }
}

/// The body of an answer, from `-v=8` on.
pub fn body(verbosity: i64, body: &[u8]) {
    if verbosity >= 8 {
        write('I', "request.go", &format!("\"Response Body\" {}", pair("body", &shortened(body, verbosity))));
    }
}

fn shortened(body: &[u8], verbosity: i64) -> String {
    let most = match verbosity {
        ..=8 => 1024,
        9 => 10240,
        _ => usize::MAX,
    };
    let text = String::from_utf8_lossy(&body[..body.len().min(most)]).into_owned();
    match body.len().saturating_sub(most) {
        0 => text,
        more => format!("{text} [truncated {more} chars]"),
    }
}

/// Sorted, in Go's spelling, without what nobody may read.
fn shown(headers: &HeaderMap) -> String {
    let mut lines: Vec<String> = headers
        .iter()
        .map(|(name, value)| {
            let hidden = matches!(name.as_str(), "authorization" | "cookie" | "set-cookie");
            let value = if hidden { "<masked>" } else { value.to_str().unwrap_or("<binary>") };
            format!("{}: {value}\n", spelled(name.as_str()))
        })
        .collect();
    lines.sort();
    lines.concat()
}

/// `content-type` as `Content-Type`.
fn spelled(name: &str) -> String {
    let capital = |part: &str| part.get(..1).unwrap_or_default().to_uppercase() + part.get(1..).unwrap_or_default();
    name.split('-').map(capital).collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_told() {
        let mut headers = HeaderMap::new();
        headers.insert("authorization", "Bearer secret".parse().unwrap());
        headers.insert("accept", "application/json".parse().unwrap());
        assert_eq!(shown(&headers), "Accept: application/json\nAuthorization: <masked>\n");
    }

    #[test]
    fn values_of_several_lines_stand_below() {
        assert_eq!(pair("a", "b\"c"), r#"a="b\"c""#);
        assert_eq!(pair("a", "b\nc\n"), "a=<\n\tb\n\tc\n >");
        assert_eq!(shortened(&[b'x'; 1030], 8).len(), 1024 + " [truncated 6 chars]".len());
    }
}
