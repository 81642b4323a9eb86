//! Reductions, norms, running reductions and order.

use super::one;
use crate::args::{Arg, Args};
use pullback::{DType, Tensor, cat};

pub fn call(name: &str, a: &Args) -> Option<Vec<Tensor>> {
    let x = || a.x();
    let dim = |i: usize, default: isize| a.int_or(i, "dim|axis", default);
    // Over `dim` at 1, kept by `keepdim` at 2; no axes are all of them.
    let over = |f: &dyn Fn(&Tensor, Vec<isize>) -> Tensor| {
        let (x, axes) = (x(), axes(a, &x(), 1));
        kept(&x, &axes, a.flag(2, "keepdim|keepdims", false), f(&x, axes.clone()))
    };
    match name {
        "sum" => one(over(&|x, d| x.sum_over(d))),
        "mean" => one(over(&|x, d| x.mean_over(d))),
        "nansum" => one(over(&|x, d| x.nan_sum(d))),
        "nanmean" => one(over(&|x, d| x.nan_mean(d))),
        "prod" => one(over(&|x, d| x.prod_over(d))),
        "amax" => one(over(&|x, d| x.max_over(d))),
        "amin" => one(over(&|x, d| x.min_over(d))),
        "aminmax" => {
            // Both keyword only; no axis is all of them.
            let (x, d) = (x(), axes(a, &x(), usize::MAX));
            let (low, high) = x.min_max(d.clone());
            let keep = a.flag(usize::MAX, "keepdim", false);
            Some(vec![kept(&x, &d, keep, low), kept(&x, &d, keep, high)])
        }
        "all" => one(over(&|x, d| x.all_over(d))),
        "any" => one(over(&|x, d| x.any_over(d))),
        "count_nonzero" => one(x().count_nonzero(axes(a, &x(), 1))),
        "logsumexp" | "special.logsumexp" => one(over(&|x, d| x.logsumexp_over(d))),
        "argmax" | "argmin" => {
            let arg = |x: &Tensor, d| if name == "argmax" { x.argmax(d) } else { x.argmin(d) };
            one(match a.get(1, "dim") {
                Some(axis) => over(&|x, _| arg(x, axis.int())),
                None => {
                    let all: Vec<isize> = (0..x().rank() as isize).collect();
                    let found = arg(&x().reshape([x().len()]), 0);
                    kept(&x(), &all, a.flag(2, "keepdim", false), found)
                }
            })
        }
        "max.reduction_no_dim" => one(x().max()),
        "min.reduction_no_dim" => one(x().min()),
        "max.reduction_with_dim" => Some(pair(a, 1, 2, &|x, d| x.max_at(d))),
        "min.reduction_with_dim" => Some(pair(a, 1, 2, &|x, d| x.min_at(d))),
        "median" => match a.get(1, "dim") {
            Some(_) => Some(pair(a, 1, 2, &|x, d| x.median(d))),
            None => one(x().reshape([x().len()]).median(0).0),
        },
        "nanmedian" => match a.get(1, "dim") {
            Some(_) => Some(pair(a, 1, 2, &|x, d| x.nan_median(d))),
            None => one(x().reshape([x().len()]).nan_median(0).0),
        },
        "mode" => Some(pair(a, 1, 2, &|x, d| x.mode(d))),
        "kthvalue" => Some(pair(a, 2, 3, &|x, d| x.kthvalue(a.int(1, "k") as usize, d))),
        "topk" => {
            let (values, places) =
                x().topk(a.int(1, "k") as usize, dim(2, -1), a.flag(3, "largest", true));
            Some(vec![values, places])
        }
        "sort" => {
            // `sort(dim, descending)` and `sort(stable=, dim=, descending=)`.
            let (values, places) = x().sort(dim(1, -1), a.flag(2, "descending", false));
            Some(vec![values, places])
        }
        "argsort" => one(x().argsort(dim(1, -1), a.flag(2, "descending", false))),
        "msort" => one(x().sort(0, false).0),

        "var" | "std" | "var_mean" | "std_mean" => {
            let (x, d, correction, keep) = spread(a);
            let deviation = name.starts_with("std");
            let first = if deviation {
                x.std_with(d.clone(), correction)
            } else {
                x.var_with(d.clone(), correction)
            };
            let first = kept(&x, &d, keep, first);
            match name.ends_with("_mean") {
                true => Some(vec![first, kept(&x, &d, keep, x.mean_over(d.clone()))]),
                false => one(first),
            }
        }

        "norm" => {
            let (x, d) = (x(), axes(a, &x(), 2));
            let p = match a.get(1, "p") {
                Some(Arg::Text(_)) => return None,
                p => p.map_or(2.0, Arg::float),
            };
            one(kept(&x, &d, a.flag(3, "keepdim", false), x.vector_norm(p, d.clone())))
        }
        "linalg.vector_norm" => {
            let (x, d) = (x(), axes(a, &x(), 2));
            one(kept(
                &x,
                &d,
                a.flag(3, "keepdim", false),
                x.vector_norm(a.float_or(1, "ord", 2.0), d.clone()),
            ))
        }
        "dist" => one(x().dist(&a.tensor(1, "other"), a.float_or(2, "p", 2.0))),
        "cdist" => one(x().cdist(&a.tensor(1, "x2"), a.float_or(2, "p", 2.0))),
        "nn.functional.pdist" => one(x().pdist(a.float_or(1, "p", 2.0))),
        "nn.functional.pairwise_distance" => {
            let (p, eps) = (a.float_or(2, "p", 2.0), a.float_or(3, "eps", 1e-6));
            let y = a.tensor(0, "x1").pairwise_distance(&a.tensor(1, "x2"), p, eps);
            one(if a.flag(4, "keepdim", false) { y.unsqueeze(-1) } else { y })
        }
        "nn.functional.cosine_similarity" => {
            let (axis, eps) = (dim(2, 1), a.float_or(3, "eps", 1e-8));
            one(a.tensor(0, "x1").cosine_similarity(&a.tensor(1, "x2"), axis, eps))
        }
        "nn.functional.normalize" => {
            one(x().normalize(a.float_or(1, "p", 2.0), dim(2, 1), a.float_or(3, "eps", 1e-12)))
        }

        "cumsum" => one(x().cumsum(dim(1, 0))),
        "cumprod" => one(x().cumprod(dim(1, 0))),
        "logcumsumexp" => one(x().logcumsumexp(dim(1, 0))),
        "cummax" | "cummin" => {
            let max = name == "cummax";
            let (x, axis) = (x(), dim(1, 0));
            let y = if max { x.cummax(axis) } else { x.cummin(axis) };
            Some(vec![y.clone(), latest(&x, &y, axis)])
        }
        "diff" => {
            let (n, axis) = (a.int_or(1, "n", 1) as usize, a.int_or(2, "dim", -1));
            if n == 0 {
                return one(x());
            }
            let ends = [a.maybe_tensor(3, "prepend"), Some(x()), a.maybe_tensor(4, "append")];
            let parts: Vec<Tensor> = ends.into_iter().flatten().collect();
            let whole =
                if parts.len() == 1 { x() } else { cat(&parts.iter().collect::<Vec<_>>(), axis) };
            one(whole.diff(n, axis))
        }
        "softmax" | "special.softmax" | "nn.functional.softmax" | "_softmax" => {
            one(typed(x(), a).softmax(dim(1, -1)))
        }
        "log_softmax" | "special.log_softmax" | "nn.functional.log_softmax" => {
            one(typed(x(), a).log_softmax(dim(1, -1)))
        }
        "nn.functional.softmin" | "softmin" => one((-typed(x(), a)).softmax(dim(1, -1))),
        _ => None,
    }
}

/// In the dtype that `dtype=` names, if it is one.
fn typed(x: Tensor, a: &Args) -> Tensor {
    match a.text(2, "dtype").map(|s| s.trim_start_matches("torch.")) {
        Some("float64") => x.cast(DType::F64),
        Some("float32") => x.cast(DType::F32),
        _ => x,
    }
}

/// The axes that an argument names; none, or an empty list, are all of them.
pub fn axes(a: &Args, x: &Tensor, i: usize) -> Vec<isize> {
    let all = || (0..x.rank() as isize).collect();
    let given = a.maybe_ints(i, "dim|axis").filter(|d| !d.is_empty());
    given.filter(|_| x.rank() > 0).unwrap_or_else(all)
}

/// The reduced tensor, with the axes back if they are to be kept.
pub fn kept(x: &Tensor, axes: &[isize], keep: bool, y: Tensor) -> Tensor {
    if !keep {
        return y;
    }
    let rank = x.rank() as isize;
    let hit = |i: usize| axes.iter().any(|&d| d.rem_euclid(rank) == i as isize);
    y.reshape((0..x.rank()).map(|i| if hit(i) { 1 } else { x.shape()[i] }).collect::<Vec<usize>>())
}

/// A value and its place along one axis.
fn pair(
    a: &Args,
    i: usize,
    keep: usize,
    f: &dyn Fn(&Tensor, isize) -> (Tensor, Tensor),
) -> Vec<Tensor> {
    let (x, axis, keep) = (a.x(), a.int_or(i, "dim", -1), a.flag(keep, "keepdim", false));
    let (value, place) = f(&x, axis);
    if x.rank() == 0 {
        return vec![value, place];
    }
    vec![kept(&x, &[axis], keep, value), kept(&x, &[axis], keep, place)]
}

/// `std` and `var`: (x, unbiased), (x, dim, unbiased, keepdim) or (x, dim, correction=, keepdim=).
fn spread(a: &Args) -> (Tensor, Vec<isize>, f64, bool) {
    let (x, alone) = (a.x(), matches!(a.get(1, "dim"), Some(Arg::Bool(_))));
    let unbiased = if alone { a.flag(1, "unbiased", true) } else { a.flag(2, "unbiased", true) };
    let correction = a.float_or(usize::MAX, "correction", if unbiased { 1.0 } else { 0.0 });
    let d = if alone { (0..x.rank() as isize).collect() } else { axes(a, &x, 1) };
    (x, d, correction, a.flag(3, "keepdim", false))
}

/// Where each running extreme was last met.
fn latest(x: &Tensor, y: &Tensor, axis: isize) -> Tensor {
    if x.rank() == 0 {
        return Tensor::from(0i64);
    }
    let at = axis.rem_euclid(x.rank() as isize) as usize;
    let mut shape = vec![1; x.rank()];
    shape[at] = x.shape()[at];
    let here = Tensor::arange(0, x.shape()[at] as i64).reshape(shape);
    x.eq(y).logical_or(x.is_nan()).select(&here, 0i64).cummax(axis)
}
