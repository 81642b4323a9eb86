//! Derivatives of determinants at singular matrices, of every rank and in every way: those of the
//! polynomial.

use pullback::linalg::det;
use pullback::{DType, Key, Tensor, grad, hessian, jit, jvp, vmap};

/// The determinant by its definition.
fn exact(a: &[Vec<f64>]) -> f64 {
    if a.is_empty() {
        return 1.0;
    }
    let rest = |column: usize| minor(a, &[0], &[column]);
    let term = |j: usize| if a[0][j] == 0.0 { 0.0 } else { a[0][j] * exact(&rest(j)) };
    (0..a.len()).map(|j| if j % 2 == 0 { term(j) } else { -term(j) }).sum()
}

/// Without some rows and columns.
fn minor(a: &[Vec<f64>], rows: &[usize], columns: &[usize]) -> Vec<Vec<f64>> {
    let row = |i: usize| (0..a.len()).filter(|j| !columns.contains(j)).map(|j| a[i][j]).collect();
    (0..a.len()).filter(|i| !rows.contains(i)).map(row).collect()
}

/// The first and the second derivative, by minors.
fn derivatives(a: &[Vec<f64>]) -> (Vec<f64>, Vec<f64>) {
    let n = a.len();
    let sign = |odd: bool| if odd { -1.0 } else { 1.0 };
    let (mut first, mut second) = (Vec::new(), Vec::new());
    for (i, j) in (0..n * n).map(|k| (k / n, k % n)) {
        first.push(sign((i + j) % 2 == 1) * exact(&minor(a, &[i], &[j])));
        for (k, l) in (0..n * n).map(|k| (k / n, k % n)) {
            second.push(match i == k || j == l {
                true => 0.0,
                false => {
                    let turned = (i > k) != (j > l);
                    let odd = (i + j + k + l) % 2 == 1;
                    sign(odd != turned) * exact(&minor(a, &[i, k], &[j, l]))
                }
            });
        }
    }
    (first, second)
}

#[track_caller]
fn near(found: &Tensor, wanted: &[f64], part: f64, what: &str) {
    let found = found.to_f64_vec();
    assert_eq!(found.len(), wanted.len(), "{what}");
    let scale = wanted.iter().fold(1e-300, |m: f64, v| m.max(v.abs()));
    let worst = found.iter().zip(wanted).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    let finite = found.iter().all(|v| v.is_finite());
    assert!(finite && worst <= part * scale.max(1.0), "{what}: {worst:e}\n{found:?}\n{wanted:?}");
}

/// The product of an n × k and a k × n matrix of small integers: rank k.
fn of_rank(n: usize, k: usize, seed: i64) -> Vec<Vec<f64>> {
    let number =
        |i: usize, j: usize, s: i64| ((i as i64 * 7 + j as i64 * 5 + s * 3) % 5 - 2) as f64;
    let mut a = vec![vec![0.0; n]; n];
    for (i, j) in (0..n * n).map(|k| (k / n, k % n)) {
        a[i][j] = (0..k).map(|l| number(i + l * l, l, seed) * number(l, j + l, seed + 1)).sum();
    }
    a
}

fn tensor(a: &[Vec<f64>]) -> Tensor {
    let flat: Vec<f64> = a.iter().flatten().copied().collect();
    Tensor::from(&flat[..]).reshape([a.len(), a.len()])
}

/// Both derivatives in every way.
fn everywhere(a: &[Vec<f64>], part: f64) {
    let n = a.len();
    let (first, second) = derivatives(a);
    let x = tensor(a).reshape([n * n]);
    let f = move |x: &Tensor| det(&x.reshape([n, n]));
    near(&grad(f)(&x), &first, part, "reverse");
    near(&jit(grad(f)).of(&x), &first, part, "reverse, compiled");
    near(&hessian(f)(&x), &second, part, "hessian");
    near(&jit(hessian(f)).of(&x), &second, part, "hessian, compiled");
    let pick = |i: usize| Tensor::arange(0, (n * n) as i64).eq(i as i64).cast(DType::F64);
    let rows = |row: &dyn Fn(&Tensor) -> Tensor| {
        let rows: Vec<Tensor> = (0..n * n).map(|i| row(&pick(i))).collect();
        pullback::stack(&rows.iter().collect::<Vec<_>>(), 0)
    };
    let reverse = |v: &Tensor| grad(|x: &Tensor| (grad(f)(x) * v).sum())(&x);
    near(&rows(&reverse), &second, part, "reverse over reverse");
    near(&rows(&|v| jvp(grad(f), &x, v).1), &second, part, "forward over reverse");
    let forward = |v: &Tensor| grad(|x: &Tensor| jvp(f, x, v).1)(&x);
    near(&rows(&forward), &second, part, "reverse over forward");
    // Beside a regular matrix and the zero matrix.
    let others = [&x, &Tensor::eye(n).reshape([n * n]), &x.zeros_like(), &(&x * -2.0)];
    let many = pullback::stack(&others, 0);
    for found in [vmap(hessian(f), 0, 0)(&many), jit(vmap(hessian(f), 0, 0)).of(&many)] {
        near(&found.at(0), &second, part, "vmap");
        let unit: Vec<Vec<f64>> =
            (0..n).map(|i| (0..n).map(|j| f64::from(u8::from(i == j))).collect()).collect();
        near(&found.at(1), &derivatives(&unit).1, part, "vmap, regular");
        let zero = vec![vec![0.0; n]; n];
        near(&found.at(2), &derivatives(&zero).1, part, "vmap, zero");
        let twice: Vec<Vec<f64>> =
            a.iter().map(|row| row.iter().map(|v| v * -2.0).collect()).collect();
        near(&found.at(3), &derivatives(&twice).1, part, "vmap, a multiple");
    }
    // A batch without vmap.
    let sum = |x: &Tensor| det(&x.reshape([4, n, n])).sum();
    let along = &many * 0.0 + x.ones_like();
    let wanted: Vec<f64> = second.chunks(n * n).map(|row| row.iter().sum()).collect();
    near(&jvp(grad(sum), &many, &along).1.at(0), &wanted, part * n as f64, "batch");
}

#[test]
fn of_every_rank() {
    for n in 1..=5 {
        for rank in 0..n {
            for seed in 0..2 {
                everywhere(&of_rank(n, rank, seed), 1e-11);
            }
        }
    }
    everywhere(&[vec![1.0, 2.0], vec![2.0, 4.0]], 1e-12);
    everywhere(&[vec![0.0, 1.0], vec![0.0, 0.0]], 1e-12);
}

#[test]
fn nearly_singular_and_rounded() {
    // A pivot of 1e−17, by rounding, or of 1e−9: as good as 0 to the second derivative.
    everywhere(&[vec![0.1, 0.2], vec![0.3, 0.6]], 1e-11);
    everywhere(&[vec![1.0, 2.0], vec![2.0, 4.0 + 1e-9]], 1e-11);
    everywhere(
        &[vec![1.0, 1.0 / 3.0, 0.7], vec![0.1, 0.1 / 3.0, 0.07], vec![2.0, 0.5, 1.0]],
        1e-11,
    );
    // A regular one, for both sides of the border.
    everywhere(&[vec![2.0, 1.0, 0.0], vec![1.0, 3.0, 1.0], vec![0.0, 1.0, 4.0]], 1e-11);
}

#[test]
fn third_derivatives() {
    let f = |x: &Tensor| det(&x.reshape([3, 3]));
    let x = tensor(&of_rank(3, 1, 0)).reshape([9]);
    // The coefficient of x₀·x₄·x₈ is 1, that of x₀·x₅·x₇ is −1.
    let second = |x: &Tensor| grad(|x: &Tensor| grad(f)(x).at(0))(x);
    for (i, j, wanted) in [(4, 8, 1.0), (5, 7, -1.0), (4, 7, 0.0)] {
        let third = grad(|x: &Tensor| second(x).at(i))(&x).at(j).item::<f64>();
        assert!((third - wanted).abs() < 1e-11, "{third}");
    }
}

#[test]
fn larger_matrices() {
    // Beyond the size up to which the polynomial is differentiated at once. A turn and a diagonal,
    // whose minors are products.
    let n = 11;
    let turn = |seed: u64| {
        let x = Key::new(seed).normal([n, n], DType::F64, 0.0, 1.0);
        pullback::linalg::qr(&x, pullback::linalg::QrMode::Reduced).0
    };
    let (p, q) = (turn(1), turn(2));
    for zeros in 1..=3 {
        let values: Vec<f64> =
            (0..n).map(|i| if i < zeros { 0.0 } else { 1.0 + i as f64 / 10.0 }).collect();
        let a = (&p * Tensor::from(&values[..])).matmul(&q);
        let sign = (det(&p) * det(&q)).item::<f64>().round();
        // In the frame of p and q: of det(diag + E), the terms that are linear and bilinear.
        let c = Key::new(3).normal([n, n], DType::F64, 0.0, 1.0);
        let d = Key::new(4).normal([n, n], DType::F64, 0.0, 1.0);
        let inside = |c: &Tensor| {
            let c = p.t().matmul(c).matmul(&q.t());
            move |i: usize, j: usize| c.at(i as isize).at(j as isize).item::<f64>()
        };
        let (e, g) = (inside(&c), inside(&d));
        let but = |i: usize, j: usize| {
            (0..n).filter(|k| *k != i && *k != j).map(|k| values[k]).product::<f64>() * sign
        };
        let first: f64 = (0..n).map(|i| but(i, i) * e(i, i)).sum();
        let pairs = (0..n).flat_map(|i| (0..n).map(move |j| (i, j))).filter(|(i, j)| i != j);
        let second: f64 =
            pairs.map(|(i, j)| but(i, j) * (e(i, i) * g(j, j) - e(i, j) * g(j, i))).sum();
        let slope = |a: &Tensor| (grad(|a: &Tensor| det(a))(a) * &c).sum();
        near(&slope(&a), &[first], 1e-10, "first");
        near(&(grad(slope)(&a) * &d).sum(), &[second], 1e-9, "second");
        near(&jvp(slope, &a, &d).1, &[second], 1e-9, "forward over reverse");
        let (two, d2, c2) = (pullback::stack(&[&a, &p], 0), d.clone(), c.clone());
        let compiled = move |a: &Tensor| {
            let slope = |a: &Tensor| (grad(|a: &Tensor| det(a))(a) * &c2).sum();
            (grad(slope)(a) * &d2).sum()
        };
        near(&jit(compiled.clone()).of(&a), &[second], 1e-9, "compiled");
        near(&vmap(compiled, 0, 0)(&two).at(0), &[second], 1e-9, "vmap");
    }
}

#[test]
fn not_finite_matrices_say_so() {
    for bad in [f64::NAN, f64::INFINITY] {
        let a = Tensor::from([[bad, 1.0], [2.0, 3.0]]);
        let g = grad(|a: &Tensor| det(a))(&a).to_f64_vec();
        assert!(g.iter().any(|v| !v.is_finite()), "{g:?}");
    }
}
