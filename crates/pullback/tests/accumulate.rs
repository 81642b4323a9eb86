//! Kernels on 16-bit floats accumulate in f32: sums here would stop growing if they did not. In
//! bf16 adding 1 to 256 gives 256, in f16 adding 1 to 2048 gives 2048.

use pullback::{Attention, Conv, DType, Tensor, jit};

const LOW: [DType; 2] = [DType::BF16, DType::F16];

fn ones(shape: &[usize], dtype: DType) -> Tensor {
    Tensor::ones_with(shape, dtype)
}

/// Whether all elements are within a rounding of the dtype of `value`.
fn near(y: &Tensor, value: f64) {
    let step = if y.dtype() == DType::F16 { 1.0 / 2048.0 } else { 1.0 / 256.0 };
    for found in y.to_f64_vec() {
        assert!(
            (found - value).abs() <= step * value.abs(),
            "{found} is not {value} in {}",
            y.spec()
        );
    }
}

#[test]
fn sums_and_means() {
    for low in LOW {
        // As many as f16 goes: 70000 is beyond its largest number, 65504.
        let n = if low == DType::F16 { 60000 } else { 70000 };
        near(&ones(&[n], low).sum(), n as f64);
        near(&ones(&[n, 2], low).sum_over(0), n as f64);
        near(&ones(&[2, n], low).sum_over(1), n as f64);
        // The sum on the way to a mean may be larger than f16 goes.
        near(&ones(&[70000], low).mean(), 1.0);
        near(&(ones(&[70000], low) * 3.0).norm(), 3.0 * 70000f64.sqrt());
        let y = jit(|x: &Tensor| (x * 1.0).sum()).of(&ones(&[n], low));
        near(&y, n as f64);
        let y = jit(|x: &Tensor| (x * 1.0).mean_over(0)).of(&ones(&[70000, 3], low));
        near(&y, 1.0);
    }
    assert_eq!(ones(&[70000], DType::F16).sum().to_f64_vec(), [f64::INFINITY]);
}

#[test]
fn products_of_long_rows() {
    for low in LOW {
        for (m, n) in [(1, 1), (3, 5), (64, 64), (130, 70)] {
            let y = ones(&[m, 5000], low).matmul(&ones(&[5000, n], low));
            near(&y, 5000.0);
            near(&ones(&[m, 5000], low).matmul(&ones(&[n, 5000], low).t()), 5000.0);
        }
        near(&ones(&[2, 3, 5000], low).matmul(&ones(&[2, 5000, 4], low)), 5000.0);
        near(&ones(&[5000], low).dot(&ones(&[5000], low)), 5000.0);
        // The gradient of a weight sums over the batch.
        let w = ones(&[4, 3], low).requires_grad();
        ones(&[5000, 3], low).matmul(&w.t()).backward_with(&ones(&[5000, 4], low)).unwrap();
        near(&w.grad().unwrap(), 5000.0);
        let b = ones(&[4], low).requires_grad();
        (ones(&[5000, 4], low) + &b).backward_with(&ones(&[5000, 4], low)).unwrap();
        near(&b.grad().unwrap(), 5000.0);
        let y = jit(|x: &Tensor| x.matmul(&x.t()).relu()).of(&ones(&[8, 5000], low));
        near(&y, 5000.0);
    }
}

#[test]
fn convolutions() {
    for low in LOW {
        let (x, w) = (ones(&[1, 512, 9, 9], low), ones(&[2, 512, 3, 3], low).requires_grad());
        let y = x.conv2d(&w, None, &Conv::new());
        near(&y, 512.0 * 9.0);
        let (x, w) = (ones(&[8, 2, 33, 33], low), ones(&[2, 2, 3, 3], low).requires_grad());
        let y = x.conv2d(&w, None, &Conv::new());
        y.backward_with(&ones(y.shape(), low)).unwrap();
        near(&w.grad().unwrap(), 8.0 * 31.0 * 31.0);
    }
}

#[test]
fn attention() {
    for low in LOW {
        // All keys weigh the same, and half of the values are 1: the mean of 4096.
        let (q, k) = (Tensor::zeros_with([1, 2, 8], low), Tensor::zeros_with([1, 4096, 8], low));
        let v = pullback::cat(&[&ones(&[1, 2048, 8], low), &k.narrow(1, 0, 2048)], 1);
        near(&q.attention(&k, &v, Attention::new()), 0.5);
        // Scores of 4096 features.
        let wide = ones(&[1, 2, 4096], low);
        near(&wide.attention(&wide, &wide, Attention::new().scale(1.0)), 1.0);
        // The gradient of a value sums over all queries.
        let v = ones(&[1, 1, 8], low).requires_grad();
        let q = Tensor::zeros_with([1, 5000, 8], low);
        let y = q.attention(&ones(&[1, 1, 8], low), &v, Attention::new());
        y.backward_with(&ones(&[1, 5000, 8], low)).unwrap();
        near(&v.grad().unwrap(), 5000.0);
    }
}

#[test]
fn norms_and_softmax() {
    for low in LOW {
        // Half 1 and half −1 around 100: the mean over 8192 and the spread are exact in f32 alone.
        let x = pullback::cat(&[&ones(&[1, 4096], low), &(ones(&[1, 4096], low) * 3.0)], 1);
        let y = x.layer_norm(&ones(&[8192], low), &Tensor::zeros_with([8192], low), 0.0);
        near(&y.narrow(1, 0, 4096), -1.0);
        near(&y.narrow(1, 4096, 4096), 1.0);
        let rows = x.t();
        let y = rows.batch_norm(None, None, 0.0);
        near(&y.narrow(0, 0, 4096), -1.0);
        near(&ones(&[2, 8192], low).softmax(1), 1.0 / 8192.0);
        near(&Tensor::zeros_with([2, 60000], low).logsumexp_over(1), 60000f64.ln());
        near(&Tensor::zeros_with([2, 60000], low).log_softmax(1), -(60000f64.ln()));
        let classes = Tensor::from([0i64, 1]);
        near(
            &pullback::cross_entropy(&Tensor::zeros_with([2, 60000], low), &classes),
            60000f64.ln(),
        );
        // The gradient of a norm's weight sums over rows.
        let w = ones(&[2], low).requires_grad();
        let b = Tensor::zeros_with([2], low).requires_grad();
        let x = pullback::cat(&[&ones(&[5000, 1], low), &(ones(&[5000, 1], low) * 3.0)], 1);
        x.layer_norm(&w, &b, 0.0).backward_with(&ones(&[5000, 2], low)).unwrap();
        near(&b.grad().unwrap(), 5000.0);
        near(&w.grad().unwrap().abs(), 5000.0);
    }
}

#[test]
fn running_sums() {
    for low in LOW {
        for (shape, axis) in [(vec![40000], 0), (vec![40000, 3], 0), (vec![3, 40000], 1)] {
            let y = ones(&shape, low).cumsum(axis);
            near(&y.select_at(axis, -1), 40000.0);
            near(&y.select_at(axis, 9999), 10000.0);
        }
        let y = (ones(&[40000], low) * 0.0).logcumsumexp(0);
        near(&y.select_at(0, -1), 40000f64.ln());
    }
}

#[test]
fn rows_that_are_added_to_one_place() {
    for low in LOW {
        let index = Tensor::zeros_with([5000], DType::I64);
        // The gradient of a table sums over all the times that a row was taken.
        let table = ones(&[2, 3], low).requires_grad();
        table.index_select(0, &index).backward_with(&ones(&[5000, 3], low)).unwrap();
        near(&table.grad().unwrap().select_at(0, 0), 5000.0);
        let base = Tensor::zeros_with([2], low);
        near(&base.scatter_add(0, &index, &ones(&[5000], low)).narrow(0, 0, 1), 5000.0);
    }
}

#[test]
fn pools_and_products_of_many_tensors() {
    for low in LOW {
        let x = ones(&[1, 1, 64, 64], low);
        near(&x.avg_pool2d(&pullback::Pool::new(64)), 1.0);
        near(&(ones(&[1, 1, 64, 64], low) * 2.0).adaptive_avg_pool2d(1), 2.0);
        let y = pullback::einsum("ij,kj->ik", &[&ones(&[3, 5000], low), &ones(&[4, 5000], low)]);
        near(&y, 5000.0);
        // One group for each channel.
        let w = ones(&[4, 1, 33, 33], low);
        near(&ones(&[1, 4, 64, 64], low).conv2d(&w, None, &Conv::new().groups(4)), 33.0 * 33.0);
    }
}
