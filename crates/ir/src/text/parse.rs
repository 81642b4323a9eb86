//! Text to ops, views and specs.

use super::cursor::{ParseOpError, Parsed, TextCursor};
use super::{read_program, region};
use crate::op::{Combine, Fft, Linalg, Op, Padding, Transfer};
use crate::window::{Conv, Frame, Pool, Pooling, Role, Window};
use crate::{Collective, DType, Device, Real, Scalar, Shape, Span, Spec, View};
use std::collections::HashMap;
use std::str::FromStr;
use std::sync::{Arc, LazyLock};

impl FromStr for Op {
    type Err = ParseOpError;

    fn from_str(text: &str) -> Parsed<Op> {
        TextCursor::whole(text, op)
    }
}

impl FromStr for View {
    type Err = ParseOpError;

    fn from_str(text: &str) -> Parsed<View> {
        TextCursor::whole(text, view)
    }
}

impl FromStr for Spec {
    type Err = ParseOpError;

    /// Reads `f32[2,3]`, which is on the CPU, and `f32[2,3]@cuda:0`.
    fn from_str(text: &str) -> Parsed<Spec> {
        TextCursor::whole(text, spec)
    }
}

/// The minimal form of each op by its name: programs have thousands of ops.
static FORMS: LazyLock<HashMap<&str, Op>> = LazyLock::new(|| {
    let transfers = Transfer::ALL.into_iter().map(Op::Transfer);
    Op::forms().chain(transfers).map(|form| (form.name(), form)).collect()
});

/// An op: its name, looked up among the forms, then the attributes that the form has.
pub(crate) fn op(c: &mut TextCursor) -> Parsed<Op> {
    // Structured ops have no minimal form.
    match c.peek_word() {
        name @ ("region" | "dot_region") => {
            c.keyword(name)?;
            let region = Arc::new(c.nested(|c| c.braced(region::region))?);
            return Ok(if name == "region" { Op::Region(region) } else { Op::DotRegion(region) });
        }
        name @ ("cond" | "while" | "scan") => {
            c.keyword(name)?;
            return Ok(Op::Flow(Arc::new(c.braced(|c| read_program::flow(c, name))?)));
        }
        "custom" => {
            let message =
                "a custom op holds code, which a text cannot: run the program that defines it";
            return Err(c.error(message));
        }
        name if Collective::NAMES.contains(&name) || name == "wait" => {
            let message = format!(
                "`{name}` names a group of workers, which a text cannot: run the program that makes it"
            );
            return Err(c.error(message));
        }
        _ => {}
    }
    let form = c.read(|name| {
        let found = FORMS.get(name);
        found.cloned().ok_or_else(|| format!("unknown op `{name}`"))
    })?;
    Ok(match form {
        Op::Literal { .. } => c.braced(|c| {
            let value = scalar(c)?;
            c.expect(':')?;
            let Spec { shape, dtype, device } = spec(c)?;
            Ok(Op::Literal { value, shape, dtype, device })
        })?,
        Op::Iota { .. } => c.braced(|c| {
            let len = index(c)?;
            c.expect(':')?;
            let dtype = dtype(c)?;
            Ok(Op::Iota { len, dtype, device: at_device(c)? })
        })?,
        Op::Random { kind, .. } => {
            let (dtype, shape) = c.braced(|c| Ok((dtype(c)?, indices(c)?)))?;
            Op::Random { kind, shape, dtype }
        }
        Op::Cast(_) => Op::Cast(c.braced(dtype)?),
        Op::To(_) => Op::To(c.braced(device)?),
        Op::View(form) => Op::View(view_attributes(c, form)?),
        Op::Put(_) => Op::Put(c.braced(|c| c.list(';', view))?),
        Op::Pad(_) => Op::Pad(c.braced(|c| c.list(',', padding))?),
        Op::Cat(_) => Op::Cat(c.braced(index)?),
        Op::Gather(_) => Op::Gather(c.braced(index)?),
        Op::Scatter(..) => c.braced(|c| {
            let axis = index(c)?;
            c.expect(',')?;
            Ok(Op::Scatter(axis, combine(c)?))
        })?,
        Op::Reduce(kind, _) => Op::Reduce(kind, c.braced(indices)?),
        Op::ArgReduce(kind, _) => Op::ArgReduce(kind, c.braced(index)?),
        Op::Cumulate { kind, .. } => {
            let (axis, reverse) = c.braced(|c| axis_and_flag(c, "reverse"))?;
            Op::Cumulate { kind, axis, reverse }
        }
        Op::Sort { .. } => {
            let (axis, descending) = c.braced(|c| axis_and_flag(c, "descending"))?;
            Op::Sort { axis, descending }
        }
        Op::Conv(form) => Op::Conv(Box::new(c.braced(|c| conv(c, form.role))?)),
        Op::Pool(form) => Op::Pool(Box::new(c.braced(|c| pool(c, form.kind))?)),
        Op::Linalg(form) => Op::Linalg(linalg_attributes(c, form)?),
        Op::Fft(form) => Op::Fft(fft_attributes(c, form)?),
        Op::Ranks { .. } => c.braced(|c| {
            let (axis, descending) = axis_and_flag(c, "descending")?;
            c.expect(',')?;
            let from = c.field("from", index)?;
            c.expect(',')?;
            Ok(Op::Ranks { axis, descending, from, count: c.field("count", index)? })
        })?,
        Op::Fused(form) => Op::Fused(super::fused::parse(c, form)?),
        Op::Unary(_) | Op::UnaryVjp(_) | Op::Binary(_) | Op::Compare(_) => form,
        Op::Select | Op::Copy | Op::After | Op::Dot | Op::Transfer(_) => form,
        Op::Region(_) | Op::DotRegion(_) | Op::Flow(_) | Op::Custom(_) => {
            return Err(c.error("unknown op"));
        }
        Op::Collective(_) | Op::Wait => {
            return Err(c.error("unknown op"));
        }
    })
}

/// A view: its name, then its attributes.
pub(crate) fn view(c: &mut TextCursor) -> Parsed<View> {
    let form = c.read(|name| {
        let found = View::forms().find(|form| form.name() == name);
        found.ok_or_else(|| format!("unknown view `{name}`"))
    })?;
    view_attributes(c, form)
}

fn view_attributes(c: &mut TextCursor, form: View) -> Parsed<View> {
    c.braced(|c| {
        Ok(match form {
            View::Reshape(_) => View::Reshape(indices(c)?),
            View::Permute(_) => View::Permute(indices(c)?),
            View::Broadcast(_) => View::Broadcast(indices(c)?),
            View::Slice(_) => View::Slice(c.list(',', span)?),
            View::Flip(_) => View::Flip(indices(c)?),
            View::Diagonal { .. } => {
                let offset = c.field("offset", |c| c.parse("an integer"))?;
                c.expect(',')?;
                let a = c.field("a", index)?;
                c.expect(',')?;
                View::Diagonal { offset, a, b: c.field("b", index)? }
            }
            View::Unfold { .. } => {
                let axis = c.field("axis", index)?;
                c.expect(',')?;
                let size = c.field("size", index)?;
                c.expect(',')?;
                View::Unfold { axis, size, step: c.field("step", index)? }
            }
        })
    })
}

fn conv(c: &mut TextCursor, role: Role) -> Parsed<Conv> {
    let windows = c.list(',', |c| {
        let size = index(c)?;
        window(c, size)
    })?;
    c.expect(',')?;
    let groups = c.field("groups", index)?;
    let role = match role {
        Role::Forward | Role::Filter => role,
        Role::Input(_) => Role::Input(lengths(c)?),
    };
    let last = c.eat(',');
    if last {
        c.keyword("last")?;
    }
    Ok(Conv { role, windows, groups, last })
}

fn pool(c: &mut TextCursor, kind: Pooling) -> Parsed<Pool> {
    let frames = c.list(',', frame)?;
    let kind = match kind {
        Pooling::Sum | Pooling::ArgMax | Pooling::Take => kind,
        Pooling::Spread(_) => Pooling::Spread(lengths(c)?),
        Pooling::Give(_) => Pooling::Give(lengths(c)?),
    };
    Ok(Pool { kind, frames })
}

/// `,lengths=[5,5]`
fn lengths(c: &mut TextCursor) -> Parsed<Shape> {
    c.expect(',')?;
    c.field("lengths", indices)
}

/// What follows the size in `3:2:1:1:1`.
fn window(c: &mut TextCursor, size: usize) -> Parsed<Window> {
    c.expect(':')?;
    let stride = index(c)?;
    c.expect(':')?;
    let dilation = index(c)?;
    c.expect(':')?;
    let before = c.parse("an integer")?;
    c.expect(':')?;
    Ok(Window { size, stride, dilation, before, after: c.parse("an integer")? })
}

/// A window, or `even:5`.
fn frame(c: &mut TextCursor) -> Parsed<Frame> {
    let size = c.read(|word| match word {
        "even" => Ok(None),
        _ => word.parse().map(Some).map_err(|_| format!("expected a window, found `{word}`")),
    })?;
    match size {
        Some(size) => Ok(Frame::Sliding(window(c, size)?)),
        None => {
            c.expect(':')?;
            Ok(Frame::Even(index(c)?))
        }
    }
}

fn linalg_attributes(c: &mut TextCursor, form: Linalg) -> Parsed<Linalg> {
    Ok(match form {
        Linalg::TriangularSolve { .. } => c.braced(|c| {
            let upper = flag(c, "upper")?;
            c.expect(',')?;
            Ok(Linalg::TriangularSolve { upper, unit: flag(c, "unit")? })
        })?,
        Linalg::Permutation(_) => Linalg::Permutation(c.braced(index)?),
        Linalg::LuSolve { .. } => {
            Linalg::LuSolve { transpose: c.braced(|c| flag(c, "transpose"))? }
        }
        Linalg::Qr { .. } => Linalg::Qr { complete: c.braced(|c| flag(c, "complete"))? },
        Linalg::Spectrum { .. } => {
            Linalg::Spectrum { singular: c.braced(|c| flag(c, "singular"))? }
        }
        Linalg::Svd { .. } => Linalg::Svd { full: c.braced(|c| flag(c, "full"))? },
        Linalg::Cholesky | Linalg::Lu | Linalg::Eigh => form,
    })
}

fn fft_attributes(c: &mut TextCursor, form: Fft) -> Parsed<Fft> {
    Ok(match form {
        Fft::Complex { .. } => {
            let (axis, inverse) = c.braced(|c| axis_and_flag(c, "inverse"))?;
            Fft::Complex { axis, inverse }
        }
        Fft::Real(_) => Fft::Real(c.braced(index)?),
        Fft::Hermitian { .. } => c.braced(|c| {
            let axis = c.field("axis", index)?;
            c.expect(',')?;
            Ok(Fft::Hermitian { axis, len: c.field("len", index)? })
        })?,
    })
}

/// `f32[2,3]` or `f32[2,3]@cuda:0`
pub(crate) fn spec(c: &mut TextCursor) -> Parsed<Spec> {
    let dtype = dtype(c)?;
    let shape: Shape = indices(c)?;
    Ok(Spec::on(at_device(c)?, dtype, shape))
}

/// The device after `@`; the CPU where there is none.
fn at_device(c: &mut TextCursor) -> Parsed<Device> {
    if c.eat_before_word('@') { device(c) } else { Ok(Device::Cpu) }
}

/// `cpu` or `cuda:0`
pub(super) fn device(c: &mut TextCursor) -> Parsed<Device> {
    let name = c.read(|word| match word {
        "cpu" => Ok(Device::Cpu),
        "cuda" => Ok(Device::Cuda(0)),
        _ => Err(format!("`{word}` is not a device")),
    })?;
    match name {
        Device::Cuda(_) if c.eat(':') => c.parse("the number of a device").map(Device::Cuda),
        Device::Cpu | Device::Cuda(_) => Ok(name),
    }
}

pub(super) fn dtype(c: &mut TextCursor) -> Parsed<DType> {
    c.read(DType::from_str)
}

fn combine(c: &mut TextCursor) -> Parsed<Combine> {
    c.read(|name| {
        let found = Combine::ALL.iter().find(|combine| combine.name() == name);
        found.copied().ok_or_else(|| format!("unknown combination `{name}`"))
    })
}

/// An axis, a length, or a distance.
pub(super) fn index(c: &mut TextCursor) -> Parsed<usize> {
    c.parse("a non-negative integer")
}

/// `[0,1]`: a shape or axes.
pub(super) fn indices(c: &mut TextCursor) -> Parsed<Shape> {
    c.list(',', index)
}

fn triple(c: &mut TextCursor) -> Parsed<[usize; 3]> {
    let first = index(c)?;
    c.expect(':')?;
    let second = index(c)?;
    c.expect(':')?;
    Ok([first, second, index(c)?])
}

fn span(c: &mut TextCursor) -> Parsed<Span> {
    let [start, len, step] = triple(c)?;
    Ok(Span { start, len, step })
}

fn padding(c: &mut TextCursor) -> Parsed<Padding> {
    let [before, after, between] = triple(c)?;
    Ok(Padding { before, after, between })
}

fn axis_and_flag(c: &mut TextCursor, flag: &str) -> Parsed<(usize, bool)> {
    let axis = c.field("axis", index)?;
    c.expect(',')?;
    Ok((axis, self::flag(c, flag)?))
}

pub(super) fn flag(c: &mut TextCursor, name: &str) -> Parsed<bool> {
    c.field(name, |c| c.parse("`true` or `false`"))
}

/// A boolean, an integer, or otherwise a float: a float always shows a point, an exponent or
/// letters.
pub(super) fn scalar(c: &mut TextCursor) -> Parsed<Scalar> {
    let number = c.read(|word| {
        if let Ok(truth) = word.parse() {
            return Ok(Scalar::Bool(truth));
        }
        // An integer that is too large is rejected, not converted to a float.
        match word.trim_start_matches('-').bytes().all(|b| b.is_ascii_digit()) {
            true => word
                .parse()
                .map(Scalar::Int)
                .map_err(|_| format!("expected a number, found `{word}`")),
            false => float(word).map(Scalar::Float),
        }
    })?;
    match number {
        Scalar::Float(v) => Ok(Scalar::Float(with_bits(c, v)?)),
        Scalar::Int(_) | Scalar::Bool(_) => Ok(number),
    }
}

pub(super) fn real(c: &mut TextCursor) -> Parsed<Real> {
    let v = c.read(float)?;
    with_bits(c, v)
}

fn float(word: &str) -> Result<Real, String> {
    match word {
        "NaN" => Ok(Real(f64::NAN)),
        _ => word.parse().map(Real).map_err(|_| format!("expected a number, found `{word}`")),
    }
}

/// The bits after a NaN, where it is not the usual one: `NaN(0x7ff8000000000001)`.
fn with_bits(c: &mut TextCursor, v: Real) -> Parsed<Real> {
    if !v.0.is_nan() || !c.eat('(') {
        return Ok(v);
    }
    let nan = c.read(|word| {
        let digits = word.strip_prefix("0x").unwrap_or_default();
        let bits = u64::from_str_radix(digits, 16).map(f64::from_bits);
        let nan = bits.ok().filter(|v| v.is_nan());
        nan.map(Real)
            .ok_or_else(|| format!("expected the bits of a NaN in hexadecimal, found `{word}`"))
    })?;
    c.expect(')')?;
    Ok(nan)
}
