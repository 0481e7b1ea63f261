//! Which proxy a server is reached by: the kubeconfig's, or the environment's by Go's rules.

use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::Value;

use crate::error::{Error, Result};
use crate::text::quote;

/// What stands between here and the server.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    pub scheme: Scheme,
    pub host: String,
    pub port: u16,
    /// Name and password.
    pub user: Option<(String, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    Http,
    Https,
    Socks5,
}

/// Nobody prints a password by accident.
impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}://{}:{}", self.scheme, self.host, self.port)
    }
}

/// The parts of a URL that matter here.
struct Parsed<'a> {
    scheme: String,
    user: Option<&'a str>,
    host: &'a str,
    port: &'a str,
}

/// As Go's `url.Parse` takes an address apart; the error is its words.
fn parse(raw: &str) -> Result<Parsed<'_>, String> {
    if raw.chars().any(|c| c.is_ascii_control()) {
        return Err("net/url: invalid control character in URL".into());
    }
    let end = raw.find(|c: char| !(c.is_ascii_alphanumeric() || "+-.".contains(c)));
    let named = raw.starts_with(|c: char| c.is_ascii_alphabetic());
    let (scheme, rest) = match end.map(|end| (end, raw.as_bytes()[end])) {
        Some((0, b':')) => return Err("missing protocol scheme".into()),
        Some((end, b':')) if named => (&raw[..end], &raw[end + 1..]),
        _ => ("", raw),
    };
    let scheme = scheme.to_ascii_lowercase();
    let Some(rest) = rest.strip_prefix("//") else {
        let first = rest.split('/').next().unwrap_or_default();
        if scheme.is_empty() && first.contains(':') {
            return Err("first path segment in URL cannot contain colon".into());
        }
        return Ok(Parsed { scheme, user: None, host: "", port: "" });
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let (user, place) = match authority.rsplit_once('@') {
        Some((user, place)) => (Some(user), place),
        None => (None, authority),
    };
    let (host, port) = match place.strip_prefix('[').map(|inner| inner.split_once(']')) {
        Some(Some((host, port))) => (host, port),
        Some(None) => return Err("missing ']' in host".into()),
        None => place.find(':').map_or((place, ""), |at| place.split_at(at)),
    };
    if host.contains([' ', '<', '>', '"']) {
        let wrong = host.chars().find(|c| " <>\"".contains(*c)).unwrap_or(' ');
        return Err(format!("invalid character {} in host name", quote(&wrong.to_string())));
    }
    let number = port.strip_prefix(':').unwrap_or(port);
    if !(port.is_empty() || port.starts_with(':')) || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("invalid port {} after host", quote(port)));
    }
    Ok(Parsed { scheme, user, host, port: number })
}

impl Parsed<'_> {
    fn proxy(&self) -> Option<Proxy> {
        let (scheme, usual) = match &*self.scheme {
            "http" => (Scheme::Http, 80),
            "https" => (Scheme::Https, 443),
            "socks5" | "socks5h" => (Scheme::Socks5, 1080),
            _ => return None,
        };
        let user = self.user.map(|user| user.split_once(':').unwrap_or((user, "")));
        let user = user.map(|(name, password)| (decoded(name), decoded(password)));
        let port = if self.port.is_empty() { usual } else { self.port.parse().ok()? };
        Some(Proxy { scheme, host: self.host.to_owned(), port, user })
    }
}

/// Without `%41`.
fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let digit = |at: usize| bytes.get(at).and_then(|byte| char::from(*byte).to_digit(16));
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match (byte, digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                out.push(u8::try_from(high * 16 + low).unwrap_or_default());
                at += 3;
            }
            _ => {
                out.push(*byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Why the `proxy-url` of a cluster cannot be used.
pub fn unusable(raw: &str) -> Option<String> {
    match parse(raw) {
        Err(_) => Some(format!("could not parse: {raw}")),
        Ok(parsed) if matches!(&*parsed.scheme, "http" | "https" | "socks5") => None,
        Ok(parsed) => Some(format!("unsupported scheme {}, must be http, https, or socks5", quote(&parsed.scheme))),
    }
}

/// The proxy to a server: what the cluster says counts before the environment, and for every address.
pub fn of(cluster: &Value, server: &str) -> Result<Option<Proxy>> {
    match cluster["proxy-url"].as_str().filter(|raw| !raw.is_empty()) {
        Some(raw) => Ok(parse(raw).ok().and_then(|parsed| parsed.proxy())),
        None => Environment::read().proxy(server),
    }
}

/// `HTTPS_PROXY` and its like.
#[derive(Default)]
pub struct Environment {
    http: String,
    https: String,
    except: String,
}

impl Environment {
    pub fn read() -> Self {
        let either = |name: &str| {
            let of = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
            of(name).or_else(|| of(&name.to_ascii_lowercase())).unwrap_or_default()
        };
        Self { http: either("HTTP_PROXY"), https: either("HTTPS_PROXY"), except: either("NO_PROXY") }
    }

    /// The proxy to an address such as `https://192.0.2.1:6443`.
    pub fn proxy(&self, server: &str) -> Result<Option<Proxy>> {
        let Ok(to) = parse(server) else { return Ok(None) };
        let (raw, usual) = match &*to.scheme {
            "https" => (&self.https, "443"),
            "http" => (&self.http, "80"),
            _ => return Ok(None),
        };
        let port = if to.port.is_empty() { usual } else { to.port };
        if raw.is_empty() || !self.is_proxied(to.host, port) {
            return Ok(None);
        }
        let whole = parse(raw).ok().filter(|parsed| !parsed.scheme.is_empty() && !parsed.host.is_empty());
        let found = match whole {
            Some(parsed) => parsed.proxy(),
            None => match parse(&format!("http://{raw}")) {
                Ok(parsed) => parsed.proxy(),
                Err(_) => {
                    let why = parse(raw).err().unwrap_or_default();
                    let raw = quote(raw);
                    let why = format!("invalid proxy address {raw}: parse {raw}: {why}");
                    return Err(Error::Connection { host: String::new(), refused: false, why });
                }
            },
        };
        Ok(found)
    }

    fn is_proxied(&self, host: &str, port: &str) -> bool {
        let host = host.trim().to_lowercase();
        let address = host.parse::<IpAddr>().ok().map(|address| address.to_canonical());
        if host == "localhost" || address.is_some_and(|address| address.is_loopback()) {
            return false;
        }
        !self.except.split(',').any(|rule| excepts(&rule.trim().to_lowercase(), &host, port, address))
    }
}

/// One word of `NO_PROXY`: `*`, a range, an address, a name with what is below it, or `.name` for that alone.
fn excepts(rule: &str, host: &str, port: &str, address: Option<IpAddr>) -> bool {
    if rule == "*" {
        return true;
    }
    if let Ok(range) = rule.parse::<IpNet>() {
        return address.is_some_and(|address| range.contains(&address));
    }
    let bare = rule.strip_prefix('[').and_then(|rule| rule.split_once(']'));
    let (name, only) = match (bare, rule.rsplit_once(':')) {
        (Some((name, rest)), _) => (name, rest.strip_prefix(':').unwrap_or_default()),
        // More than one colon: an address of IPv6.
        (None, Some((name, only))) if !name.contains(':') => (name, only),
        _ => (rule, ""),
    };
    if name.is_empty() || !(only.is_empty() || only == port) {
        return false;
    }
    if let Ok(wanted) = name.parse::<IpAddr>() {
        return address == Some(wanted.to_canonical());
    }
    let name = name.strip_prefix('*').filter(|rest| rest.starts_with('.')).unwrap_or(name);
    match name.strip_prefix('.') {
        Some(_) => host.ends_with(name),
        None => host == name || host.strip_suffix(name).is_some_and(|before| before.ends_with('.')),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(proxy: Option<Proxy>) -> String {
        let user = proxy.as_ref().and_then(|proxy| proxy.user.clone());
        let user = user.map_or(String::new(), |(name, password)| format!(" {name} {password}"));
        proxy.map_or("none".into(), |proxy| format!("{proxy:?}{user}"))
    }

    #[test]
    fn of_the_cluster() {
        let of = |raw: &str| shown(of(&serde_json::json!({"proxy-url": raw}), "https://127.0.0.1:6443").unwrap());
        assert_eq!(of("http://127.0.0.1:3128"), "Http://127.0.0.1:3128");
        assert_eq!(of("https://p.example/"), "Https://p.example:443");
        assert_eq!(of("socks5://[::1]"), "Socks5://::1:1080");
        assert_eq!(of("HTTP://jane:a%40b%3a@p"), "Http://p:80 jane a@b:");
        assert_eq!(of("http://jane@p:1"), "Http://p:1 jane ");
        for (raw, why) in [
            ("http://h:x", "could not parse: http://h:x"),
            ("127.0.0.1:1", "could not parse: 127.0.0.1:1"),
            ("http://[::1", "could not parse: http://[::1"),
            (":x", "could not parse: :x"),
            ("localhost:1", "unsupported scheme \"localhost\", must be http, https, or socks5"),
            ("proxy.example", "unsupported scheme \"\", must be http, https, or socks5"),
            ("ftp://h", "unsupported scheme \"ftp\", must be http, https, or socks5"),
        ] {
            assert_eq!(unusable(raw).unwrap_or_default(), why);
        }
        assert!(unusable("socks5://h").is_none());
    }

    #[test]
    fn of_the_environment() {
        let with = |except: &str, server: &str| {
            let all = Environment { http: "plain:1".into(), https: "https://u:p@tls".into(), except: except.into() };
            shown(all.proxy(server).unwrap())
        };
        let (none, tls, plain) = ("none", "Https://tls:443 u p", "Http://plain:1");
        for (except, server, wanted) in [
            ("", "https://192.0.2.1:6443", tls),
            ("", "http://192.0.2.1:8080", plain),
            ("", "https://127.0.0.9:6443", none),
            ("", "https://[::1]:6443", none),
            ("", "https://localhost", none),
            ("", "https://localhost.example", tls),
            ("*", "https://192.0.2.1", none),
            ("192.0.2.0/24", "https://192.0.2.1", none),
            ("192.0.2.0/24", "https://192.0.3.1", tls),
            (" x, 192.0.2.1 ", "https://192.0.2.1", none),
            ("192.0.2.1:443", "https://192.0.2.1", none),
            ("192.0.2.1:443", "https://192.0.2.1:6443", tls),
            ("[2001:db8::1]:443", "https://[2001:db8::1]", none),
            ("2001:db8::1", "https://[2001:db8::1]:1", none),
            ("Example.com", "https://a.EXAMPLE.com", none),
            ("example.com", "https://example.com", none),
            ("example.com", "https://anexample.com", tls),
            (".example.com", "https://example.com", tls),
            (".example.com", "https://a.example.com", none),
            ("*.example.com", "https://a.b.example.com", none),
            ("*.example.com", "https://example.com", tls),
            ("example.com:80", "https://example.com", tls),
            ("example.com:443", "https://example.com", none),
            (",:443,", "https://example.com", tls),
        ] {
            assert_eq!(with(except, server), wanted, "{except} {server}");
        }
        let of = |https: &str| Environment { https: https.into(), ..Environment::default() }.proxy("https://192.0.2.1");
        assert_eq!(shown(of("socks5h://s").unwrap()), "Socks5://s:1080");
        assert_eq!(shown(of("localhost:3128").unwrap()), "Http://localhost:3128");
        assert!(
            of(":x").is_err_and(
                |error| error.inner() == "invalid proxy address \":x\": parse \":x\": missing protocol scheme"
            )
        );
    }
}
