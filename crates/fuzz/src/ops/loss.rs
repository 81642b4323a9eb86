//! Losses. Both operands have one shape.

use super::{
    Draws, EXACT, ONE_WAY, OpRow, READS, SURROGATE, fit, places, positive, rows, table, unit,
};
use pullback::losses::{self, Ctc};
use pullback::{CrossEntropy, Reduction, Tensor};

/// Losses.
#[rustfmt::skip]
pub const ROWS: &[OpRow] = rows! {
    mse(x: Float, y: Float) 0, |d| losses::mse(x, &fit(y, x.shape()), reduction(d));
    l1(x: Float, y: Float) 0, |d| losses::l1(x, &fit(y, x.shape()), reduction(d));
    huber(x: Float, y: Float) 0, |d| losses::huber(x, &fit(y, x.shape()), d.pick(&[1.0, 0.5]), reduction(d));
    smooth_l1(x: Float, y: Float) 0, |d| losses::smooth_l1(x, &fit(y, x.shape()), d.pick(&[1.0, 0.5]), reduction(d));
    kl_div(x: Float, y: Float) 0, |d| losses::kl_div(&unit(x).log(), &unit(&fit(y, x.shape())), false, reduction(d));
    binary_cross_entropy(x: Float, y: Float) 0, |d| losses::binary_cross_entropy(&unit(x), &unit(&fit(y, x.shape())), None, reduction(d));
    binary_cross_entropy_with_logits(x: Float, y: Float) 0, |d| losses::binary_cross_entropy_with_logits(x, &unit(&fit(y, x.shape())), None, None, reduction(d));
    nll(x: Float, n: Index) 0, |d| losses::nll(&fit(x, &[2, 3]).log_softmax(1), &places(n, &[2], 3), None, None, reduction(d));
    cross_entropy(x: Float, n: Index) 0, |d| CrossEntropy::new().label_smoothing(d.pick(&[0.0, 0.25])).reduction(reduction(d)).of(&fit(x, &[2, 3]), &places(n, &[2], 3));
    cross_entropy_weighted(x: Float, n: Index, w: Float) SURROGATE, |d| CrossEntropy::new().weight(&positive(&fit(w, &[3])).detach()).reduction(reduction(d)).of(&fit(x, &[2, 3]), &places(n, &[2], 3));
    cross_entropy_soft(x: Float, y: Float) 0, |d| CrossEntropy::new().reduction(reduction(d)).of(&fit(x, &[2, 3]), &fit(y, &[2, 3]).softmax(1));
    gaussian_nll(x: Float, y: Float, v: Float) 0, |d| losses::gaussian_nll(x, &fit(y, x.shape()), &positive(&fit(v, x.shape())), d.flag(), 1e-6, reduction(d));
    poisson_nll(x: Float, y: Float) 0, |d| losses::poisson_nll(&positive(x), &positive(&fit(y, x.shape())), d.flag(), false, 1e-8, reduction(d));
    margin_ranking(a: Float, b: Float, y: Float) EXACT, |d| losses::margin_ranking(a, &fit(b, a.shape()), &fit(y, a.shape()).sign(), 0.5, d.pick(&[Reduction::Sum, Reduction::None]));
    soft_margin(x: Float, y: Float) 0, |d| losses::soft_margin(x, &fit(y, x.shape()), reduction(d));
    cosine_embedding(a: Float, b: Float) 0, |d| losses::cosine_embedding(&fit(a, &[2, 3]), &fit(b, &[2, 3]), &Tensor::from([1.0, -1.0]).cast(a.dtype()), 0.25, reduction(d));
    triplet_margin(a: Float, b: Float, c: Float) 0, |d| { let a = table(a); losses::triplet_margin(&a, &fit(b, a.shape()), &fit(c, a.shape()), (1.0, 2.0, 1e-6), d.flag(), reduction(d)) };
    multi_margin(x: Float, n: Index) 0, |d| losses::multi_margin(&fit(x, &[2, 3]), &places(n, &[2], 3), 1 + d.below(2) as u32, 1.0, None, reduction(d));
    ctc(x: Float) SURROGATE | ONE_WAY | READS, |d| losses::ctc(&fit(x, &[4, 1, 3]).log_softmax(2), &Tensor::from([[1i64, 2]]), &[4], &[2], Ctc { blank: 0, zero_infinity: false, reduction: reduction(d) });
};

fn reduction(d: &mut Draws) -> Reduction {
    d.pick(&[Reduction::Mean, Reduction::Sum, Reduction::None])
}
