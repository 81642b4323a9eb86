//! Checkpointed functions: the gradients of plain ones, in less memory, or an error.

use pullback::check::check_grads;
use pullback::{
    Backward, Checkpoint, DType, Flag, Key, Tensor, autocast, checkpoint, checkpoint_sequential,
    grad, grad_of, hvp, jit, jvp, manual_seed, next_key, no_grad, random_state, stack, vmap,
};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The global generator is shared: tests that draw from it run one after the other.
static GENERATOR: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    GENERATOR.lock().unwrap_or_else(PoisonError::into_inner)
}

fn leaf(seed: u64, shape: &[usize]) -> Tensor {
    Key::new(seed).normal(shape, DType::F64, 0.0, 1.0).requires_grad()
}

fn gradients(of: &[&Tensor], f: impl Fn() -> Tensor) -> Vec<Vec<f64>> {
    of.iter().for_each(|x| x.zero_grad());
    f().backward().unwrap();
    of.iter().map(|x| x.grad().unwrap().to_vec::<f64>()).collect()
}

/// A block with a product, a curve and a residual.
fn block(w: &Tensor) -> impl Fn(&Tensor) -> Tensor + Clone + Send + Sync + 'static {
    let w = w.clone();
    move |x: &Tensor| x.matmul(&w).tanh() * x + x.sin()
}

#[test]
fn gradients_are_those_of_the_plain_function() {
    let (x, w) = (leaf(1, &[4, 3]), leaf(2, &[3, 3]));
    let f = block(&w);
    let plain = gradients(&[&x, &w], || f(&x).square().sum());
    let again = gradients(&[&x, &w], || checkpoint(f.clone(), &x).square().sum());
    assert_eq!(plain, again);
}

#[test]
fn the_function_runs_once_forward_and_once_backward() {
    let (x, calls) = (leaf(1, &[3]), Arc::new(AtomicUsize::new(0)));
    let counted = {
        let calls = calls.clone();
        move |x: &Tensor| {
            calls.fetch_add(1, Ordering::Relaxed);
            (x * x).sin().exp()
        }
    };
    let y = checkpoint(counted, &x).sum();
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    y.backward().unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 2);
}

#[test]
fn several_arguments_and_results() {
    let (x, w, k) = (leaf(1, &[3]), leaf(2, &[3]), Tensor::from([2i64, 0, 1]));
    let f = |(x, w, k): &(Tensor, Tensor, Tensor)| {
        let picked = x.index_select(0, k);
        ((&picked * w).exp(), (x / (w.square() + 1.0)).cos())
    };
    let loss = |(a, b): (Tensor, Tensor)| (a * b).sum();
    let plain = gradients(&[&x, &w], || loss(f(&(x.clone(), w.clone(), k.clone()))));
    let again = gradients(&[&x, &w], || loss(checkpoint(f, &(x.clone(), w.clone(), k.clone()))));
    assert_eq!(plain, again);
}

#[test]
fn nested_to_any_depth() {
    let (x, w) = (leaf(1, &[2, 3]), leaf(2, &[3, 3]));
    let f = block(&w);
    let inner = {
        let f = f.clone();
        move |x: &Tensor| checkpoint(f.clone(), &f(x).sin())
    };
    let outer = {
        let inner = inner.clone();
        move |x: &Tensor| checkpoint(inner.clone(), &checkpoint(inner.clone(), x).cos())
    };
    let plain = gradients(&[&x, &w], || {
        let inner = |x: &Tensor| f(&f(x).sin());
        inner(&inner(&x).cos()).sum()
    });
    let again = gradients(&[&x, &w], || checkpoint(outer.clone(), &x).sum());
    assert_eq!(plain, again);
}

#[test]
fn dropout_repeats_and_the_generator_goes_on_as_without() {
    let _alone = alone();
    let x = leaf(1, &[200]);
    let f = |x: &Tensor| (x.sin() * 2.0).dropout(0.5, Some(&next_key())).exp();
    let run = |checkpointed: bool| {
        manual_seed(7);
        let y = match checkpointed {
            true => Checkpoint::new().verify(true).call(f, &x),
            false => f(&x),
        };
        // Drawn between the two runs of the function.
        let between = Tensor::randn([3]).to_vec::<f32>();
        x.zero_grad();
        y.sum().backward().unwrap();
        let grad = x.grad().unwrap().to_vec::<f64>();
        (grad, between, random_state().to_vec::<i64>(), Tensor::randn([3]).to_vec::<f32>())
    };
    let (plain, again) = (run(false), run(true));
    assert!(plain.0.contains(&0.0), "some were dropped");
    assert_eq!(plain, again);
}

#[test]
fn random_order_holds_through_nesting() {
    let _alone = alone();
    let x = leaf(1, &[64]);
    let drop = |x: &Tensor| x.dropout(0.3, Some(&next_key())) * x;
    let outer = move |x: &Tensor| {
        let a = drop(&x.sin());
        let b = checkpoint(drop, &a.exp());
        drop(&checkpoint(drop, &b.cos()))
    };
    let plain = move |x: &Tensor| {
        let a = drop(&x.sin());
        drop(&drop(&drop(&a.exp()).cos()))
    };
    manual_seed(3);
    let expected = gradients(&[&x], || plain(&x).sum());
    manual_seed(3);
    assert_eq!(gradients(&[&x], || checkpoint(outer, &x).sum()), expected);
}

#[test]
fn double_backward_and_forward_over_reverse() {
    let x = leaf(1, &[5]).detach();
    let f = |x: &Tensor| x.sin() * x.exp();
    let (plain, again) = (move |x: &Tensor| f(x).sum(), move |x: &Tensor| checkpoint(f, x).sum());
    check_grads(move |x: &Tensor| checkpoint(f, x), &x, 2).unwrap();
    let v = Key::new(9).normal([5], DType::F64, 0.0, 1.0);
    assert_eq!(hvp(plain, &x, &v).to_vec::<f64>(), hvp(again, &x, &v).to_vec::<f64>());
    let third = |f: fn(&Tensor) -> Tensor| {
        let first = grad(move |x: &Tensor| f(x).sum());
        let second = grad(move |x: &Tensor| first(x).square().sum());
        grad(move |x: &Tensor| second(x).sum())(&x).to_vec::<f64>()
    };
    assert_eq!(
        third(|x| x.sin() * x.exp()),
        third(|x| checkpoint(|x: &Tensor| x.sin() * x.exp(), x))
    );
    let (y, t) = jvp(again, &x, &v);
    let (y2, t2) = jvp(plain, &x, &v);
    assert_eq!((y.item::<f64>(), t.item::<f64>()), (y2.item::<f64>(), t2.item::<f64>()));
}

#[test]
fn a_graph_that_is_retained_can_be_gone_through_again() {
    let x = leaf(1, &[4]);
    let y = checkpoint(|x: &Tensor| x.sin().exp() * x, &x).sum();
    Backward::of(&y).retain_graph().run().unwrap();
    let once = x.grad().unwrap().to_vec::<f64>();
    y.backward().unwrap();
    let twice = x.grad().unwrap().to_vec::<f64>();
    assert!(once.iter().zip(&twice).all(|(a, b)| 2.0 * a == *b));
    let error = y.backward().unwrap_err().to_string();
    assert!(error.contains("was freed"), "{error}");
}

#[test]
fn hooks_inside_run_once() {
    let x = leaf(1, &[3]);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let f = {
        let seen = seen.clone();
        move |x: &Tensor| {
            let h = x.sin();
            let seen = seen.clone();
            h.register_hook(move |g| {
                seen.lock().unwrap().push(g.to_vec::<f64>());
                Some(g * 2.0)
            });
            h.exp()
        }
    };
    let doubled = gradients(&[&x], || checkpoint(f.clone(), &x).sum());
    assert_eq!(seen.lock().unwrap().len(), 1);
    let plain = gradients(&[&x], || x.sin().exp().sum());
    assert!(doubled[0].iter().zip(&plain[0]).all(|(a, b)| (a - 2.0 * b).abs() < 1e-15));
}

#[test]
fn the_gradient_of_a_value_inside() {
    let x = leaf(1, &[3]);
    let inside = Arc::new(Mutex::new(None));
    let f = {
        let inside = inside.clone();
        move |x: &Tensor| {
            let h = x.sin();
            inside.lock().unwrap().get_or_insert_with(|| h.clone());
            h.exp()
        }
    };
    let y = checkpoint(f, &x).sum();
    let h = inside.lock().unwrap().clone().unwrap();
    let g = grad_of(&[&y], &[&h], &[]).unwrap().remove(0);
    assert_eq!(g.to_vec::<f64>(), x.sin().exp().to_vec::<f64>());
}

#[test]
fn an_argument_that_is_overwritten_is_noticed() {
    let x = Tensor::from([1.0, 2.0]);
    let w = leaf(1, &[2]);
    let y = checkpoint(
        {
            let w = w.clone();
            move |x: &Tensor| (x * &w).sin()
        },
        &x,
    )
    .sum();
    x.add_(1.0);
    let error = y.backward().unwrap_err().to_string();
    assert!(error.contains("argument 0 of a checkpointed function was overwritten"), "{error}");
    assert!(error.contains("add_") && error.contains("checkpoint.rs"), "{error}");
    assert!(w.grad().is_none(), "nothing half-done");
}

#[test]
fn a_captured_tensor_that_is_overwritten_is_noticed() {
    let (x, w) = (leaf(1, &[3]), leaf(2, &[3]));
    let shift = Tensor::from([1.0, 2.0, 3.0]);
    let f = {
        let (w, shift) = (w.clone(), shift.clone());
        // Neither is saved by the op that reads it.
        move |x: &Tensor| (x + &w + &shift).sin()
    };
    let y = checkpoint(f.clone(), &x).sum();
    no_grad(|| w.mul_(2.0));
    let error = y.backward().unwrap_err().to_string();
    assert!(error.contains("overwritten before backward computed it again"), "{error}");
    assert!(error.contains("mul_"), "{error}");
    let y = checkpoint(f, &x).sum();
    shift.add_(1.0);
    assert!(y.backward().unwrap_err().to_string().contains("add_"));
}

#[test]
fn arguments_and_tracked_tensors_from_outside_cannot_be_written_inside() {
    let x = leaf(1, &[3]);
    let h = x.sin();
    let refused = pullback::catch(|| {
        checkpoint(
            |h: &Tensor| {
                h.add_(1.0);
                h.exp()
            },
            &h,
        )
    });
    let error = refused.err().unwrap().to_string();
    assert!(error.contains("written in place"), "{error}");
    let outside = x.cos();
    let refused = pullback::catch(|| {
        let outside = outside.clone();
        checkpoint(
            move |h: &Tensor| {
                outside.add_(1.0);
                h * &outside
            },
            &h,
        )
    });
    let error = refused.err().unwrap().to_string();
    assert!(error.contains("a captured tracked tensor is written in place"), "{error}");
}

#[test]
fn what_the_function_writes_is_written_once() {
    let x = leaf(1, &[8]);
    let (mean, count) = (Tensor::from(0.0), Tensor::from(0i64));
    let f = {
        let (mean, count) = (mean.clone(), count.clone());
        move |x: &Tensor| {
            no_grad(|| {
                count.add_(1);
                mean.mul_(0.9);
                mean.add_(x.detach().mean() * 0.1);
            });
            // Reads what it has just written: the second run must see the same.
            (x - &mean).sin() * x
        }
    };
    let y = Checkpoint::new().verify(true).call(f, &x).sum();
    let after = (mean.item::<f64>(), count.item::<i64>());
    y.backward().unwrap();
    assert_eq!((mean.item::<f64>(), count.item::<i64>()), after);
    assert_eq!(count.item::<i64>(), 1);
    let g = x.grad().unwrap();
    x.zero_grad();
    let m = mean.deep_clone();
    ((&x - &m).sin() * &x).sum().backward().unwrap();
    assert_eq!(g.to_vec::<f64>(), x.grad().unwrap().to_vec::<f64>());
}

#[test]
fn a_function_that_differs_the_second_time_is_an_error() {
    let x = leaf(1, &[3]);
    let turn = Arc::new(AtomicUsize::new(0));
    let other_op = {
        let turn = turn.clone();
        move |x: &Tensor| match turn.fetch_add(1, Ordering::Relaxed) {
            0 => (x * 2.0).sin(),
            _ => (x * 2.0).cos(),
        }
    };
    let error = checkpoint(other_op, &x).sum().backward().unwrap_err().to_string();
    assert!(error.contains("`cos` saved f64[3]") && error.contains("where `sin` saved"), "{error}");
    turn.store(0, Ordering::Relaxed);
    let more = {
        let turn = turn.clone();
        move |x: &Tensor| match turn.fetch_add(1, Ordering::Relaxed) {
            0 => (x * 2.0).sin(),
            _ => (x * 2.0).sin().exp(),
        }
    };
    let error = checkpoint(more, &x).sum().backward().unwrap_err().to_string();
    assert!(error.contains("saved an additional value"), "{error}");
    turn.store(0, Ordering::Relaxed);
    let fewer = {
        let turn = turn.clone();
        move |x: &Tensor| match turn.fetch_add(1, Ordering::Relaxed) {
            0 => (x * 2.0).sin().exp(),
            _ => (x * 2.0).sin(),
        }
    };
    let error = checkpoint(fewer, &x).sum().backward().unwrap_err().to_string();
    assert!(error.contains("it saved 2 values, and 3 the first time"), "{error}");
    assert!(x.grad().is_none());
}

#[test]
fn values_that_differ_are_found_by_their_hash() {
    let x = leaf(1, &[3]);
    let turn = Arc::new(AtomicUsize::new(0));
    let f = move |x: &Tensor| {
        let noise = turn.fetch_add(1, Ordering::Relaxed) as f64;
        (x * 2.0 + noise).sin()
    };
    let y = Checkpoint::new().verify(true).call(f, &x).sum();
    let error = y.backward().unwrap_err().to_string();
    assert!(
        error.contains("an operand of `sin` at") && error.contains("has other values"),
        "{error}"
    );
    assert!(
        error.contains("memory that it reads are as they were, so it depends on something else"),
        "{error}"
    );
    assert!(x.grad().is_none());
}

#[test]
fn a_flag_that_changed_is_named() {
    let (x, training) = (leaf(1, &[3]), Flag::new(true));
    let f = {
        let training = training.clone();
        move |x: &Tensor| if training.get() { x.sin().exp() } else { x.sin() }
    };
    let y = checkpoint(f, &x).sum();
    training.set(false);
    let error = y.backward().unwrap_err().to_string();
    assert!(error.contains("was true and is false now"), "{error}");
    training.set(true);
}

#[test]
fn a_gradient_inside_the_function() {
    let x = leaf(1, &[3]);
    // The norm of an inner gradient, as a gradient penalty has it.
    let f = |x: &Tensor| grad(|x: &Tensor| (x.sin() * x).sum())(x).square();
    let plain = gradients(&[&x], || f(&x).sum());
    assert_eq!(plain, gradients(&[&x], || checkpoint(f, &x).sum()));
}

#[test]
fn inside_vmap_each_example_repeats_its_own_draws() {
    let _alone = alone();
    let x = Key::new(5).normal([4, 32], DType::F64, 0.0, 1.0);
    let f = |x: &Tensor| (x.dropout(0.5, Some(&next_key())) * x).exp();
    let plain = |x: &Tensor| grad(move |x: &Tensor| f(x).sum())(x);
    let again = |x: &Tensor| grad(move |x: &Tensor| checkpoint(f, x).sum())(x);
    manual_seed(11);
    let expected = vmap(plain, 0, 0)(&x).to_vec::<f64>();
    manual_seed(11);
    assert_eq!(vmap(again, 0, 0)(&x).to_vec::<f64>(), expected);
    let outside = grad(move |x: &Tensor| vmap(move |x: &Tensor| checkpoint(f, x), 0, 0)(x).sum());
    manual_seed(11);
    assert_eq!(outside(&x).to_vec::<f64>(), expected);
}

#[test]
fn inside_autocast_both_runs_have_the_same_dtypes() {
    for low in [DType::BF16, DType::F16] {
        let draw = |seed: u64, shape: &[usize]| {
            Key::new(seed).normal(shape, DType::F32, 0.0, 1.0).requires_grad()
        };
        let (x, w) = (draw(1, &[4, 3]), draw(2, &[3, 3]));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let layer = {
            let (w, seen) = (w.clone(), seen.clone());
            move |x: &Tensor| {
                let h = x.linear(&w, None);
                let y = h.softmax(-1).log() + h.tanh().linear(&w, None);
                seen.lock().unwrap().push([h.dtype(), y.dtype()]);
                y
            }
        };
        let inside = {
            let layer = layer.clone();
            move |x: &Tensor| autocast(low, || layer(x))
        };
        type Loss<'a> = Box<dyn Fn() -> Tensor + 'a>;
        let around = |f: Loss| autocast(low, || f().square().mean());
        let plain = |f: Loss| f().square().mean();
        let leaves = [&x, &w];
        let run = |f: Loss, verified: bool, backward_inside: Option<DType>| {
            leaves.iter().for_each(|x| x.zero_grad());
            seen.lock().unwrap().clear();
            let loss = f();
            match backward_inside {
                Some(other) => autocast(other, || loss.backward()).unwrap(),
                None => loss.backward().unwrap(),
            }
            let notes = seen.lock().unwrap().clone();
            // Once, or once more in backward, in the same dtypes.
            assert_eq!(notes, vec![[low, DType::F32]; 1 + usize::from(verified)]);
            leaves.map(|x| x.grad().unwrap().to_vec::<f32>())
        };
        let kept = || Checkpoint::new().verify(true);
        let expected = run(Box::new(|| around(Box::new(|| layer(&x)))), false, None);
        let other = if low == DType::F16 { DType::BF16 } else { DType::F16 };
        // Backward inside, outside, and inside a scope of another dtype.
        for backward in [None, Some(low), Some(other)] {
            let outside = || around(Box::new(|| kept().call(layer.clone(), &x)));
            assert_eq!(run(Box::new(outside), true, backward), expected);
        }
        let expected = run(Box::new(|| plain(Box::new(|| inside(&x)))), false, None);
        let within = || plain(Box::new(|| kept().call(inside.clone(), &x)));
        assert_eq!(run(Box::new(within), true, Some(other)), expected);
        // Compiled: autocast around the call, around the checkpoint and inside of it. Fused
        // products round once where eager ones round twice.
        let step = jit(|x: &Tensor| {
            w.zero_grad();
            autocast(low, || kept().call(layer.clone(), x).square().mean()).backward()
        });
        step.call(&x.detach()).unwrap();
        for (a, b) in w.grad().unwrap().to_vec::<f32>().iter().zip(&expected[1]) {
            assert!((a - b).abs() <= 0.02 * b.abs() + 2e-3, "{a} is not {b}");
        }
    }
}

#[test]
fn sequences_in_any_number_of_segments() {
    let w: Vec<Tensor> = (0..10).map(|i| leaf(i, &[3, 3])).collect();
    let layers: Vec<_> = w.iter().map(block).collect();
    let x = leaf(20, &[2, 3]);
    let all: Vec<&Tensor> = w.iter().chain([&x]).collect();
    let plain = gradients(&all, || layers.iter().fold(x.clone(), |x, f| f(&x)).sum());
    for segments in [None, Some(1), Some(3), Some(10), Some(99)] {
        let again = gradients(&all, || checkpoint_sequential(&layers, segments, &x).sum());
        assert_eq!(plain, again, "{segments:?}");
    }
    let error = pullback::catch(|| checkpoint_sequential(&layers, Some(0), &x)).err().unwrap();
    assert!(error.to_string().contains("at least one segment"));
}

#[test]
fn a_result_that_is_the_argument_and_functions_of_nothing() {
    let x = leaf(1, &[2]);
    let h = x.sin();
    let same = checkpoint(Tensor::clone, &h);
    same.add_(1.0);
    same.sum().backward().unwrap();
    assert_eq!(x.grad().unwrap().to_vec::<f64>(), x.cos().to_vec::<f64>());
    let w = leaf(2, &[2]);
    let y = checkpoint(
        {
            let w = w.clone();
            move |(): &()| w.sin().exp()
        },
        &(),
    );
    y.sum().backward().unwrap();
    assert_eq!(w.grad().unwrap().to_vec::<f64>(), (w.sin().exp() * w.cos()).to_vec::<f64>());
    // Nothing to differentiate: as the function itself.
    let plain = checkpoint(|x: &Tensor| x * 2.0, &Tensor::from(3.0));
    assert!(!plain.is_tracked());
    assert_eq!(
        no_grad(|| checkpoint(|x: &Tensor| x * 2.0, &x)).to_vec::<f64>(),
        (&x * 2.0).to_vec::<f64>()
    );
    let both = stack(&[&checkpoint(|x: &Tensor| x.sin(), &x), &x], 0);
    assert!(both.is_tracked());
}
