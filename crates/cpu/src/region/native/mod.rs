//! Native code for runs of cheap arithmetic.
//!
//! A slice kernel reads and writes tiles for every operation: for an addition that is three memory
//! accesses for one instruction. Here a group of such operations becomes one loop whose values stay
//! in registers: [`micro`] lowers the group to a list of micro-operations, [`registers`] allocates
//! registers, [`emit`] writes machine code, with `iced-x86` as the encoder, and [`store`] caches
//! compiled code. The loops use AVX-512 where the machine has it, else AVX2; where it has neither,
//! there is no native code.
//!
//! A region over one element (a scalar program) is compiled to straight-line code in the lowest
//! lane.
//!
//! # Memory
//!
//! Code is written to memory that is mapped for writing, which is then made executable and is never
//! writable again. The code reads and writes only through the table of pointers that it is given,
//! at the addresses in the steps of the plan: its safety is that of the plan, as for slice kernels.

mod codes;
mod emit;
mod functions;
mod micro;
mod recipes;
mod registers;
mod store;
pub(crate) mod straight;

pub(crate) use store::{Code, counts};

use super::plan::{At, Group, Plan, Ref, SCRATCH};
use super::steps::Step;
use super::{How, Pass};
use emit::Set;
use micro::Writer;
use pullback_ir::{DType, Op, Result};
use std::ops::Range;
use std::sync::Arc;
use store::Source;

/// A machine that code can be generated for.
#[derive(Clone, Copy)]
pub(super) struct Target {
    set: Set,
}

impl Target {
    /// The target for this machine, if native code is enabled.
    pub(super) fn of(how: How) -> Option<Target> {
        let avx2 = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("bmi2");
        let avx512 = avx2
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        match how {
            How::Slices => None,
            How::Best if avx512 => Some(Target { set: Set::Avx512 }),
            How::Best => avx2.then_some(Target { set: Set::Avx2 }),
            #[cfg(test)]
            How::Avx2 => avx2.then_some(Target { set: Set::Avx2 }),
        }
    }

    /// Whether an op becomes native code.
    pub(super) fn can(self, op: &Op, from: &[DType], to: DType) -> bool {
        micro::can(op, from, to, self.set == Set::Avx512)
    }
}

/// Compiles the native code of a kernel, group by group.
pub(super) struct Compiler {
    source: Source,
}

impl Compiler {
    /// For a domain of `len` elements, with scratch for spilled values from `spill` on. Entries in
    /// `streamed` start on cache lines, and are written with streaming stores.
    pub(super) fn new(target: Target, len: usize, spill: usize, streamed: Range<u32>) -> Compiler {
        let spill = Ref { entry: SCRATCH, disp: spill as u32 };
        let (set, scalar) = (target.set, len == 1);
        Compiler { source: Source { set, scalar, spill, streamed, bodies: Vec::new() } }
    }

    /// Adds a group.
    pub(super) fn group(
        &mut self,
        plan: &Plan,
        group: &Group,
        of: &dyn Fn(At) -> Ref,
    ) -> Result<()> {
        self.source.bodies.push(Writer::group(plan, group, of)?);
        Ok(())
    }

    /// Makes the native steps of the passes call the code, in the order in which they were added;
    /// returns it, and the bytes for spilled values. The code must live as long as the steps.
    pub(super) fn finish(self, passes: &mut [Pass]) -> Result<(Option<Arc<Code>>, usize)> {
        if self.source.bodies.is_empty() {
            return Ok((None, 0));
        }
        let code = self.source.compiled()?;
        let steps = passes.iter_mut().flat_map(|pass| &mut pass.steps);
        let natives = steps.filter_map(|step| match step {
            Step::Native(call) => Some(call),
            _ => None,
        });
        natives.zip(code.functions()).for_each(|(call, function)| *call = function);
        let spilled = code.spilled;
        Ok((Some(code), spilled))
    }
}
