//! Sliding windows over the last axes, for convolution and pooling.

use crate::{Axes, Shape};

/// The windows along one axis: window `o` takes the positions `o·stride − before + t·dilation` for
/// `t < size`. Positions outside the axis are padding (zero in a sum).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    /// Positions in a window.
    pub size: usize,
    /// Distance between neighbouring windows.
    pub stride: usize,
    /// Distance between neighbouring positions of a window.
    pub dilation: usize,
    /// Positions before the first element; negative to crop.
    pub before: isize,
    /// Positions after the last element; negative to crop.
    pub after: isize,
}

impl Window {
    /// The longest padded axis there may be; positions and their sums cannot overflow.
    const LONGEST: i128 = (isize::MAX / 16) as i128;

    /// How many windows an axis of `len` has: `None` where not even one fits, the sizes are not
    /// positive, or the padded axis is longer than any memory.
    pub fn count(&self, len: usize) -> Option<usize> {
        let padded = len as i128 + self.before as i128 + self.after as i128;
        let reach = (self.size as i128 - 1).checked_mul(self.dilation as i128)?;
        let fits = self.size > 0 && self.stride > 0 && self.dilation > 0 && reach < padded;
        let longest = padded.max(self.before as i128).max(self.after as i128);
        let shortest = self.before.min(self.after) as i128;
        if !fits || longest > Self::LONGEST || shortest < -Self::LONGEST {
            return None;
        }
        usize::try_from((padded - reach - 1) / self.stride as i128 + 1).ok()
    }

    /// The part of window `o` that is inside an axis of `len`: its first position, and how many.
    pub fn inside(&self, o: usize, len: usize) -> (usize, usize) {
        let start = o as i128 * self.stride as i128 - self.before as i128;
        let d = self.dilation as i128;
        let first = if start < 0 { (-start + d - 1) / d } else { 0 };
        let space = len as i128 - start;
        let end = if space <= 0 { 0 } else { ((space + d - 1) / d).min(self.size as i128) };
        if end <= first {
            return (0, 0);
        }
        ((start + first * d) as usize, (end - first) as usize)
    }
}

/// How an axis is divided into the pieces that pooling reduces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Frame {
    /// Windows of one size.
    Sliding(Window),
    /// This many pieces of nearly equal length: piece `o` of an axis of `n` goes from `⌊o·n/count⌋`
    /// up to `⌈(o+1)·n/count⌉`.
    Even(usize),
}

impl Frame {
    /// How many pieces an axis of `len` has.
    pub fn count(&self, len: usize) -> Option<usize> {
        match self {
            Frame::Sliding(window) => window.count(len),
            Frame::Even(count) => Some(*count),
        }
    }

    /// Piece `o` of an axis of `len`: its first position, how many, and the distance between them.
    pub fn piece(&self, o: usize, len: usize) -> (usize, usize, usize) {
        match self {
            Frame::Sliding(window) => {
                let (start, count) = window.inside(o, len);
                (start, count, window.dilation)
            }
            Frame::Even(count) => {
                let (o, n, c) = (o as u128, len as u128, *count as u128);
                let (start, end) = (o * n / c, ((o + 1) * n).div_ceil(c));
                (start as usize, (end - start) as usize, 1)
            }
        }
    }
}

/// A convolution (in the sense of neural networks: the kernel is not flipped) of `x[n, g·i, s…]`
/// with `w[g·o, i, k…]` to `y[n, g·o, p…]`, in `g` groups of channels:
///
/// ```text
/// y[n, c, p] = Σ over i, t of  x[n, (group of c)·I + i, p·stride − before + t·dilation] · w[c, i,
/// t]
/// ```
/// and the two maps that are its transposes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Conv {
    /// Which of the three is computed from the other two.
    pub role: Role,
    /// One for each spatial axis.
    pub windows: Vec<Window>,
    /// Groups of channels.
    pub groups: usize,
    /// The result has its channels (of a filter: those of the input) after the spatial axes:
    /// `y[n, p…, g·o]`.
    pub last: bool,
}

/// A member of the family. Each is linear in both operands, and its transposes are the other two.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// From `x`, `w`: `y`.
    Forward,
    /// From `y`, `w`: `x`, with these spatial lengths.
    Input(Shape),
    /// From `x`, `y`: `w`.
    Filter,
}

impl Conv {
    /// The order of axes by which a result is seen with the channels before the spatial axes.
    pub fn order(&self) -> Axes {
        let rank = self.windows.len() + 2;
        match self.last {
            true => [0, rank - 1].into_iter().chain(1..rank - 1).collect(),
            false => (0..rank).collect(),
        }
    }
}

/// A reduction of the pieces into which the last axes are divided, or a transpose of one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pool {
    /// The reduction of a piece.
    pub kind: Pooling,
    /// One for each spatial axis.
    pub frames: Vec<Frame>,
}

/// The reduction of a piece.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Pooling {
    /// The sum of its elements.
    Sum,
    /// The transpose of `Sum`: each element of the operand is added to all of its piece, of an
    /// array with these spatial lengths.
    Spread(Shape),
    /// The position of its largest element, counted over the spatial axes in row-major order: the
    /// first of equals, and the last NaN.
    ArgMax,
    /// From an array and positions in its pieces, as `ArgMax` counts them: the elements there, and
    /// 0 for a position that is not in its piece.
    Take,
    /// The transpose of `Take`: each element of the first operand is added to the position that the
    /// second one has for its piece, of an array with these spatial lengths.
    Give(Shape),
}

impl Pooling {
    /// Whether a second operand has a position for each piece.
    pub fn takes_places(&self) -> bool {
        match self {
            Pooling::Take | Pooling::Give(_) => true,
            Pooling::Sum | Pooling::Spread(_) | Pooling::ArgMax => false,
        }
    }
}
