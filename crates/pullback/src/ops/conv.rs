//! Convolution. The op is one of three maps that are each other's transposes, so every order of
//! derivative and both modes are made of these three.

use crate::apply::apply;
use crate::ops::cast::one_float;
use crate::ops::sizes::Sizes;
use crate::rule::{Adds, BilinearRule, Grad};
use crate::{DType, Error, Op, Result, Shape, Tensor, autocast, backend, trace};
use pullback_ir::{Conv as ConvOp, Role, View, Window};

/// Y = X ∗ W: dX is the map to the input of dY and W, dW the map to the filter of X and dY; and so
/// on, cyclically.
pub(crate) fn row(role: &Role) -> Grad {
    let formula = match role {
        Role::Forward => "`dx = conv_input(dy, w)`, `dw = conv_filter(x, dy)`",
        Role::Input(_) => "`dy = conv(dx, w)`, `dw = conv_filter(dx, y)`",
        Role::Filter => "`dx = conv_input(y, dw)`, `dy = conv(x, dw)`",
    };
    Grad::Bilinear(BilinearRule {
        adds: Adds::Separately,
        transpose: |f, i, d| {
            let Op::Conv(conv) = f.op else { unreachable!("called for Conv") };
            // An image lies in memory as that of the op does.
            let plays = |role, a: &Tensor, b: &Tensor| {
                let last = conv.last && role != Role::Filter;
                in_order(ConvOp { role, last, ..(**conv).clone() }, a, b)
            };
            // An axis order of its own is undone first.
            let seen = conv.last.then(|| d.apply_view(View::Permute(conv.order())));
            let d = seen.as_ref().unwrap_or(d);
            let lengths = || Role::Input(Shape::from_slice(&f.in_shape(0)[2..]));
            match (&conv.role, i) {
                (Role::Forward, 0) => plays(lengths(), d, f.x(1)),
                (Role::Forward, _) => plays(Role::Filter, f.x(0), d),
                (Role::Input(_), 0) => plays(Role::Forward, d, f.x(1)),
                (Role::Input(_), _) => plays(Role::Filter, d, f.x(0)),
                (Role::Filter, 0) => plays(lengths(), f.x(1), d),
                (Role::Filter, _) => plays(Role::Forward, f.x(0), d),
            }
        },
        formula,
    })
}

/// Applies an op; the result is seen with its channels before the spatial axes.
#[track_caller]
fn in_order(conv: ConvOp, a: &Tensor, b: &Tensor) -> Tensor {
    let order = conv.last.then(|| conv.order());
    let y = apply(Op::Conv(Box::new(conv)), &[a, b]);
    match order {
        Some(order) => y.apply_view(View::Permute(order)),
        None => y,
    }
}

/// Whether an image has its channels last in memory, on a device that convolves so.
fn is_channels_last(x: &Tensor) -> bool {
    let layout = &x.0.layout;
    if layout.is_dense() || x.is_empty() || trace::is_tracing() {
        return false;
    }
    let order = [0].into_iter().chain(2..x.rank()).chain([1]).collect();
    let moved = layout.view(&View::Permute(order));
    moved.is_some_and(|moved| moved.is_dense())
        && backend::target(Some(x.device())).channels_last.contains(&x.dtype())
}

/// Options of a convolution: stride, padding, dilation and groups.
///
/// ```
/// use pullback::{Conv, Padding, Tensor};
/// let (x, w) = (Tensor::ones([1, 2, 8, 8]), Tensor::ones([4, 2, 3, 3]));
/// assert_eq!(x.conv2d(&w, None, &Conv::new()).shape(), [1, 4, 6, 6]);
/// assert_eq!(x.conv2d(&w, None, &Conv::new().stride(2).padding(1)).shape(), [1, 4, 4, 4]);
/// assert_eq!(x.conv2d(&w, None, &Conv::new().padding(Padding::Same)).shape(), [1, 4, 8, 8]);
/// assert_eq!(x.conv2d(&w, None, &Conv::new().dilation([1, 2])).shape(), [1, 4, 6, 4]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Conv {
    stride: Sizes,
    padding: Padding,
    output_padding: Sizes,
    dilation: Sizes,
    groups: usize,
}

/// Zeros around the input of a convolution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Padding {
    /// None: the kernel stays inside.
    Valid,
    /// As many as make the result as long as the input, where the stride is 1; an odd one is added
    /// at the end.
    Same,
    /// As many before as after: one number for every axis, or one for each.
    Each(Sizes),
    /// So many before and after, for each axis.
    Sides(Vec<(usize, usize)>),
}

impl<T: Into<Sizes>> From<T> for Padding {
    fn from(sizes: T) -> Padding {
        Padding::Each(sizes.into())
    }
}

impl Default for Conv {
    fn default() -> Conv {
        Conv::new()
    }
}

impl Conv {
    /// Stride 1, no padding, dilation 1, one group.
    ///
    /// ```
    /// use pullback::{Conv, Tensor};
    /// let (x, w) = (Tensor::ones([1, 2, 8, 8]), Tensor::ones([4, 2, 3, 3]));
    /// assert_eq!(x.conv2d(&w, None, &Conv::new()).shape(), [1, 4, 6, 6]);
    /// ```
    pub fn new() -> Conv {
        Conv {
            stride: 1.into(),
            padding: Padding::Valid,
            output_padding: 0.into(),
            dilation: 1.into(),
            groups: 1,
        }
    }

    /// The stride: the distance between neighbouring positions of the kernel.
    ///
    /// ```
    /// use pullback::{Conv, Tensor};
    /// let (x, w) = (Tensor::from([[1., 2., 3., 4.]]), Tensor::from([[[1.0]]]));
    /// assert_eq!(x.conv1d(&w, None, &Conv::new().stride(2)).to_vec::<f64>(), [1.0, 3.0]);
    /// ```
    pub fn stride(self, stride: impl Into<Sizes>) -> Conv {
        Conv { stride: stride.into(), ..self }
    }

    /// The padding: zeros around the input.
    ///
    /// ```
    /// use pullback::{Conv, Padding, Tensor};
    /// let (x, w) = (Tensor::ones([1, 1, 8, 8]), Tensor::ones([1, 1, 3, 3]));
    /// assert_eq!(x.conv2d(&w, None, &Conv::new().padding([0, 1])).shape(), [1, 1, 6, 8]);
    /// assert_eq!(x.conv2d(&w, None, &Conv::new().padding(Padding::Same)).shape(), [1, 1, 8, 8]);
    /// ```
    pub fn padding(self, padding: impl Into<Padding>) -> Conv {
        Conv { padding: padding.into(), ..self }
    }

    /// Elements at the end of the result of a transposed convolution: a convolution with a stride
    /// maps several lengths to one, and this chooses among them.
    ///
    /// ```
    /// use pullback::{Conv, Tensor};
    /// let (x, w) = (Tensor::ones([1, 1, 4]), Tensor::ones([1, 1, 3]));
    /// let conv = Conv::new().stride(2);
    /// assert_eq!(x.conv_transpose1d(&w, None, &conv).shape(), [1, 1, 9]);
    /// assert_eq!(x.conv_transpose1d(&w, None, &conv.output_padding(1)).shape(), [1, 1, 10]);
    /// ```
    pub fn output_padding(self, padding: impl Into<Sizes>) -> Conv {
        Conv { output_padding: padding.into(), ..self }
    }

    /// The dilation: the distance between neighbouring elements of the kernel on the input.
    ///
    /// ```
    /// use pullback::{Conv, Tensor};
    /// let (x, w) = (Tensor::from([[1., 2., 3., 4.]]), Tensor::from([[[1.0, 1.0]]]));
    /// assert_eq!(x.conv1d(&w, None, &Conv::new().dilation(2)).to_vec::<f64>(), [4.0, 6.0]);
    /// ```
    pub fn dilation(self, dilation: impl Into<Sizes>) -> Conv {
        Conv { dilation: dilation.into(), ..self }
    }

    /// Groups of channels, each convolved separately.
    ///
    /// ```
    /// use pullback::{Conv, Tensor};
    /// // Depthwise: each channel has its own kernel.
    /// let (x, w) = (Tensor::ones([1, 4, 8]), Tensor::ones([4, 1, 3]));
    /// assert_eq!(x.conv1d(&w, None, &Conv::new().groups(4)).shape(), [1, 4, 6]);
    /// ```
    pub fn groups(self, groups: usize) -> Conv {
        Conv { groups, ..self }
    }

    /// The windows of a kernel of these sizes.
    fn windows(&self, op: &'static str, sizes: &[usize]) -> Result<Vec<Window>> {
        let axes = sizes.len();
        let stride = self.stride.positive(op, "stride", axes)?;
        let dilation = self.dilation.positive(op, "dilation", axes)?;
        let same = |i: usize| {
            let total = sizes[i].saturating_sub(1).saturating_mul(dilation[i]);
            (total / 2, total - total / 2)
        };
        let sides: Vec<(usize, usize)> = match &self.padding {
            Padding::Valid => vec![(0, 0); axes],
            Padding::Same if stride.iter().any(|&s| s != 1) => {
                let message = format!("keeps the length only with stride 1, not {stride:?}");
                return Err(Error::argument(op, format!("Padding::Same {message}")));
            }
            Padding::Same => (0..axes).map(same).collect(),
            Padding::Each(list) => {
                list.each(op, "padding", axes)?.into_iter().map(|p| (p, p)).collect()
            }
            Padding::Sides(list) if list.len() == axes => list.clone(),
            Padding::Sides(list) => {
                let message = format!("takes a padding for each of {axes} axes, not {list:?}");
                return Err(Error::argument(op, message));
            }
        };
        let signed = |n: usize| isize::try_from(n).unwrap_or(isize::MAX);
        let window = |i: usize| Window {
            size: sizes[i],
            stride: stride[i],
            dilation: dilation[i],
            before: signed(sides[i].0),
            after: signed(sides[i].1),
        };
        Ok((0..axes).map(window).collect())
    }

    /// The windows of the convolution of which this is the transpose, and the lengths of its input.
    fn transposed(
        &self,
        op: &'static str,
        sizes: &[usize],
        lengths: &[usize],
    ) -> Result<(Vec<Window>, Shape)> {
        if self.padding == Padding::Same {
            return Err(Error::argument(op, "Padding::Same has no meaning for a transpose"));
        }
        let mut windows = self.windows(op, sizes)?;
        let more = self.output_padding.each(op, "output padding", sizes.len())?;
        let mut out = Shape::new();
        for ((w, &more), &len) in windows.iter_mut().zip(&more).zip(lengths) {
            if more >= w.stride.max(w.dilation) {
                let message = format!(
                    "an output padding of {more} must be below the stride {} or the dilation {}",
                    w.stride, w.dilation
                );
                return Err(Error::argument(op, message));
            }
            // What the convolution sees of its input must end with the last window.
            w.after = w.after.saturating_sub_unsigned(more);
            let reach = (w.size as i128 - 1) * w.dilation as i128;
            let seen = (len as i128 - 1) * w.stride as i128 + reach + 1;
            let total = seen - w.before as i128 - w.after as i128;
            match usize::try_from(total) {
                Ok(total) if total > 0 && len > 0 && w.size > 0 => out.push(total),
                _ => {
                    let message = format!("an axis of {len} would become one of {total}");
                    return Err(Error::shape(op, message));
                }
            }
        }
        Ok((windows, out))
    }
}

/// The operand that is an image, the kernel, and both in one dtype.
#[track_caller]
fn operands(op: &'static str, axes: usize, x: &Tensor, w: &Tensor) -> (Tensor, Tensor, bool) {
    if w.rank() != axes + 2 {
        let message = format!("takes a kernel of rank {}, not {}", axes + 2, w.spec());
        return x.checked(Err(Error::shape(op, message).on([x.spec(), w.spec()])));
    }
    one_float(op, [x, w]);
    let low = autocast::lowered([x, w]);
    let [x, w] = low.as_ref().map_or([x, w], |[x, w]| [x, w]);
    let (image, alone) = x.batched(op, axes);
    let dtype = match x.dtype().promote(w.dtype()) {
        dtype if dtype.is_float() => dtype,
        _ => DType::F32,
    };
    (image.cast(dtype), w.cast(dtype), alone)
}

/// Adds one value per channel, and takes the batch axis off where it was put on.
#[track_caller]
fn finished(op: &'static str, y: Tensor, bias: Option<&Tensor>, alone: bool) -> Tensor {
    let y = match bias {
        None => y,
        Some(bias) => {
            if bias.shape() != &y.shape()[1..2] {
                let message = format!(
                    "the bias {} does not have one element for each of {} channels",
                    bias.spec(),
                    y.shape()[1]
                );
                return y.checked(Err(Error::shape(op, message).on([y.spec(), bias.spec()])));
            }
            one_float(op, [&y, bias]);
            let mut shape = vec![1; y.rank()];
            shape[1] = bias.len();
            let dtype = y.dtype();
            let bias = autocast::cast_bias(bias, &y);
            y + bias.cast(dtype).reshape(&shape[..])
        }
    };
    if alone { y.squeeze_axis(0) } else { y }
}

impl Tensor {
    #[track_caller]
    fn conv(
        &self,
        op: &'static str,
        axes: usize,
        weight: &Tensor,
        bias: Option<&Tensor>,
        options: &Conv,
    ) -> Tensor {
        let (x, w, alone) = operands(op, axes, self, weight);
        let windows = self.checked(
            options.windows(op, &w.shape()[2..]).map_err(|e| e.on([self.spec(), weight.spec()])),
        );
        let (role, last) = (Role::Forward, is_channels_last(&x));
        let conv = ConvOp { role, windows, groups: options.groups, last };
        finished(op, in_order(conv, &x, &w), bias, alone)
    }

    #[track_caller]
    fn conv_transpose(
        &self,
        op: &'static str,
        axes: usize,
        weight: &Tensor,
        bias: Option<&Tensor>,
        options: &Conv,
    ) -> Tensor {
        let (x, w, alone) = operands(op, axes, self, weight);
        let found = options.transposed(op, &w.shape()[2..], &x.shape()[2..]);
        let (windows, lengths) =
            self.checked(found.map_err(|e| e.on([self.spec(), weight.spec()])));
        let (role, last) = (Role::Input(lengths), is_channels_last(&x));
        let conv = ConvOp { role, windows, groups: options.groups, last };
        finished(op, in_order(conv, &x, &w), bias, alone)
    }
}

/// The two methods of a number of axes; `$two` and `$three` are the shapes of two and three
/// elements in their examples.
macro_rules! convolutions {
    ($axes:literal, $conv:ident, $transpose:ident, $image:literal, $kernel:literal, $kernel_t:literal, $two:literal, $three:literal) => {
        impl Tensor {
            #[doc = concat!("Convolution (cross-correlation) of `", $image, "` with a kernel `", $kernel, "`:")]
            /// `y[c, p] = bias[c] + Σ over i, t of x[i, p·stride − padding + t·dilation] · weight[c, i, t]`,
            /// where `i` goes over the channels of the group of `c`. The batch axis may be missing.
            ///
            /// Derivative: `dx` is the transposed convolution of `dy` with the kernel,
            /// `dweight[c, i, t] = Σ over p of dy[c, p] · x[i, p·stride − padding + t·dilation]`,
            /// `dbias[c] = Σ over p of dy[c, p]`.
            ///
            /// ```
            /// use pullback::{Conv, Tensor};
            #[doc = concat!("let x = Tensor::from([1.0, 2.0, 4.0]).reshape(", $three, ");")]
            #[doc = concat!("let w = Tensor::from([1.0, -1.0]).reshape(", $two, ");")]
            #[doc = concat!("let y = x.", stringify!($conv), "(&w, None, &Conv::new());")]
            /// assert_eq!(y.to_vec::<f64>(), [-1.0, -2.0]);
            /// ```
            ///
            /// # Panics
            /// If the shapes do not fit, float dtypes are mixed, or an option has neither one
            /// number nor one for each axis.
            #[track_caller]
            #[must_use]
            pub fn $conv(&self, weight: &Tensor, bias: Option<&Tensor>, options: &Conv) -> Tensor {
                self.conv(stringify!($conv), $axes, weight, bias, options)
            }

            #[doc = concat!("Transposed convolution of `", $image, "` with a kernel `", $kernel_t, "`: the transpose of the convolution that")]
            /// goes the other way,
            /// `y[c, p·stride − padding + t·dilation] += x[i, p] · weight[i, c, t]`. The batch axis
            /// may be missing.
            ///
            /// Derivative: `dx` is the convolution of `dy` with the kernel,
            /// `dweight[i, c, t] = Σ over p of x[i, p] · dy[c, p·stride − padding + t·dilation]`,
            /// `dbias[c] = Σ over p of dy[c, p]`.
            ///
            /// ```
            /// use pullback::{Conv, Tensor};
            #[doc = concat!("let x = Tensor::from([1.0, 2.0]).reshape(", $two, ");")]
            #[doc = concat!("let w = Tensor::from([1.0, 10.0, 100.0]).reshape(", $three, ");")]
            #[doc = concat!("let y = x.", stringify!($transpose), "(&w, None, &Conv::new());")]
            /// assert_eq!(y.to_vec::<f64>(), [1.0, 12.0, 120.0, 200.0]);
            /// ```
            ///
            /// # Panics
            /// If the shapes do not fit, float dtypes are mixed, an option has neither one number
            /// nor one for each axis, or the padding is [`Same`](crate::Padding::Same).
            #[track_caller]
            #[must_use]
            pub fn $transpose(&self, weight: &Tensor, bias: Option<&Tensor>, options: &Conv) -> Tensor {
                self.conv_transpose(stringify!($transpose), $axes, weight, bias, options)
            }
        }
    };
}

convolutions!(
    1,
    conv1d,
    conv_transpose1d,
    "[n, c, l]",
    "[o, c/groups, k]",
    "[c, o/groups, k]",
    "[1, 1, 2]",
    "[1, 1, 3]"
);
convolutions!(
    2,
    conv2d,
    conv_transpose2d,
    "[n, c, h, w]",
    "[o, c/groups, kh, kw]",
    "[c, o/groups, kh, kw]",
    "[1, 1, 1, 2]",
    "[1, 1, 1, 3]"
);
convolutions!(
    3,
    conv3d,
    conv_transpose3d,
    "[n, c, d, h, w]",
    "[o, c/groups, kd, kh, kw]",
    "[c, o/groups, kd, kh, kw]",
    "[1, 1, 1, 1, 2]",
    "[1, 1, 1, 1, 3]"
);
