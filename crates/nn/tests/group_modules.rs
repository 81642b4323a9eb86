//! Layers, losses and what modules can do. Each file is a module; those that need a process of
//! their own are tests of their own.

#[allow(dead_code)] // each file uses a part of it
mod recorded;

mod absurd_sizes;
mod dictionary;
mod distribution_samples;
mod distributions;
mod hooks;
mod loss_shapes;
mod losses;
mod ownership;
mod prelude;
mod rustc_messages;
mod sequence;
mod transforms_of_modules;
