//! The Elman recurrent layer: the next state is a tanh, or a relu, of a linear function of input
//! and state.

use super::recurrent::{Recurrent, RecurrentConfig};
use super::recurrent_cell::{Recurrence, RecurrentCell};
use pullback::Tensor;

/// The step of an [`Rnn`]: h′ = tanh(W_ih·x + b_ih + W_hh·h + b_hh), or with relu.
///
/// ```
/// use pullback_nn::{ElmanStep, Recurrence, Rnn};
/// assert_eq!(ElmanStep::GATES, 1);
/// assert_eq!(Rnn::new(3, 5).cells[0].weight_ih.shape(), [5, 3]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ElmanStep {
    relu: bool,
}

/// The Elman recurrent layer, PyTorch's `nn.RNN`: from `[steps, batch, inputs]` to `[steps, batch,
/// hidden]`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::Rnn;
/// let (y, h) = Rnn::new(3, 5).forward(&Tensor::ones([7, 2, 3]));
/// assert_eq!((y.shape(), h.shape()), (&[7, 2, 5][..], &[1, 2, 5][..]));
/// ```
pub type Rnn = Recurrent<ElmanStep>;

/// One step of an [`Rnn`], PyTorch's `nn.RNNCell`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::RnnCell;
/// let cell = RnnCell::new(3, 5);
/// let h = cell.forward(&Tensor::ones([2, 3]), None);
/// assert_eq!(cell.forward(&Tensor::ones([2, 3]), Some(&h)).shape(), [2, 5]);
/// ```
pub type RnnCell = RecurrentCell<ElmanStep>;

impl Rnn {
    /// One layer in one direction with tanh; [`RecurrentConfig`] has the options.
    ///
    /// ```
    /// # use pullback_nn::Rnn;
    /// let rnn = Rnn::new(3, 5);
    /// assert_eq!(rnn.cells[0].weight_hh.shape(), [5, 5]);
    /// ```
    ///
    /// # Panics
    /// If `hidden_size` is 0.
    #[track_caller]
    #[must_use]
    pub fn new(input_size: usize, hidden_size: usize) -> Rnn {
        RecurrentConfig::new(input_size, hidden_size).rnn()
    }
}

impl RnnCell {
    /// With tanh; [`RecurrentConfig`] has the options.
    ///
    /// ```
    /// # use pullback_nn::RnnCell;
    /// let cell = RnnCell::new(3, 5);
    /// assert_eq!(cell.weight_ih.shape(), [5, 3]);
    /// ```
    ///
    /// # Panics
    /// If `hidden_size` is 0.
    #[track_caller]
    #[must_use]
    pub fn new(input_size: usize, hidden_size: usize) -> RnnCell {
        RecurrentConfig::new(input_size, hidden_size).rnn_cell()
    }
}

impl RecurrentConfig {
    /// An Elman recurrent layer with tanh and these options.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::RecurrentConfig;
    /// let (y, h) =
    ///     RecurrentConfig::new(3, 5).num_layers(2).rnn().forward(&Tensor::ones([7, 4, 3]));
    /// assert_eq!((y.shape(), h.shape()), (&[7, 4, 5][..], &[2, 4, 5][..]));
    /// ```
    ///
    /// # Panics
    /// If the number of layers or `hidden_size` is 0, or there is a projection, which only an LSTM
    /// has.
    #[track_caller]
    #[must_use]
    pub fn rnn(self) -> Rnn {
        self.build(ElmanStep { relu: false })
    }

    /// An Elman recurrent layer with relu and these options.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::RecurrentConfig;
    /// let (y, _) = RecurrentConfig::new(3, 5).rnn_relu().forward(&Tensor::ones([7, 4, 3]));
    /// assert_eq!(y.shape(), [7, 4, 5]);
    /// assert!(y.to_vec::<f32>().iter().all(|&y| y >= 0.0));
    /// ```
    ///
    /// # Panics
    /// If the number of layers or `hidden_size` is 0, or there is a projection, which only an LSTM
    /// has.
    #[track_caller]
    #[must_use]
    pub fn rnn_relu(self) -> Rnn {
        self.build(ElmanStep { relu: true })
    }

    /// One step of an Elman recurrent layer with tanh; the options of layers and directions have no
    /// effect.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::RecurrentConfig;
    /// let cell = RecurrentConfig::new(3, 5).rnn_cell();
    /// assert_eq!(cell.forward(&Tensor::ones([2, 3]), None).shape(), [2, 5]);
    /// ```
    ///
    /// # Panics
    /// If `hidden_size` is 0, or there is a projection, which only an LSTM has.
    #[track_caller]
    #[must_use]
    pub fn rnn_cell(self) -> RnnCell {
        RnnCell::build(self, ElmanStep { relu: false })
    }

    /// [`RecurrentConfig::rnn_cell`] with relu.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::RecurrentConfig;
    /// let cell = RecurrentConfig::new(3, 5).rnn_relu_cell();
    /// let h = cell.forward(&Tensor::ones([2, 3]), None);
    /// assert!(h.to_vec::<f32>().iter().all(|&h| h >= 0.0));
    /// ```
    ///
    /// # Panics
    /// If `hidden_size` is 0, or there is a projection, which only an LSTM has.
    #[track_caller]
    #[must_use]
    pub fn rnn_relu_cell(self) -> RnnCell {
        RnnCell::build(self, ElmanStep { relu: true })
    }
}

impl Recurrence for ElmanStep {
    type State = Tensor;
    const GATES: usize = 1;
    const ADDS_BIASES: bool = true;
    const PROJECTS: bool = false;
    const COMPILES: bool = true;
    const LAYER: &'static str = "Rnn";
    const CELL: &'static str = "RnnCell";

    fn zeros(batch: usize, _: usize, output: usize, x: &Tensor) -> Tensor {
        x.new_zeros([batch, output])
    }

    fn output(state: &Tensor) -> &Tensor {
        state
    }

    fn step(
        &self,
        input_projection: &Tensor,
        recurred: &Tensor,
        _: &Tensor,
        _: Option<&Tensor>,
    ) -> Tensor {
        let sum = input_projection + recurred;
        if self.relu { sum.relu() } else { sum.tanh() }
    }
}
