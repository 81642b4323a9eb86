//! Copies rows of a table.

/// Copies `count` rows of `row` elements each, from the addresses that `from` returns to `to` on.
///
/// # Safety
/// The rows are readable, and `to` has space for them.
#[inline(always)]
pub(super) unsafe fn copy<T: Copy>(
    count: isize,
    row: usize,
    from: impl Fn(isize) -> *const T,
    to: *mut T,
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match (size_of::<T>(), row) {
            (_, 1) => (0..count).for_each(|j| to.offset(j).write(from(j).read())),
            // A short copy of known length takes less time than the dispatch of `memcpy` on its
            // length.
            (8, 2..=4) => short::<T, 2>(count, row, from, to),
            (8, 5..=8) => short::<T, 4>(count, row, from, to),
            (8, 9..=16) => short::<T, 8>(count, row, from, to),
            _ => (0..count).for_each(|j| {
                std::ptr::copy_nonoverlapping(from(j), to.offset(j * row as isize), row);
            }),
        }
    }
}

/// Rows of N to 2·N elements: the first N and the last N, which may overlap.
///
/// # Safety
/// As for [`copy`].
#[inline(always)]
unsafe fn short<T: Copy, const N: usize>(
    count: isize,
    row: usize,
    from: impl Fn(isize) -> *const T,
    to: *mut T,
) {
    for j in 0..count {
        // SAFETY: guaranteed by the caller; a row has N elements or more.
        unsafe {
            let (from, to) = (from(j), to.offset(j * row as isize));
            let last = from.add(row - N).cast::<[T; N]>().read();
            to.cast::<[T; N]>().write(from.cast::<[T; N]>().read());
            to.add(row - N).cast::<[T; N]>().write(last);
        }
    }
}
