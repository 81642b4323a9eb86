//! Attention that stores no scores, by kernels of our own (`kernels/attention.cu`): f32, with or
//! without TF32, and what cuDNN does not take of bf16 and f16, with masks that hide or are added.
//!
//! Each query, and in the backward pass also each key, belongs to one warp, which goes over the
//! other side in order: there are no atomics, and bits depend on shapes alone.

use crate::compile::{KernelKey, KernelSource};
use crate::functions::PRELUDE;
use crate::gpu::{DeviceScratch, Gpu, LibraryHandle};
use crate::loops::StridedOperand;
use crate::ops::copy;
use crate::text::element;
use pullback_cuda_sys::DevicePtr;
use pullback_ir::{Attention, DType, Result, element_count, tf32_allowed};
use smallvec::{SmallVec, smallvec};

pub(crate) const TEXT: &str =
    concat!(include_str!("kernels/mma.cu"), include_str!("kernels/attention.cu"));

/// Widest heads.
const WIDEST: usize = 128;
/// Queries of a head that take a block each, whose threads share the keys.
const FEW: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlashKernel {
    Forward,
    /// Forward of few queries.
    Few,
    /// Numbers of each query that both other kernels of the vjp read.
    Rows,
    Queries,
    Keys,
}

impl FlashKernel {
    fn name(self) -> &'static str {
        match self {
            FlashKernel::Forward => "FORWARD",
            FlashKernel::Few => "FEW",
            FlashKernel::Rows => "ROWS",
            FlashKernel::Queries => "DQ",
            FlashKernel::Keys => "DKV",
        }
    }
}

/// How a kernel is divided: warps of a block, rows of a warp in units of 16, rows of the other side
/// that are in shared memory at a time (twice), and blocks of a multiprocessor to aim for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlashTiling {
    pub warps: usize,
    pub height: usize,
    pub rows: usize,
    pub blocks: usize,
}

pub(crate) const fn tile(warps: usize, height: usize, rows: usize, blocks: usize) -> FlashTiling {
    FlashTiling { warps, height, rows, blocks }
}

/// What the text of a kernel follows from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlashForm {
    pub dtype: DType,
    /// Of a query or key, and of a value.
    pub width: usize,
    pub value: usize,
    /// Products of f32 as exact as f32 is.
    pub exact: bool,
    pub causal: bool,
    /// 0 for none, 1 for one that hides, 2 for one that is added.
    pub mask: u32,
}

impl FlashForm {
    /// Tiles for this form, the best one first; later ones need less shared memory.
    pub fn tiles(&self, kernel: FlashKernel) -> &'static [FlashTiling] {
        let wide = self.width.max(self.value) > 64;
        match (kernel, self.dtype == DType::F32, wide) {
            (FlashKernel::Rows | FlashKernel::Few, ..) => &const { [tile(8, 1, 16, 2)] },
            (FlashKernel::Forward, true, false) if self.exact => &const { [tile(4, 1, 32, 4)] },
            (FlashKernel::Forward, true, false) => &const { [tile(4, 2, 32, 3)] },
            (FlashKernel::Forward, true, true) if self.exact => {
                &const { [tile(4, 1, 32, 2), tile(4, 1, 16, 2)] }
            }
            (FlashKernel::Forward, true, true) => &const { [tile(4, 2, 16, 2), tile(4, 1, 16, 2)] },
            (FlashKernel::Forward, false, false) => &const { [tile(4, 2, 64, 2)] },
            (FlashKernel::Forward, false, true) => &const { [tile(4, 2, 32, 2)] },
            (_, true, false) if self.exact => &const { [tile(4, 1, 32, 3)] },
            (_, true, false) => &const { [tile(4, 2, 32, 2), tile(4, 1, 32, 3)] },
            (_, true, true) => &const { [tile(8, 1, 32, 1), tile(4, 1, 32, 1), tile(2, 1, 16, 2)] },
            (_, false, false) => &const { [tile(4, 2, 32, 2)] },
            (_, false, true) => &const { [tile(4, 1, 32, 2)] },
        }
    }

    /// Bytes of shared memory, as the kernel divides them.
    pub fn shared(&self, kernel: FlashKernel, tile: FlashTiling) -> usize {
        let bytes = |width: usize| width.next_multiple_of(16) * self.dtype.size() + 16;
        let (near, far) = (bytes(self.width), bytes(self.value));
        let own = match kernel {
            FlashKernel::Forward => near,
            FlashKernel::Queries | FlashKernel::Keys => near + far,
            FlashKernel::Rows => return 0,
            FlashKernel::Few => {
                // Two numbers and a row of values for each group of lanes.
                let lanes = self.width.max(self.value) * self.dtype.size() / 16;
                return 32 * tile.warps / lanes.next_power_of_two() * (2 + self.value) * 4;
            }
        };
        16 * tile.warps * tile.height * own + 2 * tile.rows * (near + far + 8)
    }

    pub fn text(&self, kernel: FlashKernel, tile: FlashTiling) -> String {
        let (FlashForm { dtype, width, value, exact, causal, mask }, name) = (self, kernel.name());
        let FlashTiling { warps, height, rows, blocks } = tile;
        let (exact, causal) = (u8::from(*exact), u8::from(*causal));
        format!(
            "{PRELUDE}#define {name}\ntypedef {} E;\n#define D {width}\n#define W {value}\n\
             #define EXACT {exact}\n#define CAUSAL {causal}\n#define MASK {mask}\n\
             #define WARPS {warps}\n#define MT {height}\n#define BN {rows}\n\
             #define BLOCKS {blocks}\n{TEXT}",
            element(*dtype)
        )
    }

    fn kernel(&self, gpu: &Gpu, kernel: FlashKernel, tile: FlashTiling) -> Result<LibraryHandle> {
        let numbers = [self.width, self.value, tile.warps, tile.height, tile.rows, tile.blocks];
        let mut numbers: SmallVec<[u32; 4]> = numbers.iter().map(|&n| n as u32).collect();
        numbers.push(u32::from(self.exact) + 2 * u32::from(self.causal) + 4 * self.mask);
        let key = KernelKey::Named(kernel.name(), smallvec![self.dtype], numbers);
        gpu.kernels.get_or_make(gpu, &key, || KernelSource {
            text: self.text(kernel, tile),
            function: c"k".into(),
            fused: true,
        })
    }
}

/// Memory of heads of rows, as `View` in the kernels; strides of batches, heads and rows.
#[derive(Clone, Copy, Default)]
struct HeadsView {
    at: DevicePtr,
    strides: [isize; 3],
}

/// An operand with all batch axes as one, `inner` axes after that of heads.
fn view(x: &StridedOperand, inner: usize) -> Option<HeadsView> {
    let heads = x.shape.len() - 1 - inner;
    let (mut count, mut step) = (1, 0isize);
    for (&n, &s) in x.shape[..heads].iter().zip(&x.strides) {
        match () {
            () if n == 1 => {}
            () if count == 1 || step == s * n as isize => (count, step) = (count * n, s),
            () => return None,
        }
    }
    Some(HeadsView { at: x.at, strides: [step, x.strides[heads], x.strides[heads + 1]] })
}

/// The same if rows can be moved by 16 bytes.
fn aligned(x: &StridedOperand) -> Option<HeadsView> {
    let (rank, unit) = (x.shape.len(), 16 / x.dtype.size());
    let axes = x.shape.iter().zip(&x.strides);
    let apart = |(&n, &s): (&usize, &isize)| n == 1 || s.unsigned_abs().is_multiple_of(unit);
    let fits = x.strides[rank - 1] == 1 && axes.take(rank - 1).all(apart);
    view(x, 2).filter(|_| fits && x.at.is_multiple_of(16))
}

/// The operand, or a dense copy of it.
fn heads_view<'a>(
    gpu: &'a Gpu,
    x: &StridedOperand,
    held: &mut Vec<DeviceScratch<'a>>,
) -> Result<HeadsView> {
    if let Some(view) = aligned(x) {
        return Ok(view);
    }
    let memory = gpu.scratch(x.bytes())?;
    let copied = StridedOperand::dense(memory.at, x.dtype, &x.shape);
    copy(gpu, x, &copied)?;
    held.push(memory);
    // Dense memory of rows of whole vectors is aligned, and its batch axes are one.
    Ok(aligned(&copied).unwrap_or_default())
}

/// As `Params` in the kernels.
#[derive(Clone)]
pub(crate) struct FlashParams {
    pub form: FlashForm,
    /// Queries, keys, values, results, log-sum-exps, cotangents, gradients, mask.
    views: [HeadsView; 10],
    step: isize,
    rows: DevicePtr,
    batch: usize,
    heads: usize,
    groups: usize,
    queries: usize,
    keys: usize,
    scale: f64,
}

impl FlashParams {
    /// `None` where these kernels do not take the form.
    fn of(gpu: &Gpu, how: Attention, x: &[StridedOperand]) -> Option<FlashParams> {
        let rank = x[0].shape.len();
        let axes = |x: &StridedOperand| [x.shape[rank - 3], x.shape[rank - 2], x.shape[rank - 1]];
        let ([heads, queries, width], [groups, keys, _]) = (axes(&x[0]), axes(&x[1]));
        let (dtype, value) = (x[0].dtype, x[2].shape[rank - 1]);
        let batch = &x[0].shape[..rank - 3];
        let same = |y: &StridedOperand| y.dtype == dtype && y.shape[..rank - 3] == *batch;
        let fits = |n: usize| n.is_multiple_of(8) && n <= WIDEST;
        let short = |n: usize| i32::try_from(4 * n).is_ok();
        let taken = matches!(dtype, DType::F32 | DType::BF16 | DType::F16)
            && gpu.kernels.capability >= 80
            && !how.drops()
            && fits(width)
            && fits(value)
            && short(queries)
            && short(keys)
            && groups > 0
            && heads.is_multiple_of(groups)
            && x[..3].iter().all(|x| x.len() > 0 && same(x));
        let mask = match how.masked.then(|| x[3].dtype) {
            None => 0,
            Some(DType::Bool) => 1,
            Some(of) if of == dtype => 2,
            Some(_) => return None,
        };
        let exact = dtype == DType::F32 && !tf32_allowed();
        let form = FlashForm { dtype, width, value, exact, causal: how.causal, mask };
        let mut job = FlashParams {
            form,
            views: [HeadsView::default(); 10],
            step: 0,
            rows: 0,
            batch: element_count(batch),
            heads,
            groups,
            queries,
            keys,
            scale: how.scale.0,
        };
        if how.masked {
            job.views[9] = view(&x[3], 2)?;
            job.step = x[3].strides[rank - 1];
        }
        taken.then_some(job)
    }

    /// The best tile for which this device has the memory.
    fn tile(&self, gpu: &Gpu, kernel: FlashKernel) -> Option<FlashTiling> {
        let fits = |tile: &&FlashTiling| self.form.shared(kernel, **tile) <= gpu.shared;
        self.form.tiles(kernel).iter().find(fits).copied()
    }

    pub fn launch(&self, gpu: &Gpu, kernel: FlashKernel, tile: FlashTiling) -> Result<()> {
        let high = 16 * tile.warps * tile.height;
        let heads = self.batch * self.heads;
        let grid = match kernel {
            FlashKernel::Forward | FlashKernel::Queries => heads * self.queries.div_ceil(high),
            FlashKernel::Few => heads * self.queries,
            FlashKernel::Keys => self.batch * self.groups * self.keys.div_ceil(high),
            FlashKernel::Rows => (heads * self.queries).div_ceil(4 * tile.warps),
        };
        let mut words: SmallVec<[u64; 64]> = SmallVec::new();
        for view in &self.views {
            words.push(view.at);
            words.extend(view.strides.iter().map(|&s| s as u64));
        }
        words.extend([self.step as u64, self.rows]);
        let lengths = [self.batch, self.heads, self.groups, self.queries, self.keys];
        words.extend(lengths.iter().map(|&n| n as u64));
        words.push(self.scale.to_bits());
        let made = self.form.kernel(gpu, kernel, tile)?;
        gpu.launch_with(made, grid, 32 * tile.warps, self.form.shared(kernel, tile), &words)
    }
}

/// Forward; false, and nothing done, if these kernels do not take it.
pub(crate) fn attention(
    gpu: &Gpu,
    how: Attention,
    x: &[StridedOperand],
    out: &[StridedOperand],
) -> Result<bool> {
    let Some(mut job) = FlashParams::of(gpu, how, x) else { return Ok(false) };
    let kernel = if job.queries <= FEW { FlashKernel::Few } else { FlashKernel::Forward };
    let (Some(tile), Some(o)) = (job.tile(gpu, kernel), aligned(&out[0])) else {
        return Ok(false);
    };
    let (Some(lse), DType::F32) = (view(&out[1], 1), out[1].dtype) else { return Ok(false) };
    let mut held = Vec::new();
    for (to, x) in job.views.iter_mut().zip(&x[..3]) {
        *to = heads_view(gpu, x, &mut held)?;
    }
    (job.views[3], job.views[4]) = (o, lse);
    job.launch(gpu, kernel, tile)?;
    Ok(true)
}

/// Backward; false, and nothing done, if these kernels do not take it.
pub(crate) fn attention_vjp(
    gpu: &Gpu,
    how: Attention,
    x: &[StridedOperand],
    out: &[StridedOperand],
) -> Result<bool> {
    let Some(prepared) = prepared(gpu, how, x, out)? else { return Ok(false) };
    for (kernel, tile) in prepared.kernels {
        prepared.job.launch(gpu, kernel, tile)?;
    }
    Ok(true)
}

/// A vjp with its memory.
pub(crate) struct PreparedAttention<'a> {
    pub job: FlashParams,
    pub kernels: [(FlashKernel, FlashTiling); 3],
    _held: Vec<DeviceScratch<'a>>,
}

pub(crate) fn prepared<'a>(
    gpu: &'a Gpu,
    how: Attention,
    x: &[StridedOperand],
    out: &[StridedOperand],
) -> Result<Option<PreparedAttention<'a>>> {
    let Some(mut job) = FlashParams::of(gpu, how, x) else { return Ok(None) };
    let n = how.operands();
    let tiles =
        [FlashKernel::Rows, FlashKernel::Queries, FlashKernel::Keys].map(|k| (k, job.tile(gpu, k)));
    let [(rows, Some(a)), (queries, Some(b)), (keys, Some(c))] = tiles else { return Ok(None) };
    let kernels = [(rows, a), (queries, b), (keys, c)];
    let (Some(lse), DType::F32) = (view(&x[n + 1], 1), x[n + 1].dtype) else { return Ok(None) };
    let [Some(dq), Some(dk), Some(dv)] = [0, 1, 2].map(|k| aligned(&out[k])) else {
        return Ok(None);
    };
    let mut held = Vec::new();
    for (to, from) in [(0, 0), (1, 1), (2, 2), (3, n), (5, n + 2)] {
        job.views[to] = heads_view(gpu, &x[from], &mut held)?;
    }
    job.views[4] = lse;
    job.views[6..9].copy_from_slice(&[dq, dk, dv]);
    let memory = gpu.scratch(job.batch * job.heads * job.queries * 8)?;
    job.rows = memory.at;
    held.push(memory);
    Ok(Some(PreparedAttention { job, kernels, _held: held }))
}
