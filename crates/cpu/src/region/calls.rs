//! The instructions of a region as loops over tiles.
//!
//! These are the loops of the unfused ops, so their bits are the same. Only the storage of
//! intermediate values differs: a tile holds floats narrower than f32 as f32, already rounded,
//! integers as i64, already wrapped, and booleans as bytes.

use crate::elem::Elem;
use crate::pointwise::{Select, cast, float, int, map1, map2, tests_of};
use crate::simd::{Isa, Kernel1, Kernel2, Kernel3, Map1, Map2, kernel1, kernel2, kernel3, level};
use half::{bf16, f16};
use pullback_ir::{Binary, Compare, DType, Error, Op, Pointwise, Result, binary_rows};
use std::marker::PhantomData;

/// The element types of tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TileKind {
    F64,
    F32,
    I64,
    Bool,
}

impl TileKind {
    pub(super) fn of(dtype: DType) -> TileKind {
        match dtype {
            DType::F64 => TileKind::F64,
            DType::F32 | DType::BF16 | DType::F16 => TileKind::F32,
            DType::I64 | DType::I32 | DType::U8 => TileKind::I64,
            DType::Bool => TileKind::Bool,
        }
    }

    /// Bytes of an element.
    pub(super) fn size(self) -> usize {
        match self {
            TileKind::F64 | TileKind::I64 => 8,
            TileKind::F32 => 4,
            TileKind::Bool => 1,
        }
    }

    /// Whether elements of a dtype have the same representation in memory and in a tile.
    pub(super) fn plain(dtype: DType) -> bool {
        matches!(dtype, DType::F64 | DType::F32 | DType::I64 | DType::Bool)
    }
}

/// A loop over tiles with erased element types.
pub(super) trait Slices: Send + Sync {
    /// Computes `n` elements at `y` from `n` at each of the first few of `x`.
    ///
    /// # Safety
    /// Its operands have `n` readable elements of its types; `y` has space for `n` and overlaps
    /// none of them.
    unsafe fn run(&self, x: [*const u8; 3], y: *mut u8, n: usize);
}

impl<X: Copy + Default, Y: Copy + Default> Slices for Kernel1<X, Y> {
    unsafe fn run(&self, x: [*const u8; 3], y: *mut u8, n: usize) {
        // SAFETY: guaranteed by the caller.
        unsafe { Kernel1::run(self, x[0].cast(), y.cast(), n) }
    }
}

impl<A: Copy + Default, B: Copy + Default, Y: Copy + Default> Slices for Kernel2<A, B, Y> {
    unsafe fn run(&self, x: [*const u8; 3], y: *mut u8, n: usize) {
        // SAFETY: guaranteed by the caller.
        unsafe { Kernel2::run(self, x[0].cast(), x[1].cast(), y.cast(), n) }
    }
}

impl<A, B, C, Y> Slices for Kernel3<A, B, C, Y>
where
    A: Copy + Default,
    B: Copy + Default,
    C: Copy + Default,
    Y: Copy + Default,
{
    unsafe fn run(&self, x: [*const u8; 3], y: *mut u8, n: usize) {
        // SAFETY: guaranteed by the caller.
        unsafe { Kernel3::run(self, x[0].cast(), x[1].cast(), x[2].cast(), y.cast(), n) }
    }
}

type SliceLoop = Box<dyn Slices>;

/// A pointwise op: one loop, and another where its result must be rounded to a type narrower than
/// the tile's.
pub(super) struct SliceCall {
    pub(super) run: SliceLoop,
    pub(super) round: Option<SliceLoop>,
}

/// Rounds to a storage type.
struct Round<S>(PhantomData<S>);

impl<S: Elem> Map1 for Round<S> {
    type X = S::Compute;
    type Y = S::Compute;
    #[inline(always)]
    fn map<I: Isa>(x: S::Compute) -> S::Compute {
        S::store(x).load()
    }
}

/// The loop that rounds to a dtype; none where tiles hold the dtype itself.
fn round(dtype: DType) -> Option<SliceLoop> {
    match dtype {
        DType::BF16 => Some(Box::new(kernel1::<Round<bf16>>(level()))),
        DType::F16 => Some(Box::new(kernel1::<Round<f16>>(level()))),
        DType::I32 => Some(Box::new(kernel1::<Round<i32>>(level()))),
        DType::U8 => Some(Box::new(kernel1::<Round<u8>>(level()))),
        DType::F64 | DType::F32 | DType::I64 | DType::Bool => None,
    }
}

/// Whether a cast is the identity on tiles.
pub(super) fn cast_is_nothing(from: DType, to: DType) -> bool {
    from == to || (TileKind::of(from) == TileKind::of(to) && matches!(to, DType::F32 | DType::I64))
}

/// The loop of a pointwise op whose operands have the dtype `from` (those after the condition, for
/// a choice).
pub(super) fn call(op: &Op, from: DType, to: DType) -> Result<SliceCall> {
    let l = level();
    let not_pointwise = || Error::argument("region", "an instruction is not pointwise");
    let point = op.pointwise().ok_or_else(not_pointwise)?;
    let run: SliceLoop = match point {
        Pointwise::Unary(f) => match from.compute() {
            _ if from == DType::Bool => Box::new(map1!(l, u8, |x| x ^ 1)),
            DType::F32 => Box::new(float::unary32(f, l)),
            DType::F64 => Box::new(float::unary64(f, l)),
            _ => Box::new(int::unary(f, from, l)),
        },
        Pointwise::UnaryVjp(f) => match from.compute() {
            DType::F32 => Box::new(float::vjp32(f, l)),
            DType::F64 => Box::new(float::vjp64(f, l)),
            _ => return Err(Error::argument(f.vjp_name(), "takes floats")),
        },
        Pointwise::Binary(f) => match from.compute() {
            _ if from == DType::Bool => truth(f)?,
            DType::F32 => Box::new(float::binary32(f, l)),
            DType::F64 => Box::new(float::binary64(f, l)),
            _ => Box::new(int::binary(f, l)),
        },
        Pointwise::Compare(f) => match from.compute() {
            _ if from == DType::Bool => compare_truth(f),
            DType::F32 => Box::new(tests_of::<f32>(f, l)),
            DType::F64 => Box::new(tests_of::<f64>(f, l)),
            _ => Box::new(tests_of::<i64>(f, l)),
        },
        Pointwise::Select => match TileKind::of(from).size() {
            8 => Box::new(kernel3::<Select<u64>>(l)),
            4 => Box::new(kernel3::<Select<u32>>(l)),
            _ => Box::new(kernel3::<Select<u8>>(l)),
        },
        Pointwise::Cast(_) => return Ok(change(from, to)),
        // Regions read and write memory themselves.
        Pointwise::Copy => return Err(not_pointwise()),
    };
    Ok(SliceCall { run, round: if exact(point) { None } else { round(to) } })
}

/// Whether an op has results of its operands' dtype without rounding.
fn exact(op: Pointwise) -> bool {
    match op {
        Pointwise::Unary(f) => f.is_exact(),
        Pointwise::Binary(f) => f.is_exact(),
        Pointwise::Compare(_) | Pointwise::Select | Pointwise::Copy => true,
        Pointwise::UnaryVjp(_) | Pointwise::Cast(_) => false,
    }
}

/// The loop of a cast that is not the identity.
fn change(from: DType, to: DType) -> SliceCall {
    let l = level();
    let (run, rounds): (SliceLoop, bool) = match (TileKind::of(from), TileKind::of(to)) {
        (TileKind::F32, TileKind::F32) => (Box::new(map1!(l, f32, |x| x)), true),
        (TileKind::F32, TileKind::F64) => (Box::new(map1!(l, f32 => f64, |x| f64::from(x))), false),
        (TileKind::F32, TileKind::I64) => (Box::new(cast::from32(to, l)), false),
        (TileKind::F32, TileKind::Bool) => {
            (Box::new(map1!(l, f32 => u8, |x| u8::from(x != 0.0))), false)
        }
        (TileKind::F64, TileKind::F32) if to == DType::F32 => {
            (Box::new(map1!(l, f64 => f32, |x| x as f32)), false)
        }
        (TileKind::F64, TileKind::F32) => {
            (Box::new(map1!(l, f64 => f32, |x| cast::to_odd(x))), true)
        }
        (TileKind::F64, TileKind::F64) => (Box::new(map1!(l, f64, |x| x)), false),
        (TileKind::F64, TileKind::I64) => (Box::new(cast::from64(to, l)), false),
        (TileKind::F64, TileKind::Bool) => {
            (Box::new(map1!(l, f64 => u8, |x| u8::from(x != 0.0))), false)
        }
        (TileKind::I64, TileKind::F32) => (Box::new(map1!(l, i64 => f32, |x| x as f32)), true),
        (TileKind::I64, TileKind::F64) => (Box::new(map1!(l, i64 => f64, |x| x as f64)), false),
        (TileKind::I64, TileKind::I64) => (Box::new(cast::from_int(to, l)), false),
        (TileKind::I64, TileKind::Bool) => {
            (Box::new(map1!(l, i64 => u8, |x| u8::from(x != 0))), false)
        }
        (TileKind::Bool, TileKind::F32) => (Box::new(map1!(l, u8 => f32, |x| f32::from(x))), false),
        (TileKind::Bool, TileKind::F64) => (Box::new(map1!(l, u8 => f64, |x| f64::from(x))), false),
        (TileKind::Bool, TileKind::I64) => (Box::new(map1!(l, u8 => i64, |x| i64::from(x))), false),
        (TileKind::Bool, TileKind::Bool) => (Box::new(map1!(l, u8, |x| x)), false),
    };
    SliceCall { run, round: if rounds { round(to) } else { None } }
}

/// The loop over booleans that a row names: `native` says which functions have one.
macro_rules! truth {
    (truth and $l:ident) => {
        Some(Box::new(map2!($l, u8, |a, b| a & b)))
    };
    (truth or $l:ident) => {
        Some(Box::new(map2!($l, u8, |a, b| a | b)))
    };
    (truth xor $l:ident) => {
        Some(Box::new(map2!($l, u8, |a, b| a ^ b)))
    };
    (any $name:ident $l:ident) => {
        None
    };
    (none $name:ident $l:ident) => {
        None
    };
}

macro_rules! of_two {
    ($(
        $f:ident $name:ident $value:literal $takes:ident $exact:ident $cost:literal $native:ident
        $cuda:tt;
    )*) => {
        fn truth(op: Binary) -> Result<SliceLoop> {
            let l = level();
            let run: Option<SliceLoop> =
                match op { $(Binary::$f => truth!($native $name l)),* };
            run.ok_or_else(|| Error::dtype(op.name(), "does not take bool"))
        }
    };
}
binary_rows!(of_two);

fn compare_truth(op: Compare) -> SliceLoop {
    /// A comparison of two booleans.
    macro_rules! test {
        ($name:ident, $a:ident, $b:ident => $body:expr) => {{
            struct $name;
            impl Map2 for $name {
                type A = u8;
                type B = u8;
                type Y = u8;
                #[inline(always)]
                fn map<I: Isa>($a: u8, $b: u8) -> u8 {
                    u8::from($body)
                }
            }
            Box::new(kernel2::<$name>(level()))
        }};
    }
    match op {
        Compare::Eq => test!(Eq, a, b => a == b),
        Compare::Ne => test!(Ne, a, b => a != b),
        Compare::Lt => test!(Lt, a, b => a < b),
        Compare::Le => test!(Le, a, b => a <= b),
        Compare::Gt => test!(Gt, a, b => a > b),
        Compare::Ge => test!(Ge, a, b => a >= b),
    }
}

/// Approximate cost of an op in additions: decides what is kept rather than recomputed, and when
/// threads are profitable.
pub(super) fn weight(op: &Op) -> usize {
    op.pointwise().map_or(1, Pointwise::cost)
}
