//! Padding as PyTorch lists it: from the last axis, with negative amounts that cut.

use crate::{Error, PadMode, Tensor};

/// What [`Tensor::pad_last`] puts around a tensor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PadFill {
    /// One value.
    Constant(f64),
    /// Elements of the tensor itself.
    Mode(PadMode),
}

impl Tensor {
    /// `(before, after)` more elements on the last axis, the one before it, and so on; a negative
    /// number cuts that many off.
    ///
    /// Derivative: dx = the part of dy that is not padding, plus what the border took from x.
    ///
    /// ```
    /// use pullback::{PadMode, PadFill, Tensor};
    /// let x = Tensor::from([1.0, 2.0, 3.0]);
    /// assert_eq!(x.pad_last([(1, -1)], PadFill::Constant(0.0)).to_vec::<f64>(), [0.0, 1.0, 2.0]);
    /// assert_eq!(x.pad_last([(2, -1)], PadFill::Mode(PadMode::Reflect)).to_vec::<f64>(), [3.0, 2.0, 1.0, 2.0]);
    /// ```
    ///
    /// # Panics
    /// If there are more pairs than axes, an axis is too short for its border, or more is cut than
    /// there is.
    #[track_caller]
    #[must_use]
    pub fn pad_last(&self, pads: impl AsRef<[(isize, isize)]>, fill: PadFill) -> Tensor {
        let pads = pads.as_ref();
        if pads.len() > self.rank() {
            let message =
                format!("{} pairs for the {} axes of {}", pads.len(), self.rank(), self.spec());
            return self.checked(Err(Error::argument("pad", message).on([self.spec()])));
        }
        let mut amounts = vec![(0, 0); self.rank()];
        for (k, &(before, after)) in pads.iter().enumerate() {
            amounts[self.rank() - 1 - k] = (before, after);
        }
        let grown: Vec<(usize, usize)> =
            amounts.iter().map(|&(a, b)| (a.max(0) as usize, b.max(0) as usize)).collect();
        match fill {
            PadFill::Constant(0.0) => self.trimmed(&amounts).pad(&grown),
            PadFill::Constant(value) => self.trimmed(&amounts).pad_with(&grown, value),
            // Circular padding ignores what was cut off; reflection still uses it.
            PadFill::Mode(PadMode::Circular) => {
                self.trimmed(&amounts).pad_by(&grown, PadMode::Circular)
            }
            PadFill::Mode(border) => {
                self.pad_by(&grown, border).trimmed(&amounts).unaliased_with(&[self])
            }
        }
    }

    /// Without as many elements as the negative amounts say.
    #[track_caller]
    fn trimmed(&self, amounts: &[(isize, isize)]) -> Tensor {
        let mut x = self.clone();
        for (axis, &(before, after)) in
            amounts.iter().enumerate().filter(|(_, a)| a.0 < 0 || a.1 < 0)
        {
            let (low, high) = (before.min(0).unsigned_abs(), after.min(0).unsigned_abs());
            let n = x.shape()[axis];
            let Some(left) = n.checked_sub(low).and_then(|n| n.checked_sub(high)) else {
                let message =
                    format!("cannot cut {low} and {high} off axis {axis} of {}", self.spec());
                return self.checked(Err(Error::shape("pad", message).on([self.spec()])));
            };
            x = x.narrow(axis as isize, low as isize, left);
        }
        x
    }
}
