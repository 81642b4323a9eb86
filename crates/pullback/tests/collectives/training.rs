//! A data-parallel training step: gradients in buckets, eager and compiled.

use super::threads::workers;
use pullback::{DType, Group, Key, Op, Tensor, cat, jit, no_grad};
use std::sync::Arc;

/// Four layers of a network, and a step on this worker's part of the batch. The gradients of two
/// layers make a bucket.
struct Model(Vec<Tensor>);

impl Model {
    fn new() -> Model {
        let layer = |i: u64| Key::new(i).normal([8, 8], DType::F64, 0.0, 0.5).requires_grad();
        Model((0..4).map(layer).collect())
    }

    fn step(&self, group: &Group, x: &Tensor) -> Tensor {
        let y = self.0.iter().fold(x.clone(), |x, w| x.matmul(w).tanh());
        let loss = y.square().mean();
        loss.backward().unwrap();
        no_grad(|| {
            for layers in self.0.rchunks(2) {
                let flat: Vec<Tensor> =
                    layers.iter().map(|w| w.grad().unwrap().reshape([-1])).collect();
                let bucket = cat(&flat.iter().collect::<Vec<_>>(), 0).all_reduce_mean(group);
                for (w, g) in layers.iter().zip(bucket.split(64, 0)) {
                    w.sub_(&(g.reshape([8, 8]) * 0.1));
                    w.zero_grad();
                }
            }
        });
        loss.detach()
    }
}

fn part(group: &Group, step: u64) -> Tensor {
    let batch = Key::new(100 + step).normal([12, 8], DType::F64, 0.0, 1.0);
    let each = 12 / group.size();
    batch.narrow(0, (group.rank() * each) as isize, each)
}

fn parameters(model: &Model) -> Vec<f64> {
    model.0.iter().flat_map(|w| w.detach().to_vec::<f64>()).collect()
}

#[test]
fn a_compiled_step_has_the_bits_of_an_eager_one_and_overlaps() {
    let alone = workers(1, |group| {
        let model = Model::new();
        (0..5).for_each(|step| drop(model.step(group, &part(group, step))));
        parameters(&model)
    });
    for n in [1, 2, 3] {
        let got = workers(n, |group| {
            let eager = Model::new();
            (0..5).for_each(|step| drop(eager.step(group, &part(group, step))));
            let model = Arc::new(Model::new());
            let (inside, of) = (model.clone(), group.clone());
            let compiled = jit(move |x: &Tensor| inside.step(&of, x));
            (0..5).for_each(|step| drop(compiled.call(&part(group, step)).unwrap()));
            assert!(compiled.explain().to_string().contains("overlap"));
            assert_eq!(parameters(&model), parameters(&eager), "worker {} of {n}", group.rank());
            starts_before_work(&compiled.stages(&part(group, 0)).unwrap().pop().unwrap().1);
            parameters(&model)
        });
        for got in got {
            for (a, b) in got.iter().zip(&alone[0]) {
                assert!((a - b).abs() <= 1e-12, "{a} is not {b}");
            }
        }
    }
}

/// The first bucket starts before the products of the first layers' gradients, and nothing is
/// waited for before the last product.
fn starts_before_work(program: &pullback::Program) {
    let place = |f: &dyn Fn(&Op) -> bool| -> Vec<usize> {
        (0..program.equations.len()).filter(|&i| f(&program.equations[i].op)).collect()
    };
    let products = place(&|op| matches!(op, Op::Dot | Op::DotRegion(_)));
    let starts = place(&|op| matches!(op, Op::Collective(_)));
    let waits = place(&|op| *op == Op::Wait);
    assert_eq!((starts.len(), waits.len()), (2, 2), "{program}");
    let after = products.iter().filter(|&&p| p > starts[0]).count();
    assert!(after >= 2, "the first bucket starts late:\n{program}");
    assert!(waits[0] > *products.last().unwrap(), "a bucket is waited for early:\n{program}");
}
