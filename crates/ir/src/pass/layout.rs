//! Merges products into larger ones, and removes copies before them.
//!
//! The executor passes strides to a matrix product, so views of its operands (permuted, sliced,
//! repeated) cost nothing. This pass removes copies before products, and stacks of products that
//! are one product:
//!
//! - a stack of matrices times one matrix, repeated for each, is the rows of all of them times that
//!   matrix;
//! - the sum over a stack of products is one product over a longer inner axis;
//! - the transpose of a product is the product of the transposes, in reverse order: its readers,
//!   unless they are products too, then read contiguous memory. So is the transpose of its cast,
//!   and of a sum of products: a weight's gradient reaches its optimiser as it lies.
//!
//! Guarantees: each rewrite is applied only where the operands are plain reshapes of existing
//! memory, so that nothing is copied. Sums over the inner axis may be taken in another order (a
//! product of another shape is blocked differently); everything else is exact. Permutes with
//! pointwise work between them cancel by the rule `view_later` of `simplify`.

use super::dead_code;
use super::rebuild::Rebuild;
use crate::{Axes, Equation, Layout, Line, Op, Program, Reduction, Shape, Span, Var, Vars, View};
use smallvec::SmallVec;

/// Most views that are looked through.
const FURTHEST: usize = 32;

/// Merges products into larger ones, and removes copies before them.
///
/// ```
/// use pullback_ir::{Program, pass::{dead_code, layout}};
/// let text = "program (a: f32[4,8,16], b: f32[16,32]) { let c: f32[4,16,32] = broadcast{[4,16,32]} b; let d: f32[4,8,32] = dot a c; return d }";
/// let program: Program = text.parse().unwrap();
/// let names: Vec<String> = dead_code(&layout(&program)).equations.iter().map(|e| e.op.to_string()).collect();
/// assert!(names.contains(&"reshape{[32,16]}".to_string()), "{names:?}");
/// ```
#[must_use]
pub fn layout(program: &Program) -> Program {
    // What nothing uses any more, such as views that `simplify` has moved, is no reader.
    let program = &dead_code(program);
    let uses = program.uses();
    let mut strided = vec![true; program.specs.len()];
    program.outputs.iter().for_each(|v| strided[v.index()] = false);
    for e in program.equations.iter().filter(|e| e.op != Op::Dot) {
        e.inputs.iter().for_each(|v| strided[v.index()] = false);
    }
    let mut new = Layouts { new: Rebuild::new(program), reads: Vec::new(), strided };
    for e in &program.equations {
        if !new.rewrite(e) {
            new.new.keep(e, layout);
        }
        for &v in &e.outputs {
            let to = new.new.var(v).index();
            new.reads.resize(new.reads.len().max(new.new.out.specs.len()), 1);
            new.reads[to] = uses[v.index()];
        }
    }
    new.new.finish()
}

struct Layouts<'a> {
    new: Rebuild<'a>,
    /// How often each new variable is read.
    reads: Vec<usize>,
    /// Which old variables are read by products alone, which take strides.
    strided: Vec<bool>,
}

impl Layouts<'_> {
    fn rewrite(&mut self, e: &Equation) -> bool {
        let inputs = self.new.inputs(e);
        let done = match &e.op {
            Op::Dot => {
                let (a, b) = (self.before_copies(inputs[0]), self.before_copies(inputs[1]));
                match self.one_product(a, b, e.at) {
                    Some(product) => Some(product),
                    None => {
                        self.new.keep_as(e, Op::Dot, Vars::from_slice(&[a, b]));
                        return true;
                    }
                }
            }
            Op::Reduce(Reduction::Sum, axes) => self.long_product(inputs[0], axes, e.at),
            Op::View(View::Permute(order)) if !self.strided[e.outputs[0].index()] => {
                self.transposed_product(inputs[0], order, e.at)
            }
            _ => None,
        };
        match done {
            Some(v) if self.new.spec(v) == self.new.old_spec(e.outputs[0]) => {
                self.new.alias(e.outputs[0], v);
                true
            }
            Some(_) | None => false,
        }
    }

    fn before_copies(&self, mut v: Var) -> Var {
        while let Some(Equation { op: Op::Copy, inputs, .. }) = self.new.made_by(v) {
            v = inputs[0];
        }
        v
    }

    /// The layout of a variable in the root that it is a view of; `None` if it has no strides, or
    /// the root is too many views away.
    fn layout_of(&self, v: Var) -> Option<Layout> {
        let (mut root, mut views) = (v, SmallVec::<[&View; 8]>::new());
        while let Some(Equation { op: Op::View(view), inputs, .. }) = self.new.made_by(root) {
            views.push(view);
            root = inputs[0];
            if views.len() > FURTHEST {
                return None;
            }
        }
        let dense = Layout::dense(self.new.spec(root).shape.clone());
        views.iter().rev().try_fold(dense, |layout, view| layout.view(view))
    }

    /// Applies views one after the other, if the result has strides.
    fn seen_through(&mut self, v: Var, views: &[View], at: Option<Line>) -> Option<Var> {
        let mut layout = self.layout_of(v)?;
        for view in views {
            layout = layout.view(view)?;
        }
        let mut v = v;
        for view in views {
            v = self.new.emit(Op::View(view.clone()), &[v], at)?;
        }
        Some(v)
    }

    /// `[b…, m, k] · [b…, k, n]` with the same `[k, n]` for all b: `[b·m, k] · [k, n]`.
    fn one_product(&mut self, a: Var, b: Var, at: Option<Line>) -> Option<Var> {
        let shape = self.new.spec(a).shape.clone();
        let rank = shape.len();
        let columns = self.new.spec(b).shape[rank - 1];
        let stack: usize = shape[..rank - 2].iter().product();
        let repeated = self.layout_of(b)?;
        let mut batch = shape.iter().zip(&repeated.strides).take(rank - 2);
        if rank < 3 || stack < 2 || !batch.all(|(&n, &s)| n == 1 || s == 0) {
            return None;
        }
        let (m, k) = (shape[rank - 2], shape[rank - 1]);
        let rows = self.seen_through(a, &[View::Reshape([stack * m, k].into())], at)?;
        let first = |_| Span { start: 0, len: 1, step: 1 };
        let first = View::Slice((0..rank - 2).map(first).collect());
        let one = self.seen_through(b, &[first, View::Reshape([k, columns].into())], at)?;
        let product = self.new.emit(Op::Dot, &[rows, one], at)?;
        let mut back = shape;
        back[rank - 1] = columns;
        self.new.emit(Op::View(View::Reshape(back)), &[product], at)
    }

    /// The sum over b of `[b…, m, k] · [b…, k, n]`: `[m, b·k] · [b·k, n]`.
    fn long_product(&mut self, v: Var, axes: &Axes, at: Option<Line>) -> Option<Var> {
        let Some(Equation { op: Op::Dot, inputs, .. }) = self.new.made_by(v) else { return None };
        let (a, b) = (inputs[0], inputs[1]);
        let shape: Shape = self.new.spec(a).shape.clone();
        let batch = shape.len() - 2;
        let mut sorted = axes.clone();
        sorted.sort_unstable();
        if batch == 0
            || !sorted.iter().copied().eq(0..batch)
            || self.reads.get(v.index()) != Some(&1)
        {
            return None;
        }
        let (m, k) = (shape[batch], shape[batch + 1]);
        let n = self.new.spec(b).shape[batch + 1];
        let long = shape[..batch].iter().product::<usize>() * k;
        let m_first = std::iter::once(batch).chain(0..batch).chain([batch + 1]).collect();
        let left = [View::Permute(m_first), View::Reshape([m, long].into())];
        let right = [View::Reshape([long, n].into())];
        // Both must be plain before either is made.
        let plain = |v: Var, views: &[View]| {
            views.iter().try_fold(self.layout_of(v)?, |layout, view| layout.view(view)).map(|_| ())
        };
        plain(a, &left)?;
        plain(b, &right)?;
        let left = self.seen_through(a, &left, at)?;
        let right = self.seen_through(b, &right, at)?;
        self.new.emit(Op::Dot, &[left, right], at)
    }

    /// The transpose of `a · b`: `bᵀ · aᵀ`. Pointwise functions of products may be between them and
    /// the transpose, such as the sum of two, where nothing else reads what is between.
    fn transposed_product(&mut self, v: Var, order: &Axes, at: Option<Line>) -> Option<Var> {
        let rank = order.len();
        if rank < 2 || !(0..rank - 2).chain([rank - 1, rank - 2]).eq(order.iter().copied()) {
            return None;
        }
        let mut left = FURTHEST;
        if !self.is_of_products(v, &mut left) {
            return None;
        }
        self.turned(v, order, at)
    }

    /// Whether a variable is a product, or a pointwise function of products alone, none of which
    /// anything else reads; `left` equations at most.
    fn is_of_products(&self, v: Var, left: &mut usize) -> bool {
        let Some(made) = self.new.made_by(v) else { return false };
        if self.reads.get(v.index()) != Some(&1) || *left == 0 {
            return false;
        }
        *left -= 1;
        match &made.op {
            Op::Dot => true,
            Op::Cast(_) | Op::Unary(_) | Op::Binary(_) => {
                made.inputs.iter().all(|&v| self.is_of_products(v, left))
            }
            _ => false,
        }
    }

    /// The transpose of a function of products.
    fn turned(&mut self, v: Var, order: &Axes, at: Option<Line>) -> Option<Var> {
        let Equation { op, inputs, at: of, .. } = self.new.made_by(v)?.clone();
        let Op::Dot = op else {
            let operands: Option<Vars> =
                inputs.iter().map(|&v| self.turned(v, order, at)).collect();
            return self.new.emit(op, &operands?, of);
        };
        let a = self.new.emit(Op::View(View::Permute(order.clone())), &[inputs[0]], at)?;
        let b = self.new.emit(Op::View(View::Permute(order.clone())), &[inputs[1]], at)?;
        self.new.emit(Op::Dot, &[b, a], of)
    }
}
