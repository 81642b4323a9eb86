//! Distances between rows: samples, and the definition, pair by pair.

use super::naive::Array;
use super::samples::{Dice, WIDE};
use pullback::Tensor;
use pullback_ir::Fused;

type Samples = Vec<(Fused, Vec<Tensor>)>;

/// Examples, rows of both, features: of some, more than a tile and its lanes take.
const DIMS: [[usize; 4]; 9] = [
    [1, 2, 3, 2],
    [2, 3, 2, 1],
    [1, 1, 1, 3],
    [0, 2, 2, 2],
    [1, 0, 2, 2],
    [1, 2, 0, 2],
    [1, 2, 2, 0],
    [1, 70, 131, 5],
    [2, 35, 67, 301],
];
/// So many that lines and columns are cut into pieces.
const LARGE: [[usize; 4]; 2] = [[1, 300, 700, 17], [3, 70, 40, 9]];

fn shapes([b, n, m, d]: [usize; 4], within: bool) -> (Vec<Vec<usize>>, Vec<usize>) {
    let lead = if b == 1 { vec![] } else { vec![b] };
    let with = |rest: &[usize]| [&lead[..], rest].concat();
    match within {
        true => (vec![with(&[n, d])], with(&[n * n.saturating_sub(1) / 2])),
        false => (vec![with(&[n, d]), with(&[m, d])], with(&[n, m])),
    }
}

fn operands(dims: [usize; 4], within: bool, dice: &mut Dice) -> Vec<Tensor> {
    rows(&shapes(dims, within).0, dice)
}

/// All values are distinct across both operands: where rows are equal, there is a kink.
fn rows(shapes: &[Vec<usize>], dice: &mut Dice) -> Vec<Tensor> {
    let count = |shape: &Vec<usize>| shape.iter().product::<usize>();
    let mut values = dice.values(shapes.iter().map(count).sum(), WIDE).into_iter();
    let next =
        |shape| Tensor::from_vec(values.by_ref().take(count(shape)).collect::<Vec<_>>(), shape);
    shapes.iter().map(next).collect()
}

/// The operands of the vjp: those of forward, then any positive values, and the cotangent.
fn vjp_operands(dims: [usize; 4], within: bool, dice: &mut Dice) -> Vec<Tensor> {
    let (x, y) = shapes(dims, within);
    let mut all = rows(&x, dice);
    all.extend([dice.tensor(&y, (0.5, 3.0)), dice.tensor(&y, WIDE)]);
    all
}

fn every(dims: &[[usize; 4]]) -> impl Iterator<Item = ([usize; 4], bool)> {
    dims.iter().flat_map(|&dims| [(dims, false), (dims, true)])
}

pub fn samples(dice: &mut Dice) -> Samples {
    let one = |(dims, within)| (Fused::Distances { within }, operands(dims, within, dice));
    every(&DIMS).map(one).collect()
}

pub fn vjp_samples(dice: &mut Dice) -> Samples {
    let one = |(dims, within)| (Fused::DistancesVjp { within }, vjp_operands(dims, within, dice));
    every(&DIMS).map(one).collect()
}

pub fn large(dice: &mut Dice) -> Samples {
    let one = |(dims, within)| (Fused::Distances { within }, operands(dims, within, dice));
    every(&LARGE).map(one).collect()
}

pub fn large_vjp(dice: &mut Dice) -> Samples {
    let one = |(dims, within)| (Fused::DistancesVjp { within }, vjp_operands(dims, within, dice));
    every(&LARGE).map(one).collect()
}

/// The pairs of rows, in the order of their distances.
fn pairs(within: bool, n: usize, m: usize) -> Vec<(usize, usize)> {
    (0..n).flat_map(|i| (if within { i + 1 } else { 0 }..m).map(move |j| (i, j))).collect()
}

/// Examples, rows of both, and features.
fn dims(within: bool, x: &[Array]) -> [usize; 4] {
    let y = if within { &x[0] } else { &x[1] };
    let rank = x[0].shape.len();
    let count = x[0].shape[..rank - 2].iter().product();
    [count, x[0].shape[rank - 2], y.shape[rank - 2], x[0].shape[rank - 1]]
}

pub fn forward(within: bool, x: &[Array]) -> Vec<Array> {
    let ([b, n, m, d], y) = (dims(within, x), if within { &x[0] } else { &x[1] });
    let mut values = Vec::new();
    for e in 0..b {
        for (i, j) in pairs(within, n, m) {
            let by = |k: usize| x[0].values[(e * n + i) * d + k] - y.values[(e * m + j) * d + k];
            values.push((0..d).map(|k| by(k) * by(k)).sum::<f64>().sqrt());
        }
    }
    let lead = &x[0].shape[..x[0].shape.len() - 2];
    let last = if within { vec![n * n.saturating_sub(1) / 2] } else { vec![n, m] };
    vec![Array { shape: [lead, &last].concat(), values, dtype: x[0].dtype }]
}

pub fn backward(within: bool, x: &[Array]) -> Vec<Array> {
    let ([b, n, m, d], y) = (dims(within, x), if within { &x[0] } else { &x[1] });
    let [given, cotangent] = [2, 1].map(|k| &x[x.len() - k]);
    let (mut dx, mut dy) = (x[0].clone(), y.clone());
    dx.values.fill(0.0);
    dy.values.fill(0.0);
    let all = pairs(within, n, m);
    for e in 0..b {
        for (p, &(i, j)) in all.iter().enumerate() {
            let at = e * all.len() + p;
            let w = match given.values[at] {
                0.0 => 0.0,
                distance => cotangent.values[at] / distance,
            };
            for k in 0..d {
                let (first, second) = ((e * n + i) * d + k, (e * m + j) * d + k);
                let part = w * (x[0].values[first] - y.values[second]);
                dx.values[first] += part;
                dy.values[second] -= part;
            }
        }
    }
    if within {
        dx.values.iter_mut().zip(&dy.values).for_each(|(a, b)| *a += b);
        return vec![dx];
    }
    vec![dx, dy]
}
