//! What is measured over many batches: each adds up, and gives its value at the end.

mod accuracy;
mod confusion;
mod mean;

pub use accuracy::Accuracy;
pub use confusion::Confusion;
pub use mean::Mean;
