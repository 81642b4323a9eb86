//! Where a naive formula fails: probabilities of 0 and 1, infinities, classes that do not count,
//! ties, and targets that share memory. The values are those of PyTorch.

use pullback::update::{AdamOptions, Moments, SgdOptions, adam_, sgd_};
use pullback::{
    BagMode, CrossEntropy, DType, EmbeddingBag, ErrorKind, Reduction, Tensor, catch, cross_entropy,
    f16, grad, jvp, losses,
};

/// The message of the error that `f` stops with.
#[track_caller]
fn refusal(f: impl Fn() -> Tensor) -> String {
    catch(f).expect_err("this must be refused").to_string()
}

#[test]
fn saturated_probabilities_have_a_finite_slope() {
    let (x, y) = (Tensor::from([1.0, 0.0, 1.0, 0.0]), Tensor::from([1.0, 1.0, 0.0, 0.0]));
    let f = |x: &Tensor| losses::binary_cross_entropy(x, &y, None, Reduction::Sum);
    let each = losses::binary_cross_entropy(&x, &y, None, Reduction::None);
    assert_eq!(each.to_vec::<f64>(), [0.0, 100.0, 100.0, 0.0]);
    assert_eq!(grad(&f)(&x).to_vec::<f64>(), [0.0, -1e12, 1e12, 0.0]);
    let along = jvp(f, &x, &Tensor::from([0.0, 1.0, 0.0, 0.0])).1;
    assert_eq!(along.item::<f64>(), -1e12);
    // Of second order, the slope of that slope.
    let second = grad(|x: &Tensor| grad(&f)(x).sum())(&x).to_vec::<f64>();
    assert_eq!(second, [1e12; 4]);
    // By the target: the difference of the logarithms as they are held.
    let by_y = |y: &Tensor| losses::binary_cross_entropy(&x, y, None, Reduction::Sum);
    assert_eq!(grad(by_y)(&y).to_vec::<f64>(), [-100.0, 100.0, -100.0, 100.0]);
    let narrow = x.cast(DType::F32);
    let by_y = |y: &Tensor| losses::binary_cross_entropy(&narrow, y, None, Reduction::Sum);
    let slopes = grad(by_y)(&y.cast(DType::F32)).to_vec::<f32>();
    assert_eq!(slopes, [-100.0, 100.0, -100.0, 100.0]);
    // Elsewhere as ever.
    let x = Tensor::from([0.25, 0.5, 0.75, 1e-9]);
    let slopes = grad(&f)(&x).to_vec::<f64>();
    for (i, (x, y)) in x.to_vec::<f64>().into_iter().zip(y.to_vec::<f64>()).enumerate() {
        let want = (x - y) / (x * (1.0 - x));
        assert!((slopes[i] - want).abs() <= 1e-12 * want.abs(), "{} and {want}", slopes[i]);
    }
    // Half precision cannot hold the slope, but nothing is NaN.
    let ends = Tensor::from([1.0, 0.0]).cast(DType::F16);
    let half = |x: &Tensor| losses::binary_cross_entropy(x, &ends, None, Reduction::Sum);
    assert_eq!(half(&ends).item::<f16>(), f16::ZERO);
    assert_eq!(grad(half)(&ends).to_vec::<f16>(), [f16::ZERO; 2]);
}

#[test]
fn logsumexp_with_infinities() {
    let slopes = |x: [f64; 2]| grad(Tensor::logsumexp)(&Tensor::from(x)).to_vec::<f64>();
    let infinity = f64::INFINITY;
    let with_infinity = slopes([infinity, 1.0]);
    assert!(with_infinity[0].is_nan() && with_infinity[1] == 0.0, "{with_infinity:?}");
    assert_eq!(slopes([-infinity, 1.0]), [0.0, 1.0]);
    assert_eq!(slopes([-infinity, -infinity]), [0.0, 0.0]);
}

#[test]
fn classes_out_of_range_are_refused() {
    let x = Tensor::from([[1.0, 2.0, 3.0], [3.0, 1.0, 2.0]]);
    let weight = Tensor::from([1.0, 2.0, 3.0]);
    for class in [-1i64, 3, -3, -99] {
        let classes = Tensor::from([0, class]);
        let sentence = format!("{class} is not one of the 3 classes");
        let text = refusal(|| losses::nll(&x, &classes, None, None, Reduction::Mean));
        assert!(text.starts_with("nll") && text.contains(&sentence), "{text}");
        let text = refusal(|| CrossEntropy::new().weight(&weight).of(&x, &classes));
        assert!(text.starts_with("cross_entropy") && text.contains(&sentence), "{text}");
        let text = refusal(|| CrossEntropy::new().label_smoothing(0.1).of(&x, &classes));
        assert!(text.starts_with("cross_entropy") && text.contains(&sentence), "{text}");
        assert!(refusal(|| cross_entropy(&x, &classes)).contains("out of range"));
        // Unless it is the one that does not count.
        let loss = losses::nll(&x, &classes, None, Some(class), Reduction::Sum);
        assert_eq!(loss.item::<f64>(), -1.0);
    }
    // Another named, −100 is a class as any.
    let classes = Tensor::from([-100i64, 1]);
    let text = refusal(|| losses::nll(&x, &classes, None, Some(1), Reduction::Mean));
    assert!(text.contains("-100 is not one of the 3 classes"), "{text}");
}

#[test]
fn the_class_minus_100_does_not_count() {
    // The row that does not count is extreme, and still adds nothing.
    let x = Tensor::from([[1.0, 2.0, 3.0], [f64::NEG_INFINITY, 1.0, 2.0], [0.0, 0.0, 1.0]]);
    let kept = Tensor::from([[1.0, 2.0, 3.0], [0.0, 0.0, 1.0]]);
    let (classes, fewer) = (Tensor::from([2i64, -100, 0]), Tensor::from([2i64, 0]));
    let near = |a: &Tensor, b: &Tensor| {
        let (a, b) = (a.to_vec::<f64>(), b.to_vec::<f64>());
        assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-14), "{a:?} and {b:?}");
    };
    near(&cross_entropy(&x, &classes), &cross_entropy(&kept, &fewer));
    let smooth = CrossEntropy::new().label_smoothing(0.2).reduction(Reduction::Sum);
    near(&smooth.of(&x, &classes), &smooth.of(&kept, &fewer));
    let slopes = grad(|x: &Tensor| cross_entropy(x, &classes))(&x);
    let fewer_slopes = grad(|x: &Tensor| cross_entropy(x, &fewer))(&kept);
    near(&slopes.index_select(0, &Tensor::from([0i64, 2])), &fewer_slopes);
    near(&slopes.index_select(0, &Tensor::from([1i64])), &Tensor::from([[0.0; 3]]));
    let each = CrossEntropy::new().reduction(Reduction::None).of(&x, &classes);
    assert_eq!(each.to_vec::<f64>()[1], 0.0);
    let mean = |x: &Tensor, c: &Tensor| losses::nll(x, c, None, None, Reduction::Mean);
    near(&mean(&x, &classes), &mean(&kept, &fewer));
    // Nothing that counts: 0/0.
    assert!(mean(&kept, &Tensor::from([-100i64, -100])).item::<f64>().is_nan());
}

#[test]
fn the_mean_over_a_batch() {
    let x = Tensor::from([[0.25, 0.75], [0.5, 0.5], [0.9, 0.1]]).log();
    let y = Tensor::from([[0.5, 0.5], [0.0, 1.0], [0.3, 0.7]]);
    for log_target in [false, true] {
        let total = losses::kl_div(&x, &y, log_target, Reduction::Sum).item::<f64>();
        let mean = losses::kl_div(&x, &y, log_target, Reduction::BatchMean).item::<f64>();
        assert!((mean - total / 3.0).abs() < 1e-15);
    }
    let classes = Tensor::from([0i64, 1, 1]);
    let how = CrossEntropy::new();
    let mean = how.clone().reduction(Reduction::BatchMean).of(&x, &classes).item::<f64>();
    assert!((mean - how.of(&x, &classes).item::<f64>()).abs() < 1e-15);
}

#[test]
fn the_first_row_of_a_tie_has_the_gradient_of_a_bag() {
    let table = Tensor::from([[2.0, 1.0], [2.0, 3.0], [2.0, 3.0]]);
    let bags = |rows: Tensor, offsets: Tensor| {
        let bag = EmbeddingBag::new(BagMode::Max).offsets(&offsets);
        let y = bag.of(&table, &rows);
        (y.to_vec::<f64>(), grad(|t: &Tensor| bag.of(t, &rows).sum())(&table).to_vec::<f64>())
    };
    let (y, slopes) = bags(Tensor::from([0i64, 1, 2]), Tensor::from([0i64]));
    assert_eq!((y, slopes), (vec![2.0, 3.0], vec![1.0, 0.0, 0.0, 1.0, 0.0, 0.0]));
    // An empty bag between two, and the first in the order of the bag.
    let (y, slopes) = bags(Tensor::from([2i64, 1, 0]), Tensor::from([0i64, 2, 2]));
    assert_eq!(y, [2.0, 3.0, 0.0, 0.0, 2.0, 1.0]);
    assert_eq!(slopes, [1.0, 1.0, 0.0, 0.0, 1.0, 1.0]);
}

#[test]
fn an_optimiser_refuses_targets_that_share_elements() {
    let (x, gradient, step) =
        (Tensor::from([1.0, 2.0, 3.0, 4.0]), Tensor::from([1.0; 4]), Tensor::from(1i64));
    let (other, rate) = (x.zeros_like(), Tensor::from(1.0));
    let flipped = x.flip(0);
    for mean in [&x, &flipped] {
        let state = Moments { mean, square: &other, largest: None };
        let error = catch(|| adam_(&AdamOptions::default(), &rate, &x, &gradient, state, &step))
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InPlace);
        assert!(error.to_string().contains("share elements"), "{error}");
    }
    let how = SgdOptions { momentum: 0.5, ..SgdOptions::default() };
    let memory = Tensor::from([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]]);
    let two = Tensor::from([1.0; 3]);
    let shifted = catch(|| {
        let (low, high) = (x.narrow(0, 0, 3), x.narrow(0, 1, 3));
        sgd_(&how, &rate, &low, &two, Some((&high, &step)));
    });
    assert!(shifted.is_err());
    assert_eq!(x.to_vec::<f64>(), [1.0, 2.0, 3.0, 4.0]);
    assert_eq!((x.version(), other.version()), (0, 0));
    // Columns of one matrix share its memory, but no element.
    sgd_(&how, &rate, &memory.select_at(1, 0), &two, Some((&memory.select_at(1, 1), &step)));
    assert_eq!(memory.to_vec::<f64>(), [0.0, 1.0, 1.0, 1.0, 2.0, 1.0]);
}

#[test]
fn an_update_that_fails_leaves_every_target_as_it_was() {
    let how = SgdOptions { momentum: 0.5, ..SgdOptions::default() };
    let (x, step, rate) = (Tensor::from([1.0; 6]), Tensor::from(1i64), Tensor::from(1.0));
    // A chain of views that has no strides on a dense root: refused where something is recorded.
    let matrix = Tensor::from([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]);
    let buffer = matrix.t().detach().t().reshape([6]);
    let gradient = Tensor::from([1.0; 6]).requires_grad();
    let error = catch(|| sgd_(&how, &rate, &x, &gradient, Some((&buffer, &step)))).unwrap_err();
    assert!(error.to_string().contains("this chain of views"), "{error}");
    assert_eq!((x.to_vec::<f64>(), x.version()), (vec![1.0; 6], 0));
    assert_eq!(buffer.to_vec::<f64>(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
}
