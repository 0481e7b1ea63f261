//! What an error of etcd's says about the request: whether it may have been done, and whether waiting helps.

use tonic::{Code, Status};

use super::api::was_not_sent;
use super::convert::failed;
use crate::StoreError;

/// Why a member gave no answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// Nothing was done, and this member will not do it: another may.
    Elsewhere,
    /// Nothing was done, and the same request may be done in a moment: a leader is being elected, or there is much to do.
    Passing,
    /// It may have been done. The member is there, and knows more in a moment.
    Interrupted,
    /// It may have been done: the connection broke.
    Broken,
    /// Nothing was done, and nothing will be.
    Refused,
}

impl Failure {
    /// etcd tells its errors apart by their text. A text that is not known is taken for one after which all is open.
    pub(super) fn of(status: &Status) -> Self {
        let says = |texts: &[&str]| texts.iter().any(|text| status.message().contains(text));
        if was_not_sent(status) || says(&["not supported for learner", "etcdserver: not capable"]) {
            Self::Elsewhere
        } else if says(&["etcdserver: no leader", "raft proposal dropped", "etcdserver: too many requests"]) {
            Self::Passing
        } else if says(&["etcdserver: leader changed", "etcdserver: request timed out", "etcdserver: server stopped"]) {
            Self::Interrupted
        } else if says(&["etcdserver: "]) || !is_open(status.code()) {
            Self::Refused
        } else {
            Self::Broken
        }
    }

    pub(super) fn waits(self) -> bool {
        matches!(self, Self::Passing | Self::Interrupted)
    }

    pub(super) fn may_be_done(self) -> bool {
        matches!(self, Self::Interrupted | Self::Broken)
    }
}

/// Codes that a broken connection or an end of patience has.
fn is_open(code: Code) -> bool {
    matches!(
        code,
        Code::Unavailable | Code::Cancelled | Code::DeadlineExceeded | Code::Unknown | Code::Internal | Code::Aborted
    )
}

/// What a request failed with, and whether it may succeed in a moment.
#[derive(Clone, Debug)]
pub(super) struct Failed {
    pub(super) error: StoreError,
    pub(super) waits: bool,
}

impl Failed {
    pub(super) fn of(status: &Status) -> Self {
        Self { error: failed(status), waits: Failure::of(status).waits() }
    }
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        Self { error, waits: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_have_been_done_is_told_apart_from_what_was_not() {
        for (code, text, expected) in [
            (Code::Unavailable, "etcdserver: no leader", Failure::Passing),
            (Code::Unknown, "raft proposal dropped", Failure::Passing),
            (Code::ResourceExhausted, "etcdserver: too many requests", Failure::Passing),
            (Code::Unavailable, "etcdserver: leader changed", Failure::Interrupted),
            (Code::Unavailable, "etcdserver: request timed out", Failure::Interrupted),
            (
                Code::Unavailable,
                "etcdserver: request timed out, possibly due to previous leader failure",
                Failure::Interrupted,
            ),
            (Code::Unavailable, "etcdserver: server stopped", Failure::Interrupted),
            (Code::Unavailable, "etcdserver: rpc not supported for learner", Failure::Elsewhere),
            (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded", Failure::Refused),
            (Code::Unavailable, "etcdserver: unhealthy cluster", Failure::Refused),
            (Code::DataLoss, "etcdserver: corrupt cluster", Failure::Refused),
            (Code::NotFound, "etcdserver: requested lease not found", Failure::Refused),
            (Code::PermissionDenied, "permission denied", Failure::Refused),
            (Code::Unknown, "h2 protocol error: http2 error", Failure::Broken),
            (Code::Unavailable, "error reading a body from connection", Failure::Broken),
            (Code::DeadlineExceeded, "context deadline exceeded", Failure::Broken),
        ] {
            assert_eq!(Failure::of(&Status::new(code, text)), expected, "{text}");
        }
    }
}
