//! `hello`: x², and its gradient.

use super::Module;
use crate::job::{Job, number, show};
use pullback::{Tensor, grad};

pub(super) const MODULE: Module = Module {
    name: "hello",
    functions: &[
        ("square", |input| {
            let x = number(input)?;
            Ok(Job::new(move || square(&x), show))
        }),
        ("double", |input| {
            let x = number(input)?;
            Ok(Job::new(move || grad(square)(&x), show))
        }),
    ],
};

fn square(x: &Tensor) -> Tensor {
    x * x
}
