//! Operations by code that does not use tensor operations.

use pullback::{
    CustomBatching, CustomOp, DType, Derivative, Error, External, HostInput, HostOutput, JitOutput,
    Result, Spec, Tensor, Tree, catch, cond, custom_op, custom_vjp, grad, jvp, scan_times, trace,
    unchecked_rules, vmap,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Σ wᵢ·xᵢ² over the last axis, and how many xᵢ are positive.
struct Weighted {
    derivative: Derivative,
    batching: CustomBatching,
    calls: Arc<AtomicUsize>,
    /// What the derivative is multiplied by: 1 is right.
    factor: f64,
}

impl Weighted {
    fn new(derivative: Derivative, batching: CustomBatching) -> Weighted {
        Weighted { derivative, batching, calls: Arc::default(), factor: 1.0 }
    }
}

impl CustomOp for Weighted {
    fn name(&self) -> &'static str {
        "weighted"
    }

    fn specs(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [w, x] = inputs else { return Err(Error::argument("weighted", "takes two operands")) };
        if w != x || x.dtype != DType::F64 || x.shape.is_empty() {
            return Err(Error::shape("weighted", "takes two f64 tensors of one shape"));
        }
        let shape = &x.shape[..x.shape.len() - 1];
        Ok(vec![Spec::cpu(DType::F64, shape), Spec::cpu(DType::I64, shape)])
    }

    fn forward(&self, inputs: &[HostInput], outputs: &mut [HostOutput]) -> Result<()> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let (w, x) = (inputs[0].as_slice::<f64>()?, inputs[1].as_slice::<f64>()?);
        if x.contains(&99.0) {
            return Err(Error::argument("weighted", "does not like 99"));
        }
        assert!(!x.contains(&98.0), "98 is worse");
        let n = *inputs[0].shape().last().unwrap();
        let [y, count] = outputs else { unreachable!() };
        let (y, count) = (y.as_mut_slice::<f64>()?, count.as_mut_slice::<i64>()?);
        for (row, (y, count)) in y.iter_mut().zip(count).enumerate() {
            for i in row * n..(row + 1) * n {
                *y += w[i] * x[i] * x[i];
                *count += i64::from(x[i] > 0.0);
            }
        }
        Ok(())
    }

    fn derivative(&self) -> Derivative {
        self.derivative
    }

    fn vjp(&self, x: &[Tensor], _: &[Tensor], dy: &[Tensor]) -> Vec<Tensor> {
        let dy = dy[0].unsqueeze(-1) * self.factor;
        vec![&dy * x[1].square(), 2.0 * &x[0] * &x[1] * &dy]
    }

    fn jvp(&self, x: &[Tensor], y: &[Tensor], t: &[Tensor]) -> Vec<Tensor> {
        let along = &t[0] * x[1].square() + 2.0 * &x[0] * &x[1] * &t[1];
        vec![along.sum_over(-1) * self.factor, y[1].zeros_like()]
    }

    fn batching(&self) -> CustomBatching {
        self.batching
    }
}

fn plain(w: &Tensor, x: &Tensor) -> Tensor {
    (w * x.square()).sum_over(-1)
}

fn all() -> Vec<Arc<External>> {
    let mut all = Vec::new();
    for derivative in [Derivative::Vjp, Derivative::Jvp] {
        for batching in [CustomBatching::OneByOne, CustomBatching::LeadingAxes] {
            all.push(Arc::new(custom_op(Weighted::new(derivative, batching))));
        }
    }
    all
}

/// Compiled, and every pass and kernel compared with plain ops.
fn jit<T: Tree, Y: JitOutput<Value = Y>>(f: impl Fn(&T) -> Y) -> impl Fn(&T) -> Y {
    let f = pullback::jit(f);
    move |x| {
        f.check(x).unwrap();
        f.of(x)
    }
}

type Pair = (Tensor, Tensor);

fn at() -> Pair {
    (Tensor::from([0.5, 1.5, -2.0]), Tensor::from([1.0, -0.5, 0.3]))
}

#[track_caller]
fn same(a: &impl Tree, b: &impl Tree) {
    let (a, b) = (a.leaves(), b.leaves());
    assert_eq!(a.len(), b.len());
    for (a, b) in a.iter().zip(&b) {
        assert_eq!(a.spec(), b.spec());
        for (x, y) in a.to_f64_vec().iter().zip(b.to_f64_vec()) {
            assert!((x - y).abs() <= 1e-9 * y.abs().max(1.0), "{x} is not {y}");
        }
    }
}

#[test]
fn values_and_derivatives_in_both_modes() {
    for op in all() {
        let own = |(w, x): &Pair| op.one(&[w, x]);
        let p = |(w, x): &Pair| plain(w, x);
        same(&own(&at()), &p(&at()));
        assert_eq!(op.call(&[&at().0, &at().1])[1].item::<i64>(), 2);
        // Operands that do not lie dense.
        let turned = Tensor::from([[1.0, 2.0], [3.0, 4.0]]).t();
        same(&op.one(&[&turned, &turned]), &plain(&turned, &turned));
        same(&grad(own)(&at()), &grad(p)(&at()));
        let t = (Tensor::from([1.0, 2.0, 3.0]), Tensor::from([-1.0, 0.5, 2.0]));
        same(&jvp(own, &at(), &t).1, &jvp(p, &at(), &t).1);
        let twice = |f: &dyn Fn(&Pair) -> Tensor, at: &Pair| {
            grad(|at: &Pair| {
                let (a, b) = grad(|at: &Pair| f(at))(at);
                (a * b).sum()
            })(at)
        };
        same(&twice(&own, &at()), &twice(&p, &at()));
        same(
            &jvp(|at: &Pair| grad(own)(at), &at(), &t).1,
            &jvp(|at: &Pair| grad(p)(at), &at(), &t).1,
        );
    }
}

#[test]
fn in_compiled_programs_loops_and_choices() {
    for op in all() {
        let o = op.clone();
        let own = move |(w, x): &Pair| o.one(&[w, x]);
        let p = |(w, x): &Pair| plain(w, x);
        same(&jit(own.clone())(&at()), &p(&at()));
        same(&jit(grad(own.clone()))(&at()), &grad(p)(&at()));
        let looped = |f: &dyn Fn(&Pair) -> Tensor, at: &Pair| {
            grad(|at: &Pair| {
                let iteration =
                    |(w, x): &Pair, _: &()| ((w.clone(), x * 0.5 + f(&(w.clone(), x.clone()))), ());
                scan_times(3, iteration, at).0.1.sum()
            })(at)
        };
        let o = own.clone();
        same(&jit(move |at: &Pair| looped(&o, at))(&at()), &looped(&p, &at()));
        let chosen = |f: &dyn Fn(&Pair) -> Tensor, at: &Pair| {
            grad(|at: &Pair| cond(&at.0.sum().lt(0.5), |at: &Pair| f(at), |at| at.1.sum(), at))(at)
        };
        same(&jit(move |at: &Pair| chosen(&own, at))(&at()), &chosen(&p, &at()));
    }
}

#[test]
fn the_compiled_program_calls_the_code() {
    let weighted = Weighted::new(Derivative::Vjp, CustomBatching::OneByOne);
    let calls = weighted.calls.clone();
    let op = custom_op(weighted);
    let f = pullback::jit(move |(w, x): &Pair| op.one(&[w, x]) * 2.0);
    f.of(&at());
    let before = calls.load(Ordering::Relaxed);
    same(&f.of(&(at().0 * 3.0, at().1)), &(plain(&at().0, &at().1) * 6.0));
    assert_eq!(calls.load(Ordering::Relaxed), before + 1);
}

#[test]
fn many_examples() {
    for op in all() {
        let own = |(w, x): &Pair| op.one(&[w, x]);
        let p = |(w, x): &Pair| plain(w, x);
        let x = Tensor::from([[1.0, 2.0, -3.0], [0.5, 1.0, 0.1]]);
        let pair = (at().0, x);
        let axes = || [None, Some(0)];
        same(&vmap(own, axes(), 0)(&pair), &vmap(p, axes(), 0)(&pair));
        let counts = vmap(|(w, x): &Pair| op.call(&[w, x]).swap_remove(1), axes(), 0)(&pair);
        assert_eq!(counts.to_vec::<i64>(), [2, 3]);
        let total = |f: &dyn Fn(&Pair) -> Tensor| {
            grad(|pair: &Pair| vmap(|x: &Pair| f(x), axes(), 0)(pair).square().sum())(&pair)
        };
        same(&total(&own), &total(&p));
        let each = |f: &dyn Fn(&Pair) -> Tensor| vmap(grad(|x: &Pair| f(x)), axes(), 0)(&pair);
        same(&each(&own), &each(&p));
        let deep = |f: &dyn Fn(&Pair) -> Tensor| {
            let inner = |(w, x): &Pair| {
                vmap(|s: &Tensor| f(&(w * s, x.clone())), 0, 0)(&Tensor::from([1.0, 2.0]))
            };
            grad(|pair: &Pair| vmap(inner, axes(), 0)(pair).square().sum())(&pair)
        };
        same(&deep(&own), &deep(&p));
        let o = op.clone();
        let compiled = jit(grad(move |pair: &Pair| {
            vmap(|(w, x): &Pair| o.one(&[w, x]), axes(), 0)(pair).square().sum()
        }));
        same(&compiled(&pair), &total(&p));
    }
}

#[test]
fn inside_a_custom_function() {
    let op = Arc::new(custom_op(Weighted::new(Derivative::Vjp, CustomBatching::OneByOne)));
    let f = custom_vjp(
        "rooted",
        move |(w, x): &Pair| {
            let y = op.one(&[w, x]).sqrt();
            (y.clone(), (w.clone(), x.clone(), y))
        },
        |(w, x, y): &(Tensor, Tensor, Tensor), dy: &Tensor| {
            let slope = dy / (2.0 * y);
            (&slope * x.square(), 2.0 * w * x * &slope)
        },
    );
    let p = |(w, x): &Pair| plain(w, x).sqrt();
    let at = (Tensor::from([1.0, 2.0]), Tensor::from([0.5, 1.5]));
    same(&grad(|at: &Pair| f.call(at))(&at), &grad(p)(&at));
    same(&jit(grad(move |at: &Pair| f.call(at)))(&at), &grad(p)(&at));
}

#[test]
fn wrong_derivatives_are_refused() {
    for derivative in [Derivative::Vjp, Derivative::Jvp] {
        let wrong = Weighted { factor: 1.5, ..Weighted::new(derivative, CustomBatching::OneByOne) };
        let op = custom_op(wrong);
        let error = catch(|| op.one(&[&at().0, &at().1])).unwrap_err().to_string();
        assert!(
            error.contains("weighted: its rule is not its derivative")
                && error.contains("custom_op.rs"),
            "{error}"
        );
    }
    let op = custom_op(Weighted::new(Derivative::Zero, CustomBatching::OneByOne));
    catch(|| op.one(&[&at().0, &at().1])).unwrap_err();
    let wrong =
        Weighted { factor: 1.5, ..Weighted::new(Derivative::Vjp, CustomBatching::OneByOne) };
    let op = custom_op(wrong).unchecked("a test of the list");
    op.one(&[&at().0, &at().1]);
    assert!(
        unchecked_rules().iter().any(|r| r.name == "weighted" && r.reason == "a test of the list")
    );
}

/// Running sums along the last axis, or, `mixed`, over everything: right for one example, wrong for
/// several at once.
struct Running {
    mixed: bool,
    batching: CustomBatching,
}

impl CustomOp for Running {
    fn name(&self) -> &'static str {
        "running"
    }
    fn specs(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        Ok(vec![inputs[0].clone()])
    }
    fn forward(&self, inputs: &[HostInput], outputs: &mut [HostOutput]) -> Result<()> {
        let n = *inputs[0].shape().last().unwrap_or(&1);
        // In f32 alone: there is no f64 to check it in.
        let (x, y) = (inputs[0].as_slice::<f32>()?, outputs[0].as_mut_slice::<f32>()?);
        let mut sum = 0.0;
        for (i, (x, y)) in x.iter().zip(y).enumerate() {
            sum = if i % n == 0 && !self.mixed { *x } else { sum + x };
            *y = sum;
        }
        Ok(())
    }
    fn derivative(&self) -> Derivative {
        Derivative::Jvp
    }
    fn jvp(&self, _: &[Tensor], _: &[Tensor], t: &[Tensor]) -> Vec<Tensor> {
        vec![t[0].cumsum(-1)]
    }
    fn batching(&self) -> CustomBatching {
        self.batching
    }
}

#[test]
fn batching_that_does_not_hold_is_refused() {
    let x = Tensor::from([[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]]);
    for batching in [CustomBatching::OneByOne, CustomBatching::LeadingAxes] {
        let op = custom_op(Running { mixed: false, batching });
        let y = vmap(|x: &Tensor| op.one(&[x]), 0, 0)(&x);
        assert_eq!(y.to_vec::<f32>(), [1.0, 3.0, 6.0, 4.0, 9.0, 15.0]);
    }
    // One by one it is right, whatever it does with several.
    let op = custom_op(Running { mixed: true, batching: CustomBatching::OneByOne });
    assert_eq!(
        vmap(|x: &Tensor| op.one(&[x]), 0, 0)(&x).to_vec::<f32>(),
        [1.0, 3.0, 6.0, 4.0, 9.0, 15.0]
    );
    let op = Arc::new(custom_op(Running { mixed: true, batching: CustomBatching::LeadingAxes }));
    op.one(&[&x.narrow(0, 0, 1).reshape([3])]);
    let text = "running: its code does not support leading axes, though its batching says so: with 2 examples result 0, element [1, 0], is 10.0, and one by one 4.0";
    let error = catch(|| vmap(|x: &Tensor| op.one(&[x]), 0, 0)(&x)).unwrap_err().to_string();
    assert!(error.contains(text) && error.contains("custom_op.rs"), "{error}");
    // Also where values are not known.
    let o = op.clone();
    let error = pullback::jit(move |x: &Tensor| vmap(|x: &Tensor| o.one(&[x]), 0, 0)(x))
        .call(&x)
        .unwrap_err()
        .to_string();
    assert!(error.contains("its code does not support leading axes"), "{error}");
}

#[test]
fn a_check_of_code_happens_once_for_each_spec() {
    let weighted = Weighted::new(Derivative::Vjp, CustomBatching::OneByOne);
    let calls = weighted.calls.clone();
    let op = custom_op(weighted);
    let after = |run: &dyn Fn()| {
        let before = calls.load(Ordering::Relaxed);
        run();
        calls.load(Ordering::Relaxed) - before
    };
    let (w, x) = at();
    assert!(after(&|| drop(op.one(&[&w, &x]))) > 10);
    assert_eq!(after(&|| drop(op.one(&[&w, &x]))), 1);
    assert_eq!(after(&|| drop(grad(|(w, x): &Pair| op.one(&[w, x]))(&at()))), 1);
    assert!(after(&|| drop(op.one(&[&w.narrow(0, 0, 2), &x.narrow(0, 0, 2)]))) > 10);
}

#[test]
fn a_refusal_is_given_to_who_asks() {
    let op = custom_op(Weighted::new(
        Derivative::Refused("a sum of squares is a secret"),
        CustomBatching::OneByOne,
    ));
    same(&op.one(&[&at().0, &at().1]), &plain(&at().0, &at().1));
    for error in [
        catch(|| grad(|(w, x): &Pair| op.one(&[w, x]))(&at())).unwrap_err().to_string(),
        catch(|| jvp(|(w, x): &Pair| op.one(&[w, x]), &at(), &at()).1).unwrap_err().to_string(),
    ] {
        assert!(
            error.contains("weighted: has no derivative: a sum of squares is a secret"),
            "{error}"
        );
        assert!(error.contains("custom_op.rs"), "{error}");
    }
}

#[test]
fn errors_of_the_code_name_op_operands_and_line() {
    let op = Arc::new(custom_op(Weighted::new(Derivative::Vjp, CustomBatching::OneByOne)));
    op.one(&[&at().0, &at().1]); // checked
    let bad = |v: f64| (at().0, Tensor::from([v, 1.0, 2.0]));
    let o = op.clone();
    let compiled = pullback::jit(move |(w, x): &Pair| o.one(&[w, x]));
    compiled.of(&at());
    for (value, text) in [(99.0, "does not like 99"), (98.0, "its kernel panicked: 98 is worse")] {
        let (w, x) = bad(value);
        for error in
            [catch(|| op.one(&[&w, &x])).unwrap_err(), compiled.call(&bad(value)).unwrap_err()]
        {
            let error = error.to_string();
            assert!(error.contains("weighted") && error.contains(text), "{error}");
            assert!(error.contains("f64[3]") && error.contains("custom_op.rs"), "{error}");
        }
    }
    let error = catch(|| op.one(&[&at().0, &Tensor::from([1.0])])).unwrap_err().to_string();
    assert!(
        error.contains("weighted: takes two f64 tensors of one shape") && error.contains("f64[1]"),
        "{error}"
    );
    assert!(error.contains("custom_op.rs"), "{error}");
    // The program is as good as new after an error.
    same(&compiled.of(&at()), &plain(&at().0, &at().1));
}

#[test]
fn a_slice_of_another_type_is_refused() {
    struct Typed;
    impl CustomOp for Typed {
        fn name(&self) -> &'static str {
            "typed"
        }
        fn specs(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
            Ok(inputs.to_vec())
        }
        fn forward(&self, inputs: &[HostInput], _: &mut [HostOutput]) -> Result<()> {
            inputs[0].as_slice::<f32>().map(|_| ())
        }
        fn derivative(&self) -> Derivative {
            Derivative::Refused("it only looks")
        }
    }
    let op = custom_op(Typed);
    let error = catch(|| op.one(&[&Tensor::from([1.0f64])])).unwrap_err().to_string();
    assert!(
        error.contains("typed: its code failed")
            && error.contains("the elements of f64[1] are not f32"),
        "{error}"
    );
    assert_eq!(op.one(&[&Tensor::from([1.0f32])]).to_vec::<f32>(), [0.0]);
    assert_eq!(op.one(&[&Tensor::zeros([0, 2])]).shape(), [0, 2]);
}

#[test]
fn equal_calls_are_one_equation() {
    let op = custom_op(Weighted::new(Derivative::Vjp, CustomBatching::OneByOne));
    let spec = Spec::cpu(DType::F64, [3]);
    let program = trace(
        |x: &[Tensor]| op.one(&[&x[0], &x[1]]) + op.one(&[&x[0], &x[1]]),
        &[spec.clone(), spec],
    )
    .unwrap();
    assert_eq!(program.equations.len(), 3);
    assert_eq!(pullback_ir::pass::common_subexpressions(&program).equations.len(), 2);
    assert!(program.to_string().contains("custom{weighted} a b"));
}
