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
use std::ops::Range;

/// Bytes of a block of operands.
pub(crate) const BLOCK: usize = 8 << 10;

/// Combines the operands of `n` workers, of `len` bytes each. `read(rank, at, block)` copies bytes
/// of a worker's operand from byte `at` on; `write(at, block)` gets the results.
pub(crate) fn combine(
    combination: Combination,
    dtype: DType,
    n: usize,
    len: usize,
    mut read: impl FnMut(usize, usize, &mut [u8]),
    mut write: impl FnMut(usize, &[u8]),
) {
    let (read, write) = (&mut read, &mut write);
    match dtype {
        DType::F64 => typed::<f64>(combination, n, len, read, write),
        DType::F32 => typed::<f32>(combination, n, len, read, write),
        DType::BF16 => typed::<Bf16>(combination, n, len, read, write),
        DType::F16 => typed::<F16>(combination, n, len, read, write),
        DType::I64 => typed::<i64>(combination, n, len, read, write),
        DType::I32 => typed::<i32>(combination, n, len, read, write),
        DType::U8 => typed::<u8>(combination, n, len, read, write),
        DType::Bool => typed::<LogicalOr>(combination, n, len, read, write),
    }
}

/// Elements in memory, and the type that they are combined in. Blocks of both are bytes.
trait Element {
    /// Bytes of an element, in memory and when combined.
    const BYTES: usize;
    const WIDE: usize;
    fn widen(narrow: &[u8], wide: &mut [u8]);
    fn narrow(wide: &[u8], narrow: &mut [u8]);
    /// Combines `b` into `a`.
    fn combine(combination: Combination, a: &mut [u8], b: &[u8]);
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

/// `a[i] = f(a[i], b[i])`, for the type of `f`.
macro_rules! each {
    ($type:ty, $a:expr, $b:expr, $f:expr) => {
        for (a, b) in $a.as_chunks_mut().0.iter_mut().zip($b.as_chunks().0) {
            *a = $f(<$type>::from_ne_bytes(*a), <$type>::from_ne_bytes(*b)).to_ne_bytes();
        }
    };
}

macro_rules! combine_as {
    ($type:ty, $sum:expr) => {
        fn combine(combination: Combination, a: &mut [u8], b: &[u8]) {
            match combination {
                Combination::Sum => each!($type, a, b, $sum),
                Combination::Max => each!($type, a, b, larger),
                Combination::Min => each!($type, a, b, smaller),
            }
        }
    };
}

macro_rules! plain {
    ($($element:ty, $type:ty, $sum:expr;)*) => {$(
        impl Element for $element {
            const BYTES: usize = size_of::<$type>();
            const WIDE: usize = size_of::<$type>();
            fn widen(narrow: &[u8], wide: &mut [u8]) {
                wide.copy_from_slice(narrow);
            }
            fn narrow(wide: &[u8], narrow: &mut [u8]) {
                narrow.copy_from_slice(wide);
            }
            combine_as!($type, $sum);
        }
    )*};
}

/// Elements of [`DType::Bool`], of which the sum is the largest.
struct LogicalOr;

plain! {
    f64, f64, |a, b| a + b;
    f32, f32, |a, b| a + b;
    i64, i64, i64::wrapping_add;
    i32, i32, i32::wrapping_add;
    u8, u8, u8::wrapping_add;
    LogicalOr, u8, |a: u8, b: u8| a | b;
}

macro_rules! narrow {
    ($name:ident, $half:ty) => {
        /// Elements that are combined in f32.
        struct $name;
        impl Element for $name {
            const BYTES: usize = 2;
            const WIDE: usize = 4;
            fn widen(narrow: &[u8], wide: &mut [u8]) {
                let (mut x, mut y) = ([<$half>::ZERO; 256], [0f32; 256]);
                for (narrow, wide) in narrow.chunks(512).zip(wide.chunks_mut(1024)) {
                    let (x, y) = (&mut x[..narrow.len() / 2], &mut y[..narrow.len() / 2]);
                    for (x, bytes) in x.iter_mut().zip(narrow.as_chunks().0) {
                        *x = <$half>::from_ne_bytes(*bytes);
                    }
                    x.convert_to_f32_slice(y);
                    for (y, bytes) in y.iter().zip(wide.as_chunks_mut().0) {
                        *bytes = y.to_ne_bytes();
                    }
                }
            }
            fn narrow(wide: &[u8], narrow: &mut [u8]) {
                let (mut x, mut y) = ([<$half>::ZERO; 256], [0f32; 256]);
                for (narrow, wide) in narrow.chunks_mut(512).zip(wide.chunks(1024)) {
                    let (x, y) = (&mut x[..narrow.len() / 2], &mut y[..narrow.len() / 2]);
                    for (y, bytes) in y.iter_mut().zip(wide.as_chunks().0) {
                        *y = f32::from_ne_bytes(*bytes);
                    }
                    x.convert_from_f32_slice(y);
                    for (x, bytes) in x.iter().zip(narrow.as_chunks_mut().0) {
                        *bytes = x.to_ne_bytes();
                    }
                }
            }
            combine_as!(f32, |a, b| a + b);
        }
    };
}

narrow!(Bf16, bf16);
narrow!(F16, f16);

fn typed<E: Element>(
    combination: Combination,
    n: usize,
    len: usize,
    read: &mut impl FnMut(usize, usize, &mut [u8]),
    write: &mut impl FnMut(usize, &[u8]),
) {
    let (same, wide) = (E::BYTES == E::WIDE, len.min(BLOCK) / E::BYTES * E::WIDE);
    // A block for each level of the tree, and one for its root.
    let mut levels = vec![vec![0; wide]; depth(n)];
    let mut root = vec![0; wide];
    let mut narrow = vec![0; if same { 0 } else { len.min(BLOCK) }];
    let f = |a: &mut [u8], b: &[u8]| E::combine(combination, a, b);
    for at in (0..len).step_by(BLOCK) {
        let bytes = BLOCK.min(len - at);
        let root = &mut root[..bytes / E::BYTES * E::WIDE];
        if same {
            tree(0..n, root, &mut levels, &mut |rank, block| read(rank, at, block), &f);
            write(at, root);
            continue;
        }
        let narrow = &mut narrow[..bytes];
        let mut leaf = |rank: usize, block: &mut [u8]| {
            read(rank, at, narrow);
            E::widen(narrow, block);
        };
        tree(0..n, root, &mut levels, &mut leaf, &f);
        E::narrow(root, narrow);
        write(at, narrow);
    }
}

/// Levels of the tree below its root.
fn depth(n: usize) -> usize {
    n.next_power_of_two().trailing_zeros() as usize
}

/// Combines a range of workers into a block; `levels` are blocks for what is combined on the way.
fn tree(
    ranks: Range<usize>,
    block: &mut [u8],
    levels: &mut [Vec<u8>],
    leaf: &mut impl FnMut(usize, &mut [u8]),
    f: &impl Fn(&mut [u8], &[u8]),
) {
    if ranks.len() == 1 {
        return leaf(ranks.start, block);
    }
    let middle = ranks.start + ranks.len().next_power_of_two() / 2;
    let (right, below) = levels.split_first_mut().expect("a level for each halving");
    tree(ranks.start..middle, block, below, leaf, f);
    let right = &mut right[..block.len()];
    tree(middle..ranks.end, right, below, leaf, f);
    f(block, right);
}
