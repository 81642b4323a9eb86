//! Normalisations along an axis, each in one pass over memory: softmax and its kin, layer
//! and batch normalisation, cross-entropy, and what backward runs for them.
//!
//! Every kernel here works on *lines* (the elements along the normalised axis). A line is read
//! once, whatever its strides and dtype, into a scratch line of the compute type that stays in the
//! nearest caches; all passes that the formula needs run there; the result is written once. So a
//! broadcast or transposed cotangent is never materialised, bf16 costs a load and a store, and the
//! kernel is as fast as memory.
//!
//! Scratch lines are padded to a multiple of [`lanes::LANES`] with a value that does not count
//! (−∞ under a softmax, 0 under a sum), so that no loop has a remainder. Sums are kept in that many
//! partial sums, added up in a fixed order.
//!
//! Tasks are blocks of lines whose size depends on the shape only; where results are
//! summed over lines (the gradients of layer normalisation's weights), each block keeps a partial
//! sum, and these are added in order: the same bits for any number of threads.

mod batch_norm;
mod cross_entropy;
pub(crate) mod lanes;
mod layer_norm;
mod lines;
mod softmax;
#[cfg(test)]
mod tests;

pub(crate) use batch_norm::{batch_norm, batch_norm_vjp};
pub(crate) use cross_entropy::{cross_entropy, cross_entropy_vjp};
pub(crate) use layer_norm::{layer_norm, layer_norm_vjp};
pub(crate) use softmax::{log_softmax, log_softmax_vjp, log_sum_exp, softmax, softmax_vjp};
