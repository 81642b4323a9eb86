//! Every op on every dtype against a naive reference, and every layout of a source.

use super::*;
use crate::elem::{Elem, with_elem};
use crate::special;
use half::{bf16, f16};

/// Elements of any dtype, in memory that is aligned for all of them.
#[derive(Clone)]
struct Data {
    words: Vec<u64>,
    dtype: DType,
    len: usize,
}

impl Data {
    fn new(dtype: DType, len: usize) -> Data {
        Data { words: vec![0; (len * dtype.size()).div_ceil(8) + 8], dtype, len }
    }
    fn of(dtype: DType, values: &[f64]) -> Data {
        let mut data = Data::new(dtype, values.len());
        values.iter().enumerate().for_each(|(i, &v)| data.set(i, v));
        data
    }
    fn set(&mut self, i: usize, v: f64) {
        // SAFETY: inside this memory.
        with_elem!(self.dtype, T => unsafe { self.words.as_mut_ptr().cast::<T>().add(i).write(T::of(v.into())) });
    }
    #[allow(clippy::unnecessary_cast)] // not for every dtype
    fn get(&self, i: usize) -> f64 {
        // SAFETY: inside this memory.
        with_elem!(self.dtype, T => unsafe { self.words.as_ptr().cast::<T>().add(i).read().load() as f64 })
    }
    fn all(&self) -> Vec<f64> {
        (0..self.len).map(|i| self.get(i)).collect()
    }
    fn source<'a>(&'a self, shape: &'a [usize], strides: &'a [isize], offset: usize) -> Source<'a> {
        let ptr = self.words.as_ptr().cast::<u8>().wrapping_add(offset * self.dtype.size());
        Source { ptr, shape, strides, dtype: self.dtype }
    }
    fn sink<'a>(&mut self, shape: &'a [usize]) -> Sink<'a> {
        Sink { ptr: self.words.as_mut_ptr().cast(), shape, dtype: self.dtype }
    }
}

fn sample(n: usize) -> Vec<f64> {
    (0..n).map(|i| (i as f64 * 0.7391).sin() * 4.0 + ((i % 5) as f64 - 2.0) * 0.25).collect()
}

/// Rounds as the dtype does.
fn rounded(dtype: DType, v: f64) -> f64 {
    match dtype {
        DType::F64 => v,
        DType::F32 => f64::from(v as f32),
        DType::BF16 => bf16::from_f64(v).to_f64(),
        DType::F16 => f16::from_f64(v).to_f64(),
        DType::I64 => v,
        DType::I32 => f64::from(v as i64 as i32),
        DType::U8 => f64::from(v as i64 as u8),
        DType::Bool => f64::from(u8::from(v != 0.0)),
    }
}

fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 1e-13,
        DType::F32 => 3e-6,
        DType::BF16 => 8e-3,
        DType::F16 => 1e-3,
        _ => 0.0,
    }
}

fn close(got: f64, want: f64, tol: f64) -> bool {
    got == want || got.is_nan() && want.is_nan() || (got - want).abs() <= tol * (want.abs() + 1e-3)
}

fn naive(op: Unary, x: f64) -> f64 {
    use Unary::*;
    let erf = |x: f64| crate::simd::math64::erf::<crate::simd::Baseline>(x);
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    match op {
        Neg => -x,
        Abs => x.abs(),
        Sign => {
            if x == 0.0 || x.is_nan() {
                x
            } else {
                x.signum()
            }
        }
        Floor => x.floor(),
        Ceil => x.ceil(),
        Round => x.round_ties_even(),
        Trunc => x.trunc(),
        Stop => x,
        Not => f64::from(u8::from(x == 0.0)),
        Square => x * x,
        Sqrt => x.sqrt(),
        Rsqrt => 1.0 / x.sqrt(),
        Recip => 1.0 / x,
        Exp => x.exp(),
        Exp2 => x.exp2(),
        Expm1 => x.exp_m1(),
        Log => x.ln(),
        Log2 => x.log2(),
        Log10 => x.log10(),
        Log1p => x.ln_1p(),
        Sin => x.sin(),
        Cos => x.cos(),
        Tan => x.tan(),
        Asin => x.asin(),
        Acos => x.acos(),
        Atan => x.atan(),
        Sinh => x.sinh(),
        Cosh => x.cosh(),
        Tanh => x.tanh(),
        Asinh => x.asinh(),
        Acosh => x.acosh(),
        Atanh => x.atanh(),
        Erf => erf(x),
        Erfc => 1.0 - erf(x),
        // Tested in `special`; here, that each op runs the right function.
        Erfcx => special::erfcx(x),
        Erfinv => special::erfinv(x),
        LogNdtr => special::log_ndtr(x),
        Ndtri => special::ndtri(x),
        Lgamma => special::lgamma(x),
        Digamma => special::digamma(x),
        I0 => special::i0(x),
        I0e => special::i0e(x),
        I1 => special::i1(x),
        I1e => special::i1e(x),
        Sigmoid => sigmoid(x),
        Relu => x.max(0.0),
        Gelu => 0.5 * x * (1.0 + erf(x / 2f64.sqrt())),
        GeluTanh => {
            0.5 * x
                * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)).tanh())
        }
        Silu => x * sigmoid(x),
    }
}

#[test]
fn every_unary_on_every_dtype() {
    for dtype in DType::ALL {
        let values: Vec<f64> = sample(1030)
            .into_iter()
            .map(|v| rounded(dtype, if dtype.is_float() { v } else { v.round() }))
            .collect();
        let x = Data::of(dtype, &values);
        for &op in Unary::ALL {
            let allowed = match op {
                Unary::Not => !dtype.is_float(),
                _ => dtype.is_float() || op.takes_ints() && dtype != DType::Bool,
            };
            if !allowed {
                continue;
            }
            let mut y = Data::new(dtype, x.len);
            let shape = [x.len];
            unary(op, &x.source(&shape, &[1], 0), &y.sink(&shape));
            for i in 0..x.len {
                let want = match (op, dtype) {
                    (Unary::Not, DType::I64 | DType::I32 | DType::U8) => {
                        rounded(dtype, !(x.get(i) as i64) as f64)
                    }
                    _ => rounded(dtype, naive(op, x.get(i))),
                };
                // The naive references of these cancel in the tail.
                let tol = tolerance(dtype)
                    * if matches!(op, Unary::Gelu | Unary::GeluTanh | Unary::Erfc) {
                        100.0
                    } else {
                        1.0
                    };
                assert!(
                    close(y.get(i), want, tol),
                    "{op:?} {dtype} {}: {} not {want}",
                    x.get(i),
                    y.get(i)
                );
            }
        }
    }
}

#[test]
fn every_fused_derivative_is_the_slope() {
    let x: Vec<f64> = sample(300).into_iter().filter(|v| v.abs() > 0.05).collect();
    for &op in Unary::ALL {
        let Some(kept) = op.fused_vjp() else { continue };
        for dtype in [DType::F64, DType::F32] {
            let positive = matches!(op, Unary::Sqrt | Unary::Rsqrt | Unary::Log);
            let x: Vec<f64> =
                x.iter().map(|v| rounded(dtype, if positive { v.abs() } else { *v })).collect();
            let value = |x: f64| if kept == pullback_ir::VjpOperand::X { x } else { naive(op, x) };
            let keep = Data::of(dtype, &x.iter().map(|&x| value(x)).collect::<Vec<_>>());
            let dy = Data::of(dtype, &vec![1.5; x.len()]);
            let mut out = Data::new(dtype, x.len());
            let shape = [x.len()];
            unary_vjp(
                op,
                &keep.source(&shape, &[1], 0),
                &dy.source(&shape, &[1], 0),
                &out.sink(&shape),
            );
            for (i, &x) in x.iter().enumerate() {
                let h = 1e-5;
                let slope = (naive(op, x + h) - naive(op, x - h)) / (2.0 * h);
                let tol = if dtype == DType::F64 { 1e-7 } else { 2e-4 };
                assert!(
                    (out.get(i) - 1.5 * slope).abs() <= tol * (1.0 + slope.abs()),
                    "{op:?} {dtype} at {x}: {} not {}",
                    out.get(i),
                    1.5 * slope
                );
            }
        }
    }
    // At infinity the limits, not NaN.
    for op in [Unary::Gelu, Unary::GeluTanh, Unary::Silu] {
        for dtype in [DType::F32, DType::F64] {
            let keep = Data::of(dtype, &[f64::INFINITY, f64::NEG_INFINITY, 1e30, -1e30]);
            let dy = Data::of(dtype, &[1.0; 4]);
            let mut out = Data::new(dtype, 4);
            unary_vjp(op, &keep.source(&[4], &[1], 0), &dy.source(&[4], &[1], 0), &out.sink(&[4]));
            assert!(
                out.all().iter().zip([1.0, 0.0, 1.0, 0.0]).all(|(a, b)| (a - b).abs() < 1e-30),
                "{op:?} {:?}",
                out.all()
            );
            unary(op, &keep.source(&[4], &[1], 0), &out.sink(&[4]));
            assert_eq!(out.get(0), f64::INFINITY);
            assert_eq!((out.get(1), out.get(3)), (0.0, 0.0), "{op:?}");
        }
    }
}

fn naive2(op: Binary, a: f64, b: f64) -> f64 {
    use Binary::*;
    match op {
        Add => a + b,
        Sub => a - b,
        Mul => a * b,
        Div => a / b,
        Remainder => a - b * (a / b).floor(),
        Fmod => a % b,
        FloorDiv => (a / b).floor(),
        Pow => a.powf(b),
        Atan2 => a.atan2(b),
        Copysign => a.copysign(b),
        Zeta => special::zeta(a, b),
        Gammainc => special::gammainc(a, b),
        Gammaincc => special::gammaincc(a, b),
        Maximum => a.max(b),
        Minimum => a.min(b),
        And => ((a as i64) & (b as i64)) as f64,
        Or => ((a as i64) | (b as i64)) as f64,
        Xor => ((a as i64) ^ (b as i64)) as f64,
        ShiftLeft if (0.0..64.0).contains(&b) => a * 2f64.powf(b),
        ShiftLeft => 0.0,
        ShiftRight if (0.0..64.0).contains(&b) => (a / 2f64.powf(b)).floor(),
        ShiftRight => {
            if a < 0.0 {
                -1.0
            } else {
                0.0
            }
        }
        Gcd => {
            let (mut a, mut b) = (a.abs(), b.abs());
            while b != 0.0 {
                (a, b) = (b, a % b);
            }
            a
        }
    }
}

#[test]
fn every_binary_and_comparison_on_every_dtype() {
    for dtype in DType::ALL {
        let whole = |v: Vec<f64>| -> Vec<f64> {
            v.into_iter()
                .map(|v| rounded(dtype, if dtype.is_float() { v } else { v.round() }))
                .collect()
        };
        let a = Data::of(dtype, &whole(sample(1100)));
        let b = Data::of(
            dtype,
            &whole(
                sample(1200)[100..].iter().map(|v| if v.abs() < 0.6 { 1.0 } else { *v }).collect(),
            ),
        );
        let shape = [a.len];
        for &op in Binary::ALL {
            if !op.takes().has(dtype) || (op == Binary::Pow && !dtype.is_float()) {
                continue;
            }
            let mut y = Data::new(dtype, a.len);
            binary(op, &a.source(&shape, &[1], 0), &b.source(&shape, &[1], 0), &y.sink(&shape));
            for i in 0..a.len {
                let want = rounded(dtype, naive2(op, a.get(i), b.get(i)));
                let tol = tolerance(dtype)
                    * if matches!(op, Binary::Remainder | Binary::Pow) { 100.0 } else { 1.0 };
                assert!(
                    close(y.get(i), want, tol),
                    "{op:?} {dtype} {} {}: {} not {want}",
                    a.get(i),
                    b.get(i),
                    y.get(i)
                );
            }
        }
        for &op in Compare::ALL {
            let mut y = Data::new(DType::Bool, a.len);
            compare(op, &a.source(&shape, &[1], 0), &b.source(&shape, &[1], 0), &y.sink(&shape));
            for i in 0..a.len {
                let (a, b) = (a.get(i), b.get(i));
                let want = match op {
                    Compare::Eq => a == b,
                    Compare::Ne => a != b,
                    Compare::Lt => a < b,
                    Compare::Le => a <= b,
                    Compare::Gt => a > b,
                    Compare::Ge => a >= b,
                };
                assert_eq!(y.get(i), f64::from(u8::from(want)), "{op:?} {a} {b}");
            }
        }
    }
}

#[test]
fn integers_wrap_and_division_by_zero_is_zero() {
    let one = |op, a: i64, b: i64| {
        let (x, y) = ([a], [b]);
        let mut out = [7i64];
        let source = |p: &[i64; 1]| Source {
            ptr: p.as_ptr().cast(),
            shape: &[1],
            strides: &[1],
            dtype: DType::I64,
        };
        binary(
            op,
            &source(&x),
            &source(&y),
            &Sink { ptr: out.as_mut_ptr().cast(), shape: &[1], dtype: DType::I64 },
        );
        out[0]
    };
    for op in [Binary::Div, Binary::Remainder, Binary::Fmod, Binary::FloorDiv] {
        assert_eq!(one(op, 5, 0), 0);
        one(op, i64::MIN, -1);
    }
    assert_eq!(one(Binary::Add, i64::MAX, 1), i64::MIN);
    assert_eq!(one(Binary::Remainder, -7, 3), 2);
    assert_eq!(one(Binary::Fmod, -7, 3), -1);
    assert_eq!(one(Binary::FloorDiv, -7, 3), -3);
    assert_eq!(one(Binary::Pow, 3, 13), 1594323);
    assert_eq!(
        (one(Binary::Pow, -1, -3), one(Binary::Pow, 2, -1), one(Binary::Pow, 0, 0)),
        (-1, 0, 1)
    );
}

#[test]
fn sources_may_lie_anywhere() {
    // (shape, strides, offset) of the second operand; the first is dense.
    let cases: &[(&[usize], &[isize], usize)] = &[
        (&[37, 29], &[29, 1], 0),
        (&[37, 29], &[1, 37], 0),
        (&[37, 29], &[-29, 1], 36 * 29),
        (&[37, 29], &[-29, -1], 37 * 29 - 1),
        (&[37, 29], &[0, 1], 3),
        (&[37, 29], &[1, 0], 3),
        (&[37, 29], &[0, 0], 3),
        (&[37, 29], &[58, 2], 1),
        (&[5, 6, 7, 3], &[1, 5, 30, 210], 0),
        (&[1030], &[1], 3),
        (&[], &[], 2),
        (&[3, 0, 2], &[0, 2, 1], 0),
        (&[400, 300], &[1, 400], 0),
        (&[3, 200, 210], &[42000, 1, 200], 0),
    ];
    for dtype in DType::ALL {
        for &(shape, strides, offset) in cases {
            let n: usize = shape.iter().product();
            let b = Data::of(
                dtype,
                &(0..2 * n + 8).map(|i| ((i * 7 + i / 11) % 13) as f64).collect::<Vec<_>>(),
            );
            let a = Data::of(dtype, &(0..n).map(|i| (i % 10) as f64).collect::<Vec<_>>());
            let dense = pullback_ir::dense_strides(shape);
            let at: Vec<f64> = (0..n)
                .map(|i| {
                    let (mut rest, mut place) = (i, offset as isize);
                    for d in (0..shape.len()).rev() {
                        place += (rest % shape[d]) as isize * strides[d];
                        rest /= shape[d];
                    }
                    b.get(place as usize)
                })
                .collect();
            let mut y = Data::new(dtype, n);
            copy(b.source(shape, strides, offset), y.sink(shape));
            assert_eq!(y.all(), at, "copy {dtype} {shape:?} {strides:?}");
            let want: Vec<f64> = (0..n).map(|i| rounded(dtype, a.get(i).max(at[i]))).collect();
            let mut y = Data::new(dtype, n);
            binary(
                Binary::Maximum,
                &a.source(shape, &dense, 0),
                &b.source(shape, strides, offset),
                &y.sink(shape),
            );
            assert_eq!(y.all(), want, "{dtype} {shape:?} {strides:?}");
            // In place, over the first operand.
            let mut y = a.clone();
            let (x, out) = (
                Source { ptr: y.words.as_ptr().cast(), ..a.source(shape, &dense, 0) },
                y.sink(shape),
            );
            binary(Binary::Maximum, &x, &b.source(shape, strides, offset), &out);
            assert_eq!(y.all(), want, "in place {dtype} {shape:?} {strides:?}");
            // Written through the view, if it reaches no element twice.
            if !strides.contains(&0) {
                let mut y = Data::new(dtype, 2 * n + 8);
                let to = y.words.as_mut_ptr().cast::<u8>().wrapping_add(offset * dtype.size());
                copy_to(a.source(shape, &dense, 0), to, strides);
                let mut back = Data::new(dtype, n);
                copy(y.source(shape, strides, offset), back.sink(shape));
                assert_eq!(back.all(), a.all(), "copy_to {dtype} {shape:?} {strides:?}");
            }
            let c = Data::of(
                DType::Bool,
                &(0..n).map(|i| (i % 3 == 0) as u8 as f64).collect::<Vec<_>>(),
            );
            let mut y = Data::new(dtype, n);
            select(
                c.source(shape, &dense, 0),
                a.source(shape, &dense, 0),
                b.source(shape, strides, offset),
                y.sink(shape),
            );
            let want: Vec<f64> =
                (0..n).map(|i| if i % 3 == 0 { a.get(i) } else { at[i] }).collect();
            assert_eq!(y.all(), want, "select {dtype} {shape:?} {strides:?}");
        }
    }
}

#[test]
fn lengths_around_a_block_and_large_ones_in_place_and_not() {
    for n in [0, 1, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 1023, 1024, 1025, 70_001, 5_000_001] {
        let shape = [n];
        let values: Vec<f32> = (0..n).map(|i| (i % 1000) as f32 * 0.01 - 5.0).collect();
        let source = |p: *const f32| Source {
            ptr: p.cast(),
            shape: &shape,
            strides: &[1],
            dtype: DType::F32,
        };
        for op in [Unary::Exp, Unary::Neg] {
            // An aligned sink of any length, to reach the streaming path.
            let mut y = crate::buffer::Buffer::alloc(n * 4 + 4).expect("memory");
            unary(
                op,
                &source(values.as_ptr()),
                &Sink { ptr: y.as_mut_ptr(), shape: &shape, dtype: DType::F32 },
            );
            // SAFETY: filled above.
            let y = unsafe { std::slice::from_raw_parts(y.as_ptr().cast::<f32>(), n) };
            let mut z = values.clone();
            unary(
                op,
                &source(z.as_ptr()),
                &Sink { ptr: z.as_mut_ptr().cast(), shape: &shape, dtype: DType::F32 },
            );
            assert!(y == z, "{op:?} {n}");
            let one = crate::par::with_threads(1, || {
                let mut w = vec![0f32; n];
                unary(
                    op,
                    &source(values.as_ptr()),
                    &Sink { ptr: w.as_mut_ptr().cast(), shape: &shape, dtype: DType::F32 },
                );
                w
            });
            assert!(one == z, "{op:?} {n} on one thread");
            for i in (0..n).step_by(97) {
                assert!(close(f64::from(y[i]), naive(op, f64::from(values[i])), 1e-6));
            }
        }
    }
}

#[test]
fn casts_give_the_nearest_value() {
    let values = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.4,
        1.5,
        2.5,
        -2.7,
        100.3,
        300.0,
        -300.0,
        65519.0,
        65520.0,
        3e9,
        -3e9,
        1e19,
        -1e19,
        1e-8,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
    ];
    for from in DType::ALL {
        let x = Data::of(from, &values);
        for to in DType::ALL {
            let mut y = Data::new(to, x.len);
            let shape = [x.len];
            cast(x.source(&shape, &[1], 0), y.sink(&shape));
            for i in 0..x.len {
                let v = x.get(i);
                let want = match to {
                    DType::I64 => v as i64 as f64,
                    DType::I32 => f64::from(v as i32),
                    DType::U8 => f64::from(v as u8),
                    _ => rounded(to, v),
                };
                assert!(
                    y.get(i) == want || y.get(i).is_nan() && want.is_nan(),
                    "{from} -> {to}: {v} gave {} not {want}",
                    y.get(i)
                );
            }
        }
    }
    // Rounded once: just above a tie of bf16 that f32 would round onto the tie.
    let v = 1.0 + 2f64.powi(-8) + 2f64.powi(-40);
    let x = Data::of(DType::F64, &[v, -v]);
    let mut y = Data::new(DType::BF16, 2);
    cast(x.source(&[2], &[1], 0), y.sink(&[2]));
    assert_eq!(y.all(), [1.0 + 2f64.powi(-7), -1.0 - 2f64.powi(-7)]);
}

#[test]
fn fill_writes_every_dtype() {
    for dtype in DType::ALL {
        for n in [0, 1, 17, 600_000] {
            let mut y = Data::new(dtype, n);
            fill(1.0.into(), y.sink(&[n]));
            assert!(y.all().iter().all(|&v| v == 1.0));
        }
    }
}

#[test]
fn huge_angles_use_the_slow_path() {
    let x = Data::of(DType::F32, &[1e7, 3e30, -2e6, 0.5]);
    let mut y = Data::new(DType::F32, 4);
    unary(Unary::Sin, &x.source(&[4], &[1], 0), &y.sink(&[4]));
    for i in 0..4 {
        assert!(close(y.get(i), x.get(i).sin(), 1e-6), "{} {}", y.get(i), x.get(i).sin());
    }
}

/// Remainders of f32 are those of C, bit for bit, whatever the quotient.
#[test]
fn remainders_are_exact() {
    // Bit patterns of a generator that visits all of them.
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f32::from_bits(state)
    };
    let near = [1.0, -1.0, 3.0, 0.1, -0.7, 1e8, 16_777_216.0, 0.0, f32::INFINITY, f32::NAN];
    let mut pairs: Vec<(f32, f32)> = (0..200_000).map(|_| (next(), next())).collect();
    pairs.extend(near.iter().flat_map(|&a| near.iter().map(move |&b| (a, b))));
    pairs.extend((1..2000u16).map(|i| (f32::from(i) * 0.1, 0.1)));
    let (a, b): (Vec<f32>, Vec<f32>) = pairs.into_iter().unzip();
    for &level in crate::simd::Level::available() {
        let mut y = vec![0.0f32; a.len()];
        let kernel = float::binary32(Binary::Fmod, level);
        // SAFETY: all have this length, and do not overlap.
        unsafe { kernel.run(a.as_ptr(), b.as_ptr(), y.as_mut_ptr(), a.len()) };
        for (i, &got) in y.iter().enumerate() {
            let want = a[i] % b[i];
            let same = got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan();
            assert!(same, "{:e} % {:e} = {got:e}, not {want:e}", a[i], b[i]);
        }
    }
}
