//! Collectives in programs: kept in order by every pass, and beside other work when compiled.

use pullback::{
    CustomOp, DType, Derivative, Error, ErrorKind, Group, HostInput, HostOutput, Key, Op, Program,
    Result, Spec, Tensor, cond, custom_op, jit, scan, trace,
};
use pullback_ir::{CollectiveCall, Communicator};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// What happened, in order.
#[derive(Default)]
struct Events {
    list: Mutex<Vec<String>>,
    changed: Condvar,
}

impl Events {
    fn add(&self, event: impl Into<String>) {
        self.list.lock().unwrap().push(event.into());
        self.changed.notify_all();
    }

    fn taken(&self) -> Vec<String> {
        std::mem::take(&mut self.list.lock().unwrap())
    }

    /// Waits until something has happened; `false` if it does not.
    fn comes(&self, event: &str) -> bool {
        let list = self.list.lock().unwrap();
        let missing = |list: &mut Vec<String>| !list.iter().any(|e| e == event);
        let limit = Duration::from_secs(60);
        !self.changed.wait_timeout_while(list, limit, missing).unwrap().1.timed_out()
    }
}

/// One worker that writes down its calls, and whose results wait for an event.
struct Noting {
    events: Arc<Events>,
    ends_after: Option<&'static str>,
}

impl Noting {
    fn group(ends_after: Option<&'static str>) -> (Arc<Events>, Group) {
        let events = Arc::<Events>::default();
        (events.clone(), Group::new(Arc::new(Noting { events, ends_after })))
    }
}

impl Communicator for Noting {
    fn id(&self) -> u64 {
        1
    }

    fn rank(&self) -> usize {
        0
    }

    fn size(&self) -> usize {
        1
    }

    fn engine(&self) -> &'static str {
        "noting"
    }

    fn run(&self, call: &CollectiveCall<'_>, input: &[u8], output: &mut [u8]) -> Result<()> {
        let what = format!("{} {} {input:?}", call.collective.name(), call.operand);
        self.events.add(what);
        if let Some(event) = self.ends_after
            && !self.events.comes(event)
        {
            return Err(Error::new(ErrorKind::Workers, "noting", format!("no {event} came")));
        }
        output.copy_from_slice(input);
        self.events.add("end");
        Ok(())
    }

    fn subgroup(&self, _: &[usize]) -> Result<Option<Arc<dyn Communicator>>> {
        Ok(None)
    }
}

/// The identity, written down.
struct Work(Arc<Events>, &'static str);

impl CustomOp for Work {
    fn name(&self) -> &'static str {
        "work"
    }

    fn specs(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        Ok(inputs.to_vec())
    }

    fn forward(&self, inputs: &[HostInput], outputs: &mut [HostOutput]) -> Result<()> {
        outputs[0].as_mut_slice::<f64>()?.copy_from_slice(inputs[0].as_slice()?);
        self.0.add(self.1);
        Ok(())
    }

    fn derivative(&self) -> Derivative {
        Derivative::Refused("not needed here")
    }
}

fn collectives(program: &Program) -> Vec<&'static str> {
    let of = |e: &pullback_ir::Equation| matches!(e.op, Op::Collective(_)).then(|| e.op.name());
    program.equations.iter().filter_map(of).collect()
}

#[test]
fn passes_keep_them_all_in_order() {
    let group = Group::alone();
    let f = |x: &Tensor| {
        let a = x.all_reduce(&group);
        let _unused = (x * 2.0).all_gather(&group, 0);
        let b = x.all_reduce(&group);
        group.barrier().unwrap();
        let zeros = Tensor::zeros_with([2], DType::F64).all_reduce_max(&group);
        a + b + zeros
    };
    let x = Tensor::from([1.0, 2.0]);
    let names = ["all_reduce", "all_gather", "all_reduce", "barrier", "all_reduce_max"];
    let compiled = jit(f);
    for (stage, program) in compiled.stages(&x).unwrap() {
        assert_eq!(collectives(&program), names, "{stage}:\n{program}");
        program.verify_deeply().unwrap();
        let waits = program.equations.iter().filter(|e| e.op == Op::Wait).count();
        assert_eq!(waits, if stage == "overlap" { 4 } else { 0 });
    }
    assert_eq!(compiled.call(&x).unwrap().to_vec::<f64>(), [2.0, 4.0]);
}

#[test]
fn texts_name_the_group_and_cannot_be_parsed() {
    let group = Group::alone();
    let spec = Spec::cpu(DType::F32, [2]);
    let program = trace(|x: &[Tensor]| x[0].all_reduce(&group), &[spec]).unwrap();
    let text = program.to_string();
    assert!(text.contains("= all_reduce{group=alone[0/1]} a"), "{text}");
    for name in ["all_reduce", "broadcast_from", "wait"] {
        let error = format!("{name}{{x}}").parse::<Op>().unwrap_err().to_string();
        assert!(error.contains("names a group of workers, which a text cannot"), "{error}");
    }
}

#[test]
fn other_work_runs_between_start_and_wait() {
    // A collective ends only when work that does not need it has been done: an executor that
    // waited for it before would fail.
    let (events, group) = Noting::group(Some("late"));
    let (early, late) = (Work(events.clone(), "early"), Work(events.clone(), "late"));
    let (early, late) = (custom_op(early), custom_op(late));
    let f = jit(move |x: &Tensor| {
        let sum = early.one(&[x]).all_reduce(&group);
        let used = &sum * 2.0;
        used + late.one(&[&(x + 1.0)])
    });
    let y = f.call(&Tensor::from([1.0, 2.0])).unwrap();
    assert_eq!(y.to_vec::<f64>(), [4.0, 7.0]);
    let order: Vec<String> =
        events.taken().into_iter().map(|e| e.split(' ').next().unwrap().to_string()).collect();
    assert_eq!(order.first().unwrap(), "early");
    assert_eq!(order.last().unwrap(), "end");
    assert!(order.contains(&"late".to_string()) && order.len() == 4, "{order:?}");
}

#[test]
fn parameters_are_gathered_one_ahead() {
    let group = Group::alone();
    let parts: Vec<Tensor> =
        (0..4).map(|i| Key::new(i).normal([8, 8], DType::F64, 0.0, 1.0)).collect();
    let f = |x: &Tensor| {
        parts.iter().fold(x.clone(), |x, part| x.matmul(&part.all_gather(&group, 0)).tanh())
    };
    let x = Key::new(9).normal([8, 8], DType::F64, 0.0, 1.0);
    let program = jit(f).stages(&x).unwrap().pop().unwrap().1;
    let place = |f: &dyn Fn(&Op) -> bool| -> Vec<usize> {
        (0..program.equations.len()).filter(|&i| f(&program.equations[i].op)).collect()
    };
    let starts = place(&|op| matches!(op, Op::Collective(_)));
    let waits = place(&|op| *op == Op::Wait);
    let products = place(&|op| matches!(op, Op::Dot | Op::DotRegion(_)));
    assert_eq!((starts.len(), waits.len(), products.len()), (4, 4, 4), "{program}");
    for k in 0..3 {
        assert!(waits[k] < starts[k + 1] && starts[k + 1] < products[k], "{program}");
        assert!(products[k] < waits[k + 1], "{program}");
    }
}

#[test]
fn an_operand_that_is_replaced_is_sent_before() {
    // The state is written in place only after what was sent of it has arrived.
    let (events, group) = Noting::group(None);
    let state = Tensor::from([1.0, 2.0]);
    let p = state.clone();
    let f = jit(move |x: &Tensor| {
        let all = p.all_gather(&group, 0);
        p.add_(x);
        all
    });
    for turn in 0..3 {
        let all = f.call(&Tensor::from([1.0, 1.0])).unwrap().to_vec::<f64>();
        assert_eq!(all, [1.0 + f64::from(turn), 2.0 + f64::from(turn)]);
    }
    assert_eq!(state.to_vec::<f64>(), [4.0, 5.0]);
    assert_eq!(events.taken().len(), 6);
}

#[test]
fn loops_and_choices_keep_them() {
    let (events, group) = Noting::group(None);
    let f = |x: &Tensor| {
        let body = |s: &Tensor, w: &Tensor| {
            let all = (s * w).all_reduce(&group);
            let _unused = s.all_gather(&group, 0);
            (s + all, w * 2.0)
        };
        let (state, ys) = scan(body, x, &Tensor::from([0.5, 2.0, 3.0]));
        // Only for other workers: nothing reads the result.
        let _ = cond(
            &x.sum().gt(0.0),
            |x: &Tensor| x.all_reduce_max(&group),
            |x: &Tensor| x.all_reduce_min(&group),
            x,
        );
        state + ys.sum()
    };
    for x in [Tensor::from([1.0, 2.0]), Tensor::from([-1.0, -2.0])] {
        let wanted = f(&x).to_vec::<f64>();
        let eager = events.taken();
        assert_eq!(eager.len(), 14, "{eager:#?}");
        assert_eq!(jit(f).call(&x).unwrap().to_vec::<f64>(), wanted);
        let begun = |e: &[String]| e.iter().filter(|e| *e != "end").cloned().collect::<Vec<_>>();
        assert_eq!(begun(&events.taken()), begun(&eager));
    }
}

/// A function that is put together at random: products, pointwise ops, views, reductions and
/// collectives, some of which nothing reads.
fn random(seed: u64, group: &Group, x: &Tensor) -> Tensor {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = |n: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) as usize % n
    };
    let mut values = vec![x.clone(), x.tanh()];
    for _ in 0..24 {
        let a = values[next(values.len())].clone();
        let b = values[next(values.len())].clone();
        values.push(match next(9) {
            0 => a.matmul(&b).tanh(),
            1 => (a * 0.5 + b.sin()).tanh(),
            2 => a.t().contiguous(),
            3 => (a.sum_over(0) * 0.1).expand([6, 6]),
            4 => a.all_reduce(group),
            5 => b.all_reduce_max(group),
            6 => (a.softmax(-1) + &b).all_gather(group, 0),
            7 => cat_halves(&a, &b).all_reduce(group),
            _ => a.all_to_all(group, 1, 0) * 0.5,
        });
    }
    values.into_iter().reduce(|a, b| a + b * 0.5).unwrap()
}

fn cat_halves(a: &Tensor, b: &Tensor) -> Tensor {
    pullback::cat(&[&a.narrow(0, 0, 3), &b.narrow(0, 3, 3)], 0)
}

#[test]
fn random_programs_make_the_calls_of_eager_code() {
    let (events, group) = Noting::group(None);
    for seed in 0..60 {
        let x = Key::new(seed).normal([6, 6], DType::F64, 0.0, 1.0);
        let f = |x: &Tensor| random(seed, &group, x);
        let wanted = f(&x);
        let names = |events: Vec<String>| -> Vec<String> {
            let begun = events.into_iter().filter(|e| e != "end");
            begun.map(|e| e.split(" [").next().unwrap().to_string()).collect()
        };
        let eager = names(events.taken());
        let compiled = jit(f);
        let y = compiled.call(&x).unwrap();
        assert_eq!(names(events.taken()), eager, "seed {seed}");
        let (y, wanted) = (y.to_vec::<f64>(), wanted.to_vec::<f64>());
        for (y, wanted) in y.iter().zip(&wanted) {
            assert!((y - wanted).abs() <= 1e-9 * wanted.abs().max(1.0), "seed {seed}");
        }
        // And within a budget, where values are computed again and collectives are not.
        let tight = jit(f).memory_budget(6 * 6 * 8 * 24);
        if let Ok(y) = tight.call(&x) {
            assert_eq!(names(events.taken()), eager, "seed {seed} within a budget");
            for (y, wanted) in y.to_vec::<f64>().iter().zip(&wanted) {
                assert!((y - wanted).abs() <= 1e-9 * wanted.abs().max(1.0), "seed {seed}");
            }
        }
    }
}
