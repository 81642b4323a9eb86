//! What an optimiser remembers: saved in the middle, in half precision, of parameters that come and
//! go.

use crate::problem::{Problem, cases, distance, optimizer};
use pullback::{DType, Tensor, bf16, jit, no_grad};
use pullback_nn::optim::{Adam, AdamW, Muon, Optimizer, RAdam, Sgd, UpdateRule};

/// Writes what one optimiser remembers over what another does, as a checkpoint does.
fn restore(from: &dyn Optimizer, to: &dyn Optimizer) {
    let (saved, here) = (from.named_state(), to.named_state());
    assert_eq!(saved.len(), here.len());
    for ((name, old), (other, x)) in saved.iter().zip(&here) {
        assert_eq!((name, old.spec()), (other, x.spec()));
        x.copy_(old.deep_clone());
    }
}

#[test]
fn going_on_from_saved_state_is_going_on() {
    for dtype in [DType::F64, DType::F32, DType::BF16] {
        for (name, case, data) in cases() {
            let whole = Problem::new(dtype);
            let opt = optimizer(name, &data, &whole);
            whole.run(&*opt, 0, 20, &mut |_| ());

            let resumed = Problem::new(dtype);
            let other = optimizer(name, &data, &resumed);
            no_grad(|| {
                for ((_, x), (_, old)) in resumed.parameters.iter().zip(&whole.parameters) {
                    x.copy_(old.deep_clone());
                }
            });
            restore(&*opt, &*other);
            whole.run(&*opt, 20, 40, &mut |_| ());
            resumed.run(&*other, 20, 40, &mut |_| ());
            assert_eq!(resumed.values(), whole.values(), "{name} {case} in {dtype}");
        }
    }
}

/// Names do not depend on the run, nor do shapes change: what is there before the first step is
/// what is there after it.
#[test]
fn all_state_is_there_from_the_start() {
    for (name, case, data) in cases() {
        let problem = Problem::new(DType::F32);
        let opt = optimizer(name, &data, &problem);
        let specs = || -> Vec<_> {
            opt.named_state().into_iter().map(|(name, x)| (name, x.spec().clone())).collect()
        };
        let before = specs();
        problem.run(&*opt, 0, 3, &mut |_| ());
        assert_eq!(specs(), before, "{name} {case}");
    }
}

/// One step in bf16 is the step in f32 of the same values, rounded once.
#[test]
fn half_precision_is_computed_in_single() {
    for (name, case, data) in cases() {
        let grads = |problem: &Problem, dtype: DType| {
            for (i, (_, x)) in problem.parameters.iter().enumerate() {
                let n = x.len() as i64;
                let g = (Tensor::arange(0, n).cast(DType::F32) * 0.7 + i as f64).sin();
                x.set_grad(Some(g.reshape(x.shape()).cast(DType::BF16).cast(dtype)));
            }
        };
        let (half, single) = (Problem::new(DType::BF16), Problem::new(DType::F32));
        no_grad(|| {
            for ((_, x), (_, y)) in single.parameters.iter().zip(&half.parameters) {
                x.copy_(y.cast(DType::F32));
            }
        });
        let (a, b) = (optimizer(name, &data, &half), optimizer(name, &data, &single));
        grads(&half, DType::BF16);
        grads(&single, DType::F32);
        a.step().unwrap();
        b.step().unwrap();
        // Adafactor's least gradient is the precision of the dtype.
        if name == "adafactor" && data["groups"][0]["options"].get("eps").is_none() {
            assert!(distance(&half.values(), &single.values()) < 0.01);
            continue;
        }
        for ((parameter, x), (_, y)) in half.parameters.iter().zip(&single.parameters) {
            let want = y.cast(DType::BF16).to_vec::<bf16>();
            assert_eq!(x.to_vec::<bf16>(), want, "{name} {case}, {parameter}");
        }
    }
}

#[test]
fn parameters_without_gradients_and_frozen_ones_are_left_alone() {
    let leaf = || Tensor::from([1.0, 2.0]).requires_grad();
    let (a, b, c) = (leaf(), leaf(), leaf());
    let opt = AdamW { lr: 0.1, weight_decay: 0.5, ..AdamW::default() };
    let opt = opt.over([a.clone(), b.clone(), c.clone()]).unwrap();
    let backward = || (a.square().sum() + c.square().sum()).backward().unwrap();
    backward();
    opt.step().unwrap();
    assert_eq!(b.to_vec::<f64>(), [1.0, 2.0]);
    let then = c.to_vec::<f64>();
    assert_ne!(then, [1.0, 2.0]);

    c.set_requires_grad(false);
    opt.zero_grad();
    backward();
    opt.step().unwrap();
    assert_eq!(c.to_vec::<f64>(), then);

    // Each is counted by itself.
    let states = opt.named_state();
    let count =
        |name: &str| states.iter().find(|(known, _)| known == name).unwrap().1.item::<i64>();
    assert_eq!(["0.0.step", "0.1.step", "0.2.step"].map(count), [2, 0, 1]);
    assert_eq!(states[0].0, "0.lr");

    c.set_requires_grad(true);
    opt.zero_grad();
    backward();
    opt.step().unwrap();
    assert_ne!(c.to_vec::<f64>(), then);
}

#[test]
fn a_list_of_optimizers_is_one() {
    let problem = Problem::new(DType::F64);
    let (matrices, others): (Vec<Tensor>, Vec<Tensor>) =
        problem.all().into_iter().partition(|x| x.rank() == 2);
    let both: Vec<Box<dyn Optimizer>> = vec![
        Box::new(Muon { precise: true, ..Muon::default() }.over(matrices.clone()).unwrap()),
        Box::new(AdamW::default().over(others.clone()).unwrap()),
    ];
    let names: Vec<String> = both.named_state().into_iter().map(|(name, _)| name).collect();
    assert!(names.contains(&"0.0.1.momentum_buffer".to_string()), "{names:?}");
    assert!(names.contains(&"1.0.3.exp_avg_sq".to_string()), "{names:?}");
    assert_eq!((both.groups().len(), both.lrs().len()), (2, 2));
    problem.run(&both, 0, 10, &mut |_| ());

    let apart = Problem::new(DType::F64);
    let (matrices, others): (Vec<Tensor>, Vec<Tensor>) =
        apart.all().into_iter().partition(|x| x.rank() == 2);
    let muon = Muon { precise: true, ..Muon::default() }.over(matrices).unwrap();
    let adam = AdamW::default().over(others).unwrap();
    for t in 0..10 {
        apart.all().iter().for_each(Tensor::zero_grad);
        apart.loss(&crate::problem::scale(t), t % 3 != 2).backward().unwrap();
        adam.step().unwrap();
        muon.step().unwrap();
    }
    assert_eq!(problem.values(), apart.values());
}

/// The choice that RAdam makes by the count is made in the program, not while it is compiled.
#[test]
fn one_program_serves_both_kinds_of_steps() {
    let x = Tensor::from([3.0f32, -1.0]).requires_grad();
    let opt = RAdam { lr: 0.01, ..RAdam::default() }.over([x.clone()]).unwrap();
    let step = jit(|(): &()| {
        opt.zero_grad();
        let loss = x.square().sum();
        loss.backward()?;
        opt.step()?;
        Ok(loss.detach())
    });
    let mut before = x.to_vec::<f32>();
    let mut lengths = Vec::new();
    for _ in 0..8 {
        step.call(&()).unwrap();
        let now = x.to_vec::<f32>();
        lengths.push(before[0] - now[0]);
        before = now;
    }
    assert_eq!(step.explain().specialisations.len(), 1);
    // Five steps along the gradient, which is about 6, and then shortened ones of Adam.
    assert!(lengths[..5].iter().all(|length| (0.04..0.07).contains(length)), "{lengths:?}");
    assert!(lengths[5..].iter().all(|length| (0.0..0.01).contains(length)), "{lengths:?}");
}

/// Views, and parameters that do not lie dense.
#[test]
fn parameters_may_be_views() {
    let base = Tensor::from([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]);
    let turned = base.t().requires_grad();
    let dense = turned.detach().deep_clone().requires_grad();
    for rule in [0, 1] {
        let make = |x: &Tensor| -> Box<dyn Optimizer> {
            match rule {
                0 => Box::new(Adam { lr: 0.1, ..Adam::default() }.over([x.clone()]).unwrap()),
                _ => {
                    let sgd = Sgd { lr: 0.1, momentum: 0.9, ..Sgd::default() };
                    Box::new(sgd.over([x.clone()]).unwrap())
                }
            }
        };
        let (a, b) = (make(&turned), make(&dense));
        for _ in 0..3 {
            for (x, opt) in [(&turned, &a), (&dense, &b)] {
                x.zero_grad();
                x.sin().sum().backward().unwrap();
                opt.step().unwrap();
            }
        }
        assert_eq!(turned.to_vec::<f64>(), dense.to_vec::<f64>());
    }
    assert_eq!(base.t().to_vec::<f64>(), dense.to_vec::<f64>());
}
