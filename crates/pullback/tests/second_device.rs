//! A device that is not the host: the engine on it gives the bits of the CPU, waits for nothing but
//! what the user reads, and reads nothing to decide what to do next.

mod device_second;

#[path = "second_device/away.rs"]
mod away;
#[path = "second_device/beside.rs"]
mod beside;
#[path = "second_device/compiled.rs"]
mod compiled;
#[path = "second_device/eager.rs"]
mod eager;
#[path = "second_device/host_only.rs"]
mod host_only;
#[path = "second_device/memory.rs"]
mod memory;
#[path = "second_device/numerics.rs"]
mod numerics;
#[path = "second_device/waiting.rs"]
mod waiting;

use pullback::{DType, Tensor};

/// The values by their bits; widening to `f64` is exact. NaNs are alike.
fn bits(x: &Tensor) -> Vec<u64> {
    let one = |v: f64| if v.is_nan() { f64::NAN.to_bits() } else { v.to_bits() };
    match x.dtype() {
        DType::I64 => x.to_vec::<i64>().into_iter().map(|v| v as u64).collect(),
        _ => x.to_f64_vec().into_iter().map(one).collect(),
    }
}

/// Numbers between −1 and 1 on the host.
fn sample(shape: &[usize], seed: usize) -> Tensor {
    let n: usize = shape.iter().product();
    let number = |i: usize| ((i * 37 + seed * 101) % 199) as f32 / 99.5 - 1.0;
    Tensor::from_vec((0..n).map(number).collect::<Vec<f32>>(), shape)
}
