//! The problem that `data/optim.py` recorded trajectories on.

use pullback::{DType, Result, Tensor, jit};
use pullback_nn::optim::{Optimizer, named, names};
use serde_json::Value;

/// The recorded JSON file of this name.
pub fn recorded(name: &str) -> Value {
    let path = format!("{}/data/optim/{name}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

pub fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

/// A small network with parameters of several shapes, not convex.
pub struct Problem {
    pub parameters: Vec<(String, Tensor)>,
    x: Tensor,
    y: Tensor,
}

impl Problem {
    pub fn new(dtype: DType) -> Problem {
        let data = recorded("problem");
        let shaped =
            |key: &str, shape: &[usize]| Tensor::from_vec(numbers(&data[key]), shape).cast(dtype);
        let parameter = |(name, shape): (&String, &Value)| {
            let shape: Vec<usize> = numbers(shape).iter().map(|&n| n as usize).collect();
            let start = Tensor::from_vec(numbers(&data["start"][name]), shape);
            (name.clone(), start.cast(dtype).deep_clone().requires_grad())
        };
        let parameters = data["shapes"].as_object().unwrap().iter().map(parameter).collect();
        Problem { parameters, x: shaped("x", &[5, 3]), y: shaped("y", &[5, 2]) }
    }

    pub fn get(&self, name: &str) -> &Tensor {
        &self.parameters.iter().find(|(known, _)| known == name).unwrap().1
    }

    pub fn all(&self) -> Vec<Tensor> {
        self.parameters.iter().map(|(_, x)| x.clone()).collect()
    }

    /// The loss of step `t`, whose data are scaled by `scale`; `c` is part of it or not.
    pub fn loss(&self, scale: &Tensor, with_c: bool) -> Tensor {
        let x = &self.x * scale.cast(self.x.dtype());
        let h = (x.matmul(&self.get("w").t()) + self.get("b")).tanh();
        let out = h.matmul(&self.get("v").t()).sin() * self.get("s");
        let loss = (out - &self.y).square().mean() + self.get("k").cos().sum() * 0.1;
        if with_c { loss + (self.get("c") * 2.0).cos().sum() * 0.1 } else { loss }
    }

    /// Steps `from..to` as they are, telling `each` the number of each step after it.
    pub fn run(&self, opt: &dyn Optimizer, from: usize, to: usize, each: &mut dyn FnMut(usize)) {
        for t in from..to {
            self.step(opt, &scale(t), t % 3 != 2).unwrap();
            each(t + 1);
        }
    }

    /// The same, compiled: one program for the steps in which `c` has a gradient, and one for the
    /// others.
    pub fn run_compiled(&self, opt: &dyn Optimizer, to: usize, each: &mut dyn FnMut(usize)) {
        let step = |with_c: bool| move |scale: &Tensor| self.step(opt, scale, with_c);
        let (with, without) = (jit(step(true)), jit(step(false)));
        for t in 0..to {
            let step: &dyn Fn(&Tensor) -> Result<Tensor> = match t % 3 {
                2 => &|x| without.call(x),
                _ => &|x| with.call(x),
            };
            step(&scale(t)).unwrap();
            each(t + 1);
        }
        for explanation in [with.explain(), without.explain()] {
            let whys: Vec<_> = explanation.specialisations.iter().map(|s| &s.why).collect();
            assert_eq!(whys.len(), 1, "{whys:?}");
            assert_eq!(explanation.uncompiled.0, 0);
        }
    }

    fn step(&self, opt: &dyn Optimizer, scale: &Tensor, with_c: bool) -> Result<Tensor> {
        self.parameters.iter().for_each(|(_, x)| x.zero_grad());
        let loss = self.loss(scale, with_c);
        loss.backward()?;
        opt.step()?;
        Ok(loss.detach())
    }

    /// All values, in `f64`.
    pub fn values(&self) -> Vec<f64> {
        self.parameters.iter().flat_map(|(_, x)| x.to_f64_vec()).collect()
    }
}

/// What the data of step `t` are multiplied by.
pub fn scale(t: usize) -> Tensor {
    Tensor::from(1.0 + 0.2 * (t as f64).sin())
}

/// The largest difference, relative to the wanted value where that is above 1.
pub fn distance(got: &[f64], want: &[f64]) -> f64 {
    assert_eq!(got.len(), want.len());
    let each = got.iter().zip(want).map(|(a, b)| (a - b).abs() / b.abs().max(1.0));
    each.fold(0.0, |most, d| if d.is_nan() { f64::INFINITY } else { most.max(d) })
}

/// The optimiser of a recorded case on a problem.
pub fn optimizer(name: &str, case: &Value, problem: &Problem) -> Box<dyn Optimizer> {
    let group = |group: &Value| {
        let names = group["params"].as_array().unwrap().iter().map(|x| x.as_str().unwrap());
        (names.map(|x| problem.get(x).clone()).collect(), group["options"].clone())
    };
    named(name, case["groups"].as_array().unwrap().iter().map(group).collect()).unwrap()
}

/// Every recorded case: the optimiser's name, the case's, and what was recorded.
pub fn cases() -> Vec<(&'static str, String, Value)> {
    let of = |name| match recorded(name) {
        Value::Object(all) => all.into_iter().map(move |(case, value)| (name, case, value)),
        other => panic!("{other}"),
    };
    names().flat_map(of).collect()
}
