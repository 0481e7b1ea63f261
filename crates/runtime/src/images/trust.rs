//! Whom a registry's credentials are shown: the registry that they are for, whom it names to hand out tokens, nobody else.

use std::net::{IpAddr, Ipv4Addr};

use ferry_cri::image_name::Reference;
use ferry_cri::v1::AuthConfig;
use http::Uri;

/// Where a registry's own interface is.
pub(super) fn own_host(registry: &str) -> &str {
    match registry {
        "docker.io" | "index.docker.io" => "registry-1.docker.io",
        other => other,
    }
}

/// Whether credentials for this image may be shown to the place it is pulled from. A mirror is another's place: it gets
/// none, unless it is the registry itself, reached as the administrator says.
pub(super) fn is_for(auth: &AuthConfig, reference: &Reference, base: &Uri) -> bool {
    let own = own_host(&reference.registry);
    let address = auth.server_address.trim_start_matches("https://").trim_start_matches("http://");
    let named = own_host(address.split('/').next().unwrap_or_default());
    base.authority().is_some_and(|place| place.as_str() == own) && (named.is_empty() || named == own)
}

/// Whether a place that hands out tokens may be asked, with credentials or without: nothing that came over TLS leads to
/// plain HTTP, and plain HTTP no further than to the same machine.
pub(super) fn may_ask(base: &Uri, realm: &Uri) -> bool {
    stays_outside(base, realm)
        && match realm.scheme_str() {
            Some("https") => true,
            Some("http") => base.scheme_str() == Some("http") && base.host().is_some() && base.host() == realm.host(),
            _ => false,
        }
}

/// Whether a redirect is followed: never from TLS to plain HTTP, nor to this machine.
pub(super) fn may_follow(from: &Uri, to: &Uri) -> bool {
    stays_outside(from, to)
        && match to.scheme_str() {
            Some("https") => true,
            Some("http") => from.scheme_str() == Some("http"),
            _ => false,
        }
}

/// Whether somebody else than this machine itself is meant: what a registry says must not make the node call its own services,
/// or those of its link that take it for an administrator. An image may name such a registry, which then leads to itself only.
fn stays_outside(from: &Uri, to: &Uri) -> bool {
    to.host().is_some_and(|host| !is_near(host) || from.host() == Some(host))
}

/// Loopback and link-local addresses, in all the forms that a client takes.
fn is_near(host: &str) -> bool {
    let name = host.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.').to_ascii_lowercase();
    let near = |address: Ipv4Addr| address.is_loopback() || address.is_link_local() || address.is_unspecified();
    match name.parse() {
        Ok(IpAddr::V4(address)) => near(address),
        Ok(IpAddr::V6(address)) => {
            let inside = address.to_ipv4_mapped().or_else(|| address.to_ipv4());
            address.is_loopback() || address.is_unicast_link_local() || inside.is_some_and(near)
        }
        // Resolvers read numbers as addresses in many ways: 127.1, 0x7f000001, 2130706433.
        Err(_) => name == "localhost" || name.ends_with(".localhost") || is_number(&name),
    }
}

/// No name of a host ends with a number.
fn is_number(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or_default();
    last.starts_with(|first: char| first.is_ascii_digit())
        && (last.bytes().all(|byte| byte.is_ascii_digit()) || last.starts_with("0x"))
}

/// Whether what was meant for one place is meant for another: the same host and port, in the same protocol.
pub(super) fn is_same(one: &Uri, other: &Uri) -> bool {
    one.authority().is_some() && (one.scheme(), one.authority()) == (other.scheme(), other.authority())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uri(text: &str) -> Uri {
        text.parse().expect("an address")
    }

    #[test]
    fn credentials_are_for_the_registry_itself() {
        let check = |image: &str, server: &str, base: &str, want: bool| {
            let auth = AuthConfig { server_address: server.to_owned(), ..AuthConfig::default() };
            let reference = Reference::parse(image).expect("a name");
            assert_eq!(is_for(&auth, &reference, &uri(base)), want, "{image} {server} {base}");
        };
        check("quay.io/a/b", "", "https://quay.io", true);
        check("quay.io/a/b", "https://quay.io/v1/", "https://quay.io", true);
        check("quay.io/a/b", "quay.io", "https://quay.io", true);
        check("quay.io/a/b", "https://other.test", "https://quay.io", false);
        check("busybox", "https://index.docker.io/v1/", "https://registry-1.docker.io", true);
        // A mirror, plain or not.
        check("busybox", "https://index.docker.io/v1/", "http://mirror.test:5000", false);
        check("busybox", "", "https://mirror.test", false);
        check("quay.io/a/b", "", "https://quay.io.evil.test", false);
        check("quay.io/a/b", "", "https://quay.io:8443", false);
        // The administrator says that this very registry speaks plain HTTP.
        check("registry.test:5000/a", "", "http://registry.test:5000", true);
    }

    #[test]
    fn nothing_leads_from_tls_to_plain_http() {
        let check = |base: &str, to: &str, asked: bool, followed: bool| {
            assert_eq!(may_ask(&uri(base), &uri(to)), asked, "{base} asks {to}");
            assert_eq!(may_follow(&uri(base), &uri(to)), followed, "{base} leads to {to}");
        };
        check("https://a.test", "https://auth.test/token", true, true);
        check("https://a.test", "http://auth.test/token", false, false);
        check("https://a.test", "http://a.test/token", false, false);
        check("http://a.test:5000", "http://a.test:5001/token", true, true);
        check("http://a.test:5000", "http://b.test/token", false, true);
        check("http://a.test:5000", "https://b.test/token", true, true);
        check("http://a.test", "ftp://a.test/", false, false);
        for near in [
            "127.0.0.1:1",
            "127.1",
            "localhost",
            "localhost.",
            "a.localhost:7",
            "169.254.169.254",
            "0.0.0.0",
            "2130706433",
            "0x7f.1",
            "[::1]",
            "[::]",
            "[fe80::1]",
            "[::ffff:127.0.0.1]:80",
            "[::ffff:169.254.1.1]",
            "[::127.0.0.1]",
        ] {
            for scheme in ["http", "https"] {
                check("http://a.test", &format!("{scheme}://{near}/x"), false, false);
                check("https://a.test", &format!("{scheme}://{near}/x"), false, false);
            }
        }
        check("http://127.0.0.1:5000", "http://127.0.0.1:5001/token", true, true);
        check("http://127.0.0.1:5000", "http://169.254.169.254/latest", false, false);
        check("http://a.test", "https://10.0.0.1/x", true, true);
        check("https://a.test", "https://1.a.test/x", true, true);
        assert!(is_same(&uri("https://a.test/x"), &uri("https://a.test/y")));
        assert!(!is_same(&uri("https://a.test/x"), &uri("http://a.test/x")));
        assert!(!is_same(&uri("https://a.test/x"), &uri("https://a.test:444/x")));
    }
}
