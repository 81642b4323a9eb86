//! The seed of a backward pass is 1, and gradients that are known to be 1 save a multiplication. A
//! sum that began as such a gradient is no longer 1.

use pullback::{Backward, DType, Tensor, jit};

/// Enough elements for the multiplication to be saved.
const N: usize = 5000;

fn leaf() -> Tensor {
    Tensor::from((0..N).map(|i| (i % 7) as f32 / 7.0).collect::<Vec<_>>()).requires_grad()
}

fn is_times_exp(x: &Tensor, factor: f32) {
    let grad = x.grad().unwrap().to_vec::<f32>();
    for (v, g) in x.to_vec::<f32>().into_iter().zip(grad) {
        assert!((g - factor * v.exp()).abs() <= 1e-5 * g.abs(), "{g} at {v}, factor {factor}");
    }
}

#[test]
fn a_sum_that_is_used_twice() {
    let x = leaf();
    let s = x.exp().sum();
    (&s + &s * 3.0).backward().unwrap();
    is_times_exp(&x, 4.0);
}

#[test]
fn one_output_given_twice() {
    let x = leaf();
    let s = x.exp().sum();
    Backward::of_all(&[&s, &s]).run().unwrap();
    is_times_exp(&x, 2.0);
}

#[test]
fn ones_that_were_written_to() {
    let x = leaf();
    let dy = Tensor::ones([N]);
    dy.mul_(5.0);
    x.exp().backward_with(&dy).unwrap();
    is_times_exp(&x, 5.0);
}

/// Sums start from +0, so an operand plus +0 gives the same bits as the operand: what `simplify`
/// relies on.
#[test]
fn sums_and_products_of_negative_zeros_are_positive_zeros() {
    let shapes = [(1, 2, 1), (1, 3, 5), (5, 2, 1), (1, 2, 7), (4, 2, 4), (17, 33, 9), (64, 64, 64)];
    for dtype in [DType::F32, DType::F64, DType::BF16, DType::F16] {
        for (m, k, n) in shapes.into_iter().chain([(1, 100, 1), (3, 5, 300), (300, 2, 3)]) {
            let zeros = |shape: [usize; 2]| -Tensor::zeros_with(shape, dtype);
            let (a, b) = (zeros([m, k]), Tensor::ones_with([k, n], dtype));
            let sums = |(a, b): &(Tensor, Tensor)| {
                let turned = b.transpose(0, 1).matmul(&a.transpose(0, 1));
                vec![a.matmul(b), turned, a.sum_over(0), a.sum_over(1), a.sum()]
            };
            let pair = (a, b);
            for y in sums(&pair).iter().chain(&jit(sums).call(&pair).unwrap()) {
                let negative = y.sign_bit().to_vec::<bool>();
                assert!(!negative.contains(&true), "{dtype} {m} {k} {n}: {}", y.spec());
            }
        }
    }
}
