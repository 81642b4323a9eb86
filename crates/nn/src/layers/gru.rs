//! The gated recurrent unit.

use super::recurrent::{Recurrent, RecurrentConfig};
use super::recurrent_cell::{Recurrence, RecurrentCell};
use pullback::Tensor;

/// The step of a [`Gru`], with gates in PyTorch's order, for reset, update and the new state: r =
/// σ(W_ir·x + W_hr·h), z = σ(W_iz·x + W_hz·h), n = tanh(W_in·x + r·(W_hn·h)), each with its biases,
/// and h′ = (1 − z)·n + z·h.
///
/// ```
/// use pullback_nn::{Gru, GruStep, Recurrence};
/// // Weights have rows for three gates.
/// assert_eq!(GruStep::GATES, 3);
/// assert_eq!(Gru::new(4, 5).cells[0].weight_ih.shape(), [3 * 5, 4]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct GruStep;

/// The gated recurrent unit, PyTorch's `nn.GRU`: from `[steps, batch, inputs]` to `[steps, batch,
/// hidden]`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::Gru;
/// let (y, h) = Gru::new(3, 5).forward(&Tensor::ones([7, 2, 3]));
/// assert_eq!((y.shape(), h.shape()), (&[7, 2, 5][..], &[1, 2, 5][..]));
/// ```
pub type Gru = Recurrent<GruStep>;

/// One step of a [`Gru`], PyTorch's `nn.GRUCell`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::GruCell;
/// let cell = GruCell::new(3, 5);
/// let h = cell.forward(&Tensor::ones([2, 3]), None);
/// assert_eq!(h.shape(), [2, 5]);
/// assert_eq!(cell.forward(&Tensor::ones([2, 3]), Some(&h)).shape(), [2, 5]);
/// ```
pub type GruCell = RecurrentCell<GruStep>;

impl Gru {
    /// One layer in one direction; [`RecurrentConfig`] has the options.
    ///
    /// ```
    /// # use pullback_nn::Gru;
    /// let gru = Gru::new(3, 5);
    /// assert_eq!(gru.cells[0].weight_hh.shape(), [15, 5]);
    /// ```
    ///
    /// # Panics
    /// If `hidden_size` is 0.
    #[track_caller]
    #[must_use]
    pub fn new(input_size: usize, hidden_size: usize) -> Gru {
        RecurrentConfig::new(input_size, hidden_size).gru()
    }
}

impl GruCell {
    /// With biases; [`RecurrentConfig`] has the options.
    ///
    /// ```
    /// # use pullback_nn::GruCell;
    /// let cell = GruCell::new(3, 5);
    /// assert_eq!(cell.weight_ih.shape(), [15, 3]);
    /// ```
    ///
    /// # Panics
    /// If `hidden_size` is 0.
    #[track_caller]
    #[must_use]
    pub fn new(input_size: usize, hidden_size: usize) -> GruCell {
        RecurrentConfig::new(input_size, hidden_size).gru_cell()
    }
}

impl RecurrentConfig {
    /// A gated recurrent unit with these options.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::RecurrentConfig;
    /// let gru = RecurrentConfig::new(3, 5).num_layers(2).batch_first().gru();
    /// let (y, h) = gru.forward(&Tensor::ones([2, 7, 3]));
    /// assert_eq!((y.shape(), h.shape()), (&[2, 7, 5][..], &[2, 2, 5][..]));
    /// ```
    ///
    /// # Panics
    /// If the number of layers or `hidden_size` is 0, or there is a projection, which only an LSTM
    /// has.
    #[track_caller]
    #[must_use]
    pub fn gru(self) -> Gru {
        self.build(GruStep)
    }

    /// One step of a gated recurrent unit; the options of layers and directions have no effect.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::RecurrentConfig;
    /// let cell = RecurrentConfig::new(3, 5).without_bias().gru_cell();
    /// assert!(cell.bias_ih.is_none());
    /// assert_eq!(cell.forward(&Tensor::ones([2, 3]), None).shape(), [2, 5]);
    /// ```
    ///
    /// # Panics
    /// If `hidden_size` is 0, or there is a projection, which only an LSTM has.
    #[track_caller]
    #[must_use]
    pub fn gru_cell(self) -> GruCell {
        GruCell::build(self, GruStep)
    }
}

impl Recurrence for GruStep {
    type State = Tensor;
    const GATES: usize = 3;
    // The reset gate multiplies the bias of the state.
    const ADDS_BIASES: bool = false;
    const PROJECTS: bool = false;
    const COMPILES: bool = true;
    const LAYER: &'static str = "Gru";
    const CELL: &'static str = "GruCell";

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
        h: &Tensor,
        _: Option<&Tensor>,
    ) -> Tensor {
        let (x, s) = (input_projection.chunk(3, -1), recurred.chunk(3, -1));
        let [r, z] = [0, 1].map(|k| (&x[k] + &s[k]).sigmoid());
        let n = (&x[2] + r * &s[2]).tanh();
        // (1 − z)·n + z·h, with one product less.
        &n + z * (h - &n)
    }
}
