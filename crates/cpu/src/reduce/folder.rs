//! Folds whose type is known at run time only, for the reductions of a fused region.
//!
//! A value of any compute type is passed as 64 bits. The loops are those of [`super::fold_run`], so
//! a run of contiguous elements gives the same bits as the unfused reduction.

use super::{Fold, Max, Min, Prod, Sum, extreme_of_none, fold_each, fold_run};
use crate::elem::{Bool, Elem};
use crate::simd::level;
use pullback_ir::{DType, Reduction, Scalar};

/// A compute type as 64 bits.
trait Bits: Copy {
    fn to(self) -> u64;
    fn from(bits: u64) -> Self;
}

impl Bits for f64 {
    fn to(self) -> u64 {
        self.to_bits()
    }
    fn from(bits: u64) -> f64 {
        f64::from_bits(bits)
    }
}

impl Bits for f32 {
    fn to(self) -> u64 {
        self.to_bits().into()
    }
    fn from(bits: u64) -> f32 {
        f32::from_bits(bits as u32)
    }
}

impl Bits for i64 {
    fn to(self) -> u64 {
        self as u64
    }
    fn from(bits: u64) -> i64 {
        bits as i64
    }
}

/// One kind of fold over one type of elements.
#[derive(Clone, Copy)]
pub(crate) struct Folder {
    run: unsafe fn(*const u8, usize) -> u64,
    each: unsafe fn(*const u8, usize, usize, *mut u8),
    join: fn(u64, u64) -> u64,
    /// The fold of no elements.
    pub(crate) neutral: u64,
}

impl Folder {
    /// Folds `n` contiguous elements.
    ///
    /// # Safety
    /// There are `n` readable elements of the type this was made for.
    #[inline]
    pub(crate) unsafe fn run(&self, x: *const u8, n: usize) -> u64 {
        // SAFETY: passed on.
        unsafe { (self.run)(x, n) }
    }

    /// Folds each of `rows` contiguous rows of `row` elements, and writes the results as the
    /// compute type.
    ///
    /// # Safety
    /// There are so many readable elements of the type this was made for, and space for the
    /// results.
    #[inline]
    pub(crate) unsafe fn each(&self, x: *const u8, row: usize, rows: usize, out: *mut u8) {
        // SAFETY: passed on.
        unsafe { (self.each)(x, row, rows, out) }
    }
}

/// The fold over elements stored as `dtype`, which is a compute type or `bool`. The fold of no
/// elements has the value that the unfused reduction has for a result of dtype `result`.
pub(crate) fn folder(kind: Reduction, dtype: DType, result: DType) -> Folder {
    fn of<S: Elem<Compute: Bits>, K: Fold<S::Compute>>(none: Option<Scalar>) -> Folder {
        unsafe fn run<S: Elem<Compute: Bits>, K: Fold<S::Compute>>(x: *const u8, n: usize) -> u64 {
            // SAFETY: passed on; the level is this machine's.
            unsafe { fold_run::<S, K>(level(), x.cast(), 1, n, true) }.to()
        }
        unsafe fn each<S: Elem<Compute: Bits>, K: Fold<S::Compute>>(
            x: *const u8,
            row: usize,
            rows: usize,
            out: *mut u8,
        ) {
            // SAFETY: passed on; the level is this machine's.
            unsafe { fold_each::<S, K>(level(), x.cast(), row, rows, out.cast()) }
        }
        let neutral = none.map_or(K::NEUTRAL, S::Compute::of).to();
        let join = |a, b| K::join(Bits::from(a), Bits::from(b)).to();
        Folder { run: run::<S, K>, each: each::<S, K>, join, neutral }
    }
    fn any<S: Elem<Compute: Bits>>(kind: Reduction, none: Option<Scalar>) -> Folder
    where
        Sum: Fold<S::Compute>,
        Prod: Fold<S::Compute>,
        Max: Fold<S::Compute>,
        Min: Fold<S::Compute>,
    {
        match kind {
            Reduction::Sum => of::<S, Sum>(none),
            Reduction::Prod => of::<S, Prod>(none),
            Reduction::Max => of::<S, Max>(none),
            Reduction::Min => of::<S, Min>(none),
        }
    }
    // An integer narrower than i64 has its own extremes.
    let none = extreme_of_none(kind, result).map(|value| match result {
        DType::I32 => Scalar::Int(i32::of(value).into()),
        DType::U8 => Scalar::Int(u8::of(value).into()),
        _ => value,
    });
    match dtype {
        DType::F64 => any::<f64>(kind, none),
        DType::F32 | DType::BF16 | DType::F16 => any::<f32>(kind, none),
        DType::Bool => any::<Bool>(kind, none),
        DType::I64 | DType::I32 | DType::U8 => any::<i64>(kind, none),
    }
}

/// Folds of pieces joined pairwise as they come: [`super::Pairwise`] for any type.
#[derive(Clone, Copy)]
pub(crate) struct Joined {
    places: [u64; 48],
    count: u64,
}

impl Joined {
    pub(crate) const NOTHING: Joined = Joined { places: [0; 48], count: 0 };

    #[inline]
    pub(crate) fn push(&mut self, folder: &Folder, mut value: u64) {
        let carries = self.count.trailing_ones() as usize;
        for place in &self.places[..carries] {
            value = (folder.join)(*place, value);
        }
        self.places[carries.min(47)] = value;
        self.count += 1;
    }

    pub(crate) fn total(&self, folder: &Folder) -> u64 {
        let mut total = None;
        for place in (0..48).filter(|place| self.count >> place & 1 == 1) {
            let here = self.places[place];
            total = Some(total.map_or(here, |low| (folder.join)(here, low)));
        }
        total.unwrap_or(folder.neutral)
    }
}
