//! What fails, on which line, and what is left afterwards.

use super::threads::workers;
use pullback::{Error, ErrorKind, Group, Result, Tensor, catch, jit};
use pullback_ir::{CollectiveCall, Communicator, Fresh};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One worker, whose calls are the identity up to one that fails.
struct Failing {
    calls: AtomicUsize,
    fails_at: usize,
    panics: bool,
}

impl Failing {
    fn group(fails_at: usize, panics: bool) -> (Arc<Failing>, Group) {
        let failing = Arc::new(Failing { calls: AtomicUsize::new(0), fails_at, panics });
        (failing.clone(), Group::new(failing))
    }
}

impl Communicator for Failing {
    fn id(&self) -> u64 {
        7
    }

    fn rank(&self) -> usize {
        0
    }

    fn size(&self) -> usize {
        1
    }

    fn engine(&self) -> &'static str {
        "failing"
    }

    fn run(&self, call: &CollectiveCall<'_>, input: &[u8], output: &mut [u8]) -> Result<()> {
        let number = self.calls.fetch_add(1, Ordering::SeqCst);
        assert_eq!(call.sequence, number as u64);
        if number == self.fails_at {
            assert!(!self.panics, "the cable is loose");
            let name = call.collective.name();
            return Err(Error::new(ErrorKind::Workers, name, "worker 3 is gone"));
        }
        output.copy_from_slice(input);
        Ok(())
    }

    fn subgroup(&self, _: &[usize]) -> Result<Option<Arc<dyn Communicator>>> {
        Ok(None)
    }
}

/// One worker, whose results are not complete.
struct Forgetful;

impl Communicator for Forgetful {
    fn id(&self) -> u64 {
        8
    }

    fn rank(&self) -> usize {
        0
    }

    fn size(&self) -> usize {
        1
    }

    fn engine(&self) -> &'static str {
        "forgetful"
    }

    fn run(&self, _: &CollectiveCall<'_>, _: &[u8], _: &mut [u8]) -> Result<()> {
        Ok(())
    }

    fn run_fresh(
        &self,
        _: &CollectiveCall<'_>,
        input: &[u8],
        output: &mut Fresh<'_>,
    ) -> Result<()> {
        output.write(0, &input[..8]);
        output.write(0, &input[..8]);
        Ok(())
    }

    fn subgroup(&self, _: &[usize]) -> Result<Option<Arc<dyn Communicator>>> {
        Ok(None)
    }
}

/// Memory of results is not cleared, so what an engine has not written is never read.
#[test]
fn a_result_that_is_not_complete_is_an_error() {
    let x = Tensor::from([1.0, 2.0]);
    let group = || Group::new(Arc::new(Forgetful));
    let (eager, compiled) = (group(), group());
    let step = jit(move |x: &Tensor| x.all_reduce(&compiled) * 2.0);
    for error in [
        catch(|| x.all_gather(&eager, 0)).unwrap_err(),
        group().all_gather_later(&x).wait().unwrap_err(),
        step.call(&x).unwrap_err(),
    ] {
        let text = error.to_string();
        assert!(text.contains("the engine has written 8 of 16 bytes"), "{text}");
        assert!(text.contains("failures.rs"), "{text}");
    }
}

#[test]
fn a_broken_group_is_not_used_again() {
    for panics in [false, true] {
        let (engine, group) = Failing::group(1, panics);
        let x = Tensor::from([1.0, 2.0]);
        assert_eq!(x.all_reduce(&group).to_vec::<f64>(), [1.0, 2.0]);
        let why = if panics { "the cable is loose" } else { "worker 3 is gone" };
        let first = catch(|| x.all_gather(&group, 0)).unwrap_err();
        assert_eq!(first.kind(), ErrorKind::Workers);
        let text = first.to_string();
        assert!(text.starts_with("all_gather: ") && text.contains(why), "{text}");
        assert!(text.contains("f64[2]") && text.contains("failures.rs"), "{text}");
        for later in [
            catch(|| x.all_reduce(&group)).unwrap_err(),
            group.all_reduce_later(&x).wait().unwrap_err(),
            group.barrier().unwrap_err(),
        ] {
            let text = later.to_string();
            assert!(text.contains("an earlier call of it failed") && text.contains(why), "{text}");
            assert!(text.contains("because all_gather") && text.contains("failures.rs"), "{text}");
        }
        assert_eq!(engine.calls.load(Ordering::SeqCst), 2, "later calls do not reach the engine");
    }
}

#[test]
fn an_error_of_a_later_call_comes_with_its_wait() {
    let (_, group) = Failing::group(0, false);
    let sum = group.all_reduce_later(Tensor::from([1.0]));
    let text = sum.wait().unwrap_err().to_string();
    assert!(text.starts_with("all_reduce: worker 3 is gone"), "{text}");
    assert!(text.contains("failures.rs"), "{text}");
}

#[test]
fn a_failed_compiled_step_changes_no_state() {
    for fails_at in 0..3 {
        let (_, group) = Failing::group(3 + fails_at, false);
        let (a, b) = (Tensor::from([1.0, 2.0]), Tensor::from([[3.0, 1.0], [0.5, 4.0]]));
        let (p, q) = (a.clone(), b.clone());
        let step = jit(move |x: &Tensor| {
            let y = q.matmul(x).all_reduce(&group);
            p.add_(&y);
            let z = (x * 2.0).all_reduce(&group);
            q.mul_(z.sum());
            (&z + &y).all_reduce(&group)
        });
        let x = Tensor::from([1.0, -1.0]);
        step.call(&x).unwrap();
        let before = (a.to_vec::<f64>(), b.to_vec::<f64>());
        let text = step.call(&x).unwrap_err().to_string();
        assert!(text.starts_with("all_reduce: worker 3 is gone"), "{text}");
        assert!(text.contains("f64[2]") && text.contains("failures.rs"), "{text}");
        assert_eq!((a.to_vec::<f64>(), b.to_vec::<f64>()), before, "call {fails_at}");
        let again = step.call(&x).unwrap_err().to_string();
        assert!(again.contains("an earlier call of it failed"), "{again}");
        assert_eq!((a.to_vec::<f64>(), b.to_vec::<f64>()), before);
    }
}

#[test]
fn workers_that_do_different_things_all_fail() {
    let errors = workers(2, |group| {
        let x = Tensor::from([1.0, 2.0]);
        let wrong = |x: &Tensor| match group.rank() {
            0 => x.all_reduce(group),
            _ => x.all_gather(group, 0),
        };
        catch(|| wrong(&x)).unwrap_err().to_string()
    });
    assert!(errors.iter().all(|e| e.contains("failures.rs")), "{errors:?}");
    // Also where one differentiates and the other does not.
    let errors = workers(2, |group| {
        let x = Tensor::from([1.0, 2.0]).requires_grad();
        let y = x.all_reduce(group).sum();
        let done = match group.rank() {
            0 => y.backward(),
            _ => group.barrier(),
        };
        done.unwrap_err().to_string()
    });
    assert!(errors.iter().all(|e| e.contains("one worker calls")), "{errors:?}");
}
