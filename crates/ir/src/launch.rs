//! Code of a user's for a GPU: CUDA C, and how it is launched.
//!
//! Plain data, like an op: `pullback-cuda` compiles and launches it, and its `CudaKernel` is the
//! only way by which a user makes some, with a promise that the code stays within its operands.

use rustc_hash::FxHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A function in CUDA C.
#[derive(Clone, Debug)]
pub struct CudaSource {
    function: String,
    text: String,
    /// A hash of both, as kernels are looked up at every launch.
    digest: u64,
}

impl CudaSource {
    /// The function of this name in a text.
    pub fn new(function: impl Into<String>, text: impl Into<String>) -> CudaSource {
        let (function, text) = (function.into(), text.into());
        let mut hasher = FxHasher::default();
        (&function, &text).hash(&mut hasher);
        CudaSource { function, text, digest: hasher.finish() }
    }

    /// The name of the function.
    pub fn function(&self) -> &str {
        &self.function
    }

    /// The text that defines it.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl PartialEq for CudaSource {
    fn eq(&self, other: &CudaSource) -> bool {
        std::ptr::eq(self, other)
            || (self.digest, &self.function, &self.text)
                == (other.digest, &other.function, &other.text)
    }
}

impl Eq for CudaSource {}

impl Hash for CudaSource {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.digest.hash(state);
    }
}

/// With how many threads a CUDA kernel is launched, and which numbers it gets.
///
/// ```
/// # use pullback_ir::CudaLaunch;
/// // One thread for each of 1000 elements, and 1000 as the number after the addresses.
/// let launch = CudaLaunch::over(1000);
/// assert_eq!((launch.grid, launch.block), ([4, 1, 1], [256, 1, 1]));
/// assert_eq!(launch.numbers, [1000]);
/// // One block of 128 threads for each of 10 rows of 64 elements.
/// let rows = CudaLaunch { grid: [10, 1, 1], block: [128, 1, 1], numbers: vec![64], ..launch };
/// assert_eq!(rows.shared_bytes, 0);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CudaLaunch {
    /// Blocks along x, y and z. If one of them is 0, nothing is launched.
    pub grid: [u32; 3],
    /// Threads of a block along x, y and z.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory of a block, at most 48 KiB.
    pub shared_bytes: u32,
    /// What the function gets after the addresses of operands and results: `long long` each.
    pub numbers: Vec<i64>,
}

impl CudaLaunch {
    /// At least one thread for each of `count` elements, in blocks of 256. The function gets
    /// `count` as its number, and its threads from there on do nothing.
    ///
    /// ```
    /// # use pullback_ir::CudaLaunch;
    /// assert_eq!(CudaLaunch::over(257).grid, [2, 1, 1]);
    /// assert_eq!(CudaLaunch::over(0).grid, [0, 1, 1]);
    /// ```
    pub fn over(count: usize) -> CudaLaunch {
        const BLOCK: usize = 256;
        let blocks = u32::try_from(count.div_ceil(BLOCK)).unwrap_or(u32::MAX);
        CudaLaunch {
            grid: [blocks, 1, 1],
            block: [BLOCK as u32, 1, 1],
            shared_bytes: 0,
            numbers: vec![count as i64],
        }
    }
}

/// One launch of a function.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The function.
    pub source: Arc<CudaSource>,
    /// With how many threads, and which numbers.
    pub geometry: CudaLaunch,
    /// The byte of each operand, and of each result, at which it begins.
    pub starts: [Vec<usize>; 2],
}
