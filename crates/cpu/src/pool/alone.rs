//! The largest elements of pieces that are reduced one by one (adaptive pooling): values first,
//! then their places.
//!
//! A loop that keeps places beside values takes several times as long as one that keeps values
//! alone. So the rows of a band become a line of largest values, the largest of each piece of it is
//! found, and then the first element that equals it, by rows. Where there is a NaN the other way
//! runs, which knows which of several counts.

use super::{AxisPiece, LANES, Least, Place};
use crate::elem::Elem;

/// A band of an image: the rows of the pieces of one index of the outer axes.
pub(super) struct Band<'a, S> {
    /// The first element of the image, whose rows are contiguous.
    pub x: *const S,
    pub strides: [isize; 2],
    pub outer: [AxisPiece; 2],
    /// Rows of a slice, and elements of a row.
    pub rows: usize,
    pub length: usize,
    pub width: &'a [AxisPiece],
}

impl<S: Elem<Compute: Least>> Band<'_, S> {
    /// Calls `f` with its number and first element for every row, until it returns true.
    #[inline(always)]
    fn each_row(&self, mut f: impl FnMut(usize, *const S) -> bool) {
        let [d, h] = self.outer;
        for i in 0..d.1 {
            for j in 0..h.1 {
                let (z, y) = (d.0 + i * d.2, h.0 + j * h.2);
                let at = z as isize * self.strides[0] + y as isize * self.strides[1];
                if f(z * self.rows + y, self.x.wrapping_offset(at)) {
                    return;
                }
            }
        }
    }

    /// The places of the largest elements; `false`, and none of use, if an element is NaN.
    /// `line` has the length of a row.
    #[inline(always)]
    pub fn largest<P: Place>(&self, line: &mut [S::Compute], places: &mut [P]) -> bool {
        let line = &mut line[..self.length];
        line.fill(S::Compute::LEAST);
        let mut bad = 0u32;
        self.each_row(|_, x| {
            for (k, most) in line.iter_mut().enumerate() {
                // SAFETY: a row of the image.
                let v = unsafe { (*x.add(k)).load() };
                #[allow(clippy::eq_op)] // unequal to itself: NaN
                let nan = v != v;
                bad |= u32::from(nan);
                *most = if v > *most { v } else { *most };
            }
            false
        });
        if bad != 0 {
            return false;
        }
        for (place, &(start, count, _)) in places.iter_mut().zip(self.width) {
            let most = most(&line[start..start + count]);
            self.each_row(|row, x| {
                // SAFETY: pieces are inside their axes.
                let found = unsafe { position(x.add(start), count, most) };
                if let Some(k) = found {
                    *place = P::at(row * self.length + start, k, 1);
                }
                found.is_some()
            });
        }
        true
    }
}

/// The largest of some elements, none of which is NaN.
#[inline(always)]
fn most<C: Least>(x: &[C]) -> C {
    let (chunks, rest) = x.as_chunks::<LANES>();
    let mut most = C::LEAST;
    if let Some((first, others)) = chunks.split_first() {
        let mut lanes = *first;
        for chunk in others {
            for (lane, &v) in lanes.iter_mut().zip(chunk) {
                *lane = if v > *lane { v } else { *lane };
            }
        }
        for v in lanes {
            most = if v > most { v } else { most };
        }
    }
    for &v in rest {
        most = if v > most { v } else { most };
    }
    most
}

/// Where the first element that equals a value is.
///
/// # Safety
/// There are so many elements.
#[inline(always)]
unsafe fn position<S: Elem<Compute: Least>>(
    x: *const S,
    count: usize,
    value: S::Compute,
) -> Option<usize> {
    let mut from = 0;
    while from + LANES <= count {
        let mut hits = 0u32;
        for l in 0..LANES {
            // SAFETY: less than `count`.
            hits |= u32::from(unsafe { (*x.add(from + l)).load() } == value);
        }
        if hits != 0 {
            break;
        }
        from += LANES;
    }
    // SAFETY: less than `count`.
    (from..count).find(|&k| unsafe { (*x.add(k)).load() } == value)
}
