//! Element-wise combination of the workers' operands, as a balanced binary tree over ranks.
//!
//! ((0 + 1) + (2 + 3)) + (4 + 5): the left part of a range is the largest power of two below its
//! length. The result depends on the operands alone, and a worker that holds what two would hold
//! may add those two beforehand. bf16 and f16 are added in f32 and rounded once, at the root.
//!
//! Blocks of some KiB go through the tree one after the other, so that partial results stay in
//! the first cache.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use pullback_ir::{Combination, DType};

/// Bytes of a block of operands.
pub(crate) const BLOCK: usize = 8 << 10;

/// Combines the operands of `n` workers into `out`. `read(rank, at, block)` copies bytes of a
/// worker's operand from byte `at` on.
pub(crate) fn combine(
    combination: Combination,
    dtype: DType,
    n: usize,
    out: &mut [u8],
    mut read: impl FnMut(usize, usize, &mut [u8]),
) {
    match dtype {
        DType::F64 => typed::<f64>(combination, n, out, &mut read),
        DType::F32 => typed::<f32>(combination, n, out, &mut read),
        DType::BF16 => typed::<Bf16>(combination, n, out, &mut read),
        DType::F16 => typed::<F16>(combination, n, out, &mut read),
        DType::I64 => typed::<i64>(combination, n, out, &mut read),
        DType::I32 => typed::<i32>(combination, n, out, &mut read),
        DType::U8 => typed::<u8>(combination, n, out, &mut read),
        DType::Bool => typed::<Bool>(combination, n, out, &mut read),
    }
}

/// Elements in memory, and the type that they are combined in.
trait Element {
    /// Of an element in memory.
    const BYTES: usize;
    type Wide: Copy + Default;
    fn load(bytes: &[u8], wide: &mut [Self::Wide]);
    fn store(wide: &[Self::Wide], bytes: &mut [u8]);
    fn sum(a: Self::Wide, b: Self::Wide) -> Self::Wide;
    fn max(a: Self::Wide, b: Self::Wide) -> Self::Wide;
    fn min(a: Self::Wide, b: Self::Wide) -> Self::Wide;
}

/// NaN wins on either side.
#[inline(always)]
fn larger<T: PartialOrd + Copy>(a: T, b: T) -> T {
    #[expect(clippy::eq_op, reason = "NaN alone differs from itself")]
    if a > b || a != a { a } else { b }
}

#[inline(always)]
fn smaller<T: PartialOrd + Copy>(a: T, b: T) -> T {
    #[expect(clippy::eq_op, reason = "NaN alone differs from itself")]
    if a < b || a != a { a } else { b }
}

macro_rules! element {
    ($element:ty, $bytes:expr, $wide:ty, $sum:expr, $load:expr, $store:expr) => {
        impl Element for $element {
            const BYTES: usize = $bytes;
            type Wide = $wide;
            fn load(bytes: &[u8], wide: &mut [$wide]) {
                $load(bytes, wide)
            }
            fn store(wide: &[$wide], bytes: &mut [u8]) {
                $store(wide, bytes)
            }
            #[inline(always)]
            fn sum(a: $wide, b: $wide) -> $wide {
                $sum(a, b)
            }
            #[inline(always)]
            fn max(a: $wide, b: $wide) -> $wide {
                larger(a, b)
            }
            #[inline(always)]
            fn min(a: $wide, b: $wide) -> $wide {
                smaller(a, b)
            }
        }
    };
}

macro_rules! plain {
    ($($type:ty, $sum:expr;)*) => {$(
        element!(
            $type,
            size_of::<$type>(),
            $type,
            $sum,
            |bytes: &[u8], wide: &mut [$type]| {
                for (x, bytes) in wide.iter_mut().zip(bytes.as_chunks().0) {
                    *x = <$type>::from_ne_bytes(*bytes);
                }
            },
            |wide: &[$type], bytes: &mut [u8]| {
                for (x, bytes) in wide.iter().zip(bytes.as_chunks_mut().0) {
                    *bytes = x.to_ne_bytes();
                }
            }
        );
    )*};
}

plain! {
    f64, |a, b| a + b;
    f32, |a, b| a + b;
    i64, i64::wrapping_add;
    i32, i32::wrapping_add;
    u8, u8::wrapping_add;
}

/// Elements of [`DType::Bool`], of which the sum is the largest.
struct Bool;
element!(
    Bool,
    1,
    u8,
    |a, b| a | b,
    |bytes: &[u8], wide: &mut [u8]| wide.copy_from_slice(bytes),
    |wide: &[u8], bytes: &mut [u8]| bytes.copy_from_slice(wide)
);

macro_rules! narrow {
    ($name:ident, $half:ty) => {
        /// Elements that are combined in f32.
        struct $name;
        element!(
            $name,
            2,
            f32,
            |a, b| a + b,
            |bytes: &[u8], wide: &mut [f32]| {
                let mut narrow = [<$half>::ZERO; 256];
                for (bytes, wide) in bytes.chunks(512).zip(wide.chunks_mut(256)) {
                    let narrow = &mut narrow[..wide.len()];
                    for (x, bytes) in narrow.iter_mut().zip(bytes.as_chunks().0) {
                        *x = <$half>::from_ne_bytes(*bytes);
                    }
                    narrow.convert_to_f32_slice(wide);
                }
            },
            |wide: &[f32], bytes: &mut [u8]| {
                let mut narrow = [<$half>::ZERO; 256];
                for (bytes, wide) in bytes.chunks_mut(512).zip(wide.chunks(256)) {
                    let narrow = &mut narrow[..wide.len()];
                    narrow.convert_from_f32_slice(wide);
                    for (x, bytes) in narrow.iter().zip(bytes.as_chunks_mut().0) {
                        *bytes = x.to_ne_bytes();
                    }
                }
            }
        );
    };
}

narrow!(Bf16, bf16);
narrow!(F16, f16);

fn typed<E: Element>(
    combination: Combination,
    n: usize,
    out: &mut [u8],
    read: &mut impl FnMut(usize, usize, &mut [u8]),
) {
    match combination {
        Combination::Sum => blocks::<E>(n, out, read, E::sum),
        Combination::Max => blocks::<E>(n, out, read, E::max),
        Combination::Min => blocks::<E>(n, out, read, E::min),
    }
}

fn blocks<E: Element>(
    n: usize,
    out: &mut [u8],
    read: &mut impl FnMut(usize, usize, &mut [u8]),
    f: impl Fn(E::Wide, E::Wide) -> E::Wide + Copy,
) {
    let size = out.len().min(BLOCK);
    let mut partial: Vec<Vec<E::Wide>> = vec![];
    let mut bytes = vec![0; size];
    for (i, out) in out.chunks_mut(BLOCK).enumerate() {
        let bytes = &mut bytes[..out.len()];
        let mut leaf = |rank: usize, wide: &mut Vec<E::Wide>| {
            read(rank, i * BLOCK, bytes);
            E::load(bytes, wide);
        };
        let len = out.len() / E::BYTES;
        tree(0..n, 0, len, &mut partial, &mut leaf, f);
        E::store(&partial[0], out);
    }
}

/// Leaves the combination of a range of workers in `partial[level]`.
fn tree<T: Copy + Default>(
    ranks: std::ops::Range<usize>,
    level: usize,
    len: usize,
    partial: &mut Vec<Vec<T>>,
    leaf: &mut impl FnMut(usize, &mut Vec<T>),
    f: impl Fn(T, T) -> T + Copy,
) {
    if partial.len() == level {
        partial.push(vec![]);
    }
    partial[level].resize(len, T::default());
    if ranks.len() == 1 {
        return leaf(ranks.start, &mut partial[level]);
    }
    let middle = ranks.start + ranks.len().next_power_of_two() / 2;
    tree(ranks.start..middle, level, len, partial, leaf, f);
    tree(middle..ranks.end, level + 1, len, partial, leaf, f);
    let (left, right) = partial.split_at_mut(level + 1);
    for (a, b) in left[level].iter_mut().zip(&right[0]) {
        *a = f(*a, *b);
    }
}
