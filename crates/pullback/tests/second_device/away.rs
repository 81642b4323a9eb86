//! Compiled functions within a byte budget, on a device whose programs may keep values on the host:
//! the bits of plain ones, in less memory than recomputation alone reaches, for less extra work.

use super::device_second::{alone, counted, host_limited, second, with_host};
use super::{bits, sample};
use pullback::{Error, ErrorKind, Jit, Result, Specialised, Tensor, catch, jit, no_grad};
use pullback_ir::pass::HostLink;

/// Copies that hide behind the computation.
const FAST: HostLink =
    HostLink { out: 100_000, back: 100_000, memory: 100_000, narrow: 10_000, wide: 10_000 };
/// A way to the host that is not worth taking.
const SLOW: HostLink = HostLink { out: 1, back: 1, ..FAST };

const ROWS: usize = 256;
const WIDTH: usize = 64;
/// Bytes of an activation.
const ONE: usize = ROWS * WIDTH * 4;

/// Residual blocks `x + gelu(x·a)·b`, and a step of descent.
struct Chain(Vec<[Tensor; 2]>);

impl Chain {
    fn new(blocks: usize) -> Chain {
        let weight = |seed| (sample(&[WIDTH, WIDTH], seed) * 0.05).to(second()).requires_grad();
        Chain((0..blocks).map(|i| [weight(2 * i), weight(2 * i + 1)]).collect())
    }

    fn step(&self, x: &Tensor) -> Result<Tensor> {
        self.0.iter().flatten().for_each(Tensor::zero_grad);
        let y = self.0.iter().fold(x.clone(), |x, [a, b]| &x + x.matmul(a).gelu().matmul(b));
        let loss = y.square().mean();
        loss.backward()?;
        no_grad(|| {
            for w in self.0.iter().flatten() {
                w.sub_(w.grad().unwrap() * 0.1);
            }
        });
        Ok(loss.detach())
    }

    fn bits(&self) -> Vec<Vec<u64>> {
        self.0.iter().flatten().flat_map(|w| [bits(w), bits(&w.grad().unwrap())]).collect()
    }

    /// A step of a chain of its own, within a budget.
    fn within(bytes: usize) -> Jit<Tensor, Result<Tensor>, impl Fn(&Tensor) -> Result<Tensor>> {
        let chain = Chain::new(BLOCKS);
        jit(move |x: &Tensor| chain.step(x)).memory_budget(bytes)
    }
}

const BLOCKS: usize = 16;

fn x() -> Tensor {
    sample(&[ROWS, WIDTH], 99).to(second())
}

fn only<F: Fn(&Tensor) -> Result<Tensor>>(f: &Jit<Tensor, Result<Tensor>, F>) -> Specialised {
    let mut all = f.explain().specialisations;
    assert_eq!(all.len(), 1);
    all.remove(0)
}

/// The bound that an error names.
fn bound(error: &Error) -> usize {
    let text = error.to_string();
    let (_, rest) = text.split_once("it takes at least ").unwrap_or_else(|| panic!("{text}"));
    rest.split(',').next().and_then(|n| n.parse().ok()).expect("a number")
}

#[test]
fn values_on_the_host_take_less_than_recomputation_for_less_work() {
    let _alone = alone();
    let x = x();
    // What recomputation alone needs, and what it costs.
    let least = bound(&Chain::within(ONE).call(&x).unwrap_err());
    let alone = Chain::within(least);
    alone.call(&x).unwrap();
    let alone = only(&alone).budget.unwrap();
    assert!(alone.again > 0 && alone.offloaded == 0, "{alone:?}");
    with_host(FAST, || {
        let refused = Chain::within(ONE).call(&x).unwrap_err();
        assert!(refused.to_string().contains("copies to the host"), "{refused}");
        let less = bound(&refused);
        assert!(less < least, "{less} with the host, {least} without");
        // The least is met, and so is what lies between.
        for bytes in [less, (less + least) / 2] {
            let (plain, tight) = (Chain::new(BLOCKS), Chain::new(BLOCKS));
            let whole = jit(|x: &Tensor| plain.step(x));
            let step = jit(|x: &Tensor| tight.step(x)).memory_budget(bytes);
            step.compile(&x).unwrap();
            let said = only(&step);
            let report = said.budget.unwrap();
            assert!(report.peak <= bytes && report.peak == said.peak, "{report:?}");
            assert!(report.extra() < alone.extra(), "{report:?}\n{alone:?}");
            assert!(report.offloaded > 2 * ONE && report.host <= report.offloaded, "{report:?}");
            for iteration in 0..3 {
                let expected = whole.call(&x).unwrap();
                let (found, told) = counted(|| step.call(&x).unwrap());
                assert_eq!(bits(&found), bits(&expected), "iteration {iteration}");
                assert!(plain.bits() == tight.bits(), "iteration {iteration}");
                let moved = said.offloaded.len() as u64;
                assert_eq!((told.offloads, told.restores), (moved, moved), "{told:?}");
                assert_eq!((told.downloads, told.uploads), (0, 0), "{told:?}");
            }
            let measured = only(&step).measured.unwrap();
            assert!(measured <= bytes, "{measured} of {bytes}");
            step.check(&x).unwrap();
        }
    });
}

#[test]
fn a_report_says_what_waits_on_the_host_and_why() {
    let _alone = alone();
    let x = x();
    let plain = Chain::within(usize::MAX);
    plain.call(&x).unwrap();
    let whole = only(&plain).peak;
    with_host(FAST, || {
        let step = Chain::within(whole / 2);
        step.call(&x).unwrap();
        let said = only(&step);
        let report = said.budget.unwrap();
        assert_eq!(report.again, 0, "copies that hide cost nothing: {report:?}");
        assert_eq!(report.waits, 0, "{report:?}");
        let moved: usize = said.offloaded.iter().map(|value| value.bytes).sum();
        assert_eq!(moved, report.offloaded);
        let text = step.explain().to_string();
        let line = format!("on the host for a time: {moved} bytes, at most {}", report.host);
        assert!(text.contains(&line), "{text}");
        let value = &said.offloaded[0];
        assert_eq!((value.bytes, value.copies), (ONE, [655, 655]));
        assert!(value.at.unwrap().to_string().contains("second_device/away.rs"), "{value:?}");
        // A product of 256·64·64 multiplications, at 10,000 operations in a microsecond.
        assert!(value.again > 200_000 && value.idle > value.copies[0], "{value:?}");
        assert!(text.contains(&value.to_string()), "{text}");
        assert!(said.passes.iter().any(|pass| pass.0 == "offload"), "{text}");
    });
    with_host(SLOW, || {
        let step = Chain::within(whole / 2);
        step.call(&x).unwrap();
        let report = only(&step).budget.unwrap();
        assert!(report.offloaded == 0 && report.again > 0, "{report:?}");
    });
}

#[test]
fn without_memory_of_the_host_nothing_has_happened() {
    let _alone = alone();
    let x = x();
    let plain = Chain::within(usize::MAX);
    plain.call(&x).unwrap();
    let peak = only(&plain).peak;
    with_host(FAST, || {
        let (plain, tight) = (Chain::new(BLOCKS), Chain::new(BLOCKS));
        let step = jit(|x: &Tensor| tight.step(x)).memory_budget(peak / 2);
        let whole = jit(|x: &Tensor| plain.step(x));
        let wanted = [whole.call(&x).unwrap(), whole.call(&x).unwrap()];
        assert_eq!(bits(&step.call(&x).unwrap()), bits(&wanted[0]));
        let before = tight.bits();
        let host = only(&step).budget.unwrap().host as u64;
        for _ in 0..3 {
            let error = host_limited(host - 1, || step.call(&x)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Memory, "{error}");
            assert!(error.to_string().contains("bytes of pinned memory"), "{error}");
            assert!(tight.bits() == before);
        }
        let last = host_limited(host, || catch(|| step.call(&x).unwrap())).unwrap();
        assert_eq!(bits(&last), bits(&wanted[1]));
        assert!(tight.bits() == plain.bits());
    });
}
