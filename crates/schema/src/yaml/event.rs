//! What a document is made of, in the order of its text.

use std::rc::Rc;

/// Where YAML's own tags begin.
pub(super) const TAG_PREFIX: &str = "tag:yaml.org,2002:";

/// What a tag says a scalar is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Tag {
    /// One of YAML's own, by its short name: `int`. Shared: aliases go through it again and again, however long it is.
    Core(Rc<str>),
    Other,
}

#[derive(Debug)]
pub(super) enum Event {
    Scalar { text: String, plain: bool, tag: Option<Tag>, anchor: Option<String> },
    List { anchor: Option<String> },
    Map { anchor: Option<String> },
    End,
    Alias(String),
}

impl Tag {
    pub(super) fn of(tag: &str) -> Self {
        tag.strip_prefix(TAG_PREFIX).map_or(Self::Other, |name| Self::Core(name.into()))
    }

    /// How many bytes it takes.
    pub(super) fn len(&self) -> usize {
        if let Self::Core(name) = self { name.len() } else { 0 }
    }
}
