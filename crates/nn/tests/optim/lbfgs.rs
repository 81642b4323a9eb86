//! L-BFGS against `torch.optim.LBFGS`, and where it must find the minimum.

use crate::problem::{Problem, distance, numbers, recorded, scale};
use pullback::{DType, Error, Result, Tensor, no_grad};
use pullback_nn::optim::{Lbfgs, LbfgsStepper, Optimizer};
use serde_json::Value;

fn step(problem: &Problem, opt: &LbfgsStepper, sign: f64) -> Result<f64> {
    let loss = opt.step(|| {
        opt.zero_grad();
        let loss = problem.loss(&scale(0), true) * sign;
        loss.backward()?;
        Ok(loss)
    })?;
    Ok(loss.item())
}

#[test]
fn steps_are_those_of_pytorch() {
    let Value::Object(all) = recorded("lbfgs") else { panic!("no cases") };
    assert_eq!(all.len(), 4);
    for (case, data) in &all {
        let how: Lbfgs = serde_json::from_value(data["options"].clone()).unwrap();
        let sign = if how.maximize { -1.0 } else { 1.0 };
        let problem = Problem::new(DType::F64);
        let opt = how.over(problem.all()).unwrap();
        let losses = numbers(&data["losses"]);
        for (t, point) in data["points"].as_array().unwrap().iter().enumerate() {
            let loss = step(&problem, &opt, sign).unwrap();
            assert!((loss - losses[t]).abs() < 1e-10, "{case}, step {t}: {loss} not {}", losses[t]);
            for (parameter, want) in point.as_object().unwrap() {
                let far = distance(&problem.get(parameter).to_f64_vec(), &numbers(want));
                assert!(far < 1e-8, "{case}, step {t}, {parameter}: {far:e}");
            }
        }
        // It looked as often, and moved as often.
        let counts = &opt.named_state()[1].1.to_vec::<i64>();
        let want = [&data["n_iter"], &data["func_evals"]].map(|x| x.as_i64().unwrap());
        assert_eq!(counts[..2], want, "{case}");
    }
}

#[test]
fn going_on_from_saved_state_is_going_on() {
    let how = Lbfgs { max_iter: 3, history_size: 4, ..Lbfgs::default() };
    let (whole, resumed) = (Problem::new(DType::F64), Problem::new(DType::F64));
    let (opt, other) = (how.over(whole.all()).unwrap(), how.over(resumed.all()).unwrap());
    for _ in 0..3 {
        step(&whole, &opt, 1.0).unwrap();
    }
    no_grad(|| {
        for ((_, x), (_, old)) in resumed.parameters.iter().zip(&whole.parameters) {
            x.copy_(old.deep_clone());
        }
    });
    for ((_, x), (_, old)) in other.named_state().iter().zip(&opt.named_state()) {
        x.copy_(old.deep_clone());
    }
    for _ in 0..3 {
        assert_eq!(step(&whole, &opt, 1.0).unwrap(), step(&resumed, &other, 1.0).unwrap());
    }
    assert_eq!(whole.values(), resumed.values());
}

/// A quadratic in f32: it is at the minimum after a few steps, and then it stays there.
#[test]
fn it_stops_at_the_minimum() {
    let x = Tensor::from([5.0f32, -3.0, 2.0]).requires_grad();
    let weight = Tensor::from([1.0f32, 10.0, 0.1]);
    let opt = Lbfgs { max_iter: 40, ..Lbfgs::default() }.over([x.clone()]).unwrap();
    let mut evaluate = || {
        opt.zero_grad();
        let loss = (x.square() * &weight).sum();
        loss.backward()?;
        Ok(loss)
    };
    opt.step(&mut evaluate).unwrap();
    assert!(x.to_vec::<f32>().iter().all(|x| x.abs() < 1e-3), "{x}");
    opt.step(&mut evaluate).unwrap();
    let there = x.to_vec::<f32>();
    opt.step(&mut evaluate).unwrap();
    assert!(distance(&x.to_f64_vec(), &there.iter().map(|&x| x.into()).collect::<Vec<_>>()) < 1e-5);
}

#[test]
fn what_it_cannot_do_is_refused() {
    let leaf = |x: f64| Tensor::from(x).requires_grad();
    let opt = Lbfgs::default().over([leaf(1.0)]).unwrap();
    let error = Optimizer::step(&opt).unwrap_err().to_string();
    assert!(error.contains("a step evaluates the loss several times"), "{error}");
    let error = opt.step(|| Err(Error::argument("loss", "no data"))).unwrap_err();
    assert!(error.to_string().contains("no data"));
    assert!(opt.step(|| Ok(Tensor::from([1.0, 2.0]))).is_err());

    let error = Lbfgs::default().over([leaf(1.0), Tensor::from(1.0f32).requires_grad()]);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("parameters of one dtype, not f64[] and f32[]"), "{error}");
    let error = Lbfgs::default().over([]).unwrap_err().to_string();
    assert!(error.contains("there are no parameters"), "{error}");
    let error = Lbfgs { lr: f64::NAN, ..Lbfgs::default() }.over([leaf(1.0)]).unwrap_err();
    assert!(error.to_string().contains("`lr` must be a number that is not negative, not NaN"));
}

/// Rosenbrock's valley, with the points and counts of `torch.optim.LBFGS` (2.15, float64): moves,
/// and evaluations.
#[test]
fn the_valley_is_followed_as_pytorch_does() {
    for (max_iter, want, counts) in [
        (5, [-1.4142309487677067, 1.9949020404366438], [5, 7]),
        (20, [0.030518730338312858, -0.024366010727044536], [20, 26]),
        (35, [0.9755558258925927, 0.9523294071687073], [35, 45]),
        (50, [0.9999979943196398, 0.9999973438921637], [41, 51]),
    ] {
        let x = Tensor::from([-1.5, 2.0]).requires_grad();
        let how = Lbfgs { max_iter, max_eval: Some(1000), ..Lbfgs::default() };
        let opt = how.over([x.clone()]).unwrap();
        let first = opt.step(|| {
            opt.zero_grad();
            let (a, b) = (x.at(0), x.at(1));
            let loss = (1.0 - &a).square() + (b - a.square()).square() * 100.0;
            loss.backward()?;
            Ok(loss)
        });
        assert_eq!(first.unwrap().item::<f64>(), 12.5);
        let far = distance(&x.to_vec::<f64>(), &want);
        assert!(far < 1e-10, "{max_iter}: {far:e}");
        assert_eq!(opt.named_state()[1].1.to_vec::<i64>()[..2], counts);
    }
}
