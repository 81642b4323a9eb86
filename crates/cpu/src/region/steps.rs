//! The steps on one tile, and how they are run.

use super::calls::{SliceCall, TileKind};
use super::domain::{Access, Domain};
use super::plan::TableRef;
use crate::operand::Source;
use crate::pointwise::tiles::TileElem;
use crate::random;
use crate::reduce::{Folder, Joined};
use crate::simd::BLOCK;
use half::{bf16, f16};
use pullback_ir::{DType, Random};

/// A step over a tile, with addresses.
pub(super) enum TileStep {
    /// Loads elements of an operand into a tile.
    Gather { input: usize, dtype: DType, to: TableRef },
    /// The index along an axis of this many elements, `repeat` times each.
    Index { len: usize, repeat: usize, dtype: DType, to: TableRef },
    /// Random numbers.
    Random { kind: Random, key: usize, dtype: DType, to: TableRef, through: TableRef },
    /// One element for a whole tile, or one for each row of it.
    Expand { from: TableRef, kind: TileKind, row: Option<usize>, to: TableRef },
    /// A slice kernel. `padded` if all its tiles have space for whole blocks.
    Call { call: SliceCall, from: [TableRef; 3], to: TableRef, through: TableRef, padded: bool },
    /// A native loop: see [`super::native`].
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    Native(NativeLoop),
    /// A reduction of the tile.
    Fold { reduce: usize, from: TableRef },
    /// Stores a tile to a result of the same or another type.
    Store { from: TableRef, kind: TileKind, dtype: DType, to: TableRef },
}

/// Repeated runs of up to this many elements are copied within the tile.
const REPEATED: usize = 256;

/// A function of a table of pointers and a number of elements.
#[cfg(target_arch = "x86_64")]
pub(super) type NativeLoop = unsafe extern "sysv64" fn(*const *mut u8, usize);
/// There is no native code for this target.
#[cfg(not(target_arch = "x86_64"))]
pub(super) type NativeLoop = unsafe fn(*const *mut u8, usize);

/// A placeholder for native code until all of it is compiled.
#[cfg(target_arch = "x86_64")]
pub(super) unsafe extern "sysv64" fn not_compiled(_: *const *mut u8, _: usize) {}

/// A reduction with addresses.
pub(super) struct ReductionStep {
    pub(super) folder: Folder,
    pub(super) size: usize,
    pub(super) dtype: DType,
    /// The row value it computes.
    pub(super) to: TableRef,
}

impl ReductionStep {
    /// Writes a complete fold to the row value of the row with a number.
    ///
    /// # Safety
    /// The table's row values have space for it.
    pub(super) unsafe fn put(&self, table: *const *mut u8, row: usize, bits: u64) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let to = at(table, self.to);
            match self.dtype {
                DType::F64 | DType::I64 => to.cast::<u64>().add(row).write(bits),
                DType::F32 => to.cast::<u32>().add(row).write(bits as u32),
                DType::BF16 => to.cast::<f32>().add(row).write(rounded::<bf16>(bits)),
                DType::F16 => to.cast::<f32>().add(row).write(rounded::<f16>(bits)),
                // Narrow integers are stored as 64 bits, extremes included.
                DType::I32 | DType::U8 => to.cast::<u64>().add(row).write(bits),
                DType::Bool => to.add(row).write(u8::from(bits != 0)),
            }
        }
    }
}

fn rounded<S: crate::elem::Elem<Compute = f32>>(bits: u64) -> f32 {
    S::store(f32::from_bits(bits as u32)).load()
}

/// The address of a reference.
///
/// # Safety
/// The table has the entry.
#[inline(always)]
pub(super) unsafe fn at(table: *const *mut u8, place: TableRef) -> *mut u8 {
    // SAFETY: guaranteed by the caller.
    unsafe { (*table.add(place.entry as usize)).wrapping_add(place.disp as usize) }
}

/// Loads or stores elements of a tile, by the kind of the tile.
macro_rules! by_kind {
    ($kind:expr, $T:ident => $body:expr) => {
        match $kind {
            TileKind::F64 => {
                type $T = f64;
                $body
            }
            TileKind::F32 => {
                type $T = f32;
                $body
            }
            TileKind::I64 => {
                type $T = i64;
                $body
            }
            TileKind::Bool => {
                type $T = u8;
                $body
            }
        }
    };
}

/// The tile that steps are run on.
pub(super) struct TileContext<'a> {
    pub(super) table: *const *mut u8,
    /// Index of its first element in the domain.
    pub(super) start: usize,
    /// Number of elements, at least one.
    pub(super) n: usize,
    pub(super) domain: &'a Domain,
    pub(super) inputs: &'a [Source<'a>],
    pub(super) reducing: &'a [ReductionStep],
    /// Folds of the row so far, where a row has several tiles.
    pub(super) joined: *mut Joined,
}

impl TileContext<'_> {
    /// Runs a step.
    ///
    /// # Safety
    /// The table's entries point at the memory in the plan, with space for the tile.
    #[inline]
    pub(super) unsafe fn run(&self, step: &TileStep) {
        let (table, n) = (self.table, self.n);
        // SAFETY: guaranteed by the caller; a step never writes a slot that it reads.
        unsafe {
            match step {
                TileStep::Native(code) => code(table, n),
                TileStep::Call { call, from, to, through, padded } => {
                    let n = if *padded { n.next_multiple_of(BLOCK) } else { n };
                    let from = from.map(|from| at(table, from).cast_const());
                    let to = at(table, *to);
                    match &call.round {
                        None => call.run.run(from, to, n),
                        Some(round) => {
                            let through = at(table, *through);
                            call.run.run(from, through, n);
                            round.run([through; 3], to, n);
                        }
                    }
                }
                TileStep::Gather { input, dtype, to } => {
                    self.gather(*input, *dtype, at(table, *to))
                }
                TileStep::Index { len, repeat, dtype, to } => {
                    self.index(*len, *repeat, *dtype, at(table, *to));
                }
                TileStep::Random { kind, key, dtype, to, through } => {
                    let key = self.inputs[*key].ptr.cast::<[i64; 2]>().read_unaligned();
                    let to = at(table, *to);
                    if TileKind::plain(*dtype) {
                        return random::span(*kind, *dtype, key, self.start, n, to);
                    }
                    let through = at(table, *through);
                    random::span(*kind, *dtype, key, self.start, n, through);
                    f32::load(*dtype)(through, 1, n, to.cast());
                }
                TileStep::Expand { from, kind, row, to } => {
                    let (from, to) = (at(table, *from), at(table, *to));
                    by_kind!(kind, T => {
                        let (from, to) = (from.cast::<T>(), to.cast::<T>());
                        match *row {
                            None => spread(from.read(), to, n),
                            Some(row) => (0..n.div_ceil(row.max(1)))
                                .for_each(|r| spread(from.add(r).read(), to.add(r * row), row)),
                        }
                    });
                }
                TileStep::Fold { reduce, from } => {
                    let how = &self.reducing[*reduce];
                    let from = at(table, *from);
                    if !self.domain.many {
                        let value = how.folder.run(from, n);
                        return (*self.joined.add(*reduce)).push(&how.folder, value);
                    }
                    let row = self.domain.row;
                    // A dtype whose row values are stored as the fold returns them.
                    if matches!(how.dtype, DType::F64 | DType::F32 | DType::I64) {
                        return how.folder.each(from, row, n / row, at(table, how.to));
                    }
                    for r in 0..n / row {
                        how.put(table, r, how.folder.run(from.add(r * row * how.size), row));
                    }
                }
                TileStep::Store { from, kind, dtype, to } => {
                    let (from, to) = (at(table, *from), at(table, *to));
                    store(from, *kind, *dtype, to, n);
                }
            }
        }
    }

    /// # Safety
    /// As for [`TileContext::run`]; `to` has space for the tile.
    unsafe fn gather(&self, input: usize, dtype: DType, to: *mut u8) {
        let Access::Walk(offset, walk) = &self.domain.access[input] else { return };
        let size = dtype.size();
        let from = self.inputs[input].ptr.wrapping_add(offset * size);
        // One number for each short row: the stride is the same for all rows, so no cursor is
        // needed.
        if let [inner, outer] = walk.axes()
            && inner.strides == [0]
            && inner.len <= REPEATED
            && TileKind::plain(dtype)
        {
            // SAFETY: the rows are inside the operand, the tile has space.
            return unsafe {
                by_kind!(TileKind::of(dtype), T => {
                    let from = from.cast::<T>();
                    self.each_for_a_row(from, outer.strides[0], inner.len, to.cast::<T>());
                });
            };
        }
        // A short run that is repeated (a row vector broadcast over many rows) is loaded once, and
        // then copied within the tile.
        let period = match walk.axes() {
            [inner, outer, ..] if outer.strides == [0] && inner.len <= REPEATED => {
                Some((inner.len, inner.len * outer.len))
            }
            _ => None,
        };
        let mut cursor = walk.cursor(self.start);
        let mut done = 0;
        while done < self.n {
            let first = self.start + done;
            let run = cursor.next_run(self.n - done);
            let from = from.wrapping_offset(run.offsets[0] * size as isize);
            // SAFETY: the run is inside the operand, the tile has space.
            unsafe {
                by_kind!(TileKind::of(dtype), T => {
                    let to = to.cast::<T>().add(done);
                    T::load(dtype)(from, run.strides[0], run.len, to);
                    done += run.len;
                    if let Some((len, all)) = period && run.len == len {
                        let whole = (all - first % all).min(self.n + len - done) / len * len;
                        repeat(to, len, whole);
                        done += whole - len;
                        if whole > len && done < self.n {
                            cursor = walk.cursor(self.start + done);
                        }
                    }
                });
            }
        }
    }

    /// Loads numbers `stride` apart into a tile, each repeated for the `row` elements of its row.
    ///
    /// # Safety
    /// The numbers of the tile's rows are readable; `to` has space for the tile.
    unsafe fn each_for_a_row<T: Copy>(
        &self,
        from: *const T,
        stride: isize,
        row: usize,
        to: *mut T,
    ) {
        let (mut r, mut left) = (self.start / row, row - self.start % row);
        let mut done = 0;
        while done < self.n {
            let count = left.min(self.n - done);
            // SAFETY: guaranteed by the caller.
            unsafe { spread(*from.offset(r as isize * stride), to.add(done), count) };
            (r, left, done) = (r + 1, row, done + count);
        }
    }

    /// # Safety
    /// `to` has space for the tile.
    unsafe fn index(&self, len: usize, repeat: usize, dtype: DType, to: *mut u8) {
        let (mut i, mut left) = (self.start / repeat % len, repeat - self.start % repeat);
        let mut fill = |put: &mut dyn FnMut(usize, usize, usize)| {
            let mut done = 0;
            while done < self.n {
                // A run of one number, or (the usual case) of consecutive numbers.
                if repeat == 1 {
                    let count = (len - i).min(self.n - done);
                    put(done, count, i);
                    (done, i) = (done + count, 0);
                } else {
                    let count = left.min(self.n - done);
                    put(done, count, i);
                    (done, left) = (done + count, repeat);
                    i = (i + 1) % len;
                }
            }
        };
        let step = usize::from(repeat == 1);
        /// Writes numbers of one type.
        macro_rules! numbers {
            ($T:ty, $number:expr) => {
                fill(&mut |from, count, first| {
                    for j in 0..count {
                        // SAFETY: below the tile's number of elements.
                        unsafe { to.cast::<$T>().add(from + j).write($number(first + j * step)) };
                    }
                })
            };
        }
        match dtype {
            DType::F64 => numbers!(f64, |i| i as f64),
            DType::F32 => numbers!(f32, |i| i as f32),
            DType::BF16 => numbers!(f32, |i| bf16::from_f64(i as f64).to_f32()),
            DType::F16 => numbers!(f32, |i| f16::from_f64(i as f64).to_f32()),
            DType::I64 => numbers!(i64, |i| i as i64),
            DType::I32 => numbers!(i64, |i| i64::from(i as i32)),
            DType::U8 => numbers!(i64, |i| i64::from(i as u8)),
            DType::Bool => numbers!(u8, |i| u8::from(i != 0)),
        }
    }
}

/// Writes a tile of a kind to `n` elements of a dtype. The two may be the same memory.
///
/// # Safety
/// Both have `n` elements.
pub(super) unsafe fn store(from: *const u8, kind: TileKind, dtype: DType, to: *mut u8, n: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        if TileKind::plain(dtype) {
            return std::ptr::copy(from, to, n * dtype.size());
        }
        by_kind!(kind, T => T::store(dtype)(from.cast::<T>(), n, to));
    }
}

/// Repeats the first `len` elements until there are `whole`, by copies that double in length.
///
/// # Safety
/// There is space for `whole` elements, and the first `len` of them are filled.
unsafe fn repeat<T: Copy>(to: *mut T, len: usize, whole: usize) {
    let mut done = len;
    while done < whole {
        let count = done.min(whole - done);
        // SAFETY: guaranteed by the caller; the source of each copy ends before its destination.
        unsafe { std::ptr::copy_nonoverlapping(to, to.add(done), count) };
        done += count;
    }
}

/// # Safety
/// There is space for `n` elements.
#[inline(always)]
unsafe fn spread<T: Copy>(value: T, to: *mut T, n: usize) {
    for i in 0..n {
        // SAFETY: guaranteed by the caller.
        unsafe { to.add(i).write(value) };
    }
}
