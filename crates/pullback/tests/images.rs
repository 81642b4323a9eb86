//! Images at another size, against PyTorch where its rules are not those of the formula.

use pullback::*;

/// i² for i = 0, 1, …
fn squares(shape: &[usize]) -> Tensor {
    let n: usize = shape.iter().product();
    Tensor::from_vec((0..n).map(|i| (i * i) as f64).collect::<Vec<f64>>(), shape)
}

#[track_caller]
fn near(x: &Tensor, want: &[f64], within: f64) {
    let x = x.to_vec::<f64>();
    assert_eq!(x.len(), want.len());
    for (a, b) in x.iter().zip(want) {
        assert!((a - b).abs() <= within * b.abs().max(1.0), "{x:?} is not {want:?}");
    }
}

/// ⌊5 · 1.1⌋ = 5: linear modes copy along such an axis, also when antialiased. Cubic without that
/// does not.
#[test]
fn an_axis_whose_length_stays_is_copied() {
    let x = Tensor::from([[[1.0, 2.0, 3.0, 4.0, 5.0]]]);
    let y = Interpolate::by([1.1]).mode(InterpolateMode::Linear).of(&x);
    assert_eq!(y.to_vec::<f64>(), [1.0, 2.0, 3.0, 4.0, 5.0]);
    let x = squares(&[1, 1, 5, 5]);
    let linear = Interpolate::by([1.1, 1.4]).mode(InterpolateMode::Linear);
    for how in [linear.clone(), linear.antialias(true)] {
        let y = how.of(&x);
        assert_eq!(y.shape(), [1, 1, 5, 7]);
        near(&y.select_at(-1, 0), &[0.0, 25.0, 100.0, 225.0, 400.0], 1e-12);
    }
    let cubic = Interpolate::by([1.1, 1.4]).mode(InterpolateMode::Cubic).antialias(true);
    let want = [-5.8252e-2, 24.359, 98.777, 223.19, 397.61];
    near(&cubic.of(&x).select_at(-1, 0), &want, 1e-4);
    let ramp = Tensor::from_vec((0..25).map(f64::from).collect::<Vec<f64>>(), [1, 1, 5, 5]);
    let y = Interpolate::by([1.1]).mode(InterpolateMode::Cubic).of(&ramp);
    near(&y.select_at(2, 0), &[-0.1864, 0.6535, 1.5695, 2.4871, 3.5208], 1e-4);
    let x = squares(&[1, 1, 5, 5, 1]);
    let y = Interpolate::by([1.1, 1.1, 1.0]).mode(InterpolateMode::Linear).of(&x);
    assert_eq!(y.to_vec::<f64>(), x.to_vec::<f64>());
}

#[test]
fn area_is_adaptive_average_pooling() {
    let x = squares(&[1, 2, 7, 10]);
    let resized = |x: &Tensor| Interpolate::to([3, 4]).mode(InterpolateMode::Area).of(x);
    let pooled = |x: &Tensor| x.adaptive_avg_pool2d([3usize, 4]);
    assert_eq!(resized(&x).to_vec::<f64>(), pooled(&x).to_vec::<f64>());
    let dy = squares(&[1, 2, 3, 4]);
    let (a, b) = (vjp(resized, &x).1(&dy), vjp(pooled, &x).1(&dy));
    assert_eq!(a.to_vec::<f64>(), b.to_vec::<f64>());
    // As many taps as the image is long: one pass, not one for each.
    let long = Tensor::ones([1, 1, 1 << 20]);
    let y = Interpolate::to([1]).mode(InterpolateMode::Area).of(&long);
    assert_eq!((y.shape(), y.to_vec::<f32>()), (&[1, 1, 1][..], vec![1.0]));
    let y =
        Interpolate::to([2, 2, 2]).mode(InterpolateMode::Area).of(&Tensor::ones([1, 1, 4, 4, 4]));
    assert_eq!(y.to_vec::<f32>(), [1.0; 8]);
}
