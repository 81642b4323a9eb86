//! Native code for runs of cheap arithmetic.
//!
//! A slice kernel reads and writes tiles for every operation: for an addition that is three memory
//! accesses for one instruction. Here a group of such operations becomes one loop whose values stay
//! in registers: [`micro`] lowers the group to a list of micro-operations, [`registers`] allocates
//! registers, [`emit`] writes machine code, with `iced-x86` as the encoder, and [`code_cache`]
//! caches compiled code. The loops use AVX-512 where the machine has it, else AVX2; where it has
//! neither, there is no native code.
//!
//! A region over one element (a scalar program) is compiled to straight-line code in the lowest
//! lane.
//!
//! # Memory
//!
//! Code is written to memory that is mapped for writing, which is then made executable and is never
//! writable again. The code reads and writes only through the table of pointers that it is given,
//! at the addresses in the steps of the plan: its safety is that of the plan, as for slice kernels.

mod code_cache;
mod emit;
mod functions;
mod micro;
mod opcodes;
mod recipes;
mod registers;
pub(crate) mod straight;

pub(crate) use code_cache::{MachineCode, counts};

use super::plan::{NativeGroup, RegionPlan, SCRATCH, TableRef, ValueStorage};
use super::steps::TileStep;
use super::{CodegenMode, TilePass};
use crate::simd::{Level, level};
use code_cache::CodeKey;
use emit::InstructionSet;
use micro::Writer;
use pullback_ir::{DType, Op, Result};
use std::ops::Range;
use std::sync::Arc;

/// A machine that code can be generated for.
#[derive(Clone, Copy)]
pub(super) struct NativeTarget {
    set: InstructionSet,
}

impl NativeTarget {
    /// The target for this machine, if native code is enabled.
    pub(super) fn of(how: CodegenMode) -> Option<NativeTarget> {
        let of_level = |level| match level {
            Level::Baseline => None,
            Level::Avx2 => Some(NativeTarget { set: InstructionSet::Avx2 }),
            Level::Avx512 => Some(NativeTarget { set: InstructionSet::Avx512 }),
        };
        match how {
            CodegenMode::Slices => None,
            CodegenMode::Best => of_level(level()),
            #[cfg(test)]
            CodegenMode::Avx2 => of_level(level().min(Level::Avx2)),
        }
    }

    /// Whether an op becomes native code.
    pub(super) fn can(op: &Op, from: &[DType], to: DType) -> bool {
        micro::can(op, from, to)
    }
}

/// Compiles the native code of a kernel, group by group.
pub(super) struct NativeCompiler {
    source: CodeKey,
}

impl NativeCompiler {
    /// For a domain of `len` elements, with scratch for spilled values from `spill` on. Entries in
    /// `streamed` start on cache lines, and are written with streaming stores.
    pub(super) fn new(
        target: NativeTarget,
        len: usize,
        spill: usize,
        streamed: Range<u32>,
    ) -> NativeCompiler {
        let spill = TableRef { entry: SCRATCH, disp: spill as u32 };
        let (set, scalar) = (target.set, len == 1);
        NativeCompiler { source: CodeKey { set, scalar, spill, streamed, bodies: Vec::new() } }
    }

    /// Adds a group.
    pub(super) fn group(
        &mut self,
        plan: &RegionPlan,
        group: &NativeGroup,
        of: &dyn Fn(ValueStorage) -> TableRef,
    ) -> Result<()> {
        self.source.bodies.push(Writer::group(plan, group, of)?);
        Ok(())
    }

    /// Makes the native steps of the passes call the code, in the order in which they were added;
    /// returns it, and the bytes for spilled values. The code must live as long as the steps.
    pub(super) fn finish(
        self,
        passes: &mut [TilePass],
    ) -> Result<(Option<Arc<MachineCode>>, usize)> {
        if self.source.bodies.is_empty() {
            return Ok((None, 0));
        }
        let code = self.source.compiled()?;
        let steps = passes.iter_mut().flat_map(|pass| &mut pass.steps);
        let natives = steps.filter_map(|step| match step {
            TileStep::Native(call) => Some(call),
            _ => None,
        });
        natives.zip(code.functions()).for_each(|(call, function)| *call = function);
        let spilled = code.spilled;
        Ok((Some(code), spilled))
    }
}
