//! Whether results share memory with operands: views always do, everything else never does, in
//! eager code, where derivatives are wanted, and compiled. Every public function of `src/ops` has a
//! row in the tables of `aliasing/`, with arguments for which there is nothing to do; what is found
//! is compared with what its documentation says.

#[path = "aliasing/arrange.rs"]
mod arrange;
#[path = "aliasing/bodies.rs"]
mod bodies;
#[path = "aliasing/collectives.rs"]
mod collectives;
#[path = "docs/functions.rs"]
#[allow(dead_code)] // what only the test of the documentation looks at
mod functions;
#[path = "aliasing/given.rs"]
mod given;
#[path = "aliasing/matrices.rs"]
mod matrices;
#[path = "aliasing/pointwise.rs"]
mod pointwise;
#[path = "aliasing/reduce.rs"]
mod reduce;
#[path = "aliasing/windows.rs"]
mod windows;

use functions::Shares;
use given::{Call, Given, Row, Way};
use pullback::{Error, ErrorKind, Tensor, catch, jit};
use std::collections::BTreeMap;

fn table() -> Vec<Row> {
    let mut rows = arrange::rows();
    rows.extend(collectives::rows());
    rows.extend(matrices::rows());
    rows.extend(pointwise::rows());
    rows.extend(pointwise::unary());
    rows.extend(pointwise::binary());
    rows.extend(reduce::rows());
    rows.extend(reduce::reductions());
    rows.extend(reduce::running());
    rows.extend(windows::rows());
    rows.extend(windows::windows());
    rows
}

/// What the documentation says, by name.
fn documented() -> BTreeMap<String, Shares> {
    let families = functions::families();
    families.iter().flat_map(|f| &f.functions).map(|f| (f.name.clone(), f.shares())).collect()
}

fn share(ys: &[Tensor], xs: &[Tensor]) -> Vec<bool> {
    ys.iter().map(|y| xs.iter().any(|x| x.shares_memory(y))).collect()
}

/// Writes into everything that may be written.
fn overwrite(ys: &[Tensor]) {
    for y in ys {
        let _ = catch(|| y.zero_());
    }
}

#[test]
fn every_function_has_one_row() {
    let (documented, table) = (documented(), table());
    let mut rows: Vec<&str> = table.iter().map(|row| row.0).collect();
    rows.sort_unstable();
    assert!(rows.windows(2).all(|w| w[0] != w[1]), "a function has two rows");
    let missing: Vec<_> = documented.keys().filter(|name| !rows.contains(&&name[..])).collect();
    let unknown: Vec<_> = rows.iter().filter(|name| !documented.contains_key(**name)).collect();
    assert!(missing.is_empty() && unknown.is_empty(), "no row: {missing:?}; unknown: {unknown:?}");
}

#[test]
fn views_are_those_that_say_so() {
    let documented = documented();
    let mut wrong = Vec::new();
    for (name, calls) in table() {
        for way in Way::ALL {
            let mut seen = Vec::new();
            for (k, call) in calls.iter().enumerate() {
                let found = catch(|| way.run(|g| share(&call(g), &g.operands())));
                match found {
                    Ok(found) => seen.extend(found.into_iter().map(|shared| (k, shared))),
                    Err(error) => wrong.push(format!("{name}, call {k}, {way:?}: {error}")),
                }
            }
            let some = seen.iter().any(|s| s.1);
            let fits = match documented.get(name) {
                Some(Shares::Always) => seen.iter().all(|s| s.1) && some,
                Some(Shares::Sometimes) => seen.iter().any(|s| !s.1) && some,
                Some(Shares::Never) | None => !some,
            };
            if !fits {
                let said_by_docs = documented.get(name);
                wrong.push(format!(
                    "{name}, {way:?}: {said_by_docs:?}, but (call, shares): {seen:?}"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// The operands after all results were overwritten.
fn left(call: &Call, g: &Given) -> Vec<Tensor> {
    overwrite(&call(g));
    g.operands()
}

#[test]
fn compiled_writes_reach_what_eager_ones_do() {
    let (mut wrong, mut compiled) = (Vec::new(), 0);
    let start = (Tensor::from(1.0), Tensor::from(0i64), Tensor::from(true));
    for (name, calls) in table() {
        for (k, call) in calls.into_iter().enumerate() {
            let Ok(want) = catch(|| Way::Plain.run(|g| left(&call, g))) else { continue };
            let f = jit(move |(one, zero, yes): &(Tensor, Tensor, Tensor)| {
                left(&call, &Given::from(one, zero, yes))
            });
            match f.call(&start) {
                Ok(got) => {
                    compiled += 1;
                    for (i, (want, got)) in want.iter().zip(&got).enumerate() {
                        if want.to_f64_vec() != got.to_f64_vec() {
                            wrong.push(format!("{name}, call {k}, operand {i}: {want} and {got}"));
                        }
                    }
                }
                Err(error) if cannot_be_compiled(&error) => {}
                Err(error) => wrong.push(format!("{name}, call {k}: {error}")),
            }
        }
    }
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(compiled > 700, "only {compiled} calls could be compiled");
}

/// The size of a result, or a check, depends on values.
fn cannot_be_compiled(error: &Error) -> bool {
    error.kind() == ErrorKind::Program
}

#[test]
fn what_is_no_op_but_a_view() {
    let x = Tensor::from([1.0, 2.0]);
    for y in [x.clone(), x.detach(), x.stop_gradient()] {
        y.zero_();
        assert_eq!(x.to_vec::<f64>(), [0.0, 0.0]);
        x.fill_(1.0);
    }
}

/// A view that repeats nothing is written through in every way; one that repeats is refused in
/// every way.
#[test]
fn writing_through_an_expanded_view() {
    let write = |x: &Tensor| {
        let x = x * 1.0;
        x.expand([1, 2]).mul_(Tensor::from([[10.0, 20.0]]));
        x.expand([1, 1, 2]).select_at(0, 0).add_(1.0);
        x
    };
    let x = Tensor::from([1.0, 2.0]);
    let want = [11.0, 41.0];
    assert_eq!(write(&x).to_vec::<f64>(), want);
    assert_eq!(write(&x.clone().requires_grad()).to_vec::<f64>(), want);
    assert_eq!(jit(write).of(&x).to_vec::<f64>(), want);
    let many = pullback::vmap(write, 0, 0)(&x.unsqueeze(0));
    assert_eq!(many.to_vec::<f64>(), want);
    let slope = |x: &Tensor| write(x).sum();
    assert_eq!(pullback::grad(slope)(&x).to_vec::<f64>(), [10.0, 20.0]);
    assert_eq!(jit(pullback::grad(slope)).of(&x).to_vec::<f64>(), [10.0, 20.0]);
    let refused = |x: &Tensor| {
        let x = x * 1.0;
        x.expand([2, 2]).mul_(2.0);
        x
    };
    assert!(catch(|| refused(&x)).is_err());
    assert!(jit(refused).call(&x).is_err());
}
