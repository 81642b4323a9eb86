//! Runs a program on tensors, through the methods that a user would call.

use crate::ast::{Block, Nest, Program, Stmt, Var};
use crate::ops::{Draws, fit, lines};
use crate::slopes;
use pullback::{
    DType, Error, ErrorKind, Tensor, associative_scan, associative_scan_reverse, autocast, catch,
    checkpoint, cond, fori_loop, grad, grad_aux, hessian, hvp, jacfwd, jacobian, jacrev, jit, jvp,
    jvp_aux, linearize, no_grad, raise, scan, scan_reverse, scan_times, vjp, vjp_aux, vmap,
    while_loop, while_loop_bounded,
};
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

/// A function of lists of tensors.
pub type Func = Arc<dyn Fn(&Vec<Tensor>) -> Vec<Tensor> + Send + Sync>;

/// The values of variables.
#[derive(Clone, Default)]
pub struct Env(Vec<Option<Tensor>>);

impl Env {
    /// The value of a variable.
    pub fn get(&self, var: Var) -> &Tensor {
        match self.0.get(var) {
            Some(Some(x)) => x,
            // A shrunk program may lack one: it is refused in every way of running it.
            _ => raise(Error::new(ErrorKind::Argument, "fuzz", format!("v{var} is not defined"))),
        }
    }

    /// The value of a variable, if it has one.
    pub fn find(&self, var: Var) -> Option<Tensor> {
        self.0.get(var).cloned().flatten()
    }

    /// Gives a variable its value.
    pub fn set(&mut self, var: Var, x: Tensor) {
        if self.0.len() <= var {
            self.0.resize(var + 1, None);
        }
        self.0[var] = Some(x);
    }

    pub(crate) fn all(&self, vars: &[Var]) -> Vec<Tensor> {
        vars.iter().map(|&v| self.get(v).clone()).collect()
    }
}

/// The function that a program is, with state of its own.
pub fn function(program: &Program) -> Func {
    instance(program).0
}

/// The function that a program is, and the tensors that it captures and writes to.
pub fn instance(program: &Program) -> (Func, Vec<Tensor>) {
    let (body, mut env) = (program.body.clone(), Env::default());
    let mut state = Vec::new();
    for (var, value) in &program.state {
        let value = value.first(program.dtype);
        state.push(value.clone());
        env.set(*var, value);
    }
    (Arc::new(move |xs: &Vec<Tensor>| call(&body, &env, xs)), state)
}

/// Runs a block on these arguments.
pub fn call(block: &Block, env: &Env, args: &[Tensor]) -> Vec<Tensor> {
    let mut env = env.clone();
    for (&param, x) in block.params.iter().zip(args) {
        env.set(param, x.clone());
    }
    for stmt in &block.stmts {
        step(stmt, &mut env);
    }
    env.all(&block.results)
}

/// What is known of a statement that ran.
#[derive(Clone, Debug, Default)]
pub struct StatementRecord {
    /// What its plain numbers were.
    pub said: Vec<String>,
    /// The specs of its results.
    pub specs: Vec<String>,
    /// Whether some result was not finite, of those that could be read.
    pub not_finite: bool,
}

thread_local! {
    static NOTES: RefCell<Option<HashMap<usize, StatementRecord>>> = const { RefCell::new(None) };
}

/// Runs something, and gives what is known of each statement that ran, by its address.
pub fn noting<R>(f: impl FnOnce() -> R) -> (R, HashMap<usize, StatementRecord>) {
    NOTES.set(Some(HashMap::new()));
    let result = f();
    (result, NOTES.take().unwrap_or_default())
}

/// Runs one statement.
pub fn step(stmt: &Stmt, env: &mut Env) {
    if slopes::is_active() {
        slopes::check(stmt, env);
    }
    let said = perform(stmt, env);
    NOTES.with_borrow_mut(|notes| {
        if let Some(notes) = notes {
            let outs: Vec<Tensor> = stmt.outs().iter().filter_map(|o| env.find(o.0)).collect();
            let strange = |x: &Tensor| {
                catch(|| x.to_f64_vec()).is_ok_and(|all| all.iter().any(|v| !v.is_finite()))
            };
            let not_finite = outs.iter().any(strange);
            let specs = outs.iter().map(|x| x.spec().to_string()).collect();
            let fresh = StatementRecord { said, specs, not_finite: false };
            notes.entry(crate::print::key(stmt)).or_insert(fresh).not_finite |= not_finite;
        }
    });
}

fn perform(stmt: &Stmt, env: &mut Env) -> Vec<String> {
    let args = env.all(stmt.args());
    match stmt {
        Stmt::Call { row, draws, outs, .. } => {
            let mut draws = Draws::new(draws);
            let results = (row.run)(&args, &mut draws).0;
            define(outs, results, env);
            draws.said
        }
        Stmt::Write { row, target, draws, detached, .. } => {
            let mut draws = Draws::new(draws);
            if *detached {
                let args: Vec<Tensor> = args.iter().map(Tensor::detach).collect();
                no_grad(|| (row.run)(env.get(*target), &args, &mut draws));
            } else {
                (row.run)(env.get(*target), &args, &mut draws);
            }
            draws.said
        }
        Stmt::Nest { how, bodies, draws, outs, .. } => {
            let mut draws = Draws::new(draws);
            let results = nest(*how, bodies, env, args, &mut draws);
            define(outs, results, env);
            draws.said
        }
    }
}

fn define(outs: &[(Var, crate::ops::ArgKind)], results: Vec<Tensor>, env: &mut Env) {
    for (&(var, _), x) in outs.iter().zip(results) {
        env.set(var, x);
    }
}

/// A number for each element that is neither 0 nor the same everywhere.
pub fn weights(like: &Tensor, salt: usize) -> Tensor {
    let weight = |i: usize| 0.6 + 0.5 * (1.7 * (i + 3 * salt) as f64 + 0.4).sin();
    let values: Vec<f64> = (0..like.len()).map(weight).collect();
    Tensor::from_vec(values, like.shape()).cast(like.dtype())
}

/// The weighted sum of all numbers in a list.
pub fn weighted(ys: &[Tensor], salt: usize) -> Tensor {
    let floats = ys.iter().filter(|y| y.dtype().is_float());
    let sums = floats.enumerate().map(|(k, y)| (y * weights(y, k + salt)).sum());
    sums.reduce(|a, b| a + b).unwrap_or_else(|| Tensor::from(0.0))
}

/// Arguments as lists of rows of one length.
pub(crate) fn rows_of(xs: &[Tensor]) -> Vec<Tensor> {
    let xs: Vec<Tensor> = xs.iter().map(lines).collect();
    let n = xs.iter().map(|x| x.shape()[0]).min().unwrap_or(0);
    xs.iter().map(|x| x.narrow(0, 0, n)).collect()
}

/// The numbers among some tensors.
fn floats(xs: Vec<Tensor>) -> Vec<Tensor> {
    xs.into_iter().filter(|x| x.dtype().is_float()).collect()
}

/// A few numbers of a result, for Jacobians.
fn few(ys: &[Tensor]) -> Tensor {
    fit(&ys[0], &[ys[0].len().min(3)])
}

/// The elements of a tensor in the shape and dtype of another.
pub(crate) fn fit_like(x: &Tensor, like: &Tensor) -> Tensor {
    fit(x, like.shape()).cast(like.dtype())
}

fn nest(
    how: Nest,
    bodies: &[Arc<Block>],
    env: &Env,
    args: Vec<Tensor>,
    draws: &mut Draws,
) -> Vec<Tensor> {
    let body = bodies[0].clone();
    let outer = env.clone();
    let f = move |xs: &Vec<Tensor>| call(&body, &outer, xs);
    let first = args[0].clone();
    if slopes::is_active()
        && let Some(results) = slopes::by_hand(how, &f, bodies, env, &args, draws)
    {
        return results;
    }
    match how {
        Nest::Cond => {
            let other = &bodies[1];
            let at = draws.pick(&[0.0, 0.5, -1.0]);
            let yes = |xs: &Vec<Tensor>| vec![fit_like(&f(xs)[0], &first)];
            let no = |xs: &Vec<Tensor>| vec![fit_like(&call(other, env, xs)[0], &first)];
            cond(&first.sum().gt(at), yes, no, &args)
        }
        Nest::Scan | Nest::ScanReverse => {
            let xs = rows_of(&args[1..]);
            let turn = |s: &Tensor, x: &Vec<Tensor>| {
                let mut ys = f(&[std::slice::from_ref(s), x].concat());
                let next = fit_like(&ys.remove(0), &first);
                (next, ys)
            };
            let (last, ys) = match how {
                Nest::Scan => scan(turn, &first, &xs),
                _ => scan_reverse(turn, &first, &xs),
            };
            [vec![last], ys].concat()
        }
        Nest::WhileLoop | Nest::WhileLoopBounded => {
            let (turns, most) = (draws.from_to(0, 3) as i64, draws.pick(&[1e3, 2.0]));
            let test = |(i, s): &(Tensor, Tensor)| i.lt(turns).logical_and(s.abs().sum().lt(most));
            let turn =
                |(i, s): &(Tensor, Tensor)| (i + 1, fit_like(&f(&vec![s.clone()])[0], &first));
            let init = (Tensor::from(0i64), first.clone());
            let last = match how {
                Nest::WhileLoop => while_loop(test, turn, &init),
                _ => while_loop_bounded(4, test, turn, &init),
            };
            vec![last.1]
        }
        Nest::ForiLoop => {
            let turns = draws.from_to(0, 3) as i64;
            let turn = |i: &Tensor, s: &Tensor| {
                let i = i.cast(s.dtype()) * 0.25;
                fit_like(&f(&vec![s.clone(), i])[0], &first)
            };
            vec![fori_loop(0, turns, turn, &first)]
        }
        Nest::ScanTimes => {
            let turns = draws.from_to(0, 3);
            let turn = |s: &Tensor, _: &()| {
                let mut ys = f(&vec![s.clone()]);
                (fit_like(&ys.remove(0), &first), ys)
            };
            let (last, ys) = scan_times(turns, turn, &first);
            [vec![last], ys].concat()
        }
        Nest::AssociativeScan | Nest::AssociativeScanReverse => {
            let x = rows_of(&args[..1]).remove(0);
            let join = |a: &Tensor, b: &Tensor| fit_like(&f(&vec![a.clone(), b.clone()])[0], a);
            vec![match how {
                Nest::AssociativeScan => associative_scan(join, &x, 0),
                _ => associative_scan_reverse(join, &x, 0),
            }]
        }
        Nest::Autocast => autocast(draws.pick(&[DType::BF16, DType::F16]), || f(&args)),
        Nest::Checkpoint => {
            let f: Func = Arc::new(f);
            checkpoint(move |xs: &Vec<Tensor>| f(xs), &args)
        }
        Nest::NoGrad => no_grad(|| f(&args)),
        Nest::Vmap => vmap(f, 0, 0)(&rows_of(&args)),
        Nest::Grad => grad(|xs: &Vec<Tensor>| weighted(&f(xs), 1))(&args),
        Nest::GradAux => {
            let both = |xs: &Vec<Tensor>| {
                let ys = f(xs);
                (weighted(&ys, 1), ys)
            };
            let (grads, aux) = grad_aux(both)(&args);
            [grads, aux].concat()
        }
        Nest::Jvp => {
            let (ys, dys) = jvp(|xs: &Vec<Tensor>| floats(f(xs)), &args, &turned(&args));
            [dys, ys].concat()
        }
        Nest::JvpAux => {
            let both = |xs: &Vec<Tensor>| {
                let ys = floats(f(xs));
                (weighted(&ys, 1), ys)
            };
            let (y, dy, aux) = jvp_aux(both, &args, &turned(&args));
            [vec![dy, y], aux].concat()
        }
        Nest::Linearize => {
            let (ys, push) = linearize(|xs: &Vec<Tensor>| floats(f(xs)), &args);
            [push(&turned(&args)), ys].concat()
        }
        Nest::Hvp => hvp(|xs: &Vec<Tensor>| weighted(&f(xs), 2), &args, &turned(&args)),
        Nest::VjpAux => {
            let both = |xs: &Vec<Tensor>| {
                let ys = floats(f(xs));
                (ys[0].clone(), ys)
            };
            let (y, pull, aux) = vjp_aux(both, &args);
            [pull(&fit_like(&first, &y)), aux].concat()
        }
        Nest::Jacobian => vec![jacobian(|x: &Tensor| few(&f(&vec![x.clone()])))(&first)],
        Nest::Vjp => {
            let (ys, pull) = vjp(|xs: &Vec<Tensor>| floats(f(xs)), &args);
            let cotangents = ys.iter().map(|y| fit_like(&first, y)).collect();
            [pull(&cotangents), ys].concat()
        }
        Nest::Jacrev => vec![jacrev(|x: &Tensor| few(&f(&vec![x.clone()])))(&first)],
        Nest::Jacfwd => vec![jacfwd(|x: &Tensor| few(&f(&vec![x.clone()])))(&first)],
        Nest::Hessian => {
            let x = fit(&first, &[first.len().min(3)]);
            vec![hessian(|x: &Tensor| weighted(&f(&vec![x.clone()]), 2))(&x)]
        }
        Nest::Jit => jit(f).of(&args),
        Nest::MemoryBudget => {
            let tight = draws.flag();
            crate::budget::eager(tight, || f(&args))
        }
    }
}

/// A direction for each argument: the next one, in its shape.
fn turned(args: &[Tensor]) -> Vec<Tensor> {
    let k = args.len();
    (0..k).map(|i| fit_like(&args[(i + 1) % k], &args[i])).collect()
}
