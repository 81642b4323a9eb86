//! The proof that an op fits its operands.

use super::{Specs, infer};
use crate::{Device, Op, Result, Spec};
use smallvec::smallvec;

/// An op that fits its operands, with their specs and those of its results. Backends are given
/// this: nothing is checked twice, and nothing unchecked runs, as only [`check`] makes one.
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
    results: Specs,
}

/// Checks `op` against its operands.
///
/// # Errors
/// If it does not fit them.
#[inline]
pub fn check<'a>(op: &'a Op, operands: &'a [&'a Spec]) -> Result<Checked<'a>> {
    Ok(Checked { op, operands, results: infer(op, operands)? })
}

impl<'a> Checked<'a> {
    /// A dense copy, which every operand allows.
    #[inline]
    pub fn copy(operand: &'a [&'a Spec; 1]) -> Checked<'a> {
        Checked { op: &Op::Copy, operands: operand, results: smallvec![operand[0].clone()] }
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
        &self.results
    }

    /// The specs of the results, for those who keep them.
    #[inline]
    pub fn into_results(self) -> Specs {
        self.results
    }

    /// The device that it runs on: that of its operands, or the one it names.
    #[inline]
    pub fn device(&self) -> Device {
        let of_operands = || self.operands.first().map(|x| x.device);
        let named = || self.results.first().map(|y| y.device);
        of_operands().or_else(named).unwrap_or(Device::Cpu)
    }
}
