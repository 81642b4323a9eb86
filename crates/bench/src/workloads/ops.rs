//! Single operators. Their PyTorch twins are in `peers/torch_ops.py`, as the peers' scripts lack them.

use super::{abs_sum, grad};
use crate::data::{labels, tensor};
use crate::measure::{Protocol, Row};
use pullback::{Attention, DType, Tensor, no_grad};

const MEGA: usize = 1 << 20;

/// The shorter protocol, as there are many of these.
fn briefly(step: impl FnMut()) -> Row {
    Protocol { warm: 0.2, budget: 0.7, ..Protocol::default() }.measure(step)
}

/// Forward and backward, from the cotangent `g`.
fn with_gradients(inputs: &[&Tensor], g: &Tensor, f: impl Fn() -> Tensor) -> Row {
    let row = briefly(|| {
        inputs.iter().for_each(|x| x.zero_grad());
        f().backward_with(g).expect("the cotangent has the shape of the result");
    });
    row.with("check", abs_sum(&inputs.iter().map(|x| grad(x)).collect::<Vec<_>>()))
}

pub fn attention() -> Vec<Row> {
    let mut rows = Vec::new();
    for shape in [[4, 8, 256, 32], [1, 8, 2048, 64]] {
        let [q, k, v] = [1, 2, 3].map(|seed| tensor(&shape, seed).requires_grad());
        let g = tensor(&shape, 4);
        for causal in [false, true] {
            let how = if causal { Attention::new().causal() } else { Attention::new() };
            let f = || q.attention(&k, &v, how);
            let name = format!("_{}x{}{}", shape[2], shape[3], if causal { "_causal" } else { "" });
            rows.push(briefly(|| drop(no_grad(f))).named(format!("{name}_fwd")));
            rows.push(with_gradients(&[&q, &k, &v], &g, f).named(name));
        }
    }
    rows
}

pub fn order() -> Vec<Row> {
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

pub fn scatter() -> Vec<Row> {
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

pub fn cumulate() -> Vec<Row> {
    let (x, y) = (tensor(&[4 * MEGA], 1), tensor(&[4096, 1024], 1));
    let last = x.cast(DType::F64).cumsum(0).select_at(0, -1).item::<f64>();
    vec![
        briefly(|| drop(x.cumsum(0))).with("check", last).named("_sum"),
        briefly(|| drop(y.cumsum(1))).named("_sum_rows"),
        briefly(|| drop(y.cumsum(0))).named("_sum_columns"),
    ]
}

pub fn products() -> Vec<Row> {
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
    rows
}
