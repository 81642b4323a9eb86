//! Straight-line code: scalar work of many steps as one list of instructions, without a domain or a
//! loop.
//!
//! The region compiler can turn a region over one element into straight-line code in the lowest
//! lane. Here the list of instructions is built by the caller: loads, pointwise ops and stores, in
//! order, through a table of pointers. What one step stores and a later one loads stays in its
//! register.

use super::NativeTarget;
use super::code_cache::{CodeKey, MachineCode, NativeFn};
use super::micro::{Lane, Micro, ValueOrigin, Writer};
use crate::region::CodegenMode;
use crate::region::build::literal;
use crate::region::plan::TableRef;
use pullback_ir::{
    Binary, Compare, DType, Error, Ints, Op, Pointwise, Result, Scalar, binary_rows,
};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// A scalar.
pub(crate) type ScalarId = usize;

/// Straight-line code being built.
pub(crate) struct StraightBuilder {
    target: NativeTarget,
    writer: Writer,
    dtypes: HashMap<ScalarId, DType>,
    /// The value known to be in memory, by entry and byte.
    known: BTreeMap<(u32, u32), ScalarId>,
    /// Values that were loaded, and may be reloaded at their next use, by entry and byte.
    loaded: BTreeMap<(u32, u32), Vec<ScalarId>>,
    /// The copy that replaces a loaded value since its memory was overwritten.
    instead: HashMap<ScalarId, ScalarId>,
}

/// Straight-line code, ready to run.
pub(crate) struct Straight {
    run: NativeFn,
    /// Bytes that it needs at the scratch entry.
    pub(crate) scratch: usize,
    code: Arc<MachineCode>,
}

impl StraightBuilder {
    /// `None` if this machine has no native code, or the environment disables it.
    pub(crate) fn new() -> Option<StraightBuilder> {
        StraightBuilder::with(CodegenMode::chosen())
    }

    fn with(how: CodegenMode) -> Option<StraightBuilder> {
        let target = NativeTarget::of(how)?;
        Some(StraightBuilder {
            target,
            writer: Writer::new(),
            dtypes: HashMap::default(),
            known: BTreeMap::new(),
            loaded: BTreeMap::new(),
            instead: HashMap::default(),
        })
    }

    /// Whether elements of a dtype are supported.
    pub(crate) fn holds(dtype: DType) -> bool {
        matches!(dtype, DType::F64 | DType::F32 | DType::Bool | DType::I64)
    }

    /// Whether an op has code.
    pub(crate) fn can(&self, op: &Op, from: &[DType], to: DType) -> bool {
        match from.iter().chain([&to]).any(|d| *d == DType::I64) {
            true => {
                from.iter().all(|d| StraightBuilder::holds(*d)) && whole(op, from, to).is_some()
            }
            false => NativeTarget::can(op, from, to),
        }
    }

    /// The number of items built so far.
    pub(crate) fn len(&self) -> usize {
        self.writer.len()
    }

    /// The element at a byte offset of a table entry.
    pub(crate) fn load(&mut self, entry: usize, byte: usize, dtype: DType) -> ScalarId {
        let place = TableRef { entry: entry as u32, disp: byte as u32 };
        if let Some(&known) = self.known.get(&(place.entry, place.disp))
            && self.dtypes.get(&known) == Some(&dtype)
        {
            return known;
        }
        let value = self.writer.load(lane(dtype), place);
        self.dtypes.insert(value, dtype);
        self.known.insert((place.entry, place.disp), value);
        self.loaded.entry((place.entry, place.disp)).or_default().push(value);
        value
    }

    /// A number.
    pub(crate) fn number(&mut self, number: Scalar, dtype: DType) -> ScalarId {
        let mut bits = [0; crate::simd::BLOCK];
        literal(number, dtype, &mut bits);
        let value = match dtype {
            DType::Bool => self.writer.truth(bits[0] & 0xFF != 0),
            _ => self.writer.bits(lane(dtype), bits[0]),
        };
        self.dtypes.insert(value, dtype);
        value
    }

    /// The result of an op on scalars.
    ///
    /// # Errors
    /// If the op has no code: see [`StraightBuilder::can`].
    pub(crate) fn point(&mut self, op: &Op, of: &[ScalarId], to: DType) -> Result<ScalarId> {
        let mut x = [0; 3];
        for (x, v) in x.iter_mut().zip(of) {
            *x = self.now(*v);
        }
        let from: Vec<DType> =
            (x.iter().take(of.len())).map(|v| self.dtypes.get(v).copied().unwrap_or(to)).collect();
        let value = match from.iter().chain([&to]).any(|d| *d == DType::I64) {
            true => self.point_whole(op, x, &from, to)?,
            false => self.writer.point(op, x, from[0], to)?,
        };
        self.dtypes.insert(value, to);
        Ok(value)
    }

    /// The result of an op on scalars some of which are integers.
    fn point_whole(
        &mut self,
        op: &Op,
        x: [ScalarId; 3],
        from: &[DType],
        to: DType,
    ) -> Result<ScalarId> {
        let Some(whole) = whole(op, from, to) else {
            return Err(Error::argument(op.name(), "has no native code"));
        };
        let [a, b, c] = x;
        let writer = &mut self.writer;
        Ok(match whole {
            IntegerOp::Same => a,
            IntegerOp::Micro(micro) => writer.does(lane(to), micro, &[a, b]),
            IntegerOp::Float => writer.does(lane(to), Micro::FromWide, &[a]),
            IntegerOp::Select => writer.does(lane(to), Micro::Select, &[a, b, c]),
            IntegerOp::One => {
                let one = writer.bits(Lane::I64, 1);
                writer.does(Lane::I64, Micro::Where, &[a, one])
            }
            IntegerOp::Minus => {
                let zero = writer.bits(Lane::I64, 0);
                writer.does(Lane::I64, Micro::WideSub, &[zero, a])
            }
        })
    }

    /// Writes an element.
    pub(crate) fn store(&mut self, value: ScalarId, entry: usize, byte: usize) {
        let value = self.now(value);
        let dtype = self.dtypes.get(&value).copied().unwrap_or(DType::F64);
        let to = TableRef { entry: entry as u32, disp: byte as u32 };
        if self.known.get(&(to.entry, to.disp)) == Some(&value) {
            return;
        }
        let end = byte + dtype.size();
        // No element is longer than eight bytes: whatever overlaps these bytes starts in this
        // range.
        let range = (to.entry, to.disp.saturating_sub(7))..(to.entry, end as u32);
        let size = |v: &ScalarId| self.dtypes.get(v).map_or(8, |d| d.size());
        let over = |at: &(u32, u32), v: &ScalarId| byte < at.1 as usize + size(v);
        // What was loaded from there may be used later: from now on it stays in a register, or is
        // spilled.
        let lost: Vec<((u32, u32), ScalarId)> = (self.loaded.range(range.clone()))
            .flat_map(|(at, values)| values.iter().map(|v| (*at, *v)))
            .filter(|(at, v)| over(at, v))
            .collect();
        let gone: Vec<(u32, u32)> =
            (self.known.range(range)).filter(|(at, v)| over(at, v)).map(|(at, _)| *at).collect();
        for (at, v) in &lost {
            if let Some(values) = self.loaded.get_mut(at) {
                values.retain(|other| other != v);
            }
        }
        for (_, v) in lost {
            let dtype = self.dtypes.get(&v).copied().unwrap_or(DType::F64);
            let same = if dtype == DType::Bool { Micro::Both } else { Micro::Or };
            let copy = self.writer.does(lane(dtype), same, &[v, v]);
            self.dtypes.insert(copy, dtype);
            self.instead.insert(v, copy);
        }
        for at in gone {
            self.known.remove(&at);
        }
        let value = self.now(value);
        self.writer.store(value, to);
        self.known.insert((to.entry, to.disp), value);
    }

    fn now(&self, value: ScalarId) -> ScalarId {
        self.instead.get(&value).copied().unwrap_or(value)
    }

    /// Makes it executable. Spilled values are written to the memory of the table entry `scratch`.
    ///
    /// # Errors
    /// If an instruction cannot be encoded, or memory for code cannot be allocated.
    pub(crate) fn finish(self, scratch: usize) -> Result<Straight> {
        let code = CodeKey {
            set: self.target.set,
            scalar: true,
            spill: TableRef { entry: scratch as u32, disp: 0 },
            streamed: 0..0,
            bodies: vec![self.writer.finish()],
        }
        .compiled()?;
        let Some(run) = code.functions().next() else {
            return Err(Error::argument("program", "straight-line code has no function"));
        };
        Ok(Straight { run, scratch: code.spilled, code })
    }
}

impl Straight {
    /// The code as text.
    pub(crate) fn listing(&self) -> Option<String> {
        self.code.listing()
    }

    /// Runs it.
    ///
    /// # Safety
    /// The table's entries point to valid memory for every element that is loaded or stored, and
    /// for the scratch.
    #[inline(always)]
    pub(crate) unsafe fn run(&self, table: &[*mut u8]) {
        // SAFETY: guaranteed by the caller.
        unsafe { (self.run)(table.as_ptr(), 1) }
    }
}

fn lane(dtype: DType) -> Lane {
    match dtype {
        DType::I64 => Lane::I64,
        other => super::micro::lane(other),
    }
}

/// How an op on integers is computed.
enum IntegerOp {
    Same,
    Micro(Micro),
    Select,
    /// One where it is true, else zero.
    One,
    Minus,
    Float,
}

/// The instruction that computes a function of two integers, if one does.
macro_rules! instruction {
    (add) => {
        Some(Micro::WideAdd)
    };
    (sub) => {
        Some(Micro::WideSub)
    };
    (mul) => {
        Some(Micro::WideMul)
    };
    (maximum) => {
        Some(Micro::WideMax)
    };
    (minimum) => {
        Some(Micro::WideMin)
    };
    ($name:ident) => {
        None
    };
}

macro_rules! of_two {
    ($(
        $f:ident $name:ident $value:literal $takes:ident $exact:ident $cost:literal $native:ident
        $cuda:tt;
    )*) => {
        fn micro(f: Binary) -> Option<Micro> {
            match f { $(Binary::$f => instruction!($name)),* }
        }
    };
}
binary_rows!(of_two);

fn whole(op: &Op, from: &[DType], to: DType) -> Option<IntegerOp> {
    Some(match op.pointwise()? {
        // The functions of integers that straight-line code supports.
        Pointwise::Unary(f) => match f.ints()? {
            Ints::Same => IntegerOp::Same,
            Ints::Neg => IntegerOp::Minus,
            Ints::Abs | Ints::Sign | Ints::Not | Ints::Square | Ints::Relu => return None,
        },
        Pointwise::UnaryVjp(_) | Pointwise::Copy => return None,
        Pointwise::Binary(f) => IntegerOp::Micro(micro(f)?),
        Pointwise::Compare(f) => IntegerOp::Micro(Micro::WideCompare(match f {
            Compare::Eq => 0,
            Compare::Lt => 1,
            Compare::Le => 2,
            Compare::Ne => 4,
            Compare::Ge => 5,
            Compare::Gt => 6,
        })),
        Pointwise::Select => IntegerOp::Select,
        Pointwise::Cast(_) => match (from[0], to) {
            (DType::I64, DType::I64) => IntegerOp::Same,
            (DType::I64, DType::F64) => IntegerOp::Float,
            (DType::Bool, DType::I64) => IntegerOp::One,
            _ => return None,
        },
    })
}

impl Writer {
    fn load(&mut self, lane: Lane, place: TableRef) -> ScalarId {
        self.value(lane, ValueOrigin::One(place))
    }

    /// True or false, by a comparison of numbers.
    fn truth(&mut self, holds: bool) -> ScalarId {
        let (one, zero) = (self.bits(Lane::F64, 1f64.to_bits()), self.bits(Lane::F64, 0));
        let other = if holds { one } else { zero };
        self.does(Lane::Mask, Micro::EQUAL, &[one, other])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pullback_ir::Unary;

    /// What an op of two elements makes of them, in straight-line code.
    fn made(how: CodegenMode, op: &Op, x: [(u64, DType); 3], to: DType) -> Option<u64> {
        let mut builder = StraightBuilder::with(how)?;
        let count = match op.pointwise()? {
            Pointwise::Binary(_) | Pointwise::Compare(_) => 2,
            Pointwise::Select => 3,
            _ => 1,
        };
        let from: Vec<DType> = x[..count].iter().map(|x| x.1).collect();
        assert!(builder.can(op, &from, to), "{op:?} of {from:?}");
        let of: Vec<ScalarId> =
            from.iter().enumerate().map(|(i, &dtype)| builder.load(0, 8 * i, dtype)).collect();
        let value = builder.point(op, &of, to).expect("an op");
        builder.store(value, 1, 0);
        // More values than there are registers, which spill booleans too.
        for i in 0..40 {
            let far = builder.load(2, 8 * i, DType::I64);
            let is = builder.point(&Op::Compare(Compare::Ge), &[far, far], DType::Bool);
            builder.store(is.expect("an op"), 3, i);
        }
        builder.store(value, 4, 0);
        let code = builder.finish(5).expect("code");
        let mut words = [x[0].0, x[1].0, x[2].0];
        let (mut result, mut many, mut tests, mut again) = (0u64, [7i64; 40], [0u8; 40], 0u64);
        let mut scratch = vec![0u128; code.scratch.div_ceil(16)];
        let table = [
            words.as_mut_ptr().cast::<u8>(),
            (&raw mut result).cast(),
            many.as_mut_ptr().cast(),
            tests.as_mut_ptr(),
            (&raw mut again).cast(),
            scratch.as_mut_ptr().cast(),
        ];
        // SAFETY: every entry has what is loaded from and stored to it.
        unsafe { code.run(&table) };
        assert_eq!((tests, again), ([1; 40], result), "{op:?}");
        Some(result)
    }

    #[test]
    fn integers_and_booleans_are_exact_on_every_instruction_set() {
        let edges = [0, 1, -1, 2, -3, 5, 1 << 31, 1 << 32, -(1 << 33) + 9, i64::MAX, i64::MIN];
        let truth = |bit: bool| u64::from(bit);
        for how in [CodegenMode::Best, CodegenMode::Avx2] {
            if StraightBuilder::with(how).is_none() {
                return;
            }
            let pair = |op: Op, a: i64, b: i64, to| {
                let x = [(a as u64, DType::I64), (b as u64, DType::I64), (0, DType::I64)];
                made(how, &op, x, to).expect("code")
            };
            for a in edges {
                let one = |op: Op, to| pair(op, a, 0, to);
                assert_eq!(one(Op::Unary(Unary::Neg), DType::I64), a.wrapping_neg() as u64);
                assert_eq!(one(Op::Cast(DType::F64), DType::F64), (a as f64).to_bits(), "{a}");
                for b in edges {
                    let two = |f| pair(Op::Binary(f), a, b, DType::I64) as i64;
                    assert_eq!(two(Binary::Add), a.wrapping_add(b), "{a} + {b}");
                    assert_eq!(two(Binary::Sub), a.wrapping_sub(b), "{a} - {b}");
                    assert_eq!(two(Binary::Mul), a.wrapping_mul(b), "{a} · {b}");
                    assert_eq!(two(Binary::Maximum), a.max(b), "{a}, {b}");
                    assert_eq!(two(Binary::Minimum), a.min(b), "{a}, {b}");
                    let test = |f| pair(Op::Compare(f), a, b, DType::Bool);
                    assert_eq!(test(Compare::Eq), truth(a == b), "{a} = {b}");
                    assert_eq!(test(Compare::Ne), truth(a != b), "{a} ≠ {b}");
                    assert_eq!(test(Compare::Lt), truth(a < b), "{a} < {b}");
                    assert_eq!(test(Compare::Le), truth(a <= b), "{a} ≤ {b}");
                    assert_eq!(test(Compare::Gt), truth(a > b), "{a} > {b}");
                    assert_eq!(test(Compare::Ge), truth(a >= b), "{a} ≥ {b}");
                }
            }
        }
    }

    #[test]
    fn booleans_select_elements_of_every_width() {
        let (t, f) = (1u64, 0u64);
        for how in [CodegenMode::Best, CodegenMode::Avx2] {
            if StraightBuilder::with(how).is_none() {
                return;
            }
            let made = |op: Op, x, to| made(how, &op, x, to).expect("code");
            for (a, b) in [(t, t), (t, f), (f, t), (f, f)] {
                let x = [(a, DType::Bool), (b, DType::Bool), (0, DType::Bool)];
                let two = |op| made(Op::Binary(op), x, DType::Bool);
                assert_eq!(
                    (two(Binary::And), two(Binary::Or), two(Binary::Xor)),
                    (a & b, a | b, a ^ b)
                );
                assert_eq!(made(Op::Unary(Unary::Not), x, DType::Bool), 1 - a);
                assert_eq!(made(Op::Cast(DType::I64), x, DType::I64), a);
                assert_eq!(made(Op::Cast(DType::F32), x, DType::F32), a * 1f32.to_bits() as u64);
                for (dtype, y, n) in [
                    (DType::F32, 2.5f32.to_bits().into(), (-1f32).to_bits().into()),
                    (DType::F64, 2.5f64.to_bits(), (-1f64).to_bits()),
                    (DType::I64, 7, 9),
                    (DType::Bool, b, 1 - b),
                ] {
                    let x = [(a, DType::Bool), (y, dtype), (n, dtype)];
                    assert_eq!(made(Op::Select, x, dtype), if a == t { y } else { n });
                }
            }
        }
    }
}
