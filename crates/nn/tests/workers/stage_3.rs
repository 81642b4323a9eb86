//! Units whose parameters are spread: what is gathered when.

use crate::compared::{normal, seeded};
use pullback::{Group, Op, Result, Tensor, jit, no_grad};
use pullback_ir::Collective;
use pullback_nn::optim::{Optimizer, Sgd, UpdateRule};
use pullback_nn::parallel::{FullSharding, FullySharded};
use pullback_nn::{Layer, Linear, Module};
use pullback_workers::threads;

fn blocks(sharding: &FullSharding) -> Result<Vec<FullySharded<Linear>>> {
    (0..3).map(|_| sharding.shard(seeded(&Linear::new(4, 4)))).collect()
}

fn forward(blocks: &[FullySharded<Linear>], x: &Tensor) -> Tensor {
    blocks.iter().fold(x.clone(), |x, block| block.forward(&x).tanh())
}

/// A forward pass alone leaves nothing on its way but what the last block has asked for; a call of
/// one block leaves the next one. If the parts are written then, they are gathered again.
#[test]
fn what_was_gathered_before_a_write_is_gathered_again() {
    let all = threads(2, |group| {
        let sharding = FullSharding::new(&group);
        let blocks = blocks(&sharding)?;
        let x = normal(1, &[2, 4]);
        no_grad(|| {
            // Block 1 is on its way.
            let y = blocks[0].forward(&x);
            blocks[1].parameters().iter().for_each(|part| drop(part.mul_(2.0)));
            Ok((blocks[1].forward(&y).to_f64_vec(), y))
        })
    });
    let plain = seeded(&Linear::new(4, 4));
    for (got, y) in all.unwrap() {
        let wanted = no_grad(|| (plain.forward(&y) * 2.0).to_f64_vec());
        assert!(got.iter().zip(&wanted).all(|(a, b)| (a - b).abs() < 1e-12), "{got:?} {wanted:?}");
    }
}

/// Backward needs the values of the forward pass, which nobody has any more.
#[test]
fn backward_after_a_step_is_refused() {
    let errors = threads(2, |group| {
        let sharding = FullSharding::new(&group);
        let blocks = blocks(&sharding)?;
        let optimizer = Sgd::default().over(blocks.parameters())?;
        let loss = forward(&blocks, &normal(1, &[2, 4])).square().mean();
        sharding.backward(&loss)?;
        let other = forward(&blocks, &normal(2, &[2, 4])).square().mean();
        optimizer.step()?;
        Ok(sharding.backward(&other).unwrap_err().to_string())
    });
    for error in errors.unwrap() {
        assert!(error.contains("was written after the forward pass used it"), "{error}");
        assert!(error.contains("`weight` in unit 2"), "{error}");
    }
}

/// In a compiled program a block is gathered while the one before computes: its gather starts
/// before that block's product, and not earlier than the one before has arrived.
#[test]
fn a_program_gathers_one_block_ahead() {
    let group = Group::alone();
    let sharding = FullSharding::new(&group);
    let blocks = blocks(&sharding).unwrap();
    let compiled = jit(|x: &Tensor| no_grad(|| forward(&blocks, x)));
    let stages = compiled.stages(&normal(1, &[2, 4])).unwrap();
    let (_, program) = stages.iter().find(|(stage, _)| *stage == "overlap").unwrap();
    let word = |e: &pullback_ir::Equation| match &e.op {
        Op::Collective(of) if of.collective == Collective::AllGather => Some("start"),
        Op::Wait => Some("wait"),
        op if op.name().starts_with("dot") => Some("product"),
        _ => None,
    };
    let order: Vec<&str> = program.equations.iter().filter_map(word).collect();
    let wanted =
        ["start", "wait", "start", "product", "wait", "start", "product", "wait", "product"];
    assert_eq!(order, wanted, "{program}");
}
