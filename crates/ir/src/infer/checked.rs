//! The proof that an op fits its operands.

use super::{Specs, fits_memory, infer};
use crate::{Device, Op, Result, Spec};
use smallvec::smallvec;
use std::slice;

/// An op that fits its operands, with their specs and those of its results. Backends are given
/// this: nothing is checked twice, and nothing unchecked runs, as only [`check`] makes one, and
/// [`Checked::copy`], which every operand allows.
///
/// ```
/// use pullback_ir::infer::check;
/// use pullback_ir::{Binary, DType, Op, Spec};
/// let (op, x, y) = (Op::Binary(Binary::Add), Spec::cpu(DType::F32, [2]), Spec::cpu(DType::F32, [3]));
/// assert_eq!(check(&op, &[&x, &x]).unwrap().results(), [x.clone()]);
/// assert!(check(&op, &[&x, &y]).is_err());
/// ```
#[derive(Clone, Debug)]
pub struct Checked<'a> {
    op: &'a Op,
    operands: &'a [&'a Spec],
    results: ResultSpecs<'a>,
}

/// The specs of the results.
#[derive(Clone, Debug)]
enum ResultSpecs<'a> {
    /// One result, as an operand: nothing is copied.
    As(&'a Spec),
    Own(Specs),
}

/// Checks `op` against its operands.
///
/// # Errors
/// If it does not fit them.
#[inline]
pub fn check<'a>(op: &'a Op, operands: &'a [&'a Spec]) -> Result<Checked<'a>> {
    let results = match same_as_operand(op, operands) {
        Some(spec) => ResultSpecs::As(spec),
        None => ResultSpecs::Own(infer(op, operands)?),
    };
    Ok(Checked { op, operands, results })
}

/// The operand whose spec is that of the result, for the most frequent ops where they fit. Anything
/// else, errors too, is left to [`infer`].
#[inline]
fn same_as_operand<'a>(op: &Op, operands: &'a [&'a Spec]) -> Option<&'a Spec> {
    let x = match (op, operands) {
        (Op::Unary(f), [x]) if f.takes().has(x.dtype) => x,
        (Op::Binary(f), [a, b]) if f.takes().has(a.dtype) && a == b => a,
        _ => return None,
    };
    fits_memory(&x.shape).then_some(x)
}

impl<'a> Checked<'a> {
    /// A dense copy, which every operand allows.
    #[inline]
    pub fn copy(operand: &'a [&'a Spec; 1]) -> Checked<'a> {
        Checked { op: &Op::Copy, operands: operand, results: ResultSpecs::As(operand[0]) }
    }

    /// The op.
    #[inline]
    pub fn op(&self) -> &'a Op {
        self.op
    }

    /// The specs of the operands.
    #[inline]
    pub fn operands(&self) -> &'a [&'a Spec] {
        self.operands
    }

    /// The specs of the results.
    #[inline]
    pub fn results(&self) -> &[Spec] {
        match &self.results {
            ResultSpecs::As(spec) => slice::from_ref(spec),
            ResultSpecs::Own(specs) => specs,
        }
    }

    /// The specs of the results, for those who keep them.
    #[inline]
    pub fn into_results(self) -> Specs {
        match self.results {
            ResultSpecs::As(spec) => smallvec![spec.clone()],
            ResultSpecs::Own(specs) => specs,
        }
    }

    /// The device that it runs on: that of its operands, or the one it names.
    #[inline]
    pub fn device(&self) -> Device {
        let of_operands = || self.operands.first().map(|x| x.device);
        let named = || self.results().first().map(|y| y.device);
        of_operands().or_else(named).unwrap_or(Device::Cpu)
    }
}
