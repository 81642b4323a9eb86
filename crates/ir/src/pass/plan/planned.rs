//! A program together with its plan: what a backend prepares.

use super::{Plan, plan_bound};
use crate::infer::Checked;
use crate::pass::{Target, has_bodies, inline};
use crate::{Error, Layout, Line, Op, Program, Result, Spec, Structure};

/// A program that was verified, and planned for inputs of known layouts.
///
/// It can only be made by [`Planned::new`], [`Planned::bound`] and [`Planned::of_op`]. So a backend
/// that prepares one may rely on the plan being that of the program, and use its addresses.
///
/// ```
/// # use pullback_ir::{pass::{Target, plan::Planned}, DType, Op, Program, Spec, Unary};
/// let mut p = Program::default();
/// let x = p.input(Spec::cpu(DType::F32, [256].as_slice()));
/// p.outputs = p.push(Op::Unary(Unary::Exp), &[x], None)?.to_vec();
/// let planned = Planned::new(&p, Target::default())?;
/// assert_eq!(planned.fresh(), [(0, 1024)]);
/// assert!(planned.check_input(0, 1024, 0, false).is_ok());
/// assert!(planned.check_input(0, 1023, 0, false).is_err());
/// # Ok::<(), pullback_ir::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Planned {
    program: Program,
    plan: Plan,
    inputs: Vec<InputBinding>,
    fresh: Vec<(usize, usize)>,
}

/// How an input is bound.
#[derive(Clone, Debug)]
struct InputBinding {
    /// The layout of its elements, from the first on.
    layout: Layout,
    /// An output replaces it.
    written: bool,
}

impl Planned {
    /// Verifies a program and plans it for dense inputs.
    ///
    /// # Errors
    /// If the program is invalid.
    pub fn new(program: &Program, target: Target) -> Result<Planned> {
        let dense = |&v| Layout::dense(program.spec(v).shape.clone());
        let layouts = program.inputs.iter().map(dense).collect();
        Planned::bound(program, layouts, target)
    }

    /// Verifies a program and plans it for inputs of given layouts, each from its first element on.
    ///
    /// # Errors
    /// If the program is invalid, or the layouts are not those of its inputs.
    pub fn bound(program: &Program, layouts: Vec<Layout>, target: Target) -> Result<Planned> {
        verify(program)?;
        Planned::verified(program, layouts, target)
    }

    /// Plans the program of one op, which was checked, for operands of given layouts. Only the
    /// programs inside the op are verified here.
    ///
    /// # Errors
    /// If a program inside is invalid, or the layouts are not those of the operands.
    pub fn of_op(call: Checked<'_>, layouts: Vec<Layout>, target: Target) -> Result<Planned> {
        verify_inside(call.op(), None)?;
        let mut program = Program::default();
        for &spec in call.operands() {
            program.input(spec.clone());
        }
        program.outputs = program.push_checked(call, &program.inputs.clone(), None).to_vec();
        Planned::verified(&program, layouts, target)
    }

    fn verified(program: &Program, layouts: Vec<Layout>, target: Target) -> Result<Planned> {
        // Programs that went through no passes may still contain custom ops with bodies.
        let program = if has_bodies(program) { inline(program) } else { program.clone() };
        let mut own = vec![true; program.outputs.len()];
        let mut written = vec![false; program.inputs.len()];
        for &(k, i) in &program.updates {
            (own[k], written[i]) = (false, true);
        }
        let fits = |(i, layout): (usize, &Layout)| {
            layout.shape == program.spec(program.inputs[i]).shape
                && layout.offset == 0
                && (!written[i] || layout.is_dense())
        };
        if layouts.len() != program.inputs.len() || !layouts.iter().enumerate().all(fits) {
            return Err(Error::argument("program", "these layouts are not those of its inputs"));
        }
        // Kernels use addresses in the arena as those of elements, so they must be aligned.
        if !target.align.is_power_of_two() || target.align < 8 {
            let message = format!("memory aligned to {} bytes holds no elements", target.align);
            return Err(Error::argument("program", message));
        }
        let plan = plan_bound(&program, &layouts, target);
        let inputs = layouts.into_iter().zip(written);
        let bytes = |k: usize| (k, program.spec(program.outputs[k]).bytes());
        Ok(Planned {
            inputs: inputs.map(|(layout, written)| InputBinding { layout, written }).collect(),
            fresh: (0..program.outputs.len()).filter(|&k| own[k]).map(bytes).collect(),
            program,
            plan,
        })
    }

    /// The program, with the bodies of custom ops inlined.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The memory plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The outputs that replace no input, which a call returns: position and bytes.
    pub fn fresh(&self) -> &[(usize, usize)] {
        &self.fresh
    }

    /// How many inputs there are.
    pub fn inputs(&self) -> usize {
        self.inputs.len()
    }

    /// The spec of an input.
    pub fn input(&self, i: usize) -> &Spec {
        self.program.spec(self.program.inputs[i])
    }

    /// Whether an output replaces this input.
    pub fn is_written(&self, i: usize) -> bool {
        self.inputs[i].written
    }

    /// Checks that an input may be bound to memory of this many bytes, from byte `start` on, to be
    /// written or only read.
    ///
    /// # Errors
    /// If it may not.
    #[inline]
    pub fn check_input(&self, i: usize, bytes: usize, start: usize, written: bool) -> Result<()> {
        let (argument, spec) = (&self.inputs[i], self.input(i));
        let (size, Layout { shape, strides, .. }) = (spec.dtype.size(), &argument.layout);
        let fits = start.is_multiple_of(size)
            && Layout::inside(bytes, start / size, shape, strides, size) == Some(true);
        if fits && written == argument.written {
            return Ok(());
        }
        Err(self.misfit(i, bytes, start, written))
    }

    #[cold]
    fn misfit(&self, i: usize, bytes: usize, start: usize, written: bool) -> Error {
        let expected = self.inputs[i].written;
        let message = match written == expected {
            true => format!("input {i} does not fit: {bytes} bytes, read from {start} on"),
            false => {
                let how = if expected { "is replaced" } else { "is only read" };
                format!("input {i} {how}, and must be bound so")
            }
        };
        Error::argument("program", message).on([self.input(i)])
    }

    /// Checks that as many inputs are bound as there are.
    ///
    /// # Errors
    /// If not.
    pub fn check_count(&self, inputs: usize) -> Result<()> {
        match inputs == self.inputs.len() {
            true => Ok(()),
            false => {
                let message = format!("takes {} inputs, not {inputs}", self.inputs.len());
                Err(Error::argument("program", message))
            }
        }
    }
}

/// Checks a program and those inside it.
fn verify(program: &Program) -> Result<()> {
    program.verify()?;
    program.equations.iter().try_for_each(|e| verify_inside(&e.op, e.at))
}

/// Checks the programs inside an op.
fn verify_inside(op: &Op, at: Option<Line>) -> Result<()> {
    let located = |error: Error| match at {
        Some(at) => error.at(at),
        None => error,
    };
    let inside = op.structure().map_or(Vec::new(), Structure::programs);
    inside.into_iter().try_for_each(verify).map_err(located)
}
