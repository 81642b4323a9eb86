//! Reductions, running reductions, statistics.

use super::given::Given;
use pullback::*;

type G = Given;

fn v(g: &G) -> Tensor {
    g.f(&[4])
}

fn m(g: &G) -> Tensor {
    g.f(&[2, 3])
}

const NONE: &[isize] = &[];

macro_rules! reductions {
    ($($name:literal $all:ident $over:ident $keep:ident)*) => {
        pub fn reductions() -> Vec<crate::given::Row> {
            use crate::given::call;
            vec![$(($name, vec![
                call(|g: &G| v(g).$all()),
                call(|g: &G| g.f(&[1]).$all()),
                call(|g: &G| g.f(&[]).$all()),
                call(|g: &G| m(g).$over(0)),
                call(|g: &G| m(g).$over(NONE)),
                call(|g: &G| g.f(&[1, 3]).$over(0)),
                call(|g: &G| g.f(&[1, 3]).$keep(0)),
                call(|g: &G| g.i(&[1, 3]).$over(0)),
                call(|g: &G| g.b(&[1, 3]).$over(0)),
            ])),*]
        }
    };
}

reductions!(
    "sum" sum sum_over sum_keep
    "mean" mean mean_over mean_keep
    "prod" prod prod_over prod_keep
    "max" max max_over max_keep
    "min" min min_over min_keep
    "any" any any_over any_keep
    "all" all all_over all_keep
    "var" var var_over var_keep
    "std" std std_over std_keep
    "logsumexp" logsumexp logsumexp_over logsumexp_keep
    "norm" norm norm_over norm_keep
);

macro_rules! running {
    ($($name:ident)*) => {
        pub fn running() -> Vec<crate::given::Row> {
            use crate::given::call;
            vec![$((stringify!($name), vec![
                call(|g: &G| v(g).$name(0)),
                call(|g: &G| g.f(&[1]).$name(0)),
                call(|g: &G| g.f(&[]).$name(0)),
                call(|g: &G| g.f(&[0]).$name(0)),
                call(|g: &G| g.f(&[1, 3]).$name(0)),
            ])),*]
        }
    };
}

running!(cumsum cumprod cummax cummin logcumsumexp softmax log_softmax);

crate::rows! {
    "var_with": |g| v(g).var_with(0, 0.0), |g| m(g).var_with(NONE, 0.0);
    "std_with": |g| v(g).std_with(0, 0.0), |g| m(g).std_with(NONE, 0.0);
    "argmax": |g| v(g).argmax(0), |g| g.f(&[]).argmax(0);
    "argmin": |g| v(g).argmin(0), |g| g.f(&[]).argmin(0);
    "max_at": |g| v(g).max_at(0), |g| g.f(&[]).max_at(0), |g| g.f(&[1]).max_at(0);
    "min_at": |g| v(g).min_at(0), |g| g.f(&[]).min_at(0), |g| g.f(&[1]).min_at(0);
    "sum_to_shape": |g| v(g).sum_to_shape([4]), |g| m(g).sum_to_shape([3]), |g| g.f(&[1, 3]).sum_to_shape([3]);
    "quantile": |g| v(g).quantile(0.5, 0, QuantileInterpolation::Linear), |g| g.f(&[1]).quantile(0.5, 0, QuantileInterpolation::Linear), |g| g.f(&[]).quantile(0.5, 0, QuantileInterpolation::Lower);
    "nan_quantile": |g| v(g).nan_quantile(0.5, 0, QuantileInterpolation::Linear), |g| g.f(&[1]).nan_quantile(0.5, 0, QuantileInterpolation::Linear);
    "nan_median": |g| v(g).nan_median(0), |g| g.f(&[1]).nan_median(0), |g| g.f(&[]).nan_median(0);
    "mode": |g| v(g).mode(0), |g| g.f(&[1]).mode(0), |g| g.f(&[]).mode(0);
    "min_max": |g| v(g).min_max(0), |g| v(g).min_max(NONE);
    "count_nonzero": |g| v(g).count_nonzero(0), |g| v(g).count_nonzero(NONE);
    "nan_sum": |g| v(g).nan_sum(0), |g| v(g).nan_sum(NONE), |g| g.i(&[2]).nan_sum(NONE);
    "nan_mean": |g| v(g).nan_mean(0), |g| v(g).nan_mean(NONE);
    "cov": |g| m(g).cov(1.0, None, None), |g| g.f(&[]).cov(0.0, None, None);
    "corrcoef": |g| m(g).corrcoef();
    "bincount": |g| g.ints(&[0, 1]).bincount(None, 0), |g| g.ints(&[0, 1]).bincount(Some(&g.f(&[2])), 2);
    "histc": |g| v(g).histc(2, None);
    "histogram": |g| v(g).histogram(&g.ints(&[0, 1]).cast(DType::F64), None), |g| v(g).histogram(&g.ints(&[0, 1]).cast(DType::F64), Some(&v(g)));
    "bin_edges": |g| v(g).bin_edges(2, None);
    "histogram_nd": |g| g.f(&[3, 1]).histogram_nd(&[&g.ints(&[0, 1]).cast(DType::F64)], None);
    "trapezoid": |g| v(g).trapezoid(Spacing::Even(1.0), 0), |g| v(g).trapezoid(Spacing::At(&v(g)), 0);
    "cumulative_trapezoid": |g| v(g).cumulative_trapezoid(Spacing::Even(1.0), 0), |g| g.f(&[2]).cumulative_trapezoid(Spacing::At(&g.f(&[2])), 0);
    "gradient": |g| v(g).gradient(Spacing::Even(1.0), 0, 1), |g| g.f(&[2]).gradient(Spacing::At(&g.f(&[2])), 0, 1);
    "renorm": |g| m(g).renorm(2.0, 0, 9.0), |g| m(g).renorm(2.0, 0, 0.1);
    "vector_norm": |g| v(g).vector_norm(2.0, 0), |g| v(g).vector_norm(1.0, NONE), |g| v(g).vector_norm(f64::INFINITY, NONE), |g| g.f(&[1]).vector_norm(1.0, 0), |g| v(g).vector_norm(0.0, NONE);
    "vector_norm_keep": |g| v(g).vector_norm_keep(2.0, 0), |g| g.f(&[1]).vector_norm_keep(f64::INFINITY, 0);
    "dist": |g| v(g).dist(&v(g), 2.0), |g| v(g).dist(&v(g), 1.0);
    "cdist": |g| m(g).cdist(&m(g), 2.0);
    "pdist": |g| m(g).pdist(2.0);
    "pairwise_distance": |g| m(g).pairwise_distance(&m(g), 2.0, 0.0);
    "cosine_similarity": |g| m(g).cosine_similarity(&m(g), 1, 1e-8);
    "normalize": |g| m(g).normalize(2.0, 1, 1e-12), |g| g.f(&[0]).normalize(2.0, 0, 1e-12);
    "masked::sum": |g| masked::sum(&v(g), &g.b(&[4]), 0), |g| masked::sum(&g.f(&[1]), &g.b(&[1]), 0), |g| masked::sum(&v(g), &g.b(&[4]), NONE);
    "masked::prod": |g| masked::prod(&v(g), &g.b(&[4]), 0), |g| masked::prod(&g.f(&[1]), &g.b(&[1]), 0), |g| masked::prod(&v(g), &g.b(&[4]), NONE);
    "masked::max": |g| masked::max(&v(g), &g.b(&[4]), 0), |g| masked::max(&v(g), &g.b(&[4]), NONE);
    "masked::min": |g| masked::min(&v(g), &g.b(&[4]), 0), |g| masked::min(&v(g), &g.b(&[4]), NONE);
    "masked::argmax": |g| masked::argmax(&v(g), &g.b(&[4]), 0);
    "masked::argmin": |g| masked::argmin(&v(g), &g.b(&[4]), 0);
    "masked::mean": |g| masked::mean(&v(g), &g.b(&[4]), 0), |g| masked::mean(&v(g), &g.b(&[4]), NONE);
    "masked::median": |g| masked::median(&v(g), &g.b(&[4]), 0);
    "masked::var": |g| masked::var(&v(g), &g.b(&[4]), 0, 1.0);
    "masked::std": |g| masked::std(&v(g), &g.b(&[4]), 0, 1.0);
    "masked::norm": |g| masked::norm(&v(g), &g.b(&[4]), 2.0, 0);
    "masked::normalize": |g| masked::normalize(&v(g), &g.b(&[4]), 2.0, 0, 1e-12);
    "masked::logsumexp": |g| masked::logsumexp(&v(g), &g.b(&[4]), 0), |g| masked::logsumexp(&v(g), &g.b(&[4]), NONE);
    "masked::logaddexp": |g| masked::logaddexp(&v(g), &g.b(&[4]), &v(g), &g.b(&[4]));
    "masked::softmax": |g| masked::softmax(&v(g), &g.b(&[4]), 0);
    "masked::log_softmax": |g| masked::log_softmax(&v(g), &g.b(&[4]), 0);
    "masked::softmin": |g| masked::softmin(&v(g), &g.b(&[4]), 0);
    "masked::cumsum": |g| masked::cumsum(&v(g), &g.b(&[4]), 0), |g| masked::cumsum(&g.f(&[1]), &g.b(&[1]), 0);
    "masked::cumprod": |g| masked::cumprod(&v(g), &g.b(&[4]), 0), |g| masked::cumprod(&g.f(&[1]), &g.b(&[1]), 0);
    "layer_norm": |g| m(g).layer_norm(&g.f(&[3]), &g.f(&[3]), 1e-5);
    "rms_norm": |g| m(g).rms_norm(&g.f(&[3]), 1e-5);
    "channel_norm": |g| m(g).channel_norm(&g.f(&[3]), &g.f(&[3]), None, None, 1e-5);
    "batch_norm": |g| m(g).batch_norm(None, None, 1e-5), |g| m(g).batch_norm(Some(&g.f(&[3])), Some(&g.f(&[3])), 1e-5);
    "batch_norm_running": |g| m(g).batch_norm_running((&g.f(&[3]), &g.f(&[3])), None, None, 0.0, 1e-5), |g| m(g).batch_norm_running((&g.f(&[3]), &g.f(&[3])), None, None, 1.0, 1e-5);
    "instance_norm": |g| g.f(&[1, 2, 3]).instance_norm(None, None, 1e-5);
    "instance_norm_running": |g| g.f(&[1, 2, 3]).instance_norm_running((&g.f(&[2]), &g.f(&[2])), None, None, 0.0, 1e-5);
    "local_response_norm": |g| g.f(&[1, 2, 3]).local_response_norm(2, 0.0, 0.0, 1.0), |g| g.f(&[1, 2, 3]).local_response_norm(1, 0.1, 1.0, 1.0);
    "group_norm": |g| g.f(&[1, 2, 3]).group_norm(1, None, None, 1e-5);
}
