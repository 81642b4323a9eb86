//! Ways that only large tensors, or tensors of which only the value counts, take: they agree with
//! the formula, piece by piece.

use pullback::{DType, Pool, Tensor, cat, linalg, no_grad};

/// Enough elements for one pass over memory.
const LARGE: usize = 1 << 15;

/// A result, and the gradients of its operands.
type Found = (Tensor, Vec<Tensor>);

fn bits(x: &Tensor) -> Vec<u64> {
    let bits = |v: f64| if v.is_nan() { u64::MAX } else { v.to_bits() };
    x.detach().cast(DType::F64).to_vec::<f64>().into_iter().map(bits).collect()
}

#[test]
fn frexp_of_every_binade() {
    let least = (0..149).map(|i| f32::from_bits(1 << (i % 23)));
    let all = (0..LARGE as u32).map(|i| f32::from_bits(i.wrapping_mul(131_071)));
    let x: Vec<f32> = least.chain(all).chain([0.0, -0.0, f32::INFINITY, f32::NAN]).collect();
    let found = |x: &[f32]| {
        let (m, n) = Tensor::from_vec(x, [x.len()]).frexp();
        (m.to_vec::<f32>(), n.to_vec::<i32>())
    };
    let (mantissas, exponents) = found(&x);
    for ((&x, &m), &n) in x.iter().zip(&mantissas).zip(&exponents) {
        if x == 0.0 || !x.is_finite() {
            assert!((m == x || m.is_nan() && x.is_nan()) && n == 0, "{x:e}: {m} and {n}");
        } else {
            assert!((0.5..1.0).contains(&m.abs()), "{x:e}: {m} and {n}");
            assert_eq!(f64::from(m) * 2f64.powi(n), f64::from(x), "{m} and {n}");
        }
    }
    let small = found(&x[..500]);
    assert_eq!(small.1[..], exponents[..500]);
}

#[test]
fn broadcast_operands_give_the_bits_of_the_formula() {
    let image = Tensor::linspace(-2.0, 2.0, LARGE).cast(DType::F32).reshape([4, 8, LARGE / 32]);
    let weight = Tensor::linspace(-0.5, 1.0, 8).cast(DType::F32);
    let (a, b) = (Tensor::linspace(-1.0, 1.0, 64), Tensor::linspace(0.0, 3.0, LARGE / 64));
    let (a, b) = (a.cast(DType::F32), b.cast(DType::F32));
    let gradients = |f: &dyn Fn(&[Tensor]) -> Tensor, x: &[&Tensor]| {
        let x: Vec<Tensor> = x.iter().map(|x| x.deep_clone().requires_grad()).collect();
        let y = f(&x);
        y.backward_with(&y.detach().cos()).unwrap();
        (y, x.iter().map(|x| x.grad().unwrap()).collect::<Vec<_>>())
    };
    let (whole, dx) = gradients(&|x| x[0].prelu(&x[1]), &[&image, &weight]);
    let parts: Vec<_> = (0..4)
        .map(|i| gradients(&|x| x[0].prelu(&x[1]), &[&image.narrow(0, i, 1), &weight]))
        .collect();
    let joined = |f: fn(&Found) -> Tensor| {
        cat(&parts.iter().map(f).collect::<Vec<_>>().iter().collect::<Vec<_>>(), 0)
    };
    assert_eq!(bits(&whole), bits(&joined(|p| p.0.clone())));
    assert_eq!(bits(&dx[0]), bits(&joined(|p| p.1[0].clone())));
    let sum = parts.iter().skip(1).fold(parts[0].1[1].clone(), |sum, p| sum + &p.1[1]);
    assert!((&dx[1] - sum).abs().max().item::<f32>() < 1e-2);

    let matrix = Tensor::linspace(-3.0, 3.0, LARGE).cast(DType::F32).reshape([64, LARGE / 64]);
    let (whole, dx) = gradients(&|x| x[0].addr(&x[1], &x[2], 0.5, 2.0), &[&matrix, &a, &b]);
    let plain = |x: &[Tensor]| &x[0] * 0.5 + x[1].outer(&x[2]) * 2.0;
    let (wanted, wanted_dx) = gradients(&plain, &[&matrix, &a, &b]);
    assert_eq!(bits(&whole), bits(&wanted));
    for (found, wanted) in dx.iter().zip(&wanted_dx) {
        assert!((found - wanted).abs().max().item::<f32>() < 1e-3);
    }
}

#[test]
fn the_largest_of_rows_are_those_with_places() {
    let values = (0..240).map(|i| [f64::from(i * 37 % 50), 0.0, -0.0][i as usize % 3]);
    let mut values: Vec<f64> = values.collect();
    (values[7], values[100], values[101]) = (f64::NAN, f64::NAN, f64::NAN);
    let x = Tensor::from_vec(values, [2, 5, 24]);
    for size in [1, 2, 3, 4, 8] {
        let pool = Pool::new(size);
        let alone = no_grad(|| x.max_pool1d(&pool));
        let recorded = x.clone().requires_grad().max_pool1d(&pool);
        assert_eq!(bits(&alone), bits(&recorded), "windows of {size}");
    }
}

#[test]
fn patches_and_their_transpose_fit_each_other() {
    let sizes = [([3, 3], [1, 1], [1, 1], [1, 1]), ([2, 3], [2, 1], [0, 2], [3, 2])];
    for (kernel, dilation, padding, stride) in sizes {
        let x = Tensor::linspace(-1.0, 1.0, 2 * 3 * 7 * 8).reshape([2, 3, 7, 8]);
        let leaf = x.deep_clone().requires_grad();
        let y = leaf.im2col(kernel, dilation, padding, stride);
        assert_eq!(bits(&y), bits(&x.im2col(kernel, dilation, padding, stride)));
        // ⟨im2col(x), c⟩ = ⟨x, col2im(c)⟩, and col2im is the derivative.
        let c = (y.detach() * 3.0).sin();
        y.backward_with(&c).unwrap();
        let back = c.col2im([7, 8], kernel, dilation, padding, stride);
        let off = (leaf.grad().unwrap() - &back).abs().max().item::<f64>();
        assert!(off < 1e-13, "off by {off}");
        let sides = [(y.detach() * &c).sum(), (&x * &back).sum()].map(|s| s.item::<f64>());
        assert!((sides[0] - sides[1]).abs() < 1e-12, "{sides:?}");
    }
}

#[test]
fn small_systems_are_solved_as_large_ones() {
    for n in 1..=10usize {
        let count = 300;
        let a = Tensor::linspace(0.0, 900.0, count * n * n).sin().reshape([count, n, n]);
        // A large diagonal, so that no system multiplies errors.
        let a = a + Tensor::eye_with(n, n, DType::F64) * (n as f64 + 1.0);
        for cols in [1, 3, 5] {
            let b = Tensor::linspace(0.0, 70.0, count * n * cols).cos().reshape([count, n, cols]);
            let leaf = a.deep_clone().requires_grad();
            let x = linalg::solve(&leaf, &b);
            let rest = (a.matmul(&x.detach()) - &b).abs().max().item::<f64>();
            assert!(rest < 1e-10, "n = {n}, {cols} columns: {rest:e}");
            // dA = −(A⁻ᵀ·dX)·Xᵀ
            x.backward_with(&x.detach()).unwrap();
            let db = leaf.grad().unwrap();
            let off = (a.t().matmul(&db) + x.detach().matmul(&x.detach().t())).abs().max();
            assert!(off.item::<f64>() < 1e-8, "n = {n}, {cols} columns: {off}");
        }
    }
}
