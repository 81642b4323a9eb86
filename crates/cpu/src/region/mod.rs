//! Fused regions on the CPU: many ops in one pass over memory.
//!
//! A [`Region`] is a list of instructions over a domain of rows. A [`RegionKernel`] is compiled
//! from it once and run many times. The domain is processed in tiles of up to 1024 elements; all
//! the instructions run on a tile while it is in L1, so memory is read and written once, however
//! many ops there are.
//!
//! # The two ways to compute a tile
//!
//! - **Slice kernels**, for everything and on every machine: each instruction is the vector loop of
//!   its unfused op ([`calls`]), over tiles in *slots*. So the bits are those of the unfused ops.
//! - **Native code**, on x86-64 with AVX-512 or AVX2: runs of cheap arithmetic become one loop that
//!   keeps values in registers ([`native`]). It uses the same instructions that the compiled loops
//!   use (no fused multiply-add), so the bits stay the same. The f32 functions that models use most
//!   (exp, tanh, sigmoid, gelu, …) are inlined; the others remain calls of slice kernels.
//!
//! `PULLBACK_NATIVE=0` in the environment disables native code; the tests run both and compare.
//!
//! # Rows and reductions
//!
//! A reduction turns a row into one number, and the ops after it need the row again: a region has
//! one pass over a row for each level of reductions ([`plan`]). How rows are processed depends on
//! shapes alone:
//!
//! | rows | processed |
//! |---|---|
//! | none (no reduction) | the domain is one row in one pass, cut into tasks |
//! | short (up to 512) | several rows share a tile; row values are vectors themselves |
//! | long | row by row, all passes while it is in cache; rows are distributed over threads |
//! | few and huge | pass by pass, each cut into chunks; the chunks' folds are joined in order |
//!
//! A row is folded in tiles by the loops of the eager reduction, and the tiles' folds are joined
//! pairwise: rows of one tile give the bits of the eager kernel, longer ones sum in smaller blocks
//! than it does. Nothing depends on the number of threads.
//!
//! # How fast
//!
//! Relative to a loop written by hand for the same instruction set (`tests/measure.rs` prints the
//! ratios of times, measured alternately): a chain of five ops 1.1, softmax over rows of 1024 1.2,
//! a step of Adam 1.0. A scalar program of 4662 equations takes 0.28 ns per equation, as the
//! compiled loop does; with slice kernels it takes 12 ns. Compiling takes 20 to 40 µs, and 2 ms for
//! the scalar program.
//!
//! # Memory
//!
//! Steps access everything through a *table* of pointers, one per thread: scratch, constants, row
//! values, operands, results. Moving to the next tile moves the entries. Scratch is thread-local;
//! the buffers that the chunks of huge rows share are pooled and reused by the next kernel that
//! needs some. So a kernel that has run once allocates nothing.

mod after_dot;
mod build;
mod calls;
mod domain;
mod draft;
mod exec;
#[cfg(target_arch = "x86_64")]
pub(crate) mod native;
mod plan;
mod steps;
#[cfg(test)]
mod tests;

use crate::operand::{Sink, Source};
use calls::TileKind;
use domain::{Domain, PrefetchedOperand};
pub(crate) use exec::release_scratch;
use pullback_ir::{DType, Region, Result};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use steps::{ReductionStep, TileStep};

/// How often this thread has compiled native code, and found it in the cache.
pub(crate) fn native_counts() -> (usize, usize) {
    #[cfg(target_arch = "x86_64")]
    return native::counts();
    #[cfg(not(target_arch = "x86_64"))]
    (0, 0)
}

/// A region, ready to run.
pub(crate) struct RegionKernel {
    domain: Domain,
    passes: Vec<TilePass>,
    reducing: Vec<ReductionStep>,
    /// Elements of a tile.
    tile: usize,
    /// Rows that are processed together, and whose row values are held at the same time.
    together: usize,
    /// Elements of a task, whole tiles.
    task: usize,
    /// Whether rows are so few and long that they are cut into chunks.
    chunked: bool,
    /// Numbers that are the same for every tile.
    constants: exec::TileScratch,
    /// Results that are one number for each row, and where it is.
    row_results: Vec<RowResult>,
    /// Results that are the same number everywhere: where it is among the constants.
    fills: Vec<Fill>,
    scratch_sizes: ScratchSizes,
    /// Operands that are prefetched.
    ahead: Vec<PrefetchedOperand>,
    /// Bytes of an element of each operand and each result.
    input_sizes: Vec<usize>,
    output_sizes: Vec<usize>,
    /// Whether native code writes results with streaming stores.
    streams: bool,
    /// The same kernel with streaming stores: for results so large that they would evict everything
    /// from the caches.
    streaming: Option<Box<RegionKernel>>,
    #[cfg(target_arch = "x86_64")]
    code: Option<std::sync::Arc<native::MachineCode>>,
}

/// One pass over the elements, with addresses.
struct TilePass {
    /// Which of how many parts of the operands its steps prefetch, if they do: see [`exec`].
    ahead: Option<(usize, usize)>,
    steps: Vec<TileStep>,
    /// The reductions that are complete after it.
    reduces: Vec<usize>,
    /// The row values that are computed after it.
    rows: Vec<TileStep>,
}

struct RowResult {
    output: usize,
    from: plan::TableRef,
    kind: TileKind,
    dtype: DType,
}

struct Fill {
    output: usize,
    from: usize,
    dtype: DType,
}

/// The scratch memory that a thread needs, in bytes.
struct ScratchSizes {
    slots: usize,
    rows: usize,
    /// Bytes of one row value for all the rows that are processed together.
    row: usize,
    /// Bytes of an element of each row value.
    row_sizes: Vec<usize>,
    /// Bytes of an element of each kept value.
    kept: Vec<usize>,
    /// Entries of the table.
    table: usize,
}

/// How a kernel computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CodegenMode {
    /// As fast as this machine can.
    Best,
    /// By slice kernels alone.
    Slices,
    /// With native code, but none that needs AVX-512.
    #[cfg(test)]
    Avx2,
}

impl CodegenMode {
    /// As set by the environment.
    fn chosen() -> CodegenMode {
        let off = std::env::var_os("PULLBACK_NATIVE").is_some_and(|v| v == "0");
        if off { CodegenMode::Slices } else { CodegenMode::Best }
    }
}

impl RegionKernel {
    /// Plans a region, and compiles what can be compiled.
    pub(crate) fn new(region: &Region) -> Result<RegionKernel> {
        RegionKernel::with(region, CodegenMode::chosen())
    }

    /// The machine code that was generated for it, as text.
    pub(crate) fn listing(&self) -> Option<String> {
        #[cfg(target_arch = "x86_64")]
        return self.code.as_ref()?.listing();
        #[cfg(not(target_arch = "x86_64"))]
        None
    }

    /// The kernel of a region that runs as an op of its own: planned the first time, and kept.
    pub(crate) fn kept(region: &Arc<Region>) -> Result<Rc<RegionKernel>> {
        type SharedKernel = (Arc<Region>, Rc<RegionKernel>);
        /// More kernels than programs have composites of one shape.
        const MAX_KEPT: usize = 256;
        thread_local! {
            static KEPT: RefCell<HashMap<Arc<Region>, Rc<RegionKernel>>> = RefCell::default();
            /// Also by address: to compare a region takes longer than to run it on few elements.
            /// The region is held, so that no other can have its address.
            static SHARED: RefCell<HashMap<usize, SharedKernel>> = RefCell::default();
        }
        let address = Arc::as_ptr(region).addr();
        if let Some(kernel) = SHARED.with_borrow(|all| all.get(&address).map(|e| e.1.clone())) {
            return Ok(kernel);
        }
        let known = KEPT.with_borrow(|kept| kept.get(region).cloned());
        let kernel = known.map_or_else(|| RegionKernel::new(region).map(Rc::new), Ok)?;
        KEPT.with_borrow_mut(|kept| {
            if kept.len() >= MAX_KEPT {
                kept.clear();
            }
            kept.insert(region.clone(), kernel.clone());
        });
        SHARED.with_borrow_mut(|all| {
            if all.len() >= MAX_KEPT {
                all.clear();
            }
            all.insert(address, (region.clone(), kernel.clone()));
        });
        Ok(kernel)
    }

    /// Runs the region. The operands are dense and of the specs that it was made for. A result may
    /// have the same memory as an operand that is dense in the order of the domain, has elements of
    /// the same size, and is passed once.
    pub(crate) fn run(&self, inputs: &[Source], outputs: &[Sink]) {
        let kernel = match &self.streaming {
            Some(streaming) if streaming.may_stream(inputs, outputs) => streaming,
            _ => self,
        };
        kernel.execute(inputs, outputs);
    }

    /// Runs a region without reductions on some columns of some rows, where `columns` is the length
    /// of the last axis. Parts that do not overlap may run at the same time.
    pub(crate) fn run_part(
        &self,
        inputs: &[Source],
        outputs: &[Sink],
        rows: Range<usize>,
        columns: Range<usize>,
        width: usize,
    ) {
        self.execute_part(inputs, outputs, rows, columns, width);
    }
}
