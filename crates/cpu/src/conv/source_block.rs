//! The part of a source that a block of results reads, with zeros in the padding.

use super::Volume;
use crate::elem::Elem;

/// How a block reads one axis of the source: result `q` of `count` takes positions
/// `first + q·step + offset`, with offsets from 0 up to `reach`.
#[derive(Clone, Copy, Debug)]
pub(super) struct AxisReads {
    pub first: isize,
    pub step: usize,
    pub count: usize,
    pub reach: usize,
    /// Length of the source.
    pub len: usize,
}

impl AxisReads {
    /// Positions from the first that is read to the last. Saturates: such a region is never made.
    pub fn extent(&self) -> usize {
        (self.count - 1).saturating_mul(self.step).saturating_add(self.reach).saturating_add(1)
    }
}

/// Dense copies of channels, each with its three spatial axes; along the last one, positions of one
/// remainder modulo the step are adjacent.
#[derive(Clone, Copy, Debug)]
pub(super) struct SourceBlock {
    pub axes: [AxisReads; 3],
    /// Positions with one remainder on the last axis.
    pub part: usize,
    /// Elements of a row: a part for each remainder that occurs.
    pub row: usize,
    pub plane: usize,
    pub channel: usize,
}

impl SourceBlock {
    pub fn new(axes: [AxisReads; 3]) -> SourceBlock {
        let last = axes[2];
        let part = (last.count - 1).saturating_add(last.reach / last.step).saturating_add(1);
        let row = part.saturating_mul(last.step.min(last.reach + 1));
        let plane = row.saturating_mul(axes[1].extent());
        let channel = plane.saturating_mul(axes[0].extent());
        SourceBlock { axes, part, row, plane, channel }
    }

    /// Whether this many copies are much larger than the data they are made from, channels of `len`
    /// elements each. A constant 16 MiB of f32 is allowed in any case, for small data under a large
    /// kernel.
    pub fn is_wide(&self, copies: usize, len: usize) -> bool {
        let most = copies.saturating_mul(len).saturating_mul(8).saturating_add(1 << 22);
        copies.saturating_mul(self.channel) > most
    }

    /// The start of a tap at these offsets, for result 0 on each axis.
    pub fn tap(&self, offsets: [usize; 3]) -> usize {
        let step = self.axes[2].step;
        offsets[0] * self.plane
            + offsets[1] * self.row
            + offsets[2] % step * self.part
            + offsets[2] / step
    }

    /// The start of result `q`, before a tap's offset is added.
    pub fn result(&self, q: [usize; 3]) -> usize {
        q[0] * self.axes[0].step * self.plane + q[1] * self.axes[1].step * self.row + q[2]
    }

    /// Copies channels of one image.
    ///
    /// # Safety
    /// `dst` has space for `channels` times `self.channel` elements, and the source has these
    /// channels.
    pub unsafe fn fill<S: Elem<Compute = C>, C: Copy + Default>(
        &self,
        x: Volume<S>,
        image: usize,
        first: usize,
        channels: usize,
        dst: *mut C,
    ) {
        let [depth, height, width] = self.axes;
        let inside = |axis: &AxisReads, i: usize| {
            let at = axis.first + i as isize;
            (at >= 0 && (at as usize) < axis.len).then_some(at as usize)
        };
        let mut dst = dst;
        for channel in first..first + channels {
            for d in 0..depth.extent() {
                for h in 0..height.extent() {
                    // SAFETY: a row at a time; the caller has space for all of them.
                    unsafe {
                        match (inside(&depth, d), inside(&height, h)) {
                            (Some(d), Some(h)) => {
                                let src = x.at([image, channel, d, h, 0]);
                                self.fill_row(&width, src, x.strides[4], dst);
                            }
                            _ => (0..self.row).for_each(|i| *dst.add(i) = C::default()),
                        }
                        dst = dst.add(self.row);
                    }
                }
            }
        }
    }

    unsafe fn fill_row<S: Elem<Compute = C>, C: Copy + Default>(
        &self,
        axis: &AxisReads,
        src: *const S,
        stride: isize,
        dst: *mut C,
    ) {
        // SAFETY: indices into the source are inside its axis, those into the row inside the row.
        unsafe {
            for rest in 0..axis.step.min(axis.reach + 1) {
                let dst = dst.add(rest * self.part);
                // Element i of this part is position `start + i·step`.
                let (start, step) = (axis.first + rest as isize, axis.step as isize);
                let low = if start < 0 { (-start + step - 1) / step } else { 0 };
                let space = axis.len as isize - start;
                let high = if space <= 0 { 0 } else { (space + step - 1) / step };
                let low = (low as usize).min(self.part);
                let high = (high as usize).clamp(low, self.part);
                (0..low).for_each(|i| *dst.add(i) = C::default());
                (high..self.part).for_each(|i| *dst.add(i) = C::default());
                // If nothing is read, these may be far out of bounds; then they are not used.
                let first = (start + low as isize * step).wrapping_mul(stride);
                let src = src.wrapping_offset(first);
                let stride = step.wrapping_mul(stride);
                if stride == 1 {
                    (0..high - low).for_each(|i| *dst.add(low + i) = (*src.add(i)).load());
                } else {
                    (0..high - low).for_each(|i| {
                        *dst.add(low + i) = (*src.offset(i as isize * stride)).load()
                    });
                }
            }
        }
    }
}
