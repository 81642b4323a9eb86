//! Attention at its edges: masks of other dtypes, no features.

use pullback::*;

#[test]
fn a_mask_is_bool_or_float() {
    let x = Tensor::ones([1, 2, 3]);
    for mask in [Tensor::from([[1i64, 0], [1, 1]]), Tensor::from([[1u8, 0], [1, 1]])] {
        let error = catch(|| drop(x.attention(&x, &x, Attention::new().mask(&mask)))).unwrap_err();
        assert!(error.to_string().contains("bool or a float dtype"), "{error}");
        let at = error.location().expect("a location");
        assert!(at.file().ends_with("tests/attention.rs"), "{at}");
        let _ = x.attention(&x, &x, Attention::new().mask(&mask.ne(0)));
        let _ = x.attention(&x, &x, Attention::new().mask(&mask.cast(DType::F32)));
    }
}

#[track_caller]
fn near(x: &Tensor, want: &[f64]) {
    let x = x.to_vec::<f64>();
    assert_eq!(x.len(), want.len());
    assert!(x.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-14), "{x:?}");
}

/// Without features all weights are equal, and so are their derivatives finite.
#[test]
fn no_features_weigh_all_keys_the_same() {
    let q = Tensor::zeros_with([1, 2, 0], DType::F64);
    let v = Tensor::from([[[1.0, 2.0, 3.0], [3.0, 4.0, 5.0]]]);
    let f = |v: &Tensor| q.attention(&q, v, Attention::new());
    let (y, t) = jvp(f, &v, &v);
    let want = [2.0, 3.0, 4.0, 2.0, 3.0, 4.0];
    near(&y, &want);
    near(&t, &want);
    let dv = vjp(f, &v).1(&Tensor::ones_with([1, 2, 3], DType::F64));
    near(&dv, &[1.0; 6]);
}
