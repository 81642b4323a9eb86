//! Trains a small network on handwritten digits, with nothing but tensors: the whole loop in sight.
//!
//! `cargo run --release --example digits`
//!
//! The data (1,797 images of 8×8 pixels, values 0–16 written as letters a–q, then the label) is the Optical
//! Recognition of Handwritten Digits set of the UCI repository, CC BY 4.0, E. Alpaydin and C. Kaynak.

use pullback::{Key, Tensor, Tree, cross_entropy, no_grad};

const DATA: &str = include_str!("digits.txt");
const EPOCHS: usize = 30;
const BATCH: usize = 64;

#[derive(Tree)]
struct Mlp {
    w1: Tensor,
    b1: Tensor,
    w2: Tensor,
    b2: Tensor,
}

impl Mlp {
    fn new(key: &Key, hidden: usize) -> Mlp {
        let keys = key.split_n(2);
        let weight = |key: &Key, rows: usize, columns: usize| {
            let std = (2.0 / rows as f64).sqrt();
            key.normal([rows, columns], pullback::DType::F32, 0.0, std).requires_grad()
        };
        Mlp {
            w1: weight(&keys[0], 64, hidden),
            b1: Tensor::zeros([hidden]).requires_grad(),
            w2: weight(&keys[1], hidden, 10),
            b2: Tensor::zeros([10]).requires_grad(),
        }
    }

    fn forward(&self, x: &Tensor) -> Tensor {
        let hidden = (x.matmul(&self.w1) + &self.b1).relu();
        hidden.matmul(&self.w2) + &self.b2
    }
}

/// Stochastic gradient descent with momentum, in place.
struct Sgd {
    parameters: Vec<Tensor>,
    velocity: Vec<Tensor>,
}

impl Sgd {
    fn new(model: &Mlp) -> Sgd {
        let parameters = model.leaves();
        let velocity = parameters.iter().map(Tensor::zeros_like).collect();
        Sgd { parameters, velocity }
    }

    fn step(&self, rate: f64) {
        no_grad(|| {
            for (p, v) in self.parameters.iter().zip(&self.velocity) {
                if let Some(g) = p.grad() {
                    v.mul_(0.9).add_(&g);
                    p.sub_(&(v * rate));
                    p.zero_grad();
                }
            }
        });
    }
}

fn read_digits() -> (Tensor, Tensor) {
    let (mut pixels, mut labels) = (Vec::new(), Vec::new());
    for line in DATA.lines() {
        let (image, label) = line.split_at(64);
        pixels.extend(image.bytes().map(|b| f32::from(b - b'a') / 16.0));
        labels.extend(label.parse::<i64>());
    }
    let n = labels.len();
    (Tensor::from_vec(pixels, [n, 64]), Tensor::from(labels))
}

fn accuracy(model: &Mlp, x: &Tensor, y: &Tensor) -> f64 {
    let right = no_grad(|| model.forward(x)).argmax(1).eq(y);
    right.sum().item::<i64>() as f64 / y.len() as f64
}

fn main() -> pullback::Result<()> {
    let (x, y) = read_digits();
    let key = Key::new(1);
    // The set is in the order of its writers: shuffle before it is split.
    let order = key.fold_in(1).permutation(y.len());
    let (x, y) = (x.index_select(0, &order), y.index_select(0, &order));
    let (train_x, train_y, test_x, test_y) =
        (x.at(..1437), y.at(..1437), x.at(1437..), y.at(1437..));
    let model = Mlp::new(&key, 128);
    let optimiser = Sgd::new(&model);
    println!("training on {} images, testing on {}", train_y.len(), test_y.len());
    for epoch in 0..EPOCHS {
        let order = key.fold_in(2 + epoch as u64).permutation(train_y.len());
        let mut total = 0.0;
        for batch in order.split(BATCH, 0) {
            let (x, y) = (train_x.index_select(0, &batch), train_y.index_select(0, &batch));
            let loss = cross_entropy(&model.forward(&x), &y);
            loss.backward()?;
            optimiser.step(0.05);
            total += f64::from(loss.item::<f32>()) * batch.len() as f64;
        }
        if (epoch + 1) % 5 == 0 {
            let loss = total / train_y.len() as f64;
            println!(
                "epoch {:2}  loss {loss:.4}  test accuracy {:.1}%",
                epoch + 1,
                100.0 * accuracy(&model, &test_x, &test_y)
            );
        }
    }
    let reached = accuracy(&model, &test_x, &test_y);
    assert!(reached > 0.95, "only {reached} of the test images were recognised");
    Ok(())
}
