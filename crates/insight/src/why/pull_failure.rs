//! What a runtime says of an image that it could not pull, as a type.
//!
//! The CRI has no field for it: the runtime's error is a chain of texts, joined by `: `. It is read link by link, without
//! what stands in quotes or is an address, so that an image called `not-found` or a port 4040 means nothing.

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PullFailure {
    /// The name of the registry leads to no address.
    Unresolvable,
    /// Something is there, and nothing listens.
    Refused,
    /// No way to it, or no answer.
    Unreachable,
    Certificate,
    /// The certificate is over, or not valid yet.
    Expired,
    /// The certificate is for other names.
    OtherName,
    /// The proxy on the way to it cannot be asked, or refuses.
    Proxy,
    /// It speaks HTTP where HTTPS was expected.
    PlainHttp,
    RateLimit,
    /// Not allowed, or not there: registries do not tell these apart to strangers.
    Denied,
    NotFound,
    /// The registry answered with an error of its own.
    Status(u16),
    Platform,
    Disk,
    Unknown,
}

impl PullFailure {
    pub(super) fn read(message: &str) -> Self {
        let plain = without_quotes(message);
        let not_found_code =
            plain.split_whitespace().collect::<Vec<_>>().windows(3).any(|words| words == ["code", "=", "NotFound"]);
        let links: Vec<String> =
            plain.split(": ").map(|link| link.trim().trim_end_matches('.').to_lowercase()).collect();
        let is = |texts: &[&str]| links.iter().any(|link| texts.contains(&link.as_str()));
        let starts = |texts: &[&str]| links.iter().any(|link| texts.iter().any(|text| link.starts_with(text)));
        let status = status(&links);
        // Whatever is wrong with the proxy is not wrong with the registry.
        if starts(&["proxyconnect", "unsuccessful tunnel", "proxy authentication required"]) {
            Self::Proxy
        } else if is(&["no such host", "server misbehaving", "temporary failure in name resolution", "dns error"])
            || starts(&[
                "no such host",
                "failed to lookup address information",
                "name or service not known",
                "dns error",
            ])
            // Go begins every failure of a resolver so.
            || starts(&["lookup "])
        {
            Self::Unresolvable
        } else if starts(&[
            "certificate has expired or is not yet valid",
            "certificate expired",
            "certificate not valid yet",
        ]) || (starts(&["invalid peer certificate"]) && starts(&["expired", "notvalidyet"]))
        {
            Self::Expired
        } else if starts(&[
            "certificate is valid for",
            "certificate is not valid for any names",
            "certificate not valid for name",
        ]) || (starts(&["invalid peer certificate"]) && starts(&["notvalidforname"]))
        {
            Self::OtherName
        } else if starts(&[
            "x509",
            "invalid peer certificate",
            "tls: failed to verify certificate",
            "certificate verify failed",
        ]) {
            Self::Certificate
        } else if starts(&[
            "server gave http response to https client",
            "received corrupt message of type invalidcontenttype",
        ]) {
            Self::PlainHttp
        } else if starts(&["connection refused"]) {
            Self::Refused
        } else if starts(&[
            "i/o timeout",
            "context deadline exceeded",
            "deadline has elapsed",
            "operation timed out",
            "connection timed out",
            "tls handshake timeout",
            "no route to host",
            "network is unreachable",
            "connection reset by peer",
            "connect timeout",
            "dial timeout",
            "net/http",
        ]) {
            Self::Unreachable
        } else if status == Some(429) || is(&["toomanyrequests", "too many requests"]) || starts(&["toomanyrequests"]) {
            Self::RateLimit
        } else if matches!(status, Some(401 | 403))
            || starts(&[
                "pull access denied",
                "unauthorized",
                "denied",
                "authorization failed",
                "insufficient_scope",
                "no basic auth credentials",
                "authentication required",
                "failed to authorize",
                "failed to fetch oauth token",
            ])
        {
            Self::Denied
        } else if starts(&["no match for platform in manifest", "no matching manifest", "no image for this platform"]) {
            Self::Platform
        } else if status == Some(404) || not_found_code || is(&["not found", "manifest unknown", "name unknown"]) {
            Self::NotFound
        } else if let Some(status) = status {
            Self::Status(status)
        } else if starts(&["no space left on device"]) {
            Self::Disk
        } else {
            Self::Unknown
        }
    }
}

/// The status of an answer: a link of its own that begins with three digits, behind one that speaks of a status.
fn status(links: &[String]) -> Option<u16> {
    let mut told = false;
    for link in links {
        let number = link.split(' ').next().filter(|text| text.len() == 3).and_then(|text| text.parse().ok());
        if let Some(number) = number.filter(|number| told && (400..600).contains(number)) {
            return Some(number);
        }
        told |= link.contains("unexpected status") || link.contains("http status") || link.contains("oauth token");
    }
    None
}

/// What stands between quotes is a name or an address.
fn without_quotes(message: &str) -> String {
    message.split('"').step_by(2).collect::<Vec<_>>().join("")
}

#[cfg(test)]
mod tests {
    use super::PullFailure::{self, *};

    #[test]
    fn messages_of_runtimes_are_told_apart() {
        for (message, want) in [
            (
                r#"failed to pull and unpack image "nope.invalid/a:1": failed to resolve reference "nope.invalid/a:1": failed to do request: Head "https://nope.invalid/v2/a/manifests/1": dial tcp: lookup nope.invalid on 10.0.0.1:53: no such host"#,
                Unresolvable,
            ),
            (r#"failed to do request: Head "https://r.x/v2/": dial tcp: lookup r.x: i/o timeout"#, Unresolvable),
            (
                "failed to do request: GET https://nope.invalid/v2/: client error (Connect): dns error: failed to lookup address information: Name or service not known",
                Unresolvable,
            ),
            (
                r#"failed to do request: Head "https://127.0.0.1:1/v2/": dial tcp 127.0.0.1:1: connect: connection refused"#,
                Refused,
            ),
            (
                "failed to do request: GET https://127.0.0.1:1/v2/: client error (Connect): tcp connect error: Connection refused (os error 111)",
                Refused,
            ),
            (
                r#"failed to do request: Head "https://10.255.255.1/v2/": dial tcp 10.255.255.1:443: i/o timeout"#,
                Unreachable,
            ),
            (r#"dial tcp 10.0.0.9:443: connect: no route to host"#, Unreachable),
            (
                r#"Head "https://self.signed/v2/": tls: failed to verify certificate: x509: certificate signed by unknown authority"#,
                Certificate,
            ),
            ("error sending request: invalid peer certificate: UnknownIssuer", Certificate),
            ("invalid peer certificate: Expired", Expired),
            (
                r#"Head "https://r/v2/": tls: failed to verify certificate: x509: certificate has expired or is not yet valid: current time 2026-01-01T12:00:00Z is after 2025-12-01T00:00:00Z"#,
                Expired,
            ),
            (r#"Head "https://r/v2/": x509: certificate is valid for a.example, not r"#, OtherName),
            (r#"Head "https://r/v2/": proxyconnect tcp: dial tcp 10.1.1.1:3128: connect: connection refused"#, Proxy),
            (r#"Head "https://r/v2/": proxyconnect tcp: dial tcp: lookup proxy.example: no such host"#, Proxy),
            (r#"Head "https://r:5000/v2/": http: server gave HTTP response to HTTPS client"#, PlainHttp),
            ("unexpected status from HEAD request to https://r/v2/a/manifests/1: 429 Too Many Requests", RateLimit),
            (
                "httpReadSeeker: failed open: unexpected status code https://r/v2: 429 Too Many Requests - Server message: toomanyrequests: You have reached your pull rate limit",
                RateLimit,
            ),
            (
                "pull access denied, repository does not exist or may require authorization: server message: insufficient_scope: authorization failed",
                Denied,
            ),
            (
                "failed to authorize: failed to fetch anonymous token: unexpected status from GET request to https://r/token: 401 Unauthorized",
                Denied,
            ),
            ("unexpected status from HEAD request to https://r/v2/a: 403 Forbidden", Denied),
            (
                r#"rpc error: code = NotFound desc = failed to pull and unpack image "r/a:1": failed to resolve reference "r/a:1": r/a:1: not found"#,
                NotFound,
            ),
            ("r/a:1: not found", NotFound),
            ("manifest unknown: manifest unknown", NotFound),
            ("unexpected status from HEAD request to https://r/v2/a: 503 Service Unavailable", Status(503)),
            ("no match for platform in manifest: not found", Platform),
            ("write /var/lib/x: no space left on device", Disk),
            // Words in names mean nothing.
            (r#"failed to resolve reference "r/not found:404": what"#, Unknown),
            (r#"Head "https://r/v2/unauthorized: 401 denied/manifests/404": EOF"#, Unknown),
            ("", Unknown),
        ] {
            assert_eq!(PullFailure::read(message), want, "{message}");
        }
    }
}
