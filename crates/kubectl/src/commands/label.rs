//! `kubectl label`.

use super::marks::{self, Words};
use super::{Command, leaf};

pub const COMMAND: Command = leaf(
    "label",
    "[--overwrite] (-f FILENAME | TYPE NAME) KEY_1=VAL_1 ... KEY_N=VAL_N [--resource-version=version]",
    "Update the labels on a resource",
    || marks::flags("kubectl-label"),
    |c| Box::pin(marks::run(c, &WORDS)),
);

const WORDS: Words = Words {
    field: "labels",
    one: "label",
    done: "labeled",
    undone: "unlabeled",
    modified: "modified",
    not_done: "not labeled",
};
