//! What is packed, offloaded, compressed or dropped under a budget, as reports count it.

use super::{exclusive, line, normal};
use pullback::{
    Compress, DType, MemoryBudget, MemoryPhase, MemoryReport, Offload, Pack, Packed, Result,
    SavedValue, Tensor, catch, checkpoint_sequential, memory_budget, memory_report, predict_memory,
    vmap, with_packing,
};
use std::sync::Arc;

/// Keeps what is saved in half the memory.
struct Halved;
struct Half(Tensor);

impl Pack for Halved {
    fn pack(&self, value: &SavedValue<'_>) -> Result<Option<Arc<dyn Packed>>> {
        Ok(match value.is_parameter() {
            true => None,
            false => Some(Arc::new(Half(value.tensor().cast(DType::BF16)))),
        })
    }
}

impl Packed for Half {
    fn unpack(&self) -> Result<Tensor> {
        Ok(self.0.cast(DType::F32))
    }

    fn bytes(&self) -> usize {
        self.0.spec().bytes()
    }
}

#[test]
fn what_is_packed_counts_as_it_is_packed() {
    let _lock = exclusive();
    let x = normal(1, [64, 64]).requires_grad();
    let step = || {
        // Dropped here: the tape holds what is packed.
        let y = with_packing(Arc::new(Halved), || x.sin().exp().sum());
        y.backward()
    };
    let predicted = predict_memory(step).unwrap();
    let ((), measured) = memory_report(step).unwrap();
    for report in [predicted, measured] {
        assert_eq!(report.most.activations, 64 * 64 * 2, "{report}");
        assert_eq!(report.activations_by_line[0].op, "cast");
    }
}

/// A chain whose values are 64 KiB each, of which plain backward keeps one a link.
const LINKS: usize = 40;
const BLOCK: u64 = 256 * 64 * 4;
/// The factor of each link, one element, is kept too.
const FACTORS: u64 = LINKS as u64 * 4;

fn chain(x: &Tensor) -> Tensor {
    (0..LINKS).fold(x.clone(), |x, _| x.exp() * 0.3).sum()
}

/// A report on the chain and its backward pass.
fn of_chain(forward: impl Fn(&Tensor) -> Tensor) -> MemoryReport {
    let x = normal(1, [256, 64]).requires_grad();
    chain(&x).backward().unwrap();
    let expected = x.grad().unwrap().to_vec::<f32>();
    x.zero_grad();
    let ((), report) = memory_report(|| forward(&x).backward()).unwrap();
    let (g, near) = (x.grad().unwrap().to_vec::<f32>(), |(a, b): (&f32, &f32)| {
        (a - b).abs() <= 0.05 * (a.abs() + b.abs()) + 1e-6
    });
    assert!(g.iter().zip(&expected).all(near), "the gradient is as ever");
    assert_eq!(report.most.parameters, BLOCK, "{report}");
    assert!(report.most.inputs <= 16, "the random state, and no values: {report}");
    report
}

/// What the step made is, at the peak, what the pool gave out, within this many bytes: a thread
/// that writes or reads ahead works at its own pace, and kernels take something for themselves.
fn agrees_with_the_pool(report: &MemoryReport, slack: u64) {
    let pool = report.pool.unwrap();
    let made = report.peak().alive.total() - report.timeline[0].alive.total();
    let measured = pool.peak - pool.before;
    assert!(made.abs_diff(measured) <= slack, "reported {made}, measured {measured}\n{report}");
}

#[test]
fn under_a_budget_what_is_kept_counts() {
    let _lock = exclusive();
    let plain = of_chain(chain);
    assert_eq!(plain.most.activations, LINKS as u64 * BLOCK + FACTORS, "{plain}");
    agrees_with_the_pool(&plain, 1024);
    let budget = MemoryBudget::new(8 * BLOCK as usize);
    let report = of_chain(|x| budget.run(|| chain(x)));
    let used = budget.used();
    assert!(used.dropped > LINKS / 2 && used.again > LINKS / 2, "{used}");
    // And one that the budget has let go, and backward works with.
    let kept = report.most.activations / BLOCK * BLOCK;
    assert!(kept <= used.kept as u64 + BLOCK && kept >= 6 * BLOCK, "{kept} {used}\n{report}");
    agrees_with_the_pool(&report, 1024);
    // What is computed again is named as what it was computed as first.
    let again = report.timeline.iter().filter(|m| m.phase == MemoryPhase::Backward);
    let again = again.filter(|m| m.op == "exp" || m.op == "mul");
    assert!(again.count() >= used.again, "{report}");
    assert_eq!(line(&report, "exp").2, kept as usize / BLOCK as usize);
}

#[test]
fn what_is_offloaded_is_not_there() {
    let _lock = exclusive();
    let dir = std::env::temp_dir().join(format!("pullback_report_offload_{}", std::process::id()));
    // Copies that wait and values read ahead, four at a time; or neither.
    for (buffer, ahead) in [(4 * BLOCK, 2), (0, 0)] {
        let offload = Offload::to_disk(&dir).unwrap().min_bytes(1 << 10);
        let offload = offload.buffer_bytes(buffer as usize).prefetch(ahead);
        let report = of_chain(|x| {
            let y = offload.run(|| chain(x));
            offload.flush().unwrap();
            y
        });
        let stats = offload.stats();
        assert_eq!(stats.written_bytes, LINKS as u64 * BLOCK, "{stats:?}");
        assert_eq!(buffer > 0, stats.peak_held_bytes > 0, "{stats:?}");
        // One more, which was read ahead and which backward works with.
        let kept = report.most.activations;
        assert!(kept <= FACTORS + buffer + if buffer > 0 { BLOCK } else { 0 }, "{kept} {report}");
        assert!(kept >= FACTORS + buffer / 2, "{kept} {report}");
        agrees_with_the_pool(&report, 2 * BLOCK);
    }
    // What reads ahead for segments that are computed again.
    let offload = Offload::to_disk(&dir).unwrap().min_bytes(1 << 10);
    let layers = vec![|x: &Tensor| x.exp() * 0.3; LINKS];
    let report = of_chain(|x| offload.run(|| checkpoint_sequential(&layers, Some(8), x)).sum());
    assert!(report.most.activations < 16 * BLOCK, "{report}");
    agrees_with_the_pool(&report, 2 * BLOCK);
    drop(offload);
    std::fs::remove_dir(&dir).unwrap();
}

#[test]
fn what_is_compressed_counts_as_it_is_compressed() {
    let _lock = exclusive();
    let compress: Arc<dyn Pack> = Arc::new(Compress::new().half(DType::BF16));
    let report = of_chain(|x| with_packing(compress.clone(), || chain(x)));
    assert_eq!(report.most.activations, LINKS as u64 * BLOCK / 2 + FACTORS, "{report}");
    assert_eq!(line(&report, "cast").2, LINKS);
    agrees_with_the_pool(&report, 1024);
}

/// Keeps the very value.
struct Same;
struct It(Tensor);

impl Pack for Same {
    fn pack(&self, value: &SavedValue<'_>) -> Result<Option<Arc<dyn Packed>>> {
        Ok(Some(Arc::new(It(value.tensor().clone()))))
    }
}

impl Packed for It {
    fn unpack(&self) -> Result<Tensor> {
        Ok(self.0.clone())
    }

    fn bytes(&self) -> usize {
        self.0.spec().bytes()
    }
}

#[test]
fn a_packer_that_keeps_the_value_is_no_packer() {
    let _lock = exclusive();
    let plain = of_chain(chain);
    let same = of_chain(|x| with_packing(Arc::new(Same), || chain(x)));
    assert_eq!(same.most, plain.most, "{same}\n{plain}");
    assert_eq!(same.peak(), plain.peak());
    assert_eq!(same.by_part, plain.by_part);
    let x = normal(1, [256, 64]).requires_grad();
    let predicted = |packed: bool| {
        predict_memory(|| match packed {
            true => with_packing(Arc::new(Same), || chain(&x)).backward(),
            false => chain(&x).backward(),
        })
    };
    let (same, plain) = (predicted(true).unwrap(), predicted(false).unwrap());
    assert_eq!(same.most, plain.most, "{same}\n{plain}");
    assert_eq!(same.most.activations, LINKS as u64 * BLOCK + FACTORS, "{same}");
}

/// Keeps values as numbers, and has another thread make tensors of them.
struct Abroad;
struct Numbers(Vec<f32>, Vec<usize>);

impl Pack for Abroad {
    fn pack(&self, value: &SavedValue<'_>) -> Result<Option<Arc<dyn Packed>>> {
        let x = value.tensor();
        Ok(match value.is_output() {
            true => Some(Arc::new(Numbers(x.to_vec(), x.shape().to_vec()))),
            false => None,
        })
    }
}

impl Packed for Numbers {
    fn unpack(&self) -> Result<Tensor> {
        let make = || Tensor::from_vec(&self.0, &self.1[..]);
        Ok(std::thread::scope(|scope| scope.spawn(make).join().unwrap()))
    }

    fn bytes(&self) -> usize {
        self.0.len() * 4
    }
}

#[test]
fn what_another_thread_gives_back_lives_from_then_on() {
    let _lock = exclusive();
    let report = of_chain(|x| with_packing(Arc::new(Abroad), || chain(x)));
    // One at a time, under the name of the op that asked for it.
    assert_eq!(report.most.activations, BLOCK + FACTORS, "{report}");
    assert_eq!(line(&report, "exp").1, BLOCK);
    agrees_with_the_pool(&report, 1024);
}

#[test]
fn a_prediction_knows_no_budget() {
    let _lock = exclusive();
    let x = normal(1, [256, 64]).requires_grad();
    let plain = predict_memory(|| chain(&x).backward()).unwrap();
    let tight = predict_memory(|| memory_budget(8 * BLOCK as usize, || chain(&x)).backward());
    let tight = tight.unwrap();
    assert_eq!((&tight.most, tight.peak_at), (&plain.most, plain.peak_at), "{tight}\n{plain}");
    // What cannot run is refused as ever.
    let each = vmap(|x: &Tensor| memory_budget(1 << 20, || x.exp()), 0, 0);
    let error = predict_memory(|| Ok(each(&x))).unwrap_err();
    assert!(error.to_string().contains("a budget for the tape inside"), "{error}");
    let error = catch(|| each(&x)).unwrap_err();
    assert!(error.to_string().contains("a budget for the tape inside"), "{error}");
}
