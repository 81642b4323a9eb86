//! Ops of libraries against the CPU's kernels, on a device: only with `PULLBACK_DEVICE=cuda:0`.

use crate::gpu::Gpu;
use crate::loops::StridedOperand;
use crate::{ops, program};
use pullback_cpu::{Buffer, Input};
use pullback_ir::infer::check;
use pullback_ir::{Attention, DType, Fft, Fused, Layout, Linalg, Op, Real, Spec};

pub(crate) fn device() -> Option<Gpu> {
    let wanted = std::env::var("PULLBACK_DEVICE").is_ok_and(|name| name.starts_with("cuda"));
    wanted.then(|| Gpu::open(0).expect("a device"))
}

/// An operand of a test; if it is turned, the device has it with its last two axes exchanged.
#[derive(Clone)]
pub(crate) struct Array {
    pub dtype: DType,
    pub shape: Vec<usize>,
    pub values: Vec<f64>,
    pub turned: bool,
}

pub(crate) fn bytes(dtype: DType, values: &[f64]) -> Vec<u8> {
    let each = |&v: &f64| match dtype {
        DType::F64 => v.to_le_bytes().to_vec(),
        DType::F32 => (v as f32).to_le_bytes().to_vec(),
        DType::BF16 => half::bf16::from_f64(v).to_le_bytes().to_vec(),
        DType::I32 => (v as i32).to_le_bytes().to_vec(),
        DType::I64 => (v as i64).to_le_bytes().to_vec(),
        DType::F16 => half::f16::from_f64(v).to_le_bytes().to_vec(),
        DType::U8 => vec![v as u8],
        DType::Bool => vec![u8::from(v != 0.0)],
    };
    values.iter().flat_map(each).collect()
}

pub(crate) fn values(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    let each = |b: &[u8]| match dtype {
        DType::F64 => f64::from_le_bytes(b.try_into().expect("8")),
        DType::F32 => f64::from(f32::from_le_bytes(b.try_into().expect("4"))),
        DType::BF16 => half::bf16::from_le_bytes(b.try_into().expect("2")).to_f64(),
        DType::I32 => f64::from(i32::from_le_bytes(b.try_into().expect("4"))),
        DType::I64 => i64::from_le_bytes(b.try_into().expect("8")) as f64,
        DType::F16 => half::f16::from_le_bytes(b.try_into().expect("2")).to_f64(),
        DType::U8 | DType::Bool => f64::from(b[0]),
    };
    bytes.chunks_exact(dtype.size()).map(each).collect()
}

impl Array {
    pub fn new(dtype: DType, shape: &[usize], values: Vec<f64>) -> Array {
        assert_eq!(values.len(), shape.iter().product::<usize>());
        Array { dtype, shape: shape.to_vec(), values, turned: false }
    }

    pub fn noise(dtype: DType, shape: &[usize], seed: usize) -> Array {
        let n = shape.iter().product();
        Array::new(dtype, shape, (0..n).map(|i| value(i + 977 * seed)).collect())
    }

    pub fn turned(mut self) -> Array {
        self.turned = true;
        self
    }

    /// The values with the last two axes exchanged.
    fn exchanged(&self) -> Vec<f64> {
        let [m, n] = [self.shape[self.shape.len() - 2], self.shape[self.shape.len() - 1]];
        let at = |k: usize| k / (m * n) * (m * n) + k % m * n + k / m % n;
        (0..self.values.len()).map(|k| self.values[at(k)]).collect()
    }
}

/// Pseudorandom, without ties.
fn value(i: usize) -> f64 {
    let mut x = (i as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    x = (x ^ x >> 31).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    ((x ^ x >> 29) >> 11) as f64 / (1u64 << 52) as f64 - 1.0
}

pub(crate) type Results = Vec<Vec<f64>>;

/// The results of an op on the CPU, dense.
pub(crate) fn on_host(op: &Op, x: &[Array]) -> Results {
    made_on_host(op, x).into_iter().map(|made| made.1).collect()
}

fn made_on_host(op: &Op, x: &[Array]) -> Vec<(Spec, Vec<f64>)> {
    let specs: Vec<Spec> = x.iter().map(|x| Spec::cpu(x.dtype, &x.shape[..])).collect();
    let refs: Vec<&Spec> = specs.iter().collect();
    let layouts: Vec<Layout> = specs.iter().map(|s| Layout::dense(s.shape.clone())).collect();
    let memory: Vec<Buffer> = x
        .iter()
        .map(|x| {
            let bytes = bytes(x.dtype, &x.values);
            Buffer::filled(x.dtype, bytes.len(), |to| {
                to.copy_from_slice(&bytes);
                Ok(())
            })
            .expect("memory")
        })
        .collect();
    let inputs: Vec<Input<'_>> = memory
        .iter()
        .zip(&layouts)
        .zip(&specs)
        .map(|((buffer, layout), spec)| Input { buffer, layout, spec })
        .collect();
    let made = pullback_cpu::run(check(op, &refs).expect("it fits"), &inputs).expect("it runs");
    let of = |out: pullback_cpu::Output| {
        let n = out.spec.len() * out.spec.dtype.size();
        let bytes = out.buffer.slice(0, n).expect("long enough");
        (out.spec.clone(), values(out.spec.dtype, bytes))
    };
    made.into_iter().map(of).collect()
}

/// The results of an op on the device and on the CPU.
pub(crate) fn both(gpu: &Gpu, op: &Op, x: &[Array]) -> (Results, Results) {
    let made = made_on_host(op, x);
    let mut operands = Vec::new();
    for x in x {
        let stored = if x.turned { x.exchanged() } else { x.values.clone() };
        let at = gpu.alloc(8 * stored.len()).expect("memory");
        gpu.upload(&bytes(x.dtype, &stored), at).expect("upload");
        let rank = x.shape.len();
        operands.push(match x.turned {
            false => StridedOperand::dense(at, x.dtype, &x.shape),
            true => {
                let mut shape = x.shape.clone();
                shape.swap(rank - 1, rank - 2);
                let order: Vec<usize> = (0..rank - 2).chain([rank - 1, rank - 2]).collect();
                StridedOperand::dense(at, x.dtype, &shape).permuted(&order)
            }
        });
    }
    let (mut outputs, mut expected) = (Vec::new(), Vec::new());
    for (spec, values) in made {
        let at = gpu.alloc(spec.bytes()).expect("memory");
        gpu.fill(at, 0xff, spec.bytes()).expect("fill");
        outputs.push(StridedOperand::dense(at, spec.dtype, &spec.shape));
        expected.push(values);
    }
    let run = match op {
        Op::Region(region) => {
            let values = region.values().expect("a valid region");
            program::region_loop(gpu, region, &values, &operands, &outputs)
        }
        op => ops::run(gpu, op, &operands, &outputs, None),
    };
    run.expect("it runs on the device");
    let mut found = Vec::new();
    for out in &outputs {
        let mut bytes = vec![0; out.bytes()];
        gpu.download(out.at, &mut bytes).expect("download");
        found.push(values(out.dtype, &bytes));
        gpu.free(out.at);
    }
    operands.iter().for_each(|x| gpu.free(x.at));
    (found, expected)
}

/// The largest difference, relative to the largest number; infinite if NaN are elsewhere.
pub(crate) fn error(a: &[f64], b: &[f64]) -> f64 {
    let unit = b.iter().filter(|v| v.is_finite()).fold(1e-300f64, |m, v| m.max(v.abs()));
    let off = |(a, b): (&f64, &f64)| match (a.is_nan(), b.is_nan()) {
        (true, true) => 0.0,
        (false, false) if a == b => 0.0,
        (false, false) => (a - b).abs() / unit,
        _ => f64::INFINITY,
    };
    a.iter().zip(b).map(off).fold(0.0, f64::max)
}

/// What differs from the CPU, said together at the end of a test.
#[derive(Default)]
pub(crate) struct Report(Vec<String>);

impl Report {
    pub fn close(&mut self, gpu: &Gpu, name: &str, op: &Op, x: &[Array], tolerance: f64) {
        let (found, expected) = both(gpu, op, x);
        for (k, (a, b)) in found.iter().zip(&expected).enumerate() {
            self.check(&format!("{name}, result {k}"), error(a, b), tolerance);
        }
    }

    pub fn check(&mut self, what: &str, error: f64, tolerance: f64) {
        if error.is_nan() || error > tolerance {
            self.0.push(format!("{what}: {error:e}"));
        }
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert!(self.0.is_empty(), "{}", self.0.join("\n"));
        }
    }
}

pub(crate) fn rounding(dtype: DType, n: usize) -> f64 {
    n as f64 * if dtype == DType::F64 { 4e-15 } else { 2e-6 }
}

const FLOATS: [DType; 2] = [DType::F64, DType::F32];

/// A strong diagonal: well conditioned.
fn strong(dtype: DType, shape: &[usize], seed: usize) -> Array {
    let mut a = Array::noise(dtype, shape, seed);
    let [m, n] = [shape[shape.len() - 2], shape[shape.len() - 1]];
    for (k, v) in a.values.iter_mut().enumerate() {
        if k % (m * n) / n == k % n {
            *v += 2.0 + 0.5 * m.max(n) as f64;
        }
    }
    a
}

fn symmetric(mut a: Array) -> Array {
    let turned = a.exchanged();
    a.values.iter_mut().zip(turned).for_each(|(a, b)| *a = (*a + b) / 2.0);
    a
}

#[test]
fn transforms_are_those_of_the_cpu() {
    let Some(gpu) = device() else { return };
    let mut report = Report::default();
    for dtype in FLOATS {
        for shape in [&[8][..], &[1], &[7, 3], &[3, 37], &[2, 5, 3], &[20, 6, 4], &[64, 1009]] {
            for axis in 0..shape.len() {
                let n = shape[axis];
                let pairs = [shape, &[2]].concat();
                for inverse in [false, true] {
                    let op = Op::Fft(Fft::Complex { axis, inverse });
                    let x = Array::noise(dtype, &pairs, 1);
                    let name = format!("{dtype} {shape:?} axis {axis}");
                    report.close(&gpu, &name, &op, &[x], rounding(dtype, 8));
                }
                let op = Op::Fft(Fft::Real(axis));
                let name = format!("{dtype} real {shape:?} axis {axis}");
                let x = Array::noise(dtype, shape, 2);
                report.close(&gpu, &name, &op, std::slice::from_ref(&x), rounding(dtype, 8));
                if shape.len() > 1 {
                    report.close(&gpu, &name, &op, &[x.turned()], rounding(dtype, 8));
                }
                let mut half = pairs.clone();
                half[axis] = n / 2 + 1;
                let op = Op::Fft(Fft::Hermitian { axis, len: n });
                let x = Array::noise(dtype, &half, 3);
                let name = format!("{dtype} hermitian {shape:?} axis {axis}");
                report.close(&gpu, &name, &op, &[x], rounding(dtype, 8));
            }
        }
    }
}

#[test]
fn factors_are_those_of_the_cpu() {
    let Some(gpu) = device() else { return };
    let mut report = Report::default();
    for dtype in FLOATS {
        let shapes: [&[usize]; 11] = [
            &[1, 1],
            &[3, 3],
            &[5, 2],
            &[2, 5],
            &[3, 2, 20, 20],
            &[64, 64],
            &[2, 40, 70],
            &[100, 100],
            &[2, 150, 90],
            &[90, 150],
            &[0, 3, 3],
        ];
        for shape in shapes {
            let n = shape[shape.len() - 2].max(shape[shape.len() - 1]);
            let tolerance = rounding(dtype, n);
            let a = strong(dtype, shape, 4);
            let square = shape[shape.len() - 2] == shape[shape.len() - 1];
            let mut ops = vec![
                ("lu", Linalg::Lu),
                ("qr", Linalg::Qr { complete: false }),
                ("whole qr", Linalg::Qr { complete: true }),
            ];
            if square {
                ops.push(("cholesky", Linalg::Cholesky));
            }
            for (name, op) in ops {
                let op = Op::Linalg(op);
                let name = format!("{name} {dtype} {shape:?}");
                report.close(&gpu, &name, &op, std::slice::from_ref(&a), tolerance);
                report.close(
                    &gpu,
                    &format!("{name} turned"),
                    &op,
                    &[a.clone().turned()],
                    tolerance,
                );
            }
        }
        // Exchanges of rows, and no factor at all.
        for n in [9, 64, 130] {
            let noise = Array::noise(dtype, &[2, n, n], 5);
            let lu = Op::Linalg(Linalg::Lu);
            report.close(
                &gpu,
                &format!("pivots {dtype} {n}"),
                &lu,
                std::slice::from_ref(&noise),
                1e-3,
            );
            let mut singular = noise.clone();
            (0..n).for_each(|i| singular.values[i * n + n / 2] = 0.0);
            (0..n).for_each(|j| singular.values[(n + 1) * n + j] = singular.values[n * n + j]);
            let (found, _) = both(&gpu, &lu, &[singular]);
            let finite = found[0].iter().all(|v| v.is_finite());
            report.check(&format!("singular lu {dtype} {n}"), f64::from(u8::from(!finite)), 0.0);
            let zero = Array::new(dtype, &[n, n], vec![0.0; n * n]);
            report.close(
                &gpu,
                &format!("zero lu {dtype} {n}"),
                &lu,
                std::slice::from_ref(&zero),
                0.0,
            );
            report.close(
                &gpu,
                &format!("zero qr {dtype} {n}"),
                &Op::Linalg(Linalg::Qr { complete: false }),
                &[zero],
                0.0,
            );
            for bad in [-1.0, 0.0, f64::NAN] {
                let mut a = strong(dtype, &[2, n, n], 6);
                a.values[(n / 2) * (n + 1)] = bad;
                let name = format!("not positive {bad} {dtype} {n}");
                let (found, expected) = both(&gpu, &Op::Linalg(Linalg::Cholesky), &[a]);
                // Columns before the first NaN may be unfinished below their block, in the library
                // as on the CPU: the diagonals, and where NaN and zeros are, is what counts.
                let whole = |l: &[f64], k: usize| match k / n % n == k % n {
                    true => l[k],
                    false => l[k] * 0.0,
                };
                let marks = |l: &[f64]| (0..l.len()).map(|k| whole(l, k)).collect::<Vec<_>>();
                let off = error(&marks(&found[0]), &marks(&expected[0]));
                report.check(&name, off, rounding(dtype, n));
            }
        }
    }
}

#[test]
fn systems_are_those_of_the_cpu() {
    let Some(gpu) = device() else { return };
    let mut report = Report::default();
    for dtype in FLOATS {
        for (shape, sides) in
            [(vec![3, 3], 2), (vec![4, 3, 20, 20], 1), (vec![100, 100], 7), (vec![3, 90, 90], 130)]
        {
            let n = shape[shape.len() - 1];
            let a = strong(dtype, &shape, 7);
            let mut right = shape.clone();
            *right.last_mut().expect("two axes") = sides;
            let b = Array::noise(dtype, &right, 8);
            for (upper, unit) in [(false, false), (true, false), (false, true), (true, true)] {
                let op = Op::Linalg(Linalg::TriangularSolve { upper, unit });
                let mut a = a.clone();
                if unit {
                    a.values.iter_mut().for_each(|v| *v *= 0.1 / n as f64);
                }
                let name = format!("triangle {dtype} {shape:?} {upper} {unit}");
                let operands = [a.clone(), b.clone()];
                report.close(&gpu, &name, &op, &operands, rounding(dtype, n));
                let operands = [a.turned(), b.clone().turned()];
                report.close(&gpu, &format!("{name} turned"), &op, &operands, rounding(dtype, n));
            }
            let (factors, _) = both(&gpu, &Op::Linalg(Linalg::Lu), std::slice::from_ref(&a));
            let lu = Array::new(dtype, &shape, factors[0].clone());
            let mut pivots = factors[1].clone();
            // An exchange that is not the identity.
            pivots[0] = n as f64;
            let pivots = Array::new(DType::I32, &shape[..shape.len() - 1], pivots);
            for transpose in [false, true] {
                let op = Op::Linalg(Linalg::LuSolve { transpose });
                let name = format!("lu_solve {dtype} {shape:?} {transpose}");
                let operands = [a.clone(), lu.clone(), pivots.clone(), b.clone()];
                report.close(&gpu, &name, &op, &operands, rounding(dtype, 4 * n));
            }
            let op = Op::Linalg(Linalg::Permutation(n + 1));
            report.close(&gpu, "permutation", &op, &[pivots], 0.0);
        }
    }
    let pivots = Array::new(DType::I32, &[2], vec![3.0, 1.0]);
    let at = gpu.alloc(64).expect("memory");
    gpu.upload(&bytes(DType::I32, &pivots.values), at).expect("upload");
    let (x, y) = (
        StridedOperand::dense(at, DType::I32, &[2]),
        StridedOperand::dense(at + 16, DType::I64, &[2]),
    );
    ops::run(&gpu, &Op::Linalg(Linalg::Permutation(2)), &[x], &[y], None).expect("it starts");
    let error = gpu.synchronize().expect_err("a row that is not there").to_string();
    assert!(error.contains("index 2 (element 0 of the indices) is out of range"), "{error}");
}

#[test]
fn spectra_are_those_of_the_cpu() {
    let Some(gpu) = device() else { return };
    let mut report = Report::default();
    for dtype in FLOATS {
        for shape in [&[1, 1][..], &[3, 3], &[5, 20, 20], &[33, 33], &[2, 70, 70], &[0, 2, 2]] {
            let n = shape[shape.len() - 1];
            let mut a = symmetric(Array::noise(dtype, shape, 9));
            // Eigenvalues that are apart, so that vectors are unique.
            for (k, v) in a.values.iter_mut().enumerate() {
                let (i, j) = (k / n % n, k % n);
                *v = if i == j { 3.0 * i as f64 - 7.0 } else { *v * 0.2 };
            }
            // The upper triangle is not read.
            let mut lower = a.clone();
            for (k, v) in lower.values.iter_mut().enumerate() {
                *v = if k % n > k / n % n { f64::NAN } else { *v };
            }
            for (name, a) in [("eigh", a.clone()), ("eigh, lower", lower.clone())] {
                let name = format!("{name} {dtype} {shape:?}");
                let op = Op::Linalg(Linalg::Eigh);
                report.close(&gpu, &name, &op, &[a], rounding(dtype, 4 * n));
            }
            for scale in [1e-305, 1e305, 1e-30, 1e30] {
                if dtype == DType::F32 && !(1e-35..1e35).contains(&scale) {
                    continue;
                }
                let mut a = a.clone();
                a.values.iter_mut().for_each(|v| *v *= scale);
                for (name, op) in [("eigh", Linalg::Eigh), ("svd", Linalg::Svd { full: false })] {
                    let name = format!("{name} {dtype} {shape:?} of {scale:e}");
                    let (found, expected) = both(&gpu, &Op::Linalg(op), std::slice::from_ref(&a));
                    let k = usize::from(op != Linalg::Eigh);
                    report.check(&name, error(&found[k], &expected[k]), rounding(dtype, 4 * n));
                }
            }
            if n > 1 && a.values.len() > n {
                let mut bad = a.clone();
                bad.values[n] = f64::INFINITY;
                for op in [Linalg::Eigh, Linalg::Svd { full: false }] {
                    let name = format!("not finite {dtype} {shape:?}");
                    let op = Op::Linalg(op);
                    report.close(&gpu, &name, &op, &[bad.clone()], rounding(dtype, 4 * n));
                }
            }
        }
        let shapes: [&[usize]; 9] = [
            &[3, 3],
            &[7, 2],
            &[2, 7],
            &[4, 20, 9],
            &[4, 9, 20],
            &[70, 40],
            &[2, 40, 70],
            &[3, 0],
            &[100, 100],
        ];
        for shape in shapes {
            let [m, n] = [shape[shape.len() - 2], shape[shape.len() - 1]];
            let mut a = Array::noise(dtype, shape, 10);
            for (k, v) in a.values.iter_mut().enumerate() {
                *v = *v * 0.3 + if k / n % m == k % n { 1.0 + 2.0 * (k % n) as f64 } else { 0.0 };
            }
            let name = format!("svd {dtype} {shape:?}");
            let tolerance = rounding(dtype, 4 * m.max(n));
            let op = Op::Linalg(Linalg::Svd { full: false });
            report.close(&gpu, &name, &op, std::slice::from_ref(&a), tolerance);
            report.close(&gpu, &format!("{name} turned"), &op, &[a.clone().turned()], tolerance);
            // Ranks that are not full: whatever the vectors are, they are orthonormal.
            let mut low = a.clone();
            low.values.iter_mut().enumerate().for_each(|(k, v)| {
                *v = value(k / n % m) * (1.5 + value(k % n + 50));
            });
            for (name, a) in [("full", a), ("low", low)] {
                for full in [true, false] {
                    let name = format!("{name} svd {dtype} {shape:?} {full}");
                    let (found, expected) =
                        both(&gpu, &Op::Linalg(Linalg::Svd { full }), std::slice::from_ref(&a));
                    report.check(&name, error(&found[1], &expected[1]), tolerance);
                    check_product(&mut report, &name, &a, &found, (m, n, full), tolerance);
                }
            }
        }
        // Repeated eigenvalues.
        for shape in [&[40, 40][..], &[3, 12, 12]] {
            let n = shape[1].min(shape[shape.len() - 1]);
            let mut a = Array::new(dtype, shape, vec![1.0; shape.iter().product()]);
            a.values.iter_mut().enumerate().for_each(|(k, v)| {
                *v += if k / n % n == k % n { 2.0 } else { 0.0 };
            });
            let (found, expected) = both(&gpu, &Op::Linalg(Linalg::Eigh), &[a]);
            let name = format!("repeated {dtype} {shape:?}");
            report.check(&name, error(&found[0], &expected[0]), rounding(dtype, 4 * n));
            let off = unlike_identity(&found[1][..n * n], n, n);
            report.check(&format!("{name}, vectors"), off, rounding(dtype, 4 * n));
        }
    }
}

/// How far the columns of a row-major matrix are from orthonormal.
fn unlike_identity(q: &[f64], rows: usize, columns: usize) -> f64 {
    let mut most = 0.0f64;
    for i in 0..columns {
        for j in 0..columns {
            let dot: f64 = (0..rows).map(|r| q[r * columns + i] * q[r * columns + j]).sum();
            let off = (dot - f64::from(u8::from(i == j))).abs();
            most = if off.is_nan() { f64::INFINITY } else { most.max(off) };
        }
    }
    most
}

/// U·diag(s)·Vᵀ is A, and U and V are orthonormal, for the first matrix of a stack.
fn check_product(
    report: &mut Report,
    name: &str,
    a: &Array,
    found: &[Vec<f64>],
    (m, n, full): (usize, usize, bool),
    tolerance: f64,
) {
    let k = m.min(n);
    let (left, right) = if full { (m, n) } else { (k, k) };
    let (u, s, v) = (&found[0], &found[1], &found[2]);
    let unit = s.iter().copied().fold(1e-300, f64::max);
    let mut most = 0.0f64;
    for i in 0..m {
        for j in 0..n {
            let sum: f64 = (0..k).map(|c| u[i * left + c] * s[c] * v[c * n + j]).sum();
            let off = (sum - a.values[i * n + j]).abs() / unit;
            most = if off.is_nan() { f64::INFINITY } else { most.max(off) };
        }
    }
    report.check(&format!("{name}, product"), most, tolerance);
    report.check(&format!("{name}, U"), unlike_identity(&u[..m * left], m, left), tolerance);
    let turned: Vec<f64> = (0..n * right).map(|at| v[at % right * n + at / right]).collect();
    report.check(&format!("{name}, V"), unlike_identity(&turned, n, right), tolerance);
}

#[test]
fn dropped_weights_are_those_of_the_cpu() {
    let Some(gpu) = device() else { return };
    let mut report = Report::default();
    for dtype in FLOATS {
        let kinds = [
            (vec![2], true, 0.3),
            (vec![2, 2], false, 0.3),
            (vec![0], true, 0.0),
            (vec![0], false, 0.0),
        ];
        for (keys, causal, dropout) in kinds {
            let how = Attention { causal, masked: false, scale: Real(0.4), dropout: Real(dropout) };
            let (q, k) = ([2, 4, 17, 8], [2, 2, 23, 8]);
            let count = keys.iter().product();
            let key = Array::new(DType::I64, &keys, (0..count).map(|i| 71.0 + i as f64).collect());
            let mut x = vec![
                Array::noise(dtype, &q, 11),
                Array::noise(dtype, &k, 12),
                Array::noise(dtype, &k, 13),
            ];
            x.extend(how.drops().then_some(key));
            let op = Op::Fused(Fused::Attention(how));
            let name = format!("attention {dtype} {causal} {dropout}");
            report.close(&gpu, &name, &op, &x, rounding(dtype, 10));
            let (_, made) = both(&gpu, &op, &x);
            x.push(Array::new(dtype, &q, made[0].clone()));
            x.push(Array::new(dtype, &q[..3], made[1].clone()));
            x.push(Array::noise(dtype, &q, 14));
            let op = Op::Fused(Fused::AttentionVjp(how));
            report.close(&gpu, &format!("{name}, back"), &op, &x, rounding(dtype, 40));
        }
    }
}
