//! Products of square matrices, by dtype.

use super::{compared, difference, with_tflops};
use crate::measure::{Measurement, Protocol};
use crate::{compiled, quick};
use pullback::{DType, Tensor, manual_seed};

pub fn bf16() -> Vec<Measurement> {
    square(DType::BF16, 4e-3)
}

pub fn f16() -> Vec<Measurement> {
    square(DType::F16, 5e-4)
}

pub fn f32() -> Vec<Measurement> {
    square(DType::F32, 1e-5)
}

pub fn tf32() -> Vec<Measurement> {
    super::tf32(|| square(DType::F32, 1e-3))
}

fn square(dtype: DType, most: f64) -> Vec<Measurement> {
    manual_seed(0);
    let row = |name: usize| {
        let n = quick::size(name, name / 64);
        let [a, b] = [(); 2].map(|()| Tensor::randn_with([n, n], dtype));
        let product = compiled::step(|| a.matmul(&b));
        let row = Protocol::counted(5, 20).measure(|| drop(product()));
        // The first rows, with their sums in double precision.
        let rows = |x: &Tensor| x.narrow(0, 0, 8).cast(DType::F64);
        let wrong = difference(&product().narrow(0, 0, 8), &rows(&a).matmul(&b.cast(DType::F64)));
        let row = compared(row, &[wrong], most);
        with_tflops(row, 2.0 * (n as f64).powi(3)).named(format!("_{name}"))
    };
    [1024, 4096, 8192].map(row).into()
}
