//! Answers that are none, in the words of kubectl's libraries.

use http::StatusCode;
use serde_json::{Value, json};

use crate::error::Error;
use crate::text::quote;

/// The connection ended before there was an answer.
pub const EOF: &str = "EOF";

/// What a library says of a connection that was not made.
pub fn in_words_of_go(said: &str, host: &str) -> String {
    // Nothing came, or nothing more.
    if said.contains("close_notify") || said.contains("connection closed before message completed") {
        EOF.to_owned()
    } else if said.contains("UnknownIssuer") {
        "tls: failed to verify certificate: x509: certificate signed by unknown authority".to_owned()
    } else if let Some(when) = expired(said) {
        format!("tls: failed to verify certificate: x509: certificate has expired or is not yet valid: {when}")
    } else if let Some(names) = names_of(said) {
        format!("tls: failed to verify certificate: x509: {names}")
    } else if said.contains("NotValidForName") {
        format!("tls: failed to verify certificate: x509: the certificate is not valid for {host}")
    } else if let Some(scheme) = said.strip_prefix("unsupported scheme ") {
        format!("unsupported protocol scheme {}", quote(scheme))
    } else if said.contains("failed to lookup address") {
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
        format!("dial tcp: lookup {name}: no such host")
    } else {
        said.to_owned()
    }
}

/// `current time … is after …`, of the TLS library's seconds.
fn expired(said: &str) -> Option<String> {
    let (_, rest) = said.split_once("verification time ")?;
    let time = |text: &str| {
        let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
        jiff::Timestamp::from_second(digits.parse().ok()?).ok().map(|time| time.to_string())
    };
    let (side, limit) = match (rest.split_once("is not valid after "), rest.split_once("is not valid until ")) {
        (Some((_, limit)), _) => ("after", limit),
        (None, Some((_, limit))) => ("before", limit),
        _ => return None,
    };
    Some(format!("current time {} is {side} {}", time(rest)?, time(limit)?))
}

/// Whom a certificate is for, of the TLS library's words.
fn names_of(said: &str) -> Option<String> {
    let (_, rest) = said.split_once("certificate not valid for name \"")?;
    let (wanted, rest) = rest.split_once("\"; certificate is only valid for ")?;
    let is_address = wanted.parse::<std::net::IpAddr>().is_ok();
    let of = |begin: &str, end: &str| -> Vec<String> {
        rest.split(begin).skip(1).filter_map(|part| part.split_once(end)).map(|(name, _)| name.to_owned()).collect()
    };
    let names = if is_address { of("IpAddress(", ")") } else { of("DnsName(\"", "\")") };
    Some(match &*names {
        [] if is_address => {
            format!("cannot validate certificate for {wanted} because it doesn't contain any IP SANs")
        }
        [] => format!("certificate is not valid for any names, but wanted to match {wanted}"),
        names => format!("certificate is valid for {}, not {wanted}", names.join(", ")),
    })
}

/// The Status that a body is.
pub fn said(body: &[u8]) -> Option<Value> {
    serde_json::from_slice::<Value>(body).ok().filter(|status| status["kind"] == "Status")
}

/// A Status made of the code, as client-go makes it.
pub fn refusal(code: StatusCode, text: &str, subject: &str) -> Error {
    let conflict = if subject.starts_with(" (post ") { "AlreadyExists" } else { "Conflict" };
    let (reason, message) = match code.as_u16() {
        400 => ("BadRequest", "the server rejected our request for an unknown reason"),
        401 => ("Unauthorized", "the server has asked for the client to provide credentials"),
        403 => ("Forbidden", text),
        404 => ("NotFound", "the server could not find the requested resource"),
        405 => ("MethodNotAllowed", "the server does not allow this method on the requested resource"),
        406 if matches!(text, "" | "unknown") => {
            ("NotAcceptable", "the server was unable to respond with a content type that the client supports")
        }
        406 => ("NotAcceptable", text),
        409 => (conflict, "the server reported a conflict"),
        415 => ("UnsupportedMediaType", text),
        422 => ("Invalid", "the server rejected our request due to an error in our request"),
        429 => ("TooManyRequests", "the server has received too many requests and has asked us to try again later"),
        503 => ("ServiceUnavailable", "the server is currently unable to handle the request"),
        504 => (
            "Timeout",
            "the server was unable to return a response in the time allotted, but may still be processing the request",
        ),
        500.. => {
            let why = quote(text);
            let message = format!("an error on the server ({why}) has prevented the request from succeeding");
            return status(code, "InternalError", &message, subject);
        }
        number => {
            let message =
                format!("the server responded with the status code {number} but did not return more information");
            return status(code, "", &message, subject);
        }
    };
    status(code, reason, message, subject)
}

fn status(code: StatusCode, reason: &str, message: &str, subject: &str) -> Error {
    let message = format!("{message}{subject}");
    let status =
        json!({"kind": "Status", "status": "Failure", "code": code.as_u16(), "reason": reason, "message": message});
    Error::Status(Box::new(status))
}

/// Why a body is no JSON.
pub fn unread(body: &[u8], error: &serde_json::Error) -> String {
    if error.is_eof() {
        return "unexpected end of JSON input".into();
    }
    let text = String::from_utf8_lossy(body);
    match text.trim_start().chars().next() {
        Some(first) if !(first.is_ascii_digit() || "{[\"-tfn".contains(first)) => {
            format!("invalid character '{first}' looking for beginning of value")
        }
        _ => format!("the server's answer cannot be read: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_words() {
        let of = |code: u16, text: &str, subject: &str| {
            let error = refusal(StatusCode::from_u16(code).unwrap(), text, subject);
            (error.reason().to_owned(), error.inner())
        };
        let is = |reason: &str, message: &str| (reason.to_owned(), message.to_owned());
        assert_eq!(of(409, "x", " (post pods)"), is("AlreadyExists", "the server reported a conflict (post pods)"));
        assert_eq!(of(409, "x", " (get pods a)"), is("Conflict", "the server reported a conflict (get pods a)"));
        assert_eq!(of(403, "<html>", ""), is("Forbidden", "<html>"));
        assert_eq!(
            of(418, "", " (get pods)"),
            is("", "the server responded with the status code 418 but did not return more information (get pods)")
        );
        assert_eq!(
            of(502, "a\"b", ""),
            is("InternalError", "an error on the server (\"a\\\"b\") has prevented the request from succeeding")
        );
        assert_eq!(of(504, "", "").0, "Timeout");
    }

    #[test]
    fn what_is_no_json() {
        let of = |body: &str| unread(body.as_bytes(), &serde_json::from_str::<Value>(body).unwrap_err());
        assert_eq!(of(""), "unexpected end of JSON input");
        assert_eq!(of("{\"a\":"), "unexpected end of JSON input");
        assert_eq!(of("  <html>"), "invalid character '<' looking for beginning of value");
    }

    #[test]
    fn names_of_certificates() {
        let of = |wanted: &str, only: &str| {
            let said = format!("certificate not valid for name \"{wanted}\"; certificate is only valid for {only}");
            in_words_of_go(&said, "h:1").trim_start_matches("tls: failed to verify certificate: x509: ").to_owned()
        };
        assert_eq!(of("b", "DnsName(\"a\")"), "certificate is valid for a, not b");
        let said = "certificate expired: verification time 1795131409 (UNIX), but certificate is not valid after 1578614400 (216517009 seconds ago)";
        let why = "certificate has expired or is not yet valid: current time 2026-11-19T23:36:49Z is after 2020-01-10T00:00:00Z";
        assert_eq!(in_words_of_go(said, "h"), format!("tls: failed to verify certificate: x509: {why}"));
        assert_eq!(
            of("192.0.2.1", "DnsName(\"a\")"),
            "cannot validate certificate for 192.0.2.1 because it doesn't contain any IP SANs"
        );
    }
}
