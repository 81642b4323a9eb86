//! Rules that are not linear in the cotangent, of a tensor that the examples of a `vmap` share:
//! each example has its own, as in a loop.

use pullback::{
    CustomBatching, CustomOp, DType, Derivative, HostInput, HostOutput, Key, Result, Spec, Tensor,
    custom_op, custom_vjp, grad, jit, jvp, scan, vmap,
};

fn near(a: &Tensor, b: &Tensor) {
    assert_eq!(a.shape(), b.shape());
    let (a, b) = (a.to_f64_vec(), b.to_f64_vec());
    let close = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-12 * (1.0 + b.abs());
    assert!(a.iter().zip(&b).all(close), "{a:?}\n{b:?}");
}

fn data() -> (Tensor, Tensor) {
    let w = Key::new(1).normal([3], DType::F64, 0.0, 1.0);
    let xs = Key::new(2).normal([4, 3], DType::F64, 0.0, 3.0);
    (w, xs)
}

type Shared = fn(&Tensor) -> Tensor;

/// What is done to the shared tensor: the rule of each must run for each example.
fn rules() -> [Shared; 6] {
    [
        |w| w.clip_gradient(0.7),
        |w| w.clip_gradient_value(0.4),
        // Of a value made of the shared tensor, with more that is shared after it.
        |w| (w * 2.0).clip_gradient(0.7).tanh(),
        |w| w.clip_gradient_value(0.4).clip_gradient(0.5),
        // A rule of the user's, with a residual.
        |w| {
            let f = |w: &Tensor| (w.sin(), (w.cos(), w.clone()));
            custom_vjp("signs", f, |(c, w): &(Tensor, Tensor), dy: &Tensor| (dy * c).sign() * w)
                .unchecked("the gradient is a sign on purpose")
                .call(w)
        },
        // Linear ones, for which one call for all is right.
        |w| w.reverse_gradient(0.3).scale_gradient(2.0).round_ste() + w.sign_ste(Some(1.0)),
    ]
}

fn one(rule: Shared, w: &Tensor, x: &Tensor) -> Tensor {
    (rule(w) * x).sum().sin() + (rule(w).square() * x).sum()
}

fn looped(rule: Shared, w: &Tensor, xs: &Tensor) -> Tensor {
    (0..4).map(|i| one(rule, w, &xs.select_at(0, i))).fold(Tensor::from(0.0), |a, b| a + b)
}

#[test]
fn captured_tensors() {
    let (w, xs) = data();
    for rule in rules() {
        let wanted = grad(|w: &Tensor| looped(rule, w, &xs))(&w);
        let mapped = |w: &Tensor| vmap(|x: &Tensor| one(rule, w, x), 0, 0)(&xs).sum();
        near(&grad(mapped)(&w), &wanted);
        near(&mapped(&w), &looped(rule, &w, &xs));
        let xs = xs.clone();
        let compiled = move |w: &Tensor| vmap(|x: &Tensor| one(rule, w, x), 0, 0)(&xs).sum();
        near(&jit(grad(compiled.clone())).of(&w), &wanted);
        let compiled = jit(compiled);
        near(&grad(move |w: &Tensor| compiled.of(w))(&w), &wanted);
        // The tape, with a leaf.
        let leaf = (&w * 1.0).requires_grad();
        let (_, xs) = data();
        vmap(|x: &Tensor| one(rule, &leaf, x), 0, 0)(&xs).sum().backward().unwrap();
        near(&leaf.grad().unwrap(), &wanted);
    }
}

#[test]
fn arguments_without_an_axis() {
    let (w, xs) = data();
    for rule in rules() {
        let wanted = grad(|w: &Tensor| looped(rule, w, &xs))(&w);
        let mapped = move |(w, xs): &(Tensor, Tensor)| {
            vmap(|(w, x): &(Tensor, Tensor)| one(rule, w, x), [None, Some(0)], 0)(&(
                w.clone(),
                xs.clone(),
            ))
            .sum()
        };
        let both = (w.clone(), xs.clone());
        near(&grad(mapped)(&both).0, &wanted);
        near(&jit(grad(mapped)).of(&both).0, &wanted);
    }
}

#[test]
fn one_vmap_in_another() {
    let (w, xs) = data();
    let ys = Key::new(5).normal([2], DType::F64, 1.0, 1.0);
    for rule in rules() {
        let wanted = grad(|w: &Tensor| {
            let f = |k: isize| looped(rule, w, &(&xs * ys.select_at(0, k)));
            f(0) + f(1)
        })(&w);
        let nested = |w: &Tensor| {
            let inner = |y: &Tensor| vmap(|x: &Tensor| one(rule, w, &(x * y)), 0, 0)(&xs);
            vmap(inner, 0, 0)(&ys).sum()
        };
        near(&grad(nested)(&w), &wanted);
    }
}

#[test]
fn in_the_body_of_a_loop() {
    let (w, xs) = data();
    let turns = Tensor::from([1.0, 0.5, -2.0]);
    for rule in rules() {
        let walk = |w: &Tensor, x: &Tensor| {
            let step = |c: &Tensor, t: &Tensor| (c + (rule(w) * x * t).sum().sin(), t.clone());
            scan(step, &Tensor::from(0.0), &turns).0
        };
        let wanted = grad(|w: &Tensor| {
            (0..4).map(|i| walk(w, &xs.select_at(0, i))).fold(Tensor::from(0.0), |a, b| a + b)
        })(&w);
        let mapped = |w: &Tensor| vmap(|x: &Tensor| walk(w, x), 0, 0)(&xs).sum();
        near(&grad(mapped)(&w), &wanted);
    }
}

#[test]
fn second_derivatives_and_tangents() {
    let (w, xs) = data();
    let v = Tensor::from([1.0, -2.0, 0.5]);
    for rule in &rules()[..4] {
        let mapped = |w: &Tensor| vmap(|x: &Tensor| one(*rule, w, x), 0, 0)(&xs).sum();
        let twice = |f: &dyn Fn(&Tensor) -> Tensor| {
            grad(|w: &Tensor| (grad(|w: &Tensor| f(w))(w) * &v).sum())(&w)
        };
        near(&twice(&mapped), &twice(&|w: &Tensor| looped(*rule, w, &xs)));
        near(&jvp(mapped, &w, &v).1, &jvp(|w: &Tensor| looped(*rule, w, &xs), &w, &v).1);
    }
}

/// The identity as code, whose rule gives signs.
struct Signs;

impl CustomOp for Signs {
    fn name(&self) -> &'static str {
        "signs"
    }

    fn specs(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        Ok(inputs.to_vec())
    }

    fn forward(&self, inputs: &[HostInput], outputs: &mut [HostOutput]) -> Result<()> {
        outputs[0].as_mut_slice::<f64>()?.copy_from_slice(inputs[0].as_slice()?);
        Ok(())
    }

    fn derivative(&self) -> Derivative {
        Derivative::Vjp
    }

    fn vjp(&self, _: &[Tensor], _: &[Tensor], dys: &[Tensor]) -> Vec<Tensor> {
        vec![dys[0].sign()]
    }

    fn batching(&self) -> CustomBatching {
        CustomBatching::OneByOne
    }
}

#[test]
fn code_with_a_rule() {
    let (w, xs) = data();
    let op = custom_op(Signs).unchecked("the gradient is a sign on purpose");
    let of = |w: &Tensor, x: &Tensor| (op.one(&[w]) * x).sum();
    let wanted = grad(|w: &Tensor| {
        (0..4).map(|i| of(w, &xs.select_at(0, i))).fold(Tensor::from(0.0), |a, b| a + b)
    })(&w);
    let mapped = |w: &Tensor| vmap(|x: &Tensor| of(w, x), 0, 0)(&xs).sum();
    near(&grad(mapped)(&w), &wanted);
}
