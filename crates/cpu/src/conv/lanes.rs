//! The two inner loops of convolution that matrix products do not have, for each instruction set:
//! packing a panel out of overlapping rows, and a tile whose rows start at arbitrary offsets.

use crate::dot::tile::{Base32, Base64, Tiled, Vector};
use crate::simd::{by_level, level};

/// Elements that a copy may read and write past its end: the widest vector.
pub(super) const OVERRUN: usize = 16;

/// Adjacent elements of a panel that are adjacent in the source too.
pub(super) struct PanelRun {
    /// The first column.
    pub col: usize,
    /// Its position in the source, before the row's offset is added.
    pub src: usize,
}

/// A panel to be packed: row `k` holds the runs of the source, starting at `offsets[k]`.
///
/// Every run is copied in whole vectors, and what it writes past its end is overwritten by the next
/// run or the next row. So both sides have [`OVERRUN`] extra elements.
pub(super) struct PanelPack<'a, T> {
    pub src: *const T,
    pub offsets: &'a [usize],
    pub runs: &'a [PanelRun],
    /// The longest run.
    pub longest: usize,
    pub dst: *mut T,
    /// Columns of the panel.
    pub width: usize,
}

/// A tile of `A·B` where row `i` of A begins at `a + rows[i]`, and steps through `outer` lines of
/// `inner` adjacent elements; B is packed, step by step. C has whole vectors.
pub(super) struct RowTile<'a, T> {
    pub a: *const T,
    pub rows: &'a [usize],
    pub outer: usize,
    /// Stride between lines.
    pub line: usize,
    pub inner: usize,
    pub b: *const T,
    pub c: *mut T,
    pub c_row: usize,
    /// Accumulate into C instead of overwriting it.
    pub add: bool,
}

type RowTileFn<T> = unsafe fn(&RowTile<T>);

/// The loops of one instruction set.
pub(super) struct ConvLoops<T: 'static> {
    /// Columns of a full tile: two vectors.
    pub cols: usize,
    pub pack: unsafe fn(&PanelPack<T>),
    /// `[rows - 1][vectors - 1]`
    pub lines: &'static [[RowTileFn<T>; 2]],
}

#[inline(always)]
unsafe fn pack<V: Vector>(p: &PanelPack<V::T>) {
    // SAFETY: the caller has the runs at every offset, and `OVERRUN` extra elements after both
    // sides.
    unsafe {
        let mut dst = p.dst;
        let vectors = p.longest.div_ceil(V::N);
        if vectors == 2 && p.runs.len() == 1 {
            // The usual case: a panel is one run of a row.
            let src = p.src.add(p.runs[0].src);
            for &offset in p.offsets {
                let src = src.add(offset);
                V::load(src).store(dst);
                V::load(src.add(V::N)).store(dst.add(V::N));
                dst = dst.add(p.width);
            }
            return;
        }
        for &offset in p.offsets {
            let src = p.src.add(offset);
            for run in p.runs {
                let (src, dst) = (src.add(run.src), dst.add(run.col));
                V::load(src).store(dst);
                for v in 1..vectors {
                    V::load(src.add(v * V::N)).store(dst.add(v * V::N));
                }
            }
            dst = dst.add(p.width);
        }
    }
}

#[inline(always)]
unsafe fn lines<V: Vector, const M: usize, const W: usize>(t: &RowTile<V::T>) {
    // SAFETY: the caller has `M` rows of lines of A, as many steps of B, and `M` rows of `W`
    // vectors of C.
    unsafe {
        let mut acc = [[V::zero(); W]; M];
        let mut b = t.b;
        for line in 0..t.outer {
            let base = t.a.add(line * t.line);
            let a: [*const V::T; M] = std::array::from_fn(|i| base.add(*t.rows.get_unchecked(i)));
            for p in 0..t.inner {
                let mut bs = [V::zero(); W];
                for (w, bv) in bs.iter_mut().enumerate() {
                    *bv = V::load(b.add(w * V::N));
                }
                for (row, &a) in acc.iter_mut().zip(&a) {
                    let x = V::splat(*a.add(p));
                    for (sum, &bv) in row.iter_mut().zip(&bs) {
                        *sum = sum.fma(x, bv);
                    }
                }
                b = b.add(2 * V::N);
            }
        }
        for (i, row) in acc.iter().enumerate() {
            for (w, &sum) in row.iter().enumerate() {
                let c = t.c.add(i * t.c_row + w * V::N);
                let sum = if t.add { V::load(c).add(sum) } else { sum };
                sum.store(c);
            }
        }
    }
}

/// Generates the trampolines and the table of one instruction set, as `kernels!` of the matrix
/// product does.
macro_rules! lanes {
    ($table:ident, $module:ident, $vector:ty, $t:ty, $feature:meta, [$($m:literal)*]) => {
        mod $module {
            use super::*;
            #[$feature]
            unsafe fn pack(p: &PanelPack<$t>) {
                // SAFETY: passed on.
                unsafe { super::pack::<$vector>(p) }
            }
            #[$feature]
            unsafe fn lines<const M: usize, const W: usize>(t: &RowTile<$t>) {
                // SAFETY: passed on.
                unsafe { super::lines::<$vector, M, W>(t) }
            }
            pub static $table: ConvLoops<$t> =
                ConvLoops { cols: 2 * <$vector as Vector>::N, pack, lines: &[$([lines::<$m, 1>, lines::<$m, 2>]),*] };
        }
        pub(super) use $module::$table;
    };
}

#[cfg(not(target_arch = "aarch64"))]
lanes!(F32_BASE, f32_base, Base32, f32, inline(never), [1 2 3 4]);
#[cfg(not(target_arch = "aarch64"))]
lanes!(F64_BASE, f64_base, Base64, f64, inline(never), [1 2 3 4]);
#[cfg(target_arch = "aarch64")]
lanes!(F32_BASE, f32_base, Base32, f32, inline(never), [1 2 3 4 5 6 7 8 9 10 11 12]);
#[cfg(target_arch = "aarch64")]
lanes!(F64_BASE, f64_base, Base64, f64, inline(never), [1 2 3 4 5 6 7 8 9 10 11 12]);

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::*;
    use std::arch::x86_64::*;
    lanes!(F32_AVX512, f32_avx512, __m512, f32, target_feature(enable = "avx512f"), [1 2 3 4 5 6 7 8 9 10 11 12]);
    lanes!(F64_AVX512, f64_avx512, __m512d, f64, target_feature(enable = "avx512f"), [1 2 3 4 5 6 7 8 9 10 11 12]);
    lanes!(F32_AVX2, f32_avx2, __m256, f32, target_feature(enable = "avx2,fma"), [1 2 3 4 5 6]);
    lanes!(F64_AVX2, f64_avx2, __m256d, f64, target_feature(enable = "avx2,fma"), [1 2 3 4 5 6]);
}

/// The element types that have lanes.
pub(super) trait Laned: Tiled {
    fn lanes() -> &'static ConvLoops<Self>;
}

macro_rules! laned {
    ($t:ty, $plain:ident, $avx2:ident, $avx512:ident) => {
        impl Laned for $t {
            fn lanes() -> &'static ConvLoops<$t> {
                by_level!(level(), avx512: &x86::$avx512, avx2: &x86::$avx2, baseline: &$plain)
            }
        }
    };
}
laned!(f32, F32_BASE, F32_AVX2, F32_AVX512);
laned!(f64, F64_BASE, F64_AVX2, F64_AVX512);
