//! The fields of a head that matter to a proxy, found in one pass. Most heads have few of them, and asking for each by its
//! name takes longer than to look once at all that are there.

use http::HeaderMap;
use http::header::{HeaderName, TRAILER, TRANSFER_ENCODING};

/// What is of one connection alone and has no field of its own here.
pub const HOP_BY_HOP: [HeaderName; 5] = [
    TRANSFER_ENCODING,
    TRAILER,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("http2-settings"),
    HeaderName::from_static("proxy-connection"),
];

/// Which of them a head has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fields(u16);

impl Fields {
    pub const CONNECTION: Self = Self(1);
    pub const UPGRADE: Self = Self(1 << 1);
    pub const TE: Self = Self(1 << 2);
    /// Any of [`HOP_BY_HOP`].
    pub const HOP_BY_HOP: Self = Self(1 << 3);
    /// All that ends here.
    pub const OF_CONNECTION: Self = Self(Self::CONNECTION.0 | Self::UPGRADE.0 | Self::TE.0 | Self::HOP_BY_HOP.0);
    pub const FORWARDED_FOR: Self = Self(1 << 4);
    pub const REQUEST_ID: Self = Self(1 << 5);
    pub const PASSED: Self = Self(1 << 6);
    pub const TOKEN: Self = Self(1 << 7);
    pub const CONTENT_TYPE: Self = Self(1 << 8);

    pub fn of(headers: &HeaderMap) -> Self {
        headers.keys().fold(Self::default(), |all, name| Self(all.0 | Self::named(name.as_str()).0))
    }

    fn named(name: &str) -> Self {
        match name {
            "connection" => Self::CONNECTION,
            "upgrade" => Self::UPGRADE,
            "te" => Self::TE,
            "transfer-encoding" | "trailer" | "keep-alive" | "http2-settings" | "proxy-connection" => Self::HOP_BY_HOP,
            "x-forwarded-for" => Self::FORWARDED_FOR,
            "x-request-id" => Self::REQUEST_ID,
            "x-ferry-passed" => Self::PASSED,
            "x-ferry-trace" => Self::TOKEN,
            "content-type" => Self::CONTENT_TYPE,
            _ => Self::default(),
        }
    }

    /// Whether any of these is there.
    pub fn has(self, any: Self) -> bool {
        self.0 & any.0 != 0
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use http::header::{CONNECTION, CONTENT_TYPE, TE, UPGRADE};

    use super::*;

    #[test]
    fn every_name_that_is_asked_for_is_found() {
        let named = [
            (CONNECTION, Fields::CONNECTION),
            (UPGRADE, Fields::UPGRADE),
            (TE, Fields::TE),
            (CONTENT_TYPE, Fields::CONTENT_TYPE),
            (HeaderName::from_static(crate::trace::HEADER), Fields::TOKEN),
            (super::super::passed::HEADER, Fields::PASSED),
            (super::super::forward::FORWARDED_FOR, Fields::FORWARDED_FOR),
            (super::super::forward::REQUEST_ID, Fields::REQUEST_ID),
        ];
        for (name, field) in named.into_iter().chain(HOP_BY_HOP.map(|name| (name, Fields::HOP_BY_HOP))) {
            let headers = HeaderMap::from_iter([(name.clone(), HeaderValue::from_static("x"))]);
            assert_eq!(Fields::of(&headers), field, "{name}");
        }
        assert_eq!(Fields::of(&HeaderMap::from_iter([(http::header::HOST, HeaderValue::from_static("x"))])), Fields(0));
    }
}
