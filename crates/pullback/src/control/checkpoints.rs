//! The reverse derivative of a `while` loop whose number of iterations is not known in advance.
//!
//! Backward visits the iterations in reverse and needs the state before each of them. Their number
//! is not known, and programs allocate their memory before they run: so there is no stack to push
//! them on. Instead *checkpoints* are recorded: a table of fixed length holds the state of every
//! iteration for as long as they fit; when it is full every second one is dropped, and from then on
//! only every second (fourth, eighth, …) state is recorded.
//!
//! ```text
//! iterations   0 1 2 3 4 5 6 7 8 9      a table of 4, after ten iterations:
//! checkpoints  0       4       8        every = 4
//! ```
//!
//! Backward processes the iterations in *segments* of the table's length, the last segment first. A
//! segment starts from the nearest checkpoint before it, runs forward to its own first iteration,
//! records the state of each of its iterations and then visits them in reverse. If all iterations
//! fit into the table there is one segment, the checkpoints themselves. Otherwise each iteration is
//! recomputed once, and where there are several segments between two checkpoints, a few times.
//!
//! A table has 1024 rows, or fewer where the state is larger than a kilobyte: it is filled and
//! copied even for a loop of three iterations, and should then cost little. Under `vmap` every
//! example has its own.
//!
//! All of it is loops and indexing made of tensor operations, so it batches, nests and
//! differentiates again.

use super::split::{floats, input_specs};
use super::while_loop;
use crate::create::number_on_device_of;
use crate::rule::{Derivatives, RuleContext};
use crate::trace::evaluate;
use crate::{DType, Spec, Tensor, custom, vjp};
use pullback_ir::Program;
use smallvec::SmallVec;

/// The largest and smallest number of checkpoints. Few in this crate's unit tests, so that tables
/// fill up.
const SLOTS: (usize, usize) = if cfg!(test) { (16, 16) } else { (1024, 16) };

/// Bytes that a table of more than the smallest number of checkpoints may take, for one example: a
/// table that is mostly empty should cost little.
const TABLE_BYTES: usize = 1 << 20;

/// A loop, as the op holds it.
pub(super) struct WhileLoop<'a> {
    pub test: &'a Program,
    pub iteration: &'a Program,
    pub shared: usize,
}

/// The gradients of a loop's operands; `cotangents` are those of the floats of its state.
pub(super) fn vjp_while(l: &WhileLoop, ctx: &RuleContext, cotangents: Vec<Tensor>) -> Derivatives {
    let specs = input_specs(l.iteration);
    let operands: Vec<Tensor> = (0..specs.len()).map(|i| ctx.x(i).clone()).collect();
    let (given, first) = operands.split_at(l.shared);
    let with = |state: &[Tensor]| [given, state].concat();
    let going = |state: &[Tensor]| evaluate(l.test, &with(state)).swap_remove(0);
    let step = |state: &[Tensor]| evaluate(l.iteration, &with(state));
    let slots = slots(&specs[l.shared..]);
    let (iterations, every, table) = record(&going, &step, first, slots);

    let (shared, carried) = (floats(&specs[..l.shared]), floats(&specs[l.shared..]));
    let sums: Vec<Tensor> =
        shared.iter().map(|&i| given[i].zeros_like_splat().contiguous()).collect();
    let float_in: Vec<usize> =
        shared.iter().copied().chain(carried.iter().map(|i| i + l.shared)).collect();
    // Backward of one iteration: from the state before it and the cotangents after it.
    let back = |state: &[Tensor], (d, sums): (&Vec<Tensor>, &Vec<Tensor>)| {
        let all = with(state);
        let point: Vec<Tensor> = float_in.iter().map(|&i| all[i].clone()).collect();
        let run = |point: &Vec<Tensor>| {
            let mut all = all.clone();
            float_in.iter().zip(point).for_each(|(&i, p)| all[i] = p.clone());
            let made = custom::with_captures_cut(|| evaluate(l.iteration, &all));
            carried.iter().map(|&k| made[k].clone()).collect::<Vec<Tensor>>()
        };
        let mut found = vjp(run, &point).1(d);
        let before = found.split_off(shared.len());
        let sums = sums.iter().zip(&found).map(|(sum, g)| sum + g).collect::<Vec<Tensor>>();
        (before, sums)
    };

    let segments = (&iterations + (slots - 1) as i64).floor_div(slots as i64);
    let (_, d, sums) = while_loop(
        |(segment, _, _): &(Tensor, Vec<Tensor>, Vec<Tensor>)| segment.gt(0),
        |(segment, d, sums)| {
            let segment = segment - 1;
            let start = &segment * slots as i64;
            let count = (&iterations - &start).minimum(slots as i64);
            let nearest = start.floor_div(&every);
            let ahead = &start - &nearest * &every;
            let (_, state) = while_loop(
                |(left, _): &(Tensor, Vec<Tensor>)| left.gt(0),
                |(left, state)| (left - 1, step(state)),
                &(ahead, at(&table, &nearest)),
            );
            // Where every iteration has a checkpoint, the checkpoints are the segment.
            let missing = every.eq(1).select(0i64, &count);
            let (_, _, states) = while_loop(
                |(i, _, _): &(Tensor, Vec<Tensor>, Vec<Tensor>)| i.lt(&missing),
                |(i, state, states)| (i + 1, step(state), put(states, i, state)),
                &(count.new_tensor(0i64), state, table.clone()),
            );
            let (_, d, sums) = while_loop(
                |(i, _, _): &(Tensor, Vec<Tensor>, Vec<Tensor>)| i.gt(0),
                |(i, d, sums)| {
                    let i = i - 1;
                    let (d, sums) = back(&at(&states, &i), (d, sums));
                    (i, d, sums)
                },
                &(count, d.clone(), sums.clone()),
            );
            (segment, d, sums)
        },
        &(segments, cotangents, sums),
    );
    let mut out: Derivatives = SmallVec::from_elem(None, specs.len());
    for (&i, g) in float_in.iter().zip(sums.into_iter().chain(d)) {
        out[i] = Some(g);
    }
    out
}

/// How many checkpoints of such a state the table holds: a power of two, so that segments begin at
/// a checkpoint.
fn slots(state: &[Spec]) -> usize {
    let bytes: usize = state.iter().map(Spec::bytes).sum();
    let fit = TABLE_BYTES / bytes.max(1);
    1 << fit.clamp(SLOTS.1, SLOTS.0).ilog2()
}

/// Runs the loop and records checkpoints: the number of iterations, the number of iterations
/// between two checkpoints, and the states.
fn record(
    going: &dyn Fn(&[Tensor]) -> Tensor,
    step: &dyn Fn(&[Tensor]) -> Vec<Tensor>,
    first: &[Tensor],
    slots: usize,
) -> (Tensor, Tensor, Vec<Tensor>) {
    /// The state, the iterations so far, the next row, the iterations until it is written, and the
    /// table.
    type CheckpointState = (Vec<Tensor>, Tensor, Tensor, Tensor, Vec<Tensor>);
    // The last row takes the states that are not recorded.
    let empty = |x: &Tensor| {
        let shape: Vec<usize> =
            std::iter::once(slots + 1).chain(x.shape().iter().copied()).collect();
        Tensor::zeros_of(&x.spec().with_shape(&shape[..]))
    };
    let (none, slots) = (number_on_device_of(first, 0i64), slots as i64);
    let table = first.iter().map(empty).collect();
    let start: CheckpointState = (first.to_vec(), none.clone(), none.clone(), none.clone(), table);
    let ((_, iterations, _, _, table), every) = while_loop(
        |((state, ..), _): &(CheckpointState, Tensor)| going(state),
        |(walk, every)| {
            let is_full = |row: &Tensor, wait: &Tensor| row.eq(slots).logical_and(wait.eq(0));
            let (state, iterations, row, wait, table) = while_loop(
                |(state, _, row, wait, _): &CheckpointState| {
                    going(state).logical_and(is_full(row, wait).logical_not())
                },
                |(state, iterations, row, wait, table)| {
                    let due = wait.eq(0);
                    let table = put(table, &due.select(row, slots), state);
                    let wait = due.select(every - 1, wait - 1);
                    (step(state), iterations + 1, row + due.cast(DType::I64), wait, table)
                },
                walk,
            );
            // Every second row, if the loop continues: a loop of at most one iteration, as a `cond`
            // would copy what it does not change.
            let full = is_full(&row, &wait).logical_and(going(&state));
            let order = (row.new_iota(slots as usize + 1) * 2).minimum(slots);
            let thin = |(_, rows): &(Tensor, Vec<Tensor>)| {
                let thinned = rows.iter().map(|rows| rows.index_select(0, &order)).collect();
                (order.new_tensor(false), thinned)
            };
            let (_, table) = while_loop(
                |(full, _): &(Tensor, Vec<Tensor>)| full.clone(),
                thin,
                &(full.clone(), table),
            );
            let row = full.select(slots / 2, row);
            ((state, iterations, row, wait, table), full.select(every * 2, every))
        },
        &(start, number_on_device_of(first, 1i64)),
    );
    (iterations, every, table)
}

/// The state in a row of a table.
fn at(table: &[Tensor], row: &Tensor) -> Vec<Tensor> {
    let row = row.reshape([1]);
    table.iter().map(|rows| rows.index_select(0, &row).reshape(&rows.shape()[1..])).collect()
}

/// A table with a state in one of its rows.
fn put(table: &[Tensor], row: &Tensor, state: &[Tensor]) -> Vec<Tensor> {
    let row = row.reshape([1]);
    let write = |(rows, x): (&Tensor, &Tensor)| rows.index_copy(0, &row, &x.unsqueeze(0));
    table.iter().zip(state).map(write).collect()
}

#[cfg(test)]
mod tests {
    use crate::{DType, Tensor, grad, hessian, jit, jvp, vmap, while_loop};

    /// x ← sin(x) + w·x/2 for `iterations` iterations; with integers in the state.
    fn f(iterations: i64) -> impl Fn(&(Tensor, Tensor)) -> Tensor {
        move |(x, w)| {
            let (_, x) = while_loop(
                |(i, _): &(Tensor, Tensor)| i.lt(iterations),
                |(i, x)| (i + 1, x.sin() + w * x * 0.5),
                &(Tensor::from(0i64), x.clone()),
            );
            (x * w).sum()
        }
    }

    fn point() -> (Tensor, Tensor) {
        (Tensor::from([0.3, -1.2, 2.0]), Tensor::from([0.9, 1.1, 0.4]))
    }

    fn assert_near(a: &[f64], b: &[f64], what: &str) {
        let near = |(x, y): (&f64, &f64)| (x - y).abs() <= 1e-12 * (1.0 + x.abs().max(y.abs()));
        assert!(a.len() == b.len() && a.iter().zip(b).all(near), "{what}: {a:?} and {b:?}");
    }

    /// Here the table holds 16 states: 17 iterations halve it, 300 leave segments without a
    /// checkpoint of their own.
    #[test]
    fn compiled_gradients_are_those_of_the_tape() {
        for iterations in [0, 1, 2, 15, 16, 17, 31, 32, 33, 64, 100, 300] {
            let (x, w) = grad(f(iterations))(&point());
            let (a, b) = jit(grad(f(iterations))).of(&point());
            assert_near(&x.to_vec(), &a.to_vec(), &format!("x after {iterations} iterations"));
            assert_near(&w.to_vec(), &b.to_vec(), &format!("w after {iterations} iterations"));
        }
    }

    #[test]
    fn examples_may_iterate_unequally_often() {
        let f = |x: &Tensor| while_loop(|x: &Tensor| x.lt(50.0), |x| x * 1.3 + x.sin(), x).square();
        let xs = Tensor::from([0.4, 60.0, 3.0, 49.0, 1e-3]);
        let together = jit(vmap(grad(f), 0, 0)).of(&xs);
        let one_by_one: Vec<f64> =
            xs.to_vec::<f64>().iter().map(|&x| grad(f)(&Tensor::from(x)).item()).collect();
        assert_near(&together.to_vec(), &one_by_one, "lane by lane");
    }

    #[test]
    fn second_derivatives_use_the_checkpoints() {
        let f = |x: &Tensor| f(20)(&(x.clone(), Tensor::from([0.9, 1.1, 0.4])));
        let x = point().0;
        let eager = hessian(f)(&x);
        assert_near(&jit(hessian(f)).of(&x).to_vec(), &eager.to_vec(), "hessian");
        let t = Tensor::from([1.0, 0.5, -2.0]);
        let forward = jit(|x: &Tensor| jvp(grad(f), x, &t).1).of(&x);
        assert_near(&forward.to_vec(), &eager.matmul(&t).to_vec(), "forward over reverse");
        let reverse = jit(grad(|x: &Tensor| (grad(f)(x) * &t).sum())).of(&x);
        assert_near(&reverse.to_vec(), &eager.matmul(&t).to_vec(), "reverse over reverse");
    }

    #[test]
    fn a_value_that_some_iterations_use_gets_its_gradient() {
        // w counts only while x is small; whether it does is decided by a `bool` in the state.
        let f = |w: &Tensor| {
            let start = (Tensor::from(0.1), Tensor::from(true));
            let (x, _) = while_loop(
                |(x, _): &(Tensor, Tensor)| x.lt(3.0),
                |(x, small)| {
                    let next = small.select(x + w, x * 1.5);
                    (next.clone(), next.lt(1.0))
                },
                &start,
            );
            x
        };
        let w = Tensor::from(0.3);
        assert_near(&jit(grad(f)).of(&w).to_vec(), &grad(f)(&w).to_vec(), "dw");
        assert_eq!(jit(grad(f)).of(&w).dtype(), DType::F64);
    }
}
