//! A value in pieces that threads share. Pieces depend on its length alone, so what is made of them
//! does not depend on the number of threads.

use crate::backend::for_each;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// Elements of a piece: whole blocks, and whole bytes of bits.
pub(super) const PIECE: usize = 1 << 14;

/// What is made of each piece, in order; `None` if that is so for one.
pub(super) fn made_of<R: Send>(
    len: usize,
    make: impl Fn(Range<usize>) -> Option<R> + Sync,
) -> Option<Vec<R>> {
    let made: Vec<Mutex<Option<R>>> = (0..len.div_ceil(PIECE)).map(|_| Mutex::default()).collect();
    for_each(made.len(), |i| {
        let result = make(i * PIECE..len.min((i + 1) * PIECE));
        *made[i].lock().unwrap_or_else(PoisonError::into_inner) = result;
    });
    made.into_iter().map(|slot| slot.into_inner().unwrap_or_else(PoisonError::into_inner)).collect()
}

/// Fills each piece, given its number; `None` if that is so for one.
pub(super) fn filled<T: Send>(
    out: &mut [T],
    fill: impl Fn(usize, &mut [T]) -> Option<()> + Sync,
) -> Option<()> {
    let pieces: Vec<Mutex<&mut [T]>> = out.chunks_mut(PIECE).map(Mutex::new).collect();
    let done = made_of(pieces.len() * PIECE, |range| {
        let piece = range.start / PIECE;
        fill(piece, &mut pieces[piece].lock().unwrap_or_else(PoisonError::into_inner))
    });
    done.map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_come_in_order_and_cover_everything() {
        for len in [0, 1, PIECE, PIECE + 1, 5 * PIECE + 7] {
            for threads in [1, 3] {
                crate::backend::with_threads(threads, || {
                    let all: Vec<usize> =
                        made_of(len, Some).unwrap().into_iter().flatten().collect();
                    assert!(all.into_iter().eq(0..len));
                    let mut out = vec![usize::MAX; len];
                    let fill = |piece: usize, part: &mut [usize]| {
                        part.iter_mut().enumerate().for_each(|(i, x)| *x = piece * PIECE + i);
                        Some(())
                    };
                    assert!(filled(&mut out, fill).is_some());
                    assert!(out.into_iter().eq(0..len));
                });
            }
        }
        assert!(made_of(2 * PIECE, |range| (range.start == 0).then_some(())).is_none());
        assert!(filled(&mut [0u8; PIECE + 1], |piece, _| (piece == 0).then_some(())).is_none());
    }
}
