//! Which requests a proxy passes on.

use regex::Regex;

use super::Request;
use crate::error::{Error, Result};
use crate::flags::Parsed;

pub struct Filter {
    accept_paths: Vec<Regex>,
    reject_paths: Vec<Regex>,
    accept_hosts: Vec<Regex>,
    reject_methods: Vec<Regex>,
}

impl Filter {
    pub fn of(flags: &Parsed) -> Result<Self> {
        let list = |name: &str| -> Result<Vec<Regex>> {
            let text = flags.text(name);
            let parts = text.split(',').filter(|_| !text.is_empty());
            parts.map(|part| Regex::new(part).map_err(|error| broken(part, &error))).collect()
        };
        Ok(Self {
            accept_paths: list("accept-paths")?,
            reject_paths: list("reject-paths")?,
            accept_hosts: list("accept-hosts")?,
            reject_methods: list("reject-methods")?,
        })
    }

    pub fn accepts(&self, request: &Request, path: &str) -> bool {
        let host = request.headers().get(http::header::HOST).and_then(|host| host.to_str().ok());
        let host = request.uri().host().or(host).unwrap_or_default();
        self.accepts_parts(request.method().as_str(), path, without_port(host))
    }

    fn accepts_parts(&self, method: &str, path: &str, host: &str) -> bool {
        let matches = |list: &[Regex], text: &str| list.iter().any(|expression| expression.is_match(text));
        !matches(&self.reject_paths, path)
            && !matches(&self.reject_methods, method)
            && matches(&self.accept_paths, path)
            && matches(&self.accept_hosts, host)
    }
}

/// kubectl's library ends the program here.
fn broken(part: &str, error: &regex::Error) -> Error {
    let why = error.to_string();
    let why = why.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
    let text = format!("error: a regular expression of the filter cannot be read: {part}: {why}");
    Error::Exit { code: 255, text }
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.is_empty() => {
            // An IPv6 address without brackets has no port.
            if name.contains(':') && !name.starts_with('[') { host } else { name }
        }
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_rejected_counts_before_what_is_accepted() {
        let list = |text: &str| text.split(',').map(|part| Regex::new(part).unwrap()).collect::<Vec<_>>();
        let filter = Filter {
            accept_paths: list("^.*"),
            reject_paths: list("^/api/.*/pods/.*/exec,^/api/.*/pods/.*/attach"),
            accept_hosts: list(r"^localhost$,^127\.0\.0\.1$,^\[::1\]$"),
            reject_methods: list("^DELETE$"),
        };
        for (method, path, host, accepted) in [
            ("GET", "/api/v1/pods", "localhost", true),
            ("GET", "/api/v1/pods", "localhost:8001", true),
            ("GET", "/api/v1/pods", "[::1]:8001", true),
            ("GET", "/api/v1/pods", "evil.example.com", false),
            ("GET", "/api/v1/pods", "localhost.example.com", false),
            ("DELETE", "/api/v1/pods", "localhost", false),
            ("POST", "/api/v1/namespaces/a/pods/b/exec", "localhost", false),
            ("GET", "/api/v1/namespaces/a/pods/b/attach", "localhost", false),
            ("GET", "/api/v1/namespaces/a/pods/b/log", "localhost", true),
            ("GET", "/", "", false),
        ] {
            assert_eq!(filter.accepts_parts(method, path, without_port(host)), accepted, "{method} {path} {host}");
        }
    }
}
