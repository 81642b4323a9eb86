//! What the engine calls.

use crate::gpu::Gpu;
use crate::loops::StridedOperand;
use crate::profile::CallDescription;
use crate::program::CudaProgram;
use crate::registers::COLUMNS;
use crate::{nccl, ops, product};
use pullback_ir::pass::plan::Planned;
use pullback_ir::pass::{Epilogue, HostLink, Limits, Remat, Target};
use pullback_ir::{
    DType, DeviceBackend, DeviceFlight, DeviceOperand, DeviceProgram, HostCopy, KernelTime,
    MemoryHandle, Op, OpCall, PoolStats, Result, Write,
};
use smallvec::SmallVec;
use std::sync::Arc;

/// Opens a device.
///
/// # Errors
/// A sentence that says what is missing: the driver, the device.
pub fn open(number: u16) -> std::result::Result<Box<dyn DeviceBackend>, String> {
    Ok(Box::new(Backend { gpu: Arc::new(Gpu::open(number)?) }))
}

/// What a region may be. A row whose columns are summed should keep a warp busy, and fit into the
/// registers of a block.
pub(crate) const LIMITS: Limits = Limits {
    instructions: 192,
    inputs: 32,
    small: 6,
    few: 64,
    long: 65536,
    columns: COLUMNS,
    column_row: [256, 8192],
    biased_products: true,
};

/// What passes need to know of a GPU.
pub const TARGET: Target = Target {
    align: 256,
    regions: LIMITS,
    norms: true,
    epilogue: Epilogue::Library,
    adds_products: &[DType::F32, DType::F64],
    channels_last: &[DType::BF16, DType::F16],
    stores_twice: true,
    // On the stream of `nccl.rs`.
    overlap: true,
    // Attention does.
    strided_results: true,
    joins_casts: true,
    scratch: true,
    // Measured where a budget asks for it: `link.rs`.
    host: None,
    recompute: Remat { near: 16, worth: 4096 },
};

struct Backend {
    gpu: Arc<Gpu>,
}

impl Backend {
    /// Whether the op waits, to run with others as one kernel.
    fn deferred(&self, call: &OpCall<'_>, x: &[StridedOperand], out: &[StridedOperand]) -> bool {
        match call.op {
            Op::Literal { value, dtype, .. } if out[0].strides.iter().all(|&s| s == 0) => {
                self.gpu.defer_number(*value, *dtype, out[0].at);
                true
            }
            // A copy is made at once: it would be all there is to a kernel.
            Op::Copy => false,
            Op::Fused(of) => self.gpu.defer_update(*of, x, out, call.at),
            op => op.is_pointwise() && self.gpu.defer(op, x, &out[0], call.at),
        }
    }
}

fn operand(x: &DeviceOperand<'_>) -> StridedOperand {
    let bytes = x.layout.offset.wrapping_mul(x.spec.dtype.size());
    let at = x.memory.wrapping_add(bytes as u64);
    StridedOperand::new(at, x.spec.dtype, &x.layout.shape, &x.layout.strides)
}

impl DeviceBackend for Backend {
    fn alloc(&self, bytes: usize) -> Result<MemoryHandle> {
        self.gpu.alloc(bytes)
    }

    fn free(&self, memory: MemoryHandle) {
        self.gpu.free(memory);
    }

    fn upload(&self, from: &[u8], to: MemoryHandle) -> Result<()> {
        self.gpu.upload(from, to)
    }

    fn download(&self, from: MemoryHandle, start: usize, to: &mut [u8]) -> Result<()> {
        self.gpu.download(from + start as u64, to)
    }

    fn offload(&self, from: MemoryHandle, start: usize, bytes: usize) -> Result<HostCopy> {
        self.gpu.offload(from, start, bytes)
    }

    fn restore(&self, copy: &HostCopy, to: MemoryHandle) -> Result<()> {
        self.gpu.restore(copy, to)
    }

    fn wait_for_copies(&self, memory: MemoryHandle) -> Result<()> {
        self.gpu.wait_for_copies(memory)
    }

    fn collect(&self, copy: &HostCopy, to: &mut [u8]) -> Result<()> {
        self.gpu.collect(copy, to)
    }

    fn run(&self, call: &OpCall<'_>) -> Result<bool> {
        let gpu = &self.gpu;
        let x: SmallVec<[StridedOperand; 4]> = call.inputs.iter().map(operand).collect();
        let out: SmallVec<[StridedOperand; 4]> = call.outputs.iter().map(operand).collect();
        if matches!(call.write, None | Some(Write::Over)) && self.deferred(call, &x, &out) {
            return Ok(true);
        }
        let adds = match (call.write, call.op) {
            (None | Some(Write::Over | Write::Part), _) => false,
            (Some(Write::Add), Op::Dot) if product::has(out[0].dtype) => true,
            (Some(Write::Add), _) => return Ok(false),
        };
        let what =
            CallDescription { kernel: call.op.name(), inputs: &x, outputs: &out, at: call.at };
        gpu.timed(&what, || match adds {
            false => ops::run(gpu, call.op, &x, &out, call.at),
            true => product::dot(gpu, &x[0], &x[1], &out[0], true),
        })?;
        Ok(true)
    }

    fn start(&self, call: &OpCall<'_>) -> Result<Option<Box<dyn DeviceFlight>>> {
        let (Op::Collective(of), [from], [to]) = (call.op, call.inputs, call.outputs) else {
            return Ok(None);
        };
        let flight = nccl::start(&self.gpu, of, &operand(from), &operand(to))?;
        Ok(flight.map(|flight| Box::new(flight) as Box<dyn DeviceFlight>))
    }

    fn prepare(&self, program: &Arc<Planned>) -> Result<Box<dyn DeviceProgram>> {
        Ok(Box::new(CudaProgram::new(&self.gpu, program)?))
    }

    fn target(&self) -> Target {
        TARGET
    }

    fn host_link(&self) -> Option<HostLink> {
        self.gpu.host_link()
    }

    fn statistics(&self) -> PoolStats {
        PoolStats { pinned_bytes: self.gpu.pinned.bytes(), ..self.gpu.pool().stats() }
    }

    fn reset_peak(&self) {
        self.gpu.pool().reset_peak();
    }

    fn trim(&self) {
        self.gpu.trim();
    }

    fn start_profile(&self) -> Result<()> {
        self.gpu.start_profile()
    }

    fn end_profile(&self) -> Result<Vec<KernelTime>> {
        self.gpu.end_profile()
    }

    fn synchronize(&self) -> Result<()> {
        self.gpu.synchronize()
    }
}
