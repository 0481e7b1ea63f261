//! Between etcd's words and the store's.

use std::sync::Arc;

use bytes::Bytes;
use tonic::Status;

use super::api::describe;
use super::api::rpc::{KeyValue, ResponseHeader};
use crate::types::{Entry, Revision};
use crate::{Result, StoreError, key};

pub(super) fn number(value: u64) -> Result<i64> {
    i64::try_from(value).map_err(|_| StoreError::Future { requested: value, newest: 0 })
}

pub(super) fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

pub(super) fn revision_of(header: Option<&ResponseHeader>) -> Revision {
    header.map_or(0, |header| unsigned(header.revision))
}

/// Where in etcd the keys of `/registry/` lie: several clusters may share one etcd.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// With a slash at both ends.
    root: Arc<str>,
}

impl Layout {
    /// Slashes at the ends and doubled ones make no difference, as upstream.
    pub(super) fn new(prefix: &str) -> Result<Self> {
        let parts: Vec<&str> = prefix.split('/').filter(|part| !part.is_empty()).collect();
        let root = format!("/{}/", parts.join("/"));
        if parts.is_empty() || parts.iter().any(|part| *part == "." || *part == "..") || root.len() > key::MAX_KEY {
            let why = "a prefix in etcd is a path such as /registry";
            return Err(StoreError::InvalidKey { key: prefix.chars().take(256).collect(), why });
        }
        Ok(Self { root: root.into() })
    }

    /// Whether a key of etcd's is one of this cluster's.
    pub(super) fn holds(&self, key: &[u8]) -> bool {
        key.starts_with(self.root.as_bytes())
    }

    pub(super) fn outward(&self, key: &str) -> Vec<u8> {
        match key.strip_prefix(key::ROOT) {
            Some(rest) if &*self.root != key::ROOT => [self.root.as_bytes(), rest.as_bytes()].concat(),
            _ => key.as_bytes().to_vec(),
        }
    }

    pub(super) fn entry(&self, kv: KeyValue) -> Result<Entry> {
        let key = std::str::from_utf8(&kv.key).map_err(|_| {
            StoreError::Corrupt(format!("a key in etcd is not text: {:?}", String::from_utf8_lossy(&kv.key)))
        })?;
        let key = match key.strip_prefix(&*self.root) {
            Some(rest) if &*self.root != key::ROOT => Arc::from(format!("{}{rest}", key::ROOT)),
            _ => Arc::from(key),
        };
        Ok(Entry {
            key,
            value: Bytes::from(kv.value),
            created: unsigned(kv.create_revision),
            modified: unsigned(kv.mod_revision),
            lease: (kv.lease != 0).then_some(kv.lease),
        })
    }
}

/// The first key behind all that have the prefix.
pub(super) fn prefix_end(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    // A prefix is UTF-8, so no byte of it is 0xff.
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

/// etcd tells its errors apart by their text; numbers are filled in by whoever knows them.
pub(super) fn failed(status: &Status) -> StoreError {
    let message = status.message();
    if message.contains("required revision has been compacted") {
        StoreError::Compacted { requested: 0, oldest: 0 }
    } else if message.contains("required revision is a future revision") {
        StoreError::Future { requested: 0, newest: 0 }
    } else if message.contains("requested lease not found") {
        StoreError::UnknownLease(0)
    } else if message.contains("too large lease TTL") {
        StoreError::InvalidLease(message.to_owned())
    } else if message.contains("request is too large") || message.contains("larger than max") {
        StoreError::TooLarge { key: String::new(), size: 0, max: key::MAX_VALUE }
    } else {
        StoreError::Unavailable(format!("etcd: {}", describe(status)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_moves_the_whole_layout() {
        for (prefix, key) in [
            ("/registry", "/registry/pods/a/b"),
            ("registry/", "/registry/pods/a/b"),
            ("/clusters//one", "/clusters/one/pods/a/b"),
        ] {
            let layout = Layout::new(prefix).expect(prefix);
            assert_eq!(layout.outward("/registry/pods/a/b"), key.as_bytes(), "{prefix}");
        }
        for prefix in ["", "/", "//", "/a/../b"] {
            assert!(matches!(Layout::new(prefix), Err(StoreError::InvalidKey { .. })), "{prefix}");
        }
    }
}
