//! How an op differentiates: the vocabulary of the rows in `ops/`, and what follows from a row.
//!
//! A row says only what is particular to its op. Derived here, once, for all: the reverse rule (`vjp`),
//! the forward rule (`jvp`), what the tape keeps, and which operands need nothing. Accumulation, zeros, need
//! and dtype checks never appear in a row.
//!
//! Bodies of rows are ordinary tensor code. So a rule that runs while recording is on is recorded like
//! anything else: double backward needs no second implementation.

use crate::custom::Handle;
use crate::{Error, Op, Result, Spec, Tensor, fail};
use smallvec::SmallVec;
use std::cell::OnceCell;
use std::sync::Arc;

/// How y = f(x…) differentiates.
pub(crate) enum Grad {
    /// Piecewise constant: no gradient, and that is the truth, not an omission.
    Zero,
    /// Pointwise: the slope with respect to each operand.
    Slopes(&'static [Slope]),
    /// Linear in some operands, jointly; the transpose maps `dy` to the gradient of operand `i`.
    Linear(Linear),
    /// Linear in each of two operands; the transpose may use the other one.
    Bilinear(Bilinear),
    /// Anything else.
    Hand(Hand),
    /// Control flow: keeps its operands, which costs nothing inside a program.
    /// Both modes, and whether backward reads results: what a scan kept.
    Flow(fn(&Facts, &Maybe) -> Maybe, fn(&Facts, &Maybe) -> Maybe, bool),
    /// By way of simpler ops: used instead of the op itself wherever a derivative is wanted.
    Decompose(fn(&Op, &[&Tensor]) -> Outs),
    /// As its user says.
    Custom(Arc<Handle>),
}

/// The tensors an op gives or a rule returns; nearly always one or two.
pub(crate) type Outs = SmallVec<[Tensor; 1]>;
/// A gradient or tangent for each operand or result, where there is one.
pub(crate) type Maybe = SmallVec<[Option<Tensor>; 2]>;

/// One partial derivative, from the values that it names.
pub(crate) struct Slope {
    pub uses: &'static [Val],
    pub slope: fn(&[&Tensor]) -> Tensor,
    /// The formula, for the documentation.
    pub text: &'static str,
}

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

pub(crate) struct Linear {
    /// The operands it is linear in; the others are kept if the transpose uses them.
    pub wrt: Set,
    /// The other operands that the transpose uses.
    pub uses: Set,
    pub transpose: fn(&Facts, usize, &Tensor) -> Tensor,
    /// The gradient as a formula, for the documentation.
    pub formula: &'static str,
}

pub(crate) struct Bilinear {
    pub transpose: fn(&Facts, usize, &Tensor) -> Tensor,
    /// The gradients as formulas, for the documentation.
    pub formula: &'static str,
}

pub(crate) struct Hand {
    pub uses: &'static [Val],
    pub vjp: fn(&Facts, &Maybe) -> Maybe,
    pub jvp: fn(&Facts, &Maybe) -> Outs,
    /// The gradients as formulas, for the documentation.
    pub formula: &'static str,
}

/// A set of operands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Set {
    All,
    Of(&'static [usize]),
}

impl Set {
    pub fn has(self, i: usize) -> bool {
        match self {
            Set::All => true,
            Set::Of(list) => list.contains(&i),
        }
    }
}

/// Slopes of a pointwise op, one per operand: `slopes!(Y => |y| 1.0 - y * y)`.
///
/// Expands to `Grad::Slopes(&[Slope { uses: &[Y], slope: |v| { let [y] = v …; 1.0 - y * y }, text: "1.0 - y * y" }])`.
macro_rules! slopes {
    ($($($val:ident)* => |$($v:ident),*| $body:expr);+ $(;)?) => {
        $crate::rule::Grad::Slopes(const { &[$($crate::rule::Slope {
            uses: &[$($crate::rule::$val),*],
            slope: |values| {
                let &[$($v),*] = values else { unreachable!("a slope is given what it uses") };
                $body
            },
            text: stringify!($body),
        }),+] })
    };
}
pub(crate) use slopes;

/// What a rule knows about the op it differentiates: the specs, and the values that its row keeps.
pub(crate) struct Facts<'a> {
    pub op: &'a Op,
    in_specs: &'a [Spec],
    out_specs: &'a [Spec],
    inputs: Maybe,
    outputs: Maybe,
    /// Which operands want a gradient.
    needs: SmallVec<[bool; 4]>,
    /// Where each operand begins in the result, where that was asked.
    starts: OnceCell<Vec<usize>>,
}

impl<'a> Facts<'a> {
    pub fn new(
        op: &'a Op,
        in_specs: &'a [Spec],
        out_specs: &'a [Spec],
        needs: SmallVec<[bool; 4]>,
    ) -> Facts<'a> {
        let (mut inputs, mut outputs) = (Maybe::new(), Maybe::new());
        needs.iter().for_each(|_| inputs.push(None));
        out_specs.iter().for_each(|_| outputs.push(None));
        Facts { op, in_specs, out_specs, inputs, outputs, needs, starts: OnceCell::new() }
    }

    pub fn set(&mut self, val: Val, tensor: Tensor) {
        match val {
            Val::In(i) => self.inputs[i] = Some(tensor),
            Val::Out(k) => self.outputs[k] = Some(tensor),
        }
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
        let found = match val {
            Val::In(i) => &self.inputs[i],
            Val::Out(k) => &self.outputs[k],
        };
        match found {
            Some(tensor) => tensor,
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

    /// Where operand `i` begins if all lie one after the other along an axis. Added up once for all operands, as there may be very many.
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

    /// Operand `i` has got its gradient in some other way.
    pub fn satisfied(&mut self, i: usize) {
        self.needs[i] = false;
    }
}

impl Grad {
    /// Whether the op can pass a gradient to operand `i`.
    pub fn reaches(&self, i: usize) -> bool {
        match self {
            Grad::Zero => false,
            Grad::Slopes(slopes) => i < slopes.len(),
            Grad::Linear(linear) => linear.wrt.has(i),
            Grad::Bilinear(_) => i < 2,
            Grad::Hand(_) | Grad::Flow(..) | Grad::Decompose(_) => true,
            Grad::Custom(custom) => custom.reaches(i),
        }
    }

    /// Whether the tape must keep a value, given which operands are tracked.
    pub fn keeps(&self, val: Val, tracked: &[bool]) -> bool {
        let wanted = |i: usize| tracked.get(i).copied().unwrap_or(false);
        match self {
            Grad::Zero | Grad::Decompose(_) => false,
            Grad::Slopes(slopes) => {
                slopes.iter().enumerate().any(|(i, s)| wanted(i) && s.uses.contains(&val))
            }
            Grad::Linear(linear) => {
                matches!(val, Val::In(i) if !linear.wrt.has(i) && linear.uses.has(i))
            }
            Grad::Bilinear(_) => matches!(val, Val::In(i) if i < 2 && wanted(1 - i)),
            Grad::Hand(hand) => hand.uses.contains(&val),
            Grad::Flow(_, _, results) => *results || matches!(val, Val::In(_)),
            Grad::Custom(custom) => custom.rule().keeps(val),
        }
    }

    /// Reverse mode: from the gradients of the outputs to those of the operands.
    pub fn vjp(&self, facts: &Facts, dys: &Maybe) -> Result<Maybe> {
        let n = facts.needs.len();
        let each = |f: &dyn Fn(usize, &Tensor) -> Tensor| -> Maybe {
            let mut out = Maybe::new();
            for i in 0..n {
                out.push(dys[0].as_ref().filter(|_| facts.needs(i)).map(|dy| f(i, dy)));
            }
            out
        };
        Ok(match self {
            Grad::Zero | Grad::Decompose(_) => SmallVec::from_elem(None, n),
            Grad::Slopes(slopes) => each(&|i, dy| slopes[i].times(facts, dy)),
            Grad::Linear(linear) => each(&|i, dy| (linear.transpose)(facts, i, dy)),
            Grad::Bilinear(two) => each(&|i, dy| (two.transpose)(facts, i, dy)),
            Grad::Hand(hand) => (hand.vjp)(facts, dys),
            Grad::Flow(vjp, ..) => vjp(facts, dys),
            Grad::Custom(custom) => custom.rule().vjp(facts, dys),
        })
    }

    /// Forward mode: from the tangents of the operands to those of the outputs that have one; `None` where no
    /// tangent arrives. `facts` holds every operand and output.
    pub fn jvp(&self, facts: &Facts, tangents: &Maybe) -> Option<Maybe> {
        let arrives = |i: usize| self.reaches(i) && tangents[i].is_some();
        if !(0..tangents.len()).any(arrives) {
            return None;
        }
        let one = |t: Option<Tensor>| t.map(|t| SmallVec::from_elem(Some(t), 1));
        let all = |ts: Outs| Some(ts.into_iter().map(Some).collect());
        let sum = |terms: &mut dyn Iterator<Item = Tensor>| terms.reduce(|a, b| a + b);
        match self {
            Grad::Zero | Grad::Decompose(_) => None,
            Grad::Slopes(slopes) => {
                let term = |(i, s): (usize, &Slope)| Some(s.times(facts, tangents[i].as_ref()?));
                one(sum(&mut slopes.iter().enumerate().filter_map(term)))
            }
            Grad::Linear(linear) => {
                let operand = |i: usize| match (&tangents[i], linear.wrt.has(i)) {
                    (_, false) => facts.x(i).clone(),
                    (Some(t), true) => t.clone(),
                    (None, true) => facts.x(i).zeros_like_splat(),
                };
                let operands: SmallVec<[Tensor; 4]> = (0..tangents.len()).map(operand).collect();
                all(crate::apply::apply_all(
                    facts.op.clone(),
                    &operands.iter().collect::<SmallVec<[_; 4]>>(),
                ))
            }
            Grad::Bilinear(_) => {
                let op = |a: &Tensor, b: &Tensor| crate::apply::apply(facts.op.clone(), &[a, b]);
                let left = tangents[0].as_ref().map(|t| op(t, facts.x(1)));
                let right = tangents[1].as_ref().map(|t| op(facts.x(0), t));
                one(sum(&mut left.into_iter().chain(right)))
            }
            Grad::Hand(hand) => all((hand.jvp)(facts, tangents)),
            Grad::Flow(_, jvp, _) => Some(jvp(facts, tangents)),
            Grad::Custom(custom) => all(custom.rule().jvp(facts, tangents)),
        }
    }
}

/// `d · slope`. The cotangent of a sum is one value seen everywhere, most often 1: then the product is the
/// slope itself, exactly, and a pass over memory is saved.
pub(crate) fn chain(d: &Tensor, slope: &Tensor) -> Tensor {
    const WORTH_LOOKING: usize = 4096;
    if d.len() >= WORTH_LOOKING && d.spec() == slope.spec() && d.is_constant_one() {
        return slope.clone();
    }
    d * slope
}

impl Slope {
    /// `slope · d`, in one pass where there is a kernel for it.
    fn times(&self, facts: &Facts, d: &Tensor) -> Tensor {
        let mut values: SmallVec<[&Tensor; 3]> = SmallVec::new();
        self.uses.iter().for_each(|&v| values.push(facts.value(v)));
        match facts.op {
            Op::Unary(f) if f.fused_vjp().is_some() => {
                crate::apply::apply(Op::UnaryVjp(*f), &[values[0], d])
            }
            _ => chain(d, &(self.slope)(&values)),
        }
    }

    pub fn of(&self, values: &[&Tensor]) -> Tensor {
        (self.slope)(values)
    }
}
