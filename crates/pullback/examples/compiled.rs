//! What `jit` makes of a function: the program as it was traced, the program that runs, and the
//! report.
//!
//! ```sh
//! cargo run --release --example compiled
//! ```

use pullback::{DType, Key, Result, Tensor, hessian, jit};

/// Rosenbrock's function in any number of dimensions.
fn rosenbrock(x: &Tensor) -> Tensor {
    let (left, right) = (x.at(..-1), x.at(1..));
    (100.0 * (right - left.square()).square() + (1.0 - &left).square()).sum()
}

fn main() -> Result<()> {
    let f = jit(hessian(rosenbrock));
    let x = Key::new(0).normal([200], DType::F32, 0.0, 1.0);
    let stages = f.stages(&x)?;
    if let (Some(first), Some(last)) = (stages.first(), stages.last()) {
        println!("traced:\n{:#}\ncompiled:\n{:#}", first.1, last.1);
    }
    let compiled = f.call(&x)?;
    let eager = hessian(rosenbrock)(&x);
    println!("largest difference: {}", (compiled - eager).abs().max());
    (0..1000).try_for_each(|_| f.call(&x).map(drop))?;
    println!("{}", f.explain());
    f.check(&x)
}
