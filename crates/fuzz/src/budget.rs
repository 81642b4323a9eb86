//! Budgets that are tight and satisfiable: from what a function keeps without one.

use crate::interpret::Func;
use pullback::{Error, ErrorKind, MemoryBudget, Tensor, catch, jit, raise};
use std::cell::Cell;
use std::sync::{Arc, OnceLock};

/// What budgets made a run do, so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BudgetCounts {
    /// Scopes and compiled functions with a budget.
    pub budgets: usize,
    /// Of those, how many dropped a value, or repeat an equation.
    pub tight: usize,
}

thread_local! {
    static WORK: Cell<BudgetCounts> = const { Cell::new(BudgetCounts { budgets: 0, tight: 0 }) };
}

/// What budgets did on this thread since the last call.
pub fn take_work() -> BudgetCounts {
    WORK.take()
}

fn note(tight: bool) {
    let work = WORK.get();
    WORK.set(BudgetCounts { budgets: work.budgets + 1, tight: work.tight + usize::from(tight) });
}

/// Whether what runs now is traced: then nothing that an op gives can be read.
pub fn is_traced() -> bool {
    catch(|| (Tensor::from(1.0) + 1.0).to_f64_vec()).is_err()
}

/// Runs `f` within the least bytes that it says would do, or, if not `tight`, halfway to what it
/// keeps without a budget. A scope inside a trace is refused, as documented (docs/memory.md): there
/// it is none.
pub fn eager(tight: bool, f: impl Fn() -> Vec<Tensor>) -> Vec<Tensor> {
    if is_traced() {
        return f();
    }
    let free = MemoryBudget::new(usize::MAX);
    drop(free.run(&f));
    let used = free.used();
    let bytes = if tight { used.least } else { used.least.midpoint(used.without) };
    let budget = MemoryBudget::new(bytes);
    let results = match catch(|| budget.run(&f)) {
        // The least is a bound from below: what is pinned together with what comes later is not
        // known before.
        Err(error) if error.kind() == ErrorKind::Memory && bytes < used.without => {
            MemoryBudget::new(used.without).run(&f)
        }
        Err(error) => raise(error),
        Ok(results) => results,
    };
    note(budget.used().dropped > 0);
    results
}

/// The function compiled within the least bytes that it can be compiled for: a budget of none is
/// refused with that number, which then has to do.
pub fn compiled(f: Func) -> Func {
    let made: OnceLock<Func> = OnceLock::new();
    Arc::new(move |xs: &Vec<Tensor>| {
        let run = made.get_or_init(|| {
            let function = |f: Func| move |xs: &Vec<Tensor>| f(xs);
            let bytes = match jit(function(f.clone())).memory_budget(0).compile(xs) {
                Err(error) if error.kind() == ErrorKind::Memory => least(&error),
                // It goes op by op, or cannot be compiled at all: the call says so.
                Ok(()) | Err(_) => 0,
            };
            let compiled = jit(function(f.clone())).memory_budget(bytes);
            if compiled.compile(xs).is_ok() {
                let made = compiled.explain().specialisations;
                note(made.iter().any(|one| one.budget.as_ref().is_some_and(|b| b.again > 0)));
            }
            Arc::new(move |xs: &Vec<Tensor>| compiled.of(xs))
        });
        run(xs)
    })
}

/// The number in "it takes at least …".
fn least(error: &Error) -> usize {
    let text = error.to_string();
    let number = text.split("at least ").nth(1).map(|rest| {
        rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse::<usize>()
    });
    match number {
        Some(Ok(bytes)) => bytes,
        _ => panic!("a refused budget that does not say what would do: {text}"),
    }
}
