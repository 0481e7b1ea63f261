//! Between etcd's words and the store's.

use std::sync::Arc;

use bytes::Bytes;
use etcd_client::{KeyValue, ResponseHeader};

use crate::types::{Entry, Revision};
use crate::{Result, StoreError, key};

pub(super) fn number(value: u64) -> Result<i64> {
    i64::try_from(value).map_err(|_| StoreError::Future { requested: value, newest: 0 })
}

pub(super) fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

pub(super) fn revision_of(header: Option<&ResponseHeader>) -> Revision {
    header.map_or(0, |header| unsigned(header.revision()))
}

pub(super) fn entry(kv: KeyValue) -> Result<Entry> {
    let (created, modified, lease) = (unsigned(kv.create_revision()), unsigned(kv.mod_revision()), kv.lease());
    let (key, value) = kv.into_key_value();
    let key = String::from_utf8(key)
        .map_err(|error| StoreError::Corrupt(format!("a key in etcd is not text: {:?}", error.as_bytes())))?;
    Ok(Entry {
        key: Arc::from(key),
        value: Bytes::from(value),
        created,
        modified,
        lease: (lease != 0).then_some(lease),
    })
}

/// The first key behind all that have the prefix.
pub(super) fn prefix_end(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    // A prefix is UTF-8, so no byte of it is 0xff.
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

/// etcd tells its errors apart by their text; numbers are filled in by whoever knows them.
pub(super) fn failed(error: &etcd_client::Error) -> StoreError {
    let etcd_client::Error::GRpcStatus(status) = error else {
        return StoreError::Unavailable(format!("etcd: {error}"));
    };
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
        StoreError::Unavailable(format!("etcd: {message}"))
    }
}
