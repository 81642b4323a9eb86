//! Small models, trained for a few steps by a compiled step and by the step itself: the same
//! losses, parameters and state. And a replay of each compiled step, op by op.

use pullback::{
    Attention, Conv, DType, Key, Pool, Result, Tensor, cross_entropy, jit, no_grad, scan, vmap,
};

/// Parameters from one key.
struct Init(u64);

impl Init {
    fn next(&mut self, shape: &[usize]) -> Tensor {
        self.0 += 1;
        let fan: usize = shape.iter().skip(1).product::<usize>().max(1);
        let x = Key::new(self.0).normal(shape, DType::F64, 0.0, 1.0) * (1.0 / (fan as f64).sqrt());
        x.detach().requires_grad()
    }
}

fn data(shape: &[usize], seed: u64) -> Tensor {
    Key::new(1000 + seed).normal(shape, DType::F64, 0.0, 1.0)
}

fn classes(n: i64, count: i64) -> Tensor {
    Tensor::from((0..n).map(|i| (i * 7 + 3) % count).collect::<Vec<i64>>())
}

/// Gradient descent with momentum, written in primitives.
fn descend(parameters: &[Tensor], velocities: &[Tensor]) {
    no_grad(|| {
        for (p, v) in parameters.iter().zip(velocities) {
            v.mul_(0.9).add_(p.grad().expect("a gradient"));
            p.sub_(v * 0.05);
        }
    });
}

/// Trains twice from the same start and compares.
fn compare(
    make: impl Fn() -> (Vec<Tensor>, Vec<Tensor>, Box<dyn Fn(&Tensor) -> Tensor>),
    x: &[usize],
) {
    let run = |compiled: bool| {
        let (parameters, state, loss) = make();
        let velocities: Vec<Tensor> = parameters.iter().map(|p| p.detach().zeros_like()).collect();
        let step = |x: &Tensor| -> Result<Tensor> {
            parameters.iter().for_each(Tensor::zero_grad);
            let loss = loss(x);
            loss.backward()?;
            descend(&parameters, &velocities);
            Ok(loss)
        };
        let fast = jit(step);
        if compiled {
            fast.check(&data(x, 0)).unwrap();
        }
        let mut seen = Vec::new();
        for i in 0..4 {
            let x = data(x, i);
            let loss = if compiled { fast.call(&x) } else { step(&x) };
            seen.push(loss.unwrap());
        }
        seen.extend(parameters.iter().map(Tensor::detach));
        seen.extend(parameters.iter().map(|p| p.grad().expect("left by the last step")));
        seen.extend(state);
        seen
    };
    for (k, (a, b)) in run(true).iter().zip(&run(false)).enumerate() {
        assert_eq!(a.spec(), b.spec());
        let (a, b) = (a.to_f64_vec(), b.to_f64_vec());
        let largest = b.iter().fold(0.0f64, |m, x| m.max(x.abs()));
        let apart = a.iter().zip(&b).fold(0.0f64, |m, (x, y)| m.max((x - y).abs()));
        assert!(apart <= 1e-11 * largest.max(1e-3), "{k}: {apart:e} apart, of {largest:e}");
    }
}

#[test]
fn a_convolutional_network_with_running_statistics() {
    let make = || {
        let mut init = Init(0);
        let (w1, w2) = (init.next(&[4, 2, 3, 3]), init.next(&[3, 4]));
        let (scale, shift) = (init.next(&[4]), init.next(&[4]));
        let (mean, var) = (Tensor::zeros_with([4], DType::F64), Tensor::ones_with([4], DType::F64));
        let parameters = vec![w1.clone(), w2.clone(), scale.clone(), shift.clone()];
        let state = vec![mean.clone(), var.clone()];
        let loss = move |x: &Tensor| {
            let y = x.conv2d(&w1, None, &Conv::new().padding(1));
            let (y, m, v) =
                y.batch_norm_running((&mean, &var), Some(&scale), Some(&shift), 0.1, 1e-5);
            no_grad(|| {
                mean.copy_(&m);
                var.copy_(&v);
            });
            let y = y.relu().max_pool2d(&Pool::new(2)).mean_over([2, 3]);
            cross_entropy(&y.matmul(&w2.t()), &classes(6, 3))
        };
        (parameters, state, Box::new(loss) as Box<dyn Fn(&Tensor) -> Tensor>)
    };
    compare(make, &[6, 2, 6, 6]);
}

#[test]
fn a_transformer_block() {
    let make = || {
        let mut init = Init(50);
        let [wq, wo, up, down] = [[8, 24], [8, 8], [8, 16], [16, 8]].map(|s| init.next(&s));
        let (g, b) = (init.next(&[8]), init.next(&[8]));
        let parameters = [&wq, &wo, &up, &down, &g, &b].map(Clone::clone).to_vec();
        let loss = move |x: &Tensor| {
            let heads =
                |y: &Tensor, k: isize| y.narrow(-1, 8 * k, 8).reshape([2, 5, 2, 4]).transpose(1, 2);
            let qkv = x.layer_norm(&g, &b, 1e-5).matmul(&wq);
            let [q, k, v] = [0, 1, 2].map(|k| heads(&qkv, k));
            let mixed = q.attention(&k, &v, Attention::new().causal());
            let x = x + mixed.transpose(1, 2).reshape([2, 5, 8]).matmul(&wo);
            let y = &x + x.layer_norm(&g, &b, 1e-5).matmul(&up).gelu().matmul(&down);
            cross_entropy(&y.reshape([10, 8]), &classes(10, 8))
        };
        (parameters, Vec::new(), Box::new(loss) as Box<dyn Fn(&Tensor) -> Tensor>)
    };
    compare(make, &[2, 5, 8]);
}

#[test]
fn an_lstm_over_a_scan() {
    let make = || {
        let mut init = Init(80);
        let (wx, wh, b) = (init.next(&[3, 16]), init.next(&[4, 16]), init.next(&[16]));
        let parameters = vec![wx.clone(), wh.clone(), b.clone()];
        let loss = move |x: &Tensor| {
            let iteration = |(h, c): &(Tensor, Tensor), x: &Tensor| {
                let gates = (x.matmul(&wx) + h.matmul(&wh) + &b).chunk(4, -1);
                let c = gates[1].sigmoid() * c + gates[0].sigmoid() * gates[2].tanh();
                let h = gates[3].sigmoid() * c.tanh();
                ((h.clone(), c), h)
            };
            let zeros = Tensor::zeros_with([2, 4], DType::F64);
            scan(iteration, &(zeros.clone(), zeros), x).1.square().mean()
        };
        (parameters, Vec::new(), Box::new(loss) as Box<dyn Fn(&Tensor) -> Tensor>)
    };
    compare(make, &[6, 2, 3]);
}

#[test]
fn gradients_of_each_example() {
    let make = || {
        let mut init = Init(90);
        let (w1, w2) = (init.next(&[3, 8]), init.next(&[8]));
        let parameters = vec![w1.clone(), w2.clone()];
        let loss = move |x: &Tensor| {
            let one = |x: &Tensor| (x.matmul(&w1).tanh() * &w2).sum().square();
            let each = vmap(|x: &Tensor| pullback::grad(one)(x), 0, 0)(x);
            each.square().sum() + vmap(one, 0, 0)(x).mean()
        };
        (parameters, Vec::new(), Box::new(loss) as Box<dyn Fn(&Tensor) -> Tensor>)
    };
    compare(make, &[5, 3]);
}
