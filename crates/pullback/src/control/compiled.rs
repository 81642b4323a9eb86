//! Scans that are one op in eager code too.
//!
//! Op by op, an iteration passes over memory once for every op, saves what each of them needs, and
//! adds a thin product to the gradient of every matrix that the iterations share. As one op, a scan
//! is what it is inside `jit`: its iteration is a program after all passes, its derivative a scan
//! of two halves (`split.rs`), and the gradient of a shared matrix one product at the end. The
//! iteration is traced at every call, as what it captures may change; the halves and the code are
//! kept, by the program of the iteration.

use super::split::Split;
use super::{length_of, scan_as_op, scan_at};
use crate::{Device, Tensor, Tree, events, fail, kinks, mode, trace, watch};
use pullback_ir::{Line, Op, Program, Scan, Structure};
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::rc::Rc;

/// [`scan`](crate::scan) as one op in eager code too: the body is called once, to be traced, and
/// compiled as inside [`jit`](crate::jit). What was compiled is kept for later calls with the same
/// body and shapes.
///
/// So the body must be tensor code: it reads no values, draws no numbers and has no effects.
///
/// ```
/// use pullback::{Tensor, grad, scan_compiled};
/// let xs = Tensor::from([1.0, 2.0, 3.0]);
/// let f = |w: &Tensor| {
///     let step = |s: &Tensor, x: &Tensor| ((s * w + x).tanh(), ());
///     scan_compiled(step, &Tensor::from(0.0), &xs).0
/// };
/// let g = grad(f)(&Tensor::from(0.5)).item::<f64>();
/// let h = 1e-6;
/// let [above, below] = [0.5 + h, 0.5 - h].map(|w| f(&Tensor::from(w)).item::<f64>());
/// assert!((g - (above - below) / (2.0 * h)).abs() < 1e-8);
/// ```
///
/// It runs iteration by iteration where single ops are observed (anomaly mode, recordings, watching
/// for overflow, kinks and their conventions), and on devices other than the CPU.
///
/// # Panics
/// As [`scan`](crate::scan), and if the body reads values.
#[track_caller]
pub fn scan_compiled<S: Tree, X: Tree, Y: Tree>(
    body: impl Fn(&S, &X) -> (S, Y),
    init: &S,
    xs: &X,
) -> (S, Y) {
    scan_compiled_at(false, body, init, xs, mode::user_line(Line::caller()))
}

/// [`scan_compiled`] from the last row to the first, as [`scan_reverse`](crate::scan_reverse).
///
/// ```
/// use pullback::{Tensor, scan_reverse_compiled};
/// let xs = Tensor::from([1.0, 2.0, 3.0]);
/// let step = |s: &Tensor, x: &Tensor| (s + x, s + x);
/// let (_, sums) = scan_reverse_compiled(step, &Tensor::from(0.0), &xs);
/// assert_eq!(sums.to_vec::<f64>(), [6.0, 5.0, 3.0]);
/// ```
///
/// # Panics
/// As [`scan_compiled`].
#[track_caller]
pub fn scan_reverse_compiled<S: Tree, X: Tree, Y: Tree>(
    body: impl Fn(&S, &X) -> (S, Y),
    init: &S,
    xs: &X,
) -> (S, Y) {
    scan_compiled_at(true, body, init, xs, mode::user_line(Line::caller()))
}

fn scan_compiled_at<S: Tree, X: Tree, Y: Tree>(
    reverse: bool,
    iteration: impl Fn(&S, &X) -> (S, Y),
    init: &S,
    xs: &X,
    at: Line,
) -> (S, Y) {
    let (carry, rows) = (init.leaves(), xs.leaves());
    if trace::active() || !is_one_op(carry.iter().chain(&rows)) {
        return scan_at(None, reverse, iteration, init, xs, at);
    }
    let length = fail::or_raise(length_of(None, &rows).map_err(|e| e.at(at)));
    scan_as_op(length, reverse, iteration, (init, &carry), (xs, &rows), at)
}

/// Whether nothing observes single ops, and everything is on the host.
fn is_one_op<'a>(mut operands: impl Iterator<Item = &'a Tensor>) -> bool {
    let observed = events::CONVENTIONS | events::RECORD;
    !(events::is_on(observed) || watch::is_active() || kinks::is_counting() || mode::anomaly())
        && operands.all(|x| x.device() == Device::Cpu)
}

/// Scans whose halves are kept: more than programs have.
const KEPT: usize = 128;

thread_local! {
    /// The halves of scans, by the scan, without its length, and the line.
    static HALVES: RefCell<FxHashMap<(Scan, Line), Rc<Split>>> = RefCell::default();
}

/// The halves of a scan, which are kept where they follow from the scan alone.
pub(super) fn halves(scan: &Scan, at: Line, split: impl FnOnce() -> Split) -> Rc<Split> {
    let special = trace::active() || events::mask() != 0 || mode::anomaly();
    if special || !is_tensor_code(&scan.body) {
        return Rc::new(split());
    }
    let key = (Scan { length: 0, reverse: false, ..scan.clone() }, at);
    if let Some(known) = HALVES.with_borrow(|all| all.get(&key).cloned()) {
        return known;
    }
    let made = Rc::new(split());
    if made.constants.is_empty() {
        HALVES.with_borrow_mut(|all| {
            if all.len() >= KEPT {
                all.clear();
            }
            all.insert(key, made.clone());
        });
    }
    made
}

/// Whether a program holds no functions of the user's and no collectives, at any depth.
pub(crate) fn is_tensor_code(program: &Program) -> bool {
    program.equations.iter().all(|e| {
        let inside = e.op.structure().map_or(Vec::new(), Structure::programs);
        !matches!(e.op, Op::Custom(_) | Op::Collective(_)) && inside.into_iter().all(is_tensor_code)
    })
}
