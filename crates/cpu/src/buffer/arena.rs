//! Working memory of compiled programs, held for the duration of a call.
//!
//! A call of a program needs one large block, its arena, and nothing of it afterwards. So blocks
//! are not tied to programs: a call takes the smallest idle block that is large enough, or, if
//! there is none, a new one that replaces the largest idle one. Programs that run one after the
//! other (a function compiled for sixty lengths, a step and its evaluation) thus share one block of
//! the largest size, and there are as many blocks as calls have run at the same time, in threads or
//! nested.
//!
//! While in use, a block counts in `live_bytes` with the requested bytes; while idle, in
//! `cached_bytes`. [`super::trim`] returns idle blocks to the system, and
//! [`super::set_cache_limit`] bounds them too. Arenas of up to 64 KiB are ordinary buffers, which
//! threads cache locally without a lock.

use super::{
    AllocError, Buffer, CachedBlock, LIVE, LOCAL, SMALL_CLASSES, bump, cache_limit, class_of,
};
use super::{count_freed, from_system, to_system, trim};
use pullback_ir::{Error, ErrorKind};
use std::mem::ManuallyDrop;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The working memory of a call. Its content is unspecified.
pub struct Arena {
    memory: ManuallyDrop<Buffer>,
    /// The requested bytes, if the block is returned to the idle ones.
    lent: Option<usize>,
}

/// Blocks that no call uses, with their sizes, the most recently used at the end.
struct IdleBlocks {
    blocks: Vec<(CachedBlock, usize)>,
    bytes: usize,
}

static IDLE: Mutex<IdleBlocks> = Mutex::new(IdleBlocks { blocks: Vec::new(), bytes: 0 });

fn idle() -> MutexGuard<'static, IdleBlocks> {
    IDLE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl IdleBlocks {
    fn remove(&mut self, at: usize) -> (CachedBlock, usize) {
        let (block, size) = self.blocks.remove(at);
        self.bytes -= size;
        (block, size)
    }

    /// The smallest block of at least this size.
    fn take(&mut self, size: usize) -> Option<(CachedBlock, usize)> {
        let fits = self.blocks.iter().enumerate().filter(|(_, block)| block.1 >= size);
        let (at, _) = fits.min_by_key(|(_, block)| block.1)?;
        Some(self.remove(at))
    }

    fn take_largest(&mut self) -> Option<(CachedBlock, usize)> {
        let (at, _) = self.blocks.iter().enumerate().max_by_key(|(_, block)| block.1)?;
        Some(self.remove(at))
    }
}

impl Arena {
    /// Memory of this many bytes, whose content safe code cannot read.
    ///
    /// # Errors
    /// If it cannot be allocated.
    pub fn take(bytes: usize) -> pullback_ir::Result<Arena> {
        Arena::try_take(bytes).map_err(|_| {
            let message = format!("cannot allocate {bytes} bytes for the arena");
            Error::new(ErrorKind::Memory, "program", message)
        })
    }

    fn try_take(bytes: usize) -> Result<Arena, AllocError> {
        if bytes == 0 || class_of(bytes).0 < SMALL_CLASSES {
            return Ok(Arena { memory: ManuallyDrop::new(Buffer::alloc(bytes)?), lent: None });
        }
        if bytes > isize::MAX as usize / 4 {
            return Err(AllocError { bytes });
        }
        let wanted = class_of(bytes).1;
        let (found, outgrown) = {
            let mut idle = idle();
            let found = idle.take(wanted);
            let outgrown = if found.is_none() { idle.take_largest() } else { None };
            (found, outgrown)
        };
        if let Some((block, size)) = outgrown {
            // SAFETY: it was idle, so nothing uses it.
            unsafe { to_system(block.0, size) };
        }
        let reused = found.is_some();
        let (ptr, len) = match found {
            Some((block, size)) => (block.0, size),
            None => {
                let made = from_system(wanted).or_else(|_| {
                    trim();
                    from_system(wanted)
                });
                (made.map_err(|_| AllocError { bytes })?, wanted)
            }
        };
        let _ = LOCAL.try_with(|local| {
            let local = local.borrow();
            bump(&local.counters.allocations, 1);
            bump(&local.counters.reused, u64::from(reused));
        });
        LIVE.add(bytes as u64);
        Ok(Arena { memory: ManuallyDrop::new(Buffer { ptr, len }), lent: Some(bytes) })
    }
}

impl Arena {
    /// The memory, for the steps of a program.
    pub(crate) fn memory(&self) -> &Buffer {
        &self.memory
    }

    pub(crate) fn memory_mut(&mut self) -> &mut Buffer {
        &mut self.memory
    }
}

/// Makes a block of this many bytes idle in advance, replacing the largest idle one. If it cannot
/// be allocated, or would not be cached, nothing happens.
pub fn reserve_arena(bytes: usize) {
    if bytes > isize::MAX as usize / 4 || class_of(bytes.max(1)).0 < SMALL_CLASSES {
        return;
    }
    let wanted = class_of(bytes).1;
    let outgrown = {
        let mut idle = idle();
        let others = idle.bytes - idle.blocks.iter().map(|block| block.1).max().unwrap_or(0);
        if idle.blocks.iter().any(|block| block.1 >= wanted) || others + wanted > cache_limit() {
            return;
        }
        idle.take_largest()
    };
    if let Some((block, size)) = outgrown {
        // SAFETY: it was idle, so nothing uses it.
        unsafe { to_system(block.0, size) };
    }
    if let Ok(ptr) = from_system(wanted) {
        let mut idle = idle();
        idle.blocks.push((CachedBlock(ptr), wanted));
        idle.bytes += wanted;
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let Some(bytes) = self.lent else {
            // SAFETY: an ordinary buffer, dropped once and not used after.
            unsafe { ManuallyDrop::drop(&mut self.memory) };
            return;
        };
        count_freed(bytes);
        let (block, size) = (CachedBlock(self.memory.ptr), self.memory.len);
        {
            let mut idle = idle();
            idle.blocks.push((block, size));
            idle.bytes += size;
        }
        shrink(cache_limit());
    }
}

/// Returns idle blocks to the system, the least recently used first, until at most `limit` bytes
/// are cached.
pub(super) fn shrink(limit: usize) {
    loop {
        let gone = {
            let mut idle = idle();
            if idle.bytes <= limit {
                return;
            }
            idle.remove(0)
        };
        // SAFETY: it was idle, so nothing uses it.
        unsafe { to_system(gone.0.0, gone.1) };
    }
}

/// Bytes of idle blocks.
pub(super) fn idle_bytes() -> usize {
    idle().bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::NonNull;

    #[test]
    fn the_smallest_that_fits_is_taken_and_the_largest_is_outgrown() {
        let mut idle = IdleBlocks { blocks: Vec::new(), bytes: 0 };
        for size in [700, 200, 900, 300] {
            idle.blocks.push((CachedBlock(NonNull::dangling()), size));
            idle.bytes += size;
        }
        assert_eq!(idle.take(250).map(|block| block.1), Some(300));
        assert_eq!(idle.take(250).map(|block| block.1), Some(700));
        assert_eq!(idle.take(1000).map(|block| block.1), None);
        assert_eq!(idle.take_largest().map(|block| block.1), Some(900));
        assert_eq!((idle.bytes, idle.blocks.len()), (200, 1));
    }

    #[test]
    fn memory_taken_ahead_of_time_is_lent() {
        reserve_arena(usize::MAX);
        reserve_arena(0);
        // Larger than what other tests allocate at the same time.
        let bytes = 40 << 20;
        reserve_arena(bytes);
        assert!(idle().blocks.iter().any(|block| block.1 >= bytes));
        let arena = Arena::take(bytes - 1000).expect("memory");
        assert!(arena.memory().len() >= bytes);
    }

    #[test]
    fn sizes_that_cannot_be_are_refused() {
        assert!(Arena::take(usize::MAX).is_err() && Arena::take(1 << 60).is_err());
        assert!(Arena::take(0).is_ok_and(|arena| arena.memory().is_empty()));
        assert!(Arena::take(100_000).is_ok_and(|arena| arena.memory().len() >= 100_000));
    }

    #[test]
    fn threads_have_blocks_of_their_own() {
        std::thread::scope(|s| {
            for k in 0..4u8 {
                s.spawn(move || {
                    for i in 0..200usize {
                        let bytes = 70_000 + 1000 * ((i * 7 + k as usize) % 50);
                        let mut arena = Arena::take(bytes).expect("memory");
                        // SAFETY: the block has that many bytes.
                        unsafe { arena.memory_mut().as_mut_ptr().write_bytes(k, bytes) };
                        std::thread::yield_now();
                        // SAFETY: just written, by this thread alone.
                        let bytes =
                            unsafe { std::slice::from_raw_parts(arena.memory().as_ptr(), bytes) };
                        assert!(bytes.iter().all(|&b| b == k));
                    }
                });
            }
        });
    }
}
