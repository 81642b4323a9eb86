//! The collectives, made of stages: see `board.rs`.
//!
//! Operands are cut into chunks that fit into a slot, so a call of any size moves through the same
//! memory, which stays in the caches. An `all_reduce` is a pipeline: in one stage the workers
//! publish a chunk of their operands *and* the reduced shares of the chunk before; then each
//! reduces its share of this chunk and copies the others' shares of the last one out. So a chunk
//! costs one wait, and a worker reads and writes about 4 bytes for each byte of its operand,
//! whatever the number of workers.

use crate::board::SlotHalf;
use crate::combine::combine;
use crate::sizes::{DIRECT, LINE};
use crate::worker::ActiveCall;
use pullback_ir::{Collective, Combination, Fresh, Result};
use std::ops::Range;

/// Runs a collective on dense memory.
pub(crate) fn run(
    calling: &mut ActiveCall<'_>,
    input: &[u8],
    output: &mut Fresh<'_>,
) -> Result<()> {
    crate::check_call(calling.call, calling.rank(), calling.size(), input, output.len())
        .map_err(|message| calling.error(message))?;
    let pair = matches!(calling.call.collective, Collective::Send { .. } | Collective::Recv { .. });
    if calling.size() == 1 && !pair {
        output.write(0, input);
        return calling.enter().map(drop);
    }
    match calling.call.collective {
        Collective::Send { to } => calling.send(*to, input),
        Collective::Recv { from, spec } => calling.receive(*from, spec, output),
        Collective::Barrier => calling.enter().map(drop),
        Collective::AllReduce(combination) => match input.len() <= DIRECT {
            true => direct(calling, *combination, input, output),
            false => pipeline(calling, *combination, Some(input), output),
        },
        Collective::AllGather => all_gather(calling, input, output),
        Collective::Broadcast { root } => broadcast(calling, *root, input, output),
        Collective::ReduceScatter => parts(calling, input, output, ExchangeKind::Reduced),
        Collective::AllToAll => parts(calling, input, output, ExchangeKind::Collected),
    }
}

/// An all-reduce whose result replaces the operand. This worker's share of a chunk goes through its
/// slot too, as it is read while the result is written.
pub(crate) fn all_reduce_in_place(
    calling: &mut ActiveCall<'_>,
    combination: Combination,
    memory: &mut [u8],
) -> Result<()> {
    let bytes = calling.call.operand.bytes();
    if memory.len() != bytes {
        let given = memory.len();
        let message = format!("the operand has {bytes} bytes, and {given} bytes were given");
        return Err(calling.error(message));
    }
    match (calling.size(), bytes <= DIRECT) {
        (1, _) => calling.enter().map(drop),
        (_, true) => {
            // Written to the slot before anything is read.
            let operand = memory.to_vec();
            direct(calling, combination, &operand, &mut Fresh::over(memory))
        }
        (_, false) => pipeline(calling, combination, None, &mut Fresh::over(memory)),
    }
}

/// The stage of a chunk: the first one carries the digest.
fn stage(calling: &mut ActiveCall<'_>, chunk: usize) -> Result<u64> {
    if chunk == 0 { calling.enter() } else { calling.stage() }
}

/// Ranges of at most `step` bytes that cover `len` bytes; one, perhaps empty, at least.
fn chunks(len: usize, step: usize) -> impl Iterator<Item = (usize, Range<usize>)> {
    let count = len.div_ceil(step).max(1);
    (0..count).map(move |i| (i, i * step..len.min((i + 1) * step)))
}

fn direct(
    calling: &mut ActiveCall<'_>,
    combination: Combination,
    input: &[u8],
    output: &mut Fresh<'_>,
) -> Result<()> {
    calling.board().write(calling.rank(), calling.next_stage(), SlotHalf::Operand, 0, input);
    let stage = calling.enter()?;
    let (board, dtype, len) = (calling.board(), calling.call.operand.dtype, output.len());
    let read = |rank: usize, at: usize, block: &mut [u8]| {
        board.read(rank, stage, SlotHalf::Operand, at, block);
    };
    combine(combination, dtype, calling.size(), len, read, |at, block| output.write(at, block));
    Ok(())
}

/// The share of a worker of a chunk of `len` bytes.
fn share(len: usize, rank: usize, size: usize) -> Range<usize> {
    let each = len.div_ceil(size).next_multiple_of(LINE);
    (rank * each).min(len)..((rank + 1) * each).min(len)
}

/// Without an input the operand is what is in `output`.
fn pipeline(
    calling: &mut ActiveCall<'_>,
    combination: Combination,
    input: Option<&[u8]>,
    output: &mut Fresh<'_>,
) -> Result<()> {
    let (me, size, dtype) = (calling.rank(), calling.size(), calling.call.operand.dtype);
    let mut before: Option<Range<usize>> = None;
    for (i, chunk) in chunks(output.len(), calling.board().chunk()) {
        let (board, next) = (calling.board(), calling.next_stage());
        let operand = input.or(output.old()).unwrap_or_default();
        let operand = &operand[chunk.clone()];
        for rank in (0..size).filter(|&rank| rank != me || input.is_none()) {
            let share = share(operand.len(), rank, size);
            board.write(me, next, SlotHalf::Operand, share.start, &operand[share]);
        }
        let stage = stage(calling, i)?;
        let board = calling.board();
        // Mine of this chunk, for the next stage; all have read what was there.
        let mine = share(chunk.len(), me, size);
        let start = chunk.start + mine.start;
        let read = |rank: usize, at: usize, block: &mut [u8]| match input {
            Some(input) if rank == me => block.copy_from_slice(&input[start + at..][..block.len()]),
            _ => board.read(rank, stage, SlotHalf::Operand, mine.start + at, block),
        };
        combine(combination, dtype, size, mine.len(), read, |at, block| {
            output.write(start + at, block);
            board.write(me, stage + 1, SlotHalf::Result, at, block);
        });
        if let Some(before) = before.replace(chunk) {
            copy_shares(calling, stage, output, before);
        }
    }
    let stage = calling.stage()?;
    if let Some(last) = before {
        copy_shares(calling, stage, output, last);
    }
    Ok(())
}

/// Copies the shares of a chunk that others have reduced out.
fn copy_shares(calling: &ActiveCall<'_>, stage: u64, output: &mut Fresh<'_>, chunk: Range<usize>) {
    let (me, size) = (calling.rank(), calling.size());
    for rank in (0..size).filter(|&rank| rank != me) {
        let share = share(chunk.len(), rank, size);
        let to = chunk.start + share.start..chunk.start + share.end;
        calling.board().read_fresh(rank, stage, SlotHalf::Result, 0, output, to);
    }
}

fn all_gather(calling: &mut ActiveCall<'_>, input: &[u8], output: &mut Fresh<'_>) -> Result<()> {
    let me = calling.rank();
    for (i, chunk) in chunks(input.len(), calling.board().chunk()) {
        let next = calling.next_stage();
        calling.board().write(me, next, SlotHalf::Operand, 0, &input[chunk.clone()]);
        let stage = stage(calling, i)?;
        for rank in 0..calling.size() {
            let start = rank * input.len();
            let part = start + chunk.start..start + chunk.end;
            match rank == me {
                true => output.write(part.start, &input[chunk.clone()]),
                false => {
                    calling.board().read_fresh(rank, stage, SlotHalf::Operand, 0, output, part)
                }
            }
        }
    }
    Ok(())
}

fn broadcast(
    calling: &mut ActiveCall<'_>,
    root: usize,
    input: &[u8],
    output: &mut Fresh<'_>,
) -> Result<()> {
    let me = calling.rank();
    for (i, chunk) in chunks(output.len(), calling.board().chunk()) {
        if me == root {
            let next = calling.next_stage();
            calling.board().write(me, next, SlotHalf::Operand, 0, &input[chunk.clone()]);
        }
        let stage = stage(calling, i)?;
        match me == root {
            true => output.write(chunk.start, &input[chunk]),
            false => calling.board().read_fresh(root, stage, SlotHalf::Operand, 0, output, chunk),
        }
    }
    Ok(())
}

/// What a worker does with the parts that are meant for it.
#[derive(Clone, Copy)]
enum ExchangeKind {
    /// Their sum.
    Reduced,
    /// One after the other.
    Collected,
}

/// Part `r` of every operand goes to worker `r`.
fn parts(
    calling: &mut ActiveCall<'_>,
    input: &[u8],
    output: &mut Fresh<'_>,
    what: ExchangeKind,
) -> Result<()> {
    let (me, size, dtype) = (calling.rank(), calling.size(), calling.call.operand.dtype);
    let part = input.len() / size;
    // A slot holds a piece of each part.
    let step = (calling.board().chunk() / size) / LINE * LINE;
    for (i, chunk) in chunks(part, step) {
        let (board, next) = (calling.board(), calling.next_stage());
        let mine = |rank: usize| &input[rank * part..][chunk.clone()];
        for rank in (0..size).filter(|&rank| rank != me) {
            board.write(me, next, SlotHalf::Operand, rank * step, mine(rank));
        }
        let stage = stage(calling, i)?;
        let board = calling.board();
        let read = |rank: usize, at: usize, block: &mut [u8]| match rank == me {
            true => block.copy_from_slice(&mine(me)[at..][..block.len()]),
            false => board.read(rank, stage, SlotHalf::Operand, me * step + at, block),
        };
        match what {
            ExchangeKind::Reduced => {
                combine(Combination::Sum, dtype, size, chunk.len(), read, |at, block| {
                    output.write(chunk.start + at, block);
                });
            }
            ExchangeKind::Collected => {
                for rank in 0..size {
                    let to = rank * part + chunk.start..rank * part + chunk.end;
                    match rank == me {
                        true => output.write(to.start, mine(me)),
                        false => {
                            let from = me * step;
                            board.read_fresh(rank, stage, SlotHalf::Operand, from, output, to);
                        }
                    }
                }
            }
        }
    }
    Ok(())
}
