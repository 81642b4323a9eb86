//! `detect_anomaly`: where the first NaN or infinity of a backward pass arose, also around what is
//! compiled or traced.

use pullback::{Tensor, catch, detect_anomaly, grad, jacrev, jit, scan, vmap};

fn root(x: &Tensor) -> Tensor {
    x.sqrt().sum()
}

#[test]
fn a_step_that_is_not_compiled_yet() {
    let step = jit(grad(root));
    let good = detect_anomaly(|| step.call(&Tensor::from([1.0, 4.0]))).unwrap();
    assert_eq!(good.to_vec::<f64>(), [0.5, 0.25]);
    let error = detect_anomaly(|| step.call(&Tensor::from([0.0, 4.0]))).unwrap_err().to_string();
    assert!(error.contains("backward of `sqrt`") && error.contains("anomaly.rs"), "{error}");
    let report = step.explain();
    assert_eq!(report.uncompiled.0, 2);
    assert!(report.specialisations.is_empty());
    assert!(report.to_string().contains("checked for NaN"), "{report}");
}

#[test]
fn a_step_that_is_compiled() {
    let step = jit(grad(root));
    let x = Tensor::from([0.0, 4.0]);
    assert_eq!(step.of(&x).to_vec::<f64>(), [f64::INFINITY, 0.25]);
    let error = detect_anomaly(|| step.call(&x)).unwrap_err().to_string();
    assert!(error.contains("backward of `sqrt`"), "{error}");
    // And compiled again afterwards.
    assert_eq!(step.of(&x).to_vec::<f64>(), [f64::INFINITY, 0.25]);
    assert_eq!(step.explain().specialisations.len(), 1);
}

#[test]
fn a_step_that_looks_itself() {
    let step = jit(|x: &Tensor| detect_anomaly(|| grad(root)(x)));
    assert_eq!(step.of(&Tensor::from([1.0, 4.0])).to_vec::<f64>(), [0.5, 0.25]);
    let error = step.call(&Tensor::from([0.0, 4.0])).unwrap_err().to_string();
    assert!(error.contains("backward of `sqrt`"), "{error}");
    assert!(step.explain().to_string().contains("itself"), "{}", step.explain());
}

#[test]
fn a_training_step_with_state() {
    let w = Tensor::from([1.0, 4.0]).requires_grad();
    let step = jit(|x: &Tensor| {
        w.zero_grad();
        let loss = (w.sqrt() * x).sum();
        loss.backward()?;
        Ok(loss)
    });
    let x = Tensor::from([2.0, 2.0]);
    for _ in 0..2 {
        detect_anomaly(|| step.call(&x)).unwrap();
        assert_eq!(w.grad().unwrap().to_vec::<f64>(), [1.0, 0.5]);
        step.call(&x).unwrap();
        assert_eq!(w.grad().unwrap().to_vec::<f64>(), [1.0, 0.5]);
    }
}

#[test]
fn loops_and_vmap_inside() {
    let x = Tensor::from([1.0, 4.0]);
    let each = detect_anomaly(|| vmap(grad(|x: &Tensor| x.sqrt()), 0, 0)(&x));
    assert_eq!(each.to_vec::<f64>(), [0.5, 0.25]);
    let turns = |x: &Tensor| {
        let init = x.sum() * 0.0 + 1.0;
        scan(|s: &Tensor, x: &Tensor| (s * x.sqrt(), ()), &init, x).0
    };
    let g = detect_anomaly(|| grad(turns)(&x));
    assert_eq!(g.to_vec::<f64>(), [1.0, 0.25]);
    let error = catch(|| detect_anomaly(|| grad(turns)(&Tensor::from([0.0, 4.0])))).unwrap_err();
    assert!(error.to_string().contains("backward of `sqrt`"), "{error}");
}

#[test]
fn all_rows_of_a_jacobian() {
    let error = catch(|| detect_anomaly(|| jacrev(Tensor::sqrt)(&Tensor::from([4.0, 0.0]))));
    assert!(error.unwrap_err().to_string().contains("backward of `sqrt`"));
}
