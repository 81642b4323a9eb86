//! Programs that run: planned, prepared once, called many times.
//!
//! [`Executable::new`] checks a program, plans its memory ([`pullback_ir::pass::plan`]) and turns
//! every equation into a prepared step: a kernel, and for each operand and result the number of a
//! base address, an offset and a layout. A call fills in the base addresses (arena, inputs,
//! outputs) and runs the steps. Shapes were inferred and layouts checked when the steps were made,
//! so nothing is checked again, and nothing is allocated but the outputs, which come from the pool,
//! as the arena does for the time of the call ([`crate::buffer::Arena`]): programs that do not run
//! at the same time share one.
//!
//! # Why this is sound
//!
//! Kernels get raw pointers. Every one of them is a base address plus an offset that the plan
//! computed from the program's specs. The arena, which a call has to itself, and the constants are
//! as long as the plan says; outputs are allocated for each call by their specs; an input is
//! refused if the program's layout of it reaches outside its buffer. Inputs that are written are
//! borrowed mutably, so that nothing else reads them meanwhile. That no step writes what a later
//! one still has to read is the plan's business, which tests check by replaying plans element by
//! element.
//!
//! # When something fails
//!
//! An error (an index out of range) names the op, its operands and the line of the program that asked for it. Inputs that the program replaces are
//! then as they were: the plan writes none before the last op that may fail is over. Only a panic, which arises where a kernel cannot
//! get scratch memory, may leave a mixture of old and new values there.
//!
//! The files: [`code`] prepares and runs steps, [`flow`] runs choices and loops, [`straight`] joins steps on a few numbers.

mod code;
mod flow;
#[cfg(target_arch = "x86_64")]
mod straight;
#[cfg(test)]
mod tests;

use crate::Buffer;
use crate::buffer::Arena;
use crate::region::native_counts;
use crate::run::{Input, Output, Outputs, check, inside};
use crate::target::TARGET;
use code::{Code, allocate};
use pullback_ir::pass::plan::{Base, Plan, plan_bound};
use pullback_ir::pass::{has_bodies, inline};
use pullback_ir::{Error, ErrorKind, Layout, Line, Op, Program, Result, Spec, Structure};
use std::time::Instant;

/// A program that is ready to run. See the head of the module.
///
/// ```
/// # use pullback_cpu::{Bound, Buffer, Executable};
/// # use pullback_ir::{Binary, DType, Op, Program, Spec};
/// // step: p ← p − g
/// let mut program = Program::default();
/// let spec = Spec::cpu(DType::F32, [3].as_slice());
/// let (p, g) = (program.input(spec.clone()), program.input(spec));
/// program.outputs = program.push(Op::Binary(Binary::Sub), &[p, g], None)?.to_vec();
/// program.updates = vec![(0, 0)];
/// let mut step = Executable::new(&program)?;
///
/// let (mut p, g) = (Buffer::from_slice(&[1f32, 2.0, 3.0])?, Buffer::from_slice(&[1f32; 3])?);
/// for _ in 0..2 {
///     step.run(&mut [Bound::Write(&mut p, 0), Bound::Read(&g, 0)])?;
/// }
/// assert_eq!(p.to_vec::<f32>(DType::F32, 0, 3), Some(vec![-1.0, 0.0, 1.0]));
/// # Ok::<(), pullback_ir::Error>(())
/// ```
pub struct Executable {
    program: Program,
    plan: Plan,
    code: Code,
    inputs: Vec<Argument>,
    /// Position and bytes of the outputs that are handed out.
    outputs: Vec<(usize, usize)>,
    native: (usize, usize),
}

struct Argument {
    layout: Layout,
    written: bool,
}

/// The memory of an input, with the byte at which its elements begin.
pub enum Bound<'a> {
    /// Only read.
    Read(&'a Buffer, usize),
    /// Replaced by an output ([`Program::updates`]).
    Write(&'a mut Buffer, usize),
}

impl Bound<'_> {
    fn buffer(&self) -> &Buffer {
        match self {
            Bound::Read(buffer, _) => buffer,
            Bound::Write(buffer, _) => buffer,
        }
    }

    fn start(&self) -> usize {
        match self {
            Bound::Read(_, start) | Bound::Write(_, start) => *start,
        }
    }
}

/// How long a step took.
#[derive(Clone, Debug)]
pub struct Timed {
    /// The kernel, its operands and its results.
    pub step: String,
    /// The line of the user's program.
    pub at: Option<Line>,
    /// Nanoseconds.
    pub nanos: u64,
}

impl Executable {
    /// Checks, plans and prepares a program.
    ///
    /// # Errors
    /// If the program is wrong, or there is no memory for its constants.
    pub fn new(program: &Program) -> Result<Executable> {
        verify(program)?;
        let dense = |&v| Layout::dense(program.spec(v).shape.clone());
        Executable::bound(program, program.inputs.iter().map(dense).collect())
    }

    /// As [`Executable::new`], for a program that was verified and inputs that lie as given from their first element on.
    fn bound(program: &Program, layouts: Vec<Layout>) -> Result<Executable> {
        // Programs that went through no passes may still hold custom ops with bodies.
        let inlined;
        let program = match has_bodies(program) {
            false => program,
            true => {
                inlined = inline(program);
                &inlined
            }
        };
        let plan = plan_bound(program, &layouts, TARGET);
        let before = native_counts();
        let code = Code::new(program, &plan)?;
        let now = native_counts();
        let mut own = vec![true; program.outputs.len()];
        let mut written = vec![false; program.inputs.len()];
        for &(k, i) in &program.updates {
            (own[k], written[i]) = (false, true);
        }
        let bytes = |k: usize| (k, program.spec(program.outputs[k]).bytes());
        Ok(Executable {
            inputs: layouts
                .into_iter()
                .enumerate()
                .map(|(i, layout)| Argument { layout, written: written[i] })
                .collect(),
            outputs: (0..program.outputs.len()).filter(|&k| own[k]).map(bytes).collect(),
            program: program.clone(),
            plan,
            code,
            native: (now.0 - before.0, now.1 - before.1),
        })
    }

    /// The program it runs.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Where everything is kept.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Bytes that it holds between calls: the constants.
    pub fn held(&self) -> usize {
        self.plan.all_constants()
    }

    /// How often native code was made for it, and how often code that was there already serves it:
    /// that of equal regions, here or in programs that are still there.
    pub fn native_code(&self) -> (usize, usize) {
        self.native
    }

    /// The kernels, in order.
    pub fn kernels(&self) -> Vec<&str> {
        self.code.steps.iter().map(code::Step::name).collect()
    }

    /// Runs the program: gives the outputs that do not replace an input, in order, in fresh buffers.
    ///
    /// # Errors
    /// If the inputs are not those of the program, or an op fails; the inputs that are replaced are then as they were.
    pub fn run(&mut self, inputs: &mut [Bound<'_>]) -> Result<Vec<Buffer>> {
        let mut outputs = Vec::with_capacity(self.outputs.len());
        self.run_into(inputs, &mut outputs)?;
        Ok(outputs)
    }

    /// As [`Executable::run`], with a list that is cleared and filled: with room in it, nothing but the pool is asked for memory.
    ///
    /// # Errors
    /// As [`Executable::run`]; the list is then empty.
    pub fn run_into(&mut self, inputs: &mut [Bound<'_>], outputs: &mut Vec<Buffer>) -> Result<()> {
        outputs.clear();
        let mut arena = self.arena()?;
        self.bind(&mut arena, inputs, outputs)?;
        self.code.run().inspect_err(|_| outputs.clear())
    }

    /// Runs the program and says how long each step took, steps on a few numbers one by one too, which a run joins.
    ///
    /// # Errors
    /// As [`Executable::run`].
    pub fn profile(&mut self, inputs: &mut [Bound<'_>]) -> Result<Vec<Timed>> {
        let (mut arena, mut outputs) = (self.arena()?, Vec::new());
        self.bind(&mut arena, inputs, &mut outputs)?;
        let mut times = Vec::with_capacity(self.code.steps.len());
        let bases = &self.code.bases.0;
        for step in &mut self.code.steps {
            let start = Instant::now();
            step.run(bases)?;
            times.push(start.elapsed().as_nanos() as u64);
        }
        let timed = |(step, nanos): (&code::Step, u64)| {
            let list = |specs: &mut dyn Iterator<Item = Spec>| {
                specs.map(|s| s.to_string()).collect::<Vec<_>>().join(", ")
            };
            let from = list(&mut step.sources.iter().map(code::Operand::spec));
            let to = list(&mut step.sinks.iter().map(code::Target::spec));
            Timed { step: format!("{} ({from}) → {to}", step.name()), at: step.at, nanos }
        };
        Ok(self.code.steps.iter().zip(times).map(timed).collect())
    }

    /// Runs the program and shows every result of every equation when it has just been made: `see(equation, result, value)`.
    ///
    /// # Errors
    /// As [`Executable::run`].
    pub fn run_observed(
        &mut self,
        inputs: &mut [Bound<'_>],
        see: &mut dyn FnMut(usize, usize, Input<'_>),
    ) -> Result<Vec<Buffer>> {
        let (mut arena, mut outputs) = (self.arena()?, Vec::new());
        self.bind(&mut arena, inputs, &mut outputs)?;
        let mut next = 0;
        for e in 0..=self.program.equations.len() {
            while let Some(step) = self.code.steps.get_mut(next)
                && step.equation == e
            {
                step.run(&self.code.bases.0)?;
                next += 1;
            }
            let Some(equation) = self.program.equations.get(e) else { break };
            for (j, &v) in equation.outputs.iter().enumerate() {
                let (home, spec) = (&self.plan.homes[v.index()], self.program.spec(v));
                let (buffer, start) = match home.base {
                    Base::Arena => (&*arena, home.start),
                    Base::Constants => (&self.code.constants, home.start),
                    Base::Input(i) => (inputs[i].buffer(), inputs[i].start() + home.start),
                    Base::Output(k) => {
                        let at = self.outputs.partition_point(|o| o.0 < k);
                        (&outputs[at], home.start)
                    }
                };
                let mut layout = home.layout.clone();
                // The offset may be negative: see `Compiler::operand`.
                layout.offset = layout.offset.wrapping_add(start / spec.dtype.size());
                see(e, j, Input { buffer, layout: &layout, spec });
            }
        }
        Ok(outputs)
    }

    /// Memory to work in, for one call.
    fn arena(&self) -> Result<Arena> {
        let bytes = self.plan.arena;
        Arena::take(bytes).map_err(|_| no_memory("arena", bytes))
    }

    /// Checks the inputs, takes memory for the outputs, and fills in the base addresses.
    fn bind(
        &mut self,
        arena: &mut Arena,
        inputs: &mut [Bound<'_>],
        outputs: &mut Vec<Buffer>,
    ) -> Result<()> {
        outputs.clear();
        if inputs.len() != self.inputs.len() {
            return Err(Error::argument(
                "program",
                format!("takes {} inputs, not {}", self.inputs.len(), inputs.len()),
            ));
        }
        for (i, bound) in inputs.iter_mut().enumerate() {
            let argument = &self.inputs[i];
            let spec = self.program.spec(self.program.inputs[i]);
            let start = bound.start();
            let (bytes, size) = (bound.buffer().len(), spec.dtype.size());
            let fits = start.is_multiple_of(size)
                && inside(bytes, start / size, &argument.layout, spec) == Some(true);
            let ptr = match bound {
                Bound::Read(buffer, _) if !argument.written => buffer.as_ptr().cast_mut(),
                Bound::Write(buffer, _) if argument.written => buffer.as_mut_ptr(),
                Bound::Read(..) | Bound::Write(..) => {
                    let how = if argument.written { "is replaced" } else { "is only read" };
                    let message = format!("input {i} {how}, and must be bound so");
                    return Err(Error::argument("program", message).on([spec]));
                }
            };
            if !fits {
                let message =
                    format!("input {i} does not fit: {bytes} bytes, read from {start} on");
                return Err(Error::argument("program", message).on([spec]));
            }
            self.code.set_input(i, ptr.wrapping_add(start));
        }
        for &(k, bytes) in &self.outputs {
            let mut buffer = allocate("outputs", bytes).inspect_err(|_| outputs.clear())?;
            self.code.set_output(k, buffer.as_mut_ptr());
            outputs.push(buffer);
        }
        self.code.set_arena(arena.as_mut_ptr());
        Ok(())
    }
}

fn no_memory(what: &'static str, bytes: usize) -> Error {
    Error::new(ErrorKind::Memory, "program", format!("{bytes} bytes for the {what}"))
        .detail("could not be had")
}

/// Checks a program and those inside it.
fn verify(program: &Program) -> Result<()> {
    program.verify()?;
    for equation in &program.equations {
        for inner in equation.op.structure().map_or(Vec::new(), Structure::programs) {
            let located = |error: Error| match equation.at {
                Some(at) => error.at(at),
                None => error,
            };
            verify(inner).map_err(located)?;
        }
    }
    Ok(())
}

/// Runs an op that holds programs or a region, by making a program of it.
pub(crate) fn run_once(op: &Op, inputs: &[Input]) -> Result<Outputs> {
    let mut program = Program::default();
    let mut layouts = Vec::with_capacity(inputs.len());
    let mut bound = Vec::with_capacity(inputs.len());
    for x in inputs {
        check(x.buffer, x.layout, x.spec)?;
        program.input(x.spec.clone());
        let (shape, strides) = (x.spec.shape.clone(), x.layout.strides.clone());
        layouts.push(Layout { shape, strides, offset: 0 });
        bound.push(Bound::Read(x.buffer, x.layout.offset * x.spec.dtype.size()));
    }
    let results = program.push(op.clone(), &program.inputs.clone(), None)?;
    program.outputs = results.to_vec();
    verify(&program)?;
    let buffers = Executable::bound(&program, layouts)?.run(&mut bound)?;
    let output = |(buffer, &v)| Output { buffer, spec: program.spec(v).clone(), splat: false };
    Ok(buffers.into_iter().zip(&program.outputs).map(output).collect())
}
