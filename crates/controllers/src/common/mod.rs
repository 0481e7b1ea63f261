//! What several controllers share: pods' states, selectors, claiming, creating pods from templates, percentages.

pub(crate) mod backoff;
pub(crate) mod claim;
pub(crate) mod conditions;
pub(crate) mod disruption;
pub(crate) mod endpoint;
pub(crate) mod history;
pub(crate) mod number;
pub(crate) mod pod;
pub(crate) mod pod_control;
pub(crate) mod selector;
pub(crate) mod template;
pub(crate) mod throttle;
pub(crate) mod trigger_time;
