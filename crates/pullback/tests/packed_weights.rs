//! Weights that a compiled function captures and does not write are packed once. What replaces
//! their values is seen by the next call all the same.

use pullback::{Conv, DType, Key, Pool, Tensor, jit, no_grad, with_threads};

fn noise(shape: &[usize], seed: u64) -> Tensor {
    Key::new(seed).normal(shape, DType::F32, 0.0, 1.0)
}

/// A convolution by transformed tiles, one with few channels, and a product of some rows.
fn network(weights: &[Tensor; 3], x: &Tensor) -> Tensor {
    let options = Conv::new().padding(1);
    let x = x.conv2d(&weights[0], None, &options).relu();
    let x = x.conv2d(&weights[1], None, &options).relu();
    x.max_pool2d(&Pool::new(4)).flatten(1, -1).matmul(&weights[2])
}

fn weights() -> [Tensor; 3] {
    [noise(&[32, 3, 3, 3], 1), noise(&[48, 32, 3, 3], 2), noise(&[48 * 16, 512], 3) * 0.01]
}

#[test]
fn every_write_of_a_weight_is_seen() {
    let weights = weights();
    let x = noise(&[16, 3, 16, 16], 4);
    let f = jit(|x: &Tensor| network(&weights, x));
    let agrees = |what: &str| {
        for _ in 0..2 {
            let (compiled, eager) = (f.call(&x).unwrap(), network(&weights, &x));
            assert_eq!(compiled.to_vec::<f32>(), eager.to_vec::<f32>(), "{what}");
        }
    };
    agrees("as made");
    for (i, w) in weights.iter().enumerate() {
        no_grad(|| w.mul_(-0.5));
        agrees(&format!("weight {i} scaled in place"));
        no_grad(|| w.copy_(noise(w.shape(), 10 + i as u64)));
        agrees(&format!("weight {i} replaced"));
        no_grad(|| w.narrow(0, 1, 2).fill_(0.25));
        agrees(&format!("weight {i} written through a view"));
    }
    // Another compiled function writes them.
    let step = jit(|by: &Tensor| {
        for w in &weights {
            no_grad(|| w.mul_(by));
        }
    });
    for round in 0..3 {
        step.call(&Tensor::from(0.5f32 + round as f32)).unwrap();
        agrees("written by a compiled function");
    }
}

/// The same bits as in the first call, and for any number of threads.
#[test]
fn packed_weights_give_the_same_bits() {
    let weights = weights();
    let f = jit(|x: &Tensor| network(&weights, x));
    let x = noise(&[16, 3, 16, 16], 5);
    let first = f.call(&x).unwrap().to_vec::<f32>();
    for threads in [1, 2, 3, 8] {
        let again = with_threads(threads, || f.call(&x).unwrap());
        assert_eq!(again.to_vec::<f32>(), first, "{threads} threads");
    }
}

/// A function that writes its weight packs nothing that lasts.
#[test]
fn a_step_that_writes_its_weight_sees_it() {
    let (w, plain) = (noise(&[64, 256], 6), noise(&[64, 256], 6));
    let x = noise(&[32, 64], 7);
    let step = |w: &Tensor| {
        let y = x.matmul(w);
        no_grad(|| w.mul_(0.5));
        y
    };
    let compiled = jit(|(): &()| step(&w));
    for _ in 0..3 {
        let (y, expected) = (compiled.call(&()).unwrap(), step(&plain));
        assert_eq!(y.to_vec::<f32>(), expected.to_vec::<f32>());
    }
}
