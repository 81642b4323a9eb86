//! From an operator's name and arguments to the library's own call, family by family. Names and
//! arguments are PyTorch's.

mod activation;
mod contract;
mod image;
mod index;
mod linalg;
mod loss;
mod masked;
mod native;
mod pointwise;
mod reduce;
mod statistics;
mod view;
mod window;

use crate::args::Args;
use pullback::Tensor;

/// The outputs; `None` where the library has no such operator, or not with these arguments.
pub fn call(name: &str, args: &Args) -> Option<Vec<Tensor>> {
    // Complex numbers are known to the Fourier transforms alone.
    if args.has_complex() && !name.starts_with("fft.") {
        return None;
    }
    type Family = fn(&str, &Args) -> Option<Vec<Tensor>>;
    let families: &[Family] = &[
        linalg::call,
        pointwise::call,
        view::call,
        reduce::call,
        contract::call,
        index::call,
        activation::call,
        loss::call,
        image::call,
        statistics::call,
        masked::call,
        window::call,
        native::call,
    ];
    let find = |name: &str| families.iter().find_map(|family| family(name, args));
    // `div.floor_rounding` is `div` with other samples, where it has no entry of its own.
    find(name).or_else(|| find(name.rsplit_once('.')?.0))
}

/// The result of a call with one output.
fn one(y: Tensor) -> Option<Vec<Tensor>> {
    Some(vec![y])
}
