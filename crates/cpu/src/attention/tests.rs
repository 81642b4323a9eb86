//! Lengths around block and lane sizes, against the definition in `f64`; and rates.

use super::{attention, attention_vjp};
use crate::operand::{Sink, Source};
use crate::{par, random};
use pullback_ir::{Attention, DType, Real};

struct Case {
    op: Attention,
    /// Heads of queries and of keys, queries, keys, features, features of values.
    dims: [usize; 6],
}

fn values(n: usize, seed: u64) -> Vec<f64> {
    let hash = |i: u64| (i ^ seed << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (1..=n as u64).map(|i| (hash(hash(i) >> 7) >> 40) as f64 / (1u64 << 23) as f64 - 1.0).collect()
}

fn source<'a, T>(
    data: &'a [T],
    shape: &'a [usize],
    strides: &'a [isize],
    dtype: DType,
) -> Source<'a> {
    Source { ptr: data.as_ptr().cast(), shape, strides, dtype }
}

fn strides(shape: &[usize]) -> Vec<isize> {
    (0..shape.len()).map(|i| shape[i + 1..].iter().product::<usize>() as isize).collect()
}

/// Results of one dtype, as `f64`: out, lse, dq, dk, dv.
macro_rules! computed {
    ($name:ident, $t:ty, $dtype:expr) => {
        fn $name(case: &Case, inputs: &[Vec<f64>; 4], mask: &[f64]) -> Vec<Vec<f64>> {
            let [h, g, l, s, d, e] = case.dims;
            let shapes = [vec![h, l, d], vec![g, s, d], vec![g, s, e], vec![h, l, e]];
            let steps: Vec<Vec<isize>> = shapes.iter().map(|x| strides(x)).collect();
            let data: Vec<Vec<$t>> =
                inputs.iter().map(|x| x.iter().map(|&v| v as $t).collect()).collect();
            let mask: Vec<$t> = mask.iter().map(|&v| v as $t).collect();
            let (mask_shape, key) = (vec![h, l, s], [7i64, 9]);
            // One mask for all heads.
            let mask_steps = vec![0, s as isize, 1];
            let mut x: Vec<Source> =
                (0..3).map(|i| source(&data[i], &shapes[i], &steps[i], $dtype)).collect();
            if case.op.masked {
                x.push(source(&mask, &mask_shape, &mask_steps, $dtype));
            }
            if case.op.drops() {
                x.push(source(&key, &[2], &[1], DType::I64));
            }
            let (mut out, mut lse) = (vec![<$t>::NAN; h * l * e], vec![<$t>::NAN; h * l]);
            let sink = |v: &mut Vec<$t>, shape: &'static [usize]| Sink {
                ptr: v.as_mut_ptr().cast(),
                shape,
                dtype: $dtype,
            };
            let leak = |shape: &[usize]| -> &'static [usize] { Box::leak(shape.into()) };
            attention(case.op, &x, sink(&mut out, leak(&[h, l, e])), sink(&mut lse, leak(&[h, l])));
            let (lse_shape, lse_steps) = ([h, l], [l as isize, 1]);
            let mut grads: [Vec<$t>; 3] =
                [0, 1, 2].map(|i| vec![<$t>::NAN; shapes[i].iter().product()]);
            {
                x.push(source(&out, &shapes[3], &steps[3], $dtype));
                x.push(source(&lse, &lse_shape, &lse_steps, $dtype));
                x.push(source(&data[3], &shapes[3], &steps[3], $dtype));
                let [dq, dk, dv] = &mut grads;
                let (dq, dk) = (sink(dq, leak(&shapes[0])), sink(dk, leak(&shapes[1])));
                attention_vjp(case.op, &x, dq, dk, sink(dv, leak(&shapes[2])));
            }
            let wide = |v: &[$t]| v.iter().map(|&x| x as f64).collect::<Vec<f64>>();
            [vec![wide(&out), wide(&lse)], grads.iter().map(|g| wide(g)).collect()].concat()
        }
    };
}
computed!(in_f32, f32, DType::F32);
computed!(in_f64, f64, DType::F64);

/// The definition.
fn naive(case: &Case, inputs: &[Vec<f64>; 4], mask: &[f64]) -> Vec<Vec<f64>> {
    let [h, g, l, s, d, e] = case.dims;
    let [q, k, v, dout] = inputs;
    let (mut out, mut lse) = (vec![0.0; h * l * e], vec![0.0; h * l]);
    let (mut dq, mut dk, mut dv) =
        (vec![0.0; h * l * d], vec![0.0; g * s * d], vec![0.0; g * s * e]);
    let mut draws = vec![0f32; h * l * s];
    random::uniforms([7, 9], 0, &mut draws);
    for n in 0..h {
        let group = n / (h / g);
        for i in 0..l {
            let row = n * l + i;
            let scores: Vec<f64> = (0..s)
                .map(|j| {
                    let key = group * s + j;
                    let dot: f64 = (0..d).map(|c| q[row * d + c] * k[key * d + c]).sum();
                    let hidden = case.op.causal && j > i;
                    let added = if case.op.masked { mask[i * s + j] } else { 0.0 };
                    if hidden { f64::NEG_INFINITY } else { dot * case.op.scale.0 + added }
                })
                .collect();
            let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let total: f64 = scores.iter().map(|x| (x - most).exp()).sum();
            let seen = most > f64::NEG_INFINITY;
            lse[row] = if seen { most + total.ln() } else { f64::NEG_INFINITY };
            let p: Vec<f64> =
                scores.iter().map(|x| if seen { (x - lse[row]).exp() } else { 0.0 }).collect();
            let kept = |j: usize| match draws[row * s + j] >= case.op.dropout.0 as f32 {
                true => case.op.keep_scale(),
                false => 0.0,
            };
            let at = |j: usize, c: usize| (group * s + j) * e + c;
            let dp: Vec<f64> = (0..s)
                .map(|j| kept(j) * (0..e).map(|c| dout[row * e + c] * v[at(j, c)]).sum::<f64>())
                .collect();
            let delta: f64 = p.iter().zip(&dp).map(|(p, dp)| p * dp).sum();
            for j in 0..s {
                let ds = p[j] * (dp[j] - delta) * case.op.scale.0;
                for c in 0..e {
                    out[row * e + c] += p[j] * kept(j) * v[at(j, c)];
                    dv[at(j, c)] += p[j] * kept(j) * dout[row * e + c];
                }
                for c in 0..d {
                    dq[row * d + c] += ds * k[(group * s + j) * d + c];
                    dk[(group * s + j) * d + c] += ds * q[row * d + c];
                }
            }
        }
    }
    vec![out, lse, dq, dk, dv]
}

fn compare(case: &Case) {
    let [h, g, l, s, d, e] = case.dims;
    let inputs = [(h * l * d, 1), (g * s * d, 2), (g * s * e, 3), (h * l * e, 4)]
        .map(|(n, seed)| values(n, seed));
    let mut mask = values(l * s, 5);
    // Some queries attend to no key at all.
    mask.iter_mut().enumerate().for_each(|(i, x)| {
        if i / s.max(1) % 5 == 3 || *x > 0.5 {
            *x = f64::NEG_INFINITY
        }
    });
    let want = naive(case, &inputs, &mask);
    for (given, eps) in
        [(in_f32(case, &inputs, &mask), 4e-6), (in_f64(case, &inputs, &mask), 1e-14)]
    {
        for (name, (given, want)) in
            ["out", "lse", "dq", "dk", "dv"].iter().zip(given.iter().zip(&want))
        {
            // Sums over queries grow with their number.
            let size = want.iter().filter(|x| x.is_finite()).fold(1f64, |m, x| m.max(x.abs()));
            for (i, (a, b)) in given.iter().zip(want).enumerate() {
                let near = a == b || (a - b).abs() <= eps * size;
                assert!(near, "{name}[{i}] of {:?} {:?}: {a} instead of {b}", case.op, case.dims);
            }
        }
    }
    let one = par::with_threads(1, || in_f32(case, &inputs, &mask));
    assert!(par::with_threads(3, || in_f32(case, &inputs, &mask)) == one);
}

#[test]
fn blocks_of_every_size_equal_the_definition() {
    let plain = Attention { causal: false, masked: false, scale: Real(0.7), dropout: Real(0.0) };
    let dims = [
        [1, 1, 1, 1, 1, 1],
        [2, 1, 5, 7, 3, 2],
        [1, 1, 47, 31, 16, 17],
        [2, 2, 48, 255, 8, 33],
        [1, 1, 49, 257, 33, 8],
        [3, 1, 130, 129, 32, 64],
        [4, 2, 65, 300, 15, 31],
        [1, 1, 300, 65, 64, 1],
        [2, 1, 6, 0, 3, 2],
        [2, 1, 0, 6, 3, 2],
        [1, 1, 3, 4, 0, 2],
        [1, 1, 3, 4, 2, 0],
    ];
    for dims in dims {
        for causal in [false, true] {
            for masked in [false, true] {
                for dropout in [0.0, 0.3] {
                    let op = Attention { causal, masked, dropout: Real(dropout), ..plain };
                    compare(&Case { op, dims });
                }
            }
        }
    }
}

/// `cargo test --profile bench --workspace --test kernels attention::tests::rates -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
fn rates() {
    for (b, l, d) in [(32usize, 256usize, 32usize), (8, 2048, 64)] {
        let shape = [b, l, d];
        let steps = strides(&shape);
        let data: Vec<Vec<f32>> =
            (0..4).map(|i| values(b * l * d, i).iter().map(|&v| v as f32).collect()).collect();
        let mut outs = vec![vec![0f32; b * l * d]; 4];
        let mut lse = vec![0f32; b * l];
        for causal in [false, true] {
            let op = Attention { causal, masked: false, scale: Real(0.125), dropout: Real(0.0) };
            let lse_ptr = lse.as_mut_ptr();
            let sinks: Vec<Sink> = outs
                .iter_mut()
                .map(|v| Sink { ptr: v.as_mut_ptr().cast(), shape: &shape, dtype: DType::F32 })
                .collect();
            let lse_shape = [b, l];
            let sink = Sink { ptr: lse_ptr.cast(), shape: &lse_shape, dtype: DType::F32 };
            let mut x: Vec<Source> =
                (0..3).map(|i| source(&data[i], &shape, &steps, DType::F32)).collect();
            let best = |f: &dyn Fn()| {
                let time = |_| {
                    let start = std::time::Instant::now();
                    f();
                    start.elapsed().as_secs_f64() * 1e3
                };
                (0..8).map(time).fold(f64::MAX, f64::min)
            };
            for threads in [1, 2] {
                par::with_threads(threads, || {
                    let forward = best(&|| attention(op, &x, sinks[0], sink));
                    x.push(Source {
                        ptr: sinks[0].ptr,
                        shape: &shape,
                        strides: &steps,
                        dtype: DType::F32,
                    });
                    let lse_steps = [l as isize, 1];
                    let mut all = x.clone();
                    all.push(Source {
                        ptr: sink.ptr,
                        shape: &lse_shape,
                        strides: &lse_steps,
                        dtype: DType::F32,
                    });
                    all.push(source(&data[3], &shape, &steps, DType::F32));
                    let backward = best(&|| attention_vjp(op, &all, sinks[1], sinks[2], sinks[3]));
                    x.pop();
                    let share = if causal { 0.5 } else { 1.0 };
                    let rate = |products: f64, ms: f64| {
                        share * products * 2.0 * (b * l * l * d) as f64 / ms / 1e6
                    };
                    println!(
                        "{shape:?} causal {causal}, {threads} threads: forward {forward:.2} ms {:.0} GFLOP/s, backward {backward:.2} ms {:.0} GFLOP/s",
                        rate(2.0, forward),
                        rate(5.0, backward)
                    );
                });
            }
        }
    }
}
