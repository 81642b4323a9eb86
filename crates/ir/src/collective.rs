//! Collectives: operations that the workers of a group compute together.
//!
//! A [`Collective`] is plain data, like every op; the code that moves bytes between workers is a
//! [`Communicator`], which an engine supplies (threads of one process, shared memory, MPI).
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
//!
//! Memory of a device may be moved by the device itself (`device_group.rs`). The communicator then
//! compares the calls ([`Communicator::agree`]) and moves nothing.

use crate::{DType, Device, Error, ErrorKind, Fresh, Line, Result, Shape, Spec};
use std::fmt;
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

impl Collective {
    /// Whether it adds elements up.
    pub const fn is_sum(&self) -> bool {
        matches!(self, Collective::AllReduce(Combination::Sum) | Collective::ReduceScatter)
    }

    /// Whether it combines the operands of all workers into one of the same size.
    pub const fn is_all_reduce(&self) -> bool {
        matches!(self, Collective::AllReduce(_))
    }

    /// Whether all workers do the same, and so at the same line of a program. Where their parts
    /// differ (a broadcast has a root, and who waits at a barrier may come from anywhere), programs
    /// have a line for each part.
    pub const fn has_one_part(&self) -> bool {
        match self {
            Collective::AllReduce(_)
            | Collective::AllGather
            | Collective::ReduceScatter
            | Collective::AllToAll => true,
            Collective::Broadcast { .. }
            | Collective::Send { .. }
            | Collective::Recv { .. }
            | Collective::Barrier => false,
        }
    }

    /// Whether it is between two workers, and not of the whole group.
    pub const fn is_between_two(&self) -> bool {
        matches!(self, Collective::Send { .. } | Collective::Recv { .. })
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
    /// The operand; empty for those that have none. Its device is the CPU, unless the devices of
    /// the workers move it: see [`CollectiveCall::by_devices`].
    pub operand: &'a Spec,
    /// How many collectives this worker issued on the group before.
    pub sequence: u64,
    /// The user's line.
    pub line: Line,
}

impl CollectiveCall<'_> {
    /// The operand of a call that the devices of the workers make: it is on some device, of
    /// whatever number, so that it differs from the operand of a call that the host makes.
    #[must_use]
    pub fn by_devices(operand: &Spec) -> Spec {
        operand.with_device(Device::Cuda(0))
    }
}

/// Op and operand: `all_reduce of f32[10]`.
impl fmt::Display for CollectiveCall<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, operand) = (self.collective.name(), self.operand.with_device(Device::Cpu));
        match self.collective {
            Collective::AllReduce(_)
            | Collective::AllGather
            | Collective::ReduceScatter
            | Collective::AllToAll => write!(f, "{name} of {operand}")?,
            Collective::Broadcast { root } => write!(f, "{name} worker {root} of {operand}")?,
            Collective::Send { to } => write!(f, "{name} to worker {to} of {operand}")?,
            Collective::Recv { from, spec } => {
                write!(f, "{name} from worker {from} of {}", spec.with_device(Device::Cpu))?;
            }
            Collective::Barrier => f.write_str(name)?,
        }
        f.write_str(if self.operand.device == Device::Cpu { "" } else { " on a device" })
    }
}

/// Bytes of a worker's text in [`Communicator::agree`].
const TEXT: usize = 512;

/// The workers of a group, as seen by one of them.
pub trait Communicator: Send + Sync {
    /// A number that all workers of the group have and no other group has.
    fn id(&self) -> u64;

    /// This worker's number in the group, from 0.
    fn rank(&self) -> usize;

    /// How many workers are in the group.
    fn size(&self) -> usize;

    /// The name of the engine: `threads`, `local`, `mpi`.
    fn engine(&self) -> &'static str;

    /// Runs a collective and returns when this worker's result is complete. Input and output are
    /// dense; their lengths follow from the call.
    ///
    /// # Errors
    /// If workers called different collectives, a worker has exited, or time ran out.
    fn run(&self, call: &CollectiveCall<'_>, input: &[u8], output: &mut [u8]) -> Result<()>;

    /// [`Communicator::run`] into memory that is neither written nor cleared: the
    /// caller sees whether all of it was written ([`Fresh::check`]). By default through memory of
    /// its own.
    ///
    /// # Errors
    /// As [`Communicator::run`].
    fn run_fresh(
        &self,
        call: &CollectiveCall<'_>,
        input: &[u8],
        output: &mut Fresh<'_>,
    ) -> Result<()> {
        let mut result = vec![0; output.len()];
        self.run(call, input, &mut result)?;
        output.write(0, &result);
        Ok(())
    }

    /// [`Communicator::run`] of a collective whose result is as large as its operand, in one piece
    /// of memory: the result replaces the operand. By default through a copy.
    ///
    /// # Errors
    /// As [`Communicator::run`]. What is in the memory then is not specified.
    fn run_in_place(&self, call: &CollectiveCall<'_>, memory: &mut [u8]) -> Result<()> {
        let operand = memory.to_vec();
        self.run(call, &operand, memory)
    }

    /// Compares what the workers were asked, and moves nothing: the bytes of this call move between
    /// devices. It counts as a call like [`Communicator::run`]. An engine that compares calls
    /// anyway does just that; by default the workers exchange texts.
    ///
    /// # Errors
    /// As [`Communicator::run`].
    fn agree(&self, call: &CollectiveCall<'_>) -> Result<()> {
        let mut own = match call.collective.has_one_part() {
            true => format!("{call} (at {})", call.line).into_bytes(),
            false => call.to_string().into_bytes(),
        };
        own.resize(TEXT, 0);
        let mut all = vec![0; TEXT * self.size()];
        let spec = Spec::cpu(DType::U8, Shape::from_slice(&[TEXT]));
        // One line for all: a broadcast has one for the root and another for the rest.
        let (sequence, line) = (call.sequence, Line::caller());
        let texts =
            CollectiveCall { collective: &Collective::AllGather, operand: &spec, sequence, line };
        self.run(&texts, &own, &mut all)?;
        let Some(rank) = all.chunks(TEXT).position(|text| *text != all[..TEXT]) else {
            return Ok(());
        };
        let text = |rank: usize| {
            let text = String::from_utf8_lossy(&all[rank * TEXT..][..TEXT]).into_owned();
            text.trim_end_matches('\0').to_string()
        };
        let message = format!(
            "workers were asked for different things: worker 0 for {}, worker {rank} for {}; \
             worker {} is at {}",
            text(0),
            text(rank),
            self.rank(),
            call.line
        );
        self.fail(&message);
        Err(Error::new(ErrorKind::Workers, call.collective.name(), message).at(call.line))
    }

    /// Why the workers cannot go on, if that is known: one has failed or is gone. Does not wait.
    fn broken(&self) -> Option<String> {
        None
    }

    /// How long a worker waits for the others in one call.
    fn timeout(&self) -> Duration {
        Duration::from_secs(600)
    }

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

    fn run_fresh(
        &self,
        _: &CollectiveCall<'_>,
        input: &[u8],
        output: &mut Fresh<'_>,
    ) -> Result<()> {
        output.write(0, input);
        Ok(())
    }

    fn run_in_place(&self, _: &CollectiveCall<'_>, _: &mut [u8]) -> Result<()> {
        Ok(())
    }

    fn agree(&self, _: &CollectiveCall<'_>) -> Result<()> {
        Ok(())
    }

    fn subgroup(&self, _: &[usize]) -> Result<Option<Arc<dyn Communicator>>> {
        Ok(Some(Arc::new(Alone)))
    }
}
