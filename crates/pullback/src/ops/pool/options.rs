//! The options of poolings.

use crate::ops::sizes::Sizes;
use crate::{Error, Result};
use pullback_ir::{Frame, Window};

/// Options of a pooling: kernel size, stride, padding, dilation.
///
/// ```
/// use pullback::{Pool, Tensor};
/// let x = Tensor::from([[1.0, 5.0, 2.0, 4.0, 3.0]]);
/// assert_eq!(x.max_pool1d(&Pool::new(2)).to_vec::<f64>(), [5.0, 4.0]);
/// assert_eq!(x.max_pool1d(&Pool::new(2).ceil_mode(true)).to_vec::<f64>(), [5.0, 4.0, 3.0]);
/// assert_eq!(x.avg_pool1d(&Pool::new(3).stride(2).padding(1)).to_vec::<f64>(), [2.0, 11.0 / 3.0, 7.0 / 3.0]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Pool {
    pub(super) kernel: Sizes,
    pub(super) stride: Option<Sizes>,
    pub(super) padding: Sizes,
    dilation: Sizes,
    ceil_mode: bool,
    count_include_pad: bool,
    pub(super) divisor: Option<i64>,
}

impl Pool {
    /// Windows of this size that do not overlap, without padding.
    ///
    /// ```
    /// use pullback::{Pool, Tensor};
    /// let x = Tensor::from([[1.0, 5.0, 2.0, 4.0]]);
    /// assert_eq!(x.max_pool1d(&Pool::new(2)).to_vec::<f64>(), [5.0, 4.0]);
    /// ```
    pub fn new(kernel: impl Into<Sizes>) -> Pool {
        Pool {
            kernel: kernel.into(),
            stride: None,
            padding: 0.into(),
            dilation: 1.into(),
            ceil_mode: false,
            count_include_pad: true,
            divisor: None,
        }
    }

    /// The stride: the distance between neighbouring windows; by default their size.
    ///
    /// ```
    /// use pullback::{Pool, Tensor};
    /// let x = Tensor::from([[1.0, 5.0, 2.0, 4.0]]);
    /// assert_eq!(x.max_pool1d(&Pool::new(2).stride(1)).to_vec::<f64>(), [5.0, 5.0, 4.0]);
    /// ```
    pub fn stride(self, stride: impl Into<Sizes>) -> Pool {
        Pool { stride: Some(stride.into()), ..self }
    }

    /// Positions before and after each axis, which count as zero in a mean and as nothing in a
    /// maximum. At most half a window.
    ///
    /// ```
    /// use pullback::{Pool, Tensor};
    /// let x = Tensor::from([[2.0, 4.0]]);
    /// assert_eq!(x.avg_pool1d(&Pool::new(2).padding(1)).to_vec::<f64>(), [1.0, 2.0]);
    /// ```
    pub fn padding(self, padding: impl Into<Sizes>) -> Pool {
        Pool { padding: padding.into(), ..self }
    }

    /// The dilation: the distance between neighbouring elements of a window.
    ///
    /// ```
    /// use pullback::{Pool, Tensor};
    /// let x = Tensor::from([[1.0, 5.0, 2.0, 4.0]]);
    /// // Windows of every second element.
    /// let pool = Pool::new(2).stride(1).dilation(2);
    /// assert_eq!(x.max_pool1d(&pool).to_vec::<f64>(), [2.0, 5.0]);
    /// ```
    pub fn dilation(self, dilation: impl Into<Sizes>) -> Pool {
        Pool { dilation: dilation.into(), ..self }
    }

    /// Whether a last window that reaches over the end counts, if it begins before it.
    ///
    /// ```
    /// use pullback::{Pool, Tensor};
    /// let x = Tensor::from([[1.0, 5.0, 2.0]]);
    /// assert_eq!(x.max_pool1d(&Pool::new(2)).to_vec::<f64>(), [5.0]);
    /// assert_eq!(x.max_pool1d(&Pool::new(2).ceil_mode(true)).to_vec::<f64>(), [5.0, 2.0]);
    /// ```
    pub fn ceil_mode(self, on: bool) -> Pool {
        Pool { ceil_mode: on, ..self }
    }

    /// Whether a mean divides by the size of the window with its padding; by default it does.
    ///
    /// ```
    /// use pullback::{Pool, Tensor};
    /// let x = Tensor::from([[2.0, 4.0]]);
    /// let pool = Pool::new(2).padding(1).count_include_pad(false);
    /// assert_eq!(x.avg_pool1d(&pool).to_vec::<f64>(), [2.0, 4.0]);
    /// ```
    pub fn count_include_pad(self, on: bool) -> Pool {
        Pool { count_include_pad: on, ..self }
    }

    /// What a mean divides by, instead of the number of elements.
    ///
    /// ```
    /// use pullback::{Pool, Tensor};
    /// let x = Tensor::from([[2.0, 4.0]]);
    /// // A divisor of 1 gives sums.
    /// assert_eq!(x.avg_pool1d(&Pool::new(2).divisor(1)).to_vec::<f64>(), [6.0]);
    /// ```
    pub fn divisor(self, divisor: i64) -> Pool {
        Pool { divisor: Some(divisor), ..self }
    }

    /// The windows on axes of these lengths.
    pub(super) fn windows(&self, op: &'static str, lengths: &[usize]) -> Result<Vec<Window>> {
        let axes = lengths.len();
        let kernel = self.kernel.positive(op, "kernel", axes)?;
        let stride = match &self.stride {
            Some(stride) => stride.positive(op, "stride", axes)?,
            None => kernel.clone(),
        };
        let padding = self.padding.each(op, "padding", axes)?;
        let dilation = self.dilation.positive(op, "dilation", axes)?;
        let mut windows = Vec::with_capacity(axes);
        for i in 0..axes {
            let span = (kernel[i] - 1).saturating_mul(dilation[i]).saturating_add(1);
            if padding[i] > span / 2 {
                let message =
                    format!("a padding of {} is more than half a window of {span}", padding[i]);
                return Err(Error::argument(op, message));
            }
            let signed = |n: i128| isize::try_from(n).unwrap_or(isize::MAX);
            let before = padding[i] as i128;
            let mut window = Window {
                size: kernel[i],
                stride: stride[i],
                dilation: dilation[i],
                before: signed(before),
                after: signed(before),
            };
            if self.ceil_mode {
                let (len, step) = (lengths[i] as i128, stride[i] as i128);
                let space = len + 2 * before - span as i128 + step - 1;
                let mut count = space.div_euclid(step) + 1;
                if (count - 1) * step >= len + before {
                    count -= 1;
                }
                window.after = signed((count - 1) * step + span as i128 - len - before);
            }
            windows.push(window);
        }
        Ok(windows)
    }

    /// By how much each sum is to be divided, along each axis.
    pub(super) fn divisors(&self, windows: &[Window], lengths: &[usize]) -> Vec<Vec<f64>> {
        let one = |(w, &len): (&Window, &usize)| {
            let with_padding = |o: usize| {
                // The end of the padding as given, not of what `ceil_mode` adds to it.
                let start = o as i128 * w.stride as i128 - w.before as i128;
                let end = (start + w.size as i128).min(len as i128 + w.before as i128);
                (end - start) as f64
            };
            let count = w.count(len).unwrap_or(0);
            let inside = |o: usize| w.inside(o, len).1 as f64;
            match self.count_include_pad {
                true => (0..count).map(with_padding).collect(),
                false => (0..count).map(inside).collect(),
            }
        };
        windows.iter().zip(lengths).map(one).collect()
    }
}

/// The lengths of an adaptive pooling's result: `5`, `[5, 7]`, `[Some(5), None]` where `None` keeps
/// the length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputSizes(Vec<Option<usize>>);

impl From<usize> for OutputSizes {
    fn from(size: usize) -> OutputSizes {
        OutputSizes(vec![Some(size)])
    }
}

impl<const N: usize> From<[usize; N]> for OutputSizes {
    fn from(sizes: [usize; N]) -> OutputSizes {
        OutputSizes(sizes.map(Some).to_vec())
    }
}

impl<const N: usize> From<[Option<usize>; N]> for OutputSizes {
    fn from(sizes: [Option<usize>; N]) -> OutputSizes {
        OutputSizes(sizes.to_vec())
    }
}

impl From<&[Option<usize>]> for OutputSizes {
    fn from(sizes: &[Option<usize>]) -> OutputSizes {
        OutputSizes(sizes.to_vec())
    }
}

impl OutputSizes {
    pub(super) fn frames(&self, op: &'static str, lengths: &[usize]) -> Result<Vec<Frame>> {
        let sizes = match &self.0[..] {
            [one] => vec![*one; lengths.len()],
            list if list.len() == lengths.len() => list.to_vec(),
            list => {
                let message = format!(
                    "takes one output length or one for each of {} axes, not {list:?}",
                    lengths.len()
                );
                return Err(Error::argument(op, message));
            }
        };
        Ok(sizes.iter().zip(lengths).map(|(s, &n)| Frame::Even(s.unwrap_or(n))).collect())
    }
}
