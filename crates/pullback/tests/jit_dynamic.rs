//! One program for all lengths, beside the function itself at every length.

use pullback::{
    Attention, DType, Jit, Key, Tensor, Tree, cross_entropy, grad, jit, no_grad, scan,
    value_and_grad,
};

fn sample(shape: &[usize], seed: u64) -> Tensor {
    Key::new(seed).normal(shape, DType::F64, 0.0, 1.0)
}

#[track_caller]
fn close(a: &impl Tree, b: &impl Tree, what: &str) {
    let (a, b) = (a.leaves(), b.leaves());
    assert_eq!(a.len(), b.len(), "{what}");
    for (a, b) in a.iter().zip(&b) {
        assert_eq!(a.spec(), b.spec(), "{what}");
        let (a, b) = (a.to_f64_vec(), b.to_f64_vec());
        let largest = b.iter().fold(1.0f64, |m, x| m.max(x.abs()));
        for (x, y) in a.iter().zip(&b) {
            let same = (x - y).abs() <= 1e-12 * largest || (x.is_nan() && y.is_nan());
            assert!(same, "{what}: {x} is not {y}");
        }
    }
}

/// Calls at lengths 1 to 40, in an odd order, beside the function itself; the lengths that one
/// program served, and those compiled alone.
#[track_caller]
fn over_lengths<Y: Tree + pullback::JitOutput<Value = Y>>(
    name: &str,
    f: impl Fn(&Tensor) -> Y + Copy,
    make: impl Fn(usize) -> Tensor,
    axis: isize,
) -> (usize, usize, Jit<Tensor, Y, impl Fn(&Tensor) -> Y + Copy>) {
    let compiled = jit(f).dynamic(axis, 40);
    for i in 0..40 {
        let n = 1 + i * 23 % 40;
        let x = make(n);
        close(&compiled.of(&x), &f(&x), &format!("{name} at {n}"));
    }
    let said = compiled.explain();
    let [report] = &said.dynamic[..] else { panic!("{said}") };
    println!("{name}: {report}");
    (report.lengths, report.alone, compiled)
}

#[test]
fn sums_means_and_softmax() {
    let rows = |n: usize| sample(&[3, n], n as u64);
    let (filled, alone, made) = over_lengths("sum", |x| x.square().sum_over(1), rows, 1);
    // All but the first, which is of length 1, and the second of that length is the same.
    assert_eq!((filled, alone), (39, 1), "{}", made.explain());
    let (filled, alone, made) =
        over_lengths("mean", |x| (x.exp() - x.mean()).mean_over(1), rows, 1);
    assert_eq!((filled, alone), (39, 1), "{}", made.explain());
    let (filled, alone, made) =
        over_lengths("softmax", |x| x.softmax(-1) * x.log_softmax(-1), rows, 1);
    assert_eq!((filled, alone), (39, 1), "{}", made.explain());
    let (filled, alone, made) =
        over_lengths("variance", |x| x.var_with(1, 1.0), |n| rows(n + 1).narrow(1, 0, n.max(2)), 1);
    assert!(filled >= 37 && alone <= 2, "{}", made.explain());
    let by_length = |x: &Tensor| x.matmul(&x.t()) / (x.shape()[0] as f64).sqrt();
    let (filled, alone, made) = over_lengths("scores", by_length, |n| sample(&[n, 5], 3), 0);
    assert_eq!((filled, alone), (39, 1), "{}", made.explain());
    for n in [2, 3, 17, 40] {
        made.check(&sample(&[n, 5], 3)).unwrap();
    }
}

#[test]
fn gradients() {
    let f = |x: &Tensor| (x.softmax(1) * x.cumsum(1).sin()).mean();
    let (filled, _, made) = over_lengths("grad", |x| grad(f)(x), |n| sample(&[2, n], 1), 1);
    assert_eq!(filled, 39, "{}", made.explain());
    let both = |x: &Tensor| value_and_grad(f)(x);
    let (filled, _, made) = over_lengths("value and grad", both, |n| sample(&[4, n], 2), 1);
    assert_eq!(filled, 39, "{}", made.explain());
}

/// A block of a transformer with a head of its own, over `[n, width]`.
struct Block {
    qkv: Tensor,
    out: Tensor,
    up: Tensor,
    down: Tensor,
    positions: Tensor,
}

impl Block {
    fn new(width: usize) -> Block {
        Block::with(width, |w| w)
    }

    fn with(width: usize, how: impl Fn(Tensor) -> Tensor) -> Block {
        let w = |shape: &[usize], seed| how(sample(shape, seed) * 0.2);
        Block {
            qkv: w(&[width, 3 * width], 1),
            out: w(&[width, width], 2),
            up: w(&[width, 4 * width], 3),
            down: w(&[4 * width, width], 4),
            positions: w(&[64, width], 5),
        }
    }

    fn forward(&self, x: &Tensor, heads: usize) -> Tensor {
        let (n, width) = (x.shape()[0], x.shape()[1]);
        let x = x + self.positions.narrow(0, 0, n);
        let qkv = x.matmul(&self.qkv).reshape([n, 3, heads, width / heads]).permute([1, 2, 0, 3]);
        let [q, k, v] = [0, 1, 2].map(|i| qkv.select_at(0, i));
        // A mask made of positions, and the formula.
        let at = Tensor::arange(0, n as i64);
        let hidden = at.reshape([n, 1]).lt(at.reshape([1, n]));
        let scores = q.matmul(&k.transpose(1, 2)) / ((width / heads) as f64).sqrt();
        let scores = scores.masked_fill(&hidden, f64::NEG_INFINITY);
        let y = scores.softmax(-1).matmul(&v).permute([1, 0, 2]).reshape([n, width]);
        let x = x + y.matmul(&self.out);
        &x + x.matmul(&self.up).gelu().matmul(&self.down)
    }
}

#[test]
fn attention_with_causal_masks() {
    let block = Block::new(8);
    let f = |x: &Tensor| block.forward(x, 2).square().mean();
    let (filled, alone, made) = over_lengths("block", f, |n| sample(&[n, 8], n as u64), 0);
    assert_eq!((filled, alone), (39, 1), "{}", made.explain());
    let g = |x: &Tensor| grad(f)(x);
    let (filled, alone, made) =
        over_lengths("grad of a block", g, |n| sample(&[n, 8], n as u64), 0);
    assert_eq!((filled, alone), (39, 1), "{}", made.explain());
    made.check(&sample(&[19, 8], 1)).unwrap();
    // The fused kernel.
    let kernel = |x: &Tensor| {
        grad(|x: &Tensor| x.attention(x, x, Attention::new().causal()).square().sum())(x)
    };
    let (filled, alone, made) = over_lengths("kernel", kernel, |n| sample(&[2, n, 4], 7), 1);
    assert_eq!((filled, alone), (39, 1), "{}", made.explain());
}

#[test]
fn a_function_that_branches_on_the_length() {
    let f = |x: &Tensor| match x.shape()[0] {
        n if n > 30 => x.exp().sum(),
        n if n % 2 == 0 => x.sin().sum(),
        _ => x.cos().sum() * 2.0,
    };
    let (_, alone, made) = over_lengths("branches", f, |n| sample(&[n], n as u64), 0);
    let said = made.explain().to_string();
    assert!(alone >= 20, "{said}");
    assert!(said.contains("because: at this length the function does something else"), "{said}");
    // Each length has its reason.
    let report = &made.explain().dynamic[0];
    assert_eq!(report.filled.len() + report.compiled.len(), 40, "{said}");
    assert_eq!(report.compiled[0], (vec![1], "the first length".to_string()), "{said}");
    // A value that is folded: true at all lengths that are tried, and false below.
    let f = |x: &Tensor| {
        let number = |v: f64| Tensor::full([0usize; 0], v);
        let long = number(x.shape()[0] as f64).gt(number(20.0));
        long.select(&(x * 2.0), &(x * 3.0)).sum()
    };
    over_lengths("folded", f, |n| sample(&[n], n as u64), 0);
    let f = |x: &Tensor| x.sum() * (x.shape()[0].min(20) as f64) + (x.shape()[0] / 8) as f64;
    over_lengths("steps", f, |n| sample(&[n], n as u64), 0);
}

/// A training step over sequences of changing length: a model, its loss, momentum, counters and
/// noise.
fn train(dynamic: bool, compiled: bool) -> (Vec<Tensor>, usize) {
    pullback::manual_seed(3);
    let block = Block::with(8, Tensor::requires_grad);
    let params = [&block.qkv, &block.out, &block.up, &block.down, &block.positions];
    let head = (sample(&[8, 5], 9) * 0.3).requires_grad();
    let count = Tensor::from(0.0);
    let step = |(x, y): &(Tensor, Tensor)| {
        let h = block.forward(x, 2).dropout(0.1, Some(&pullback::next_key()));
        let loss = cross_entropy(&h.matmul(&head), y);
        loss.backward()?;
        no_grad(|| {
            count.add_(1.0);
            for p in params.iter().copied().chain([&head]) {
                p.sub_(p.grad().unwrap() * 0.05);
            }
        });
        Ok(loss)
    };
    let fast = jit(step);
    let fast = if dynamic { fast.dynamic([(0, 0), (1, 0)], 40) } else { fast };
    for i in 0..24usize {
        let n = 3 + i * 7 % 30;
        let x = sample(&[n, 8], i as u64);
        let y = Tensor::from((0..n as i64).map(|k| k % 5).collect::<Vec<i64>>());
        // Gradients add up over two steps: once they are not there, once they are.
        if i % 2 == 0 {
            params.iter().for_each(|p| p.zero_grad());
            head.zero_grad();
        }
        let loss: pullback::Result<Tensor> =
            if compiled { fast.call(&(x, y)) } else { step(&(x, y)) };
        loss.unwrap();
    }
    let mut left: Vec<Tensor> = params.iter().map(|p| p.detach()).collect();
    left.extend(params.iter().map(|p| p.grad().unwrap()));
    left.extend([head.detach(), count.clone()]);
    let said = fast.explain();
    said.dynamic.iter().for_each(|report| println!("training step: {report}"));
    (left, said.dynamic.iter().map(|report| report.lengths).sum())
}

#[test]
fn a_training_step_of_changing_lengths() {
    let ((eager, _), (each, _), (one, filled)) =
        (train(false, false), train(false, true), train(true, true));
    close(&each, &eager, "each length");
    close(&one, &eager, "all lengths");
    assert!(filled >= 20, "{filled}");
}

#[test]
fn scans() {
    let w = sample(&[4, 4], 1) * 0.5;
    let f = |x: &Tensor| {
        let first = Tensor::zeros_with([4], DType::F64);
        let (last, all) = scan(
            |h: &Tensor, x: &Tensor| {
                let h = (h.matmul(&w) + x).tanh();
                (h.clone(), h)
            },
            &first,
            x,
        );
        last.sum() + all.square().mean()
    };
    let (filled, alone, made) = over_lengths("scan", f, |n| sample(&[n, 4], n as u64), 0);
    assert!(filled >= 38 && alone <= 2, "{}", made.explain());
    let g = |x: &Tensor| grad(f)(x);
    let (filled, _, made) = over_lengths("grad of scan", g, |n| sample(&[n, 4], n as u64), 0);
    assert!(filled >= 36, "{}", made.explain());
}

#[test]
fn two_lengths() {
    let w = sample(&[6, 6], 1);
    let f = |x: &Tensor| {
        let h = x.matmul(&w).tanh();
        (h.matmul(&h.transpose(1, 2)).softmax(-1).matmul(&h)).mean()
    };
    let compiled = jit(grad(f)).dynamic(0, 20).dynamic(1, 50);
    for b in 1..8usize {
        for n in [2, 9, 3, 50] {
            let x = sample(&[b * 2, n, 6], b as u64);
            close(&compiled.of(&x), &grad(f)(&x), &format!("{b} {n}"));
        }
    }
    let said = compiled.explain();
    assert_eq!((said.dynamic[0].lengths, said.dynamic[0].alone), (27, 1), "{said}");
}

#[test]
fn what_is_said_of_lengths() {
    let f = jit(|x: &Tensor| x.square().sum()).dynamic(0, 10);
    for n in [3, 5, 8, 5, 1] {
        assert_eq!(f.of(&Tensor::from(vec![2.0; n])).item::<f64>(), 4.0 * n as f64);
    }
    let text = f.explain().to_string();
    assert!(text.contains("dynamic lengths: 2 by one program, 2 compiled alone"), "{text}");
    assert!(text.contains("lengths of 0 and 1 are compiled alone"), "{text}");
    assert!(text.contains("a new length took") && text.contains("compiling the first"), "{text}");
    let error = f.call(&Tensor::from(vec![2.0; 11])).unwrap_err().to_string();
    let wanted = "axis 0 of tensor 0 has the length 11, and was declared dynamic up to 10";
    assert!(error.contains(wanted) && error.contains("jit_dynamic.rs"), "{error}");
    let error = f.call(&Tensor::from(2.0)).unwrap_err().to_string();
    assert!(error.contains("no tensor of the argument has the axis"), "{error}");

    let pair = |a: usize, b: usize| (sample(&[a], 1), sample(&[b], 2));
    let f = jit(|(x, y): &(Tensor, Tensor)| x.sum() * y.sum()).dynamic(0, 10);
    let error = f.call(&pair(3, 4)).unwrap_err().to_string();
    assert!(error.contains("were declared one dynamic length, and have 3 and 4"), "{error}");
    assert!(error.contains("declare lengths that differ separately"), "{error}");
    let f =
        jit(|(x, y): &(Tensor, Tensor)| x.sum() * y.sum()).dynamic((0, 0), 9).dynamic((1, 0), 9);
    for (a, b) in [(3, 4), (4, 4), (5, 9), (9, 2)] {
        let x = pair(a, b);
        close(&f.of(&x), &(x.0.sum() * x.1.sum()), "apart");
    }
    let f = jit(|x: &Tensor| x.sum()).dynamic((0, 3), 10);
    let error = f.call(&sample(&[2], 1)).unwrap_err().to_string();
    assert!(error.contains("axis 3 of tensor 0 was declared dynamic"), "{error}");

    // A budget is kept at each length apart, and says so.
    let f = jit(|x: &Tensor| x.exp().sum()).dynamic(0, 50).memory_budget(1 << 20);
    [5, 6, 7].into_iter().for_each(|n| drop(f.of(&sample(&[n], 1))));
    assert!(
        f.explain().to_string().contains("a memory budget is applied at every length"),
        "{}",
        f.explain()
    );
}
