//! A tree of floats as one vector, so that solvers need not know of trees.

use crate::custom::without_values;
use crate::read_only::ReadOnly;
use crate::{DType, Error, Spec, Tensor, Tree, autocast, cat, fail, kinks, mode, trace};
use pullback_ir::Line;
use std::sync::Arc;

/// A function of parameters (the leaves of a tree) and of a vector.
pub(super) type VectorFn = Arc<dyn Fn(&[Tensor], &Tensor) -> Tensor + Send + Sync>;

/// The layout of a tree in a vector.
pub(super) struct Flat<X> {
    op: &'static str,
    at: Line,
    like: X,
    specs: Vec<Spec>,
}

impl<X: Tree> Flat<X> {
    /// For trees like this one, and for an op called at this line.
    pub fn of(op: &'static str, x: &X, at: Line) -> Flat<X> {
        let specs: Vec<Spec> = x.leaves().iter().map(|x| x.spec().clone()).collect();
        let fits =
            |s: &Spec| s.dtype == specs[0].dtype && matches!(s.dtype, DType::F32 | DType::F64);
        if specs.is_empty() || !specs.iter().all(fits) {
            let message = "the unknowns must be tensors of f32, or of f64";
            fail::raise(Error::dtype(op, message).on(&specs).at(at));
        }
        Flat { op, at, like: without_values(x), specs }
    }

    pub fn dtype(&self) -> DType {
        self.specs[0].dtype
    }

    /// The elements of all tensors, one after the other.
    pub fn join(&self, x: &X) -> Tensor {
        let leaves = x.leaves();
        if !leaves.iter().map(Tensor::spec).eq(&self.specs) {
            let list = |specs: &mut dyn Iterator<Item = &Spec>| {
                specs.map(Spec::to_string).collect::<Vec<_>>().join(", ")
            };
            let message = format!(
                "the function gives ({}) for unknowns ({})",
                list(&mut leaves.iter().map(Tensor::spec)),
                list(&mut self.specs.iter())
            );
            fail::raise(Error::shape(self.op, message).at(self.at));
        }
        let rows: Vec<Tensor> = leaves.iter().map(|x| x.reshape([x.len()])).collect();
        match &rows[..] {
            [one] => one.clone(),
            rows => cat(&rows.iter().collect::<Vec<_>>(), 0),
        }
    }

    /// The tree that this vector holds; of a tensor with leading axes, that along its last axis.
    pub fn split(&self, v: &Tensor) -> X {
        let (mut start, front) = (0, &v.shape()[..v.rank() - 1]);
        let leaf = |spec: &Spec| {
            let size = spec.shape.iter().product();
            start += size;
            let shape = [front, &spec.shape].concat();
            v.narrow(-1, (start - size) as isize, size).reshape(&shape[..])
        };
        self.like.with_leaves(&self.specs.iter().map(leaf).collect::<Vec<_>>())
    }
}

impl<X: Tree + Send + Sync + 'static> Flat<X> {
    /// A function of parameters and unknowns, on leaves and vectors. Its operations carry their own
    /// lines, and use the conventions that hold here.
    pub fn map<T: Tree + Send + Sync + 'static>(
        self: &Arc<Self>,
        f: impl Fn(&T, &X) -> X + Send + Sync + 'static,
        theta: &T,
    ) -> VectorFn {
        let (flat, like, conventions) = (self.clone(), without_values(theta), kinks::conventions());
        Arc::new(move |theta: &[Tensor], x: &Tensor| {
            let _held = ReadOnly::of(theta.iter().chain([x]));
            let (theta, x) = (like.with_leaves(theta), flat.split(x));
            let run = || mode::with_own_lines(|| f(&theta, &x));
            flat.join(&kinks::with_state(conventions, run))
        })
    }
}

/// The size of the largest element, which overflows only where an element does.
pub(super) fn norm(v: &Tensor) -> Tensor {
    v.abs().max()
}

/// A number, if its value can be read.
pub(super) fn known(x: &Tensor) -> Option<f64> {
    trace::knows(x).then(|| x.cast(DType::F64).item())
}

/// The result of an iteration if it was successful: else an error where one can be raised, NaN
/// where not.
pub(super) fn only_if(success: &Tensor, x: Tensor, error: impl FnOnce() -> Error) -> Tensor {
    match trace::knows(success) {
        true if success.item::<bool>() => x,
        true => fail::raise(error()),
        false => success.select(x, f64::NAN),
    }
}

/// A solver that runs for a user's line. It iterates to a tolerance that 16 bits do not have, so
/// `autocast` applies neither to it nor to the function. Conventions apply to the function only.
pub(super) fn solving<R>(at: Line, solve: impl FnOnce() -> R) -> R {
    autocast::off(|| kinks::decomposed(|| mode::with_line(at, solve)))
}

/// A function that depends on something that is being differentiated, though nothing that is given
/// to it is, is refused: the solution has a derivative that would be lost. Every call with an
/// untracked value is checked: recording costs nothing there, as nothing is tracked except such a
/// capture. Where the solver differentiates the function itself there is nothing to check. (Inside
/// a program the trace sees what the function uses.)
pub(super) struct DependenceCheck {
    op: &'static str,
    at: Line,
    recording: bool,
}

impl DependenceCheck {
    /// Begun where the user's mode still holds.
    pub fn new(op: &'static str, at: Line) -> DependenceCheck {
        DependenceCheck { op, at, recording: mode::is_grad_enabled() }
    }

    /// A call of the function at `x`.
    pub fn call(&self, x: &Tensor, f: impl FnOnce(&Tensor) -> Tensor) -> Tensor {
        if trace::active() || x.is_tracked() || x.carries_tangents() {
            return f(x);
        }
        let y = mode::set_recording(self.recording, || f(x));
        if y.is_tracked() || y.carries_tangents() {
            fail::raise(crate::custom::captured(self.op, y.spec()).at(self.at));
        }
        y
    }
}
