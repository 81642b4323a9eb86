//! Whole derivatives: Jacobians and Hessians, all directions at once by `vmap`, or one by one where
//! the function reads values. Of several results there is one for each, in the structure of the
//! results.

use super::modes::{grad, jvp, vjp};
use super::vmap::along_directions;
use crate::inplace::undo::{self, WriteUndo};
use crate::random::{self, Draws};
use crate::{DType, Error, ErrorKind, Scalar, Spec, Tensor, Tree, fail, mode, stack, trace};
use pullback_ir::Line;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;

/// Results that have a Jacobian: tensors, and tuples, vectors, arrays, options and maps of them.
/// The Jacobian has the same structure, with a tree shaped as the argument instead of each tensor.
/// For structs there is [`jacobian_tree`], which gives a list.
pub trait Jacobians: Tree {
    /// This structure with a `T` for each tensor; `T` itself for a tensor.
    type Of<T: Tree>;

    /// The structure filled, in the order of the tensors.
    ///
    /// ```
    /// use pullback::{Jacobians, Tensor};
    /// let results = (Tensor::from(1.0), vec![Tensor::from(2.0)]);
    /// let mut rows = [10.0, 20.0].map(Tensor::from).into_iter();
    /// let (first, list) = results.filled(&mut rows);
    /// assert_eq!((first.item::<f64>(), list[0].item::<f64>()), (10.0, 20.0));
    /// ```
    ///
    /// # Panics
    /// If there are fewer than there are tensors.
    fn filled<T: Tree>(&self, rows: &mut dyn Iterator<Item = T>) -> Self::Of<T>;
}

impl Jacobians for Tensor {
    type Of<T: Tree> = T;

    fn filled<T: Tree>(&self, rows: &mut dyn Iterator<Item = T>) -> T {
        rows.next().expect("one for each tensor")
    }
}

impl<A: Jacobians> Jacobians for Vec<A> {
    type Of<T: Tree> = Vec<A::Of<T>>;

    fn filled<T: Tree>(&self, rows: &mut dyn Iterator<Item = T>) -> Vec<A::Of<T>> {
        self.iter().map(|x| x.filled(rows)).collect()
    }
}

impl<A: Jacobians, const N: usize> Jacobians for [A; N] {
    type Of<T: Tree> = [A::Of<T>; N];

    fn filled<T: Tree>(&self, rows: &mut dyn Iterator<Item = T>) -> [A::Of<T>; N] {
        self.each_ref().map(|x| x.filled(rows))
    }
}

impl<A: Jacobians> Jacobians for Option<A> {
    type Of<T: Tree> = Option<A::Of<T>>;

    fn filled<T: Tree>(&self, rows: &mut dyn Iterator<Item = T>) -> Option<A::Of<T>> {
        self.as_ref().map(|x| x.filled(rows))
    }
}

impl<A: Jacobians> Jacobians for Box<A> {
    type Of<T: Tree> = Box<A::Of<T>>;

    fn filled<T: Tree>(&self, rows: &mut dyn Iterator<Item = T>) -> Box<A::Of<T>> {
        Box::new((**self).filled(rows))
    }
}

impl<K: Clone + Ord + fmt::Display, A: Jacobians> Jacobians for BTreeMap<K, A> {
    type Of<T: Tree> = BTreeMap<K, A::Of<T>>;

    fn filled<T: Tree>(&self, rows: &mut dyn Iterator<Item = T>) -> BTreeMap<K, A::Of<T>> {
        self.iter().map(|(key, x)| (key.clone(), x.filled(rows))).collect()
    }
}

macro_rules! tuples {
    ($($name:ident $i:tt),*) => {
        impl<$($name: Jacobians),*> Jacobians for ($($name,)*) {
            type Of<Tr: Tree> = ($($name::Of<Tr>,)*);

            fn filled<Tr: Tree>(&self, rows: &mut dyn Iterator<Item = Tr>) -> Self::Of<Tr> {
                ($(self.$i.filled(rows),)*)
            }
        }
    };
}

tuples!(A 0);
tuples!(A 0, B 1);
tuples!(A 0, B 1, C 2);
tuples!(A 0, B 1, C 2, D 3);
tuples!(A 0, B 1, C 2, D 3, E 4);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);

/// A transform of `f`: its own ops carry the caller's line, and the ops of `f` their own lines.
fn with_caller_line<T, Y, R>(
    caller: Line,
    f: impl Fn(&T) -> Y,
    derivative: impl Fn(&dyn Fn(&T) -> Y, &T) -> R,
) -> impl Fn(&T) -> R {
    move |x| {
        let outside = mode::set_line();
        let own = |x: &T| mode::with_lines_of(outside, || f(x));
        mode::with_line(mode::user_line(caller), || derivative(&own, x))
    }
}

/// The Jacobian by reverse mode: one backward pass per element of the result. Best where the result
/// is smaller than the argument. Each leaf has the shape of the result followed by its own.
///
/// ```
/// use pullback::{Tensor, jacrev};
/// let j = jacrev(|x: &Tensor| x.square())(&Tensor::from([1.0, 2.0]));
/// assert_eq!(j.to_vec::<f64>(), [2.0, 0.0, 0.0, 4.0]);
/// ```
///
/// Of several results there is one for each, in the same structure ([`Jacobians`]), as for
/// [`jacobian`].
///
/// # Panics
/// When called, if an operation of `f` fails.
#[track_caller]
pub fn jacrev<T: Tree, Y: Jacobians>(f: impl Fn(&T) -> Y) -> impl Fn(&T) -> Y::Of<T> {
    with_caller_line(Line::caller(), f, |f, x| {
        let (y, pullback) = vjp(f, x);
        y.filled(&mut rows(x, &y, pullback).into_iter())
    })
}

/// For each result, a tree of the derivatives by every leaf.
fn rows<T: Tree, Y: Tree>(x: &T, y: &Y, pullback: impl Fn(&Y) -> T) -> Vec<T> {
    let results = y.leaves();
    let zeros: Vec<Tensor> = results.iter().map(zeros_of).collect();
    let row = |(i, result): (usize, &Tensor)| {
        rows_of(x, result, |dy: &Tensor| {
            let mut cotangents = zeros.clone();
            cotangents[i] = dy.clone();
            pullback(&y.with_leaves(&cotangents))
        })
    };
    results.iter().enumerate().map(row).collect()
}

fn rows_of<T: Tree>(x: &T, y: &Tensor, pullback: impl Fn(&Tensor) -> T) -> T {
    if let Some(all) = at_once(y, &pullback) {
        let mut all = all.leaves().into_iter();
        return x.map(&mut |x| {
            let shape = [y.shape(), x.shape()].concat();
            match all.next() {
                Some(rows) => rows.reshape(&shape[..]),
                None => x.new_zeros(&shape[..]),
            }
        });
    }
    let rows: Vec<Vec<Tensor>> = basis(y).map(|dy| pullback(&dy).leaves()).collect();
    let mut i = 0;
    x.map(&mut |x| {
        let column: Vec<&Tensor> = rows.iter().map(|row| &row[i]).collect();
        i += 1;
        let shape = [y.shape(), x.shape()].concat();
        match column.is_empty() {
            true => x.new_zeros(&shape[..]),
            false => stack(&column, 0).reshape(&shape[..]),
        }
    })
}

/// The Jacobian by forward mode: one pass per element of the argument. Best where the argument is
/// smaller than the result. Each leaf has the shape of the result followed by its own.
///
/// ```
/// use pullback::{Tensor, jacfwd};
/// let j = jacfwd(|x: &Tensor| x.square())(&Tensor::from([1.0, 2.0]));
/// assert_eq!(j.to_vec::<f64>(), [2.0, 0.0, 0.0, 4.0]);
/// ```
///
/// Of several results there is one for each, in the same structure ([`Jacobians`]), as for
/// [`jacobian`].
///
/// A function that writes to captured tensors (the running statistics of a layer, a counter) is
/// called once for each direction. Every call sees the state that the first one saw, and what the
/// last one wrote stays: so the state is updated once, here and in [`jacobian`] and [`hessian`].
///
/// # Panics
/// When called, if an operation of `f` fails.
#[track_caller]
pub fn jacfwd<T: Tree, Y: Jacobians>(f: impl Fn(&T) -> Y) -> impl Fn(&T) -> Y::Of<T> {
    let at = Line::caller();
    with_caller_line(at, f, move |f, x| {
        // The structure of the results, as the last call saw it.
        let seen = RefCell::new(None);
        let push = |tangent: &T| {
            let (_, ty) = jvp(f, x, tangent);
            let leaves = ty.leaves();
            seen.replace(Some(ty));
            leaves
        };
        let probe = |x: &T| {
            let y = f(x);
            let leaves = y.leaves();
            seen.replace(Some(y));
            leaves
        };
        let rows = columns(x, push, probe, &Calls::new(at));
        let like = seen.into_inner().unwrap_or_else(|| f(x));
        like.filled(&mut rows.into_iter())
    })
}

/// Derivatives along every basis direction. `push` gives, for a direction, one tensor per block
/// row; the result has a tree per block row whose leaves are shaped `row ++ leaf`.
fn columns<T: Tree>(
    x: &T,
    push: impl Fn(&T) -> Vec<Tensor>,
    probe: impl Fn(&T) -> Vec<Tensor>,
    calls: &Calls,
) -> Vec<T> {
    let blocks = blocks(x, push, calls);
    let row_specs = match blocks.iter().find_map(JacobianBlock::row_specs) {
        Some(specs) => specs,
        None => probe(x).iter().map(|t| t.spec().clone()).collect(),
    };
    let tree = |(i, row): (usize, &Spec)| {
        let mut j = 0;
        x.map(&mut |leaf| {
            j += 1;
            let shape = [&row.shape[..], leaf.shape()].concat();
            match blocks[j - 1].columns(i, leaf.len()) {
                Some(columns) => columns.reshape(&shape[..]),
                None => leaf.new_zeros_with(&shape[..], row.dtype),
            }
        })
    };
    row_specs.iter().enumerate().map(tree).collect()
}

/// Zeros that no transform outside sees.
fn zeros_of(x: &Tensor) -> Tensor {
    mode::set_recording(false, || x.detach().zeros_like())
}

/// Calls of one function for one derivative, with the effects of a single call. It may write to
/// outside memory: each call sees the state that the first one saw, and what the last one wrote
/// stays. And each draws from the global generator what the first one drew.
struct Calls {
    at: Line,
    last: RefCell<WriteUndo>,
    draws: RefCell<Option<Draws>>,
}

impl Calls {
    fn new(at: Line) -> Calls {
        Calls { at: mode::user_line(at), last: RefCell::default(), draws: RefCell::default() }
    }

    fn call<R>(&self, f: impl FnOnce() -> R) -> R {
        self.last.take().undo("jacobian", self.at);
        let (result, written) = undo::noting(|| self.drawing(f));
        self.last.replace(written);
        result
    }

    fn drawing<R>(&self, f: impl FnOnce() -> R) -> R {
        let known = self.draws.borrow().clone();
        let count = known.as_ref().map_or(0, |draws| draws.keys.len());
        let (result, keys) = random::noting(|| match known {
            Some(draws) => random::repeating(draws, f),
            None => f(),
        });
        // The first call may have failed part of the way: the next one starts from there.
        if keys.len() > count {
            self.draws.replace(Some(Draws { state: None, keys, trace: trace::number() }));
        }
        result
    }
}

/// The derivatives along every basis direction of every leaf.
fn blocks<T: Tree>(x: &T, push: impl Fn(&T) -> Vec<Tensor>, calls: &Calls) -> Vec<JacobianBlock> {
    let leaves = x.leaves();
    let zeros: Vec<Tensor> = leaves.iter().map(zeros_of).collect();
    let mut blocks: Vec<JacobianBlock> = Vec::new();
    let is_buffer = x.buffers();
    for (j, leaf) in leaves.iter().enumerate() {
        if !leaf.dtype().is_float() || is_buffer.get(j).is_some_and(|&b| b) {
            blocks.push(JacobianBlock::Constant);
            continue;
        }
        let direction = |t: &Tensor| {
            let mut tangents = zeros.clone();
            tangents[j] = t.clone();
            push(&x.with_leaves(&tangents))
        };
        blocks.push(match calls.drawing(|| at_once(leaf, &direction)) {
            Some(rows) => JacobianBlock::Whole(rows),
            None => {
                JacobianBlock::Parts(basis(leaf).map(|t| calls.call(|| direction(&t))).collect())
            }
        });
    }
    blocks
}

/// The derivatives along every basis direction of one leaf, for each block row.
enum JacobianBlock {
    /// One tensor a row, directions in front.
    Whole(Vec<Tensor>),
    /// For each direction, one tensor a row.
    Parts(Vec<Vec<Tensor>>),
    /// Integers and buffers are no variables.
    Constant,
}

impl JacobianBlock {
    fn row_specs(&self) -> Option<Vec<Spec>> {
        match self {
            JacobianBlock::Whole(rows) => {
                Some(rows.iter().map(|t| t.spec().with_shape(&t.shape()[1..])).collect())
            }
            JacobianBlock::Parts(parts) => {
                parts.first().map(|rows| rows.iter().map(|t| t.spec().clone()).collect())
            }
            JacobianBlock::Constant => None,
        }
    }

    /// Row `i` with the directions as its first axis; none if there are no directions.
    fn rows(&self, i: usize, directions: usize) -> Option<Tensor> {
        match self {
            _ if directions == 0 => None,
            JacobianBlock::Constant => None,
            JacobianBlock::Whole(rows) => Some(rows[i].clone()),
            JacobianBlock::Parts(parts) => {
                Some(stack(&parts.iter().map(|rows| &rows[i]).collect::<Vec<_>>(), 0))
            }
        }
    }

    /// Row `i` with the directions as its last axis; none if there are no directions.
    fn columns(&self, i: usize, directions: usize) -> Option<Tensor> {
        match self {
            _ if directions == 0 => None,
            JacobianBlock::Constant => None,
            JacobianBlock::Whole(rows) => {
                let order: Vec<isize> = (1..rows[i].rank() as isize).chain([0]).collect();
                Some(rows[i].permute(&order[..]))
            }
            JacobianBlock::Parts(parts) => {
                Some(stack(&parts.iter().map(|rows| &rows[i]).collect::<Vec<_>>(), -1))
            }
        }
    }
}

/// `f` of every tensor with a single 1, as many examples of one computation. `None` where that is
/// impossible: no direction, or a function that reads values, which is then called once for each.
fn at_once<Y: Tree>(like: &Tensor, f: &impl Fn(&Tensor) -> Y) -> Option<Y> {
    // Anomaly mode needs to read values.
    if like.is_empty() || mode::anomaly() {
        return None;
    }
    let n = like.len();
    let shape = [&[n], like.shape()].concat();
    // Known beforehand: inside a trace it is a constant of the program.
    let all = trace::computing(|| like.new_eye(n, n, like.dtype()).reshape(&shape[..]));
    match fail::catch(|| along_directions(f, &all)) {
        Ok(all) => Some(all),
        Err(error) if matches!(error.kind(), ErrorKind::Program | ErrorKind::InPlace) => None,
        Err(error) => fail::raise(error),
    }
}

/// The Jacobian, by whichever mode takes fewer passes.
///
/// ```
/// use pullback::{Tensor, jacobian};
/// let f = |x: &Tensor| x.at(0) * x; // [x₀², x₀x₁]
/// let j = jacobian(f)(&Tensor::from([3.0, 4.0]));
/// assert_eq!(j.to_vec::<f64>(), [6.0, 0.0, 4.0, 3.0]);
/// ```
///
/// Of several arguments there is one for each, and of several results one for each of them, in the
/// structure of the results ([`Jacobians`]):
///
/// ```
/// # use pullback::{Tensor, jacobian};
/// let f = |(x, y): &(Tensor, Tensor)| (x * y, x.sum());
/// let ((product_x, product_y), (sum_x, _)) =
///     jacobian(f)(&(Tensor::from([1.0, 2.0]), Tensor::from([3.0, 4.0])));
/// assert_eq!(product_x.to_vec::<f64>(), [3.0, 0.0, 0.0, 4.0]);
/// assert_eq!(product_y.to_vec::<f64>(), [1.0, 0.0, 0.0, 2.0]);
/// assert_eq!(sum_x.to_vec::<f64>(), [1.0, 1.0]);
/// ```
///
/// # Panics
/// When called, if an operation of `f` fails.
#[track_caller]
pub fn jacobian<T: Tree, Y: Jacobians>(f: impl Fn(&T) -> Y) -> impl Fn(&T) -> Y::Of<T> {
    let at = Line::caller();
    with_caller_line(at, f, move |f, x| {
        let (y, rows) = either(f, x, at);
        y.filled(&mut rows.into_iter())
    })
}

/// [`jacobian`] of a function that gives any [`Tree`], structs among them: one entry for each
/// tensor of the result, in the order of [`Tree::leaves`], as [`hessian_tree`] has it.
///
/// ```
/// use pullback::{Tensor, Tree, jacobian_tree};
///
/// #[derive(Tree)]
/// struct Moments {
///     first: Tensor,
///     second: Tensor,
/// }
///
/// let moments = |x: &Tensor| Moments { first: x.sum(), second: x.square().sum() };
/// let j = jacobian_tree(moments)(&Tensor::from([3.0, 4.0]));
/// assert_eq!(j[0].to_vec::<f64>(), [1.0, 1.0]);
/// assert_eq!(j[1].to_vec::<f64>(), [6.0, 8.0]);
/// ```
///
/// # Panics
/// When called, if an operation of `f` fails.
#[track_caller]
pub fn jacobian_tree<T: Tree, Y: Tree>(f: impl Fn(&T) -> Y) -> impl Fn(&T) -> Vec<T> {
    let at = Line::caller();
    with_caller_line(at, f, move |f, x| either(f, x, at).1)
}

/// The results and the derivatives of each, by the mode that takes fewer passes.
fn either<T: Tree, Y: Tree>(f: &dyn Fn(&T) -> Y, x: &T, at: Line) -> (Y, Vec<T>) {
    let calls = Calls::new(at);
    let (y, pullback) = calls.call(|| vjp(f, x));
    let inputs: usize = x.leaves().iter().map(Tensor::len).sum();
    let outputs: usize = y.leaves().iter().map(Tensor::len).sum();
    let rows = match outputs <= inputs {
        true => rows(x, &y, pullback),
        false => columns(x, |tangent| jvp(f, x, tangent).1.leaves(), |_| y.leaves(), &calls),
    };
    (y, rows)
}

/// The Hessian of a scalar function: forward over reverse. Of one tensor its shape is that of the
/// argument twice over; of a tuple it is a tuple of rows of blocks ([`Jacobians`]), entry `i` and
/// then `j` shaped `leaf i ++ leaf j`.
///
/// ```
/// use pullback::{Tensor, hessian};
/// let f = |x: &Tensor| x.at(0).powi(2) * x.at(1);
/// let h = hessian(f)(&Tensor::from([3.0, 5.0]));
/// assert_eq!(h.to_vec::<f64>(), [10.0, 6.0, 6.0, 0.0]);
/// ```
///
/// ```
/// # use pullback::{Tensor, hessian};
/// let f = |(x, y): &(Tensor, Tensor)| x.powi(2) * y;
/// let ((xx, xy), (_, yy)) = hessian(f)(&(Tensor::from(3.0), Tensor::from(5.0)));
/// assert_eq!([xx, xy, yy].map(|h| h.item::<f64>()), [10.0, 6.0, 0.0]);
/// ```
///
/// # Panics
/// When called, if the function gives anything but one float, or the argument has no floats.
#[track_caller]
pub fn hessian<T: Jacobians>(f: impl Fn(&T) -> Tensor) -> impl Fn(&T) -> T::Of<T> {
    let blocks = hessian_tree(f);
    move |x| x.filled(&mut blocks(x).into_iter())
}

/// The Hessian over any [`Tree`], in blocks: entry `i` of the list holds the second derivatives by
/// leaf `i` and every other leaf, shaped `leaf i ++ leaf j`. Those of integers and buffers, which
/// are no variables, are zeros.
///
/// ```
/// use pullback::{Tensor, hessian_tree};
/// let f = |(x, y): &(Tensor, Tensor)| x.powi(2) * y;
/// let h = hessian_tree(f)(&(Tensor::from(3.0), Tensor::from(5.0)));
/// assert_eq!((h[0].0.item::<f64>(), h[0].1.item::<f64>(), h[1].1.item::<f64>()), (10.0, 6.0, 0.0));
/// ```
///
/// # Panics
/// When called, if the function gives anything but one float, or the argument has no floats.
#[track_caller]
pub fn hessian_tree<T: Tree>(f: impl Fn(&T) -> Tensor) -> impl Fn(&T) -> Vec<T> {
    let caller = Line::caller();
    with_caller_line(caller, f, move |f, x: &T| {
        let leaves = x.leaves();
        if !leaves.is_empty() && !leaves.iter().any(|x| x.dtype().is_float()) {
            let message = "only floats have second derivatives, and there are none";
            fail::raise(Error::gradient("hessian", message).at(mode::user_line(caller)));
        }
        let gradient = grad(f);
        // Second derivatives do not depend on the order: the directions may be the rows, so no axis
        // is moved.
        let push = |tangent: &T| jvp(&gradient, x, tangent).1.leaves();
        let blocks = blocks(x, push, &Calls::new(caller));
        let tree = |(i, along): (usize, Tensor)| {
            let mut j = 0;
            x.map(&mut |leaf| {
                j += 1;
                let shape = [along.shape(), leaf.shape()].concat();
                match blocks[i].rows(j - 1, along.len()) {
                    Some(rows) => rows.reshape(&shape[..]),
                    None => leaf.new_zeros(&shape[..]),
                }
            })
        };
        x.leaves().into_iter().enumerate().map(tree).collect()
    })
}

/// The Hessian times a vector, without the Hessian: forward over reverse.
///
/// ```
/// use pullback::{Tensor, hvp};
/// let f = |x: &Tensor| x.powi(3).sum();
/// let hv = hvp(f, &Tensor::from([1.0, 2.0]), &Tensor::from([1.0, 1.0]));
/// assert_eq!(hv.to_vec::<f64>(), [6.0, 12.0]);
/// ```
///
/// # Panics
/// If the function gives anything but one float, or `v` has other specs than `x`.
#[track_caller]
pub fn hvp<T: Tree>(f: impl Fn(&T) -> Tensor, x: &T, v: &T) -> T {
    jvp(grad(f), x, v).1
}

/// The tensors of this spec with a single 1, in row-major order.
fn basis(like: &Tensor) -> impl Iterator<Item = Tensor> + use<> {
    let (n, shape, dtype) = (like.len(), like.shape().to_vec(), like.dtype());
    let device = like.device();
    (0..n).map(move |i| {
        let here = Tensor::iota_on(device, n, DType::I64).eq(Scalar::Int(i as i64));
        here.cast(dtype).reshape(&shape[..])
    })
}
