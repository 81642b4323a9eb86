//! Choices and loops: the same code run with other base addresses.
//!
//! A turn of a loop costs what its steps cost and a few stores: operands that are shared by all turns are set once, the carry stays
//! in the memory of the results (the body's plan updates it there), and rows of sequences and of stacked results are base addresses that move on.
//! Shared matrices that the turns multiply with are packed once, before the first turn.

use super::code::{ARENA, Code, Operand, Target};
use crate::operand::Source;
use crate::pointwise;
use pullback_ir::pass::plan::Plan;
use pullback_ir::{Error, Flow, Result};

/// The programs of an [`pullback_ir::Op::Flow`], ready to run.
pub(super) struct Turns {
    kind: Kind,
    /// Where in the parent's arena that of the programs is.
    arena: usize,
}

enum Kind {
    Cond { yes: Code, no: Code },
    While { test: Code, body: Code, shared: usize, said: usize },
    Scan { body: Code, shared: usize, carry: usize, length: usize, reverse: bool },
}

impl Turns {
    /// `arena` and `said` are where, in the parent's arena, the programs work and the test of a loop leaves its answer.
    pub(super) fn new(flow: &Flow, plans: &[Plan], arena: usize, said: usize) -> Result<Turns> {
        let kind = match (flow, plans) {
            (Flow::Cond { yes, no }, [a, b]) => {
                Kind::Cond { yes: Code::new(yes, a)?, no: Code::new(no, b)? }
            }
            (Flow::While { test, body, shared }, [a, b]) => {
                let (test, body) = (Code::new(test, a)?, Code::new(body, b)?);
                Kind::While { test, body, shared: *shared, said }
            }
            (Flow::Scan(scan), [a]) => Kind::Scan {
                body: Code::new(&scan.body, a)?,
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
        Ok(Turns { kind, arena })
    }

    pub(super) fn name(&self) -> &'static str {
        match self.kind {
            Kind::Cond { .. } => "cond",
            Kind::While { .. } => "while",
            Kind::Scan { .. } => "scan",
        }
    }

    pub(super) fn run(&mut self, x: &[Operand], out: &[Target], bases: &[*mut u8]) -> Result<()> {
        let arena = bases[ARENA].wrapping_add(self.arena);
        match &mut self.kind {
            Kind::Cond { yes, no } => {
                // SAFETY: the condition is one element of type bool; reading it as a byte is fine whatever it holds.
                let taken = unsafe { *x[0].ptr(bases) } != 0;
                let code = if taken { yes } else { no };
                code.set_arena(arena);
                x[1..].iter().enumerate().for_each(|(i, x)| code.set_input(i, x.ptr(bases)));
                out.iter().enumerate().for_each(|(k, y)| code.set_output(k, y.ptr(bases)));
                code.run()
            }
            Kind::While { test, body, shared, said } => {
                let said = bases[ARENA].wrapping_add(*said);
                begin(&x[*shared..], out, bases);
                for code in [&mut *test, &mut *body] {
                    code.set_arena(arena);
                    share(code, &x[..*shared], &x[*shared..], out, bases);
                }
                test.set_output(0, said);
                let mut packed = Packed::new([test, body], *shared);
                let [test, body] = &mut packed.codes;
                let mut turn = 0usize;
                loop {
                    let failed = |error: Error| error.detail(format!("in turn {turn} of the loop"));
                    test.run().map_err(failed)?;
                    // SAFETY: a byte of the arena that the test has just written.
                    if unsafe { *said } == 0 {
                        return Ok(());
                    }
                    body.run().map_err(failed)?;
                    turn += 1;
                }
            }
            Kind::Scan { body, shared, carry, length, reverse } => {
                let (fixed, sequences) = x.split_at(*shared + *carry);
                let (state, ys) = out.split_at(*carry);
                begin(&fixed[*shared..], state, bases);
                body.set_arena(arena);
                share(body, &fixed[..*shared], &fixed[*shared..], state, bases);
                // For one turn, packing as it goes is as good.
                let mut packed = Packed::new([body], if *length > 1 { *shared } else { 0 });
                let [body] = &mut packed.codes;
                for turn in 0..*length {
                    let row = if *reverse { *length - 1 - turn } else { turn };
                    for (i, x) in sequences.iter().enumerate() {
                        let step = x.strides[0] * x.dtype.size() as isize;
                        let ptr = x.ptr(bases).wrapping_offset(step * row as isize);
                        body.set_input(*shared + *carry + i, ptr);
                    }
                    for (k, y) in ys.iter().enumerate() {
                        let step = y.shape[1..].iter().product::<usize>() * y.dtype.size();
                        body.set_output(*carry + k, y.ptr(bases).wrapping_add(step * row));
                    }
                    body.run()
                        .map_err(|error| error.detail(format!("in turn {turn} of the scan")))?;
                }
                Ok(())
            }
        }
    }
}

/// Codes whose shared operands are packed, for as long as this lives.
struct Packed<'a, const N: usize> {
    codes: [&'a mut Code; N],
}

impl<'a, const N: usize> Packed<'a, N> {
    fn new(mut codes: [&'a mut Code; N], shared: usize) -> Self {
        codes.iter_mut().for_each(|code| code.pack(shared));
        Packed { codes }
    }
}

impl<const N: usize> Drop for Packed<'_, N> {
    fn drop(&mut self) {
        self.codes.iter_mut().for_each(|code| code.unpack());
    }
}

/// Puts the first state where it is updated, unless it is there.
fn begin(first: &[Operand], state: &[Target], bases: &[*mut u8]) {
    for (from, to) in first.iter().zip(state) {
        let source: Source = from.source(bases);
        pointwise::copy(source, to.sink(bases));
    }
}

/// What all turns see: the shared operands as they lie, and the state where the results are.
fn share(
    code: &mut Code,
    fixed: &[Operand],
    first: &[Operand],
    state: &[Target],
    bases: &[*mut u8],
) {
    fixed.iter().enumerate().for_each(|(i, x)| code.set_input(i, x.ptr(bases)));
    for (c, _) in first.iter().enumerate() {
        code.set_input(fixed.len() + c, state[c].ptr(bases));
    }
}
