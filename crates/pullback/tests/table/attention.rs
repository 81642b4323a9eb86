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
            // The first key is always seen: the log-sum-exp of nothing is −∞, and has no differences.
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

/// The scores of one query, and what its weights are multiplied by.
struct Row {
    scores: Vec<f64>,
    kept: Vec<f64>,
}

fn row(how: Attention, x: &[Array], at: [usize; 3]) -> Row {
    let [b, h, i] = at;
    let (q, k) = (&x[0], &x[1]);
    let (s, group) = (k.shape[2], h / (q.shape[1] / k.shape[1].max(1)).max(1));
    let score = |j: usize| {
        let dot: f64 = (0..q.shape[3]).map(|c| q.at(&[b, h, i, c]) * k.at(&[b, group, j, c])).sum();
        let mut score = dot * how.scale.0;
        if how.masked {
            let mask = x[3].at(&[b, h, i, j]);
            score = match x[3].dtype {
                DType::Bool if mask == 0.0 => f64::NEG_INFINITY,
                DType::Bool => score,
                _ => score + mask,
            };
        }
        if how.causal && j > i { f64::NEG_INFINITY } else { score }
    };
    let kept = match how.drops() {
        false => vec![1.0; s],
        true => {
            let keys = &x[how.operands() - 1];
            // A key of its own draws for this batch alone.
            let own = keys.shape.len() == 2;
            let key: Vec<i64> = keys.values.iter().map(|&v| v as i64).collect();
            let key = if own { key[2 * b..2 * b + 2].to_vec() } else { key };
            let (batches, at) = if own { (1, 0) } else { (q.shape[0], b) };
            let shape = [batches, q.shape[1], q.shape[2], s];
            let drawn = Key::from_tensor(&Tensor::from(key)).uniform(shape, DType::F32, 0.0, 1.0);
            let drawn = Array::of(&drawn);
            let kept = |j: usize| drawn.at(&[at, h, i, j]) >= f64::from(how.dropout.0 as f32);
            (0..s).map(|j| if kept(j) { how.keep_scale() } else { 0.0 }).collect()
        }
    };
    Row { scores: (0..s).map(score).collect(), kept }
}

pub fn forward(how: Attention, x: &[Array]) -> Vec<Array> {
    let (q, v) = (&x[0], &x[2]);
    let (mut out, mut lse) = (Vec::new(), Vec::new());
    for b in 0..q.shape[0] {
        for h in 0..q.shape[1] {
            let group = h / (q.shape[1] / v.shape[1]);
            for i in 0..q.shape[2] {
                let Row { scores, kept } = row(how, x, [b, h, i]);
                let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let none = most == f64::NEG_INFINITY;
                let total: f64 = scores.iter().map(|s| (s - most).exp()).sum();
                lse.push(if none { most } else { most + total.ln() });
                for c in 0..v.shape[3] {
                    let weigh = |j: usize| {
                        (scores[j] - most).exp() / total * kept[j] * v.at(&[b, group, j, c])
                    };
                    out.push(if none { 0.0 } else { (0..scores.len()).map(weigh).sum() });
                }
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
    let index = super::naive::ravel;
    for b in 0..q.shape[0] {
        for h in 0..q.shape[1] {
            let group = h / (q.shape[1] / k.shape[1]);
            for i in 0..q.shape[2] {
                let Row { scores, kept } = row(how, x, [b, h, i]);
                let values = 0..v.shape[3];
                let delta: f64 =
                    values.clone().map(|c| out.at(&[b, h, i, c]) * dout.at(&[b, h, i, c])).sum();
                for (j, (&score, &kept)) in scores.iter().zip(&kept).enumerate() {
                    let p = match lse.at(&[b, h, i]) {
                        f64::NEG_INFINITY => score.exp(),
                        lse => (score - lse).exp(),
                    };
                    let seen = |c: usize| dout.at(&[b, h, i, c]) * v.at(&[b, group, j, c]);
                    let ds =
                        p * (kept * values.clone().map(seen).sum::<f64>() - delta) * how.scale.0;
                    for c in values.clone() {
                        dv.values[index(&[b, group, j, c], &v.shape)] +=
                            p * kept * dout.at(&[b, h, i, c]);
                    }
                    for c in 0..q.shape[3] {
                        dq.values[index(&[b, h, i, c], &q.shape)] += ds * k.at(&[b, group, j, c]);
                        dk.values[index(&[b, group, j, c], &k.shape)] += ds * q.at(&[b, h, i, c]);
                    }
                }
            }
        }
    }
    vec![dq, dk, dv]
}
