//! Connectionist temporal classification: samples, and the definition: every way through the times
//! that says the labels.

use super::naive::Array;
use super::samples::{Dice, WIDE};
use pullback::Tensor;
use pullback_ir::Fused;

type Samples = Vec<(Fused, Vec<Tensor>)>;

/// Times, samples, classes and labels; those of each sample are up to as many.
const DIMS: [[usize; 4]; 8] = [
    [3, 2, 2, 1],
    [2, 1, 3, 2],
    [4, 1, 2, 2],
    [3, 2, 2, 0],
    [0, 2, 2, 1],
    [3, 0, 2, 1],
    [6, 4, 5, 4],
    [7, 2, 40, 3],
];

fn operands([t, n, c, most]: [usize; 4], blank: usize, dice: &mut Dice) -> Vec<Tensor> {
    let whole = |list: Vec<usize>, shape: &[usize]| {
        Tensor::from_vec(list.into_iter().map(|k| k as i64).collect::<Vec<_>>(), shape)
    };
    // One label in two comes twice, and some samples have fewer times and labels.
    let other = |k: usize| if k == blank { (k + 1) % c } else { k };
    let labels = (0..n * most).map(|i| other(i / 2 * 3 % c)).collect();
    let times = (0..n).map(|i| if i % 3 == 2 { t / 2 } else { t }).collect();
    let counts = (0..n).map(|i| if i % 2 == 1 { most / 2 } else { most }).collect();
    let x = dice.tensor(&[t, n, c], WIDE);
    vec![x, whole(labels, &[n, most]), whole(times, &[n]), whole(counts, &[n])]
}

/// Whether every sample has an alignment, so that losses are finite.
fn fits(x: &[Tensor]) -> bool {
    let (labels, most) = (x[1].to_vec::<i64>(), x[1].shape()[1]);
    let lengths = x[2].to_vec::<i64>().into_iter().zip(x[3].to_vec::<i64>());
    lengths.enumerate().all(|(i, (times, count))| {
        let own = &labels[i * most..][..count as usize];
        let twice = own.windows(2).filter(|pair| pair[0] == pair[1]).count();
        count as usize + twice <= times as usize
    })
}

fn every(dice: &mut Dice) -> Vec<(usize, Vec<Tensor>)> {
    let all = DIMS.iter().flat_map(|&dims| [(dims, 0), (dims, 1)]);
    all.map(|(dims, blank)| (blank, operands(dims, blank, dice))).collect()
}

pub fn samples(dice: &mut Dice) -> Samples {
    let all = every(dice).into_iter().filter(|(_, x)| fits(x));
    all.map(|(blank, x)| (Fused::Ctc { blank }, x)).collect()
}

pub fn vjp_samples(dice: &mut Dice) -> Samples {
    let with_dy = |(blank, mut x): (usize, Vec<Tensor>)| {
        let n = x[2].len();
        x.push(dice_cotangent(n));
        (Fused::CtcVjp { blank }, x)
    };
    every(dice).into_iter().filter(|(_, x)| fits(x)).map(with_dy).collect()
}

fn dice_cotangent(n: usize) -> Tensor {
    Dice(7).tensor(&[n], WIDE)
}

pub fn large(dice: &mut Dice) -> Samples {
    vec![(Fused::Ctc { blank: 3 }, operands([50, 9, 30, 20], 3, dice))]
}

pub fn large_vjp(dice: &mut Dice) -> Samples {
    let mut x = operands([50, 9, 30, 20], 3, dice);
    x.push(dice_cotangent(9));
    vec![(Fused::CtcVjp { blank: 3 }, x)]
}

/// Calls `f` with the log-probability of each way through the times of a sample that says its
/// labels, and the way.
fn ways(blank: usize, x: &[Array], sample: usize, f: &mut dyn FnMut(f64, &[usize])) {
    let (c, most) = (x[0].shape[2], x[1].shape[1]);
    let times = x[2].values[sample] as usize;
    let count = x[3].values[sample] as usize;
    let labels: Vec<usize> =
        x[1].values[sample * most..][..count].iter().map(|&k| k as usize).collect();
    // What can still become the labels: a way, how many labels it says, its log-probability.
    let mut open = vec![(Vec::<usize>::new(), 0, 0.0)];
    for t in 0..times {
        let mut next = Vec::new();
        for (way, said, log) in open {
            let last = way.last().copied();
            for k in 0..c {
                let said = match k {
                    k if k == blank || last == Some(k) => said,
                    k if labels.get(said) == Some(&k) => said + 1,
                    _ => continue,
                };
                if count - said > times - 1 - t {
                    continue;
                }
                let log = log + x[0].at(&[t, sample, k]);
                next.push(([&way[..], &[k]].concat(), said, log));
            }
        }
        open = next;
    }
    for (way, said, log) in open {
        if said == count {
            f(log, &way);
        }
    }
}

pub fn forward(blank: usize, x: &[Array]) -> Array {
    Array::make(&x[2].shape, x[0].dtype.compute(), |i| {
        let mut total = 0.0;
        ways(blank, x, i[0], &mut |log, _| total += f64::exp(log));
        -f64::ln(total)
    })
}

pub fn backward(blank: usize, x: &[Array]) -> Array {
    let mut dx = x[0].clone();
    dx.values.fill(0.0);
    let (n, c) = (x[0].shape[1], x[0].shape[2]);
    for sample in 0..n {
        let mut total = 0.0;
        ways(blank, x, sample, &mut |log, _| total += f64::exp(log));
        ways(blank, x, sample, &mut |log, way| {
            for (t, &k) in way.iter().enumerate() {
                let part = f64::exp(log) / total * x[4].values[sample];
                dx.values[(t * n + sample) * c + k] -= part;
            }
        });
    }
    dx
}
