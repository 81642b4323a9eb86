//! In f64, N workers are one process with the whole batch, to 1e-12.

use crate::compared::{Cnn, Crew, assert_close, gpt, mlp, normal, values};
use pullback::{Group, Key, Result, Tensor, catch, jit};
use pullback_nn::models::Gpt;
use pullback_nn::optim::{Optimizer, Sgd, UpdateRule};
use pullback_nn::parallel::DataParallel;
use pullback_nn::{Layer, Module, Sequential};

const STEPS: u64 = 4;
const EXAMPLES: usize = 12;

/// The examples of a step: all, or a worker's part.
fn batch(inputs: &Tensor, labels: &Tensor, group: Option<&Group>) -> (Tensor, Tensor) {
    let (rank, size) = group.map_or((0, 1), |group| (group.rank(), group.size()));
    let each = EXAMPLES / size;
    let part = |x: &Tensor| x.narrow(0, (rank * each) as isize, each);
    (part(inputs), part(labels))
}

/// Trains for some steps: whole in one process, or as one of the workers.
fn train<M: Module + Clone>(
    model: &M,
    group: Option<&Group>,
    compiled: bool,
    data: impl Fn(u64) -> (Tensor, Tensor),
    loss: impl Fn(&M, &Tensor, &Tensor) -> Tensor,
) -> Result<Vec<(String, Vec<f64>)>> {
    // Adam divides a gradient by its size: where it is zero but for rounding (of biases before a
    // normalisation, of the keys of attention), the step would be the rounding, made large.
    let optimizer = Sgd { lr: 0.05, momentum: 0.9, ..Sgd::default() }.over(model.parameters())?;
    // Small buckets, so that there are several.
    let parallel = group.map(|group| DataParallel::new(model, group)).transpose()?;
    let parallel = parallel.map(|parallel| parallel.bucket_bytes(256));
    let step = jit(|(x, y): &(Tensor, Tensor)| {
        optimizer.zero_grad();
        let loss = loss(model, x, y);
        match &parallel {
            Some(parallel) => parallel.backward(&loss)?,
            None => loss.backward()?,
        }
        optimizer.step()?;
        Ok(loss)
    });
    for number in 0..STEPS {
        let (x, y) = data(number);
        let batch = batch(&x, &y, group);
        if compiled { step.call(&batch) } else { catch(|| step.eager(&batch)) }?;
    }
    Ok(values(model))
}

/// Compares workers with one process, eagerly and compiled.
fn compare<M: Module + Clone + Sync>(
    what: &str,
    crews: &[Crew],
    model: impl Fn(Option<&Group>) -> M + Sync,
    data: impl Fn(u64) -> (Tensor, Tensor) + Sync,
    loss: impl Fn(&M, &Tensor, &Tensor) -> Tensor + Sync,
) {
    let whole = train(&model(None), None, false, &data, &loss).unwrap();
    for crew in crews {
        for compiled in [false, true] {
            let trained =
                crew.each(|group| train(&model(Some(group)), Some(group), compiled, &data, &loss));
            let what = format!("{what}, {crew:?}, compiled: {compiled}");
            for trained in &trained.unwrap_or_else(|error| panic!("{what}: {error}")) {
                assert_close(&what, trained, &whole, 1e-12);
            }
        }
    }
}

fn labels(number: u64, shape: &[usize], kinds: i64) -> Tensor {
    Key::new(3).fold_in(number).randint(shape, 0, kinds)
}

/// Workers train an MLP as one process does.
pub fn of_mlp(crews: &[Crew]) {
    let start = mlp();
    compare(
        "mlp",
        crews,
        |_| start.deep_copy(),
        |n| (normal(n, &[EXAMPLES, 6]), labels(n, &[EXAMPLES], 3)),
        |model: &Sequential, x, y| pullback::cross_entropy(&model.forward(x), y),
    );
}

/// Workers train a CNN with synchronised batch normalisation as one process does.
pub fn of_cnn(crews: &[Crew]) {
    let start = Cnn::new();
    compare(
        "cnn",
        crews,
        |group| {
            let copy = start.deep_copy();
            match group {
                Some(group) => Cnn { norm: copy.norm.clone().synchronised(group), ..copy },
                None => copy,
            }
        },
        |n| (normal(n, &[EXAMPLES, 1, 6, 6]), labels(n, &[EXAMPLES], 3)),
        |model: &Cnn, x, y| pullback::cross_entropy(&model.forward(x), y),
    );
}

/// Workers train a GPT as one process does.
pub fn of_gpt(crews: &[Crew]) {
    let start = gpt();
    compare(
        "gpt",
        crews,
        |_| start.deep_copy(),
        |n| (labels(n, &[EXAMPLES, 6], 11), labels(n + 50, &[EXAMPLES, 6], 11)),
        |model: &Gpt, x, y| model.loss(x, y),
    );
}
