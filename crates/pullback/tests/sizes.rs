//! Sizes beyond any memory get a sentence, wherever they come in.

use pullback::{DType, Index, IntoIndex, Tensor, cat, catch};

#[track_caller]
fn refused<R>(f: impl FnOnce() -> R) {
    let Err(error) = catch(f) else { panic!("was accepted") };
    let at = error.location().expect("a location");
    assert!(at.file().ends_with("sizes.rs"), "{error}");
}

#[test]
fn sizes_that_no_memory_holds_are_refused() {
    const HUGE: usize = 1 << 61;
    let x = Tensor::from([1.0, 2.0]);
    refused(|| x.pad([(usize::MAX, 3)]));
    refused(|| x.pad([(HUGE, 0)]));
    refused(|| Tensor::arange(0, 1i64 << 61));
    refused(|| Tensor::linspace(0.0, 1.0, HUGE));
    refused(|| Tensor::from(1.0).expand([HUGE]));
    refused(|| Tensor::from(1.0).expand([1usize << 40, 1 << 40]));
    refused(|| Tensor::from([1i64]).one_hot(HUGE, DType::F64));
    refused(|| x.narrow(0, 1, usize::MAX));
    refused(|| x.reshape([3usize, 6148914691236517206]));
    refused(|| Tensor::zeros([0]).reshape([1usize << 32, 1 << 32]));
    refused(|| Tensor::zeros([1usize << 40, 1 << 40, 0]));
    let tall = Tensor::from(1.0).expand([1usize << 40, 1]);
    let wide = Tensor::from(1.0).expand([1, 1usize << 40]);
    refused(|| tall.matmul(&wide));
    let half = Tensor::from(1.0).expand([1usize << 59]);
    refused(|| cat(&[&half, &half, &half, &half], 0));
}

#[test]
fn steps_and_bounds_at_the_end_of_the_numbers_are_harmless() {
    let x = Tensor::arange(0, 5);
    assert_eq!(x.at((..).by(isize::MAX)).to_vec::<i64>(), [0]);
    assert_eq!(x.at((..).by(isize::MIN)).to_vec::<i64>(), [4]);
    assert_eq!(x.at(isize::MIN..isize::MAX).to_vec::<i64>(), [0, 1, 2, 3, 4]);
    let range = Index::Range { start: Some(isize::MAX), stop: Some(isize::MIN), step: -1 };
    assert_eq!(x.at(range).to_vec::<i64>(), [4, 3, 2, 1, 0]);
    assert_eq!(x.unfold(0, 5, usize::MAX).to_vec::<i64>(), [0, 1, 2, 3, 4]);
}
