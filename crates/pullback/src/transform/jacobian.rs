//! Whole derivatives: Jacobians and Hessians, all directions at once by `vmap`, or one by one where the function looks at values.

use super::modes::{grad, jvp, vjp};
use super::vmap::vmap;
use crate::{Error, ErrorKind, Scalar, Spec, Tensor, Tree, fail, mode, stack, trace};
use std::panic::Location;

/// The Jacobian by reverse mode: one backward pass per element of the result. Best where the result
/// is smaller than the argument. Each leaf has the shape of the result followed by its own.
///
/// ```
/// use pullback::{Tensor, jacrev};
/// let j = jacrev(|x: &Tensor| x.square())(&Tensor::from([1.0, 2.0]));
/// assert_eq!(j.to_vec::<f64>(), [2.0, 0.0, 0.0, 4.0]);
/// ```
pub fn jacrev<T: Tree>(f: impl Fn(&T) -> Tensor) -> impl Fn(&T) -> T {
    move |x| {
        let (y, pullback) = vjp(&f, x);
        rows(x, &y, pullback)
    }
}

fn rows<T: Tree>(x: &T, y: &Tensor, pullback: impl Fn(&Tensor) -> T) -> T {
    if let Some(all) = at_once(y, &pullback) {
        let mut all = all.leaves().into_iter();
        return x.map(&mut |x| {
            let shape = [y.shape(), x.shape()].concat();
            match all.next() {
                Some(rows) => rows.reshape(&shape[..]),
                None => Tensor::zeros_with(&shape[..], x.dtype()),
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
            true => Tensor::zeros_with(&shape[..], x.dtype()),
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
pub fn jacfwd<T: Tree>(f: impl Fn(&T) -> Tensor) -> impl Fn(&T) -> T {
    move |x| columns(x, |tangent| jvp(&f, x, tangent).1.leaves(), |_| vec![f(x)]).remove(0)
}

/// Derivatives along every basis direction. `push` gives, for a direction, one tensor per block row; the
/// result has a tree per block row whose leaves are shaped `row ++ leaf`.
fn columns<T: Tree>(
    x: &T,
    push: impl Fn(&T) -> Vec<Tensor>,
    probe: impl Fn(&T) -> Vec<Tensor>,
) -> Vec<T> {
    let blocks = blocks(x, push);
    let row_specs = match blocks.iter().find_map(Block::row_specs) {
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
                None => Tensor::zeros_with(&shape[..], row.dtype),
            }
        })
    };
    row_specs.iter().enumerate().map(tree).collect()
}

/// The derivatives along every basis direction of every leaf.
fn blocks<T: Tree>(x: &T, push: impl Fn(&T) -> Vec<Tensor>) -> Vec<Block> {
    let leaves = x.leaves();
    let zeros: Vec<Tensor> =
        leaves.iter().map(|x| mode::set_recording(false, || x.detach().zeros_like())).collect();
    let mut blocks: Vec<Block> = Vec::new();
    for (j, leaf) in leaves.iter().enumerate() {
        let direction = |t: &Tensor| {
            let mut tangents = zeros.clone();
            tangents[j] = t.clone();
            push(&x.with_leaves(&tangents))
        };
        blocks.push(match at_once(leaf, &direction) {
            Some(rows) => Block::Whole(rows),
            None => Block::Parts(basis(leaf).map(|t| direction(&t)).collect()),
        });
    }
    blocks
}

/// The derivatives along every basis direction of one leaf, for each block row.
enum Block {
    /// One tensor a row, directions in front.
    Whole(Vec<Tensor>),
    /// For each direction, one tensor a row.
    Parts(Vec<Vec<Tensor>>),
}

impl Block {
    fn row_specs(&self) -> Option<Vec<Spec>> {
        match self {
            Block::Whole(rows) => {
                Some(rows.iter().map(|t| t.spec().with_shape(&t.shape()[1..])).collect())
            }
            Block::Parts(parts) => {
                parts.first().map(|rows| rows.iter().map(|t| t.spec().clone()).collect())
            }
        }
    }

    /// Row `i` with the directions as its first axis; none if there are no directions.
    fn rows(&self, i: usize, directions: usize) -> Option<Tensor> {
        match self {
            _ if directions == 0 => None,
            Block::Whole(rows) => Some(rows[i].clone()),
            Block::Parts(parts) => {
                Some(stack(&parts.iter().map(|rows| &rows[i]).collect::<Vec<_>>(), 0))
            }
        }
    }

    /// Row `i` with the directions as its last axis; none if there are no directions.
    fn columns(&self, i: usize, directions: usize) -> Option<Tensor> {
        match self {
            _ if directions == 0 => None,
            Block::Whole(rows) => {
                let order: Vec<isize> = (1..rows[i].rank() as isize).chain([0]).collect();
                Some(rows[i].permute(&order[..]))
            }
            Block::Parts(parts) => {
                Some(stack(&parts.iter().map(|rows| &rows[i]).collect::<Vec<_>>(), -1))
            }
        }
    }
}

/// `f` of every tensor with a single 1, as many examples of one computation. `None` where that cannot be: no direction, or a function
/// that looks at values, which is then called once for each.
fn at_once<Y: Tree>(like: &Tensor, f: &impl Fn(&Tensor) -> Y) -> Option<Y> {
    // Who looks for anomalies wants to see values.
    if like.is_empty() || mode::anomaly() {
        return None;
    }
    let n = like.len();
    let shape = [&[n], like.shape()].concat();
    // Known beforehand: inside a trace it is a constant of the program.
    let all = trace::computing(|| Tensor::eye_with(n, n, like.dtype()).reshape(&shape[..]));
    match fail::catch(|| vmap(f, 0, 0)(&all)) {
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
pub fn jacobian<T: Tree>(f: impl Fn(&T) -> Tensor) -> impl Fn(&T) -> T {
    move |x| {
        let (y, pullback) = vjp(&f, x);
        let inputs: usize = x.leaves().iter().map(Tensor::len).sum();
        match y.len() <= inputs {
            true => rows(x, &y, pullback),
            false => {
                columns(x, |tangent| jvp(&f, x, tangent).1.leaves(), |_| vec![y.clone()]).remove(0)
            }
        }
    }
}

/// The Hessian of a scalar function of one tensor: forward over reverse. Its shape is that of the
/// argument twice over.
///
/// ```
/// use pullback::{Tensor, hessian};
/// let f = |x: &Tensor| x.at(0).powi(2) * x.at(1);
/// let h = hessian(f)(&Tensor::from([3.0, 5.0]));
/// assert_eq!(h.to_vec::<f64>(), [10.0, 6.0, 6.0, 0.0]);
/// ```
#[track_caller]
pub fn hessian(f: impl Fn(&Tensor) -> Tensor) -> impl Fn(&Tensor) -> Tensor {
    let blocks = hessian_tree(f);
    move |x| blocks(x).swap_remove(0)
}

/// The Hessian over any [`Tree`], in blocks: entry `i` of the list holds the second derivatives by leaf
/// `i` and every other leaf, shaped `leaf i ++ leaf j`.
///
/// ```
/// use pullback::{Tensor, hessian_tree};
/// let f = |(x, y): &(Tensor, Tensor)| x.powi(2) * y;
/// let h = hessian_tree(f)(&(Tensor::from(3.0), Tensor::from(5.0)));
/// assert_eq!((h[0].0.item::<f64>(), h[0].1.item::<f64>(), h[1].1.item::<f64>()), (10.0, 6.0, 0.0));
/// ```
#[track_caller]
pub fn hessian_tree<T: Tree>(f: impl Fn(&T) -> Tensor) -> impl Fn(&T) -> Vec<T> {
    let gradient = grad(f);
    let at = Location::caller();
    move |x| {
        if x.leaves().iter().any(|x| !x.dtype().is_float()) {
            fail::raise(
                Error::gradient("hessian", "only floats have second derivatives")
                    .at(mode::user_line(at)),
            );
        }
        // Second derivatives do not depend on the order: the directions may be the rows, where they lie.
        let blocks = blocks(x, |tangent| jvp(&gradient, x, tangent).1.leaves());
        let tree = |(i, along): (usize, Tensor)| {
            let mut j = 0;
            x.map(&mut |leaf| {
                j += 1;
                let shape = [along.shape(), leaf.shape()].concat();
                match blocks[i].rows(j - 1, along.len()) {
                    Some(rows) => rows.reshape(&shape[..]),
                    None => Tensor::zeros_with(&shape[..], leaf.dtype()),
                }
            })
        };
        x.leaves().into_iter().enumerate().map(tree).collect()
    }
}

/// The Hessian times a vector, without the Hessian: forward over reverse.
///
/// ```
/// use pullback::{Tensor, hvp};
/// let f = |x: &Tensor| x.powi(3).sum();
/// let hv = hvp(f, &Tensor::from([1.0, 2.0]), &Tensor::from([1.0, 1.0]));
/// assert_eq!(hv.to_vec::<f64>(), [6.0, 12.0]);
/// ```
#[track_caller]
pub fn hvp<T: Tree>(f: impl Fn(&T) -> Tensor, x: &T, v: &T) -> T {
    jvp(grad(f), x, v).1
}

/// The tensors of this spec with a single 1, in row-major order.
fn basis(like: &Tensor) -> impl Iterator<Item = Tensor> + use<> {
    let (n, shape, dtype) = (like.len(), like.shape().to_vec(), like.dtype());
    (0..n).map(move |i| {
        let here = Tensor::iota(n).eq(Scalar::Int(i as i64));
        here.cast(dtype).reshape(&shape[..])
    })
}
