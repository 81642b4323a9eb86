//! Steps of optimisers, each in one pass over parameter, state and gradient.
//!
//! Composed of tensor operations, a step of Adam reads and writes memory a dozen times; here every
//! element is read once and written once. A tile of each operand, a few vectors, is loaded into
//! registers of the compute type, the update rule runs there, and what it changed is written. So a
//! step may be in place (a tile is read before it is written), and narrow floats are rounded once.

use crate::elem::{Elem, with_elem};
use crate::norm::lanes::ComputeFloat;
use crate::operand::{Sink, Source};
use crate::simd::{Isa, SimdTask, vectorised};
use crate::{Buffer, par, pointwise};
use pullback_ir::{Adam, Sgd};
use smallvec::SmallVec;

/// Elements of an operand in registers. (In tiles of 256, which are memory, a step of Adam takes
/// three times as long.)
const TILE: usize = 16;
/// Elements in a task.
const TASK: usize = 1 << 15;
/// Most operands: a parameter, three states and a gradient.
const MAX_OPERANDS: usize = 5;

/// Tiles of the parameter, the states and the gradient.
type UpdateTiles<C> = [[C; TILE]; MAX_OPERANDS];

/// The update rule of an optimiser, on the elements of a tile.
trait UpdateKernel<C>: Copy + Send + Sync {
    /// How many of the operands are changed; the gradient comes after them.
    const TARGETS: usize;
    fn step<I: Isa>(&self, tiles: &mut UpdateTiles<C>);
}

/// The new parameter, and the new momentum if there is one.
pub(crate) fn sgd(how: Sgd, x: &[Source], out: &[Sink]) {
    with_elem!(float x[0].dtype, E => {
        type C = <E as Elem>::Compute;
        let real = C::real;
        // The first momentum is the gradient, undamped.
        let first = how.remembers() && counted(x[3]) <= 1;
        let rule = Descent::<C, false> {
            rate: real(scalar(x[x.len() - 1])),
            keep: real(if first { 0.0 } else { how.momentum.0 }),
            take: real(if first { 1.0 } else { 1.0 - how.dampening.0 }),
            ahead: real(how.momentum.0),
            decay: real(how.decay.0),
            sign: real(if how.maximize { -1.0 } else { 1.0 }),
            nesterov: how.nesterov,
        };
        match how.remembers() {
            true => run::<E, _>(rule.remembering(), x, out),
            false => run::<E, _>(rule, x, out),
        }
    })
}

/// The new parameter, means and, if it is used (AMSGrad), the largest mean square.
pub(crate) fn adam(how: Adam, x: &[Source], out: &[Sink]) {
    let rate = scalar(x[x.len() - 1]);
    let step = counted(x[x.len() - 2]).clamp(i32::MIN.into(), i32::MAX.into()) as i32;
    with_elem!(float x[0].dtype, E => {
        type C = <E as Elem>::Compute;
        let real = C::real;
        // Bias correction: the means start at zero.
        let unbias = [how.beta1, how.beta2].map(|beta| 1.0 - beta.0.powi(step));
        let shrink = if how.decoupled { 1.0 - rate * how.decay.0 } else { 1.0 };
        let rule = AdamUpdate::<C, false> {
            size: real(rate / unbias[0]),
            take1: real(1.0 - how.beta1.0),
            keep2: real(how.beta2.0),
            take2: real(1.0 - how.beta2.0),
            unroot: real(1.0 / unbias[1].sqrt()),
            eps: real(how.eps.0),
            shrink: real(shrink),
            decay: real(if how.decoupled { 0.0 } else { how.decay.0 }),
            sign: real(if how.maximize { -1.0 } else { 1.0 }),
        };
        match how.amsgrad {
            true => run::<E, _>(rule.with_largest(), x, out),
            false => run::<E, _>(rule, x, out),
        }
    })
}

/// The number of the step.
fn counted(step: Source) -> i64 {
    // SAFETY: `infer` requires one element of type i64.
    unsafe { *step.ptr.cast::<i64>() }
}

/// The learning rate.
#[allow(clippy::useless_conversion)] // of one of the two compute types
fn scalar(rate: Source) -> f64 {
    with_elem!(float rate.dtype, E => {
        // SAFETY: `infer` requires one element, and this is its type.
        let rate = unsafe { *rate.ptr.cast::<E>() };
        f64::from(rate.load())
    })
}

#[derive(Clone, Copy)]
struct Descent<C, const MOMENTUM: bool> {
    rate: C,
    keep: C,
    take: C,
    ahead: C,
    decay: C,
    sign: C,
    nesterov: bool,
}

impl<C> Descent<C, false> {
    fn remembering(self) -> Descent<C, true> {
        let Descent { rate, keep, take, ahead, decay, sign, nesterov } = self;
        Descent { rate, keep, take, ahead, decay, sign, nesterov }
    }
}

impl<C: ComputeFloat, const MOMENTUM: bool> UpdateKernel<C> for Descent<C, MOMENTUM> {
    const TARGETS: usize = 1 + MOMENTUM as usize;

    #[inline(always)]
    fn step<I: Isa>(&self, tiles: &mut UpdateTiles<C>) {
        let [x, a, b, ..] = tiles;
        let decays = self.decay != C::default();
        for i in 0..TILE {
            let g = if MOMENTUM { b[i] } else { a[i] };
            let g = g * self.sign;
            // A condition instead of a product: 0·∞ is not 0.
            let g = if decays { x[i].fma::<I>(self.decay, g) } else { g };
            let by = if MOMENTUM {
                a[i] = a[i].fma::<I>(self.keep, g * self.take);
                if self.nesterov { a[i].fma::<I>(self.ahead, g) } else { a[i] }
            } else {
                g
            };
            x[i] = x[i] - by * self.rate;
        }
    }
}

#[derive(Clone, Copy)]
struct AdamUpdate<C, const LARGEST: bool> {
    size: C,
    take1: C,
    keep2: C,
    take2: C,
    unroot: C,
    eps: C,
    shrink: C,
    decay: C,
    sign: C,
}

impl<C> AdamUpdate<C, false> {
    fn with_largest(self) -> AdamUpdate<C, true> {
        let AdamUpdate { size, take1, keep2, take2, unroot, eps, shrink, decay, sign } = self;
        AdamUpdate { size, take1, keep2, take2, unroot, eps, shrink, decay, sign }
    }
}

impl<C: ComputeFloat, const LARGEST: bool> UpdateKernel<C> for AdamUpdate<C, LARGEST> {
    const TARGETS: usize = 3 + LARGEST as usize;

    #[inline(always)]
    #[allow(clippy::eq_op)]
    fn step<I: Isa>(&self, tiles: &mut UpdateTiles<C>) {
        let [x, mean, square, a, b] = tiles;
        let decays = self.decay != C::default();
        for i in 0..TILE {
            let g = if LARGEST { b[i] } else { a[i] } * self.sign;
            let g = if decays { x[i].fma::<I>(self.decay, g) } else { g };
            let old = x[i] * self.shrink;
            mean[i] = (g - mean[i]).fma::<I>(self.take1, mean[i]);
            square[i] = square[i].fma::<I>(self.keep2, g * g * self.take2);
            let most = if LARGEST {
                // NaN on either side propagates: it is not less than anything.
                a[i] = if a[i] < square[i] || square[i] != square[i] { square[i] } else { a[i] };
                a[i]
            } else {
                square[i]
            };
            x[i] = old - self.size * mean[i] / most.sqrt().fma::<I>(self.unroot, self.eps);
        }
    }
}

/// Dense operands.
struct UpdateTask<'a, E, R> {
    rule: R,
    x: [*const E; MAX_OPERANDS],
    out: &'a [Sink<'a>],
    from: usize,
    to: usize,
}

impl<E: Elem<Compute: ComputeFloat>, R: UpdateKernel<E::Compute>> SimdTask
    for UpdateTask<'_, E, R>
{
    #[inline(always)]
    fn run<I: Isa>(self) {
        let whole = self.from + (self.to - self.from) / TILE * TILE;
        for start in (self.from..whole).step_by(TILE) {
            let mut tiles: UpdateTiles<E::Compute> = [[E::Compute::default(); TILE]; MAX_OPERANDS];
            // SAFETY: all operands have elements up to `to`; a tile is read before it is written,
            // and is this task's. Whole tiles are moved by value, so that they stay in registers.
            unsafe {
                for (tile, x) in tiles.iter_mut().zip(self.x).take(R::TARGETS + 1) {
                    *tile = x.add(start).cast::<[E; TILE]>().read().map(E::load);
                }
                self.rule.step::<I>(&mut tiles);
                for (tile, out) in tiles.iter().zip(self.out).take(R::TARGETS) {
                    let out = out.ptr.cast::<E>().add(start);
                    out.cast::<[E; TILE]>().write(tile.map(E::store));
                }
            }
        }
        self.rest::<I>(whole);
    }
}

impl<E: Elem<Compute: ComputeFloat>, R: UpdateKernel<E::Compute>> UpdateTask<'_, E, R> {
    /// The elements after the last whole tile.
    #[inline(always)]
    fn rest<I: Isa>(&self, start: usize) {
        let mut tiles: UpdateTiles<E::Compute> = [[E::Compute::default(); TILE]; MAX_OPERANDS];
        // SAFETY: as above.
        unsafe {
            for (tile, x) in tiles.iter_mut().zip(self.x).take(R::TARGETS + 1) {
                let x = std::slice::from_raw_parts(x.add(start), self.to - start);
                tile.iter_mut().zip(x).for_each(|(to, from)| *to = from.load());
            }
            self.rule.step::<I>(&mut tiles);
            for (tile, out) in tiles.iter().zip(self.out) {
                let out = out.ptr.cast::<E>().add(start);
                let values = tile[..self.to - start].iter().enumerate();
                values.for_each(|(i, &value)| out.add(i).write(E::store(value)));
            }
        }
    }
}

/// The addresses of the operands.
struct OperandPointers<E>([*const E; MAX_OPERANDS]);
// SAFETY: tasks read and write disjoint tiles of what these point at.
unsafe impl<E> Sync for OperandPointers<E> {}

fn run<E: Elem<Compute: ComputeFloat>, R: UpdateKernel<E::Compute>>(
    rule: R,
    x: &[Source],
    out: &[Sink],
) {
    let len = out[0].len();
    let x = &x[..R::TARGETS + 1];
    // Operands that are not dense are copied first.
    let mut copies: SmallVec<[Buffer; MAX_OPERANDS]> = SmallVec::new();
    let mut dense = [std::ptr::null::<E>(); MAX_OPERANDS];
    for (dense, source) in dense.iter_mut().zip(x) {
        let ptr = if source.is_dense() {
            source.ptr
        } else {
            let mut copy = match Buffer::alloc(len * size_of::<E>()) {
                Ok(copy) => copy,
                Err(error) => panic!("update: {error}"),
            };
            let ptr = copy.as_mut_ptr();
            pointwise::copy(*source, Sink { ptr, shape: source.shape, dtype: source.dtype });
            copies.push(copy);
            ptr.cast_const()
        };
        *dense = ptr.cast();
    }
    let sources = OperandPointers(dense);
    par::for_each(len.div_ceil(TASK), |task| {
        let OperandPointers(x) = *{ &sources };
        let (from, to) = (task * TASK, len.min((task + 1) * TASK));
        vectorised(UpdateTask { rule, x, out: &out[..R::TARGETS], from, to });
    });
}
