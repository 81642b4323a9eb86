//! Memory of a device, cached: a few large segments, cut into blocks.
//!
//! A block that is given back is used again at once, by work that comes later on the same stream.
//! Neighbours that are free are joined. Small requests have segments of their own, so that they do
//! not keep large ones from being given back. When the driver has no more, cached segments are
//! given back and the request is tried once more.
//!
//! Copies beside the queue ([`MemoryPool::note_copy`]) may still read or write a block that is
//! given back. It then waits until they have ended; or, where many bytes wait or there is no other
//! memory, the queue waits for them.

use crate::gpu::{Gpu, OUT_OF_MEMORY};
use crate::pinned::Event;
use pullback_cuda_sys::DevicePtr;
use pullback_ir::{Error, ErrorKind, PoolStats, Result};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Every block is a multiple of this, and begins at one.
const GRAIN: usize = 512;
/// Requests up to this many bytes are small.
const SMALL: usize = 1 << 20;
/// Bytes of a segment for small requests.
const SMALL_SEGMENT: usize = 8 << 20;
/// Least bytes of other segments.
const SEGMENT: usize = 64 << 20;
/// From here on a request has a segment of its own size, in multiples of `ROUND`.
const LARGE: usize = 32 << 20;
const ROUND: usize = 2 << 20;
/// From so many bytes that wait for copies on, the queue waits for them.
const WAITING: usize = 1 << 30;

#[derive(Default)]
pub(crate) struct MemoryPool {
    /// By address.
    blocks: BTreeMap<DevicePtr, PoolBlock>,
    /// Free blocks: class, bytes, address.
    free: BTreeSet<(bool, usize, DevicePtr)>,
    /// Bytes of each segment, by address.
    segments: BTreeMap<DevicePtr, usize>,
    /// The copies beside the queue from and to each block in use.
    copies: BTreeMap<DevicePtr, Vec<Arc<Event>>>,
    /// Blocks that were given back, and their copies.
    waiting: VecDeque<(DevicePtr, Vec<Arc<Event>>)>,
    waiting_bytes: usize,
    /// Bytes of blocks that graphs keep for their steps.
    held_by_graphs: u64,
    stats: PoolStats,
}

#[derive(Clone, Copy)]
struct PoolBlock {
    bytes: usize,
    /// Bytes that were asked for; zero if it is free.
    requested: usize,
    used: bool,
    small: bool,
    segment: DevicePtr,
}

impl MemoryPool {
    /// A cached block, if there is one: most requests.
    pub fn reuse(&mut self, bytes: usize) -> Option<DevicePtr> {
        let rounded = bytes.max(1).checked_next_multiple_of(GRAIN)?;
        self.reap();
        let at = self.take(rounded, rounded <= SMALL)?;
        self.stats.allocations += 1;
        self.stats.reused += 1;
        self.count(at, bytes);
        Some(at)
    }

    fn count(&mut self, at: DevicePtr, bytes: usize) {
        if let Some(block) = self.blocks.get_mut(&at) {
            block.requested = bytes;
        }
        self.stats.live_bytes += bytes as u64;
        self.stats.peak_bytes = self.stats.peak_bytes.max(self.stats.live_bytes);
    }

    pub fn alloc(&mut self, gpu: &Gpu, bytes: usize) -> Result<DevicePtr> {
        let Some(rounded) = bytes.max(1).checked_next_multiple_of(GRAIN) else {
            return Err(self.exhausted(gpu, bytes));
        };
        let small = rounded <= SMALL;
        self.reap();
        let mut found = self.take(rounded, small);
        while found.is_none() && self.waiting_bytes > WAITING && self.wait_for_oldest(gpu)? {
            found = self.take(rounded, small);
        }
        let reused = found.is_some();
        let at = match found {
            Some(at) => at,
            None => {
                let segment = match (small, rounded) {
                    (true, _) => SMALL_SEGMENT,
                    (false, ..LARGE) => SEGMENT,
                    (false, _) => rounded.next_multiple_of(ROUND),
                };
                self.grow(gpu, segment, small, bytes, rounded)?;
                self.take(rounded, small).ok_or_else(|| self.exhausted(gpu, bytes))?
            }
        };
        // A request that fails leaves all numbers as they were.
        self.stats.allocations += 1;
        self.stats.reused += u64::from(reused);
        self.count(at, bytes);
        Ok(at)
    }

    /// Memory that counts as cached, until it is given back.
    pub fn alloc_cached(&mut self, gpu: &Gpu, bytes: usize) -> Result<DevicePtr> {
        let peak = self.stats.peak_bytes;
        let at = self.alloc(gpu, bytes)?;
        if let Some(block) = self.blocks.get_mut(&at) {
            block.requested = 0;
            self.held_by_graphs += block.bytes as u64;
        }
        self.stats.live_bytes -= bytes as u64;
        self.stats.peak_bytes = peak;
        Ok(at)
    }

    /// Gives back memory of [`MemoryPool::alloc_cached`].
    pub fn free_cached(&mut self, gpu: &Gpu, at: DevicePtr) {
        let bytes = self.blocks.get(&at).map_or(0, |block| block.bytes as u64);
        self.held_by_graphs = self.held_by_graphs.saturating_sub(bytes);
        self.free(gpu, at);
    }

    /// Notes a copy beside the queue from or to a block.
    pub fn note_copy(&mut self, block: DevicePtr, copy: &Arc<Event>) {
        let copies = self.copies.entry(block).or_default();
        copies.retain(|copy| !copy.is_past());
        copies.push(copy.clone());
    }

    /// The copies of a block, for which the queue waits from now on.
    pub fn take_copies(&mut self, block: DevicePtr) -> Vec<Arc<Event>> {
        self.copies.remove(&block).unwrap_or_default()
    }

    /// Frees the blocks whose copies have ended.
    fn reap(&mut self) {
        while let Some((at, copies)) = self.waiting.front()
            && copies.iter().all(|copy| copy.is_past())
        {
            let at = *at;
            self.waiting.pop_front();
            self.leave(at);
        }
    }

    /// Frees the oldest block that waits, once the queue has waited for its copies; whether there
    /// was one.
    fn wait_for_oldest(&mut self, gpu: &Gpu) -> Result<bool> {
        let Some((at, copies)) = self.waiting.pop_front() else { return Ok(false) };
        let ordered = copies.iter().try_for_each(|copy| copy.before(gpu, gpu.stream));
        self.leave(at);
        ordered.map(|()| true)
    }

    /// A block does not wait any more.
    fn leave(&mut self, at: DevicePtr) {
        self.waiting_bytes -= self.blocks.get(&at).map_or(0, |block| block.bytes);
        self.join(at);
    }

    fn has(&self, bytes: usize, small: bool) -> bool {
        self.free.range((small, bytes, 0)..(small, usize::MAX, u64::MAX)).next().is_some()
    }

    /// The smallest free block that is long enough, cut to size.
    fn take(&mut self, bytes: usize, small: bool) -> Option<DevicePtr> {
        let found = *self.free.range((small, bytes, 0)..(small, usize::MAX, u64::MAX)).next()?;
        self.free.remove(&found);
        let (_, whole, at) = found;
        let block = self.blocks.get_mut(&at)?;
        block.used = true;
        if whole - bytes >= GRAIN {
            block.bytes = bytes;
            let rest = PoolBlock { bytes: whole - bytes, requested: 0, used: false, ..*block };
            self.blocks.insert(at + bytes as u64, rest);
            self.free.insert((small, rest.bytes, at + bytes as u64));
        }
        Some(at)
    }

    /// Makes a free block: from what waits for copies if the driver has no more, then from what is
    /// left when cached segments were given back.
    fn grow(
        &mut self,
        gpu: &Gpu,
        segment: usize,
        small: bool,
        asked: usize,
        rounded: usize,
    ) -> Result<()> {
        let mut at = 0;
        // SAFETY: writes one address.
        let mut get = || unsafe { (gpu.driver.cuMemAlloc_v2)(&mut at, segment) };
        let mut code = get();
        if code == OUT_OF_MEMORY {
            while self.wait_for_oldest(gpu)? {
                if self.has(rounded, small) {
                    return Ok(());
                }
            }
            self.trim(gpu);
            code = get();
        }
        match code {
            0 => {}
            OUT_OF_MEMORY => return Err(self.exhausted(gpu, asked)),
            code => return Err(gpu.failed("alloc", code)),
        }
        self.segments.insert(at, segment);
        self.blocks.insert(
            at,
            PoolBlock { bytes: segment, requested: 0, used: false, small, segment: at },
        );
        self.free.insert((small, segment, at));
        Ok(())
    }

    #[cold]
    fn exhausted(&self, gpu: &Gpu, bytes: usize) -> Error {
        let (mut left, mut total) = (0, 0);
        // SAFETY: writes two numbers.
        unsafe { (gpu.driver.cuMemGetInfo_v2)(&mut left, &mut total) };
        let message = format!(
            "cannot allocate {bytes} bytes on cuda:{}: {} bytes are in use by tensors, {} are \
             cached, and {left} of {total} are free on the device",
            gpu.number,
            self.stats.live_bytes,
            self.cached(),
        );
        Error::new(ErrorKind::Memory, "alloc", message)
    }

    pub fn free(&mut self, gpu: &Gpu, at: DevicePtr) {
        let Some(block) = self.blocks.get_mut(&at).filter(|block| block.used) else { return };
        self.stats.live_bytes -= std::mem::take(&mut block.requested) as u64;
        if let Some(copies) = self.copies.remove(&at) {
            // Not `enter`: whoever has the lock of the queue may wait for that of the pool.
            gpu.make_current();
            if !copies.iter().all(|copy| copy.is_past()) {
                self.waiting_bytes += block.bytes;
                self.waiting.push_back((at, copies));
                return;
            }
        }
        self.join(at);
    }

    /// Makes a block free, and joins it with its neighbours.
    fn join(&mut self, at: DevicePtr) {
        let Some(block) = self.blocks.get_mut(&at) else { return };
        block.used = false;
        let mut joined = (at, *block);
        let after = at + joined.1.bytes as u64;
        if let Some(next) = self.blocks.get(&after).copied()
            && !next.used
            && next.segment == joined.1.segment
        {
            self.free.remove(&(next.small, next.bytes, after));
            self.blocks.remove(&after);
            joined.1.bytes += next.bytes;
        }
        if let Some((&before, &block)) = self.blocks.range(..at).next_back()
            && !block.used
            && block.segment == joined.1.segment
        {
            self.free.remove(&(block.small, block.bytes, before));
            self.blocks.remove(&at);
            joined = (before, PoolBlock { bytes: block.bytes + joined.1.bytes, ..block });
        }
        joined.1.requested = 0;
        self.blocks.insert(joined.0, joined.1);
        self.free.insert((joined.1.small, joined.1.bytes, joined.0));
    }

    fn cached(&self) -> u64 {
        let free = self.free.iter().map(|block| block.1 as u64).sum::<u64>();
        free + self.waiting_bytes as u64 + self.held_by_graphs
    }

    pub fn stats(&self) -> PoolStats {
        PoolStats { cached_bytes: self.cached(), ..self.stats }
    }

    pub fn reset_peak(&mut self) {
        self.stats.peak_bytes = self.stats.live_bytes;
    }

    /// Gives segments that are wholly free back to the driver, once work on them has ended.
    pub fn trim(&mut self, gpu: &Gpu) {
        // If the device has failed there is nothing in flight.
        while self.wait_for_oldest(gpu).unwrap_or(true) {}
        // SAFETY: the stream lives as long as the process. Errors are those of earlier work.
        unsafe { (gpu.driver.cuStreamSynchronize)(gpu.stream.0) };
        let whole = |(&at, &bytes): (&DevicePtr, &usize)| {
            let block = self.blocks.get(&at)?;
            (!block.used && block.bytes == bytes).then_some((at, bytes, block.small))
        };
        for (at, bytes, small) in self.segments.iter().filter_map(whole).collect::<Vec<_>>() {
            self.free.remove(&(small, bytes, at));
            self.blocks.remove(&at);
            self.segments.remove(&at);
            // SAFETY: nothing refers to the segment any more.
            unsafe { (gpu.driver.cuMemFree_v2)(at) };
        }
    }
}
