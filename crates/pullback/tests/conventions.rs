//! The values at kinks that `docs/conventions.md` promises, in both modes.

use pullback::{Conventions, DType, Tensor, f16, grad, hessian, hessian_tree, jvp, kink_table};

/// The derivative of `f` at `x`, the same in reverse and forward mode.
#[track_caller]
fn slope(f: impl Fn(&Tensor) -> Tensor, x: f64) -> f64 {
    let x = Tensor::from(x);
    let reverse = grad(&f)(&x).item::<f64>();
    let forward = jvp(&f, &x, &Tensor::from(1.0)).1.item::<f64>();
    assert!(
        reverse == forward || (reverse.is_nan() && forward.is_nan()),
        "{reverse} and {forward}"
    );
    reverse
}

/// The gradient of the sum of `f` at `x`.
fn slopes(f: impl Fn(&Tensor) -> Tensor, x: &[f64]) -> Vec<f64> {
    let x = Tensor::from(x);
    let reverse = grad(|x: &Tensor| f(x).sum())(&x).to_vec::<f64>();
    let basis = |i: usize| {
        Tensor::from((0..x.len()).map(|j| f64::from(u8::from(i == j))).collect::<Vec<_>>())
    };
    let forward: Vec<f64> =
        (0..x.len()).map(|i| jvp(|x: &Tensor| f(x).sum(), &x, &basis(i)).1.item()).collect();
    assert_eq!(reverse, forward);
    reverse
}

#[test]
fn functions_of_one_element() {
    assert_eq!(slope(Tensor::relu, 0.0), 0.0);
    assert_eq!(slope(Tensor::abs, 0.0), 0.0);
    assert_eq!(slope(Tensor::sqrt, 0.0), f64::INFINITY);
    for f in [Tensor::sign, Tensor::floor, Tensor::ceil, Tensor::round, Tensor::trunc] {
        for x in [-0.5, 0.0, 0.5, 1.0] {
            assert_eq!(slope(|x: &Tensor| f(x) + x * 0.0, x), 0.0);
        }
    }
    assert_eq!(slope(|x: &Tensor| x.clamp(-1.0, 1.0), 1.0), 1.0);
    assert_eq!(slope(|x: &Tensor| x.clamp(-1.0, 1.0), -1.0), 1.0);
    assert_eq!(slope(|x: &Tensor| x.clamp(-1.0, 1.0), 1.5), 0.0);
    assert_eq!(slope(|x: &Tensor| x.clamp_min(0.0), 0.0), 1.0);
    assert_eq!(slope(|x: &Tensor| x.clamp_max(0.0), 0.0), 1.0);
}

#[test]
fn functions_of_two_elements() {
    let two = Tensor::from(2.0);
    for f in [|a: &Tensor, b: &Tensor| a.maximum(b), |a: &Tensor, b: &Tensor| a.minimum(b)] {
        assert_eq!(slope(|x: &Tensor| f(x, &two), 2.0), 0.5);
        assert_eq!(slope(|x: &Tensor| f(&two, x), 2.0), 0.5);
    }
    assert_eq!(slope(|x: &Tensor| x.maximum(&two), 3.0), 1.0);
    assert_eq!(slope(|x: &Tensor| x.floor_div(&two) + x * 0.0, 3.0), 0.0);
    assert_eq!(slope(|x: &Tensor| x.pow(0.0), 0.0), 0.0);
    assert_eq!(slope(|x: &Tensor| x.pow(1.0), 0.0), 1.0);
    assert_eq!(slope(|b: &Tensor| Tensor::from(0.0).pow(b), 0.0), 0.0);
    assert_eq!(slope(|b: &Tensor| Tensor::from(0.0).pow(b), 2.0), 0.0);
    assert!(slope(|x: &Tensor| x.atan2(Tensor::from(0.0)), 0.0).is_nan());
}

#[test]
fn reductions() {
    assert_eq!(slopes(Tensor::max, &[1.0, 3.0, 3.0]), [0.0, 0.5, 0.5]);
    assert_eq!(slopes(Tensor::min, &[1.0, 1.0, 1.0, 2.0]), [1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0, 0.0]);
    assert_eq!(slopes(|x: &Tensor| x.max_at(0).0, &[1.0, 3.0, 3.0]), [0.0, 1.0, 0.0]);
    assert_eq!(slopes(|x: &Tensor| x.min_at(0).0, &[1.0, 3.0, 1.0]), [1.0, 0.0, 0.0]);
    assert_eq!(slopes(|x: &Tensor| x.cummax(0), &[2.0, 2.0, 1.0]), [1.0, 2.0, 0.0]);
    assert_eq!(slopes(|x: &Tensor| x.cummin(0), &[2.0, 2.0, 1.0]), [1.0, 1.0, 1.0]);
    assert_eq!(slopes(Tensor::norm, &[0.0, 0.0]), [0.0, 0.0]);
    assert_eq!(slopes(Tensor::norm, &[0.0, -2.0]), [0.0, -1.0]);
    assert_eq!(slopes(Tensor::prod, &[2.0, 0.0, 3.0]), [0.0, 6.0, 0.0]);
    assert_eq!(slopes(Tensor::prod, &[0.0, 0.0, 3.0]), [0.0, 0.0, 0.0]);
    assert_eq!(slopes(|x: &Tensor| x.cumprod(0), &[2.0, 0.0, 3.0]), [1.0, 8.0, 0.0]);
    let weights = Tensor::from([1.0, 10.0, 100.0]);
    assert_eq!(
        slopes(|x: &Tensor| x.sort(0, false).0 * &weights, &[5.0, 5.0, 1.0]),
        [10.0, 100.0, 1.0]
    );
}

#[test]
fn scatter() {
    let index = Tensor::from([0i64, 0]);
    let base = Tensor::from([1.0]);
    assert_eq!(slopes(|x: &Tensor| base.scatter(0, &index, x), &[5.0, 7.0]), [0.0, 1.0]);
    assert_eq!(slopes(|x: &Tensor| base.scatter_max(0, &index, x), &[7.0, 7.0]), [0.5, 0.5]);
    assert_eq!(slopes(|x: &Tensor| base.scatter_min(0, &index, x), &[1.0, 7.0]), [0.5, 0.0]);
    assert_eq!(slopes(|x: &Tensor| base.scatter_mul(0, &index, x), &[0.0, 7.0]), [7.0, 0.0]);
    assert_eq!(slopes(|x: &Tensor| base.scatter_mul(0, &index, x), &[0.0, 0.0]), [0.0, 0.0]);
}

#[test]
fn second_derivatives_of_scattered_products_are_right_also_at_zeros() {
    let index = Tensor::from([0i64, 0]);
    let f = |x: &Tensor| Tensor::from([2.0]).scatter_mul(0, &index, x).sum();
    // 2·x₀·x₁: the mixed second derivative is 2.
    let second = |x: [f64; 2]| hessian(f)(&Tensor::from(x)).to_vec::<f64>();
    assert_eq!(second([3.0, 5.0]), [0.0, 2.0, 2.0, 0.0]);
    assert_eq!(second([0.0, 5.0]), [0.0, 2.0, 2.0, 0.0]);
    assert_eq!(second([0.0, 0.0]), [0.0, 2.0, 2.0, 0.0]);
}

#[test]
fn nan_and_infinities() {
    let nan = f64::NAN;
    let x = Tensor::from([1.0, nan, 3.0]);
    for y in [
        x.max(),
        x.min(),
        x.sum(),
        x.clamp(0.0, 2.0).at(1),
        x.relu().at(1),
        x.sign().at(1),
        x.maximum(0.0).at(1),
    ] {
        assert!(y.item::<f64>().is_nan());
    }
    assert!(x.cummax(0).at(2).item::<f64>().is_nan());
    assert_eq!(x.argmax(0).item::<i64>(), 1);
    assert_eq!(x.argmin(0).item::<i64>(), 1);
    assert_eq!(x.sort(0, false).1.to_vec::<i64>(), [0, 2, 1]);
    assert_eq!(x.ne(&x).to_vec::<bool>(), [false, true, false]);
    assert_eq!(x.eq(&x).to_vec::<bool>(), [true, false, true]);
    let low = Tensor::from([f64::NEG_INFINITY, f64::NEG_INFINITY]);
    assert_eq!(low.logsumexp().item::<f64>(), f64::NEG_INFINITY);
    assert_eq!(Tensor::from([0.0, f64::NEG_INFINITY]).softmax(0).to_vec::<f64>(), [1.0, 0.0]);
}

#[test]
fn types() {
    use pullback::DType::*;
    let (i, b, f) =
        (Tensor::from([7i64, 2]), Tensor::from([true, false]), Tensor::from([1.0f32, 2.0]));
    assert_eq!((&i / 2).dtype(), F32);
    assert_eq!((&i + 1.5).dtype(), F32);
    assert_eq!((&b + 1).dtype(), I64);
    assert_eq!((&f * 2.0).dtype(), F32);
    assert_eq!((2.0 * &f - f.clone() / 3.0).dtype(), F32);
    assert_eq!((&f + &i).dtype(), F32);
    assert_eq!((f.cast(BF16) + f.cast(F16)).dtype(), F32);
    assert_eq!(i.sum().dtype(), I64);
    assert_eq!(b.sum().item::<i64>(), 1);
    assert_eq!(i.floor_div(Tensor::from([0i64, 2])).to_vec::<i64>(), [0, 1]);
    assert_eq!(
        Tensor::from([1e30, -1e30, f64::NAN]).cast(I32).to_vec::<i32>(),
        [i32::MAX, i32::MIN, 0]
    );
    assert_eq!((Tensor::from([200u8]) + 100u8).to_vec::<u8>(), [44]);
}

#[test]
fn means_and_norms_of_half_precision_do_not_overflow() {
    for dtype in [DType::F16, DType::BF16] {
        let x = Tensor::ones_with([100_000], dtype);
        assert_eq!((x.mean().dtype(), x.mean().to_f64_vec()[0]), (dtype, 1.0));
        assert_eq!(x.var().to_f64_vec(), [0.0]);
        assert_eq!(x.vector_norm(0.5, 0).dtype(), dtype);
        let slope = grad(|x: &Tensor| x.mean())(&x);
        assert_eq!(slope.dtype(), dtype);
        let tens = Tensor::full([10_000], 10.0).cast(dtype);
        assert_eq!((tens.norm().dtype(), tens.norm().to_f64_vec()[0]), (dtype, 1000.0));
        assert_eq!(
            tens.normalize(2.0, 0, 1e-12).at(0).to_f64_vec(),
            [Tensor::from(0.01).cast(dtype).to_f64_vec()[0]]
        );
    }
    let far = Tensor::from([f16::from_f32(-300.0), f16::from_f32(300.0)]);
    assert_eq!(far.std_with(0, 0.0).to_f64_vec(), [300.0]);
    assert_eq!(far.rms_norm(&Tensor::ones_with([2], DType::F16), 0.0).to_f64_vec(), [-1.0, 1.0]);
    assert_eq!(far.hypot(&far).at(0).to_f64_vec(), [424.25]);
}

#[test]
fn ranges_of_integers_are_counted_in_integers() {
    let start = (1i64 << 53) + 1;
    let x = Tensor::arange_by(start, start + 3, 1);
    assert_eq!(x.to_vec::<i64>(), [start, start + 1, start + 2]);
    assert_eq!(Tensor::arange_by(5i64, 0, -2).to_vec::<i64>(), [5, 3, 1]);
    assert_eq!(Tensor::arange_by(0u8, 255, 100).to_vec::<u8>(), [0, 100, 200]);
    assert_eq!(
        Tensor::arange_by(i64::MIN, i64::MAX, i64::MAX).to_vec::<i64>(),
        [i64::MIN, -1, i64::MAX - 1]
    );
    assert_eq!(Tensor::arange_by(3i64, 0, 1).len(), 0);
}

#[test]
fn rounding_to_any_number_of_decimals() {
    let x = Tensor::from([123.456, -0.5, 1e300, f64::INFINITY]);
    let at = |n: i32| x.round_to(n).to_vec::<f64>();
    assert_eq!(at(1), [123.5, -0.5, 1e300, f64::INFINITY]);
    assert_eq!(at(i32::MAX), x.to_vec::<f64>());
    assert_eq!(at(i32::MIN), [0.0, 0.0, 0.0, f64::INFINITY]);
    assert_eq!(at(-2)[..2], [100.0, 0.0]);
    assert_eq!(Tensor::from([2.5f32]).round_to(60).to_vec::<f32>(), [2.5]);
}

#[test]
fn the_hessian_of_nothing_is_empty() {
    let none: Vec<Tensor> = Vec::new();
    assert!(hessian_tree(|_: &Vec<Tensor>| Tensor::from(1.0))(&none).is_empty());
    assert_eq!(hessian(|x: &Tensor| x.sum())(&Tensor::zeros([0])).shape(), [0, 0]);
    let two = vec![Tensor::zeros([0]), Tensor::zeros([0, 2])];
    let blocks = hessian_tree(|x: &Vec<Tensor>| x[0].sum() + x[1].sum())(&two);
    assert_eq!((blocks.len(), blocks[1][0].shape()), (2, &[0, 2, 0][..]));
}

#[test]
fn pooled_maxima_take_the_first_of_equals_and_the_last_nan() {
    let x = Tensor::from([[2.0, 2.0, f64::NAN, f64::NAN]]).requires_grad();
    let (y, places) = x.max_pool1d_at(&pullback::Pool::new(2));
    assert_eq!(places.to_vec::<i64>(), [0, 3]);
    assert!(y.to_vec::<f64>()[1].is_nan());
    y.sum().backward().unwrap();
    assert_eq!(x.grad().unwrap().to_vec::<f64>(), [1.0, 0.0, 0.0, 1.0]);
}

#[test]
fn special_functions_at_their_poles_and_kinks() {
    assert_eq!(slope(Tensor::i0e, 0.0), 0.0);
    assert_eq!(slope(Tensor::i1e, 0.0), 0.5);
    assert_eq!(slope(Tensor::i1, 0.0), 0.5);
    assert_eq!(slope(Tensor::lgamma, 0.0), f64::NEG_INFINITY);
    assert!(slope(Tensor::lgamma, -2.0).is_nan());
    assert_eq!(Tensor::from([0.0, -1.0]).lgamma().to_vec::<f64>(), [f64::INFINITY; 2]);
    assert_eq!(slope(Tensor::sinc, 0.0), 0.0);
}

#[test]
fn places_held_at_the_border_have_no_slope() {
    use pullback::{GridPaddingMode, GridSampleMode};
    let image = Tensor::from_vec([1.0, 2.0, 4.0, 8.0], [1, 1, 1, 4]);
    let read = |x: &Tensor, outside| {
        let place = pullback::stack(&[x, &x.zeros_like()], 0).reshape([1, 1, 1, 2]);
        image.grid_sample(&place, GridSampleMode::Linear, outside, true).sum()
    };
    let border = |at: f64| slope(|x: &Tensor| read(x, GridPaddingMode::Border), at);
    // The image spans −1 to 1 with corners in place: one step is 1.5 per unit.
    assert_eq!((border(-1.0), border(-1.5), border(1.0)), (0.0, 0.0, 0.0));
    assert!((border(0.0) - 3.0).abs() < 1e-12);
    assert_eq!(slope(|x: &Tensor| read(x, GridPaddingMode::Zeros), -9.0), 0.0);
}

#[test]
fn margins_pass_no_gradient_where_the_loss_is_zero() {
    use pullback::{Reduction, losses};
    let x = Tensor::from([2.0, 1.0]).requires_grad();
    // 1 − 2 + 1 is exactly 0.
    let loss = losses::multi_margin(&x, &Tensor::from(0i64), 1, 1.0, None, Reduction::Sum);
    loss.backward().unwrap();
    assert_eq!(x.grad().unwrap().to_vec::<f64>(), [0.0, 0.0]);
}

#[test]
fn the_table_of_kinks_is_in_the_documentation() {
    let text = include_str!("../../../docs/conventions.md");
    let start = text.find("## Values at kinks").unwrap();
    let section = text[start..].split("Not counted as kinks").next().unwrap();
    let written: Vec<&str> = section.lines().filter(|l| l.starts_with("| `")).collect();
    let line =
        |r: &pullback::KinkRow| format!("| {} | {} | {} |", r.functions, r.place, r.derivative);
    let table: Vec<String> = kink_table(&Conventions::pullback()).iter().map(line).collect();
    assert_eq!(written, table);
}

/// Every function of the table of kinks, at its kink, has the derivative that the table says.
#[test]
fn derivatives_at_the_other_kinks() {
    assert_eq!(slope(|x: &Tensor| x.leaky_relu(0.25), 0.0), 0.25);
    assert_eq!(slope(|x: &Tensor| x.prelu(&Tensor::from(0.25)), 0.0), 0.25);
    assert_eq!(slope(|x: &Tensor| x.elu(2.0), 0.0), 2.0);
    assert_eq!(slope(|x: &Tensor| x.softshrink(1.0), 1.0), 0.0);
    assert_eq!(slope(|x: &Tensor| x.hardshrink(1.0), -1.0), 0.0);
    assert_eq!(slope(|x: &Tensor| x.threshold(1.0, 3.0), 1.0), 0.0);
    assert_eq!(slope(|x: &Tensor| x.heaviside(0.5) + x * 0.0, 0.0), 0.0);
    assert_eq!(slope(|x: &Tensor| x.hardtanh(-1.0, 1.0), 1.0), 0.0);
    assert_eq!(slope(Tensor::relu6, 6.0), 0.0);
    assert_eq!(slope(Tensor::hardsigmoid, -3.0), 0.0);
    assert_eq!((slope(Tensor::hardswish, -3.0), slope(Tensor::hardswish, 3.0)), (0.0, 1.0));
    assert_eq!(slope(|x: &Tensor| x.fmax(&Tensor::from(1.0)), 1.0), 1.0);
    assert_eq!(slope(|x: &Tensor| x.hypot(&Tensor::from(0.0)), 0.0), 0.0);
    assert_eq!(slopes(|x: &Tensor| x.vector_norm(3.0, 0), &[0.0, 0.0]), [0.0, 0.0]);
    assert_eq!(slopes(Tensor::std, &[1.0, 1.0]), [0.0, 0.0]);
    assert_eq!(slope(|x: &Tensor| x.powf(0.5), 0.0), f64::INFINITY);
    assert_eq!(slope(|x: &Tensor| x.remainder(2.0), 4.0), 1.0);
    assert_eq!(slope(|x: &Tensor| Tensor::from(4.0).remainder(x), 2.0), -2.0);
    assert_eq!(slope(|x: &Tensor| Tensor::from(-4.0).fmod(x), 2.0), 2.0);
    assert_eq!(slope(|x: &Tensor| x.atan2(Tensor::from(-2.0)), 0.0), -0.5);
    assert_eq!(slope(|x: &Tensor| x.copysign(Tensor::from(3.0)), 0.0), 0.0);
    for f in [Tensor::log, Tensor::log2, Tensor::log10, Tensor::recip, Tensor::rsqrt] {
        assert!(slope(f, 0.0).is_infinite());
    }
    for f in
        [Tensor::asin, Tensor::acos, Tensor::acosh, Tensor::atanh, Tensor::erfinv, Tensor::ndtri]
    {
        assert!(slope(f, 1.0).is_infinite());
    }
    assert!(slope(Tensor::log1p, -1.0).is_infinite());
    let digamma = slope(Tensor::digamma, 0.0);
    assert!(digamma.is_infinite() || digamma.is_nan());
    assert!(slope(|x: &Tensor| x / Tensor::from(0.0), 1.0).is_infinite());
}
