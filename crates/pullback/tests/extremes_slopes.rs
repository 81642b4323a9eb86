//! Slopes that neither overflow nor cancel on the way to a number that exists: second derivatives
//! at very small and very large elements.

use pullback::{DType, Reduction, Tensor, grad, jit, jvp, vmap};

type Function = fn(&Tensor) -> Tensor;

fn first(f: Function) -> impl Fn(&Tensor) -> Tensor + Copy {
    move |x: &Tensor| grad(|x: &Tensor| f(x).sum())(x)
}

fn second(f: Function) -> impl Fn(&Tensor) -> Tensor + Copy {
    move |x: &Tensor| grad(|x: &Tensor| first(f)(x).sum())(x)
}

/// Eagerly, compiled and for each of many, in f32; forward over reverse too if it is a second
/// derivative.
#[track_caller]
fn is(name: &str, f: impl Fn(&Tensor) -> Tensor + Copy, x: f64, wanted: f64) {
    let at = Tensor::from([x]).cast(DType::F32);
    let close = |y: Tensor, way: &str| {
        let y = y.to_f64_vec()[0];
        assert!(
            y == wanted || (y - wanted).abs() <= 2e-6 * wanted.abs(),
            "{name}, {way}, at {x:e}: {y:e}, not {wanted:e}"
        );
    };
    close(f(&at), "eager");
    close(jit(f).of(&at), "compiled");
    close(vmap(f, 0, 0)(&at), "of each");
}

#[test]
fn second_derivatives() {
    let ln2 = std::f64::consts::LN_2;
    for t in [1e-20, 1e-30, 2e-38] {
        let t = f64::from(t as f32);
        is("t·ln t", second(|t| t * t.log()), t, 1.0 / t);
        is("t·log2 t", second(|t| t * t.log2()), t, 1.0 / (t * ln2));
        is("t·log10 t", second(|t| t * t.log10()), t, 1.0 / (t * std::f64::consts::LN_10));
        is("xlogy", second(|t| t.xlogy(t)), t, 1.0 / t);
        is("entr", second(Tensor::entr), t, -1.0 / t);
        let kl: Function = |t| pullback::losses::kl_div(&t.zeros_like(), t, false, Reduction::Sum);
        is("kl_div", second(kl), t, 1.0 / t);
        is("0 by t", second(|t| t.zeros_like() / t), t, 0.0);
        is("i1", second(Tensor::i1), t, 0.375 * t);
        is("i1e", second(Tensor::i1e), t, -1.0);
        is("i1e", second(Tensor::i1e), -t, 1.0);
    }
    // Where 1/t itself is beyond f32, an infinity and not NaN.
    is("entr", second(Tensor::entr), 1e-45, f64::NEG_INFINITY);
    is("entr", first(Tensor::entr), f64::INFINITY, f64::NEG_INFINITY);
    for x in [1e5, 1e20, 3.4e38] {
        let x = f64::from(x as f32);
        is("log_ndtr", first(Tensor::log_ndtr), -x, x);
        is("log_ndtr", second(Tensor::log_ndtr), -x, -1.0);
        is("atan", second(Tensor::atan), x, -2.0 / x.powi(3) * f64::from(u8::from(x < 1e10)));
    }
    // On both sides of where the formulas change.
    for x in [0.9, 0.999_999, 1.000_001, 1.1] {
        let y = Tensor::from([x]);
        let exact = |f: Function| {
            let h = 1e-4;
            let slope = |x: f64| first(f)(&Tensor::from([x])).to_f64_vec()[0];
            (slope(x + h) - slope(x - h)) / (2.0 * h)
        };
        for f in [Tensor::i1 as Function, Tensor::i1e] {
            let (found, wanted) = (second(f)(&y).to_f64_vec()[0], exact(f));
            assert!((found - wanted).abs() < 1e-7, "{x}: {found} {wanted}");
        }
    }
    for x in [-0.99e4, -1.01e4] {
        is("log_ndtr", first(Tensor::log_ndtr), x, -x - 1.0 / x);
    }
    let (y, t) = jvp(second(|t| t * t.log2()), &Tensor::from([0.5]), &Tensor::from([1.0]));
    assert!((y.to_f64_vec()[0] - 2.0 / ln2).abs() < 1e-12);
    assert!((t.to_f64_vec()[0] + 4.0 / ln2).abs() < 1e-12);
}

#[test]
fn parts_of_running_logarithms() {
    let parts = |x: &Tensor| grad(|x: &Tensor| x.logcumsumexp(0).sum())(x);
    let near = |a: Vec<f64>, b: &[f64]| {
        assert!(a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-6), "{a:?} {b:?}");
    };
    // So large that adding ln 2 leaves them as they are.
    for large in [1e9f32, -1e9, 1e30, f32::INFINITY] {
        let x = Tensor::from([large; 3]);
        let wanted = [1.0 + 1.0 / 2.0 + 1.0 / 3.0, 1.0 / 2.0 + 1.0 / 3.0, 1.0 / 3.0];
        near(parts(&x).to_f64_vec(), &wanted);
        near(jit(parts).of(&x).to_f64_vec(), &wanted);
        near(vmap(parts, 0, 0)(&x.unsqueeze(0)).to_f64_vec(), &wanted);
    }
    // Small ones before a large one keep theirs.
    let x = Tensor::from([0.1f32, 0.2, 1e9]);
    let p = 1.0 / (1.0 + 0.1f64.exp());
    near(parts(&x).to_f64_vec(), &[1.0 + p, 1.0 - p, 1.0]);
    let endless = Tensor::from([f32::NEG_INFINITY, 0.0, f32::INFINITY]);
    near(parts(&endless).to_f64_vec(), &[1.0, 1.0, 1.0]);
    assert_eq!(endless.logcumsumexp(0).to_f64_vec(), [f64::NEG_INFINITY, 0.0, f64::INFINITY]);
}
