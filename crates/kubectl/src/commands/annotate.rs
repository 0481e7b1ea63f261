//! `kubectl annotate`.

use super::marks::{self, Words};
use super::{Command, common, leaf};

pub const COMMAND: Command = leaf(
    "annotate",
    "[--overwrite] (-f FILENAME | TYPE NAME) KEY_1=VAL_1 ... KEY_N=VAL_N [--resource-version=version]",
    "Update the annotations on a resource",
    || common::recursive(marks::flags("kubectl-annotate")),
    |c| Box::pin(marks::run(c, &WORDS)),
);

const WORDS: Words = Words {
    field: "annotations",
    one: "annotation",
    done: "annotated",
    undone: "annotated",
    modified: "annotated",
    not_done: "annotated",
};
