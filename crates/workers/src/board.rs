//! Where the workers of a group meet: one block of shared memory, the same for threads and
//! processes.
//!
//! ```text
//! header      why the group has failed, if it has; a futex for waiters
//! workers     for each: how many stages it has published, and its last two digests
//! mail        for each pair: how many messages one has sent to the other
//! slots       for each worker two of them, for even and odd stages: an operand, a partial result
//! ```
//!
//! # Stages
//!
//! A collective is a number of *stages*, which follows from the call. In a stage a worker writes
//! its slot, publishes (adds one to its counter), waits until all have published, and reads the
//! slots of the others. No other lock or barrier is needed: who has published stage `s` has read
//! what it wanted of stage `s - 1`, so once all have, the slots of `s - 1` may be written for
//! `s + 1`. The first stage of every collective carries the digests too; all workers see all
//! digests, so all come to the same conclusion.
//!
//! # Waiting
//!
//! A waiter spins for some microseconds, yields, and then sleeps on the futex. It
//! periodically checks: has the group failed, is the worker it waits for alive, is time up. Whoever
//! finds that out first writes the reason into the header, and all others return it.

use crate::call_digest::{self, CallDigest, head};
use crate::sizes::{CHUNK, LINE};
use pullback_cpu::shared_memory::SharedMemory;
use pullback_ir::Fresh;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A slot holds a chunk of an operand in a small group, and this many bytes in a large one at
/// least: all slots together stay small.
const SMALLEST: usize = 128 << 10;
const ALL_SLOTS: usize = 16 << 20;

const PAGE: usize = 4096;
/// Words of the header.
const FAILED: usize = 0;
const REASON_BYTES: usize = 1;
const BELL: usize = 16;
const SLEEPERS: usize = 32;
/// Bytes of the header where the reason begins.
const REASON: usize = 512;
/// Words of a worker's page.
const STAGE: usize = 0;
const ENTERED: usize = 1;
/// Bytes of a worker's page where its digests begin.
const DIGESTS: usize = 1024;

/// How long a waiter keeps its core: to spin, then to offer it to others.
const SPIN: Duration = Duration::from_micros(10);
const YIELD: Duration = Duration::from_micros(100);
/// How long it sleeps before it looks around.
const NAP: Duration = Duration::from_millis(20);

/// One of the two halves of a slot.
#[derive(Clone, Copy)]
pub(crate) enum SlotHalf {
    Operand,
    Result,
}

pub(crate) struct Board {
    memory: SharedMemory,
    size: usize,
}

/// Bytes of an operand that a slot of a group holds.
fn operand(size: usize) -> usize {
    (ALL_SLOTS / size.max(1)).clamp(SMALLEST, CHUNK) / LINE * LINE
}

/// Bytes of a slot: with two workers each reduces half of a chunk.
fn slot(size: usize) -> usize {
    operand(size) + operand(size) / 2 + LINE
}

/// What a wait ended with.
pub(crate) enum Wait {
    /// What was waited for is there. If it was not at once: for which worker, and how long.
    Done(Option<(usize, Duration)>),
    /// The group has failed.
    Failed(String),
    /// Time is up, and this worker is missing.
    TimeOut(usize),
    /// The worker that is waited for will not come: why.
    Gone(usize, String),
}

impl Board {
    /// Bytes of the board of a group.
    fn bytes(size: usize) -> usize {
        Board::slots(size) + 2 * size * slot(size)
    }

    fn slots(size: usize) -> usize {
        PAGE * (1 + size) + (size * size * 8).next_multiple_of(PAGE)
    }

    /// A board for threads of this process.
    pub(crate) fn of_process(size: usize) -> io::Result<Board> {
        Ok(Board { memory: SharedMemory::of_process(Board::bytes(size))?, size })
    }

    /// The board that processes share by this file.
    pub(crate) fn of_file(file: &std::fs::File, size: usize) -> io::Result<Board> {
        Ok(Board { memory: SharedMemory::of_file(file, Board::bytes(size))?, size })
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Bytes of an operand that a slot holds.
    pub(crate) fn chunk(&self) -> usize {
        operand(self.size)
    }

    fn header(&self, word: usize) -> &AtomicU64 {
        &self.memory.words()[word]
    }

    fn page(&self, rank: usize) -> usize {
        PAGE * (1 + rank)
    }

    fn worker(&self, rank: usize, word: usize) -> &AtomicU64 {
        &self.memory.words()[self.page(rank) / 8 + word]
    }

    /// How many stages a worker has published.
    pub(crate) fn stage(&self, rank: usize) -> u64 {
        self.worker(rank, STAGE).load(Ordering::Acquire)
    }

    /// How many collectives of the whole group a worker has entered.
    pub(crate) fn entered(&self, rank: usize) -> u64 {
        self.worker(rank, ENTERED).load(Ordering::Acquire)
    }

    /// Publishes what this worker has written.
    pub(crate) fn publish(&self, rank: usize, stage: u64) {
        self.worker(rank, STAGE).store(stage, Ordering::SeqCst);
        self.ring();
    }

    /// Wakes those who sleep. The store before and the load here, and a sleeper's count and its
    /// look at what it waits for, are in one total order: one of the two sees the other.
    fn ring(&self) {
        if self.header(SLEEPERS).load(Ordering::SeqCst) > 0 {
            self.header(BELL).fetch_add(1, Ordering::SeqCst);
            self.memory.wake(BELL);
        }
    }

    /// Writes the digest of the collective that a worker enters, before it publishes.
    pub(crate) fn enter(&self, rank: usize, number: u64, digest: &CallDigest) {
        self.memory.write(self.digest_at(rank, number), &digest.encode());
        self.worker(rank, ENTERED).store(number + 1, Ordering::Release);
    }

    fn digest_at(&self, rank: usize, number: u64) -> usize {
        self.page(rank) + DIGESTS + (number % 2) as usize * call_digest::BYTES
    }

    /// The digest with which a worker entered a collective, this one or the one before.
    pub(crate) fn digest(&self, rank: usize, number: u64) -> CallDigest {
        let mut bytes = [0; call_digest::BYTES];
        self.memory.read(self.digest_at(rank, number), &mut bytes);
        CallDigest::decode(&bytes)
    }

    /// The last collective that a worker entered, in words.
    pub(crate) fn last(&self, rank: usize) -> String {
        match self.entered(rank) {
            0 => "before its first collective".to_string(),
            n => format!("its last collective was {}", self.digest(rank, n - 1)),
        }
    }

    fn slot_at(&self, rank: usize, stage: u64, half: SlotHalf) -> usize {
        let index = 2 * rank + (stage % 2) as usize;
        let start = Board::slots(self.size) + index * slot(self.size);
        match half {
            SlotHalf::Operand => start,
            SlotHalf::Result => start + operand(self.size),
        }
    }

    /// Writes a part of a slot of this worker.
    pub(crate) fn write(&self, rank: usize, stage: u64, half: SlotHalf, at: usize, bytes: &[u8]) {
        self.memory.write(self.slot_at(rank, stage, half) + at, bytes);
    }

    /// Reads a part of a slot of any worker.
    pub(crate) fn read(
        &self,
        rank: usize,
        stage: u64,
        half: SlotHalf,
        at: usize,
        bytes: &mut [u8],
    ) {
        self.memory.read(self.slot_at(rank, stage, half) + at, bytes);
    }

    /// Reads a part of a slot of any worker to a range of a result.
    pub(crate) fn read_fresh(
        &self,
        rank: usize,
        stage: u64,
        half: SlotHalf,
        at: usize,
        result: &mut Fresh<'_>,
        to: Range<usize>,
    ) {
        self.memory.read_fresh(self.slot_at(rank, stage, half) + at, result, to.start, to.len());
    }

    fn mail(&self, from: usize, to: usize) -> &AtomicU64 {
        &self.memory.words()[self.page(self.size) / 8 + from * self.size + to]
    }

    /// How many messages one worker has sent to another.
    pub(crate) fn sent(&self, from: usize, to: usize) -> u64 {
        self.mail(from, to).load(Ordering::Acquire)
    }

    /// Says that a message can be taken.
    pub(crate) fn count_sent(&self, from: usize, to: usize) {
        self.mail(from, to).fetch_add(1, Ordering::SeqCst);
        self.ring();
    }

    /// Makes the group fail, unless it has failed already.
    pub(crate) fn fail(&self, reason: &str) {
        let start =
            self.header(FAILED).compare_exchange(0, 1, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        if start {
            let reason = head(reason, PAGE - REASON);
            self.memory.write(REASON, reason.as_bytes());
            self.header(REASON_BYTES).store(reason.len() as u64, Ordering::Relaxed);
            self.header(FAILED).store(2, Ordering::SeqCst);
            self.header(BELL).fetch_add(1, Ordering::SeqCst);
            self.memory.wake(BELL);
        }
    }

    /// Why the group has failed, if it has.
    pub(crate) fn failed(&self) -> Option<String> {
        if self.header(FAILED).load(Ordering::Acquire) != 2 {
            return None;
        }
        let len = self.header(REASON_BYTES).load(Ordering::Relaxed) as usize;
        let mut bytes = vec![0; len.min(PAGE - REASON)];
        self.memory.read(REASON, &mut bytes);
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Waits until `missing` names no worker. `gone` says why a worker will not come.
    pub(crate) fn wait(
        &self,
        deadline: Option<Instant>,
        missing: impl Fn() -> Option<usize>,
        gone: impl Fn(usize) -> Option<String>,
    ) -> Wait {
        if missing().is_none() {
            return Wait::Done(None);
        }
        let start = Instant::now();
        let mut last = 0;
        let mut looked = start;
        loop {
            match missing() {
                None => return Wait::Done(Some((last, start.elapsed()))),
                Some(rank) => last = rank,
            }
            let now = Instant::now();
            let waited = now - start;
            if waited < SPIN {
                (0..32).for_each(|_| std::hint::spin_loop());
                continue;
            }
            if let Some(reason) = self.failed() {
                return Wait::Failed(reason);
            }
            if waited < YIELD {
                std::thread::yield_now();
                continue;
            }
            if now - looked >= NAP {
                looked = now;
                // It may have come, and ended, since it was found missing.
                if let Some(why) = gone(last)
                    && missing() == Some(last)
                    && self.failed().is_none()
                {
                    return Wait::Gone(last, why);
                }
                if deadline.is_some_and(|deadline| now >= deadline) {
                    return Wait::TimeOut(last);
                }
            }
            self.header(SLEEPERS).fetch_add(1, Ordering::SeqCst);
            let bell = self.header(BELL).load(Ordering::SeqCst);
            if missing().is_some() && self.failed().is_none() {
                self.memory.sleep_while(BELL, bell, NAP);
            }
            self.header(SLEEPERS).fetch_sub(1, Ordering::SeqCst);
        }
    }
}
