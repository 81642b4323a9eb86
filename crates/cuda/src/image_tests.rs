//! Batch norm, pooling by positions and convolutions with the channels last, against the CPU's
//! kernels, on a device: only with `PULLBACK_DEVICE=cuda:0`.

use crate::device_tests::{Array, Report, both, device};
use pullback_ir::{Conv, DType, Frame, Fused, Op, Pool, Pooling, Real, Role, Shape, Window};

fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 1e-13,
        DType::BF16 => 1e-2,
        _ => 2e-5,
    }
}

/// Of elements and of weights.
const DTYPES: [[DType; 2]; 4] = [
    [DType::F32, DType::F32],
    [DType::F64, DType::F64],
    [DType::BF16, DType::F32],
    [DType::BF16, DType::BF16],
];

#[test]
fn batch_norms_are_those_of_the_cpu() {
    let Some(gpu) = device() else { return };
    let mut report = Report::default();
    // Lines of whole vectors, of some elements more, and single elements; few channels in many
    // parts, and many channels in one.
    let shapes: [&[usize]; 8] = [
        &[4, 6, 40, 50],
        &[37, 24, 7, 7],
        &[3, 5, 3333],
        &[2, 700, 9, 3],
        &[5000, 24],
        &[70000, 64],
        &[301, 2049],
        &[20000, 3],
    ];
    for (seed, shape) in shapes.into_iter().enumerate() {
        for [dtype, weights] in DTYPES {
            let c = &shape[1..2];
            let mut x = Array::noise(dtype, shape, seed);
            x.values.iter_mut().for_each(|v| *v += 3.0);
            let (w, b) = (Array::noise(weights, c, 20), Array::noise(weights, c, 21));
            let name = format!("{dtype} {shape:?} with {weights}");
            let op = Op::Fused(Fused::BatchNorm(Real(1e-3)));
            let operands = [x.clone(), w.clone(), b];
            report.close(&gpu, &name, &op, &operands, tolerance(dtype));
            let mean = Array::noise(weights, c, 22);
            let mut variance = Array::noise(weights, c, 23);
            variance.values.iter_mut().for_each(|v| *v = v.abs() + 0.5);
            let dy = Array::noise(dtype, shape, 40 + seed);
            let op = Op::Fused(Fused::BatchNormVjp(Real(1e-3)));
            let operands = [x, w, mean, variance, dy];
            report.close(&gpu, &format!("gradient, {name}"), &op, &operands, tolerance(dtype));
        }
    }
}

#[test]
fn a_constant_channel_has_no_variance() {
    let Some(gpu) = device() else { return };
    let x = Array::new(DType::F32, &[40000, 2], vec![1e4 + 0.1; 80000]);
    let one = Array::new(DType::F32, &[2], vec![1.0; 2]);
    let op = Op::Fused(Fused::BatchNorm(Real(1e-5)));
    let (found, _) = both(&gpu, &op, &[x, one.clone(), one]);
    assert!(found[0].iter().all(|&y| y == 1.0) && found[2] == [0.0, 0.0]);
}

const EACH: Window = Window { size: 1, stride: 1, dilation: 1, before: 0, after: 0 };

#[test]
fn pools_by_positions_are_those_of_the_cpu() {
    let Some(gpu) = device() else { return };
    let mut report = Report::default();
    let slides = |size, stride, dilation, pad| {
        let (before, after) = (pad, pad);
        Frame::Sliding(Window { size, stride, dilation, before, after })
    };
    let each = Frame::Sliding(EACH);
    let cases: [(&[usize], Vec<Frame>); 6] = [
        (&[3, 5, 30, 33], vec![slides(3, 2, 1, 1), slides(3, 2, 1, 1)]),
        (&[3, 30, 33, 8], vec![slides(3, 2, 1, 1), slides(3, 2, 1, 1), each]),
        (&[4, 6, 40], vec![slides(3, 1, 2, 2)]),
        (&[2, 3, 9, 10, 11], vec![slides(2, 2, 1, 0), slides(3, 1, 1, 1), Frame::Even(4)]),
        (&[2, 2, 3, 12, 13], vec![Frame::Even(5), slides(2, 3, 1, 0)]),
        (&[50], vec![slides(4, 3, 1, 0)]),
    ];
    for (shape, frames) in cases {
        for dtype in [DType::F32, DType::BF16, DType::F64] {
            let of = |kind| Op::Pool(Box::new(Pool { kind, frames: frames.clone() }));
            let name = format!("{dtype} {shape:?}");
            let x = Array::noise(dtype, shape, 1);
            let (lead, last) = shape.split_at(shape.len() - frames.len());
            let counts = last.iter().zip(&frames).map(|(&n, f)| f.count(n).expect("pieces"));
            let pieces: Vec<usize> = lead.iter().copied().chain(counts).collect();
            let (places, _) = both(&gpu, &of(Pooling::ArgMax), std::slice::from_ref(&x));
            report.close(&gpu, &name, &of(Pooling::ArgMax), std::slice::from_ref(&x), 0.0);
            let mut places = Array::new(DType::I64, &pieces, places[0].clone());
            // Positions outside of their pieces count for nothing.
            (places.values[0], places.values[1]) = (-1.0, 1e9);
            report.close(&gpu, &name, &of(Pooling::Take), &[x, places.clone()], 0.0);
            let give = of(Pooling::Give(Shape::from_slice(last)));
            let dy = Array::noise(dtype, &pieces, 2);
            report.close(&gpu, &name, &give, &[dy.clone(), places], tolerance(dtype));
            let spread = of(Pooling::Spread(Shape::from_slice(last)));
            report.close(&gpu, &name, &spread, &[dy], tolerance(dtype));
        }
    }
}

#[test]
fn convolutions_with_the_channels_last_are_those_of_the_cpu() {
    let Some(gpu) = device() else { return };
    let mut report = Report::default();
    let slide = |size, stride| {
        let pad = (size / 2) as isize;
        Window { size, stride, dilation: 1, before: pad, after: pad }
    };
    let forms =
        [(16, 1, 1, 1), (16, 3, 1, 1), (16, 3, 2, 1), (16, 1, 2, 1), (16, 3, 1, 8), (3, 7, 2, 1)];
    for dtype in [DType::BF16, DType::F32] {
        for (c, size, stride, groups) in forms {
            let (n, o, len) = (3, 32, 12);
            let windows = vec![slide(size, stride); 2];
            let count = windows[0].count(len).expect("windows");
            let x = Array::noise(dtype, &[n, c, len, len], 1);
            let w = Array::noise(dtype, &[o, c / groups, size, size], 2);
            let y = Array::noise(dtype, &[n, o, count, count], 3);
            let name = format!("{dtype} {c} {size} {stride} {groups}");
            let of = |role| {
                Op::Conv(Box::new(Conv { role, windows: windows.clone(), groups, last: true }))
            };
            report.close(&gpu, &name, &of(Role::Forward), &[x.clone(), w.clone()], 2e-2);
            let input = Role::Input(Shape::from_slice(&[len, len]));
            report.close(&gpu, &format!("{name}, input"), &of(input), &[y.clone(), w], 2e-2);
            report.close(&gpu, &format!("{name}, filter"), &of(Role::Filter), &[x, y], 2e-2);
        }
    }
}

#[test]
fn pieces_next_to_each_other_are_those_of_the_cpu() {
    let Some(gpu) = device() else { return };
    let mut report = Report::default();
    let cases: [(usize, &[usize], &[usize]); 6] = [
        (1, &[64, 0, 3], &[1024, 1024, 1024, 1024]),
        (1, &[5, 0, 7], &[2, 3, 1]),
        (0, &[0, 9], &[4, 5]),
        (2, &[3, 4, 0], &[8, 4, 0, 4]),
        (1, &[3, 0], &[1, 2, 3, 4, 5, 6, 7, 8]),
        (1, &[3, 0], &[1, 2, 3, 4, 5, 6, 7, 8, 9]),
    ];
    for (axis, shape, lengths) in cases {
        for dtype in [DType::F32, DType::BF16, DType::F64] {
            let piece = |&n: &usize| {
                let mut shape = shape.to_vec();
                shape[axis] = n;
                Array::noise(dtype, &shape, n)
            };
            let pieces: Vec<Array> = lengths.iter().map(piece).collect();
            report.close(&gpu, &format!("{dtype} {shape:?}"), &Op::Cat(axis), &pieces, 0.0);
        }
    }
    // Pieces that do not lie in order.
    let turned = Array::noise(DType::F32, &[6, 40], 1).turned();
    let plain = Array::noise(DType::F32, &[6, 8], 2);
    report.close(&gpu, "turned", &Op::Cat(1), &[turned, plain], 0.0);
}
