//! Ops one by one: in place, through views, drawn at random.

use super::device_second::{alone, counted, only_fresh, second};
use super::{bits, sample};
use pullback::{
    Backward, DType, Device, Embedding, Key, Tensor, backend, cat, catch, cross_entropy, grad,
};

/// `f` on the host and on the device.
fn both(f: impl Fn(Device) -> Vec<Tensor>) {
    let _alone = alone();
    let (host, device) = (f(Device::Cpu), f(second()));
    assert_eq!(host.len(), device.len());
    for (i, (a, b)) in host.iter().zip(&device).enumerate() {
        assert_eq!(b.device(), second(), "result {i}");
        assert_eq!(a.spec().with_device(second()), *b.spec(), "result {i}");
        assert_eq!(bits(a), bits(b), "result {i}");
    }
}

#[test]
fn views_share_memory_on_the_device() {
    both(|on| {
        let x = sample(&[4, 6], 1).to(on);
        let (t, part) = (x.t(), x.narrow(1, 2, 3));
        assert!(t.shares_memory(&x) && part.shares_memory(&x));
        // A reshape of elements that are not evenly spaced is a copy.
        let flat = t.reshape([24]);
        assert!(!flat.shares_memory(&x));
        vec![t.contiguous(), part.square(), flat, x.flip([0]).cumsum(1), t.matmul(&x)]
    });
}

#[test]
fn writes_in_place() {
    both(|on| {
        let x = sample(&[3, 4], 2).to(on);
        x.add_(1.5);
        x.mul_(sample(&[3, 4], 3).to(on));
        let seen = x.t();
        x.narrow(1, 1, 2).copy_(sample(&[3, 2], 4).to(on));
        x.select_at(0, 2).zero_();
        let y = x.deep_clone();
        y.t().copy_(&(x.t() * 2.0));
        vec![x.clone(), seen.contiguous(), y]
    });
}

#[test]
fn tracked_writes_and_their_gradients() {
    both(|on| {
        let x = sample(&[3, 4], 5).to(on).requires_grad();
        let y = &x * 2.0;
        y.narrow(0, 0, 2).mul_(y.narrow(0, 1, 2).detach().deep_clone());
        y.select_at(0, 2).add_(1.0);
        let loss = (y.square() * 0.5).sum();
        loss.backward().unwrap();
        vec![loss.detach(), x.grad().unwrap()]
    });
}

#[test]
fn gradients_are_added_up_in_place() {
    both(|on| {
        let (x, w) = (sample(&[5, 4], 6).to(on), sample(&[4, 3], 7).to(on).requires_grad());
        // A weight that is used three times: products are added to its gradient, slices to their
        // parts.
        let a = x.matmul(&w).tanh();
        let b = (&x * 0.5).matmul(&w).relu();
        let c = w.narrow(0, 0, 2).sum() + w.narrow(0, 2, 2).square().sum();
        let loss = a.sum() + b.square().sum() + c;
        for _ in 0..2 {
            Backward::of(&loss).retain_graph().run().unwrap();
        }
        vec![w.grad().unwrap()]
    });
}

#[test]
fn random_numbers_are_those_of_the_host() {
    both(|on| {
        let key = Key::new(7).to(on);
        let x = sample(&[6, 5], 8).to(on);
        vec![
            key.uniform([3, 4], DType::F32, 0.0, 1.0),
            key.normal([5], DType::F64, 0.0, 1.0),
            key.randint([9], 0, 100),
            key.permutation(11),
            x.dropout(0.5, Some(&key)),
        ]
    });
}

#[test]
fn losses_and_lookups_do_not_wait() {
    let _alone = alone();
    let (logits, classes) = (sample(&[6, 5], 9), Tensor::from(vec![0i64, 4, 2, 2, 1, 3]));
    let wanted = grad(|x: &Tensor| cross_entropy(x, &classes))(&logits);
    let (x, c) = (logits.to(second()), classes.to(second()));
    let (found, told) = counted(|| {
        let embedded = Embedding::new().of(&x, &c);
        let hot = c.one_hot(5, DType::F32);
        let all = cat(&[&embedded, &hot], 0).index_select(0, &c);
        let zero = all.sum() * 0.0;
        grad(|x: &Tensor| cross_entropy(x, &c) + &zero)(&x)
    });
    assert_eq!((told.downloads, told.waits), (0, 0), "{told:?}");
    assert_eq!(bits(&found), bits(&wanted));
}

#[test]
fn memory_is_given_back() {
    let _alone = alone();
    backend::synchronize(second()).unwrap();
    let before = backend::statistics(second()).unwrap().live_bytes;
    {
        let x = sample(&[64, 64], 1).to(second()).requires_grad();
        let loss = x.matmul(&x).tanh().sum();
        loss.backward().unwrap();
        assert!(backend::statistics(second()).unwrap().live_bytes > before);
    }
    backend::synchronize(second()).unwrap();
    assert_eq!(backend::statistics(second()).unwrap().live_bytes, before);
}

#[test]
fn to_moves_there_and_back() {
    let _alone = alone();
    let x = sample(&[3, 4], 1);
    let there = x.t().to(second());
    assert_eq!(there.device(), second());
    let back = there.to(Device::Cpu);
    assert_eq!((back.device(), bits(&back)), (Device::Cpu, bits(&x.t())));
    // The gradient comes back to where the leaf is.
    let leaf = sample(&[3], 2).requires_grad();
    (leaf.to(second()) * 3.0).sum().backward().unwrap();
    let gradient = leaf.grad().unwrap();
    assert_eq!((gradient.device(), gradient.to_vec::<f32>()), (Device::Cpu, vec![3.0; 3]));
}

/// A device may have no kernels that write over their operands: the same numbers, by a copy.
#[test]
fn writes_without_kernels_of_their_own() {
    let run = |on: Device| {
        let w = sample(&[4, 5], 7).to(on).requires_grad();
        let x = sample(&[3, 4], 8).to(on);
        let (m, v) = (w.detach().zeros_like(), w.detach().zeros_like());
        for _ in 0..3 {
            w.zero_grad();
            let y = x.matmul(&w) + x.matmul(&w).tanh();
            y.square().sum().backward().unwrap();
            let g = w.grad().unwrap();
            m.mul_(0.9).add_(&g * 0.1);
            v.copy_(&(g.square() * 0.01 + &v * 0.99));
            pullback::no_grad(|| w.sub_(&m * 0.1));
        }
        vec![w.detach(), m, v]
    };
    both(run);
    let _alone = alone();
    let (host, device) = (run(Device::Cpu), only_fresh(|| run(second())));
    for (a, b) in host.iter().zip(&device) {
        // Sums of gradients may be added in another order.
        let close = |(a, b): (f32, f32)| (a - b).abs() <= 1e-5 * (1.0 + a.abs());
        assert!(a.to_vec().into_iter().zip(b.to_vec()).all(close), "{a} {b}");
    }
}

#[test]
fn operands_on_different_devices_are_refused() {
    let _alone = alone();
    let (x, y) = (sample(&[3], 1), sample(&[3], 2).to(second()));
    let refused = |error: pullback::Error| {
        let text = error.to_string();
        assert!(text.contains("operands are on different devices"), "{text}");
        assert!(text.contains("@cpu") && text.contains("@cuda:0"), "{text}");
        assert!(text.contains("second_device/eager.rs"), "{text}");
    };
    refused(catch(|| &x + &y).unwrap_err());
    refused(catch(|| &y * &x).unwrap_err());
    refused(catch(|| x.add_(&y)).unwrap_err());
    refused(catch(|| y.add_(&x)).unwrap_err());
    refused(catch(|| x.matmul(&y)).unwrap_err());
    assert_eq!(x.version() + y.version(), 0, "nothing was written");
}
