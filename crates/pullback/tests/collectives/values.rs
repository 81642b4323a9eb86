//! What collectives compute, against the same on one worker; dtypes, axes, order, refusals.

use super::threads::workers;
use pullback::{DType, Group, Tensor, cat, catch, checkpoint, jvp};

/// A tensor that differs between workers.
fn of_rank(rank: usize, shape: &[usize], dtype: DType) -> Tensor {
    let count = shape.iter().product::<usize>() as i64;
    let x = Tensor::arange(0, count) * (rank as i64 + 1) + rank as i64;
    (x % 23).cast(dtype).reshape(shape.iter().map(|&n| n as isize).collect::<Vec<_>>())
}

fn numbers(x: &Tensor) -> Vec<f64> {
    x.cast(DType::F64).to_vec()
}

#[test]
fn values_are_those_of_one_worker_for_every_dtype() {
    let all = [DType::F64, DType::F32, DType::BF16, DType::F16, DType::I64, DType::I32, DType::U8];
    for n in 1..=4 {
        for dtype in all {
            let xs: Vec<Tensor> = (0..n).map(|r| of_rank(r, &[n, 3], dtype)).collect();
            let stacked: Vec<Vec<f64>> = xs.iter().map(numbers).collect();
            let fold = |f: fn(f64, f64) -> f64| -> Vec<f64> {
                let at = |i: usize| stacked.iter().map(|x| x[i]).reduce(f).unwrap();
                (0..3 * n).map(at).collect()
            };
            let got = workers(n, |group| {
                let x = of_rank(group.rank(), &[n, 3], dtype);
                let same = |y: &Tensor| assert_eq!(y.dtype(), dtype);
                let ys = [
                    x.all_reduce(group),
                    x.all_reduce_max(group),
                    x.all_reduce_min(group),
                    x.all_gather(group, 0),
                    x.all_gather(group, 1),
                    x.reduce_scatter(group, 0),
                    x.broadcast_from(group, n - 1),
                    x.all_to_all(group, 0, 0),
                    x.all_to_all(group, 0, 1),
                ];
                ys.iter().for_each(same);
                ys.map(|y| (y.shape().to_vec(), numbers(&y)))
            });
            let (sum, max, min) = (fold(|a, b| a + b), fold(f64::max), fold(f64::min));
            for (rank, got) in got.into_iter().enumerate() {
                let row = |x: &[f64]| x[rank * 3..rank * 3 + 3].to_vec();
                let rows: Vec<Vec<f64>> = stacked.iter().map(|x| row(x)).collect();
                let side: Vec<f64> = (0..n)
                    .flat_map(|i| stacked.iter().flat_map(move |x| x[i * 3..i * 3 + 3].to_vec()))
                    .collect();
                let wanted = [
                    (vec![n, 3], sum.clone()),
                    (vec![n, 3], max.clone()),
                    (vec![n, 3], min.clone()),
                    (vec![n * n, 3], stacked.concat()),
                    (vec![n, 3 * n], side),
                    (vec![1, 3], row(&sum)),
                    (vec![n, 3], stacked[n - 1].clone()),
                    (vec![n, 3], rows.concat()),
                    (vec![1, 3 * n], rows.concat()),
                ];
                for (k, (got, wanted)) in got.into_iter().zip(wanted).enumerate() {
                    assert_eq!(got, wanted, "{k}: {dtype}, worker {rank} of {n}");
                }
            }
        }
    }
}

#[test]
fn bool_is_moved_and_not_combined() {
    let got = workers(2, |group| {
        let x = Tensor::from([group.rank() == 0, true]);
        let refused = |y: &dyn Fn() -> Tensor| catch(y).unwrap_err().to_string();
        let sum = refused(&|| x.all_reduce(group));
        assert!(sum.starts_with("all_reduce: does not combine bool"), "{sum}");
        let part = refused(&|| x.reduce_scatter(group, 0));
        assert!(part.starts_with("reduce_scatter: does not combine bool"), "{part}");
        let mean = refused(&|| x.cast(DType::I64).all_reduce_mean(group));
        assert!(mean.starts_with("all_reduce_mean: takes floats, not i64[2]"), "{mean}");
        x.all_gather(group, 0).to_vec::<bool>()
    });
    assert_eq!(got, [[true, true, false, true], [true, true, false, true]]);
}

#[test]
fn nan_is_the_extreme() {
    let got = workers(3, |group| {
        let x = Tensor::from([if group.rank() == 1 { f64::NAN } else { 1.0 }, group.rank() as f64]);
        [x.all_reduce_max(group), x.all_reduce_min(group)].map(|y| y.to_vec::<f64>())
    });
    for [max, min] in got {
        assert!(max[0].is_nan() && min[0].is_nan());
        assert_eq!((max[1], min[1]), (2.0, 0.0));
    }
}

#[test]
fn strided_and_empty_operands() {
    let got = workers(2, |group| {
        let x = of_rank(group.rank(), &[3, 4], DType::F32).t();
        let one = Tensor::from(2.0f32).expand([2, 2]);
        let empty = Tensor::zeros_with([0, 2], DType::F32);
        assert_eq!(empty.all_gather(group, 0).shape(), [0, 2]);
        assert_eq!(empty.all_reduce(group).shape(), [0, 2]);
        assert_eq!(one.all_reduce(group).to_vec::<f32>(), [4.0; 4]);
        assert_eq!(Tensor::from(3.0).all_reduce(group).item::<f64>(), 6.0);
        x.all_reduce(group).to_vec::<f32>()
    });
    let wanted = of_rank(0, &[3, 4], DType::F32).t() + of_rank(1, &[3, 4], DType::F32).t();
    assert_eq!(got, [wanted.to_vec::<f32>(), wanted.to_vec::<f32>()]);
}

#[test]
fn middle_axes() {
    for n in [2, 3] {
        let shape = [2, 2 * n, 3];
        let xs: Vec<Tensor> = (0..n).map(|r| of_rank(r, &shape, DType::F64)).collect();
        let got = workers(n, |group| {
            let x = of_rank(group.rank(), &shape, DType::F64);
            let parts = [
                x.all_gather(group, 1),
                x.all_gather(group, -1),
                x.reduce_scatter(group, 1),
                x.all_to_all(group, 1, 2),
                x.all_to_all(group, 1, 0),
            ];
            parts.map(|y| (y.shape().to_vec(), y.to_vec::<f64>()))
        });
        let join = |axis| cat(&xs.iter().collect::<Vec<_>>(), axis);
        let sum = xs.iter().cloned().reduce(|a, b| a + b).unwrap();
        for (rank, got) in got.into_iter().enumerate() {
            let mine = |x: &Tensor| x.narrow(1, 2 * rank as isize, 2);
            let parts: Vec<Tensor> = xs.iter().map(mine).collect();
            let put = |axis| cat(&parts.iter().collect::<Vec<_>>(), axis);
            let wanted = [join(1), join(2), mine(&sum), put(2), put(0)];
            for (got, wanted) in got.into_iter().zip(wanted) {
                assert_eq!(got, (wanted.shape().to_vec(), wanted.to_vec::<f64>()));
            }
        }
    }
}

#[test]
fn subgroups_and_messages() {
    let got = workers(4, |group| {
        let rank = group.rank();
        let pair = group.subgroup(if rank < 2 { &[0, 1] } else { &[2, 3] }).unwrap().unwrap();
        let sum = Tensor::from(rank as f64).all_reduce(&pair).item::<f64>();
        // Around the ring.
        let x = Tensor::from([rank as f64, 0.5]);
        x.send(group, (rank + 1) % 4);
        let y = Tensor::recv(group, (rank + 3) % 4, [2], DType::F64).to_vec::<f64>();
        group.barrier().unwrap();
        (sum, y)
    });
    let sums: Vec<f64> = got.iter().map(|g| g.0).collect();
    assert_eq!(sums, [1.0, 1.0, 5.0, 5.0]);
    let firsts: Vec<f64> = got.iter().map(|g| g.1[0]).collect();
    assert_eq!(firsts, [3.0, 0.0, 1.0, 2.0]);
}

#[test]
fn later_ones_are_in_order_with_the_others() {
    let got = workers(3, |group| {
        let x = Tensor::from([group.rank() as f64 + 1.0, 2.0, 3.0]);
        let first = group.all_reduce_later(&x);
        let second = group.all_gather_later(&x);
        // Written after the call: what is sent is the value at the call.
        x.mul_(0.0);
        let third = x.all_reduce_max(group).to_vec::<f64>();
        let fourth = group.reduce_scatter_later(Tensor::from([1.0, 2.0, 3.0]));
        let fifth = group.broadcast_later(Tensor::from(group.rank() as f64), 2);
        let first = first.wait().unwrap().to_vec::<f64>();
        let second = second.wait().unwrap().to_vec::<f64>();
        let fourth = fourth.wait().unwrap().to_vec::<f64>();
        (first, second[3], third, fourth, fifth.wait().unwrap().item::<f64>())
    });
    for (rank, (first, second, third, fourth, fifth)) in got.into_iter().enumerate() {
        assert_eq!((first, second, third), (vec![6.0, 6.0, 9.0], 2.0, vec![0.0; 3]));
        assert_eq!((fourth, fifth), (vec![3.0 * (rank as f64 + 1.0)], 2.0));
    }
}

/// A checkpointed function that runs again must send what it sent before.
#[test]
fn a_later_one_reads_what_a_checkpoint_watches() {
    let group = Group::alone();
    let (x, w) = (Tensor::from([1.0, 2.0]).requires_grad(), Tensor::from([3.0, 4.0]));
    let f = {
        let w = w.clone();
        move |x: &Tensor| (x * group.all_reduce_later(&w).wait().unwrap()).exp()
    };
    checkpoint(f.clone(), &x).sum().backward().unwrap();
    let y = checkpoint(f, &x).sum();
    w.mul_(2.0);
    let error = y.backward().unwrap_err().to_string();
    assert!(error.contains("written"), "{error}");
}

#[test]
fn what_is_wrong_is_a_sentence() {
    let group = Group::alone();
    let x = Tensor::from([[1.0, 2.0, 3.0]]);
    let line = |y: &dyn Fn() -> Tensor| catch(y).unwrap_err().to_string();
    let cases: [(&dyn Fn() -> Tensor, &str); 7] = [
        (&|| x.all_gather(&group, 2), "all_gather: axis 2 is out of range"),
        (&|| x.reduce_scatter(&group, -3), "reduce_scatter: axis -3 is out of range"),
        (&|| Tensor::from(1.0).all_gather(&group, 0), "all_gather: f64[] has no axis"),
        (&|| x.broadcast_from(&group, 1), "broadcast_from: there is no worker 1 to broadcast from"),
        (&|| x.send(&group, 0), "send: worker 0 cannot send to itself"),
        (&|| x.send(&group, 5), "send: there is no worker 5 to send to"),
        (&|| Tensor::recv(&group, 9, [1], DType::F32), "recv: there is no worker 9 to receive"),
    ];
    for (wrong, text) in cases {
        let error = line(wrong);
        assert!(error.starts_with(text) && error.contains("values.rs"), "{error}");
    }
    let parts = workers(3, |group| {
        let even = Tensor::zeros([4, 2]);
        let cut = [
            line(&|| even.reduce_scatter(group, 0)),
            line(&|| even.reduce_scatter(group, 1)),
            line(&|| even.all_to_all(group, 1, 0)),
        ];
        let full = line(&|| even.recv_after(group, (group.rank() + 1) % 3, [2]));
        assert!(full.starts_with("recv: takes an empty operand of f32, not f32[4,2]"), "{full}");
        cut
    });
    for cut in parts {
        assert!(cut[0].contains("the 4 of axis 0 of f32[4,2] cannot be cut into 3 equal parts"));
        assert!(cut[1].contains("the 2 of axis 1 of f32[4,2] cannot be cut into 3 equal parts"));
        assert!(cut[2].starts_with("all_to_all: the 2 of axis 1"), "{}", cut[2]);
    }
    let tracked = Tensor::from(1.0).requires_grad();
    let error = catch(|| group.all_reduce_later(&tracked)).err().unwrap().to_string();
    assert!(
        error.starts_with("all_reduce: asynchronous collectives are not differentiable"),
        "{error}"
    );
    // Forward mode too: a tangent must not get lost.
    let later = |x: &Tensor| group.all_reduce_later(x).wait().unwrap();
    let x = Tensor::from(1.0);
    let error = catch(|| jvp(later, &x, &x)).err().unwrap().to_string();
    assert!(error.contains("asynchronous collectives are not differentiable"), "{error}");
    assert!(group.subgroup(&[0, 0]).unwrap_err().to_string().contains("ascending order"));
}
