//! Locks on the memory of operands, held while a kernel runs.
//!
//! Each storage is locked once, in the order of addresses: so threads that write in place to what
//! others read never wait for each other in a circle, and `x * x` does not lock `x` twice.

use crate::Tensor;
use crate::storage::Storage;
use pullback_cpu::{Buffer, Input, Target};
use smallvec::SmallVec;
use std::cmp::Ordering;
use std::sync::{Arc, RwLockReadGuard, RwLockWriteGuard};

type Storages<'a> = SmallVec<[&'a Arc<Storage>; 4]>;
type Guards<'a> = SmallVec<[RwLockReadGuard<'a, Buffer>; 4]>;

/// Runs `f` on the operands' memory.
pub(crate) fn read<R>(inputs: &[&Tensor], f: impl FnOnce(&[Input]) -> R) -> R {
    if let [x] = inputs {
        let guard = x.0.storage.read();
        return f(&[input(x, &guard)]);
    }
    if let [a, b] = inputs {
        return read_two(a, b, f);
    }
    let storages = in_order(inputs);
    let guards: Guards = storages.iter().map(|s| s.read()).collect();
    f(&operands(inputs, &storages, &guards))
}

/// The common case, without lists.
fn read_two<R>(a: &Tensor, b: &Tensor, f: impl FnOnce(&[Input]) -> R) -> R {
    match Arc::as_ptr(&a.0.storage).cmp(&Arc::as_ptr(&b.0.storage)) {
        Ordering::Equal => {
            let guard = a.0.storage.read();
            f(&[input(a, &guard), input(b, &guard)])
        }
        order => {
            let (first, second) = if order == Ordering::Less { (a, b) } else { (b, a) };
            let (low, high) = (first.0.storage.read(), second.0.storage.read());
            let (at_a, at_b) = if order == Ordering::Less { (&low, &high) } else { (&high, &low) };
            f(&[input(a, at_a), input(b, at_b)])
        }
    }
}

fn input<'a>(x: &'a Tensor, buffer: &'a Buffer) -> Input<'a> {
    Input { buffer, layout: &x.0.layout, spec: x.spec() }
}

/// Runs `f` on the target's memory, to write to, and the operands', none of which may be the target's.
pub(crate) fn write<R>(
    target: &Arc<Storage>,
    inputs: &[&Tensor],
    f: impl FnOnce(&mut Buffer, &[Input]) -> R,
) -> R {
    let storages = in_order(inputs);
    let (below, above) =
        storages.split_at(storages.partition_point(|s| Arc::as_ptr(s) < Arc::as_ptr(target)));
    let mut guards: Guards = below.iter().map(|s| s.read()).collect();
    let mut buffer = target.write();
    guards.extend(above.iter().map(|s| s.read()));
    f(&mut buffer, &operands(inputs, &storages, &guards))
}

/// Runs `f` on the memory of several targets, to write to, and the operands'. All targets lie in storages of their own,
/// and no operand lies in one of those.
pub(crate) fn write_all<R>(
    targets: &[&Tensor],
    inputs: &[&Tensor],
    f: impl FnOnce(&mut [Target], &[Input]) -> R,
) -> R {
    let storages = in_order(inputs);
    let mut order: SmallVec<[(&Arc<Storage>, Option<usize>); 8]> = SmallVec::new();
    order.extend(storages.iter().map(|&s| (s, None)));
    order.extend(targets.iter().enumerate().map(|(i, t)| (&t.0.storage, Some(i))));
    order.sort_unstable_by_key(|(s, _)| Arc::as_ptr(s));
    let mut guards = Guards::new();
    let mut writers: SmallVec<[(usize, RwLockWriteGuard<Buffer>); 4]> = SmallVec::new();
    for (storage, target) in order {
        match target {
            Some(i) => writers.push((i, storage.write())),
            None => guards.push(storage.read()),
        }
    }
    writers.sort_unstable_by_key(|w| w.0);
    let mut all: SmallVec<[Target; 4]> = SmallVec::new();
    for (i, buffer) in &mut writers {
        let t = targets[*i];
        all.push(Target { buffer, layout: &t.0.layout, spec: t.spec() });
    }
    f(&mut all, &operands(inputs, &storages, &guards))
}

fn in_order<'a>(inputs: &[&'a Tensor]) -> Storages<'a> {
    let mut storages: Storages = inputs.iter().map(|x| &x.0.storage).collect();
    storages.sort_unstable_by_key(|s| Arc::as_ptr(s));
    storages.dedup_by_key(|s| Arc::as_ptr(s));
    storages
}

fn operands<'a>(
    inputs: &[&'a Tensor],
    storages: &Storages,
    guards: &'a Guards,
) -> SmallVec<[Input<'a>; 4]> {
    let operand = |x: &&'a Tensor| {
        let at = storages.partition_point(|s| Arc::as_ptr(s) < Arc::as_ptr(&x.0.storage));
        input(x, &guards[at])
    };
    inputs.iter().map(operand).collect()
}
