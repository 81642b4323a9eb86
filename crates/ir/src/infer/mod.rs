//! Shape and dtype rules: from an op and its operands' specs to the specs of its results.
//!
//! Whether an op fits its operands is decided here and nowhere else. Tensor methods take what users
//! write (negative axes, `-1` in a reshape, ranges) and turn it into an [`Op`] with the functions
//! in [`args`]; [`infer`] then checks that op against its operands. Methods that combine operands
//! before they make an op (losses, einsum) check their own arguments.

pub mod args;
mod attention;
mod checked;
mod collective;
mod ctc;
mod distances;
mod dot;
mod fft;
mod index;
mod linalg;
mod movement;
mod norm;
mod pointwise;
mod reduce;
mod update;
mod view;
mod window;

pub use checked::{Checked, check};
pub use view::view_shape;

use crate::{DType, Device, Error, ErrorKind, Op, Random, Result, Scalar, Shape, Spec, Transfer};
use smallvec::{SmallVec, smallvec};

/// The specs of an op's results; nearly always one.
pub type Specs = SmallVec<[Spec; 1]>;

/// Checks `op` against its operands and returns the specs of its results.
pub fn infer(op: &Op, inputs: &[&Spec]) -> Result<Specs> {
    check_devices(op, inputs)?;
    let specs = rules(op, inputs)?;
    specs.iter().try_for_each(|spec| check_size(op, spec, inputs))?;
    Ok(specs)
}

/// Checks `op` against its operands and returns the spec of its first result: the only one, for all
/// but [`Op::Sort`], [`Op::Ranks`], attention, batch normalisation, updates, and some vjps.
pub fn infer_one(op: &Op, inputs: &[&Spec]) -> Result<Spec> {
    check_devices(op, inputs)?;
    let spec = rule(op, inputs)?;
    check_size(op, &spec, inputs)?;
    Ok(spec)
}

/// All operands of an op are on one device: only [`Op::To`], which has a single operand, moves
/// between devices. There is no exception, not even for a single element: reading it would
/// synchronise with its device. (Rust scalars are literals on the device of their tensor.)
fn check_devices(op: &Op, inputs: &[&Spec]) -> Result<()> {
    let Some((first, rest)) = inputs.split_first() else { return Ok(()) };
    match rest.iter().all(|x| x.device == first.device) {
        true => Ok(()),
        false => Err(on_several_devices(op, inputs, first.device)),
    }
}

#[cold]
fn on_several_devices(op: &Op, inputs: &[&Spec], first: Device) -> Error {
    let place = |x: &&Spec| match x.device {
        Device::Cpu => format!("{x}@cpu"),
        Device::Cuda(_) => x.to_string(),
    };
    let places = inputs.iter().map(place).collect::<Vec<String>>().join(", ");
    let message = format!("operands are on different devices: {places}");
    Error::new(ErrorKind::Device, op.name(), message)
        .on(inputs.iter().copied())
        .hint(format!("move one with `.to(\"{first}\")`"))
}

/// Rejects sizes that do not fit in memory, so that later code need not check for overflow.
fn check_size(op: &Op, spec: &Spec, inputs: &[&Spec]) -> Result<()> {
    if fits_memory(&spec.shape) {
        return Ok(());
    }
    let message = format!("a result of shape {:?} exceeds the addressable size", spec.shape);
    Err(Error::shape(op.name(), message).on(inputs.iter().copied()))
}

fn rules(op: &Op, inputs: &[&Spec]) -> Result<Specs> {
    match op {
        Op::Sort { axis, .. } => reduce::sort(*axis, operands("sort", inputs)?),
        Op::Ranks { axis, from, count, .. } => {
            reduce::ranks(*axis, *from, *count, operands("ranks", inputs)?)
        }
        Op::Fused(f) => norm::fused(*f, inputs),
        Op::Linalg(f) => linalg::linalg(*f, inputs),
        Op::Region(region) => region.infer(inputs),
        Op::DotRegion(region) => region.infer_after_dot(inputs),
        Op::Flow(flow) => flow.infer(inputs),
        Op::Custom(custom) => custom.infer(inputs),
        Op::Literal { .. } | Op::Iota { .. } | Op::Random { .. } => one(op, inputs),
        Op::Unary(_) | Op::UnaryVjp(_) | Op::Binary(_) | Op::Compare(_) => one(op, inputs),
        Op::Select | Op::Cast(_) | Op::Copy | Op::View(_) | Op::After => one(op, inputs),
        Op::To(_) | Op::Collective(_) | Op::Wait | Op::Transfer(_) => one(op, inputs),
        Op::Put(_) | Op::Pad(_) | Op::Cat(_) | Op::Gather(_) | Op::Scatter(..) => one(op, inputs),
        Op::Reduce(..) | Op::ArgReduce(..) | Op::Cumulate { .. } => one(op, inputs),
        Op::Dot | Op::Conv(_) | Op::Pool(_) | Op::Fft(_) => one(op, inputs),
    }
}

fn one(op: &Op, inputs: &[&Spec]) -> Result<Specs> {
    Ok(smallvec![rule(op, inputs)?])
}

/// Whether the elements of a shape can be counted, and addressed at eight bytes each. Axes of
/// length 0 count as 1, so that strides cannot overflow either.
#[inline]
pub fn fits_memory(shape: &[usize]) -> bool {
    let count = shape.iter().try_fold(1usize, |product, &n| product.checked_mul(n.max(1)));
    count.is_some_and(|n| n <= isize::MAX as usize / 8)
}

fn rule(op: &Op, inputs: &[&Spec]) -> Result<Spec> {
    match op {
        Op::Literal { value, shape, dtype, device } => {
            arity("literal", inputs, 0)?;
            if matches!(value, Scalar::Float(_)) && !dtype.is_float() {
                return Err(Error::dtype(
                    "literal",
                    format!("the fraction {value} does not fit {dtype}"),
                ));
            }
            Ok(Spec::on(*device, *dtype, shape.clone()))
        }
        Op::Iota { len, dtype, device } => {
            arity("iota", inputs, 0)?;
            if *dtype == DType::Bool {
                return Err(Error::dtype("iota", "a range cannot be of bool"));
            }
            Ok(Spec::on(*device, *dtype, [*len].as_slice()))
        }
        Op::Random { kind, shape, dtype } => {
            let [key] = operands("random", inputs)?;
            if key.dtype != DType::I64 || key.shape.last() != Some(&2) {
                let message = format!("takes a key, i64[2], or several, i64[.., 2], not {key}");
                return Err(Error::shape("random", message).on([key]));
            }
            let fits = match kind {
                Random::Bits => *dtype == DType::I64,
                Random::Uniform | Random::Normal => dtype.is_float(),
            };
            if !fits {
                return Err(Error::dtype("random", format!("{kind:?} numbers cannot be {dtype}")));
            }
            let keys = &key.shape[..key.shape.len() - 1];
            let shape: Shape = keys.iter().chain(shape).copied().collect();
            Ok(Spec::on(key.device, *dtype, shape))
        }
        Op::Unary(f) => pointwise::unary(*f, operands(f.name(), inputs)?),
        Op::UnaryVjp(f) => pointwise::unary_vjp(*f, operands(f.vjp_name(), inputs)?),
        Op::Binary(f) => pointwise::binary(*f, operands(f.name(), inputs)?),
        Op::Compare(f) => pointwise::compare(*f, operands(f.name(), inputs)?),
        Op::Select => pointwise::select(operands("select", inputs)?),
        Op::Cast(dtype) => Ok(operands::<1>("cast", inputs)?[0].with_dtype(*dtype)),
        Op::Copy => Ok(operands::<1>("copy", inputs)?[0].clone()),
        Op::To(device) => Ok(operands::<1>("to", inputs)?[0].with_device(*device)),
        Op::After => match inputs {
            [x, _, ..] => Ok((*x).clone()),
            _ => {
                let message = format!("takes 2 operands or more, not {}", inputs.len());
                Err(Error::argument("after", message))
            }
        },
        Op::Collective(of) => collective::collective(of, inputs),
        Op::Wait => collective::wait(inputs),
        Op::Transfer(step) => transfer(*step, inputs),
        Op::View(v) => view::view(v, operands(op.name(), inputs)?),
        Op::Put(views) => view::put(views, operands("put", inputs)?),
        Op::Pad(padding) => movement::pad(padding, operands("pad", inputs)?),
        Op::Cat(axis) => movement::cat(*axis, inputs),
        Op::Gather(axis) => index::gather(*axis, operands("gather", inputs)?),
        Op::Scatter(axis, combine) => index::scatter(*axis, *combine, operands("scatter", inputs)?),
        Op::Reduce(kind, axes) => reduce::reduce(*kind, axes, operands(op.name(), inputs)?),
        Op::ArgReduce(kind, axis) => reduce::arg_reduce(*kind, *axis, operands(op.name(), inputs)?),
        Op::Cumulate { kind, axis, .. } => {
            reduce::cumulate(*kind, *axis, operands(op.name(), inputs)?)
        }
        Op::Sort { axis, .. } => Ok(reduce::sort(*axis, operands("sort", inputs)?)?.swap_remove(0)),
        Op::Ranks { axis, from, count, .. } => {
            Ok(reduce::ranks(*axis, *from, *count, operands("ranks", inputs)?)?.swap_remove(0))
        }
        Op::Dot => dot::dot(operands("matmul", inputs)?),
        Op::Conv(conv) => window::conv(conv, operands(op.name(), inputs)?),
        Op::Pool(pool) if pool.kind.takes_places() => {
            let [x, places] = operands(op.name(), inputs)?;
            window::pool(pool, x, Some(places))
        }
        Op::Pool(pool) => {
            let [x] = operands(op.name(), inputs)?;
            window::pool(pool, x, None)
        }
        Op::Linalg(f) => Ok(linalg::linalg(*f, inputs)?.swap_remove(0)),
        Op::Fft(f) => fft::fft(*f, operands(f.name(), inputs)?),
        Op::Fused(f) => Ok(norm::fused(*f, inputs)?.swap_remove(0)),
        Op::Region(_) | Op::DotRegion(_) | Op::Flow(_) | Op::Custom(_) => {
            match rules(op, inputs)?.into_iter().next() {
                Some(spec) => Ok(spec),
                None => Err(Error::argument(op.name(), "has no result")),
            }
        }
    }
}

/// The operands as an array of the expected length.
fn operands<'a, const N: usize>(op: &'static str, inputs: &[&'a Spec]) -> Result<[&'a Spec; N]> {
    inputs.try_into().map_err(|_| wrong_arity(op, inputs.len(), N))
}

fn arity(op: &'static str, inputs: &[&Spec], n: usize) -> Result<()> {
    if inputs.len() == n { Ok(()) } else { Err(wrong_arity(op, inputs.len(), n)) }
}

fn wrong_arity(op: &'static str, given: usize, wanted: usize) -> Error {
    Error::argument(op, format!("takes {wanted} operands, not {given}"))
}

/// Checks an axis attribute of an op.
fn check_axis(op: &'static str, axis: usize, x: &Spec) -> Result<()> {
    if axis < x.shape.len() {
        return Ok(());
    }
    Err(Error::argument(op, format!("axis {axis} is out of range for {x}")).on([x]))
}

fn check_index(op: &'static str, index: &Spec) -> Result<()> {
    if index.dtype == DType::I64 {
        return Ok(());
    }
    Err(Error::dtype(op, format!("indices must be i64, not {}", index.dtype)).on([index]))
}

/// A value on its way is what it was.
fn transfer(step: Transfer, inputs: &[&Spec]) -> Result<Spec> {
    if step.starts() {
        return Ok(operands::<1>(step.name(), inputs)?[0].clone());
    }
    let [made, of] = operands(step.name(), inputs)?;
    match made == of {
        true => Ok(made.clone()),
        false => {
            let message = format!("a copy of {of} is no {made}");
            Err(Error::argument(step.name(), message).on([made, of]))
        }
    }
}
