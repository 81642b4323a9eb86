//! Sample operands for every op: an exhaustive match, so that a new op does not compile without.
//!
//! Operands are `f64` where the op takes floats; the tests cast them to other dtypes. Values are
//! distinct and stay clear of kinks and jumps, so that a central difference is meaningful, unless
//! `check` says not to differentiate.

use super::places::{indexed, lines, puts, views};
use super::{attention, batch_norm, ctc, distances, order, update};
use pullback::{DType, Device, Op, Scalar, Spec, Tensor};
use pullback_ir::{
    Binary, Combine, Cumulation, Fused, Padding, Random, Real, Reduction, Shape, Unary, VjpOperand,
};

pub struct Sample {
    pub op: Op,
    pub inputs: Vec<Tensor>,
    /// Whether finite differences are meaningful here.
    pub check: bool,
}

/// A small generator.
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % n.max(1) as u64) as usize
    }

    /// Evenly spaced values in a shuffled order, none near a multiple of ½ (where roundings jump
    /// and signs change). All distinct.
    pub fn values(&mut self, n: usize, (low, high): (f64, f64)) -> Vec<f64> {
        let step = (high - low) / n as f64;
        let place = |i: usize| {
            let v = low + (i as f64 + 0.4) * step;
            let knot = (v * 2.0).round() / 2.0;
            let off = v - knot;
            if off.abs() < 0.03 { knot + (0.03 + 0.3 * off.abs()).copysign(off) } else { v }
        };
        let mut values: Vec<f64> = (0..n).map(place).collect();
        for i in (1..n).rev() {
            values.swap(i, self.roll(i + 1));
        }
        values
    }

    pub fn tensor(&mut self, shape: &[usize], range: (f64, f64)) -> Tensor {
        Tensor::from_vec(self.values(shape.iter().product(), range), shape)
    }

    /// Two tensors whose values are distinct across both.
    pub fn two(&mut self, shape: &[usize], range: (f64, f64)) -> [Tensor; 2] {
        let n: usize = shape.iter().product();
        let all = self.values(2 * n, range);
        [Tensor::from_vec(&all[..n], shape), Tensor::from_vec(&all[n..], shape)]
    }

    pub fn bools(&mut self, shape: &[usize]) -> Tensor {
        let n: usize = shape.iter().product();
        Tensor::from_vec((0..n).map(|_| self.roll(2) == 1).collect::<Vec<bool>>(), shape)
    }

    pub fn index(&mut self, shape: &[usize], below: usize) -> Tensor {
        let n: usize = shape.iter().product();
        Tensor::from_vec((0..n).map(|_| self.roll(below) as i64).collect::<Vec<i64>>(), shape)
    }
}

pub const WIDE: (f64, f64) = (-3.0, 3.0);

/// Where the value is sampled from which a fused derivative is computed.
#[rustfmt::skip]
fn kept_domain(f: Unary, kept: VjpOperand) -> (f64, f64) {
    match (kept, f) {
        (VjpOperand::X, f) => f.domain(),
        (VjpOperand::Y, Unary::Tanh) => (-0.9, 0.9),
        (VjpOperand::Y, Unary::Sigmoid) => (0.05, 0.95),
        (VjpOperand::Y, Unary::Relu) => WIDE,
        (VjpOperand::Y, _) => (0.3, 3.0),
    }
}

/// What floats are made to stumble over.
const SPECIAL: [f64; 12] =
    [0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1.0, -1.0, 0.5, 2.5, -2.5, 30.0, -30.0];

pub fn special() -> Tensor {
    Tensor::from_vec(SPECIAL, [12])
}

/// Every pair of special values.
fn special_pairs() -> Vec<Tensor> {
    let a = SPECIAL.iter().flat_map(|&v| vec![v; 12]).collect::<Vec<_>>();
    vec![Tensor::from_vec(a, [144]), Tensor::from_vec(SPECIAL.repeat(12), [144])]
}

/// Shapes for pointwise ops. The last is longer than a SIMD register, with a tail, and not
/// differentiated.
const SHAPES: [&[usize]; 5] = [&[2, 3], &[], &[0, 2], &[1, 4, 1], &[3, 37]];

fn few(n: &[usize]) -> bool {
    n.iter().product::<usize>() <= 16
}

/// The samples of an op of this form.
pub fn samples(form: &Op) -> Vec<Sample> {
    let mut out = Vec::new();
    let mut dice = Dice(form.name().bytes().map(u64::from).sum());
    let mut add = |op: Op, inputs: Vec<Tensor>, check: bool| out.push(Sample { op, inputs, check });
    match form {
        Op::Literal { .. } => {
            for dtype in DType::ALL {
                let value = if dtype.is_float() { Scalar::from(0.5) } else { Scalar::from(1) };
                for shape in [&[][..], &[2, 3], &[0]] {
                    add(Op::literal(value, Spec::cpu(dtype, shape)), vec![], true);
                }
            }
        }
        Op::Iota { .. } => {
            for dtype in DType::ALL.into_iter().filter(|d| *d != DType::Bool) {
                let device = Device::Cpu;
                [0, 1, 5, 200]
                    .into_iter()
                    .for_each(|len| add(Op::Iota { len, dtype, device }, vec![], true));
            }
        }
        Op::Random { kind, .. } => {
            let key = Tensor::from_vec(vec![1i64, 2], [2]);
            for dtype in DType::ALL {
                let fits =
                    if *kind == Random::Bits { dtype == DType::I64 } else { dtype.is_float() };
                for shape in [&[][..], &[2, 3], &[0], &[97]].into_iter().filter(|_| fits) {
                    let op = Op::Random { kind: *kind, shape: Shape::from_slice(shape), dtype };
                    add(op.clone(), vec![key.clone()], true);
                    let keys = Tensor::from_vec((3..9).collect::<Vec<i64>>(), [3, 1, 2]);
                    add(op, vec![keys], true);
                }
            }
        }
        Op::Unary(Unary::Not) => {
            add(form.clone(), vec![dice.bools(&[2, 3])], true);
            add(form.clone(), vec![Tensor::from_vec(vec![-3i64, 0, 5], [3])], true);
        }
        Op::Unary(f) => {
            for shape in SHAPES {
                // The derivative of `stop_gradient` is zero by promise, not by calculus: see
                // compiled_traps.rs.
                let check = few(shape) && *f != Unary::Stop;
                add(form.clone(), vec![dice.tensor(shape, f.domain())], check);
            }
            // What x·Φ(x) is at −∞ (0·∞) is nobody's convention.
            let conventional = !matches!(f, Unary::Gelu | Unary::GeluTanh | Unary::Silu);
            let specials = if conventional { special() } else { special().narrow(0, 4, 8) };
            add(form.clone(), vec![specials], false);
        }
        Op::UnaryVjp(f) => {
            for shape in SHAPES.into_iter().filter(|_| f.fused_vjp().is_some()) {
                let kept = f.fused_vjp().map_or(WIDE, |kept| kept_domain(*f, kept));
                let inputs = vec![dice.tensor(shape, kept), dice.tensor(shape, WIDE)];
                add(form.clone(), inputs, few(shape));
            }
        }
        Op::Binary(f) => {
            for shape in SHAPES {
                let inputs = binary(*f, shape, &mut dice);
                // By their first operand these have no derivative; the other one is tested in
                // tests/special.rs.
                let closed = !matches!(f, Binary::Zeta | Binary::Gammainc | Binary::Gammaincc);
                add(form.clone(), inputs, closed && few(shape));
            }
            if f.takes().has(DType::F64) {
                add(form.clone(), special_pairs(), false);
            } else {
                add(form.clone(), vec![dice.index(&[2, 5], 9), dice.index(&[2, 5], 9)], true);
            }
        }
        Op::Compare(_) => {
            SHAPES
                .into_iter()
                .for_each(|shape| add(form.clone(), dice.two(shape, WIDE).to_vec(), few(shape)));
            add(form.clone(), special_pairs(), false);
            add(form.clone(), vec![dice.index(&[3, 5], 3), dice.index(&[3, 5], 3)], true);
        }
        Op::Select => {
            for shape in SHAPES {
                let [a, b] = dice.two(shape, WIDE);
                add(form.clone(), vec![dice.bools(shape), a, b], few(shape));
            }
        }
        Op::Cast(_) => {
            for dtype in DType::ALL {
                // A narrow float has steps; a difference quotient sees them.
                let check = !dtype.is_float() || dtype == DType::F64;
                SHAPES.into_iter().for_each(|shape| {
                    add(Op::Cast(dtype), vec![dice.tensor(shape, WIDE)], check && few(shape))
                });
                add(Op::Cast(dtype), vec![dice.index(&[2, 3], 200)], true);
                add(Op::Cast(dtype), vec![dice.bools(&[2, 3])], true);
                add(Op::Cast(dtype), vec![special()], false);
            }
        }
        Op::View(view) => {
            for (view, shape) in views(view) {
                add(Op::View(view), vec![dice.tensor(&shape, WIDE)], true);
            }
        }
        Op::Copy => {
            SHAPES
                .into_iter()
                .for_each(|shape| add(Op::Copy, vec![dice.tensor(shape, WIDE)], few(shape)));
        }
        Op::To(device) => {
            for shape in SHAPES {
                add(Op::To(*device), vec![dice.tensor(shape, WIDE)], few(shape));
            }
        }
        Op::After => {
            for shape in SHAPES {
                let token = dice.tensor(&[3], WIDE);
                add(Op::After, vec![dice.tensor(shape, WIDE), token], few(shape));
            }
            let (numbers, tests) = (dice.index(&[2, 3], 9), dice.bools(&[4]));
            add(Op::After, vec![numbers, tests, dice.tensor(&[], WIDE)], true);
        }
        Op::Put(_) => {
            for (views, base, part) in puts() {
                add(Op::Put(views), vec![dice.tensor(&base, WIDE), dice.tensor(&part, WIDE)], true);
            }
        }
        Op::Pad(_) => {
            let p = |before, after, between| Padding { before, after, between };
            let list: [(&[usize], Vec<Padding>); 6] = [
                (&[], vec![]),
                (&[3], vec![p(1, 2, 0)]),
                (&[2, 3], vec![p(0, 0, 0), p(0, 1, 2)]),
                (&[2, 1, 2], vec![p(1, 0, 1), p(2, 2, 3), p(0, 0, 0)]),
                (&[0, 2], vec![p(1, 1, 1), p(0, 1, 0)]),
                (&[2, 0], vec![p(0, 0, 0), p(0, 0, 1)]),
            ];
            for (shape, padding) in list {
                add(Op::Pad(padding.into()), vec![dice.tensor(shape, WIDE)], true);
            }
        }
        Op::Cat(_) => {
            let lists: [(usize, &[&[usize]]); 5] = [
                (0, &[&[2]]),
                (0, &[&[2, 2], &[1, 2], &[0, 2]]),
                (1, &[&[2, 1], &[2, 3]]),
                (1, &[&[1, 2, 2], &[1, 1, 2], &[1, 2, 2]]),
                (2, &[&[2, 0, 1], &[2, 0, 2]]),
            ];
            for (axis, shapes) in lists {
                add(Op::Cat(axis), shapes.iter().map(|s| dice.tensor(s, WIDE)).collect(), true);
            }
        }
        Op::Gather(_) => {
            for (axis, base, index) in indexed() {
                let x = dice.tensor(&base, WIDE);
                add(Op::Gather(axis), vec![x, dice.index(&index, base[axis])], true);
            }
            let rows = dice.index(&[40, 1], 17).expand([40, 33]);
            add(Op::Gather(0), vec![dice.tensor(&[17, 33], WIDE), rows], false);
        }
        Op::Scatter(..) => {
            for &combine in Combine::ALL {
                for (axis, base, index) in indexed() {
                    // Distinct across both, so that an extreme has one winner.
                    let (n, m): (usize, usize) = (base.iter().product(), index.iter().product());
                    let all = dice.values(n + m, (0.4, 1.7));
                    let (x, source) = (
                        Tensor::from_vec(&all[..n], &base[..]),
                        Tensor::from_vec(&all[n..], &index[..]),
                    );
                    add(
                        Op::Scatter(axis, combine),
                        vec![x, dice.index(&index, base[axis]), source],
                        true,
                    );
                }
                // One index for a whole row, as an embedding has it.
                let rows = dice.index(&[40, 1], 17).expand([40, 33]);
                let operands = vec![
                    dice.tensor(&[17, 33], (0.6, 1.4)),
                    rows,
                    dice.tensor(&[40, 33], (0.6, 1.4)),
                ];
                add(Op::Scatter(0, combine), operands, false);
            }
        }
        Op::Reduce(kind, _) => {
            let lists: [(&[usize], &[usize]); 10] = [
                (&[], &[]),
                (&[5], &[0]),
                (&[2, 3], &[]),
                (&[2, 3], &[0]),
                (&[2, 3], &[1]),
                (&[2, 3], &[1, 0]),
                (&[2, 3, 2], &[0, 2]),
                (&[2, 3, 2], &[1]),
                (&[0, 3], &[1]),
                (&[3, 0, 2], &[1]),
            ];
            for (shape, axes) in lists {
                let void = axes.iter().any(|&a| shape[a] == 0);
                if !(void && matches!(kind, Reduction::Max | Reduction::Min)) {
                    add(
                        Op::Reduce(*kind, Shape::from_slice(axes)),
                        vec![dice.tensor(shape, WIDE)],
                        true,
                    );
                }
            }
            add(Op::Reduce(*kind, [1].into()), vec![dice.tensor(&[5, 41], (-1.2, 1.2))], false);
            add(Op::Reduce(*kind, [0].into()), vec![dice.tensor(&[41, 5], (-1.2, 1.2))], false);
            add(Op::Reduce(*kind, [0].into()), vec![special()], false);
            add(Op::Reduce(*kind, [0].into()), vec![dice.bools(&[4, 2])], true);
            add(Op::Reduce(*kind, [0].into()), vec![dice.bools(&[0, 2])], true);
            // Longer than any block; the product stays near 1.
            let range = if *kind == Reduction::Prod { (0.99, 1.01) } else { (0.6, 1.4) };
            add(Op::Reduce(*kind, [1].into()), vec![dice.tensor(&[3, 5001], range)], false);
            add(Op::Reduce(*kind, [0].into()), vec![dice.tensor(&[1003, 3], range)], false);
            add(Op::Reduce(*kind, [0, 2].into()), vec![dice.tensor(&[21, 5, 37], range)], false);
        }
        Op::ArgReduce(kind, _) => {
            for (shape, axis) in lines().filter(|(s, a)| s[*a] > 0) {
                add(Op::ArgReduce(*kind, axis), vec![dice.tensor(shape, WIDE)], true);
            }
            add(Op::ArgReduce(*kind, 0), vec![special()], false);
            add(Op::ArgReduce(*kind, 1), vec![dice.tensor(&[3, 3001], WIDE)], false);
            add(Op::ArgReduce(*kind, 0), vec![dice.tensor(&[301, 7], WIDE)], false);
            add(Op::ArgReduce(*kind, 1), vec![dice.index(&[3, 9], 3)], true);
        }
        Op::Cumulate { kind, .. } => {
            for (shape, axis) in lines() {
                for reverse in [false, true] {
                    let op = Op::Cumulate { kind: *kind, axis, reverse };
                    add(op, vec![dice.tensor(shape, WIDE)], true);
                }
            }
            let range = if *kind == Cumulation::Prod { (0.99, 1.01) } else { (0.6, 1.4) };
            for (shape, axis) in [([2, 701], 1), ([301, 5], 0)] {
                add(
                    Op::Cumulate { kind: *kind, axis, reverse: axis == 0 },
                    vec![dice.tensor(&shape, range)],
                    false,
                );
            }
            if *kind != Cumulation::LogSumExp {
                let op = Op::Cumulate { kind: *kind, axis: 0, reverse: true };
                add(op, vec![special()], false);
            }
        }
        Op::Sort { .. } | Op::Ranks { .. } => {
            for (op, x, check) in order::samples(form, &mut dice) {
                add(op, vec![x], check);
            }
        }
        Op::Dot => {
            let list: [(&[usize], &[usize]); 14] = [
                (&[65, 131], &[131, 71]),
                (&[3, 700], &[700, 2]),
                (&[2, 3], &[3, 2]),
                (&[1, 1], &[1, 1]),
                (&[1, 4], &[4, 1]),
                (&[4, 1], &[1, 3]),
                (&[2, 2, 3], &[2, 3, 1]),
                (&[2, 0], &[0, 3]),
                (&[0, 2], &[2, 3]),
                (&[17, 33], &[33, 19]),
                (&[1, 2, 2, 2], &[1, 2, 2, 2]),
                (&[2, 1, 2], &[2, 2, 9]),
                (&[2, 9, 5], &[2, 5, 11]),
                (&[2, 5, 1], &[2, 1, 8]),
            ];
            for (a, b) in list {
                add(Op::Dot, vec![dice.tensor(a, WIDE), dice.tensor(b, WIDE)], few(a));
            }
        }
        Op::Conv(c) => out.extend(super::windows::conv_samples(&c.role, &mut dice)),
        Op::Pool(p) => out.extend(super::windows::pool_samples(&p.kind, &mut dice)),
        Op::Linalg(f) => {
            for (f, inputs, check) in super::linalg::samples(*f, &mut dice) {
                add(Op::Linalg(f), inputs, check);
            }
        }
        Op::Fft(f) => {
            for (f, inputs, check) in super::linalg::fft_samples(*f, &mut dice) {
                add(Op::Fft(f), inputs, check);
            }
        }
        Op::Fused(f) => {
            for (op, inputs) in fused(*f, &mut dice) {
                let check = inputs.iter().all(|x| few(x.shape()));
                add(Op::Fused(op), inputs, check);
            }
        }
        // One worker: what several compute is tested in `collectives.rs`.
        Op::Collective(_) => {
            for shape in [&[4, 3][..], &[2, 1, 3], &[5], &[0, 2]] {
                add(form.clone(), vec![dice.tensor(shape, WIDE)], true);
            }
        }
        // Structure is made of other ops and has tests of its own.
        Op::Region(_) | Op::DotRegion(_) | Op::Flow(_) | Op::Custom(_) => {}
        Op::Wait | Op::Transfer(_) => {}
    }
    out
}

fn binary(f: Binary, shape: &[usize], dice: &mut Dice) -> Vec<Tensor> {
    use Binary::*;
    let n: usize = shape.iter().product();
    match f {
        Add | Sub | Mul | Atan2 | Copysign | Maximum | Minimum => dice.two(shape, WIDE).to_vec(),
        Div => vec![dice.tensor(shape, WIDE), dice.tensor(shape, (0.5, 3.0))],
        // The quotient is never near an integer, where these jump.
        Remainder | Fmod | FloorDiv => {
            let b: Vec<f64> = dice.values(n, (0.7, 2.0));
            let b: Vec<f64> =
                b.into_iter().map(|v| if dice.roll(3) == 0 { -v } else { v }).collect();
            let quotient =
                |b: &f64| b * (dice.roll(7) as f64 - 3.0 + 0.3 + 0.01 * dice.roll(40) as f64);
            let a: Vec<f64> = b.iter().map(quotient).collect();
            vec![Tensor::from_vec(a, shape), Tensor::from_vec(b, shape)]
        }
        Zeta => vec![dice.tensor(shape, (1.2, 4.0)), dice.tensor(shape, (0.3, 4.0))],
        Gammainc | Gammaincc => dice.two(shape, (0.3, 4.0)).to_vec(),
        Pow => vec![dice.tensor(shape, (0.3, 2.5)), dice.tensor(shape, (-2.0, 2.0))],
        And | Or | Xor => vec![dice.bools(shape), dice.bools(shape)],
        ShiftLeft | ShiftRight | Gcd => vec![dice.index(shape, 90), dice.index(shape, 9)],
    }
}

/// Each fused op on several axes and shapes.
fn fused(f: Fused, dice: &mut Dice) -> Vec<(Fused, Vec<Tensor>)> {
    let on =
        |dice: &mut Dice, make: fn(usize) -> Fused, n: usize, range| -> Vec<(Fused, Vec<Tensor>)> {
            let one = |(shape, axis): (&[usize], usize)| {
                let first = dice.tensor(shape, range);
                let rest = (1..n).map(|_| dice.tensor(shape, WIDE)).collect::<Vec<_>>();
                (make(axis), [vec![first], rest].concat())
            };
            let long: [(&[usize], usize); 2] = [(&[3, 301], 1), (&[301, 3], 0)];
            lines().chain(long).map(one).collect()
        };
    let norms: [(&[usize], &[usize]); 5] = [
        (&[5, 301], &[301]),
        (&[2, 3], &[3]),
        (&[4], &[4]),
        (&[2, 2, 3], &[2, 3]),
        (&[0, 3], &[3]),
    ];
    let classes: [(usize, usize); 5] = [(7, 301), (2, 3), (1, 1), (4, 2), (0, 3)];
    match f {
        Fused::Softmax(_) => on(dice, Fused::Softmax, 1, WIDE),
        Fused::SoftmaxVjp(_) => on(dice, Fused::SoftmaxVjp, 2, (0.05, 0.6)),
        Fused::LogSoftmax(_) => on(dice, Fused::LogSoftmax, 1, WIDE),
        Fused::LogSoftmaxVjp(_) => on(dice, Fused::LogSoftmaxVjp, 2, (-3.0, -0.1)),
        Fused::LogSumExp(_) => on(dice, Fused::LogSumExp, 1, WIDE),
        Fused::LayerNorm(_) => norms
            .map(|(x, w)| {
                (
                    Fused::LayerNorm(Real(1e-3)),
                    vec![dice.tensor(x, WIDE), dice.tensor(w, WIDE), dice.tensor(w, WIDE)],
                )
            })
            .to_vec(),
        Fused::LayerNormVjp(_) => norms
            .map(|(x, w)| {
                (
                    Fused::LayerNormVjp(Real(1e-3)),
                    vec![dice.tensor(x, WIDE), dice.tensor(w, WIDE), dice.tensor(x, WIDE)],
                )
            })
            .to_vec(),
        Fused::BatchNorm(_) => batch_norm::samples(dice),
        Fused::BatchNormVjp(_) => batch_norm::vjp_samples(dice),
        Fused::CrossEntropy => classes
            .map(|(n, c)| (f, vec![dice.tensor(&[n, c], WIDE), dice.index(&[n], c)]))
            .to_vec(),
        Fused::CrossEntropyVjp => classes
            .map(|(n, c)| {
                (f, vec![dice.tensor(&[n, c], WIDE), dice.index(&[n], c), dice.tensor(&[n], WIDE)])
            })
            .to_vec(),
        Fused::Attention(_) => attention::samples(dice),
        Fused::AttentionVjp(_) => attention::vjp_samples(dice),
        Fused::Distances { .. } => distances::samples(dice),
        Fused::DistancesVjp { .. } => distances::vjp_samples(dice),
        Fused::Ctc { .. } => ctc::samples(dice),
        Fused::CtcVjp { .. } => ctc::vjp_samples(dice),
        Fused::Sgd(_) => update::sgd_samples(dice),
        Fused::Adam(_) => update::adam_samples(dice),
    }
}
