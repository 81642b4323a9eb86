//! Linear algebra as functions: factors multiply back, derivatives of what the table cannot perturb
//! one element at a time, degenerate matrices, and errors with a sentence.

use pullback::check::Check;
use pullback::linalg::{self, MatrixNorm, QrMode};
use pullback::{DType, Key, Tensor, catch, grad, jvp, no_grad, stack, vjp, with_threads};

fn random(seed: u64, shape: &[usize]) -> Tensor {
    Key::new(seed).normal(shape, DType::F64, 0.0, 1.0)
}

fn positive(seed: u64, shape: &[usize]) -> Tensor {
    let a = random(seed, shape);
    let n = shape[shape.len() - 1];
    a.matmul(&a.t()) / n as f64 + Tensor::eye_with(n, n, DType::F64)
}

fn symmetric(x: &Tensor) -> Tensor {
    (x + x.t()) * 0.5
}

#[track_caller]
fn near(a: &Tensor, b: &Tensor, within: f64) {
    assert_eq!(a.shape(), b.shape());
    if a.is_empty() {
        return;
    }
    let off = (a - b).abs().max().cast(DType::F64).item::<f64>();
    assert!(off <= within, "differs by {off:e}");
}

#[track_caller]
fn orthonormal(q: &Tensor, within: f64) {
    let n = q.shape()[q.rank() - 1];
    let mut shape = q.shape().to_vec();
    let rank = shape.len();
    shape[rank - 2] = n;
    near(&q.t().matmul(q), &Tensor::eye_with(n, n, q.dtype()).expand(shape), within);
}

/// Both dtypes, batches, tall and wide, sizes around the blocks of the kernels.
#[test]
fn factors_multiply_back() {
    for (dtype, within) in [(DType::F64, 1e-11), (DType::F32, 3e-3)] {
        for shape in [
            &[1, 1][..],
            &[2, 5, 5],
            &[7, 3],
            &[3, 7],
            &[33, 32],
            &[31, 33],
            &[2, 64, 65],
            &[129, 40],
            &[0, 4, 4],
            &[3, 0],
            &[0, 3],
        ] {
            let a = random(1, shape).cast(dtype);
            let (p, l, u) = linalg::lu(&a);
            near(&p.matmul(&l).matmul(&u), &a, within);
            for mode in [QrMode::Reduced, QrMode::Complete] {
                let (q, r) = linalg::qr(&a, mode);
                near(&q.matmul(&r), &a, within);
                orthonormal(&q, within);
                near(&r, &r.triu(0), 0.0);
            }
            for full in [false, true] {
                let (u, s, vh) = linalg::svd(&a, full);
                let k = s.shape()[s.rank() - 1];
                let thin = u.narrow(-1, 0, k) * s.unsqueeze(-2);
                near(&thin.matmul(&vh.narrow(-2, 0, k)), &a, within);
                orthonormal(&u, within);
                orthonormal(&vh.t(), within);
                assert!(s.is_empty() || s.min().cast(DType::F64).item::<f64>() >= 0.0);
                let steps = s.diff(1, -1);
                assert!(steps.is_empty() || steps.max().cast(DType::F64).item::<f64>() <= 0.0);
            }
            let n = shape[shape.len() - 1];
            if shape[shape.len() - 2] != n {
                continue;
            }
            let even = symmetric(&a);
            let (w, v) = linalg::eigh(&even, false);
            near(&(&v * w.unsqueeze(-2)).matmul(&v.t()), &even, within);
            orthonormal(&v, within);
            let s = (a.matmul(&a.t()) + Tensor::eye_with(n, n, dtype)).detach();
            for upper in [false, true] {
                let l = linalg::cholesky(&s, upper);
                let back = if upper { l.t().matmul(&l) } else { l.matmul(&l.t()) };
                near(&back, &s, within);
            }
            let strong = &a + Tensor::eye_with(n, n, dtype) * (3.0 * n as f64);
            near(
                &linalg::inv(&strong).matmul(&strong),
                &Tensor::eye_with(n, n, dtype).expand(shape),
                within,
            );
        }
    }
}

#[test]
fn solutions_solve() {
    let (a, b) = (positive(1, &[2, 1, 150, 150]), random(2, &[3, 150, 131]));
    let x = linalg::solve(&a, &b);
    assert_eq!(x.shape(), [2, 3, 150, 131]);
    near(&a.matmul(&x), &b.expand([2, 3, 150, 131]), 1e-11);
    let (right, info) = linalg::solve_ex(&a, &b.t(), false);
    near(&right.matmul(&a), &b.t().expand([2, 3, 131, 150]), 1e-11);
    assert_eq!(info.max().item::<i32>(), 0);
    let l = linalg::cholesky(&a, false);
    near(&linalg::cholesky_solve(&b, &l, false), &x, 1e-11);
    near(&linalg::cholesky_solve(&b, &l.t(), true), &x, 1e-11);
    near(&linalg::cholesky_inverse(&l, false), &linalg::inv(&a), 1e-11);
    let (lu, pivots) = linalg::lu_factor(&a);
    near(&linalg::lu_solve(&lu, &pivots, &b, true, false), &x, 1e-11);
    let general = random(5, &[6, 6]);
    let (lu, pivots) = linalg::lu_factor(&general);
    let c = random(6, &[6, 2]);
    near(&general.t().matmul(&linalg::lu_solve(&lu, &pivots, &c, true, true)), &c, 1e-11);
    near(&linalg::lu_solve(&lu, &pivots, &c.t(), false, false).matmul(&general), &c.t(), 1e-11);
    near(&linalg::lu_solve(&lu, &pivots, &c.t(), false, true).matmul(&general.t()), &c.t(), 1e-11);
    let tall = random(7, &[8, 3]);
    let rhs = random(8, &[8, 2]);
    let fit = linalg::lstsq(&tall, &rhs, None);
    near(
        &tall.t().matmul(&(tall.matmul(&fit.solution) - &rhs)),
        &Tensor::zeros_with([3, 2], DType::F64),
        1e-12,
    );
    assert_eq!(fit.rank.item::<i64>(), 3);
    near(&fit.residuals, &(tall.matmul(&fit.solution) - rhs).square().sum_over(0), 1e-12);
    let t = random(9, &[2, 3, 6]);
    near(
        &linalg::tensorinv(&t, 2).tensordot(&t, &[1, 2], &[0, 1]),
        &Tensor::eye_with(6, 6, DType::F64),
        1e-11,
    );
    let x = linalg::tensorsolve(&t, &random(10, &[2, 3]), None);
    near(&t.tensordot(&x, &[2], &[0]), &random(10, &[2, 3]), 1e-11);
}

/// Second order in both modes, against difference quotients.
#[track_caller]
fn differentiates(f: impl Fn(&Tensor) -> Tensor, x: &Tensor) {
    let check = Check::new().order(2).tolerance(2e-6, 1e-7);
    if let Err(error) = check.run(|x: &Vec<Tensor>| vec![f(&x[0])], &vec![x.clone()]) {
        panic!("{error}");
    }
}

#[test]
fn derivatives_of_functions_of_symmetric_matrices() {
    let a = positive(3, &[2, 3, 3]);
    for upper in [false, true] {
        differentiates(|x| linalg::cholesky(&symmetric(x), upper), &a);
        differentiates(|x| linalg::eigvalsh(&symmetric(x), upper), &a);
    }
    // A function that does not depend on the signs of the vectors.
    differentiates(
        |x| {
            let (w, v) = linalg::eigh(&symmetric(x), false);
            (&v * w.exp().unsqueeze(-2)).matmul(&v.t())
        },
        &a,
    );
    differentiates(|x| linalg::matrix_sqrth(&symmetric(x)), &a);
    // Gradients are symmetric, though one triangle is read.
    let g = grad(|x: &Tensor| (linalg::cholesky(x, false) * random(4, &[2, 3, 3])).sum())(&a);
    near(&g, &g.t(), 0.0);
    let below = a.tril(0) + random(5, &[2, 3, 3]).triu(1);
    near(&linalg::cholesky(&below, false), &linalg::cholesky(&a, false), 0.0);
    near(&linalg::eigvalsh(&below, false), &linalg::eigvalsh(&a, false), 1e-14);
}

#[test]
fn derivatives_of_systems_and_inverses() {
    let (a, b) = (positive(1, &[2, 3, 3]) + random(2, &[2, 3, 3]) * 0.3, random(3, &[3, 2]));
    differentiates(|x| linalg::solve(x, &b), &a);
    differentiates(|x| linalg::solve(&a, x), &b);
    differentiates(|x| linalg::solve_ex(x, &random(4, &[4, 3]), false).0, &a);
    differentiates(linalg::inv, &a);
    differentiates(linalg::det, &a);
    differentiates(|x| linalg::slogdet(x).1, &a);
    differentiates(linalg::logdet, &a);
    differentiates(
        |x| linalg::lu_solve(&linalg::lu_factor(x).0, &linalg::lu_factor(x).1, &b, true, true),
        &a,
    );
    differentiates(linalg::matrix_exp, &(&a * 3.0));
    differentiates(|x| linalg::matrix_power(x, -3), &a);
    differentiates(|x| linalg::cond(x, None), &a);
    differentiates(|x| linalg::cond(x, Some(MatrixNorm::Order(1.0))), &a);
    let l = linalg::cholesky(&positive(4, &[3, 3]), false);
    // The factor counts as a whole matrix, so only the triangle is perturbed.
    differentiates(|x| linalg::cholesky_solve(&b, &x.tril(0), false), &l);
    differentiates(|x| linalg::cholesky_inverse(&x.triu(0), true), &l.t().deep_clone());
    for kind in [
        MatrixNorm::Nuclear,
        MatrixNorm::Frobenius,
        MatrixNorm::Order(2.0),
        MatrixNorm::Order(-2.0),
    ] {
        differentiates(|x| linalg::matrix_norm(x, kind, [-2, -1], true), &a);
    }
    for shape in [[4, 2], [2, 4], [3, 3]] {
        differentiates(|x| linalg::pinv(x, None, None, false), &random(6, &shape));
        differentiates(
            |x| linalg::lstsq(x, &random(7, &[shape[0], 2]), None).solution,
            &random(8, &shape),
        );
    }
    differentiates(|x| linalg::polar(x).0, &random(11, &[4, 2]));
    let tau = Tensor::from([0.7, 0.4]);
    differentiates(|x| linalg::householder_product(x, &tau), &random(9, &[4, 2]));
    differentiates(
        |x| linalg::ormqr(&random(9, &[4, 2]), x, &random(10, &[3, 4]), false, true),
        &tau,
    );
}

/// The rank stays along A = B·Cᵀ, so A⁺ has derivatives there although singular values are zero.
#[test]
fn the_pseudoinverse_of_a_matrix_of_low_rank_differentiates() {
    let (b, c) = (random(1, &[5, 2]), random(2, &[4, 2]));
    differentiates(|x| linalg::pinv(&x.matmul(&c.t()), None, Some(&Tensor::from(1e-9)), false), &b);
    let a = b.matmul(&c.t());
    let y = linalg::pinv(&a, None, None, false);
    near(&a.matmul(&y).matmul(&a), &a, 1e-12);
    near(&y.matmul(&a).matmul(&y), &y, 1e-12);
    let even = positive(3, &[3, 3]);
    near(&linalg::pinv(&even, None, None, true), &linalg::inv(&even), 1e-12);
    assert_eq!(linalg::matrix_rank(&a, None, None, false).item::<i64>(), 2);
    assert_eq!(linalg::matrix_rank(&even, None, None, true).item::<i64>(), 3);
    // An absolute tolerance alone switches the relative one off.
    let small = Tensor::from([[1.0, 0.0], [0.0, 1e-20]]);
    assert_eq!(
        linalg::matrix_rank(&small, Some(&Tensor::from(1e-30)), None, false).item::<i64>(),
        2
    );
    assert_eq!(linalg::matrix_rank(&small, None, None, false).item::<i64>(), 1);
}

#[test]
fn a_singular_matrix_has_a_determinant_with_a_gradient() {
    let a = Tensor::from([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 0.0, 1.0]]);
    assert!(linalg::det(&a).item::<f64>().abs() < 1e-15);
    let g = grad(|x: &Tensor| linalg::det(x))(&a);
    // Cofactors by hand.
    let cofactors = Tensor::from([[4.0, 4.0, -4.0], [-2.0, -2.0, 2.0], [0.0, 0.0, 0.0]]);
    near(&g, &cofactors, 1e-13);
    let (_, t) = jvp(|x: &Tensor| linalg::det(x), &a, &Tensor::ones_with([3, 3], DType::F64));
    assert!((t.item::<f64>() - 2.0).abs() < 1e-12);
    let zero = Tensor::zeros_with([2, 2], DType::F64);
    assert_eq!(linalg::det(&zero).item::<f64>(), 0.0);
    let (sign, log) = linalg::slogdet(&zero);
    assert_eq!((sign.item::<f64>(), log.item::<f64>()), (0.0, f64::NEG_INFINITY));
    assert!(linalg::logdet(&Tensor::from([[-1.0]])).item::<f64>().is_nan());
}

#[test]
fn equal_values_need_no_vectors_for_the_gradient_of_values() {
    let one = Tensor::eye_with(3, 3, DType::F64);
    for f in [|x: &Tensor| linalg::svdvals(x).sum(), |x: &Tensor| linalg::eigvalsh(x, false).sum()]
    {
        near(&grad(f)(&one), &one, 1e-14);
    }
    let vectors = grad(|x: &Tensor| linalg::eigh(x, false).1.sum())(&one);
    assert!(!vectors.is_finite().min().item::<bool>());
}

#[test]
fn norms_of_matrices() {
    let a = Tensor::from([[1.0, -2.0], [3.0, 4.0]]);
    let of = |p: f64| linalg::matrix_norm(&a, MatrixNorm::Order(p), [-2, -1], false).item::<f64>();
    assert_eq!((of(1.0), of(-1.0)), (6.0, 4.0));
    assert_eq!((of(f64::INFINITY), of(f64::NEG_INFINITY)), (7.0, 3.0));
    let s = linalg::svdvals(&a).to_vec::<f64>();
    assert_eq!((of(2.0), of(-2.0)), (s[0], s[1]));
    let nuclear = linalg::matrix_norm(&a, MatrixNorm::Nuclear, [0, 1], true);
    assert_eq!((nuclear.shape(), nuclear.item::<f64>()), (&[1, 1][..], s[0] + s[1]));
    assert_eq!(linalg::norm(&a, None, None, false).item::<f64>(), 30f64.sqrt());
    let stack = random(1, &[2, 3, 4]);
    let kept = linalg::matrix_norm(&stack, MatrixNorm::Order(2.0), [2, 0], true);
    assert_eq!(kept.shape(), [1, 3, 1]);
    let one = linalg::svdvals(&stack.narrow(1, 1, 1).squeeze_axis(1).t()).max();
    near(&kept.at((0, 1, 0)), &one, 1e-14);
    let singular = Tensor::from([[1.0, 1.0], [1.0, 1.0]]);
    assert_eq!(linalg::cond(&singular, Some(MatrixNorm::Frobenius)).item::<f64>(), f64::INFINITY);
}

#[test]
fn exponentials_and_powers() {
    let a = random(1, &[2, 4, 4]);
    let e = linalg::matrix_exp(&a);
    near(
        &e.matmul(&linalg::matrix_exp(&-&a)),
        &Tensor::eye_with(4, 4, DType::F64).expand([2, 4, 4]),
        1e-11,
    );
    // exp of a large diagonal matrix, by squaring.
    let d = Tensor::from([1.0, -30.0, 20.0]).diag(0);
    let y = linalg::matrix_exp(&d).diagonal().to_vec::<f64>();
    for (y, x) in y.iter().zip([1.0f64, -30.0, 20.0]) {
        assert!((y / x.exp() - 1.0).abs() < 1e-12);
    }
    near(&linalg::matrix_power(&a, 5), &a.matmul(&a).matmul(&a).matmul(&a).matmul(&a), 1e-11);
    assert_eq!(linalg::matrix_power(&a, 0).to_vec::<f64>()[..5], [1.0, 0.0, 0.0, 0.0, 0.0]);
    let (x, y, z) = (random(2, &[3]), random(3, &[3, 50]), random(4, &[50]));
    near(&linalg::multi_dot(&[&x, &y, &z]), &x.matmul(&y).matmul(&z), 1e-12);
}

/// The sentence that a call stops with.
#[track_caller]
fn sentence<T>(f: impl FnOnce() -> T) -> String {
    match catch(|| drop(f())) {
        Ok(()) => panic!("nothing was wrong"),
        Err(error) => {
            assert!(error.location().is_some_and(|at| at.file().ends_with("linalg.rs")), "{error}");
            error.to_string()
        }
    }
}

#[test]
fn what_cannot_be_is_said() {
    let good = Tensor::eye_with(2, 2, DType::F64);
    let bad = Tensor::from([[1.0, 2.0], [2.0, 4.0]]);
    let stack = pullback::stack(&[&good, &bad, &good, &good], 0).reshape([2, 2, 2, 2]);
    let ones = Tensor::ones_with([2], DType::F64);
    for text in [sentence(|| linalg::inv(&stack)), sentence(|| linalg::solve(&stack, &ones))] {
        assert!(text.contains("matrix [0, 1] of the batch is singular"), "{text}");
    }
    let text = sentence(|| linalg::cholesky(&(stack - 0.5), false));
    assert!(
        text.contains("matrix [0, 0] of the batch is not positive definite")
            || text.contains("[0, 1]"),
        "{text}"
    );
    let text = sentence(|| linalg::cholesky(&Tensor::from([[1.0, 2.0], [2.0, 1.0]]), false));
    assert!(text.contains("leading minor of order 2 is not positive"), "{text}");
    let (l, info) = linalg::cholesky_ex(&Tensor::from([[1.0, 2.0], [2.0, 1.0]]), false);
    assert_eq!((info.item::<i32>(), l.at((0, 0)).item::<f64>()), (2, 1.0));
    let (_, info) = linalg::inv_ex(&bad);
    assert_eq!(info.item::<i32>(), 2);
    let nan = &good * f64::NAN;
    for text in [sentence(|| linalg::svdvals(&nan)), sentence(|| linalg::eigh(&nan, false))] {
        assert!(text.contains("not finite"), "{text}");
    }
    assert!(sentence(|| linalg::inv(&Tensor::ones([2, 3]))).contains("(2 ≠ 3)"));
    assert!(sentence(|| linalg::det(&Tensor::ones([3]))).contains("takes matrices"));
    assert!(
        sentence(|| linalg::qr(&Tensor::ones([2, 2]).cast(DType::BF16), QrMode::Reduced))
            .contains("bf16")
    );
    assert!(sentence(|| linalg::svd(&Tensor::arange(0, 4).reshape([2, 2]), false)).contains("i64"));
    assert!(
        sentence(|| linalg::solve(&good, &Tensor::ones_with([3, 2], DType::F64)))
            .contains("rows differ")
    );
    assert!(sentence(|| linalg::solve(&good, &Tensor::ones([2, 2]))).contains("one dtype"));
    assert!(
        sentence(|| linalg::solve_triangular(
            &good,
            &Tensor::ones_with([3, 1], DType::F64),
            true,
            true,
            false
        ))
        .contains("sizes differ")
    );
    let (lu, _) = linalg::lu_factor(&good);
    assert!(
        sentence(|| linalg::lu_solve(&lu, &Tensor::from(vec![1, 7]), &good, true, false))
            .contains("index 6")
    );
    assert!(
        sentence(|| linalg::matrix_norm(&good, MatrixNorm::Order(3.0), [0, 1], false))
            .contains("not 3")
    );
    assert!(
        sentence(|| linalg::matrix_norm(&good, MatrixNorm::Nuclear, [0, 0], false))
            .contains("twice")
    );
    assert!(
        sentence(|| linalg::multi_dot(&[&good, &Tensor::ones_with([3, 3], DType::F64)]))
            .contains("operand 1")
    );
    assert!(sentence(|| linalg::multi_dot(&[])).contains("at least one"));
    assert!(
        sentence(|| linalg::tensorinv(&Tensor::ones_with([2, 3], DType::F64), 1))
            .contains("as many elements")
    );
    assert!(
        sentence(|| linalg::householder_product(
            &Tensor::ones_with([2, 3], DType::F64),
            &Tensor::from([1.0])
        ))
        .contains("reflectors")
    );
    let tall = random(1, &[3, 2]);
    let text = sentence(|| {
        vjp(|x: &Tensor| linalg::qr(x, QrMode::Complete).0, &tall).1(&Tensor::ones_with(
            [3, 3],
            DType::F64,
        ))
    });
    assert!(text.contains("not unique"), "{text}");
}

/// One large matrix and many small ones: the same bits on any number of threads.
#[test]
fn threads_do_not_change_a_bit() {
    let run = |n: usize| {
        with_threads(n, || {
            no_grad(|| {
                let a = positive(1, &[300, 300]).cast(DType::F32);
                let b = random(2, &[300, 300]).cast(DType::F32);
                let small = random(3, &[50, 6, 6]);
                [
                    linalg::cholesky(&a, false),
                    linalg::solve(&a, &b),
                    linalg::qr(&b, QrMode::Reduced).0,
                    linalg::svd(&b, false).0,
                    linalg::inv(&small),
                    linalg::svdvals(&small),
                ]
                .map(|y| y.to_f64_vec().iter().map(|v| v.to_bits()).collect::<Vec<_>>())
            })
        })
    };
    let one = run(1);
    assert!(one == run(2) && one == run(8));
}

/// A matrix is scaled by its own norm: neither a large one, nor one that is not finite, changes the
/// others.
#[test]
fn the_exponential_of_a_matrix_does_not_depend_on_its_batch() {
    let y = linalg::matrix_exp(&Tensor::from([[[100.0]], [[f64::INFINITY]], [[1.0]]]));
    let y = y.to_vec::<f64>();
    assert!((y[0] / 100f64.exp() - 1.0).abs() < 1e-12 && y[1] == f64::INFINITY, "{y:?}");
    assert!((y[2] - 1f64.exp()).abs() < 1e-14, "{y:?}");
    let small = random(1, &[2, 2]);
    let large = Tensor::from([[300.0, 1.0], [0.0, -300.0]]);
    let over = Tensor::from([[800.0, 0.0], [0.0, 1.0]]);
    let wrong = Tensor::from([[f64::INFINITY, 0.0], [0.0, 0.0]]);
    let nan = Tensor::from([[f64::NAN, 0.0], [0.0, 1.0]]);
    let batch = stack(&[&small, &large, &over, &wrong, &nan], 0);
    let y = linalg::matrix_exp(&batch);
    near(&y.select_at(0, 0), &linalg::matrix_exp(&small), 1e-13);
    let alone = linalg::matrix_exp(&large);
    near(&(y.select_at(0, 1) / 300f64.exp()), &(alone / 300f64.exp()), 1e-11);
    assert_eq!(y.select_at(0, 2).to_vec::<f64>()[0], f64::INFINITY);
    for i in [3, 4] {
        assert!(y.select_at(0, i).to_vec::<f64>().iter().all(|v| v.is_nan()));
    }
    let of = |i: isize| {
        grad(move |x: &Tensor| linalg::matrix_exp(x).select_at(0, i).sum())(&batch).select_at(0, i)
    };
    let lone = grad(|x: &Tensor| linalg::matrix_exp(x).sum());
    near(&of(0), &lone(&small), 1e-12);
    near(&(of(1) / 300f64.exp()), &(lone(&large) / 300f64.exp()), 1e-10);
    // Halved never and twice.
    let turn = Tensor::from([[0.0, -12.0, 1.0], [12.0, 0.0, 0.0], [0.0, 0.0, 0.5]]);
    differentiates(linalg::matrix_exp, &stack(&[&random(2, &[3, 3]), &turn], 0));
}

#[test]
fn what_is_empty_has_the_shape_that_pytorch_gives_it() {
    for kind in [None, Some(MatrixNorm::Order(2.0)), Some(MatrixNorm::Order(-2.0))] {
        assert_eq!(linalg::cond(&Tensor::zeros([3, 0, 0]), kind).to_vec::<f32>(), [0.0; 3]);
        assert_eq!(linalg::cond(&Tensor::zeros([0, 0]), kind).item::<f32>(), 0.0);
    }
    for kind in [MatrixNorm::Frobenius, MatrixNorm::Nuclear, MatrixNorm::Order(1.0)] {
        assert_eq!(linalg::cond(&Tensor::zeros([0, 0]), Some(kind)).item::<f32>(), 0.0);
    }
    for (a, b) in [
        (&[0, 3, 2][..], &[0, 3, 1][..]),
        (&[3, 0][..], &[3, 1][..]),
        (&[2, 3, 0][..], &[2, 3, 2][..]),
        (&[2, 3, 2][..], &[2, 3, 0][..]),
    ] {
        assert_eq!(linalg::lstsq(&random(1, a), &random(2, b), None).residuals.shape(), [0]);
    }
}

/// Errors from inside name the caller's line, not one of the library: `sentence` looks.
#[test]
fn errors_from_inside_name_the_callers_line() {
    let nan = Tensor::from([[f64::NAN, 1.0], [1.0, 1.0]]);
    for kind in [MatrixNorm::Order(2.0), MatrixNorm::Order(-2.0), MatrixNorm::Nuclear] {
        let text = sentence(|| linalg::matrix_norm(&nan, kind, [-2, -1], false));
        assert!(text.contains("not finite"), "{text}");
    }
    assert!(sentence(|| linalg::cond(&nan, None)).contains("not finite"));
    let (a, tau) = (random(1, &[2, 4, 2]), random(2, &[2, 2]));
    let _ = sentence(|| linalg::ormqr(&a, &tau, &random(3, &[3, 4, 4]), true, false));
    let _ = sentence(|| {
        linalg::matrix_rank(&random(4, &[2, 3, 3]), Some(&random(5, &[3])), None, false)
    });
    let _ = sentence(|| linalg::tensorsolve(&random(6, &[2, 2]), &random(7, &[2]), Some(&[5])));
}

#[test]
fn pivots_are_as_many_as_the_diagonal_is_long() {
    let (lu, pivots) = linalg::lu_factor(&random(1, &[3, 2]));
    assert_eq!(pivots.shape(), [2]);
    let _ = linalg::lu_unpack(&lu, &pivots);
    for wrong in [Tensor::from(vec![1]), Tensor::from(vec![1, 2, 3]), Tensor::from(1)] {
        assert!(sentence(|| linalg::lu_unpack(&lu, &wrong)).contains("2 pivots"));
    }
    let (lu, _) = linalg::lu_factor(&random(2, &[2, 2]));
    let (few, b) = (Tensor::from(vec![1]), random(3, &[2, 1]));
    assert!(sentence(|| linalg::lu_solve(&lu, &few, &b, true, false)).contains("2 pivots"));
}
