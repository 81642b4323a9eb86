//! A function that is differentiated, mapped, looped, chosen, checkpointed or solved for does not
//! write to its argument, whatever the mode; what it makes itself it may write to.

use pullback::{
    Ode, Tensor, associative_scan, catch, checkpoint, checkpoint_sequential, cond, custom_jvp,
    custom_vjp, fixed_point, fori_loop, grad, hessian, jacfwd, jacrev, jit, jvp, linear_solve,
    linearize, no_grad, root, scan, scan_reverse, scan_times, value_and_grad, vjp, vmap,
    while_loop, while_loop_bounded,
};

type Write = fn(&Tensor);
type Call = Box<dyn Fn(&Tensor, Write) -> Tensor>;

/// Every way to write to what is given, and to what shares its memory.
fn writes() -> Vec<(&'static str, Write)> {
    vec![
        ("itself", |x| drop(x.add_(1.0))),
        ("a view", |x| drop(x.reshape([x.len()]).add_(1.0))),
        ("a view of a view", |x| drop(x.reshape([x.len()]).narrow(0, 0, 1).add_(1.0))),
        ("inside no_grad", |x| no_grad(|| drop(x.add_(1.0)))),
        ("detached", |x| no_grad(|| drop(x.detach().add_(1.0)))),
        ("a detached view", |x| no_grad(|| drop(x.reshape([x.len()]).detach().add_(1.0)))),
        ("a view of the detached", |x| no_grad(|| drop(x.detach().narrow(0, 0, 1).add_(1.0)))),
    ]
}

/// x, after an attempt to write to it.
fn written(x: &Tensor, write: Write) -> Tensor {
    write(x);
    x * 2.0
}

fn zeros(x: &Tensor) -> Tensor {
    no_grad(|| x.detach().zeros_like())
}

fn constructs() -> Vec<(&'static str, Call)> {
    vec![
        ("cond", Box::new(|x, w| cond(&x.sum().gt(0.0), |x| written(x, w), |x| x * 1.0, x))),
        ("cond, no", Box::new(|x, w| cond(&x.sum().lt(0.0), |x| x * 1.0, |x| written(x, w), x))),
        (
            "while_loop",
            Box::new(|x, w| while_loop(|x: &Tensor| x.sum().lt(20.0), |x| written(x, w), x)),
        ),
        (
            "the test of while_loop",
            Box::new(|x, w| {
                let test = |x: &Tensor| {
                    w(x);
                    x.sum().lt(20.0)
                };
                while_loop(test, |x| x * 2.0, x)
            }),
        ),
        (
            "while_loop_bounded",
            Box::new(|x, w| {
                while_loop_bounded(3, |x: &Tensor| x.sum().lt(20.0), |x| written(x, w), x)
            }),
        ),
        ("fori_loop", Box::new(|x, w| fori_loop(0, 2, |_, x: &Tensor| written(x, w), x))),
        (
            "the state of scan",
            Box::new(|x, w| scan(|s: &Tensor, x: &Tensor| (written(s, w) + x, ()), x, x).0),
        ),
        (
            "a later state of scan",
            Box::new(|x, w| {
                // The first state is the caller's; the second is made by the loop, and given back
                // by the caller's function as well.
                let iteration = |(i, s): &(Tensor, Tensor), _: &()| {
                    w(s);
                    ((i + 1i64, s * 2.0), ())
                };
                scan_times(2, iteration, &(Tensor::from(0i64), x.clone())).0.1
            }),
        ),
        (
            "a row of scan",
            Box::new(|x, w| {
                let rows = x.reshape([1, x.len()]);
                scan(|s: &Tensor, x: &Tensor| (s + written(x, w), ()), &zeros(x), &rows).0
            }),
        ),
        (
            "a row of scan_reverse",
            Box::new(|x, w| {
                let rows = x.reshape([1, x.len()]);
                scan_reverse(|s: &Tensor, x: &Tensor| (s + 0.0, written(x, w)), &zeros(x), &rows).1
            }),
        ),
        (
            "vmap",
            Box::new(|x, w| vmap(move |x: &Tensor| written(x, w), 0, 0)(&x.reshape([1, x.len()]))),
        ),
        ("checkpoint", Box::new(|x, w| checkpoint(move |x: &Tensor| written(x, w), x))),
        (
            "checkpoint without recording",
            Box::new(|x, w| no_grad(|| checkpoint(move |x: &Tensor| written(x, w), x))),
        ),
        (
            "checkpoint_sequential",
            Box::new(|x, w| checkpoint_sequential(&[move |x: &Tensor| written(x, w)], Some(1), x)),
        ),
        ("grad", Box::new(|x, w| grad(move |x: &Tensor| written(x, w).sum())(x))),
        (
            "value_and_grad",
            Box::new(|x, w| value_and_grad(move |x: &Tensor| written(x, w).sum())(x).1),
        ),
        ("vjp", Box::new(|x, w| vjp(|x: &Tensor| written(x, w), x).0)),
        ("jvp", Box::new(|x, w| jvp(|x: &Tensor| written(x, w), x, &zeros(x)).0)),
        ("linearize", Box::new(|x, w| linearize(move |x: &Tensor| written(x, w), x).0)),
        ("jacrev", Box::new(|x, w| jacrev(move |x: &Tensor| written(x, w))(x))),
        ("jacfwd", Box::new(|x, w| jacfwd(move |x: &Tensor| written(x, w))(x))),
        ("hessian", Box::new(|x, w| hessian(move |x: &Tensor| written(x, w).sum())(x))),
        (
            "associative_scan",
            Box::new(|x, w| {
                let rows = x.reshape([1, x.len()]).repeat([2, 1]);
                associative_scan(move |a: &Tensor, b: &Tensor| written(a, w) + b, &rows, 0)
            }),
        ),
        (
            "custom_vjp",
            Box::new(|x, w| {
                let rule = custom_vjp(
                    "twice",
                    move |x: &Tensor| (written(x, w), ()),
                    |_: &(), dy: &Tensor| dy * 2.0,
                );
                rule.call(x)
            }),
        ),
        (
            "the cotangent of custom_vjp",
            Box::new(|x, w| {
                let rule = custom_vjp(
                    "twice",
                    |x: &Tensor| (x * 2.0, ()),
                    move |_: &(), dy: &Tensor| written(dy, w),
                )
                .unchecked("a test of what it may write to");
                grad(move |x: &Tensor| rule.call(x).square().sum())(x)
            }),
        ),
        (
            "the residual of custom_vjp",
            Box::new(|x, w| {
                let rule = custom_vjp(
                    "twice",
                    |x: &Tensor| (x * 2.0, x.clone()),
                    move |x: &Tensor, dy: &Tensor| {
                        w(x);
                        dy * 2.0
                    },
                )
                .unchecked("a test of what it may write to");
                grad(move |x: &Tensor| rule.call(x).square().sum())(x)
            }),
        ),
        (
            "the tangent of custom_jvp",
            Box::new(|x, w| {
                let rule = custom_jvp(
                    "twice",
                    |x: &Tensor| x * 2.0,
                    move |_: &Tensor, t: &Tensor| written(t, w),
                )
                .unchecked("a test of what it may write to");
                jvp(|x: &Tensor| rule.call(x), x, &zeros(x)).1
            }),
        ),
        (
            "a hook",
            Box::new(|x, w| {
                let p = x.detach().requires_grad();
                let h = &p * 1.0;
                h.register_hook(move |g| {
                    w(g);
                    None
                });
                h.backward_with(&zeros(x)).unwrap_or_else(|error| pullback::raise(error));
                p.grad().unwrap()
            }),
        ),
        (
            "the unknown of fixed_point",
            Box::new(|x, w| fixed_point(move |_: &Tensor, x: &Tensor| written(x, w) * 0.25, x, x)),
        ),
        (
            "the parameter of fixed_point",
            Box::new(|x, w| {
                fixed_point(
                    move |t: &Tensor, x: &Tensor| {
                        w(t);
                        x * 0.25 + t
                    },
                    x,
                    x,
                )
            }),
        ),
        ("root", Box::new(|x, w| root(move |t: &Tensor, x: &Tensor| written(x, w) - t, x, x))),
        (
            "linear_solve",
            Box::new(|x, w| linear_solve(move |_: &Tensor, x: &Tensor| written(x, w), x, x)),
        ),
        (
            "ode",
            Box::new(|x, w| {
                let times = Tensor::from([0.0, 1.0]);
                Ode::new().of(
                    move |_: &Tensor, y: &Tensor, _: &()| written(y, w) * 0.1,
                    x,
                    &times,
                    &(),
                )
            }),
        ),
    ]
}

#[test]
fn no_argument_is_written_to() {
    let mut wrong = Vec::new();
    for (name, call) in constructs() {
        for (how, write) in writes() {
            let mut refused = |mode: &str, result: Result<Tensor, pullback::Error>| {
                let text = match result {
                    Ok(y) => format!("gave {y}"),
                    Err(error) => error.to_string(),
                };
                let argument = text.contains("the argument of a function");
                let cut = text.contains("a detached tensor, or a view made in no_grad, is written");
                if !(argument || cut) || !text.contains("bodies/arguments.rs") {
                    wrong.push(format!("{name}, {how}, {mode}: {text}"));
                }
            };
            let (x, rows) = (Tensor::from([1.0, 2.0]), Tensor::from([[1.0, 2.0], [3.0, 4.0]]));
            refused("eager", catch(|| call(&x, write)));
            refused("compiled", jit(|x: &Tensor| call(x, write)).call(&x));
            refused("mapped", catch(|| vmap(|x: &Tensor| call(x, write), 0, 0)(&rows)));
            refused("differentiated", catch(|| grad(|x: &Tensor| call(x, write).sum())(&x)));
            refused("pushed", catch(|| jvp(|x: &Tensor| call(x, write), &x, &x.ones_like()).1));
            if x.to_vec::<f64>() != [1.0, 2.0] {
                wrong.push(format!("{name}, {how}: the argument has changed"));
            }
            // It is the caller's again.
            x.add_(1.0);
        }
    }
    assert!(wrong.is_empty(), "{} of these:\n{}", wrong.len(), wrong.join("\n"));
}

/// Integers are arguments like others.
#[test]
fn nor_integers() {
    type Pair = (Tensor, Tensor);
    let (x, n) = (Tensor::from([1.0]), Tensor::from([1i64]));
    let pair = (x.clone(), n.clone());
    let f = |(x, n): &Pair| {
        n.add_(1i64);
        x.sum()
    };
    let tangent = (x.clone(), n.zeros_like());
    let chosen = |p: &Pair| cond(&Tensor::from(true), f, |(x, _)| x.sum(), p);
    for (name, result) in [
        ("grad", catch(|| drop(grad(f)(&pair)))),
        ("vjp", catch(|| drop(vjp(f, &pair)))),
        ("jvp", catch(|| drop(jvp(f, &pair, &tangent)))),
        ("vmap", catch(|| drop(vmap(f, 0, 0)(&pair)))),
        ("cond", catch(|| drop(chosen(&pair)))),
        ("jit", catch(|| drop(jit(chosen).of(&pair)))),
        ("jit of grad", catch(|| drop(jit(grad(f)).of(&pair)))),
    ] {
        let error = result.err().map(|e| e.to_string()).unwrap_or_default();
        assert!(error.contains("the argument of a function"), "{name}: {error}");
    }
    assert_eq!(n.to_vec::<i64>(), [1]);
}

/// What a body makes, it may write to; and what a construct gives is the caller's.
#[test]
fn what_is_made_inside_is_written_to() {
    let f = |x: &Tensor| {
        let y = x * 2.0;
        y.add_(1.0);
        y.narrow(0, 0, 1).mul_(2.0);
        let z = y.detach().deep_clone();
        z.add_(1.0);
        y + z * 0.0
    };
    let (x, zeros) = (Tensor::from([1.0, 2.0]), Tensor::from([0.0, 0.0]));
    let go = |x: &Tensor, write: bool| {
        let a = cond(&x.sum().gt(0.0), f, |x| x * 1.0, x);
        let b = while_loop(|x: &Tensor| x.sum().lt(20.0), f, x);
        let (c, d) = scan_times(3, |s: &Tensor, _: &()| (f(s), f(s)), x);
        let (e, ()) = scan(|s: &Tensor, x: &Tensor| (s + f(x), ()), &zeros, &x.reshape([1, 2]));
        // A state that goes through unchanged, and one that is a view or cut off.
        let pass = |(i, s): &(Tensor, Tensor), _: &()| {
            let s = cond(&i.eq(0i64), |s| s * 2.0, |s: &Tensor| s.clone(), s);
            ((i + 1i64, s.reshape([2])), ())
        };
        let (g, ()) = scan_times(3, pass, &(Tensor::from(0i64), x.clone()));
        let cut = |s: &Tensor, _: &()| (s.detach(), ());
        let (h, ()) = scan_times(3, cut, &(x * 1.0));
        let results = [a, b, c, d.sum_over(0), e, g.1, h];
        // All of them can be written to.
        results.iter().filter(|_| write).for_each(|y| drop(y.add_(1.0)));
        results.iter().fold(Tensor::from([0.0, 0.0]), |sum, y| sum + y)
    };
    let (eager, compiled) = (go(&x, true), jit(|x: &Tensor| go(x, true)).of(&x));
    assert_eq!(eager.to_vec::<f64>(), compiled.to_vec::<f64>());
    assert_eq!(x.to_vec::<f64>(), [1.0, 2.0]);
    let slope = grad(|x: &Tensor| go(x, false).sum());
    assert_eq!(slope(&x).to_vec::<f64>(), jit(&slope).of(&x).to_vec::<f64>());
    x.add_(1.0);
}
