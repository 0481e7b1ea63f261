//! The controllers through the API: a whole control plane in this process, with simulated nodes.
//!
//! One program for all of them: each is linked with everything that a control plane consists of.

#![expect(clippy::disallowed_methods, reason = "what is compared with the machine's clock is made by it")]
#![expect(clippy::unwrap_used, reason = "tests: a missing value is a failure")]

mod allocation;
mod authorizers;
mod autoscaling;
mod autoscaling_corners;
mod bad_input;
mod batch;
mod certificates;
mod cleaners;
mod cloud;
mod deletion;
mod devices;
mod endpoints;
mod faults;
mod flight;
mod identities;
mod jobs;
mod lag;
mod leaders;
mod legacy_tokens;
mod local_path;
mod migration;
mod nodes;
mod others;
mod policies;
mod rollout;
mod selinux;
mod service_ranges;
mod sets;
mod storage;
mod succession;
mod supervision;
mod tls;
mod wakeups;
mod workloads;
