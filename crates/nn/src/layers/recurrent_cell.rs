//! One step of a recurrence, and its weights.

use super::recurrent::{RecurrentConfig, check_dtypes};
use crate::init::uniform_;
use crate::module_scope;
use crate::refuse::{demand, refuse};
use pullback::{
    Error, Path, Tensor, Tree, scan, scan_compiled, scan_reverse, scan_reverse_compiled,
};
use std::fmt;

/// The step of a kind of recurrent layer. [`ElmanStep`](crate::ElmanStep),
/// [`GruStep`](crate::GruStep) and [`LstmStep`](crate::LstmStep) implement it.
///
/// ```
/// use pullback_nn::{LstmCell, LstmStep, Recurrence, RecurrentCell};
/// fn gates<K: Recurrence>(cell: &RecurrentCell<K>) -> usize {
///     cell.weight_ih.shape()[0] / cell.weight_hh.shape()[1]
/// }
/// assert_eq!(gates(&LstmCell::new(3, 5)), LstmStep::GATES);
/// ```
pub trait Recurrence: Clone + fmt::Debug {
    /// The state that is carried from step to step: the output, and for an LSTM its cell.
    type State: Tree;

    /// The number of gates: the weights have this many times the hidden size as rows.
    const GATES: usize;

    /// Whether both biases are simply added, so that they can be added for all steps at once.
    const ADDS_BIASES: bool;

    /// Whether outputs can be projected.
    const PROJECTS: bool;

    /// Whether a step is tensor code alone: it reads no values, draws no numbers and has no
    /// effects. Then a sequence is one op in eager code too, which [`scan_compiled`] makes of it.
    const COMPILES: bool = false;

    /// The name of the layer.
    const LAYER: &'static str;

    /// The name of the cell.
    const CELL: &'static str;

    /// States of zeros on the device of `x`: `hidden` numbers inside, `output` numbers in the
    /// output.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{LstmStep, Recurrence};
    /// let (h, c) = LstmStep::zeros(2, 5, 4, &Tensor::ones([2, 3]));
    /// assert_eq!((h.shape(), c.shape()), (&[2, 4][..], &[2, 5][..]));
    /// ```
    ///
    /// # Panics
    /// If the states are larger than memory.
    fn zeros(batch: usize, hidden: usize, output: usize, x: &Tensor) -> Self::State;

    /// The output, which is part of the state.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{LstmStep, Recurrence};
    /// let state = (Tensor::ones([2, 5]), Tensor::zeros([2, 5]));
    /// assert!(LstmStep::output(&state).is_same(&state.0));
    /// ```
    ///
    /// # Panics
    /// Never.
    fn output(state: &Self::State) -> &Tensor;

    /// The next state, from the input's projection `[batch, gates · hidden]`, the projection of the
    /// previous output (of the same shape), and the state. `projection` is the weight that makes an
    /// LSTM's output smaller.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{GruStep, Recurrence};
    /// let gates = Tensor::zeros([2, 3 * 5]);
    /// let h = GruStep.step(&gates, &gates, &Tensor::ones([2, 5]), None);
    /// // All gates are sigmoid(0): half of the old state, and half of tanh(0).
    /// assert_eq!(h.to_vec::<f32>(), [0.5; 10]);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not fit.
    fn step(
        &self,
        input_projection: &Tensor,
        recurred: &Tensor,
        state: &Self::State,
        projection: Option<&Tensor>,
    ) -> Self::State;
}

/// One step of a recurrence: [`RnnCell`](crate::RnnCell), [`GruCell`](crate::GruCell) and
/// [`LstmCell`](crate::LstmCell) are this, with different steps.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{GruCell, GruStep, RecurrentCell};
/// let cell: RecurrentCell<GruStep> = GruCell::new(3, 5);
/// assert_eq!(cell.forward(&Tensor::ones([2, 3]), None).shape(), [2, 5]);
/// ```
#[derive(Clone)]
pub struct RecurrentCell<K: Recurrence> {
    /// The input weights, `[gates · hidden, inputs]`.
    pub weight_ih: Tensor,
    /// The recurrent weights, `[gates · hidden, outputs]`.
    pub weight_hh: Tensor,
    /// The bias of the input's projection.
    pub bias_ih: Option<Tensor>,
    /// The bias of the previous output's projection.
    pub bias_hh: Option<Tensor>,
    /// The projection of an LSTM's outputs.
    pub weight_hr: Option<Tensor>,
    kind: K,
}

impl<K: Recurrence> RecurrentCell<K> {
    /// With weights that are uniform between ±1/√hidden, as PyTorch has them.
    #[track_caller]
    pub(super) fn build(config: RecurrentConfig, kind: K) -> RecurrentCell<K> {
        let RecurrentConfig { inputs, hidden, bias, projected, .. } = config;
        if projected.is_some() && !K::PROJECTS {
            let error = Error::argument(K::LAYER, "has no projection (`proj_size`)");
            refuse(error.hint("an LSTM has one"));
        }
        demand(hidden > 0 && projected != Some(0), K::LAYER, || {
            "takes at least one number in its state, and in its projection".into()
        });
        let (rows, outputs) = (K::GATES * hidden, projected.unwrap_or(hidden));
        let bound = (hidden as f64).powf(-0.5);
        let draw = |shape: &[usize]| {
            let weight = Tensor::zeros(shape).requires_grad();
            uniform_(&weight, -bound, bound);
            weight
        };
        RecurrentCell {
            weight_ih: draw(&[rows, inputs]),
            weight_hh: draw(&[rows, outputs]),
            bias_ih: bias.then(|| draw(&[rows])),
            bias_hh: bias.then(|| draw(&[rows])),
            weight_hr: projected.map(|size| draw(&[size, hidden])),
            kind,
        }
    }

    /// The state after a step with inputs `[batch, inputs]` (or `[inputs]`), from this state or
    /// from zeros.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::LstmCell;
    /// let cell = LstmCell::new(3, 5);
    /// let mut state = None;
    /// for x in [Tensor::ones([2, 3]), Tensor::zeros([2, 3])] {
    ///     state = Some(cell.forward(&x, state.as_ref()));
    /// }
    /// let (h, c) = state.unwrap();
    /// assert_eq!((h.shape(), c.shape()), (&[2, 5][..], &[2, 5][..]));
    /// ```
    ///
    /// # Panics
    /// If shapes or dtypes do not fit; the message names the operands and the caller's line.
    #[track_caller]
    #[must_use]
    pub fn forward(&self, x: &Tensor, state: Option<&K::State>) -> K::State {
        let scope = module_scope(self);
        let inputs = self.weight_ih.shape()[1];
        if !(1..=2).contains(&x.rank()) || x.shape()[x.rank() - 1] != inputs {
            let message = format!("takes [batch, {inputs}] or [{inputs}], not {}", x.spec());
            refuse(Error::shape(K::CELL, message).on([x.spec()]));
        }
        let single = x.rank() == 1;
        let rows = if single { x.unsqueeze(0) } else { x.clone() };
        let zeros = self.zeros(rows.shape()[0], &rows);
        let mut start = Vec::new();
        if let Some(state) = state {
            for (x, like) in state.leaves().iter().zip(zeros.leaves()) {
                check_dtypes(K::CELL, &rows, x);
                let with_batch = if single && x.rank() == 1 { x.unsqueeze(0) } else { x.clone() };
                if with_batch.shape() != like.shape() {
                    let want = &like.shape()[usize::from(single)..];
                    let message = format!("takes states {want:?}, not {}", x.spec());
                    refuse(Error::shape(K::CELL, message).on([x.spec()]));
                }
                start.push(with_batch);
            }
        }
        let input_projection = self.input_projection(&rows);
        let next = self.step(&input_projection, &zeros.with_leaves(&start), &self.weight_hh.t());
        let next = match single {
            true => next.map(&mut |x| x.squeeze_axis(0)),
            false => next,
        };
        let y = K::output(&next).clone();
        scope.output_with_macs(y, |_| rows.shape()[0] * self.products());
        next
    }

    /// How many products a step has, for each of a batch.
    pub(super) fn products(&self) -> usize {
        let weights = self.named().into_iter().filter(|(_, x)| x.rank() == 2);
        weights.map(|(_, x)| x.len()).sum()
    }

    /// The names and weights that are there.
    pub(super) fn named(&self) -> Vec<(&'static str, &Tensor)> {
        let all = [
            ("weight_ih", Some(&self.weight_ih)),
            ("weight_hh", Some(&self.weight_hh)),
            ("bias_ih", self.bias_ih.as_ref()),
            ("bias_hh", self.bias_hh.as_ref()),
            ("weight_hr", self.weight_hr.as_ref()),
        ];
        all.into_iter().filter_map(|(name, x)| Some((name, x?))).collect()
    }

    pub(super) fn zeros(&self, batch: usize, x: &Tensor) -> K::State {
        let hidden = self.weight_ih.shape()[0] / K::GATES;
        K::zeros(batch, hidden, self.weight_hh.shape()[1], x)
    }

    /// What inputs give to the gates, and as much of the biases as can be added to it.
    #[track_caller]
    fn input_projection(&self, x: &Tensor) -> Tensor {
        match (&self.bias_ih, &self.bias_hh) {
            (Some(a), Some(b)) if K::ADDS_BIASES => x.linear(&self.weight_ih, Some(&(a + b))),
            (bias, _) => x.linear(&self.weight_ih, bias.as_ref()),
        }
    }

    fn step(&self, input_projection: &Tensor, state: &K::State, weight: &Tensor) -> K::State {
        let recurred = K::output(state).matmul(weight);
        let recurred = match &self.bias_hh {
            Some(bias) if !K::ADDS_BIASES => recurred + bias,
            _ => recurred,
        };
        self.kind.step(input_projection, &recurred, state, self.weight_hr.as_ref())
    }

    /// Through a sequence `[steps, batch, inputs]`: the last state, and the outputs at every step.
    /// Where `running` (`[steps, batch, 1]`) is false the state stays, and the output is zero.
    #[track_caller]
    pub(super) fn over(
        &self,
        x: &Tensor,
        start: &K::State,
        running: Option<&Tensor>,
        reverse: bool,
    ) -> (K::State, Tensor) {
        let (input_projection, weight) = (self.input_projection(x), self.weight_hh.t());
        let plain = |state: &K::State, input_projection: &Tensor| {
            let next = self.step(input_projection, state, &weight);
            let y = K::output(&next).clone();
            (next, y)
        };
        let Some(running) = running else {
            return sequence::<K, _, _, _>(plain, start, &input_projection, reverse);
        };
        let masked = |state: &K::State, (input_projection, on): &(Tensor, Tensor)| {
            let next = self.step(input_projection, state, &weight);
            let y = on.select(K::output(&next), 0.0);
            let before = state.leaves();
            let mut old = before.iter();
            let kept = next.map(&mut |new| match old.next() {
                Some(old) => on.select(new, old),
                None => new.clone(),
            });
            (kept, y)
        };
        let rows = (input_projection, running.clone());
        sequence::<K, _, _, _>(masked, start, &rows, reverse)
    }
}

/// A scan, as one op where the steps of the kind allow it.
#[track_caller]
fn sequence<K: Recurrence, S: Tree, X: Tree, Y: Tree>(
    step: impl Fn(&S, &X) -> (S, Y),
    start: &S,
    rows: &X,
    reverse: bool,
) -> (S, Y) {
    match (K::COMPILES, reverse) {
        (true, true) => scan_reverse_compiled(step, start, rows),
        (true, false) => scan_compiled(step, start, rows),
        (false, true) => scan_reverse(step, start, rows),
        (false, false) => scan(step, start, rows),
    }
}

impl<K: Recurrence> Tree for RecurrentCell<K> {
    fn visit(&self, path: &mut Path, f: &mut dyn FnMut(&Path, &Tensor)) {
        path.kind(K::CELL);
        path.note(&self.kind);
        for (name, x) in self.named() {
            path.scope(name, |path| f(path, x));
        }
    }

    fn map(&self, f: &mut dyn FnMut(&Tensor) -> Tensor) -> RecurrentCell<K> {
        RecurrentCell {
            weight_ih: f(&self.weight_ih),
            weight_hh: f(&self.weight_hh),
            bias_ih: self.bias_ih.as_ref().map(&mut *f),
            bias_hh: self.bias_hh.as_ref().map(&mut *f),
            weight_hr: self.weight_hr.as_ref().map(&mut *f),
            kind: self.kind.clone(),
        }
    }
}
