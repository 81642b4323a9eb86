//! Mixed precision: which dtypes come out, forward and backward, eagerly, compiled, mapped and
//! differentiated twice.

use pullback::{
    Attention, Backward, Conv, CrossEntropy, DType, Policy, Reduction, Tensor, autocast,
    autocast_off, autocast_policy, catch, einsum, grad, jit, jvp, losses, no_grad, scan, vmap,
};

fn ramp(shape: &[usize]) -> Tensor {
    let n: usize = shape.iter().product();
    let values: Vec<f32> = (0..n).map(|i| ((i * 7 % 11) as f32 - 5.0) / 8.0).collect();
    Tensor::from_vec(values, shape)
}

fn leaf(shape: &[usize]) -> Tensor {
    ramp(shape).requires_grad()
}

/// What a tensor is after rounding to the low dtype, in f32.
fn rounded(x: &Tensor, low: DType) -> Tensor {
    x.detach().cast(low).cast(DType::F32)
}

const LOW: [DType; 2] = [DType::BF16, DType::F16];

#[test]
fn products_are_low_and_the_rest_is_as_the_table_says() {
    let (x, w, b) = (ramp(&[4, 6]), leaf(&[3, 6]), leaf(&[3]));
    let (image, kernel) = (ramp(&[1, 2, 5, 5]), leaf(&[3, 2, 3, 3]));
    let heads = ramp(&[2, 4, 8]);
    let ones = Tensor::ones([3]).requires_grad();
    for low in LOW {
        autocast(low, || {
            let y = x.linear(&w, Some(&b));
            let products = [
                y.clone(),
                x.matmul(&w.t()),
                einsum("ij,kj->ik", &[&x, &w]),
                x.tensordot(&w, &[1], &[1]),
                image.conv2d(&kernel, Some(&b), &Conv::new()),
                image.conv_transpose2d(&ramp(&[2, 3, 2, 2]), Some(&b), &Conv::new()),
                heads.attention(&heads, &heads, Attention::new().mask(&ramp(&[4, 4]))),
                ramp(&[6]).dot(&ramp(&[6])),
            ];
            assert!(products.iter().all(|y| y.dtype() == low), "{products:?}");
            let same = [
                y.relu(),
                y.tanh(),
                &y * 2.0,
                &y + &y,
                y.t(),
                y.reshape([-1]),
                y.max(),
                y.sort(1, false).0,
                y.gelu(),
                y.at(0),
                pullback::cat(&[&y, &y], 0),
                y.clamp(-1.0, 1.0),
                y.batch_norm(Some(&ones), Some(&b), 1e-5),
            ];
            assert!(same.iter().all(|y| y.dtype() == low), "{same:?}");
            let classes = Tensor::from([0i64, 1, 2, 0]);
            let square = y.t().matmul(&y) + Tensor::eye(3).cast(low);
            let f32s = [
                y.sum(),
                y.mean(),
                y.mean_over(1),
                y.var(),
                y.std_over(0),
                y.norm(),
                y.prod(),
                y.softmax(1),
                y.log_softmax(1),
                y.logsumexp_over(1),
                y.exp(),
                y.log1p(),
                y.square(),
                y.pow(3),
                y.cumsum(1),
                y.recip(),
                y.vector_norm(3.0, 1),
                y.normalize(2.0, 1, 1e-9),
                y.layer_norm(&ones, &b, 1e-5),
                y.rms_norm(&ones, 1e-5),
                y.group_norm(1, Some(&ones), Some(&b), 1e-5),
                y.channel_norm(&ones, &ones, None, None, 1e-5),
                CrossEntropy::default().of(&y, &classes),
                losses::mse(&y, &y, Reduction::Mean),
                losses::l1(&y, &y, Reduction::None),
                losses::binary_cross_entropy_with_logits(
                    &y,
                    &y.sigmoid(),
                    None,
                    None,
                    Reduction::Mean,
                ),
                pullback::fft::rfft(&y, None, -1, pullback::fft::Norm::default()),
                pullback::linalg::inv(&square),
                pullback::linalg::matrix_power(&y.t().matmul(&y), 3),
                pullback::linalg::solve(&square, &square),
                pullback::linalg::det(&square),
                pullback::linalg::cholesky(&square, false),
                pullback::linalg::eigvalsh(&square, false),
                pullback::linalg::svd(&square, false).1,
                pullback::linalg::pinv(&y, None, None, false),
                y.cov(1.0, None, None),
                &y + &x.narrow(1, 0, 3),
            ];
            for (i, y) in f32s.iter().enumerate() {
                assert_eq!(y.dtype(), DType::F32, "number {i}: {y:?}");
            }
            assert_eq!(autocast_off(|| x.matmul(&w.t())).dtype(), DType::F32);
            // f64 is left alone, and does not meet f32 in a product, here as elsewhere.
            let wide = x.cast(DType::F64);
            assert_eq!(wide.matmul(&w.cast(DType::F64).t()).dtype(), DType::F64);
            assert!(pullback::catch(|| wide.matmul(&w.t())).is_err());
            assert_eq!(
                Tensor::ones_with([2, 2], DType::I64)
                    .matmul(&Tensor::ones_with([2, 2], DType::I64))
                    .dtype(),
                DType::I64
            );
        });
        assert_eq!(x.linear(&w, Some(&b)).dtype(), DType::F32);
    }
}

#[test]
fn values_are_those_of_casts_by_hand() {
    let (x, w, b) = (ramp(&[4, 6]), leaf(&[3, 6]), leaf(&[3]));
    for low in LOW {
        let y = autocast(low, || x.linear(&w, Some(&b)));
        let by_hand = x.cast(low).matmul(&w.cast(low).t()) + b.cast(low);
        assert_eq!(y.to_f64_vec(), by_hand.to_f64_vec());
        // A norm of a low input takes the weights as they are, unrounded.
        let (g, h) = (leaf(&[3]), leaf(&[3]));
        let y = autocast(low, || x.linear(&w, None).layer_norm(&(&g / 3.0), &h, 1e-5));
        let by_hand =
            x.cast(low).matmul(&w.cast(low).t()).cast(DType::F32).layer_norm(&(&g / 3.0), &h, 1e-5);
        assert_eq!(y.to_vec::<f32>(), by_hand.to_vec::<f32>());
    }
}

#[test]
fn gradients_have_the_dtype_of_their_leaf_and_the_values_of_casts_by_hand() {
    for low in LOW {
        let (x, w, b, v) = (leaf(&[4, 6]), leaf(&[3, 6]), leaf(&[3]), leaf(&[2, 3]));
        let loss = autocast(low, || x.linear(&w, Some(&b)).tanh().linear(&v, None).square().mean());
        assert_eq!(loss.dtype(), DType::F32);
        loss.backward().unwrap();
        let got: Vec<Tensor> = [&x, &w, &b, &v].map(|x| x.grad().unwrap()).into();
        [&x, &w, &b, &v].iter().for_each(|x| x.zero_grad());
        let h = (x.cast(low).matmul(&w.cast(low).t()) + b.cast(low)).tanh();
        let loss = h.matmul(&v.cast(low).t()).cast(DType::F32).square().mean();
        loss.backward().unwrap();
        for (leaf, got) in [&x, &w, &b, &v].iter().zip(&got) {
            assert_eq!(got.dtype(), DType::F32);
            assert_eq!(got.to_vec::<f32>(), leaf.grad().unwrap().to_vec::<f32>());
        }
        // What went through the low dtype was rounded to it.
        assert_eq!(got[1].to_vec::<f32>(), rounded(&got[1], low).to_vec::<f32>());
    }
}

#[test]
fn a_weight_that_is_used_often_sums_its_gradient_in_f32() {
    // 4096 uses of 1/3 each: in bf16 the sum would stop growing at 85, where a third is less than
    // half a step.
    let w = Tensor::from([[1.0f32]]).requires_grad();
    let x = Tensor::from([[1.0f32 / 3.0]]);
    let y = autocast(DType::BF16, || {
        let terms: Vec<Tensor> = (0..4096).map(|_| x.linear(&w, None)).collect();
        pullback::cat(&terms.iter().collect::<Vec<_>>(), 0).sum()
    });
    y.backward().unwrap();
    let third = x.cast(DType::BF16).cast(DType::F32).item::<f32>();
    assert_eq!(w.grad().unwrap().item::<f32>(), 4096.0 * third);
}

#[test]
fn a_cast_to_a_wider_dtype_sums_its_gradient_there() {
    // In f32 adding 1 to 2²⁴ gives 2²⁴.
    let w = Tensor::from(1.0f32).requires_grad();
    let wide = w.cast(DType::F64);
    let y = &wide * 16_777_216.0 + &wide + &wide;
    y.backward().unwrap();
    assert_eq!(w.grad().unwrap().item::<f32>(), 16_777_218.0);
}

#[test]
fn hooks_and_gradients_of_a_cast_see_the_sum() {
    let w = Tensor::from([[1.0f32]]).requires_grad();
    let low = w.cast(DType::BF16);
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let noted = seen.clone();
    let _hook = low.register_hook(move |g| {
        noted.lock().unwrap().push(g.to_f64_vec()[0]);
        Some(g * 2.0)
    });
    let y = (&low * 3.0 + &low).cast(DType::F32).sum();
    let g = Backward::of(&y).retain_graph().wrt(&[&low, &w]).unwrap();
    assert_eq!((g[0].to_f64_vec(), g[1].to_f64_vec()), (vec![8.0], vec![8.0]));
    y.backward().unwrap();
    assert_eq!(*seen.lock().unwrap(), [4.0, 4.0]);
    assert_eq!(w.grad().unwrap().item::<f32>(), 8.0);
}

#[test]
fn graphs_that_share_a_kept_cast_are_independent() {
    let (x, w) = (ramp(&[4, 6]), leaf(&[3, 6]));
    autocast(DType::BF16, || {
        let (first, second) = (x.linear(&w, None).sum(), (&x * 2.0).linear(&w, None).sum());
        first.backward().unwrap();
        let g = w.grad().unwrap().deep_clone();
        second.backward().unwrap();
        assert_eq!(w.grad().unwrap().to_vec::<f32>(), (g * 3.0).to_vec::<f32>());
    });
}

#[test]
fn a_weight_that_is_written_between_is_cast_again() {
    let (x, w) = (Tensor::ones([1, 1]), Tensor::from([[2.0f32]]).requires_grad());
    autocast(DType::F16, || {
        assert_eq!(x.linear(&w, None).to_f64_vec(), [2.0]);
        no_grad(|| w.fill_(5.0));
        assert_eq!(x.linear(&w, None).to_f64_vec(), [5.0]);
        w.detach().fill_(7.0);
        assert_eq!(x.linear(&w, None).to_f64_vec(), [7.0]);
        // Another handle of the same memory, without a gradient, does not get the cast that has
        // one.
        assert!(!x.linear(&w.detach(), None).is_tracked());
        assert!(x.linear(&w, None).is_tracked());
    });
}

#[test]
fn a_cast_made_in_no_grad_is_not_used_where_gradients_are_recorded() {
    let (x, w) = (ramp(&[2, 3]), leaf(&[4, 3]));
    autocast(DType::BF16, || {
        let looked = no_grad(|| x.linear(&w, None));
        assert!(!looked.is_tracked());
        let y = x.linear(&w, None);
        assert!(y.is_tracked());
        y.sum().backward().unwrap();
        assert!(!no_grad(|| x.linear(&w, None)).is_tracked());
    });
    assert!(w.grad().unwrap().abs().sum().item::<f32>() > 0.0);
    // Nor one made while it was frozen.
    autocast(DType::BF16, || {
        w.set_requires_grad(false);
        let _ = x.linear(&w, None);
        w.set_requires_grad(true);
        x.linear(&w, None).sum().backward().unwrap();
    });
    assert!(w.grad().unwrap().abs().sum().item::<f32>() > 0.0);
}

#[test]
fn a_panic_switches_it_off() {
    let x = ramp(&[2, 3]);
    assert!(catch(|| autocast(DType::F16, || x.matmul(&x))).is_err());
    assert_eq!(x.matmul(&x.t()).dtype(), DType::F32);
    let plain = std::panic::catch_unwind(|| autocast(DType::F16, || panic!("on purpose")));
    assert!(plain.is_err());
    assert_eq!(x.matmul(&x.t()).dtype(), DType::F32);
}

#[test]
fn other_dtypes_are_refused_with_the_line() {
    let error = catch(|| autocast(DType::F32, || ())).unwrap_err().to_string();
    assert!(error.starts_with("autocast: computes in bf16 or f16, not in f32"), "{error}");
    assert!(error.contains("tests/autocast.rs"), "{error}");
}

#[test]
fn writes_in_place_keep_their_dtype() {
    let x = ramp(&[3]).cast(DType::BF16);
    autocast(DType::BF16, || {
        x.exp_().add_(1.0).mul_(ramp(&[3]));
        let tracked = leaf(&[3]).cast(DType::BF16) * 1.0;
        tracked.exp_();
        assert_eq!(tracked.dtype(), DType::BF16);
        tracked.sum().backward().unwrap();
    });
    assert_eq!(x.dtype(), DType::BF16);
}

/// A small network with most kinds of op.
fn network(x: &Tensor, w: &[Tensor]) -> Tensor {
    let h = x.linear(&w[0], Some(&w[1])).gelu();
    let h = h.layer_norm(&w[1], &w[1], 1e-5).linear(&w[2], None);
    h.softmax(-1).log().square().mean()
}

fn weights() -> Vec<Tensor> {
    vec![leaf(&[5, 6]), leaf(&[5]), leaf(&[4, 5])]
}

#[test]
fn compiled_equals_eager_with_autocast_inside_and_outside() {
    for low in LOW {
        let x = ramp(&[8, 6]);
        let w = weights();
        let inside = |x: &Tensor| {
            w.iter().for_each(Tensor::zero_grad);
            let loss = autocast(low, || network(x, &w));
            loss.backward()?;
            Ok(loss)
        };
        let grads = || w.iter().map(|w| w.grad().unwrap().to_vec::<f32>()).collect::<Vec<_>>();
        let eager = inside(&x).unwrap().item::<f32>();
        let expected = grads();
        let near = |a: &[Vec<f32>], b: &[Vec<f32>]| {
            for (a, b) in a.iter().flatten().zip(b.iter().flatten()) {
                // Fused products round once where eager ones round twice: a step of the low dtype.
                assert!((a - b).abs() <= 0.01 * b.abs() + 1e-4, "{a} is not {b}");
            }
        };
        let compiled = jit(inside);
        for _ in 0..2 {
            let loss = compiled.call(&x).unwrap();
            assert_eq!(loss.dtype(), DType::F32);
            assert!((loss.item::<f32>() - eager).abs() < 0.01 * eager.abs());
            near(&grads(), &expected);
        }
        compiled.check(&x).unwrap();
        let outside = jit(|x: &Tensor| {
            w.iter().for_each(Tensor::zero_grad);
            let loss = network(x, &w);
            loss.backward()?;
            Ok(loss)
        });
        let plain = outside.call(&x).unwrap().item::<f32>();
        assert_eq!(plain, network(&x, &w).item::<f32>());
        for _ in 0..2 {
            let loss = autocast(low, || outside.call(&x)).unwrap();
            assert!((loss.item::<f32>() - eager).abs() < 0.01 * eager.abs());
            near(&grads(), &expected);
        }
        assert_eq!(outside.call(&x).unwrap().item::<f32>(), plain);
        let text = outside.explain().to_string();
        let reason = format!("it was called inside autocast({low}), and outside autocast before");
        assert!(text.contains(&reason), "{text}");
        assert_eq!(outside.explain().specialisations.len(), 2);
    }
}

#[test]
fn a_compiled_step_casts_the_weights_of_its_time() {
    let (x, w) = (Tensor::ones([1, 1]), Tensor::from([[1.0f32]]).requires_grad());
    let step = jit(|x: &Tensor| {
        let before = autocast(DType::BF16, || x.linear(&w, None)).cast(DType::F32).detach();
        no_grad(|| w.mul_(2.0));
        let after = autocast(DType::BF16, || x.linear(&w, None)).cast(DType::F32).detach();
        pullback::cat(&[&before, &after], 1)
    });
    assert_eq!(step.of(&x).to_vec::<f32>(), [1.0, 2.0]);
    assert_eq!(step.of(&x).to_vec::<f32>(), [2.0, 4.0]);
    assert_eq!(w.item::<f32>(), 4.0);
}

#[test]
fn bodies_of_vmap_and_scan() {
    let (xs, w) = (ramp(&[5, 6]), leaf(&[3, 6]));
    autocast(DType::BF16, || {
        let rows = vmap(|x: &Tensor| w.matmul(x).square().sum(), 0, 0)(&xs);
        assert_eq!(rows.dtype(), DType::F32);
        let all = xs.linear(&w, None).square().sum_over(1);
        for (a, b) in rows.to_vec::<f32>().iter().zip(all.to_vec::<f32>()) {
            assert!((a - b).abs() <= 1e-5 * b.abs(), "{a} is not {b}");
        }
        rows.sum().backward().unwrap();
        let g = w.grad().unwrap().to_vec::<f32>();
        w.zero_grad();
        all.sum().backward().unwrap();
        for (a, b) in g.iter().zip(w.grad().unwrap().to_vec::<f32>()) {
            assert!((a - b).abs() <= 0.01 * b.abs() + 0.02, "{a} is not {b}");
        }
        w.zero_grad();
        // A gradient for each row, by a body that goes backward itself.
        let each = vmap(|x: &Tensor| grad(|w: &Tensor| w.matmul(x).square().sum())(&w), 0, 0)(&xs);
        assert_eq!((each.dtype(), each.shape()), (DType::F32, &[5, 3, 6][..]));
    });
    let iteration = |s: &Tensor, x: &Tensor| {
        let next = autocast(DType::F16, || (s + x).linear(&w, None).linear(&w.t(), None));
        (next.cast(DType::F32), next)
    };
    let s = Tensor::zeros([6]);
    let run = |xs: &Tensor| scan(iteration, &s, xs).1.cast(DType::F32);
    let eager = run(&xs);
    assert_eq!(jit(|x: &Tensor| run(x).detach()).of(&xs).to_vec::<f32>(), eager.to_vec::<f32>());
    eager.sum().backward().unwrap();
    let expected = w.grad().unwrap().to_vec::<f32>();
    w.zero_grad();
    let step = jit(|xs: &Tensor| {
        let y = run(xs).sum();
        y.backward()?;
        Ok(y)
    });
    step.call(&xs).unwrap();
    for (a, b) in w.grad().unwrap().to_vec::<f32>().iter().zip(expected) {
        assert!((a - b).abs() <= 0.01 * b.abs() + 1e-3, "{a} is not {b}");
    }
}

#[test]
fn twice_backward_and_forward_mode() {
    let (x, w) = (ramp(&[4, 3]), leaf(&[2, 3]));
    for low in LOW {
        let f = |w: &Tensor| autocast(low, || x.linear(w, None).sigmoid().square().sum());
        // By hand, with the casts written out and no autocast at all.
        let by_hand = |w: &Tensor| {
            x.cast(low).matmul(&w.cast(low).t()).sigmoid().cast(DType::F32).square().sum()
        };
        let twice = |f: &dyn Fn(&Tensor) -> Tensor| {
            let first = Backward::of(&f(&w)).create_graph().wrt(&[&w]).unwrap().swap_remove(0);
            assert_eq!(first.dtype(), DType::F32);
            Backward::of(&first.square().sum()).wrt(&[&w]).unwrap().swap_remove(0)
        };
        let (a, b) = (twice(&f), twice(&by_hand));
        assert_eq!((a.dtype(), a.to_vec::<f32>()), (DType::F32, b.to_vec::<f32>()));
        let along = ramp(&[2, 3]);
        let (y, t) = jvp(f, &w.detach(), &along);
        let (z, u) = jvp(by_hand, &w.detach(), &along);
        assert_eq!((y.item::<f32>(), t.item::<f32>()), (z.item::<f32>(), u.item::<f32>()));
        // All of it inside the scope: backward and tangents are as they are outside.
        let inside = autocast(low, || twice(&f));
        assert_eq!(inside.to_vec::<f32>(), b.to_vec::<f32>());
    }
}

#[test]
fn a_compiled_step_casts_each_weight_once() {
    // Three uses forward, and what backward needs of them.
    let (x, w) = (ramp(&[4, 5]), leaf(&[5, 5]));
    let step = jit(|x: &Tensor| {
        w.zero_grad();
        let loss = autocast(DType::F16, || {
            let h = (0..3).fold(x.clone(), |h, _| h.linear(&w, None).tanh());
            h.square().mean()
        });
        loss.backward()?;
        Ok(loss)
    });
    let stages = step.stages(&x).unwrap();
    let (_, traced) = &stages[0];
    let lowered = |e: &&pullback_ir::Equation| {
        let of_the_weight = |v: &pullback_ir::Var| {
            let spec = traced.spec(*v);
            spec.shape[..] == [5, 5] && spec.dtype == DType::F32
        };
        e.op == pullback_ir::Op::Cast(DType::F16) && e.inputs.iter().any(of_the_weight)
    };
    assert_eq!(traced.equations.iter().filter(lowered).count(), 1, "{traced}");
    step.call(&x).unwrap();
    assert_eq!(w.grad().unwrap().dtype(), DType::F32);
}

#[test]
fn the_table_lists_every_op_once() {
    let rows = autocast_policy();
    let mut names: Vec<&str> = rows.iter().map(|row| row.0).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), rows.len());
    let of = |policy: Policy| rows.iter().filter(move |row| row.1 == policy).map(|row| row.0);
    let low: Vec<&str> = of(Policy::Low).collect();
    assert_eq!(low, ["dot", "conv", "conv_input", "conv_filter", "attention"]);
    assert!(of(Policy::F32).count() > 30 && of(Policy::Promote).count() > 50);
}

#[test]
fn docs_precision_md_has_the_table() {
    let path = format!("{}/../../../docs/precision.md", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap();
    let line = |policy: Policy| {
        let rows = autocast_policy().into_iter().filter(|row| row.1 == policy);
        let names: Vec<String> = rows.map(|row| format!("`{}`", row.0)).collect();
        format!("| {policy:?} | {} |\n", names.join(" "))
    };
    let table: String = [Policy::Low, Policy::F32, Policy::Promote].map(line).concat();
    assert!(text.contains(&table), "docs/precision.md wants these lines:\n{table}");
}

/// Cross-entropy takes narrow logits as they are; what it gives is what it would give of their
/// cast.
#[test]
fn losses_of_narrow_logits_have_the_bits_of_logits_that_were_cast_before() {
    let classes = Tensor::from([3i64, 0, -100, 36, 17]);
    let each = CrossEntropy::default().reduction(Reduction::None);
    let along = ramp(&[5, 37]) * 0.3;
    for low in LOW {
        let logits = (ramp(&[5, 37]) * 3.0).cast(low);
        let narrow = |x: &Tensor| autocast(low, || each.of(x, &classes));
        let wide = |x: &Tensor| each.of(&x.cast(DType::F32), &classes);
        let weighted = |f: &dyn Fn(&Tensor) -> Tensor, x: &Tensor| (f(x) * ramp(&[5])).sum();
        let slope = |f: &dyn Fn(&Tensor) -> Tensor| grad(|x: &Tensor| weighted(f, x))(&logits);
        let second = |f: &dyn Fn(&Tensor) -> Tensor| {
            let along = along.cast(low);
            let inner = |x: &Tensor| (grad(|x: &Tensor| weighted(f, x))(x) * &along).sum();
            grad(inner)(&logits)
        };
        let forward = |f: &dyn Fn(&Tensor) -> Tensor| jvp(f, &logits, &along.cast(low)).1;
        assert_eq!(narrow(&logits).dtype(), DType::F32);
        for (what, a, b) in [
            ("losses", narrow(&logits), wide(&logits)),
            ("gradient", slope(&narrow), slope(&wide)),
            ("tangent", forward(&narrow), forward(&wide)),
            ("second derivative", second(&narrow), second(&wide)),
        ] {
            assert_eq!(a.dtype(), b.dtype(), "{what} in {low}");
            assert_eq!(a.to_f64_vec(), b.to_f64_vec(), "{what} in {low}");
        }
        assert_eq!(slope(&narrow).dtype(), low);
        // Outside losses are rounded to the dtype of the logits.
        let plain = each.of(&logits, &classes);
        assert_eq!(plain.dtype(), low);
        assert_eq!(plain.to_f64_vec(), wide(&logits).cast(low).to_f64_vec());
        // And no cast of the logits is made.
        let program =
            pullback::trace(|x: &[Tensor]| narrow(&x[0]), &[logits.spec().clone()]).unwrap();
        let casts = |e: &pullback_ir::Equation| e.op == pullback::Op::Cast(DType::F32);
        let logits_cast = program
            .equations
            .iter()
            .any(|e| casts(e) && program.specs[e.outputs[0].index()].shape[..] == [5, 37]);
        assert!(!logits_cast, "{program}");
    }
}
