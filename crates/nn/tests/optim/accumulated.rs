//! `Accumulate` inside a compiled step is the eager one, bit by bit.

use pullback::{Tensor, jit, no_grad};
use pullback_nn::optim::{Accumulate, Adam, Optimizer, Sgd, UpdateRule, clip_grad_norm_};

/// Parameters and optimiser state after 11 parts of 3, and then a flush.
fn run<R: UpdateRule + Clone + 'static>(rule: &R, compiled: bool, clip: bool) -> Vec<Vec<f64>> {
    let x = Tensor::from([1.0, -2.0, 0.5]).requires_grad();
    let unused = Tensor::from([7.0]).requires_grad();
    let opt = rule.clone().over([x.clone(), unused.clone()]).unwrap();
    let parts = Accumulate::new(opt, 3).unwrap();
    let step = jit(|t: &Tensor| {
        let loss = (&x * t).sin().sum();
        parts.backward_then(&loss, |opt| {
            if clip {
                clip_grad_norm_(&opt.groups()[0], 0.05)?;
            }
            Ok(())
        })
    });
    for i in 0..11 {
        let t = Tensor::from(1.0 + f64::from(i));
        let stepped = match compiled {
            true => step.call(&t).unwrap(),
            false => step.eager(&t),
        };
        assert_eq!(stepped.item::<bool>(), i % 3 == 2, "part {i}");
        assert_eq!(parts.seen().unwrap(), (i + 1) as usize % 3);
    }
    if compiled {
        // Without gradients at first, and with them.
        assert!(step.explain().specialisations.len() <= 2);
    }
    let flush = jit(|_: &Tensor| parts.flush().map(|()| Tensor::from(0.0)));
    for _ in 0..2 {
        let nothing = Tensor::from(0.0);
        match compiled {
            true => drop(flush.call(&nothing).unwrap()),
            false => drop(flush.eager(&nothing)),
        }
    }
    assert_eq!(parts.seen().unwrap(), 0);
    assert_eq!(unused.to_vec::<f64>(), [7.0]);
    let state = parts.optimizer().named_state().into_iter().map(|(_, s)| s.to_f64_vec());
    no_grad(|| [x.to_vec::<f64>()].into_iter().chain(state).collect())
}

#[test]
fn compiled_accumulation_is_the_eager_one() {
    for clip in [false, true] {
        let sgd = Sgd { lr: 0.1, momentum: 0.9, ..Sgd::default() };
        assert_eq!(run(&sgd, true, clip), run(&sgd, false, clip));
        let adam = Adam { lr: 0.1, ..Adam::default() };
        assert_eq!(run(&adam, true, clip), run(&adam, false, clip));
    }
}
