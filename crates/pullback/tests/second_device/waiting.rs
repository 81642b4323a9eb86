//! What waits, and what an error that nobody waited for becomes.

use super::device_second::{alone, counted, counts, pause, second};
use super::{bits, sample};
use pullback::{Tensor, backend, catch, detect_anomaly, detect_overflow, grad, jit};

#[test]
fn ops_return_before_they_have_run() {
    let _alone = alone();
    let x = sample(&[8, 8], 1).to(second());
    backend::synchronize(second()).unwrap();
    let done = counts().done;
    let held = pause();
    let y = (&x + 1.0).matmul(&x).tanh();
    let z = y.sum_over(0);
    assert_eq!(counts().done, done, "the device is held");
    drop(held);
    let host = sample(&[8, 8], 1);
    let wanted = (&host + 1.0).matmul(&host).tanh().sum_over(0);
    assert_eq!(bits(&z), bits(&wanted));
    assert!(counts().done >= done + 4);
}

#[test]
fn writes_are_ordered_with_reads_that_came_before() {
    let _alone = alone();
    let x = sample(&[16], 1).to(second());
    let held = pause();
    let before = &x * 2.0;
    x.zero_();
    let after = &x * 2.0;
    drop(held);
    assert_eq!(bits(&before), bits(&(sample(&[16], 1) * 2.0)));
    assert!(after.to_vec::<f32>().iter().all(|&v| v == 0.0));
}

#[test]
fn a_failed_kernel_is_the_error_of_the_next_wait() {
    let _alone = alone();
    backend::synchronize(second()).unwrap();
    let (table, wrong) = (sample(&[4, 2], 1).to(second()), Tensor::from(vec![1i64, 9]));
    let wrong = wrong.to(second());
    let line = line!() + 1;
    let y = table.index_select(0, &wrong);
    let z = y * 2.0;
    let error = catch(|| z.to_vec::<f32>()).unwrap_err().to_string();
    let said = "gather: index 9 (element 2 of the indices) is out of range for an axis of length 4";
    assert!(error.starts_with(said), "{error}");
    assert!(error.contains(&format!("second_device/waiting.rs:{line}:")), "{error}");
    // It is told once, and the device goes on.
    backend::synchronize(second()).unwrap();
    assert_eq!((&table * 0.0).sum().item::<f32>(), 0.0);
    let again = table.index_select(0, &wrong);
    assert!(backend::synchronize(second()).is_err());
    drop(again);
}

#[test]
fn a_training_step_reads_nothing() {
    let _alone = alone();
    let run = |on| {
        let (w, b) = (sample(&[6, 3], 1).to(on), sample(&[3], 2).to(on));
        let (w, b) = (w.requires_grad(), b.requires_grad());
        let mut losses = Vec::new();
        for step in 0..4 {
            let batch = [sample(&[5, 6], step), sample(&[5, 3], step + 9)];
            let (x, y) = (batch[0].to(on), batch[1].to(on));
            let loss = ((x.matmul(&w) + &b).tanh() - &y).square().mean();
            loss.backward().unwrap();
            for p in [&w, &b] {
                let gradient = p.grad().unwrap();
                pullback::no_grad(|| p.sub_(&gradient * 0.1));
                p.zero_grad();
            }
            losses.push(loss.detach());
        }
        losses
    };
    let wanted: Vec<f32> = run(pullback::Device::Cpu).iter().map(Tensor::item::<f32>).collect();
    let (losses, told) = counted(|| run(second()));
    assert_eq!((told.downloads, told.waits), (0, 0), "{told:?}");
    assert_eq!(told.uploads, 2 + 4 * 2, "parameters once, and batches: {told:?}");
    let found: Vec<f32> = losses.iter().map(Tensor::item::<f32>).collect();
    assert_eq!(found, wanted);
}

#[test]
fn an_anomaly_is_the_error_of_the_backward_pass_itself() {
    let _alone = alone();
    let root = |x: &Tensor| (x.sqrt() * 2.0).sum();
    let compiled = jit(grad(root));
    let wrong = |on, x: [f32; 2]| {
        let x = Tensor::from(x).to(on);
        let eager = catch(|| detect_anomaly(|| grad(root)(&x))).unwrap_err().to_string();
        let compiled = detect_anomaly(|| compiled.call(&x)).unwrap_err().to_string();
        (eager, compiled)
    };
    for (x, made) in [([0.0, 4.0], "an infinity"), ([-1.0, 4.0], "NaN")] {
        let (eager, compiled) = wrong(second(), x);
        for text in [&eager, &compiled] {
            assert!(text.contains(&format!("backward of `sqrt` made {made}")), "{text}");
            assert!(text.contains("second_device/waiting.rs:"), "{text}");
        }
        let here = wrong(pullback::Device::Cpu, x);
        assert_eq!((eager, compiled), (on_second(&here.0), on_second(&here.1)));
    }
    // One flag is read for each gradient, and nothing else.
    let x = sample(&[8], 1).square().to(second()) + 1.0;
    let (plain, without) = counted(|| grad(root)(&x));
    let (watched, with) = counted(|| detect_anomaly(|| grad(root)(&x)));
    assert_eq!(without.downloads, 0);
    assert!((1..=4).contains(&with.downloads), "{with:?}");
    assert_eq!(bits(&watched), bits(&plain));
}

/// A message of the CPU, as it is on the second device: specs name the device.
fn on_second(text: &str) -> String {
    let device = second();
    text.replace(
        "\n  on f32[2]",
        &format!("\n  on {}", pullback::Spec::on(device, pullback::DType::F32, [2])),
    )
}

#[test]
fn the_op_that_overflowed_is_found() {
    let _alone = alone();
    let x = Tensor::from([100.0f32, 2.0]).to(second());
    let (_, source) = detect_overflow(|| (&x * &x).exp() + 1.0);
    let source = source.expect("an infinity").to_string();
    assert!(source.starts_with("`exp` made an infinity"), "{source}");
    assert!(source.contains("second_device/waiting.rs:"), "{source}");
}
