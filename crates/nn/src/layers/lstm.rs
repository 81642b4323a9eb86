//! Long short-term memory.

use super::recurrent::{Recurrent, RecurrentConfig};
use super::recurrent_cell::{Recurrence, RecurrentCell};
use pullback::Tensor;

/// The step of an [`Lstm`], with gates in PyTorch's order, i, f, g, o: each is
/// W_i·x + b_i + W_h·h + b_h, and then c′ = σ(f)·c + σ(i)·tanh(g), h′ = σ(o)·tanh(c′), projected if
/// there is a projection.
///
/// ```
/// use pullback_nn::{Lstm, LstmStep, Recurrence};
/// // Weights have rows for four gates.
/// assert_eq!(LstmStep::GATES, 4);
/// assert_eq!(Lstm::new(3, 5).cells[0].weight_ih.shape(), [4 * 5, 3]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct LstmStep;

/// Long short-term memory, PyTorch's `nn.LSTM`: from `[steps, batch, inputs]` to `[steps, batch,
/// hidden]`. Its state is the pair of outputs and cells.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::Lstm;
/// let lstm = Lstm::new(3, 5);
/// let (y, (h, c)) = lstm.forward(&Tensor::ones([7, 2, 3]));
/// assert_eq!((y.shape(), h.shape(), c.shape()), (&[7, 2, 5][..], &[1, 2, 5][..], &[1, 2, 5][..]));
/// // On from where it ended.
/// let (y, _) = lstm.forward_from(&Tensor::ones([4, 2, 3]), &(h, c));
/// assert_eq!(y.shape(), [4, 2, 5]);
/// ```
pub type Lstm = Recurrent<LstmStep>;

/// One step of an [`Lstm`], PyTorch's `nn.LSTMCell`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::LstmCell;
/// let cell = LstmCell::new(3, 5);
/// let (h, c) = cell.forward(&Tensor::ones([2, 3]), None);
/// assert_eq!((h.shape(), c.shape()), (&[2, 5][..], &[2, 5][..]));
/// let (h, _) = cell.forward(&Tensor::ones([2, 3]), Some(&(h, c)));
/// assert_eq!(h.shape(), [2, 5]);
/// ```
pub type LstmCell = RecurrentCell<LstmStep>;

impl Lstm {
    /// One layer in one direction; [`RecurrentConfig`] has the options.
    ///
    /// ```
    /// # use pullback_nn::Lstm;
    /// let lstm = Lstm::new(3, 5);
    /// assert_eq!(lstm.cells[0].weight_hh.shape(), [20, 5]);
    /// ```
    ///
    /// # Panics
    /// If `hidden_size` is 0.
    #[track_caller]
    #[must_use]
    pub fn new(input_size: usize, hidden_size: usize) -> Lstm {
        RecurrentConfig::new(input_size, hidden_size).lstm()
    }
}

impl LstmCell {
    /// With biases; [`RecurrentConfig`] has the options.
    ///
    /// ```
    /// # use pullback_nn::LstmCell;
    /// let cell = LstmCell::new(3, 5);
    /// assert_eq!(cell.weight_ih.shape(), [20, 3]);
    /// ```
    ///
    /// # Panics
    /// If `hidden_size` is 0.
    #[track_caller]
    #[must_use]
    pub fn new(input_size: usize, hidden_size: usize) -> LstmCell {
        RecurrentConfig::new(input_size, hidden_size).lstm_cell()
    }
}

impl RecurrentConfig {
    /// A long short-term memory with these options.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::RecurrentConfig;
    /// let lstm = RecurrentConfig::new(3, 5).num_layers(2).lstm();
    /// let (y, (h, c)) = lstm.forward(&Tensor::ones([7, 4, 3]));
    /// assert_eq!(
    ///     (y.shape(), h.shape(), c.shape()),
    ///     (&[7, 4, 5][..], &[2, 4, 5][..], &[2, 4, 5][..])
    /// );
    /// ```
    ///
    /// # Panics
    /// If the number of layers, `hidden_size` or `proj_size` is 0.
    #[track_caller]
    #[must_use]
    pub fn lstm(self) -> Lstm {
        self.build(LstmStep)
    }

    /// One step of a long short-term memory; the options of layers and directions have no effect.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::RecurrentConfig;
    /// let cell = RecurrentConfig::new(3, 5).proj_size(2).lstm_cell();
    /// let (h, c) = cell.forward(&Tensor::ones([4, 3]), None);
    /// assert_eq!((h.shape(), c.shape()), (&[4, 2][..], &[4, 5][..]));
    /// ```
    ///
    /// # Panics
    /// If `hidden_size` or `proj_size` is 0.
    #[track_caller]
    #[must_use]
    pub fn lstm_cell(self) -> LstmCell {
        LstmCell::build(self, LstmStep)
    }
}

impl Recurrence for LstmStep {
    /// The output and the cell.
    type State = (Tensor, Tensor);
    const GATES: usize = 4;
    const ADDS_BIASES: bool = true;
    const PROJECTS: bool = true;
    const COMPILES: bool = true;
    const LAYER: &'static str = "Lstm";
    const CELL: &'static str = "LstmCell";

    fn zeros(batch: usize, hidden: usize, output: usize, x: &Tensor) -> (Tensor, Tensor) {
        (x.new_zeros([batch, output]), x.new_zeros([batch, hidden]))
    }

    fn output(state: &(Tensor, Tensor)) -> &Tensor {
        &state.0
    }

    fn step(
        &self,
        input_projection: &Tensor,
        recurred: &Tensor,
        (_, c): &(Tensor, Tensor),
        projection: Option<&Tensor>,
    ) -> (Tensor, Tensor) {
        let gates = (input_projection + recurred).chunk(4, -1);
        let [i, f, o] = [0, 1, 3].map(|k| gates[k].sigmoid());
        let c = f * c + i * gates[2].tanh();
        let h = o * c.tanh();
        let h = match projection {
            Some(weight) => h.linear(weight, None),
            None => h,
        };
        (h, c)
    }
}
