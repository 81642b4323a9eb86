//! What sharding saves, by the memory report of each worker.

use pullback::{MemoryReport, Result, Tensor};
use pullback_nn::optim::{AdamW, Optimizer, UpdateRule};
use pullback_nn::parallel::{DataParallel, FullSharding, FullySharded, Sharded};
use pullback_nn::{Layer, Linear, Module, memory_report};
use pullback_workers::threads;

const WIDTH: usize = 64;
const WORKERS: usize = 4;
/// The bytes of the parameters of a block.
const ONE: u64 = 4 * (WIDTH * WIDTH + WIDTH) as u64;

fn blocks(count: usize) -> Vec<Linear> {
    (0..count).map(|_| Linear::new(WIDTH, WIDTH)).collect()
}

fn loss<B: Layer>(blocks: &[B], x: &Tensor) -> Tensor {
    blocks.iter().fold(x.clone(), |x, block| block.forward(&x).tanh()).square().mean()
}

/// The report of a step of worker 0, after one that has made the state.
fn measured(stage: usize, count: usize) -> MemoryReport {
    let reports = threads(WORKERS, |group| {
        let x = Tensor::ones([2, WIDTH]);
        if stage == 3 {
            let sharding = FullSharding::new(&group);
            let units = blocks(count).into_iter().map(|block| sharding.shard(block));
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
        let model = blocks(count);
        if stage == 0 {
            let parallel = DataParallel::new(&model, &group)?.bucket_bytes(ONE as usize);
            let optimizer = AdamW::default().over(model.parameters())?;
            let step = || {
                optimizer.zero_grad();
                parallel.backward(&loss(&model, &x))?;
                optimizer.step()
            };
            step()?;
            return Ok(memory_report(&model, &optimizer, step)?.1);
        }
        let sharded = Sharded::new(&model, &group, stage)?.bucket_bytes(ONE as usize);
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

fn total(report: &MemoryReport) -> u64 {
    let alive = &report.peak().alive;
    alive.parameters
        + alive.gradients
        + alive.optimizer_state
        + alive.activations
        + alive.temporaries
}

#[test]
fn each_stage_spreads_more() {
    let [plain, first, second, third] = [0, 1, 2, 3].map(|stage| measured(stage, 8));
    let (whole, part) = (8 * ONE, 8 * ONE / WORKERS as u64);
    assert!(plain.most.optimizer_state >= 2 * whole && plain.most.gradients >= whole);
    // AdamW's two averages, and a count for each of the 16 parameters.
    for sharded in [&first, &second, &third] {
        assert!(sharded.most.optimizer_state <= 2 * part + 16 * 8 + 8);
    }
    for sharded in [&second, &third] {
        assert!(sharded.most.gradients <= part, "{:?}", sharded.most);
    }
    assert_eq!((plain.most.parameters, third.most.parameters), (whole, part));
    let totals = [&plain, &first, &second, &third].map(total);
    assert!(totals.is_sorted_by(|more, less| more > less), "{totals:?}");
}

/// Whole parameters are there for a few blocks at a time, however many there are.
#[test]
fn stage_3_holds_few_whole_blocks() {
    let [few, many] = [8, 24].map(|count| measured(3, count));
    // What is in flight: each worker's part of the gradients of all blocks.
    let more = 16 * ONE / WORKERS as u64;
    let grown = many.most.temporaries.saturating_sub(few.most.temporaries);
    assert!(grown <= more + ONE, "{grown} bytes for 16 more blocks of {ONE}");
}
