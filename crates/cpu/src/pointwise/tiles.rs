//! Loading sources into tiles, and storing results from them.

use super::copy::{self, copy};
use crate::buffer::Buffer as HostBuffer;
use crate::elem::{Bool, Elem};
use crate::operand::{Sink, Source};
use crate::par;
use crate::simd::{BLOCK, Isa, Map1, SimdTask, kernel1, level, vectorised};
use crate::walk::{CollapsedAxis, Cursor, Walk};
use half::{bf16, f16};
use pullback_ir::{DType, dense_strides};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;

/// Elements that are loaded, computed and stored at a time: the tiles of a few operands fit in L1.
pub(super) const TILE: usize = 1024;
/// Elements per task when several threads share the work; whole tiles.
const TASK: usize = 32 * TILE;
/// Up to this many elements the calling thread works alone: waking another costs more.
const ALONE: usize = 2 * TASK;

/// Covers `0..n` by calls of `f` with disjoint ranges that begin at multiples of a tile, on
/// several threads when `n` is large.
#[inline]
pub(super) fn split(n: usize, f: impl Fn(Range<usize>) + Sync) {
    if n == 0 {
        return;
    }
    if n <= ALONE {
        return f(0..n);
    }
    par::for_each(n.div_ceil(TASK), |task| f(task * TASK..n.min((task + 1) * TASK)));
}

/// Results of this many bytes or more are written with streaming (non-temporal) stores: they would
/// be evicted from the caches before they are read again, and a streamed line need not be fetched
/// first.
const STREAM: usize = 16 << 20;

/// Whether a result is large enough to be streamed past the caches.
#[inline]
pub(crate) fn streams(out: Sink) -> bool {
    out.len() * out.dtype.size() >= STREAM && out.ptr.addr().is_multiple_of(64)
}

/// Copies a tile to memory with streaming stores.
///
/// # Safety
/// Both have `bytes` bytes, are aligned to 16 and do not overlap; [`fence`] is called afterwards.
#[cfg(target_arch = "x86_64")]
pub(crate) unsafe fn stream(from: *const u8, to: *mut u8, bytes: usize) {
    use std::arch::x86_64::{__m128i, _mm_load_si128, _mm_stream_si128};
    let whole = bytes & !15;
    // SAFETY: guaranteed by the caller; SSE2 is part of the target.
    unsafe {
        for at in (0..whole).step_by(16) {
            _mm_stream_si128(
                to.add(at).cast::<__m128i>(),
                _mm_load_si128(from.add(at).cast::<__m128i>()),
            );
        }
        std::ptr::copy_nonoverlapping(from.add(whole), to.add(whole), bytes - whole);
    }
}

/// Makes streamed results visible to other threads before anything that follows.
#[cfg(target_arch = "x86_64")]
pub(crate) fn fence() {
    // SAFETY: SSE is part of the target.
    unsafe { std::arch::x86_64::_mm_sfence() }
}

/// Copies a tile to memory.
///
/// # Safety
/// Both have `bytes` bytes and do not overlap.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) unsafe fn stream(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) }
}

/// Nothing to wait for.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn fence() {}

/// Reads `n` elements, `stride` apart, into a tile.
pub(crate) type LoadFn<T> = unsafe fn(*const u8, isize, usize, *mut T);
/// Writes `n` elements of a tile densely.
pub(crate) type StoreFn<T> = unsafe fn(*const T, usize, *mut u8);

/// A tile on the stack.
#[repr(align(64))]
pub(crate) struct TileBuffer<T>([MaybeUninit<T>; TILE]);

/// Element types of tiles: the compute types, and plain words where values do not matter.
pub(crate) trait TileElem: Copy + Default + Send + Sync + 'static {
    /// Whether elements of this dtype have the same representation in memory and in a tile.
    fn plain(dtype: DType) -> bool;
    /// The function that loads elements of this dtype into a tile.
    fn load(dtype: DType) -> LoadFn<Self>;
    /// The function that stores a tile to elements of this dtype.
    fn store(dtype: DType) -> StoreFn<Self>;
    /// An empty tile.
    #[inline(always)]
    fn tile() -> TileBuffer<Self> {
        TileBuffer([MaybeUninit::uninit(); TILE])
    }
}

impl TileElem for f64 {
    #[inline]
    fn plain(_: DType) -> bool {
        true
    }
    #[inline]
    fn load(_: DType) -> LoadFn<f64> {
        load_plain
    }
    #[inline]
    fn store(_: DType) -> StoreFn<f64> {
        store_plain
    }
}

impl TileElem for f32 {
    #[inline]
    fn plain(dtype: DType) -> bool {
        dtype == DType::F32
    }
    #[inline]
    fn load(dtype: DType) -> LoadFn<f32> {
        match dtype {
            DType::BF16 => load::<bf16>,
            DType::F16 => load::<f16>,
            _ => load_plain,
        }
    }
    #[inline]
    fn store(dtype: DType) -> StoreFn<f32> {
        match dtype {
            DType::BF16 => store::<bf16>,
            DType::F16 => store::<f16>,
            _ => store_plain,
        }
    }
}

impl TileElem for i64 {
    #[inline]
    fn plain(dtype: DType) -> bool {
        dtype == DType::I64
    }
    #[inline]
    fn load(dtype: DType) -> LoadFn<i64> {
        match dtype {
            DType::I32 => load::<i32>,
            DType::U8 => load::<u8>,
            DType::Bool => load::<Bool>,
            _ => load_plain,
        }
    }
    #[inline]
    fn store(dtype: DType) -> StoreFn<i64> {
        match dtype {
            DType::I32 => store::<i32>,
            DType::U8 => store::<u8>,
            DType::Bool => store::<Bool>,
            _ => store_plain,
        }
    }
}

/// Words whose values do not matter: `words!(u8)` is the `impl` for one.
macro_rules! words {
    ($($T:ty)*) => {$(
        impl TileElem for $T {
            #[inline]
            fn plain(_: DType) -> bool {
                true
            }
            #[inline]
            fn load(_: DType) -> LoadFn<$T> {
                load_plain
            }
            #[inline]
            fn store(_: DType) -> StoreFn<$T> {
                store_plain
            }
        }
    )*};
}
words!(u8 u16 u32 u64);

/// Widens a storage type.
struct WidenFrom<S>(PhantomData<S>);

impl<S: Elem> Map1 for WidenFrom<S> {
    type X = S;
    type Y = S::Compute;
    #[inline(always)]
    fn map<I: Isa>(x: S) -> S::Compute {
        x.load()
    }
}

/// Narrows to a storage type.
struct NarrowTo<S>(PhantomData<S>);

impl<S: Elem> Map1 for NarrowTo<S> {
    type X = S::Compute;
    type Y = S;
    #[inline(always)]
    fn map<I: Isa>(x: S::Compute) -> S {
        S::store(x)
    }
}

/// [`LoadFn`] with widening.
///
/// # Safety
/// The source elements are readable, the destination has space and does not overlap them.
unsafe fn load<S: Elem>(from: *const u8, stride: isize, n: usize, to: *mut S::Compute) {
    let from = from.cast::<S>();
    // SAFETY: guaranteed by the caller.
    unsafe {
        match stride {
            1 => kernel1::<WidenFrom<S>>(level()).run(from, to, n),
            0 => {
                let value = from.read().load();
                (0..n).for_each(|i| to.add(i).write(value));
            }
            _ => {
                (0..n).for_each(|i| to.add(i).write(from.offset(i as isize * stride).read().load()))
            }
        }
    }
}

/// One element for all of a tile.
struct Repeat<T> {
    value: T,
    n: usize,
    to: *mut T,
}

impl<T: Copy> SimdTask for Repeat<T> {
    #[inline(always)]
    fn run<I: Isa>(self) {
        // SAFETY: there is space, by `load_plain`.
        (0..self.n).for_each(|i| unsafe { self.to.add(i).write(self.value) });
    }
}

/// [`LoadFn`] of elements as they are.
///
/// # Safety
/// As for [`load`].
pub(super) unsafe fn load_plain<T: Copy>(from: *const u8, stride: isize, n: usize, to: *mut T) {
    let from = from.cast::<T>();
    // SAFETY: guaranteed by the caller.
    unsafe {
        match stride {
            1 => std::ptr::copy_nonoverlapping(from, to, n),
            0 => vectorised(Repeat { value: from.read(), n, to }),
            // Strides that the compiler knows.
            -1 => (0..n).for_each(|i| to.add(i).write(from.offset(-(i as isize)).read())),
            2 => (0..n).for_each(|i| to.add(i).write(from.add(2 * i).read())),
            _ => (0..n).for_each(|i| to.add(i).write(from.offset(i as isize * stride).read())),
        }
    }
}

/// [`StoreFn`] with narrowing.
///
/// # Safety
/// The source elements are readable, the destination has space and does not overlap them.
unsafe fn store<S: Elem>(from: *const S::Compute, n: usize, to: *mut u8) {
    // SAFETY: guaranteed by the caller.
    unsafe { kernel1::<NarrowTo<S>>(level()).run(from, to.cast(), n) }
}

/// [`StoreFn`] of elements as they are.
///
/// # Safety
/// As for [`store`].
unsafe fn store_plain<T: Copy>(from: *const T, n: usize, to: *mut u8) {
    // SAFETY: guaranteed by the caller.
    unsafe { std::ptr::copy_nonoverlapping(from, to.cast(), n) }
}

/// Whether a source has the same element everywhere.
#[inline]
fn is_splat(x: Source) -> bool {
    x.shape.iter().zip(x.strides).all(|(&n, &s)| s == 0 || n == 1)
}

/// The number of elements of a sink that is filled by one padded block, and is not empty.
#[inline(always)]
pub(super) fn few(out: &Sink) -> Option<usize> {
    let n = out.len();
    (1..BLOCK).contains(&n).then_some(n)
}

/// The elements of a source that are in memory as a loop reads them. If there are fewer than a
/// block, the loop copies them to the stack first, so they may even be those of the sink.
#[inline(always)]
pub(super) fn direct<T: TileElem>(x: &Source) -> Option<*const T> {
    (T::plain(x.dtype) && x.is_dense()).then_some(x.ptr.cast())
}

/// The `n` elements of a small source, in memory or loaded into `tile`; `None` if they need a
/// strided walk. This and [`put`] are the fast path for the many small tensors.
///
/// # Safety
/// The source has `n` elements, from 1 to `TILE`, and may overlap `out` only if it is exactly the
/// same memory.
#[inline(always)]
pub(super) unsafe fn near<T: TileElem>(
    x: Source,
    out: Sink,
    n: usize,
    tile: &mut TileBuffer<T>,
) -> Option<*const T> {
    let to = tile.0.as_mut_ptr().cast::<T>();
    let stride = if x.is_dense() {
        // Less than a block is copied to the stack by the kernel itself, so it may even overlap.
        if T::plain(x.dtype) && (x.ptr != out.ptr || n < BLOCK) {
            return Some(x.ptr.cast());
        }
        1
    } else if is_splat(x) {
        0
    } else {
        return None;
    };
    // SAFETY: the source has `n` elements (or one, for all), a tile has space.
    unsafe { T::load(x.dtype)(x.ptr, stride, n, to) };
    Some(to)
}

/// Calls `f` to write the `n` elements of a small sink.
///
/// # Safety
/// The sink has `n` elements, from 1 to `TILE`; `f` fills as many.
#[inline(always)]
pub(super) unsafe fn put<T: TileElem>(out: Sink, n: usize, f: impl FnOnce(*mut T)) {
    if T::plain(out.dtype) {
        return f(out.ptr.cast());
    }
    let mut tile = T::tile();
    let to = tile.0.as_mut_ptr().cast::<T>();
    f(to);
    // SAFETY: `f` filled `n` elements.
    unsafe { T::store(out.dtype)(to, n, out.ptr) };
}

/// How the elements of a source are laid out.
enum SourceLayout {
    /// In row-major order, in the type of the tile, not overlapping the sink: used without a copy.
    Direct,
    /// In row-major order.
    Dense,
    /// One element for all.
    Splat,
    /// Any other strides.
    Strided(Walk<1>),
}

/// A source, ready to be read in tiles of `T`.
pub(super) struct TileSource<T> {
    ptr: *const u8,
    size: usize,
    place: SourceLayout,
    load: LoadFn<T>,
    /// Whether elements have the same representation in memory and in a tile.
    plain: bool,
    /// Owns what `ptr` points into, if the source was copied.
    _copy: Option<HostBuffer>,
}

// SAFETY: a source is only read, and may be by several threads.
unsafe impl<T> Sync for TileSource<T> {}

impl<T: TileElem> TileSource<T> {
    /// Prepares a source that is read while `out` is written.
    #[inline]
    pub(super) fn new(x: Source, out: Sink) -> Self {
        let place = if x.is_dense() {
            if T::plain(x.dtype) && x.ptr != out.ptr {
                SourceLayout::Direct
            } else {
                SourceLayout::Dense
            }
        } else if is_splat(x) {
            SourceLayout::Splat
        } else {
            let walk = Walk::new(x.shape, [x.strides]);
            if let Some(tiles) = TileSource::copied(x, out, &walk) {
                return tiles;
            }
            SourceLayout::Strided(walk)
        };
        let (size, plain, load) = (x.dtype.size(), T::plain(x.dtype), T::load(x.dtype));
        TileSource { ptr: x.ptr, size, place, load, plain, _copy: None }
    }

    /// A large transposed source is copied first: the copy moves squares, where reading in order
    /// would access every cache line many times. So is one with rows of a few elements: the copy
    /// has loops for these.
    #[cold]
    fn copied(x: Source, out: Sink, walk: &Walk<1>) -> Option<Self> {
        let inner = walk.inner();
        let across = walk.axes().iter().any(|a| a.strides == [1] && a.len >= BLOCK);
        let transposed = walk.len() > ALONE && across && !matches!(inner.strides, [0 | 1]);
        let short = walk.len() > TILE && inner.len <= copy::SHORT && walk.axes()[1].len >= BLOCK;
        if !transposed && !short {
            return None;
        }
        let mut copied = HostBuffer::alloc(walk.len() * x.dtype.size()).ok()?;
        let sink = Sink { ptr: copied.as_mut_ptr(), shape: x.shape, dtype: x.dtype };
        copy(x, sink);
        let dense = Source { ptr: copied.as_ptr(), strides: &dense_strides(x.shape), ..x };
        Some(TileSource { _copy: Some(copied), ..TileSource::new(dense, out) })
    }

    /// The elements from `at` on, if they are used without a copy.
    #[inline]
    pub(super) fn whole(&self, at: usize) -> Option<*const T> {
        match self.place {
            SourceLayout::Direct => Some(self.ptr.cast::<T>().wrapping_add(at)),
            _ => None,
        }
    }

    /// Starts reading at `at`.
    #[inline]
    pub(super) fn start(&self, at: usize) -> TileReader<'_, T> {
        let cursor = match &self.place {
            SourceLayout::Strided(walk) => Some(walk.cursor(at)),
            _ => None,
        };
        TileReader { tiles: self, cursor, filled: 0, of: 0 }
    }

    /// Whether it has as many different elements as an operation on `n` has.
    pub(super) fn is_whole(&self, n: usize) -> bool {
        match &self.place {
            SourceLayout::Direct | SourceLayout::Dense => true,
            SourceLayout::Splat => false,
            SourceLayout::Strided(walk) => {
                let of = |a: &CollapsedAxis<1>| if a.strides[0] == 0 { 1 } else { a.len };
                walk.axes().iter().map(of).product::<usize>() >= n / 2
            }
        }
    }
}

/// A feed being read tile by tile, in order.
pub(super) struct TileReader<'a, T> {
    tiles: &'a TileSource<T>,
    cursor: Option<Cursor<'a, 1>>,
    /// Elements of the tile that hold one element of the source, and where that is.
    filled: usize,
    of: isize,
}

/// Runs of at least this many elements are tiles of their own, which are not copied.
const LONG_RUN: usize = 512;

impl<T: TileElem> TileReader<'_, T> {
    /// How many of the next `limit` elements are best read at once.
    #[inline]
    pub(super) fn span(&self, limit: usize) -> usize {
        match self.cursor.as_ref().map(Cursor::run_left) {
            Some((left, [0 | 1])) if left >= LONG_RUN => left.min(limit),
            _ => limit,
        }
    }

    /// The elements `at..at + len`, in memory or loaded into `tile`.
    ///
    /// # Safety
    /// They are elements of the source, and follow those of the previous call.
    #[inline]
    pub(super) unsafe fn tile(
        &mut self,
        at: usize,
        len: usize,
        tile: &mut TileBuffer<T>,
    ) -> *const T {
        let (ptr, size, load) = (self.tiles.ptr, self.tiles.size, self.tiles.load);
        let to = tile.0.as_mut_ptr().cast::<T>();
        // SAFETY: the elements are those of the source; a tile has space for `len`.
        unsafe {
            match (&self.tiles.place, &mut self.cursor) {
                (SourceLayout::Direct, _) => return ptr.cast::<T>().add(at),
                (SourceLayout::Dense, _) => load(ptr.add(at * size), 1, len, to),
                (_, Some(cursor)) => {
                    let (mut done, (left, stride)) = (0, cursor.run_left());
                    if left >= len && (stride == [0] || (stride == [1] && self.tiles.plain)) {
                        let offset = cursor.next_run(len).offsets[0];
                        let from = ptr.offset(offset * size as isize);
                        if stride == [1] {
                            return from.cast();
                        }
                        if self.filled < len || self.of != offset {
                            load(from, 0, len, to);
                            (self.filled, self.of) = (len, offset);
                        }
                        return to;
                    }
                    self.filled = 0;
                    while done < len {
                        let run = cursor.next_run(len - done);
                        let from = ptr.offset(run.offsets[0] * size as isize);
                        load(from, run.strides[0], run.len, to.add(done));
                        done += run.len;
                    }
                }
                _ => {
                    if self.filled < len {
                        load(ptr, 0, len, to);
                        self.filled = len;
                    }
                }
            }
        }
        to
    }
}

/// A sink, ready to be written in tiles of `T`.
pub(super) struct TileSink<T> {
    ptr: *mut u8,
    size: usize,
    plain: bool,
    /// Whether results are written with streaming stores.
    stream: bool,
    store: StoreFn<T>,
}

// SAFETY: tasks write disjoint ranges.
unsafe impl<T> Sync for TileSink<T> {}

impl<T: TileElem> TileSink<T> {
    /// Prepares a sink; with `stream`, large results are streamed.
    #[inline]
    pub(super) fn new(out: Sink, stream: bool) -> Self {
        let plain = T::plain(out.dtype);
        let size = out.dtype.size();
        let stream = stream && plain && streams(out);
        TileSink { ptr: out.ptr, size, plain, stream, store: T::store(out.dtype) }
    }

    /// The elements from `at` on, if they can be written without a tile.
    #[inline]
    pub(super) fn whole(&self, at: usize) -> Option<*mut T> {
        if self.plain && !self.stream { Some(self.ptr.cast::<T>().wrapping_add(at)) } else { None }
    }

    /// Calls `f` to fill the elements of `range` tile by tile: `f(at, to, len, step)` writes the
    /// elements from `at` on to `to`, `len` of them or fewer, whose number is a multiple of `step`,
    /// and returns how many.
    ///
    /// # Safety
    /// `range` is inside the sink and no other thread writes it; `f` fills what it is given.
    #[inline]
    pub(super) unsafe fn tiles(
        &self,
        range: Range<usize>,
        tile: &mut TileBuffer<T>,
        mut f: impl FnMut(usize, *mut T, usize, usize) -> usize,
    ) {
        // Streaming stores are aligned.
        let step = if self.stream { 16 } else { 1 };
        let mut at = range.start;
        while at < range.end {
            let limit = TILE.min(range.end - at);
            // SAFETY: inside the sink, as the caller guarantees.
            at += unsafe {
                let own = tile.0.as_mut_ptr().cast::<T>();
                if self.plain && !self.stream {
                    f(at, self.ptr.cast::<T>().add(at), limit, step)
                } else {
                    let len = f(at, own, limit, step);
                    let to = self.ptr.add(at * self.size);
                    match self.stream {
                        true => stream(own.cast(), to, len * self.size),
                        false => (self.store)(own, len, to),
                    }
                    len
                }
            };
        }
        if self.stream {
            fence();
        }
    }
}

/// How many of `limit` elements to compute at once, where readers would like so many: a multiple of
/// `step`, or all.
#[inline(always)]
pub(super) fn common_span<const N: usize>(spans: [usize; N], limit: usize, step: usize) -> usize {
    let least = spans.into_iter().fold(limit, usize::min);
    if least == limit || least < step { limit } else { least / step * step }
}
