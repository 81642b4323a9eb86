//! How fast a device multiplies: what a step's floating-point operations are compared with.

use pullback::{
    DType, Device, Error, Key, Result, Tensor, catch, default_device, no_grad, synchronize,
};
use std::time::{Duration, Instant};

/// How long a round of products takes at least, and how many there are.
const ROUND: Duration = Duration::from_millis(25);
const ROUNDS: usize = 5;

/// The floating-point operations a second of the default device: the best of five rounds of
/// products of large square matrices of this dtype. It takes a fraction of a second, and says what
/// products reach here and now, which is less than what a data sheet promises: the denominator of
/// [`Trainer::operations_per_example`](super::Trainer::operations_per_example). Nothing is drawn
/// from the random generator.
///
/// A product of f32 is as exact as the switches say ([`with_tf32`](pullback::with_tf32)).
///
/// ```
/// use pullback::DType;
/// use pullback_nn::train::peak_operations;
/// let peak = peak_operations(DType::F32)?;
/// assert!(peak > 1e6, "{peak}");
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// # Errors
/// If the dtype is no float, or the device has no memory left.
pub fn peak_operations(dtype: DType) -> Result<f64> {
    if !dtype.is_float() {
        let message = format!("products of {dtype} are not what is compared: give a float dtype");
        return Err(Error::argument("peak_operations", message));
    }
    // Large enough that a GPU is full, and that a CPU is done in time.
    let side = if default_device() == Device::Cpu { 512 } else { 8192 };
    no_grad(|| measured(side, dtype))
}

fn measured(side: usize, dtype: DType) -> Result<f64> {
    let draw = |seed| Key::new(seed).normal([side, side], dtype, 0.0, 1.0);
    let (a, b) = catch(|| (draw(1), draw(2)))?;
    let time = |times: usize| -> Result<f64> {
        let began = Instant::now();
        let mut last: Option<Tensor> = None;
        for _ in 0..times {
            last = Some(catch(|| a.matmul(&b))?);
        }
        synchronize(a.device())?;
        drop(last);
        Ok(began.elapsed().as_secs_f64().max(1e-9))
    };
    // The first opens libraries and chooses kernels.
    time(1)?;
    let once = time(2)? / 2.0;
    let times = (ROUND.as_secs_f64() / once).ceil().clamp(1.0, 1e4) as usize;
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        best = best.min(time(times)? / times as f64);
    }
    Ok(2.0 * (side as f64).powi(3) / best)
}
