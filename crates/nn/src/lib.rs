//! **Pullback's networks**: layers, losses, optimisers, schedules, data, checkpoints and a training
//! loop.
//!
//! A module is a struct with `#[derive(Tree)]`: its tensors are its parameters, named by its
//! fields, and those of a field under `#[tree(buffer)]` are its buffers. [`Module`] adds the
//! methods.
#![forbid(unsafe_code)]

#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/start.md")]
struct Start;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/training.md")]
struct Training;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/precision.md")]
struct MixedPrecision;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/memory.md")]
struct WithinMemory;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/devices.md")]
struct Devices;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/workers.md")]
struct ManyWorkers;

pub mod data;
pub mod distributions;
mod functional;
pub mod init;
mod layer;
mod layers;
pub mod losses;
mod memory;
pub mod models;
mod module;
mod module_scope;
pub mod optim;
pub mod parallel;
pub mod precision;
pub mod prelude;
mod refuse;
pub mod schedule;
pub mod state;
mod summary;
pub mod train;

pub use functional::functional_call;
pub use layer::Layer;
pub use layers::*;
pub use memory::{memory_report, predict_memory, record};
pub use module::Module;
pub use module_scope::{ModuleScope, module_scope};
pub use summary::Summary;
