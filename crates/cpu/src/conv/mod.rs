//! Convolution along one to three axes, and its two transposes.
//!
//! # Which method
//!
//! | case | method |
//! |---|---|
//! | few channels per group (depthwise), stride 1 | [`shifted`]: sums of shifted rows, in registers |
//! | few channels per group otherwise, or very wide windows | [`direct`]: scaled rows, added up |
//! | the same in f32 with 3 × 3 taps, stride 1 and 16 channels or more | [`winograd`]: 4 products for 9 |
//! | `y` from `x` and `w`, `x` from `y` and `w` | [`implicit_gemm`]: the right side is packed in blocks |
//! | `w` from `x` and `y` | [`weight_gradient`]: the left side is not packed |
//!
//! The matrix products are those of [`crate::dot`]:
//! `y[c, p] = Σ over (i, t) of w[c, (i, t)] · x[i, p·stride + t·dilation − before]`. The matrix of
//! shifted copies on the right has `taps` times as many elements as `x` and is never made. A task
//! takes a block of columns (some rows of the result), copies the part of `x` that they read, with
//! zeros around it (a [`SourceBlock`]), and packs from that, panel by panel, what the tiles read
//! next. A kernel of one element is then a plain matrix product with the weights packed once for
//! the whole batch.
//!
//! A stride along the last axis is undone in the region: elements are grouped by their position
//! modulo the stride, so every row of a panel is a run of adjacent elements there.
//!
//! The input from the result (`x` from `y`) works the same way. Elements of `x` whose positions are
//! equal modulo the stride use the same taps, at fixed distances: for each such phase it is a
//! convolution of `y` with stride 1.
//!
//! Splits depend on shapes alone, and each sum has one order: the same bits for any number of
//! threads.

mod direct;
mod implicit_gemm;
mod lanes;
mod shifted;
mod source_block;
#[cfg(test)]
mod tests;
mod transforms;
mod weight_gradient;
mod winograd;

use crate::buffer::Buffer;
use crate::dot::scratch;
use crate::elem::Elem;
use crate::operand::{Sink, Source};
use crate::pointwise::copy;
use half::{bf16, f16};
use implicit_gemm::PackedWeights;
use lanes::Laned;
use pullback_ir::{Conv, DType, Role, Shape, Window, dense_strides};

/// One spatial axis.
#[derive(Clone, Copy, Debug)]
struct Axis {
    /// Length on the side of `x`.
    input: usize,
    /// Length on the side of `y`.
    output: usize,
    window: Window,
}

impl Axis {
    /// The same axis with a stride that is no longer than the padded axis: one window is the same
    /// with any stride, and that of more than one is shorter anyway. `infer` limits the padded
    /// length, so positions cannot overflow.
    fn bounded(mut self) -> Axis {
        let window = &mut self.window;
        let padded = self.input as i128 + window.before as i128 + window.after as i128;
        if self.output <= 1 {
            window.stride = window.stride.min(padded.max(1) as usize);
        }
        self
    }
}

/// A convolution with three spatial axes; missing ones have length 1.
#[derive(Clone, Copy, Debug)]
struct Problem {
    batch: usize,
    groups: usize,
    /// Channels of `x` in a group.
    inner: usize,
    /// Channels of `y` in a group.
    outer: usize,
    axes: [Axis; 3],
}

/// An operand of five axes: batch (or the first of the kernel's), channel, three spatial ones.
struct Volume<S> {
    ptr: *const S,
    strides: [isize; 5],
}

impl<S> Clone for Volume<S> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<S> Copy for Volume<S> {}
// SAFETY: a volume is only read, and made from a `Source`, which may be shared.
unsafe impl<S> Send for Volume<S> {}
// SAFETY: as above.
unsafe impl<S> Sync for Volume<S> {}

impl<S> Volume<S> {
    fn of(x: &Source) -> Volume<S> {
        let mut strides = [0; 5];
        strides[..2].copy_from_slice(&x.strides[..2]);
        let rank = x.shape.len() - 2;
        strides[5 - rank..].copy_from_slice(&x.strides[2..]);
        Volume { ptr: x.ptr.cast(), strides }
    }

    /// The element at an index; outside the operand, an address that must not be read.
    fn at(&self, index: [usize; 5]) -> *const S {
        let offset: isize = index.iter().zip(&self.strides).map(|(&i, s)| i as isize * s).sum();
        self.ptr.wrapping_offset(offset)
    }
}

/// Any member of the family.
pub(crate) fn conv(conv: &Conv, a: Source, b: Source, out: Sink) {
    conv_with(conv, a, b, None, out);
}

/// As [`conv`], with what [`kernels`] made of the values that `b` still has.
pub(crate) fn conv_with(
    conv: &Conv,
    a: Source,
    b: Source,
    ready: Option<&PackedKernels>,
    out: Sink,
) {
    if out.is_empty() {
        return;
    }
    if conv.last {
        return with_channels_last(conv, a, b, out);
    }
    match out.dtype {
        DType::F64 => typed::<f64>(conv, a, b, ready, out),
        DType::F32 => typed::<f32>(conv, a, b, ready, out),
        DType::BF16 => typed::<bf16>(conv, a, b, ready, out),
        DType::F16 => typed::<f16>(conv, a, b, ready, out),
        DType::I64 | DType::I32 | DType::U8 | DType::Bool => {
            unreachable!("`infer` rejects dtypes other than floats")
        }
    }
}

/// By way of a result with the channels before the spatial axes.
fn with_channels_last(of: &Conv, a: Source, b: Source, out: Sink) {
    let shape: Shape = of.order().iter().map(|&d| out.shape[d]).collect();
    let (_held, space) = scratch::<u8>(out.len() * out.dtype.size());
    let ptr = space.at(0);
    let plain = Conv { last: false, ..of.clone() };
    conv(&plain, a, b, Sink { ptr, shape: &shape, dtype: out.dtype });
    let mut strides = dense_strides(&shape);
    strides[1..].rotate_left(1);
    copy(Source { ptr, shape: out.shape, strides: &strides, dtype: out.dtype }, out);
}

/// The kernel of a convolution as its method reads it, made before the convolutions that use it.
/// Packing is only a copy, and a transform the same arithmetic: the bits are the same.
pub(crate) struct PackedKernels(Made);

/// What was made of a kernel.
enum Made {
    /// Of [`winograd`].
    Transformed(Buffer),
    /// Of [`implicit_gemm`].
    Packed(PackedWeights<f32>),
}

/// Makes the kernel ready for convolutions of this kind, `a` with `b` to a result of this shape.
/// `None` where a method reads it as it is, where there are several, or where this is cheap
/// relative to the convolution.
pub(crate) fn kernels(conv: &Conv, a: Source, b: Source, shape: &[usize]) -> Option<PackedKernels> {
    let known = conv.role == Role::Forward && !conv.last && b.dtype == DType::F32;
    if !known || shape.contains(&0) {
        return None;
    }
    implicit_gemm::kernels(&problem(conv, a.shape, b.shape, shape), Volume::of(&b))
        .map(PackedKernels)
}

/// The convolution of `x` with `w` to `y`.
fn problem(conv: &Conv, x: &[usize], w: &[usize], y: &[usize]) -> Problem {
    let mut axes = [Axis {
        input: 1,
        output: 1,
        window: Window { size: 1, stride: 1, dilation: 1, before: 0, after: 0 },
    }; 3];
    let rank = conv.windows.len();
    for (i, axis) in axes[3 - rank..].iter_mut().enumerate() {
        *axis = Axis { input: x[i + 2], output: y[i + 2], window: conv.windows[i] }.bounded();
    }
    Problem { batch: x[0], groups: conv.groups, inner: w[1], outer: w[0] / conv.groups, axes }
}

fn typed<S: Elem>(conv: &Conv, a: Source, b: Source, ready: Option<&PackedKernels>, out: Sink)
where
    S::Compute: Laned + num::ConvFloat,
{
    let (x, w, y) = match conv.role {
        Role::Forward => (a.shape, b.shape, out.shape),
        Role::Input(_) => (out.shape, b.shape, a.shape),
        Role::Filter => (a.shape, out.shape, b.shape),
    };
    let problem = problem(conv, x, w, y);
    let (a, b) = (Volume::<S>::of(&a), (Volume::<S>::of(&b), b));
    match conv.role {
        Role::Forward => {
            let ready = ready.map(|ready| &ready.0);
            implicit_gemm::run(&problem, implicit_gemm::Direction::Forward, a, b.0, ready, out)
        }
        Role::Input(_) => {
            implicit_gemm::run(&problem, implicit_gemm::Direction::Input, a, b.0, None, out)
        }
        Role::Filter => weight_gradient::run(&problem, a, b.1, out),
    }
}

/// Arithmetic on the compute types.
mod num {
    /// A float of either width.
    pub(crate) trait ConvFloat: crate::simd::Float + std::ops::AddAssign {}
    impl ConvFloat for f32 {}
    impl ConvFloat for f64 {}
}

impl Problem {
    /// Elements of the kernel for one pair of channels.
    fn taps(&self) -> usize {
        self.axes.iter().map(|a| a.window.size).product()
    }

    /// Multiply-adds.
    fn work(&self) -> usize {
        let taps = self.taps();
        let pixels: usize = self.axes.iter().map(|a| a.output).product();
        [self.batch, self.groups, self.inner, self.outer, taps, pixels]
            .into_iter()
            .fold(1, usize::saturating_mul)
    }

    /// Whether a group has so few channels that tiles would be mostly empty.
    fn is_thin(&self) -> bool {
        self.inner * self.outer <= 4
    }
}
