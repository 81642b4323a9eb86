//! What the tape keeps, and how it can keep less.
//!
//! Every value that a node saves for backward goes through one interface ([`Pack`]). It is used by
//! checkpointing (`checkpoint/`: values are dropped and computed again), offloading (`offload/`:
//! they are stored on disk), compression (`compress/`: they take less memory) and a budget
//! (`budget/`: what does not fit is dropped, and single operations run again). `report/` says where
//! memory goes.

pub(crate) mod budget;
pub(crate) mod checkpoint;
mod compress;
pub(crate) mod kept;
mod offload;
pub(crate) mod packing;
mod piece;
pub(crate) mod report;

pub use budget::{BudgetUse, MemoryBudget, memory_budget};
pub use checkpoint::{Checkpoint, checkpoint, checkpoint_sequential, checkpoint_with};
pub use compress::Compress;
pub(crate) use compress::Need;
pub use offload::{Offload, OffloadStats};
pub use packing::{Pack, Packed, SavedValue, with_packing};
pub use report::{
    DeviceMemory, LineMemory, MemoryBytes, MemoryKind, MemoryPartGuard, MemoryPhase, MemoryReport,
    MemoryReporter, MemorySample, PartMemory, PoolPeak, memory_part, memory_report, predict_memory,
};
