//! Sizes along spatial axes, as users give them: one for all axes, or one each.

use crate::{Error, Result, Tensor};
use pullback_ir::Few;

/// One number for every spatial axis, or one for each: `2`, `[2, 1]`, `&[usize]`, `Vec<usize>`.
///
/// ```
/// use pullback::{Pool, Tensor};
/// let x = Tensor::ones([1, 1, 4, 6]);
/// assert_eq!(x.max_pool2d(&Pool::new(2)).shape(), [1, 1, 2, 3]);
/// assert_eq!(x.max_pool2d(&Pool::new([2, 3])).shape(), [1, 1, 2, 2]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes(Few<usize>);

impl From<usize> for Sizes {
    fn from(size: usize) -> Sizes {
        Sizes(Few::from_elem(size, 1))
    }
}

impl<const N: usize> From<[usize; N]> for Sizes {
    fn from(sizes: [usize; N]) -> Sizes {
        Sizes(Few::from(sizes))
    }
}

impl From<&[usize]> for Sizes {
    fn from(sizes: &[usize]) -> Sizes {
        Sizes(Few::from(sizes))
    }
}

impl From<Vec<usize>> for Sizes {
    fn from(sizes: Vec<usize>) -> Sizes {
        Sizes(Few::from(sizes))
    }
}

impl Sizes {
    /// One for each of `axes`.
    pub(crate) fn each(&self, op: &'static str, what: &str, axes: usize) -> Result<Vec<usize>> {
        match &self.0[..] {
            [one] => Ok(vec![*one; axes]),
            list if list.len() == axes => Ok(list.to_vec()),
            list => Err(Error::argument(
                op,
                format!("takes one {what} or one for each of {axes} axes, not {list:?}"),
            )),
        }
    }

    /// The same, none of them zero.
    pub(crate) fn positive(&self, op: &'static str, what: &str, axes: usize) -> Result<Vec<usize>> {
        let list = self.each(op, what, axes)?;
        if list.contains(&0) {
            return Err(Error::argument(op, format!("a {what} must be at least 1: {list:?}")));
        }
        Ok(list)
    }
}

impl Tensor {
    /// The tensor with a batch axis before its channels, and whether that is new; `axes` are
    /// spatial.
    #[track_caller]
    pub(crate) fn batched(&self, op: &'static str, axes: usize) -> (Tensor, bool) {
        match self.rank() {
            rank if rank == axes + 2 => (self.clone(), false),
            rank if rank == axes + 1 => (self.unsqueeze(0), true),
            _ => {
                let shape = ["[n, c, l]", "[n, c, h, w]", "[n, c, d, h, w]"][axes - 1];
                let message =
                    format!("takes {shape} (or that without the batch), not {}", self.spec());
                self.checked(Err(Error::shape(op, message).on([self.spec()])))
            }
        }
    }
}
