//! The two transforms of [`super::winograd`], sixteen outputs of a tile of four by four: for each
//! instruction set.
//!
//! Lanes are tiles that follow each other along the last axis. Such tiles begin two elements apart,
//! so even and odd elements of a line are separated, and those of a result interleaved.

use crate::dot::tile::{Base32, Vector};
use crate::simd::{by_level, level};

/// Elements of a tile's side, and all of them.
pub(super) const SIDE: usize = 4;
pub(super) const POSITIONS: usize = SIDE * SIDE;
/// Elements that are read past the end of a product: the widest vector, twice.
pub(super) const SPARE: usize = 32;
/// Most tiles in a run.
pub(super) const LONGEST: usize = 32;
/// Adjacent tiles of an image to be transformed, in some channels.
pub(super) struct InputRun {
    /// Where the tiles of the first channel begin in the four lines that they read, which may be
    /// before the data; lines in the padding are null.
    pub lines: [*const f32; SIDE],
    /// Channels, and from one to the next.
    pub channels: usize,
    pub channel: isize,
    /// Where the data begins and ends in a line; all else is zeros.
    pub before: usize,
    pub end: usize,
    /// Tiles, and how many may be written for them.
    pub tiles: usize,
    pub space: usize,
    /// The first tile of the first channel at position 0.
    pub to: *mut f32,
    /// From one position to the next, and from one channel.
    pub position: usize,
    pub step: usize,
}

/// Adjacent tiles of some rows of the product to be transformed back.
pub(super) struct OutputRun {
    /// The first tile of the first row at position 0.
    pub from: *const f32,
    /// From one position to the next, and from one row.
    pub position: usize,
    pub step: usize,
    /// The two lines of the result; the second may be null.
    pub lines: [*mut f32; 2],
    /// Rows, and from the lines of one to those of the next.
    pub rows: usize,
    pub row: usize,
    /// Elements of a line, at most two for each tile.
    pub count: usize,
}

/// The transforms of one instruction set.
pub(super) struct TileTransforms {
    pub input: unsafe fn(&InputRun),
    /// Returns whether all that it wrote is finite.
    pub output: unsafe fn(&OutputRun) -> bool,
}

/// Vectors whose elements are separated and interleaved.
///
/// # Safety
/// The methods need the instruction set of the implementing type.
unsafe trait PairLanes: Vector<T = f32> {
    /// Of both vectors, one after the other, the even elements and the odd ones.
    #[inline(always)]
    unsafe fn separated(a: Self, b: Self) -> (Self, Self) {
        let (mut all, mut parts) = ([0.0; 32], [0.0; 32]);
        // SAFETY: the arrays have space for two vectors.
        unsafe {
            a.store(all.as_mut_ptr());
            b.store(all.as_mut_ptr().add(Self::N));
            for i in 0..Self::N {
                (parts[i], parts[Self::N + i]) = (all[2 * i], all[2 * i + 1]);
            }
            (Self::load(parts.as_ptr()), Self::load(parts.as_ptr().add(Self::N)))
        }
    }

    /// Loads the lanes of a range, which alone are touched; the others are zero.
    #[inline(always)]
    unsafe fn load_between(p: *const f32, from: usize, to: usize) -> Self {
        let mut part = [0.0; 16];
        for (i, x) in part.iter_mut().enumerate().take(to).skip(from) {
            // SAFETY: the caller has these elements there.
            *x = unsafe { *p.wrapping_add(i) };
        }
        // SAFETY: the array is at least a vector long.
        unsafe { Self::load(part.as_ptr()) }
    }

    /// The reverse of [`PairLanes::separated`].
    #[inline(always)]
    unsafe fn interleaved(even: Self, odd: Self) -> (Self, Self) {
        let (mut all, mut parts) = ([0.0; 32], [0.0; 32]);
        // SAFETY: the arrays have space for two vectors.
        unsafe {
            even.store(parts.as_mut_ptr());
            odd.store(parts.as_mut_ptr().add(Self::N));
            for i in 0..Self::N {
                (all[2 * i], all[2 * i + 1]) = (parts[i], parts[Self::N + i]);
            }
            (Self::load(all.as_ptr()), Self::load(all.as_ptr().add(Self::N)))
        }
    }
}

// SAFETY: the default methods need what the vector needs.
unsafe impl PairLanes for Base32 {}

/// `a − b`
#[inline(always)]
unsafe fn minus<V: Vector<T = f32>>(a: V, b: V) -> V {
    // SAFETY: as the trait says.
    unsafe { a.fma(b, V::splat(-1.0)) }
}

/// `B d` of four values, where a tile becomes `B d Bᵀ`.
#[inline(always)]
unsafe fn forth<V: Vector<T = f32>>(d: [V; SIDE]) -> [V; SIDE] {
    // SAFETY: as the trait says.
    unsafe { [minus(d[0], d[2]), d[1].add(d[2]), minus(d[2], d[1]), minus(d[1], d[3])] }
}

/// `A m` of four values, where a product becomes `A m Aᵀ`.
#[inline(always)]
unsafe fn back<V: Vector<T = f32>>(m: [V; SIDE]) -> [V; 2] {
    // SAFETY: as the trait says.
    unsafe { [m[0].add(m[1]).add(m[2]), minus(minus(m[1], m[2]), m[3])] }
}

#[inline(always)]
unsafe fn input<V: PairLanes>(run: &InputRun) {
    // SAFETY: the caller has the elements from `before` to `end` of each line that is not null,
    // which the masks keep to, and `space` tiles at each position.
    unsafe {
        // No closures here: they would not be compiled for the instruction set.
        for tile in (0..run.tiles).step_by(V::N) {
            let first = 2 * tile;
            for c in 0..run.channels {
                let lines = [
                    columns::<V>(run, 0, c, first),
                    columns::<V>(run, 1, c, first),
                    columns::<V>(run, 2, c, first),
                    columns::<V>(run, 3, c, first),
                ];
                let d = [
                    forth([lines[0][0], lines[1][0], lines[2][0], lines[3][0]]),
                    forth([lines[0][1], lines[1][1], lines[2][1], lines[3][1]]),
                    forth([lines[0][2], lines[1][2], lines[2][2], lines[3][2]]),
                    forth([lines[0][3], lines[1][3], lines[2][3], lines[3][3]]),
                ];
                let to = run.to.add(c * run.step + tile);
                #[allow(clippy::needless_range_loop)] // of several arrays, by columns
                for i in 0..SIDE {
                    let values = forth([d[0][i], d[1][i], d[2][i], d[3][i]]);
                    for (j, v) in values.into_iter().enumerate() {
                        let to = to.add((i * SIDE + j) * run.position);
                        match tile + V::N <= run.space {
                            true => v.store(to),
                            false => v.store_masked(to, V::mask(run.space - tile)),
                        }
                    }
                }
            }
        }
    }
}

/// Of a line of a channel the even elements, the odd ones, and both two elements later.
#[inline(always)]
unsafe fn columns<V: PairLanes>(run: &InputRun, i: usize, c: usize, first: usize) -> [V; SIDE] {
    // SAFETY: as the caller says.
    unsafe {
        let line = run.lines[i];
        if line.is_null() {
            return [V::zero(); SIDE];
        }
        let line = line.wrapping_offset(c as isize * run.channel);
        let (a, b) = (part::<V>(run, line, first), part::<V>(run, line, first + V::N));
        let (even, odd) = V::separated(a, b);
        let first = first + 2;
        let (a, b) = (part::<V>(run, line, first), part::<V>(run, line, first + V::N));
        let (even_after, odd_after) = V::separated(a, b);
        [even, odd, even_after, odd_after]
    }
}

/// A vector of a line, with zeros for what is not data.
#[inline(always)]
unsafe fn part<V: PairLanes>(run: &InputRun, line: *const f32, at: usize) -> V {
    // SAFETY: as the caller says.
    unsafe {
        if at >= run.before && at + V::N <= run.end {
            return V::load(line.add(at));
        }
        let (from, to) = (run.before.saturating_sub(at), run.end.saturating_sub(at));
        V::load_between(line.wrapping_add(at), from.min(V::N), to.min(V::N))
    }
}

#[inline(always)]
unsafe fn output<V: PairLanes>(run: &OutputRun) -> bool {
    // SAFETY: the caller has the tiles at each position, rounded up to whole vectors, and `count`
    // elements in each line that is not null.
    unsafe {
        // Stays zero until something is added that is not finite.
        let mut seen = V::zero();
        let vectors = run.count.div_ceil(2 * V::N);
        for work in 0..run.rows * vectors {
            let (row, done) = (work / vectors, work % vectors * 2 * V::N);
            let from = run.from.add(row * run.step + done / 2);
            let mut columns = [[V::zero(); SIDE]; 2];
            #[allow(clippy::needless_range_loop)] // of several arrays, by columns
            for j in 0..SIDE {
                let mut m = [V::zero(); SIDE];
                for (i, m) in m.iter_mut().enumerate() {
                    *m = V::load(from.add((i * SIDE + j) * run.position));
                }
                let [first, second] = back(m);
                (columns[0][j], columns[1][j]) = (first, second);
            }
            for (i, line) in run.lines.into_iter().enumerate() {
                if line.is_null() {
                    continue;
                }
                let line = line.add(row * run.row);
                let [even, odd] = back(columns[i]);
                let (first, second) = V::interleaved(even, odd);
                for (k, y) in [first, second].into_iter().enumerate() {
                    let at = done + k * V::N;
                    if at + V::N <= run.count {
                        y.store(line.add(at));
                        seen = seen.fma(y, V::zero());
                    } else if at < run.count {
                        let mask = V::mask(run.count - at);
                        y.store_masked(line.add(at), mask);
                        seen = seen.fma(V::load_masked(line.add(at), mask), V::zero());
                    }
                }
            }
        }
        let mut lanes = [0.0f32; 16];
        seen.store(lanes.as_mut_ptr());
        lanes.iter().all(|&lane| lane == 0.0)
    }
}

/// Generates the trampolines and the table of one instruction set, as `kernels!` of the matrix
/// product does.
macro_rules! transforms {
    ($table:ident, $module:ident, $vector:ty, $feature:meta) => {
        mod $module {
            use super::*;
            #[$feature]
            unsafe fn input(run: &InputRun) {
                // SAFETY: passed on.
                unsafe { super::input::<$vector>(run) }
            }
            #[$feature]
            unsafe fn output(run: &OutputRun) -> bool {
                // SAFETY: passed on.
                unsafe { super::output::<$vector>(run) }
            }
            pub static $table: TileTransforms = TileTransforms { input, output };
        }
        use $module::$table;
    };
}

transforms!(BASE, base, Base32, inline(never));

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::*;
    use std::arch::x86_64::*;

    // SAFETY: the methods need the instruction set of the vector.
    unsafe impl PairLanes for __m512 {
        #[inline(always)]
        unsafe fn load_between(p: *const f32, from: usize, to: usize) -> Self {
            let lanes = ((1u32 << to) - 1) & !((1u32 << from) - 1);
            // SAFETY: as the trait says.
            unsafe { _mm512_maskz_loadu_ps(lanes as u16, p) }
        }
        #[inline(always)]
        unsafe fn separated(a: Self, b: Self) -> (Self, Self) {
            // SAFETY: as the trait says.
            unsafe {
                let even =
                    _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
                let odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
                (_mm512_permutex2var_ps(a, even, b), _mm512_permutex2var_ps(a, odd, b))
            }
        }
        #[inline(always)]
        unsafe fn interleaved(even: Self, odd: Self) -> (Self, Self) {
            // SAFETY: as the trait says.
            unsafe {
                let low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
                let high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
                (_mm512_permutex2var_ps(even, low, odd), _mm512_permutex2var_ps(even, high, odd))
            }
        }
    }

    // SAFETY: the methods need the instruction set of the vector.
    unsafe impl PairLanes for __m256 {
        #[inline(always)]
        unsafe fn load_between(p: *const f32, from: usize, to: usize) -> Self {
            // SAFETY: as the trait says.
            unsafe {
                let lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
                let reached = _mm256_cmpgt_epi32(lane, _mm256_set1_epi32(from as i32 - 1));
                let within = _mm256_cmpgt_epi32(_mm256_set1_epi32(to as i32), lane);
                _mm256_maskload_ps(p, _mm256_and_si256(reached, within))
            }
        }
        #[inline(always)]
        unsafe fn separated(a: Self, b: Self) -> (Self, Self) {
            // SAFETY: as the trait says.
            unsafe {
                let (low, high) =
                    (_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
                (_mm256_shuffle_ps(low, high, 0x88), _mm256_shuffle_ps(low, high, 0xdd))
            }
        }
        #[inline(always)]
        unsafe fn interleaved(even: Self, odd: Self) -> (Self, Self) {
            // SAFETY: as the trait says.
            unsafe {
                let (low, high) = (_mm256_unpacklo_ps(even, odd), _mm256_unpackhi_ps(even, odd));
                (_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31))
            }
        }
    }

    transforms!(AVX512, avx512, __m512, target_feature(enable = "avx512f"));
    transforms!(AVX2, avx2, __m256, target_feature(enable = "avx2,fma"));
    pub(super) static OF_AVX512: &TileTransforms = &AVX512;
    pub(super) static OF_AVX2: &TileTransforms = &AVX2;
}

/// The transforms of this process.
pub(super) fn transforms() -> &'static TileTransforms {
    by_level!(level(), avx512: x86::OF_AVX512, avx2: x86::OF_AVX2, baseline: &BASE)
}
