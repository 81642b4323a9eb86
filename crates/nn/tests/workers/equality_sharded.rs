//! Spread optimiser state, gradients and parameters train as plain data parallelism does.

use crate::compared::{Crew, assert_close, mlp, normal, seeded};
use pullback::{Group, Result, Tensor, catch, jit};
use pullback_nn::optim::{AdamW, Optimizer, UpdateRule};
use pullback_nn::parallel::{DataParallel, FullSharding, FullySharded, Sharded};
use pullback_nn::{Layer, Linear, Module, Sequential};

pub type Values = Vec<(String, Vec<f64>)>;

pub fn rule() -> AdamW {
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
pub fn plain(start: &Sequential, crew: &Crew, clip: Option<f64>) -> Vec<Values> {
    let trained = crew.each(|group| {
        let model = start.deep_copy();
        let optimizer = rule().over(model.parameters())?;
        let parallel = DataParallel::new(&model, group)?.bucket_bytes(256);
        for number in 0..4 {
            optimizer.zero_grad();
            parallel.backward(&model.forward(&part(number, group)).square().mean())?;
            if let Some(norm) = clip {
                pullback_nn::optim::clip_grad_norm_(&model.parameters(), norm)?;
            }
            optimizer.step()?;
        }
        Ok(values(model.named_parameters()))
    });
    trained.unwrap()
}

pub fn sharded(
    start: &Sequential,
    crew: &Crew,
    stage: usize,
    compiled: bool,
    clip: Option<f64>,
) -> Vec<Values> {
    let trained = crew.each(|group| {
        let model = start.deep_copy();
        let sharded = Sharded::new(&model, group, stage)?.bucket_bytes(256);
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
            let x = part(number, group);
            if compiled { step.call(&x) } else { catch(|| step.eager(&x)) }?;
        }
        if stage == 2 {
            assert!(compiled || model.parameters().iter().all(|x| x.grad().is_none()));
        }
        Ok(values(model.named_parameters()))
    });
    trained.unwrap()
}

/// Stages 1 and 2 have the bits of plain training.
pub fn of_stages_1_and_2(crew: &Crew) {
    let start = mlp();
    let wanted = plain(&start, crew, None);
    for stage in [1, 2] {
        assert_eq!(sharded(&start, crew, stage, false, None), wanted, "stage {stage}");
        let compiled = sharded(&start, crew, stage, true, None);
        assert_close("compiled", &compiled[0], &wanted[0], 1e-12);
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

/// Stage 3 trains as plain training does.
pub fn of_stage_3(crew: &Crew) {
    let forward = |y: Tensor, block: &dyn Fn(&Tensor) -> Tensor| block(&y).tanh();
    let wanted = crew.each(|group| {
        let model = blocks();
        let optimizer = rule().over(model.parameters())?;
        let parallel = DataParallel::new(&model, group)?;
        for number in 0..4 {
            optimizer.zero_grad();
            let x = part(number, group);
            let y = model.iter().fold(x, |y, block| forward(y, &|y| block.forward(y)));
            parallel.backward(&y.square().mean())?;
            optimizer.step()?;
        }
        Ok(values(model.named_parameters()))
    });
    for compiled in [false, true] {
        let trained = crew.each(|group| {
            let workers = group.size();
            let sharding = FullSharding::new(group);
            let model = blocks().into_iter().map(|block| sharding.shard(block));
            let model: Vec<FullySharded<Linear>> = model.collect::<Result<_>>()?;
            let each = 36usize.div_ceil(workers) + 6usize.div_ceil(workers);
            assert_eq!(model.parameter_count(), 3 * each);
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
                let x = part(number, group);
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
