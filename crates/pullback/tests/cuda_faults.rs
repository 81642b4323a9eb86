//! What a kernel of a GPU rejects is said as on the CPU. Without a GPU nothing is tested.

use pullback::{Device, Tensor, backend, catch, cross_entropy};

/// What is said of an op whose result is read, without the line.
fn said(f: impl Fn() -> Tensor) -> String {
    let error = catch(|| f().to_f64_vec()).expect_err("an index is out of range");
    format!("{}: {}", error.op(), error.message())
}

/// Compares the message of the GPU with that of the CPU, often: threads come in any order.
fn same(f: impl Fn(Device) -> Tensor) {
    let device = Device::Cuda(0);
    if !device.is_available() {
        return println!("no GPU: not run");
    }
    let wanted = said(|| f(Device::Cpu));
    for _ in 0..20 {
        assert_eq!(said(|| f(device)), wanted);
        backend::synchronize(device).expect("it is said once");
    }
}

/// Indices of which every third is out of range from element 5 on, below and above.
fn indices(shape: &[usize]) -> Tensor {
    let one = |i: usize| match i {
        0..5 => 1,
        i if i % 3 == 0 => -((i as i64) << 33) - 7,
        i if i % 3 == 1 => i64::MAX - i as i64,
        i => i as i64 % 2,
    };
    let count = shape.iter().product();
    Tensor::from_vec((0..count).map(one).collect::<Vec<i64>>(), shape)
}

#[test]
fn the_first_bad_index_of_a_gather() {
    for axis in 0..3 {
        let index = indices(&[40, 50, 60]);
        same(|on| Tensor::zeros([40, 50, 60]).to(on).gather(axis, &index.to(on)));
        same(|on| Tensor::zeros([40, 50]).to(on).index_select(0, &indices(&[3000]).to(on)));
    }
}

#[test]
fn the_first_bad_index_of_a_scatter() {
    for axis in 0..3 {
        let index = indices(&[20, 30, 40]);
        same(|on| {
            let [base, source] = [0, 1].map(|v| Tensor::full([20, 30, 40], v as f32).to(on));
            base.scatter_add(axis, &index.to(on), &source)
        });
    }
}

#[test]
fn the_first_bad_class_of_cross_entropy() {
    same(|on| cross_entropy(&Tensor::zeros([900, 10]).to(on), &indices(&[900]).to(on)));
}
