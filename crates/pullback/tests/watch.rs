//! The first op that overflowed is found: forward and backward, in sums that are written in place,
//! and in compiled functions.

use pullback::{DType, Tensor, autocast, detect_overflow, jit, no_grad};

fn half(values: &[f32]) -> Tensor {
    Tensor::from(values).cast(DType::F16)
}

#[test]
fn nothing_is_found_where_all_is_finite() {
    let x = half(&[1.0, 2.0]).requires_grad();
    let (y, source) = detect_overflow(|| {
        let y = (&x * &x).sum();
        y.backward().unwrap();
        y.to_f64_vec()
    });
    assert_eq!((y, source), (vec![5.0], None));
}

#[test]
fn the_first_of_several_in_the_forward_pass() {
    let x = half(&[300.0, 2.0]);
    let line = line!() + 2;
    let (_, source) = detect_overflow(|| {
        let y = &x * &x;
        (y - 1.0).exp()
    });
    let source = source.unwrap();
    assert_eq!((source.op, source.backward_of, source.nan), ("mul", None, false));
    assert_eq!((source.at.line(), source.at.file()), (line, file!()));
    assert_eq!(source.largest, 300.0);
    // Watching is over.
    let _ = &x * &x;
    assert_eq!(detect_overflow(|| &x + 1.0).1, None);
}

#[test]
fn infinities_in_operands_are_not_reported() {
    let x = Tensor::from([f32::INFINITY, 1.0]);
    assert_eq!(detect_overflow(|| (&x * 2.0).exp()).1, None);
    let masked = detect_overflow(|| {
        Tensor::from([true, false]).select(f64::NEG_INFINITY, Tensor::ones([2])).softmax(0)
    });
    assert_eq!(masked.1, None);
    let (_, source) = detect_overflow(|| Tensor::from([-1.0f32]).sqrt());
    assert!(source.unwrap().nan);
}

#[test]
fn in_the_backward_pass() {
    let x = half(&[200.0]).requires_grad();
    let scale = Tensor::from(60000.0f32);
    let line = line!() + 2;
    let (_, source) = detect_overflow(|| {
        let y = x.relu().cast(DType::F32) * &scale;
        let z = &x * 100.0;
        (y.sum() + z.sum().cast(DType::F32) * &scale).backward().unwrap();
    });
    let source = source.unwrap();
    // Both gradients are finite in f16 by themselves or are not: the product with 100 is the first
    // that is not.
    assert_eq!((source.op, source.backward_of), ("mul", Some("mul")));
    assert_eq!(source.at.line(), line + 1);
    assert!(
        source.to_string().starts_with("backward of `mul` made an infinity in f16[1]"),
        "{source}"
    );
}

#[test]
fn in_a_sum_of_gradients_that_is_written_in_place() {
    let x = half(&[1.0, 1.0]).requires_grad();
    let (_, source) = detect_overflow(|| {
        let y = x.relu();
        let z = (y.cast(DType::F32) * 40000.0).sum() + (y.cast(DType::F32) * 50000.0).sum();
        z.backward().unwrap();
    });
    let source = source.unwrap();
    assert_eq!(source.op, "add");
    assert_eq!(x.grad().unwrap().to_f64_vec(), [f64::INFINITY; 2]);
}

#[test]
fn in_a_write_in_place() {
    let x = half(&[60000.0]);
    let (_, source) = detect_overflow(|| no_grad(|| x.add_(&x)));
    assert_eq!(source.unwrap().op, "add");
}

#[test]
fn a_compiled_function_goes_op_by_op_meanwhile() {
    let w = Tensor::full([2, 2], 200.0f32).requires_grad();
    let step = jit(|x: &Tensor| {
        w.zero_grad();
        let y = autocast(DType::F16, || x.linear(&w, None).linear(&w, None).sum());
        y.backward()?;
        Ok(y)
    });
    let x = Tensor::ones([1, 2]);
    let plain = step.call(&x).unwrap().item::<f32>();
    let (y, source) = detect_overflow(|| step.call(&x).unwrap().item::<f32>());
    assert_eq!((plain, y), (f32::INFINITY, f32::INFINITY));
    let source = source.unwrap();
    assert_eq!((source.op, source.backward_of), ("dot", None));
    assert!(source.at.file().ends_with("watch.rs"));
    assert_eq!(source.operands[0].to_string(), "f16[1,2]");
}

#[test]
fn scopes_nest() {
    let x = half(&[300.0]);
    let ((_, inner), outer) = detect_overflow(|| detect_overflow(|| &x * &x));
    assert_eq!(inner, outer);
    assert!(inner.is_some());
    let ((_, inner), outer) = detect_overflow(|| {
        let _ = x.square() * 1.0;
        detect_overflow(|| &x + 1.0)
    });
    assert_eq!((inner, outer.unwrap().op), (None, "square"));
}
