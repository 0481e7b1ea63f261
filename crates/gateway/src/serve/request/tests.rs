use super::*;

#[test]
fn hosts_are_read() {
    for (uri, header, want) in [
        ("/", "Example.com", "example.com"),
        ("/", "example.com:8080", "example.com"),
        ("/", "example.com.", "example.com"),
        ("/", "[::1]:80", "::1"),
        ("http://other.com:1/x", "example.com", "other.com"),
        ("/", "", ""),
    ] {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, header.parse().unwrap());
        assert_eq!(host(&uri.parse().unwrap(), &headers), want, "{uri} {header}");
    }
}

#[test]
fn a_host_is_a_name_or_an_address() {
    for (host, want) in [
        ("example.com", true),
        ("example.com:8080", true),
        ("a_b.example.com.", true),
        ("10.0.0.1:80", true),
        ("[::1]", true),
        ("[::1]:80", true),
        ("", true),
        ("xn--bcher-kva.example", true),
        ("good.com@evil.com", false),
        ("evil.com/good.com", false),
        ("good.com, evil.com", false),
        ("good.com evil.com", false),
        ("good.com:80:90", false),
        ("good.com:evil.com", false),
        ("good.com#evil.com", false),
        ("good.com\\evil.com", false),
        ("[::1", false),
        ("[::1]evil.com", false),
        ("[evil.com]", false),
        ("b\u{fc}cher.example", false),
    ] {
        assert_eq!(is_host(host.as_bytes()), want, "{host}");
    }
}

#[test]
fn no_backend_reads_another_path() {
    for (path, want) in [
        ("/a/b", false),
        ("/a%2fb", false),
        ("/a/..b%2Fc", false),
        ("/100%25", false),
        ("/a/..%2fb", true),
        ("/a%2F..%2fb", true),
        ("/a%2f%2e%2E%2fb", true),
        ("/a%5c..%5Cb", true),
        ("/a%2f.", true),
        ("/a%00.html", true),
    ] {
        assert_eq!(is_ambiguous(path), want, "{path}");
    }
}

#[test]
fn dots_are_taken_out_of_paths() {
    for (path, want) in [
        ("/a/b", None),
        ("/a/../b", Some("/b")),
        ("/a/./b", Some("/a/b")),
        ("/a/%2e%2E/b", Some("/b")),
        ("/../../b", Some("/b")),
        ("/a/..", Some("/")),
        ("/a/b/..", Some("/a/")),
        ("/.well-known/x", Some("/.well-known/x")),
        ("/a/...", Some("/a/...")),
    ] {
        assert_eq!(normal(path).as_deref(), want, "{path}");
    }
}
