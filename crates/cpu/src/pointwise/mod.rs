//! Elementwise operations: eager mode is a fused region of size one.
//!
//! An operation reads its sources in tiles of [`TILE`] elements in row-major order, runs a compiled
//! loop from [`crate::simd`] on contiguous tiles in the compute type, and writes the result to the
//! sink. What a tile costs depends on how its elements are laid out:
//!
//! - dense and already in the compute type: nothing, the loop reads the source directly;
//! - the same element everywhere (a broadcast scalar): one tile is filled, once;
//! - anything else: gathered through the strided walk and widened into a tile on the stack.
//!
//! The sink is dense: the loop writes it in place, or into a tile that is then narrowed. When a
//! source has the same memory as the sink (an in-place operation), it counts as "anything else":
//! its tile is copied to the stack before the first of its elements is overwritten.
//!
//! Large results are split into tasks of whole tiles. An element's value depends on its operands
//! alone, never on its position in a tile, so the same bits come out for any number of threads.
//!
//! The files: [`tiles`] loads sources into tiles and stores results; [`float`] and [`int`] are the
//! tables of elementwise functions; [`cast`] changes types; [`copy`] moves elements unchanged.

pub(crate) mod cast;
mod copy;
pub(crate) mod float;
pub(crate) mod int;
#[cfg(test)]
mod tests;
pub(crate) mod tiles;

pub(crate) use cast::{cast, narrow};
pub(crate) use copy::{copy, copy_to, fill};
pub(crate) use tiles::{fence, stream, streams};

use crate::elem::Compute;
use crate::operand::{Sink, Source};
use crate::simd::{Isa, Kernel1, Kernel2, Kernel3, Level, Map2, Map3, kernel2, kernel3, level};
use pullback_ir::{Binary, Compare, DType, Unary};
use tiles::{TILE, TileElem, TileSink, TileSource, common_span, direct, few, near, put, split};

/// One function of one or two elements as a compiled loop: `map1!(level, f32, |x| x * x)` is
///
/// ```text
/// { struct K; impl Map1 for K { type X = f32; type Y = f32; fn map<I: Isa>(x: f32) -> f32 { x * x
/// } }
///   kernel1::<K>(level) }
/// ```
///
/// The body may name the instruction set as `I`. `rare` and `slow` are those of [`Map1`].
macro_rules! map1 {
    ($level:expr, $X:ty => $Y:ty, |$x:ident| $body:expr $(, rare $rare:expr, slow $slow:expr)?) => {{
        struct K;
        impl crate::simd::Map1 for K {
            type X = $X;
            type Y = $Y;
            #[inline(always)]
            fn map<I: crate::simd::Isa>($x: $X) -> $Y {
                $body
            }
            $(
                const RARE: bool = true;
                #[inline(always)]
                fn rare($x: $X) -> bool {
                    $rare
                }
                fn slow($x: $X) -> $Y {
                    $slow
                }
            )?
        }
        crate::simd::kernel1::<K>($level)
    }};
    ($level:expr, $T:ty, |$x:ident| $body:expr $(, rare $rare:expr, slow $slow:expr)?) => {
        map1!($level, $T => $T, |$x| $body $(, rare $rare, slow $slow)?)
    };
}
/// As [`map1`], for two operands of one type.
macro_rules! map2 {
    ($level:expr, $T:ty, |$a:ident, $b:ident| $body:expr $(, rare $rare:expr, slow $slow:expr)?) => {{
        struct K;
        impl crate::simd::Map2 for K {
            type A = $T;
            type B = $T;
            type Y = $T;
            #[inline(always)]
            #[allow(unused_variables)]
            fn map<I: crate::simd::Isa>($a: $T, $b: $T) -> $T {
                $body
            }
            $(
                const RARE: bool = true;
                #[inline(always)]
                #[allow(unused_variables)]
                fn rare($a: $T, $b: $T) -> bool {
                    $rare
                }
                fn slow($a: $T, $b: $T) -> $T {
                    $slow
                }
            )?
        }
        crate::simd::kernel2::<K>($level)
    }};
}
pub(crate) use {map1, map2};

/// Whether a function is memory-bound: computed in less time than its operand is loaded.
fn memory_bound(op: Unary) -> bool {
    op.cost() <= 2
}

/// The same for a function's derivative, which reads two operands.
fn memory_bound_vjp(op: Unary) -> bool {
    op.vjp_cost() <= 3
}

/// `out = f(x)`. The dtypes are the same.
pub(crate) fn unary(op: Unary, x: &Source, out: &Sink) {
    match x.dtype.compute() {
        DType::F32 => run1(float::unary32(op, level()), memory_bound(op), x, out),
        DType::F64 => run1(float::unary64(op, level()), memory_bound(op), x, out),
        _ if x.dtype == DType::Bool && op == Unary::Not => {
            run1(map1!(level(), u8, |x| x ^ 1), true, x, out);
        }
        _ => run1(int::unary(op, x.dtype, level()), memory_bound(op), x, out),
    }
}

/// The loop of a logical function on booleans, whose bytes are 0 and 1.
fn logical(op: Binary, l: Level) -> Option<Kernel2<u8, u8, u8>> {
    if op == Binary::And {
        Some(map2!(l, u8, |a, b| a & b))
    } else if op == Binary::Or {
        Some(map2!(l, u8, |a, b| a | b))
    } else if op == Binary::Xor {
        Some(map2!(l, u8, |a, b| a ^ b))
    } else {
        None
    }
}

/// `out = f(a, b)`. The dtypes are the same.
pub(crate) fn binary(op: Binary, a: &Source, b: &Source, out: &Sink) {
    let memory_bound = op.cost() < 20;
    if a.dtype == DType::Bool
        && let Some(kernel) = logical(op, level())
    {
        return run2(kernel, true, a, b, out);
    }
    match a.dtype.compute() {
        DType::F32 => run2(float::binary32(op, level()), memory_bound, a, b, out),
        DType::F64 => run2(float::binary64(op, level()), memory_bound, a, b, out),
        _ => run2(int::binary(op, level()), memory_bound, a, b, out),
    }
}

/// `out = dy · f'(kept)`, where [`Unary::fused_vjp`] says which value was saved. `infer` accepts
/// only floats and functions with a fused derivative.
pub(crate) fn unary_vjp(op: Unary, kept: &Source, dy: &Source, out: &Sink) {
    match out.dtype.compute() {
        DType::F32 => run2(float::vjp32(op, level()), memory_bound_vjp(op), kept, dy, out),
        DType::F64 => run2(float::vjp64(op, level()), memory_bound_vjp(op), kept, dy, out),
        _ => fill(false.into(), *out),
    }
}

/// `out = a ? b` for a comparison; `out` is `bool`.
pub(crate) fn compare(op: Compare, a: &Source, b: &Source, out: &Sink) {
    match a.dtype.compute() {
        DType::F32 => run2(tests_of::<f32>(op, level()), true, a, b, out),
        DType::F64 => run2(tests_of::<f64>(op, level()), true, a, b, out),
        _ => run2(tests_of::<i64>(op, level()), true, a, b, out),
    }
}

/// `out = condition ? a : b`. Only the size of the elements matters.
pub(crate) fn select(condition: Source, a: Source, b: Source, out: Sink) {
    match out.dtype.size() {
        8 => run3(kernel3::<Select<u64>>(level()), condition, a, b, out),
        4 => run3(kernel3::<Select<u32>>(level()), condition, a, b, out),
        2 => run3(kernel3::<Select<u16>>(level()), condition, a, b, out),
        _ => run3(kernel3::<Select<u8>>(level()), condition, a, b, out),
    }
}

/// The loop of a comparison.
pub(crate) fn tests_of<T: Compute>(op: Compare, level: Level) -> Kernel2<T, T, u8> {
    /// A comparison of two elements, by a function of them.
    macro_rules! test {
        ($name:ident, $a:ident, $b:ident => $body:expr) => {{
            struct $name<T>(std::marker::PhantomData<T>);
            impl<T: Compute> Map2 for $name<T> {
                type A = T;
                type B = T;
                type Y = u8;
                #[inline(always)]
                fn map<I: Isa>($a: T, $b: T) -> u8 {
                    u8::from($body)
                }
            }
            kernel2::<$name<T>>(level)
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

/// Chooses between two elements of one size.
pub(crate) struct Select<T>(std::marker::PhantomData<T>);

impl<T: Copy + Default> Map3 for Select<T> {
    type A = u8;
    type B = T;
    type C = T;
    type Y = T;
    #[inline(always)]
    fn map<I: Isa>(c: u8, a: T, b: T) -> T {
        if c != 0 { a } else { b }
    }
}

/// Runs a loop over one source. Operands are passed on by reference: a copy of what was just
/// written waits for it, longer than a small op takes. `memory_bound` says that the loop is
/// memory-bound: then large results are streamed. (Compute-bound functions get slower by it: their
/// stores are no longer hidden.)
fn run1<X: TileElem, Y: TileElem>(
    kernel: Kernel1<X, Y>,
    memory_bound: bool,
    x: &Source,
    out: &Sink,
) {
    if let (Some(n), Some(x), true) = (few(out), direct(x), Y::plain(out.dtype)) {
        // SAFETY: the operands have `n` elements, fewer than a block: see `direct`.
        return unsafe { kernel.run(x, out.ptr.cast(), n) };
    }
    run1_tiles(kernel, memory_bound, *x, *out);
}

/// [`run1`] on operands that are large, strided or of another type than the loop computes in. Apart
/// from it, as tiles make a large frame.
#[inline(never)]
fn run1_tiles<X: TileElem, Y: TileElem>(
    kernel: Kernel1<X, Y>,
    memory_bound: bool,
    x: Source,
    out: Sink,
) {
    let n = out.len();
    if n <= TILE {
        let mut tx = X::tile();
        // SAFETY: the operands have `n` elements; a source that overlaps the sink is copied to the
        // stack.
        unsafe {
            if n == 0 {
                return;
            } else if let Some(x) = near(x, out, n, &mut tx) {
                return put(out, n, |to| kernel.run(x, to, n));
            }
        }
    }
    let apart = x.ptr != out.ptr;
    let x = TileSource::<X>::new(x, out);
    let y = TileSink::<Y>::new(out, memory_bound && apart && x.is_whole(n));
    // SAFETY: tile sources have `len` readable elements, sinks space for as many, and a source that
    // overlaps the sink is fed from the stack. Tasks drain disjoint ranges.
    split(n, |range| unsafe {
        if let (Some(x), Some(y)) = (x.whole(range.start), y.whole(range.start)) {
            return kernel.run(x, y, range.len());
        }
        let (mut tx, mut ty) = (X::tile(), Y::tile());
        let mut x = x.start(range.start);
        y.tiles(range, &mut ty, |at, to, limit, step| {
            let len = common_span([x.span(limit)], limit, step);
            kernel.run(x.tile(at, len, &mut tx), to, len);
            len
        });
    });
}

/// Runs a loop over two sources.
fn run2<A: TileElem, B: TileElem, Y: TileElem>(
    kernel: Kernel2<A, B, Y>,
    memory_bound: bool,
    a: &Source,
    b: &Source,
    out: &Sink,
) {
    if let (Some(n), Some(x), Some(y), true) = (few(out), direct(a), direct(b), Y::plain(out.dtype))
    {
        // SAFETY: as in `run1`.
        return unsafe { kernel.run(x, y, out.ptr.cast(), n) };
    }
    run2_tiles(kernel, memory_bound, *a, *b, *out);
}

/// [`run2`] in tiles: see [`run1_tiles`].
#[inline(never)]
fn run2_tiles<A: TileElem, B: TileElem, Y: TileElem>(
    kernel: Kernel2<A, B, Y>,
    memory_bound: bool,
    a: Source,
    b: Source,
    out: Sink,
) {
    let n = out.len();
    if n <= TILE {
        let (mut ta, mut tb) = (A::tile(), B::tile());
        // SAFETY: as in `run1`.
        unsafe {
            if n == 0 {
                return;
            } else if let (Some(a), Some(b)) = (near(a, out, n, &mut ta), near(b, out, n, &mut tb))
            {
                return put(out, n, |to| kernel.run(a, b, to, n));
            }
        }
    }
    let apart = a.ptr != out.ptr && b.ptr != out.ptr;
    let (a, b) = (TileSource::<A>::new(a, out), TileSource::<B>::new(b, out));
    let y = TileSink::<Y>::new(out, memory_bound && apart && (a.is_whole(n) || b.is_whole(n)));
    // SAFETY: as in `run1`.
    split(n, |range| unsafe {
        let at = range.start;
        if let (Some(a), Some(b), Some(y)) = (a.whole(at), b.whole(at), y.whole(at)) {
            return kernel.run(a, b, y, range.len());
        }
        let (mut ta, mut tb, mut ty) = (A::tile(), B::tile(), Y::tile());
        let (mut a, mut b) = (a.start(at), b.start(at));
        y.tiles(range, &mut ty, |at, to, limit, step| {
            let len = common_span([a.span(limit), b.span(limit)], limit, step);
            kernel.run(a.tile(at, len, &mut ta), b.tile(at, len, &mut tb), to, len);
            len
        });
    });
}

/// Runs a loop over three sources.
fn run3<A: TileElem, B: TileElem, C: TileElem, Y: TileElem>(
    kernel: Kernel3<A, B, C, Y>,
    a: Source,
    b: Source,
    c: Source,
    out: Sink,
) {
    let n = out.len();
    let apart = ![a.ptr, b.ptr, c.ptr].contains(&out.ptr.cast_const());
    let (a, b, c) =
        (TileSource::<A>::new(a, out), TileSource::<B>::new(b, out), TileSource::<C>::new(c, out));
    let whole = a.is_whole(n) || b.is_whole(n) || c.is_whole(n);
    let y = TileSink::<Y>::new(out, apart && whole);
    // SAFETY: as in `run1`.
    split(n, |range| unsafe {
        let at = range.start;
        if let (Some(a), Some(b), Some(c), Some(y)) =
            (a.whole(at), b.whole(at), c.whole(at), y.whole(at))
        {
            return kernel.run(a, b, c, y, range.len());
        }
        let (mut ta, mut tb, mut tc, mut ty) = (A::tile(), B::tile(), C::tile(), Y::tile());
        let (mut a, mut b, mut c) = (a.start(at), b.start(at), c.start(at));
        y.tiles(range, &mut ty, |at, to, limit, step| {
            let spans = [a.span(limit), b.span(limit), c.span(limit)];
            let len = common_span(spans, limit, step);
            let (a, b) = (a.tile(at, len, &mut ta), b.tile(at, len, &mut tb));
            kernel.run(a, b, c.tile(at, len, &mut tc), to, len);
            len
        });
    });
}
