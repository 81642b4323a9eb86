//! In-place writes: the right gradient or a clear refusal, never a wrong number.

use pullback::{ErrorKind, IntoIndex, Tensor, catch, jvp, no_grad};

fn leaf(values: &[f64]) -> Tensor {
    Tensor::from(values).requires_grad()
}

fn grad(x: &Tensor) -> Vec<f64> {
    x.grad().expect("a gradient").to_vec::<f64>()
}

#[test]
fn overwriting_what_backward_needs_is_an_error_in_the_form_of_the_design() {
    let x = leaf(&[1.0, 2.0]);
    let h = &x * 1.0;
    let y = h.square();
    h.add_(1.0);
    let error = y.sum().backward().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InPlace);
    let text = error.to_string();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "backward of `square` needs its input, but it was overwritten");
    assert!(
        lines[1].starts_with("  saved by     square   at crates/pullback/tests/inplace.rs:"),
        "{text}"
    );
    assert!(lines[1].ends_with("(version 0)"), "{text}");
    assert!(
        lines[2].starts_with("  overwritten  add_     at crates/pullback/tests/inplace.rs:"),
        "{text}"
    );
    assert!(lines[2].ends_with("(version 1)"), "{text}");
    assert!(text.contains("hint: use the out-of-place form, or clone the value first"), "{text}");
    assert!(x.grad().is_none());
}

#[test]
fn overwriting_what_backward_does_not_need_is_fine() {
    let x = leaf(&[1.0, 2.0]);
    let h = &x * 1.0;
    let y = &h + 3.0;
    h.mul_(10.0);
    (y.sum() + h.sum()).backward().unwrap();
    assert_eq!(grad(&x), [11.0, 11.0]);
}

#[test]
fn a_tracked_value_written_in_place_has_the_gradient_of_its_new_value() {
    let x = leaf(&[1.0, 2.0]);
    let h = &x * 1.0;
    let clone = h.clone();
    h.mul_(Tensor::from([3.0, 4.0]));
    assert_eq!(clone.to_vec::<f64>(), [3.0, 8.0], "a clone is the same tensor");
    clone.square().sum().backward().unwrap();
    assert_eq!(grad(&x), [18.0, 64.0]);
}

#[test]
fn a_constant_becomes_tracked_by_what_is_written_to_it() {
    let w = leaf(&[2.0]);
    let buffer = Tensor::from([0.0, 0.0, 0.0]);
    let view = buffer.at(1..);
    let before = buffer.at(0);
    buffer.at(1).copy_((&w * 3.0).reshape(()));
    buffer.add_(&w);
    assert!(buffer.is_tracked());
    // Views taken before the write follow their base.
    (view.sum() + before).backward().unwrap();
    assert_eq!(grad(&w), [6.0]);
}

#[test]
fn writing_through_a_view_gives_the_base_the_right_gradient() {
    let x = leaf(&[1.0, 2.0, 3.0, 4.0]);
    let h = &x * 1.0;
    h.at((..).by(2)).mul_(10.0);
    h.sum().backward().unwrap();
    assert_eq!(grad(&x), [10.0, 1.0, 10.0, 1.0]);
    // Through a chain of views, and through a transposed one.
    x.zero_grad();
    let h = (&x * 1.0).reshape([2, 2]);
    h.t().at(1).mul_(Tensor::from([5.0, 7.0]));
    (h.square() * 0.5).sum().backward().unwrap();
    assert_eq!(grad(&x), [1.0, 50.0, 3.0, 4.0 * 49.0]);
}

#[test]
fn a_part_replaced_no_longer_sends_a_gradient_to_what_was_there() {
    let (x, w) = (leaf(&[1.0, 2.0]), leaf(&[5.0]));
    let h = &x * 1.0;
    h.at(0..1).copy_(&w);
    h.square().sum().backward().unwrap();
    assert_eq!((grad(&x), grad(&w)), (vec![0.0, 4.0], vec![10.0]));
}

#[test]
fn both_the_view_and_its_base_can_be_used_after_a_write() {
    let x = leaf(&[1.0, 2.0]);
    let h = &x * 1.0;
    let v = h.at(0);
    v.mul_(3.0);
    (h.sum() * 100.0 + &v).backward().unwrap();
    assert_eq!(grad(&x), [303.0, 100.0]);
}

#[test]
fn a_leaf_is_written_only_where_nothing_is_recorded() {
    let x = leaf(&[1.0, 2.0]);
    let text = catch(|| x.add_(1.0)).unwrap_err().to_string();
    assert!(text.contains("a leaf that requires grad is written in place"), "{text}");
    assert!(text.contains("no_grad"), "{text}");
    let text = catch(|| x.at(0).add_(1.0)).unwrap_err().to_string();
    assert!(text.contains("a leaf that requires grad"), "{text}");
    assert_eq!(x.to_vec::<f64>(), [1.0, 2.0], "nothing was changed");
    no_grad(|| x.sub_(0.5));
    assert_eq!(x.to_vec::<f64>(), [0.5, 1.5]);
    assert!(x.is_leaf());
    x.square().sum().backward().unwrap();
    assert_eq!(grad(&x), [1.0, 3.0]);
}

#[test]
fn a_parameter_update_between_forward_and_backward_is_noticed() {
    let w = leaf(&[2.0]);
    let y = w.square().sum();
    no_grad(|| w.add_(1.0));
    let text = y.backward().unwrap_err().to_string();
    assert!(text.contains("backward of `square` needs its input"), "{text}");
}

#[test]
fn a_tracked_value_is_not_written_inside_no_grad() {
    let x = leaf(&[1.0]);
    let h = &x * 2.0;
    let text = catch(|| no_grad(|| h.add_(1.0))).unwrap_err().to_string();
    assert!(text.contains("inside no_grad"), "{text}");
    // Through a detached alias nothing stops the write, but the history no longer holds.
    h.detach().add_(1.0);
    let text = catch(|| &h * 2.0).unwrap_err().to_string();
    assert!(text.contains("overwritten through another tensor"), "{text}");
}

#[test]
fn expanded_and_mismatched_targets_are_refused() {
    let x = Tensor::from([1.0]).expand([3]);
    let text = catch(|| x.add_(1.0)).unwrap_err().to_string();
    assert!(text.contains("several indices of this tensor share one element"), "{text}");
    let y = Tensor::from([1.0, 2.0]);
    let text = catch(|| y.add_(Tensor::from([1.0, 2.0, 3.0]))).unwrap_err().to_string();
    assert!(text.contains("does not broadcast to f64[2]"), "{text}");
    let i = Tensor::from([1i64, 2]);
    let text = catch(|| i.add_(1.7)).unwrap_err().to_string();
    assert!(text.contains("the result would be f32, which does not fit over i64[2]"), "{text}");
    i.copy_(Tensor::from([1.7, 2.2]));
    assert_eq!(i.to_vec::<i64>(), [1, 2], "copy_ casts");
}

#[test]
fn a_product_in_place_with_both_sides_tracked_keeps_what_it_replaces() {
    let (x, gate) = (leaf(&[1.0, 2.0]), leaf(&[3.0, 1.0]));
    let h = &x * 1.0;
    h.mul_(&gate);
    h.div_(&(&gate + 1.0));
    h.sum().backward().unwrap();
    // x·g/(g+1): by x g/(g+1), by g x/(g+1)²
    assert_eq!(grad(&x), [0.75, 0.5]);
    assert_eq!(grad(&gate), [1.0 / 16.0, 0.5]);
}

#[test]
fn a_view_made_inside_no_grad_is_not_a_way_around_the_tape() {
    let w = leaf(&[1.0, 1.0]);
    let y = &w * 1.0;
    let v = no_grad(|| y.at(0));
    let text = catch(|| v.mul_(10.0)).unwrap_err().to_string();
    assert!(text.contains("made inside no_grad"), "{text}");
}

#[test]
fn the_argument_of_a_transform_is_not_written_to() {
    let w = leaf(&[1.0, 2.0]);
    let f = |x: &Tensor| {
        x.mul_(2.0);
        x.square().sum()
    };
    for x in [w.clone(), w.detach()] {
        let text = catch(|| pullback::grad(f)(&x)).unwrap_err().to_string();
        assert!(text.contains("the argument of a function that is being differentiated"), "{text}");
        let text = catch(|| jvp(f, &x, &x.ones_like()).1).unwrap_err().to_string();
        assert!(text.contains("the argument of a function that is being differentiated"), "{text}");
    }
    assert_eq!(w.to_vec::<f64>(), [1.0, 2.0]);
}

#[test]
fn forward_mode_notices_what_was_overwritten_behind_its_back() {
    let stale = |x: &Tensor| {
        let y = x * 2.0;
        let v = y.at(0..1);
        y.mul_(3.0);
        v
    };
    let (value, tangent) = jvp(stale, &Tensor::from([1.0, 2.0]), &Tensor::from([1.0, 0.0]));
    assert_eq!((value.to_vec::<f64>(), tangent.to_vec::<f64>()), (vec![6.0], vec![6.0]));
    let x0 = Tensor::from([1.0]);
    let behind = |x: &Tensor| {
        x0.add_(1.0);
        x * 2.0
    };
    let text = catch(|| jvp(behind, &x0, &Tensor::from([1.0])).1).unwrap_err().to_string();
    assert!(text.contains("overwritten through another tensor"), "{text}");
}

#[test]
fn in_place_methods_give_the_tensor_back() {
    let w = leaf(&[1.0, 2.0]);
    let part = no_grad(|| w.at(0).mul_(2.0));
    assert_eq!((part.item::<f64>(), w.to_vec::<f64>()), (2.0, vec![2.0, 2.0]));
}

#[test]
fn a_tensor_written_over_with_itself_is_read_first() {
    let x = Tensor::arange(0, 6);
    x.at(1..).copy_(x.at(..5));
    assert_eq!(x.to_vec::<i64>(), [0, 0, 1, 2, 3, 4]);
    let y = Tensor::arange(0, 3).reshape([3, 1]).deep_clone();
    y.add_(&y);
    assert_eq!(y.to_vec::<i64>(), [0, 2, 4]);
    let m = Tensor::arange(0, 4).reshape([2, 2]).deep_clone();
    m.copy_(m.t());
    assert_eq!(m.to_vec::<i64>(), [0, 2, 1, 3]);
}

#[test]
fn forward_mode_follows_in_place_writes() {
    let f = |x: &Tensor| {
        let h = x * 1.0;
        let view = h.at(1);
        h.at(0).mul_(x.at(1));
        h.mul_(2.0);
        h.sum() + view
    };
    let x = Tensor::from([3.0, 5.0]);
    let (y, ty) = jvp(f, &x, &Tensor::from([1.0, 0.0]));
    assert_eq!((y.item::<f64>(), ty.item::<f64>()), (50.0, 10.0));
    let (_, ty) = jvp(f, &x, &Tensor::from([0.0, 1.0]));
    assert_eq!(ty.item::<f64>(), 2.0 * 3.0 + 4.0);
}

#[test]
fn threads_that_write_to_what_the_other_reads_do_not_wait_for_each_other() {
    let (a, b) = (Tensor::zeros([1000]), Tensor::zeros([1000]));
    std::thread::scope(|s| {
        for (x, y) in [(&a, &b), (&b, &a)] {
            s.spawn(move || {
                for _ in 0..2000 {
                    x.mul_(0.5).add_(y).minimum_(1.0);
                }
            });
        }
    });
    assert!(a.to_vec::<f32>().iter().all(|v| v.is_finite()));
}
