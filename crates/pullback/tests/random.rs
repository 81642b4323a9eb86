//! Random draws: moments, reproducibility, independence of keys, and sentences for wrong arguments.

use pullback::{
    DType, Key, Tensor, catch, grad, hessian, jacfwd, jacobian, jacrev, jit, manual_seed, next_key,
    random_state, with_threads,
};
use std::sync::{Mutex, PoisonError};

fn mean(v: &[f64]) -> f64 {
    v.iter().sum::<f64>() / v.len() as f64
}

fn variance(v: &[f64]) -> f64 {
    let m = mean(v);
    v.iter().map(|x| (x - m).powi(2)).sum::<f64>() / v.len() as f64
}

fn correlation(a: &[f64], b: &[f64]) -> f64 {
    let (ma, mb) = (mean(a), mean(b));
    let product: Vec<f64> = a.iter().zip(b).map(|(x, y)| (x - ma) * (y - mb)).collect();
    mean(&product) / (variance(a) * variance(b)).sqrt()
}

/// Whether counts are as expected: chi-square below its mean plus six deviations.
fn as_expected(counts: &[f64], want: &[f64]) -> bool {
    let chi: f64 =
        counts.iter().zip(want).filter(|(_, w)| **w > 0.0).map(|(c, w)| (c - w).powi(2) / w).sum();
    let freedom = want.iter().filter(|w| **w > 0.0).count() as f64 - 1.0;
    chi < freedom + 6.0 * (2.0 * freedom).sqrt()
}

fn histogram(indices: &Tensor, k: usize) -> Vec<f64> {
    let mut counts = vec![0.0; k];
    for i in indices.to_vec::<i64>() {
        counts[i as usize] += 1.0;
    }
    counts
}

const N: usize = 1 << 17;

#[test]
fn moments() {
    for dtype in [DType::F64, DType::F32] {
        let u = Key::new(1).uniform([N], dtype, -2.0, 4.0).to_f64_vec();
        assert!(u.iter().all(|x| (-2.0..4.0).contains(x)));
        assert!((mean(&u) - 1.0).abs() < 0.03 && (variance(&u) - 3.0).abs() < 0.05);
        let z = Key::new(2).normal([N], dtype, 3.0, 0.5).to_f64_vec();
        assert!((mean(&z) - 3.0).abs() < 0.01 && (variance(&z) - 0.25).abs() < 0.01);
    }
    let half = Key::new(3).normal([N], DType::BF16, 0.0, 1.0);
    assert_eq!(half.dtype(), DType::BF16);
    assert!(mean(&half.to_f64_vec()).abs() < 0.02);
}

#[test]
fn a_key_says_it_all() {
    let draw = |key: &Key| key.normal([1000], DType::F32, 0.0, 1.0).to_vec::<f32>();
    assert_eq!(draw(&Key::new(9)), draw(&Key::new(9)));
    assert_ne!(draw(&Key::new(9)), draw(&Key::new(10)));
    let saved = Key::new(9).fold_in(3);
    assert_eq!(draw(&saved), draw(&Key::from_tensor(saved.tensor())));
    // A longer draw begins as a shorter one does.
    let long = Key::new(9).normal([5, 1000], DType::F32, 0.0, 1.0).to_vec::<f32>();
    assert_eq!(draw(&Key::new(9)), long[..1000]);
}

#[test]
fn keys_that_came_from_one_are_independent() {
    let root = Key::new(5);
    let (a, b) = root.split();
    let many = root.split_n(3);
    assert_eq!(many[0].tensor().to_vec::<i64>(), a.tensor().to_vec::<i64>());
    let keys =
        [root.clone(), a, b, many[2].clone(), root.fold_in(0), root.fold_in(1), many[2].split().0];
    let draws: Vec<Vec<f64>> =
        keys.iter().map(|k| k.normal([N], DType::F64, 0.0, 1.0).to_vec()).collect();
    for i in 0..draws.len() {
        for j in 0..i {
            let c = correlation(&draws[i], &draws[j]);
            assert!(c.abs() < 0.015, "keys {i} and {j}: {c}");
        }
    }
    let folded: std::collections::HashSet<Vec<i64>> =
        (0..1000).map(|i| root.fold_in(i).tensor().to_vec()).collect();
    assert_eq!(folded.len(), 1000);
}

#[test]
fn threads_do_not_matter() {
    let weights = Key::new(1).uniform([100], DType::F64, 0.0, 1.0);
    let all = |threads: usize| {
        with_threads(threads, || {
            let key = Key::new(77);
            (
                key.normal([N + 3], DType::F32, 1.0, 2.0).to_vec::<f32>(),
                key.uniform([N + 3], DType::F64, 1.0, 2.0).to_vec::<f64>(),
                key.permutation(N + 3).to_vec::<i64>(),
                key.multinomial(&weights, 5000, true).to_vec::<i64>(),
            )
        })
    };
    let one = all(1);
    assert_eq!(one, all(2));
    assert_eq!(one, all(8));
}

#[test]
fn bernoulli() {
    let p = Tensor::from([0.0f32, 0.25, 1.0]).unsqueeze(1).expand([3, N]);
    let x = Key::new(4).bernoulli(&p);
    assert_eq!((x.dtype(), x.shape()), (DType::F32, p.shape()));
    let means = x.mean_over(1).to_vec::<f32>();
    assert_eq!((means[0], means[2]), (0.0, 1.0));
    assert!((means[1] - 0.25).abs() < 0.01);
    let mask = Key::new(4).bernoulli_mask([N], 0.1);
    assert_eq!(mask.dtype(), DType::Bool);
    assert!((mask.sum().item::<i64>() as f64 / N as f64 - 0.1).abs() < 0.005);
    // Finer than the eight bits of the dtype.
    let rare = Key::new(4).bernoulli(&Tensor::full([N], pullback::bf16::from_f64(0.001)));
    let rate = rare.cast(DType::F32).mean().item::<f32>();
    assert!((rate - 0.001).abs() < 5e-4, "{rate}");
}

#[test]
fn integers_are_even() {
    let x = Key::new(6).randint([N], -3, 7);
    let counts = histogram(&(&x + 3), 10);
    assert!(as_expected(&counts, &[N as f64 / 10.0; 10]), "{counts:?}");
    let wide = Key::new(6).randint([100], i64::MIN, -1).to_vec::<i64>();
    assert!(wide.iter().all(|&n| n < -1));
}

#[test]
fn permutations() {
    for n in [0, 1, 2, 1000] {
        let mut order = Key::new(n as u64).permutation(n).to_vec::<i64>();
        order.sort_unstable();
        assert_eq!(order, (0..n as i64).collect::<Vec<_>>());
    }
    // All six orders of three.
    let mut counts = [0.0; 6];
    for key in Key::new(8).split_n(3000) {
        let p = key.permutation(3).to_vec::<i64>();
        counts[(2 * p[0] + i64::from(p[1] > p[2])) as usize] += 1.0;
    }
    assert!(as_expected(&counts, &[500.0; 6]), "{counts:?}");
}

#[test]
fn multinomial_with_replacement_has_the_frequencies() {
    let weights = [0.0, 1.0, 0.0, 0.0, 5.0, 2.0, 1e-300, 0.0];
    let drawn = Key::new(3).multinomial(&Tensor::from(weights), N, true);
    let want: Vec<f64> = weights.iter().map(|w| w / 8.0 * N as f64).collect();
    let counts = histogram(&drawn, 8);
    for i in [0, 2, 3, 6, 7] {
        assert_eq!(counts[i], 0.0);
    }
    let some = |v: &[f64]| [v[1], v[4], v[5]];
    assert!(as_expected(&some(&counts), &some(&want)), "{counts:?}");
    // Rows have weights of their own, of any float dtype.
    let rows = Tensor::from([[[1.0f32, 0.0]], [[0.0, 1.0]]]);
    let drawn = Key::new(3).multinomial(&rows, 3, true);
    assert_eq!(drawn.shape(), [2, 1, 3]);
    assert_eq!(drawn.to_vec::<i64>(), [0, 0, 0, 1, 1, 1]);
    let many = Tensor::ones([1000]);
    let counts = histogram(&Key::new(2).multinomial(&many, N, true), 1000);
    assert!(as_expected(&counts, &[N as f64 / 1000.0; 1000]));
    let huge = Tensor::from([1e308, 1e308]);
    let counts = histogram(&Key::new(2).multinomial(&huge, 1000, true), 2);
    assert!(as_expected(&counts, &[500.0; 2]), "{counts:?}");
}

#[test]
fn multinomial_without_replacement_draws_in_order() {
    let n = 20_000;
    let weights = Tensor::from([1.0, 0.0, 2.0, 5.0]).expand([n, 4]);
    let drawn = Key::new(12).multinomial(&weights, 3, false);
    assert_eq!(drawn.shape(), [n, 3]);
    let rows: Vec<i64> = drawn.to_vec();
    assert!(
        rows.chunks(3).all(|r| r[0] != r[1] && r[1] != r[2] && r[0] != r[2] && !r.contains(&1))
    );
    let first = histogram(&drawn.select_at(1, 0), 4);
    assert!(
        as_expected(&first, &[n as f64 / 8.0, 0.0, n as f64 / 4.0, n as f64 * 5.0 / 8.0]),
        "{first:?}"
    );
    // The second, given the first: 1/8·2/7 + 5/8·2/3 and so on.
    let p = |a: f64, b: f64, c: f64| (b / 8.0 * a / (8.0 - b) + c / 8.0 * a / (8.0 - c)) * n as f64;
    let second = histogram(&drawn.select_at(1, 1), 4);
    assert!(
        as_expected(&second, &[p(1.0, 2.0, 5.0), 0.0, p(2.0, 1.0, 5.0), p(5.0, 1.0, 2.0)]),
        "{second:?}"
    );
    let tiny = Key::new(1).multinomial(&Tensor::from([0.0, 1e-310, 1.0]), 2, false);
    assert_eq!(tiny.to_vec::<i64>(), [2, 1]);
}

/// Tests of the global generator take turns.
static EXCLUSIVE: Mutex<()> = Mutex::new(());

#[test]
fn the_global_generator_is_seeded() {
    let _lock = EXCLUSIVE.lock().unwrap_or_else(PoisonError::into_inner);
    let draw = || {
        (Tensor::rand([5]).to_vec::<f32>(), Tensor::randn_with([2, 2], DType::F64).to_vec::<f64>())
    };
    manual_seed(3);
    let (first, second) = (draw(), draw());
    assert_ne!(first, second);
    manual_seed(3);
    assert_eq!((draw(), draw()), (first, second));
    manual_seed(4);
    assert_ne!(Tensor::randperm(100).to_vec::<i64>(), Tensor::randperm(100).to_vec::<i64>());
}

#[test]
fn the_global_generator_serves_threads() {
    let _lock = EXCLUSIVE.lock().unwrap_or_else(PoisonError::into_inner);
    let draw = || (0..100).map(|_| next_key().tensor().to_vec::<i64>()).collect::<Vec<_>>();
    let workers: Vec<_> = (0..4).map(|_| std::thread::spawn(draw)).collect();
    let mut keys: Vec<Vec<i64>> = workers.into_iter().flat_map(|w| w.join().unwrap()).collect();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 400);
}

#[test]
fn errors_are_sentences() {
    fn said(f: impl FnOnce(Key) -> Tensor) -> String {
        let error = catch(|| f(Key::new(0))).unwrap_err();
        assert!(error.to_string().contains("tests/random.rs:"), "{error}");
        format!("{}: {}", error.op(), error.message())
    }
    let t = |v: [f64; 2]| Tensor::from(v);
    assert_eq!(said(|k| k.uniform([2], DType::I64, 0.0, 1.0)), "uniform: draws floats, not i64");
    assert_eq!(
        said(|k| k.uniform([2], DType::F32, 1.0, 0.0)),
        "uniform: the bounds must be finite and in order, not 1 and 0"
    );
    let sentence = "normal: no distribution has mean 0 and standard deviation -1";
    assert_eq!(said(|k| k.normal([2], DType::F32, 0.0, -1.0)), sentence);
    assert_eq!(said(|k| k.normal([-2], DType::F32, 0.0, 1.0)), "normal: [-2] is not a shape");
    let sentence = "bernoulli: probabilities must be between 0 and 1, not from 0.5 to 1.5";
    assert_eq!(said(|k| k.bernoulli(&t([0.5, 1.5]))), sentence);
    assert!(said(|k| k.bernoulli(&t([0.5, f64::NAN]))).contains("not from nan to nan"));
    assert_eq!(
        said(|k| k.bernoulli_mask([1], 1.5)),
        "bernoulli_mask: a probability must be between 0 and 1, not 1.5"
    );
    assert_eq!(said(|k| k.randint([1], 3, 3)), "randint: the range from 3 up to 3 is empty");
    assert!(said(|k| k.randint([1], i64::MIN, i64::MAX)).ends_with("is too long"));
    let draw = |w: Tensor, n| said(move |k| k.multinomial(&w, n, false));
    assert_eq!(
        draw(t([1.0, -0.5]), 1),
        "multinomial: weights must not be negative, and one is -0.5"
    );
    assert_eq!(draw(t([1.0, f64::NAN]), 1), "multinomial: weights must be finite, and one is NaN");
    assert_eq!(
        draw(t([1.0, f64::INFINITY]), 1),
        "multinomial: weights must be finite, and one is inf"
    );
    assert_eq!(draw(t([0.0, 0.0]), 1), "multinomial: the weights of a row are all zero");
    let sentence =
        "multinomial: 2 samples without replacement need as many positive weights, but a row has 1";
    assert_eq!(draw(t([0.0, 1.0]), 2), sentence);
    assert_eq!(draw(Tensor::zeros([2, 0]), 1), "multinomial: there are no weights to draw by");
    assert_eq!(draw(Tensor::from(1.0), 1), "multinomial: the weights have no axis to draw from");
    assert_eq!(
        said(|_| Key::from_tensor(&t([1.0, 2.0])).tensor().clone()),
        "key: a key is i64[2], not f64[2]"
    );
}

/// A Jacobian or Hessian is the derivative of one function: what it draws is drawn once, however
/// many passes there are.
#[test]
fn whole_derivatives_draw_once() {
    let _lock = EXCLUSIVE.lock().unwrap_or_else(PoisonError::into_inner);
    let x = Tensor::from([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let pair = (x.clone(), x.narrow(0, 0, 2));
    let dropped = |x: &Tensor| x.sin().dropout(0.5, Some(&next_key())) * x.sum();
    // One that looks at a value cannot take all directions at once.
    let looking = |x: &Tensor| if x.at(0).item::<f64>() > 0.0 { dropped(x) } else { x.clone() };
    let again = |f: &dyn Fn() -> Tensor, g: &dyn Fn() -> Tensor, what: &str| {
        manual_seed(7);
        let first = f();
        manual_seed(7);
        let second = g();
        let apart = (&first - &second).abs().max().item::<f64>();
        // The modes round differently; another draw would be another number altogether.
        assert!(apart <= 1e-12 * first.abs().max().item::<f64>(), "{what}: {first} {second}");
    };
    for (name, f) in
        [("all at once", &dropped as &dyn Fn(&Tensor) -> Tensor), ("looking", &looking)]
    {
        again(&|| jacrev(f)(&x), &|| jacfwd(f)(&x), name);
        again(&|| jacrev(f)(&x), &|| jacobian(f)(&x), name);
        let h = hessian(|x: &Tensor| f(x).square().sum())(&x);
        assert!((&h - h.t()).abs().max().item::<f64>() < 1e-10, "{name}: {h}");
        // Over two arguments, whose directions are different passes.
        let both = |(a, b): &(Tensor, Tensor)| f(a).square().sum() * b.square().sum();
        let ((_, ab), (ba, _)) = hessian(both)(&pair);
        assert!((&ab - ba.t()).abs().max().item::<f64>() < 1e-10, "{name}: {ab} {ba}");
    }
    // One that draws first and looks then uses the numbers that `grad` would, and the generator
    // goes on by one key a call.
    let late = |x: &Tensor| {
        let y = dropped(x);
        if y.sum().item::<f64>() > 1e9 { x.sum() } else { y.square().sum() }
    };
    again(&|| grad(late)(&x), &|| jacfwd(late)(&x), "drawing before looking");
    again(&|| jacrev(grad(late))(&x), &|| hessian(late)(&x), "drawing before looking");
    manual_seed(7);
    let _ = hessian(late)(&x);
    assert_eq!(random_state().to_vec::<i64>(), [7, 1]);
    manual_seed(7);
    let compiled = jit(|x: &Tensor| hessian(|x: &Tensor| dropped(x).square().sum())(x));
    let h = compiled.of(&x);
    assert!((&h - h.t()).abs().max().item::<f64>() < 1e-10, "{h}");
}
