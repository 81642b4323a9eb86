//! Compiled programs: the bits of eager code, with captures, writes and gradients.

use super::device_second::{alone, channels_last, counted, second};
use super::{bits, sample};
use pullback::backend::{statistics, synchronize};
use pullback::{Conv, Device, Pool, Tensor, jit, scan, trim_memory, value_and_grad};

/// A function compiled on the host and on the device gives the same bits; and `check`, which looks
/// at every value, finds nothing.
fn same(f: impl Fn(&Vec<Tensor>) -> Vec<Tensor> + Send + Sync + 'static, inputs: &[Tensor]) {
    let _alone = alone();
    let compiled = jit(move |x: &Vec<Tensor>| f(x));
    let on = |device| inputs.iter().map(|x| x.to(device)).collect::<Vec<Tensor>>();
    let (host, there) = (on(Device::Cpu), on(second()));
    for _ in 0..2 {
        let (wanted, found) = (compiled.call(&host).unwrap(), compiled.call(&there).unwrap());
        for (a, b) in wanted.iter().zip(&found) {
            assert_eq!((b.device(), bits(a)), (second(), bits(b)));
        }
    }
    compiled.check(&there).unwrap();
}

#[test]
fn pointwise_products_reductions_and_views() {
    same(
        |x| {
            let h = (x[0].matmul(&x[1]) + 0.5).tanh();
            let rows = h.softmax(-1).t().reshape([15]);
            vec![h.sum_over(0), rows * 2.0, x[0].t().cumsum(0)]
        },
        &[sample(&[5, 4], 1), sample(&[4, 3], 2)],
    );
}

#[test]
fn values_and_gradients() {
    same(
        |x| {
            let loss = |p: &Vec<Tensor>| (p[0].matmul(&p[1]).relu() * 0.5).square().mean();
            let (value, gradients) = value_and_grad(loss)(x);
            [vec![value], gradients].concat()
        },
        &[sample(&[7, 6], 3), sample(&[6, 5], 4)],
    );
}

#[test]
fn loops() {
    same(
        |x| {
            let step = |h: &Tensor, x: &Tensor| {
                let h = (h * 0.5 + x).tanh();
                (h.clone(), h)
            };
            let (last, all) = scan(step, &x[0], &x[1]);
            vec![last, all]
        },
        &[sample(&[4], 5), sample(&[6, 4], 6)],
    );
}

/// State that is captured, written, and whose gradient is kept.
#[test]
fn a_step_that_writes_what_it_captured() {
    let _alone = alone();
    let run = |on: Device| {
        let w = sample(&[6, 3], 1).to(on).requires_grad();
        let count = Tensor::from(0i64).to(on);
        let (held, counter) = (w.clone(), count.clone());
        let step = jit(move |(x, y): &(Tensor, Tensor)| {
            held.zero_grad();
            let loss = (x.matmul(&held).tanh() - y).square().mean();
            loss.backward().unwrap();
            let gradient = held.grad().unwrap();
            pullback::no_grad(|| held.sub_(&gradient * 0.1));
            counter.add_(1);
            loss.detach()
        });
        let batches: Vec<_> =
            (0..5).map(|i| (sample(&[5, 6], i).to(on), sample(&[5, 3], i + 9).to(on))).collect();
        let losses: Vec<Tensor> = batches.iter().map(|batch| step.call(batch).unwrap()).collect();
        (losses, w, count)
    };
    let (wanted, w, count) = run(Device::Cpu);
    let (losses, v, counted) = run(second());
    assert_eq!(counted.item::<i64>(), count.item::<i64>());
    assert_eq!((bits(&v), bits(&v.grad().unwrap())), (bits(&w), bits(&w.grad().unwrap())));
    for (a, b) in wanted.iter().zip(&losses) {
        assert_eq!(bits(a), bits(b));
    }
}

#[test]
fn a_call_is_one_program_and_no_wait() {
    let _alone = alone();
    let w = sample(&[6, 3], 1).to(second());
    let f = jit(move |x: &Tensor| (x.matmul(&w) + 1.0).relu().sum());
    let x = sample(&[4, 6], 2).to(second());
    let first = f.call(&x).unwrap();
    let (again, told) = counted(|| f.call(&x).unwrap());
    assert_eq!(
        (told.programs, told.ops, told.downloads, told.uploads, told.waits),
        (1, 0, 0, 0, 0)
    );
    assert_eq!(bits(&first), bits(&again));
}

#[test]
fn two_devices_in_one_program_are_refused() {
    let _alone = alone();
    let w = sample(&[3], 1);
    let f = jit(move |x: &Tensor| x + w.to(second()));
    let error = f.call(&sample(&[3], 2).to(second())).unwrap_err().to_string();
    assert!(error.contains("cpu") && error.contains("cuda:0"), "{error}");
}

#[test]
fn trimming_returns_the_working_memory_of_programs() {
    let _alone = alone();
    let (w, v) = (sample(&[16, 32], 1).to(second()), sample(&[32, 16], 2).to(second()));
    let f = jit(move |x: &Tensor| x.matmul(&w).tanh().matmul(&v).sum());
    let x = sample(&[8, 16], 3).to(second());
    let first = f.call(&x).unwrap();
    let live = || {
        synchronize(second()).unwrap();
        statistics(second()).unwrap().live_bytes
    };
    let before = live();
    trim_memory();
    // The product of 8 by 32 floats lies there.
    assert!(live() + 8 * 32 * 4 <= before, "{} of {before} bytes are left", live());
    assert_eq!(bits(&f.call(&x).unwrap()), bits(&first));
}

/// Two convolutions with all that comes between them in image networks, and a shortcut.
#[allow(clippy::ptr_arg)] // what is differentiated is a tree: a vector
fn network(p: &Vec<Tensor>) -> Tensor {
    let normed = |x: &Tensor, w: &Tensor| {
        let options = Conv::new().padding(w.shape()[2] / 2);
        x.conv2d(w, None, &options).batch_norm(Some(&p[3]), Some(&p[4]), 1e-3)
    };
    let x = normed(&p[0], &p[1]).relu();
    let x = x.max_pool2d(&Pool::new(3).stride(2).padding(1));
    let x = (normed(&x, &p[2]) * 0.5 + &x).relu();
    let x = x.avg_pool2d(&Pool::new(2).stride(1));
    let pooled = x.mean_over([2, 3]).tanh().sum();
    pooled + (x.conv2d(&p[5], Some(&p[4]), &Conv::new()) * 0.1).square().mean()
}

#[test]
fn images_with_their_channels_last() {
    let _alone = alone();
    let step = |p: &Vec<Tensor>| {
        let (value, gradients) = value_and_grad(network)(p);
        [vec![value], gradients].concat()
    };
    let (plain, moved) = (jit(step), jit(step));
    let shapes: [&[usize]; 6] =
        [&[2, 3, 9, 8], &[4, 3, 3, 3], &[4, 4, 3, 3], &[4], &[4], &[4, 4, 2, 1]];
    let host: Vec<Tensor> = shapes.iter().zip(1..).map(|(s, seed)| sample(s, seed)).collect();
    let there: Vec<Tensor> = host.iter().map(|x| x.to(second())).collect();
    let wanted = plain.call(&host).unwrap();
    let found = channels_last(|| moved.call(&there).unwrap());
    let passes = &moved.explain().specialisations[0].passes;
    for (k, (a, b)) in wanted.iter().zip(&found).enumerate() {
        assert_eq!(a.shape(), b.shape());
        let (a, b) = (a.to_vec::<f32>(), b.cpu().to_vec::<f32>());
        let most = a.iter().fold(1e-3f32, |most, a| most.max(a.abs()));
        let off = a.iter().zip(&b).fold(0f32, |most, (a, b)| most.max((a - b).abs()));
        assert!(off <= 2e-4 * most, "result {k} is off by {off}, of {most}");
    }
    let pass = passes.iter().find(|pass| pass.0 == "channels_last").expect("the pass ran");
    assert_ne!(pass.1, pass.2, "the pass found images");
}

#[test]
fn states_that_are_results_too() {
    let _alone = alone();
    let step = |p: &Vec<Tensor>| {
        let of = |p: &Vec<Tensor>| {
            let cell = |(h, c): &(Tensor, Tensor), x: &Tensor| {
                let gates = (x + h.matmul(&p[1])).tanh();
                let c = c * gates.sigmoid() + &gates;
                let h = c.tanh() * &gates;
                ((h.clone(), c.clone()), (h, c))
            };
            let start = (p[2].clone(), p[2].clone());
            let ((h, _), (all, states)) = scan(cell, &start, &p[0]);
            h.sum() + (all * states).square().mean()
        };
        let (value, gradients) = value_and_grad(of)(p);
        [vec![value], gradients].concat()
    };
    let (plain, twice) = (jit(step), jit(step));
    let shapes: [&[usize]; 3] = [&[6, 3, 5], &[5, 5], &[3, 5]];
    let host: Vec<Tensor> = shapes.iter().zip(1..).map(|(s, seed)| sample(s, seed)).collect();
    let there: Vec<Tensor> = host.iter().map(|x| x.to(second())).collect();
    let wanted = plain.call(&host).unwrap();
    let found = channels_last(|| twice.call(&there).unwrap());
    for (a, b) in wanted.iter().zip(&found) {
        assert_eq!(bits(a), bits(b));
    }
}
