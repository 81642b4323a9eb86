//! Compiled functions that are called many times: on a GPU, from the second call on the same memory
//! on, as CUDA graphs. Elsewhere the results are the same.

use pullback::{
    DType, Device, Tensor, catch, cond, default_device, jit, linalg, no_grad, scan, trim_memory,
    while_loop, with_default_device, with_tf32,
};

fn on_cpu<R>(f: impl FnOnce() -> R) -> R {
    with_default_device(Device::Cpu, f)
}

/// As the CPU has it, to rounding.
fn assert_near(got: &Tensor, want: &[f64]) {
    let got = got.cast(DType::F64).to_vec::<f64>();
    assert_eq!(got.len(), want.len());
    for (g, w) in got.iter().zip(want) {
        assert!((g - w).abs() <= 1e-5 * (1.0 + w.abs()), "{got:?}, {want:?}");
    }
}

fn is_gpu() -> bool {
    default_device() != Device::Cpu
}

#[test]
fn a_step_repeats_its_bits() {
    let trained = |calls: usize| {
        let w = Tensor::linspace(-1.0, 1.0, 32).cast(DType::F32).requires_grad();
        let x = Tensor::arange(0, 64).cast(DType::F32).reshape([2, 32]) * 0.01;
        let step = jit(|x: &Tensor| {
            w.zero_grad();
            let loss = ((x * &w).tanh().sum_over(-1) - 0.3).square().mean();
            loss.backward()?;
            no_grad(|| w.sub_(w.grad().unwrap() * 0.1));
            Ok(loss)
        });
        let losses: Vec<f32> = (0..calls).map(|_| step.call(&x).unwrap().item()).collect();
        (losses, w.to_vec::<f32>(), step.explain().to_string())
    };
    let (losses, weights, report) = trained(12);
    let (again, weights_again, _) = trained(12);
    assert_eq!((&losses, &weights), (&again, &weights_again));
    assert!(losses.windows(2).all(|pair| pair[1] < pair[0]), "{losses:?}");
    let (first, ..) = on_cpu(|| trained(12));
    let near = |(a, b): (&f32, &f32)| (a - b).abs() < 1e-5;
    assert!(losses.iter().zip(&first).all(near), "{losses:?}, {first:?}");
    assert_eq!(report.contains("as a CUDA graph"), is_gpu(), "{report}");
}

#[test]
fn arguments_and_results_may_be_anywhere() {
    let f = jit(|x: &Tensor| (x.square().sum_over(0), x.exp() + 1.0));
    let mut kept = Vec::new();
    for n in 0..40 {
        let x = Tensor::full([3, 50], 0.01 * f64::from(n)).cast(DType::F32);
        kept.push((n, f.of(&x)));
    }
    // Large ones too, of which a few sets of addresses have graphs.
    let large = jit(|x: &Tensor| x * 2.0 + 1.0);
    let mut held = Vec::new();
    for n in 0..10 {
        held.push((n, large.of(&Tensor::full([1 << 21], f64::from(n)).cast(DType::F32))));
    }
    for (n, (squares, exps)) in &kept {
        let v = f64::from((0.01 * f64::from(*n)) as f32);
        assert_near(squares, &[3.0 * v * v; 50]);
        assert_near(exps, &[v.exp() + 1.0; 150]);
    }
    for (n, y) in &held {
        assert_eq!(y.narrow(0, (1 << 21) - 2, 2).to_vec::<f32>(), [2.0 * *n as f32 + 1.0; 2]);
    }
}

#[test]
fn memory_may_be_given_back_between_calls() {
    let f = jit(|x: &Tensor| x.matmul(&x.t()).softmax(-1).matmul(x));
    let x = Tensor::linspace(-1.0, 1.0, 4096).cast(DType::F32).reshape([64, 64]);
    let first = f.of(&x).to_vec::<f32>();
    for n in 0..8 {
        assert_eq!(f.of(&x).to_vec::<f32>(), first);
        if n % 3 == 2 {
            trim_memory();
        }
    }
}

#[test]
fn loops_and_conditions_are_as_on_the_cpu() {
    let f = jit(|x: &Tensor| {
        let grown = while_loop(|v: &Tensor| v.sum().lt(40.0), |v: &Tensor| v * 1.5 + 0.1, x);
        let (last, all) = scan(
            |state: &Tensor, row: &Tensor| {
                let next = (state * 0.5 + row).tanh();
                (next.clone(), next.square())
            },
            &Tensor::zeros([4]).cast(DType::F32),
            &x.reshape([1, 4]).expand([6, 4]).contiguous(),
        );
        let chosen = cond(&grown.sum().gt(50.0), |v| v * 2.0, |v| v - 1.0, &grown);
        (chosen, last, all)
    });
    let run = || {
        let mut made = Vec::new();
        for n in 0..6 {
            let x = Tensor::full([4], 0.5 + 0.1 * f64::from(n % 2)).cast(DType::F32);
            let (a, b, c) = f.of(&x);
            made.push([a, b, c].map(|y| y.cast(DType::F64).to_vec::<f64>()));
        }
        made
    };
    let (got, want) = (run(), on_cpu(run));
    for (got, want) in got.iter().flatten().zip(want.iter().flatten()) {
        assert_eq!(got.len(), want.len());
        let near = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-5 * (1.0 + b.abs());
        assert!(got.iter().zip(want).all(near), "{got:?}, {want:?}");
    }
}

#[test]
fn a_bad_index_is_an_error_in_every_call() {
    let table = Tensor::arange(0, 10).cast(DType::F32) * 0.5;
    let f = jit(move |at: &Tensor| (table.gather(0, at) + 1.0).square());
    let line = line!() - 1;
    let good = Tensor::from([1i64, 2, 3]);
    let bad = Tensor::from([1i64, 10, 3]);
    for _ in 0..6 {
        assert_eq!(f.of(&good).to_vec::<f32>(), [2.25, 4.0, 6.25]);
        let made = f.call(&bad).and_then(|y| catch(|| y.to_vec::<f32>()));
        let error = made.unwrap_err().to_string();
        assert!(error.contains("index 10"), "{error}");
        assert!(error.contains(&format!("compiled_graphs.rs:{line}:")), "{error}");
    }
}

#[test]
fn switches_hold_for_the_call() {
    let f = jit(|x: &Tensor| x.matmul(x));
    let x = (Tensor::arange(0, 128 * 128).cast(DType::F32) * 1.001).sin().reshape([128, 128]);
    let exact = f.of(&x).to_vec::<f32>();
    for _ in 0..4 {
        let rounded = with_tf32(true, || f.of(&x).to_vec::<f32>());
        assert_eq!(rounded != exact, is_gpu() && rounded != exact);
        assert_eq!(f.of(&x).to_vec::<f32>(), exact);
    }
}

#[test]
fn what_no_graph_takes_runs_between_graphs() {
    // Too large for the kernel of small factorisations: a library runs it.
    let a = Tensor::eye(80).cast(DType::F32) * 4.0 + 0.01;
    let f = jit(move |x: &Tensor| (linalg::solve(&a, &(x * 2.0).exp()) + 1.0).log());
    let x = Tensor::linspace(0.0, 1.0, 160).cast(DType::F32).reshape([80, 2]);
    let first = f.of(&x).to_vec::<f32>();
    for _ in 0..5 {
        assert_eq!(f.of(&x).to_vec::<f32>(), first);
    }
}

#[test]
fn threads_call_side_by_side() {
    let device = default_device();
    let work = move |seed: i64| {
        with_default_device(device, || {
            let f = jit(|x: &Tensor| x.matmul(&x.t()).tanh().sum_over(-1));
            let x = (Tensor::arange(seed, seed + 48 * 48).cast(DType::F32) * 0.01).sin();
            let x = x.reshape([48, 48]);
            let first = f.of(&x).to_vec::<f32>();
            for n in 0..200 {
                let y = f.of(&x) + 0.0;
                if n % 20 == 0 {
                    assert_eq!(y.to_vec::<f32>(), first);
                }
            }
            first
        })
    };
    let alone = [work(1), work(2)];
    let together: Vec<Vec<f32>> = std::thread::scope(|s| {
        let all = [1, 2].map(|seed| s.spawn(move || work(seed)));
        all.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert_eq!(together, alone);
}

#[test]
fn a_bias_and_a_wide_result_come_with_the_product() {
    let numbers = |n: usize, by: f64| (Tensor::arange(0, n as i64).cast(DType::F64) * by).sin();
    let x = numbers(48 * 64, 0.37).reshape([48, 64]);
    let w = numbers(64 * 32, 0.11).reshape([64, 32]);
    let b = numbers(32, 0.7);
    let want = (x.cast(DType::BF16).cast(DType::F64))
        .matmul(&w.cast(DType::BF16).cast(DType::F64))
        .to_vec::<f64>();
    let bias = b.cast(DType::BF16).cast(DType::F32).to_vec::<f32>();
    for dtype in [DType::F32, DType::BF16, DType::F16] {
        let [x, w, b] = [&x, &w, &b].map(|t| t.cast(DType::BF16).cast(dtype));
        let plain = jit(|x: &Tensor| x.matmul(&w) + &b);
        let wide = jit(|x: &Tensor| x.matmul(&w).cast(DType::F32));
        let both = jit(|x: &Tensor| (x.matmul(&w) + &b).cast(DType::F32));
        let plain: &dyn Fn() -> Tensor = &|| plain.of(&x);
        let (wide, both): (&dyn Fn() -> Tensor, &dyn Fn() -> Tensor) =
            (&|| wide.of(&x), &|| both.of(&x));
        for _ in 0..3 {
            for (of, with) in [(plain, 1.0), (wide, 0.0), (both, 1.0)] {
                let got = of().cast(DType::F64).to_vec::<f64>();
                for (k, (g, w)) in got.iter().zip(&want).enumerate() {
                    let w = w + with * f64::from(bias[k % 32]);
                    assert!((g - w).abs() <= 2e-2 * (1.0 + w.abs()), "{dtype}: {g}, {w}");
                }
            }
        }
        if is_gpu() {
            // Rounded once, from the sums.
            let got = wide().cast(DType::F64).to_vec::<f64>();
            let near = |(g, w): (&f64, &f64)| (g - w).abs() <= 1e-4 * (1.0 + w.abs());
            assert!(got.iter().zip(&want).all(near), "{dtype}");
        }
    }
}
