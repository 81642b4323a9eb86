//! The check of rules at numbers of all sizes: right rules pass, wrong ones do not, and what
//! rounding hides is listed.

use pullback::{
    CustomOp, CustomVjp, DType, Derivative, Error, ErrorKind, HostInput, HostOutput, Result, Spec,
    Tensor, catch, custom_op, custom_vjp, unchecked_rules,
};

type Rule = CustomVjp<Tensor, Tensor, Tensor>;

fn rule(
    name: &'static str,
    f: impl Fn(&Tensor) -> Tensor + Send + Sync + 'static,
    slope: impl Fn(&Tensor) -> Tensor + Send + Sync + 'static,
) -> Rule {
    custom_vjp(
        name,
        move |x: &Tensor| (f(x), x.clone()),
        move |x: &Tensor, dy: &Tensor| dy * slope(x),
    )
}

fn listed(name: &str) -> Option<&'static str> {
    unchecked_rules().into_iter().find(|r| r.name == name).map(|r| r.reason)
}

#[track_caller]
fn passes(name: &str, run: impl FnOnce() -> Tensor) {
    catch(run).unwrap_or_else(|e| panic!("a right rule is refused: {e}"));
    assert_eq!(listed(name), None);
}

#[track_caller]
fn refused(name: &str, run: impl FnOnce() -> Tensor) -> String {
    match catch(run) {
        Ok(_) => panic!("{name} is not refused; listed: {:?}", listed(name)),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Check, "{error}");
            error.to_string()
        }
    }
}

#[test]
fn right_rules_pass_at_small_numbers() {
    let log = rule("log", Tensor::log, |x| 1.0 / x);
    passes("log", || log.call(&Tensor::from([0.7, 0.29998, 1.2e-5])));
    passes("log", || log.call(&Tensor::from([1e-8, 1e-7])));
    let sqrt = rule("sqrt", Tensor::sqrt, |x| 0.5 / x.sqrt());
    passes("sqrt", || sqrt.call(&Tensor::from([0.7f32, 1e-5])));
    // Small numbers in a function with its own scale.
    let shifted = rule("shifted", |x| (x + 1000.0).sin(), |x| (x + 1000.0).cos());
    passes("shifted", || shifted.call(&Tensor::from([1e-5, -3e-7])));
}

#[test]
fn right_rules_pass_at_large_numbers() {
    // It captures a number, so that each object is checked.
    let double = |k: f64| rule("double", move |x| x * k, move |x| x.ones_like() * k);
    for x in [[1e15, 0.5], [-1e12, 0.5], [-1e30, 0.0], [1e300, 1e-300]] {
        passes("double", || double(2.0).call(&Tensor::from(x)));
    }
    passes("double", || double(2.0).call(&Tensor::from([-1e30f32, 0.5])));
    let square = rule("square", Tensor::square, |x| x * 2.0);
    passes("square", || square.call(&Tensor::from([1e18f32, 0.5])));
    let sine = rule("sine", Tensor::sin, Tensor::cos);
    passes("sine", || sine.call(&Tensor::from([1e5, 3e4])));
    let centred = custom_vjp(
        "centred",
        |x: &Tensor| (x - x.mean(), ()),
        |_: &(), dy: &Tensor| dy - dy.mean(),
    );
    passes("centred", || centred.call(&Tensor::from([1.7e18, 1.7e18 + 4096.0])));
    // Numbers near each other and far from zero.
    let spread = custom_vjp(
        "spread",
        |x: &Tensor| ((x - x.mean()).square().sum(), x.clone()),
        |x: &Tensor, dy: &Tensor| (x - x.mean()) * 2.0 * dy,
    );
    let x: Vec<f32> = (0..8).map(|i| 1e4 + 0.01 * i as f32).collect();
    passes("spread", || spread.call(&Tensor::from_vec(x, [8])));
}

#[test]
fn wrong_rules_are_refused_at_large_numbers() {
    let scaled = |name, by: f64| rule(name, |x| x * 3.0, move |x| x.ones_like() * by);
    refused("percent", || scaled("percent", 3.02).call(&Tensor::from([1e6, 2e6])));
    refused("tenth", || scaled("tenth", 3.3).call(&Tensor::from([2e7f32, 2e7])));
    let text = refused("five", || scaled("five", 5.0).call(&Tensor::from([1e12])));
    assert!(text.contains("argument 0, element [0]"), "{text}");
    // Along directions of many, where a huge one stands among them.
    let mask = Tensor::linspace(0.1, 1.0, 200).cast(DType::F64);
    let mask = pullback::cat(&[&mask, &Tensor::from([-1e30])], 0);
    refused("masked", || rule("masked", Tensor::sin, |x| x.cos() * 1.1).call(&mask));
}

#[test]
fn wrong_rules_are_refused_at_small_numbers() {
    let x = Tensor::from([0.3, 0.5]);
    refused("faint", || rule("faint", |x| x.square() * 1e-8, |x| x * 0.0).call(&x));
    let cube = || rule("cube", |x| x.powi(3), |x| x.square() * 2.0);
    refused("cube", || cube().call(&Tensor::from([1e-5, 2e-5])));
    refused("log", || rule("log", Tensor::log, |x| 2.0 / x).call(&Tensor::from([1e-8, 1e-7])));
    // Among many, at one that is small.
    let x = Tensor::linspace(1e-4, 1.0, 500).cast(DType::F64);
    let slope = |x: &Tensor| x.lt(1e-3).select(x.cos() * 1.5, x.cos());
    refused("one_small", || rule("one_small", Tensor::sin, slope).call(&x));
}

#[test]
fn wrong_rules_are_refused_where_the_first_call_is_at_zeros() {
    let x = Tensor::zeros_with([2], DType::F64);
    refused("square", || rule("square", Tensor::square, |x| x * 3.0).call(&x));
    refused("cosine", || rule("cosine", Tensor::cos, Tensor::sin).call(&x));
    let many = Tensor::zeros_with([300], DType::F64);
    refused("squares", || rule("squares", Tensor::square, |x| x * 3.0).call(&many));
    passes("right", || rule("right", Tensor::square, |x| x * 2.0).call(&x));
    // Beside zero this one is not defined, on either side, and at zero it is right.
    let only_zero = rule(
        "only_zero",
        |x| {
            if x.to_f64_vec().iter().any(|v| v.abs() > 5e-3) {
                pullback::raise(Error::argument("only_zero", "takes nothing but zero"));
            }
            x * 2.0
        },
        |x| x.ones_like() * 2.0,
    );
    passes("only_zero", || only_zero.call(&x));
}

#[test]
fn what_rounding_hides_is_listed() {
    // 10¹³ plus a sine: no difference of the sum determines the slope.
    let f = rule("plus_large", |x| x.sin() + 1e13, |x| -x.cos());
    f.call(&Tensor::from([0.3, 0.5]));
    let reason = listed("plus_large").unwrap();
    assert!(reason.contains("rounding hides"), "{reason}");
}

/// c + a·x² in `f32` alone, with a rule that is off by a factor.
struct Narrow {
    name: &'static str,
    a: f32,
    c: f32,
    off: f64,
}

impl CustomOp for Narrow {
    fn name(&self) -> &'static str {
        self.name
    }
    fn specs(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        match inputs[0].dtype {
            DType::F32 => Ok(vec![inputs[0].clone()]),
            _ => Err(Error::dtype(self.name, "takes f32")),
        }
    }
    fn forward(&self, inputs: &[HostInput], outputs: &mut [HostOutput]) -> Result<()> {
        let (x, y) = (inputs[0].as_slice::<f32>()?, outputs[0].as_mut_slice::<f32>()?);
        x.iter().zip(y).for_each(|(x, y)| *y = self.c + self.a * x * x);
        Ok(())
    }
    fn derivative(&self) -> Derivative {
        Derivative::Vjp
    }
    fn vjp(&self, x: &[Tensor], _: &[Tensor], dy: &[Tensor]) -> Vec<Tensor> {
        vec![&dy[0] * &x[0] * (2.0 * self.off * self.a as f64)]
    }
}

#[test]
fn code_that_takes_f32_alone() {
    let op = |name, a, c, off| custom_op(Narrow { name, a, c, off });
    let (unit, large) = (Tensor::from([0.5f32, 1.0]), Tensor::from([1000.0f32, 2000.0]));
    passes("narrow", || op("narrow", 1e-4, 0.0, 1.0).one(&[&unit]));
    passes("narrow", || op("narrow", 1.0, 0.0, 1.0).one(&[&large]));
    refused("small", || op("small", 1e-4, 0.0, -1.0).one(&[&unit]));
    refused("large", || op("large", 1.0, 0.0, 1.2).one(&[&large]));
    op("offset", 1.0, 1e5, -1.0).one(&[&unit]);
    assert!(listed("offset").is_some_and(|why| why.contains("rounding hides")));
}
