//! What exec, attach and port-forward are carried by: SPDY/3.1 streams, and the channels of a WebSocket.
//!
//! The kubelet speaks it as a client of the runtime and passes it on, the embedded runtime serves it. Frames and numbers only: what
//! they mean to a command is the business of those two. Must not depend on any other crate of Ferry.

pub mod channel;
pub mod spdy;
