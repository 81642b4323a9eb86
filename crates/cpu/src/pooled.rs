//! Reference-counted values in recycled blocks.
//!
//! A tape makes and drops tensors, storages and nodes by the thousand, and the allocator of the
//! system took a seventh of the instructions of a small op. [`Pooled`] and [`WeakPooled`] are
//! `std::sync::Arc` and `Weak`, but the blocks come from lists of the thread that freed them,
//! linked through the blocks themselves, as those of small buffers do. Beyond a bound, which is for
//! blocks of all lengths together, they return to the system.
//!
//! Both counts are in one word: one load tells whether a reference is the only one of any kind.
//! Such a reference is dropped without an atomic exchange, which most tensors of a tape are.

use std::alloc::{Layout, handle_alloc_error};
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Blocks are multiples of this many bytes.
const STEP: usize = 64;
/// Longer blocks are not cached.
const CLASSES: usize = 8;
/// Bytes that a thread caches in all.
const CACHED: usize = 16 << 20;
/// A strong reference, in the word of counts.
const STRONG: u64 = 1;
/// A weak reference. The strong ones have one together.
const WEAK: u64 = 1 << 32;
/// One reference, and no other of any kind.
const SOLE: u64 = STRONG | WEAK;
/// More references of a kind than fit into memory; far from where one count runs into the other.
const TOO_MANY: u64 = 1 << 31;

/// A shared value, as `Arc`.
pub struct Pooled<T>(NonNull<Counted<T>>, PhantomData<Counted<T>>);

/// A reference that does not keep the value alive, as `Weak`.
pub struct WeakPooled<T>(NonNull<Counted<T>>);

struct Counted<T> {
    /// Strong references in the lower half; weak ones, and one for all strong ones, in the upper.
    counts: AtomicU64,
    value: T,
}

/// The strong references of a word.
const fn strong(counts: u64) -> u64 {
    counts % WEAK
}

/// The weak references of a word, with the one of the strong ones.
const fn weak(counts: u64) -> u64 {
    counts / WEAK
}

// SAFETY: as for `Arc`: references on several threads share the value, and the last drops it.
unsafe impl<T: Send + Sync> Send for Pooled<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Pooled<T> {}
// SAFETY: as above, as it can become a strong reference.
unsafe impl<T: Send + Sync> Send for WeakPooled<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for WeakPooled<T> {}
impl<T: RefUnwindSafe> UnwindSafe for Pooled<T> {}

impl<T> Pooled<T> {
    /// A value with one reference.
    #[inline]
    pub fn new(value: T) -> Pooled<T> {
        Pooled::make(|| value)
    }

    /// A value that is made in its block: a long one is not built elsewhere and copied. (If `make`
    /// panics, the block is not used again.)
    #[inline(always)]
    pub fn make(make: impl FnOnce() -> T) -> Pooled<T> {
        let ptr = take::<T>();
        let block = ptr.as_ptr();
        // SAFETY: the block is free, long enough and aligned.
        unsafe {
            (&raw mut (*block).counts).write(AtomicU64::new(SOLE));
            (&raw mut (*block).value).write(make());
        }
        Pooled(ptr, PhantomData)
    }

    #[inline]
    fn counted(&self) -> &Counted<T> {
        // SAFETY: a strong reference keeps the block and the value.
        unsafe { self.0.as_ref() }
    }

    /// The address of the value, which no other value has while a reference of any kind exists.
    #[inline]
    pub fn as_ptr(this: &Pooled<T>) -> *const T {
        &raw const this.counted().value
    }

    /// Whether both refer to one value.
    #[inline]
    pub fn ptr_eq(a: &Pooled<T>, b: &Pooled<T>) -> bool {
        a.0 == b.0
    }

    /// How many strong references there are.
    #[inline]
    pub fn strong_count(this: &Pooled<T>) -> usize {
        strong(this.counted().counts.load(Ordering::Relaxed)) as usize
    }

    /// How many weak references there are.
    #[inline]
    pub fn weak_count(this: &Pooled<T>) -> usize {
        weak(this.counted().counts.load(Ordering::Relaxed)) as usize - 1
    }

    /// Whether this is the only strong reference. A weak one may become another.
    #[inline]
    pub fn is_last(this: &Pooled<T>) -> bool {
        strong(this.counted().counts.load(Ordering::Acquire)) == 1
    }

    /// Whether this is the only reference of any kind. What other threads did with the value is
    /// done then.
    #[inline]
    pub fn is_sole(this: &Pooled<T>) -> bool {
        this.counted().counts.load(Ordering::Acquire) == SOLE
    }

    /// The value, if this is the only reference of any kind.
    #[inline]
    pub fn get_mut(this: &mut Pooled<T>) -> Option<&mut T> {
        let sole = Pooled::is_sole(this);
        // SAFETY: no other reference can be made while this one is borrowed.
        sole.then(|| unsafe { &mut (*this.0.as_ptr()).value })
    }

    /// A weak reference.
    #[inline]
    pub fn downgrade(this: &Pooled<T>) -> WeakPooled<T> {
        // Relaxed: whoever counts up has a reference already.
        if weak(this.counted().counts.fetch_add(WEAK, Ordering::Relaxed)) > TOO_MANY {
            std::process::abort();
        }
        WeakPooled(this.0)
    }

    /// The value, if this is the last strong reference.
    pub fn into_inner(this: Pooled<T>) -> Option<T> {
        let this = ManuallyDrop::new(this);
        if strong(this.counted().counts.fetch_sub(STRONG, Ordering::Release)) != 1 {
            return None;
        }
        fence(Ordering::Acquire);
        // SAFETY: no strong reference is left, so nothing reads or drops the value any more.
        let value = unsafe { (&raw const (*this.0.as_ptr()).value).read() };
        // The weak reference that the strong ones had together.
        drop(WeakPooled(this.0));
        Some(value)
    }
}

impl<T> Deref for Pooled<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.counted().value
    }
}

impl<T> Clone for Pooled<T> {
    #[inline]
    fn clone(&self) -> Pooled<T> {
        // Relaxed: as in `downgrade`.
        if strong(self.counted().counts.fetch_add(STRONG, Ordering::Relaxed)) > TOO_MANY {
            std::process::abort();
        }
        Pooled(self.0, PhantomData)
    }
}

impl<T> Drop for Pooled<T> {
    #[inline]
    fn drop(&mut self) {
        // What other threads did with the value is done before it is dropped.
        if Pooled::is_sole(self) {
            // SAFETY: this was the only reference, and it is not used again.
            unsafe { drop_sole(self.0) };
        } else if strong(self.counted().counts.fetch_sub(STRONG, Ordering::Release)) == 1 {
            fence(Ordering::Acquire);
            // SAFETY: this was the last strong reference, and it is not used again.
            unsafe { drop_last(self.0) };
        }
    }
}

/// Frees a block when dropped, also if dropping its value panics.
struct Freed<T>(NonNull<Counted<T>>);

impl<T> Drop for Freed<T> {
    #[inline]
    fn drop(&mut self) {
        give(self.0);
    }
}

/// # Safety
/// There was one reference to this, which is not used again.
#[inline(never)]
unsafe fn drop_sole<T>(ptr: NonNull<Counted<T>>) {
    let _block = Freed(ptr);
    // SAFETY: nothing else refers to the value.
    unsafe { (&raw mut (*ptr.as_ptr()).value).drop_in_place() };
}

/// # Safety
/// The last strong reference to this was counted down.
#[inline(never)]
unsafe fn drop_last<T>(ptr: NonNull<Counted<T>>) {
    // The block is freed also if dropping the value panics.
    let _block = WeakPooled(ptr);
    // SAFETY: nothing else refers to the value.
    unsafe { (&raw mut (*ptr.as_ptr()).value).drop_in_place() };
}

impl<T: fmt::Debug> fmt::Debug for Pooled<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T> WeakPooled<T> {
    /// A strong reference, if the value is still there.
    pub fn upgrade(&self) -> Option<Pooled<T>> {
        // SAFETY: a weak reference keeps the block, though not the value.
        let counts = unsafe { &(*self.0.as_ptr()).counts };
        let up = |n: u64| (1..=TOO_MANY).contains(&strong(n)).then(|| n + STRONG);
        let counted = counts.fetch_update(Ordering::Acquire, Ordering::Relaxed, up);
        counted.is_ok().then(|| Pooled(self.0, PhantomData))
    }

    /// How many strong references there are.
    pub fn strong_count(&self) -> usize {
        // SAFETY: as in `upgrade`.
        strong(unsafe { (*self.0.as_ptr()).counts.load(Ordering::Relaxed) }) as usize
    }

    /// The address of the value, or where it was.
    pub fn as_ptr(&self) -> *const T {
        // SAFETY: the block is still there; only an address is computed.
        unsafe { &raw const (*self.0.as_ptr()).value }
    }
}

impl<T> Clone for WeakPooled<T> {
    fn clone(&self) -> WeakPooled<T> {
        // SAFETY: as in `upgrade`.
        let counts = unsafe { &(*self.0.as_ptr()).counts };
        if weak(counts.fetch_add(WEAK, Ordering::Relaxed)) > TOO_MANY {
            std::process::abort();
        }
        WeakPooled(self.0)
    }
}

impl<T> Drop for WeakPooled<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: as in `upgrade`.
        let counts = unsafe { &(*self.0.as_ptr()).counts };
        // The last reference of all needs no exchange: no other reference is left to clone.
        if counts.load(Ordering::Acquire) == WEAK
            || weak(counts.fetch_sub(WEAK, Ordering::Release)) == 1
        {
            fence(Ordering::Acquire);
            give(self.0);
        }
    }
}

impl<T> fmt::Debug for WeakPooled<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(Weak)")
    }
}

/// The free blocks of a thread.
struct Free {
    /// The first of each class; the first word of each points at the next.
    heads: [Cell<*mut u8>; CLASSES],
    /// How many more bytes may be cached.
    left: Cell<usize>,
}

thread_local! {
    static FREE: Free = const {
        Free { heads: [const { Cell::new(null_mut()) }; CLASSES], left: Cell::new(CACHED) }
    };
}

impl Free {
    #[inline]
    fn take(&self, class: usize) -> Option<NonNull<u8>> {
        let ptr = NonNull::new(self.heads[class].get())?;
        // SAFETY: `keep` wrote the next pointer into the block.
        self.heads[class].set(unsafe { ptr.cast::<*mut u8>().read() });
        self.left.set(self.left.get() + size_of(class));
        Some(ptr)
    }

    /// Caches a block; returns false if there are enough.
    #[inline]
    fn keep(&self, ptr: NonNull<u8>, class: usize) -> bool {
        let Some(left) = self.left.get().checked_sub(size_of(class)) else { return false };
        self.left.set(left);
        // SAFETY: the block is free, aligned and longer than a pointer.
        unsafe { ptr.cast::<*mut u8>().write(self.heads[class].get()) };
        self.heads[class].set(ptr.as_ptr());
        true
    }

    fn release(&self) {
        for class in 0..CLASSES {
            while let Some(ptr) = self.take(class) {
                // SAFETY: a cached block of this class is not used.
                unsafe { std::alloc::dealloc(ptr.as_ptr(), layout_of(class)) };
            }
        }
    }
}

impl Drop for Free {
    fn drop(&mut self) {
        self.release();
    }
}

/// Returns the blocks that the calling thread caches to the system.
pub(crate) fn release() {
    let _ = FREE.try_with(Free::release);
}

/// The length of the blocks of a class.
const fn size_of(class: usize) -> usize {
    (class + 1) * STEP
}

const fn layout_of(class: usize) -> Layout {
    match Layout::from_size_align(size_of(class), align_of::<usize>() * 2) {
        Ok(layout) => layout,
        Err(_) => panic!("a few words are a layout"),
    }
}

/// The class of the block of a `T`, if such blocks are cached, and its layout.
const fn class_of<T>() -> (Option<usize>, Layout) {
    let own = Layout::new::<Counted<T>>();
    let class = (own.size() - 1) / STEP;
    match class < CLASSES && own.align() <= layout_of(class).align() {
        true => (Some(class), layout_of(class)),
        false => (None, own),
    }
}

#[inline]
fn take<T>() -> NonNull<Counted<T>> {
    let (class, layout) = const { class_of::<T>() };
    let cached = class.and_then(|class| FREE.try_with(|free| free.take(class)).ok().flatten());
    cached.unwrap_or_else(|| from_system(layout)).cast()
}

#[cold]
fn from_system(layout: Layout) -> NonNull<u8> {
    // SAFETY: the size is not zero: the counts are part of it.
    match NonNull::new(unsafe { std::alloc::alloc(layout) }) {
        Some(ptr) => ptr,
        None => handle_alloc_error(layout),
    }
}

/// Frees the block of a value that was dropped, and to which there is no reference.
#[inline]
fn give<T>(ptr: NonNull<Counted<T>>) {
    let (class, layout) = const { class_of::<T>() };
    let ptr = ptr.cast::<u8>();
    let keep = |class| FREE.try_with(|free| free.keep(ptr, class)).unwrap_or(false);
    if !class.is_some_and(keep) {
        // SAFETY: it was allocated with this layout, here or by a thread that cached it.
        unsafe { std::alloc::dealloc(ptr.as_ptr(), layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    /// Counts its drops.
    struct Noisy {
        drops: Arc<AtomicUsize>,
        words: [u64; 9],
    }

    impl Drop for Noisy {
        fn drop(&mut self) {
            assert!(self.words.iter().all(|&v| v == self.words[0]));
            self.drops.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn noisy(value: u64) -> (Pooled<Noisy>, Arc<AtomicUsize>) {
        let drops = Arc::new(AtomicUsize::new(0));
        (Pooled::new(Noisy { drops: drops.clone(), words: [value; 9] }), drops)
    }

    #[test]
    fn the_last_reference_drops_the_value_once() {
        let (a, drops) = noisy(7);
        let (b, weak) = (a.clone(), Pooled::downgrade(&a));
        assert!(Pooled::ptr_eq(&a, &b) && Pooled::strong_count(&a) == 2);
        assert_eq!((Pooled::weak_count(&a), weak.strong_count()), (1, 2));
        drop(a);
        assert_eq!(weak.upgrade().map(|c| c.words[0]), Some(7));
        assert!(Pooled::into_inner(b.clone()).is_none() && drops.load(Ordering::Relaxed) == 0);
        let address = Pooled::as_ptr(&b);
        drop(b);
        assert!(drops.load(Ordering::Relaxed) == 1 && weak.upgrade().is_none());
        // The block is reused only after the last weak reference.
        let (c, _) = noisy(8);
        assert!(Pooled::as_ptr(&c) != address && weak.as_ptr() == address);
        drop((weak.clone(), weak));
        let (d, drops) = noisy(9);
        assert_eq!(Pooled::as_ptr(&d), address);
        let mut d = d;
        assert!(Pooled::get_mut(&mut d).is_some_and(|d| d.words[0] == 9));
        let (weak, other) = (Pooled::downgrade(&d), d.clone());
        assert!(Pooled::get_mut(&mut d).is_none());
        drop(other);
        // A weak reference could become a strong one.
        assert!(Pooled::get_mut(&mut d).is_none());
        let value = Pooled::into_inner(d).expect("it was the last");
        assert!(weak.upgrade().is_none() && drops.load(Ordering::Relaxed) == 0);
        drop(value);
        assert_eq!(drops.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn values_of_any_size_and_alignment_are_kept() {
        #[repr(align(256))]
        struct Wide {
            value: u8,
        }
        let wide: Vec<Pooled<Wide>> = (0..9).map(|i| Pooled::new(Wide { value: i })).collect();
        let long: Vec<Pooled<[u64; 200]>> = (0..9).map(|i| Pooled::new([i; 200])).collect();
        assert!(wide.iter().enumerate().all(|(i, w)| w.value == i as u8));
        assert!(wide.iter().all(|w| Pooled::as_ptr(w).is_aligned()));
        assert!(long.iter().enumerate().all(|(i, l)| l.iter().all(|&v| v == i as u64)));
        assert_eq!(*Pooled::new(()), ());
    }

    /// References that come and go on one thread, weak and strong, never make another's look sole.
    #[test]
    fn a_reference_is_sole_only_if_no_thread_has_another() {
        let mut value = Pooled::new([0u64; 4]);
        let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let other = thread::spawn({
            let (mut strong, stop) = (value.clone(), stop.clone());
            move || {
                while !stop.load(Ordering::Relaxed) {
                    let weak = Pooled::downgrade(&strong);
                    drop(strong);
                    // For a moment only the weak reference is there.
                    strong = weak.upgrade().expect("the other thread has one");
                }
            }
        });
        for _ in 0..20_000 {
            assert!(Pooled::get_mut(&mut value).is_none() && !Pooled::is_sole(&value));
            let one_more = value.clone();
            assert!(!Pooled::is_last(&one_more));
        }
        stop.store(true, Ordering::Relaxed);
        other.join().expect("the thread does not panic");
        assert!(Pooled::get_mut(&mut value).is_some());
    }

    #[test]
    fn the_blocks_that_a_thread_caches_are_bounded_in_all() {
        release();
        // Two classes that together are more than the bound.
        let n = CACHED / STEP / 4;
        let short: Vec<Pooled<u64>> = (0..n as u64).map(Pooled::new).collect();
        let long: Vec<Pooled<[u64; 30]>> = (0..n as u64).map(|i| Pooled::new([i; 30])).collect();
        drop((short, long));
        let cached = FREE.with(|free| CACHED - free.left.get());
        assert!(cached <= CACHED && cached > CACHED - CLASSES * STEP);
        release();
        assert_eq!(FREE.with(|free| free.left.get()), CACHED);
    }

    #[test]
    fn threads_share_and_free_each_others_values() {
        let drops = Arc::new(AtomicUsize::new(0));
        let all: Vec<Pooled<Noisy>> =
            (0..200).map(|i| Pooled::new(Noisy { drops: drops.clone(), words: [i; 9] })).collect();
        let work = |all: Vec<Pooled<Noisy>>| {
            move || {
                for (i, x) in all.iter().enumerate() {
                    let weak = Pooled::downgrade(x);
                    assert!(x.words[8] == i as u64 && weak.upgrade().is_some());
                    drop(Pooled::new(Noisy { drops: Arc::default(), words: [1; 9] }));
                }
            }
        };
        let threads: Vec<_> = (0..4).map(|_| thread::spawn(work(all.clone()))).collect();
        drop(all);
        threads.into_iter().for_each(|t| t.join().expect("no thread panics"));
        assert_eq!(drops.load(Ordering::Relaxed), 200);
        release();
        assert!(FREE.with(|free| free.heads.iter().all(|head| head.get().is_null())));
        assert_eq!(FREE.with(|free| free.left.get()), CACHED);
    }
}
