//! The ways to run a program: compositions of transforms, written as they are nested.
//! `jit.grad.vmap` is `jit(grad(vmap(f)))`.
//!
//! Each has a plain way to compare with: without what changes nothing (`jit`, `checkpoint`, `cond`,
//! budgets), and with a loop instead of `vmap` and `scan`.

use crate::ast::{EXAMPLES, Program};
use crate::budget;
use crate::interpret::{Func, instance, weighted, weights};
use crate::rng::Rng;
use crate::switches::Switches;
use pullback::{
    DType, Tensor, autocast, cat, checkpoint, cond, grad, jit, jvp, linearize, no_grad, scan,
    stack, vmap,
};
use std::fmt;
use std::sync::Arc;

/// Which weights reduce results to a loss.
pub const LOSS: usize = 0;
/// Which numbers are the direction of derivatives.
pub const DIRECTION: usize = 5;

/// One transform of a function of lists of tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transform {
    /// The gradients of a weighted sum of the results.
    Grad,
    /// The same, weighted by the direction: of `grad` it is the Hessian times the direction.
    Pull,
    /// The derivative along the direction.
    Jvp,
    /// Many examples at once.
    Vmap,
    /// Many examples of the first input at once; the others are shared.
    Vmap1,
    /// The examples one after the other, by `scan`.
    Scan,
    /// The examples one after the other, by a loop of the host.
    Loop,
    /// The same with shared inputs.
    Loop1,
    /// Compiled.
    Jit,
    /// Compiled for all numbers of examples, after calls with other numbers of them.
    Dynamic,
    /// Compiled, within the least bytes that will do.
    JitBudget,
    /// Computed again for backward.
    Checkpoint,
    /// As a branch.
    Cond,
    /// Eagerly, within the bytes that are kept at least.
    Budget,
    /// By `requires_grad` and `backward`, as `Grad`.
    Backward,
    /// The same, where the function marks the very argument that it is given.
    Marks,
    /// By `linearize`, as `Jvp`.
    Linearize,
    /// Inside `autocast`, which the plain way is too.
    Autocast,
}

use Transform::*;

const NAMES: [(Transform, &str); 18] = [
    (Grad, "grad"),
    (Pull, "pull"),
    (Jvp, "jvp"),
    (Vmap, "vmap"),
    (Vmap1, "vmap1"),
    (Scan, "scan"),
    (Loop, "loop"),
    (Loop1, "loop1"),
    (Jit, "jit"),
    (Dynamic, "dynamic"),
    (JitBudget, "jitbudget"),
    (Checkpoint, "checkpoint"),
    (Cond, "cond"),
    (Budget, "budget"),
    (Backward, "backward"),
    (Marks, "marks"),
    (Linearize, "linearize"),
    (Autocast, "autocast"),
];

/// A composition of transforms, the outermost first.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Way(pub Vec<Transform>);

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("plain");
        }
        let name = |step: &Transform| NAMES.iter().find(|n| n.0 == *step).map_or("?", |n| n.1);
        f.write_str(&self.0.iter().map(name).collect::<Vec<_>>().join("."))
    }
}

impl std::str::FromStr for Way {
    type Err = String;

    fn from_str(text: &str) -> Result<Way, String> {
        if text == "plain" {
            return Ok(Way::default());
        }
        let step = |name: &str| {
            let found = NAMES.iter().find(|n| n.1 == name).map(|n| n.0);
            found.ok_or_else(|| format!("`{name}` is no transform of {}", all_names()))
        };
        text.split('.').map(step).collect::<Result<_, _>>().map(Way)
    }
}

fn all_names() -> String {
    NAMES.map(|n| n.1).join(", ")
}

impl Way {
    /// From its text, which is right.
    pub fn of(text: &str) -> Way {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    /// The plain way to the same numbers.
    pub fn plain(&self) -> Way {
        let plain = |step: &Transform| match step {
            Jit | Dynamic | JitBudget | Checkpoint | Cond | Budget => None,
            Vmap | Scan => Some(Loop),
            Vmap1 => Some(Loop1),
            Backward | Marks => Some(Grad),
            Linearize => Some(Jvp),
            Grad | Pull | Jvp | Loop | Loop1 | Autocast => Some(*step),
        };
        Way(self.0.iter().filter_map(plain).collect())
    }

    /// How often it differentiates.
    pub fn order(&self) -> usize {
        self.0
            .iter()
            .filter(|s| matches!(s, Grad | Pull | Jvp | Backward | Marks | Linearize))
            .count()
    }

    /// Whether it runs backward somewhere.
    pub fn runs_backward(&self) -> bool {
        self.has(&[Grad, Pull, Backward, Marks, Linearize])
    }

    /// The dtype of the fewest digits that some value has on this way.
    pub fn coarsest(&self, program: &Program) -> DType {
        // Only `f32` is cast.
        match program.coarsest() {
            DType::F32 if self.has(&[Autocast]) => DType::BF16,
            dtype => dtype,
        }
    }

    /// Whether it is compiled.
    pub fn is_compiled(&self) -> bool {
        self.has(&[Jit, Dynamic, JitBudget])
    }

    /// Whether one of these is in it.
    pub fn has(&self, steps: &[Transform]) -> bool {
        self.0.iter().any(|s| steps.contains(s))
    }

    /// Whether it takes all examples.
    pub fn is_batched(&self) -> bool {
        self.has(&[Vmap, Vmap1, Scan, Loop, Loop1])
    }

    /// Whether it makes a body of the program, which is differentiated where it is replayed.
    pub fn has_body(&self) -> bool {
        self.has(&[Vmap, Vmap1, Scan, Cond])
    }

    /// Whether it is left out for this program: it takes too long, or triggers a known defect.
    pub fn is_left_out(&self, program: &Program, switches: Switches) -> bool {
        use crate::ast::Nest;
        let checkpoints = self.has(&[Checkpoint]) || program.nests(|n| n == Nest::Checkpoint);
        let differentiates = program.nests(Nest::differentiates);
        let deep = self.order() + usize::from(differentiates) > 1;
        // Backward of a traced `while_loop` runs it again piece by piece, and each further order
        // does so for each piece: minutes, even for a few iterations.
        let traced = self.has_body() || self.is_compiled();
        // One that is bounded is a scan of a branch, and takes as long from the third order on;
        // `linearize` is a derivative of a derivative.
        let twice = self.0.iter().filter(|s| **s == Linearize).count();
        let orders = self.order() + twice + program.order();
        // Programs of third derivatives have thousands of equations, for which the least budget
        // takes long to find.
        let slow = self.has(&[JitBudget]) && orders > 2
            || traced
                && (deep && program.nests(|n| n == Nest::WhileLoop)
                    || orders > 2 && program.nests(|n| n == Nest::WhileLoopBounded));
        // What is not linear in the cotangent sees the sum of all examples where the operand is
        // shared.
        let shared = self.has(&[Vmap1]) && program.has(crate::ops::ONE_WAY);
        // State is written once for each call: what runs the function in a loop, as a body or twice
        // to know its bytes has no plain way to compare it with.
        let stateful = !program.state.is_empty()
            && self.has(&[Vmap, Vmap1, Scan, Cond, Dynamic, JitBudget, Budget]);
        slow || shared
            || stateful
            || !switches.writes_in_bodies && program.writes() && (self.has_body() || deep)
            || !switches.derivatives_and_checkpoints && checkpoints && (deep || differentiates)
            || !switches.no_grad_forward && self.has(&[Jvp]) && program.nests(|n| n == Nest::NoGrad)
    }

    /// What it takes.
    pub fn inputs(&self, program: &Program) -> Vec<Tensor> {
        if self.is_batched() { program.stacked() } else { program.first() }
    }

    /// The function.
    pub fn function(&self, program: &Program) -> Func {
        self.instance(program).0
    }

    /// The function, and the tensors that it writes to besides.
    pub fn instance(&self, program: &Program) -> (Func, Vec<Tensor>) {
        let (f, state) = instance(program);
        (self.of_function(f), state)
    }

    /// The way to run any function.
    pub fn of_function(&self, f: Func) -> Func {
        self.0.iter().rev().fold(f, |f, step| apply(*step, f))
    }

    /// Some compositions, at random.
    pub fn random(rng: &mut Rng) -> Way {
        let mut steps: Vec<Transform> = Vec::new();
        let pool = [
            Grad, Grad, Jvp, Pull, Vmap, Vmap, Vmap1, Scan, Jit, Jit, Checkpoint, Cond, Budget,
            JitBudget, Linearize, Autocast,
        ];
        let depth = 1 + rng.below(4);
        let batches = [Vmap, Vmap1, Scan];
        let identities = [Jit, JitBudget, Checkpoint, Cond, Budget, Autocast];
        while steps.len() < depth {
            let step = *rng.pick(&pool);
            let way = Way(steps.clone());
            let twice = identities.contains(&step) && way.has(&[step])
                || batches.contains(&step) && way.has(&batches)
                || matches!(step, Grad | Jvp | Pull | Linearize) && way.order() > 1
                // A budget of the tape has no tape where it is traced.
                || step == Budget && (way.has_body() || way.is_compiled());
            if !twice {
                steps.push(step);
            }
        }
        // Outermost alone: what needs leaves of its own, or calls with other numbers of examples.
        let way = Way(steps);
        match rng.below(8) {
            0 if way.is_batched() && !way.has(&[Jit, Budget]) => {
                Way([vec![Dynamic], way.0].concat())
            }
            1 if way.order() < 2 => Way([vec![Backward], way.0].concat()),
            2 if way.order() < 2 => Way([vec![Marks], way.0].concat()),
            3 if way.order() < 2 => Way([vec![Jit, Marks], way.0].concat()),
            _ => way,
        }
    }
}

/// The ways that every program goes; a few random ones are added.
pub const ALWAYS: &[&str] =
    &["jit", "vmap", "backward", "jit.grad", "vmap.grad", "grad.vmap", "grad.checkpoint"];

fn apply(step: Transform, f: Func) -> Func {
    match step {
        Grad => Arc::new(move |xs| grad(|xs: &Vec<Tensor>| weighted(&f(xs), LOSS))(xs)),
        Pull => Arc::new(move |xs| grad(|xs: &Vec<Tensor>| weighted(&f(xs), DIRECTION))(xs)),
        Jvp => Arc::new(move |xs| jvp(|xs: &Vec<Tensor>| floats(f(xs)), xs, &direction(xs)).1),
        Vmap => Arc::new(move |xs| vmap(|xs: &Vec<Tensor>| f(xs), 0, 0)(xs)),
        Vmap1 => Arc::new(move |xs| {
            let axes: Vec<Option<isize>> = (0..xs.len()).map(|k| (k == 0).then_some(0)).collect();
            vmap(|xs: &Vec<Tensor>| f(&shared(xs)), axes, 0)(xs)
        }),
        Scan => Arc::new(move |xs| {
            let turn = |n: &Tensor, xs: &Vec<Tensor>| (n + 1.0, f(xs));
            scan(turn, &Tensor::from(0.0), xs).1
        }),
        Loop => Arc::new(move |xs| {
            let one = |i| f(&xs.iter().map(|x| x.select_at(0, i)).collect());
            stacked((0..EXAMPLES as isize).map(one).collect())
        }),
        Loop1 => Arc::new(move |xs| {
            let one = |i| {
                let row = |(k, x): (usize, &Tensor)| x.select_at(0, if k == 0 { i } else { 0 });
                f(&xs.iter().enumerate().map(row).collect())
            };
            stacked((0..EXAMPLES as isize).map(one).collect())
        }),
        Jit => {
            let compiled = jit(move |xs: &Vec<Tensor>| f(xs));
            Arc::new(move |xs| compiled.of(xs))
        }
        Dynamic => {
            let compiled = jit(move |xs: &Vec<Tensor>| f(xs)).dynamic(0, 64);
            Arc::new(move |xs| {
                // The first length is compiled, the second makes the program for all, and the third
                // is filled in.
                let fewer: Vec<Tensor> = xs.iter().map(|x| x.narrow(0, 0, 2)).collect();
                let more = xs.iter().zip(&fewer).map(|(x, y)| cat(&[x, y], 0)).collect();
                compiled.of(&fewer);
                compiled.of(&more);
                compiled.of(xs)
            })
        }
        JitBudget => budget::compiled(f),
        Checkpoint => Arc::new(move |xs| {
            let f = f.clone();
            checkpoint(move |xs: &Vec<Tensor>| f(xs), xs)
        }),
        Cond => Arc::new(move |xs| {
            let yes = |xs: &Vec<Tensor>| f(xs);
            let no = |xs: &Vec<Tensor>| {
                let turned = |y: Tensor| if y.dtype().is_float() { y * 2.0 } else { y };
                f(xs).into_iter().map(turned).collect()
            };
            cond(&xs[0].sum().lt(1e30), yes, no, xs)
        }),
        Budget => Arc::new(move |xs| budget::eager(true, || f(xs))),
        Autocast => Arc::new(move |xs| autocast(DType::BF16, || f(xs))),
        Linearize => Arc::new(move |xs| {
            let (_, push) = linearize(|xs: &Vec<Tensor>| floats(f(xs)), xs);
            push(&direction(xs))
        }),
        Backward => Arc::new(move |xs| {
            let fresh = |x: &Tensor| x.detach().deep_clone().requires_grad();
            backward(&f, &xs.iter().map(fresh).collect())
        }),
        Marks => Arc::new(move |xs| {
            let leaves: Vec<Tensor> = xs.iter().map(|x| x.clone().requires_grad()).collect();
            // Gradients add up from call to call.
            leaves.iter().for_each(Tensor::zero_grad);
            backward(&f, &leaves)
        }),
    }
}

/// The gradients of leaves, by `backward`.
fn backward(f: &Func, leaves: &Vec<Tensor>) -> Vec<Tensor> {
    let loss = weighted(&f(leaves), LOSS);
    if loss.is_tracked() {
        loss.backward().unwrap_or_else(|error| pullback::raise(error));
    }
    let slope = |x: &Tensor| x.grad().unwrap_or_else(|| no_grad(|| x.zeros_like()));
    leaves.iter().map(slope).collect()
}

fn direction(xs: &[Tensor]) -> Vec<Tensor> {
    xs.iter().enumerate().map(|(k, x)| weights(x, k + DIRECTION)).collect()
}

/// Of stacked inputs, the first as it is and one example of the others.
fn shared(xs: &[Tensor]) -> Vec<Tensor> {
    let one = |(k, x): (usize, &Tensor)| if k == 0 { x.clone() } else { x.select_at(0, 0) };
    xs.iter().enumerate().map(one).collect()
}

fn floats(ys: Vec<Tensor>) -> Vec<Tensor> {
    ys.into_iter().filter(|y| y.dtype().is_float()).collect()
}

fn stacked(examples: Vec<Vec<Tensor>>) -> Vec<Tensor> {
    let count = examples[0].len();
    (0..count).map(|k| stack(&examples.iter().map(|ys| &ys[k]).collect::<Vec<_>>(), 0)).collect()
}
