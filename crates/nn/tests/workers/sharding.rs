//! Spread optimiser state, gradients and parameters train as plain data parallelism does.

use crate::compared::{assert_close, mlp, normal, seeded};
use pullback::{Group, Result, Tensor, catch, jit};
use pullback_nn::optim::{AdamW, Optimizer, UpdateRule};
use pullback_nn::parallel::{DataParallel, FullSharding, FullySharded, Sharded};
use pullback_nn::precision::{GradScaler, GradScalerOptions};
use pullback_nn::{Layer, Linear, Module, Sequential};
use pullback_workers::threads;

type Values = Vec<(String, Vec<f64>)>;

fn rule() -> AdamW {
    AdamW { lr: 0.05, ..AdamW::default() }
}

fn values(parameters: Vec<(String, Tensor)>) -> Values {
    parameters.into_iter().map(|(name, x)| (name, x.to_f64_vec())).collect()
}

fn part(number: u64, group: &Group) -> Tensor {
    let each = 12 / group.size();
    normal(number, &[12, 6]).narrow(0, (group.rank() * each) as isize, each)
}

/// Four steps of plain data parallelism, with clipping if asked for.
fn plain(start: &Sequential, workers: usize, clip: Option<f64>) -> Vec<Values> {
    let trained = threads(workers, |group| {
        let model = start.deep_copy();
        let optimizer = rule().over(model.parameters())?;
        let parallel = DataParallel::new(&model, &group)?.bucket_bytes(256);
        for number in 0..4 {
            optimizer.zero_grad();
            parallel.backward(&model.forward(&part(number, &group)).square().mean())?;
            if let Some(norm) = clip {
                pullback_nn::optim::clip_grad_norm_(&model.parameters(), norm)?;
            }
            optimizer.step()?;
        }
        Ok(values(model.named_parameters()))
    });
    trained.unwrap()
}

fn sharded(
    start: &Sequential,
    workers: usize,
    stage: usize,
    compiled: bool,
    clip: Option<f64>,
) -> Vec<Values> {
    let trained = threads(workers, |group| {
        let model = start.deep_copy();
        let sharded = Sharded::new(&model, &group, stage)?.bucket_bytes(256);
        let optimizer = rule().over(sharded.parameters())?;
        let step = jit(|x: &Tensor| -> Result<Tensor> {
            sharded.zero_grad();
            let loss = model.forward(x).square().mean();
            sharded.backward(&loss)?;
            if let Some(norm) = clip {
                sharded.clip_grad_norm_(norm)?;
            }
            sharded.step(&optimizer)?;
            Ok(loss)
        });
        for number in 0..4 {
            let x = part(number, &group);
            if compiled { step.call(&x) } else { catch(|| step.eager(&x)) }?;
        }
        if stage == 2 {
            assert!(compiled || model.parameters().iter().all(|x| x.grad().is_none()));
        }
        Ok(values(model.named_parameters()))
    });
    trained.unwrap()
}

#[test]
fn stages_1_and_2_have_the_bits_of_plain_training() {
    let start = mlp();
    for workers in [2, 3] {
        let wanted = plain(&start, workers, None);
        for stage in [1, 2] {
            assert_eq!(sharded(&start, workers, stage, false, None), wanted, "stage {stage}");
            let compiled = sharded(&start, workers, stage, true, None);
            assert_close("compiled", &compiled[0], &wanted[0], 1e-12);
        }
    }
}

#[test]
fn spread_gradients_are_clipped_by_the_norm_of_all() {
    let start = mlp();
    let wanted = plain(&start, 2, Some(0.01));
    for stage in [1, 2] {
        let got = sharded(&start, 2, stage, false, Some(0.01));
        assert_close("clipped", &got[1], &wanted[1], 1e-12);
    }
}

fn blocks() -> Vec<Linear> {
    (0..3).map(|_| seeded(&Linear::new(6, 6))).collect()
}

/// The parameters of all parts, whole.
fn gathered(blocks: &[FullySharded<Linear>]) -> Values {
    let named = |(n, block): (usize, &FullySharded<Linear>)| {
        let whole = block.call(|linear| values(linear.named_parameters()));
        whole.into_iter().map(move |(name, x)| (format!("{n}.{name}"), x))
    };
    pullback::no_grad(|| blocks.iter().enumerate().flat_map(named).collect())
}

#[test]
fn stage_3_trains_as_plain_training_does() {
    let forward = |y: Tensor, block: &dyn Fn(&Tensor) -> Tensor| block(&y).tanh();
    for workers in [2, 3] {
        let wanted = threads(workers, |group| {
            let model = blocks();
            let optimizer = rule().over(model.parameters())?;
            let parallel = DataParallel::new(&model, &group)?;
            for number in 0..4 {
                optimizer.zero_grad();
                let x = part(number, &group);
                let y = model.iter().fold(x, |y, block| forward(y, &|y| block.forward(y)));
                parallel.backward(&y.square().mean())?;
                optimizer.step()?;
            }
            Ok(values(model.named_parameters()))
        });
        for compiled in [false, true] {
            let trained = threads(workers, |group| {
                let sharding = FullSharding::new(&group);
                let model = blocks().into_iter().map(|block| sharding.shard(block));
                let model: Vec<FullySharded<Linear>> = model.collect::<Result<_>>()?;
                assert_eq!(model.parameter_count(), 3 * (36usize.div_ceil(workers) + 6 / workers));
                let optimizer = rule().over(model.parameters())?;
                let step = jit(|x: &Tensor| -> Result<Tensor> {
                    optimizer.zero_grad();
                    let x = x.clone();
                    let y = model.iter().fold(x, |y, block| forward(y, &|y| block.forward(y)));
                    let loss = y.square().mean();
                    sharding.backward(&loss)?;
                    optimizer.step()?;
                    Ok(loss)
                });
                for number in 0..4 {
                    let x = part(number, &group);
                    if compiled { step.call(&x) } else { catch(|| step.eager(&x)) }?;
                }
                Ok(gathered(&model))
            });
            let trained = trained.unwrap_or_else(|e| panic!("compiled {compiled}: {e}"));
            for (got, wanted) in trained.iter().zip(wanted.as_ref().unwrap()) {
                assert_close(&format!("compiled {compiled}"), got, wanted, 1e-12);
            }
        }
    }
}

/// A gradient that overflows in one worker's part alone is skipped by all.
#[test]
fn one_scaler_decides_for_all_parts() {
    let all = threads(2, |group| {
        let model = [Tensor::from([1f32, 1.0]).requires_grad()];
        let sharded = Sharded::new(&model, &group, 2)?;
        let optimizer = rule().over(sharded.parameters())?;
        let scaler = GradScaler::new(GradScalerOptions::default())?.workers(&group);
        let loss = (&model[0] * Tensor::from([1f32, f32::INFINITY])).sum();
        sharded.backward(&scaler.scale(&loss))?;
        scaler.step(&optimizer)?;
        scaler.update()?;
        sharded.gather()?;
        Ok((scaler.skipped()?, model[0].to_vec::<f32>()))
    });
    assert_eq!(all.unwrap(), [(1, vec![1.0, 1.0]), (1, vec![1.0, 1.0])]);
}
