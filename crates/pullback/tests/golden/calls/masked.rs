//! Reductions under a mask: `torch.masked`.

use super::one;
use super::reduce::{axes, kept};
use crate::args::Args;
use pullback::{Tensor, masked};

pub fn call(name: &str, a: &Args) -> Option<Vec<Tensor>> {
    let short = name.strip_prefix("masked.")?;
    let x = a.x();
    let mask = a.maybe_tensor(usize::MAX, "mask").unwrap_or_else(|| Tensor::from(true));
    // `norm` and `normalize` name their order first.
    let first = if matches!(short, "norm" | "normalize") { 2 } else { 1 };
    let keep = a.flag(usize::MAX, "keepdim", false);
    let axis = || a.int(first, "dim");
    let over = |f: &dyn Fn(Vec<isize>) -> Tensor| {
        let d = axes(a, &x, first);
        one(kept(&x, &d, keep, f(d.clone())))
    };
    // Over one axis, or the flattened tensor.
    let along = |f: &dyn Fn(&Tensor, &Tensor, isize) -> Tensor| match a.get(first, "dim") {
        Some(d) if x.rank() > 0 => one(kept(&x, &[d.int()], keep, f(&x, &mask, d.int()))),
        _ => {
            let flat = |t: &Tensor| t.reshape([t.len()]);
            let y = f(&flat(&x), &flat(&mask.expand(x.shape())), 0);
            one(kept(&x, &axes(a, &x, usize::MAX), keep, y.reshape(())))
        }
    };
    let correction = || {
        let unbiased = a.flag(2, "unbiased", true);
        a.float_or(usize::MAX, "correction", f64::from(u8::from(unbiased)))
    };
    let order = || a.float_or(1, "ord", 2.0);
    match short {
        "sum" => over(&|d| masked::sum(&x, &mask, d)),
        "prod" => over(&|d| masked::prod(&x, &mask, d)),
        "amax" => over(&|d| masked::max(&x, &mask, d)),
        "amin" => over(&|d| masked::min(&x, &mask, d)),
        "mean" => over(&|d| masked::mean(&x, &mask, d)),
        "var" => over(&|d| masked::var(&x, &mask, d, correction())),
        "std" => over(&|d| masked::std(&x, &mask, d, correction())),
        "norm" => over(&|d| masked::norm(&x, &mask, order(), d)),
        "logsumexp" => over(&|d| masked::logsumexp(&x, &mask, d)),
        // PyTorch gives these in the dtype of the tensor.
        "argmax" => along(&|x, mask, d| masked::argmax(x, mask, d).cast(x.dtype())),
        "argmin" => along(&|x, mask, d| masked::argmin(x, mask, d).cast(x.dtype())),
        "median" => along(&|x, mask, d| masked::median(x, mask, d)),
        "normalize" => {
            one(masked::normalize(&x, &mask, order(), axis(), a.float_or(3, "eps", 1e-12)))
        }
        "softmax" => one(masked::softmax(&x, &mask, axis())),
        "log_softmax" => one(masked::log_softmax(&x, &mask, axis())),
        "softmin" => one(masked::softmin(&x, &mask, axis())),
        "cumsum" => one(masked::cumsum(&x, &mask, axis())),
        "cumprod" => one(masked::cumprod(&x, &mask, axis())),
        "logaddexp" => {
            let all = || Tensor::from(true);
            let mask = |name: &str| a.maybe_tensor(usize::MAX, name).unwrap_or_else(all);
            let other = a.tensor(1, "other");
            one(masked::logaddexp(&x, &mask("input_mask"), &other, &mask("other_mask")))
        }
        _ => None,
    }
}
