//! Conditionals and loops: the same code run with other base addresses.
//!
//! An iteration of a loop costs what its steps cost and a few stores: operands that are shared by
//! all iterations are set once, the carry stays in the memory of the results (the body's plan
//! updates it in place), and rows of sequences and of stacked results are base addresses that
//! advance. Shared matrices that the body multiplies with are packed once, before the first
//! iteration.

use super::code::{ARENA, ProgramCode, StepOperand, StepResult};
use crate::operand::Source;
use crate::pointwise;
use pullback_ir::pass::plan::Plan;
use pullback_ir::{Error, Flow, Result};

/// The programs of an [`pullback_ir::Op::Flow`], ready to run.
pub(super) struct FlowStep {
    kind: FlowCode,
    /// The offset of the programs' arena in the parent's.
    arena: usize,
}

enum FlowCode {
    Cond { yes: ProgramCode, no: ProgramCode },
    While { test: ProgramCode, body: ProgramCode, shared: usize, condition: usize },
    Scan { body: ProgramCode, shared: usize, carry: usize, length: usize, reverse: bool },
}

impl FlowStep {
    /// The generated code of its programs, as text.
    pub(super) fn listings(&self) -> Vec<String> {
        let programs: Vec<&ProgramCode> = match &self.kind {
            FlowCode::Cond { yes, no } => vec![yes, no],
            FlowCode::While { test, body, .. } => vec![test, body],
            FlowCode::Scan { body, .. } => vec![body],
        };
        programs.into_iter().flat_map(ProgramCode::listings).map(|code| code.text).collect()
    }

    /// `arena` and `condition` are the offsets, in the parent's arena, of the programs' arena and
    /// of the result of a loop's condition.
    pub(super) fn new(
        flow: &Flow,
        plans: &[Plan],
        arena: usize,
        condition: usize,
    ) -> Result<FlowStep> {
        let kind = match (flow, plans) {
            (Flow::Cond { yes, no }, [a, b]) => {
                FlowCode::Cond { yes: ProgramCode::new(yes, a)?, no: ProgramCode::new(no, b)? }
            }
            (Flow::While { test, body, shared }, [a, b]) => {
                let (test, body) = (ProgramCode::new(test, a)?, ProgramCode::new(body, b)?);
                FlowCode::While { test, body, shared: *shared, condition }
            }
            (Flow::Scan(scan), [a]) => FlowCode::Scan {
                body: ProgramCode::new(&scan.body, a)?,
                shared: scan.shared,
                carry: scan.carry,
                length: scan.length,
                reverse: scan.reverse,
            },
            (flow, plans) => {
                let message = format!("has {} plans for the programs inside", plans.len());
                return Err(Error::argument(flow.name(), message));
            }
        };
        Ok(FlowStep { kind, arena })
    }

    pub(super) fn name(&self) -> &'static str {
        match self.kind {
            FlowCode::Cond { .. } => "cond",
            FlowCode::While { .. } => "while",
            FlowCode::Scan { .. } => "scan",
        }
    }

    pub(super) fn run(
        &mut self,
        x: &[StepOperand],
        out: &[StepResult],
        bases: &[*mut u8],
    ) -> Result<()> {
        let arena = bases[ARENA].wrapping_add(self.arena);
        match &mut self.kind {
            FlowCode::Cond { yes, no } => {
                // SAFETY: the condition is one element of type bool; any byte may be read.
                let taken = unsafe { *x[0].ptr(bases) } != 0;
                let code = if taken { yes } else { no };
                code.set_arena(arena);
                x[1..].iter().enumerate().for_each(|(i, x)| code.set_input(i, x.ptr(bases)));
                out.iter().enumerate().for_each(|(k, y)| code.set_output(k, y.ptr(bases)));
                code.run()
            }
            FlowCode::While { test, body, shared, condition } => {
                let condition = bases[ARENA].wrapping_add(*condition);
                begin(&x[*shared..], out, bases);
                for code in [&mut *test, &mut *body] {
                    code.set_arena(arena);
                    share(code, &x[..*shared], &x[*shared..], out, bases);
                }
                test.set_output(0, condition);
                let mut packed = PackedCodes::new([test, body], *shared);
                let [test, body] = &mut packed.codes;
                let mut iteration = 0usize;
                loop {
                    let failed = |error: Error| {
                        error.detail(format!("in iteration {iteration} of the loop"))
                    };
                    test.run().map_err(failed)?;
                    // SAFETY: a byte of the arena that the condition has just written.
                    if unsafe { *condition } == 0 {
                        return Ok(());
                    }
                    body.run().map_err(failed)?;
                    iteration += 1;
                }
            }
            FlowCode::Scan { body, shared, carry, length, reverse } => {
                let (fixed, sequences) = x.split_at(*shared + *carry);
                let (state, ys) = out.split_at(*carry);
                begin(&fixed[*shared..], state, bases);
                body.set_arena(arena);
                share(body, &fixed[..*shared], &fixed[*shared..], state, bases);
                // For one iteration, packing in advance gains nothing.
                let mut packed = PackedCodes::new([body], if *length > 1 { *shared } else { 0 });
                let [body] = &mut packed.codes;
                for iteration in 0..*length {
                    let row = if *reverse { *length - 1 - iteration } else { iteration };
                    for (i, x) in sequences.iter().enumerate() {
                        let step = x.strides[0] * x.dtype.size() as isize;
                        let ptr = x.ptr(bases).wrapping_offset(step * row as isize);
                        body.set_input(*shared + *carry + i, ptr);
                    }
                    for (k, y) in ys.iter().enumerate() {
                        let step = y.shape[1..].iter().product::<usize>() * y.dtype.size();
                        body.set_output(*carry + k, y.ptr(bases).wrapping_add(step * row));
                    }
                    body.run().map_err(|error| {
                        error.detail(format!("in iteration {iteration} of the scan"))
                    })?;
                }
                Ok(())
            }
        }
    }
}

/// Codes whose shared operands are packed while this lives.
struct PackedCodes<'a, const N: usize> {
    codes: [&'a mut ProgramCode; N],
}

impl<'a, const N: usize> PackedCodes<'a, N> {
    fn new(mut codes: [&'a mut ProgramCode; N], shared: usize) -> Self {
        codes.iter_mut().for_each(|code| code.pack(shared));
        PackedCodes { codes }
    }
}

impl<const N: usize> Drop for PackedCodes<'_, N> {
    fn drop(&mut self) {
        self.codes.iter_mut().for_each(|code| code.unpack());
    }
}

/// Copies the initial state to where it is updated, unless it is there already.
fn begin(first: &[StepOperand], state: &[StepResult], bases: &[*mut u8]) {
    for (from, to) in first.iter().zip(state) {
        let source: Source = from.source(bases);
        pointwise::copy(source, to.sink(bases));
    }
}

/// Sets what all iterations share: the shared operands, and the state in the memory of the results.
fn share(
    code: &mut ProgramCode,
    fixed: &[StepOperand],
    first: &[StepOperand],
    state: &[StepResult],
    bases: &[*mut u8],
) {
    fixed.iter().enumerate().for_each(|(i, x)| code.set_input(i, x.ptr(bases)));
    for (c, _) in first.iter().enumerate() {
        code.set_input(fixed.len() + c, state[c].ptr(bases));
    }
}
