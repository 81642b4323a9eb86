//! What the recurrent layers have in common: several layers, both directions, lengths, states,
//! names.
//!
//! A layer of one type ([`Rnn`](crate::Rnn), [`Gru`](crate::Gru), [`Lstm`](crate::Lstm)) defines
//! only one step, as a [`Recurrence`]. The rest is here, once:
//!
//! - The inputs of all steps go through one product; only the product with the state is inside the
//!   [`scan`], of which `jit` makes one equation.
//! - Directions and layers are [`RecurrentCell`]s, in PyTorch's order and under its names:
//!   `weight_ih_l0`, `weight_hh_l0_reverse`.
//! - Sequences of different lengths share a batch: a step beyond a sequence's end leaves its state
//!   as it was and gives zeros. Read backwards, the state therefore starts at the last step of
//!   each.

use super::dropout::probability;
use super::recurrent_cell::{Recurrence, RecurrentCell};
use crate::module_scope;
use crate::refuse::{demand, refuse, try_reserve};
use pullback::{DType, Error, Flag, Path, Tensor, Tree, cat, next_key_on, stack};

/// The options of recurrent layers: see [`RecurrentConfig::lstm`], [`RecurrentConfig::gru`] and
/// [`RecurrentConfig::rnn`].
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{Module, RecurrentConfig};
/// let lstm = RecurrentConfig::new(3, 5).num_layers(2).bidirectional().lstm();
/// let (y, (h, c)) = lstm.forward(&Tensor::ones([7, 4, 3]));
/// assert_eq!(
///     (y.shape(), h.shape(), c.shape()),
///     (&[7, 4, 10][..], &[4, 4, 5][..], &[4, 4, 5][..])
/// );
/// assert_eq!(lstm.named_parameters()[4].0, "weight_ih_l0_reverse");
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct RecurrentConfig {
    pub(super) inputs: usize,
    pub(super) hidden: usize,
    layers: usize,
    both: bool,
    pub(super) bias: bool,
    dropout: f64,
    batch_first: bool,
    pub(super) projected: Option<usize>,
}

impl RecurrentConfig {
    /// One layer, one direction, with biases; sequences are `[steps, batch, inputs]`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::RecurrentConfig;
    /// let (y, _) = RecurrentConfig::new(3, 5).gru().forward(&Tensor::ones([7, 2, 3]));
    /// assert_eq!(y.shape(), [7, 2, 5]);
    /// ```
    pub fn new(input_size: usize, hidden_size: usize) -> RecurrentConfig {
        RecurrentConfig {
            inputs: input_size,
            hidden: hidden_size,
            layers: 1,
            both: false,
            bias: true,
            dropout: 0.0,
            batch_first: false,
            projected: None,
        }
    }

    /// The number of layers, each of which takes the outputs of the previous one.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::RecurrentConfig;
    /// let (y, h) =
    ///     RecurrentConfig::new(3, 5).num_layers(2).gru().forward(&Tensor::ones([7, 2, 3]));
    /// assert_eq!((y.shape(), h.shape()), (&[7, 2, 5][..], &[2, 2, 5][..]));
    /// ```
    pub fn num_layers(self, layers: usize) -> RecurrentConfig {
        RecurrentConfig { layers, ..self }
    }

    /// Each layer also runs over the sequence backwards; the outputs of both directions are
    /// concatenated, forward first.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::RecurrentConfig;
    /// let (y, h) =
    ///     RecurrentConfig::new(3, 5).bidirectional().gru().forward(&Tensor::ones([7, 2, 3]));
    /// assert_eq!((y.shape(), h.shape()), (&[7, 2, 10][..], &[2, 2, 5][..]));
    /// ```
    pub fn bidirectional(self) -> RecurrentConfig {
        RecurrentConfig { both: true, ..self }
    }

    /// Without biases.
    ///
    /// ```
    /// # use pullback_nn::{Module, RecurrentConfig};
    /// assert_eq!(RecurrentConfig::new(3, 5).without_bias().rnn().parameters().len(), 2);
    /// ```
    #[doc(alias = "bias")]
    pub fn without_bias(self) -> RecurrentConfig {
        RecurrentConfig { bias: false, ..self }
    }

    /// The probability with which outputs of all layers but the last are dropped in training; 0 by
    /// default.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::RecurrentConfig;
    /// let gru = RecurrentConfig::new(3, 5).num_layers(2).dropout(0.2).gru();
    /// assert_eq!(gru.forward(&Tensor::ones([7, 2, 3])).0.shape(), [7, 2, 5]);
    /// ```
    pub fn dropout(self, p: f64) -> RecurrentConfig {
        RecurrentConfig { dropout: p, ..self }
    }

    /// Sequences are `[batch, steps, inputs]`. States are `[layers, batch, hidden]` in any case.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::RecurrentConfig;
    /// let (y, h) =
    ///     RecurrentConfig::new(3, 5).batch_first().gru().forward(&Tensor::ones([2, 7, 3]));
    /// assert_eq!((y.shape(), h.shape()), (&[2, 7, 5][..], &[1, 2, 5][..]));
    /// ```
    pub fn batch_first(self) -> RecurrentConfig {
        RecurrentConfig { batch_first: true, ..self }
    }

    /// The number of features to which an LSTM's outputs, and the outputs that are fed back, are
    /// projected.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::RecurrentConfig;
    /// let (y, (h, c)) =
    ///     RecurrentConfig::new(3, 5).proj_size(2).lstm().forward(&Tensor::ones([7, 4, 3]));
    /// assert_eq!(
    ///     (y.shape(), h.shape(), c.shape()),
    ///     (&[7, 4, 2][..], &[1, 4, 2][..], &[1, 4, 5][..])
    /// );
    /// ```
    pub fn proj_size(self, size: usize) -> RecurrentConfig {
        RecurrentConfig { projected: Some(size), ..self }
    }

    #[track_caller]
    pub(super) fn build<K: Recurrence>(self, kind: K) -> Recurrent<K> {
        demand(self.layers > 0, K::LAYER, || "takes at least one layer".into());
        probability(K::LAYER, self.dropout);
        let directions = if self.both { 2 } else { 1 };
        let output = self.projected.unwrap_or(self.hidden);
        let inputs = |layer| if layer == 0 { self.inputs } else { output * directions };
        let count = self.layers.saturating_mul(directions);
        let mut cells = try_reserve(K::LAYER, count);
        for i in 0..count {
            let config = RecurrentConfig { inputs: inputs(i / directions), ..self };
            cells.push(RecurrentCell::build(config, kind.clone()));
        }
        Recurrent { cells, config: self, training: Flag::new(true) }
    }
}

/// Layers of one recurrence: [`Rnn`](crate::Rnn), [`Gru`](crate::Gru) and [`Lstm`](crate::Lstm) are
/// this, with different steps.
///
/// Sequences are `[steps, batch, inputs]`, or `[batch, steps, inputs]` with
/// [`RecurrentConfig::batch_first`], or `[steps, inputs]` without a batch. States are `[layers ·
/// directions, batch, hidden]`, or without the batch.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{GruStep, Recurrent, RecurrentConfig};
/// let gru: Recurrent<GruStep> = RecurrentConfig::new(3, 5).gru();
/// let (y, h) = gru.forward(&Tensor::ones([7, 3]));
/// assert_eq!((y.shape(), h.shape()), (&[7, 5][..], &[1, 5][..]));
/// ```
#[derive(Clone)]
pub struct Recurrent<K: Recurrence> {
    /// Layer by layer, in each the one that goes forwards first.
    pub cells: Vec<RecurrentCell<K>>,
    config: RecurrentConfig,
    training: Flag,
}

impl<K: Recurrence> Recurrent<K> {
    /// The outputs of the last layer at every step, and the last states of all layers, from initial
    /// states of zeros.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::Gru;
    /// let (y, h) = Gru::new(3, 5).forward(&Tensor::ones([7, 2, 3]));
    /// assert_eq!((y.shape(), h.shape()), (&[7, 2, 5][..], &[1, 2, 5][..]));
    /// // The last output is the last state.
    /// assert_eq!(y.at(-1).to_vec::<f32>(), h.at(0).to_vec::<f32>());
    /// ```
    ///
    /// # Panics
    /// If the input's shape or dtype does not fit; the message names it and the caller's line.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> (Tensor, K::State) {
        self.forward_with(x, None, None)
    }

    /// [`Recurrent::forward`] from these initial states.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::Gru;
    /// let (gru, x) = (Gru::new(3, 5), Tensor::randn([7, 2, 3]));
    /// let (_, h) = gru.forward(&x.narrow(0, 0, 4));
    /// let (y, _) = gru.forward_from(&x.narrow(0, 4, 3), &h);
    /// // The same as the whole sequence at once.
    /// let (whole, _) = gru.forward(&x);
    /// assert!(y.is_close(&whole.narrow(0, 4, 3), 1e-4, 1e-5, false).all().item::<bool>());
    /// ```
    ///
    /// # Panics
    /// If the shape or dtype of input or states does not fit; the message names them.
    #[track_caller]
    pub fn forward_from(&self, x: &Tensor, state: &K::State) -> (Tensor, K::State) {
        self.forward_with(x, Some(state), None)
    }

    /// [`Recurrent::forward`] of sequences of different lengths (integers, `[batch]`): steps beyond
    /// the end of a sequence are ignored, their outputs are zero, and the last states are those at
    /// its end. This is what PyTorch's packed sequences compute.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::Gru;
    /// let (gru, x) = (Gru::new(3, 5), Tensor::ones([7, 2, 3]));
    /// let (y, h) = gru.forward_with(&x, None, Some(&Tensor::from([7i64, 4])));
    /// // The second sequence ends after four steps.
    /// assert_eq!(y.at((4, 1)).to_vec::<f32>(), [0.0; 5]);
    /// assert_eq!(h.at((0, 1)).to_vec::<f32>(), y.at((3, 1)).to_vec::<f32>());
    /// ```
    ///
    /// # Panics
    /// If the shape or dtype of input, states or lengths does not fit; the message names them.
    #[track_caller]
    pub fn forward_with(
        &self,
        x: &Tensor,
        state: Option<&K::State>,
        lengths: Option<&Tensor>,
    ) -> (Tensor, K::State) {
        let scope = module_scope(self);
        let RecurrentConfig { inputs, dropout, batch_first, .. } = self.config;
        if !(2..=3).contains(&x.rank()) || x.shape()[x.rank() - 1] != inputs {
            let order = if batch_first { "[batch, steps" } else { "[steps, batch" };
            let message =
                format!("takes {order}, {inputs}] or [steps, {inputs}], not {}", x.spec());
            refuse(Error::shape(K::LAYER, message).on([x.spec()]));
        }
        let single = x.rank() == 2;
        let mut y = match (single, batch_first) {
            (true, _) => x.unsqueeze(1),
            (false, true) => x.transpose(0, 1),
            (false, false) => x.clone(),
        };
        let (steps, batch) = (y.shape()[0], y.shape()[1]);
        let directions = if self.config.both { 2 } else { 1 };
        let given = self.initial(state, &y, single);
        let running = self.running(lengths, steps, batch);
        let mut last: Vec<Vec<Tensor>> = Vec::with_capacity(self.cells.len());
        let mut shape = None;
        for (i, layer) in self.cells.chunks(directions).enumerate() {
            if i > 0 && dropout > 0.0 && self.training.get() {
                y = y.dropout(dropout, Some(&next_key_on(y.device())));
            }
            let mut outputs = Vec::with_capacity(directions);
            for (j, cell) in layer.iter().enumerate() {
                let start = match &given {
                    None => cell.zeros(batch, &y),
                    Some(state) => {
                        state.map(&mut |x| x.select_at(0, (i * directions + j) as isize))
                    }
                };
                let (end, output) = cell.over(&y, &start, running.as_ref(), j == 1);
                last.push(end.leaves());
                outputs.push(output);
                shape = Some(end);
            }
            y = match &outputs[..] {
                [forwards] => forwards.clone(),
                both => cat(&both.iter().collect::<Vec<_>>(), -1),
            };
        }
        let y = match (single, batch_first) {
            (true, _) => y.squeeze_axis(1),
            (false, true) => y.transpose(0, 1),
            (false, false) => y,
        };
        let Some(shape) = shape else { refuse(Error::argument(K::LAYER, "has no layers")) };
        let mut stacked = Vec::new();
        for k in 0..shape.leaves().len() {
            let all = stack(&last.iter().map(|state| &state[k]).collect::<Vec<_>>(), 0);
            stacked.push(if single { all.squeeze_axis(1) } else { all });
        }
        let products: usize = self.cells.iter().map(RecurrentCell::products).sum();
        (scope.output_with_macs(y, |_| steps * batch * products), shape.with_leaves(&stacked))
    }

    /// The given states with a batch.
    #[track_caller]
    fn initial(&self, state: Option<&K::State>, y: &Tensor, single: bool) -> Option<K::State> {
        let (state, batch) = (state?, y.shape()[1]);
        let mut all = Vec::new();
        let zeros = self.cells.first().map(|cell| cell.zeros(batch, y).leaves());
        for (x, like) in state.leaves().iter().zip(zeros.unwrap_or_default()) {
            check_dtypes(K::LAYER, y, x);
            let with_batch = if single && x.rank() == 2 { x.unsqueeze(1) } else { x.clone() };
            let want = [self.cells.len(), batch, like.shape()[1]];
            if with_batch.shape() != want {
                let [cells, batch, width] = want;
                let batch = if single { String::new() } else { format!(" {batch},") };
                let message = format!("takes states [{cells},{batch} {width}], not {}", x.spec());
                refuse(Error::shape(K::LAYER, message).on([x.spec()]));
            }
            all.push(with_batch);
        }
        Some(state.with_leaves(&all))
    }

    /// Which steps count, `[steps, batch, 1]`.
    #[track_caller]
    fn running(&self, lengths: Option<&Tensor>, steps: usize, batch: usize) -> Option<Tensor> {
        let lengths = lengths?;
        if lengths.dtype().is_float() || lengths.len() != batch || lengths.rank() > 1 {
            let message = format!("takes {batch} integers as lengths, not {}", lengths.spec());
            refuse(Error::shape(K::LAYER, message).on([lengths.spec()]));
        }
        let clock = lengths.new_arange(0, steps as i64).reshape([steps, 1, 1]);
        Some(clock.lt(lengths.reshape([1, batch, 1])))
    }
}

/// That a state goes with the input: one of `f64` with `f32` would widen every step. (Of narrower
/// floats the products decide.)
#[track_caller]
pub(super) fn check_dtypes(layer: &'static str, x: &Tensor, state: &Tensor) {
    if (x.dtype() == DType::F64) != (state.dtype() == DType::F64) {
        let message = format!("{} and a state {} have different dtypes", x.spec(), state.spec());
        let hint = format!("cast one of them, `x.cast(DType::{:?})`", state.dtype());
        refuse(Error::dtype(layer, message).on([x.spec(), state.spec()]).hint(hint));
    }
}

/// Parameters have PyTorch's names: that of the cell's, then the layer, then the direction.
impl<K: Recurrence> Tree for Recurrent<K> {
    fn visit(&self, path: &mut Path, f: &mut dyn FnMut(&Path, &Tensor)) {
        path.kind(K::LAYER);
        path.note(&self.config);
        let directions = if self.config.both { 2 } else { 1 };
        for (i, cell) in self.cells.iter().enumerate() {
            let way = if i % directions == 1 { "_reverse" } else { "" };
            for (name, x) in cell.named() {
                let name = format!("{name}_l{}{way}", i / directions);
                path.scope(&name, |path| f(path, x));
            }
        }
        path.scope("training", |path| self.training.visit(path, f));
    }

    fn map(&self, f: &mut dyn FnMut(&Tensor) -> Tensor) -> Recurrent<K> {
        let cells = self.cells.iter().map(|cell| cell.map(f)).collect();
        Recurrent { cells, config: self.config, training: self.training.map(f) }
    }
}
