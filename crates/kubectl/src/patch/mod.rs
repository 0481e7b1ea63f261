//! What a client-side apply sends: what the file changed against the server, and what it no longer has of what was
//! applied before. Lists of built-in kinds are merged by their keys.

mod merge;
mod strategic;

pub use merge::{three_way as merge_three_way, two_way as merge_two_way};
pub use strategic::{three_way as strategic_three_way, two_way as strategic_two_way};
