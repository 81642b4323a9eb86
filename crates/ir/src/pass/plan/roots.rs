//! Whose memory a variable is in, and where there: that of its own, of the value that it is a view
//! of, or of a value that is made later and of which it is a part.
//!
//! On targets whose kernels write results through strides ([`Target::strided_results`]), a result
//! that is only turned and reshaped afterwards is laid out so that both are views; and where it
//! becomes a piece of [`Op::Cat`], it is computed inside that result, which then has nothing to
//! copy. So heads of attention lie side by side, and gradients of queries, keys and values in one
//! buffer.
//!
//! [`Target::strided_results`]: super::super::Target::strided_results

use super::slots::Planner;
use crate::{Axes, Layout, Op, Program, Shape, Span, Var, View};

impl Planner<'_> {
    /// The root of each variable, and its layout in the memory of the root.
    pub fn find_roots(&mut self) {
        if self.target.strided_results {
            self.lay_out_results();
        }
        for equation in &self.program.equations {
            let Some(out) = equation.outputs.first().map(|v| v.index()) else { continue };
            match &equation.op {
                Op::View(view) => {
                    let x = equation.inputs[0].index();
                    if let Some(layout) = self.layouts[x].view(view) {
                        self.roots[out] = self.roots[x];
                        self.layouts[out] = layout;
                    }
                }
                Op::After | Op::Wait => self.refer(out, equation.inputs[0].index()),
                Op::Transfer(step) if !step.starts() => {
                    self.refer(out, equation.inputs[0].index());
                }
                // Copied as it lies, if that is the whole.
                Op::Transfer(_) if self.target.strided_results => {
                    let layout = &self.layouts[equation.inputs[0].index()];
                    if layout.is_dense_in_some_order() {
                        self.layouts[out] = Layout { offset: 0, ..layout.clone() };
                    }
                }
                Op::Literal { shape, .. } => self.layouts[out] = Layout::splat(shape.clone()),
                _ => {}
            }
        }
    }

    /// A variable that is another one.
    fn refer(&mut self, out: usize, x: usize) {
        self.roots[out] = self.roots[x];
        self.layouts[out] = self.layouts[x].clone();
    }

    fn lay_out_results(&mut self) {
        let strided = |e: &crate::Equation| e.op.strided_results();
        if !self.program.equations.iter().any(|e| strided(e) > 0) {
            return;
        }
        let readers = readers(self.program);
        for equation in &self.program.equations {
            for &v in &equation.outputs[..strided(equation)] {
                let Some(turned) = self.turned(v, &readers) else { continue };
                let (root, layout) = match self.inside(&turned, &readers) {
                    Some((cat, layout)) => (cat, Some(layout)),
                    None => (v, turned.alone()),
                };
                if let Some(layout) = layout {
                    (self.roots[v.index()], self.layouts[v.index()]) = (root, layout);
                }
            }
        }
    }

    /// How a result is turned before it is reshaped, if that would be a copy.
    fn turned(&self, v: Var, readers: &[Vec<usize>]) -> Option<Turned> {
        let views = |v: Var| {
            readers[v.index()].iter().filter_map(|&e| {
                let e = &self.program.equations[e];
                if let Op::View(view) = &e.op { Some((view, e.outputs[0])) } else { None }
            })
        };
        let dense = Layout::dense(self.program.spec(v).shape.clone());
        for (view, turned) in views(v) {
            let View::Permute(order) = view else { continue };
            let Some(seen) = dense.view(view) else { continue };
            for (view, reshaped) in views(turned) {
                if matches!(view, View::Reshape(_)) && seen.view(view).is_none() {
                    let shape = seen.shape;
                    return Some(Turned { order: order.clone(), shape, reshaped });
                }
            }
        }
        None
    }

    /// The result of a `cat` that the reshaped value is a piece of, and the layout of the result
    /// before it was turned there.
    fn inside(&self, of: &Turned, readers: &[Vec<usize>]) -> Option<(Var, Layout)> {
        let [e] = readers[of.reshaped.index()][..] else { return None };
        let equation = &self.program.equations[e];
        let (Op::Cat(axis), whole) = (&equation.op, equation.outputs[0]) else { return None };
        if self.program.outputs.contains(&whole) {
            return None;
        }
        let k = equation.inputs.iter().position(|&x| x == of.reshaped)?;
        let length = |x: &Var| self.program.spec(*x).shape[*axis];
        let before = equation.inputs[..k].iter().map(length).sum();
        let span = |(d, &n): (usize, &usize)| match d == *axis {
            true => Span { start: before, len: length(&of.reshaped), step: 1 },
            false => Span { start: 0, len: n, step: 1 },
        };
        let whole_shape = &self.program.spec(whole).shape;
        let spans = whole_shape.iter().enumerate().map(span).collect();
        let piece = Layout::dense(whole_shape.clone()).view(&View::Slice(spans))?;
        Some((whole, of.before(&piece)?))
    }

    /// The memory of a result that is computed inside one that is made later begins with the first
    /// of them. Whether the result has its memory.
    pub fn begun(&mut self, e: usize, result: usize) -> bool {
        let v = self.program.equations[e].outputs[result];
        let root = self.roots[v.index()];
        if root != v && !self.has_slot(root) {
            self.begin(root, (e + 1, result));
        }
        self.has_slot(root)
    }
}

/// A result that is turned, and then reshaped.
struct Turned {
    order: Axes,
    /// Its shape after it was turned.
    shape: Shape,
    reshaped: Var,
}

impl Turned {
    /// The layout of the result if what it is reshaped to has this one.
    fn before(&self, reshaped: &Layout) -> Option<Layout> {
        let mut back = self.order.clone();
        self.order.iter().enumerate().for_each(|(to, &from)| back[from] = to);
        reshaped.view(&View::Reshape(self.shape.clone()))?.view(&View::Permute(back))
    }

    /// Its layout in memory of its own.
    fn alone(&self) -> Option<Layout> {
        self.before(&Layout::dense(self.shape.clone()))
    }
}

/// The equations that read each variable.
fn readers(program: &Program) -> Vec<Vec<usize>> {
    let mut readers = vec![Vec::new(); program.specs.len()];
    for (e, equation) in program.equations.iter().enumerate() {
        equation.inputs.iter().for_each(|v| readers[v.index()].push(e));
    }
    readers
}
