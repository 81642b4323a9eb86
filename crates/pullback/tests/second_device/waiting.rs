//! What waits, and what an error that nobody waited for becomes.

use super::device_second::{alone, counted, counts, pause, second};
use super::{bits, sample};
use pullback::{Tensor, backend, catch};

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
    assert!(error.starts_with("gather: index "), "{error}");
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
