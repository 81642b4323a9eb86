//! Elements taken and put by index.

use super::{EXACT, OpRow, UNTRACED, fit, lines, places, rows};
use pullback::{DType, Embedding, ScatterReduction, Tensor};

/// Gathers and scatters.
#[rustfmt::skip]
pub const ROWS: &[OpRow] = rows! {
    take(x: Float, n: Index) EXACT, |_d| x.take(&places(n, n.shape(), x.len()));
    take_along(x: Float, n: Index) EXACT, |d| { let x = full(x); let axis = d.axis(&x); x.take_along(&places(n, x.shape(), x.shape()[axis as usize]), axis) };
    gather(x: Float, n: Index) EXACT, |d| { let x = full(x); let axis = d.axis(&x); x.gather(axis, &places(n, x.shape(), x.shape()[axis as usize])) };
    index_select(x: Float, n: Index) EXACT, |d| { let x = full(x); let axis = d.axis(&x); x.index_select(axis, &places(n, &[d.from_to(1, 3)], x.shape()[axis as usize])) };
    index_get(x: Float, n: Index) EXACT, |_d| { let x = fit(x, &[3, 2]); x.index_get(&[&places(n, &[2], 3), &places(n, &[2], 2)]) };
    scatter(x: Float, n: Index, s: Float) EXACT, |d| { let x = full(x); let axis = d.axis(&x); x.scatter(axis, &places(n, x.shape(), x.shape()[axis as usize]), &fit(s, x.shape())) };
    scatter_add(x: Float, n: Index, s: Float) EXACT, |d| { let x = full(x); let axis = d.axis(&x); x.scatter_add(axis, &places(n, x.shape(), x.shape()[axis as usize]), &fit(s, x.shape())) };
    scatter_mul(x: Float, n: Index, s: Float) EXACT, |d| { let x = full(x); let axis = d.axis(&x); x.scatter_mul(axis, &places(n, x.shape(), x.shape()[axis as usize]), &fit(s, x.shape())) };
    scatter_max(x: Float, n: Index, s: Float) EXACT, |d| { let x = full(x); let axis = d.axis(&x); x.scatter_max(axis, &places(n, x.shape(), x.shape()[axis as usize]), &fit(s, x.shape())) };
    scatter_reduce(x: Float, n: Index, s: Float) 0, |d| { let x = full(x); let axis = d.axis(&x); x.scatter_reduce(axis, &places(n, x.shape(), x.shape()[axis as usize]), &fit(s, x.shape()), d.pick(&[ScatterReduction::Mean, ScatterReduction::Prod, ScatterReduction::Min, ScatterReduction::Sum]), d.flag()) };
    index_add(x: Float, n: Index, s: Float) EXACT, |_d| { let x = full(x); x.index_add(0, &places(n, &x.shape()[..1], x.shape()[0]), &fit(s, x.shape())) };
    index_copy(x: Float, n: Index, s: Float) EXACT, |_d| { let x = full(x); x.index_copy(0, &places(n, &x.shape()[..1], x.shape()[0]), &fit(s, x.shape())) };
    index_fill(x: Float, n: Index) EXACT, |d| { let x = full(x); x.index_fill(0, &places(n, &[2], x.shape()[0]), d.pick(&[0.5, 0.0])) };
    index_reduce(x: Float, n: Index, s: Float) 0, |d| { let x = full(x); x.index_reduce(0, &places(n, &x.shape()[..1], x.shape()[0]), &fit(s, x.shape()), d.pick(&[ScatterReduction::Mean, ScatterReduction::Prod, ScatterReduction::Max]), d.flag()) };
    index_put(x: Float, n: Index, s: Float) EXACT, |d| { let x = fit(x, &[3, 2]); x.index_put(&[&places(n, &[2], 3)], &fit(s, &[2, 2]), d.flag()) };
    put_flat(x: Float, n: Index, s: Float) EXACT, |d| x.put_flat(&places(n, n.shape(), x.len()), &fit(s, n.shape()), d.flag());
    masked_scatter(x: Float, m: Mask, s: Float) EXACT | UNTRACED, |_d| x.masked_scatter(&fit(m, x.shape()), &fit(s, &[x.len()]));
    one_hot(n: Index, x: Float) EXACT | UNTRACED, |_d| n.remainder(3).one_hot(3, x.dtype());
    searchsorted(x: Float, v: Float) EXACT | UNTRACED, |d| fit(x, &[3]).sort(0, false).0.searchsorted(v, d.flag());
    bucketize(x: Float) EXACT | UNTRACED, |d| x.bucketize(&Tensor::from([-0.5, 0.0, 0.5]).cast(x.dtype()), d.flag());
    is_in(x: Float, y: Float) EXACT | UNTRACED, |_d| x.is_in(y);
    embedding(x: Float, n: Index) EXACT, |_d| Embedding::new().of(&fit(x, &[3, 2]), &places(n, n.shape(), 3));
    embedding_padded(x: Float, n: Index) EXACT | super::SURROGATE, |_d| Embedding::new().padding(1).of(&fit(x, &[3, 2]), &places(n, n.shape(), 3));
    iota_like(x: Float) EXACT, |_d| Tensor::arange(0, x.len() as i64).reshape(x.shape());
    uniform(x: Float) EXACT, |d| d.key().uniform(x.shape(), x.dtype(), -1.0, 1.0);
    normal(x: Float) 0, |d| d.key().normal(x.shape(), x.dtype(), 0.0, 1.0);
    split_key(x: Float) 0, |d| { let (a, b) = d.key().split(); (a.normal(x.shape(), x.dtype(), 0.0, 1.0), b.uniform(x.shape(), x.dtype(), 0.0, 1.0)) };
    randint(x: Float) EXACT, |d| d.key().randint(x.shape(), 0, 5);
    bernoulli_mask(x: Float) EXACT, |d| d.key().bernoulli_mask(x.shape(), 0.5);
    dropout(x: Float) EXACT, |d| x.dropout(0.5, Some(&d.key()));
    channel_dropout(x: Float) EXACT, |d| fit(x, &[2, 2, 2]).channel_dropout(0.5, 1, Some(&d.key()));
    alpha_dropout(x: Float) 0, |d| x.alpha_dropout(0.25, Some(&d.key()));
    rrelu(x: Float) 0, |d| x.rrelu(0.1, 0.4, Some(&d.key()));
    gumbel_softmax(x: Float) 0, |d| { let x = lines(x); x.gumbel_softmax(1.0, false, d.axis(&x), &d.key()) };
    folded_key(x: Float) 0, |d| x * d.key().fold_in(7).normal(x.shape(), x.dtype(), 0.0, 1.0);
    permutation() EXACT, |d| d.key().permutation(d.from_to(1, 4));
    index_cast(n: Index) EXACT, |_d| n.cast(DType::I32).cast(DType::I64);
};

/// With an axis, and without one of length 0: where there is nothing, no index is right.
fn full(x: &Tensor) -> Tensor {
    if x.is_empty() { fit(x, &[1]) } else { lines(x) }
}
