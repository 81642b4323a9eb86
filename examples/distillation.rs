//! Teacher and student: knowledge distillation with soft targets.
//!
//! `cargo run --release --example distillation`
//!
//! A large network is trained on all labels. A small one then sees 94 labels, but for every image
//! the probabilities that the teacher gives, softened by a temperature. The teacher runs under
//! `no_grad`: nothing of it is recorded or trained.

use pullback::{Reduction, Result, Tensor, cross_entropy, jit, manual_seed, no_grad};
use pullback_nn::data::{DataLoader, TensorDataset, digits};
use pullback_nn::losses::{KlDivLoss, Loss};
use pullback_nn::optim::{AdamW, Optimizer, UpdateRule};
use pullback_nn::{Layer, Linear, Module, Relu};

const TEMPERATURE: f64 = 4.0;
const BATCH: usize = 47;
/// How many labels the students see.
const KNOWN: usize = 2 * BATCH;

type Mlp = (Linear, Relu, Linear);

fn mlp(width: usize) -> Mlp {
    (Linear::new(64, width), Relu, Linear::new(width, 10))
}

/// Trains a model with a loss of its logits, the images and the labels.
fn train(
    model: &Mlp,
    (images, labels): &(Tensor, Tensor),
    epochs: usize,
    loss_of: impl Fn(&Tensor, &Tensor, &Tensor) -> Tensor,
) -> Result<()> {
    let opt = AdamW { lr: 3e-3, ..AdamW::default() }.over(model.parameters())?;
    let step = jit(|(x, y): &(Tensor, Tensor)| {
        opt.zero_grad();
        let loss = loss_of(&model.forward(x), x, y);
        loss.backward()?;
        opt.step()?;
        Ok(loss)
    });
    let data = TensorDataset::new((images.clone(), labels.clone()))?;
    let loader = DataLoader::new(data).batch_size(BATCH).shuffle(0).drop_last(true);
    for _ in 0..epochs {
        for batch in &loader {
            step.call(&batch?)?;
        }
    }
    Ok(())
}

/// What a run gives: fractions of the test images that are recognised.
pub struct Figures {
    /// By the teacher.
    pub teacher: f64,
    /// By a student that has few labels.
    pub alone: f64,
    /// By the same student with those labels and a teacher.
    pub taught: f64,
}

/// Trains the teacher, a student alone and a student with the teacher.
pub fn run(quick: bool) -> Result<Figures> {
    manual_seed(0);
    let digits = digits()?;
    let flat = |(x, y): &(Tensor, Tensor)| (x.flatten(1, -1), y.clone());
    let (train_set, test_set) = (flat(&digits.train), flat(&digits.test));
    let accuracy = |model: &Mlp| {
        let right = no_grad(|| model.forward(&test_set.0)).argmax(1).eq(&test_set.1);
        right.sum().item::<i64>() as f64 / test_set.1.len() as f64
    };
    let epochs = if quick { 30 } else { 100 };

    let teacher = mlp(256);
    train(&teacher, &train_set, epochs, |logits, _, labels| cross_entropy(logits, labels))?;

    // The labels that students see: every other label is −100, which cross-entropy leaves out, as
    // in PyTorch.
    let few = (train_set.0.at(..KNOWN), train_set.1.at(..KNOWN));
    let hidden = Tensor::full([train_set.1.len() - KNOWN], -100i64);
    let mixed = (train_set.0.clone(), pullback::cat(&[&few.1, &hidden], 0));

    // As many steps as the other student: its epochs are shorter.
    let student = mlp(16);
    let twin = student.deep_copy();
    train(&student, &few, epochs * train_set.1.len() / KNOWN, |logits, _, labels| {
        cross_entropy(logits, labels)
    })?;

    let divergence = KlDivLoss::new(Reduction::BatchMean);
    train(&twin, &mixed, epochs, |logits, images, labels| {
        let soft = no_grad(|| (teacher.forward(images) / TEMPERATURE).softmax(-1));
        let ours = (logits / TEMPERATURE).log_softmax(-1);
        // T² makes up for the gradients that the temperature shrinks. A batch may have no label:
        // its mean would be 0/0, so sum.
        let hard = pullback::CrossEntropy::new().reduction(Reduction::Sum).of(logits, labels);
        divergence.forward(&ours, &soft) * (TEMPERATURE * TEMPERATURE) + hard / BATCH as f64
    })?;

    Ok(Figures { teacher: accuracy(&teacher), alone: accuracy(&student), taught: accuracy(&twin) })
}

/// Prints the figures.
pub fn main() -> Result<()> {
    let Figures { teacher, alone, taught } = run(false)?;
    println!("teacher                  {:.1}%", 100.0 * teacher);
    println!("student, 94 labels       {:.1}%", 100.0 * alone);
    println!("student with the teacher {:.1}%", 100.0 * taught);
    Ok(())
}
