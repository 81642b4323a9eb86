//! What users set of [`pullback_ir::Numerics`]: TF32, and whether every run gives the same bits.

/// Runs `f` with TF32 for `f32` products and convolutions on a GPU, or without: their operands are
/// rounded to 10 bits of mantissa (a relative error near 5·10⁻⁴, as in `f16`, with the range of
/// `f32`) and summed in `f32`, several times as fast. Off by default; other dtypes do not change.
///
/// What runs inside `f` follows it: a backward pass if `backward` is called inside, a compiled
/// function ([`jit`](crate::jit)) by the scope of each call, whatever it was when it was compiled.
/// A [`checkpoint`](crate::checkpoint()) recomputes as it first ran. The scope holds for this
/// thread. The CPU computes in `f32` always.
///
/// ```
/// use pullback::{Tensor, is_tf32_allowed, with_tf32};
/// let (x, w) = (Tensor::ones([4, 3]), Tensor::ones([3, 2]).requires_grad());
/// let y = with_tf32(true, || {
///     let y = x.matmul(&w);
///     y.sum().backward().unwrap();
///     y
/// });
/// assert_eq!((y.to_vec::<f32>(), is_tf32_allowed()), (vec![3.0; 8], false));
/// ```
#[doc(alias = "allow_tf32")]
#[doc(alias = "default_matmul_precision")]
#[doc(alias = "float32_matmul_precision")]
pub fn with_tf32<R>(allowed: bool, f: impl FnOnce() -> R) -> R {
    pullback_ir::with_tf32(allowed, f)
}

/// Allows TF32 in every thread of the process that is not inside [`with_tf32`], or forbids it. At
/// the start it is forbidden, unless the environment variable `PULLBACK_TF32` is 1.
///
/// ```standalone_crate
/// use pullback::{is_tf32_allowed, set_tf32, with_tf32};
/// set_tf32(true);
/// assert!(is_tf32_allowed() && !with_tf32(false, is_tf32_allowed));
/// ```
#[doc(alias = "set_float32_matmul_precision")]
pub fn set_tf32(allowed: bool) {
    pullback_ir::set_tf32(allowed);
}

/// Whether products of `f32` may use TF32 here: see [`with_tf32`] and [`set_tf32`].
///
/// ```
/// use pullback::{is_tf32_allowed, with_tf32};
/// assert!(with_tf32(true, is_tf32_allowed) && !is_tf32_allowed());
/// ```
#[doc(alias = "get_float32_matmul_precision")]
pub fn is_tf32_allowed() -> bool {
    pullback_ir::tf32_allowed()
}

/// Runs `f` so that the same program gives the same bits in every run on the same chip and library
/// versions (the default), or with `false` so that what is faster may be chosen: products by a
/// measurement at their first use, which is remembered on disk, and sums in any order. Without it,
/// runs may differ as much as another order of sums does.
///
/// What runs inside `f` follows it, as for [`with_tf32`]. The CPU gives the same bits always.
///
/// ```
/// use pullback::{Tensor, is_deterministic, with_deterministic};
/// let x = Tensor::ones([4, 4]);
/// let y = with_deterministic(false, || x.matmul(&x));
/// assert_eq!((y.sum().item::<f32>(), is_deterministic()), (64.0, true));
/// ```
#[doc(alias = "use_deterministic_algorithms")]
pub fn with_deterministic<R>(on: bool, f: impl FnOnce() -> R) -> R {
    pullback_ir::with_deterministic(on, f)
}

/// Asks for the same bits in every run, in every thread of the process that is not inside
/// [`with_deterministic`], or gives them up. At the start they are asked for, unless the
/// environment variable `PULLBACK_DETERMINISTIC` is 0.
///
/// ```standalone_crate
/// use pullback::{is_deterministic, set_deterministic, with_deterministic};
/// set_deterministic(false);
/// assert!(!is_deterministic() && with_deterministic(true, is_deterministic));
/// ```
#[doc(alias = "use_deterministic_algorithms")]
#[doc(alias = "cudnn_deterministic")]
pub fn set_deterministic(on: bool) {
    pullback_ir::set_deterministic(on);
}

/// Whether every run must give the same bits here: see [`with_deterministic`] and
/// [`set_deterministic`].
///
/// ```
/// use pullback::{is_deterministic, with_deterministic};
/// assert!(is_deterministic() && !with_deterministic(false, is_deterministic));
/// ```
#[doc(alias = "are_deterministic_algorithms_enabled")]
pub fn is_deterministic() -> bool {
    pullback_ir::deterministic()
}
