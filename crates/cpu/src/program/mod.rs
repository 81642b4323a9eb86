//! Prepared programs: steps over base addresses, prepared once, run many times.
//!
//! [`Prepared::new`] turns every equation of a planned program ([`Planned`]) into a step: a kernel,
//! and for each operand and result the number of a base address, an offset and a layout.
//! [`Prepared::bind`] fills in the base addresses (arena, inputs, outputs), and [`Running`] runs
//! the steps. Shapes were inferred and layouts checked when the steps were prepared, so nothing is
//! checked again, and nothing is allocated but the outputs, which come from the pool. The caller
//! owns all other memory.
//!
//! # Why this is sound
//!
//! Kernels get raw pointers. Every one of them is a base address plus an offset that the plan
//! computed from the program's specs; a [`Planned`] can only be made by planning the same program.
//! Memory smaller than planned is rejected: an arena, an input whose layout reaches outside its
//! buffer. Outputs are allocated by their specs, and returned only when they are complete. What is
//! written is borrowed mutably, so that nothing else reads it during the run. The plan guarantees
//! that no step writes what a later one still reads; tests check it by replaying plans element by
//! element.
//!
//! # When something fails
//!
//! An error (an index out of range) names the op, its operands and the line of the program. Inputs
//! that the program replaces are then unchanged: the plan writes none before the last op that may
//! fail has run. Only a panic, when a kernel cannot allocate scratch memory, may leave a mixture of
//! old and new values there.
//!
//! The files: [`compiler`] makes steps from equations, [`code`] runs them, [`flow`] runs
//! conditionals and loops, [`straight`] joins steps on a few elements into straight-line code.

mod code;
mod compiler;
mod flow;
#[cfg(target_arch = "x86_64")]
mod straight;
#[cfg(test)]
mod tests;

use crate::Buffer;
use crate::buffer::Arena;
use crate::region::native_counts;
use crate::run::{Input, Output, run};
use code::{ProgramCode, allocate};
use pullback_ir::infer::Checked;
use pullback_ir::pass::plan::{Base, Planned};
use pullback_ir::{Error, ErrorKind, Result, Step};
use std::sync::Arc;

/// A program that is ready to run. See the head of the module.
///
/// ```
/// # use pullback_cpu::{buffer::Arena, BoundInput, Buffer, Prepared, TARGET};
/// # use pullback_ir::{pass::plan::Planned, Binary, DType, Op, Program, Spec};
/// // step: p ← p − g
/// let mut program = Program::default();
/// let spec = Spec::cpu(DType::F32, [3].as_slice());
/// let (p, g) = (program.input(spec.clone()), program.input(spec));
/// program.outputs = program.push(Op::Binary(Binary::Sub), &[p, g], None)?.to_vec();
/// program.updates = vec![(0, 0)];
/// let mut step = Prepared::new(Planned::new(&program, TARGET)?.into())?;
///
/// let (mut p, g) = (Buffer::from_slice(&[1f32, 2.0, 3.0])?, Buffer::from_slice(&[1f32; 3])?);
/// let (mut arena, mut outputs) = (Arena::take(step.planned().plan().arena)?, Vec::new());
/// for _ in 0..2 {
///     let mut inputs = [BoundInput::Write(&mut p, 0), BoundInput::Read(&g, 0)];
///     step.bind(&mut arena, &mut inputs, &mut outputs)?.run()?;
/// }
/// assert_eq!(p.to_vec::<f32>(DType::F32, 0, 3), Some(vec![-1.0, 0.0, 1.0]));
/// # Ok::<(), pullback_ir::Error>(())
/// ```
pub struct Prepared {
    planned: Arc<Planned>,
    code: ProgramCode,
    native: (usize, usize),
    /// What [`Prepared::unchanged`] was told about the next run.
    versions: Vec<Option<u64>>,
}

/// Machine code that was generated for equations of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NativeCode {
    /// The equations, in order: one that is a fused region, or several on a few elements, which are
    /// one piece of code.
    pub equations: Vec<usize>,
    /// Its instructions, one on each line, in Intel's order of operands.
    pub text: String,
}

/// The memory of an input, with the byte at which its elements start.
pub enum BoundInput<'a> {
    /// Only read.
    Read(&'a Buffer, usize),
    /// Replaced by an output ([`pullback_ir::Program::updates`]).
    Write(&'a mut Buffer, usize),
}

impl BoundInput<'_> {
    fn buffer(&self) -> &Buffer {
        match self {
            BoundInput::Read(buffer, _) => buffer,
            BoundInput::Write(buffer, _) => buffer,
        }
    }
}

impl Prepared {
    /// Prepares the steps of a program.
    ///
    /// # Errors
    /// If memory for its constants cannot be allocated.
    pub fn new(planned: Arc<Planned>) -> Result<Prepared> {
        let before = native_counts();
        let code = ProgramCode::new(planned.program(), planned.plan())?;
        let now = native_counts();
        let native = (now.0 - before.0, now.1 - before.1);
        Ok(Prepared { planned, code, native, versions: Vec::new() })
    }

    /// The planned program it was prepared from.
    pub fn planned(&self) -> &Planned {
        &self.planned
    }

    /// How often native code was compiled for it, and how often cached code was reused: that of
    /// equal regions, in this or another live program.
    pub fn native_code(&self) -> (usize, usize) {
        self.native
    }

    /// The generated code as text; that of the body of a loop is listed with the loop's equation.
    pub fn listings(&self) -> Vec<NativeCode> {
        self.code.listings()
    }

    /// The steps, in order.
    pub fn steps(&self) -> Vec<Step> {
        let step = |step: &code::KernelCall| Step {
            equation: step.equation,
            kernel: step.name().to_string(),
            operands: [
                step.sources.iter().map(code::StepOperand::spec).collect(),
                step.sinks.iter().map(code::StepResult::spec).collect(),
            ],
            at: step.at,
        };
        self.code.steps.iter().map(step).collect()
    }

    /// Whether it gains by knowing what is unchanged: it has weights, as right operands of products
    /// and convolutions, that it does not write.
    pub fn keeps_packed(&self) -> bool {
        self.code.packs()
    }

    /// Says of the inputs of the next [`Prepared::bind`] which version of its memory each has.
    /// Inputs at the same address with the same version have the same values: of these, operands
    /// that an earlier run has packed are used again. What was packed is kept until a run has
    /// another version, or none.
    pub fn unchanged(&mut self, versions: impl Iterator<Item = Option<u64>>) {
        self.versions.clear();
        self.versions.extend(versions);
    }

    /// Fills in the base addresses of a run: the arena, the inputs, and memory for the outputs that
    /// replace no input ([`Planned::fresh`]), which are put into the cleared list.
    ///
    /// # Errors
    /// If the memory is not as planned, or the outputs cannot be allocated.
    pub fn bind<'a, 'b>(
        &'a mut self,
        arena: &'a mut Arena,
        inputs: &'a mut [BoundInput<'b>],
        outputs: &'a mut Vec<Buffer>,
    ) -> Result<Running<'a, 'b>> {
        outputs.clear();
        let planned = &*self.planned;
        set_inputs(&mut self.code, planned, inputs)?;
        check_arena(planned, arena.memory())?;
        self.code.pack_unchanged(&self.versions);
        self.versions.clear();
        for &(k, bytes) in planned.fresh() {
            let mut buffer = allocate("outputs", bytes).inspect_err(|_| outputs.clear())?;
            self.code.set_output(k, buffer.as_mut_ptr());
            outputs.push(buffer);
        }
        self.code.set_arena(arena.memory_mut().as_mut_ptr());
        Ok(Running { planned, code: &mut self.code, arena, inputs, outputs, next: 0 })
    }
}

impl Prepared {
    /// Runs the program, or one step of it, on existing memory: an arena and outputs of any content
    /// that the caller holds. All steps in order are the whole run.
    ///
    /// # Errors
    /// If the memory is not as planned, or an op fails.
    pub fn run_over(
        &mut self,
        arena: &mut Buffer,
        inputs: &mut [BoundInput<'_>],
        outputs: &mut [Buffer],
        step: Option<usize>,
    ) -> Result<()> {
        let planned = &*self.planned;
        set_inputs(&mut self.code, planned, inputs)?;
        check_arena(planned, arena)?;
        self.code.pack_unchanged(&[]);
        let fresh = planned.fresh();
        let long = |(&(_, bytes), buffer): (&(usize, usize), &Buffer)| buffer.len() >= bytes;
        if fresh.len() != outputs.len() || !fresh.iter().zip(&*outputs).all(long) {
            return Err(Error::argument("program", "an output is missing or too short"));
        }
        for (&(k, _), buffer) in fresh.iter().zip(outputs) {
            self.code.set_output(k, buffer.as_mut_ptr());
        }
        self.code.set_arena(arena.as_mut_ptr());
        match step {
            None => self.code.run(),
            Some(i) => self.code.run_step(i),
        }
    }
}

/// Checks the inputs and fills in their addresses.
#[inline]
fn set_inputs(
    code: &mut ProgramCode,
    planned: &Planned,
    inputs: &mut [BoundInput<'_>],
) -> Result<()> {
    planned.check_count(inputs.len())?;
    for (i, bound) in inputs.iter_mut().enumerate() {
        let (ptr, bytes, start, written) = match bound {
            BoundInput::Read(b, start) => (b.as_ptr().cast_mut(), b.len(), *start, false),
            BoundInput::Write(b, start) => (b.as_mut_ptr(), b.len(), *start, true),
        };
        planned.check_input(i, bytes, start, written)?;
        code.set_input(i, ptr.wrapping_add(start));
    }
    Ok(())
}

fn check_arena(planned: &Planned, arena: &Buffer) -> Result<()> {
    match arena.len() < planned.plan().arena {
        true => Err(Error::argument("program", "the arena is too short")),
        false => Ok(()),
    }
}

/// A prepared program with the memory of one run. The outputs are complete once all steps have run.
pub struct Running<'a, 'b> {
    planned: &'a Planned,
    code: &'a mut ProgramCode,
    arena: &'a Arena,
    inputs: &'a [BoundInput<'b>],
    outputs: &'a mut Vec<Buffer>,
    /// The step that runs next.
    next: usize,
}

impl Running<'_, '_> {
    /// Runs all steps, those on a few elements joined.
    ///
    /// # Errors
    /// If an op fails; the inputs that are replaced are then unchanged.
    #[inline]
    pub fn run(mut self) -> Result<()> {
        self.code.run()?;
        self.next = self.code.steps.len();
        Ok(())
    }

    /// Runs the next step; all of them, one by one, are what [`Running::run`] does.
    ///
    /// # Errors
    /// As [`Running::run`], or if there is none.
    pub fn step(&mut self) -> Result<()> {
        if self.next == self.code.steps.len() {
            return Err(Error::argument("program", "has no more steps"));
        }
        self.code.run_step(self.next)?;
        self.next += 1;
        Ok(())
    }

    /// A copy of a result of an equation that has run, if it still exists, which it does until the
    /// next step. `None` of literals, which are not computed, and
    /// of what is on the host.
    ///
    /// # Errors
    /// If the equation has not run.
    pub fn value(&self, equation: usize, result: usize) -> Result<Option<Output>> {
        let program = self.planned.program();
        let next = self.code.steps.get(self.next).map(|step| step.equation);
        let known = program.equations.get(equation).and_then(|e| e.outputs.get(result));
        let v = match known {
            Some(&v) if next.is_none_or(|next| equation < next) => v,
            _ => return Err(Error::argument("program", "the value is not there yet")),
        };
        let (location, spec) = (&self.planned.plan().locations[v.index()], program.spec(v));
        let (buffer, start): (&Buffer, usize) = match location.base {
            Base::Arena => (self.arena.memory(), location.start),
            Base::Constants | Base::Host => return Ok(None),
            Base::Input(i) => {
                let (BoundInput::Read(_, start) | BoundInput::Write(_, start)) = &self.inputs[i];
                (self.inputs[i].buffer(), start + location.start)
            }
            Base::Output(k) => {
                let at = self.planned.fresh().partition_point(|o| o.0 < k);
                (&self.outputs[at], location.start)
            }
        };
        let mut layout = location.layout.clone();
        // The offset may be negative: see `StepCompiler::operand`.
        layout.offset = layout.offset.wrapping_add(start / spec.dtype.size());
        let copied = run(Checked::copy(&[spec]), &[Input { buffer, layout: &layout, spec }])?;
        Ok(copied.into_iter().next())
    }
}

impl Drop for Running<'_, '_> {
    fn drop(&mut self) {
        // Incomplete outputs are not returned.
        if self.next < self.code.steps.len() {
            self.outputs.clear();
        }
    }
}

fn no_memory(what: &'static str, bytes: usize) -> Error {
    let message = format!("cannot allocate {bytes} bytes for the {what}");
    Error::new(ErrorKind::Memory, "program", message)
}
