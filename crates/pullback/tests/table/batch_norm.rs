//! Batch normalisation: samples over ranks and lengths of lines, and the definition, channel by channel.

use super::naive::{Array, indices, ravel};
use super::samples::{Dice, WIDE};
use pullback::Tensor;
use pullback_ir::{Fused, Real};

type Samples = Vec<(Fused, Vec<Tensor>)>;

/// No channels, no samples, no pixels; short lines and long ones, whose lengths are multiples of no vector.
const SHAPES: [&[usize]; 10] = [
    &[3, 2],
    &[2, 2, 3],
    &[1, 3, 2],
    &[2, 1, 1, 2, 2],
    &[2, 0, 3],
    // Too large to be differentiated, as the mean of nothing is NaN.
    &[0, 17],
    &[2, 17, 0],
    &[67, 5],
    &[3, 4, 7, 7],
    &[2, 3, 301],
];

fn operands(shape: &[usize], dice: &mut Dice) -> Vec<Tensor> {
    let c = &shape[1..2];
    vec![dice.tensor(shape, WIDE), dice.tensor(c, WIDE), dice.tensor(c, WIDE)]
}

/// Any statistics, not those of `x`: the op is a function of them.
fn vjp_operands(shape: &[usize], dice: &mut Dice) -> Vec<Tensor> {
    let c = &shape[1..2];
    let statistics = [dice.tensor(c, WIDE), dice.tensor(c, (0.5, 2.0))];
    let [mean, variance] = statistics;
    vec![dice.tensor(shape, WIDE), dice.tensor(c, WIDE), mean, variance, dice.tensor(shape, WIDE)]
}

pub fn samples(dice: &mut Dice) -> Samples {
    SHAPES.map(|shape| (Fused::BatchNorm(Real(1e-3)), operands(shape, dice))).to_vec()
}

pub fn vjp_samples(dice: &mut Dice) -> Samples {
    SHAPES.map(|shape| (Fused::BatchNormVjp(Real(1e-3)), vjp_operands(shape, dice))).to_vec()
}

/// Many channels in one part each, few of several parts, short lines.
const LARGE: [&[usize]; 3] = [&[4, 50, 33, 31], &[40, 2, 60, 60], &[3000, 70]];

pub fn large(dice: &mut Dice) -> Samples {
    LARGE.map(|shape| (Fused::BatchNorm(Real(1e-5)), operands(shape, dice))).to_vec()
}

pub fn large_vjp(dice: &mut Dice) -> Samples {
    LARGE.map(|shape| (Fused::BatchNormVjp(Real(1e-5)), vjp_operands(shape, dice))).to_vec()
}

/// Where the elements of a channel are.
fn channel(x: &Array, c: usize) -> Vec<Vec<usize>> {
    indices(&x.shape).into_iter().filter(|i| i[1] == c).collect()
}

pub fn forward(eps: f64, x: &[Array]) -> Vec<Array> {
    let [x, w, b] = [&x[0], &x[1], &x[2]];
    let (mut y, mut mean, mut variance) = (x.clone(), w.clone(), w.clone());
    for c in 0..w.values.len() {
        let at = channel(x, c);
        let n = at.len() as f64;
        let m = at.iter().map(|i| x.at(i)).sum::<f64>() / n;
        let v = at.iter().map(|i| (x.at(i) - m).powi(2)).sum::<f64>() / n;
        for i in &at {
            y.values[ravel(i, &x.shape)] =
                (x.at(i) - m) / (v + eps).sqrt() * w.values[c] + b.values[c];
        }
        (mean.values[c], variance.values[c]) = (m, v);
    }
    (mean.dtype, variance.dtype) = (x.dtype.compute(), x.dtype.compute());
    vec![y, mean, variance]
}

pub fn backward(eps: f64, x: &[Array]) -> Vec<Array> {
    let [x, w, mean, variance, dy] = [&x[0], &x[1], &x[2], &x[3], &x[4]];
    let (mut dx, mut dw, mut db) = (x.clone(), w.clone(), w.clone());
    for c in 0..w.values.len() {
        let at = channel(x, c);
        let n = at.len() as f64;
        let r = 1.0 / (variance.values[c] + eps).sqrt();
        let hat = |i: &[usize]| (x.at(i) - mean.values[c]) * r;
        let slope: f64 = at.iter().map(|i| dy.at(i) * hat(i)).sum();
        let shift: f64 = at.iter().map(|i| dy.at(i)).sum();
        for i in &at {
            dx.values[ravel(i, &x.shape)] =
                w.values[c] * r * (dy.at(i) - shift / n - hat(i) * slope / n);
        }
        (dw.values[c], db.values[c]) = (slope, shift);
    }
    vec![dx, dw, db]
}
