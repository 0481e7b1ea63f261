//! Annotations of Ingresses in nginx's words: what is followed, and which are not.

use std::collections::BTreeMap;
use std::time::Duration;

use ipnet::IpNet;

const PREFIX: &str = "nginx.ingress.kubernetes.io/";
/// A path is no longer, however it was made, and takes no more groups.
const LONGEST_TARGET: usize = 4096;
const MOST_GROUPS: usize = 32;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Annotations {
    pub rewrite_target: Option<String>,
    pub use_regex: bool,
    /// None: where there is TLS.
    pub ssl_redirect: Option<bool>,
    pub force_ssl_redirect: bool,
    /// In bytes; None: any.
    pub body_size: Option<u64>,
    pub connect_timeout: Option<Duration>,
    pub read_timeout: Option<Duration>,
    pub backend_protocol: BackendProtocol,
    pub sources: Vec<IpNet>,
    pub cors: Option<CorsAnnotations>,
    pub affinity: Option<Cookie>,
    pub auth: Option<Auth>,
    pub canary: Option<Canary>,
    /// Requests of one client in a second and in a minute, and how many seconds or minutes of them may come at once.
    pub requests_per_second: Option<u32>,
    pub requests_per_minute: Option<u32>,
    pub burst_multiplier: u32,
    pub unlimited: Vec<IpNet>,
    pub compress: bool,
    /// Names that are not followed, and values that cannot be.
    pub ignored: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackendProtocol {
    #[default]
    Http,
    Https,
    Grpc,
    Grpcs,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct CorsAnnotations {
    pub origins: Vec<String>,
    pub methods: Vec<String>,
    pub headers: Vec<String>,
    pub expose: Vec<String>,
    pub credentials: bool,
    pub max_age: i64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cookie {
    pub name: String,
    pub max_age: Option<u64>,
    pub path: String,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Auth {
    /// `name` or `namespace/name`.
    pub secret: String,
    pub realm: String,
    /// Each key of the Secret is a user.
    pub is_map: bool,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Canary {
    pub weight: u32,
    pub total: u32,
    pub header: Option<String>,
    pub header_value: Option<String>,
    pub header_pattern: Option<String>,
    pub cookie: Option<String>,
}

fn words(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// `8m`, `1g`, `512k`, `100`.
pub fn size(text: &str) -> Option<u64> {
    let text = text.trim().to_ascii_lowercase();
    let (number, unit) = match text.strip_suffix(['k', 'm', 'g']) {
        Some(number) => (number, text.as_bytes().last().copied()),
        None => (text.as_str(), None),
    };
    let shift = match unit {
        Some(b'k') => 10,
        Some(b'm') => 20,
        Some(b'g') => 30,
        _ => 0,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// Seconds, with or without their letter.
fn seconds(text: &str) -> Option<Duration> {
    text.trim().trim_end_matches('s').parse().ok().map(Duration::from_secs)
}

impl Annotations {
    pub fn read(all: Option<&BTreeMap<String, String>>) -> Self {
        let mut known: BTreeMap<&str, &str> = all
            .into_iter()
            .flatten()
            .filter_map(|(name, value)| Some((name.strip_prefix(PREFIX)?, value.as_str())))
            .collect();
        let mut read = Self::default();
        let mut take = |name: &str| known.remove(name);
        let yes = |text: Option<&str>| text.is_some_and(|text| text.trim() == "true");
        let mut wrong = Vec::new();
        let mut parsed = |name: &str, text: Option<&str>, ok: bool| {
            if text.is_some() && !ok {
                wrong.push(format!("{PREFIX}{name} (its value {:?} cannot be used)", text.unwrap_or_default()));
            }
        };
        let text = take("rewrite-target");
        let is_short = |text: &&str| text.len() <= LONGEST_TARGET && text.matches('$').count() <= MOST_GROUPS;
        parsed("rewrite-target", text, text.as_ref().is_some_and(is_short));
        read.rewrite_target = text.filter(is_short).map(str::to_owned);
        read.use_regex = yes(take("use-regex"));
        read.ssl_redirect = take("ssl-redirect").map(|text| text.trim() == "true");
        read.force_ssl_redirect = yes(take("force-ssl-redirect"));
        let text = take("proxy-body-size");
        let value = text.map(size);
        parsed("proxy-body-size", text, value.flatten().is_some());
        read.body_size = value.flatten().filter(|size| *size > 0);
        let mut time = |name: &'static str, text: Option<&str>| {
            let value = text.and_then(seconds);
            parsed(name, text, value.is_some());
            value
        };
        read.connect_timeout = time("proxy-connect-timeout", take("proxy-connect-timeout"));
        let (reading, sending) = (take("proxy-read-timeout"), take("proxy-send-timeout"));
        read.read_timeout = time("proxy-read-timeout", reading).max(time("proxy-send-timeout", sending));
        let text = take("backend-protocol");
        read.backend_protocol = match text.map(|text| text.trim().to_ascii_uppercase()).as_deref() {
            Some("HTTPS") => BackendProtocol::Https,
            Some("GRPC") => BackendProtocol::Grpc,
            Some("GRPCS") => BackendProtocol::Grpcs,
            other => {
                parsed("backend-protocol", text, other.is_none_or(|name| name == "HTTP"));
                BackendProtocol::Http
            }
        };
        let (old, new) = (take("whitelist-source-range"), take("allowlist-source-range"));
        for text in words(new.or(old).unwrap_or_default()) {
            match text.parse::<IpNet>().or_else(|_| text.parse::<std::net::IpAddr>().map(IpNet::from)) {
                Ok(range) => read.sources.push(range),
                // A range that cannot be read must not let everybody in.
                Err(_) => {
                    parsed("whitelist-source-range", Some(&text), false);
                    read.sources.extend("255.255.255.255/32".parse::<IpNet>());
                }
            }
        }
        if yes(take("enable-cors")) {
            let list = |text: Option<&str>, default: &str| words(text.unwrap_or(default));
            let origins = list(take("cors-allow-origin"), "*");
            let credentials = take("cors-allow-credentials").is_none_or(|text| text.trim() == "true");
            read.cors = Some(CorsAnnotations {
                // nginx answers `*` to these, and browsers take no credentials with it. Any site could read what the
                // user may see if its own name were answered.
                credentials: credentials && !origins.iter().any(|origin| origin == "*"),
                origins,
                methods: list(take("cors-allow-methods"), "GET, PUT, POST, DELETE, PATCH, OPTIONS"),
                headers: list(
                    take("cors-allow-headers"),
                    "DNT,Keep-Alive,User-Agent,X-Requested-With,If-Modified-Since,Cache-Control,Content-Type,Range,Authorization",
                ),
                expose: list(take("cors-expose-headers"), ""),
                max_age: take("cors-max-age").and_then(|text| text.trim().parse().ok()).unwrap_or(1_728_000),
            });
        }
        let text = take("affinity");
        if let Some(kind) = text {
            parsed("affinity", text, kind.trim() == "cookie");
            read.affinity = (kind.trim() == "cookie").then(|| Cookie {
                name: take("session-cookie-name").unwrap_or("INGRESSCOOKIE").to_owned(),
                max_age: take("session-cookie-max-age")
                    .or(take("session-cookie-expires"))
                    .and_then(|text| text.parse().ok()),
                path: take("session-cookie-path").unwrap_or("/").to_owned(),
            });
        }
        let text = take("auth-type");
        if let Some(kind) = text {
            parsed("auth-type", text, kind.trim() == "basic");
            // Also for types that are not known: nobody comes in without.
            read.auth = Some(Auth {
                secret: take("auth-secret").filter(|_| kind.trim() == "basic").unwrap_or_default().to_owned(),
                realm: take("auth-realm").unwrap_or("Authentication Required").replace('"', ""),
                is_map: take("auth-secret-type").is_some_and(|kind| kind == "auth-map"),
            });
        }
        if yes(take("canary")) {
            read.canary = Some(Canary {
                weight: take("canary-weight").and_then(|text| text.trim().parse().ok()).unwrap_or(0),
                total: take("canary-weight-total").and_then(|text| text.trim().parse().ok()).unwrap_or(100).max(1),
                header: take("canary-by-header").map(str::to_owned),
                header_value: take("canary-by-header-value").map(str::to_owned),
                header_pattern: take("canary-by-header-pattern").map(str::to_owned),
                cookie: take("canary-by-cookie").map(str::to_owned),
            });
        }
        let mut count = |name: &'static str, text: Option<&str>| {
            let value = text.and_then(|text| text.trim().parse::<u32>().ok());
            parsed(name, text, value.is_some());
            value.filter(|count| *count > 0)
        };
        read.requests_per_second = count("limit-rps", take("limit-rps"));
        read.requests_per_minute = count("limit-rpm", take("limit-rpm"));
        read.burst_multiplier = count("limit-burst-multiplier", take("limit-burst-multiplier")).unwrap_or(5);
        let (old, new) = (take("limit-whitelist"), take("limit-allowlist"));
        if let Some(text) = new.or(old) {
            let ranges = super::options::ranges(text);
            parsed("limit-whitelist", Some(text), ranges.is_some());
            read.unlimited = ranges.unwrap_or_default();
        }
        for (name, text) in all.into_iter().flatten().filter(|(name, _)| name.starts_with(super::options::PREFIX)) {
            match (name.strip_prefix(super::options::PREFIX), text.trim().parse::<bool>()) {
                (Some("compression"), Ok(yes)) => read.compress = yes,
                _ => wrong.push(format!("{name} (its value {text:?} cannot be used here)")),
            }
        }
        read.ignored = known.keys().map(|name| format!("{PREFIX}{name}")).chain(wrong).collect();
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Annotations {
        let map = pairs.iter().map(|(name, value)| (format!("{PREFIX}{name}"), (*value).to_owned())).collect();
        Annotations::read(Some(&map))
    }

    #[test]
    fn annotations_are_followed_or_named() {
        let known = read(&[
            ("proxy-body-size", "8m"),
            ("proxy-read-timeout", "30"),
            ("proxy-send-timeout", "60s"),
            ("backend-protocol", "GRPC"),
            ("whitelist-source-range", "10.0.0.0/8, 192.0.2.1"),
            ("canary", "true"),
            ("canary-weight", "20"),
        ]);
        assert_eq!(known.body_size, Some(8 << 20));
        assert_eq!(known.read_timeout, Some(Duration::from_secs(60)));
        assert_eq!(known.backend_protocol, BackendProtocol::Grpc);
        assert_eq!(known.sources.len(), 2);
        assert_eq!(known.canary.as_ref().map(|canary| (canary.weight, canary.total)), Some((20, 100)));
        assert_eq!(known.ignored, Vec::<String>::new());
        let unknown =
            read(&[("configuration-snippet", "x"), ("proxy-body-size", "huge"), ("backend-protocol", "FCGI")]);
        assert_eq!(unknown.ignored.len(), 3, "{:?}", unknown.ignored);
        assert_eq!(Annotations::read(None).ignored, Vec::<String>::new());
        let limited = read(&[("limit-rps", "10"), ("limit-whitelist", "10.0.0.0/8"), ("limit-rpm", "many")]);
        assert_eq!((limited.requests_per_second, limited.burst_multiplier, limited.unlimited.len()), (Some(10), 5, 1));
        assert_eq!(limited.ignored.len(), 1, "{:?}", limited.ignored);
    }

    /// A path is copied for each group that is named: a long target made gigabytes of one request.
    #[test]
    fn a_target_is_short() {
        for (text, want) in [("/$1$2".to_owned(), true), ("/$1".repeat(33), false), ("/a".repeat(3000), false)] {
            let read = read(&[("rewrite-target", &text)]);
            assert_eq!((read.rewrite_target.is_some(), read.ignored.is_empty()), (want, want), "{}", text.len());
        }
    }

    #[test]
    fn what_cannot_be_read_does_not_open_the_door() {
        assert_eq!(read(&[("whitelist-source-range", "everybody")]).sources.len(), 1);
        assert!(read(&[("auth-type", "digest")]).auth.is_some());
    }

    #[test]
    fn sites_that_are_not_named_do_not_read_what_the_user_may_see() {
        let (on, named, yes) =
            (("enable-cors", "true"), ("cors-allow-origin", "https://a.com"), ("cors-allow-credentials", "true"));
        let some = ("cors-allow-origin", "https://a.com, *");
        for (pairs, want) in [
            (&[on][..], false),
            (&[on, yes], false),
            (&[on, some], false),
            (&[on, named], true),
            (&[on, named, yes], true),
        ] {
            assert_eq!(read(pairs).cors.map(|cors| cors.credentials), Some(want), "{pairs:?}");
        }
    }
}
