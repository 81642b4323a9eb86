//! Reductions of floats: rows short, long and huge, against f64.

use super::{Dense, Dice, point, run_kernel, ways};
use crate::par;
use crate::region::RegionKernel;
use pullback_ir::{
    Binary, DType, Device, Inst, Layout, Load, Op, Reduction, Region, Scalar, Shape, Spec, Unary,
};

pub(in crate::region) fn softmax(rows: usize, row: usize, dtype: DType) -> Region {
    let shape = Shape::from_slice(&[rows, row]);
    Region {
        device: Device::Cpu,
        inputs: vec![Load {
            spec: Spec::cpu(dtype, shape.clone()),
            layout: Layout::dense(shape.clone()),
        }],
        shape,
        inner: 1,
        body: vec![
            Inst::Load(0),
            Inst::Reduce(Reduction::Max, 0),
            point(Op::Binary(Binary::Sub), &[0, 1]),
            point(Op::Unary(Unary::Exp), &[2]),
            Inst::Reduce(Reduction::Sum, 3),
            point(Op::Binary(Binary::Div), &[3, 4]),
        ],
        outputs: vec![5],
        columns: Vec::new(),
    }
}

/// Layer normalisation with scale and shift, which also returns the mean and the reciprocal
/// standard deviation.
pub(in crate::region) fn layer_norm(rows: usize, row: usize, dtype: DType) -> Region {
    let shape = Shape::from_slice(&[rows, row]);
    let dense =
        Load { spec: Spec::cpu(dtype, shape.clone()), layout: Layout::dense(shape.clone()) };
    let mut along = dense.clone();
    along.spec = Spec::cpu(dtype, [row].as_slice());
    along.layout.strides[0] = 0;
    Region {
        device: Device::Cpu,
        inputs: vec![dense, along.clone(), along],
        shape,
        inner: 1,
        body: vec![
            Inst::Load(0),
            Inst::Reduce(Reduction::Sum, 0),
            Inst::Literal(Scalar::from(1.0 / row as f64), dtype),
            point(Op::Binary(Binary::Mul), &[1, 2]),
            point(Op::Binary(Binary::Sub), &[0, 3]),
            point(Op::Unary(Unary::Square), &[4]),
            Inst::Reduce(Reduction::Sum, 5),
            point(Op::Binary(Binary::Mul), &[6, 2]),
            Inst::Literal(Scalar::from(1e-5), dtype),
            point(Op::Binary(Binary::Add), &[7, 8]),
            point(Op::Unary(Unary::Rsqrt), &[9]),
            point(Op::Binary(Binary::Mul), &[4, 10]),
            Inst::Load(1),
            point(Op::Binary(Binary::Mul), &[11, 12]),
            Inst::Load(2),
            point(Op::Binary(Binary::Add), &[13, 14]),
        ],
        outputs: vec![15, 3, 10],
        columns: Vec::new(),
    }
}

/// The largest error of any element, relative to the largest element.
fn error(got: &Dense, want: &[f64]) -> f64 {
    let largest = want.iter().fold(0f64, |m, x| m.max(x.abs()));
    let got = got.elements();
    assert_eq!(got.len(), want.len());
    got.iter().zip(want).fold(0f64, |m, (g, w)| m.max((g.0 - w).abs())) / largest
}

/// The compensated sum.
fn sum_of(x: impl IntoIterator<Item = f64>) -> f64 {
    let (mut sum, mut lost) = (0f64, 0f64);
    for x in x {
        let next = sum + x;
        lost += if sum.abs() >= x.abs() { (sum - next) + x } else { (x - next) + sum };
        sum = next;
    }
    sum + lost
}

fn softmax_by_hand(x: &[f64], row: usize) -> Vec<f64> {
    x.chunks(row)
        .flat_map(|x| {
            let most = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let e: Vec<f64> = x.iter().map(|x| (x - most).exp()).collect();
            let sum = sum_of(e.iter().copied());
            e.into_iter().map(move |e| e / sum)
        })
        .collect()
}

fn layer_norm_by_hand(x: &[f64], row: usize, scale: &[f64], shift: &[f64]) -> [Vec<f64>; 3] {
    let (mut out, mut means, mut scales) = (Vec::new(), Vec::new(), Vec::new());
    for x in x.chunks(row) {
        let mean = sum_of(x.iter().copied()) / row as f64;
        let variance = sum_of(x.iter().map(|x| (x - mean).powi(2))) / row as f64;
        let by = 1.0 / (variance + 1e-5).sqrt();
        out.extend(x.iter().enumerate().map(|(i, x)| (x - mean) * by * scale[i] + shift[i]));
        means.push(mean);
        scales.push(by);
    }
    [out, means, scales]
}

/// Short rows, long rows, rows in chunks; the bits are the same for any number of threads and any
/// way of computing.
#[test]
fn softmax_and_layer_norm_are_accurate_and_deterministic() {
    let mut dice = Dice::new(7);
    for (rows, row) in
        [(300, 10), (5, 512), (70, 513), (40, 1024), (6, 5000), (2, 150_000), (1, 70_001)]
    {
        for dtype in [DType::F32, DType::F64] {
            // A few units in the last place of the largest element: exp and the sum, each rounded.
            // (In f64 also by hand.)
            let bound = if dtype == DType::F32 { 4e-7 } else { 2e-15 };
            let x = Dense::of(Spec::cpu(dtype, [rows, row].as_slice()), || {
                dice.below(8_000_001) as f64 / 1e6 - 4.0
            });
            let numbers: Vec<f64> = x.elements().iter().map(|e| e.0).collect();
            let region = softmax(rows, row, dtype);
            let want = softmax_by_hand(&numbers, row);
            let mut seen = None;
            for how in ways() {
                let kernel = RegionKernel::with(&region, how).expect("a kernel");
                for threads in [1, 2, 8] {
                    for over in [&[][..], &[(0, 0)][..]] {
                        let inputs = std::slice::from_ref(&x);
                        let got = par::with_threads(threads, || {
                            run_kernel(&kernel, &region, inputs, over)
                        });
                        let error = error(&got[0], &want);
                        assert!(error < bound, "softmax {rows}×{row} {dtype} {how:?}: {error:e}");
                        let bits = got[0].bits();
                        assert!(*seen.get_or_insert(bits.clone()) == bits, "{rows}×{row} {how:?}");
                    }
                }
            }
            let (scale, shift) = (
                Dense::of(Spec::cpu(dtype, [row].as_slice()), || dice.below(100) as f64 / 50.0),
                Dense::of(Spec::cpu(dtype, [row].as_slice()), || dice.below(100) as f64 / 50.0),
            );
            let [a, b] =
                [&scale, &shift].map(|x| x.elements().iter().map(|e| e.0).collect::<Vec<_>>());
            let region = layer_norm(rows, row, dtype);
            let want = layer_norm_by_hand(&numbers, row, &a, &b);
            let inputs = [x, scale, shift];
            let mut seen = None;
            for how in ways() {
                let kernel = RegionKernel::with(&region, how).expect("a kernel");
                for threads in [1, 2, 8] {
                    let got = par::with_threads(threads, || {
                        run_kernel(&kernel, &region, &inputs, &[(0, 0)])
                    });
                    for (got, want) in got.iter().zip(&want) {
                        // The mean is small relative to its elements.
                        let error = error(got, want);
                        assert!(
                            error < 20.0 * bound,
                            "norm {rows}×{row} {dtype} {how:?}: {error:e}"
                        );
                    }
                    let bits: Vec<_> = got.iter().map(Dense::bits).collect();
                    assert!(*seen.get_or_insert(bits.clone()) == bits, "{rows}×{row} {how:?}");
                }
            }
        }
    }
}

/// A huge sum of a pointwise chain is as accurate as the eager reduction, and the same for any
/// number of threads.
#[test]
fn a_huge_sum_is_accurate() {
    let n = 1 << 21;
    let mut dice = Dice::new(11);
    let x = Dense::of(Spec::cpu(DType::F32, [n].as_slice()), || dice.below(1_000_001) as f64 / 1e6);
    let shape = Shape::from_slice(&[n]);
    let region = Region {
        device: Device::Cpu,
        inputs: vec![Load { spec: x.spec.clone(), layout: Layout::dense(shape.clone()) }],
        shape,
        inner: 1,
        body: vec![
            Inst::Load(0),
            point(Op::Unary(Unary::Square), &[0]),
            Inst::Reduce(Reduction::Sum, 1),
        ],
        outputs: vec![2],
        columns: Vec::new(),
    };
    let exact: f64 = x.elements().iter().map(|e| f64::from((e.0 as f32) * (e.0 as f32))).sum();
    let eager = super::one_by_one(&region, std::slice::from_ref(&x))[0].elements()[0].0;
    let mut seen = None;
    for how in ways() {
        let kernel = RegionKernel::with(&region, how).expect("a kernel");
        for threads in [1, 2, 8] {
            let got = par::with_threads(threads, || {
                run_kernel(&kernel, &region, std::slice::from_ref(&x), &[])[0].elements()[0]
            });
            // Half a unit in the last place of the sum, and a little for the joins.
            assert!((got.0 - exact).abs() <= exact * 1.2e-7, "{} {exact} {eager}", got.0);
            assert_eq!(*seen.get_or_insert(got.1), got.1);
        }
    }
    assert!((eager - exact).abs() <= exact * 1.2e-7);
}

/// The max of no booleans, the sum of no elements.
#[test]
fn rows_without_elements() {
    let shape = Shape::from_slice(&[3, 0]);
    let region = Region {
        device: Device::Cpu,
        inputs: vec![Load {
            spec: Spec::cpu(DType::F32, shape.clone()),
            layout: Layout::dense(shape.clone()),
        }],
        shape,
        inner: 1,
        body: vec![
            Inst::Load(0),
            Inst::Reduce(Reduction::Sum, 0),
            Inst::Literal(Scalar::from(2.0), DType::F32),
            point(Op::Binary(Binary::Add), &[1, 2]),
            Inst::Reduce(Reduction::Prod, 0),
            point(Op::Binary(Binary::Mul), &[0, 4]),
        ],
        outputs: vec![3, 4, 5, 2],
        columns: Vec::new(),
    };
    let x = Dense::of(region.inputs[0].spec.clone(), || 0.0);
    for how in ways() {
        let kernel = RegionKernel::with(&region, how).expect("a kernel");
        let got = run_kernel(&kernel, &region, std::slice::from_ref(&x), &[]);
        let numbers: Vec<Vec<f64>> =
            got.iter().map(|g| g.elements().iter().map(|e| e.0).collect()).collect();
        assert_eq!(numbers, [vec![2.0; 3], vec![1.0; 3], vec![], vec![2.0; 3]]);
    }
}
