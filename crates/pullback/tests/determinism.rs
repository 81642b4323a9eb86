//! The same bits for any number of threads: not of one op, but after several steps of training.

use pullback::{DType, Key, Tensor, cat, cross_entropy, no_grad, with_threads};

/// An embedding, two hidden layers with layer norm, and a classifier, with sizes that fit no block
/// evenly.
struct Model {
    embedding: Tensor,
    layers: Vec<[Tensor; 4]>,
    head: [Tensor; 2],
}

const WORDS: usize = 211;
const CONTEXT: usize = 3;
const WIDTH: usize = 67;
const HIDDEN: usize = 301;
const CLASSES: usize = 37;
const BATCH: usize = 173;
const STEPS: usize = 6;

impl Model {
    fn new(key: &Key, dtype: DType) -> Model {
        let keys = key.split_n(4);
        let weight = |key: &Key, rows: usize, columns: usize| {
            key.normal([rows, columns], dtype, 0.0, (rows as f64).powf(-0.5)).requires_grad()
        };
        let layer = |key: &Key, rows: usize| {
            let w = weight(key, rows, HIDDEN);
            let zeros = || Tensor::zeros_with([HIDDEN], dtype).requires_grad();
            [w, zeros(), Tensor::ones_with([HIDDEN], dtype).requires_grad(), zeros()]
        };
        Model {
            embedding: weight(&keys[0], WORDS, WIDTH),
            layers: vec![layer(&keys[1], CONTEXT * WIDTH), layer(&keys[2], HIDDEN)],
            head: [
                weight(&keys[3], HIDDEN, CLASSES),
                Tensor::zeros_with([CLASSES], dtype).requires_grad(),
            ],
        }
    }

    fn parameters(&self) -> Vec<&Tensor> {
        let layers = self.layers.iter().flatten();
        [&self.embedding].into_iter().chain(layers).chain(&self.head).collect()
    }

    fn logits(&self, words: &Tensor) -> Tensor {
        // One lookup for each place of the context, so that rows of the embedding are hit many
        // times.
        let looked = |place: isize| self.embedding.index_select(0, &words.select_at(1, place));
        let parts: Vec<Tensor> = (0..CONTEXT as isize).map(looked).collect();
        let mut x = cat(&parts.iter().collect::<Vec<_>>(), 1);
        for ([w, b, gain, bias], k) in self.layers.iter().zip(0..) {
            x = (x.matmul(w) + b).layer_norm(gain, bias, 1e-5);
            x = if k == 0 { x.gelu() } else { x.tanh() };
        }
        x.matmul(&self.head[0]) + &self.head[1]
    }
}

/// The bits of every loss, gradient and parameter of a short training.
fn train(dtype: DType) -> Vec<Vec<u64>> {
    let key = Key::new(42);
    let (model_key, data_key) = key.split();
    let model = Model::new(&model_key, dtype);
    let momentum: Vec<Tensor> =
        model.parameters().iter().map(|p| no_grad(|| p.zeros_like())).collect();
    let mut seen = Vec::new();
    for step in 0..STEPS {
        let (words, classes) = data_key.fold_in(step as u64).split();
        let words = words.randint([BATCH, CONTEXT], 0, WORDS as i64);
        let classes = classes.randint([BATCH], 0, CLASSES as i64);
        let loss = cross_entropy(&model.logits(&words), &classes);
        loss.backward().unwrap();
        seen.push(bits(&loss));
        for (p, m) in model.parameters().into_iter().zip(&momentum) {
            let grad = p.grad().unwrap();
            seen.push(bits(&grad));
            no_grad(|| {
                m.mul_(0.9).add_(&grad);
                p.sub_(&(m * 0.1));
            });
            p.zero_grad();
        }
    }
    seen.extend(model.parameters().into_iter().map(bits));
    seen
}

fn bits(x: &Tensor) -> Vec<u64> {
    x.to_f64_vec().into_iter().map(f64::to_bits).collect()
}

#[test]
fn training_gives_the_same_bits_for_any_number_of_threads() {
    for dtype in [DType::F32, DType::F64, DType::BF16] {
        let one = with_threads(1, || train(dtype));
        let first = f64::from_bits(one[0][0]);
        assert!(first.is_finite() && first > 1.0, "{dtype}: the loss starts at {first}");
        for n in [2, 8] {
            let many = with_threads(n, || train(dtype));
            assert_eq!(one.len(), many.len());
            let differ: Vec<usize> = (0..one.len()).filter(|&i| one[i] != many[i]).collect();
            assert!(
                differ.is_empty(),
                "{dtype}, {n} threads: values {differ:?} of {} differ",
                one.len()
            );
        }
    }
}

#[test]
fn training_again_gives_the_same_bits() {
    assert_eq!(train(DType::F32), train(DType::F32));
}

/// Attention-like work: batched products, softmax, masks and reductions over several axes.
#[test]
fn attention_gives_the_same_bits_for_any_number_of_threads() {
    let run = || {
        let keys = Key::new(5).split_n(3);
        let [q, k, v] = [0, 1, 2]
            .map(|i: usize| keys[i].normal([5, 131, 47], DType::F32, 0.0, 1.0).requires_grad());
        let scores = q.matmul(&k.transpose(-1, -2)) / (47.0f64).sqrt();
        let places = Tensor::arange(0, 131);
        let ahead = places.reshape([1, 131]).gt(places.reshape([131, 1]));
        let weights =
            scores.masked_fill(&ahead.expand([5, 131, 131]), f64::NEG_INFINITY).softmax(-1);
        let out = weights.matmul(&v);
        let loss = out.square().mean()
            + weights.max_over(-1).sum()
            + out.logsumexp_over([0, 2]).sum()
            + out.cumsum(1).var();
        loss.backward().unwrap();
        let mut all = vec![bits(&loss)];
        all.extend([&q, &k, &v].map(|x| bits(&x.grad().unwrap())));
        assert!(all.iter().flatten().all(|&b| f64::from_bits(b).is_finite()));
        all
    };
    let one = with_threads(1, run);
    assert!(with_threads(2, run) == one && with_threads(8, run) == one);
}
