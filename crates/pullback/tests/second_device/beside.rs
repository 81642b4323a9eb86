//! Where the values of programs for the device are.

use crate::device_second::second;
use pullback::{
    Attention, DType, Key, Pool, QuantileInterpolation, Spec, Tensor, cat, cross_entropy, grad,
    linalg, trace, vmap, while_loop,
};

/// What methods make inside is on the device of their operands: programs say so.
#[test]
fn what_methods_make_is_beside_their_operands() {
    type F = fn(&Tensor, &Tensor) -> Tensor;
    let all: &[(&str, F)] = &[
        ("scalars", |x, _| (2.0 - x).maximum(0.5) / 3 + x.powi(3)),
        ("like", |x, _| x.zeros_like() + x.ones_like() + x.full_like(3.0)),
        ("new", |x, _| x.new_zeros([2]) + x.new_ones([2]) + x.new_full([2], 4)),
        ("new_arange", |x, _| x.new_arange(2, 5)),
        ("relu", |x, _| x.relu().gelu() + x.silu().leaky_relu(0.1)),
        ("clamp", |x, _| x.clamp(-1.0, 1.0)),
        ("softmax", |x, _| x.softmax(1).log_softmax(0)),
        ("mean", |x, _| x.mean() + x.var_over(1).sum() + x.std_over(0).sum()),
        ("norms", |x, _| x.vector_norm(2.0, [0, 1])),
        ("cumulative", |x, _| x.cumsum(0) + x.cummax(1) + x.cumprod(1) + x.logcumsumexp(0)),
        ("sort", |x, _| x.sort(1, true).0 + x.topk(3, 1, true).0.sum()),
        ("median", |x, _| x.median(1).0 + x.quantile(0.3, 1, QuantileInterpolation::Linear).sum()),
        ("mode", |x, _| x.mode(1).0),
        ("triangles", |x, _| x.tril(0) + x.triu(1)),
        ("diag", |x, _| x.diagonal().diag(0)),
        ("pad", |x, _| x.pad_with([(1, 1), (0, 2)], 7.0)),
        ("roll", |x, _| x.roll(1, 0).flip([1])),
        ("one_hot", |_, i| i.one_hot(5, DType::F32)),
        ("index", |x, i| x.index_select(0, i) + x.gather(0, &i.unsqueeze(1).expand([3, 6]))),
        ("take", |x, i| x.take(i)),
        ("scatter", |x, i| x.index_add(0, i, &x.narrow(0, 0, 3))),
        ("select", |x, _| x.gt(0.0).select(x, 0.0).masked_fill(&x.lt(-1.0), 2.0)),
        ("searchsorted", |x, _| x.select_at(0, 0).searchsorted(&x.select_at(0, 1), true)),
        ("unfold", |x, _| x.unfold(1, 3, 2).sum_over(-1)),
        ("matmul", |x, _| x.matmul(&x.t()).matmul(x)),
        ("cross_entropy", |x, _| cross_entropy(x, &x.argmax(1).remainder(6))),
        ("layer_norm", |x, _| x.group_norm(2, None, None, 1e-5)),
        ("pool", |x, _| x.reshape([1, 4, 6]).max_pool1d(&Pool::new(2)).sum_over(1)),
        ("eye", |x, _| linalg::inv(&(x.matmul(&x.t()) + 1.0))),
        ("det", |x, _| linalg::det(&x.matmul(&x.t()))),
        ("solve", |x, _| linalg::cholesky(&x.matmul(&x.t()), false)),
        ("special", |x, _| x.abs().polygamma(2) + x.erfinv() + x.abs().lgamma()),
        ("distance", |x, _| x.cdist(x, 2.0)),
        ("fftfreq", |x, _| pullback::fft::rfft(x, None, -1, pullback::fft::Norm::Backward)),
        ("cat", |x, _| cat(&[x, &x.square()], 0)),
        ("loop", |x, _| while_loop(|x: &Tensor| x.sum().lt(9.0), |x| x * 2.0, x)),
        ("attention", |x, _| {
            let x = x.reshape([1, 1, 4, 6]);
            x.attention(&x, &x, Attention::new().causal())
        }),
        ("per example", |x, _| vmap(|x: &Tensor| x.softmax(0).sum(), 0, 0)(x)),
    ];
    let specs = [Spec::on(second(), DType::F32, [4, 6]), Spec::on(second(), DType::I64, [3])];
    let mut wrong = Vec::new();
    let mut note = |name: &str, kind: &str, found: pullback::Result<pullback::Program>| match found
    {
        Ok(program) if program.device() == Some(second()) => {}
        Ok(program) => wrong.push(format!("{name} ({kind}): a value is elsewhere\n{program}")),
        Err(error) => wrong.push(format!("{name} ({kind}): {error}")),
    };
    for (name, f) in all {
        note(name, "value", trace(|x: &[Tensor]| f(&x[0], &x[1]), &specs));
        let loss = |x: &[Tensor]| {
            let index = x[1].clone();
            let f = |x: &Tensor| {
                let y = f(x, &index);
                if y.dtype().is_float() { y.square().sum() } else { x.sum() }
            };
            grad(f)(&x[0])
        };
        note(name, "gradient", trace(loss, &specs));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn draws_are_where_their_key_is() {
    let specs = [Spec::on(second(), DType::I64, [2])];
    let f = |x: &[Tensor]| {
        let (a, b) = Key::from_tensor(&x[0]).split();
        let drawn =
            a.normal([3, 4], DType::F32, 1.0, 2.0) + b.uniform([3, 4], DType::F32, -1.0, 1.0);
        drawn.dropout(0.5, Some(&b.fold_in(3))) + b.randint([3, 4], 0, 9).cast(DType::F32)
    };
    assert_eq!(trace(f, &specs).unwrap().device(), Some(second()));
}
