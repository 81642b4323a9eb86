//! The third way: what is not kept, and would cost too much to compute again, goes to another
//! packer.

use super::{BLOCK, exclusive, peak, taken};
use pullback::{
    DType, ErrorKind, Key, MemoryBudget, Offload, Pack, Packed, Result, SavedValue, Tensor, catch,
};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

/// Keeps half the bits.
struct Halved;
struct Half(Tensor);

impl Pack for Halved {
    fn pack(&self, value: &SavedValue<'_>) -> Result<Option<Arc<dyn Packed>>> {
        Ok(Some(Arc::new(Half(value.tensor().cast(DType::F32)))))
    }
}

impl Packed for Half {
    fn unpack(&self) -> Result<Tensor> {
        Ok(self.0.cast(DType::F64))
    }

    fn bytes(&self) -> usize {
        self.0.spec().bytes()
    }
}

#[test]
fn what_does_not_fit_goes_to_another_packer_and_counts_there() {
    let _lock = exclusive();
    let x = Tensor::from([0.5; 100]).requires_grad();
    let run = || (0..8).fold(x.clone(), |x, i| x * Tensor::from([f64::from(i) + 0.1; 100])).sum();
    run().backward().unwrap();
    let expected = x.grad().unwrap();
    x.zero_grad();
    let budget = MemoryBudget::new(6100).or_pack(Arc::new(Halved));
    let loss = budget.run(run);
    assert!(budget.used().kept == 6000, "{}", budget.used());
    loss.backward().unwrap();
    let (found, expected) = (x.grad().unwrap().to_vec::<f64>(), expected.to_vec::<f64>());
    assert!((found[0] / expected[0] - 1.0).abs() < 1e-6 && found[0] != expected[0]);
    // Half of it does not fit either.
    let error = catch(|| MemoryBudget::new(900).or_pack(Arc::new(Halved)).run(run)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Memory);
}

/// Keeps values as they are, says that they take nothing, and lists who saved them.
#[derive(Default)]
struct Elsewhere(Mutex<Vec<String>>);
struct Far(Tensor);

impl Pack for Elsewhere {
    fn pack(&self, value: &SavedValue<'_>) -> Result<Option<Arc<dyn Packed>>> {
        self.0.lock().unwrap().push(value.name().to_string());
        Ok(Some(Arc::new(Far(value.tensor().deep_clone()))))
    }
}

impl Packed for Far {
    fn unpack(&self) -> Result<Tensor> {
        Ok(self.0.clone())
    }

    fn bytes(&self) -> usize {
        0
    }
}

/// Products of 128 · 2 operations for an element of 4 bytes, and two functions that cost little.
fn layers(x: &Tensor, w: &Tensor) -> Tensor {
    (0..8).fold(x.clone(), |x, _| x.matmul(w).tanh().sin()).sum()
}

#[test]
fn what_costs_more_than_packing_is_packed_and_the_rest_is_dropped() {
    let _lock = exclusive();
    let x = Key::new(1).normal([32, 128], DType::F32, 0.0, 1.0).requires_grad();
    let w = Key::new(2).normal([128, 128], DType::F32, 0.0, 0.1).requires_grad();
    layers(&x, &w).backward().unwrap();
    let expected = taken(&[&x, &w]);
    let run = |rate: f64| {
        let packer = Arc::new(Elsewhere::default());
        let budget = MemoryBudget::new(3 * BLOCK).or_pack(packer.clone()).packing_costs(rate);
        budget.run(|| layers(&x, &w)).backward().unwrap();
        assert_eq!(taken(&[&x, &w]), expected);
        let (used, names) = (budget.used(), packer.0.lock().unwrap().clone());
        assert_eq!(used.packed, names.len(), "{used}");
        assert!(used.kept <= 3 * BLOCK, "{used}");
        (used, names)
    };
    let (never, nobody) = run(f64::INFINITY);
    assert!(nobody.is_empty() && never.dropped > 10, "{never}");
    let (always, _) = run(0.0);
    assert!(always.dropped == 0 && always.again == 0 && always.packed > 10, "{always}");
    // A product is 64 operations for a byte, and its tanh a few more; a function of something that
    // is there is a few.
    let (mixed, names) = run(32.0);
    assert!(mixed.dropped > 0 && mixed.packed > 0, "{mixed}");
    assert!(mixed.work_again < never.work_again / 4, "{mixed}\n{never}");
    assert!(mixed.packed < always.packed, "{mixed}\n{names:?}");
}

/// As [`Elsewhere`], but says that it is exact, and counts what is asked back.
#[derive(Default)]
struct Faithful(Mutex<Vec<String>>, Arc<AtomicUsize>);
struct Same(Tensor, Arc<AtomicUsize>);

impl Pack for Faithful {
    fn pack(&self, value: &SavedValue<'_>) -> Result<Option<Arc<dyn Packed>>> {
        self.0.lock().unwrap().push(value.name().to_string());
        Ok(Some(Arc::new(Same(value.tensor().deep_clone(), self.1.clone()))))
    }
}

impl Packed for Same {
    fn unpack(&self) -> Result<Tensor> {
        self.1.fetch_add(1, SeqCst);
        Ok(self.0.clone())
    }

    fn bytes(&self) -> usize {
        0
    }

    fn is_exact(&self) -> bool {
        true
    }
}

#[test]
fn what_is_cheap_is_computed_again_from_what_was_packed() {
    let _lock = exclusive();
    let x = Key::new(1).normal([32, 128], DType::F32, 0.0, 1.0).requires_grad();
    let w = Key::new(2).normal([128, 128], DType::F32, 0.0, 0.1).requires_grad();
    layers(&x, &w).backward().unwrap();
    let expected = taken(&[&x, &w]);
    let run = |packer: Arc<dyn Pack>, times: usize| {
        let budget = MemoryBudget::new(3 * BLOCK).or_pack(packer).packing_costs(32.0);
        for _ in 0..times {
            budget.run(|| layers(&x, &w)).backward().unwrap();
            assert_eq!(taken(&[&x, &w]), expected);
        }
        let used = budget.used();
        assert!(used.kept <= 3 * BLOCK, "{used}");
        used
    };
    let unsaid = Arc::new(Elsewhere::default());
    let faithful = Arc::new(Faithful::default());
    let (blind, seeing) = (run(unsaid.clone(), 1), run(faithful.clone(), 1));
    // What a product reads is a sine of what was packed: it is made again, and not packed too.
    let of_products =
        |all: &Mutex<Vec<String>>| all.lock().unwrap().iter().filter(|name| *name == "dot").count();
    assert!(of_products(&unsaid.0) > 2, "{:?}", unsaid.0);
    assert_eq!(of_products(&faithful.0), 0, "{:?}", faithful.0);
    assert!(seeing.packed < blind.packed && seeing.dropped > 2, "{seeing}\n{blind}");
    // Two products that were kept make room, and run again; a sine is a few operations.
    assert!(seeing.work_again < (2 * 300 + 8 * 20) * 32 * 128, "{seeing}");
    // Each comes back once, also for what is made of it.
    let asked = faithful.1.load(SeqCst);
    assert!(asked <= seeing.packed, "{asked} of {seeing}");
    // And nothing stays from one step to the next.
    let five = Arc::new(Faithful::default());
    let again = run(five.clone(), 5);
    assert!(five.1.load(SeqCst) <= again.packed && again.packed <= 6 * seeing.packed, "{again}");
}

#[test]
fn a_packer_that_declines_leaves_it_to_the_budget() {
    struct Nobody;
    impl Pack for Nobody {
        fn pack(&self, _: &SavedValue<'_>) -> Result<Option<Arc<dyn Packed>>> {
            Ok(None)
        }
    }
    let _lock = exclusive();
    let x = Key::new(1).normal([32, 128], DType::F32, 0.0, 1.0).requires_grad();
    let w = Key::new(2).normal([128, 128], DType::F32, 0.0, 0.1).requires_grad();
    layers(&x, &w).backward().unwrap();
    let expected = taken(&[&x, &w]);
    let budget = MemoryBudget::new(3 * BLOCK).or_pack(Arc::new(Nobody)).packing_costs(0.0);
    budget.run(|| layers(&x, &w)).backward().unwrap();
    assert_eq!(taken(&[&x, &w]), expected);
    assert!(budget.used().packed == 0 && budget.used().dropped > 10, "{}", budget.used());
}

#[test]
fn files_take_what_does_not_fit() {
    let _lock = exclusive();
    let directory = std::env::temp_dir().join(format!("budget-packing-{}", std::process::id()));
    let x = Key::new(1).normal([64, 64], DType::F32, 0.0, 1.0).requires_grad();
    // Captured numbers, of which none can be computed again.
    let run = || {
        let numbers = |i: u8| Tensor::from(vec![1.0 + f32::from(i) / 100.0; 64 * 64]);
        (0..48).fold(x.clone(), |x, i| x * numbers(i).reshape([64, 64])).sum()
    };
    run().backward().unwrap();
    let expected = taken(&[&x]);
    {
        let offload = Offload::to_disk(&directory).unwrap().min_bytes(1).buffer_bytes(2 * BLOCK);
        let budget = MemoryBudget::new(8 * BLOCK).or_pack(Arc::new(offload)).packing_costs(0.0);
        let ((), measured) = peak(|| budget.run(run).backward().unwrap());
        assert_eq!(taken(&[&x]), expected);
        let used = budget.used();
        assert!(used.packed == 40 && used.dropped == 0, "{used}");
        assert!(used.kept <= 8 * BLOCK && measured <= 14 * BLOCK, "{measured}\n{used}");
    }
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
    std::fs::remove_dir(&directory).unwrap();
}

#[test]
fn prices_that_make_no_sense_are_refused() {
    let priced =
        |rate: f64| catch(|| MemoryBudget::new(9).or_pack(Arc::new(Halved)).packing_costs(rate));
    for rate in [-1.0, f64::NAN] {
        let error = priced(rate).unwrap_err().to_string();
        assert!(
            error.contains("at least 0 operations per byte") && error.contains("packing.rs"),
            "{error}"
        );
    }
    let error = catch(|| MemoryBudget::new(9).packing_costs(1.0)).unwrap_err().to_string();
    assert!(error.contains("or_pack"), "{error}");
}
