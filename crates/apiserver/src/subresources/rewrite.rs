//! Links of pages that come through the proxy: what points to the server's root points to where the proxy has it.

use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, LOCATION};
use http::{HeaderValue, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};

use crate::response::answer::{Body, BoxError};

/// A tag that is longer is let through as it is.
const LONGEST_TAG: usize = 64 * 1024;

/// Which attributes of which tags hold links.
const LINKS: [(&str, &[&str]); 24] = [
    ("a", &["href"]),
    ("applet", &["codebase"]),
    ("area", &["href"]),
    ("audio", &["src"]),
    ("base", &["href"]),
    ("blockquote", &["cite"]),
    ("body", &["background"]),
    ("button", &["formaction"]),
    ("del", &["cite"]),
    ("embed", &["src"]),
    ("form", &["action"]),
    ("frame", &["longdesc", "src"]),
    ("head", &["profile"]),
    ("html", &["manifest"]),
    ("iframe", &["longdesc", "src"]),
    ("img", &["longdesc", "src", "usemap"]),
    ("input", &["src", "usemap", "formaction"]),
    ("ins", &["cite"]),
    ("link", &["href"]),
    ("object", &["classid", "codebase", "data", "usemap"]),
    ("q", &["cite"]),
    ("script", &["src"]),
    ("source", &["src"]),
    ("video", &["poster", "src"]),
];

/// Where the proxied server's root is for the client.
pub(super) struct ProxyRoot {
    /// `/api/v1/namespaces/<namespace>/pods/<name>/proxy`
    pub prefix: String,
    /// The names the server may have for itself: the host it was asked by and its address.
    pub hosts: Vec<String>,
}

impl ProxyRoot {
    /// Relative links and those to other hosts stay.
    fn rewrite(&self, link: &str) -> Option<String> {
        let mut path = link;
        if let Some((_, after)) = link.split_once("://").filter(|(scheme, _)| matches!(*scheme, "http" | "https")) {
            let end = after.find(['/', '?', '#']).unwrap_or(after.len());
            if !self.hosts.iter().any(|host| host == &after[..end]) {
                return None;
            }
            path = &after[end..];
        }
        if !path.starts_with('/') || path.starts_with("//") || path.starts_with(&self.prefix) {
            return None;
        }
        Some(format!("{}{path}", self.prefix))
    }
}

/// The answer with its links where the client finds them.
pub(super) fn rewritten(mut answer: Response<Body>, place: ProxyRoot) -> Response<Body> {
    let headers = answer.headers_mut();
    if let Some(location) = headers.get(LOCATION).and_then(|value| value.to_str().ok()) {
        let new = place.rewrite(location).and_then(|new| HeaderValue::from_str(&new).ok());
        if let Some(new) = new {
            headers.insert(LOCATION, new);
        }
        return answer;
    }
    let media = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let is_page = media.split(';').next().is_some_and(|media| media.trim().eq_ignore_ascii_case("text/html"));
    if !is_page || headers.contains_key(CONTENT_ENCODING) {
        return answer;
    }
    headers.remove(CONTENT_LENGTH);
    answer.map(|body| {
        let page = Page::new(place);
        let stream = futures::stream::unfold(Some((body, page)), |state| async move {
            let (mut body, mut page) = state?;
            match body.frame().await {
                None => Some((Ok(Frame::data(page.tag.into())), None)),
                Some(Err(error)) => Some((Err(error), None)),
                Some(Ok(frame)) => {
                    let frame = match frame.into_data() {
                        Ok(data) => Frame::data(page.take(&data)),
                        Err(other) => other,
                    };
                    Some((Ok::<_, BoxError>(frame), Some((body, page))))
                }
            }
        });
        StreamBody::new(stream.boxed()).boxed_unsync()
    })
}

/// A page as it passes by. Only an unfinished tag is held back.
struct Page {
    place: Arc<ProxyRoot>,
    tag: Vec<u8>,
    /// The quote that is open in the tag: whether a tag ends is told from it, not from the tag again.
    quote: Option<u8>,
}

impl Page {
    fn new(place: ProxyRoot) -> Self {
        Self { place: Arc::new(place), tag: Vec::new(), quote: None }
    }

    fn take(&mut self, data: &[u8]) -> Bytes {
        let mut out = Vec::with_capacity(data.len() + 64);
        for byte in data {
            if self.tag.is_empty() {
                if *byte == b'<' {
                    self.tag.push(b'<');
                } else {
                    out.push(*byte);
                }
                continue;
            }
            self.tag.push(*byte);
            match (self.quote, *byte) {
                (None, b'"' | b'\'') => self.quote = Some(*byte),
                (Some(quote), byte) if byte == quote => self.quote = None,
                _ => {}
            }
            if *byte == b'>' && self.quote.is_none() {
                let tag = std::mem::take(&mut self.tag);
                match std::str::from_utf8(&tag) {
                    Ok(text) => out.extend_from_slice(rewrite_tag(text, &self.place).as_bytes()),
                    Err(_) => out.extend_from_slice(&tag),
                }
            } else if self.tag.len() >= LONGEST_TAG {
                out.append(&mut self.tag);
                self.quote = None;
            }
        }
        out.into()
    }
}

fn rewrite_tag(tag: &str, place: &ProxyRoot) -> String {
    let inner = tag.trim_start_matches('<');
    let name = inner.split(|c: char| c.is_whitespace() || c == '>' || c == '/').next().unwrap_or_default();
    let Some((_, attributes)) = LINKS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)) else {
        return tag.to_owned();
    };
    let mut out = String::with_capacity(tag.len() + place.prefix.len());
    let mut rest = tag;
    while let Some(at) = rest.find('=') {
        let (before, after) = rest.split_at(at + 1);
        let key = before[..at].trim_end().rsplit(char::is_whitespace).next().unwrap_or_default();
        out.push_str(before);
        let blank = after.len() - after.trim_start().len();
        out.push_str(&after[..blank]);
        let after = &after[blank..];
        let quote = after.chars().next().filter(|c| matches!(c, '"' | '\''));
        let start = usize::from(quote.is_some());
        let end = match quote {
            Some(quote) => after[start..].find(quote).map(|at| at + start),
            None => after.find(|c: char| c.is_whitespace() || c == '>'),
        };
        let end = end.unwrap_or(after.len());
        out.push_str(&after[..start]);
        let value = &after[start..end];
        let is_link = attributes.iter().any(|known| known.eq_ignore_ascii_case(key));
        match place.rewrite(value).filter(|_| is_link) {
            Some(new) => out.push_str(&new),
            None => out.push_str(value),
        }
        let past = (end + start).min(after.len());
        out.push_str(&after[end..past]);
        rest = &after[past..];
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> ProxyRoot {
        ProxyRoot { prefix: "/p/proxy".into(), hosts: vec!["10.0.0.1:80".into(), "api:6443".into()] }
    }

    #[test]
    fn links_to_the_root_lead_through_the_proxy() {
        for (page, want) in [
            (r#"<a href="/x">t</a>"#, r#"<a href="/p/proxy/x">t</a>"#),
            (r#"<A class=b HREF='/x?a=b'>"#, r#"<A class=b HREF='/p/proxy/x?a=b'>"#),
            ("<img src=/i.png>", "<img src=/p/proxy/i.png>"),
            (r#"<a href = "/x" title="/y">"#, r#"<a href = "/p/proxy/x" title="/y">"#),
            (
                r#"<a href="x"> <a href="//o/x"> <a href="https://o/x">"#,
                r#"<a href="x"> <a href="//o/x"> <a href="https://o/x">"#,
            ),
            (r#"<a href="http://10.0.0.1:80/x">"#, r#"<a href="/p/proxy/x">"#),
            (r#"<a href="/p/proxy/x">"#, r#"<a href="/p/proxy/x">"#),
            (r#"<p href="/x"> 1 < 2 <"#, r#"<p href="/x"> 1 < 2 <"#),
            (r#"<a title="a>b" href="/é">"#, r#"<a title="a>b" href="/p/proxy/é">"#),
        ] {
            // Whole, and byte by byte as it may come from the network.
            for size in [page.len(), 1] {
                let mut rewriter = Page::new(place());
                let mut got = Vec::new();
                for chunk in page.as_bytes().chunks(size) {
                    got.extend_from_slice(&rewriter.take(chunk));
                }
                got.extend_from_slice(&rewriter.tag);
                assert_eq!(String::from_utf8_lossy(&got), want);
            }
        }
    }

    /// What a pod sends costs the same for every byte, though no tag ends: each `>` once looked at its whole tag again.
    #[test]
    fn a_tag_that_does_not_end_costs_no_more_than_its_bytes() {
        let endless = format!("<a title=\"{}", ">".repeat(LONGEST_TAG - 10)).repeat(256);
        let mut rewriter = Page::new(place());
        let mut got = rewriter.take(endless.as_bytes()).to_vec();
        assert!(rewriter.tag.is_empty() && got == endless.as_bytes());
        // A tag behind one that was let through begins outside of quotes.
        got = rewriter.take(b"<a title='>' href='/x'>").to_vec();
        assert_eq!(String::from_utf8_lossy(&got), "<a title='>' href='/p/proxy/x'>");
    }

    #[test]
    fn redirects_are_followed_through_the_proxy() {
        for (location, want) in
            [("/x", "/p/proxy/x"), ("https://o/x", "https://o/x"), ("http://api:6443/x", "/p/proxy/x")]
        {
            let answer = Response::builder()
                .header("location", location)
                .body(crate::response::answer::full(""))
                .expect("an answer");
            assert_eq!(rewritten(answer, place()).headers()["location"], want);
        }
    }
}
