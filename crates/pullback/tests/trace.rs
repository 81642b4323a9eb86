//! Tracing: what a function does, as a program.

use pullback::{DType, Program, Spec, Tensor, catch, grad, hessian, jvp, no_grad, trace};

fn spec(shape: &[usize]) -> Spec {
    Spec::cpu(DType::F64, shape)
}

fn ops(program: &Program) -> Vec<&'static str> {
    program.equations.iter().map(|e| e.op.name()).collect()
}

#[test]
fn equations_carry_op_operands_and_line() {
    let line = line!() + 1;
    let program = trace(|x: &[Tensor]| (&x[0] * &x[1]).sum(), &[spec(&[3]), spec(&[3])]).unwrap();
    program.verify().unwrap();
    let text = program.to_string();
    let wanted = format!("  let c: f64[3] = mul a b  // crates/pullback/tests/trace.rs:{line}:");
    assert!(text.contains(&wanted), "{text}");
    assert_eq!(ops(&program), ["mul", "sum"]);
}

#[test]
fn gradients_are_recorded() {
    let f = |x: &Tensor| (x * x).sin().sum();
    for (name, program) in [
        ("grad", trace(|x: &[Tensor]| grad(f)(&x[0]), &[spec(&[3])])),
        ("jvp", trace(|x: &[Tensor]| jvp(f, &x[0], &x[1]), &[spec(&[3]), spec(&[3])])),
        ("hessian", trace(|x: &[Tensor]| hessian(f)(&x[0]), &[spec(&[3])])),
        (
            "backward",
            trace(
                |x: &[Tensor]| {
                    let w = x[0].detach().requires_grad();
                    f(&w).backward().unwrap();
                    w.grad().unwrap()
                },
                &[spec(&[3])],
            ),
        ),
    ] {
        let program = program.unwrap_or_else(|e| panic!("{name}: {e}"));
        program.verify().unwrap();
        assert!(
            ops(&program).contains(&"cos") || ops(&program).contains(&"vjp.sin"),
            "{name}: {program}"
        );
    }
}

#[test]
fn writes_to_captured_tensors_are_updates_and_change_nothing_yet() {
    let w = Tensor::from([1.0, 2.0]).requires_grad();
    let before = w.version();
    let program = trace(
        |x: &[Tensor]| {
            (&x[0] * &w).sum().backward().unwrap();
            no_grad(|| w.sub_(w.grad().unwrap() * 0.1));
            w.zero_grad();
        },
        &[spec(&[2])],
    )
    .unwrap();
    program.verify().unwrap();
    assert_eq!(program.updates.len(), 1, "{program}");
    assert_eq!(w.to_vec::<f64>(), [1.0, 2.0]);
    assert_eq!(w.version(), before);
    assert!(w.grad().is_none());
}

#[test]
fn windows_on_one_memory_see_each_others_writes() {
    let x = Tensor::from([1.0, 2.0, 3.0, 4.0]);
    let program = trace(
        |_: &[Tensor]| {
            let pair = x.narrow(0, 1, 2);
            let copy = x.detach();
            pair.mul_(10.0);
            copy.sum()
        },
        &[],
    )
    .unwrap();
    program.verify().unwrap();
    assert_eq!(ops(&program).iter().filter(|op| **op == "put").count(), 1, "{program}");
}

#[test]
fn reading_a_traced_value_is_refused_with_its_line() {
    let line = line!() + 2;
    let error =
        trace(|x: &[Tensor]| Tensor::from(x[0].sum().item::<f64>()), &[spec(&[2])]).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("is being traced"), "{text}");
    assert!(text.contains("cond") && text.contains(&format!("trace.rs:{line}:")), "{text}");
    let outside = Tensor::from([1.0, 2.0]);
    let error =
        trace(|_: &[Tensor]| outside.sum().to_vec::<f64>().len(), &[]).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("traced"), "{error}");
    let error = trace(|_: &[Tensor]| outside.to_vec::<f64>().len(), &[]).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("frozen"), "{error}");
    assert!(trace(|_: &[Tensor]| Tensor::from([1.0, 2.0]).to_vec::<f64>().len(), &[]).is_ok());
}

#[test]
fn a_tensor_that_escapes_says_where_it_was_made() {
    let mut kept = None;
    let line = line!() + 3;
    trace(
        |x: &[Tensor]| {
            kept = Some(x[0].exp());
            0.0
        },
        &[spec(&[2])],
    )
    .unwrap();
    let kept = kept.unwrap();
    for error in [catch(|| &kept + 1.0).unwrap_err(), kept.try_to_vec::<f64>().unwrap_err()] {
        let text = error.to_string();
        assert!(
            text.contains(&format!("made by exp at crates/pullback/tests/trace.rs:{line}:")),
            "{text}"
        );
    }
}

#[test]
fn a_failed_trace_leaves_everything_as_it_was() {
    let w = Tensor::from([1.0, 2.0]).requires_grad();
    let error = trace(
        |_: &[Tensor]| {
            no_grad(|| w.add_(1.0));
            (&w * &w).sum().backward().unwrap();
            Tensor::zeros([2]).matmul(&Tensor::zeros([3]))
        },
        &[],
    )
    .unwrap_err();
    assert!(error.to_string().contains("matmul"), "{error}");
    assert_eq!(w.to_vec::<f64>(), [1.0, 2.0]);
    assert!(w.grad().is_none() && w.version() == 0);
    (&w * &w).sum().backward().unwrap();
    assert_eq!(w.grad().unwrap().to_vec::<f64>(), [2.0, 4.0]);
}
