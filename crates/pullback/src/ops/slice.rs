//! Indexing: `x.at((0, 1..3, .., (0..8).by(2), NewAxis))`.

use crate::Tensor;
use crate::create::saturated;
use pullback_ir::infer::args;
use pullback_ir::{Axes, Error, Shape, Span, View};
use smallvec::SmallVec;
use std::ops::{Range, RangeFrom, RangeFull, RangeInclusive, RangeTo};

/// What one entry of an index selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Index {
    /// One index of an axis, which disappears; negative counts from the end.
    At(isize),
    /// A range of an axis, by Python's rules: negative bounds count from the end, bounds outside
    /// are clamped, a negative step goes backwards.
    Range {
        /// The first index.
        start: Option<isize>,
        /// The index to stop before.
        stop: Option<isize>,
        /// The distance between elements, not 0.
        step: isize,
    },
    /// A new axis of length 1.
    NewAxis,
    /// All the axes that the other entries leave over.
    Ellipsis,
}

/// What an index consists of: integers, ranges, [`Index`].
pub trait IntoIndex {
    /// The entry.
    ///
    /// ```
    /// use pullback::{Index, IntoIndex};
    /// assert_eq!(IntoIndex::index(3), Index::At(3));
    /// assert_eq!((1..4).index(), Index::Range { start: Some(1), stop: Some(4), step: 1 });
    /// ```
    ///
    /// # Panics
    /// Never.
    fn index(self) -> Index;

    /// This range with a step.
    ///
    /// ```
    /// use pullback::{IntoIndex, Tensor};
    /// let x = Tensor::arange(0, 6);
    /// assert_eq!(x.at((0..6).by(2)).to_vec::<i64>(), [0, 2, 4]);
    /// assert_eq!(x.at((..).by(-1)).to_vec::<i64>(), [5, 4, 3, 2, 1, 0]);
    /// ```
    ///
    /// # Panics
    /// Never; [`Tensor::at`] panics for a step of 0.
    fn by(self, step: isize) -> Index
    where
        Self: Sized,
    {
        match self.index() {
            Index::Range { start, stop, .. } => Index::Range { start, stop, step },
            other => other,
        }
    }
}

impl IntoIndex for Index {
    fn index(self) -> Index {
        self
    }
}

impl IntoIndex for RangeFull {
    fn index(self) -> Index {
        Index::Range { start: None, stop: None, step: 1 }
    }
}

macro_rules! indices {
    ($($int:ty)*) => {$(
        impl IntoIndex for $int {
            fn index(self) -> Index {
                Index::At(saturated(self as i128))
            }
        }
        impl IntoIndex for Range<$int> {
            fn index(self) -> Index {
                Index::Range { start: Some(saturated(self.start as i128)), stop: Some(saturated(self.end as i128)), step: 1 }
            }
        }
        impl IntoIndex for RangeFrom<$int> {
            fn index(self) -> Index {
                Index::Range { start: Some(saturated(self.start as i128)), stop: None, step: 1 }
            }
        }
        impl IntoIndex for RangeTo<$int> {
            fn index(self) -> Index {
                Index::Range { start: None, stop: Some(saturated(self.end as i128)), step: 1 }
            }
        }
        impl IntoIndex for RangeInclusive<$int> {
            fn index(self) -> Index {
                // `..=-1` goes to the very end, which no exclusive bound says in negative numbers.
                let stop = match saturated(*self.end() as i128) {
                    -1 => None,
                    end => Some(end.saturating_add(1)),
                };
                Index::Range { start: Some(saturated(*self.start() as i128)), stop, step: 1 }
            }
        }
    )*};
}

indices!(usize isize i32 i64);

/// An index: one entry, or a tuple of them.
pub trait Indices {
    /// The entries.
    ///
    /// ```
    /// use pullback::{Index, Indices};
    /// assert_eq!((0, Index::Ellipsis).entries(), [Index::At(0), Index::Ellipsis]);
    /// ```
    ///
    /// # Panics
    /// Never.
    fn entries(self) -> Vec<Index>;
}

impl<T: IntoIndex> Indices for T {
    fn entries(self) -> Vec<Index> {
        vec![self.index()]
    }
}

impl Indices for &[Index] {
    fn entries(self) -> Vec<Index> {
        self.to_vec()
    }
}

macro_rules! tuple_indices {
    ($($name:ident)*) => {
        impl<$($name: IntoIndex),*> Indices for ($($name,)*) {
            #[allow(non_snake_case)]
            fn entries(self) -> Vec<Index> {
                let ($($name,)*) = self;
                vec![$($name.index()),*]
            }
        }
    };
}

tuple_indices!(A);
tuple_indices!(A B);
tuple_indices!(A B C);
tuple_indices!(A B C D);
tuple_indices!(A B C D E);
tuple_indices!(A B C D E F);

impl Tensor {
    /// A view of part of the tensor.
    ///
    /// A view: what is written into it is written into the tensor.
    /// Derivative: `dy` zero-padded to the operand's shape.
    /// PyTorch's name: `__getitem__`.
    ///
    /// ```
    /// use pullback::{Index, IntoIndex, Tensor};
    /// let x = Tensor::arange(0, 24).reshape([4, 6]);
    /// assert_eq!(x.at((1, 2)).item::<i64>(), 8);
    /// assert_eq!(x.at((-1, ..2)).to_vec::<i64>(), [18, 19]);
    /// assert_eq!(x.at((.., (0..6).by(3))).to_vec::<i64>(), [0, 3, 6, 9, 12, 15, 18, 21]);
    /// assert_eq!(x.at((0, (..).by(-2))).to_vec::<i64>(), [5, 3, 1]);
    /// assert_eq!(x.at((Index::Ellipsis, 0, Index::NewAxis)).shape(), [4, 1]);
    /// ```
    ///
    /// # Panics
    /// If there are more entries than axes, or an integer is out of range.
    #[track_caller]
    #[must_use]
    #[doc(alias = "__getitem__")]
    pub fn at(&self, index: impl Indices) -> Tensor {
        let mut entries = index.entries();
        let taken =
            entries.iter().filter(|e| matches!(e, Index::At(_) | Index::Range { .. })).count();
        let dots = entries.iter().filter(|e| matches!(e, Index::Ellipsis)).count();
        if taken > self.rank() || dots > 1 {
            let why = match dots > 1 {
                true => "more than one ellipsis".to_string(),
                false => {
                    format!("{taken} entries for {}, which has {} axes", self.spec(), self.rank())
                }
            };
            return self.checked(Err(Error::argument("at", why).on([self.spec()])));
        }
        if dots == 0 {
            entries.push(Index::Ellipsis);
        }
        let left_over = self.rank() - taken;
        let (mut spans, mut flips): (SmallVec<[Span; 2]>, Axes) = (SmallVec::new(), Axes::new());
        let mut shape = Shape::new();
        for entry in entries {
            let axis = spans.len();
            match entry {
                Index::At(i) => {
                    let start = self.checked(args::index("at", i, axis, self.spec()));
                    spans.push(Span { start, len: 1, step: 1 });
                }
                Index::Range { start, stop, step } => {
                    // No axis is this long, and adding the step does not overflow.
                    let step = step.clamp(-(isize::MAX / 4), isize::MAX / 4);
                    let found = args::span("at", start, stop, step, self.shape()[axis]);
                    let (span, flip) = self.checked(found.map_err(|e| e.on([self.spec()])));
                    if flip {
                        flips.push(axis);
                    }
                    shape.push(span.len);
                    spans.push(span);
                }
                Index::NewAxis => shape.push(1),
                Index::Ellipsis => {
                    for &n in &self.shape()[axis..axis + left_over] {
                        spans.push(Span { start: 0, len: n, step: 1 });
                        shape.push(n);
                    }
                }
            }
        }
        let mut out = self.apply_view(View::Slice(spans));
        if !flips.is_empty() {
            out = out.apply_view(View::Flip(flips));
        }
        out.reshape(&shape[..])
    }
}
