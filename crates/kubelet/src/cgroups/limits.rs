//! Limits as files of a control group, of either version.

use std::fs;
use std::path::Path;

use super::{Amounts, ControlGroups};

/// A file of a group, and what is written to it.
pub(super) struct Entry {
    pub(super) controller: &'static str,
    pub(super) file: &'static str,
    pub(super) value: String,
}

pub(super) fn entry(controller: &'static str, file: &'static str, value: impl ToString) -> Entry {
    Entry { controller, file, value: value.to_string() }
}

impl ControlGroups {
    pub(super) fn shares(&self, shares: i64) -> Entry {
        if self.unified {
            // The older scale, 2 to 262144, onto the newer, 1 to 10000.
            return entry("cpu", "cpu.weight", 1 + (shares - 2) * 9999 / 262_142);
        }
        entry("cpu", "cpu.shares", shares)
    }

    pub(super) fn memory(&self, bytes: Option<i64>) -> Entry {
        if self.unified {
            return entry("memory", "memory.max", bytes.map_or_else(|| "max".to_owned(), |bytes| bytes.to_string()));
        }
        entry("memory", "memory.limit_in_bytes", bytes.unwrap_or(-1))
    }

    pub(super) fn processes_at_most(&self, limit: Option<u64>) -> Entry {
        entry("pids", "pids.max", limit.map_or_else(|| "max".to_owned(), |limit| limit.to_string()))
    }

    /// In version 1, a quota may not be more than a second, and a group may not have more of a period than the group above it:
    /// whatever there was is taken away first.
    pub(super) fn quota(&self, group: &Path, amounts: &Amounts) -> Vec<Entry> {
        if self.unified {
            let quota = amounts.quota.map_or_else(|| "max".to_owned(), |quota| quota.to_string());
            return vec![entry("cpu", "cpu.max", format!("{quota} {}", amounts.period))];
        }
        let file = self.folder("cpu", group).join("cpu.cfs_period_us");
        let is_kept = fs::read_to_string(file).is_ok_and(|period| period.trim() == amounts.period.to_string());
        let mut entries = Vec::new();
        if !is_kept {
            entries.push(entry("cpu", "cpu.cfs_quota_us", -1));
            entries.push(entry("cpu", "cpu.cfs_period_us", amounts.period));
        }
        entries.push(entry("cpu", "cpu.cfs_quota_us", amounts.quota.unwrap_or(-1)));
        entries
    }
}
