//! Training with many workers, which are threads here. Each file is a module.
//!
//! Threads of one process share the global generator, so weights and data are made before workers
//! start, or from keys.

#[path = "workers/compared.rs"]
mod compared;
#[path = "workers/data_parallel.rs"]
mod data_parallel;
#[path = "workers/equality.rs"]
mod equality;
#[path = "workers/equality_sharded.rs"]
mod equality_sharded;
#[path = "workers/logical.rs"]
mod logical;
#[path = "workers/memory.rs"]
mod memory;
#[cfg(unix)]
#[path = "workers/processes.rs"]
mod processes;
#[path = "workers/sharded_checkpoints.rs"]
mod sharded_checkpoints;
#[path = "workers/stage_3.rs"]
mod stage_3;
#[path = "workers/tensor.rs"]
mod tensor;
#[path = "workers/threads.rs"]
mod threads;
#[path = "workers/trainer.rs"]
mod trainer;
#[path = "workers/trainer_sharded.rs"]
mod trainer_sharded;
