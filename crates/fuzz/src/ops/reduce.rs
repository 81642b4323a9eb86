//! Over axes, and along them.

use super::{EXACT, OpRow, READS, SOMETIMES, UNTRACED, fit, lines, positive, rows};
use pullback::{QuantileInterpolation, Spacing, Tensor, masked};

/// Reductions.
#[rustfmt::skip]
pub const ROWS: &[OpRow] = rows! {
    sum(x: Float) EXACT, |_d| x.sum();
    sum_over(x: Float) EXACT, |d| { let x = lines(x); x.sum_over(d.axis(&x)) };
    sum_keep(x: Float) EXACT, |d| { let x = lines(x); x.sum_keep(d.axis(&x)) };
    mean(x: Float) 0, |_d| x.mean();
    mean_over(x: Float) 0, |d| { let x = lines(x); x.mean_over(d.axis(&x)) };
    prod(x: Float) EXACT | SOMETIMES, |_d| x.prod();
    prod_over(x: Float) EXACT | SOMETIMES, |d| { let x = lines(x); x.prod_over(d.axis(&x)) };
    max(x: Float) EXACT, |_d| x.max();
    max_over(x: Float) EXACT, |d| { let x = lines(x); x.max_over(d.axis(&x)) };
    min_over(x: Float) EXACT, |d| { let x = lines(x); x.min_over(d.axis(&x)) };
    min_keep(x: Float) EXACT, |d| { let x = lines(x); x.min_keep(d.axis(&x)) };
    max_at(x: Float) EXACT, |d| { let x = lines(x); x.max_at(d.axis(&x)) };
    min_at(x: Float) EXACT, |d| { let x = lines(x); x.min_at(d.axis(&x)) };
    argmax(x: Float) EXACT, |d| { let x = lines(x); x.argmax(d.axis(&x)) };
    argmin(x: Float) EXACT, |d| { let x = lines(x); x.argmin(d.axis(&x)) };
    var(x: Float) 0, |_d| x.var_with(all(x), 0.0);
    var_over(x: Float) 0, |d| { let x = lines(x); x.var_with(d.axis(&x), d.pick(&[0.0, 1.0])) };
    std_over(x: Float) 0, |d| { let x = lines(x); x.std_with(d.axis(&x), 0.0) };
    logsumexp(x: Float) 0, |_d| x.logsumexp();
    logsumexp_over(x: Float) 0, |d| { let x = lines(x); x.logsumexp_over(d.axis(&x)) };
    norm(x: Float) 0, |_d| x.norm();
    norm_over(x: Float) 0, |d| { let x = lines(x); x.norm_over(d.axis(&x)) };
    vector_norm(x: Float) 0, |d| { let x = lines(x); x.vector_norm(d.pick(&[2.0, 1.0, 3.0, f64::INFINITY, -1.0, 0.0]), d.axis(&x)) };
    any(x: Float) EXACT, |d| { let x = lines(x); x.any_over(d.axis(&x)) };
    all(x: Float) EXACT, |d| { let x = lines(x); x.all_over(d.axis(&x)) };
    count_nonzero(x: Float) EXACT, |d| { let x = lines(x); x.count_nonzero(d.axis(&x)) };
    nan_sum(x: Float) EXACT, |d| { let x = lines(x); x.nan_sum(d.axis(&x)) };
    nan_mean(x: Float) 0, |d| { let x = lines(x); x.nan_mean(d.axis(&x)) };
    min_max(x: Float) EXACT, |d| { let x = lines(x); x.min_max(d.axis(&x)) };
    median(x: Float) EXACT, |d| { let x = lines(x); x.median(d.axis(&x)) };
    nan_median(x: Float) EXACT, |d| { let x = lines(x); x.nan_median(d.axis(&x)) };
    mode(x: Float) EXACT | UNTRACED, |d| { let x = lines(x); x.mode(d.axis(&x)) };
    kthvalue(x: Float) EXACT, |d| { let x = lines(x); let axis = d.axis(&x); x.kthvalue(1 + d.below(x.shape()[axis as usize]), axis) };
    quantile(x: Float) 0, |d| { let x = lines(x); x.quantile(d.pick(&[0.5, 0.25, 1.0]), d.axis(&x), d.pick(&[QuantileInterpolation::Linear, QuantileInterpolation::Nearest, QuantileInterpolation::Midpoint])) };
    dist(a: Float, b: Float) 0, |d| a.dist(&fit(b, a.shape()), d.pick(&[2.0, 1.0, 3.0]));
    cov(x: Float) 0, |_d| fit(x, &[2, 3]).cov(1.0, None, None);
    corrcoef(x: Float) 0, |_d| fit(x, &[2, 3]).corrcoef();
    trapezoid(x: Float) 0, |d| { let x = lines(x); x.trapezoid(Spacing::Even(0.5), d.axis(&x)) };
    gradient(x: Float) 0, |d| { let x = fit(x, &[2, 4]); x.gradient(Spacing::Even(0.5), d.axis(&x), d.from_to(1, 1)) };
    bincount(n: Index, w: Float) READS, |_d| n.remainder(4).reshape([n.len()]).bincount(Some(&fit(w, &[n.len()])), 4);
    histc(x: Float) UNTRACED, |_d| x.histc(3, Some((-2.0, 2.0)));
    masked_sum(x: Float, m: Mask) EXACT, |d| { let x = lines(x); masked::sum(&x, &fit(m, x.shape()), d.axis(&x)) };
    masked_mean(x: Float, m: Mask) 0, |d| { let x = lines(x); masked::mean(&x, &fit(m, x.shape()), d.axis(&x)) };
    masked_softmax(x: Float, m: Mask) 0, |d| { let x = lines(x); masked::softmax(&x, &fit(m, x.shape()), d.axis(&x)).nan_to_num(0.0, 0.0, 0.0) };
    sum_to_shape(x: Float) EXACT, |_d| { let x = lines(x); let mut s = x.shape().to_vec(); s[0] = 1; x.sum_to_shape(&s[..]) };
};

/// Running reductions, orders and normalisations along an axis.
#[rustfmt::skip]
pub const CUMULATE: &[OpRow] = rows! {
    cumsum(x: Float) EXACT, |d| { let x = lines(x); x.cumsum(d.axis(&x)) };
    cumprod(x: Float) EXACT | SOMETIMES, |d| { let x = lines(x); x.cumprod(d.axis(&x)) };
    cummax(x: Float) EXACT, |d| { let x = lines(x); x.cummax(d.axis(&x)) };
    cummin(x: Float) EXACT, |d| { let x = lines(x); x.cummin(d.axis(&x)) };
    logcumsumexp(x: Float) SOMETIMES, |d| { let x = lines(x); x.logcumsumexp(d.axis(&x)) };
    cumulative_trapezoid(x: Float) 0, |d| { let x = lines(x); x.cumulative_trapezoid(Spacing::Even(0.5), d.axis(&x)) };
    sort(x: Float) EXACT, |d| { let x = lines(x); x.sort(d.axis(&x), d.flag()) };
    argsort(x: Float) EXACT, |d| { let x = lines(x); x.argsort(d.axis(&x), d.flag()) };
    topk(x: Float) EXACT, |d| { let x = lines(x); let axis = d.axis(&x); let n = x.shape()[axis as usize]; x.topk(d.below(n + 1), axis, d.flag()) };
    softmax(x: Float) 0, |d| { let x = lines(x); x.softmax(d.axis(&x)) };
    log_softmax(x: Float) 0, |d| { let x = lines(x); x.log_softmax(d.axis(&x)) };
    normalize(x: Float) 0, |d| { let x = lines(x); x.normalize(d.pick(&[2.0, 1.0, 3.0]), d.axis(&x), 1e-12) };
    renorm(x: Float) 0, |d| { let x = fit(x, &[2, 3]); x.renorm(2.0, d.axis(&x), 1.0) };
    cosine_similarity(a: Float, b: Float) 0, |d| { let a = lines(a); a.cosine_similarity(&fit(b, a.shape()), d.axis(&a), 1e-8) };
    pairwise_distance(a: Float, b: Float) 0, |d| { let a = lines(a); a.pairwise_distance(&fit(b, a.shape()), d.pick(&[2.0, 1.0]), 1e-6) };
    isotonic(x: Float) 0, |d| { let x = lines(x); x.isotonic(d.axis(&x)) };
    soft_sort(x: Float) 0, |d| { let x = lines(x); x.soft_sort(d.axis(&x), d.flag(), 0.5) };
    soft_rank(x: Float) 0, |d| { let x = lines(x); x.soft_rank(d.axis(&x), 0.5) };
    soft_argmax(x: Float) 0, |d| { let x = lines(x); x.soft_argmax(d.axis(&x), 0.5) };
    layer_norm(x: Float, w: Float, b: Float) 0, |_d| { let x = lines(x); let n = &x.shape()[x.rank() - 1..]; x.layer_norm(&fit(w, n), &fit(b, n), 1e-2) };
    rms_norm(x: Float, w: Float) 0, |_d| { let x = lines(x); let n = &x.shape()[x.rank() - 1..]; x.rms_norm(&fit(w, n), 1e-2) };
    batch_norm(x: Float, w: Float) 0, |d| { let x = fit(x, &[2, 2, 2]); let w = fit(w, &[2]); if d.flag() { x.batch_norm(Some(&w), None, 1e-2) } else { x.batch_norm(None, Some(&w), 1e-2) } };
    group_norm(x: Float, w: Float) 0, |d| fit(x, &[2, 4, 2]).group_norm(d.pick(&[1, 2, 4]), Some(&fit(w, &[4])), None, 1e-2);
    instance_norm(x: Float, w: Float) 0, |_d| fit(x, &[2, 2, 3]).instance_norm(None, Some(&fit(w, &[2])), 1e-2);
    channel_norm(x: Float, m: Float, v: Float) 0, |_d| fit(x, &[2, 2, 2]).channel_norm(&fit(m, &[2]), &positive(&fit(v, &[2])), None, None, 1e-2);
    local_response_norm(x: Float) 0, |d| fit(x, &[1, 4, 2]).local_response_norm(d.from_to(1, 3), 0.5, 0.75, 1.0);
};

fn all(x: &Tensor) -> Vec<isize> {
    (0..x.rank() as isize).collect()
}
