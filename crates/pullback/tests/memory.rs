//! Memory, by the pool's own exact counters. One test, so that nothing else runs in this process.

use pullback::{Tensor, grad, jvp, memory_stats, no_grad, reset_peak, vjp};

fn live() -> u64 {
    memory_stats().live_bytes
}

#[test]
fn memory_is_freed_when_nothing_refers_to_it() {
    const MATRIX: u64 = 128 * 128 * 4;
    let start = live();
    let w = Tensor::full([128, 128], 0.01f32).requires_grad();
    assert_eq!(live() - start, MATRIX);

    // An evaluation loop without no_grad: each step's graph goes with the step's results.
    let mut x = Tensor::ones([128, 128]);
    let mut total = Tensor::zeros(());
    let mut after_two = 0;
    for step in 0..100 {
        x = x.matmul(&w).tanh().detach();
        total += x.sum().detach();
        match step {
            1 => after_two = live(),
            _ => assert!(
                step == 0 || live() == after_two,
                "step {step}: {} bytes, not {after_two}",
                live()
            ),
        }
    }
    drop((x, total));

    // Backward frees what a node kept as soon as it has passed it.
    let before = live();
    let mut y = w.clone();
    for _ in 0..32 {
        y = y.tanh(); // keeps y
    }
    assert_eq!(live() - before, 32 * MATRIX);
    let loss = y.sum();
    drop(y);
    reset_peak();
    loss.backward().unwrap();
    let grown = memory_stats().peak_bytes - before;
    assert!(grown <= 34 * MATRIX, "backward grew to {grown} bytes");
    assert!(
        live() - before <= MATRIX + 64,
        "the kept values are gone, the gradient is there: {}",
        live() - before
    );
    drop(loss);
    w.zero_grad();
    assert_eq!(live(), before);

    // Forward mode keeps no graph, whatever the length of the computation.
    reset_peak();
    let chain = |x: &Tensor| (0..500).fold(x.clone(), |y, _| (y * 1.001).sin());
    let (value, tangent) = jvp(chain, &Tensor::ones([128, 128]), &Tensor::ones([128, 128]));
    assert!(memory_stats().peak_bytes - before <= 12 * MATRIX);
    drop((value, tangent));

    // An evaluation inside no_grad keeps no graph, and drops without recursion.
    let v = Tensor::ones([128]).requires_grad();
    let mut h = Tensor::ones([128]);
    for _ in 0..300_000 {
        h = no_grad(|| &h * &v);
    }
    drop((h, v));

    // Forward mode over tracked values: a tangent and the node that saved it do not hold each
    // other.
    let small = Tensor::ones([128]).requires_grad();
    let after_small = live();
    for _ in 0..10 {
        let _ = jvp(|x: &Tensor| x.exp().sum(), &small, &Tensor::ones([128]));
        let _ =
            jvp(|x: &Tensor| vjp(|x: &Tensor| x.exp(), x).0.sum(), &small, &Tensor::ones([128]));
        let _ =
            grad(|x: &Tensor| jvp(|x: &Tensor| x.exp().sum(), x, &Tensor::ones([128])).1)(&small);
    }
    assert_eq!(live(), after_small);
    drop(small);

    // Transforms leave nothing behind, nested or not.
    let x = Tensor::ones([128]);
    let _ = grad(|x: &Tensor| x.sin().sum())(&x);
    let _ = grad(|x: &Tensor| grad(|x: &Tensor| x.sin().sum())(x).sum())(&x);
    drop(x);
    assert_eq!(live(), before);
    drop(w);
    assert_eq!(live(), start);
}
