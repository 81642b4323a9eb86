//! The same bits with 1, 2 and 8 threads, for every op on operands that are large enough to be
//! split.

use super::samples::{Dice, Sample, WIDE};
use super::{Failures, bits, on_host};
use super::{attention, batch_norm, ctc, distances, update};
use pullback::{DType, Device, Op, Scalar, Spec, Tensor, with_threads};
use pullback_ir::infer::infer;
use pullback_ir::{Combine, Fused, Padding, Real, Shape, Span, Unary, View};
use smallvec::smallvec;

const MANY: usize = 200_000;
const SQUARE: [usize; 2] = [400, 500];

fn random(dice: &mut Dice, shape: &[usize], (low, high): (f64, f64)) -> Tensor {
    let n: usize = shape.iter().product();
    let step = (high - low) / 65536.0;
    Tensor::from_vec(
        (0..n).map(|_| low + step * dice.roll(65536) as f64).collect::<Vec<f64>>(),
        shape,
    )
}

/// Large operands for an op of this form.
fn large(form: &Op) -> Vec<Sample> {
    let mut dice = Dice(7);
    let dice = &mut dice;
    let mut out = Vec::new();
    let mut add = |op: Op, inputs: Vec<Tensor>| out.push(Sample { op, inputs, check: false });
    match form {
        Op::Literal { .. } => {
            let shape = Shape::from_slice(&SQUARE);
            add(Op::literal(Scalar::from(0.5), Spec::cpu(DType::F32, shape)), vec![]);
        }
        Op::Iota { .. } => {
            add(Op::Iota { len: MANY, dtype: DType::F32, device: Device::Cpu }, vec![])
        }
        Op::Random { kind, .. } => {
            let dtype = if *kind == pullback_ir::Random::Bits { DType::I64 } else { DType::F32 };
            let key = Tensor::from_vec(vec![3i64, 4], [2]);
            add(Op::Random { kind: *kind, shape: Shape::from_slice(&SQUARE), dtype }, vec![key]);
        }
        Op::Unary(Unary::Not) => add(form.clone(), vec![dice.index(&[MANY], 100)]),
        Op::Unary(f) => {
            add(form.clone(), vec![random(dice, &[MANY], f.domain())]);
            add(form.clone(), vec![random(dice, &SQUARE, f.domain()).t()]);
        }
        Op::UnaryVjp(f) if f.fused_vjp().is_none() => {}
        Op::UnaryVjp(_) => {
            let inputs =
                vec![random(dice, &SQUARE, (0.1, 0.9)), random(dice, &[500, 400], WIDE).t()];
            add(form.clone(), inputs);
        }
        Op::Binary(f) if !f.takes().has(DType::F64) => {
            add(form.clone(), vec![dice.index(&[MANY], 100), dice.index(&[MANY], 100)]);
        }
        Op::Binary(_) | Op::Compare(_) => {
            let b = random(dice, &[500], (0.1, 2.0)).expand(SQUARE);
            add(form.clone(), vec![random(dice, &[500, 400], (0.1, 2.0)).t(), b]);
        }
        Op::Select => {
            let condition = dice.bools(&SQUARE);
            add(
                form.clone(),
                vec![condition, random(dice, &SQUARE, WIDE), random(dice, &[500, 400], WIDE).t()],
            );
        }
        Op::Cast(_) => {
            DType::ALL.into_iter().for_each(|d| add(Op::Cast(d), vec![random(dice, &[MANY], WIDE)]))
        }
        Op::Copy => add(Op::Copy, vec![random(dice, &SQUARE, WIDE).t()]),
        Op::To(to) => add(Op::To(*to), vec![random(dice, &SQUARE, WIDE).t()]),
        Op::After => {
            add(Op::After, vec![random(dice, &SQUARE, WIDE).t(), random(dice, &[2], WIDE)])
        }
        Op::View(_) => {
            add(Op::View(View::Reshape([MANY].into())), vec![random(dice, &SQUARE, WIDE).t()])
        }
        Op::Put(_) => {
            let views = vec![View::Slice(smallvec![Span { start: 1, len: 399, step: 1 }])];
            add(Op::Put(views), vec![random(dice, &SQUARE, WIDE), random(dice, &[399, 500], WIDE)]);
        }
        Op::Pad(_) => {
            let padding = smallvec![
                Padding { before: 3, after: 1, between: 1 },
                Padding { before: 0, after: 2, between: 0 }
            ];
            add(Op::Pad(padding), vec![random(dice, &SQUARE, WIDE)]);
        }
        Op::Cat(_) => [0, 1].into_iter().for_each(|axis| {
            add(
                Op::Cat(axis),
                vec![random(dice, &SQUARE, WIDE), random(dice, &[500, 400], WIDE).t()],
            );
        }),
        Op::Gather(_) => {
            let rows = dice.index(&[700, 1], 400).expand([700, 500]);
            add(Op::Gather(0), vec![random(dice, &SQUARE, WIDE), rows]);
            let free = dice.index(&[400, 600], 500);
            add(Op::Gather(1), vec![random(dice, &SQUARE, WIDE), free]);
        }
        Op::Scatter(..) => {
            for &combine in Combine::ALL {
                let rows = dice.index(&[700, 1], 90).expand([700, 300]);
                add(
                    Op::Scatter(0, combine),
                    vec![
                        random(dice, &[100, 300], (0.9, 1.1)),
                        rows,
                        random(dice, &[700, 300], (0.9, 1.1)),
                    ],
                );
                let free = dice.index(&[300, 700], 50);
                add(
                    Op::Scatter(1, combine),
                    vec![
                        random(dice, &[300, 60], (0.9, 1.1)),
                        free,
                        random(dice, &[300, 700], (0.9, 1.1)),
                    ],
                );
                let flat = dice.index(&[MANY], 1000);
                add(
                    Op::Scatter(0, combine),
                    vec![
                        random(dice, &[1000], (0.9, 1.1)),
                        flat,
                        random(dice, &[MANY], (0.9, 1.1)),
                    ],
                );
            }
        }
        Op::Reduce(kind, _) => {
            let x = random(dice, &[50, 40, 100], (0.99, 1.01));
            for axes in [&[0][..], &[1], &[2], &[0, 1], &[1, 2], &[0, 2], &[0, 1, 2]] {
                add(Op::Reduce(*kind, Shape::from_slice(axes)), vec![x.clone()]);
            }
            add(Op::Reduce(*kind, [0].into()), vec![random(dice, &[MANY], (0.99, 1.01))]);
            add(Op::Reduce(*kind, [0, 1].into()), vec![random(dice, &SQUARE, (0.99, 1.01)).t()]);
        }
        Op::ArgReduce(kind, _) => {
            [0, 1].into_iter().for_each(|axis| {
                add(Op::ArgReduce(*kind, axis), vec![random(dice, &SQUARE, WIDE)])
            });
            add(Op::ArgReduce(*kind, 0), vec![random(dice, &[MANY], WIDE)]);
        }
        Op::Cumulate { kind, .. } => {
            for (axis, reverse) in [(0, false), (1, false), (0, true), (1, true)] {
                add(
                    Op::Cumulate { kind: *kind, axis, reverse },
                    vec![random(dice, &SQUARE, (0.99, 1.01))],
                );
            }
            add(
                Op::Cumulate { kind: *kind, axis: 0, reverse: false },
                vec![random(dice, &[MANY], (0.9999, 1.0001))],
            );
        }
        Op::Ranks { .. } => {
            for (axis, from, count) in [(0, 0, 20), (1, 250, 1)] {
                let op = Op::Ranks { axis, descending: axis == 0, from, count };
                add(op, vec![random(dice, &SQUARE, WIDE)]);
            }
            let op = Op::Ranks { axis: 0, descending: true, from: 10, count: 100 };
            add(op, vec![random(dice, &[MANY], WIDE)]);
        }
        Op::Sort { .. } => {
            for (axis, descending) in [(0, false), (1, true)] {
                add(Op::Sort { axis, descending }, vec![random(dice, &SQUARE, WIDE)]);
            }
            add(Op::Sort { axis: 0, descending: false }, vec![random(dice, &[MANY], WIDE)]);
        }
        Op::Dot => {
            add(Op::Dot, vec![random(dice, &[300, 300], WIDE), random(dice, &[300, 300], WIDE)]);
            add(
                Op::Dot,
                vec![random(dice, &[257, 311], WIDE).t(), random(dice, &[257, 123], WIDE)],
            );
            add(Op::Dot, vec![random(dice, &[1, 5000], WIDE), random(dice, &[5000, 37], WIDE)]);
            add(Op::Dot, vec![random(dice, &[3, 20000], WIDE), random(dice, &[20000, 5], WIDE)]);
            add(Op::Dot, vec![random(dice, &[9, 61, 67], WIDE), random(dice, &[9, 67, 71], WIDE)]);
        }
        Op::Conv(c) => {
            let mut random = |shape: &[usize]| random(dice, shape, WIDE);
            out.extend(super::windows::conv_large(&c.role, &mut random));
        }
        Op::Pool(p) => {
            let mut random = |shape: &[usize]| random(dice, shape, WIDE);
            out.extend(super::windows::pool_large(&p.kind, &mut random));
        }
        Op::Linalg(f) => super::linalg::large(*f, dice)
            .into_iter()
            .for_each(|(f, inputs)| add(Op::Linalg(f), inputs)),
        Op::Fft(f) => super::linalg::fft_large(*f, dice)
            .into_iter()
            .for_each(|(f, inputs)| add(Op::Fft(f), inputs)),
        Op::Fused(f) => {
            fused(*f, dice).into_iter().for_each(|(f, inputs)| add(Op::Fused(f), inputs))
        }
        Op::Region(_) | Op::DotRegion(_) | Op::Flow(_) | Op::Custom(_) => {}
        Op::Collective(_) | Op::Wait | Op::Transfer(_) => {}
    }
    out
}

fn fused(f: Fused, dice: &mut Dice) -> Vec<(Fused, Vec<Tensor>)> {
    let both = |dice: &mut Dice, make: fn(usize) -> Fused, n: usize| {
        let one =
            |axis: usize| (make(axis), (0..n).map(|_| random(dice, &SQUARE, (0.0, 1.0))).collect());
        [0, 1].map(one).to_vec()
    };
    let weight = |dice: &mut Dice| random(dice, &[500], WIDE);
    let x = |dice: &mut Dice| random(dice, &SQUARE, WIDE);
    match f {
        Fused::Softmax(_) => both(dice, Fused::Softmax, 1),
        Fused::SoftmaxVjp(_) => both(dice, Fused::SoftmaxVjp, 2),
        Fused::LogSoftmax(_) => both(dice, Fused::LogSoftmax, 1),
        Fused::LogSoftmaxVjp(_) => both(dice, Fused::LogSoftmaxVjp, 2),
        Fused::LogSumExp(_) => both(dice, Fused::LogSumExp, 1),
        Fused::LayerNorm(_) => {
            vec![(Fused::LayerNorm(Real(1e-5)), vec![x(dice), weight(dice), weight(dice)])]
        }
        Fused::LayerNormVjp(_) => {
            vec![(Fused::LayerNormVjp(Real(1e-5)), vec![x(dice), weight(dice), x(dice)])]
        }
        Fused::BatchNorm(_) => batch_norm::large(dice),
        Fused::BatchNormVjp(_) => batch_norm::large_vjp(dice),
        Fused::CrossEntropy => vec![(f, vec![x(dice), dice.index(&[400], 500)])],
        Fused::CrossEntropyVjp => {
            let classes = dice.index(&[400], 500);
            vec![(f, vec![x(dice), classes, random(dice, &[400], WIDE)])]
        }
        Fused::Attention(_) => attention::large(dice),
        Fused::AttentionVjp(_) => attention::large_vjp(dice),
        Fused::Distances { .. } => distances::large(dice),
        Fused::DistancesVjp { .. } => distances::large_vjp(dice),
        Fused::Ctc { .. } => ctc::large(dice),
        Fused::CtcVjp { .. } => ctc::large_vjp(dice),
        Fused::Sgd(_) => update::large_sgd(dice),
        Fused::Adam(_) => update::large_adam(dice),
    }
}

#[test]
fn the_number_of_threads_does_not_change_a_bit() {
    if !on_host() {
        return;
    }
    let mut failures = Failures::new();
    for sample in Op::forms().flat_map(|form| large(&form)) {
        for dtype in [DType::F32, DType::BF16, DType::F64] {
            let sample = sample.cast(dtype);
            // Some ops refuse narrow floats.
            if infer(&sample.op, &sample.inputs.iter().map(Tensor::spec).collect::<Vec<_>>())
                .is_err()
            {
                continue;
            }
            let run = |n: usize| -> Vec<Vec<u64>> {
                with_threads(n, || sample.run().unwrap().iter().map(bits).collect())
            };
            let one = run(1);
            for n in [2, 8] {
                if run(n) != one {
                    failures.note(&sample, format!("{n} threads differ from one"));
                }
            }
        }
    }
    failures.assert_none();
}
