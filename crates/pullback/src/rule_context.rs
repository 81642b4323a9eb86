//! What a rule is given to work with, and what it returns.

use crate::{Error, Op, Spec, Tensor, fail};
use smallvec::SmallVec;
use std::cell::OnceCell;

/// A gradient or tangent for each operand or result, where there is one.
pub(crate) type Derivatives = SmallVec<[Option<Tensor>; 2]>;

/// Derivatives of the operands from those of the results, or the other way round.
pub(crate) type DerivativeFn = fn(&RuleContext, &Derivatives) -> Derivatives;

/// A value that a rule may be computed from; naming it makes the tape keep it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Val {
    In(usize),
    Out(usize),
}

/// The input of a unary op, or the first operand of a binary one.
pub(crate) const X: Val = Val::In(0);
pub(crate) const A: Val = Val::In(0);
pub(crate) const B: Val = Val::In(1);
pub(crate) const Y: Val = Val::Out(0);

/// What a rule knows about the op it differentiates: the specs, and the values that its row keeps.
pub(crate) struct RuleContext<'a> {
    pub op: &'a Op,
    in_specs: &'a [Spec],
    out_specs: &'a [Spec],
    /// In the order of the operands, then of the results.
    values: SmallVec<[(Val, Tensor); 2]>,
    /// Which operands want a gradient.
    needs: SmallVec<[bool; 4]>,
    /// Where each operand begins in the result, if computed.
    starts: OnceCell<Vec<usize>>,
}

impl<'a> RuleContext<'a> {
    pub fn new(
        op: &'a Op,
        in_specs: &'a [Spec],
        out_specs: &'a [Spec],
        needs: SmallVec<[bool; 4]>,
    ) -> RuleContext<'a> {
        let (values, starts) = (SmallVec::new(), OnceCell::new());
        RuleContext { op, in_specs, out_specs, values, needs, starts }
    }

    /// Adds a value, after those of lower operands and results.
    pub fn set(&mut self, val: Val, tensor: Tensor) {
        self.values.push((val, tensor));
    }

    /// An operand that the row keeps.
    pub fn x(&self, i: usize) -> &Tensor {
        self.value(Val::In(i))
    }

    /// An output that the row keeps.
    pub fn y(&self, k: usize) -> &Tensor {
        self.value(Val::Out(k))
    }

    pub fn value(&self, val: Val) -> &Tensor {
        // Where all operands are kept, each is at its place.
        let place = match val {
            Val::In(i) => i,
            Val::Out(k) => self.needs.len() + k,
        };
        let found = self.values.get(place).filter(|v| v.0 == val);
        match found.or_else(|| self.values.iter().find(|v| v.0 == val)) {
            Some((_, tensor)) => tensor,
            None => fail::raise(Error::gradient(
                self.op.name(),
                format!("its row does not keep {val:?}"),
            )),
        }
    }

    /// The spec of an operand.
    pub fn in_spec(&self, i: usize) -> &Spec {
        // Pointwise ops of one dtype do not store them: they are as the output.
        self.in_specs.get(i).unwrap_or(&self.out_specs[0])
    }

    pub fn in_shape(&self, i: usize) -> &[usize] {
        &self.in_spec(i).shape
    }

    /// Where operand `i` begins if all lie one after the other along an axis. Added up once for all
    /// operands, as there may be very many.
    pub fn start(&self, i: usize, axis: usize) -> usize {
        let add_up = || {
            let mut end = 0;
            let start = |j| {
                end += self.in_shape(j)[axis];
                end - self.in_shape(j)[axis]
            };
            (0..self.needs.len()).map(start).collect()
        };
        self.starts.get_or_init(add_up)[i]
    }

    /// The spec of a result.
    pub fn out_spec(&self, k: usize) -> &Spec {
        &self.out_specs[k]
    }

    /// How many operands and results there are.
    pub fn counts(&self) -> (usize, usize) {
        (self.needs.len(), self.out_specs.len())
    }

    pub fn needs(&self, i: usize) -> bool {
        self.needs[i]
    }

    /// The gradient of operand `i` has already been accumulated.
    pub fn satisfied(&mut self, i: usize) {
        self.needs[i] = false;
    }
}
