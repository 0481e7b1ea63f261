//! Why an apply is refused: fields that others own with other values, and the answer that lists them.

use ferry_meta::error::{StatusCause, StatusDetails};
use ferry_meta::{ApiError, Reason};

use super::set::Set;

/// Why an apply was refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ApplyError {
    #[error("{0}")]
    BadRequest(String),
    #[error("{}", .0.message())]
    Conflicts(Conflicts),
    /// The object would take too much memory.
    #[error("{0}")]
    TooLarge(String),
    /// What upstream answers with a bare 500.
    #[error("{0}")]
    Internal(String),
}

/// As many fields are listed, and as many bytes of their paths.
const MOST_LISTED: usize = 1000;
const MOST_BYTES: usize = 128 << 10;

/// Fields that others own with other values, by manager.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conflicts(pub(super) Vec<Conflict>);

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Conflict {
    pub(super) manager: String,
    pub(super) fields: Set,
}

impl Conflicts {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those that are not about these fields.
    pub(super) fn without(&self, fields: &Set) -> Self {
        let rest = self
            .0
            .iter()
            .map(|conflict| Conflict { manager: conflict.manager.clone(), fields: conflict.fields.difference(fields) });
        Self(rest.filter(|conflict| !conflict.fields.is_empty()).collect())
    }

    /// Managers and paths, as many as are listed.
    fn listed(&self) -> Vec<(&str, String)> {
        let mut left = MOST_BYTES;
        let mut listed = Vec::new();
        for conflict in &self.0 {
            conflict.fields.visit(&mut |path| {
                let room = left.checked_sub(path.len() + conflict.manager.len());
                left = room.unwrap_or_default();
                if listed.len() >= MOST_LISTED || room.is_none() {
                    return false;
                }
                listed.push((&*conflict.manager, path.to_owned()));
                true
            });
        }
        listed
    }

    fn message(&self) -> String {
        let listed = self.listed();
        let count: usize = self.0.iter().map(|conflict| conflict.fields.count()).sum();
        if let ([(manager, path)], 1) = (listed.as_slice(), count) {
            return format!("Apply failed with 1 conflict: conflict with {manager}: {path}");
        }
        let mut lines = Vec::new();
        let mut before = None;
        for (manager, path) in &listed {
            if before.replace(manager) != Some(manager) {
                lines.push(format!("conflicts with {manager}:"));
            }
            lines.push(format!("- {path}"));
        }
        if listed.len() < count {
            lines.push(format!("and {} more", count - listed.len()));
        }
        format!("Apply failed with {count} conflicts: {}", lines.join("\n"))
    }
}

impl From<ApplyError> for ApiError {
    fn from(error: ApplyError) -> Self {
        match error {
            ApplyError::BadRequest(message) => Self::bad_request(message),
            ApplyError::TooLarge(message) => Self::too_large(message),
            ApplyError::Internal(message) => Self::new(500, Reason::Unknown, message),
            ApplyError::Conflicts(conflicts) => {
                let cause = |(manager, path): (&str, String)| StatusCause {
                    reason: "FieldManagerConflict".to_owned(),
                    message: format!("conflict with {manager}"),
                    field: path,
                };
                let causes = conflicts.listed().into_iter().map(cause).collect();
                Self::new(409, Reason::Conflict, conflicts.message())
                    .with_details(StatusDetails { causes, ..StatusDetails::default() })
            }
        }
    }
}
