//! What happened to an object, and why it is not (yet) what it should be: `ferry trace` and `ferry why`.
//!
//! Client side: talks to the API and nothing else, to upstream's as well. Where the server has a flight recorder
//! (`/debug/flight`) and the scheduler's verdicts (`/debug/verdicts`) they are used; objects and Events are enough.
//!
//! Where to look: what is fetched → `gather.rs`, into a [`World`]; each cause → one small pure function in `why/`; the hops
//! of an object → `trace/`, pure too. Adding a cause: a function from the world and an object to a [`why::Finding`], its place
//! in the list of its file, and a row in that file's table of tests.

mod cluster;
pub mod connection;
mod gather;
mod kept;
mod log;
mod named;
mod nodes;
mod resolve;
mod servers;
mod surroundings;
pub mod trace;
pub mod why;
mod world;

pub use cluster::{Cluster, Error};
pub use resolve::Resource;
pub use world::World;
