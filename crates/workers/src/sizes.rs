//! Sizes that all engines share.

/// Bytes of an operand that move at once: large, as a wait is dear where there are more workers
/// than cores.
pub(crate) const CHUNK: usize = 4 << 20;
/// An operand of at most so many bytes is reduced as a whole by every worker.
pub(crate) const DIRECT: usize = 32 << 10;
/// Shares and parts begin at multiples of so many bytes, a line of the cache.
pub(crate) const LINE: usize = 64;
