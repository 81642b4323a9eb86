//! Points where a formula divides by zero, or where all elements are equal: eager, compiled and
//! batched code take the same derivative there.

use pullback::linalg::{self, MatrixNorm};
use pullback::{DType, Tensor, grad, hessian, jit, jvp, vmap};

type Formula<'a> = &'a dyn Fn(&Tensor) -> Tensor;

fn matrix(rows: &[[f64; 3]; 3]) -> Tensor {
    Tensor::from(*rows)
}

/// Whether two are equal to rounding, with NaN and infinities in the same places.
fn near(a: &Tensor, b: &Tensor) -> bool {
    let (a, b) = (a.to_f64_vec(), b.to_f64_vec());
    let same = |(&a, &b): (&f64, &f64)| {
        a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= 1e-9 * (1.0 + a.abs().min(b.abs()))
    };
    a.len() == b.len() && a.iter().zip(&b).all(same)
}

/// The gradient of `f` in every way that there is; they agree.
#[track_caller]
fn everywhere(name: &str, f: Formula, x: &Tensor) -> Tensor {
    let eager = grad(f)(x);
    let compiled = jit(grad(f)).call(x).unwrap();
    assert!(near(&eager, &compiled), "{name}: {eager} eager, {compiled} compiled");
    let two = pullback::stack(&[x, x], 0);
    let inside = vmap(grad(f), 0, 0)(&two).select_at(0, 1);
    assert!(near(&eager, &inside), "{name}: {eager} eager, {inside} in a vmap");
    let outside = grad(|x: &Tensor| vmap(f, 0, 0)(x).sum())(&two).select_at(0, 1);
    assert!(near(&eager, &outside), "{name}: {eager} eager, {outside} of a vmap");
    let both = jit(grad(|x: &Tensor| vmap(f, 0, 0)(x).sum())).call(&two).unwrap().select_at(0, 0);
    assert!(near(&eager, &both), "{name}: {eager} eager, {both} of a vmap, compiled");
    // Forward mode along each element.
    let flat = x.reshape([x.len()]);
    let shaped = |v: &Tensor| f(&v.reshape(x.shape()));
    let forward: Vec<Tensor> = (0..x.len())
        .map(|i| {
            let at = Tensor::arange(0, x.len() as i64).eq(i as i64).cast(x.dtype());
            jvp(shaped, &flat, &at).1
        })
        .collect();
    let forward = pullback::stack(&forward.iter().collect::<Vec<_>>(), 0).reshape(x.shape());
    assert!(near(&eager, &forward), "{name}: {eager} eager, {forward} forward");
    eager
}

#[test]
fn determinants_of_singular_matrices() {
    let det: Formula = &|x: &Tensor| linalg::det(x);
    let rank_two = matrix(&[[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 0.0, 1.0]]);
    let slopes = everywhere("det", det, &rank_two);
    // The cofactors.
    let wanted = [4.0, 4.0, -4.0, -2.0, -2.0, 2.0, 0.0, 0.0, 0.0];
    assert!(near(&slopes, &Tensor::from(wanted)), "{slopes}");
    let regular = matrix(&[[2.0, 1.0, 0.0], [1.0, 3.0, 1.0], [0.0, 1.0, 4.0]]);
    let cofactors = everywhere("det", det, &regular);
    let inverse = linalg::inv(&regular).t() * det(&regular);
    assert!(near(&cofactors, &inverse), "{cofactors}");
    let rank_one = matrix(&[[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [3.0, 6.0, 9.0]]);
    assert!(near(&everywhere("det", det, &rank_one), &Tensor::from([0.0; 9])));
    everywhere("det", det, &Tensor::zeros_with([3, 3], DType::F64));
    // The value is that of the factors, whether it is differentiated or not.
    let value = |x: &Tensor| pullback::value_and_grad(det)(x).0.item::<f64>();
    assert_eq!((value(&rank_two), det(&rank_two).item::<f64>()), (0.0, 0.0));
    // A neighbour in a batch changes nothing.
    let batch = pullback::stack(&[&regular, &rank_two], 0);
    let sum = |x: &Tensor| linalg::det(x).sum();
    for slopes in [grad(sum)(&batch), jit(grad(sum)).call(&batch).unwrap()] {
        assert_eq!(slopes.at(0).to_vec::<f64>(), grad(det)(&regular).to_vec::<f64>());
        assert!(near(&slopes.at(1), &Tensor::from(wanted)), "{slopes}");
    }
    // Of second order, where the singular values differ.
    let f = |x: &Tensor| linalg::det(&x.reshape([2, 2]));
    let x = Tensor::from([1.0, 2.0, 2.0, 4.0]);
    let second =
        [[0.0, 0.0, 0.0, 1.0], [0.0, 0.0, -1.0, 0.0], [0.0, -1.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]];
    for found in [hessian(f)(&x), jit(hessian(f)).call(&x).unwrap()] {
        assert!(near(&found, &Tensor::from(second).reshape([16])), "{found}");
    }
}

#[test]
fn other_functions_at_their_degenerate_points() {
    let singular = matrix(&[[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 0.0, 1.0]]);
    let identity = matrix(&[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]);
    let zeros = Tensor::zeros_with([3, 3], DType::F64);
    let norm = |kind: MatrixNorm| move |x: &Tensor| linalg::matrix_norm(x, kind, [-2, -1], false);
    let (nuclear, largest) = (norm(MatrixNorm::Nuclear), norm(MatrixNorm::Order(2.0)));
    let frobenius = norm(MatrixNorm::Frobenius);
    let list: [(&str, Formula); 13] = [
        ("slogdet", &|x| linalg::slogdet(x).1),
        ("logdet", &|x| linalg::logdet(x)),
        ("pinv", &|x| linalg::pinv(x, None, None, false).square().sum()),
        ("nuclear", &nuclear),
        ("largest", &largest),
        ("frobenius", &frobenius),
        ("svdvals", &|x| linalg::svdvals(x).square().sum()),
        ("eigvalsh", &|x| linalg::eigvalsh(x, false).sum()),
        ("norm", &|x| x.norm()),
        ("norm 3", &|x| x.vector_norm(3.0, vec![0, 1])),
        ("std", &|x| x.std()),
        ("prod", &|x| x.prod()),
        ("cumprod", &|x| x.cumprod(0).sum()),
    ];
    for (name, f) in list {
        for x in [&singular, &identity, &zeros] {
            everywhere(name, f, x);
        }
    }
}

/// The results of `f` eagerly, compiled and for each of many.
fn ways(f: Formula, x: &Tensor) -> [Tensor; 3] {
    [f(x), jit(f).call(x).unwrap(), vmap(f, 0, 0)(&x.unsqueeze(0)).squeeze_axis(0)]
}

#[test]
fn running_sums_and_products_of_integers_are_wide() {
    for dtype in [DType::U8, DType::I32, DType::I64] {
        let x = Tensor::from([100i64, 100, 100, 3]).cast(dtype);
        for y in ways(&|x| x.cumsum(0), &x) {
            assert_eq!(y.to_vec::<i64>(), [100, 200, 300, 303], "{dtype}");
        }
        for y in ways(&|x| x.cumprod(0), &x) {
            assert_eq!(y.to_vec::<i64>(), [100, 10_000, 1_000_000, 3_000_000], "{dtype}");
        }
        let x = Tensor::from([[1i64 << 30, 200], [1 << 30, 100]]).cast(dtype).t();
        let last = |y: Tensor| y.select_at(1, 1).to_vec::<i64>();
        assert_eq!(last(x.cumsum(1)), x.sum_over(1).to_vec::<i64>());
        assert_eq!(last(x.cumprod(1)), x.prod_over(1).to_vec::<i64>());
        // Extremes need no more memory than what they are of.
        assert_eq!(x.cummax(0).dtype(), dtype);
    }
    let flags = Tensor::from([true, true, false, true]);
    for y in ways(&|x| x.cumsum(0), &flags) {
        assert_eq!(y.to_vec::<i64>(), [1, 2, 2, 3]);
    }
    for y in ways(&|x| x.cumprod(0), &flags) {
        assert_eq!(y.to_vec::<i64>(), [1, 1, 0, 0]);
    }
    assert_eq!(Tensor::from(200u8).cumsum(0).to_vec::<i64>(), [200]);
    // A function of the reals takes integers in f32.
    for y in ways(&|x| x.logcumsumexp(0), &Tensor::from([0i64, 0])) {
        assert_eq!(y.to_vec::<f32>(), [0.0, 2f32.ln()]);
    }
}

#[test]
fn remainders_and_their_derivatives_have_one_quotient() {
    for (a, b) in [(1.0, 0.1), (0.7, 0.1), (6.0, 0.2), (-1.0, 0.1), (5.3, -0.1), (-0.9, -0.3)] {
        let list: [fn(&Tensor, &Tensor) -> Tensor; 2] = [|a, b| a.remainder(b), |a, b| a.fmod(b)];
        for f in list {
            let (a, b) = (Tensor::from(a), Tensor::from(b));
            let y = f(&a, &b).item::<f64>();
            let slope = everywhere("remainder", &|b| f(&a, b), &b).item::<f64>();
            // y = a − q·b, and −q is the derivative.
            let (a, b) = (a.item::<f64>(), b.item::<f64>());
            assert_eq!(slope.fract(), 0.0);
            assert!((a + slope * b - y).abs() < 1e-12, "{a} by {b}: {y}, slope {slope}");
        }
    }
    let slope = |f: Formula| grad(f)(&Tensor::from(0.1)).item::<f64>();
    assert_eq!(slope(&|b| Tensor::from(1.0).remainder(b)), -9.0);
    assert_eq!(slope(&|b| Tensor::from(1.0).fmod(b)), -9.0);
    assert_eq!(Tensor::from(1.0).floor_div(Tensor::from(0.1)).item::<f64>(), 9.0);
}

#[test]
fn constant_rows_are_normalised_to_zero() {
    for dtype in [DType::F32, DType::F64, DType::BF16] {
        for value in [12345.678, 0.1, -3e7, 1e-3] {
            for n in [3, 7, 32, 100, 1000, 5000] {
                let x = Tensor::full([4, n], value).cast(dtype);
                let (ones, zeros) = (Tensor::ones_with([n], dtype), Tensor::zeros_with([n], dtype));
                let list: [(&str, Formula); 7] = [
                    ("layer_norm", &|x| x.layer_norm(&ones, &zeros, 1e-5)),
                    ("batch_norm", &|x| x.t().batch_norm(None, None, 1e-5)),
                    ("group_norm", &|x| x.unsqueeze(0).group_norm(4, None, None, 1e-5)),
                    ("instance_norm", &|x| x.unsqueeze(0).instance_norm(None, None, 1e-5)),
                    ("var", &|x| x.var_over(1)),
                    ("std", &|x| x.std_over(1)),
                    ("var_with", &|x| x.var_with(1, 0.0)),
                ];
                for (name, f) in list {
                    for y in [f(&x), jit(f).call(&x).unwrap()] {
                        let y = y.to_f64_vec();
                        assert!(
                            y.iter().all(|&y| y == 0.0),
                            "{name} of {n} times {value} in {dtype}: {}",
                            y[0]
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn constant_channels_of_several_parts_are_zero() {
    // More than a part of a channel holds.
    for shape in [[3, 2, 50_000], [200_000, 2, 1], [1, 2, 150_001]] {
        let x = Tensor::full(shape, 12345.678).cast(DType::F32);
        let (mean, var) = (Tensor::zeros([2]), Tensor::ones([2]));
        let (y, mean, var) = x.batch_norm_running((&mean, &var), None, None, 1.0, 1e-5);
        assert_eq!(y.abs().max().item::<f32>(), 0.0);
        assert_eq!(mean.to_vec::<f32>(), [12345.678; 2]);
        assert_eq!(var.to_vec::<f32>(), [0.0; 2]);
    }
    // Decompositions too: forward mode and second derivatives.
    let x = Tensor::full([2, 3], 12345.678).cast(DType::F32);
    let ones = Tensor::ones([3]);
    let f = |x: &Tensor| x.layer_norm(&ones, &Tensor::zeros([3]), 1e-5).square().sum();
    assert_eq!(grad(f)(&x).abs().max().item::<f32>(), 0.0);
    assert_eq!(jvp(f, &x, &Tensor::ones([2, 3])).1.item::<f32>(), 0.0);
    let by_weight = grad(|w: &Tensor| {
        grad(|w: &Tensor| x.layer_norm(w, &Tensor::zeros([3]), 1e-5).square().sum())(w).sum()
    })(&ones);
    assert_eq!(by_weight.abs().max().item::<f32>(), 0.0);
}
