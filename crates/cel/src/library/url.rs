//! Addresses of the web, read as Go's `net/url` reads them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Outcome, text};
use crate::error::Error;
use crate::program::Bindings;
use crate::value::{Key, Map, Text, Value};

#[derive(Debug)]
pub struct Url {
    pub text: String,
    scheme: String,
    host: String,
    path: String,
    query: String,
}

fn unescape(text: &str, plus: bool) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        match first {
            b'%' => {
                let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
                if !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
                    return None;
                }
                bytes.push(u8::from_str_radix(digits, 16).ok()?);
                rest = &rest[2..];
            }
            b'+' if plus => bytes.push(b' '),
            other => bytes.push(*other),
        }
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Whether a path may stay as it was written.
fn is_valid_path(path: &str) -> bool {
    path.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:@[]/%".contains(&b))
}

fn escape_path(path: &str) -> String {
    let mut escaped = String::new();
    for b in path.bytes() {
        if b.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&b) {
            escaped.push(b as char);
        } else {
            escaped.push_str(&format!("%{b:02X}"));
        }
    }
    escaped
}

impl Url {
    /// An address that is absolute or a rooted path.
    fn parse(text: &str) -> Result<Self, String> {
        let refuse = |why: &str| Err(format!("parse {}: {why}", ferry_meta::field::quote(text)));
        if text.is_empty() {
            return refuse("empty url");
        }
        if text.bytes().any(|b| b < 0x20 || b == 0x7f) {
            return refuse("net/url: invalid control character in URL");
        }
        let (before_fragment, _) = text.split_once('#').unwrap_or((text, ""));
        let (scheme, rest) = match split_scheme(before_fragment) {
            Ok(parts) => parts,
            Err(why) => return refuse(why),
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        if !rest.starts_with('/') {
            if scheme.is_empty() {
                return refuse("invalid URI for request");
            }
            // An opaque address has neither host nor path.
            let url = Self { text: text.into(), scheme, host: String::new(), path: String::new(), query: query.into() };
            return Ok(url);
        }
        let (mut host, mut path) = (String::new(), rest.to_owned());
        if !scheme.is_empty() && rest.starts_with("//") && !rest.starts_with("///")
            || rest.starts_with("//") && !scheme.is_empty()
        {
            let after = &rest[2..];
            let (authority, tail) = after.find('/').map_or((after, ""), |at| after.split_at(at));
            let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
            match read_host(authority) {
                Ok(read) => host = read,
                Err(why) => return refuse(&why),
            }
            path = tail.to_owned();
        }
        if unescape(&path, false).is_none() {
            let at = path.find('%').unwrap_or_default();
            let shown: String = path[at..].chars().take(3).collect();
            return refuse(&format!("invalid URL escape {}", ferry_meta::field::quote(&shown)));
        }
        if !is_valid_path(&path) {
            path = escape_path(&unescape(&path, false).unwrap_or_default());
        }
        Ok(Self { text: text.into(), scheme, host, path, query: query.into() })
    }

    fn hostname(&self) -> &str {
        if let Some(inner) = self.host.strip_prefix('[') {
            return inner.split_once(']').map_or(inner, |(host, _)| host);
        }
        self.host.rsplit_once(':').map_or(&self.host, |(host, _)| host)
    }

    fn port(&self) -> &str {
        let after = self.host.rsplit_once(']').map_or(&*self.host, |(_, after)| after);
        after.rsplit_once(':').map_or("", |(_, port)| port)
    }
}

fn split_scheme(text: &str) -> Result<(String, &str), &'static str> {
    for (index, c) in text.char_indices() {
        match c {
            'a'..='z' | 'A'..='Z' => {}
            '0'..='9' | '+' | '-' | '.' if index > 0 => {}
            ':' if index == 0 => return Err("missing protocol scheme"),
            ':' => return Ok((text[..index].to_ascii_lowercase(), &text[index + 1..])),
            _ => return Ok((String::new(), text)),
        }
    }
    Ok((String::new(), text))
}

fn read_host(authority: &str) -> Result<String, String> {
    let quoted = ferry_meta::field::quote;
    let after = if authority.starts_with('[') {
        let Some((_, after)) = authority.rsplit_once(']') else { return Err("missing ']' in host".to_owned()) };
        after
    } else {
        authority.find(':').map_or("", |at| &authority[at..])
    };
    let port = after.strip_prefix(':').map_or(after.is_empty(), |port| port.bytes().all(|b| b.is_ascii_digit()));
    if !port {
        return Err(format!("invalid port {} after host", quoted(after)));
    }
    if let Some(bad) = authority
        .chars()
        .find(|c| c.is_ascii() && !c.is_ascii_alphanumeric() && !"-_.~!$&'()*+,;=:[]<>\"%".contains(*c))
    {
        return Err(format!("invalid character {} in host name", quoted(&bad.to_string())));
    }
    Ok(authority.to_owned())
}

fn of<'v>(arguments: &'v [Value<'_>]) -> Result<&'v Arc<Url>, Error> {
    match &arguments[0] {
        Value::Url(url) => Ok(url),
        _ => Err(Error::no_such_overload()),
    }
}

pub(crate) fn url<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    let parsed = Url::parse(text(arguments, 0)?);
    let refuse = |why| Error::new(format!("URL parse error during conversion from string: {why}"));
    parsed.map(|url| Value::Url(Arc::new(url))).map_err(refuse)
}

/// The complaint about a text that is no address, if it is none.
pub(crate) fn complaint(text: &str) -> Option<String> {
    Url::parse(text).err()
}

pub(crate) fn is_url<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    Ok(Value::Bool(Url::parse(text(arguments, 0)?).is_ok()))
}

pub(crate) fn scheme<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    Ok(Value::from(of(arguments)?.scheme.clone()))
}

pub(crate) fn host<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    Ok(Value::from(of(arguments)?.host.clone()))
}

pub(crate) fn hostname<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    Ok(Value::from(of(arguments)?.hostname().to_owned()))
}

pub(crate) fn port<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    Ok(Value::from(of(arguments)?.port().to_owned()))
}

pub(crate) fn escaped_path<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    Ok(Value::from(of(arguments)?.path.clone()))
}

pub(crate) fn query<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    let mut found: BTreeMap<String, Vec<Value<'a>>> = BTreeMap::new();
    for pair in of(arguments)?.query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (Some(key), Some(value)) = (unescape(key, true), unescape(value, true)) else { continue };
        found.entry(key).or_default().push(Value::from(value));
    }
    let entries = found.into_iter().map(|(key, values)| {
        let text = Text::Shared(key.as_str().into());
        (Key::Text(text.clone()), (Value::String(text), Value::from(values)))
    });
    Ok(Value::Map(Map::Values(Arc::new(entries.collect()))))
}
