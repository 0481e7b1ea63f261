//! One file per command.

pub mod apiserver;
pub mod completion;
pub mod controller_manager;
pub mod down;
pub mod object;
pub mod run;
pub mod scheduler;
pub mod secrets;
pub mod simulate;
pub mod store;
pub mod trace;
pub mod up;
pub mod why;
