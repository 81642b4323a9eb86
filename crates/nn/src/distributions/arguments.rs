//! Arguments of distributions: numbers and tensors in one dtype and shape, checked where known.

use crate::refuse::refuse;
use pullback::{
    DType, Device, Error, Operand, Tensor, broadcast_tensors, catch, default_dtype, no_grad,
};

/// Arguments as floats of one dtype. Numbers take that of the tensors, or else the default.
#[track_caller]
pub(super) fn floats<const N: usize>(arguments: [&dyn Operand; N]) -> [Tensor; N] {
    let nothing = Tensor::zeros(());
    let tensor = |x: &&dyn Operand| (!x.is_number()).then(|| x.matching(&nothing).into_owned());
    let tensors: Vec<Tensor> = arguments.iter().filter_map(tensor).collect();
    let like = match tensors.split_first() {
        None => nothing,
        Some((first, rest)) => {
            let dtype = rest.iter().fold(first.dtype(), |d, x| d.promote(x.dtype()));
            let dtype = if dtype.is_float() { dtype } else { default_dtype() };
            first.new_zeros_with((), dtype)
        }
    };
    arguments.map(|x| x.matching(&like).cast(like.dtype()))
}

/// Arguments as floats of one dtype and one shape.
#[track_caller]
pub(super) fn broadcast<const N: usize>(
    name: &'static str,
    arguments: [&dyn Operand; N],
) -> [Tensor; N] {
    let arguments = floats(arguments);
    let all: Vec<&Tensor> = arguments.iter().collect();
    match catch(|| broadcast_tensors(&all)).map(<[Tensor; N]>::try_from) {
        Ok(Ok(all)) => all,
        _ => {
            let shapes: Vec<String> = all.iter().map(|x| x.spec().to_string()).collect();
            let message = format!("the arguments {} do not broadcast", shapes.join(" and "));
            refuse(Error::shape(name, message))
        }
    }
}

/// Refuses an argument that does not hold to a condition, where its values are known.
#[track_caller]
pub(super) fn require(
    name: &'static str,
    (argument, x): (&str, &Tensor),
    what: &str,
    holds: impl Fn(&Tensor) -> Tensor,
) {
    if x.device() != Device::Cpu || x.is_empty() {
        return;
    }
    let fits = no_grad(|| holds(&x.detach()));
    if fits.all().try_item::<bool>().ok() != Some(false) {
        return;
    }
    // The first that does not fit, by row.
    let first = no_grad(|| fits.reshape([-1]).cast(DType::U8).argmin(0));
    let rows = if fits.shape() == x.shape() { x.reshape([-1]) } else { x.clone() };
    let one = match (first.try_item::<i64>(), rows.rank()) {
        (Ok(i), 1) => format!(", and one is {}", rows.select_at(0, i as isize).item::<f64>()),
        _ => String::new(),
    };
    refuse(Error::argument(name, format!("{argument} must be {what}{one}")).on([x.spec()]));
}

/// Refuses an argument that is not positive and finite.
#[track_caller]
pub(super) fn positive(name: &'static str, argument: (&str, &Tensor)) {
    require(name, argument, "positive and finite", |x| x.gt(0.0).logical_and(x.is_finite()));
}

/// Refuses an argument that is not finite.
#[track_caller]
pub(super) fn finite(name: &'static str, argument: (&str, &Tensor)) {
    require(name, argument, "finite", Tensor::is_finite);
}

/// Refuses an argument that is not a probability.
#[track_caller]
pub(super) fn probability(name: &'static str, argument: (&str, &Tensor)) {
    require(name, argument, "from 0 to 1", |x| x.ge(0.0).logical_and(x.le(1.0)));
}

/// Refuses matrices or vectors without the axes that events take.
#[track_caller]
pub(super) fn axes(name: &'static str, (argument, x): (&str, &Tensor), count: usize) {
    if x.rank() < count || x.shape()[x.rank() - count..].contains(&0) {
        let what = if count == 1 { "[.., k]" } else { "[.., k, k]" };
        let message = format!("{argument} must be {what} with k of at least 1, not {}", x.spec());
        refuse(Error::shape(name, message));
    }
}

/// The shape of a sample.
pub(super) fn extended(sample: &[usize], batch: &[usize], event: &[usize]) -> Vec<usize> {
    [sample, batch, event].concat()
}

/// `y` where a value is in the support, −∞ elsewhere.
pub(super) fn within(support: &Tensor, y: &Tensor) -> Tensor {
    support.select(y, f64::NEG_INFINITY)
}

/// The value where it is in the support, and one that is safe to compute with elsewhere.
pub(super) fn or_safe(support: &Tensor, value: &Tensor, safe: f64) -> Tensor {
    support.select(value, safe)
}

/// The smallest positive normal number of a dtype, and the largest number below 1.
pub(super) fn bounds_of_unit(dtype: DType) -> (f64, f64) {
    match dtype {
        DType::F64 => (f64::MIN_POSITIVE, 1.0 - f64::EPSILON / 2.0),
        DType::BF16 => (f64::from(f32::MIN_POSITIVE), 1.0 - 1.0 / 256.0),
        DType::F16 => (1.0 / 16384.0, 1.0 - 1.0 / 2048.0),
        _ => (f64::from(f32::MIN_POSITIVE), 1.0 - f64::from(f32::EPSILON) / 2.0),
    }
}
