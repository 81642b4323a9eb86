//! Native code for runs of cheap arithmetic.
//!
//! A slice kernel reads and writes tiles for every operation: for an addition that is three memory accesses for one instruction. Here a
//! group of such operations becomes one loop whose values stay in registers: [`micro`] writes the group as a list of what vector
//! instructions do, [`registers`] says which value is in which register, [`emit`] writes machine code, with `iced-x86` as the
//! encoder. The loops use AVX-512 where the machine has it, else AVX2; where it has neither, there is no native code.
//!
//! A region over one element (a scalar program) is compiled as a straight list of instructions in the lowest lane.
//!
//! # Memory
//!
//! Code is written to memory that is mapped for writing, which is then made executable and is never writable again. The code reads and
//! writes only through the table of pointers that it is given, at the places that the steps of the plan name: its safety is that of
//! the plan, as for slice kernels.

mod codes;
mod emit;
mod functions;
mod micro;
mod registers;
pub(crate) mod straight;

use super::plan::{At, Group, Plan, Ref, SCRATCH};
use super::steps::Step;
use super::{How, Pass};
use emit::{Emitter, Loop, Set};
use memmap2::{Mmap, MmapMut};
use micro::{Lane, Writer};
use pullback_ir::{DType, Error, ErrorKind, Op, Result};
use registers::{Registers, assign};
use std::ops::Range;

/// A machine that code can be made for.
#[derive(Clone, Copy)]
pub(super) struct Target {
    set: Set,
}

impl Target {
    /// What this machine has, if a kernel is to use it.
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

/// Executable memory.
pub(super) struct Code {
    _memory: Mmap,
}

/// Makes the code of a kernel, group by group.
pub(super) struct Compiler {
    target: Target,
    scalar: bool,
    emitter: Emitter,
    entries: Vec<usize>,
    patches: Vec<(usize, i32)>,
    /// Where values that have no register are written, in scratch, and how many bytes that takes.
    spill: u32,
    pub(super) spilled: usize,
    /// The table entries of what is written past the caches.
    streamed: Range<u32>,
}

impl Compiler {
    /// For a domain of `len` elements, with scratch for spilled values from `spill` on. What has an entry in `streamed` begins on
    /// cache lines, and is written past the caches.
    pub(super) fn new(target: Target, len: usize, spill: usize, streamed: Range<u32>) -> Compiler {
        Compiler {
            target,
            scalar: len == 1,
            emitter: Emitter::new(),
            entries: Vec::new(),
            patches: Vec::new(),
            spill: spill as u32,
            spilled: 0,
            streamed,
        }
    }

    /// Compiles a group.
    pub(super) fn group(
        &mut self,
        plan: &Plan,
        group: &Group,
        of: &dyn Fn(At) -> Ref,
    ) -> Result<()> {
        let body = Writer::group(plan, group, of)?;
        let registers = match self.target.set {
            // The last one is for truth values on their way to a mask.
            Set::Avx512 => Registers { vectors: 31, masks: Some((2, 5)) },
            Set::Avx2 => Registers { vectors: 12, masks: None },
        };
        let assigned = assign(&body, registers, !self.scalar);
        let double = body.values.iter().any(|v| v.lane == Lane::F64);
        let lanes = match (self.scalar, self.target.set, double) {
            (true, _, _) => 1,
            (_, Set::Avx512, false) => 16,
            (_, Set::Avx512, true) | (_, Set::Avx2, false) => 8,
            (_, Set::Avx2, true) => 4,
        };
        let size = if self.scalar { 16 } else { 64 };
        self.spilled = self.spilled.max(assigned.places * size);
        let spill = Ref { entry: SCRATCH, disp: self.spill };
        let set = self.target.set;
        let streamed = self.streamed.clone();
        let it = Loop { body: &body, assigned: &assigned, set, lanes, spill, streamed };
        let (entry, patches) = emit::emit(&mut self.emitter, &it).map_err(|error| {
            Error::argument("region", format!("an instruction could not be encoded: {error}"))
        })?;
        self.entries.push(entry);
        self.patches.extend(patches);
        Ok(())
    }

    /// Makes the code executable, and the native steps of the passes call it, in the order in which they were compiled.
    pub(super) fn finish(self, passes: &mut [Pass]) -> Result<Option<Code>> {
        if self.entries.is_empty() {
            return Ok(None);
        }
        let memory = mapped(self.emitter.finish(), self.patches)?;
        let steps = passes.iter_mut().flat_map(|pass| &mut pass.steps);
        let natives = steps.filter_map(|step| match step {
            Step::Native(call) => Some(call),
            _ => None,
        });
        for (call, entry) in natives.zip(self.entries) {
            let start = memory.as_ptr().wrapping_add(entry);
            // SAFETY: a function of this type begins there; it lives as long as the kernel that has the steps.
            *call = unsafe {
                std::mem::transmute::<*const u8, unsafe extern "sysv64" fn(*const *mut u8, usize)>(
                    start,
                )
            };
        }
        Ok(Some(Code { _memory: memory }))
    }
}

/// Code in memory that can be executed, with the jumps put in.
fn mapped(mut code: Vec<u8>, patches: Vec<(usize, i32)>) -> Result<Mmap> {
    for (place, distance) in patches {
        code[place..place + 4].copy_from_slice(&distance.to_le_bytes());
    }
    let none = |error: std::io::Error| {
        Error::new(ErrorKind::Memory, "region", format!("no memory for code: {error}"))
    };
    let mut memory = MmapMut::map_anon(code.len()).map_err(none)?;
    memory[..code.len()].copy_from_slice(&code);
    memory.make_exec().map_err(none)
}
