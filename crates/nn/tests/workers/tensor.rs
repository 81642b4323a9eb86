//! Layers spread over workers have the outputs and gradients of the plain ones.

use crate::compared::{normal, seeded};
use pullback::{Backward, DType, Key, Result, Tensor, Tree, cross_entropy, jit};
use pullback_nn::parallel::{
    ColumnParallelLinear, RowParallelLinear, VocabularyParallelEmbedding,
    vocabulary_parallel_cross_entropy,
};
use pullback_nn::{Embedding, Layer, LayerNorm, Linear, Module};
use pullback_workers::threads;

const WIDTH: usize = 8;
const HEADS: usize = 4;
const WORDS: usize = 12;

/// A small language model of one transformer block, plain.
#[derive(Clone, Tree)]
struct Plain {
    words: Embedding,
    norm1: LayerNorm,
    query: Linear,
    key: Linear,
    value: Linear,
    out: Linear,
    norm2: LayerNorm,
    up: Linear,
    down: Linear,
}

/// The same block; each worker has some of the heads, features and words.
#[derive(Tree)]
struct Spread {
    words: VocabularyParallelEmbedding,
    norm1: LayerNorm,
    query: ColumnParallelLinear,
    key: ColumnParallelLinear,
    value: ColumnParallelLinear,
    out: RowParallelLinear,
    norm2: LayerNorm,
    up: ColumnParallelLinear,
    down: RowParallelLinear,
}

/// Attention among the heads of these features.
fn attend(q: &Tensor, k: &Tensor, v: &Tensor, heads: usize) -> Tensor {
    let split = |x: &Tensor| {
        let (n, t, width) = (x.shape()[0], x.shape()[1], x.shape()[2]);
        x.reshape([n, t, heads, width / heads]).transpose(1, 2)
    };
    let (q, k, v) = (split(q), split(k), split(v));
    let scores = q.matmul(&k.transpose(-2, -1)) / (WIDTH as f64 / HEADS as f64).sqrt();
    scores.softmax(-1).matmul(&v).transpose(1, 2).flatten(2, 3)
}

macro_rules! block {
    ($model:expr, $words:expr, $heads:expr) => {{
        let model = $model;
        let x = model.words.forward($words);
        let h = model.norm1.forward(&x);
        let (q, k, v) = (model.query.forward(&h), model.key.forward(&h), model.value.forward(&h));
        let x = x + model.out.forward(&attend(&q, &k, &v, $heads));
        let h = model.up.forward(&model.norm2.forward(&x)).gelu();
        x + model.down.forward(&h)
    }};
}

impl Plain {
    fn new() -> Plain {
        let linear = |from, to| Linear::new(from, to);
        seeded(&Plain {
            words: Embedding::new(WORDS, WIDTH),
            norm1: LayerNorm::new([WIDTH]),
            query: linear(WIDTH, WIDTH),
            key: linear(WIDTH, WIDTH),
            value: linear(WIDTH, WIDTH),
            out: linear(WIDTH, WIDTH),
            norm2: LayerNorm::new([WIDTH]),
            up: linear(WIDTH, 4 * WIDTH),
            down: linear(4 * WIDTH, WIDTH),
        })
    }

    fn loss(&self, words: &Tensor, next: &Tensor) -> Tensor {
        let x = block!(self, words, HEADS).flatten(0, 1);
        cross_entropy(&x.matmul(&self.words.weight.t()), &next.flatten(0, -1))
    }
}

impl Spread {
    fn of(plain: &Plain, group: &pullback::Group) -> Spread {
        let columns = |linear: &Linear| ColumnParallelLinear::from(linear, group);
        let rows = |linear: &Linear| RowParallelLinear::from(linear, group);
        let norms = (plain.norm1.deep_copy(), plain.norm2.deep_copy());
        Spread {
            words: VocabularyParallelEmbedding::from(&plain.words, group),
            norm1: norms.0,
            query: columns(&plain.query),
            key: columns(&plain.key),
            value: columns(&plain.value),
            out: rows(&plain.out),
            norm2: norms.1,
            up: columns(&plain.up),
            down: rows(&plain.down),
        }
    }

    fn loss(&self, words: &Tensor, next: &Tensor) -> Tensor {
        let group = &self.words.workers;
        let x = block!(self, words, HEADS / group.size()).flatten(0, 1);
        vocabulary_parallel_cross_entropy(&self.words.logits(&x), &next.flatten(0, -1), group)
    }
}

/// The part of a plain gradient that a worker has of a parameter of this shape.
fn own(whole: &Tensor, shape: &[usize], rank: usize) -> Vec<f64> {
    let differing = (0..shape.len()).find(|&axis| whole.shape()[axis] != shape[axis]);
    let Some(axis) = differing else { return whole.to_f64_vec() };
    whole.narrow(axis as isize, (rank * shape[axis]) as isize, shape[axis]).to_f64_vec()
}

#[test]
fn a_spread_transformer_block_is_the_plain_one() {
    let plain = Plain::new();
    let draw = |n: u64| Key::new(9).fold_in(n).randint([3, 5], 0, WORDS as i64);
    let (words, next) = (draw(1), draw(2));
    let loss = plain.loss(&words, &next);
    loss.backward().unwrap();
    let whole: Vec<Tensor> = plain.parameters().iter().map(|x| x.grad().unwrap()).collect();
    for workers in [2, 4] {
        for compiled in [false, true] {
            let spread = threads(workers, |group| {
                let model = Spread::of(&plain, &group);
                let step = jit(|(words, next): &(Tensor, Tensor)| -> Result<Tensor> {
                    model.zero_grad();
                    let loss = model.loss(words, next);
                    loss.backward()?;
                    Ok(loss)
                });
                let batch = (words.clone(), next.clone());
                let loss = if compiled { step.call(&batch)? } else { step.eager(&batch) };
                let grads = model.parameters().into_iter().map(|x| (x.shape().to_vec(), x.grad()));
                Ok((loss.item::<f64>(), grads.collect::<Vec<_>>()))
            });
            for (rank, (own_loss, grads)) in spread.unwrap().into_iter().enumerate() {
                assert!((own_loss - loss.item::<f64>()).abs() < 1e-12);
                for ((shape, grad), whole) in grads.iter().zip(&whole) {
                    let wanted = own(whole, shape, rank);
                    for (a, b) in grad.as_ref().unwrap().to_f64_vec().iter().zip(&wanted) {
                        assert!((a - b).abs() < 1e-12, "{workers} workers: {a} is not {b}");
                    }
                }
            }
        }
    }
}

/// Second derivatives: the two functions between replicated and split values are each other's
/// transpose.
#[test]
fn second_derivatives_of_a_spread_layer() {
    let (up, down) = (seeded(&Linear::new(4, 6)), seeded(&Linear::new(6, 1)));
    let x = normal(4, &[1, 4]);
    let f = |x: &Tensor| down.forward(&up.forward(x).tanh()).sum();
    let wanted = pullback::hessian(f)(&x).to_f64_vec();
    let all = threads(2, |group| {
        let up = ColumnParallelLinear::from(&up, &group);
        let down = RowParallelLinear::from(&down, &group);
        let x = x.deep_clone().requires_grad();
        let y = down.forward(&up.forward(&x).tanh()).sum();
        let first = Backward::of(&y).create_graph().wrt(&[&x])?.remove(0);
        let row = Backward::of(&first.at((0, 1))).wrt(&[&x])?.remove(0);
        Ok(row.cast(DType::F64).to_f64_vec())
    });
    for row in all.unwrap() {
        for (a, b) in row.iter().zip(&wanted[4..8]) {
            assert!((a - b).abs() < 1e-12, "{row:?} is not {:?}", &wanted[4..8]);
        }
    }
}

#[test]
fn sizes_that_workers_cannot_share_are_refused() {
    let linear = Linear::new(4, 5);
    let errors = threads(2, |group| {
        let made = pullback::catch(|| ColumnParallelLinear::from(&linear, &group));
        Ok(made.err().unwrap().message().to_string())
    });
    assert!(errors.unwrap()[0].contains("5 rows or columns are not a multiple of 2 workers"));
}
