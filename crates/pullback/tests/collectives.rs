//! Collectives: values, derivatives, programs and failures, with workers that are threads and an
//! engine that is as simple as it can be (`threads.rs`), so that it is an oracle too.

#[path = "collectives/derivatives.rs"]
mod derivatives;
#[path = "collectives/failures.rs"]
mod failures;
#[path = "collectives/programs.rs"]
mod programs;
#[path = "collectives/threads.rs"]
mod threads;
#[path = "collectives/training.rs"]
mod training;
#[path = "collectives/values.rs"]
mod values;
