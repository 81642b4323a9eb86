//! The gated recurrent unit.

use super::recurrent::{Recurrent, RecurrentConfig};
use super::recurrent_cell::{Recurrence, RecurrentCell};
use pullback::Tensor;

/// A step of [`Gru`], with gates in PyTorch's order, for reset, update and the new state: r =
/// σ(W_ir·x + W_hr·h), z = σ(W_iz·x + W_hz·h), n = tanh(W_in·x + r·(W_hn·h)), each with its biases,
/// and h′ = (1 − z)·n + z·h.
#[derive(Clone, Copy, Debug)]
pub struct GruStep;

/// The gated recurrent unit, PyTorch's `nn.GRU`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::Gru;
/// let (y, h) = Gru::new(3, 5).forward(&Tensor::ones([7, 2, 3]));
/// assert_eq!((y.shape(), h.shape()), (&[7, 2, 5][..], &[1, 2, 5][..]));
/// ```
pub type Gru = Recurrent<GruStep>;

/// One step of a [`Gru`], PyTorch's `nn.GRUCell`.
pub type GruCell = RecurrentCell<GruStep>;

impl Gru {
    /// One layer; [`RecurrentConfig`] has the options.
    ///
    /// # Panics
    /// If there are no hidden numbers.
    #[track_caller]
    #[must_use]
    pub fn new(input_size: usize, hidden_size: usize) -> Gru {
        RecurrentConfig::new(input_size, hidden_size).gru()
    }
}

impl GruCell {
    /// With biases; [`RecurrentConfig`] has the options.
    ///
    /// # Panics
    /// If there are no hidden numbers.
    #[track_caller]
    #[must_use]
    pub fn new(input_size: usize, hidden_size: usize) -> GruCell {
        RecurrentConfig::new(input_size, hidden_size).gru_cell()
    }
}

impl RecurrentConfig {
    /// Gated recurrent units.
    ///
    /// # Panics
    /// If there are no layers or no hidden numbers, or there is a projection, which only an LSTM
    /// has.
    #[track_caller]
    #[must_use]
    pub fn gru(self) -> Gru {
        self.build(GruStep)
    }

    /// One step of a gated recurrent unit; layers and directions do not matter.
    ///
    /// # Panics
    /// If there are no layers or no hidden numbers, or there is a projection, which only an LSTM
    /// has.
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
