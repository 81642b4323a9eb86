//! Memory for tensors: a caching pool of aligned, uninitialised blocks, with statistics.
//!
//! The first write to newly mapped pages is the most expensive part of a kernel: they fill at a
//! tenth of the speed of recycled ones. So freed blocks are cached, by size class, and reused
//! without clearing.
//!
//! - **Classes.** Eight per power of two (64-byte steps at the bottom), so at most an eighth of a
//!   block is unused.
//! - **Small blocks** (up to 64 KiB) are kept in lists of the thread that freed them, linked
//!   through the blocks themselves: allocating and freeing one needs no lock and no allocator call.
//!   A list that grows beyond its bound spills into the shared store, so a thread that only frees
//!   supplies one that only allocates.
//! - **Large blocks** and spilled ones are kept in the shared store behind a lock, bounded by
//!   [`set_cache_limit`]; beyond it the least recently used block is returned to the system. Blocks
//!   of 4 MiB and more are aligned to huge pages, which are requested by `madvise`.
//!
//! `live_bytes` and `peak_bytes` count the requested bytes, exactly, over all threads (a peak of
//! threads that do not wait for each other is one that they could have had), so that a planned peak
//! can be compared with a measured one. Everything else is counted per thread and summed when read.
//!
//! The working memory of compiled programs comes from `arena`.

mod arena;
#[cfg(test)]
mod tests;

pub use arena::{Arena, reserve_arena};

use pullback_ir::{LeadSum, PoolStats};
use std::alloc::Layout;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};

/// Alignment of every buffer: a cache line, and the widest vector register.
pub const ALIGN: usize = 64;
const HUGE: usize = 2 << 20;
const HUGE_FROM: usize = 4 << 20;
/// Classes 0..64 hold up to 64 KiB.
const SMALL_CLASSES: usize = 64;
const CLASSES: usize = 8 + (usize::BITS as usize - 9) * 8;
/// Bytes that a thread caches of one small class; at least [`LOCAL_COUNT`] blocks.
const LOCAL_BYTES: usize = 256 << 10;
const LOCAL_COUNT: usize = 16;

/// An owned block of bytes, aligned to [`ALIGN`]. Its content is unspecified.
pub struct Buffer {
    ptr: NonNull<u8>,
    len: usize,
}

// SAFETY: a buffer owns its block; no other buffer points into it.
unsafe impl Send for Buffer {}
// SAFETY: shared access only returns raw pointers.
unsafe impl Sync for Buffer {}

/// The system cannot allocate a block of this size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocError {
    /// The requested size.
    pub bytes: usize,
}

impl fmt::Display for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "out of memory: cannot allocate a block of {} bytes", self.bytes)
    }
}

impl std::error::Error for AllocError {}

static LIVE: LeadSum = LeadSum::new();
/// The most that was live before some bytes were freed, since the last reset. The peak is this or
/// what is live now: so only freeing compares.
static PEAK: AtomicU64 = AtomicU64::new(0);
static SHARED: Mutex<BlockStore> = Mutex::new(BlockStore::new());
/// Zero means the default.
static CACHE_LIMIT: AtomicUsize = AtomicUsize::new(0);

/// Counters written by one thread and read by all.
#[derive(Default)]
struct Counters {
    allocations: AtomicU64,
    reused: AtomicU64,
    cached: AtomicU64,
}

/// Adds to a counter that only this thread writes.
#[inline(always)]
fn bump(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(by), Relaxed);
}

/// Class of a size of at least one byte, and the size of its blocks.
#[inline(always)]
fn class_of(bytes: usize) -> (usize, usize) {
    if bytes <= 512 {
        let steps = bytes.div_ceil(64).max(1);
        return (steps - 1, steps * 64);
    }
    let log = (bytes - 1).ilog2() as usize;
    let eighth = (bytes - 1) >> (log - 3);
    (8 + (log - 9) * 8 + (eighth - 8), (eighth + 1) << (log - 3))
}

fn layout(size: usize) -> Result<Layout, AllocError> {
    let align = if size >= HUGE_FROM { HUGE } else { ALIGN };
    Layout::from_size_align(size, align).map_err(|_| AllocError { bytes: size })
}

fn from_system(size: usize) -> Result<NonNull<u8>, AllocError> {
    let layout = layout(size)?;
    // SAFETY: the size is not zero.
    let ptr =
        NonNull::new(unsafe { std::alloc::alloc(layout) }).ok_or(AllocError { bytes: size })?;
    if size >= HUGE_FROM {
        ask_for_huge_pages(ptr, size);
    }
    Ok(ptr)
}

/// # Safety
/// The block came from `from_system(size)` and is not used any more.
unsafe fn to_system(ptr: NonNull<u8>, size: usize) {
    if let Ok(layout) = layout(size) {
        // SAFETY: this is the layout it was allocated with.
        unsafe { std::alloc::dealloc(ptr.as_ptr(), layout) };
    }
}

#[cfg(target_os = "linux")]
fn ask_for_huge_pages(ptr: NonNull<u8>, size: usize) {
    unsafe extern "C" {
        fn madvise(addr: *mut u8, length: usize, advice: i32) -> i32;
    }
    const MADV_HUGEPAGE: i32 = 14;
    // SAFETY: whole huge pages inside a block that we own; the advice changes no content, and a
    // failure is harmless.
    unsafe { madvise(ptr.as_ptr(), size / HUGE * HUGE, MADV_HUGEPAGE) };
}

#[cfg(not(target_os = "linux"))]
fn ask_for_huge_pages(_: NonNull<u8>, _: usize) {}

/// The shared store: cached blocks of all classes, oldest first, with the time they were freed.
struct BlockStore {
    classes: Vec<VecDeque<(CachedBlock, u64)>>,
    cached: usize,
    clock: u64,
    threads: Vec<Arc<Counters>>,
    /// Counters of threads that have ended.
    retired: (u64, u64),
}

struct CachedBlock(NonNull<u8>);
// SAFETY: a cached block belongs to the store alone.
unsafe impl Send for CachedBlock {}

fn shared() -> MutexGuard<'static, BlockStore> {
    SHARED.lock().unwrap_or_else(PoisonError::into_inner)
}

impl BlockStore {
    const fn new() -> BlockStore {
        BlockStore {
            classes: Vec::new(),
            cached: 0,
            clock: 0,
            threads: Vec::new(),
            retired: (0, 0),
        }
    }

    fn take(&mut self, class: usize, size: usize) -> Option<NonNull<u8>> {
        let (block, _) = self.classes.get_mut(class)?.pop_back()?;
        self.cached -= size;
        Some(block.0)
    }

    fn keep(&mut self, ptr: NonNull<u8>, class: usize, size: usize, limit: usize) {
        if size > limit {
            // SAFETY: a block passed to `keep` is not used any more.
            unsafe { to_system(ptr, size) };
            return;
        }
        if self.classes.len() <= class {
            self.classes.resize_with(CLASSES, VecDeque::new);
        }
        self.clock += 1;
        self.classes[class].push_back((CachedBlock(ptr), self.clock));
        self.cached += size;
        self.shrink(limit);
    }

    /// Returns the oldest blocks to the system until at most `limit` bytes are cached.
    fn shrink(&mut self, limit: usize) {
        while self.cached > limit {
            let oldest = (0..self.classes.len())
                .filter_map(|c| self.classes[c].front().map(|&(_, time)| (time, c)))
                .min();
            let Some((_, class)) = oldest else { break };
            if let Some((block, _)) = self.classes[class].pop_front() {
                let size = size_of_class(class);
                self.cached -= size;
                // SAFETY: the block was cached, so nothing uses it.
                unsafe { to_system(block.0, size) };
            }
        }
    }
}

fn size_of_class(class: usize) -> usize {
    if class < 8 { (class + 1) * 64 } else { (class % 8 + 9) << (class / 8 - 1 + 6) }
}

/// Head of a list of free blocks; the first word of a free block points at the next.
#[derive(Clone, Copy)]
struct FreeList {
    head: *mut u8,
    count: u32,
}

struct ThreadCache {
    lists: [FreeList; SMALL_CLASSES],
    counters: Arc<Counters>,
}

impl ThreadCache {
    fn new() -> ThreadCache {
        let counters = Arc::new(Counters::default());
        shared().threads.push(counters.clone());
        let empty = FreeList { head: std::ptr::null_mut(), count: 0 };
        ThreadCache { lists: [empty; SMALL_CLASSES], counters }
    }

    #[inline(always)]
    fn take(&mut self, class: usize, size: usize) -> Option<NonNull<u8>> {
        let list = &mut self.lists[class];
        let ptr = NonNull::new(list.head)?;
        // SAFETY: `keep` wrote the next pointer into the block.
        list.head = unsafe { ptr.cast::<*mut u8>().read() };
        list.count -= 1;
        bump(&self.counters.cached, (size as u64).wrapping_neg());
        Some(ptr)
    }

    /// Caches a block; returns false if there are enough of its class.
    #[inline(always)]
    fn keep(&mut self, ptr: NonNull<u8>, class: usize, size: usize) -> bool {
        let list = &mut self.lists[class];
        if list.count as usize >= LOCAL_COUNT && list.count as usize * size >= LOCAL_BYTES {
            return false;
        }
        // SAFETY: the block is free, aligned, and at least 64 bytes long.
        unsafe { ptr.cast::<*mut u8>().write(list.head) };
        list.head = ptr.as_ptr();
        list.count += 1;
        bump(&self.counters.cached, size as u64);
        true
    }

    fn release(&mut self) {
        for class in 0..SMALL_CLASSES {
            let size = size_of_class(class);
            while let Some(ptr) = self.take(class, size) {
                // SAFETY: it was cached, so nothing uses it.
                unsafe { to_system(ptr, size) };
            }
        }
    }
}

impl Drop for ThreadCache {
    fn drop(&mut self) {
        self.release();
        let mut shared = shared();
        shared.retired.0 += self.counters.allocations.load(Relaxed);
        shared.retired.1 += self.counters.reused.load(Relaxed);
        shared.threads.retain(|t| !Arc::ptr_eq(t, &self.counters));
    }
}

thread_local! {
    static LOCAL: RefCell<ThreadCache> = RefCell::new(ThreadCache::new());
}

impl Buffer {
    /// No bytes.
    #[inline]
    pub const fn empty() -> Buffer {
        Buffer { ptr: NonNull::<Aligned64>::dangling().cast(), len: 0 }
    }

    /// A block of `bytes` bytes with unspecified content.
    #[inline]
    pub(crate) fn alloc(bytes: usize) -> Result<Buffer, AllocError> {
        if bytes == 0 {
            return Ok(Buffer::empty());
        }
        if bytes > isize::MAX as usize / 4 {
            return Err(AllocError { bytes });
        }
        let (class, size) = class_of(bytes);
        let quick = LOCAL.try_with(|local| {
            let mut local = local.borrow_mut();
            bump(&local.counters.allocations, 1);
            let ptr = if class < SMALL_CLASSES { local.take(class, size) } else { None };
            bump(&local.counters.reused, ptr.is_some() as u64);
            ptr
        });
        let ptr = match quick {
            Ok(Some(ptr)) => ptr,
            _ => slow_alloc(class, size).map_err(|_| AllocError { bytes })?,
        };
        LIVE.add(bytes as u64);
        Ok(Buffer { ptr, len: bytes })
    }

    /// The block, and an empty one instead.
    pub fn take(&mut self) -> Buffer {
        std::mem::replace(self, Buffer::empty())
    }

    /// Address of the first byte.
    #[inline]
    pub fn as_ptr(&self) -> *const u8 {
        self.ptr.as_ptr()
    }

    /// Address of the first byte, to write through.
    #[inline]
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.ptr.as_ptr()
    }

    /// Number of bytes requested.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The content.
    ///
    /// # Safety
    /// Every byte was written since the buffer was made, and nothing writes while the slice lives.
    #[inline]
    pub unsafe fn bytes(&self) -> &[u8] {
        // SAFETY: the block is owned and has this length; the caller guarantees that it is
        // initialised.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

/// Counts bytes as freed.
#[inline(always)]
fn count_freed(bytes: usize) {
    let before = LIVE.subtract(bytes as u64);
    if before > PEAK.load(Relaxed) {
        PEAK.fetch_max(before, Relaxed);
    }
}

/// The most that was live since the last reset.
fn peak() -> u64 {
    PEAK.load(Relaxed).max(LIVE.get())
}

/// Only its alignment matters: that of a buffer.
#[repr(align(64))]
struct Aligned64;

#[cold]
#[inline(never)]
fn slow_alloc(class: usize, size: usize) -> Result<NonNull<u8>, AllocError> {
    let kept = shared().take(class, size);
    if let Some(ptr) = kept {
        // A thread that is ending has no counters any more; its reuses are not counted.
        let _ = LOCAL.try_with(|local| bump(&local.borrow().counters.reused, 1));
        return Ok(ptr);
    }
    from_system(size).or_else(|_| {
        trim();
        from_system(size)
    })
}

#[cold]
#[inline(never)]
fn slow_free(ptr: NonNull<u8>, class: usize, size: usize) {
    let limit = cache_limit();
    shared().keep(ptr, class, size, limit);
}

impl Drop for Buffer {
    #[inline]
    fn drop(&mut self) {
        if self.len == 0 {
            return;
        }
        let (class, size) = class_of(self.len);
        count_freed(self.len);
        let kept = class < SMALL_CLASSES
            && LOCAL
                .try_with(|local| local.borrow_mut().keep(self.ptr, class, size))
                .unwrap_or(false);
        if !kept {
            slow_free(self.ptr, class, size);
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes at {:p})", self.len, self.ptr)
    }
}

/// Bytes in buffers that exist now: `live_bytes` of [`stats`], without the other statistics.
pub fn live_bytes() -> u64 {
    LIVE.get()
}

/// Statistics of the memory pool of the host, over all threads.
///
/// ```
/// # use pullback_cpu::{Buffer, buffer::stats};
/// let before = stats().live_bytes;
/// let buffer = Buffer::from_slice(&[0f32; 1000])?;
/// assert!(stats().live_bytes >= before + 4000);
/// # drop(buffer);
/// # Ok::<(), pullback_ir::Error>(())
/// ```
#[doc(alias = "memory_stats")]
pub fn stats() -> PoolStats {
    let idle = arena::idle_bytes();
    let shared = shared();
    let sum = |read: fn(&Counters) -> &AtomicU64| {
        shared.threads.iter().fold(0u64, |sum, c| sum.wrapping_add(read(c).load(Relaxed)))
    };
    PoolStats {
        live_bytes: LIVE.get(),
        peak_bytes: peak(),
        cached_bytes: (shared.cached + idle) as u64 + sum(|c| &c.cached),
        allocations: shared.retired.0 + sum(|c| &c.allocations),
        reused: shared.retired.1 + sum(|c| &c.reused),
        pinned_bytes: 0,
    }
}

/// Resets `peak_bytes` of the statistics to what is live now.
///
/// ```
/// # use pullback_cpu::{Buffer, buffer::{reset_peak, stats}};
/// drop(Buffer::from_slice(&[0f32; 1000])?);
/// assert!(stats().peak_bytes > stats().live_bytes);
/// reset_peak();
/// assert_eq!(stats().peak_bytes, stats().live_bytes);
/// # Ok::<(), pullback_ir::Error>(())
/// ```
#[doc(alias = "reset_peak_memory_stats")]
pub fn reset_peak() {
    PEAK.store(LIVE.get(), Relaxed);
}

/// Runs `f`, and returns how far `live_bytes` rose above its initial value during the call; `None`
/// if another such measurement is active. `peak_bytes` is not affected. What other threads allocate
/// meanwhile is counted too.
pub fn rise<R>(f: impl FnOnce() -> R) -> (R, Option<u64>) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    /// Restores the peak, also if `f` panics.
    struct RestorePeak(u64);
    impl Drop for RestorePeak {
        fn drop(&mut self) {
            PEAK.fetch_max(self.0, Relaxed);
        }
    }
    let turn = match ONE_AT_A_TIME.try_lock() {
        Ok(turn) => turn,
        Err(TryLockError::Poisoned(turn)) => turn.into_inner(),
        Err(TryLockError::WouldBlock) => return (f(), None),
    };
    let start = LIVE.get();
    let before = RestorePeak(PEAK.swap(start, Relaxed).max(start));
    let result = f();
    let rise = peak().saturating_sub(start);
    drop(before);
    drop(turn);
    (result, Some(rise))
}

/// Returns cached blocks to the system: the shared ones, those of the calling thread, and the
/// working memory of compiled functions that do not run at the moment.
pub fn trim() {
    let _ = LOCAL.try_with(|local| local.borrow_mut().release());
    shared().shrink(0);
    arena::shrink(0);
    crate::region::release_scratch();
    crate::pooled::release();
}

/// Bounds the bytes cached in the shared store, and likewise the working memory cached for compiled
/// functions; the default is 4 GiB, or half of the memory if that is less.
///
/// ```
/// # use pullback_cpu::{Buffer, buffer::{set_cache_limit, stats}};
/// set_cache_limit(1 << 20); // keeps at most one MiB for reuse
/// drop(Buffer::from_slice(&vec![0f32; 1 << 20])?);
/// assert!(stats().cached_bytes <= 1 << 20);
/// # Ok::<(), pullback_ir::Error>(())
/// ```
pub fn set_cache_limit(bytes: usize) {
    CACHE_LIMIT.store(bytes.max(1), Relaxed);
    shared().shrink(bytes);
    arena::shrink(bytes);
}

fn cache_limit() -> usize {
    match CACHE_LIMIT.load(Relaxed) {
        0 => default_cache_limit(),
        limit => limit,
    }
}

fn default_cache_limit() -> usize {
    static DEFAULT: OnceLock<usize> = OnceLock::new();
    *DEFAULT.get_or_init(|| {
        let kib = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
            line.split_whitespace().nth(1)?.parse::<usize>().ok()
        });
        kib.map_or(4 << 30, |kib| (kib << 9).min(4 << 30))
    })
}
