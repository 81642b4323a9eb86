//! Pointwise ops: operands of one shape and one dtype, a result of that shape.

use crate::{Binary, Compare, DType, Error, Result, Spec, Takes, Unary};

pub(super) fn unary(f: Unary, [x]: [&Spec; 1]) -> Result<Spec> {
    if f.takes().has(x.dtype) {
        return Ok(x.clone());
    }
    let wants = match f.takes() {
        Takes::Numbers => "numbers",
        Takes::Floats => "floats",
        Takes::Bits => "bool or integers",
        Takes::Integers => "integers",
    };
    Err(Error::dtype(f.name(), format!("takes {wants}, not {}", x.dtype)).on([x]))
}

pub(super) fn binary(f: Binary, [a, b]: [&Spec; 2]) -> Result<Spec> {
    same(f.name(), [a, b])?;
    if !f.takes().has(a.dtype) {
        return Err(Error::dtype(f.name(), format!("does not take {}", a.dtype)).on([a, b]));
    }
    Ok(a.clone())
}

pub(super) fn compare(f: Compare, [a, b]: [&Spec; 2]) -> Result<Spec> {
    same(f.name(), [a, b])?;
    Ok(a.with_dtype(DType::Bool))
}

pub(super) fn select([condition, a, b]: [&Spec; 3]) -> Result<Spec> {
    if condition.dtype != DType::Bool {
        let message = format!("the condition must be bool, not {}", condition.dtype);
        return Err(Error::dtype("select", message).on([condition, a, b]));
    }
    same("select", [a, b])?;
    if condition.shape != a.shape {
        return Err(
            Error::shape("select", format!("{condition} does not match {a}")).on([condition, a, b])
        );
    }
    Ok(a.clone())
}

pub(super) fn unary_vjp(f: Unary, [a, b]: [&Spec; 2]) -> Result<Spec> {
    let op = f.vjp_name();
    if f.fused_vjp().is_none() {
        return Err(Error::argument(
            op,
            format!("there is no kernel for the derivative of `{}`", f.name()),
        )
        .on([a, b]));
    }
    same(op, [a, b])?;
    if !a.dtype.is_float() {
        return Err(Error::dtype(op, format!("takes floats, not {}", a.dtype)).on([a, b]));
    }
    Ok(a.clone())
}

fn same(op: &'static str, [a, b]: [&Spec; 2]) -> Result<()> {
    if a.shape != b.shape {
        return Err(Error::shape(op, format!("shapes differ: {a} and {b}")).on([a, b]));
    }
    if a.dtype != b.dtype {
        return Err(Error::dtype(op, format!("dtypes differ: {a} and {b}")).on([a, b]));
    }
    Ok(())
}
