//! Why an apply is refused: fields that others own with other values, and the answer that lists them.

use ferry_meta::error::{StatusCause, StatusDetails};
use ferry_meta::{ApiError, Reason};

use super::set::{Element, path_text};

/// Why an apply was refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ApplyError {
    #[error("{0}")]
    BadRequest(String),
    #[error("{}", .0.message())]
    Conflicts(Conflicts),
    /// What upstream answers with a bare 500.
    #[error("{0}")]
    Internal(String),
}

/// Fields that others own with other values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conflicts(pub(super) Vec<Conflict>);

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Conflict {
    pub(super) manager: String,
    pub(super) path: Vec<Element>,
}

impl Conflicts {
    fn message(&self) -> String {
        if let [one] = self.0.as_slice() {
            return format!("Apply failed with 1 conflict: conflict with {}: {}", one.manager, path_text(&one.path));
        }
        let mut lines = Vec::new();
        let mut before = None;
        for conflict in &self.0 {
            if before.replace(&conflict.manager) != Some(&conflict.manager) {
                lines.push(format!("conflicts with {}:", conflict.manager));
            }
            lines.push(format!("- {}", path_text(&conflict.path)));
        }
        format!("Apply failed with {} conflicts: {}", self.0.len(), lines.join("\n"))
    }
}

impl From<ApplyError> for ApiError {
    fn from(error: ApplyError) -> Self {
        match error {
            ApplyError::BadRequest(message) => Self::bad_request(message),
            ApplyError::Internal(message) => Self::new(500, Reason::Unknown, message),
            ApplyError::Conflicts(conflicts) => {
                let cause = |conflict: &Conflict| StatusCause {
                    reason: "FieldManagerConflict".to_owned(),
                    message: format!("conflict with {}", conflict.manager),
                    field: path_text(&conflict.path),
                };
                let causes = conflicts.0.iter().map(cause).collect();
                Self::new(409, Reason::Conflict, conflicts.message())
                    .with_details(StatusDetails { causes, ..StatusDetails::default() })
            }
        }
    }
}
