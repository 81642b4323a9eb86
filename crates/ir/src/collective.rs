//! Collectives: operations that the workers of a group compute together.
//!
//! A [`Collective`] is plain data, like every op; the code that moves bytes between workers is a
//! [`Communicator`], which an engine supplies (threads of one process, shared memory, MPI, NCCL).
//! The contract between the two is small on purpose:
//!
//! * memory is dense and row-major, and what is gathered, scattered or exchanged lies along axis 0,
//!   so an engine sees contiguous parts of equal size; tensor methods move other axes there;
//! * a call blocks until this worker's result is complete; whoever wants to compute meanwhile calls
//!   it from another thread, in the same order on every worker;
//! * sums do not depend on timing, engine or the number of machines: they are balanced binary trees
//!   over the ranks in order ((0 + 1) + (2 + 3)) + …, in f32 for bf16 and f16, rounded once;
//! * no call hangs: workers compare what they were asked ([`CollectiveCall`]), and a difference, a
//!   missing worker or a time-out is an error on every worker that names ranks, ops and lines.

use crate::{Line, Result, Spec};
use std::sync::Arc;
use std::time::Duration;

/// What the workers of a group compute together. Every worker of the group makes the same call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Collective {
    /// The operands of all workers combined element by element; every worker gets the result.
    AllReduce(Combination),
    /// The operands of all workers, one after the other along axis 0 in the order of ranks.
    AllGather,
    /// The sum of the operands, of which worker `r` gets the `r`-th of equal parts along axis 0.
    ReduceScatter,
    /// The operand of one worker, on every worker.
    Broadcast {
        /// The rank whose operand it is.
        root: usize,
    },
    /// Part `r` of the operand, along axis 0, goes to worker `r`; the result is the parts that
    /// arrived, in the order of ranks.
    AllToAll,
    /// The operand is sent to another worker, which receives it. The result is empty.
    Send {
        /// The rank that receives.
        to: usize,
    },
    /// What another worker sends. There is nothing to send: an op has an empty operand, through
    /// which derivatives pass.
    Recv {
        /// The rank that sends.
        from: usize,
        /// What it sends.
        spec: Spec,
    },
    /// Waits until every worker is there. It has neither operand nor result.
    Barrier,
}

/// How [`Collective::AllReduce`] combines elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Combination {
    /// The sum.
    Sum,
    /// The largest; NaN if any is.
    Max,
    /// The smallest; NaN if any is.
    Min,
}

impl Collective {
    /// The names of all.
    #[rustfmt::skip]
    pub const NAMES: &[&str] = &[
        "all_reduce", "all_reduce_max", "all_reduce_min", "all_gather", "reduce_scatter",
        "broadcast_from", "all_to_all", "send", "recv", "barrier",
    ];

    /// Its name in errors and printed programs.
    pub const fn name(&self) -> &'static str {
        match self {
            Collective::AllReduce(Combination::Sum) => "all_reduce",
            Collective::AllReduce(Combination::Max) => "all_reduce_max",
            Collective::AllReduce(Combination::Min) => "all_reduce_min",
            Collective::AllGather => "all_gather",
            Collective::ReduceScatter => "reduce_scatter",
            Collective::Broadcast { .. } => "broadcast_from",
            Collective::AllToAll => "all_to_all",
            Collective::Send { .. } => "send",
            Collective::Recv { .. } => "recv",
            Collective::Barrier => "barrier",
        }
    }
}

impl Combination {
    /// Every combination.
    pub const ALL: &[Combination] = &[Combination::Sum, Combination::Max, Combination::Min];
}

/// One call of a collective: what workers compare, and what an error names.
#[derive(Clone, Debug)]
pub struct CollectiveCall<'a> {
    /// The operation.
    pub collective: &'a Collective,
    /// The operand; empty for those that have none.
    pub operand: &'a Spec,
    /// How many collectives this worker issued on the group before.
    pub sequence: u64,
    /// The user's line.
    pub line: Line,
}

/// The workers of a group, as seen by one of them.
pub trait Communicator: Send + Sync {
    /// A number that all workers of the group have and no other group has.
    fn id(&self) -> u64;

    /// This worker's number in the group, from 0.
    fn rank(&self) -> usize;

    /// How many workers are in the group.
    fn size(&self) -> usize;

    /// The name of the engine: `threads`, `local`, `mpi`, `nccl`.
    fn engine(&self) -> &'static str;

    /// Runs a collective and returns when this worker's result is complete. Input and output are
    /// dense; their lengths follow from the call.
    ///
    /// # Errors
    /// If workers called different collectives, a worker has exited, or time ran out.
    fn run(&self, call: &CollectiveCall<'_>, input: &[u8], output: &mut [u8]) -> Result<()>;

    /// A group of some of these workers, which all of those call with the same ranks, ascending.
    /// `None` for a worker that is not among them; it need not call.
    ///
    /// # Errors
    /// If a rank is not in the group, or workers called with different ranks.
    fn subgroup(&self, ranks: &[usize]) -> Result<Option<Arc<dyn Communicator>>>;

    /// How long this worker has waited for each worker of the group so far: a wait counts for the
    /// one that came last. Empty for an engine that does not count.
    fn waited(&self) -> Vec<Duration> {
        Vec::new()
    }

    /// Tells all workers that this one cannot go on: what they wait for now, and every later call,
    /// fails with this reason. (A worker that just ends is noticed too, without a reason.)
    fn fail(&self, reason: &str) {
        let _ = reason;
    }
}

/// The communicator of a single worker, where every collective is the identity.
pub struct Alone;

impl Communicator for Alone {
    fn id(&self) -> u64 {
        0
    }

    fn rank(&self) -> usize {
        0
    }

    fn size(&self) -> usize {
        1
    }

    fn engine(&self) -> &'static str {
        "alone"
    }

    fn run(&self, _: &CollectiveCall<'_>, input: &[u8], output: &mut [u8]) -> Result<()> {
        // Sending and receiving need another worker, so input and output are equally long.
        output.copy_from_slice(input);
        Ok(())
    }

    fn subgroup(&self, _: &[usize]) -> Result<Option<Arc<dyn Communicator>>> {
        Ok(Some(Arc::new(Alone)))
    }
}
