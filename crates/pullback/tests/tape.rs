//! Eager reverse mode: accumulation, freeing, retaining, higher orders, hooks, long chains, errors.

use pullback::{
    Backward, DType, ErrorKind, Tensor, catch, detect_anomaly, enable_grad, grad_of, no_grad,
};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

#[path = "../examples/tiny.rs"]
mod tiny;

fn leaf(value: f64) -> Tensor {
    Tensor::from(value).requires_grad()
}

fn grad(x: &Tensor) -> f64 {
    x.grad().expect("a gradient").item::<f64>()
}

fn close(a: f64, b: f64) {
    assert!((a - b).abs() <= 1e-12 * (1.0 + a.abs().max(b.abs())), "{a} is not {b}");
}

#[test]
fn gradients_add_up_over_paths_and_over_calls() {
    let x = leaf(3.0);
    let y = &x * &x + &x * 2.0;
    y.backward().unwrap();
    close(grad(&x), 8.0);
    (&x * 5.0).backward().unwrap();
    close(grad(&x), 13.0);
    x.zero_grad();
    assert!(x.grad().is_none());
}

#[test]
fn a_held_gradient_is_not_changed_by_a_later_backward() {
    let x = leaf(3.0);
    (&x * 5.0).backward().unwrap();
    let held = x.grad().unwrap();
    (&x * 5.0).backward().unwrap();
    close(held.item::<f64>(), 5.0);
    close(grad(&x), 10.0);
}

#[test]
fn two_leaves_that_get_the_same_gradient_do_not_share_it() {
    let (a, b) = (Tensor::ones([3]).requires_grad(), Tensor::ones([3]).requires_grad());
    (&a + &b).sum().backward().unwrap();
    a.grad().unwrap().fill_(7.0);
    assert_eq!(b.grad().unwrap().to_vec::<f32>(), [1.0; 3]);
    assert!(a.grad().unwrap().is_contiguous());
}

#[test]
fn agrees_with_the_tiny_version_on_random_scalar_programs() {
    use tiny::Num;
    let mut seed = 1u64;
    let mut next = move |n: u64| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) % n
    };
    for _ in 0..200 {
        let tape = tiny::Tape::<f64>::new();
        let starts = [0.7, -1.3, 2.1];
        let ours: Vec<Tensor> = starts.iter().map(|&v| leaf(v)).collect();
        let mut a: Vec<Tensor> = ours.clone();
        let mut b: Vec<_> = starts.iter().map(|&v| tape.input(v)).collect();
        for _ in 0..12 {
            let (i, j) = (next(a.len() as u64) as usize, next(a.len() as u64) as usize);
            let (x, y) = match next(6) {
                0 => (&a[i] + &a[j], b[i] + b[j]),
                1 => (&a[i] * &a[j], b[i] * b[j]),
                2 => (&a[i] - &a[j], b[i] - b[j]),
                3 => (a[i].sin(), b[i].sin()),
                4 => (a[i].tanh(), b[i].tanh()),
                _ => (a[i].cos() * 0.5, b[i].cos() * tiny::Num::constant(0.5)),
            };
            a.push(x);
            b.push(y);
        }
        let (Some(y), Some(&z)) = (a.last(), b.last()) else { unreachable!() };
        close(y.item::<f64>(), z.value);
        y.backward().unwrap();
        for (x, want) in ours.iter().zip(tape.gradient(z)) {
            close(x.grad().map_or(0.0, |g| g.item::<f64>()), want);
        }
    }
}

#[test]
fn backward_needs_a_cotangent_for_more_than_one_element() {
    let x = Tensor::ones([2, 2]).requires_grad();
    let error = (&x * 2.0).backward().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Gradient);
    let text = error.to_string();
    assert!(text.contains("f32[2,2] is not a scalar"), "{text}");
    assert!(text.contains("tests/tape.rs:"), "{text}");
    assert!(text.contains("backward_with"), "{text}");
    let wrong = (&x * 2.0).backward_with(&Tensor::ones([2])).unwrap_err().to_string();
    assert!(wrong.contains("the cotangent is f32[2], but the value is f32[2,2]"), "{wrong}");
    let wide =
        (&x * 2.0).backward_with(&Tensor::ones_with([2, 2], DType::F64)).unwrap_err().to_string();
    assert!(wide.contains("f64[2,2]"), "{wide}");
    assert!(x.grad().is_none());
}

#[test]
fn a_second_backward_fails_unless_the_graph_was_retained() {
    let x = leaf(2.0);
    let y = x.square();
    y.backward().unwrap();
    let error = y.backward().unwrap_err().to_string();
    assert!(error.contains("the graph through `square` was freed"), "{error}");
    assert!(error.contains("retain_graph") && error.contains("create_graph"), "{error}");
    // The line of the second pass, and below it that of the operation.
    let lines: Vec<&str> = error.lines().filter(|line| line.contains("tests/tape.rs:")).collect();
    assert_eq!(lines.len(), 2, "{error}");
    assert!(error.contains("`square` was recorded at crates/pullback/tests/tape.rs"), "{error}");
    let line = line!() + 1;
    let again = grad_of(&[&y], &[&x], &[]).unwrap_err();
    assert_eq!(again.location().unwrap().line(), line, "{again}");
    assert!(again.to_string().contains("retain_graph"), "{again}");
    close(grad(&x), 4.0);
    let z = x.square();
    Backward::of(&z).retain_graph().run().unwrap();
    Backward::of(&z).retain_graph().run().unwrap();
    z.backward().unwrap();
    close(grad(&x), 16.0);
}

#[test]
fn a_gradient_of_a_gradient_names_create_graph_where_it_is_missing() {
    let x = leaf(2.0);
    let wanted = "made with `Backward::of(&y).create_graph()`";
    let gradient = grad_of(&[&x.powi(3)], &[&x], &[]).unwrap().remove(0);
    let missing = [
        gradient.backward(),
        grad_of(&[&gradient], &[&x], &[]).map(drop),
        (gradient.square() * 3.0).backward(),
    ];
    x.powi(3).backward().unwrap();
    for error in missing.into_iter().chain([x.grad().unwrap().backward()]) {
        let text = error.unwrap_err().to_string();
        assert!(text.contains(wanted), "{text}");
    }
    let gradient = Backward::of(&x.powi(3)).create_graph().wrt(&[&x]).unwrap().remove(0);
    close(grad_of(&[&gradient], &[&x], &[]).unwrap()[0].item(), 12.0);
}

#[test]
fn backward_of_a_constant_says_so_and_where_it_was_cut() {
    let x = leaf(2.0);
    let text = Tensor::from(1.0).backward().unwrap_err().to_string();
    assert!(text.contains("does not depend on any tensor that requires grad"), "{text}");
    // No gradient was made yet, so none can be the cause.
    assert!(!text.contains("create_graph"), "{text}");
    let text = (x.detach() * 2.0).backward().unwrap_err().to_string();
    assert!(text.contains("cut by `detach` at crates/pullback/tests/tape.rs"), "{text}");
    let text = no_grad(|| &x * 2.0).backward().unwrap_err().to_string();
    assert!(text.contains("no_grad around `mul`"), "{text}");
}

#[test]
fn grad_of_reaches_leaves_and_intermediates_and_refuses_the_unrelated() {
    let (x, w) = (leaf(3.0), leaf(1.0));
    let h = x.square();
    let y = &h * &h + &x;
    let g = grad_of(&[&y], &[&x, &h], &[]).unwrap();
    close(g[0].item(), 4.0 * 27.0 + 1.0);
    close(g[1].item(), 18.0);
    assert!(x.grad().is_none(), "grad_of touches no .grad()");
    let y = &h * 2.0;
    let error = grad_of(&[&y], &[&w], &[]).unwrap_err().to_string();
    assert!(error.contains("does not depend on"), "{error}");
    let h2 = x.square();
    let zero = Backward::of(&(&h2 * 2.0)).allow_unused().wrt(&[&w]).unwrap();
    close(zero[0].item(), 0.0);
    let error = grad_of(&[&h2], &[&Tensor::from(1.0)], &[]).unwrap_err().to_string();
    assert!(error.contains("an input does not require grad"), "{error}");
    // Several outputs with their cotangents; an output that is an input.
    let (a, b) = (&x * 2.0, x.square());
    let (ca, cb) = (Tensor::from(10.0), Tensor::from(1.0));
    close(grad_of(&[&a, &b], &[&x], &[&ca, &cb]).unwrap()[0].item(), 26.0);
    close(grad_of(&[&x], &[&x], &[]).unwrap()[0].item(), 1.0);
    let error = grad_of(&[&a, &b], &[&x], &[&ca]).unwrap_err().to_string();
    assert!(error.contains("1 cotangents for 2 outputs"), "{error}");
}

#[test]
fn create_graph_gives_derivatives_of_every_order() {
    let x = leaf(2.0);
    let mut y = x.powi(5);
    let mut want = 32.0;
    for order in 0..5 {
        close(y.item::<f64>(), want);
        y = Backward::of(&y).create_graph().wrt(&[&x]).unwrap().remove(0);
        want *= (5 - order) as f64 / 2.0;
    }
    close(y.item::<f64>(), 120.0);
}

#[test]
fn create_graph_accumulates_into_grad_with_history() {
    let x = leaf(3.0);
    Backward::of(&x.powi(3)).create_graph().run().unwrap();
    let g = x.grad().unwrap();
    assert!(g.is_tracked());
    x.zero_grad();
    g.backward().unwrap();
    close(grad(&x), 18.0);
}

#[test]
fn no_grad_and_enable_grad_nest_and_survive_a_panic() {
    let x = leaf(1.0);
    assert!(!no_grad(|| &x * 2.0).is_tracked());
    assert!(no_grad(|| enable_grad(|| &x * 2.0)).is_tracked());
    let _ = catch(|| no_grad(|| Tensor::ones([2]).reshape([3])));
    assert!((&x * 2.0).is_tracked());
}

#[test]
fn hooks_see_replace_and_leave() {
    let x = leaf(3.0);
    let y = x.square();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let list = seen.clone();
    let watch = y.register_hook(move |g| {
        list.lock().unwrap().push(g.item::<f64>());
        None
    });
    x.register_hook(|g| Some(g * 2.0));
    Backward::of(&(&y + &y)).retain_graph().run().unwrap();
    assert_eq!(*seen.lock().unwrap(), [2.0], "called once, on the whole gradient");
    close(grad(&x), 24.0);
    watch.remove();
    (&y * 1.0).backward().unwrap();
    assert_eq!(seen.lock().unwrap().len(), 1);
    let error = catch(|| Tensor::from(1.0).register_hook(|_| None)).unwrap_err().to_string();
    assert!(error.contains("no gradient will reach this tensor"), "{error}");
}

/// A value of a user, which looks at a tensor when it is dropped.
struct Looks(Tensor, std::sync::Arc<std::sync::Mutex<String>>);

impl Drop for Looks {
    fn drop(&mut self) {
        *self.1.lock().expect("no other test locks it") = format!("{} {:?}", self.0, self.0.grad());
    }
}

#[test]
fn destructors_of_a_graph_that_is_replaced_may_look_at_the_tensor() {
    let seen = std::sync::Arc::default();
    let x = Tensor::from([1.0, 2.0]).requires_grad();
    let y = &x * 2.0;
    let looks = Looks(y.clone(), std::sync::Arc::clone(&seen));
    y.register_hook(move |_| {
        let _ = &looks;
        None
    });
    // The history of `y` goes, and with it the hook and what that holds.
    y.copy_(Tensor::from([5.0, 6.0]));
    drop(y);
    assert!(seen.lock().expect("no other test locks it").contains('5'), "{seen:?}");
}

#[test]
fn a_panic_in_a_destructor_of_a_graph_leaks_no_later_graph() {
    struct Panics(bool);
    impl Drop for Panics {
        fn drop(&mut self) {
            assert!(!self.0, "on purpose");
        }
    }
    let x = Tensor::from([1.0, 2.0]).requires_grad();
    let alive = std::sync::Arc::new(());
    let chain = |bad: bool| {
        let y = &x * 2.0;
        let held = (Panics(bad), alive.clone());
        y.register_hook(move |_| {
            let _ = &held;
            None
        });
        (0..5).fold(y, |y, _| y.sin())
    };
    let bad = chain(true);
    let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(bad)));
    assert!(dropped.is_err());
    (0..10).for_each(|_| drop(chain(false)));
    assert_eq!(std::sync::Arc::strong_count(&alive), 1);
}

#[test]
fn a_hook_that_returns_the_wrong_shape_is_caught() {
    let x = Tensor::ones([3]).requires_grad();
    let y = &x * 2.0;
    y.register_hook(|_| Some(Tensor::ones([2])));
    let error = y.sum().backward().unwrap_err().to_string();
    assert!(error.contains("f32[2] arrived for a value of spec f32[3]"), "{error}");
    assert!(x.grad().is_none());
}

#[test]
fn a_hook_on_a_leaf_is_checked_too_and_a_failed_backward_changes_no_gradient() {
    let (x, y) = (Tensor::ones([3]).requires_grad(), Tensor::ones([3]).requires_grad());
    y.register_hook(|_| Some(Tensor::ones([2])));
    let error = (&x * &y).sum().backward().unwrap_err().to_string();
    assert!(error.contains("a hook gave f32[2] for a gradient of spec f32[3]"), "{error}");
    assert!(x.grad().is_none() && y.grad().is_none());
    let z = Tensor::ones([3]).requires_grad();
    z.register_hook(|g| Some(g.reshape([7])));
    let error = (&z * 1.0).sum().backward().unwrap_err().to_string();
    assert!(error.contains("reshape"), "an error inside a hook is an error of backward: {error}");
}

#[test]
fn a_ready_hook_elsewhere_does_not_let_a_failed_backward_change_a_gradient() {
    let hooked = leaf(1.0);
    hooked.on_grad_ready(|_| {});
    let (x, w) = (leaf(2.0), leaf(3.0));
    let h = &x * 1.0;
    let y = h.square() * &w;
    h.add_(1.0);
    // The gradient of `w` is complete before `square` fails.
    assert!(y.backward().is_err());
    assert!(w.grad().is_none() && x.grad().is_none());
}

#[test]
fn recorded_gradients_do_not_share_memory() {
    let (x, y) = (Tensor::ones([2]).requires_grad(), Tensor::ones([2]).requires_grad());
    let c = Tensor::ones([2]);
    Backward::of(&(&x + &y)).cotangent(&c).create_graph().run().unwrap();
    assert!(!x.grad().unwrap().shares_memory(&c));
    assert!(!x.grad().unwrap().shares_memory(&y.grad().unwrap()));
}

#[test]
fn explaining_a_long_graph_takes_a_short_time() {
    let (w, other) = (leaf(1.0), leaf(1.0));
    let mut x = &w * 1.0;
    for _ in 0..20_000 {
        x = &x * 1.0 + x.detach();
    }
    let text = x.explain_no_grad(&other);
    assert!(text.lines().count() < 10, "{text}");
    assert!(x.explain_no_grad(&w).contains("open"));
}

#[test]
fn a_ready_hook_runs_once_when_the_last_contribution_is_in_and_before_the_walk_ends() {
    let (early, late) = (leaf(2.0), leaf(5.0));
    // `late` enters last, so its gradient is complete first.
    let order = Arc::new(Mutex::new(Vec::new()));
    for (name, x) in [("early", &early), ("late", &late)] {
        let order = order.clone();
        x.on_grad_ready(move |g| order.lock().unwrap().push((name, g.item::<f64>())));
    }
    let h = early.square() + &early;
    let y = &h * &late + &late;
    y.backward().unwrap();
    assert_eq!(*order.lock().unwrap(), [("late", 7.0), ("early", 25.0)]);
}

#[test]
fn a_million_nodes_are_built_walked_and_dropped() {
    let small = std::thread::Builder::new().stack_size(256 * 1024);
    let run = small.spawn(|| {
        let x = leaf(1.0);
        let mut y = x.clone();
        for _ in 0..1_000_000 {
            y = y.neg();
        }
        y.backward().unwrap();
        close(grad(&x), 1.0);
        drop(y);
        // Dropped without backward, saved values and all.
        let mut y = x.clone();
        for _ in 0..300_000 {
            y = y.tanh();
        }
        drop(y);
    });
    run.unwrap().join().unwrap();
}

#[test]
fn a_view_of_a_view_of_a_view_is_no_deeper_than_its_root() {
    let small = std::thread::Builder::new().stack_size(256 * 1024);
    let run = small.spawn(|| {
        let base = Tensor::zeros([2, 2]);
        let mut x = base.clone();
        for _ in 0..200_000 {
            x = x.t();
        }
        let w = Tensor::from([1.0f32, 2.0]).requires_grad();
        base.add_(&w);
        // Out of date all the way down: brought up to date in a loop.
        x.sum().backward().unwrap();
        assert_eq!(w.grad().unwrap().to_vec::<f32>(), [2.0, 2.0]);
    });
    run.unwrap().join().unwrap();
}

#[test]
fn a_shared_subgraph_is_walked_once() {
    // y = ((x·x)·(x·x))…: 2^60 paths, 60 nodes.
    let x = leaf(1.0);
    let mut y = x.clone();
    for _ in 0..60 {
        y = &y * &y;
    }
    y.backward().unwrap();
    close(grad(&x), (1u64 << 60) as f64);
}

#[test]
fn anomaly_mode_names_the_forward_op_and_its_line() {
    let x = Tensor::from([0.0, 1.0]).requires_grad();
    let y = x.sqrt();
    let z = (&y * 0.0).sum();
    let error = detect_anomaly(|| z.backward()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Anomaly);
    let text = error.to_string();
    assert!(text.contains("backward of `sqrt` made NaN"), "{text}");
    assert!(text.contains("tests/tape.rs:"), "{text}");
    assert!(x.grad().is_none(), "a failed backward leaves no gradient behind");
}

#[test]
fn explain_no_grad_finds_the_cut() {
    let (w, other) = (leaf(2.0), leaf(3.0));
    let open = &w * 2.0;
    assert!(open.explain_no_grad(&w).contains("the path is open"));
    assert!(open.explain_no_grad(&other).contains("does not depend on it"));
    let h = (&w * 2.0).floor();
    let text = (&h * &other).explain_no_grad(&w);
    assert!(text.contains("cut by `floor`, whose derivative is zero everywhere"), "{text}");
    let h = no_grad(|| &w * 2.0);
    let text = (&h * &other).explain_no_grad(&w);
    assert!(
        text.contains("cut by no_grad around `mul`") && text.contains("tests/tape.rs"),
        "{text}"
    );
    let base = &w * 2.0;
    let hidden = base.detach();
    let text = ((&hidden * &other) * 2.0).sin().explain_no_grad(&w);
    assert!(text.contains("cut by `detach`"), "{text}");
    let text = open.explain_no_grad(&Tensor::from(1.0));
    assert!(text.contains("does not require grad"), "{text}");
    let through_ints = (&w * 2.0).cast(DType::I64).cast(DType::F64);
    let text = (&through_ints * &other).explain_no_grad(&w);
    assert!(text.contains("cast"), "{text}");
}

#[test]
fn requires_grad_refuses_integers_and_results() {
    let text = catch(|| Tensor::from([1i64, 2]).requires_grad()).unwrap_err().to_string();
    assert!(text.contains("only floats have gradients"), "{text}");
    let x = leaf(1.0);
    let text = catch(|| (&x * 2.0).requires_grad()).unwrap_err().to_string();
    assert!(text.contains("not a leaf"), "{text}");
}

#[test]
fn gradients_of_low_precision_have_the_dtype_of_their_tensor() {
    for dtype in DType::FLOATS {
        let x = Tensor::from([1.0f32, 2.0]).cast(dtype).requires_grad();
        (x.cast(DType::F32) * 3.0).sum().backward().unwrap();
        assert_eq!(x.grad().unwrap().dtype(), dtype);
        assert_eq!(x.grad().unwrap().to_f64_vec(), [3.0, 3.0]);
    }
}

#[test]
fn threads_share_tensors_and_run_backward_at_once() {
    let w = Tensor::ones([32]).requires_grad();
    let done = AtomicUsize::new(0);
    std::thread::scope(|s| {
        for _ in 0..8 {
            s.spawn(|| {
                for _ in 0..50 {
                    (&w * &w).sum().backward().unwrap();
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(done.load(Ordering::Relaxed), 400);
    assert_eq!(w.grad().unwrap().to_vec::<f32>(), [800.0; 32]);
}

/// A weight used at every step: its gradient is the sum of the steps', whether the sum is made by
/// the product itself (no second derivative asked) or by additions.
#[test]
fn a_weight_used_many_times_sums_its_products() {
    let noise = |shape: [usize; 2], seed: usize| {
        let n = shape[0] * shape[1];
        let values: Vec<f64> =
            (0..n).map(|i| ((i * 37 + seed * 11) % 101) as f64 / 50.0 - 1.0).collect();
        Tensor::from_vec(values, shape)
    };
    for (m, k, n) in [(2, 3, 4), (5, 40, 70), (40, 5, 33), (16, 300, 130)] {
        let w = noise([k, n], 1).requires_grad();
        let xs: Vec<Tensor> = (0..4).map(|i| noise([m, k], i + 2).requires_grad()).collect();
        let loss = |x: &Tensor| x.matmul(&w).square().sum();
        let total = xs.iter().map(loss).reduce(|a, b| a + b).unwrap();
        let separate =
            xs.iter().map(|x| x.t().matmul(&x.matmul(&w)) * 2.0).reduce(|a, b| a + b).unwrap();
        total.backward().unwrap();
        let (got, want) = (w.grad().unwrap().to_vec::<f64>(), separate.to_vec::<f64>());
        for (g, w) in got.iter().zip(&want) {
            assert!((g - w).abs() <= 1e-11 * (1.0 + w.abs()), "{m}x{k}x{n}: {g} and {w}");
        }
    }
}

/// A target may be an ancestor of another: the pass continues beyond it.
#[test]
fn targets_may_lie_behind_each_other() {
    let (x, y) = (Tensor::from(3.0).requires_grad(), Tensor::from([2.0, 4.0]).requires_grad());
    let v = &x * &x;
    let z = &v / &y;
    let loss = (&z * &z).sum() + &v;
    let all = |order: [&Tensor; 4]| {
        let grads = Backward::of(&loss).retain_graph().wrt(&order).unwrap();
        grads.iter().map(Tensor::to_vec::<f64>).collect::<Vec<_>>()
    };
    let [dz, dv] = [vec![9.0, 4.5], vec![1.0 + 4.5 + 1.125]];
    let (dx, dy) = (vec![6.0 * dv[0]], vec![-81.0 / 4.0, -81.0 / 32.0]);
    assert_eq!(all([&z, &v, &x, &y]), [dz.clone(), dv.clone(), dx.clone(), dy.clone()]);
    assert_eq!(all([&x, &y, &z, &v]), [dx, dy, dz.clone(), dv]);
    // Alone, and where the other way to what lies behind goes past the target.
    let alone = Backward::of(&loss).retain_graph().wrt(&[&z]).unwrap();
    assert_eq!(alone[0].to_vec::<f64>(), dz);
}
