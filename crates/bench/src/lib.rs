//! The benchmark program as a library: `pullback-bench` and `pullback bench` are both a front to
//! it.
//!
//! Each workload runs in a process of its own, so that its peak of memory is measured alone.
//! `compare`, in the folder of this crate, compares the figures with those of other systems.
#![forbid(unsafe_code)]

mod compiled;
mod data;
mod measure;
mod report;
mod request;
mod workloads;

pub use request::{Request, run, run_words, runs_after};

/// The names of the workloads and what they time, in the order in which they run.
pub fn workloads() -> impl Iterator<Item = (&'static str, &'static str)> {
    workloads::ALL.iter().map(|workload| (workload.name, workload.about))
}
