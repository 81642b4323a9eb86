//! What sharding saves, by the memory report of each worker.

use pullback::{MemoryReport, Result, Tensor};
use pullback_nn::optim::{AdamW, Optimizer, UpdateRule};
use pullback_nn::parallel::{DataParallel, FullSharding, FullySharded, Sharded};
use pullback_nn::{Layer, Linear, Module, memory_report};
use pullback_workers::threads;

const BLOCKS: usize = 8;
const WIDTH: usize = 64;
const WORKERS: usize = 4;
/// The bytes of the parameters of all blocks, and of one.
const ALL: usize = BLOCKS * ONE;
const ONE: usize = 4 * (WIDTH * WIDTH + WIDTH);

fn blocks() -> Vec<Linear> {
    (0..BLOCKS).map(|_| Linear::new(WIDTH, WIDTH)).collect()
}

fn loss<B: Layer>(blocks: &[B], x: &Tensor) -> Tensor {
    blocks.iter().fold(x.clone(), |x, block| block.forward(&x).tanh()).square().mean()
}

/// The report of a step of worker 0, after one that has made the state.
fn measured(stage: usize) -> MemoryReport {
    let reports = threads(WORKERS, |group| {
        let x = Tensor::ones([2, WIDTH]);
        if stage == 3 {
            let sharding = FullSharding::new(&group);
            let units = blocks().into_iter().map(|block| sharding.shard(block));
            let units: Vec<FullySharded<Linear>> = units.collect::<Result<_>>()?;
            let optimizer = AdamW::default().over(units.parameters())?;
            let step = || {
                optimizer.zero_grad();
                sharding.backward(&loss(&units, &x))?;
                optimizer.step()
            };
            step()?;
            return Ok(memory_report(&units, &optimizer, step)?.1);
        }
        let model = blocks();
        if stage == 0 {
            let parallel = DataParallel::new(&model, &group)?.bucket_bytes(ONE);
            let optimizer = AdamW::default().over(model.parameters())?;
            let step = || {
                optimizer.zero_grad();
                parallel.backward(&loss(&model, &x))?;
                optimizer.step()
            };
            step()?;
            return Ok(memory_report(&model, &optimizer, step)?.1);
        }
        let sharded = Sharded::new(&model, &group, stage)?.bucket_bytes(ONE);
        let optimizer = AdamW::default().over(sharded.parameters())?;
        let step = || {
            sharded.zero_grad();
            sharded.backward(&loss(&model, &x))?;
            sharded.step(&optimizer)
        };
        step()?;
        Ok(memory_report(&model, &optimizer, step)?.1)
    });
    reports.unwrap().remove(0)
}

#[test]
fn each_stage_takes_less_memory() {
    let reports = [0, 1, 2, 3].map(measured);
    for (stage, report) in reports.iter().enumerate() {
        println!("stage {stage}: {:?} peak {:?}", report.most, report.peak());
    }
}
