//! What can only be seen from inside: how many casts are kept, and how a recomputation goes back to
//! where it was.

use super::{autocast, autocast_off, kept, state, with_state};
use crate::{DType, Tensor, jit, no_grad, vmap};

fn weight() -> Tensor {
    Tensor::from([[0.1f32, 0.2], [0.3, 0.4]]).requires_grad()
}

#[test]
fn weights_are_cast_once_and_the_cache_ends_with_the_outermost_scope() {
    let (x, w, b) = (Tensor::ones([1, 2]), weight(), Tensor::from([1.0f32, 2.0]).requires_grad());
    autocast(DType::BF16, || {
        autocast(DType::BF16, || x.linear(&w, Some(&b)));
        assert_eq!(kept(), 2);
        let _ = x.linear(&w, Some(&b));
        assert_eq!(kept(), 2);
        let _ = autocast_off(|| x.linear(&w, Some(&b)));
        assert_eq!(kept(), 2);
        let _ = autocast(DType::F16, || x.linear(&w, None));
        assert_eq!(kept(), 3);
        let _ = no_grad(|| x.linear(&w, None));
        assert_eq!(kept(), 4);
    });
    assert_eq!(kept(), 0);
}

#[test]
fn a_panic_empties_the_cache_and_switches_off() {
    let (x, w) = (Tensor::ones([1, 2]), weight());
    let failed = crate::catch(|| {
        autocast(DType::BF16, || {
            let _ = x.linear(&w, None);
            x.matmul(&Tensor::ones([5, 5]))
        })
    });
    assert!(failed.is_err());
    assert_eq!((kept(), state().dtype()), (0, None));
    assert_eq!(x.matmul(&w).dtype(), DType::F32);
}

#[test]
fn a_trace_keeps_its_casts_to_itself() {
    let (x, w) = (Tensor::ones([3, 2]), weight());
    let f = jit(|x: &Tensor| x.linear(&w, None).cast(DType::F32).sum().detach());
    let rows = vmap(|x: &Tensor| w.matmul(x), 0, 0);
    autocast(DType::BF16, || {
        let y = x.linear(&w, None);
        assert_eq!(kept(), 1);
        let _ = f.of(&x);
        assert_eq!(kept(), 1);
        let z = rows(&x);
        assert_eq!(kept(), 1);
        assert_eq!(z.dtype(), DType::BF16);
        // Nor is what was kept outside used inside: another trace is made with nothing of the
        // first.
        let _ = f.of(&Tensor::ones([4, 2]));
        assert_eq!(y.dtype(), DType::BF16);
    });
}

#[test]
fn a_recomputation_goes_back_to_the_state_it_was_in() {
    let (x, w) = (Tensor::from([[1.0f32, 3.0]]), weight());
    let f = |x: &Tensor| x.linear(&w, None).tanh();
    let (then, first) = autocast(DType::F16, || (state(), f(&x)));
    assert_eq!(f(&x).dtype(), DType::F32);
    // As a checkpoint would: later, elsewhere, and leaving nothing behind.
    let again = with_state(then, || {
        let y = f(&x);
        let _ = f(&x);
        assert_eq!(kept(), 1);
        y
    });
    assert_eq!((again.dtype(), kept()), (DType::F16, 0));
    assert_eq!(again.to_f64_vec(), first.to_f64_vec());
    // Inside another scope the casts of that one are neither used nor dropped.
    autocast(DType::BF16, || {
        let _ = f(&x);
        let y = with_state(then, || {
            assert_eq!(kept(), 0);
            f(&x)
        });
        assert_eq!((y.dtype(), kept()), (DType::F16, 1));
        // And from inside a scope it can go back to having been outside.
        let none = autocast_off(state);
        assert_eq!(with_state(none, || f(&x)).dtype(), DType::F32);
    });
    again.sum().backward().unwrap();
    let recomputed = w.grad().unwrap().to_vec::<f32>();
    w.zero_grad();
    first.sum().backward().unwrap();
    assert_eq!(w.grad().unwrap().to_vec::<f32>(), recomputed);
}

#[test]
fn both_runs_of_a_checkpoint_cast_a_weight_once() {
    use std::sync::{Arc, Mutex};
    let (x, w) = (Tensor::ones([1, 2]), weight());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (v, notes) = (w.clone(), seen.clone());
    let f = move |x: &Tensor| {
        let h = x.linear(&v, None).tanh();
        let first = kept();
        let y = h.linear(&v, None).tanh().linear(&v, None);
        notes.lock().unwrap().push((state().dtype(), kept(), first == kept()));
        y.sum()
    };
    let y = autocast(DType::F16, || crate::checkpoint(f, &x));
    assert_eq!((kept(), w.grad().is_none()), (0, true));
    y.backward().unwrap();
    // The second run makes its own, and leaves none behind.
    assert_eq!(*seen.lock().unwrap(), [(Some(DType::F16), 1, true); 2]);
    assert_eq!((kept(), state().dtype()), (0, None));
}
