//! Functions with derivatives of their own inside programs: traced, compiled, batched, in loops and
//! choices.

use pullback::{
    CustomJvp, CustomVjp, DType, JitOutput, Op, Program, Spec, Tensor, Tree, catch, cond,
    custom_jvp, custom_vjp, grad, jvp, scan, scan_times, trace, vmap,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// sin, with a residual that is neither argument nor result.
fn sine() -> CustomVjp<Tensor, Tensor, Tensor> {
    custom_vjp("sine", |x: &Tensor| (x.sin(), x.cos()), |c: &Tensor, dy: &Tensor| dy * c)
}

/// w·x², by its forward rule.
fn weighted() -> CustomJvp<(Tensor, Tensor), Tensor> {
    custom_jvp(
        "weighted",
        |(w, x): &(Tensor, Tensor)| w * x.square(),
        |(w, x), (tw, tx)| tw * x.square() + 2.0 * w * x * tx,
    )
}

/// Whether the derivative that is used is the rule and not that of the function: the sign is wrong
/// on purpose.
fn reversed() -> CustomVjp<Tensor, Tensor, ()> {
    custom_vjp("reversed", |x: &Tensor| (x * 3.0, ()), |_: &(), dy: &Tensor| dy * -3.0)
        .unchecked("the test distinguishes the rule from the function by it")
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

/// Compiled, and every pass and kernel compared with plain ops.
fn jit<T: Tree, Y: JitOutput<Value = Y>>(f: impl Fn(&T) -> Y) -> impl Fn(&T) -> Y {
    let f = pullback::jit(f);
    move |x| {
        f.check(x).unwrap();
        f.of(x)
    }
}

fn point() -> Tensor {
    Tensor::from([0.3, -0.7, 1.9])
}

#[test]
fn compiled_functions_and_compiled_gradients() {
    let f = Arc::new(sine());
    let g = f.clone();
    let loss = move |x: &Tensor| (g.call(x) * x).sum();
    let plain = |x: &Tensor| (x.sin() * x).sum();
    same(&jit(loss.clone())(&point()), &plain(&point()));
    same(&jit(grad(loss.clone()))(&point()), &grad(plain)(&point()));
    let twice = |f: &dyn Fn(&Tensor) -> Tensor, x: &Tensor| {
        grad(|x: &Tensor| grad(|x: &Tensor| f(x))(x).square().sum())(x)
    };
    let compiled = jit(move |x: &Tensor| twice(&loss, x));
    same(&compiled(&point()), &twice(&plain, &point()));
}

#[test]
fn the_rule_is_what_is_differentiated() {
    let f = Arc::new(reversed());
    let x = point();
    let minus = Tensor::full([3], -3.0);
    let call = move |x: &Tensor| f.call(x);
    let sum = |y: Tensor| y.sum();
    let c = call.clone();
    same(&grad(|x: &Tensor| sum(c(x)))(&x), &minus);
    let c = call.clone();
    same(&jit(grad(move |x: &Tensor| sum(c(x))))(&x), &minus);
    let c = call.clone();
    same(&grad(|x: &Tensor| sum(vmap(&c, 0, 0)(x)))(&x), &minus);
    same(&vmap(grad(&c), 0, 0)(&x), &minus);
    same(&jit(grad(move |x: &Tensor| sum(vmap(&c, 0, 0)(x))))(&x), &minus);
    let c = call.clone();
    let looped = move |x: &Tensor| scan_times(2, |s: &Tensor, _: &()| (c(s), ()), x).0.sum();
    same(&jit(grad(looped))(&x), &Tensor::full([3], 9.0));
    let c = call.clone();
    let chosen =
        move |x: &Tensor| cond(&x.sum().gt(0.0), |x: &Tensor| c(x), |x| x.clone(), x).sum();
    same(&jit(grad(chosen))(&x), &minus);
    let c = call.clone();
    let chosen =
        move |x: &Tensor| cond(&x.sum().lt(0.0), |x: &Tensor| c(x), |x| x.clone(), x).sum();
    same(&jit(grad(chosen))(&x), &Tensor::full([3], 1.0));
    same(&jvp(|x: &Tensor| vmap(&call, 0, 0)(x), &x, &Tensor::full([3], 1.0)).1, &minus);
}

#[test]
fn loops_keep_what_the_rule_reads() {
    let (f, g) = (Arc::new(sine()), Arc::new(weighted()));
    let own = move |(w, x): &(Tensor, Tensor)| {
        let iteration = |s: &Tensor, w: &Tensor| {
            let y = f.call(&g.call(&(w.clone(), s.clone())));
            (y.clone(), y * s)
        };
        let (last, all) = scan(iteration, x, w);
        (last * all.sum()).sum()
    };
    let plain = |(w, x): &(Tensor, Tensor)| {
        let iteration = |s: &Tensor, w: &Tensor| {
            let y = (w * s.square()).sin();
            (y.clone(), y * s)
        };
        let (last, all) = scan(iteration, x, w);
        (last * all.sum()).sum()
    };
    let at = (Tensor::from([0.5, 1.5, -0.3, 0.8]), Tensor::from([0.9, 0.4]));
    let expected = grad(plain)(&at);
    same(&grad(&own)(&at), &expected);
    same(&jit(grad(own.clone()))(&at), &expected);
    let over = |f: &dyn Fn(&(Tensor, Tensor)) -> Tensor, at: &(Tensor, Tensor)| {
        grad(|at: &(Tensor, Tensor)| {
            let g = grad(|x: &(Tensor, Tensor)| f(x))(at);
            g.0.square().sum() + g.1.square().sum()
        })(at)
    };
    let expected = over(&plain, &at);
    let own = Arc::new(own);
    let o = own.clone();
    same(&jit(move |at: &(Tensor, Tensor)| over(&*o, at))(&at), &expected);
    let t = (Tensor::full([4], 0.5), Tensor::full([2], -1.0));
    let expected = jvp(plain, &at, &t).1;
    same(
        &jit(move |x: &((Tensor, Tensor), (Tensor, Tensor))| jvp(&*own, &x.0, &x.1).1)(&(at, t)),
        &expected,
    );
}

#[test]
fn many_examples() {
    let f = weighted();
    let own = |x: &(Tensor, Tensor)| f.call(x);
    let plain = |(w, x): &(Tensor, Tensor)| w * x.square();
    let (w, x) = (point(), Tensor::from([[1.0, 2.0, 3.0], [0.5, -1.0, 0.25]]));
    let axes = || [None, Some(0)];
    let at = (w.clone(), x.clone());
    same(&vmap(own, axes(), 0)(&at), &vmap(plain, axes(), 0)(&at));
    // What all examples share has the sum of their gradients.
    let total = |f: &dyn Fn(&(Tensor, Tensor)) -> Tensor, at: &(Tensor, Tensor)| {
        vmap(|x: &(Tensor, Tensor)| f(x), axes(), 0)(at).powi(2).sum()
    };
    let expected = grad(|at: &(Tensor, Tensor)| total(&plain, at))(&at);
    same(&grad(|at: &(Tensor, Tensor)| total(&own, at))(&at), &expected);
    let each = |f: &dyn Fn(&(Tensor, Tensor)) -> Tensor| {
        vmap(grad(|x: &(Tensor, Tensor)| f(x).sum()), axes(), 0)(&at)
    };
    same(&each(&own), &each(&plain));
    let t = (w.ones_like(), x.ones_like());
    let push = |f: &dyn Fn(&(Tensor, Tensor)) -> Tensor| {
        jvp(|at: &(Tensor, Tensor)| vmap(|x: &(Tensor, Tensor)| f(x), axes(), 0)(at), &at, &t).1
    };
    same(&push(&own), &push(&plain));
    // Two levels, and the second derivative through both.
    let deep = |f: &dyn Fn(&(Tensor, Tensor)) -> Tensor, at: &(Tensor, Tensor)| {
        let inner = |(w, x): &(Tensor, Tensor)| {
            vmap(|x: &Tensor| f(&(w.clone(), x.clone())).sum(), 0, 0)(x)
        };
        vmap(inner, axes(), 0)(at).square().sum()
    };
    let twice = |f: &dyn Fn(&(Tensor, Tensor)) -> Tensor| {
        grad(|w: &Tensor| {
            grad(|at: &(Tensor, Tensor)| deep(f, at))(&(w.clone(), x.clone())).1.square().sum()
        })(&w)
    };
    same(&twice(&own), &twice(&plain));
}

#[test]
fn residuals_that_are_computed_are_batched() {
    let f = sine();
    let x = Tensor::from([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]]);
    let second = |f: &dyn Fn(&Tensor) -> Tensor| {
        grad(|x: &Tensor| {
            grad(|x: &Tensor| vmap(|x: &Tensor| f(x), 0, 0)(x).square().sum())(x).sum()
        })(&x)
    };
    same(&second(&|x| f.call(x)), &second(&|x| x.sin()));
    let inside = |f: &dyn Fn(&Tensor) -> Tensor| {
        vmap(grad(|x: &Tensor| grad(|x: &Tensor| f(x).sum())(x).square().sum()), 0, 0)(&x)
    };
    same(&inside(&|x| f.call(x)), &inside(&|x| x.sin()));
}

#[test]
fn nothing_of_it_is_left_in_a_compiled_program() {
    let f = sine();
    let outer = custom_vjp(
        "outer",
        move |x: &Tensor| (f.call(x), x.clone()),
        |x: &Tensor, dy: &Tensor| dy * x.cos(),
    );
    let spec = Spec::cpu(DType::F64, [3]);
    let program =
        trace(|x: &[Tensor]| outer.call(&x[0]).sum(), std::slice::from_ref(&spec)).unwrap();
    let customs =
        |p: &Program| p.equations.iter().filter(|e| matches!(e.op, Op::Custom(_))).count();
    assert_eq!(customs(&program), 1);
    assert_eq!(customs(&pullback_ir::pass::inline(&program)), 0);
    // It prints, and says why it cannot be read.
    let text = program.to_string();
    assert!(text.contains("custom{outer,") && text.contains("custom{sine,"), "{text}");
    let error = text.parse::<Program>().unwrap_err().to_string();
    assert!(error.contains("a custom op holds code"), "{error}");
    assert!(program.to_json().contains("custom{outer}"));
    assert!(program.to_dot().contains("custom outer"));
}

#[test]
fn captured_tensors_that_are_differentiated_outside_are_refused() {
    let w = Tensor::from(2.0).requires_grad();
    let v = w.clone();
    let f = Arc::new(
        custom_vjp("scaled", move |x: &Tensor| (x * &v, ()), |_: &(), dy: &Tensor| dy * 2.0)
            .unchecked("it is refused for another reason"),
    );
    let refused = |run: &dyn Fn() -> Tensor| {
        let error = catch(run).unwrap_err().to_string();
        assert!(error.contains("scaled") && error.contains("pass it as an argument"), "{error}");
    };
    let x = point();
    refused(&|| vmap(|x: &Tensor| f.call(x), 0, 0)(&x));
    let g = f.clone();
    refused(&|| pullback::jit(|x: &Tensor| g.call(x)).of(&x));
    // A value that is a plain variable inside the body, and tracked outside of it.
    refused(&|| {
        grad(|x: &Tensor| {
            vmap(
                |x: &Tensor| {
                    let doubled = x * 2.0;
                    let f = custom_vjp(
                        "scaled",
                        move |y: &Tensor| (y * &doubled, ()),
                        |_: &(), dy: &Tensor| dy * 2.0,
                    )
                    .unchecked("it is refused for another reason");
                    f.call(&Tensor::from(1.0))
                },
                0,
                0,
            )(x)
            .sum()
        })(&x)
    });
    // As a constant it is fine.
    let v = w.clone();
    let f = custom_vjp(
        "scaled",
        move |x: &Tensor| (x * v.detach(), ()),
        |_: &(), dy: &Tensor| dy * 2.0,
    );
    same(
        &grad(|x: &Tensor| vmap(|x: &Tensor| f.call(x), 0, 0)(x).sum())(&x),
        &Tensor::full([3], 2.0),
    );
}

#[test]
fn functions_are_traced_once() {
    let calls = Arc::new(AtomicUsize::new(0));
    let count = calls.clone();
    let f = custom_vjp(
        "counted",
        move |x: &Tensor| {
            count.fetch_add(1, Ordering::Relaxed);
            (x.exp(), x.exp())
        },
        |y: &Tensor, dy: &Tensor| y * dy,
    );
    let compiled = pullback::jit(grad(move |x: &Tensor| f.call(x).sum()));
    compiled.of(&point());
    let first = calls.load(Ordering::Relaxed);
    for _ in 0..3 {
        same(&compiled.of(&point()), &point().exp());
    }
    assert_eq!(calls.load(Ordering::Relaxed), first);
}
