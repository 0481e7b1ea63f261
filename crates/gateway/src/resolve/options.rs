//! Annotations `gateway.ferry.dev/…` of Gateways, routes, Ingresses and IngressClasses: what the Gateway API has no field for.
//! A name or a value that is not known is a problem of the object, never ignored.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;

use super::conditions::Problem;
use crate::table::{Extras, RateLimit};

pub const PREFIX: &str = "gateway.ferry.dev/";
const PROXY_PROTOCOL: &str = "proxy-protocol";
const COMPRESSION: &str = "compression";
const BODY_SIZE: &str = "max-body-size";
const RATE_LIMIT: &str = "rate-limit";

/// For all routes of a Gateway, unless they say otherwise.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// Whose connections begin with a header of the PROXY protocol.
    pub proxies: Arc<[IpNet]>,
    pub compress: Option<bool>,
    pub most_body: Option<u64>,
    /// Between two requests of a client, and how many more may come at once.
    pub rate: Option<(Duration, u32)>,
}

type Named = BTreeMap<String, String>;

impl Options {
    pub fn gateway(annotations: Option<&Named>) -> Result<Self, Problem> {
        Self::read(annotations, &[PROXY_PROTOCOL, COMPRESSION, BODY_SIZE], "InvalidParameters")
    }

    pub fn class(annotations: Option<&Named>) -> Result<Self, Problem> {
        Self::read(annotations, &[PROXY_PROTOCOL], "InvalidParameters")
    }

    pub fn route(annotations: Option<&Named>) -> Result<Self, Problem> {
        Self::read(annotations, &[COMPRESSION, BODY_SIZE, RATE_LIMIT], "UnsupportedValue")
    }

    fn read(annotations: Option<&Named>, known: &[&str], reason: &'static str) -> Result<Self, Problem> {
        let mut options = Self::default();
        for (name, text) in annotations.into_iter().flatten() {
            let Some(short) = name.strip_prefix(PREFIX) else { continue };
            let is_read = known.contains(&short)
                && match short {
                    PROXY_PROTOCOL => ranges(text).map(|ranges| options.proxies = ranges.into()).is_some(),
                    COMPRESSION => text.trim().parse().map(|yes| options.compress = Some(yes)).is_ok(),
                    BODY_SIZE => super::annotations::size(text).map(|size| options.most_body = Some(size)).is_some(),
                    RATE_LIMIT => rate(text).map(|rate| options.rate = Some(rate)).is_some(),
                    _ => false,
                };
            if !is_read {
                return Err(Problem::new(reason, format!("annotation {name}: {text:?} cannot be followed")));
            }
        }
        Ok(options)
    }

    /// What the rules of a route have, of a Gateway with these `defaults`.
    pub fn extras(&self, defaults: Option<&Self>, route: &str) -> Extras {
        let rates = self.rate.map(|(interval, burst)| RateLimit {
            zone: route.into(),
            interval,
            burst,
            exempt: Arc::default(),
        });
        Extras {
            compress: self.compress.or(defaults.and_then(|defaults| defaults.compress)).unwrap_or(false),
            most_body: self.most_body.or(defaults.and_then(|defaults| defaults.most_body)),
            rates: rates.into_iter().collect(),
            ..Extras::default()
        }
    }
}

/// `10.0.0.0/8, 192.0.2.1`.
pub fn ranges(text: &str) -> Option<Vec<IpNet>> {
    let one = |text: &str| text.parse().ok().or_else(|| text.parse::<std::net::IpAddr>().ok().map(IpNet::from));
    text.split(',').map(|text| one(text.trim())).collect()
}

/// `100/s`, `600/m`, `100/s burst=500`; without more said, as many come at once as in a second.
fn rate(text: &str) -> Option<(Duration, u32)> {
    let mut words = text.split_whitespace();
    let (count, unit) = words.next()?.split_once('/')?;
    let count = count.parse::<u32>().ok().filter(|count| *count > 0)?;
    let whole = match unit {
        "s" => Duration::from_secs(1),
        "m" => Duration::from_secs(60),
        "h" => Duration::from_secs(3600),
        _ => return None,
    };
    let burst = match words.next() {
        None if unit == "s" => count,
        None => 0,
        Some(word) => word.strip_prefix("burst=")?.parse().ok()?,
    };
    words.next().is_none().then_some((whole / count, burst))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Option<BTreeMap<String, String>> {
        Some(pairs.iter().map(|(name, text)| (format!("{PREFIX}{name}"), (*text).to_owned())).collect())
    }

    #[test]
    fn options_are_read_or_refused() {
        let ms = Duration::from_millis;
        for (text, want) in [
            ("100/s", Some((ms(10), 100))),
            ("60/m", Some((ms(1000), 0))),
            ("10/s burst=50", Some((ms(100), 50))),
            ("0/s", None),
            ("10/d", None),
            ("10/s often", None),
            ("10/s burst=5 x", None),
            ("", None),
        ] {
            assert_eq!(
                Options::route(read(&[("rate-limit", text)]).as_ref()).ok().and_then(|one| one.rate),
                want,
                "{text}"
            );
        }
        let gateway =
            Options::gateway(read(&[("proxy-protocol", "10.0.0.0/8, 192.0.2.1"), ("compression", "true")]).as_ref());
        assert_eq!(gateway.map(|one| (one.proxies.len(), one.compress)).ok(), Some((2, Some(true))));
        for wrong in [("proxy-protocol", "everybody"), ("compression", "yes"), ("rate-limit", "1/s"), ("unknown", "x")]
        {
            assert!(Options::gateway(read(&[wrong]).as_ref()).is_err(), "{wrong:?}");
        }
        assert_eq!(Options::gateway(None), Ok(Options::default()));
    }

    #[test]
    fn a_route_says_otherwise() {
        let gateway = Options::gateway(read(&[("compression", "true"), ("max-body-size", "1m")]).as_ref()).unwrap();
        let route = Options::route(read(&[("compression", "false")]).as_ref()).unwrap();
        let extras = route.extras(Some(&gateway), "r");
        assert_eq!((extras.compress, extras.most_body), (false, Some(1 << 20)));
    }
}
