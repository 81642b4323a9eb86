//! Memory of a device, cached: a few large segments, cut into blocks.
//!
//! A block that is given back is used again at once, by work that comes later on the same stream.
//! Neighbours that are free are joined. Small requests have segments of their own, so that they do
//! not keep large ones from being given back. When the driver has no more, cached segments are
//! given back and the request is tried once more.

use crate::gpu::Gpu;
use pullback_cuda_sys::DevicePtr;
use pullback_ir::{Error, ErrorKind, PoolStats, Result};
use std::collections::{BTreeMap, BTreeSet};

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

#[derive(Default)]
pub(crate) struct Pool {
    /// By address.
    blocks: BTreeMap<DevicePtr, Block>,
    /// Free blocks: class, bytes, address.
    free: BTreeSet<(bool, usize, DevicePtr)>,
    /// Bytes of each segment, by address.
    segments: BTreeMap<DevicePtr, usize>,
    held: u64,
    stats: PoolStats,
}

#[derive(Clone, Copy)]
struct Block {
    bytes: usize,
    /// Bytes that were asked for; zero if it is free.
    asked: usize,
    used: bool,
    small: bool,
    segment: DevicePtr,
}

impl Pool {
    /// A cached block, if there is one: most requests.
    pub fn reuse(&mut self, bytes: usize) -> Option<DevicePtr> {
        let rounded = bytes.max(1).checked_next_multiple_of(GRAIN)?;
        let at = self.take(rounded, rounded <= SMALL)?;
        self.stats.allocations += 1;
        self.stats.reused += 1;
        self.count(at, bytes);
        Some(at)
    }

    fn count(&mut self, at: DevicePtr, bytes: usize) {
        if let Some(block) = self.blocks.get_mut(&at) {
            block.asked = bytes;
        }
        self.stats.live_bytes += bytes as u64;
        self.stats.peak_bytes = self.stats.peak_bytes.max(self.stats.live_bytes);
    }

    pub fn alloc(&mut self, gpu: &Gpu, bytes: usize) -> Result<DevicePtr> {
        let Some(rounded) = bytes.max(1).checked_next_multiple_of(GRAIN) else {
            return Err(self.exhausted(gpu, bytes));
        };
        let small = rounded <= SMALL;
        self.stats.allocations += 1;
        let at = match self.take(rounded, small) {
            Some(at) => {
                self.stats.reused += 1;
                at
            }
            None => {
                let segment = match (small, rounded) {
                    (true, _) => SMALL_SEGMENT,
                    (false, ..LARGE) => SEGMENT,
                    (false, _) => rounded.next_multiple_of(ROUND),
                };
                self.grow(gpu, segment, small, bytes)?;
                self.take(rounded, small).ok_or_else(|| self.exhausted(gpu, bytes))?
            }
        };
        self.count(at, bytes);
        Ok(at)
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
            let rest = Block { bytes: whole - bytes, asked: 0, used: false, ..*block };
            self.blocks.insert(at + bytes as u64, rest);
            self.free.insert((small, rest.bytes, at + bytes as u64));
        }
        Some(at)
    }

    fn grow(&mut self, gpu: &Gpu, segment: usize, small: bool, asked: usize) -> Result<()> {
        let mut at = 0;
        // SAFETY: writes one address.
        let mut get = || unsafe { (gpu.driver.cuMemAlloc_v2)(&mut at, segment) };
        if get() != 0 {
            self.trim(gpu);
            if get() != 0 {
                return Err(self.exhausted(gpu, asked));
            }
        }
        self.segments.insert(at, segment);
        self.held += segment as u64;
        self.blocks.insert(at, Block { bytes: segment, asked: 0, used: false, small, segment: at });
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

    pub fn free(&mut self, at: DevicePtr) {
        let Some(block) = self.blocks.get_mut(&at).filter(|block| block.used) else { return };
        (block.used, self.stats.live_bytes) = (false, self.stats.live_bytes - block.asked as u64);
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
            joined = (before, Block { bytes: block.bytes + joined.1.bytes, ..block });
        }
        joined.1.asked = 0;
        self.blocks.insert(joined.0, joined.1);
        self.free.insert((joined.1.small, joined.1.bytes, joined.0));
    }

    fn cached(&self) -> u64 {
        self.free.iter().map(|block| block.1 as u64).sum()
    }

    pub fn stats(&self) -> PoolStats {
        PoolStats { cached_bytes: self.cached(), ..self.stats }
    }

    /// Gives segments that are wholly free back to the driver, once work on them has ended.
    pub fn trim(&mut self, gpu: &Gpu) {
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
            self.held -= bytes as u64;
            // SAFETY: nothing refers to the segment any more.
            unsafe { (gpu.driver.cuMemFree_v2)(at) };
        }
    }
}
