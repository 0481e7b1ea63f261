//! Container logs: the files the runtime writes, read and rotated here.

pub(crate) mod line;
