//! Collectives: what the workers of a group compute together.
//!
//! What is differentiated is the sum of the outputs of all workers: each seeds its own output, and
//! gets the gradient of its own operand. So a derivative needs the other workers too, which make
//! the same calls in the same order, as backward visits the same graph on each.

use crate::apply::{apply, try_apply};
use crate::create::known_shape;
use crate::rule::{ByHand, Derivatives, Grad, RuleContext, Tensors, Val};
use crate::{DType, Group, IntoShape, Op, Tensor, mode};
use pullback_ir::infer::args;
use pullback_ir::{Collective, CollectiveOp, Combination, Line, Shape, Spec, View};
use smallvec::smallvec;
use std::sync::Arc;

pub(crate) fn row(collective: &Collective) -> Grad {
    match collective {
        Collective::AllReduce(Combination::Sum) => {
            super::linear("`dy` summed over workers", |f, _, dy| sum(f, dy))
        }
        Collective::AllReduce(Combination::Max | Combination::Min) => Grad::ByHand(ByHand {
            uses: &[Val::In(0), Val::Out(0)],
            vjp: extreme_vjp,
            jvp: extreme_jvp,
            formula: "`dy` summed over workers, at the extreme element; shared evenly where several are",
        }),
        Collective::AllGather => {
            super::linear("`dy` summed over workers, this worker's part", |f, _, dy| {
                again(f, Collective::ReduceScatter, dy)
            })
        }
        Collective::ReduceScatter => {
            super::linear("the `dy` of all workers", |f, _, dy| again(f, Collective::AllGather, dy))
        }
        Collective::Broadcast { .. } => {
            super::linear("`dy` summed over workers, at the root", |f, _, dy| at_root(f, dy))
        }
        Collective::AllToAll => super::linear("the parts of `dy` sent back", |f, _, dy| {
            again(f, Collective::AllToAll, dy)
        }),
        Collective::Send { .. } => Grad::ByHand(ByHand {
            uses: &[],
            vjp: send_vjp,
            jvp: send_jvp,
            formula: "the `dy` of the receiver",
        }),
        Collective::Recv { .. } => Grad::ByHand(ByHand {
            uses: &[],
            vjp: recv_vjp,
            jvp: recv_jvp,
            formula: "`dy` sent to the sender",
        }),
        Collective::Barrier => Grad::Zero,
    }
}

fn of<'a>(f: &RuleContext<'a>) -> &'a CollectiveOp {
    match f.op {
        Op::Collective(of) => of,
        _ => unreachable!("called for collectives"),
    }
}

/// Another collective of the same group.
fn again(f: &RuleContext, collective: Collective, x: &Tensor) -> Tensor {
    apply(Op::Collective(Arc::new(of(f).with(collective))), &[x])
}

fn sum(f: &RuleContext, x: &Tensor) -> Tensor {
    again(f, Collective::AllReduce(Combination::Sum), x)
}

/// The sum over workers at the root, zeros elsewhere. All workers use the sum, by a choice: so that
/// its own derivative is computed by all of them too.
fn at_root(f: &RuleContext, dy: &Tensor) -> Tensor {
    let Collective::Broadcast { root } = of(f).collective else {
        unreachable!("called for Broadcast")
    };
    let here = of(f).group.communicator().rank() == root;
    let all = sum(f, dy);
    let chosen = all.new_splat(here.into(), all.shape(), DType::Bool);
    chosen.select(&all, all.new_zeros(all.shape()))
}

/// The share of each element in the extreme of all workers: ties share evenly.
fn share(f: &RuleContext) -> Tensor {
    let hit = f.x(0).eq(f.y(0)).cast(f.x(0).dtype());
    &hit / sum(f, &hit)
}

fn extreme_vjp(f: &RuleContext, dys: &Derivatives) -> Derivatives {
    smallvec![dys[0].as_ref().map(|dy| sum(f, dy) * share(f))]
}

fn extreme_jvp(f: &RuleContext, t: &Derivatives) -> Tensors {
    t[0].iter().map(|tx| sum(f, &(tx * share(f)))).collect()
}

/// The shape of a derivative on its way. It has one axis more, so that a worker that does not
/// expect one (`recv` has no derivative) does not take it for the next message.
fn marked(shape: &[usize]) -> Shape {
    with(shape, 0, 1)
}

fn shaped(x: &Tensor, shape: &[usize]) -> Tensor {
    x.apply_view(View::Reshape(Shape::from_slice(shape)))
}

fn send_derivative(f: &RuleContext, to: usize, x: &Tensor) -> Tensor {
    again(f, Collective::Send { to }, &shaped(x, &marked(x.shape())))
}

fn recv_derivative(f: &RuleContext, from: usize, like: &Spec, after: &Tensor) -> Tensor {
    let spec = Spec::on(like.device, like.dtype, marked(&like.shape));
    shaped(&again(f, Collective::Recv { from, spec }, after), &like.shape)
}

/// The other worker of a message, and what is received.
fn peer<'a>(f: &RuleContext<'a>) -> (usize, Option<&'a Spec>) {
    match &of(f).collective {
        Collective::Send { to } => (*to, None),
        Collective::Recv { from, spec } => (*from, Some(spec)),
        _ => unreachable!("called for Send and Recv"),
    }
}

fn send_vjp(f: &RuleContext, dys: &Derivatives) -> Derivatives {
    let received = |dy| recv_derivative(f, peer(f).0, f.in_spec(0), dy);
    smallvec![dys[0].as_ref().map(received)]
}

fn send_jvp(f: &RuleContext, t: &Derivatives) -> Tensors {
    t[0].iter().map(|tx| send_derivative(f, peer(f).0, tx)).collect()
}

fn recv_vjp(f: &RuleContext, dys: &Derivatives) -> Derivatives {
    let sent = |dy: &Tensor| shaped(&send_derivative(f, peer(f).0, dy), f.in_shape(0));
    smallvec![dys[0].as_ref().map(sent)]
}

fn recv_jvp(f: &RuleContext, t: &Derivatives) -> Tensors {
    let (from, spec) = peer(f);
    let like = spec.unwrap_or(f.in_spec(0));
    t[0].iter().map(|tx| recv_derivative(f, from, like, tx)).collect()
}

/// The op of a group, with the user's line.
#[track_caller]
pub(crate) fn op(group: &Group, collective: Collective) -> Op {
    let line = mode::user_line(Line::caller());
    let group = group.handle().clone();
    Op::Collective(Arc::new(CollectiveOp { collective, group, line, started: false }))
}

/// One op of each kind.
pub(crate) fn forms(group: &Group) -> impl Iterator<Item = Op> + use<> {
    let empty = Spec::cpu(DType::F32, [0]);
    let all = [
        Collective::AllReduce(Combination::Sum),
        Collective::AllReduce(Combination::Max),
        Collective::AllReduce(Combination::Min),
        Collective::AllGather,
        Collective::ReduceScatter,
        Collective::Broadcast { root: 0 },
        Collective::AllToAll,
        Collective::Send { to: 0 },
        Collective::Recv { from: 0, spec: empty },
        Collective::Barrier,
    ];
    let (group, line) = (group.handle().clone(), Line::caller());
    all.into_iter().map(move |collective| {
        let group = group.clone();
        Op::Collective(Arc::new(CollectiveOp { collective, group, line, started: false }))
    })
}

impl Tensor {
    /// The sum of the tensors of all workers of a group, element by element, on each of them.
    ///
    /// Sums are balanced trees over the ranks, so they do not depend on timing or on the engine.
    /// Derivative: `dy` summed over workers, as what is differentiated is the sum of the outputs of
    /// all workers.
    ///
    /// ```
    /// # use pullback::{Group, Tensor};
    /// let group = Group::alone();
    /// let x = Tensor::from([1.0, 2.0]);
    /// assert_eq!(x.all_reduce(&group).to_vec::<f64>(), [1.0, 2.0]); // one worker
    /// ```
    ///
    /// # Panics
    /// If it is of `bool`, the workers called different collectives, or a worker has exited.
    #[track_caller]
    #[must_use]
    pub fn all_reduce(&self, group: &Group) -> Tensor {
        apply(op(group, Collective::AllReduce(Combination::Sum)), &[self])
    }

    /// The mean of the tensors of all workers of a group, element by element, on each of them.
    ///
    /// Derivative: the mean of `dy` over workers.
    ///
    /// ```
    /// # use pullback::{Group, Tensor};
    /// let x = Tensor::from([1.0, 2.0]);
    /// assert_eq!(x.all_reduce_mean(&Group::alone()).to_vec::<f64>(), [1.0, 2.0]);
    /// ```
    ///
    /// # Panics
    /// As [`Tensor::all_reduce`], or if it is not of floats.
    #[track_caller]
    #[must_use]
    pub fn all_reduce_mean(&self, group: &Group) -> Tensor {
        if !self.dtype().is_float() {
            let message = format!("takes floats, not {}", self.spec());
            let error = crate::Error::dtype("all_reduce_mean", message).on([self.spec()]);
            return self.checked(Err(error));
        }
        self.all_reduce(group) / group.size() as f64
    }

    /// The largest element of all workers of a group at each index, on each of them; NaN if any is.
    ///
    /// Derivative: `dy` summed over workers, at the largest element; workers with the same share
    /// evenly.
    ///
    /// ```
    /// # use pullback::{Group, Tensor};
    /// let x = Tensor::from([1.0, 2.0]);
    /// assert_eq!(x.all_reduce_max(&Group::alone()).to_vec::<f64>(), [1.0, 2.0]);
    /// ```
    ///
    /// # Panics
    /// As [`Tensor::all_reduce`].
    #[track_caller]
    #[must_use]
    pub fn all_reduce_max(&self, group: &Group) -> Tensor {
        apply(op(group, Collective::AllReduce(Combination::Max)), &[self])
    }

    /// The smallest element of all workers of a group at each index, on each of them; NaN if any
    /// is.
    ///
    /// Derivative: `dy` summed over workers, at the smallest element; workers with the same share
    /// evenly.
    ///
    /// ```
    /// # use pullback::{Group, Tensor};
    /// let x = Tensor::from([1.0, 2.0]);
    /// assert_eq!(x.all_reduce_min(&Group::alone()).to_vec::<f64>(), [1.0, 2.0]);
    /// ```
    ///
    /// # Panics
    /// As [`Tensor::all_reduce`].
    #[track_caller]
    #[must_use]
    pub fn all_reduce_min(&self, group: &Group) -> Tensor {
        apply(op(group, Collective::AllReduce(Combination::Min)), &[self])
    }

    /// The tensors of all workers of a group, one after the other along an axis in the order of
    /// ranks, on each of them.
    ///
    /// Derivative: `dy` summed over workers, of which each gets its own part.
    ///
    /// ```
    /// # use pullback::{Group, Tensor};
    /// let x = Tensor::from([[1.0, 2.0]]);
    /// assert_eq!(x.all_gather(&Group::alone(), 1).shape(), [1, 2]);
    /// ```
    ///
    /// # Panics
    /// If there is no such axis, the workers called different collectives or with different shapes,
    /// or a worker has exited.
    #[track_caller]
    #[must_use]
    pub fn all_gather(&self, group: &Group, axis: isize) -> Tensor {
        let axis = self.checked(args::axis("all_gather", axis, self.spec()));
        if axis == 0 {
            return apply(op(group, Collective::AllGather), &[self]);
        }
        let single = self.reshape(&with(self.shape(), 0, 1)[..]);
        let parts = apply(op(group, Collective::AllGather), &[&single]);
        parts.joined(axis)
    }

    /// The sum of the tensors of all workers of a group, of which worker `r` gets the `r`-th of
    /// equal parts along an axis.
    ///
    /// Derivative: the `dy` of all workers, one after the other along the axis.
    ///
    /// ```
    /// # use pullback::{Group, Tensor};
    /// let x = Tensor::from([[1.0, 2.0]]);
    /// assert_eq!(x.reduce_scatter(&Group::alone(), 1).to_vec::<f64>(), [1.0, 2.0]);
    /// ```
    ///
    /// # Panics
    /// If there is no such axis, it cannot be cut into as many equal parts as there are workers,
    /// the tensor is of `bool`, the workers called different collectives, or a worker has exited.
    #[track_caller]
    #[must_use]
    pub fn reduce_scatter(&self, group: &Group, axis: isize) -> Tensor {
        let axis = self.checked(args::axis("reduce_scatter", axis, self.spec()));
        if axis == 0 {
            return apply(op(group, Collective::ReduceScatter), &[self]);
        }
        let parts = self.cut_axis("reduce_scatter", axis, group.size());
        let part = apply(op(group, Collective::ReduceScatter), &[&parts]);
        part.joined(axis)
    }

    /// The tensor of one worker of a group, the root, on each of them. The others give a tensor of
    /// the same shape and dtype, whose values are not used.
    ///
    /// Derivative: `dy` summed over workers at the root, zeros elsewhere.
    ///
    /// ```
    /// # use pullback::{Group, Tensor};
    /// let x = Tensor::from([1.0, 2.0]);
    /// assert_eq!(x.broadcast_from(&Group::alone(), 0).to_vec::<f64>(), [1.0, 2.0]);
    /// ```
    ///
    /// # Panics
    /// If there is no such worker, the workers called different collectives, or a worker has
    /// exited.
    #[track_caller]
    #[must_use]
    pub fn broadcast_from(&self, group: &Group, root: usize) -> Tensor {
        apply(op(group, Collective::Broadcast { root }), &[self])
    }

    /// Sends the `r`-th of equal parts along one axis to worker `r` of a group, and concatenates
    /// what arrives along another axis in the order of ranks.
    ///
    /// Derivative: the parts of `dy` sent back.
    ///
    /// ```
    /// # use pullback::{Group, Tensor};
    /// let x = Tensor::from([[1.0, 2.0]]);
    /// assert_eq!(x.all_to_all(&Group::alone(), 1, 0).to_vec::<f64>(), [1.0, 2.0]);
    /// ```
    ///
    /// # Panics
    /// If there is no such axis, it cannot be cut into as many equal parts as there are workers,
    /// the workers called different collectives, or a worker has exited.
    #[track_caller]
    #[must_use]
    pub fn all_to_all(&self, group: &Group, split_axis: isize, concat_axis: isize) -> Tensor {
        let split = self.checked(args::axis("all_to_all", split_axis, self.spec()));
        let concat = self.checked(args::axis("all_to_all", concat_axis, self.spec()));
        if (split, concat) == (0, 0) {
            return apply(op(group, Collective::AllToAll), &[self]);
        }
        let parts = self.cut_axis("all_to_all", split, group.size());
        apply(op(group, Collective::AllToAll), &[&parts]).joined(concat)
    }

    /// Sends a tensor to another worker of a group, which calls [`Tensor::recv`] or
    /// [`Tensor::recv_after`].
    ///
    /// The result is empty. It connects the graphs of the two workers: where its sum (0) is added
    /// to what this worker differentiates, backward receives the gradient from the other worker.
    /// Derivative: the `dy` of the receiver, which must have received by [`Tensor::recv_after`];
    /// where it has not, what it receives next is refused.
    ///
    /// ```
    /// # use pullback::{Group, Tensor, catch};
    /// let wrong = catch(|| Tensor::from([1.0]).send(&Group::alone(), 0)).unwrap_err();
    /// assert!(wrong.to_string().starts_with("send: worker 0 cannot send to itself"));
    /// ```
    ///
    /// # Panics
    /// If there is no such worker or it is this one, the workers called different collectives, or a
    /// worker has exited.
    #[track_caller]
    pub fn send(&self, group: &Group, to: usize) -> Tensor {
        apply(op(group, Collective::Send { to }), &[self])
    }

    /// Receives a tensor of this shape and dtype from another worker of a group, which calls
    /// [`Tensor::send`]. It has no history; see [`Tensor::recv_after`] for derivatives.
    ///
    /// Derivative: none.
    ///
    /// ```
    /// # use pullback::{DType, Group, Tensor, catch};
    /// let wrong = catch(|| Tensor::recv(&Group::alone(), 3, [2], DType::F32)).unwrap_err();
    /// assert!(wrong.to_string().starts_with("recv: there is no worker 3 to receive from"));
    /// ```
    ///
    /// # Panics
    /// As [`Tensor::send`].
    #[track_caller]
    #[must_use]
    pub fn recv(group: &Group, from: usize, shape: impl IntoShape, dtype: DType) -> Tensor {
        Tensor::zeros_with([0], dtype).recv_after(group, from, shape)
    }

    /// Receives a tensor of this shape, and of the dtype of `self`, from another worker of a group,
    /// which calls [`Tensor::send`]. `self` is an empty tensor; if it has a history, so has what is
    /// received, and backward sends its gradient to the other worker.
    ///
    /// Derivative: `dy` sent to the sender.
    ///
    /// ```
    /// # use pullback::{Group, Tensor, catch};
    /// let full = Tensor::from([1.0]);
    /// let wrong = catch(|| full.recv_after(&Group::alone(), 0, [2])).unwrap_err();
    /// assert!(wrong.to_string().starts_with("recv: worker 0 cannot receive from itself"));
    /// ```
    ///
    /// # Panics
    /// If `self` is not empty, or as [`Tensor::send`].
    #[track_caller]
    #[must_use]
    pub fn recv_after(&self, group: &Group, from: usize, shape: impl IntoShape) -> Tensor {
        let shape = known_shape("recv", shape);
        let spec = Spec::on(self.device(), self.dtype(), shape);
        apply(op(group, Collective::Recv { from, spec }), &[self])
    }

    /// `[size, a…, len, b…]` as `[a…, size·len, b…]`, with `axis` that of `len` behind the first.
    #[track_caller]
    fn joined(&self, axis: usize) -> Tensor {
        let mut shape = self.dims().clone();
        let size = shape.remove(0);
        shape[axis] *= size;
        self.move_axis(0, axis as isize).apply_view(View::Reshape(shape))
    }

    /// `[a…, size·len, b…]` as `[size, a…, len, b…]`.
    #[track_caller]
    fn cut_axis(&self, name: &'static str, axis: usize, size: usize) -> Tensor {
        let length = self.shape()[axis];
        if !length.is_multiple_of(size) {
            let message = format!(
                "the {length} of axis {axis} of {} cannot be cut into {size} equal parts",
                self.spec()
            );
            return self.checked(Err(crate::Error::shape(name, message).on([self.spec()])));
        }
        let mut shape = with(self.shape(), axis, size);
        shape[axis + 1] = length / size;
        self.apply_view(View::Reshape(shape)).move_axis(axis as isize, 0)
    }
}

/// The shape with an axis of this length inserted.
fn with(shape: &[usize], axis: usize, length: usize) -> Shape {
    let mut shape = Shape::from_slice(shape);
    shape.insert(axis, length);
    shape
}

/// Waits until every worker is there: also an equation of a program, where there is a trace.
#[track_caller]
pub(crate) fn barrier(group: &Group) -> crate::Result<()> {
    try_apply(op(group, Collective::Barrier), &[]).map(|_| ())
}
