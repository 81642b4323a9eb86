//! Gradients that were recorded and stored lead back to their leaves: all of it is freed with the
//! leaf.

use pullback::{Backward, Tensor, checkpoint, grad, memory_stats};
use std::sync::{Mutex, PoisonError};

/// The pool's counters are everybody's: one test at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn live() -> u64 {
    memory_stats().live_bytes
}

fn leaf() -> Tensor {
    Tensor::full([64, 64], 0.5f64).requires_grad()
}

#[test]
fn what_create_graph_stores_is_freed() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    // The generator of random numbers, which a checkpoint looks at, is there for good.
    drop(pullback::random_state());
    let start = live();
    for _ in 0..5 {
        let x = leaf();
        Backward::of(&x.exp().sin().sum()).create_graph().run().unwrap();
        assert!(x.grad().unwrap().is_tracked());
    }
    assert_eq!(live(), start, "a leaf and its gradient");

    // Two leaves, each in the gradient of the other.
    {
        let (x, w) = (leaf(), leaf());
        let loss = (&x * &w).exp().sum();
        Backward::of(&loss).create_graph().run().unwrap();
        drop(x);
        // What is left of it can still be gone through.
        Backward::of(&w.grad().unwrap().sum()).create_graph().run().unwrap();
    }
    assert_eq!(live(), start, "two leaves");

    // The leaf is gone before the pass: nothing can read its gradient.
    {
        let y = leaf().exp().sum();
        Backward::of(&y).create_graph().run().unwrap();
    }
    assert_eq!(live(), start, "a leaf that was gone");

    // A second pass over the gradients, added to them.
    {
        let x = leaf();
        Backward::of(&x.exp().sum()).create_graph().run().unwrap();
        Backward::of(&x.grad().unwrap().square().sum()).create_graph().run().unwrap();
    }
    assert_eq!(live(), start, "gradients of gradients");

    // Frozen, it forgets its gradient.
    let x = leaf();
    Backward::of(&x.exp().sum()).create_graph().run().unwrap();
    x.set_requires_grad(false);
    assert_eq!(live(), start + 64 * 64 * 8, "a frozen leaf");
    drop(x);

    // The arguments of transforms and of checkpointed functions.
    {
        let x = leaf();
        let inner = |x: &Tensor| {
            Backward::of(&x.exp().sum()).create_graph().run().unwrap();
            (x * 2.0).sum()
        };
        drop(grad(inner)(&Tensor::full([64, 64], 0.5f64)));
        let y = checkpoint(|x: &Tensor| x.exp().sin(), &x).sum();
        Backward::of(&y).create_graph().run().unwrap();
    }
    assert_eq!(live(), start, "arguments");
}

/// Handles that are the same leaf keep its gradient, however they came about.
#[test]
fn a_leaf_is_kept_by_any_handle() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let x = Tensor::from(2.0).requires_grad();
    let other = x.clone();
    (&x * 3.0).backward().unwrap();
    drop(x);
    assert_eq!(other.grad().unwrap().item::<f64>(), 3.0);
    let same = (other.clone(), 0).0;
    drop(other);
    (&same * 2.0).backward().unwrap();
    assert_eq!(same.grad().unwrap().item::<f64>(), 5.0);
}
