//! Whether a derivative of some statement of a program is infinite or NaN at its point. Only there
//! may one way give NaN where another has a number: it multiplies that slope by 0, which the other
//! never reaches (docs/conventions.md).
//!
//! The program runs on known values, its bodies by hand, and each statement is differentiated
//! alone, in both modes. A slope counts as infinite where both modes say so: what one mode has as a
//! number, the other has to have too.

use crate::ast::{Block, Nest, Program, Stmt};
use crate::compare::{Outcome, outcome};
use crate::interpret::{Env, call, fit_like, rows_of, weighted, weights};
use crate::ops::Draws;
use crate::ways::{Transform, Way};
use pullback::{Tensor, grad, jvp, stack};
use std::cell::Cell;
use std::sync::Arc;

thread_local! {
    /// Up to which order is looked, while it is.
    static LOOKING: Cell<usize> = const { Cell::new(0) };
    static FOUND: Cell<bool> = const { Cell::new(false) };
}

/// Whether statements are being looked at.
pub fn is_active() -> bool {
    LOOKING.get() > 0
}

/// Whether some statement on this way has a value, or a derivative of an order that the way takes,
/// that is not finite.
pub fn infinite(program: &Program, way: &Way) -> bool {
    let batch = match () {
        () if way.has(&[Transform::Vmap1, Transform::Loop1]) => vec![Transform::Loop1],
        () if way.is_batched() => vec![Transform::Loop],
        () => vec![],
    };
    let way_of_values = Way(batch);
    let f = way_of_values.function(program);
    FOUND.set(false);
    LOOKING.set((way.order() + program.order()).clamp(1, 3));
    let came = outcome(|| f(&way_of_values.inputs(program)));
    LOOKING.set(0);
    // What cannot be looked at says nothing.
    FOUND.take() || !matches!(came, Outcome::Gave(_))
}

type RunFn<'a> = Box<dyn Fn(&[Tensor]) -> Vec<Tensor> + 'a>;

/// Looks at one statement, before it runs.
pub fn check(stmt: &Stmt, env: &Env) {
    let order = LOOKING.replace(0);
    let args: Vec<Tensor> = env.all(stmt.args());
    let (start, run): (Vec<Tensor>, RunFn) = match stmt {
        Stmt::Call { row, draws, .. } => {
            (args, Box::new(move |xs| (row.run)(xs, &mut Draws::new(draws)).0))
        }
        Stmt::Write { row, target, draws, .. } => {
            let run = move |xs: &[Tensor]| {
                let y = xs[0].deep_clone();
                (row.run)(&y, &xs[1..], &mut Draws::new(draws));
                vec![y]
            };
            ([vec![env.get(*target).clone()], args].concat(), Box::new(run))
        }
        Stmt::Nest { .. } => {
            LOOKING.set(order);
            return;
        }
    };
    let at: Vec<Tensor> = start.iter().map(|x| x.detach().deep_clone()).collect();
    if is_infinite(&*run, &at, order) {
        FOUND.set(true);
    }
    LOOKING.set(order);
}

fn is_infinite(run: &dyn Fn(&[Tensor]) -> Vec<Tensor>, at: &[Tensor], order: usize) -> bool {
    let is_float = |x: &Tensor| x.dtype().is_float();
    // A function of the numbers among the operands.
    let f = |xs: &Vec<Tensor>| {
        let mut xs = xs.iter();
        let mut next = |x: &Tensor| match is_float(x) {
            true => xs.next().unwrap_or(x).clone(),
            false => x.clone(),
        };
        let all: Vec<Tensor> = at.iter().map(&mut next).collect();
        run(&all).into_iter().filter(is_float).collect::<Vec<_>>()
    };
    let xs: Vec<Tensor> = at.iter().filter(|x| is_float(x)).cloned().collect();
    let along: Vec<Tensor> = xs.iter().enumerate().map(|(k, x)| weights(x, k + 2)).collect();
    let first = grad(|xs: &Vec<Tensor>| weighted(&f(xs), 3));
    let second = grad(|xs: &Vec<Tensor>| weighted(&first(xs), 4));
    let third = grad(|xs: &Vec<Tensor>| weighted(&second(xs), 1));
    let forward = |xs: &Vec<Tensor>| jvp(f, xs, &along).1;
    let forward_second = |xs: &Vec<Tensor>| jvp(&first, xs, &along).1;
    let forward_third = |xs: &Vec<Tensor>| jvp(forward_second, xs, &along).1;
    let all_finite = |came: Outcome| match came {
        Outcome::Gave(values) => values.iter().flat_map(|v| &v.data).all(|x| x.is_finite()),
        Outcome::Refused(_) | Outcome::Panicked(_) => false,
    };
    let value = !all_finite(outcome(|| f(&xs)));
    if value || xs.is_empty() {
        return value;
    }
    let neither = |back: &dyn Fn(&Vec<Tensor>) -> Vec<Tensor>,
                   forth: &dyn Fn(&Vec<Tensor>) -> Vec<Tensor>| {
        !all_finite(outcome(|| back(&xs))) && !all_finite(outcome(|| forth(&xs)))
    };
    neither(&first, &forward)
        || order > 1 && neither(&second, &forward_second)
        || order > 2 && neither(&third, &forward_third)
}

/// Runs what takes functions with loops and branches of the host, so that every value is known.
/// `None` where it is one call of the library in any case.
///
/// What a batch or a compiled program may compute besides is looked at too: the branch that is not
/// taken, and one more iteration of a loop.
pub fn by_hand(
    how: Nest,
    f: &dyn Fn(&Vec<Tensor>) -> Vec<Tensor>,
    bodies: &[Arc<Block>],
    env: &Env,
    args: &[Tensor],
    draws: &mut Draws,
) -> Option<Vec<Tensor>> {
    let first = &args[0];
    let known = |x: &Tensor| x.detach().to_f64_vec().iter().sum::<f64>();
    let try_together = |xs: Vec<Tensor>| drop(outcome(|| f(&xs)));
    match how {
        Nest::Cond => {
            let at = draws.pick(&[0.0, 0.5, -1.0]);
            let yes = || vec![fit_like(&f(&args.to_vec())[0], first)];
            let no = || vec![fit_like(&call(&bodies[1], env, args)[0], first)];
            let taken = known(first) > at;
            drop(outcome(if taken { &no } else { &yes as &dyn Fn() -> Vec<Tensor> }));
            Some(if taken { yes() } else { no() })
        }
        Nest::Scan | Nest::ScanReverse => {
            let xs = rows_of(&args[1..]);
            let turns = xs[0].shape()[0] as isize;
            let row = |i: isize| xs.iter().map(|x| x.select_at(0, i)).collect::<Vec<_>>();
            let mut order: Vec<isize> = (0..turns).collect();
            if how == Nest::ScanReverse {
                order.reverse();
            }
            let mut s = first.clone();
            for i in order {
                s = fit_like(&f(&[vec![s], row(i)].concat())[0], first);
            }
            // The scan stacks the results of its iterations.
            None
        }
        Nest::WhileLoop | Nest::WhileLoopBounded | Nest::ForiLoop | Nest::ScanTimes => {
            let mut s = first.clone();
            for i in 0..4 {
                let xs = match how {
                    Nest::ForiLoop => {
                        vec![s.clone(), Tensor::from(0.25 * f64::from(i)).cast(s.dtype())]
                    }
                    _ => vec![s.clone()],
                };
                match outcome(|| f(&xs)) {
                    Outcome::Gave(_) => s = fit_like(&f(&xs)[0], first),
                    Outcome::Refused(_) | Outcome::Panicked(_) => break,
                }
            }
            None
        }
        Nest::AssociativeScan | Nest::AssociativeScanReverse => {
            let x = rows_of(&args[..1]).remove(0);
            let row = |i: usize| x.select_at(0, i as isize);
            (1..x.shape()[0]).for_each(|i| try_together(vec![row(i - 1), row(i)]));
            None
        }
        Nest::Vmap => {
            let xs = rows_of(args);
            let n = xs[0].shape()[0];
            let one = |i: usize| f(&xs.iter().map(|x| x.select_at(0, i as isize)).collect());
            let all: Vec<Vec<Tensor>> = (0..n).map(one).collect();
            let k = all.first()?.len();
            let joined = |j: usize| stack(&all.iter().map(|ys| &ys[j]).collect::<Vec<_>>(), 0);
            Some((0..k).map(joined).collect())
        }
        Nest::Checkpoint | Nest::NoGrad | Nest::Jit | Nest::MemoryBudget => Some(f(&args.to_vec())),
        Nest::Jacrev | Nest::Jacfwd | Nest::Jacobian | Nest::Hessian => {
            try_together(args.to_vec());
            None
        }
        Nest::Autocast
        | Nest::Grad
        | Nest::GradAux
        | Nest::Jvp
        | Nest::JvpAux
        | Nest::Vjp
        | Nest::VjpAux
        | Nest::Linearize
        | Nest::Hvp => None,
    }
}
