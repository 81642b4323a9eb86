//! How a domain is split into rows and tiles, and how operands are accessed along them.

use super::calls::TileKind;
use crate::walk::Walk;
use pullback_ir::{Layout, Region};

/// Runs of all strided operands from this length on are processed one by one, so that operands are
/// read without a copy. Below it, tiles span several runs and operands that are not dense are
/// gathered.
const RUN: usize = 96;
/// The same where rows are folded: a fold is cut where tiles are, so its bits depend on this.
const FOLDED_RUN: usize = 256;
/// Rows up to this length share a tile.
pub(super) const SHORT: usize = 512;

/// The iteration domain of a region.
pub(super) struct Domain {
    /// Number of rows. Without reductions there is one, which is everything.
    pub(super) rows: usize,
    /// Elements of a row.
    pub(super) row: usize,
    /// Whether several rows share a tile.
    pub(super) many: bool,
    /// Tiles do not cross multiples of this many elements.
    pub(super) run: usize,
    /// The axes outside a run, innermost first: their lengths.
    pub(super) outer: Vec<usize>,
    /// For each operand, how it is read.
    pub(super) access: Vec<Access>,
}

/// How an operand is read. Offsets and strides are in elements.
pub(super) enum Access {
    /// In the order of the domain, from an offset on.
    Dense(usize),
    /// One element for all.
    Splat(usize),
    /// Strides of 0 or 1 along a run; and the strides between runs, for each axis of
    /// [`Domain::outer`].
    Run { offset: usize, stride: usize, outer: Vec<isize> },
    /// Gathered, by its own walk from an offset on.
    Walk(usize, Walk<1>),
    /// Not read by index (the key of random numbers).
    Key,
}

impl Access {
    /// The offset of the first element.
    pub(super) fn offset(&self) -> usize {
        match self {
            Access::Dense(offset) | Access::Splat(offset) | Access::Walk(offset, _) => *offset,
            Access::Run { offset, .. } => *offset,
            Access::Key => 0,
        }
    }

    /// Whether steps may read the operand without a copy.
    pub(super) fn is_direct(&self) -> bool {
        !matches!(self, Access::Walk(..) | Access::Key)
    }

    /// The offset of an operand that is read sequentially.
    pub(super) fn in_order(&self) -> Option<usize> {
        match self {
            Access::Dense(offset) => Some(*offset),
            Access::Walk(offset, walk) => {
                (walk.axes().len() == 1 && walk.inner().strides == [1]).then_some(*offset)
            }
            Access::Splat(_) | Access::Run { .. } | Access::Key => None,
        }
    }

    /// Whether a tile is one repeated element.
    pub(super) fn is_broadcast(&self) -> bool {
        matches!(self, Access::Splat(_) | Access::Run { stride: 0, .. })
    }
}

/// An operand that is read sequentially, and can be prefetched.
pub(super) struct PrefetchedOperand {
    pub(super) input: usize,
    /// Its offset, in elements.
    pub(super) offset: usize,
    /// Its stride per element of the domain.
    pub(super) stride: usize,
}

fn is_splat(layout: &Layout) -> bool {
    layout.shape.iter().zip(&layout.strides).all(|(&n, &s)| s == 0 || n == 1)
}

impl Domain {
    /// Splits the domain of a region; `read` says which operands are read by index, `reduces`
    /// whether rows matter.
    pub(super) fn new(region: &Region, read: &[bool], reduces: bool) -> Domain {
        let (rows, row) = match reduces {
            true => (region.rows(), region.row_len()),
            false => (1, region.shape.iter().product()),
        };
        let many = reduces && row <= SHORT;
        let strided: Vec<&Layout> = region
            .inputs
            .iter()
            .zip(read)
            .map(|(load, &read)| (&load.layout, read))
            .filter(|(layout, read)| *read && !layout.is_dense() && !is_splat(layout))
            .map(|(layout, _)| layout)
            .collect();
        let boundary = if reduces { region.shape.len() - region.inner } else { 0 };
        let axes = collapse(region, &strided, boundary);
        let run = axes.first().map_or(1, |axis| axis.0);
        let least = if reduces { FOLDED_RUN } else { RUN };
        let by_run = !many && (run >= least || run == row);
        let access = region.inputs.iter().zip(read).map(|(load, &read)| {
            let layout = &load.layout;
            if !read {
                return Access::Key;
            }
            let walk = || Access::Walk(layout.offset, Walk::new(&layout.shape, [&layout.strides]));
            if !TileKind::plain(load.spec.dtype) {
                return walk();
            }
            if layout.is_dense() {
                return Access::Dense(layout.offset);
            }
            if is_splat(layout) {
                return Access::Splat(layout.offset);
            }
            let along = |d: usize| layout.strides[d];
            match axes.first().map_or(0, |axis| along(axis.1)) {
                stride @ (0 | 1) if by_run => Access::Run {
                    offset: layout.offset,
                    stride: stride as usize,
                    outer: axes.iter().skip(1).map(|axis| along(axis.1)).collect(),
                },
                _ => walk(),
            }
        });
        let access: Vec<Access> = access.collect();
        let runs = access.iter().any(|a| matches!(a, Access::Run { .. }));
        Domain {
            rows,
            row,
            many,
            run: if runs { run } else { row.max(1) },
            outer: axes.iter().skip(1).map(|axis| axis.0).collect(),
            access,
        }
    }

    /// Number of elements.
    pub(super) fn len(&self) -> usize {
        self.rows * self.row
    }

    /// The operands that are columns of one matrix, or seem to be: the first of them, and how many
    /// elements a row of the matrix has.
    pub(super) fn columns(&self, region: &Region) -> Vec<PrefetchedOperand> {
        let mut found: Vec<(PrefetchedOperand, usize)> = Vec::new();
        for (input, access) in self.access.iter().enumerate() {
            let Access::Walk(offset, walk) = access else { continue };
            let [axis] = walk.axes() else { continue };
            let Ok(stride @ 2..) = usize::try_from(axis.strides[0]) else { continue };
            let spec = |input: usize| &region.inputs[input].spec;
            let same = |(one, _): &&mut (PrefetchedOperand, usize)| {
                one.stride == stride && spec(one.input) == spec(input)
            };
            match found.iter_mut().find(same) {
                Some((first, count)) => {
                    first.offset = first.offset.min(*offset);
                    *count += 1;
                }
                None => found.push((PrefetchedOperand { input, offset: *offset, stride }, 1)),
            }
        }
        found.into_iter().filter(|(_, count)| *count > 1).map(|(first, _)| first).collect()
    }

    /// The offset of a run, by number, in an operand that is read by runs.
    pub(super) fn run_offset(&self, mut run: usize, strides: &[isize]) -> isize {
        let mut at = 0;
        for (&n, &stride) in self.outer.iter().zip(strides) {
            at += (run % n) as isize * stride;
            run /= n;
        }
        at
    }
}

/// The axes of the domain, innermost first, merged where all the layouts allow it but not across
/// `boundary`: length, and the innermost of the axes that were merged.
fn collapse(region: &Region, layouts: &[&Layout], boundary: usize) -> Vec<(usize, usize)> {
    let mut axes: Vec<(usize, usize)> = Vec::new();
    // The outermost axis that was merged into the last entry.
    let mut last = 0;
    for d in (0..region.shape.len()).rev() {
        let len = region.shape[d];
        if len == 1 {
            continue;
        }
        let joins = |&(merged, inner): &(usize, usize)| {
            (d >= boundary) == (last >= boundary)
                && layouts.iter().all(|l| l.strides[d] == l.strides[inner] * merged as isize)
        };
        match axes.last_mut() {
            Some(axis) if joins(axis) => axis.0 *= len,
            _ => axes.push((len, d)),
        }
        last = d;
    }
    // A row of one element is its own run.
    if boundary > 0 && axes.first().is_some_and(|axis| axis.1 < boundary) {
        axes.insert(0, (1, region.shape.len().max(1) - 1));
    }
    axes
}
