//! Statistics, calculus of samples, searching, and tensors made of numbers alone.

use super::one;
use super::reduce::{axes, kept};
use crate::args::{Arg, Args};
use pullback::{DType, QuantileInterpolation, Spacing, Tensor, Unique};

pub fn call(name: &str, a: &Args) -> Option<Vec<Tensor>> {
    let x = || a.x();
    match name {
        "quantile" | "nanquantile" => {
            let between = match a.text(4, "interpolation").unwrap_or("linear") {
                "linear" => QuantileInterpolation::Linear,
                "lower" => QuantileInterpolation::Lower,
                "higher" => QuantileInterpolation::Higher,
                "nearest" => QuantileInterpolation::Nearest,
                "midpoint" => QuantileInterpolation::Midpoint,
                _ => return None,
            };
            let (x, q, keep) = (x(), a.tensor(1, "q"), a.flag(3, "keepdim", false));
            let of = |x: &Tensor, d: isize| match name {
                "quantile" => x.quantile(&q, d, between),
                _ => x.nan_quantile(&q, d, between),
            };
            let y = match a.get(2, "dim") {
                Some(d) => of(&x, d.int()),
                None => of(&x.reshape([x.len()]), 0),
            };
            if !keep {
                return one(y);
            }
            let d = axes(a, &x, 2);
            let thin = kept(&x, &d, true, x.detach().sum_over(d.clone()));
            one(y.reshape([q.shape(), thin.shape()].concat()))
        }
        "cov" => {
            let (counts, weights) = (a.maybe_tensor(2, "fweights"), a.maybe_tensor(3, "aweights"));
            one(x().cov(a.float_or(1, "correction", 1.0), counts.as_ref(), weights.as_ref()))
        }
        "corrcoef" => one(x().corrcoef()),
        "renorm" => one(x().renorm(a.float(1, "p"), a.int(2, "dim"), a.float(3, "maxnorm"))),
        "trapezoid" | "trapz" | "cumulative_trapezoid" => {
            let at = a.maybe_tensor(1, "x");
            let step = Spacing::Even(a.float_or(usize::MAX, "dx", 1.0));
            let spacing = at.as_ref().map_or(step, Spacing::At);
            let axis = a.int_or(usize::MAX, "dim", -1);
            one(match name {
                "cumulative_trapezoid" => x().cumulative_trapezoid(spacing, axis),
                _ => x().trapezoid(spacing, axis),
            })
        }
        "gradient" => {
            let (x, order) = (x(), a.int_or(usize::MAX, "edge_order", 1) as usize);
            let every = || (0..x.rank() as isize).collect();
            let d: Vec<isize> = a.maybe_ints(usize::MAX, "dim").unwrap_or_else(every);
            let spacing = a.get(usize::MAX, "spacing").cloned().unwrap_or(Arg::Float(1.0));
            let each = |(k, &axis): (usize, &isize)| {
                let here = match &spacing {
                    Arg::List(list) => list[k].clone(),
                    one => one.clone(),
                };
                match &here {
                    Arg::Tensor(at) if at.rank() == 1 => x.gradient(Spacing::At(at), axis, order),
                    step => x.gradient(Spacing::Even(step.float()), axis, order),
                }
            };
            Some(d.iter().enumerate().map(each).collect())
        }
        "bincount" => one(x()
            .bincount(a.maybe_tensor(1, "weights").as_ref(), a.int_or(2, "minlength", 0) as usize)),
        "histc" => {
            let bounds = (a.float_or(2, "min", 0.0), a.float_or(3, "max", 0.0));
            let bounds = (bounds != (0.0, 0.0)).then_some(bounds);
            one(x().histc(a.int_or(1, "bins", 100) as usize, bounds))
        }
        "histogram" => {
            let (x, weight) = (x(), a.maybe_tensor(usize::MAX, "weight"));
            let edges = match a.get(1, "bins")? {
                Arg::Tensor(edges) => edges.clone(),
                bins => {
                    let range = pairs(a.get(usize::MAX, "range"));
                    x.bin_edges(bins.int() as usize, range.first().copied())
                }
            };
            let counts = x.histogram(&edges, weight.as_ref());
            Some(vec![dense(counts, std::slice::from_ref(&edges), a), edges])
        }
        "histogramdd" => {
            let (x, weight) = (x(), a.maybe_tensor(usize::MAX, "weight"));
            let n = x.shape()[x.rank() - 1];
            let points = x.reshape([x.len() / n.max(1), n]);
            let range = pairs(a.get(usize::MAX, "range"));
            let edges: Vec<Tensor> = match a.get(1, "bins")? {
                Arg::List(list) if list.iter().all(|e| matches!(e, Arg::Tensor(_))) => {
                    list.iter().map(Arg::tensor).collect()
                }
                bins => {
                    let bins = bins.ints();
                    let count = |k: usize| bins[k.min(bins.len() - 1)] as usize;
                    let column = |k: usize| points.select_at(1, k as isize);
                    (0..n).map(|k| column(k).bin_edges(count(k), range.get(k).copied())).collect()
                }
            };
            let weight = weight.map(|w| w.reshape([w.len()]));
            let counts = points.histogram_nd(&edges.iter().collect::<Vec<_>>(), weight.as_ref());
            let mut out = vec![dense(counts, &edges, a)];
            out.extend(edges);
            Some(out)
        }
        "searchsorted" | "bucketize" => {
            let right =
                a.flag(usize::MAX, "right", false) || a.text(usize::MAX, "side") == Some("right");
            let found = match name {
                "bucketize" => x().bucketize(&a.tensor(1, "boundaries"), right),
                _ => {
                    let sorted = match a.maybe_tensor(usize::MAX, "sorter") {
                        Some(order) => x().gather(-1, &order),
                        None => x(),
                    };
                    sorted.searchsorted(&a.tensor(1, "values|self"), right)
                }
            };
            let narrow = a.flag(usize::MAX, "out_int32", false);
            one(if narrow { found.cast(DType::I32) } else { found })
        }
        "isin" => {
            let found = x().is_in(&a.tensor(1, "test_elements"));
            one(if a.flag(usize::MAX, "invert", false) { found.logical_not() } else { found })
        }
        "unique" | "unique_consecutive" => {
            let found: Unique = match (name, a.get(usize::MAX, "dim")) {
                ("unique", None) => x().unique(),
                ("unique", Some(d)) => x().unique_over(d.int()),
                (_, None) => x().unique_consecutive(),
                (_, Some(d)) => x().unique_consecutive_over(d.int()),
            };
            let mut out = vec![found.values];
            if a.flag(usize::MAX, "return_inverse", false) {
                out.push(found.inverse);
            }
            if a.flag(usize::MAX, "return_counts", false) {
                out.push(found.counts);
            }
            Some(out)
        }
        "nonzero" | "argwhere" => match a.flag(usize::MAX, "as_tuple", false) {
            true => Some(x().at_least(1).nonzero().unbind(1)),
            false => one(x().nonzero()),
        },
        "unravel_index" => Some(x().unravel_index(&super::view::lengths(&a.ints(1, "shape")))),
        "eye" => {
            let rows = a.int(0, "n") as usize;
            one(Tensor::eye_with(rows, a.int_or(1, "m", rows as isize) as usize, DType::F64))
        }
        "ones" => one(Tensor::ones_with(a.rest(0, "size"), DType::F64)),
        "zeros" => one(Tensor::zeros_with(a.rest(0, "size"), DType::F64)),
        "nn.functional.one_hot" => {
            let most = || x().max().item::<i64>() as isize + 1;
            let classes = match a.int_or(1, "num_classes", -1) {
                -1 => most(),
                n => n,
            };
            one(x().one_hot(classes as usize, DType::I64))
        }
        _ => None,
    }
}

/// A flat list of bounds, in pairs.
fn pairs(range: Option<&Arg>) -> Vec<(f64, f64)> {
    let Some(Arg::List(list)) = range else { return Vec::new() };
    list.chunks(2).map(|p| (p[0].float(), p[1].float())).collect()
}

/// Divided by the total and by the size of each bin, with `density`.
fn dense(counts: Tensor, edges: &[Tensor], a: &Args) -> Tensor {
    if !a.flag(usize::MAX, "density", false) {
        return counts;
    }
    let mut y = &counts / counts.sum();
    for (k, e) in edges.iter().enumerate() {
        let mut shape = vec![1; edges.len()];
        shape[k] = e.len() - 1;
        y /= e.diff(1, 0).reshape(shape);
    }
    y
}
