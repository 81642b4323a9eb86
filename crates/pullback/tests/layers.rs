//! What is random or has state: dropout, running statistics, embeddings with a largest norm; and
//! refusals.

use pullback::*;

fn mean_and_variance(x: &Tensor) -> (f64, f64) {
    let x = x.cast(DType::F64);
    (x.mean().item::<f64>(), x.var().item::<f64>())
}

#[test]
fn dropout_keeps_the_expectation_and_its_mask_is_the_gradient() {
    let key = Key::new(3);
    let x = Tensor::ones([200, 100]).requires_grad();
    let y = x.dropout(0.3, Some(&key));
    let kept = y.ne(0.0).cast(DType::F64).mean().item::<f64>();
    assert!((kept - 0.7).abs() < 0.01, "{kept}");
    assert!((mean_and_variance(&y).0 - 1.0).abs() < 0.02);
    y.sum().backward().unwrap();
    assert_eq!(x.grad().unwrap().to_vec::<f32>(), y.to_vec::<f32>());
    // The same key, the same zeros; evaluation is the identity.
    assert_eq!(x.dropout(0.3, Some(&key)).to_vec::<f32>(), y.to_vec::<f32>());
    assert_eq!(x.dropout(0.3, None).to_vec::<f32>(), x.to_vec::<f32>());
    assert_eq!(x.dropout(1.0, Some(&key)).sum().item::<f32>(), 0.0);
}

#[test]
fn channel_dropout_drops_whole_channels() {
    let y = Tensor::ones([8, 16, 3, 5]).channel_dropout(0.5, 2, Some(&Key::new(1)));
    let sums = y.sum_over([2, 3]).to_vec::<f32>();
    assert!(sums.iter().all(|&s| s == 0.0 || s == 30.0), "{sums:?}");
    assert!(sums.contains(&0.0) && sums.contains(&30.0));
    // Without a batch, the first axis is the channels.
    let y = Tensor::ones([16, 3, 5]).channel_dropout(0.5, 2, Some(&Key::new(1)));
    assert!(y.sum_over([1, 2]).to_vec::<f32>().iter().all(|&s| s == 0.0 || s == 30.0));
}

#[test]
fn alpha_dropout_keeps_mean_and_variance() {
    let x = Key::new(0).normal([300, 300], DType::F32, 0.0, 1.0);
    let (mean, variance) = mean_and_variance(&x.alpha_dropout(0.3, Some(&Key::new(1))));
    assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.03, "{mean} {variance}");
    let y = Tensor::ones([6, 8, 4]).feature_alpha_dropout(0.5, Some(&Key::new(1)));
    let first = y.narrow(2, 0, 1).expand([6, 8, 4]);
    assert!(y.eq(&first).all().item::<bool>());
}

#[test]
fn random_slopes_lie_between_their_bounds() {
    let x = Tensor::full([1000], -1.0).requires_grad();
    let y = x.rrelu(0.2, 0.4, Some(&Key::new(2)));
    let slopes: Vec<f64> = y.to_vec::<f64>().iter().map(|v| -v).collect();
    assert!(slopes.iter().all(|s| (0.2..=0.4).contains(s)));
    let spread =
        slopes.iter().fold(0f64, |a, &b| a.max(b)) - slopes.iter().fold(1f64, |a, &b| a.min(b));
    assert!(spread > 0.18, "{spread}");
    y.sum().backward().unwrap();
    assert_eq!(x.grad().unwrap().to_vec::<f64>(), slopes);
}

#[test]
fn gumbel_softmax_samples_the_distribution() {
    let p = [0.1, 0.2, 0.7];
    let logits = Tensor::from(p).log().expand([20_000, 3]);
    let hard = logits.gumbel_softmax(0.5, true, -1, &Key::new(5));
    let found = hard.mean_over(0).to_vec::<f64>();
    assert!(found.iter().zip(p).all(|(a, b)| (a - b).abs() < 0.02), "{found:?}");
    // Hard in value, soft in gradient.
    let x = Tensor::from([[0.1, 0.2, 0.3]]).requires_grad();
    let y = x.gumbel_softmax(1.0, true, 1, &Key::new(6));
    assert_eq!(y.to_vec::<f64>().iter().filter(|v| (**v - 1.0).abs() < 1e-12).count(), 1);
    (y * Tensor::from([[1.0, 2.0, 3.0]])).sum().backward().unwrap();
    assert!(x.grad().unwrap().abs().sum().item::<f64>() > 1e-3);
}

#[test]
fn running_statistics_move_and_carry_no_gradient() {
    let x = Tensor::from([[[0.0, 2.0], [1.0, 3.0]], [[4.0, 6.0], [5.0, 9.0]]]).requires_grad();
    let (mean, var) = (Tensor::from([1.0, 1.0]), Tensor::from([2.0, 2.0]));
    // Values of torch.nn.functional.batch_norm and instance_norm with momentum 0.25.
    let (y, m, v) = x.batch_norm_running((&mean, &var), None, None, 0.25, 1e-5);
    assert_eq!(y.shape(), x.shape());
    assert_eq!(m.to_vec::<f64>(), [1.5, 1.875]);
    let near = |a: Vec<f64>, b: [f64; 2]| {
        assert!(a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-12), "{a:?}")
    };
    near(v.to_vec(), [3.166_666_666_666_666_5, 4.416_666_666_666_667]);
    assert!(!m.is_tracked() && !v.is_tracked());
    let (_, m, v) = x.instance_norm_running((&mean, &var), None, None, 0.25, 1e-5);
    near(m.to_vec(), [1.5, 1.875]);
    near(v.to_vec(), [2.0, 2.75]);
}

#[test]
fn rows_longer_than_the_largest_norm_are_scaled_down() {
    let table = Tensor::from([[3.0, 4.0], [0.3, 0.4]]).requires_grad();
    let y = Embedding::new().max_norm(1.0, 2.0).of(&table, &Tensor::from([0i64, 1, 0]));
    let want = [0.6, 0.8, 0.3, 0.4, 0.6, 0.8];
    assert!(y.to_vec::<f64>().iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-6));
    y.sum().backward().unwrap();
    assert_eq!(table.grad().unwrap().to_vec::<f64>(), [2.0, 2.0, 1.0, 1.0]);
}

#[test]
fn derivatives_without_closed_form_are_refused_with_a_sentence() {
    let s = Tensor::from(2.0).requires_grad();
    let error = s.zeta(1.5).backward().unwrap_err();
    assert!(error.to_string().contains("no closed form"), "{error}");
    let a = Tensor::from(2.0).requires_grad();
    let x = Tensor::from(1.0).requires_grad();
    assert!(a.gammainc(&x).backward().is_err());
    // By the other operand alone it works.
    a.detach().gammaincc(&x).backward().unwrap();
    assert!((x.grad().unwrap().item::<f64>() + (-1.0f64).exp()).abs() < 1e-15);
}

#[test]
fn infinities_reach_only_what_uses_them() {
    let x = Tensor::from([[[1.0, f64::INFINITY, 2.0, 3.0, 4.0, 5.0]]]);
    let y = Interpolate::to([3]).mode(InterpolateMode::Area).of(&x).to_vec::<f64>();
    assert_eq!(y, [f64::INFINITY, 2.5, 4.5]);
    let grid = Tensor::from_vec([f64::NAN, 0.0, -9.0, 0.0], [1, 1, 2, 2]);
    let image = Tensor::ones_with([1, 1, 2, 2], DType::F64);
    let y = image.grid_sample(&grid, GridSampleMode::Nearest, GridPaddingMode::Zeros, false);
    assert_eq!(y.to_vec::<f64>(), [0.0, 0.0]);
}
