//! **Pullback's networks**: layers, losses, optimisers, schedules, data, checkpoints and a training loop.
//!
//! A module is a struct with `#[derive(Tree)]`: its tensors are its parameters, named by its fields, and those of a field under
//! `#[tree(buffer)]` are its buffers. [`Module`] adds what people expect of one.
#![forbid(unsafe_code)]

pub mod data;
mod layer;
mod layers;
pub mod losses;
mod module;
pub mod optim;
pub mod schedule;
pub mod state;
pub mod train;

pub use layer::Layer;
#[allow(unused_imports)]
pub use layers::*;
pub use module::Module;
