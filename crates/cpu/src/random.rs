//! Random numbers that are a pure function of a key and an index, and `iota`.
//!
//! The generator is Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as
//! easy as 1, 2, 3"): a keyed bijection of a 128-bit counter, with no state. The first number of
//! the key is the Philox key; the second fills the high half of the counter; the low half counts
//! blocks. So any part of a tensor can be drawn by any thread, in any order, and drawing
//! again gives the same numbers.
//!
//! # Which element gets which word
//!
//! A block has four words of 32 bits. Were they four neighbours, vector code would have to
//! transpose them; so a *tile* of 64 blocks is drawn at once, and its words are laid out by word
//! number first:
//!
//! ```text
//!            blocks 64t … 64t+63
//! tile t = [ word 0 of each | word 1 of each | word 2 of each | word 3 of each ]
//! ```
//!
//! For 32-bit draws (and narrower) that is 256 elements. Draws that need 64 bits take words 0 and
//! 1, then words 2 and 3: 128 elements per tile. A pair of normals comes from one radius and one
//! angle, and the cosines are 64 elements before the sines.
//!
//! The arithmetic uses no fused multiply-add, so that the numbers are the same bits on every
//! processor. AVX2 is used even where AVX-512 is present: the 32×32→64 multiplications are faster.

use crate::elem::Elem;
use crate::operand::{Sink, Source};
use crate::par;
#[cfg(target_arch = "x86_64")]
use crate::simd::{Level, level};
use half::{bf16, f16};
use pullback_ir::{DType, Random};

/// Blocks in a tile.
const LANES: usize = 64;
/// Tiles in a task: 16384 elements of 32 bits.
const TILES: usize = 64;

/// The words of a tile: `words[k][l]` is word `k` of block `l`.
type Words = [[u32; LANES]; 4];

/// One block of Philox4x32-10.
#[inline(always)]
fn philox(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let [mut c0, mut c1, mut c2, mut c3] = counter;
    let [mut k0, mut k1] = key;
    for round in 0..10 {
        if round > 0 {
            k0 = k0.wrapping_add(0x9E37_79B9);
            k1 = k1.wrapping_add(0xBB67_AE85);
        }
        let a = u64::from(c0) * 0xD251_1F53;
        let b = u64::from(c2) * 0xCD9E_8D57;
        c0 = (b >> 32) as u32 ^ c1 ^ k0;
        c1 = b as u32;
        c2 = (a >> 32) as u32 ^ c3 ^ k1;
        c3 = a as u32;
    }
    [c0, c1, c2, c3]
}

/// The words of tile `tile`.
#[inline(always)]
fn draw(key: [i64; 2], tile: usize) -> Words {
    let halves = |v: u64| [v as u32, (v >> 32) as u32];
    let [k, high] = key.map(|v| halves(v as u64));
    let [low, carry] = halves((tile * LANES) as u64);
    let mut words = [[0; LANES]; 4];
    let [w0, w1, w2, w3] = &mut words;
    for l in 0..LANES {
        // `low` is a multiple of 64, so this never carries.
        let block = philox([low | l as u32, carry, high[0], high[1]], k);
        (w0[l], w1[l], w2[l], w3[l]) = (block[0], block[1], block[2], block[3]);
    }
    words
}

/// A distribution over a storage type: how the words of a tile become elements.
trait Draw {
    type Out: Copy;
    /// Elements in a tile: 256, or 128 for those that need 64 bits each.
    const TILE: usize;
    /// Fills the first `TILE` elements of `out`.
    fn tile(words: &Words, out: &mut [Self::Out; 256]);
}

/// Joins the words of two rows into 64 bits.
#[inline(always)]
fn join(words: &Words, pair: usize, l: usize) -> u64 {
    u64::from(words[2 * pair][l]) | u64::from(words[2 * pair + 1][l]) << 32
}

struct RandomBits;

impl Draw for RandomBits {
    type Out = i64;
    const TILE: usize = 128;

    #[inline(always)]
    fn tile(words: &Words, out: &mut [i64; 256]) {
        for pair in 0..2 {
            for l in 0..LANES {
                out[pair * LANES + l] = join(words, pair, l) as i64;
            }
        }
    }
}

struct Uniform64;

impl Draw for Uniform64 {
    type Out = f64;
    const TILE: usize = 128;

    #[inline(always)]
    fn tile(words: &Words, out: &mut [f64; 256]) {
        for pair in 0..2 {
            for l in 0..LANES {
                out[pair * LANES + l] =
                    (join(words, pair, l) >> 11) as f64 * (1.0 / (1u64 << 53) as f64);
            }
        }
    }
}

/// Uniform with `BITS` bits: the most for which every value, `1 - 2^-BITS` included, is a number
/// of the storage type.
struct Uniform32<T, const BITS: u32>(std::marker::PhantomData<T>);

impl<T: Elem<Compute = f32>, const BITS: u32> Draw for Uniform32<T, BITS> {
    type Out = T;
    const TILE: usize = 256;

    #[inline(always)]
    fn tile(words: &Words, out: &mut [T; 256]) {
        let scale = 1.0 / (1u32 << BITS) as f32;
        for k in 0..4 {
            for l in 0..LANES {
                out[k * LANES + l] = T::store((words[k][l] >> (32 - BITS)) as i32 as f32 * scale);
            }
        }
    }
}

struct Normal64;

impl Draw for Normal64 {
    type Out = f64;
    const TILE: usize = 128;

    #[inline(always)]
    fn tile(words: &Words, out: &mut [f64; 256]) {
        for l in 0..LANES {
            // Never zero, so the logarithm is finite.
            let u = ((join(words, 0, l) >> 12) as f64 + 0.5) * (1.0 / (1u64 << 52) as f64);
            let turn = (join(words, 1, l) >> 11) as f64 * (1.0 / (1u64 << 53) as f64) - 0.5;
            let radius = (-2.0 * log64(u)).sqrt();
            let (sin, cos) = turn64(turn);
            out[l] = radius * cos;
            out[LANES + l] = radius * sin;
        }
    }
}

struct Normal32<T>(std::marker::PhantomData<T>);

impl<T: Elem<Compute = f32>> Draw for Normal32<T> {
    type Out = T;
    const TILE: usize = 256;

    #[inline(always)]
    fn tile(words: &Words, out: &mut [T; 256]) {
        for pair in 0..2 {
            let (first, second) = (&words[2 * pair], &words[2 * pair + 1]);
            let (cosines, sines) =
                out[2 * pair * LANES..2 * (pair + 1) * LANES].split_at_mut(LANES);
            for l in 0..LANES {
                // 31 bits for the radius: the smallest is 2^-32, so a normal reaches 6.66.
                let u = ((first[l] >> 1) as i32 as f32 + 0.5) * (1.0 / (1u32 << 31) as f32);
                let turn = (second[l] as i32 >> 8) as f32 * (1.0 / (1u32 << 24) as f32);
                let radius = (-2.0 * log32(u)).sqrt();
                let (sin, cos) = turn32(turn);
                cosines[l] = T::store(radius * cos);
                sines[l] = T::store(radius * sin);
            }
        }
    }
}

/// `ln(x)` for normal `x` in (0, 1]: `x = 2^k·m` with `m` around 1, then the series of
/// `2·artanh((m−1)/(m+1))`.
#[inline(always)]
fn log32(x: f32) -> f32 {
    // Adding moves the cut between exponents from 1 to √½, so that m is in [√½, √2).
    let bits = x.to_bits().wrapping_add(0x3F80_0000 - 0x3F35_04F3);
    let k = (bits >> 23) as i32 - 127;
    let m = f32::from_bits((bits & 0x007F_FFFF) + 0x3F35_04F3);
    let s = (m - 1.0) / (m + 1.0);
    let z = s * s;
    let tail = z * (1.0 / 3.0 + z * (1.0 / 5.0 + z * (1.0 / 7.0 + z * (1.0 / 9.0))));
    k as f32 * std::f32::consts::LN_2 + 2.0 * (s + s * tail)
}

/// The same in double precision.
#[inline(always)]
fn log64(x: f64) -> f64 {
    const CUT: u64 = 0x3FE6_A09E_667F_3BCD;
    let bits = x.to_bits().wrapping_add(0x3FF0_0000_0000_0000 - CUT);
    let k = (bits >> 52) as i32 - 1023;
    let m = f64::from_bits((bits & 0x000F_FFFF_FFFF_FFFF) + CUT);
    let s = (m - 1.0) / (m + 1.0);
    let z = s * s;
    let mut tail = 1.0 / 21.0;
    for d in [19.0, 17.0, 15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0] {
        tail = 1.0 / d + z * tail;
    }
    f64::from(k) * std::f64::consts::LN_2 + 2.0 * (s + s * (z * tail))
}

/// Sine and cosine of `turn` full turns, `turn` in [-½, ½). The reduction to an eighth of a
/// turn is exact; then Taylor.
#[inline(always)]
fn turn32(turn: f32) -> (f32, f32) {
    let quarter = (turn * 4.0 + 12_582_912.0) - 12_582_912.0; // rounds: 1.5·2^23
    let x = (turn - quarter * 0.25) * std::f32::consts::TAU;
    let z = x * x;
    let sin = x + x
        * (z * (-1.0 / 6.0 + z * (1.0 / 120.0 + z * (-1.0 / 5040.0 + z * (1.0 / 362_880.0)))));
    let cos = 1.0 + z * (-0.5 + z * (1.0 / 24.0 + z * (-1.0 / 720.0 + z * (1.0 / 40320.0))));
    let q = quarter as i32;
    let (s, c) = if q & 1 == 0 { (sin, cos) } else { (cos, sin) };
    (if q & 2 == 0 { s } else { -s }, if (q + 1) & 2 == 0 { c } else { -c })
}

/// The same in double precision.
#[inline(always)]
fn turn64(turn: f64) -> (f64, f64) {
    let shifted = turn * 4.0 + 6_755_399_441_055_744.0; // rounds: 1.5·2^52
    let quarter = shifted - 6_755_399_441_055_744.0;
    let x = (turn - quarter * 0.25) * std::f64::consts::TAU;
    let z = x * x;
    let (mut sin, mut cos) = (1.0 / 355_687_428_096_000.0, 1.0 / 20_922_789_888_000.0);
    for c in [-1_307_674_368_000.0, 6_227_020_800.0, -39_916_800.0, 362_880.0, -5040.0, 120.0, -6.0]
    {
        sin = 1.0 / c + z * sin;
    }
    for c in [-87_178_291_200.0, 479_001_600.0, -3_628_800.0, 40320.0, -720.0, 24.0, -2.0] {
        cos = 1.0 / c + z * cos;
    }
    let (sin, cos) = (x + x * (z * sin), 1.0 + z * cos);
    // The low bits of the shifted number are the quarter, in two's complement.
    let q = shifted.to_bits();
    let (s, c) = if q & 1 == 0 { (sin, cos) } else { (cos, sin) };
    (if q & 2 == 0 { s } else { -s }, if q.wrapping_add(1) & 2 == 0 { c } else { -c })
}

/// Draws elements `from..to`; `from` is a multiple of the tile.
///
/// # Safety
/// `out` has space for `to` elements.
#[inline(always)]
unsafe fn fill<D: Draw>(key: [i64; 2], from: usize, to: usize, out: *mut D::Out) {
    let mut start = from;
    while start < to {
        let words = draw(key, start / D::TILE);
        let space = to - start;
        // SAFETY: `start..to` lies inside `out`; a short last tile is drawn into `tile`, of which
        // only the filled part is copied.
        unsafe {
            let mut tile = std::mem::MaybeUninit::<[D::Out; 256]>::zeroed().assume_init();
            D::tile(&words, &mut tile);
            std::ptr::copy_nonoverlapping(tile.as_ptr(), out.add(start), space.min(D::TILE));
        }
        start += D::TILE;
    }
}

/// # Safety
/// As [`fill`], and the processor has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn fill_avx2<D: Draw>(key: [i64; 2], from: usize, to: usize, out: *mut D::Out) {
    // SAFETY: guaranteed by the caller.
    unsafe { fill::<D>(key, from, to, out) }
}

/// Key `n` of `i64[b…, 2]`.
pub(crate) fn key_at(keys: &Source<'_>, mut n: usize) -> [i64; 2] {
    let last = keys.shape.len() - 1;
    let mut at = 0;
    for axis in (0..last).rev() {
        let len = keys.shape[axis].max(1);
        at += (n % len) as isize * keys.strides[axis];
        n /= len;
    }
    let p = keys.ptr.cast::<i64>();
    // SAFETY: `infer` requires pairs of i64 on the last axis, and the index is inside the others.
    unsafe { [p.offset(at).read(), p.offset(at + keys.strides[last]).read()] }
}

/// Each key draws `len` elements: a long draw is split into tasks, short ones are grouped.
fn random_as<D: Draw>(keys: Source<'_>, len: usize, out: Sink<'_>) {
    let count = keys.len() / 2;
    let task = D::TILE * TILES;
    #[cfg(target_arch = "x86_64")]
    let avx2 = level() >= Level::Avx2;
    let draw = |key: usize, from: usize, to: usize| {
        let words = key_at(&keys, key);
        // Naming the whole sink captures it, with its `Send` and `Sync`.
        let out = { out }.ptr.cast::<D::Out>().wrapping_add(key * len);
        #[cfg(target_arch = "x86_64")]
        if avx2 {
            // SAFETY: detected above; the sink has `len` elements for each key, and its dtype is
            // the one the caller matched.
            unsafe { fill_avx2::<D>(words, from, to, out) };
            return;
        }
        // SAFETY: as above.
        unsafe { fill::<D>(words, from, to, out) };
    };
    if len >= task {
        let parts = len.div_ceil(task);
        par::for_each(count * parts, |i| {
            let from = i % parts * task;
            draw(i / parts, from, len.min(from + task));
        });
    } else {
        let together = task / len.next_multiple_of(D::TILE);
        par::for_each(count.div_ceil(together), |i| {
            let first = i * together;
            (first..count.min(first + together)).for_each(|key| draw(key, 0, len));
        });
    }
}

/// The numbers `start..start + out.len()` that [`random`] draws as uniform `f32` from a key.
pub(crate) fn uniforms(key: [i64; 2], start: usize, out: &mut [f32]) {
    // SAFETY: the slice has as many elements.
    unsafe { span_as::<Uniform32<f32, 24>>(key, start, out.len(), out.as_mut_ptr()) }
}

/// Draws the elements `start..start + n`, at any position in their tiles.
///
/// # Safety
/// `out` has space for `n` elements.
unsafe fn span_as<D: Draw>(key: [i64; 2], start: usize, n: usize, out: *mut D::Out) {
    #[inline(always)]
    unsafe fn span<D: Draw>(key: [i64; 2], start: usize, n: usize, out: *mut D::Out) {
        // SAFETY: all zero bits are a number of every type that is drawn.
        let mut tile = unsafe { std::mem::MaybeUninit::<[D::Out; 256]>::zeroed().assume_init() };
        let mut done = 0;
        while done < n {
            let at = start + done;
            D::tile(&draw(key, at / D::TILE), &mut tile);
            let from = at % D::TILE;
            let count = (D::TILE - from).min(n - done);
            // SAFETY: inside the tile, and inside the caller's `n` elements.
            unsafe { std::ptr::copy_nonoverlapping(tile.as_ptr().add(from), out.add(done), count) };
            done += count;
        }
    }
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    unsafe fn avx2<D: Draw>(key: [i64; 2], start: usize, n: usize, out: *mut D::Out) {
        // SAFETY: passed on.
        unsafe { span::<D>(key, start, n, out) }
    }
    #[cfg(target_arch = "x86_64")]
    if level() >= Level::Avx2 {
        // SAFETY: detected; the rest is guaranteed by the caller.
        return unsafe { avx2::<D>(key, start, n, out) };
    }
    // SAFETY: guaranteed by the caller.
    unsafe { span::<D>(key, start, n, out) }
}

/// Draws the elements `start..start + n` of what [`random`] draws, in the storage type `dtype`.
///
/// # Safety
/// `out` has space for `n` elements of `dtype`.
pub(crate) unsafe fn span(
    kind: Random,
    dtype: DType,
    key: [i64; 2],
    start: usize,
    n: usize,
    out: *mut u8,
) {
    // SAFETY: passed on; the types are those of the dtypes.
    unsafe {
        match (kind, dtype) {
            (Random::Bits, DType::I64) => span_as::<RandomBits>(key, start, n, out.cast()),
            (Random::Uniform, DType::F64) => span_as::<Uniform64>(key, start, n, out.cast()),
            (Random::Uniform, DType::F32) => {
                span_as::<Uniform32<f32, 24>>(key, start, n, out.cast())
            }
            (Random::Uniform, DType::F16) => {
                span_as::<Uniform32<f16, 11>>(key, start, n, out.cast())
            }
            (Random::Uniform, DType::BF16) => {
                span_as::<Uniform32<bf16, 8>>(key, start, n, out.cast())
            }
            (Random::Normal, DType::F64) => span_as::<Normal64>(key, start, n, out.cast()),
            (Random::Normal, DType::F32) => span_as::<Normal32<f32>>(key, start, n, out.cast()),
            (Random::Normal, DType::F16) => span_as::<Normal32<f16>>(key, start, n, out.cast()),
            (Random::Normal, DType::BF16) => span_as::<Normal32<bf16>>(key, start, n, out.cast()),
            (kind, dtype) => unreachable!("`infer` refuses {kind:?} as {dtype}"),
        }
    }
}

/// Fills `out`, `[b…, s…]`, with draws of `kind`. Those of one key of `keys`, `i64[b…, 2]`, are
/// determined by that key and the element's row-major index in `[s…]` alone. `Bits` needs an `i64`
/// sink, the others a float one.
pub(crate) fn random(kind: Random, keys: Source<'_>, out: Sink<'_>) {
    debug_assert!(keys.dtype == DType::I64 && keys.shape.last() == Some(&2));
    if out.is_empty() {
        return;
    }
    let len = out.len() / (keys.len() / 2);
    match (kind, out.dtype) {
        (Random::Bits, DType::I64) => random_as::<RandomBits>(keys, len, out),
        (Random::Uniform, DType::F64) => random_as::<Uniform64>(keys, len, out),
        (Random::Uniform, DType::F32) => random_as::<Uniform32<f32, 24>>(keys, len, out),
        (Random::Uniform, DType::F16) => random_as::<Uniform32<f16, 11>>(keys, len, out),
        (Random::Uniform, DType::BF16) => random_as::<Uniform32<bf16, 8>>(keys, len, out),
        (Random::Normal, DType::F64) => random_as::<Normal64>(keys, len, out),
        (Random::Normal, DType::F32) => random_as::<Normal32<f32>>(keys, len, out),
        (Random::Normal, DType::F16) => random_as::<Normal32<f16>>(keys, len, out),
        (Random::Normal, DType::BF16) => random_as::<Normal32<bf16>>(keys, len, out),
        (kind, dtype) => unreachable!("`infer` refuses {kind:?} as {dtype}"),
    }
}

/// Fills a one-dimensional sink with 0, 1, 2, …
pub(crate) fn iota(out: Sink<'_>) {
    fn count<T: Copy>(out: Sink<'_>, f: impl Fn(usize) -> T + Sync) {
        const TASK: usize = 1 << 16;
        let len = out.len();
        par::for_each(len.div_ceil(TASK), |task| {
            let p = { out }.ptr.cast::<T>();
            for i in task * TASK..len.min((task + 1) * TASK) {
                // SAFETY: `i` is below the sink's length.
                unsafe { p.add(i).write(f(i)) };
            }
        });
    }
    match out.dtype {
        DType::F64 => count(out, |i| i as f64),
        DType::F32 => count(out, |i| i as f32),
        DType::BF16 => count(out, |i| bf16::from_f64(i as f64)),
        DType::F16 => count(out, |i| f16::from_f64(i as f64)),
        DType::I64 => count(out, |i| i as i64),
        DType::I32 => count(out, |i| i as i32),
        DType::U8 => count(out, |i| i as u8),
        DType::Bool => count(out, |i| u8::from(i != 0)),
    }
}

#[cfg(test)]
mod tests;
