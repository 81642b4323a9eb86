//! A program replayed into a new one, equation by equation.
//!
//! Passes that look at the definition of an operand look at the new program, where everything
//! before is rewritten already.

use crate::{Equation, Line, Op, Program, Spec, Var, Vars};
use std::sync::Arc;

pub(super) struct Rebuild<'a> {
    from: &'a Program,
    /// The new program so far.
    pub(super) out: Program,
    /// The new variable of each old one.
    to: Vec<Var>,
    /// The equation that defines each new variable; `None` for inputs.
    made: Vec<Option<u32>>,
}

impl<'a> Rebuild<'a> {
    pub(super) fn new(from: &'a Program) -> Rebuild<'a> {
        let mut out = Program { updates: from.updates.clone(), ..Program::default() };
        let mut to = vec![Var(u32::MAX); from.specs.len()];
        for &v in &from.inputs {
            to[v.index()] = out.input(from.spec(v).clone());
        }
        let made = vec![None; out.specs.len()];
        out.equations.reserve(from.equations.len());
        Rebuild { from, out, to, made }
    }

    /// The new variable of an old one.
    pub(super) fn var(&self, old: Var) -> Var {
        self.to[old.index()]
    }

    /// The new operands of an old equation.
    pub(super) fn inputs(&self, e: &Equation) -> Vars {
        e.inputs.iter().map(|&v| self.var(v)).collect()
    }

    /// Maps an old variable to an existing new one.
    pub(super) fn alias(&mut self, old: Var, new: Var) {
        self.to[old.index()] = new;
    }

    /// Appends an equation that defines the same variables as `e` by another op.
    pub(super) fn keep_as(&mut self, e: &Equation, op: Op, inputs: Vars) {
        let outputs = e.outputs.iter().map(|&v| self.fresh(self.from.spec(v).clone())).collect();
        for (&old, &new) in e.outputs.iter().zip(&outputs) {
            self.alias(old, new);
        }
        self.append(Equation { op, inputs, outputs, at: e.at });
    }

    /// Appends an equation, with `inside` applied to the programs it contains.
    pub(super) fn keep(&mut self, e: &Equation, inside: impl FnMut(&Program) -> Program) {
        let inputs = self.inputs(e);
        self.keep_as(e, with_programs(&e.op, inside), inputs);
    }

    /// Appends a new equation of one result; `None`, and nothing is appended, if the op does not
    /// accept the operands.
    pub(super) fn emit(&mut self, op: Op, inputs: &[Var], at: Option<Line>) -> Option<Var> {
        let specs = crate::infer::infer(&op, &self.out.specs_of(inputs)).ok()?;
        let outputs: Vars = specs.into_iter().map(|spec| self.fresh(spec)).collect();
        let first = outputs.first().copied();
        self.append(Equation { op, inputs: Vars::from_slice(inputs), outputs, at });
        first
    }

    /// The same for all results.
    pub(super) fn emit_all(&mut self, op: Op, inputs: &[Var], at: Option<Line>) -> Option<Vars> {
        self.emit(op, inputs, at)?;
        self.out.equations.last().map(|e| e.outputs.clone())
    }

    fn fresh(&mut self, spec: Spec) -> Var {
        self.made.push(Some(self.out.equations.len() as u32));
        self.out.fresh(spec)
    }

    fn append(&mut self, e: Equation) {
        self.out.equations.push(e);
    }

    /// The equation that defines a new variable.
    pub(super) fn made_by(&self, new: Var) -> Option<&Equation> {
        self.made[new.index()].map(|i| &self.out.equations[i as usize])
    }

    /// The spec of a new variable.
    pub(super) fn spec(&self, new: Var) -> &Spec {
        self.out.spec(new)
    }

    /// The new program, with the outputs of the old one.
    pub(super) fn finish(mut self) -> Program {
        self.out.outputs = self.from.outputs.iter().map(|&v| self.var(v)).collect();
        self.out
    }
}

/// The same op with each program inside replaced.
pub(super) fn with_programs(op: &Op, mut f: impl FnMut(&Program) -> Program) -> Op {
    match op {
        Op::Flow(flow) => Op::Flow(Arc::new(flow.map_programs(&mut f))),
        op => op.clone(),
    }
}

/// Replaying one program inside another: for inlining.
impl<'a> Rebuild<'a> {
    /// The spec of an old variable.
    pub(super) fn old_spec(&self, old: Var) -> &Spec {
        self.from.spec(old)
    }

    /// Replays `program`, whose inputs are `given`, at the end of the new program, and returns its
    /// results.
    pub(super) fn inlined(
        &mut self,
        program: &Program,
        given: &[Var],
        mut each: impl FnMut(&mut Rebuild, &Equation),
    ) -> Vec<Var> {
        let mut to = vec![Var(u32::MAX); program.specs.len()];
        for (&v, &given) in program.inputs.iter().zip(given) {
            to[v.index()] = given;
        }
        let out = std::mem::take(&mut self.out);
        let made = std::mem::take(&mut self.made);
        let mut inner = Rebuild { from: program, out, to, made };
        program.equations.iter().for_each(|e| each(&mut inner, e));
        let results = program.outputs.iter().map(|&v| inner.var(v)).collect();
        (self.out, self.made) = (inner.out, inner.made);
        results
    }
}
