//! Measures over many batches: each is updated by batch, and gives its value at the end.

mod accuracy;
mod confusion;
mod mean;

pub use accuracy::Accuracy;
pub use confusion::Confusion;
pub use mean::Mean;
