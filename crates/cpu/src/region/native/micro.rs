//! Pointwise ops as the few things that vector instructions do.
//!
//! Every formula here is the one in `pointwise::float`, operation by operation: nothing is fused, reordered or approximated, so the
//! bits are the same.

use crate::region::plan::{At, Group, Plan, Ref};
use pullback_ir::{Binary, Compare as Test, DType, Error, Inst, Op, Result, Unary};
use std::collections::HashMap;

/// What a register holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Lane {
    F32,
    F64,
    /// Whole numbers of 64 bits, in straight code alone.
    I64,
    /// One truth value for each lane: a mask register, or all bits of a lane under AVX2.
    Mask,
}

impl Lane {
    /// Whether elements have eight bytes.
    pub(super) fn is_double(self) -> bool {
        matches!(self, Lane::F64 | Lane::I64)
    }
}

/// Rounding, as instructions number it.
const NEAREST: u8 = 8;
const DOWN: u8 = 9;
const UP: u8 = 10;
const CUT: u8 = 11;

/// Tests, as instructions number them; none of them complains about NaN.
const EQ: u8 = 0;
const NE: u8 = 4;
const LT: u8 = 0x11;
const LE: u8 = 0x12;
const GT: u8 = 0x1E;
const GE: u8 = 0x1D;

/// What is done to registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Micro {
    Add,
    Sub,
    Mul,
    Div,
    /// The larger; the first where it is NaN.
    Max,
    Min,
    Sqrt,
    /// Bit by bit.
    And,
    Or,
    Xor,
    Round(u8),
    Compare(u8),
    /// A mask, and what is taken where it is set and where not.
    Select,
    Both,
    Either,
    Differ,
    Not,
    /// The second where the first is not set.
    Without,
    Widen,
    Narrow,
    /// The second where the mask is set, else zero.
    Where,
    /// a·b + c, −a·b + c and a·b − c, rounded once.
    Fma,
    Fnma,
    Fms,
    /// The smaller or larger; the second where either is NaN, and of two zeros.
    Lower,
    Upper,
    /// Bits as whole numbers: sums, differences, shifts, and the float nearest to one.
    WordAdd,
    WordSub,
    Left(u8),
    Right(u8),
    FromWord,
    /// Whole numbers of 64 bits; tests as instructions number them.
    WideAdd,
    WideSub,
    WideMul,
    WideMax,
    WideMin,
    WideCompare(u8),
    FromWide,
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum From {
    Does(Micro, [usize; 3], usize),
    Elements(Ref),
    One(Ref),
    Number(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Val {
    pub(super) lane: Lane,
    pub(super) from: From,
}

/// One thing after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Item {
    /// A value is computed.
    Make(usize),
    /// A value is written to memory.
    Put(usize, Ref),
}

/// The body of a native loop.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct Body {
    pub(super) values: Vec<Val>,
    pub(super) items: Vec<Item>,
}

/// Whether an op of these dtypes becomes native code. Truth values need mask registers.
pub(super) fn can(op: &Op, from: &[DType], to: DType, masks: bool) -> bool {
    let known = |d: &DType| matches!(d, DType::F32 | DType::F64) || (masks && *d == DType::Bool);
    if !from.iter().all(known) || !known(&to) {
        return false;
    }
    let of_truth = from[0] == DType::Bool;
    let single = from[0] == DType::F32;
    match op {
        Op::Unary(f) => match f {
            Unary::Not => true,
            Unary::Neg
            | Unary::Abs
            | Unary::Sign
            | Unary::Floor
            | Unary::Ceil
            | Unary::Round
            | Unary::Trunc
            | Unary::Stop
            | Unary::Square
            | Unary::Sqrt
            | Unary::Rsqrt
            | Unary::Recip
            | Unary::Relu => true,
            Unary::Exp
            | Unary::Log
            | Unary::Tanh
            | Unary::Erf
            | Unary::Sigmoid
            | Unary::Gelu
            | Unary::GeluTanh
            | Unary::Silu => single,
            Unary::Exp2
            | Unary::Expm1
            | Unary::Log2
            | Unary::Log10
            | Unary::Log1p
            | Unary::Sin
            | Unary::Cos
            | Unary::Tan
            | Unary::Asin
            | Unary::Acos
            | Unary::Atan
            | Unary::Sinh
            | Unary::Cosh
            | Unary::Asinh
            | Unary::Acosh
            | Unary::Atanh
            | Unary::Erfc
            | Unary::Erfcx
            | Unary::Erfinv
            | Unary::LogNdtr
            | Unary::Ndtri
            | Unary::Lgamma
            | Unary::Digamma
            | Unary::I0
            | Unary::I0e
            | Unary::I1
            | Unary::I1e => false,
        },
        Op::UnaryVjp(Unary::Gelu | Unary::GeluTanh | Unary::Silu | Unary::Erf) => single,
        Op::UnaryVjp(f) => matches!(
            f,
            Unary::Tanh
                | Unary::Sigmoid
                | Unary::Relu
                | Unary::Sqrt
                | Unary::Rsqrt
                | Unary::Recip
                | Unary::Log
                | Unary::Abs
                | Unary::Square
        ),
        Op::Binary(f) => match f {
            Binary::Add | Binary::Sub | Binary::Mul | Binary::Div | Binary::Copysign => true,
            Binary::Maximum | Binary::Minimum => true,
            Binary::And | Binary::Or | Binary::Xor => of_truth,
            Binary::Remainder
            | Binary::Fmod
            | Binary::FloorDiv
            | Binary::Pow
            | Binary::Atan2
            | Binary::Zeta
            | Binary::Gammainc
            | Binary::Gammaincc => false,
        },
        Op::Compare(_) => !of_truth,
        Op::Select | Op::Cast(_) => true,
        _ => false,
    }
}

/// Writes a body.
pub(super) struct Writer {
    body: Body,
    /// The numbers among the values.
    numbers: HashMap<(Lane, u64), usize>,
}

impl Micro {
    /// Whether two numbers are the same.
    pub(super) const EQUAL: Micro = Micro::Compare(EQ);
}

impl Writer {
    pub(super) fn new() -> Writer {
        Writer { body: Body { values: Vec::new(), items: Vec::new() }, numbers: HashMap::new() }
    }

    pub(super) fn finish(self) -> Body {
        self.body
    }

    /// How many things are done.
    pub(super) fn len(&self) -> usize {
        self.body.items.len()
    }

    /// Writes a value to memory.
    pub(super) fn store(&mut self, value: usize, to: Ref) {
        self.body.items.push(Item::Put(value, to));
    }

    /// The body of a group of values.
    pub(super) fn group(plan: &Plan, group: &Group, of: &dyn Fn(At) -> Ref) -> Result<Body> {
        let mut writer = Writer::new();
        let mut found: Vec<Option<usize>> = vec![None; plan.values.len()];
        for &(v, at) in &group.reads {
            let from = match at {
                At::One(_) => From::One(of(at)),
                At::Slot(_) | At::Memory(_) | At::Constant(_) => From::Elements(of(at)),
            };
            found[v] = Some(writer.value(lane(plan.values[v].dtype), from));
        }
        let mut late = Vec::new();
        let mut writes = group.writes.clone();
        writes.sort_by_key(|w| w.0);
        for &v in &group.values {
            let Inst::Point(op, of_values) = &plan.region.body[v] else {
                return Err(Error::argument("region", "an instruction is not pointwise"));
            };
            let mut x = [0; 3];
            for (x, &u) in x.iter_mut().zip(of_values) {
                let there = found[plan.stands_for(u)];
                *x = there.ok_or_else(|| Error::argument("region", "a value is not there"))?;
            }
            let from = plan.values[of_values[0]].dtype;
            let made = writer.point(op, x, from, plan.values[v].dtype)?;
            found[v] = Some(made);
            let first = writes.partition_point(|w| w.0 < v);
            for &(_, at, wait) in writes[first..].iter().take_while(|w| w.0 == v) {
                match wait {
                    true => late.push(Item::Put(made, of(at))),
                    false => writer.body.items.push(Item::Put(made, of(at))),
                }
            }
        }
        writer.body.items.extend(late);
        Ok(writer.body)
    }

    pub(super) fn value(&mut self, lane: Lane, from: From) -> usize {
        self.body.values.push(Val { lane, from });
        self.body.values.len() - 1
    }

    pub(super) fn does(&mut self, lane: Lane, micro: Micro, x: &[usize]) -> usize {
        let mut of = [0; 3];
        of[..x.len()].copy_from_slice(x);
        let made = self.value(lane, From::Does(micro, of, x.len()));
        self.body.items.push(Item::Make(made));
        made
    }

    /// The same number in every lane.
    fn number(&mut self, lane: Lane, number: f64) -> usize {
        self.bits(
            lane,
            match lane {
                Lane::F64 => number.to_bits(),
                Lane::I64 => number as i64 as u64,
                Lane::F32 | Lane::Mask => u64::from((number as f32).to_bits()),
            },
        )
    }

    pub(super) fn bits(&mut self, lane: Lane, bits: u64) -> usize {
        if let Some(&known) = self.numbers.get(&(lane, bits)) {
            return known;
        }
        let made = self.value(lane, From::Number(bits));
        self.numbers.insert((lane, bits), made);
        made
    }

    /// The sign bit, or all the others.
    pub(super) fn sign(&mut self, lane: Lane, others: bool) -> usize {
        let sign = if lane.is_double() { 1 << 63 } else { 1 << 31 };
        let all = if lane.is_double() { u64::MAX } else { u64::from(u32::MAX) };
        self.bits(lane, if others { all ^ sign } else { sign })
    }

    /// One op. `from` is the dtype of its first operand.
    pub(super) fn point(
        &mut self,
        op: &Op,
        x: [usize; 3],
        from: DType,
        to: DType,
    ) -> Result<usize> {
        use Micro::*;
        let l = lane(to);
        let [a, b, c] = x;
        Ok(match op {
            Op::Unary(f) => return self.unary(*f, a, l),
            Op::UnaryVjp(f) => return self.vjp(*f, a, b, l),
            Op::Binary(f) => match f {
                Binary::Add => self.does(l, Add, &[a, b]),
                Binary::Sub => self.does(l, Sub, &[a, b]),
                Binary::Mul => self.does(l, Mul, &[a, b]),
                Binary::Div => self.does(l, Div, &[a, b]),
                Binary::Maximum => self.does(l, Max, &[a, b]),
                Binary::Minimum => self.does(l, Min, &[a, b]),
                Binary::And => self.does(l, Both, &[a, b]),
                Binary::Or => self.does(l, Either, &[a, b]),
                Binary::Xor => self.does(l, Differ, &[a, b]),
                Binary::Copysign => {
                    let (sign, others) = (self.sign(l, false), self.sign(l, true));
                    let (size, sign) =
                        (self.does(l, And, &[a, others]), self.does(l, And, &[b, sign]));
                    self.does(l, Or, &[size, sign])
                }
                Binary::Remainder
                | Binary::Fmod
                | Binary::FloorDiv
                | Binary::Pow
                | Binary::Atan2
                | Binary::Zeta
                | Binary::Gammainc
                | Binary::Gammaincc => return none(op),
            },
            Op::Compare(f) => {
                let test = match f {
                    Test::Eq => EQ,
                    Test::Ne => NE,
                    Test::Lt => LT,
                    Test::Le => LE,
                    Test::Gt => GT,
                    Test::Ge => GE,
                };
                self.does(Lane::Mask, Micro::Compare(test), &[a, b])
            }
            Op::Select if l == Lane::Mask => {
                let (yes, no) = (self.does(l, Both, &[a, b]), self.does(l, Without, &[a, c]));
                self.does(l, Either, &[yes, no])
            }
            Op::Select => self.does(l, Select, &[a, b, c]),
            Op::Cast(_) => match (lane(from), l) {
                (Lane::F32, Lane::F64) => self.does(l, Widen, &[a]),
                (Lane::F64, Lane::F32) => self.does(l, Narrow, &[a]),
                (Lane::Mask, Lane::F32 | Lane::F64) => {
                    let one = self.number(l, 1.0);
                    self.does(l, Where, &[a, one])
                }
                (Lane::F32 | Lane::F64, Lane::Mask) => {
                    let zero = self.number(lane(from), 0.0);
                    self.does(Lane::Mask, Micro::Compare(NE), &[a, zero])
                }
                (Lane::F32, Lane::F32) | (Lane::F64, Lane::F64) | (Lane::Mask, Lane::Mask) => a,
                (Lane::I64, _) | (_, Lane::I64) => return none(op),
            },
            other => return none(other),
        })
    }

    fn unary(&mut self, f: Unary, x: usize, l: Lane) -> Result<usize> {
        use Micro::*;
        Ok(match f {
            Unary::Not => self.does(l, Not, &[x]),
            Unary::Neg => {
                let sign = self.sign(l, false);
                self.does(l, Xor, &[x, sign])
            }
            Unary::Abs => {
                let others = self.sign(l, true);
                self.does(l, And, &[x, others])
            }
            Unary::Sign => {
                let (zero, one, less) =
                    (self.number(l, 0.0), self.number(l, 1.0), self.number(l, -1.0));
                let negative = self.does(Lane::Mask, Compare(LT), &[x, zero]);
                let rest = self.does(l, Select, &[negative, less, x]);
                let positive = self.does(Lane::Mask, Compare(GT), &[x, zero]);
                self.does(l, Select, &[positive, one, rest])
            }
            Unary::Floor => self.does(l, Round(DOWN), &[x]),
            Unary::Ceil => self.does(l, Round(UP), &[x]),
            Unary::Round => self.does(l, Round(NEAREST), &[x]),
            Unary::Trunc => self.does(l, Round(CUT), &[x]),
            Unary::Stop => x,
            Unary::Square => self.does(l, Mul, &[x, x]),
            Unary::Sqrt => self.does(l, Sqrt, &[x]),
            Unary::Rsqrt => {
                let (one, root) = (self.number(l, 1.0), self.does(l, Sqrt, &[x]));
                self.does(l, Div, &[one, root])
            }
            Unary::Recip => {
                let one = self.number(l, 1.0);
                self.does(l, Div, &[one, x])
            }
            Unary::Relu => {
                let zero = self.number(l, 0.0);
                let low = self.does(Lane::Mask, Compare(LE), &[x, zero]);
                self.does(l, Select, &[low, zero, x])
            }
            Unary::Exp => self.exp(x),
            Unary::Log => self.log(x),
            Unary::Tanh => self.tanh(x),
            Unary::Erf => self.erf(x),
            Unary::Sigmoid => self.sigmoid(x),
            Unary::Gelu => self.gelu(x),
            Unary::GeluTanh => self.gelu_tanh(x),
            Unary::Silu => self.silu(x),
            other => return none(&Op::Unary(other)),
        })
    }

    /// `dy · f'`, from the kept value.
    fn vjp(&mut self, f: Unary, y: usize, dy: usize, l: Lane) -> Result<usize> {
        use Micro::*;
        Ok(match f {
            Unary::Tanh => {
                let (one, square) = (self.number(l, 1.0), self.does(l, Mul, &[y, y]));
                let rest = self.does(l, Sub, &[one, square]);
                self.does(l, Mul, &[dy, rest])
            }
            Unary::Sigmoid => {
                let one = self.number(l, 1.0);
                let rest = self.does(l, Sub, &[one, y]);
                let slope = self.does(l, Mul, &[y, rest]);
                self.does(l, Mul, &[dy, slope])
            }
            Unary::Relu => {
                let zero = self.number(l, 0.0);
                let low = self.does(Lane::Mask, Compare(LE), &[y, zero]);
                self.does(l, Select, &[low, zero, dy])
            }
            Unary::Sqrt => {
                let half = self.number(l, 0.5);
                let half = self.does(l, Mul, &[half, dy]);
                self.does(l, Div, &[half, y])
            }
            Unary::Rsqrt => {
                let half = self.number(l, -0.5);
                let half = self.does(l, Mul, &[half, dy]);
                let square = self.does(l, Mul, &[y, y]);
                let cube = self.does(l, Mul, &[square, y]);
                self.does(l, Mul, &[half, cube])
            }
            Unary::Recip => {
                let sign = self.sign(l, false);
                let minus = self.does(l, Xor, &[dy, sign]);
                let square = self.does(l, Mul, &[y, y]);
                self.does(l, Mul, &[minus, square])
            }
            Unary::Log => self.does(l, Div, &[dy, y]),
            Unary::Square => {
                let two = self.number(l, 2.0);
                let twice = self.does(l, Mul, &[two, y]);
                self.does(l, Mul, &[twice, dy])
            }
            Unary::Abs => {
                let (zero, sign) = (self.number(l, 0.0), self.sign(l, false));
                let product = self.does(l, Mul, &[y, dy]);
                let minus = self.does(l, Xor, &[dy, sign]);
                let negative = self.does(Lane::Mask, Compare(LT), &[y, zero]);
                let rest = self.does(l, Select, &[negative, minus, product]);
                let positive = self.does(Lane::Mask, Compare(GT), &[y, zero]);
                self.does(l, Select, &[positive, dy, rest])
            }
            Unary::Gelu => self.gelu_vjp(y, dy),
            Unary::GeluTanh => self.gelu_tanh_vjp(y, dy),
            Unary::Silu => self.silu_vjp(y, dy),
            Unary::Erf => self.erf_vjp(y, dy),
            other => return none(&Op::UnaryVjp(other)),
        })
    }
}

fn none<T>(op: &Op) -> Result<T> {
    Err(Error::argument(op.name(), "has no native code"))
}

pub(super) fn lane(dtype: DType) -> Lane {
    match dtype {
        DType::F64 => Lane::F64,
        DType::Bool => Lane::Mask,
        DType::F32 | DType::BF16 | DType::F16 | DType::I64 | DType::I32 | DType::U8 => Lane::F32,
    }
}
