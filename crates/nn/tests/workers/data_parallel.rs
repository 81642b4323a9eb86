//! What `DataParallel` does besides the mean: buckets, accumulation, what is refused.

use crate::compared::{assert_close, mlp, normal, values};
use pullback::{DType, Result, Tensor, Tree, jit, no_grad};
use pullback_nn::optim::{Optimizer, Sgd, UpdateRule, clip_grad_norm_};
use pullback_nn::parallel::DataParallel;
use pullback_nn::precision::{GradScaler, GradScalerOptions};
use pullback_nn::{BatchNorm1d, Layer, Linear, Module, Sequential};
use pullback_workers::threads;

fn grads(model: &impl Module) -> Vec<(String, Vec<f64>)> {
    let grad = |x: Tensor| x.grad().map(|grad| grad.to_f64_vec()).unwrap_or_default();
    model.named_parameters().into_iter().map(|(name, x)| (name, grad(x))).collect()
}

fn loss(model: &Sequential, x: &Tensor) -> Tensor {
    model.forward(x).square().mean()
}

/// The gradients of one process on these examples.
fn whole(model: &Sequential, x: &Tensor) -> Vec<(String, Vec<f64>)> {
    let model = model.deep_copy();
    loss(&model, x).backward().unwrap();
    grads(&model)
}

#[test]
fn parameters_and_buffers_are_those_of_worker_0() {
    let state = threads(3, |group| {
        let model = (Linear::new(2, 2), BatchNorm1d::new(2));
        no_grad(|| {
            model.0.weight.fill_(group.rank() as f32);
            model.1.running_mean.as_ref().unwrap().fill_(group.rank() as f32);
        });
        let _parallel = DataParallel::new(&model, &group)?;
        Ok(values(&model))
    });
    let state = state.unwrap();
    assert_eq!(state[0], state[2]);
    assert_eq!((state[2][0].0.as_str(), &state[2][0].1[..]), ("0.weight", &[0.0; 4][..]));
}

#[test]
fn models_that_differ_are_refused_on_all_workers_with_the_first_difference() {
    let errors = threads(3, |group| {
        let outputs = if group.rank() == 2 { 5 } else { 4 };
        let model = (Linear::new(2, 3), Linear::new(3, outputs));
        Ok(DataParallel::new(&model, &group).err().unwrap().message().to_string())
    });
    let expected = "models differ between workers: number 2 is `1.weight f32[4,3]` on worker 0 and \
                    `1.weight f32[5,3]` on worker 2";
    assert_eq!(errors.unwrap(), [expected; 3]);
}

/// The first pass has buckets in the reversed order of declaration, later ones in the order in
/// which gradients came.
#[test]
fn buckets_follow_the_order_in_which_gradients_become_ready() {
    #[derive(Tree)]
    struct Crossed {
        used_last: Tensor,
        used_first: Tensor,
    }
    let buckets = threads(2, |group| {
        let leaf = || Tensor::from([1.0, 2.0]).requires_grad();
        let model = Crossed { used_last: leaf(), used_first: leaf() };
        let parallel = DataParallel::new(&model, &group)?.bucket_bytes(1);
        let before = parallel.buckets();
        for _ in 0..2 {
            model.zero_grad();
            let y = (&model.used_first * 2.0).sin();
            parallel.backward(&(y * &model.used_last).sum())?;
        }
        Ok((before, parallel.buckets()))
    });
    let (before, after) = buckets.unwrap().remove(1);
    assert_eq!(before, [["used_first"], ["used_last"]]);
    assert_eq!(after, [["used_last"], ["used_first"]]);
}

#[test]
fn gradients_accumulate_without_communication() {
    let (start, x) = (mlp(), normal(1, &[8, 6]));
    let wanted = whole(&start, &x);
    let all = threads(2, |group| {
        let model = start.deep_copy();
        let parallel = DataParallel::new(&model, &group)?.bucket_bytes(64);
        let part = |n: usize| x.narrow(0, (4 * group.rank() + 2 * n) as isize, 2);
        parallel.no_sync(|| parallel.backward(&(loss(&model, &part(0)) / 2.0)))?;
        let alone = grads(&model);
        parallel.backward(&(loss(&model, &part(1)) / 2.0))?;
        Ok((alone, grads(&model)))
    });
    let all = all.unwrap();
    assert_ne!(all[0].0, all[1].0, "inside no_sync gradients are each worker's own");
    all.iter().for_each(|(_, grads)| assert_close("accumulated", grads, &wanted, 1e-13));
}

/// What got a gradient inside `no_sync` alone is reduced with the others, and is not unused.
#[test]
fn accumulated_gradients_of_what_the_last_batch_does_not_use_are_kept() {
    for compiled in [false, true] {
        let all = threads(2, |group| {
            let model = [Tensor::from(1.0).requires_grad(), Tensor::from(1.0).requires_grad()];
            let parallel = DataParallel::new(&model, &group)?;
            let rank = Tensor::from(group.rank() as f64);
            let step = jit(|rank: &Tensor| -> Result<Tensor> {
                model.zero_grad();
                let both = (&model[0] + &model[1] * 3.0) * rank;
                parallel.no_sync(|| parallel.backward(&both))?;
                let one = &model[0] * rank;
                parallel.backward(&one)?;
                Ok(one)
            });
            if compiled { step.call(&rank) } else { Ok(step.eager(&rank)) }?;
            Ok(model.iter().map(|x| x.grad().unwrap().item::<f64>()).collect::<Vec<_>>())
        });
        assert_eq!(all.unwrap(), [[1.0, 1.5], [1.0, 1.5]], "compiled: {compiled}");
    }
}

#[test]
fn uneven_batches_are_weighted_by_their_examples() {
    let (start, x) = (mlp(), normal(1, &[8, 6]));
    let wanted = whole(&start, &x);
    for compiled in [false, true] {
        let all = threads(3, |group| {
            let model = start.deep_copy();
            let parallel = DataParallel::new(&model, &group)?;
            let own = parallel.share(8);
            let part = x.narrow(0, own.start as isize, own.len());
            let step = jit(|x: &Tensor| -> Result<Tensor> {
                model.zero_grad();
                let loss = loss(&model, x);
                parallel.backward_weighted(&loss, x.shape()[0])?;
                Ok(loss)
            });
            if compiled { step.call(&part) } else { Ok(step.eager(&part)) }?;
            Ok(grads(&model))
        });
        all.unwrap().iter().for_each(|grads| assert_close("uneven", grads, &wanted, 1e-13));
    }
}

/// Losses of workers with different numbers of examples meet in the statistics.
#[test]
fn synchronised_batch_norm_takes_uneven_batches() {
    let x = normal(5, &[7, 3]) * 2.0 + 1.0;
    let make = || BatchNorm1d::new(3).to_dtype(DType::F64);
    let model = make();
    (model.forward(&x).sin() * &x).mean().backward().unwrap();
    let (wanted, state) = (grads(&model), values(&model));
    let all = threads(3, |group| {
        let model = make().synchronised(&group);
        let parallel = DataParallel::new(&model, &group)?;
        let own = parallel.share(7);
        let x = x.narrow(0, own.start as isize, own.len());
        parallel.backward_weighted(&(model.forward(&x).sin() * &x).mean(), own.len())?;
        Ok((grads(&model), values(&model)))
    });
    for (grads, values) in all.unwrap() {
        assert_close("gradients", &grads, &wanted, 1e-13);
        assert_close("state", &values, &state, 1e-13);
    }
}

#[test]
fn unused_parameters_are_named_on_all_workers() {
    let model = || (Linear::new(2, 2), Linear::new(2, 2));
    let errors = threads(2, |group| {
        let model = model();
        let parallel = DataParallel::new(&model, &group)?;
        let y = model.0.forward(&Tensor::ones([1, 2]));
        let y = if group.rank() == 0 { model.1.forward(&y) } else { y };
        Ok(parallel.backward(&y.sum()).unwrap_err().message().to_string())
    });
    let expected = "parameters got no gradient: `1.weight`, `1.bias` on worker 1";
    assert_eq!(errors.unwrap(), [expected; 2]);

    let unused = threads(2, |group| {
        let model = model();
        let parallel = DataParallel::new(&model, &group)?.allow_unused(true);
        parallel.backward(&model.0.forward(&Tensor::ones([1, 2])).sum())?;
        Ok(model.1.weight.grad().is_none() && model.0.weight.grad().is_some())
    });
    assert_eq!(unused.unwrap(), [true, true]);
}

#[test]
fn a_second_backward_before_finish_is_an_error() {
    let errors = threads(2, |group| {
        let model = [Tensor::from(1.0).requires_grad()];
        let parallel = DataParallel::new(&model, &group)?;
        (&model[0] * 2.0).backward()?;
        (&model[0] * 2.0).backward()?;
        Ok(parallel.finish().unwrap_err().message().to_string())
    });
    assert!(errors.unwrap()[0].contains("`0` got a gradient twice"));
}

#[test]
fn compressed_buckets_are_near() {
    let (start, x) = (mlp().to_dtype(DType::F32), normal(1, &[8, 6]).cast(DType::F32));
    let wanted = whole(&start, &x);
    let all = threads(2, |group| {
        let model = start.deep_copy();
        let parallel = DataParallel::new(&model, &group)?.compress(DType::BF16)?;
        let part = x.narrow(0, 4 * group.rank() as isize, 4);
        parallel.backward(&loss(&model, &part))?;
        Ok((grads(&model), parallel.schedule().unwrap().buckets[0].bytes))
    });
    for (grads, bytes) in all.unwrap() {
        assert_close("bf16", &grads, &wanted, 1e-2);
        assert_ne!(grads, wanted);
        assert_eq!(bytes, 2 * (6 * 16 + 16 + 16 * 3 + 3 + 1));
    }
}

#[test]
fn clipping_sees_the_norm_of_all_workers() {
    let (start, x) = (mlp(), normal(1, &[8, 6]) * 10.0);
    let model = start.deep_copy();
    loss(&model, &x).backward().unwrap();
    let norm = clip_grad_norm_(&model.parameters(), 0.1).unwrap().item::<f64>();
    let wanted = grads(&model);
    let all = threads(4, |group| {
        let model = start.deep_copy();
        let parallel = DataParallel::new(&model, &group)?;
        parallel.backward(&loss(&model, &x.narrow(0, 2 * group.rank() as isize, 2)))?;
        Ok((clip_grad_norm_(&model.parameters(), 0.1)?.item::<f64>(), grads(&model)))
    });
    for (own, grads) in all.unwrap() {
        assert!((own - norm).abs() < 1e-12 * norm);
        assert_close("clipped", &grads, &wanted, 1e-12);
    }
}

/// A gradient that overflows on one worker is skipped by all.
#[test]
fn the_scaler_decides_for_all_workers() {
    let all = threads(2, |group| {
        let model = [Tensor::from(1f32).requires_grad()];
        let optimizer = Sgd { lr: 0.5, ..Sgd::default() }.over(model.clone())?;
        let options = GradScalerOptions { init_scale: 4.0, ..GradScalerOptions::default() };
        let scaler = GradScaler::new(options)?;
        let parallel = DataParallel::new(&model, &group)?;
        let mut seen = Vec::new();
        for number in 0..2 {
            optimizer.zero_grad();
            let infinite = number == 0 && group.rank() == 1;
            let loss = &model[0] * if infinite { f32::INFINITY } else { 1.0 };
            parallel.backward(&scaler.scale(&loss))?;
            scaler.step(&optimizer)?;
            scaler.update()?;
            seen.push((model[0].item::<f32>(), scaler.current()?, scaler.skipped()?));
        }
        Ok(seen)
    });
    assert_eq!(all.unwrap(), [[(1.0, 2.0, 1), (0.5, 2.0, 1)], [(1.0, 2.0, 1), (0.5, 2.0, 1)]]);
}

#[test]
fn dropping_it_removes_its_hooks() {
    let all = threads(2, |group| {
        let model = [Tensor::from(1.0).requires_grad()];
        drop(DataParallel::new(&model, &group)?);
        (&model[0] * group.rank() as f64).backward()?;
        Ok(model[0].grad().unwrap().item::<f64>())
    });
    assert_eq!(all.unwrap(), [0.0, 1.0]);
}
