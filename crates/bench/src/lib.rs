//! The benchmark program as a library: `pullback-bench` and `pullback bench` are both a front to
//! it.
//!
//! Each workload runs in a process of its own, so that its peak of memory is measured alone.
//! `compare`, in the folder of this crate, compares the figures with those of other systems.
#![forbid(unsafe_code)]

mod compiled;
mod data;
mod limits;
mod measure;
mod profiled;
mod quick;
mod report;
mod request;
mod sweep;
mod workloads;

use pullback::Device;

pub use request::{Request, run, run_words, runs_after};

/// The names of all workloads and what they time, in the order in which they run.
pub fn workloads() -> impl Iterator<Item = (&'static str, &'static str)> {
    workloads::every().map(|workload| (workload.name, workload.about))
}

/// Those that run where none is named: on a GPU, the workloads of the peers' scripts for GPUs.
pub fn workloads_on(device: Device) -> impl Iterator<Item = (&'static str, &'static str)> {
    workloads::of(device).map(|workload| (workload.name, workload.about))
}
