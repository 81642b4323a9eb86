//! Steps of optimisers: samples of every option, and the formulas, element by element.

use super::naive::Array;
use super::samples::{Dice, WIDE};
use pullback::Tensor;
use pullback_ir::{Adam, Fused, Real, Sgd};

type Samples = Vec<(Fused, Vec<Tensor>)>;

const SHAPES: [&[usize]; 4] = [&[2, 3], &[], &[0, 2], &[3, 301]];

fn descent(seed: usize) -> Sgd {
    Sgd {
        momentum: Real([0.9, 0.0, 0.5][seed % 3]),
        dampening: Real([0.0, 0.2][seed % 2]),
        decay: Real([0.1, 0.0, 0.0, 0.2][seed % 4]),
        nesterov: seed.is_multiple_of(2),
        maximize: seed % 4 == 3,
    }
}

fn moments(seed: usize) -> Adam {
    Adam {
        beta1: Real(0.7),
        beta2: Real(0.8),
        eps: Real(1e-3),
        decay: Real([0.1, 0.0, 0.2][seed % 3]),
        decoupled: seed % 2 == 1,
        amsgrad: seed % 4 > 1,
        maximize: seed % 5 == 4,
    }
}

fn descent_operands(how: Sgd, shape: &[usize], step: i64, dice: &mut Dice) -> Vec<Tensor> {
    let mut x = vec![dice.tensor(shape, WIDE)];
    if how.remembers() {
        x.push(dice.tensor(shape, WIDE));
    }
    x.push(dice.tensor(shape, WIDE));
    if how.remembers() {
        x.push(Tensor::from(step));
    }
    x.push(Tensor::from(0.3));
    x
}

fn moments_operands(how: Adam, shape: &[usize], step: i64, dice: &mut Dice) -> Vec<Tensor> {
    let mut x = vec![
        dice.tensor(shape, WIDE),
        dice.tensor(shape, WIDE),
        // Mean squares are clear of zero, where the root has no slope.
        dice.tensor(shape, (0.5, 3.0)),
    ];
    if how.amsgrad {
        // Clear of the new mean square, where which is larger would change.
        x.push(dice.tensor(shape, (20.0, 30.0)));
    }
    x.extend([dice.tensor(shape, WIDE), Tensor::from(step), Tensor::from(0.3)]);
    x
}

pub fn sgd_samples(dice: &mut Dice) -> Samples {
    let all = SHAPES.into_iter().flat_map(|shape| (0..6).map(move |i| (shape, i)));
    all.map(|(shape, i)| {
        let how = descent(i);
        (Fused::Sgd(how), descent_operands(how, shape, 1 + i as i64 / 3 * 4, dice))
    })
    .collect()
}

pub fn adam_samples(dice: &mut Dice) -> Samples {
    let all = SHAPES.into_iter().flat_map(|shape| (0..6).map(move |i| (shape, i)));
    all.map(|(shape, i)| {
        let how = moments(i);
        (Fused::Adam(how), moments_operands(how, shape, 1 + i as i64, dice))
    })
    .collect()
}

pub fn large_sgd(dice: &mut Dice) -> Samples {
    let how = descent(0);
    vec![(Fused::Sgd(how), descent_operands(how, &[70_001], 3, dice))]
}

pub fn large_adam(dice: &mut Dice) -> Samples {
    let how = moments(2);
    vec![(Fused::Adam(how), moments_operands(how, &[70_001], 3, dice))]
}

/// New values of all targets, element by element; a function of their old ones, the gradient, the step and the rate.
fn each(
    x: &[Array],
    targets: usize,
    counted: bool,
    f: impl Fn(&[f64], f64, f64, f64) -> Vec<f64>,
) -> Vec<Array> {
    let rate = x[x.len() - 1].values[0];
    let step = if counted { x[x.len() - 2].values[0] } else { 0.0 };
    let mut outs: Vec<Array> = x[..targets].to_vec();
    for i in 0..x[0].values.len() {
        let old: Vec<f64> = x[..targets].iter().map(|x| x.values[i]).collect();
        for (out, new) in outs.iter_mut().zip(f(&old, x[targets].values[i], step, rate)) {
            out.values[i] = new;
        }
    }
    outs
}

pub fn sgd(how: Sgd, x: &[Array]) -> Vec<Array> {
    let targets = 1 + usize::from(how.remembers());
    each(x, targets, how.remembers(), |old, g, step, rate| {
        let g = if how.maximize { -g } else { g } + how.decay.0 * old[0];
        if !how.remembers() {
            return vec![old[0] - rate * g];
        }
        let b = match step <= 1.0 {
            true => g,
            false => how.momentum.0 * old[1] + (1.0 - how.dampening.0) * g,
        };
        let by = if how.nesterov { g + how.momentum.0 * b } else { b };
        vec![old[0] - rate * by, b]
    })
}

pub fn adam(how: Adam, x: &[Array]) -> Vec<Array> {
    each(x, 3 + usize::from(how.amsgrad), true, |old, g, step, rate| {
        let g = if how.maximize { -g } else { g };
        let (x, g) = match how.decoupled {
            true => (old[0] * (1.0 - rate * how.decay.0), g),
            false => (old[0], g + how.decay.0 * old[0]),
        };
        let mean = how.beta1.0 * old[1] + (1.0 - how.beta1.0) * g;
        let square = how.beta2.0 * old[2] + (1.0 - how.beta2.0) * g * g;
        let largest = if how.amsgrad { old[3].max(square) } else { square };
        let root = (largest / (1.0 - how.beta2.0.powf(step))).sqrt() + how.eps.0;
        let new = x - rate * mean / (1.0 - how.beta1.0.powf(step)) / root;
        [vec![new, mean, square], if how.amsgrad { vec![largest] } else { vec![] }].concat()
    })
}
