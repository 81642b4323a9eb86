//! Workers whose devices exchange memory themselves: the bits of the host engine, nothing
//! downloaded, and sentences instead of hangs.

#[path = "../../pullback/tests/device_second/mod.rs"]
mod device_second;

use device_second::exchange::{at_once, unable};
use device_second::{alone, counted_on, counts_of, number, pause_of};
use pullback::{
    DType, Device, Error, Group, Result, Tensor, catch, jit, no_grad, synchronize,
    with_default_device,
};
use pullback_ir::{CollectiveCall, Communicator};
use pullback_nn::models::Mlp;
use pullback_nn::optim::{Adam, Optimizer, Sgd, UpdateRule};
use pullback_nn::parallel::{DataParallel, FullSharding, Sharded, gpu_of_worker};
use pullback_nn::{Layer, Linear, Module};
use pullback_workers::{threads, threads_within};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn bits(x: &Tensor) -> Vec<u64> {
    x.to_f64_vec().into_iter().map(f64::to_bits).collect()
}

/// The device of a worker: one each, or the host.
fn device_of(group: &Group, on_devices: bool) -> Device {
    if on_devices { number(group.rank() as u16) } else { Device::Cpu }
}

/// Different numbers on each worker, whose sums depend on the order.
fn sample(group: &Group, shape: &[usize], dtype: DType) -> Tensor {
    let n: usize = shape.iter().product();
    let seed = group.rank() * 7919;
    let x: Vec<f64> = (0..n).map(|i| (((i + 1) * 7907 + seed) % 1013) as f64 / 31.0).collect();
    with_default_device(Device::Cpu, || Tensor::from_vec(x, shape).cast(dtype))
}

/// Every collective that devices make, of a dense operand and of a view.
fn every_collective(group: &Group, on: Device) -> Vec<Tensor> {
    let mut made = Vec::new();
    for dtype in [DType::F32, DType::F64, DType::BF16, DType::I64] {
        let x = sample(group, &[4, 6], dtype).to(on);
        for x in [x.clone(), x.transpose(0, 1), x.narrow(0, 1, 2)] {
            made.push(x.all_reduce(group));
            made.push(x.all_reduce_max(group));
            made.push(x.all_reduce_min(group));
            made.push(x.all_gather(group, 0));
            made.push(x.all_gather(group, 1));
            made.push(x.reduce_scatter(group, 0));
            made.push(x.broadcast_from(group, 1));
            made.push(x.all_to_all(group, 0, 1));
        }
    }
    made
}

#[test]
fn every_collective_has_the_bits_of_the_host_and_downloads_nothing() {
    let _alone = alone();
    let run = |on_devices: bool| {
        threads(2, |group| {
            let on = device_of(&group, on_devices);
            let rank = group.rank() as u16;
            let (made, told) = match on_devices {
                true => counted_on(rank, || every_collective(&group, on)),
                false => (every_collective(&group, on), Default::default()),
            };
            assert!(made.iter().all(|y| y.device() == on));
            assert_eq!((told.downloads, told.waits), (0, 0));
            let all: Vec<Vec<u64>> = made.iter().map(bits).collect();
            if on_devices {
                let done = counts_of(rank).collectives;
                assert!(done >= made.len() as u64, "{done} of {}", made.len());
            }
            Ok(all)
        })
        .unwrap()
    };
    let wanted = run(false);
    assert_eq!(run(true), wanted, "as late as they may");
    assert_eq!(at_once(|| run(true)), wanted, "as soon as they can");
}

#[test]
fn messages_between_two_workers_go_through_the_host() {
    let _alone = alone();
    let [kept, received]: [Vec<u64>; 2] = threads(2, |group| {
        let x = sample(&group, &[5], DType::F32).to(device_of(&group, true));
        let sum = x.all_reduce(&group);
        if group.rank() == 0 {
            drop(x.send(&group, 1));
            Ok(bits(&x))
        } else {
            Ok(bits(&sum.narrow(0, 0, 0).recv_after(&group, 0, [5])))
        }
    })
    .unwrap()
    .try_into()
    .unwrap();
    assert_eq!(received, kept);
}

#[test]
fn a_device_computes_while_a_collective_waits_for_another_worker() {
    let _alone = alone();
    at_once(|| {
        threads(2, |group| {
            let on = device_of(&group, true);
            let x = sample(&group, &[8, 8], DType::F32).to(on);
            let first = x.all_reduce(&group).to_f64_vec();
            group.barrier()?;
            // Worker 1's device stands still: its operand is not there.
            let paused = (group.rank() == 1).then(|| pause_of(1));
            let y = &x + 0.0;
            let later = group.all_reduce_later(&y);
            if group.rank() == 0 {
                // The queue of worker 0 does not wait for the sum.
                assert_eq!(x.matmul(&x).to_f64_vec().len(), 64);
                y.copy_(&(&y * 100.0));
            }
            group.barrier()?;
            drop(paused);
            let (sum, told) = counted_on(group.rank() as u16, || later.wait());
            assert_eq!((told.downloads, told.waits), (0, 0));
            assert_eq!(sum?.to_f64_vec(), first, "of the values before the write");
            Ok(())
        })
        .unwrap();
    });
}

/// The queue, the copies to the host and the collectives are three streams.
#[test]
fn a_tensor_used_on_three_streams_is_ordered() {
    let _alone = alone();
    threads(2, |group| {
        let x = sample(&group, &[64], DType::F32).to(device_of(&group, true));
        let (own, sum) = (bits(&x), bits(&x.all_reduce(&group)));
        for _ in 0..10 {
            let y = &x + 0.0;
            let (copy, later) = (y.cpu_later(), group.all_reduce_later(&y));
            y.fill_(7.0);
            let again = group.all_reduce_later(&y);
            assert_eq!(bits(&y), vec![7f64.to_bits(); 64]);
            drop(y);
            let total = later.wait()?;
            assert_eq!(
                (bits(&copy.wait()), bits(&total.cpu_later().wait())),
                (own.clone(), sum.clone())
            );
            assert_eq!(bits(&again.wait()?), vec![14f64.to_bits(); 64]);
        }
        Ok(())
    })
    .unwrap();
}

#[test]
fn a_collective_that_nobody_waits_for_is_made() {
    let _alone = alone();
    threads(2, |group| {
        let x = sample(&group, &[64], DType::F64).to(device_of(&group, true));
        let wanted = bits(&x.all_reduce(&group));
        for _ in 0..20 {
            drop(group.all_reduce_later(&x));
        }
        // In another order than they were started.
        let (a, b) = (group.all_reduce_later(&x), group.all_gather_later(&x));
        assert_eq!(b.wait()?.len(), 128);
        assert_eq!(bits(&a.wait()?), wanted);
        Ok(())
    })
    .unwrap();
}

/// The losses and parameters of some steps, and what the worker's device counted in each.
fn train(
    group: &Group,
    on_devices: bool,
    compiled: bool,
) -> Result<(Vec<Vec<u64>>, Vec<device_second::Counts>)> {
    let on = device_of(group, on_devices);
    let net = with_default_device(Device::Cpu, || Mlp::new(&[6, 8, 8, 2]));
    no_grad(|| {
        for (i, x) in net.parameters().iter().enumerate() {
            let at = |k: usize| ((k * 37 + i * 11) % 97) as f32 / 97.0 - 0.5;
            x.copy_(Tensor::from_vec((0..x.len()).map(at).collect::<Vec<f32>>(), x.shape()));
        }
    });
    let net = net.to_device(on);
    let optimizer = Adam { lr: 0.01, ..Adam::default() }.over(net.parameters())?;
    let parallel = DataParallel::new(&net, group)?.bucket_bytes(200);
    let step = |x: &Tensor| -> Result<Tensor> {
        optimizer.zero_grad();
        let loss = (net.forward(x) - x.narrow(1, 0, 2)).square().mean();
        parallel.backward(&loss)?;
        optimizer.step()?;
        Ok(loss.detach())
    };
    let jitted = jit(step);
    let (mut losses, mut counts) = (Vec::new(), Vec::new());
    for i in 0..6 {
        let x = (sample(group, &[16, 6], DType::F32) / (20.0 + i as f64)).to(on);
        let run = || if compiled { jitted.call(&x) } else { step(&x) };
        match on_devices {
            true => {
                let rank = group.rank() as u16;
                let before = counts_of(rank);
                let (loss, told) = counted_on(rank, run);
                losses.push(loss?);
                synchronize(on)?;
                // Collectives end later than the calls return.
                let (now, mut told) = (counts_of(rank), told);
                told.collectives = now.collectives - before.collectives;
                told.hidden = now.hidden - before.hidden;
                counts.push(told);
            }
            false => losses.push(run()?),
        }
    }
    let values = losses.iter().chain(&net.parameters()).map(bits).collect();
    Ok((values, counts))
}

#[test]
fn data_parallel_training_has_the_bits_of_the_host_and_downloads_no_gradient() {
    let _alone = alone();
    for compiled in [false, true] {
        let run = |on_devices| {
            let all = threads(2, |group| train(&group, on_devices, compiled)).unwrap();
            all.into_iter().unzip::<_, _, Vec<_>, Vec<_>>()
        };
        let (wanted, _) = run(false);
        for early in [false, true] {
            let (found, counts) = if early { at_once(|| run(true)) } else { run(true) };
            assert_eq!(found, wanted, "compiled: {compiled}, early: {early}");
            for told in counts.iter().flat_map(|worker| &worker[2..]) {
                assert_eq!((told.downloads, told.waits, told.offloads), (0, 0, 0), "{told:?}");
            }
            for worker in counts {
                let made: u64 = worker.iter().map(|told| told.collectives).sum();
                let hidden: u64 = worker.iter().map(|told| told.hidden).sum();
                assert!(made >= 12, "six steps of several buckets: {made}");
                // How many end before they are waited for depends on the machine.
                assert!(early || hidden == 0, "{hidden} of {made}");
            }
        }
    }
}

#[test]
fn sharded_training_has_the_bits_of_the_host() {
    let _alone = alone();
    let run = |on_devices: bool| {
        threads(2, |group| {
            let on = device_of(&group, on_devices);
            let make = || {
                let layer = with_default_device(Device::Cpu, || Linear::new(6, 6).without_bias());
                no_grad(|| layer.weight.copy_(&(sample(&group, &[6, 6], DType::F32) / 40.0)));
                layer.to_device(on)
            };
            let x = (sample(&group, &[4, 6], DType::F32) / 30.0).to(on);
            let model = make();
            let sharded = Sharded::new(&model, &group, 2)?;
            let optimizer = Adam::default().over(sharded.parameters())?;
            for _ in 0..3 {
                sharded.zero_grad();
                sharded.backward(&model.forward(&x).square().mean())?;
                sharded.step(&optimizer)?;
            }
            let sharding = FullSharding::new(&group);
            let blocks = vec![sharding.shard(make())?, sharding.shard(make())?];
            let optimizer = Sgd { lr: 0.1, ..Sgd::default() }.over(blocks.parameters())?;
            for _ in 0..3 {
                optimizer.zero_grad();
                let y = blocks.iter().fold(x.clone(), |x, block| block.forward(&x).tanh());
                sharding.backward(&y.square().mean())?;
                optimizer.step()?;
            }
            let all = model.parameters().into_iter().chain(blocks.parameters());
            Ok(all.map(|x| bits(&x)).collect::<Vec<_>>())
        })
        .unwrap()
    };
    assert_eq!(run(true), run(false));
}

/// What each worker says, and that the devices and new groups go on.
fn refused(f: impl Fn(&Group, &Tensor) -> Result<()> + Sync) -> Vec<String> {
    let start = Instant::now();
    let said = threads_within(Duration::from_secs(2), 2, |group| {
        let x = sample(&group, &[4], DType::F32).to(device_of(&group, true));
        Ok(catch(|| f(&group, &x)).flatten().unwrap_err().to_string())
    });
    assert!(start.elapsed() < Duration::from_secs(20));
    let sums = threads(2, |group| {
        let x = Tensor::from([1.0, 2.0]).to(device_of(&group, true));
        Ok(x.all_reduce(&group).to_f64_vec())
    });
    assert_eq!(sums.unwrap(), [[2.0, 4.0]; 2]);
    said.unwrap()
}

#[test]
fn workers_that_were_asked_for_different_things_get_a_sentence() {
    let _alone = alone();
    for joined in [false, true] {
        let said = refused(|group, x| {
            if joined {
                drop(x.all_reduce(group));
            }
            let sum = if group.rank() == 0 { x.all_reduce(group) } else { x.all_gather(group, 0) };
            drop(sum);
            Ok(())
        });
        for said in &said {
            assert!(said.contains("all_reduce of f32[4] on a device"), "{said}");
            assert!(said.contains("worker 1 for all_gather of f32[4] on a device"), "{said}");
            assert!(said.contains("workers_on_devices.rs"), "{said}");
        }
        let said = refused(|group, x| {
            if joined {
                drop(x.all_reduce(group));
            }
            // One tensor is on the host.
            let x = if group.rank() == 0 { x.clone() } else { x.cpu() };
            drop(x.all_reduce(group));
            Ok(())
        });
        for said in &said {
            assert!(said.contains("worker 0 for all_reduce of f32[4] on a device"), "{said}");
            assert!(said.contains("worker 1 for all_reduce of f32[4] (#"), "{said}");
        }
    }
    // A second device of a worker.
    let said = refused(|group, x| {
        drop(x.all_reduce(group));
        let other = if group.rank() == 0 { x.cpu().to(number(1)) } else { x.clone() };
        drop(other.all_reduce(group));
        Ok(())
    });
    for said in &said {
        assert!(said.contains("a worker uses one device in a group"), "{said}");
    }
}

#[test]
fn a_worker_that_ends_or_does_not_come_is_a_sentence() {
    let _alone = alone();
    let said = refused(|group, x| {
        drop(x.all_reduce(group));
        if group.rank() == 1 {
            // Worker 0 waits for two seconds.
            std::thread::sleep(Duration::from_secs(4));
            return Err(Error::argument("test", "late"));
        }
        drop(x.all_reduce(group));
        Ok(())
    });
    assert!(said[0].contains("worker 1 did not come within 2 s"), "{}", said[0]);
    let error = threads(2, |group| {
        let x = sample(&group, &[4], DType::F32).to(device_of(&group, true));
        drop(x.all_reduce(&group));
        if group.rank() == 1 {
            return Err(Error::argument("test", "this worker gives up"));
        }
        // Before it ended it had made no other call.
        let said = catch(|| x.all_reduce(&group)).unwrap_err().to_string();
        assert!(said.contains("worker 1 failed") || said.contains("has ended"), "{said}");
        Ok(())
    });
    assert!(error.unwrap_err().to_string().contains("this worker gives up"));
}

#[test]
fn where_one_device_cannot_all_go_through_the_host() {
    let _alone = alone();
    let run = |device: fn(&Group) -> Device| {
        threads(2, |group| {
            let rank = group.rank() as u16;
            let (made, told) = counted_on(rank, || every_collective(&group, device(&group)));
            assert_eq!(told.collectives, 0);
            let later = group.all_reduce_later(&made[0]).wait()?;
            assert_eq!(later.device(), made[0].device());
            Ok(made.iter().map(bits).collect::<Vec<_>>())
        })
        .unwrap()
    };
    let wanted = run(|_| Device::Cpu);
    let each = |group: &Group| number(group.rank() as u16);
    assert_eq!(unable(1, "its wires were cut", || run(each)), wanted);
    // Two workers of one device.
    assert_eq!(run(|_| number(0)), wanted);
}

/// An engine that compares calls by exchanging texts, as one does that has no way of its own.
struct Plain(Arc<dyn Communicator>);

impl Communicator for Plain {
    fn id(&self) -> u64 {
        self.0.id()
    }
    fn rank(&self) -> usize {
        self.0.rank()
    }
    fn size(&self) -> usize {
        self.0.size()
    }
    fn engine(&self) -> &'static str {
        "plain"
    }
    fn run(&self, call: &CollectiveCall<'_>, input: &[u8], output: &mut [u8]) -> Result<()> {
        self.0.run(call, input, output)
    }
    fn subgroup(&self, ranks: &[usize]) -> Result<Option<Arc<dyn Communicator>>> {
        self.0.subgroup(ranks)
    }
    fn fail(&self, reason: &str) {
        self.0.fail(reason);
    }
}

#[test]
fn an_engine_without_tickets_compares_texts() {
    let _alone = alone();
    let plain = |group: &Group| Group::new(Arc::new(Plain(group.communicator().clone())));
    let all = threads(2, |group| {
        let group = plain(&group);
        let made = every_collective(&group, device_of(&group, true));
        Ok(made.iter().map(bits).collect::<Vec<_>>())
    });
    let wanted = threads(2, |group| {
        Ok(every_collective(&group, Device::Cpu).iter().map(bits).collect::<Vec<_>>())
    });
    assert_eq!(all.unwrap(), wanted.unwrap());
    let said = refused(|group, x| {
        let group = plain(group);
        let x = if group.rank() == 0 { x.clone() } else { x.narrow(0, 0, 2) };
        drop(x.all_reduce(&group));
        Ok(())
    });
    for said in &said {
        assert!(said.contains("worker 0 for all_reduce of f32[4] on a device (at "), "{said}");
        assert!(said.contains("worker 1 for all_reduce of f32[2] on a device (at "), "{said}");
    }
    // The same op at two lines may be of two tensors.
    let said = refused(|group, x| {
        let group = plain(group);
        match group.rank() {
            0 => drop(x.all_reduce(&group)),
            _ => drop(x.all_reduce(&group)),
        }
        Ok(())
    });
    assert!(said.iter().all(|said| said.contains("workers were asked for different")), "{said:?}");
}

/// Workers of a machine take its devices in the order of ranks, and then in turn; with them the
/// same training gives the same bits as on the host.
#[test]
fn each_worker_takes_a_device_of_its_own() {
    let _alone = alone();
    let available = [number(0), number(1)];
    let taken = threads(3, |group| gpu_of_worker(&group)).unwrap();
    assert_eq!(taken, [available[0], available[1], available[0]]);
    let train = |on_devices: bool| {
        let all = threads(2, |group| {
            let device = match on_devices {
                true => gpu_of_worker(&group)?,
                false => Device::Cpu,
            };
            with_default_device(device, || {
                let weight = sample(&group, &[3], DType::F32).to(device).requires_grad();
                let model = vec![weight];
                let parallel = DataParallel::new(&model, &group)?;
                let optimizer = Sgd::default().over(model.parameters())?;
                let x = sample(&group, &[4, 3], DType::F32).to(device);
                for _ in 0..3 {
                    optimizer.zero_grad();
                    parallel.backward(&((&x * &model[0]).tanh().mean()))?;
                    optimizer.step()?;
                }
                assert_eq!(model[0].device(), device);
                Ok(bits(&model[0]))
            })
        });
        all.unwrap()
    };
    assert_eq!(train(true), train(false));
}
