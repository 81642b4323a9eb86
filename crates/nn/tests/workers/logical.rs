//! The same bits for any number of workers.

use crate::compared::{mlp, normal};
use pullback::{DType, Key, Result, Tensor, catch, jit};
use pullback_nn::optim::{AdamW, Optimizer, UpdateRule};
use pullback_nn::parallel::DataParallel;
use pullback_nn::{BatchNorm1d, Layer, Linear, Module, Relu, Sequential};
use pullback_workers::threads;

/// The bits of parameters and buffers after 50 steps with 8 logical workers.
fn bits(
    start: &Sequential,
    workers: usize,
    compiled: bool,
    total: impl Fn(u64) -> usize + Sync,
) -> Vec<Vec<u32>> {
    let trained = threads(workers, |group| {
        let model = start.deep_copy();
        let optimizer = AdamW { lr: 0.01, ..AdamW::default() }.over(model.parameters())?;
        let parallel = DataParallel::new(&model, &group)?.bucket_bytes(128).logical_workers(8)?;
        let step = jit(|(x, y): &(Tensor, Tensor)| -> Result<Tensor> {
            optimizer.zero_grad();
            let loss = parallel.backward_parts(x.shape()[0], |examples| {
                let part = |x: &Tensor| x.narrow(0, examples.start as isize, examples.len());
                catch(|| pullback::cross_entropy(&model.forward(&part(x)), &part(y)))
            })?;
            optimizer.step()?;
            Ok(loss)
        });
        let mut losses = Vec::new();
        for number in 0..50 {
            let examples = total(number);
            let x = normal(number, &[examples, 6]).cast(DType::F32);
            let y = Key::new(3).fold_in(number).randint([examples], 0, 3);
            let batch = (x, y);
            let loss = if compiled { step.call(&batch) } else { catch(|| step.eager(&batch)) }?;
            losses.push(loss.item::<f32>().to_bits());
        }
        let state = model.named_state().into_iter().map(|(_, x)| x.cast(DType::F32));
        let state = state.map(|x| x.to_vec::<f32>().into_iter().map(f32::to_bits).collect());
        Ok(state.chain([losses]).collect::<Vec<Vec<u32>>>())
    });
    let mut trained = trained.unwrap();
    let first = trained.remove(0);
    assert!(trained.iter().all(|other| *other == first), "workers differ");
    first
}

#[test]
fn any_number_of_workers_gives_the_same_bits() {
    let start = mlp().to_dtype(DType::F32);
    let one = bits(&start, 1, false, |_| 16);
    for workers in [2, 4, 8] {
        assert!(bits(&start, workers, false, |_| 16) == one, "{workers} workers differ from one");
    }
}

#[test]
fn any_number_of_workers_gives_the_same_bits_compiled() {
    let start = mlp().to_dtype(DType::F32);
    let one = bits(&start, 1, true, |_| 16);
    for workers in [2, 8] {
        assert!(bits(&start, workers, true, |_| 16) == one, "{workers} workers differ from one");
    }
}

/// Parts of different sizes, and parts without examples.
#[test]
fn uneven_parts_give_the_same_bits() {
    let start = mlp().to_dtype(DType::F32);
    let total = |number: u64| if number % 5 == 4 { 5 } else { 19 };
    let one = bits(&start, 1, false, total);
    for workers in [2, 8] {
        assert!(bits(&start, workers, false, total) == one, "{workers} workers differ from one");
    }
}

#[test]
fn running_statistics_have_the_same_bits() {
    let start = Sequential::new()
        .then(Linear::new(6, 8))
        .then(BatchNorm1d::new(8))
        .then(Relu)
        .then(Linear::new(8, 3));
    let start = crate::compared::seeded(&start).to_dtype(DType::F32);
    let total = |number: u64| if number % 5 == 4 { 19 } else { 16 };
    let one = bits(&start, 1, false, total);
    for workers in [2, 8] {
        assert!(bits(&start, workers, false, total) == one, "{workers} workers differ from one");
    }
}

#[test]
fn numbers_that_are_no_powers_of_two_are_refused() {
    let errors = threads(3, |group| {
        let model = [Tensor::from(1.0).requires_grad()];
        Ok(DataParallel::new(&model, &group)?.logical_workers(8).err().unwrap().to_string())
    });
    assert!(errors.unwrap()[2].contains("8 logical workers cannot be divided among 3"));
}
