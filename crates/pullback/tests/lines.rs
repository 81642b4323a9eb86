//! Errors, programs, reports on memory and on anomalies name lines of the user's, whatever
//! transform lies between.

use pullback::{
    DType, Error, Spec, Tensor, associative_scan, catch, checkpoint, cond, detect_anomaly, grad,
    grad_aux, hessian, hessian_tree, hvp, jacfwd, jacobian, jacobian_tree, jacrev, jit, jvp,
    jvp_aux, linear_transpose, linearize, memory_report, scan, trace, user_line, value_and_grad,
    value_and_grad_aux, vjp, vjp_aux, vmap, while_loop, with_caller_lines,
};
use std::panic::Location;

type Function = fn(&Tensor) -> Tensor;
type Transformed = Box<dyn Fn(&Tensor) -> Tensor>;

/// Every transform of a function [4] → [4], or of its sum, as a function [4] → whatever, flattened.
#[rustfmt::skip]
fn transforms(f: Function) -> Vec<(&'static str, Transformed)> {
    let loss = move |x: &Tensor| f(x).sum();
    let aux = move |x: &Tensor| (f(x).sum(), x * 2.0);
    // Integers and what does not depend on the argument have zeros, which someone must make.
    let both = move |(x, _): &(Tensor, Tensor)| f(x).sum();
    let pair = |x: &Tensor| (x.clone(), Tensor::from([1i64, 2]));
    vec![
        ("grad", Box::new(move |x| grad(loss)(x))),
        ("grad of an integer", Box::new(move |x| grad(both)(&pair(x)).0)),
        ("value_and_grad", Box::new(move |x| value_and_grad(loss)(x).1)),
        ("grad_aux", Box::new(move |x| grad_aux(aux)(x).0)),
        ("value_and_grad_aux", Box::new(move |x| value_and_grad_aux(aux)(x).1)),
        ("vjp", Box::new(move |x| vjp(f, x).1(x))),
        ("vjp_aux", Box::new(move |x| vjp_aux(move |x: &Tensor| (f(x), x * 2.0), x).1(x))),
        ("jvp", Box::new(move |x| jvp(f, x, x).1)),
        ("jvp of a constant", Box::new(move |x| jvp(|x: &Tensor| f(&x.detach()), x, x).1)),
        ("jvp_aux", Box::new(move |x| jvp_aux(move |x: &Tensor| (f(x), x * 2.0), x, x).1)),
        ("jacrev", Box::new(move |x| jacrev(f)(x))),
        ("jacfwd", Box::new(move |x| jacfwd(f)(x))),
        ("jacobian", Box::new(move |x| jacobian(f)(x))),
        ("jacobian, tall", Box::new(move |x| jacobian(move |x: &Tensor| f(x).repeat([3]))(x))),
        ("jacobian_tree", Box::new(move |x| jacobian_tree(move |x: &Tensor| (f(x), x.sum()))(x).remove(1))),
        ("hessian", Box::new(move |x| hessian(loss)(x))),
        ("hessian_tree", Box::new(move |x| hessian_tree(loss)(x).remove(0))),
        ("hvp", Box::new(move |x| hvp(loss, x, x))),
        ("jacrev of grad", Box::new(move |x| jacrev(grad(loss))(x))),
        ("jacfwd of jacrev", Box::new(move |x| jacfwd(jacrev(f))(x))),
        ("vmap of jacrev", Box::new(move |x| vmap(jacrev(f), 0, 0)(&x.expand([2, 4])))),
        ("linearize", Box::new(move |x| linearize(f, x).1(x))),
        ("linear_transpose", Box::new(move |x| linear_transpose(f, x)(x))),
        ("vmap", Box::new(move |x| vmap(f, 0, 0)(&x.expand([2, 4])))),
        ("checkpoint", Box::new(move |x| grad(move |x: &Tensor| checkpoint(f, x).sum())(x))),
        ("jit", Box::new(move |x| jit(f).call(x).unwrap_or_else(|e| pullback::raise(e)))),
        ("cond", Box::new(move |x| cond(&x.sum().gt(0.0), f, |x: &Tensor| x * 2.0, x))),
        ("grad of cond", Box::new(move |x| {
            grad(move |x: &Tensor| cond(&x.sum().gt(0.0), f, |x: &Tensor| x * 2.0, x).sum())(x)
        })),
        ("scan", Box::new(move |x| scan(move |s: &Tensor, _: &Tensor| (f(s), s.sum()), x, x).0)),
        ("grad of scan", Box::new(move |x| {
            grad(move |x: &Tensor| scan(move |s: &Tensor, _: &Tensor| (f(s), s.sum()), x, x).0.sum())(x)
        })),
        ("while_loop", Box::new(move |x| {
            while_loop(|(n, _): &(Tensor, Tensor)| n.lt(2i64), move |(n, x)| (n + 1i64, f(x)), &(Tensor::from(0i64), x.clone())).1
        })),
        ("associative_scan", Box::new(move |x| {
            associative_scan(move |a: &Tensor, b: &Tensor| f(a) * b, &x.expand([3, 4]), 0)
        })),
    ]
}

fn ours(file: &str) -> bool {
    file.contains("tests/lines.rs")
}

fn x() -> Tensor {
    Tensor::from([0.5, 1.0, 1.5, 2.0])
}

#[test]
fn programs_name_lines_of_the_user() {
    let mut wrong = Vec::new();
    for (name, transform) in transforms(|x| x.sin() * x.square().sum()) {
        let program = trace(|x: &[Tensor]| transform(&x[0]), &[Spec::cpu(DType::F64, [4])]);
        let text = program.unwrap_or_else(|e| panic!("{name}: {e}")).to_string();
        assert!(text.contains("tests/lines.rs"), "{name}:\n{text}");
        let lines = text.lines().filter(|line| line.contains("/src/"));
        wrong.extend(lines.map(|line| format!("{name}: {line}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn errors_inside_name_the_line_that_erred() {
    let line = line!() + 1;
    let wrong: Function = |x| x.reshape([3]);
    for (name, transform) in transforms(wrong) {
        let error = catch(|| transform(&x())).expect_err(name);
        let at = error.location().unwrap_or_else(|| panic!("{name}: {error}"));
        assert!(ours(at.file()) && at.line() == line, "{name}: {error}");
    }
}

#[test]
fn anomalies_name_the_line_of_the_op() {
    let line = line!() + 1;
    let kink: Function = |x| (x - 0.5).sqrt();
    for (name, transform) in transforms(kink) {
        // Forward mode, loops and programs have no backward pass that looks.
        let backward = ["grad", "value", "vjp", "jacrev", "hessian", "hvp", "checkpoint"];
        if !backward.iter().any(|part| name.starts_with(part))
            || name.ends_with("scan")
            || name.ends_with("cond")
        {
            continue;
        }
        let error = detect_anomaly(|| catch(|| transform(&x()))).expect_err(name);
        let at = error.location().unwrap_or_else(|| panic!("{name}: {error}"));
        assert!(ours(at.file()), "{name}: {error}");
        assert!(error.to_string().contains(&format!("tests/lines.rs:{line}")), "{name}: {error}");
    }
}

#[test]
fn memory_is_listed_by_lines_of_the_user() {
    let mut wrong = Vec::new();
    for (name, transform) in transforms(|x| x.sin() * x.square().sum()) {
        let x = x();
        let (_, report) = memory_report(|| Ok(transform(&x))).unwrap();
        let lines = report.activations_by_line.iter().chain(&report.peak_by_line);
        let lines = lines.filter_map(|line| Some((line.op, line.at?)));
        let moments = report.timeline.iter().filter_map(|moment| Some((moment.op, moment.at?)));
        for (op, at) in lines.chain(moments) {
            if !ours(at.file()) {
                wrong.push(format!("{name}: {op} at {at}"));
            }
        }
    }
    wrong.dedup();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn transforms_that_refuse_name_the_line_they_were_made_on() {
    let at = |error: Error, line: u32, name: &str| {
        let at = error.location().unwrap_or_else(|| panic!("{name}: {error}"));
        assert!(ours(at.file()) && at.line() == line, "{name}: {error}");
    };
    let x = x();
    at(catch(|| hessian(|x: &Tensor| x.sin())(&x)).unwrap_err(), line!(), "hessian");
    let whole = Tensor::from([1i64, 2]);
    at(catch(|| hessian(|x: &Tensor| x.sum())(&whole)).unwrap_err(), line!(), "hessian");
    let f = |x: &Tensor| x.at(9);
    let line = line!() - 1;
    at(catch(|| jacrev(f)(&x)).unwrap_err(), line, "jacrev");
    at(catch(|| jacfwd(f)(&x)).unwrap_err(), line, "jacfwd");
    at(catch(|| vjp(|x: &Tensor| x.sin(), &x).1(&whole)).unwrap_err(), line!(), "vjp");
}

#[test]
fn a_library_works_for_its_caller() {
    fn through(f: &dyn Fn() -> Tensor) -> Tensor {
        f()
    }
    #[track_caller]
    fn entry(x: &Tensor) -> Tensor {
        let _line = with_caller_lines(Location::caller(), file!());
        inner(x)
    }
    // An entry point inside another is called by the library: the line is the outer caller's.
    fn inner(x: &Tensor) -> Tensor {
        let again = |x: &Tensor| {
            let _line = with_caller_lines(Location::caller(), file!());
            through(&|| x.reshape([3]))
        };
        again(x)
    }
    let error = catch(|| entry(&x())).unwrap_err();
    assert_eq!(error.location().unwrap().line(), line!() - 1);
    // Afterwards, also after the panic, lines are themselves again.
    let error = catch(|| inner(&x())).unwrap_err();
    assert_ne!(error.location().unwrap().line(), line!() - 1);
    let here = Location::caller();
    assert_eq!(user_line(here), here);
    // Files of others keep theirs.
    let _line = with_caller_lines(here, "elsewhere/");
    let error = catch(|| x().reshape([3])).unwrap_err();
    assert_eq!(error.location().unwrap().line(), line!() - 1);
}
