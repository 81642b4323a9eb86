//! Layers, losses and what modules can do. Each file is a module; those that need a process of their own are tests of their own.

mod absurd_sizes;
mod hooks;
mod loss_shapes;
mod losses;
mod sequence;
mod transforms_of_modules;
