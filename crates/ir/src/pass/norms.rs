//! Writes layer norms and softmax as the ops that they consist of, so that they join the regions
//! around them: a residual and the norm that follows are then one kernel, as are the backward of a
//! norm, the gradient that is added to it, and the sums over the rows.
//!
//! For targets whose kernels of these ops are regions anyway ([`Target::norms`](super::Target)).
//! The formulas, with the order of their operations, are those of these kernels: moments in two
//! passes over a row, everything in the compute type, each result rounded once. Rows are trailing
//! axes of at most [`Limits::column_row`] elements; other norms stay what they are, as do backwards
//! of layer norms whose sums over the rows are not results of regions.
//!
//! The backward of a layer norm reads what the norm read, once more, with the moments that the norm
//! leaves (two numbers a row). So that it does not instead join the region of the norm, which would
//! leave the normalised rows as well, it reads it [`after`](crate::Op::After) the gradient.
//!
//! Guarantees: sums may be added in another order. Idempotent.

use super::Limits;
use super::rebuild::Rebuild;
use crate::{
    Axes, Binary, DType, Equation, Fused, Line, Op, Program, Real, Reduction, Scalar, Shape, Unary,
    Var, View, element_count,
};
use rustc_hash::FxHashMap;

/// Writes norms out, whose rows are within the limits.
///
/// ```
/// use pullback_ir::{Program, pass::{Limits, fuse_within, norms}};
/// let text = "program (x: f32[8,16], y: f32[8,16], w: f32[16], b: f32[16]) {
///   let s: f32[8,16] = add x y
///   let n: f32[8,16] = layer_norm{1e-5} s w b
///   let c: bf16[8,16] = cast{bf16} n
///   return s, c
/// }";
/// let program: Program = text.parse().unwrap();
/// let limits = Limits { columns: 4, column_row: [8, 4096], ..Limits::default() };
/// let fused = fuse_within(&norms(&program, limits), limits);
/// assert_eq!(fused.equations.len(), 1, "{fused}");
/// ```
#[must_use]
pub fn norms(program: &Program, limits: Limits) -> Program {
    let mut new = Rebuild::new(program);
    let mut moments = RowMoments::default();
    for e in &program.equations {
        let results = match &e.op {
            Op::Fused(fused) => written(&mut new, &mut moments, e, *fused, limits),
            _ => None,
        };
        match results {
            Some(results) => {
                e.outputs.iter().zip(results).for_each(|(&old, made)| new.alias(old, made));
            }
            None => new.keep(e, |inside| norms(inside, limits)),
        }
    }
    new.finish()
}

/// The mean of each row of an operand and the reciprocal of its standard deviation, by the operand,
/// the axes of a row, and what is added to the variance.
type RowMoments = FxHashMap<(Var, usize, Real), (Var, Var)>;

/// The results of a norm that is written out; `None`: it stays.
fn written(
    new: &mut Rebuild,
    moments: &mut RowMoments,
    e: &Equation,
    fused: Fused,
    limits: Limits,
) -> Option<Vec<Var>> {
    let of: Vec<Var> = new.inputs(e).to_vec();
    let spec = new.spec(*of.first()?).clone();
    let rank = spec.shape.len();
    let inner = match fused {
        Fused::Softmax(axis)
        | Fused::SoftmaxVjp(axis)
        | Fused::LogSoftmax(axis)
        | Fused::LogSoftmaxVjp(axis)
        | Fused::LogSumExp(axis) => (axis + 1 == rank).then_some(1)?,
        Fused::LayerNorm(_) | Fused::LayerNormVjp(_) => new.spec(of[1]).shape.len(),
        Fused::BatchNorm(_)
        | Fused::BatchNormVjp(_)
        | Fused::CrossEntropy
        | Fused::CrossEntropyVjp
        | Fused::Attention(_)
        | Fused::AttentionVjp(_)
        | Fused::Distances { .. }
        | Fused::DistancesVjp { .. }
        | Fused::Ctc { .. }
        | Fused::CtcVjp { .. }
        | Fused::Sgd(_)
        | Fused::Adam(_) => return None,
    };
    let (outer, row) = spec.shape.split_at(rank - inner);
    let (rows, length) = (element_count(outer), element_count(row));
    let [least, most] = limits.column_row;
    let sums = matches!(fused, Fused::LayerNormVjp(_));
    if rows < 1 || length < 2 || length > most || sums && (rows < 2 || length < least) {
        return None;
    }
    let (shape, dtype) = (spec.shape.clone(), spec.dtype);
    let mut rows =
        RowDomain { new, moments, at: e.at, shape, inner, length, wide: dtype.compute() };
    match fused {
        Fused::Softmax(_) => rows.softmax(of[0], dtype),
        Fused::LogSoftmax(_) => rows.log_softmax(of[0], dtype),
        Fused::LogSumExp(_) => rows.log_sum_exp(of[0], dtype),
        Fused::SoftmaxVjp(_) => rows.softmax_vjp(of[0], of[1], dtype),
        Fused::LogSoftmaxVjp(_) => rows.log_softmax_vjp(of[0], of[1], dtype),
        Fused::LayerNorm(eps) => rows.layer_norm([of[0], of[1], of[2]], eps, dtype),
        Fused::LayerNormVjp(eps) => rows.layer_norm_vjp([of[0], of[1], of[2]], eps, dtype),
        Fused::BatchNorm(_)
        | Fused::BatchNormVjp(_)
        | Fused::CrossEntropy
        | Fused::CrossEntropyVjp
        | Fused::Attention(_)
        | Fused::AttentionVjp(_)
        | Fused::Distances { .. }
        | Fused::DistancesVjp { .. }
        | Fused::Ctc { .. }
        | Fused::CtcVjp { .. }
        | Fused::Sgd(_)
        | Fused::Adam(_) => None,
    }
}

/// Values over a domain of rows, element by element or one for each row.
struct RowDomain<'a, 'b> {
    new: &'a mut Rebuild<'b>,
    moments: &'a mut RowMoments,
    at: Option<Line>,
    shape: Shape,
    /// Axes of a row, and its elements.
    inner: usize,
    length: usize,
    /// The compute type.
    wide: DType,
}

impl RowDomain<'_, '_> {
    fn emit(&mut self, op: Op, of: &[Var]) -> Option<Var> {
        self.new.emit(op, of, self.at)
    }

    fn cast(&mut self, x: Var, dtype: DType) -> Option<Var> {
        if self.new.spec(x).dtype == dtype { Some(x) } else { self.emit(Op::Cast(dtype), &[x]) }
    }

    /// An operand in the compute type.
    fn load(&mut self, x: Var) -> Option<Var> {
        self.cast(x, self.wide)
    }

    fn unary(&mut self, f: Unary, x: Var) -> Option<Var> {
        self.emit(Op::Unary(f), &[x])
    }

    fn binary(&mut self, f: Binary, a: Var, b: Var) -> Option<Var> {
        self.emit(Op::Binary(f), &[a, b])
    }

    /// A number for each element of `like`.
    fn number(&mut self, value: f64, like: Var) -> Option<Var> {
        let spec = self.new.spec(like).clone();
        self.emit(Op::literal(Scalar::from(value), spec), &[])
    }

    fn seen(&mut self, x: Var, shape: &[usize]) -> Option<Var> {
        let open = self.emit(Op::View(View::Reshape(shape.into())), &[x])?;
        self.emit(Op::View(View::Broadcast(self.shape.clone())), &[open])
    }

    /// A number for each row, repeated along the rows.
    fn along(&mut self, x: Var) -> Option<Var> {
        let outer = self.shape.len() - self.inner;
        let mut shape = self.shape.to_vec();
        shape[outer..].fill(1);
        self.seen(x, &shape)
    }

    /// A row, for each of them, in the compute type.
    fn each(&mut self, x: Var) -> Option<Var> {
        let outer = self.shape.len() - self.inner;
        let mut shape = self.shape.to_vec();
        shape[..outer].fill(1);
        let seen = self.seen(x, &shape)?;
        self.load(seen)
    }

    fn reduce(&mut self, kind: Reduction, x: Var) -> Option<Var> {
        let outer = self.shape.len() - self.inner;
        let axes: Axes = (outer..self.shape.len()).collect();
        self.emit(Op::Reduce(kind, axes), &[x])
    }

    /// The mean of each row.
    fn mean(&mut self, x: Var) -> Option<Var> {
        let sum = self.reduce(Reduction::Sum, x)?;
        let by = self.number(1.0 / self.length as f64, sum)?;
        self.binary(Binary::Mul, sum, by)
    }

    /// The sum over the rows.
    fn over_rows(&mut self, x: Var, dtype: DType) -> Option<Var> {
        let outer = self.shape.len() - self.inner;
        let sum = self.emit(Op::Reduce(Reduction::Sum, (0..outer).collect()), &[x])?;
        self.cast(sum, dtype)
    }

    /// Rows of an operand less their means, and times the reciprocals of their standard deviations;
    /// and these.
    fn normal(&mut self, of: Var, eps: Real) -> Option<(Var, Var)> {
        let x = self.load(of)?;
        let mean = self.mean(x)?;
        let means = self.along(mean)?;
        let off = self.binary(Binary::Sub, x, means)?;
        let square = self.unary(Unary::Square, off)?;
        let variance = self.mean(square)?;
        let added = self.number(eps.0, variance)?;
        let sum = self.binary(Binary::Add, variance, added)?;
        let by = self.unary(Unary::Rsqrt, sum)?;
        self.moments.insert((of, self.inner, eps), (mean, by));
        let by = self.along(by)?;
        Some((self.binary(Binary::Mul, off, by)?, by))
    }

    /// The same, when a gradient has been computed: by the moments that are known, if they are.
    fn normal_after(&mut self, of: Var, dy: Var, eps: Real) -> Option<(Var, Var)> {
        let known = self.moments.get(&(of, self.inner, eps)).copied();
        let Some(((mean, by), token)) = known.zip(self.token(dy)) else {
            return self.normal(of, eps);
        };
        let late = self.late(of, token)?;
        let (x, mean, by) = (self.load(late)?, self.along(mean)?, self.along(by)?);
        let off = self.binary(Binary::Sub, x, mean)?;
        Some((self.binary(Binary::Mul, off, by)?, by))
    }

    /// What a gradient is a cast or a view of, unless that is computed in a region itself.
    fn token(&self, dy: Var) -> Option<Var> {
        match self.new.made_by(dy) {
            None => Some(dy),
            Some(e) => match &e.op {
                Op::Cast(_) | Op::View(_) => self.token(e.inputs[0]),
                op if op.is_fusible() => None,
                _ => Some(dy),
            },
        }
    }

    /// An operand as it is read later. Casts and views are made again.
    fn late(&mut self, of: Var, token: Var) -> Option<Var> {
        let made = self.new.made_by(of).and_then(|e| Some((e.op.clone(), *e.inputs.first()?)));
        match made {
            Some((op @ (Op::Cast(_) | Op::View(_)), from)) => {
                let from = self.late(from, token)?;
                self.emit(op, &[from])
            }
            Some((op, _)) if op.is_fusible() => self.emit(Op::After, &[of, token]),
            Some(_) | None => Some(of),
        }
    }

    fn layer_norm(&mut self, of: [Var; 3], eps: Real, dtype: DType) -> Option<Vec<Var>> {
        let (w, b) = (self.each(of[1])?, self.each(of[2])?);
        let (normal, _) = self.normal(of[0], eps)?;
        let scaled = self.binary(Binary::Mul, normal, w)?;
        let y = self.binary(Binary::Add, scaled, b)?;
        Some(vec![self.cast(y, dtype)?])
    }

    fn layer_norm_vjp(&mut self, of: [Var; 3], eps: Real, dtype: DType) -> Option<Vec<Var>> {
        let weight = self.new.spec(of[1]).dtype;
        let (w, dy) = (self.each(of[1])?, self.load(of[2])?);
        let (normal, by) = self.normal_after(of[0], of[2], eps)?;
        let g = self.binary(Binary::Mul, dy, w)?;
        let a = self.mean(g)?;
        let a = self.along(a)?;
        let product = self.binary(Binary::Mul, g, normal)?;
        let b = self.mean(product)?;
        let b = self.along(b)?;
        let along = self.binary(Binary::Mul, normal, b)?;
        let rest = self.binary(Binary::Sub, g, a)?;
        let rest = self.binary(Binary::Sub, rest, along)?;
        let dx = self.binary(Binary::Mul, rest, by)?;
        let dx = self.cast(dx, dtype)?;
        let product = self.binary(Binary::Mul, dy, normal)?;
        Some(vec![dx, self.over_rows(product, weight)?, self.over_rows(dy, weight)?])
    }

    /// Rows less their maxima.
    fn shifted(&mut self, x: Var) -> Option<Var> {
        let most = self.reduce(Reduction::Max, x)?;
        let most = self.along(most)?;
        self.binary(Binary::Sub, x, most)
    }

    fn softmax(&mut self, x: Var, dtype: DType) -> Option<Vec<Var>> {
        let x = self.load(x)?;
        let shifted = self.shifted(x)?;
        let exp = self.unary(Unary::Exp, shifted)?;
        let sum = self.reduce(Reduction::Sum, exp)?;
        // The sum is 1 or more: one division for the row.
        let by = self.unary(Unary::Recip, sum)?;
        let by = self.along(by)?;
        let y = self.binary(Binary::Mul, exp, by)?;
        Some(vec![self.cast(y, dtype)?])
    }

    fn log_softmax(&mut self, x: Var, dtype: DType) -> Option<Vec<Var>> {
        let x = self.load(x)?;
        let shifted = self.shifted(x)?;
        let exp = self.unary(Unary::Exp, shifted)?;
        let sum = self.reduce(Reduction::Sum, exp)?;
        let log = self.unary(Unary::Log, sum)?;
        let log = self.along(log)?;
        let y = self.binary(Binary::Sub, shifted, log)?;
        Some(vec![self.cast(y, dtype)?])
    }

    fn log_sum_exp(&mut self, x: Var, dtype: DType) -> Option<Vec<Var>> {
        let x = self.load(x)?;
        let most = self.reduce(Reduction::Max, x)?;
        // An infinite maximum is not subtracted: the sum is then 0 or infinite.
        let size = self.unary(Unary::Abs, most)?;
        let (bound, zero) = (self.number(f64::INFINITY, most)?, self.number(0.0, most)?);
        let finite = self.emit(Op::Compare(crate::Compare::Lt), &[size, bound])?;
        let most = self.emit(Op::Select, &[finite, most, zero])?;
        let all = self.along(most)?;
        let shifted = self.binary(Binary::Sub, x, all)?;
        let exp = self.unary(Unary::Exp, shifted)?;
        let sum = self.reduce(Reduction::Sum, exp)?;
        let log = self.unary(Unary::Log, sum)?;
        let y = self.binary(Binary::Add, most, log)?;
        Some(vec![self.cast(y, dtype)?])
    }

    fn softmax_vjp(&mut self, y: Var, dy: Var, dtype: DType) -> Option<Vec<Var>> {
        let (y, dy) = (self.load(y)?, self.load(dy)?);
        let product = self.binary(Binary::Mul, y, dy)?;
        let sum = self.reduce(Reduction::Sum, product)?;
        let sum = self.along(sum)?;
        let rest = self.binary(Binary::Sub, dy, sum)?;
        let dx = self.binary(Binary::Mul, y, rest)?;
        Some(vec![self.cast(dx, dtype)?])
    }

    fn log_softmax_vjp(&mut self, y: Var, dy: Var, dtype: DType) -> Option<Vec<Var>> {
        let (y, dy) = (self.load(y)?, self.load(dy)?);
        let sum = self.reduce(Reduction::Sum, dy)?;
        let sum = self.along(sum)?;
        let exp = self.unary(Unary::Exp, y)?;
        let product = self.binary(Binary::Mul, exp, sum)?;
        let dx = self.binary(Binary::Sub, dy, product)?;
        Some(vec![self.cast(dx, dtype)?])
    }
}
