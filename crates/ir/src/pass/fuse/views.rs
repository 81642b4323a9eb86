//! Moves views in front of pointwise ops that have no other reader: `permute(f(x))` becomes
//! `f(permute(x))`, a view of memory.
//!
//! Only where the view does not repeat elements, and is itself read by ops that fuse: before a
//! product or a kernel, a view of a dense result is better than strided reads.

use super::super::rebuild::Rebuild;
use super::is_point;
use crate::infer::view_shape;
use crate::{Line, Op, Program, Var, Vars, View};

/// How many ops a view moves past.
const FURTHEST: usize = 24;

pub(super) fn earlier(program: &Program) -> Program {
    if !program.equations.iter().any(|e| matches!(e.op, Op::View(_))) {
        return program.clone();
    }
    let fusing = read_by_what_fuses(program);
    let uses = program.uses();
    let mut moving = Moving { new: Rebuild::new(program), once: Vec::new() };
    for e in &program.equations {
        let moved = match &e.op {
            Op::View(view) if fusing[e.outputs[0].index()] && moves(view) => {
                let source = moving.new.var(e.inputs[0]);
                let worth = moving.is_open(source);
                worth.then(|| moving.seen_through(source, view, 0, e.at)).flatten()
            }
            _ => None,
        };
        match moved {
            Some(v) => moving.new.alias(e.outputs[0], v),
            // Programs inside are fused separately.
            None => moving.new.keep(e, Program::clone),
        }
        moving.once.resize(moving.new.out.specs.len(), true);
        for &v in &e.outputs {
            let to = moving.new.var(v);
            moving.once[to.index()] = uses[v.index()] == 1;
        }
    }
    moving.new.finish()
}

/// Which variables are read by pointwise ops and reductions only, or by such views.
fn read_by_what_fuses(program: &Program) -> Vec<bool> {
    let mut fusing = vec![true; program.specs.len()];
    program.outputs.iter().for_each(|v| fusing[v.index()] = false);
    for e in program.equations.iter().rev() {
        let fuses = match &e.op {
            Op::View(_) => fusing[e.outputs[0].index()],
            Op::Reduce(..) => true,
            op => is_point(op),
        };
        if !fuses {
            e.inputs.iter().for_each(|v| fusing[v.index()] = false);
        }
    }
    fusing
}

/// Views that repeat no element. Reshapes do not matter to a region, and may have no strides.
fn moves(view: &View) -> bool {
    match view {
        View::Permute(_) | View::Slice(_) | View::Flip(_) | View::Diagonal { .. } => true,
        View::Reshape(_) | View::Broadcast(_) | View::Unfold { .. } => false,
    }
}

struct Moving<'a> {
    new: Rebuild<'a>,
    /// Whether each new variable is read once.
    once: Vec<bool>,
}

impl Moving<'_> {
    /// Whether a view may move past the op that defines this.
    fn is_open(&self, v: Var) -> bool {
        self.once.get(v.index()).copied().unwrap_or(false)
            && self.new.made_by(v).is_some_and(|e| is_point(&e.op))
    }

    fn seen_through(&mut self, v: Var, view: &View, depth: usize, at: Option<Line>) -> Option<Var> {
        let made = self.new.made_by(v).map(|e| (e.op.clone(), e.inputs.clone(), e.at));
        match made {
            Some((Op::Literal { value, dtype, device, .. }, _, at)) => {
                let shape = view_shape(view, self.new.spec(v)).ok()?;
                self.new.emit(Op::Literal { value, shape, dtype, device }, &[], at)
            }
            Some((op, inputs, at)) if depth < FURTHEST && self.is_open(v) => {
                let mut seen = Vars::new();
                for &input in &inputs {
                    seen.push(self.seen_through(input, view, depth + 1, at)?);
                }
                self.new.emit(op, &seen, at)
            }
            _ => self.new.emit(Op::View(view.clone()), &[v], at),
        }
    }
}
