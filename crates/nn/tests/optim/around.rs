//! What goes with optimisers: clipping, averages, accumulation.

use crate::problem::{Problem, distance, numbers, recorded, scale};
use pullback::{DType, Tensor, Tree, jit, no_grad};
use pullback_nn::Module;
use pullback_nn::optim::{
    Accumulate, Adam, ClipNorm, Ema, Optimizer, Sgd, UpdateRule, clip_grad_norm_, clip_grad_value_,
};
use std::slice::from_ref;

#[test]
fn clipped_gradients_are_those_of_pytorch() {
    for case in recorded("around")["clip"].as_array().unwrap() {
        for compiled in [false, true] {
            let problem = Problem::new(DType::F64);
            let all = problem.all();
            let most = case["most"].as_f64().unwrap();
            let order = match &case["order"] {
                serde_json::Value::String(_) => Some(f64::INFINITY),
                order => order.as_f64(),
            };
            let clip = |scale: &Tensor| {
                all.iter().for_each(Tensor::zero_grad);
                problem.loss(scale, false).backward()?;
                match order {
                    None => clip_grad_value_(&all, most).map(|()| Tensor::from(0.0)),
                    Some(norm_type) => {
                        ClipNorm { max_norm: most, norm_type, ..ClipNorm::default() }.apply(&all)
                    }
                }
            };
            let norm = match compiled {
                true => {
                    let clip = jit(clip);
                    clip.call(&scale(2)).unwrap();
                    let norm = clip.call(&scale(2)).unwrap();
                    assert_eq!(clip.explain().specialisations.len(), 1);
                    norm
                }
                false => clip(&scale(2)).unwrap(),
            };
            if let Some(want) = case["norm"].as_f64() {
                assert!((norm.item::<f64>() - want).abs() < 1e-12, "{norm} instead of {want}");
            }
            assert!(problem.get("c").grad().is_none());
            for (parameter, want) in case["grads"].as_object().unwrap() {
                let got = problem.get(parameter).grad().unwrap().to_f64_vec();
                let far = distance(&got, &numbers(want));
                assert!(far < 1e-12, "order {order:?}, compiled {compiled}, {parameter}: {far:e}");
            }
        }
    }
}

#[test]
fn norms_that_are_not_finite_are_refused_if_asked() {
    let x = Tensor::from([1.0, 2.0]).requires_grad();
    let with = |values: [f64; 2]| x.set_grad(Some(Tensor::from(values)));
    let clip = ClipNorm { error_if_nonfinite: true, ..ClipNorm::default() };
    with([f64::NAN, 1.0]);
    let error = clip.apply(from_ref(&x)).unwrap_err().to_string();
    assert!(error.contains("the norm of order 2 of the gradients is"), "{error}");
    assert_eq!(x.grad().unwrap().to_vec::<f64>()[1], 1.0);
    // It reads the norm, which a function that is being compiled cannot.
    assert!(jit(|(): &()| clip.apply(from_ref(&x))).call(&()).is_err());
    with([3.0, 4.0]);
    assert_eq!(clip.apply(from_ref(&x)).unwrap().item::<f64>(), 5.0);
    for (max_norm, norm_type) in [(-1.0, 2.0), (f64::NAN, 2.0), (1.0, 0.0), (1.0, f64::NAN)] {
        let clip = ClipNorm { max_norm, norm_type, ..ClipNorm::default() };
        assert!(clip.apply(from_ref(&x)).is_err(), "{clip:?}");
    }
    assert!(clip_grad_value_(from_ref(&x), -1.0).is_err());
    x.zero_grad();
    assert_eq!(clip_grad_norm_(&[x], 1.0).unwrap().item::<f32>(), 0.0);
    assert_eq!(clip_grad_norm_(&[], 1.0).unwrap().item::<f32>(), 0.0);
}

/// Gradients of several dtypes have one norm; those in half precision are rounded once.
#[test]
fn dtypes_may_be_mixed() {
    let leaf = |dtype: DType, value: f64| {
        let x = Tensor::from([value]).cast(dtype).deep_clone().requires_grad();
        x.set_grad(Some(x.detach().deep_clone()));
        x
    };
    let all = [leaf(DType::BF16, 3.0), leaf(DType::F32, 4.0), leaf(DType::F64, 12.0)];
    let norm = clip_grad_norm_(&all, 1.3).unwrap();
    assert_eq!(norm.item::<f64>(), 13.0);
    let grads: Vec<f64> = all.iter().flat_map(|x| x.grad().unwrap().to_f64_vec()).collect();
    assert!(distance(&grads, &[0.3, 0.4, 1.2]) < 1e-3, "{grads:?}");
}

#[derive(Tree)]
struct Model {
    w: Tensor,
    #[tree(buffer)]
    seen: Tensor,
}

impl Model {
    fn new() -> Model {
        let w = Problem::new(DType::F64).get("w").detach().deep_clone().requires_grad();
        Model { w, seen: Tensor::from(0i64) }
    }
}

#[test]
fn averages_are_those_of_pytorch_and_compile() {
    for case in recorded("around")["ema"].as_array().unwrap() {
        for compiled in [false, true] {
            let model = Model::new();
            let ema = Ema::new(&model, case["decay"].as_f64().unwrap()).unwrap();
            let opt = Sgd { lr: 0.1, ..Sgd::default() }.over(model.parameters()).unwrap();
            let step = jit(|(): &()| {
                opt.zero_grad();
                (&model.w * 3.0).cos().sum().backward()?;
                opt.step()?;
                model.seen.add_(1);
                ema.update(&model)?;
                Ok(Tensor::from(0.0))
            });
            for _ in 0..20 {
                match compiled {
                    true => step.call(&()).unwrap(),
                    false => step.eager(&()),
                };
            }
            let near = |x: &Tensor, want| distance(&x.to_f64_vec(), &numbers(want)) < 1e-12;
            assert!(near(&model.w, &case["model"]) && near(&ema.model().w, &case["average"]));
            assert_eq!(ema.model().seen.item::<i64>(), case["seen"].as_i64().unwrap());
            assert!(!ema.model().w.is_tracked() && model.w.is_leaf());

            // Swapping twice is doing nothing.
            let values = || (model.w.to_f64_vec(), ema.model().w.to_f64_vec());
            let before = values();
            ema.swap(&model).unwrap();
            assert_eq!(values(), (before.1.clone(), before.0.clone()));
            ema.swap(&model).unwrap();
            assert_eq!(values(), before);
        }
    }
    let model = Model::new();
    for decay in [-0.1, 1.1, f64::NAN] {
        let error = Ema::new(&model, decay).err().unwrap().to_string();
        assert!(error.contains("`decay` must be a number from 0 to 1"), "{error}");
    }
    let ema = Ema::new(&model, 0.9).unwrap();
    let other = Model { w: Tensor::from([1.0]), seen: Tensor::from(0i64) };
    let error = ema.update(&other).unwrap_err().to_string();
    assert!(error.contains("the average has `w` f64[4,3], the model `w` f64[1]"), "{error}");
}

/// Parts of a batch and the whole batch, by the helper and by hand.
#[test]
fn accumulated_parts_are_the_batch() {
    let data = Tensor::from_vec((0..24).map(|i| f64::from(i).sin()).collect::<Vec<_>>(), [8, 3]);
    let loss = |w: &Tensor, x: &Tensor| x.matmul(w).tanh().square().mean();
    let start = || Tensor::from([0.5, -1.0, 2.0]).requires_grad();
    let adam = Adam { lr: 0.1, ..Adam::default() };
    let part = |i: usize| data.narrow(0, 2 * i as isize, 2);

    let whole = start();
    let opt = adam.over([whole.clone()]).unwrap();
    let helped = start();
    let parts = Accumulate::new(adam.over([helped.clone()]).unwrap(), 4).unwrap();
    let by_hand = start();
    let other = adam.over([by_hand.clone()]).unwrap();
    for _ in 0..5 {
        opt.zero_grad();
        loss(&whole, &data).backward().unwrap();
        opt.step().unwrap();

        for i in 0..4 {
            assert_eq!(parts.seen().unwrap(), i);
            let stepped = parts.backward(&loss(&helped, &part(i))).unwrap();
            assert_eq!(stepped.item::<bool>(), i == 3);
        }

        other.zero_grad();
        (0..4).for_each(|i| (loss(&by_hand, &part(i)) / 4.0).backward().unwrap());
        other.step().unwrap();
    }
    let want = whole.to_vec::<f64>();
    assert!(distance(&helped.to_vec::<f64>(), &want) < 1e-13);
    assert_eq!(helped.to_vec::<f64>(), by_hand.to_vec::<f64>());

    // What is left over, and clipping before a step.
    assert!(helped.grad().is_none());
    parts.flush().unwrap();
    assert_eq!(parts.optimizer().named_state()[1].1.item::<i64>(), 5);
    parts.backward(&loss(&helped, &part(0))).unwrap();
    parts.flush().unwrap();
    assert_eq!((parts.seen().unwrap(), parts.optimizer().named_state()[1].1.item::<i64>()), (0, 6));
    let clipped = Accumulate::new(parts.optimizer().clone(), 1).unwrap();
    let mut norm = None;
    let clip = |opt: &_| {
        norm = Some(clip_grad_norm_(&Optimizer::groups(opt)[0], 0.01)?);
        Ok(())
    };
    assert!(clipped.backward_then(&loss(&helped, &data), clip).unwrap().item::<bool>());
    assert!(norm.is_some_and(|norm| norm.item::<f64>() > 0.0));
    assert!(Accumulate::new(opt, 0).is_err());
}

/// Accumulation compiles too: a program for a part, and one for the part that steps.
#[test]
fn accumulation_compiles() {
    let run = |compiled: bool| {
        let x = Tensor::from([1.0, -2.0]).requires_grad();
        let opt = Adam { lr: 0.1, ..Adam::default() }.over([x.clone()]).unwrap();
        let part = jit(|t: &Tensor| {
            let loss = (&x * t).sin().sum() / 2.0;
            loss.backward()?;
            Ok(loss.detach())
        });
        let last = jit(|t: &Tensor| {
            let loss = (&x * t).sin().sum() / 2.0;
            loss.backward()?;
            opt.step()?;
            opt.zero_grad();
            Ok(loss.detach())
        });
        for t in 0..10 {
            let t = Tensor::from(1.0 + f64::from(t));
            match compiled {
                true => drop((part.call(&t).unwrap(), last.call(&t).unwrap())),
                false => drop((part.eager(&t), last.eager(&t))),
            }
        }
        no_grad(|| x.to_vec::<f64>())
    };
    assert_eq!(run(true), run(false));
}
