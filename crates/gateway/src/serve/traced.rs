//! W3C trace contexts: a request that belongs to a trace goes on as a child of the gateway's own span.

use http::{HeaderMap, HeaderValue};

const NAME: &str = "traceparent";

/// Where a request stands in its trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traced {
    pub trace: String,
    pub parent: String,
    pub span: String,
    flags: String,
}

impl Traced {
    /// None without a trace, and with one that cannot be read: that is passed on as it came.
    pub fn read(headers: &HeaderMap) -> Option<Self> {
        let mut all = headers.get_all(NAME).iter();
        let text = all.next()?.to_str().ok()?;
        if all.next().is_some() {
            return None;
        }
        let mut parts = text.split('-');
        let (version, trace, parent, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        // Later versions may say more after these.
        let is_whole = version != "ff" && (version != "00" || parts.next().is_none());
        let is_valid = hex(version, 2) && id(trace, 32) && id(parent, 16) && hex(flags, 2);
        (is_whole && is_valid).then(|| Self {
            trace: trace.to_owned(),
            parent: parent.to_owned(),
            span: format!("{:016x}", rand::random_range(1..u64::MAX)),
            flags: flags.to_owned(),
        })
    }

    /// What the backend is told.
    pub fn write(&self, headers: &mut HeaderMap) {
        let text = format!("00-{}-{}-{}", self.trace, self.span, self.flags);
        if let Ok(value) = HeaderValue::from_str(&text) {
            headers.insert(NAME, value);
        }
    }
}

fn hex(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn id(text: &str, length: usize) -> bool {
    hex(text, length) && text.bytes().any(|byte| byte != b'0')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_go_on_or_are_left_alone() {
        let trace = "0af7651916cd43dd8448eb211c80319c";
        for (text, want) in [
            (format!("00-{trace}-b7ad6b7169203331-01"), true),
            (format!("cc-{trace}-b7ad6b7169203331-01-more"), true),
            (format!("00-{trace}-b7ad6b7169203331-01-more"), false),
            (format!("ff-{trace}-b7ad6b7169203331-01"), false),
            (format!("00-{trace}-0000000000000000-01"), false),
            (format!("00-{}-b7ad6b7169203331-01", trace.to_uppercase()), false),
            ("00-1-2-3".to_owned(), false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(NAME, text.parse().unwrap());
            let read = Traced::read(&headers);
            assert_eq!(read.is_some(), want, "{text}");
            let Some(read) = read else { continue };
            read.write(&mut headers);
            assert_eq!(headers[NAME], format!("00-{trace}-{}-01", read.span).as_str());
            assert_ne!(read.span, read.parent);
        }
        assert_eq!(Traced::read(&HeaderMap::new()), None);
    }
}
