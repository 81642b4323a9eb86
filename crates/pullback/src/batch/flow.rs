//! Control flow.

use super::{Lane, Lanes};
use crate::{Error, Op, fail};

pub(super) fn flow(op: &Op, lanes: &[Lane], _: usize) -> Lanes {
    let specs = lanes.iter().map(|x| x.value.spec());
    fail::raise(Error::argument(op.name(), "cannot be batched yet").on(specs))
}
