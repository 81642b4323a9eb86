//! Attention: samples of every option, and the definition, query by query.

use super::naive::Array;
use super::samples::{Dice, WIDE};
use pullback::{DType, Key, Tensor};
use pullback_ir::{Attention, Fused, Real};

type Samples = Vec<(Fused, Vec<Tensor>)>;

/// Batches, heads of queries and of keys, queries, keys, features, features of values.
const DIMS: [([usize; 7], bool); 9] = [
    ([1, 2, 1, 2, 3, 2, 1], true),
    ([2, 1, 1, 3, 2, 1, 2], true),
    ([1, 2, 2, 1, 1, 2, 1], false),
    ([0, 1, 1, 2, 2, 2, 2], true),
    // No keys: too large to be differentiated, as the log-sum-exp of nothing is −∞.
    ([1, 1, 1, 9, 0, 2, 2], true),
    ([1, 2, 1, 0, 2, 2, 2], true),
    ([1, 1, 1, 2, 2, 0, 2], false),
    ([1, 1, 1, 2, 2, 2, 0], false),
    ([1, 2, 1, 51, 133, 17, 33], false),
];

/// Options to try: all pairs of them, and the last is causal without a mask or dropout.
fn seeds(every: bool) -> &'static [usize] {
    if every { &[0, 1, 2, 3, 4, 5, 9] } else { &[0, 1] }
}

/// The operands of each option.
fn operands(dims: [usize; 7], seed: usize, dice: &mut Dice) -> (Attention, Vec<Tensor>) {
    let [b, h, g, l, s, d, e] = dims;
    // Every third has a mask of truth values, every third one that is added.
    let masked = !seed.is_multiple_of(3);
    let how = Attention {
        causal: seed % 2 == 1,
        masked,
        scale: Real(0.7),
        dropout: Real([0.0, 0.4, 0.0, 0.0][seed / 3]),
    };
    // Many features make large scores.
    let range = if d > 2 { (-0.6, 0.6) } else { WIDE };
    let mut x = vec![
        dice.tensor(&[b, h, l, d], range),
        dice.tensor(&[b, g, s, d], range),
        dice.tensor(&[b, g, s, e], WIDE),
    ];
    if masked {
        x.push(match seed % 3 {
            // The first key is always seen: the log-sum-exp of nothing is −∞, and has no
            // differences.
            1 => {
                let first = Tensor::arange(0, s as i64).eq(0);
                dice.bools(&[b, h, l, s]).logical_or(&first)
            }
            _ => dice.tensor(&[b, h, l, s], WIDE),
        });
    }
    if how.drops() {
        // One key, or one for each batch.
        x.push(match b {
            2 => Tensor::from([[5i64, 8], [1, 3]]),
            _ => Tensor::from([5i64, 8]),
        });
    }
    (how, x)
}

/// The operands of the vjp: those of forward, then any values for its results and the cotangent.
fn vjp_operands(dims: [usize; 7], seed: usize, dice: &mut Dice) -> (Attention, Vec<Tensor>) {
    let [b, h, _, l, s, _, e] = dims;
    let (how, mut x) = operands(dims, seed, dice);
    // Near what it would be, so that weights stay near 1.
    let lse = dice.tensor(&[b, h, l], (1.0, 3.0)) + (s.max(1) as f64).ln();
    x.extend([dice.tensor(&[b, h, l, e], WIDE), lse, dice.tensor(&[b, h, l, e], WIDE)]);
    (how, x)
}

pub fn samples(dice: &mut Dice) -> Samples {
    let all =
        DIMS.into_iter().flat_map(|(dims, every)| seeds(every).iter().map(move |&i| (dims, i)));
    all.map(|(dims, i)| {
        let (how, x) = operands(dims, i, dice);
        (Fused::Attention(how), x)
    })
    .collect()
}

pub fn vjp_samples(dice: &mut Dice) -> Samples {
    let all =
        DIMS.into_iter().flat_map(|(dims, every)| seeds(every).iter().map(move |&i| (dims, i)));
    all.map(|(dims, i)| {
        let (how, x) = vjp_operands(dims, i, dice);
        (Fused::AttentionVjp(how), x)
    })
    .collect()
}

pub fn large(dice: &mut Dice) -> Samples {
    let (how, x) = operands([2, 4, 2, 131, 301, 33, 17], 5, dice);
    vec![(Fused::Attention(how), x)]
}

pub fn large_vjp(dice: &mut Dice) -> Samples {
    // Several heads, and one whose keys are dealt out.
    [[2, 4, 2, 131, 301, 33, 17], [1, 1, 1, 200, 600, 16, 8]]
        .map(|dims| {
            let (how, x) = vjp_operands(dims, 5, dice);
            (Fused::AttentionVjp(how), x)
        })
        .to_vec()
}

/// What each weight is multiplied by, by batch, head, query and key; none without dropout.
fn kept(how: Attention, x: &[Array]) -> Option<Array> {
    let keys = how.drops().then(|| &x[how.operands() - 1])?;
    let shape = [x[0].shape[0], x[0].shape[1], x[0].shape[2], x[1].shape[2]];
    let draw = |key: &[f64], batches: usize| {
        let key = Tensor::from(key.iter().map(|&v| v as i64).collect::<Vec<i64>>());
        let shape = [batches, shape[1], shape[2], shape[3]];
        Array::of(&Key::from_tensor(&key).uniform(shape, DType::F32, 0.0, 1.0)).values
    };
    // A key of its own draws for a batch alone.
    let drawn: Vec<f64> = match keys.shape.len() {
        2 => keys.values.chunks(2).flat_map(|key| draw(key, 1)).collect(),
        _ => draw(&keys.values, shape[0]),
    };
    let keep = |v: f64| if v >= f64::from(how.dropout.0 as f32) { how.keep_scale() } else { 0.0 };
    let values = drawn.into_iter().map(keep).collect();
    Some(Array { shape: shape.to_vec(), values, dtype: DType::F64 })
}

/// The inner product of two lines.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut sum = 0.0;
    for c in 0..a.len() {
        sum += a[c] * b[c];
    }
    sum
}

/// The scores of one query.
fn scores(how: Attention, x: &[Array], [b, h, i]: [usize; 3]) -> Vec<f64> {
    let (q, k) = (&x[0], &x[1]);
    let (query, group) = (q.last_line(&[b, h, i]), h / (q.shape[1] / k.shape[1].max(1)).max(1));
    let mask = how.masked.then(|| x[3].last_line(&[b, h, i]));
    let score = |j: usize| {
        let mut score = dot(query, k.last_line(&[b, group, j])) * how.scale.0;
        if let Some(mask) = mask {
            score = match x[3].dtype {
                DType::Bool if mask[j] == 0.0 => f64::NEG_INFINITY,
                DType::Bool => score,
                _ => score + mask[j],
            };
        }
        if how.causal && j > i { f64::NEG_INFINITY } else { score }
    };
    (0..k.shape[2]).map(score).collect()
}

pub fn forward(how: Attention, x: &[Array]) -> Vec<Array> {
    let (q, v, kept) = (&x[0], &x[2], kept(how, x));
    let (mut out, mut lse) = (Vec::new(), Vec::new());
    for b in 0..q.shape[0] {
        for h in 0..q.shape[1] {
            let group = h / (q.shape[1] / v.shape[1]);
            for i in 0..q.shape[2] {
                let scores = scores(how, x, [b, h, i]);
                let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let none = most == f64::NEG_INFINITY;
                let total: f64 = scores.iter().map(|s| (s - most).exp()).sum();
                lse.push(if none { most } else { most + total.ln() });
                let mut sums = vec![0.0; v.shape[3]];
                for (j, score) in scores.iter().enumerate().filter(|_| !none) {
                    let kept = kept.as_ref().map_or(1.0, |kept| kept.last_line(&[b, h, i])[j]);
                    let weight = (score - most).exp() / total * kept;
                    let value = v.last_line(&[b, group, j]);
                    for (sum, value) in sums.iter_mut().zip(value) {
                        *sum += weight * value;
                    }
                }
                out.extend(sums);
            }
        }
    }
    let shape = vec![q.shape[0], q.shape[1], q.shape[2], v.shape[3]];
    vec![
        Array { shape: shape.clone(), values: out, dtype: q.dtype },
        Array { shape: shape[..3].to_vec(), values: lse, dtype: q.dtype.compute() },
    ]
}

pub fn backward(how: Attention, x: &[Array]) -> Vec<Array> {
    let (q, k, v) = (&x[0], &x[1], &x[2]);
    let [out, lse, dout] = [3, 2, 1].map(|i| &x[x.len() - i]);
    let (mut dq, mut dk, mut dv) = (q.clone(), k.clone(), v.clone());
    for d in [&mut dq, &mut dk, &mut dv] {
        d.values.fill(0.0);
    }
    let kept = kept(how, x);
    let add = |to: &mut Array, index: &[usize], scale: f64, x: &[f64]| {
        let at = super::naive::ravel(index, &to.shape) * to.shape[3];
        for (to, x) in to.values[at..][..x.len()].iter_mut().zip(x) {
            *to += scale * x;
        }
    };
    for b in 0..q.shape[0] {
        for h in 0..q.shape[1] {
            let group = h / (q.shape[1] / k.shape[1]);
            for i in 0..q.shape[2] {
                let at = [b, h, i];
                let (query, dout, lse) = (q.last_line(&at), dout.last_line(&at), lse.at(&at));
                let delta = dot(out.last_line(&at), dout);
                for (j, score) in scores(how, x, at).into_iter().enumerate() {
                    let kept = kept.as_ref().map_or(1.0, |kept| kept.last_line(&at)[j]);
                    let p = match lse {
                        f64::NEG_INFINITY => score.exp(),
                        lse => (score - lse).exp(),
                    };
                    let of = [b, group, j];
                    let ds = p * (kept * dot(dout, v.last_line(&of)) - delta) * how.scale.0;
                    add(&mut dv, &of, p * kept, dout);
                    add(&mut dq, &at, ds, k.last_line(&of));
                    add(&mut dk, &of, ds, query);
                }
            }
        }
    }
    vec![dq, dk, dv]
}
