//! The files of the pages, and the headers they are served with.

use std::io::Write;
use std::sync::{LazyLock, OnceLock};

use bytes::Bytes;
use http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, HeaderName, IF_NONE_MATCH, LOCATION, VARY,
};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use sha2::Digest;

use crate::ROOT;

/// No script, style or picture but those of this server, none of them inline, and no text that becomes markup: the last
/// two make `innerHTML` and its like throw.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

const HEADERS: &[(&str, &str)] = &[
    ("content-security-policy", POLICY),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("permissions-policy", "camera=(), geolocation=(), microphone=()"),
];

struct Asset {
    name: &'static str,
    bytes: &'static [u8],
    served: OnceLock<Served>,
}

/// What is made of a file when somebody asks for it first.
struct Served {
    compressed: Bytes,
    tag: String,
}

macro_rules! assets {
    ($($name:literal),* $(,)?) => {
        static ASSETS: LazyLock<Vec<Asset>> = LazyLock::new(|| vec![$(Asset {
            name: $name,
            bytes: include_bytes!(concat!("../web/", $name)),
            served: OnceLock::new(),
        }),*]);
    };
}

assets!(
    "api.js",
    "apply.js",
    "details.js",
    "diff.js",
    "dom.js",
    "fall.js",
    "hints.js",
    "hops.js",
    "index.html",
    "learn.js",
    "list.js",
    "logs.js",
    "main.js",
    "map.js",
    "mark.svg",
    "palette.js",
    "style.css",
    "terminal.js",
    "time.js",
);

impl Asset {
    fn find(path: &str) -> Option<&'static Self> {
        let name = path.strip_prefix(ROOT)?;
        let name = if name.is_empty() { "index.html" } else { name };
        ASSETS.iter().find(|asset| asset.name == name)
    }

    fn served(&self) -> &Served {
        self.served.get_or_init(|| {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
            // Into memory: it cannot fail. What would come of it is a file that is larger.
            let compressed = encoder.write_all(self.bytes).and_then(|()| encoder.finish()).unwrap_or_default();
            let sum = sha2::Sha256::digest(self.bytes);
            let tag: String = sum.iter().take(12).map(|byte| format!("{byte:02x}")).collect();
            Served { compressed: compressed.into(), tag: format!("\"{tag}\"") }
        })
    }

    fn content_type(&self) -> &'static str {
        match self.name.rsplit_once('.').map(|(_, end)| end) {
            Some("html") => "text/html; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            Some("js") => "text/javascript; charset=utf-8",
            Some("svg") => "image/svg+xml",
            _ => "application/octet-stream",
        }
    }
}

/// The answer where the path is one of a file: the same to everybody, before anybody is asked who they are.
pub fn respond(method: &Method, path: &str, headers: &HeaderMap) -> Option<Response<Bytes>> {
    if !matches!(*method, Method::GET | Method::HEAD) {
        return None;
    }
    if path == ROOT.trim_end_matches('/') {
        let mut response = Response::new(Bytes::new());
        *response.status_mut() = StatusCode::PERMANENT_REDIRECT;
        response.headers_mut().insert(LOCATION, HeaderValue::from_static(ROOT));
        return Some(response);
    }
    let asset = Asset::find(path)?;
    let served = asset.served();
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let unchanged = text(IF_NONE_MATCH).split(',').any(|tag| tag.trim().trim_start_matches("W/") == served.tag);
    let gzip = !served.compressed.is_empty() && accepts_gzip(text(ACCEPT_ENCODING));
    let body = match (unchanged, gzip) {
        (true, _) => Bytes::new(),
        (false, true) => served.compressed.clone(),
        (false, false) => Bytes::from_static(asset.bytes),
    };
    let mut response = Response::new(if method == Method::HEAD { Bytes::new() } else { body });
    if unchanged {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let answer = response.headers_mut();
    for (name, value) in HEADERS {
        answer.insert(*name, HeaderValue::from_static(value));
    }
    // Asked for each time: a new server brings new pages.
    answer.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    answer.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    answer.insert(CONTENT_TYPE, HeaderValue::from_static(asset.content_type()));
    if let Ok(tag) = HeaderValue::from_str(&served.tag) {
        answer.insert(ETAG, tag);
    }
    if gzip && !unchanged {
        answer.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    Some(response)
}

fn accepts_gzip(accepted: &str) -> bool {
    accepted.split(',').any(|one| {
        let (name, quality) = one.split_once(';').unwrap_or((one, ""));
        matches!(name.trim(), "gzip" | "*") && !matches!(quality.trim(), "q=0" | "q=0.0" | "q=0.00" | "q=0.000")
    })
}

/// What all files take on the wire.
pub fn compressed_size() -> usize {
    ASSETS.iter().map(|asset| asset.served().compressed.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(path: &str, headers: &[(HeaderName, &str)]) -> Option<Response<Bytes>> {
        let headers = headers.iter().map(|(name, value)| (name.clone(), value.parse().expect("a header"))).collect();
        respond(&Method::GET, path, &headers)
    }

    #[test]
    fn every_file_of_the_folder_is_served_and_no_other() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("web");
        let mut names: Vec<String> = std::fs::read_dir(folder)
            .expect("the folder")
            .map(|entry| entry.expect("a file").file_name().into_string().expect("a name"))
            .collect();
        names.sort();
        let mut known: Vec<&str> = ASSETS.iter().map(|asset| asset.name).collect();
        known.sort_unstable();
        assert_eq!(names, known);
        for path in ["/console/none.js", "/console/../Cargo.toml", "/consoles/", "/console/session", "/"] {
            assert!(get(path, &[]).is_none(), "{path}");
        }
        assert!(respond(&Method::POST, "/console/", &HeaderMap::new()).is_none());
        assert_eq!(get("/console", &[]).expect("a redirection").headers()[LOCATION], "/console/");
    }

    #[test]
    fn files_come_with_a_strict_policy_compressed_and_once() {
        let page = get("/console/", &[(ACCEPT_ENCODING, "br, gzip")]).expect("the page");
        let headers = page.headers();
        let policy = headers["content-security-policy"].to_str().expect("text");
        for part in ["default-src 'none'", "frame-ancestors 'none'", "script-src 'self';", "style-src 'self';"] {
            assert!(policy.contains(part), "{part}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(
            (&headers["x-content-type-options"], &headers[CONTENT_ENCODING]),
            (&"nosniff".parse().expect("a value"), &"gzip".parse().expect("a value"))
        );
        let tag = headers[ETAG].to_str().expect("text").to_owned();
        let again = get("/console/", &[(IF_NONE_MATCH, &tag)]).expect("the page");
        assert_eq!((again.status().as_u16(), again.body().len()), (304, 0));
        assert_eq!(
            get("/console/", &[(ACCEPT_ENCODING, "gzip;q=0")]).expect("the page").headers().get(CONTENT_ENCODING),
            None
        );
    }

    #[test]
    fn all_of_it_is_small() {
        let size = compressed_size();
        assert!(size > 0 && size < 250 << 10, "{size} bytes");
    }

    /// What the policy would refuse is not there to begin with, nor is anything that turns text into markup.
    #[test]
    fn nothing_is_inline_nothing_from_elsewhere_and_no_text_is_markup() {
        for asset in ASSETS.iter() {
            let text = std::str::from_utf8(asset.bytes).expect("text");
            for banned in
                ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "srcdoc"]
            {
                assert!(!text.contains(banned), "{}: {banned}", asset.name);
            }
            for outside in ["src=\"http", "href=\"http", "@import", "url(http", "from \"http"] {
                assert!(!text.contains(outside), "{}: {outside}", asset.name);
            }
            if asset.name.ends_with(".html") {
                assert!(
                    !text.contains("style=") && !text.contains("onclick=") && !text.contains("<style"),
                    "{}",
                    asset.name
                );
            }
        }
    }
}
