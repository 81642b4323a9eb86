//! The plain recurrent layer: the next state is a tanh, or a relu, of a linear function of input
//! and state.

use super::recurrent::{Recurrent, RecurrentConfig};
use super::recurrent_cell::{Recurrence, RecurrentCell};
use pullback::Tensor;

/// A step of [`Rnn`]: h′ = tanh(W_ih·x + b_ih + W_hh·h + b_hh), or with relu.
#[derive(Clone, Copy, Debug)]
pub struct ElmanStep {
    relu: bool,
}

/// The plain recurrent layer, PyTorch's `nn.RNN`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::Rnn;
/// let (y, h) = Rnn::new(3, 5).forward(&Tensor::ones([7, 2, 3]));
/// assert_eq!((y.shape(), h.shape()), (&[7, 2, 5][..], &[1, 2, 5][..]));
/// ```
pub type Rnn = Recurrent<ElmanStep>;

/// One step of an [`Rnn`], PyTorch's `nn.RNNCell`.
pub type RnnCell = RecurrentCell<ElmanStep>;

impl Rnn {
    /// One layer with tanh; [`RecurrentConfig`] has the options.
    ///
    /// # Panics
    /// If there are no hidden numbers.
    #[track_caller]
    #[must_use]
    pub fn new(input_size: usize, hidden_size: usize) -> Rnn {
        RecurrentConfig::new(input_size, hidden_size).rnn()
    }
}

impl RnnCell {
    /// With tanh; [`RecurrentConfig`] has the options.
    ///
    /// # Panics
    /// If there are no hidden numbers.
    #[track_caller]
    #[must_use]
    pub fn new(input_size: usize, hidden_size: usize) -> RnnCell {
        RecurrentConfig::new(input_size, hidden_size).rnn_cell()
    }
}

impl RecurrentConfig {
    /// Plain recurrent layers with tanh.
    ///
    /// # Panics
    /// If there are no layers or no hidden numbers, or there is a projection, which only an LSTM
    /// has.
    #[track_caller]
    #[must_use]
    pub fn rnn(self) -> Rnn {
        self.build(ElmanStep { relu: false })
    }

    /// Plain recurrent layers with relu.
    ///
    /// # Panics
    /// If there are no layers or no hidden numbers, or there is a projection, which only an LSTM
    /// has.
    #[track_caller]
    #[must_use]
    pub fn rnn_relu(self) -> Rnn {
        self.build(ElmanStep { relu: true })
    }

    /// One step of a plain recurrent layer with tanh; layers and directions do not matter.
    ///
    /// # Panics
    /// If there are no layers or no hidden numbers, or there is a projection, which only an LSTM
    /// has.
    #[track_caller]
    #[must_use]
    pub fn rnn_cell(self) -> RnnCell {
        RnnCell::build(self, ElmanStep { relu: false })
    }

    /// [`RecurrentConfig::rnn_cell`] with relu.
    ///
    /// # Panics
    /// If there are no layers or no hidden numbers, or there is a projection, which only an LSTM
    /// has.
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
