//! Single operators. Their PyTorch counterparts are in `peers/torch_ops.py`, as the peers' scripts
//! lack them.

use super::{abs_sum, grad};
use crate::compiled;
use crate::data::{labels, tensor};
use crate::measure::{Measurement, Protocol};
use pullback::update::{AdamOptions, Moments, SgdOptions, adam_, sgd_};
use pullback::{Attention, Conv, DType, Pool, Tensor, jit, no_grad};

const MEGA: usize = 1 << 20;

/// The shorter protocol, as there are many of these.
fn briefly(step: impl FnMut()) -> Measurement {
    Protocol { warm: 0.2, budget: 0.7, ..Protocol::default() }.measure(step)
}

/// Forward and backward, from the cotangent `g`.
fn with_gradients(inputs: &[&Tensor], g: &Tensor, f: impl Fn() -> Tensor) -> Measurement {
    let row = briefly(compiled::step(|| {
        inputs.iter().for_each(|x| x.zero_grad());
        f().backward_with(g).expect("the cotangent has the shape of the result");
    }));
    row.with("check", abs_sum(&inputs.iter().map(|x| grad(x)).collect::<Vec<_>>()))
}

pub fn attention() -> Vec<Measurement> {
    let mut rows = Vec::new();
    for shape in [[4, 8, 256, 32], [1, 8, 2048, 64]] {
        let [q, k, v] = [1, 2, 3].map(|seed| tensor(&shape, seed).requires_grad());
        let g = tensor(&shape, 4);
        for causal in [false, true] {
            let how = if causal { Attention::new().causal() } else { Attention::new() };
            let f = || q.attention(&k, &v, how);
            let name = format!("_{}x{}{}", shape[2], shape[3], if causal { "_causal" } else { "" });
            let forward = compiled::step(|| no_grad(f));
            rows.push(briefly(|| drop(forward())).named(format!("{name}_fwd")));
            rows.push(with_gradients(&[&q, &k, &v], &g, f).named(name));
        }
    }
    rows
}

pub fn order() -> Vec<Measurement> {
    let x = tensor(&[MEGA], 1);
    let value = |pair: (Tensor, Tensor)| f64::from(pair.0.sum().item::<f32>());
    let third = MEGA / 3;
    vec![
        briefly(|| drop(x.sort(0, false))).named("_sort"),
        briefly(|| drop(x.argsort(0, false))).named("_argsort"),
        briefly(|| drop(x.topk(10, 0, true)))
            .with("check", value(x.topk(10, 0, true)))
            .named("_topk"),
        briefly(|| drop(x.topk(1000, 0, true))).named("_topk_1000"),
        briefly(|| drop(x.kthvalue(third, 0)))
            .with("check", value(x.kthvalue(third, 0)))
            .named("_kthvalue"),
        briefly(|| drop(x.median(0))).with("check", value(x.median(0))).named("_median"),
    ]
}

pub fn scatter() -> Vec<Measurement> {
    let (base, x) = (Tensor::zeros([10_000]), tensor(&[MEGA], 1));
    let index = Tensor::from(labels(MEGA, 2, 10_000));
    let table = tensor(&[10_000, 64], 3).requires_grad();
    let picked = Tensor::from(labels(8192, 4, 10_000));
    let g = tensor(&[8192, 64], 5);
    let plain = table.detach();
    let add = || base.scatter_add(0, &index, &x);
    let rows = || plain.index_add(0, &picked, &g);
    vec![
        briefly(|| drop(add())).with("check", abs_sum(&[add()])).named("_add"),
        briefly(|| drop(rows())).with("check", abs_sum(&[rows()])).named("_index_add"),
        with_gradients(&[&table], &g, || table.index_select(0, &picked)).named("_embedding"),
    ]
}

pub fn cumulate() -> Vec<Measurement> {
    let (x, y) = (tensor(&[4 * MEGA], 1), tensor(&[4096, 1024], 1));
    let last = x.cast(DType::F64).cumsum(0).select_at(0, -1).item::<f64>();
    vec![
        briefly(|| drop(x.cumsum(0))).with("check", last).named("_sum"),
        briefly(|| drop(y.cumsum(1))).named("_sum_rows"),
        briefly(|| drop(y.cumsum(0))).named("_sum_columns"),
    ]
}

pub fn updates() -> Vec<Measurement> {
    let n = 4 * MEGA;
    let [x, y] = [1, 1].map(|seed| tensor(&[n], seed));
    let g = tensor(&[n], 2);
    let [momentum, mean, square] = [(); 3].map(|()| Tensor::zeros([n]));
    let step = Tensor::from(0i64);
    let lr = Tensor::from(1e-3);
    let sgd = SgdOptions { momentum: 0.9, ..SgdOptions::default() };
    let state = Moments { mean: &mean, square: &square, largest: None };
    let descend = || {
        step.add_(1);
        sgd_(&sgd, &lr, &x, &g, Some((&momentum, &step)));
    };
    let adapt = || {
        step.add_(1);
        adam_(&AdamOptions::default(), &lr, &y, &g, state, &step);
    };
    vec![briefly(descend).named("_sgd"), briefly(adapt).named("_adam")]
}

/// Rows, columns and steps of the products of a GPT of width 256 with a batch of 1024 tokens.
const GPT_PRODUCTS: [[usize; 3]; 4] =
    [[1024, 768, 256], [1024, 1024, 256], [1024, 256, 1024], [256, 1024, 1024]];

pub fn products() -> Vec<Measurement> {
    let mut rows = Vec::new();
    for (b, n) in [(64, 32), (512, 8), (64, 64), (16, 128)] {
        let (x, y) = (tensor(&[b, n, n], 1), tensor(&[b, n, n], 2));
        let plain = || x.matmul(&y);
        let turned = || x.matmul(&y.t());
        let row = |f: &dyn Fn() -> Tensor| briefly(|| drop(f())).with("check", abs_sum(&[f()]));
        rows.push(row(&plain).named(format!("_{b}x{n}")));
        rows.push(row(&turned).named(format!("_{b}x{n}_t")));
    }
    for n in [8, 32, 64] {
        let (x, y) = (tensor(&[n, n], 1), tensor(&[n, n], 2));
        rows.push(briefly(|| drop(x.matmul(&y))).named(format!("_{n}")));
    }
    for (dtype, name) in [(DType::BF16, "bfloat16"), (DType::F16, "float16")] {
        let [x, y] = [1, 2].map(|seed| tensor(&[512, 512], seed).cast(dtype));
        rows.push(briefly(|| drop(x.matmul(&y))).named(format!("_512_{name}")));
    }
    for n in [256, 512, 1024, 2048] {
        let [x, y] = [1, 2].map(|seed| tensor(&[n, n], seed).cast(DType::F64));
        rows.push(briefly(|| drop(x.matmul(&y))).named(format!("_float64_{n}")));
    }
    // Squares, then layers of a GPT: forward, the gradient of the input, that of the weights.
    let [square, gpt] = [[64, 256, 1024, 2048].map(|n| [n, n, n]), GPT_PRODUCTS];
    for [m, n, k] in square.into_iter().chain(gpt) {
        let cast = |shape: [usize; 2], seed| tensor(&shape, seed).cast(DType::BF16);
        let ([x, turned_x], [y, turned_y]) =
            ([cast([m, k], 1), cast([k, m], 1)], [cast([k, n], 2), cast([n, k], 2)]);
        let name = format!("_bfloat16_{m}x{n}x{k}");
        rows.push(briefly(|| drop(x.matmul(&y))).named(&name));
        rows.push(briefly(|| drop(x.matmul(&turned_y.t()))).named(format!("{name}_nt")));
        rows.push(briefly(|| drop(turned_x.t().matmul(&y))).named(format!("{name}_tn")));
        let compiled = jit(|(x, y): &(Tensor, Tensor)| x.matmul(y));
        let operands = (x, y);
        rows.push(briefly(|| drop(compiled.call(&operands))).named(format!("{name}_compiled")));
    }
    rows
}

/// Layers of convolutional networks: input, kernel, stride, padding, groups.
pub fn convolutions() -> Vec<Measurement> {
    type Layer = (&'static str, [usize; 4], [usize; 4], usize, usize, usize);
    let layers: [Layer; 6] = [
        ("_3x3_56", [4, 64, 56, 56], [64, 64, 3, 3], 1, 1, 1),
        ("_3x3_14", [4, 256, 14, 14], [256, 256, 3, 3], 1, 1, 1),
        ("_3x3_stride2", [4, 128, 28, 28], [256, 128, 3, 3], 2, 1, 1),
        ("_1x1_28", [4, 256, 28, 28], [128, 256, 1, 1], 1, 0, 1),
        ("_7x7_stride2", [2, 3, 112, 112], [64, 3, 7, 7], 2, 3, 1),
        ("_depthwise", [4, 96, 56, 56], [96, 1, 3, 3], 1, 1, 96),
    ];
    let mut rows = Vec::new();
    for (name, image, kernel, stride, padding, groups) in layers {
        let x = tensor(&image, 1).requires_grad();
        let w = tensor(&kernel, 2).requires_grad();
        let options = Conv::new().stride(stride).padding(padding).groups(groups);
        let f = || x.conv2d(&w, None, &options);
        let g = tensor(f().shape(), 3);
        rows.push(briefly(|| drop(no_grad(f))).named(format!("{name}_fwd")));
        rows.push(with_gradients(&[&x, &w], &g, f).named(name));
    }
    rows
}

pub fn pooling() -> Vec<Measurement> {
    let x = tensor(&[16, 64, 56, 56], 1).requires_grad();
    let windows = Pool::new(3).stride(2).padding(1);
    let row = |name: &str, f: &dyn Fn() -> Tensor| {
        let g = tensor(f().shape(), 2);
        with_gradients(&[&x], &g, f).named(name)
    };
    vec![
        row("_max", &|| x.max_pool2d(&windows)),
        row("_max_2x2", &|| x.max_pool2d(&Pool::new(2))),
        row("_avg", &|| x.avg_pool2d(&windows)),
        row("_adaptive_avg", &|| x.adaptive_avg_pool2d(7)),
    ]
}
