//! The account itself: what it counts, what it costs, and what stays of it.

use super::{BLOCK, chain, exclusive, peak, taken};
use pullback::{DType, Key, MemoryBudget, Tensor, catch, memory_stats};

#[test]
fn a_scope_that_goes_on_for_ever_does_not_remember_all_of_it() {
    let _lock = exclusive();
    let x = Tensor::from([0.5; 32]).requires_grad();
    let budget = MemoryBudget::new(8 * 256);
    let (start, mut mean) = (memory_stats().live_bytes, Tensor::from([0.0; 32]));
    budget.run(|| {
        for _ in 0..12_000 {
            let y = (0..6).fold(x.clone(), |x, _| x.sin().exp() * 0.3);
            y.sum().backward().unwrap();
            x.zero_grad();
            mean = &mean * 0.9 + y.detach() * 0.1;
        }
    });
    // Constants that are part of how something was made: eight bytes each, of which a step has
    // seven.
    let left = memory_stats().live_bytes - start;
    assert!(left < 300_000, "{left}");
    assert!(budget.used().kept <= 8 * 256);
}

#[test]
fn finding_what_to_drop_takes_a_few_looks_however_long_the_chain_is() {
    let _lock = exclusive();
    let x = Tensor::from([0.5; 32]).requires_grad();
    for n in [1000, 4000, 16_000] {
        // Half of the values fit, and then as many as the root of all.
        for values in [n / 2, (2.0 * f64::from(n).sqrt()) as i32] {
            let budget = MemoryBudget::new(values as usize * 256);
            let run = || (0..n).fold(x.clone(), |x, _| x.sin()).sum();
            budget.run(run).backward().unwrap();
            x.zero_grad();
            let used = budget.used();
            assert!(used.dropped >= (n - values) as usize / 2, "{n}\n{used}");
            let looks = used.weighed as f64 / used.dropped as f64;
            assert!(looks < 16.0, "{looks} for each of {} values\n{used}", n);
        }
    }
}

#[test]
fn a_scope_inside_itself_or_on_a_second_thread_makes_nothing_older() {
    let _lock = exclusive();
    let x = Tensor::from([0.5; 100]).requires_grad();
    // Captured numbers count once they are saved, which is after the second scope was opened.
    let inner = MemoryBudget::new(1 << 20);
    let loss = inner.run(|| {
        let a = Tensor::from([1.5; 100]);
        inner.run(|| ());
        (&x * &a).sum()
    });
    assert_eq!(inner.used().kept, 800, "{}", inner.used());
    let other = MemoryBudget::new(1 << 20);
    let second = other.run(|| {
        let a = Tensor::from([1.5; 100]);
        let again = other.clone();
        std::thread::spawn(move || again.run(|| ())).join().unwrap();
        (&x * &a).sum()
    });
    assert_eq!(other.used().kept, 800, "{}", other.used());
    drop((loss, second));
    // A panic closes the scope, too: what is there when the next one is opened is not its own.
    assert!(catch(|| other.run(|| Tensor::from([1.0, 2.0]).reshape([3]))).is_err());
    let (x, a) = (Tensor::from([0.5; 200]).requires_grad(), Tensor::from([1.5; 200]));
    drop(other.run(|| (&x * &a).sum()));
    assert_eq!(other.used().kept, 800, "{}", other.used());
}

#[test]
fn an_account_that_lives_on_holds_nothing() {
    let _lock = exclusive();
    let x = Tensor::from([0.5; 32]).requires_grad();
    let budget = MemoryBudget::new(4 * 256);
    let run = || (0..6).fold(x.clone(), |x, _| x.sin().exp() * 0.3).sum();
    let start = memory_stats().live_bytes;
    for step in 0..10_000 {
        let loss = match step % 3 {
            // Inside the scope, outside of it, and not at all.
            0 => budget.run(|| {
                let loss = run();
                loss.backward().unwrap();
                loss
            }),
            _ => budget.run(run),
        };
        if step % 3 == 1 {
            loss.backward().unwrap();
        }
        if step % 1000 == 17 {
            let fails = || (run(), Tensor::from([1.0, 2.0]).reshape([3]));
            assert!(catch(|| budget.run(fails)).is_err());
        }
        x.zero_grad();
        drop(loss);
        assert_eq!(memory_stats().live_bytes, start, "after step {step}");
    }
    assert!(budget.used().dropped > 10_000, "{}", budget.used());
    // What is still wanted is not forgotten with the rest.
    run().backward().unwrap();
    let expected = taken(&[&x]);
    let (first, second) = (budget.run(run), budget.run(run));
    drop(first);
    second.backward().unwrap();
    assert_eq!(taken(&[&x]), expected);
}

#[test]
fn predicted_and_measured_peak() {
    let _lock = exclusive();
    let x = Key::new(1).normal([64, 64], DType::F32, 0.0, 1.0).requires_grad();
    for values in [128, 32, 8] {
        let budget = MemoryBudget::new(values * BLOCK);
        let ((), all) = peak(|| budget.run(|| chain(&x, 64)).backward().unwrap());
        x.zero_grad();
        let used = budget.used();
        // Reckoned from shapes, and within two values of what the pool saw.
        assert!(used.predicted >= used.kept + BLOCK, "{used}");
        assert!(used.predicted <= used.kept + 3 * BLOCK, "{used}");
        assert!(used.predicted.abs_diff(used.measured) <= 2 * BLOCK, "{used}");
        assert!(used.predicted.abs_diff(all) <= 2 * BLOCK, "{all}\n{used}");
        let text = used.to_string();
        for (word, bytes) in [("predicted peak", used.predicted), ("measured peak", used.measured)]
        {
            let line = text.lines().find(|line| line.starts_with(word)).unwrap();
            assert!(line.contains(&format!(" {bytes} bytes")), "{text}");
        }
        assert!(text.contains("extra compute"), "{text}");
    }
}
