//! A naive twin of every kernel: index by index, in `f64`, as the definition says.

use super::special::{self, erf};
use super::{attention, batch_norm, ctc, distances, layer_norm, order, update};
use pullback::{DType, Op, Tensor};
use pullback_ir::{
    Binary, Combine, Compare, Cumulation, Extreme, Fused, Padding, Reduction, Unary, View,
    diagonal_len,
};
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, PI};

/// Values in row-major order. Integers and booleans are held as floats, exactly (the samples are
/// small).
#[derive(Clone, Debug)]
pub struct Array {
    pub shape: Vec<usize>,
    pub values: Vec<f64>,
    pub dtype: DType,
}

impl Array {
    pub fn of(x: &Tensor) -> Array {
        Array { shape: x.shape().to_vec(), values: x.to_f64_vec(), dtype: x.dtype() }
    }

    pub fn make(shape: &[usize], dtype: DType, mut f: impl FnMut(&[usize]) -> f64) -> Array {
        let values = indices(shape).iter().map(|i| f(i)).collect();
        Array { shape: shape.to_vec(), values, dtype }
    }

    pub fn at(&self, index: &[usize]) -> f64 {
        self.values[ravel(index, &self.shape)]
    }

    /// The elements along the last axis, at an index into the other axes.
    pub fn last_line(&self, index: &[usize]) -> &[f64] {
        let n = self.shape[index.len()];
        &self.values[ravel(index, &self.shape) * n..][..n]
    }

    pub fn map(&self, f: impl Fn(f64) -> f64) -> Array {
        Array { values: self.values.iter().map(|&v| f(v)).collect(), ..self.clone() }
    }

    fn zip(&self, other: &Array, f: impl Fn(f64, f64) -> f64) -> Array {
        let values = self.values.iter().zip(&other.values).map(|(&a, &b)| f(a, b)).collect();
        Array { values, ..self.clone() }
    }

    /// The line through `index` along an axis.
    pub fn line(&self, index: &[usize], axis: usize) -> Vec<f64> {
        (0..self.shape[axis]).map(|k| self.at(&with(index, axis, k))).collect()
    }
}

pub fn indices(shape: &[usize]) -> Vec<Vec<usize>> {
    let mut all = vec![vec![]];
    for &n in shape {
        all = all
            .iter()
            .flat_map(|head| (0..n).map(move |k| [head.clone(), vec![k]].concat()))
            .collect();
    }
    all
}

pub fn ravel(index: &[usize], shape: &[usize]) -> usize {
    index.iter().zip(shape).fold(0, |flat, (&i, &n)| flat * n + i)
}

fn with(index: &[usize], axis: usize, k: usize) -> Vec<usize> {
    let mut index = index.to_vec();
    index[axis] = k;
    index
}

fn inserted(index: &[usize], axis: usize, k: usize) -> Vec<usize> {
    let mut index = index.to_vec();
    index.insert(axis, k);
    index
}

/// The results, or nothing where they have no definition but the kernel's own (random numbers).
pub fn naive(op: &Op, x: &[Array]) -> Option<Vec<Array>> {
    let one = |y: Array| Some(vec![y]);
    match op {
        Op::Literal { value, shape, dtype, device: _ } => {
            one(Array::make(shape, *dtype, |_| value.as_f64()))
        }
        Op::Iota { len, dtype, device: _ } => one(Array::make(&[*len], *dtype, |i| i[0] as f64)),
        Op::Random { .. } => None,
        Op::Unary(f) => one(x[0].map(|v| unary(*f, v, x[0].dtype))),
        Op::UnaryVjp(f) => one(x[0].zip(&x[1], |v, dy| dy * slope(*f, v))),
        Op::Binary(f) => one(x[0].zip(&x[1], |a, b| binary(*f, a, b, x[0].dtype))),
        Op::Compare(f) => {
            let y = x[0].zip(&x[1], |a, b| f64::from(u8::from(compare(*f, a, b))));
            one(Array { dtype: DType::Bool, ..y })
        }
        Op::Select => {
            let pick = |i: &[usize]| if x[0].at(i) != 0.0 { x[1].at(i) } else { x[2].at(i) };
            one(Array::make(&x[1].shape, x[1].dtype, pick))
        }
        Op::Cast(dtype) => one(Array { dtype: *dtype, ..x[0].map(|v| cast(v, *dtype)) }),
        Op::View(view) => one(viewed(view, &x[0])),
        Op::Copy | Op::To(_) | Op::After => one(x[0].clone()),
        Op::Put(views) => one(put(views, &x[0], &x[1])),
        Op::Pad(padding) => one(pad(padding, &x[0])),
        Op::Cat(axis) => {
            let mut shape = x[0].shape.clone();
            shape[*axis] = x.iter().map(|x| x.shape[*axis]).sum();
            let find = |i: &[usize]| {
                let mut k = i[*axis];
                for x in x {
                    if k < x.shape[*axis] {
                        return x.at(&with(i, *axis, k));
                    }
                    k -= x.shape[*axis];
                }
                f64::NAN
            };
            one(Array::make(&shape, x[0].dtype, find))
        }
        Op::Gather(axis) => {
            let take = |i: &[usize]| x[0].at(&with(i, *axis, x[1].at(i) as usize));
            one(Array::make(&x[1].shape, x[0].dtype, take))
        }
        Op::Scatter(axis, combine) => {
            let mut out = x[0].clone();
            for i in indices(&x[1].shape) {
                let to = ravel(&with(&i, *axis, x[1].at(&i) as usize), &out.shape);
                let (old, new) = (out.values[to], x[2].at(&i));
                out.values[to] = match combine {
                    Combine::Set => new,
                    Combine::Add => old + new,
                    Combine::Mul => old * new,
                    Combine::Max => binary(Binary::Maximum, old, new, out.dtype),
                    Combine::Min => binary(Binary::Minimum, old, new, out.dtype),
                };
            }
            one(out)
        }
        Op::Reduce(kind, axes) => one(reduce(*kind, axes, &x[0])),
        Op::ArgReduce(kind, axis) => {
            let mut shape = x[0].shape.clone();
            shape.remove(*axis);
            let best = |line: Vec<f64>| {
                let better = |a: f64, b: f64| match kind {
                    Extreme::Max => a > b,
                    Extreme::Min => a < b,
                };
                // NaN is more extreme than anything; the first of equals stays.
                let step = |at: usize, k: usize| {
                    let (old, new) = (line[at], line[k]);
                    if !old.is_nan() && (new.is_nan() || better(new, old)) { k } else { at }
                };
                (1..line.len()).fold(0, step) as f64
            };
            one(Array::make(&shape, DType::I64, |i| best(x[0].line(&inserted(i, *axis, 0), *axis))))
        }
        Op::Cumulate { kind, axis, reverse } => {
            let run = |i: &[usize]| {
                let line = x[0].line(i, *axis);
                let part = if *reverse { &line[i[*axis]..] } else { &line[..=i[*axis]] };
                cumulate(*kind, part)
            };
            let wide = matches!(kind, Cumulation::Sum | Cumulation::Prod);
            let dtype = if wide && !x[0].dtype.is_float() { DType::I64 } else { x[0].dtype };
            one(Array::make(&x[0].shape, dtype, run))
        }
        Op::Sort { axis, descending } => {
            Some(order::ranks(&x[0], *axis, *descending, 0, x[0].shape[*axis]))
        }
        Op::Ranks { axis, descending, from, count } => {
            Some(order::ranks(&x[0], *axis, *descending, *from, *count))
        }
        Op::Dot => {
            let rank = x[0].shape.len();
            let mut shape = x[0].shape.clone();
            shape[rank - 1] = x[1].shape[rank - 1];
            let inner = |i: &[usize]| {
                let term = |k| x[0].at(&with(i, rank - 1, k)) * x[1].at(&with(i, rank - 2, k));
                (0..x[0].shape[rank - 1]).map(term).sum()
            };
            one(Array::make(&shape, x[0].dtype, inner))
        }
        Op::Conv(c) => one(super::windows::conv(c, x)),
        Op::Pool(p) => one(super::windows::pool(p, x)),
        Op::Linalg(f) => super::linalg::naive(*f, x),
        Op::Fft(f) => super::linalg::fft_naive(*f, x),
        Op::Fused(f) => Some(fused(*f, x)),
        // Of one worker.
        Op::Collective(_) => one(x[0].clone()),
        Op::Region(_)
        | Op::DotRegion(_)
        | Op::Flow(_)
        | Op::Custom(_)
        | Op::Wait
        | Op::Transfer(_) => {
            unreachable!("not among the forms")
        }
    }
}

#[rustfmt::skip]
fn unary(f: Unary, x: f64, dtype: DType) -> f64 {
    match f {
        Unary::Neg      => -x,
        Unary::Abs      => x.abs(),
        Unary::Sign     => if x == 0.0 || x.is_nan() { x } else { x.signum() },
        Unary::Floor    => x.floor(),
        Unary::Ceil     => x.ceil(),
        Unary::Round    => x.round_ties_even(),
        Unary::Trunc    => x.trunc(),
        Unary::Stop     => x,
        Unary::Not      => if dtype == DType::Bool { 1.0 - x } else { -x - 1.0 },
        Unary::Square   => x * x,
        Unary::Sqrt     => x.sqrt(),
        Unary::Rsqrt    => 1.0 / x.sqrt(),
        Unary::Recip    => 1.0 / x,
        Unary::Exp      => x.exp(),
        Unary::Exp2     => x.exp2(),
        Unary::Expm1    => x.exp_m1(),
        Unary::Log      => x.ln(),
        Unary::Log2     => x.log2(),
        Unary::Log10    => x.log10(),
        Unary::Log1p    => x.ln_1p(),
        Unary::Sin      => x.sin(),
        Unary::Cos      => x.cos(),
        Unary::Tan      => x.tan(),
        Unary::Asin     => x.asin(),
        Unary::Acos     => x.acos(),
        Unary::Atan     => x.atan(),
        Unary::Sinh     => x.sinh(),
        Unary::Cosh     => x.cosh(),
        Unary::Tanh     => x.tanh(),
        Unary::Asinh    => x.asinh(),
        Unary::Acosh    => x.acosh(),
        Unary::Atanh    => x.atanh(),
        Unary::Erf      => erf(x),
        Unary::Erfc     => 1.0 - erf(x),
        Unary::Erfcx    => special::erfcx(x),
        Unary::Erfinv   => special::erfinv(x),
        Unary::LogNdtr  => special::log_ndtr(x),
        Unary::Ndtri    => special::ndtri(x),
        Unary::Lgamma   => special::lgamma(x),
        Unary::Digamma  => special::digamma(x),
        Unary::I0       => special::bessel(0, x, false),
        Unary::I0e      => special::bessel(0, x, true),
        Unary::I1       => special::bessel(1, x, false),
        Unary::I1e      => special::bessel(1, x, true),
        Unary::Sigmoid  => 1.0 / (1.0 + (-x).exp()),
        Unary::Relu     => if x <= 0.0 { 0.0 } else { x },
        Unary::Gelu     => x * 0.5 * (1.0 + erf(x * FRAC_1_SQRT_2)),
        Unary::GeluTanh => 0.5 * x * (1.0 + ((2.0 / PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh()),
        Unary::Silu     => x / (1.0 + (-x).exp()),
    }
}

/// f' from the value that the fused kernel is given.
#[rustfmt::skip]
fn slope(f: Unary, v: f64) -> f64 {
    match f {
        Unary::Tanh     => 1.0 - v * v,
        Unary::Sigmoid  => v * (1.0 - v),
        Unary::Relu     => if v > 0.0 { 1.0 } else { 0.0 },
        Unary::Sqrt     => 0.5 / v,
        Unary::Rsqrt    => -0.5 * v.powi(3),
        Unary::Recip    => -v * v,
        Unary::Gelu     => 0.5 * (1.0 + erf(v * FRAC_1_SQRT_2)) + v * (-0.5 * v * v).exp() / (2.0 * PI).sqrt(),
        Unary::GeluTanh => {
            let k = (2.0 / PI).sqrt();
            let t = (k * (v + 0.044715 * v.powi(3))).tanh();
            0.5 * (1.0 + t) + 0.5 * v * (1.0 - t * t) * k * (1.0 + 3.0 * 0.044715 * v * v)
        }
        Unary::Silu     => { let s = 1.0 / (1.0 + (-v).exp()); s * (1.0 + v * (1.0 - s)) }
        Unary::Sin      => v.cos(),
        Unary::Cos      => -v.sin(),
        Unary::Log      => 1.0 / v,
        Unary::Abs      => v.signum(),
        Unary::Square   => 2.0 * v,
        Unary::Erf      => FRAC_2_SQRT_PI * (-v * v).exp(),
        Unary::Neg | Unary::Sign | Unary::Floor | Unary::Ceil | Unary::Round | Unary::Trunc | Unary::Not | Unary::Stop
        | Unary::Exp | Unary::Exp2 | Unary::Expm1 | Unary::Log2 | Unary::Log10 | Unary::Log1p | Unary::Tan
        | Unary::Asin | Unary::Acos | Unary::Atan | Unary::Sinh | Unary::Cosh | Unary::Asinh
        | Unary::Acosh | Unary::Atanh | Unary::Erfc | Unary::Erfcx | Unary::Erfinv | Unary::LogNdtr | Unary::Ndtri
        | Unary::Lgamma | Unary::Digamma | Unary::I0 | Unary::I0e | Unary::I1 | Unary::I1e => unreachable!("{f:?} has no fused derivative"),
    }
}

#[rustfmt::skip]
fn binary(f: Binary, a: f64, b: f64, dtype: DType) -> f64 {
    let int = !dtype.is_float();
    let remainder = |a: f64, b: f64| {
        let r = a % b;
        if r != 0.0 && (r < 0.0) != (b < 0.0) { r + b } else { r }
    };
    match f {
        Binary::Add => a + b,
        Binary::Sub => a - b,
        Binary::Mul => a * b,
        Binary::Remainder | Binary::Fmod | Binary::FloorDiv if int && b == 0.0 => 0.0,
        Binary::Div       => a / b,
        Binary::Remainder => remainder(a, b),
        Binary::Fmod      => a % b,
        Binary::FloorDiv  => if b.is_infinite() || b == 0.0 || a.is_infinite() { floor_div_limit(a, b) } else { ((a - remainder(a, b)) / b).round() },
        // Integers have no fractions: only ±1 has a power below 1.
        Binary::Pow if int => if b < 0.0 && a == 0.0 { 0.0 } else { a.powf(b).trunc() },
        Binary::Pow       => a.powf(b),
        Binary::Atan2     => a.atan2(b),
        Binary::Copysign  => a.copysign(b),
        Binary::Zeta      => special::zeta(a, b),
        Binary::Gammainc  => special::gammainc(a, b),
        Binary::Gammaincc => 1.0 - special::gammainc(a, b),
        Binary::Maximum   => if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) },
        Binary::Minimum   => if a.is_nan() || b.is_nan() { f64::NAN } else { a.min(b) },
        Binary::And       => ((a as i64) & (b as i64)) as f64,
        Binary::Or        => ((a as i64) | (b as i64)) as f64,
        Binary::Xor       => ((a as i64) ^ (b as i64)) as f64,
        Binary::ShiftLeft  => if (0.0..64.0).contains(&b) { a * b.exp2() } else { 0.0 },
        Binary::ShiftRight => if (0.0..64.0).contains(&b) { (a / b.exp2()).floor() } else { -f64::from(a < 0.0) },
        Binary::Gcd       => std::iter::successors(Some((a.abs(), b.abs())), |&(a, b)| (b != 0.0).then(|| (b, a % b))).last().map_or(0.0, |p| p.0),
    }
}

/// ⌊a/b⌋ where one of them is 0 or infinite, as Python and PyTorch have it.
fn floor_div_limit(a: f64, b: f64) -> f64 {
    match (a.is_infinite(), b.is_infinite()) {
        _ if a.is_nan() || b.is_nan() => f64::NAN,
        (true, _) => {
            if b == 0.0 {
                a / b
            } else {
                f64::NAN
            }
        }
        (false, true) => {
            if a != 0.0 && (a < 0.0) != (b < 0.0) {
                -1.0
            } else {
                (a / b).floor()
            }
        }
        (false, false) => a / b,
    }
}

fn compare(f: Compare, a: f64, b: f64) -> bool {
    match f {
        Compare::Eq => a == b,
        Compare::Ne => a != b,
        Compare::Lt => a < b,
        Compare::Le => a <= b,
        Compare::Gt => a > b,
        Compare::Ge => a >= b,
    }
}

fn cast(v: f64, to: DType) -> f64 {
    match to {
        DType::F64 => v,
        DType::F32 => f64::from(v as f32),
        DType::BF16 => pullback::bf16::from_f64(v).to_f64(),
        DType::F16 => pullback::f16::from_f64(v).to_f64(),
        DType::I64 => v as i64 as f64,
        DType::I32 => f64::from(v as i32),
        DType::U8 => f64::from(v as u8),
        DType::Bool => f64::from(u8::from(v != 0.0)),
    }
}

fn viewed(view: &View, x: &Array) -> Array {
    Array::make(&view_shape(view, &x.shape), x.dtype, |i| x.at(&source(view, &x.shape, i)))
}

fn view_shape(view: &View, shape: &[usize]) -> Vec<usize> {
    let mut out = shape.to_vec();
    match view {
        View::Reshape(to) | View::Broadcast(to) => out = to.to_vec(),
        View::Permute(order) => out = order.iter().map(|&a| shape[a]).collect(),
        View::Slice(spans) => spans.iter().enumerate().for_each(|(a, s)| out[a] = s.len),
        View::Flip(_) => {}
        View::Diagonal { offset, a, b } => {
            out.remove(*a.max(b));
            out.remove(*a.min(b));
            out.push(diagonal_len(shape[*a], shape[*b], *offset));
        }
        View::Unfold { axis, size, step } => {
            out[*axis] = (shape[*axis] - size) / step + 1;
            out.push(*size);
        }
    }
    out
}

/// Where an element seen through a view lies.
fn source(view: &View, shape: &[usize], i: &[usize]) -> Vec<usize> {
    match view {
        View::Reshape(to) => {
            let mut flat = ravel(i, to);
            let mut index = vec![0; shape.len()];
            for (at, &n) in index.iter_mut().zip(shape).rev() {
                *at = flat % n;
                flat /= n;
            }
            index
        }
        View::Permute(order) => {
            let mut index = vec![0; shape.len()];
            order.iter().zip(i).for_each(|(&a, &k)| index[a] = k);
            index
        }
        View::Broadcast(_) => {
            let tail = &i[i.len() - shape.len()..];
            tail.iter().zip(shape).map(|(&k, &n)| if n == 1 { 0 } else { k }).collect()
        }
        View::Slice(spans) => {
            let at = |(a, &k): (usize, &usize)| spans.get(a).map_or(k, |s| s.start + k * s.step);
            i.iter().enumerate().map(at).collect()
        }
        View::Flip(axes) => {
            let at =
                |(a, &k): (usize, &usize)| if axes.contains(&a) { shape[a] - 1 - k } else { k };
            i.iter().enumerate().map(at).collect()
        }
        View::Diagonal { offset, a, b } => {
            let (k, mut index) = (i[i.len() - 1] as isize, i[..i.len() - 1].to_vec());
            let (row, column) = ((k - offset.min(&0)) as usize, (k + offset.max(&0)) as usize);
            let [first, second] =
                if a < b { [(*a, row), (*b, column)] } else { [(*b, column), (*a, row)] };
            index.insert(first.0, first.1);
            index.insert(second.0, second.1);
            index
        }
        View::Unfold { axis, step, .. } => {
            with(&i[..i.len() - 1], *axis, i[*axis] * step + i[i.len() - 1])
        }
    }
}

fn put(views: &[View], base: &Array, part: &Array) -> Array {
    let mut out = base.clone();
    for i in indices(&part.shape) {
        let mut shapes = vec![base.shape.clone()];
        views.iter().for_each(|v| shapes.push(view_shape(v, &shapes[shapes.len() - 1])));
        let to =
            views.iter().zip(&shapes).rev().fold(i.clone(), |i, (v, shape)| source(v, shape, &i));
        out.values[ravel(&to, &base.shape)] = part.at(&i);
    }
    out
}

fn pad(padding: &[Padding], x: &Array) -> Array {
    let grow =
        |(&n, p): (&usize, &Padding)| n + p.before + p.after + n.saturating_sub(1) * p.between;
    let shape: Vec<usize> = x.shape.iter().zip(padding).map(grow).collect();
    let mut out = Array::make(&shape, x.dtype, |_| 0.0);
    for i in indices(&x.shape) {
        let to: Vec<usize> =
            i.iter().zip(padding).map(|(&k, p)| p.before + k * (p.between + 1)).collect();
        out.values[ravel(&to, &shape)] = x.at(&i);
    }
    out
}

fn reduce(kind: Reduction, axes: &[usize], x: &Array) -> Array {
    let kept: Vec<usize> = (0..x.shape.len()).filter(|a| !axes.contains(a)).collect();
    let shape: Vec<usize> = kept.iter().map(|&a| x.shape[a]).collect();
    let dtype = match kind {
        Reduction::Sum | Reduction::Prod if !x.dtype.is_float() => DType::I64,
        _ => x.dtype,
    };
    let unit = match kind {
        Reduction::Sum => 0.0,
        Reduction::Prod => 1.0,
        // Of no booleans, none is true and all are.
        Reduction::Max => {
            if dtype == DType::Bool {
                0.0
            } else {
                f64::NEG_INFINITY
            }
        }
        Reduction::Min => {
            if dtype == DType::Bool {
                1.0
            } else {
                f64::INFINITY
            }
        }
    };
    let mut out = Array::make(&shape, dtype, |_| unit);
    for i in indices(&x.shape) {
        let to = ravel(&kept.iter().map(|&a| i[a]).collect::<Vec<_>>(), &shape);
        let (old, new) = (out.values[to], x.at(&i));
        out.values[to] = match kind {
            Reduction::Sum => old + new,
            Reduction::Prod => old * new,
            Reduction::Max => binary(Binary::Maximum, old, new, DType::F64),
            Reduction::Min => binary(Binary::Minimum, old, new, DType::F64),
        };
    }
    out
}

fn cumulate(kind: Cumulation, part: &[f64]) -> f64 {
    let fold = |f: fn(f64, f64) -> f64| part.iter().copied().reduce(f).unwrap();
    match kind {
        Cumulation::Sum => part.iter().sum(),
        Cumulation::Prod => part.iter().product(),
        Cumulation::Max => fold(|a, b| binary(Binary::Maximum, a, b, DType::F64)),
        Cumulation::Min => fold(|a, b| binary(Binary::Minimum, a, b, DType::F64)),
        Cumulation::LogSumExp => log_sum_exp(part),
    }
}

fn log_sum_exp(line: &[f64]) -> f64 {
    let top = line.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if top == f64::NEG_INFINITY {
        top
    } else {
        top + line.iter().map(|v| (v - top).exp()).sum::<f64>().ln()
    }
}

fn fused(f: Fused, x: &[Array]) -> Vec<Array> {
    let like = |f: &mut dyn FnMut(&[usize]) -> f64| vec![Array::make(&x[0].shape, x[0].dtype, f)];
    let total = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    match f {
        Fused::Softmax(axis) => {
            like(&mut |i| (x[0].at(i) - log_sum_exp(&x[0].line(i, axis))).exp())
        }
        Fused::LogSoftmax(axis) => like(&mut |i| x[0].at(i) - log_sum_exp(&x[0].line(i, axis))),
        Fused::SoftmaxVjp(axis) => like(&mut |i| {
            x[0].at(i) * (x[1].at(i) - total(&x[0].line(i, axis), &x[1].line(i, axis)))
        }),
        Fused::LogSoftmaxVjp(axis) => {
            like(&mut |i| x[1].at(i) - x[0].at(i).exp() * x[1].line(i, axis).iter().sum::<f64>())
        }
        Fused::LogSumExp(axis) => {
            let mut shape = x[0].shape.clone();
            shape.remove(axis);
            vec![Array::make(&shape, x[0].dtype, |i| {
                let line = (0..x[0].shape[axis]).map(|k| x[0].at(&inserted(i, axis, k)));
                log_sum_exp(&line.collect::<Vec<_>>())
            })]
        }
        Fused::LayerNorm(eps) => {
            let lead = x[0].shape.len() - x[1].shape.len();
            like(&mut |i| {
                let (mean, scale) = layer_norm::moments(&x[0], &i[..lead], &x[1].shape, eps.0);
                (x[0].at(i) - mean) * scale * x[1].at(&i[lead..]) + x[2].at(&i[lead..])
            })
        }
        Fused::LayerNormVjp(eps) => layer_norm::backward(eps.0, &x[0], &x[1], &x[2]),
        Fused::BatchNorm(eps) => batch_norm::forward(eps.0, x),
        Fused::BatchNormVjp(eps) => batch_norm::backward(eps.0, x),
        Fused::CrossEntropy => vec![losses(x)],
        Fused::CrossEntropyVjp => {
            let mut results = like(&mut |i| {
                let hit = f64::from(u8::from(x[1].at(&i[..1]) as usize == i[1]));
                ((x[0].at(i) - log_sum_exp(&x[0].line(i, 1))).exp() - hit) * x[2].at(&i[..1])
            });
            results.push(losses(x));
            results
        }
        Fused::Attention(a) => attention::forward(a, x),
        Fused::AttentionVjp(a) => attention::backward(a, x),
        Fused::Distances { within } => distances::forward(within, x),
        Fused::DistancesVjp { within } => distances::backward(within, x),
        Fused::Ctc { blank } => vec![ctc::forward(blank, x)],
        Fused::CtcVjp { blank } => vec![ctc::backward(blank, x)],
        Fused::Sgd(how) => update::sgd(how, x),
        Fused::Adam(how) => update::adam(how, x),
    }
}

/// The cross-entropy of each row.
fn losses(x: &[Array]) -> Array {
    Array::make(&x[1].shape, x[0].dtype.compute(), |i: &[usize]| {
        let row = x[0].last_line(&i[..1]);
        log_sum_exp(row) - row[x[1].at(i) as usize]
    })
}
