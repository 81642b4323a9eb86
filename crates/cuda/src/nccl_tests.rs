//! NCCL: what can be tested without a GPU, and one rank on a GPU (`PULLBACK_DEVICE=cuda:0`).
//! `PULLBACK_CUDA_LIBRARIES` may name the folder of its Python package.

use crate::gpu::Gpu;
use crate::nccl::{Nccl, NcclCall, NcclJoin, connect, draw_id, nccl_call};
use crate::pinned::Event;
use pullback_cuda_sys::{nccl, nccl_version};
use pullback_ir::{
    Alone, Collective, Combination, Communicator, DType, Device, DeviceJoin, Line, Spec,
};
use std::sync::Arc;

const FLOATS: [DType; 4] = [DType::F64, DType::F32, DType::BF16, DType::F16];

fn all_reduce(combination: Combination, dtype: DType) -> Option<NcclCall> {
    nccl_call(&Collective::AllReduce(combination), dtype, false)
}

#[test]
fn collectives_are_made_by_nccl_where_it_keeps_the_contract() {
    use Combination::{Max, Min, Sum};
    // By the enumerations of nccl.h.
    let names = [
        (DType::F64, 8),
        (DType::F32, 7),
        (DType::BF16, 9),
        (DType::F16, 6),
        (DType::I64, 4),
        (DType::I32, 2),
        (DType::U8, 1),
    ];
    for (dtype, number) in names {
        assert_eq!(all_reduce(Sum, dtype), Some(NcclCall::AllReduce(number, 0)));
        let scattered = nccl_call(&Collective::ReduceScatter, dtype, false);
        assert_eq!(scattered, Some(NcclCall::ReduceScatter(number, 0)));
    }
    assert_eq!(all_reduce(Sum, DType::Bool), Some(NcclCall::AllReduce(1, 2)), "one of them");
    for (dtype, number) in [(DType::I64, 4), (DType::I32, 2), (DType::U8, 1), (DType::Bool, 1)] {
        assert_eq!(all_reduce(Max, dtype), Some(NcclCall::AllReduce(number, 2)));
        assert_eq!(all_reduce(Min, dtype), Some(NcclCall::AllReduce(number, 3)));
        let sum = Collective::AllReduce(Sum);
        assert!(nccl_call(&sum, dtype, true).is_some(), "sums of integers have no order");
    }
    for dtype in FLOATS {
        assert_eq!([all_reduce(Max, dtype), all_reduce(Min, dtype)], [None, None], "NaN");
        for sum in [Collective::AllReduce(Sum), Collective::ReduceScatter] {
            assert_eq!(nccl_call(&sum, dtype, true), None, "a fixed order");
        }
        assert_eq!(nccl_call(&Collective::AllGather, dtype, true), Some(NcclCall::AllGather));
        let broadcast = Collective::Broadcast { root: 3 };
        assert_eq!(nccl_call(&broadcast, dtype, true), Some(NcclCall::Broadcast(3)));
        assert_eq!(nccl_call(&Collective::AllToAll, dtype, true), Some(NcclCall::AllToAll));
    }
    let spec = Spec::on(Device::Cpu, DType::F32, [1].as_slice());
    for host in
        [Collective::Send { to: 0 }, Collective::Recv { from: 0, spec }, Collective::Barrier]
    {
        assert_eq!(nccl_call(&host, DType::F32, false), None);
    }
}

#[test]
fn the_library_answers_or_is_named_in_a_sentence() {
    let library = match nccl() {
        Ok(library) => library,
        Err(why) => {
            assert!(why.starts_with("NCCL was not found: looked for libnccl.so.2"), "{why}");
            return;
        }
    };
    let version = nccl_version(library);
    assert!(version.starts_with("2."), "{version}");
    let (a, b) = (draw_id(library).unwrap(), draw_id(library).unwrap());
    assert_ne!(a, b);
    if pullback_cuda_sys::device_count() == 0 {
        // Without a GPU it refuses to connect, in words, and does not hang.
        let alone: Arc<dyn Communicator> = Arc::new(Alone);
        let why = connect(&alone, a).unwrap_err();
        assert!(why.starts_with("NCCL cannot connect the workers: "), "{why}");
    }
}

fn device() -> Option<Arc<Gpu>> {
    let wanted = std::env::var("PULLBACK_DEVICE").is_ok_and(|name| name.starts_with("cuda"));
    wanted.then(|| Arc::new(Gpu::open(0).expect("a device")))
}

fn run(gpu: &Arc<Gpu>, nccl: &Nccl, way: NcclCall, dtype: DType, values: &[u8]) -> Vec<u8> {
    let (from, to) = (gpu.alloc(values.len()).unwrap(), gpu.alloc(values.len()).unwrap());
    gpu.fill(to, 0xA5, values.len()).unwrap();
    gpu.upload(values, from).unwrap();
    gpu.enter();
    let ready = Event::record(gpu, gpu.stream).unwrap();
    let bytes = values.len();
    let what = (way, "test", Line::caller());
    let done = nccl.launch(what, (from, bytes), (to, bytes), dtype.size(), &ready).unwrap();
    done.before(gpu, gpu.stream).unwrap();
    let mut made = vec![0; bytes];
    gpu.download(to, &mut made).unwrap();
    gpu.free(from);
    gpu.free(to);
    made
}

/// One rank, where every collective is the identity.
#[test]
fn one_rank_on_a_gpu() {
    let Some(gpu) = device() else { return };
    if let Err(why) = nccl() {
        eprintln!("not tested: {why}");
        return;
    }
    let alone: Arc<dyn Communicator> = Arc::new(Alone);
    for _ in 0..2 {
        let joining = NcclJoin(&gpu);
        let offer = joining.offer(0).unwrap();
        let nccl = joining.join(&alone, &[offer]).unwrap();
        let values: Vec<u8> = (0..1 << 20).map(|i: u32| (i.wrapping_mul(77) >> 3) as u8).collect();
        let collectives = [
            Collective::AllReduce(Combination::Sum),
            Collective::ReduceScatter,
            Collective::AllGather,
            Collective::Broadcast { root: 0 },
            Collective::AllToAll,
        ];
        for dtype in [DType::F32, DType::BF16, DType::I64, DType::U8] {
            for collective in &collectives {
                let way = nccl_call(collective, dtype, false).unwrap();
                // Numbers that are no NaN keep their bits.
                let values: Vec<u8> = values.iter().map(|byte| byte & 0x3f).collect();
                assert_eq!(run(&gpu, &nccl, way, dtype, &values), values, "{collective:?} {dtype}");
            }
        }
        // Many at a time, and the communicator ends while the last are in flight.
        for _ in 0..100 {
            run(&gpu, &nccl, NcclCall::AllReduce(7, 0), DType::F32, &values[..4096]);
        }
    }
    gpu.synchronize().unwrap();
}
