//! The bandwidth between a device and its host, and the rate of products meanwhile, measured: by
//! these, passes choose the values that are offloaded.
//!
//! Measured once for a chip and its driver, in some milliseconds and 512 MiB that are given back;
//! kept in a file.

use crate::cache;
use crate::describe::{describe, driver_words};
use crate::gpu::Gpu;
use crate::loops::StridedOperand;
use crate::pinned::Event;
use crate::product;
use crate::tuning::StreamTimer;
use pullback_cuda_sys::DevicePtr;
use pullback_ir::pass::HostLink;
use pullback_ir::{DType, Result};
use std::sync::Arc;

/// Bytes of a copy to the host and back.
const COPY: usize = 64 << 20;
/// Bytes of a copy on the device.
const LARGE: usize = 256 << 20;
/// Rows and columns of the factors of products.
const SIDE: usize = 2048;
/// The least of so many measurements counts: other work only adds.
const TIMES: usize = 4;

/// The link of a device; `None` if it cannot be measured now.
pub(crate) fn host_link(gpu: &Gpu) -> Option<HostLink> {
    let chip = describe(gpu.number).ok()?;
    // The same chip may be connected otherwise.
    let key = format!("{}, device {}, {}, link", chip.name, gpu.number, driver_words());
    let folder = cache::folder();
    let kept = folder.as_ref().and_then(|folder| cache::read(folder, "link", &key));
    if let Some(link) = kept.and_then(|bytes| read(&bytes)) {
        return Some(link);
    }
    let link = measured(gpu)?;
    if let Some(folder) = &folder {
        cache::write(folder, "link", &key, &written(&link));
    }
    Some(link)
}

fn written(link: &HostLink) -> Vec<u8> {
    let HostLink { out, back, memory, narrow, wide } = *link;
    [out, back, memory, narrow, wide].iter().flat_map(|n| n.to_le_bytes()).collect()
}

/// What a file says, if it says what a device can be.
fn read(bytes: &[u8]) -> Option<HostLink> {
    let all: Vec<u64> = bytes
        .chunks(8)
        .map(|chunk| Some(u64::from_le_bytes(chunk.try_into().ok()?)).filter(|&n| n > 0))
        .collect::<Option<_>>()?;
    let [out, back, memory, narrow, wide] = all[..] else { return None };
    Some(HostLink { out, back, memory, narrow, wide })
}

/// So much in a microsecond.
fn rate(amount: usize, milliseconds: f32) -> u64 {
    (amount as f64 / (f64::from(milliseconds).max(1e-6) * 1000.0)).max(1.0) as u64
}

fn measured(gpu: &Gpu) -> Option<HostLink> {
    let watch = StreamTimer::new(gpu)?;
    let nothing = || Ok(());
    let least = |f: &dyn Fn() -> Result<()>| {
        (0..TIMES).filter_map(|_| watch.time(nothing, f)).min_by(f32::total_cmp)
    };
    let [from, to] = [0, 1].map(|_| gpu.scratch(LARGE).ok());
    let (from, to) = (from?, to?);
    gpu.fill(from.at, 0, LARGE).ok()?;
    gpu.fill(to.at, 0, LARGE).ok()?;
    let copy = least(&|| gpu.copy(from.at, to.at, LARGE))?;
    // Both ways at once, as in a program: each for as long as both take.
    let hosts = [0, 1].map(|_| gpu.pinned.take(gpu, COPY).ok());
    let [Some(there), Some(here)] = hosts else { return None };
    let streams = gpu.copy_streams().ok()?;
    let both = least(&|| {
        let begun = Event::record(gpu, gpu.stream)?;
        for stream in [streams.out, streams.back] {
            begun.before(gpu, stream)?;
            there.before(gpu, stream)?;
            here.before(gpu, stream)?;
        }
        gpu.to_host(from.at, there.at(), COPY, streams.out)?;
        gpu.to_device(here.at().cast_const(), to.at, COPY, streams.back)?;
        for (stream, memory) in [(streams.out, &there), (streams.back, &here)] {
            let end: Arc<Event> = Event::record(gpu, stream)?;
            memory.used_until(&end);
            end.before(gpu, gpu.stream)?;
        }
        Ok(())
    })?;
    let product = |dtype: DType| {
        let matrix = |at: DevicePtr| StridedOperand::dense(at, dtype, &[SIDE, SIDE]);
        let (a, b) = (matrix(from.at), matrix(from.at + (LARGE / 2) as u64));
        least(&|| product::dot(gpu, &a, &b, &matrix(to.at), false))
    };
    let operations = 2 * SIDE * SIDE * SIDE;
    Some(HostLink {
        out: rate(COPY, both),
        back: rate(COPY, both),
        // Read and written.
        memory: rate(2 * LARGE, copy),
        narrow: rate(operations, product(DType::BF16)?),
        wide: rate(operations, product(DType::F32)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_kept_as_it_was_measured() {
        let link = HostLink { out: 50_000, back: 48_000, memory: 4_000_000, narrow: 7, wide: 9 };
        assert_eq!(read(&written(&link)), Some(link));
        assert_eq!(read(&written(&HostLink { wide: 0, ..link })), None);
        assert_eq!(read(&written(&link)[..39]), None);
        assert_eq!(read(&[]), None);
        assert_eq!(rate(64 << 20, 1.25), 53_687);
    }

    /// Only with `PULLBACK_DEVICE=cuda:0`.
    #[test]
    fn the_link_of_a_device_is_slower_than_its_memory() {
        let Some(gpu) = crate::device_tests::device() else { return };
        let link = measured(&gpu).expect("a link");
        println!("{link:?}");
        assert!(link.out > 100 && link.back > 100 && link.memory > link.out, "{link:?}");
        assert!(link.narrow > link.memory && link.wide > link.memory / 8, "{link:?}");
    }
}
