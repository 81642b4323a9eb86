//! Pointwise ops as micro-operations, one vector instruction each.
//!
//! Every formula here is the one in `pointwise::float`, operation by operation: nothing is fused,
//! reordered or approximated, so the bits are the same.

use super::recipes::{binary, unary, vjp};
use crate::region::plan::{NativeGroup, RegionPlan, TableRef, ValueStorage};
use pullback_ir::{Compare as Test, DType, Error, Inst, Op, Pointwise, Result};
use std::collections::HashMap;

/// What a register holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Lane {
    F32,
    F64,
    /// 64-bit integers, in straight-line code only.
    I64,
    /// One boolean for each lane: a bit of a mask register, or all bits of a lane under AVX2, where
    /// lanes of masks are as wide as the widest of the body.
    Mask,
}

impl Lane {
    /// Whether elements have eight bytes.
    pub(super) fn is_double(self) -> bool {
        matches!(self, Lane::F64 | Lane::I64)
    }
}

/// Rounding modes, as encoded in instructions.
pub(super) const NEAREST: u8 = 8;
pub(super) const DOWN: u8 = 9;
pub(super) const UP: u8 = 10;
pub(super) const CUT: u8 = 11;

/// Comparisons, as encoded in instructions; none of them signals on NaN.
pub(super) const EQ: u8 = 0;
pub(super) const NE: u8 = 4;
pub(super) const LT: u8 = 0x11;
pub(super) const LE: u8 = 0x12;
pub(super) const GT: u8 = 0x1E;
pub(super) const GE: u8 = 0x1D;

/// A micro-operation on registers.
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
    /// A mask, the value where it is set, and the value where it is not.
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
    /// Bits as integers: sums, differences, shifts, and the float nearest to one.
    WordAdd,
    WordSub,
    Left(u8),
    Right(u8),
    FromWord,
    /// 64-bit integers; comparisons as encoded in instructions.
    WideAdd,
    WideSub,
    WideMul,
    WideMax,
    WideMin,
    WideCompare(u8),
    FromWide,
}

/// The origin of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ValueOrigin {
    Computed(Micro, [usize; 3], usize),
    Elements(TableRef),
    One(TableRef),
    Number(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct BodyValue {
    pub(super) lane: Lane,
    pub(super) from: ValueOrigin,
}

/// An item of a body, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Item {
    /// A value is computed.
    Make(usize),
    /// A value is written to memory.
    Put(usize, TableRef),
}

/// The body of a native loop.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct Body {
    pub(super) values: Vec<BodyValue>,
    pub(super) items: Vec<Item>,
}

/// Whether an op of these dtypes becomes native code.
pub(super) fn can(op: &Op, from: &[DType], to: DType) -> bool {
    let known = |d: &DType| matches!(d, DType::F32 | DType::F64 | DType::Bool);
    if !from.iter().all(known) || !known(&to) {
        return false;
    }
    match op.pointwise() {
        Some(Pointwise::Unary(f)) => unary(f).fits(from[0]),
        Some(Pointwise::UnaryVjp(f)) => vjp(f).fits(from[0]),
        Some(Pointwise::Binary(f)) => binary(f).fits(from[0]),
        Some(Pointwise::Compare(_)) => from[0] != DType::Bool,
        Some(Pointwise::Select | Pointwise::Cast(_)) => true,
        Some(Pointwise::Copy) | None => false,
    }
}

/// Builds a body.
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

    /// The number of items.
    pub(super) fn len(&self) -> usize {
        self.body.items.len()
    }

    /// Writes a value to memory.
    pub(super) fn store(&mut self, value: usize, to: TableRef) {
        self.body.items.push(Item::Put(value, to));
    }

    /// The body of a group of values.
    pub(super) fn group(
        plan: &RegionPlan,
        group: &NativeGroup,
        of: &dyn Fn(ValueStorage) -> TableRef,
    ) -> Result<Body> {
        let mut writer = Writer::new();
        let mut found: Vec<Option<usize>> = vec![None; plan.values.len()];
        for &(v, at) in &group.reads {
            let from = match at {
                ValueStorage::One(_) => ValueOrigin::One(of(at)),
                ValueStorage::Slot(_) | ValueStorage::Memory(_) | ValueStorage::Constant(_) => {
                    ValueOrigin::Elements(of(at))
                }
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
                let there = found[plan.alias_of(u)];
                *x = there.ok_or_else(|| Error::argument("region", "a value is missing"))?;
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

    pub(super) fn value(&mut self, lane: Lane, from: ValueOrigin) -> usize {
        self.body.values.push(BodyValue { lane, from });
        self.body.values.len() - 1
    }

    pub(super) fn does(&mut self, lane: Lane, micro: Micro, x: &[usize]) -> usize {
        let mut of = [0; 3];
        of[..x.len()].copy_from_slice(x);
        let made = self.value(lane, ValueOrigin::Computed(micro, of, x.len()));
        self.body.items.push(Item::Make(made));
        made
    }

    /// The same number in every lane.
    pub(super) fn number(&mut self, lane: Lane, number: f64) -> usize {
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
        let made = self.value(lane, ValueOrigin::Number(bits));
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
        Ok(match op.pointwise() {
            Some(Pointwise::Unary(f)) => return unary(f).write(self, [a], l, op),
            Some(Pointwise::UnaryVjp(f)) => return vjp(f).write(self, [a, b], l, op),
            Some(Pointwise::Binary(f)) => return binary(f).write(self, [a, b], l, op),
            Some(Pointwise::Compare(f)) => {
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
            Some(Pointwise::Select) if l == Lane::Mask => {
                let (yes, no) = (self.does(l, Both, &[a, b]), self.does(l, Without, &[a, c]));
                self.does(l, Either, &[yes, no])
            }
            Some(Pointwise::Select) => self.does(l, Select, &[a, b, c]),
            Some(Pointwise::Cast(_)) => match (lane(from), l) {
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
            Some(Pointwise::Copy) | None => return none(op),
        })
    }
}

pub(super) fn none<T>(op: &Op) -> Result<T> {
    Err(Error::argument(op.name(), "has no native code"))
}

pub(super) fn lane(dtype: DType) -> Lane {
    match dtype {
        DType::F64 => Lane::F64,
        DType::Bool => Lane::Mask,
        DType::F32 | DType::BF16 | DType::F16 | DType::I64 | DType::I32 | DType::U8 => Lane::F32,
    }
}
