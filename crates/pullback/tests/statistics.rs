//! Quantiles, covariances, histograms, searches and sampled functions, against loops and known
//! values.

use pullback::check::check_grads;
use pullback::{DType, QuantileInterpolation, Spacing, Tensor, catch, f16};

fn samples(shape: &[usize]) -> Tensor {
    let n: usize = shape.iter().product();
    let value = |i: usize| ((i * 7919 + 3) % (n * 13 + 1)) as f64 / n as f64 - 5.0;
    Tensor::from_vec((0..n).map(value).collect::<Vec<f64>>(), shape)
}

#[track_caller]
fn near(a: &Tensor, b: &[f64]) {
    let close = a.cast(DType::F64).is_close(&Tensor::from_vec(b, a.shape()), 1e-12, 1e-14, true);
    assert!(close.all().item::<bool>(), "{a} is not {b:?}");
}

#[test]
fn quantiles() {
    let x = Tensor::from([4.0, 1.0, 3.0, 2.0]);
    let q = Tensor::from([0.0, 0.4, 0.5, 1.0]);
    near(&x.quantile(&q, 0, QuantileInterpolation::Linear), &[1.0, 2.2, 2.5, 4.0]);
    near(&x.quantile(&q, 0, QuantileInterpolation::Lower), &[1.0, 2.0, 2.0, 4.0]);
    near(&x.quantile(&q, 0, QuantileInterpolation::Higher), &[1.0, 3.0, 3.0, 4.0]);
    near(&x.quantile(&q, 0, QuantileInterpolation::Nearest), &[1.0, 2.0, 3.0, 4.0]);
    near(&x.quantile(&q, 0, QuantileInterpolation::Midpoint), &[1.0, 2.5, 2.5, 4.0]);
    let matrix = samples(&[3, 5]);
    assert_eq!(matrix.quantile(&q, 0, QuantileInterpolation::Linear).shape(), [4, 5]);
    assert_eq!(matrix.quantile(0.5, 1, QuantileInterpolation::Linear).shape(), [3]);
    near(
        &matrix.quantile(0.5, 1, QuantileInterpolation::Linear),
        &matrix.median(1).0.to_vec::<f64>(),
    );
    let holes =
        Tensor::from([[1.0, f64::NAN, 3.0], [f64::NAN, f64::NAN, f64::NAN], [1.0, 2.0, 9.0]]);
    near(&holes.quantile(0.5, 1, QuantileInterpolation::Linear), &[f64::NAN, f64::NAN, 2.0]);
    near(&holes.nan_quantile(0.5, 1, QuantileInterpolation::Linear), &[2.0, f64::NAN, 2.0]);
    near(&holes.nan_median(1).0, &[1.0, f64::NAN, 2.0]);
    near(&holes.nan_mean(1), &[2.0, f64::NAN, 4.0]);
    near(&holes.nan_sum(1), &[4.0, 0.0, 12.0]);
    near(&Tensor::from(7.0).quantile(0.3, 0, QuantileInterpolation::Linear), &[7.0]);
    let low = Tensor::from([f16::from_f32(1.0), f16::from_f32(2.0)]);
    assert_eq!(low.quantile(0.5, 0, QuantileInterpolation::Linear).dtype(), DType::F16);
    for between in [
        QuantileInterpolation::Linear,
        QuantileInterpolation::Nearest,
        QuantileInterpolation::Midpoint,
    ] {
        check_grads(|x: &Tensor| x.quantile(&q, 1, between).square(), &samples(&[3, 5]), 2)
            .unwrap();
    }
    let text = catch(|| x.quantile(1.5, 0, QuantileInterpolation::Linear)).unwrap_err().to_string();
    assert!(text.contains("q from 0 to 1"), "{text}");
}

#[test]
fn modes() {
    let x = Tensor::from([[2, 1, 2, 1, 3], [5, 5, 5, 1, 1], [4, 3, 2, 1, 0]]);
    let (values, places) = x.mode(1);
    assert_eq!((values.to_vec::<i32>(), places.to_vec::<i64>()), (vec![1, 5, 0], vec![3, 2, 4]));
    let (values, places) = x.mode(0);
    assert_eq!(values.to_vec::<i32>(), [2, 1, 2, 1, 0]);
    assert_eq!(places.to_vec::<i64>(), [0, 0, 2, 2, 2]);
    check_grads(|x: &Tensor| x.mode(1).0.square(), &samples(&[2, 3]), 2).unwrap();
}

#[test]
fn covariances() {
    let x = samples(&[3, 5]);
    let centred = &x - x.mean_keep(1);
    near(&x.cov(1.0, None, None), &(centred.matmul(&centred.t()) / 4.0).to_vec::<f64>());
    near(&x.cov(0.0, None, None).diagonal(), &x.var_with(1, 0.0).to_vec::<f64>());
    // An observation counted twice is there twice.
    let counts = Tensor::from([1i64, 2, 0, 1, 3]);
    let again = x.repeat_by(&counts, 1);
    near(&x.cov(1.0, Some(&counts), None), &again.cov(1.0, None, None).to_vec::<f64>());
    // Equal weights change nothing.
    let weights = Tensor::full([5], 0.5);
    near(&x.cov(1.0, None, Some(&weights)), &x.cov(1.0, None, None).to_vec::<f64>());
    assert_eq!(x.select_at(0, 0).cov(1.0, None, None).rank(), 0);
    near(&x.corrcoef().diagonal(), &[1.0, 1.0, 1.0]);
    let f = |z: &Vec<Tensor>| z[0].cov(1.0, Some(&counts), Some(&z[1].abs()));
    check_grads(f, &vec![samples(&[3, 5]), samples(&[5])], 2).unwrap();
    // At a correlation of exactly 1 there is a bound, so the diagonal is left out.
    check_grads(|x: &Tensor| x.corrcoef().triu(1), &samples(&[3, 5]), 1).unwrap();
}

#[test]
fn counts_and_histograms() {
    assert_eq!(Tensor::from([1i64, 3, 1]).bincount(None, 6).to_vec::<i64>(), [0, 2, 0, 1, 0, 0]);
    let weights = Tensor::from([0.5, 2.0, 0.25]);
    near(&Tensor::from([1i64, 3, 1]).bincount(Some(&weights), 0), &[0.0, 0.75, 0.0, 2.0]);
    assert_eq!(Tensor::zeros_with([0], DType::I64).bincount(None, 0).len(), 0);
    let x = Tensor::from([0.0, 0.5, 1.0, 1.5, 2.0, f64::NAN, 7.0]);
    near(&x.histc(2, Some((0.0, 2.0))), &[2.0, 3.0]);
    near(&x.narrow(0, 0, 5).histc(4, None), &[1.0, 1.0, 1.0, 2.0]);
    near(&Tensor::from([3.0, 3.0]).histc(2, None), &[0.0, 2.0]);
    let edges = Tensor::from([0.0, 1.0, 2.0]);
    near(&x.histogram(&edges, None), &[2.0, 3.0]);
    let w = Tensor::from([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0]);
    near(&x.histogram(&edges, Some(&w)), &[3.0, 28.0]);
    near(&x.narrow(0, 0, 5).bin_edges(2, None), &[0.0, 1.0, 2.0]);
    let points = Tensor::from([[0.5, 0.5], [0.5, 1.5], [1.5, 1.5], [9.0, 0.5]]);
    near(&points.histogram_nd(&[&edges, &edges], None), &[1.0, 1.0, 0.0, 1.0]);
    assert_eq!(Tensor::from([[0, 2], [3, 0]]).count_nonzero(0).to_vec::<i64>(), [1, 1]);
    check_grads(|w: &Tensor| x.histogram(&edges, Some(w)).square(), &w, 2).unwrap();
}

#[test]
fn searches() {
    let sorted = [1.0, 3.0, 3.0, 5.0];
    let values = [0.0, 1.0, 3.0, 4.0, 5.0, 6.0, f64::NAN];
    for right in [false, true] {
        let before = |v: f64| {
            if v.is_nan() {
                return 4;
            }
            sorted.iter().filter(|&&s| if right { s <= v } else { s < v }).count() as i64
        };
        let expected: Vec<i64> = values.iter().map(|&v| before(v)).collect();
        let (s, v) = (Tensor::from(sorted), Tensor::from(values));
        assert_eq!(s.searchsorted(&v, right).to_vec::<i64>(), expected);
        assert_eq!(v.bucketize(&s, right).to_vec::<i64>(), expected);
    }
    // A sequence for each line; integers beyond what a float holds.
    let lines = Tensor::from([[1, 5], [2, 3]]);
    let y = lines.searchsorted(&Tensor::from([[2, 9, 0], [2, 9, 0]]), false);
    assert_eq!(y.to_vec::<i64>(), [1, 2, 0, 0, 2, 0]);
    let big = 1i64 << 60;
    let y = Tensor::from([big, big + 1]).searchsorted(&Tensor::from([big + 1]), false);
    assert_eq!(y.to_vec::<i64>(), [1]);
    let y = Tensor::from([[1, 2], [3, 4]]).is_in(&Tensor::from([4, 2, 9]));
    assert_eq!(y.to_vec::<bool>(), [false, true, false, true]);
    assert!(!Tensor::from([1]).is_in(&Tensor::zeros_with([0], DType::I32)).any().item::<bool>());
}

#[test]
fn distinct_elements() {
    let x = Tensor::from([[3, 1, 3], [2, 1, 1]]);
    let u = x.unique();
    assert_eq!(u.values.to_vec::<i32>(), [1, 2, 3]);
    assert_eq!(
        (u.inverse.shape(), u.inverse.to_vec::<i64>()),
        (&[2, 3][..], vec![2, 0, 2, 1, 0, 0])
    );
    assert_eq!(u.counts.to_vec::<i64>(), [3, 1, 2]);
    let u = x.unique_consecutive();
    assert_eq!(u.values.to_vec::<i32>(), [3, 1, 3, 2, 1]);
    assert_eq!(u.counts.to_vec::<i64>(), [1, 1, 1, 1, 2]);
    let rows = Tensor::from([[2, 1], [1, 9], [2, 1], [2, 0]]);
    let u = rows.unique_over(0);
    assert_eq!(u.values.to_vec::<i32>(), [1, 9, 2, 0, 2, 1]);
    assert_eq!(
        (u.inverse.to_vec::<i64>(), u.counts.to_vec::<i64>()),
        (vec![2, 0, 2, 1], vec![1, 1, 2])
    );
    assert_eq!(rows.t().unique_over(1).values.to_vec::<i32>(), [1, 2, 2, 9, 0, 1]);
    assert_eq!(rows.unique_consecutive_over(0).values.shape(), [4, 2]);
    let nan = Tensor::from([f64::NAN, 1.0, f64::NAN]).unique();
    assert_eq!(nan.values.len(), 3);
    assert_eq!(Tensor::zeros([0]).unique().values.len(), 0);
    assert_eq!(Tensor::zeros([2, 0]).nonzero().shape(), [0, 2]);
    assert_eq!(Tensor::from(1.0).nonzero().shape(), [1, 0]);
    assert_eq!(x.gt(1).nonzero().to_vec::<i64>(), [0, 0, 0, 2, 1, 0]);
}

#[test]
fn sampled_functions() {
    let at = Tensor::from([0.0, 0.5, 2.0, 3.0, 3.25]);
    // A parabola: differences of second order are exact at every point.
    let y = at.square() * 3.0 - &at + 2.0;
    near(&y.gradient(Spacing::At(&at), 0, 2), &(&at * 6.0 - 1.0).to_vec::<f64>());
    let ends = y.gradient(Spacing::At(&at), 0, 1).to_vec::<f64>();
    assert_eq!(ends[0], (y.at(1).item::<f64>() - y.at(0).item::<f64>()) / 0.5);
    let line = &at * 2.0;
    near(&line.trapezoid(Spacing::At(&at), 0), &[3.25 * 3.25]);
    let running = line.cumulative_trapezoid(Spacing::At(&at), 0);
    near(&running, &at.narrow(0, 1, 4).square().to_vec::<f64>());
    near(&Tensor::from([[1.0, 2.0]]).trapezoid(Spacing::Even(2.0), 1), &[3.0]);
    assert_eq!(Tensor::zeros([3, 0]).trapezoid(Spacing::Even(1.0), 1).shape(), [3]);
    let f = |z: &Vec<Tensor>| {
        let spacing = Spacing::At(&z[1]);
        vec![
            z[0].gradient(spacing, 1, 2),
            z[0].gradient(Spacing::Even(0.5), 0, 1),
            z[0].trapezoid(spacing, -1),
            z[0].cumulative_trapezoid(spacing, 1),
        ]
    };
    check_grads(f, &vec![samples(&[2, 5]), at], 2).unwrap();
    let x = samples(&[3, 4]);
    check_grads(|x: &Tensor| x.renorm(3.0, 0, 4.0), &x, 2).unwrap();
    let norms = x.renorm(1.0, 1, 2.0).abs().sum_over(0).max().item::<f64>();
    assert!((norms - 2.0).abs() < 1e-6);
}

#[test]
fn how_numbers_are_written() {
    let x = [0.0, -0.0, 1.0, -3.5, 5e-324, 1e-310, f64::MAX, f64::INFINITY, f64::NAN];
    let (m, n) = Tensor::from(x).frexp();
    for ((m, n), x) in m.to_vec::<f64>().into_iter().zip(n.to_vec::<i32>()).zip(x) {
        if x == 0.0 || !x.is_finite() {
            assert!(m.to_bits() == x.to_bits() || (m.is_nan() && x.is_nan()));
            assert_eq!(n, 0);
        } else {
            assert!((0.5..1.0).contains(&m.abs()), "{x}: {m}");
            assert_eq!(m * 2f64.powi(n / 2) * 2f64.powi(n - n / 2), x);
        }
    }
    check_grads(|x: &Tensor| x.frexp().0.square(), &Tensor::from([0.7, -3.0, 100.0]), 2).unwrap();
    let next = |a: f64, b: f64| Tensor::from(a).next_after(&Tensor::from(b)).item::<f64>();
    assert_eq!((next(1.0, 2.0), next(1.0, 0.0)), (1.0f64.next_up(), 1.0f64.next_down()));
    assert_eq!((next(-1.0, 0.0), next(-1.0, -2.0)), ((-1.0f64).next_up(), (-1.0f64).next_down()));
    assert_eq!((next(0.0, 1.0), next(0.0, -1.0)), (5e-324, -5e-324));
    assert_eq!(
        (next(f64::MAX, f64::INFINITY), next(f64::INFINITY, 0.0)),
        (f64::INFINITY, f64::MAX)
    );
    let half = Tensor::from(f16::ONE).next_after(&Tensor::from(f16::INFINITY));
    assert_eq!(half.item::<f16>(), f16::ONE + f16::EPSILON);
    let signs = Tensor::from([-0.0, 0.0, -1.0, f64::NEG_INFINITY]).sign_bit();
    assert_eq!(signs.to_vec::<bool>(), [true, false, true, true]);
    near(&Tensor::from([-2.0, 0.0, 3.0]).angle(), &[std::f64::consts::PI, 0.0, 0.0]);
    check_grads(|x: &Tensor| x.ldexp(x), &Tensor::from([0.5, 2.0]), 2).unwrap();
    assert_eq!(Tensor::from([2, 3]).float_power(-1).dtype(), DType::F64);
}

#[test]
fn integers() {
    let (a, b) = (Tensor::from([12i64, -7, 0, 0, 48]), Tensor::from([18i64, 0, 5, 0, -36]));
    assert_eq!(a.gcd(&b).to_vec::<i64>(), [6, 7, 5, 0, 12]);
    assert_eq!(a.lcm(&b).to_vec::<i64>(), [36, 0, 0, 0, 144]);
    let bits = Tensor::from([1i32, -8, 3]);
    let by = Tensor::from([31i32, 1, 40]);
    assert_eq!(bits.shift_left(&by).to_vec::<i32>(), [i32::MIN, -16, 0]);
    assert_eq!(bits.shift_right(&by).to_vec::<i32>(), [0, -4, 0]);
    let text = catch(|| Tensor::from(1.5).gcd(&Tensor::from(2))).unwrap_err().to_string();
    assert!(text.contains("takes integers"), "{text}");
}
