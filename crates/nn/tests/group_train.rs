//! Optimisers, schedules, logs and training. Each file is a module; those that need a process of
//! their own are tests of their own.

mod logs;
mod parity;
mod plots;
mod precision_trainer;
mod schedule;
mod train;
mod train_names;
