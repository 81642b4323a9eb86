//! Locks on the memory of operands, held while an op is given to its device.
//!
//! The contract: work on a storage is ordered on the stream of its device, in the order in which
//! its lock was taken. On the host the work is done when the lock is released. On other devices it
//! is then in the queue, and reading the memory on the host waits for it (`backend::attach`); no
//! lock is held meanwhile.
//!
//! Each storage is locked once, in the order of addresses: so threads that write in place to what
//! others read cannot deadlock, and `x * x` does not lock `x` twice.

use crate::backend::Pooled;
use crate::backend::{Bound, Memory, ReadGuard, WriteGuard};
use crate::storage::Storage;
use crate::{Error, Result, Tensor};
use pullback_ir::infer::Checked;
use smallvec::SmallVec;
use std::cmp::Ordering;

/// Runs `f` on the operands' memory.
pub(crate) fn read<R>(inputs: &[&Tensor], f: impl FnOnce(&[&Memory]) -> R) -> R {
    match inputs {
        [] => f(&[]),
        [x] => f(&[&*x.0.storage.read()]),
        [a, b] => read_two(a, b, Storage::read, f),
        _ => {
            let claims: SmallVec<[Claim; 8]> = inputs.iter().map(|x| Claim::read(x)).collect();
            let read = |bound: &mut [Bound<'_>]| {
                f(&bound.iter().map(Bound::memory).collect::<SmallVec<[&Memory; 8]>>())
            };
            match hold::<8, _>(&claims, |bound| Ok(read(bound))) {
                Ok(result) => result,
                Err(_) => unreachable!("memory that is only read is bound any number of times"),
            }
        }
    }
}

/// [`read`] for an op that `f` runs on the host: locked briefly, if it takes less than a
/// microsecond.
#[inline]
pub(crate) fn read_for<R>(
    call: &Checked,
    inputs: &[&Tensor],
    f: impl FnOnce(&[&Memory]) -> R,
) -> R {
    /// Elements of the most expensive functions that are computed in that time.
    const FEW: usize = 64;
    match matches!(call.results(), [y] if y.len() <= FEW) && call.op().is_pointwise() {
        true => read_briefly(inputs, f),
        false => read(inputs, f),
    }
}

/// [`read`] for what takes less than a microsecond.
#[inline]
pub(crate) fn read_briefly<R>(inputs: &[&Tensor], f: impl FnOnce(&[&Memory]) -> R) -> R {
    match inputs {
        [x] => f(&[&*x.0.storage.read_briefly()]),
        [a, b] => read_two(a, b, Storage::read_briefly, f),
        _ => read(inputs, f),
    }
}

/// The common case, without lists.
#[inline]
fn read_two<'a, R>(
    a: &'a Tensor,
    b: &'a Tensor,
    read: fn(&'a Storage) -> ReadGuard<'a, Memory>,
    f: impl FnOnce(&[&Memory]) -> R,
) -> R {
    match Pooled::as_ptr(&a.0.storage).cmp(&Pooled::as_ptr(&b.0.storage)) {
        Ordering::Equal => {
            let guard = read(&a.0.storage);
            f(&[&guard, &guard])
        }
        Ordering::Less => {
            let (low, high) = (read(&a.0.storage), read(&b.0.storage));
            f(&[&low, &high])
        }
        Ordering::Greater => {
            let (low, high) = (read(&b.0.storage), read(&a.0.storage));
            f(&[&high, &low])
        }
    }
}

/// Memory that is to be locked.
pub(crate) struct Claim<'a> {
    pub storage: &'a Pooled<Storage>,
    /// The byte at which an operand begins in it.
    pub start: usize,
    pub written: bool,
}

impl<'a> Claim<'a> {
    /// To read a tensor.
    pub fn read(x: &'a Tensor) -> Claim<'a> {
        let start = x.0.layout.offset * x.dtype().size();
        Claim { storage: &x.0.storage, start, written: false }
    }

    /// To write to a tensor.
    pub fn write(x: &'a Tensor) -> Claim<'a> {
        Claim { written: true, ..Claim::read(x) }
    }
}

/// Locks all memory, each once and in the order of addresses, and runs `f` on it. Up to `N` claims
/// need no list on the heap.
///
/// # Errors
/// If memory that is written is claimed twice.
pub(crate) fn hold<const N: usize, R>(
    claims: &[Claim<'_>],
    f: impl FnOnce(&mut [Bound<'_>]) -> Result<R>,
) -> Result<R> {
    let address = |c: &Claim| Pooled::as_ptr(c.storage) as usize;
    let mut order: SmallVec<[usize; N]> = (0..claims.len()).collect();
    // Of claims on one memory a writer comes first: that memory is then locked for writing.
    order.sort_unstable_by_key(|&i| (address(&claims[i]), !claims[i].written));
    let mut readers: SmallVec<[ReadGuard<'_, Memory>; N]> = SmallVec::new();
    let mut writers: SmallVec<[WriteGuard<'_, Memory>; N]> = SmallVec::new();
    let mut lock_of: SmallVec<[usize; N]> = SmallVec::from_elem(0, claims.len());
    let mut last = None;
    for &i in &order {
        let claim = &claims[i];
        match (last, claim.written) {
            (Some((at, writing)), written) if at == address(claim) => {
                // Written memory is unaliased: the caller copies operands that share it.
                if writing || written {
                    return Err(Error::argument("run", "memory that is written is bound twice"));
                }
            }
            (_, true) => writers.push(claim.storage.write()),
            (_, false) => readers.push(claim.storage.read()),
        }
        last = Some((address(claim), claim.written));
        lock_of[i] = if claim.written { writers.len() } else { readers.len() } - 1;
    }
    let mut open: SmallVec<[Option<&mut Memory>; N]> =
        writers.iter_mut().map(|guard| Some(&mut **guard)).collect();
    let mut bound: SmallVec<[Bound<'_>; N]> = SmallVec::new();
    for (claim, &at) in claims.iter().zip(&lock_of) {
        let memory = match claim.written {
            true => open[at].take().map(|memory| Bound::Write(memory, claim.start)),
            false => readers.get(at).map(|memory| Bound::Read(memory, claim.start)),
        };
        match memory {
            Some(memory) => bound.push(memory),
            None => unreachable!("each claim has a lock"),
        }
    }
    f(&mut bound)
}
