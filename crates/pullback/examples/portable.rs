//! What every target can compute. `crates/cpu/other-targets` runs this in WebAssembly, which has no
//! console: the exit code is a derivative that is known to be 42, and what is wrong is a panic.

use pullback::check::check_grads;
use pullback::{DType, Key, Tensor, grad, jit, vmap};
use std::process::ExitCode;

/// The loss of a layer; its product is large enough to be packed.
fn loss(w: &Tensor) -> Tensor {
    let x = Key::new(7).normal([96, 64], DType::F32, 0.0, 1.0);
    -x.matmul(w).gelu().log_softmax(-1).at((.., 3)).mean()
}

fn main() -> ExitCode {
    let w = Key::new(1).normal([64, 80], DType::F32, 0.0, 0.1);
    let eager = grad(loss)(&w);
    let compiled = jit(grad(loss)).call(&w).expect("a compiled gradient");
    let (size, apart) = (eager.abs().max(), (&compiled - &eager).abs().max());
    assert!(size.item::<f32>() > 1e-3 && apart.item::<f32>() < 1e-6, "{size} {apart}");

    let smooth = |x: &Tensor| (x.sin() * x.exp()).cumsum(-1).square().sum();
    let x = Key::new(2).uniform([5], DType::F64, -1.0, 1.0);
    check_grads(smooth, &x, 2).expect("derivatives of both orders");
    let rows = vmap(grad(smooth), 0, 0)(&x.reshape([1, 5]).expand([3, 5]));
    let apart = (rows - grad(smooth)(&x)).abs().max();
    assert!(apart.item::<f64>() < 1e-12, "{apart}");

    // 2·x² + 18·x at 6
    let slope = grad(|x: &Tensor| x.square() * 2.0 + x * 18.0)(&Tensor::from(6.0f32));
    ExitCode::from(slope.item::<f32>() as u8)
}
