//! What a backward pass gives is a constant to every derivative outside of it, unless the pass is
//! recorded, in both modes and wherever it is.

use crate::no_grad::{F, all, check, everywhere, x};
use pullback::{Backward, Tensor, grad, grad_of, jit, jvp, no_grad, scan, vmap};
use std::sync::{Arc, Mutex};

/// p²·r, whose gradient by p is 2pr, and a leaf p that is r.
fn cubic(r: &Tensor) -> (Tensor, Tensor) {
    let p = r.detach().requires_grad();
    ((p.square() * r).sum(), p)
}

/// A backward pass that leaves the graph of r to who differentiates outside.
fn pass(y: &Tensor) {
    Backward::of(y).retain_graph().run().unwrap();
}

/// 2r² held, times r.
const HELD: ([f64; 3], [f64; 3]) = ([2.0, 8.0, 18.0], [0.0; 3]);
/// 2pr·r, where p alone is held.
const PASSED: ([f64; 3], [f64; 3]) = ([4.0, 16.0, 36.0], [4.0, 8.0, 12.0]);

fn held(f: F) {
    check(f, HELD.0, HELD.1);
}

fn passed(f: F) {
    check(f, PASSED.0, PASSED.1);
}

#[test]
fn gradients_of_tensors_are_constants() {
    held(|r| {
        let (y, p) = cubic(r);
        grad_of(&[&y], &[&p], &[]).unwrap().remove(0) * r
    });
    passed(|r| {
        let (y, p) = cubic(r);
        Backward::of(&y).create_graph().wrt(&[&p]).unwrap().remove(0) * r
    });
    // The cotangent itself, which is the gradient.
    held(|r| {
        let p = r.detach().requires_grad();
        let dy = r.square() * 2.0;
        grad_of(&[&(&p + 1.0)], &[&p], &[&dy]).unwrap().remove(0) * r
    });
    // Of a value that is not a leaf.
    held(|r| {
        let p = r.detach().requires_grad() * 1.0;
        let y = (p.square() * r).sum();
        Backward::of(&y).retain_graph().wrt(&[&p]).unwrap().remove(0) * r
    });
}

#[test]
fn gradients_of_leaves_are_constants() {
    held(|r| {
        let (y, p) = cubic(r);
        pass(&y);
        p.grad().unwrap() * r
    });
    passed(|r| {
        let (y, p) = cubic(r);
        Backward::of(&y).create_graph().run().unwrap();
        let g = p.grad().unwrap();
        p.zero_grad();
        g * r
    });
    held(|r| {
        let p = r.detach().requires_grad();
        let dy = r.square() * 2.0;
        (&p + 1.0).backward_with(&dy).unwrap();
        p.grad().unwrap() * r
    });
    // In two parts, the first of which is recorded: the sum is not.
    held(|r| {
        let (y, p) = cubic(r);
        let half = y * 0.5;
        Backward::of(&half).create_graph().run().unwrap();
        pass(&half);
        p.grad().unwrap() * r
    });
    // And recorded after one that is not: half of it passes.
    check(
        |r| {
            let (y, p) = cubic(r);
            let half = y * 0.5;
            pass(&half);
            Backward::of(&half).create_graph().run().unwrap();
            let g = p.grad().unwrap();
            p.zero_grad();
            g * r
        },
        [3.0, 12.0, 27.0],
        [2.0, 4.0, 6.0],
    );
}

#[test]
fn a_gradient_may_be_written_to() {
    held(|r| {
        let (y, p) = cubic(r);
        pass(&y);
        no_grad(|| p.grad().unwrap().mul_(0.5));
        p.grad().unwrap() * r * 2.0
    });
    held(|r| {
        let (y, p) = cubic(r);
        let g = grad_of(&[&y], &[&p], &[]).unwrap().remove(0);
        g.mul_(0.5);
        g * r * 2.0
    });
}

#[test]
fn hooks_see_constants() {
    // What a hook was given, times r.
    fn seen(r: &Tensor, on: impl Fn(&Tensor, &Tensor) -> Tensor) -> Tensor {
        let p = r.detach().requires_grad();
        let h = &p * 1.0;
        let y = (h.square() * r).sum();
        let kept: Arc<Mutex<Option<Tensor>>> = Arc::default();
        let slot = kept.clone();
        on(&p, &h).register_hook(move |g| {
            *slot.lock().unwrap() = Some(g.clone());
            None
        });
        pass(&y);
        let kept = kept.lock().unwrap().take().unwrap();
        kept * r
    }
    held(|r| seen(r, |p, _| p.clone()));
    held(|r| seen(r, |_, h| h.clone()));
    // What a hook gives is part of the gradient, and as constant.
    held(|r| {
        let p = r.detach().requires_grad();
        let factor = r.clone();
        p.register_hook(move |g| Some(pullback::enable_grad(|| g * &factor)));
        pass(&p.square().sum());
        p.grad().unwrap() * r
    });
}

#[test]
fn derivatives_by_transforms_pass() {
    passed(|r| {
        let p = r.detach();
        grad(|p: &Tensor| (p.square() * r).sum())(&p) * r
    });
    // A backward pass inside what is differentiated inside: a constant to both.
    for (name, f) in everywhere(|r| {
        let inner = |r: &Tensor| {
            let (y, p) = cubic(r);
            pass(&y);
            (p.grad().unwrap() * r).sum()
        };
        grad(inner)(r) * r
    }) {
        // 2r² by the inner derivative; that of its product with r.
        all(name, &grad(|x: &Tensor| f(x).sum())(&x()), &HELD.0);
        all(name, &jvp(|x: &Tensor| f(x), &x(), &x().ones_like()).1, &HELD.0);
    }
}

/// In a compiled program a constant costs nothing: it has no more equations than one with a
/// gradient that may be differentiated, and no copy.
#[test]
fn constants_cost_nothing_compiled() {
    let iteration = |create: bool| {
        move |s: &Tensor, x: &Tensor| {
            let p = s.detach().requires_grad();
            let y = (p.tanh() * x).square().sum();
            match create {
                true => Backward::of(&y).create_graph().run().unwrap(),
                false => y.backward().unwrap(),
            }
            let g = p.grad().unwrap();
            p.zero_grad();
            (s - g * 0.1, ())
        }
    };
    let text = |create: bool| {
        let go = move |xs: &Tensor| scan(iteration(create), &Tensor::from([1.0, 2.0]), xs).0;
        let stages = jit(go).stages(&Tensor::from([[1.0, 2.0], [3.0, 4.0]])).unwrap();
        stages.last().unwrap().1.to_string()
    };
    let free = |held: String, passed: String| {
        assert!(held.lines().count() <= passed.lines().count(), "{held}");
        assert!(!held.contains("copy") && !held.contains("stop"), "{held}");
    };
    free(text(false), text(true));
    let each = |create: bool| {
        let f = move |x: &Tensor| iteration(create)(x, x).0;
        let stages = jit(vmap(f, 0, 0)).stages(&Tensor::from([[1.0, 2.0], [3.0, 4.0]])).unwrap();
        stages.last().unwrap().1.to_string()
    };
    free(each(false), each(true));
}
