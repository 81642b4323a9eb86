//! Streams: the same batches for any number of threads, at any position; skipping does not do the
//! work of what is skipped.

use pullback::{DType, Error, Tensor};
use pullback_nn::data::{EpochSeed, Items, Position, Stream, StreamLoader, stream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The numbers below `n`.
fn numbers(n: i64) -> impl Stream<Item = i64> {
    stream(move |_| Ok((0..n).map(Ok)))
}

/// Shuffled numbers with noise on them.
fn noisy(n: i64) -> impl Stream<Item = Tensor> {
    let shuffled = numbers(n).shuffle(8);
    shuffled.map_random(|i, key| Ok(Tensor::from(i as f32) + key.normal((), DType::F32, 0.0, 0.1)))
}

fn epoch(loader: &StreamLoader<impl Stream, Tensor>) -> Vec<Vec<u32>> {
    let bits = |x: Tensor| x.to_vec::<f32>().into_iter().map(f32::to_bits).collect();
    loader.iter().map(|batch| bits(batch.unwrap())).collect()
}

fn collected<T>(items: Items<T>) -> Vec<T> {
    items.map(|item| item.unwrap()).collect()
}

const PASS: EpochSeed = EpochSeed { seed: 3, epoch: 0 };

#[test]
fn every_number_of_workers_gives_the_same_batches() {
    let make = |workers| StreamLoader::new(noisy(50)).batch_size(4).seed(9).num_workers(workers);
    let reference = make(0);
    let (first, second) = (epoch(&reference), epoch(&reference));
    assert_eq!((first.len(), first[12].len()), (13, 2));
    assert_ne!(first, second);
    for workers in [1, 2, 3, 8, 20] {
        for depth in [0, 1, 5] {
            let loader = make(workers).prefetch_factor(depth);
            assert_eq!(epoch(&loader), first, "{workers} workers, {depth} ahead");
            assert_eq!(epoch(&loader), second, "{workers} workers, {depth} ahead, second epoch");
        }
    }
    assert_eq!(epoch(&make(2).drop_last(true)), first[..12]);
}

#[test]
fn a_position_resumes_at_every_batch() {
    let make = |workers| StreamLoader::new(noisy(22)).batch_size(4).num_workers(workers);
    let whole = make(0);
    let all = [epoch(&whole), epoch(&whole)].concat();
    for stop in 0..=6 {
        let before = make(2);
        let seen: Vec<Tensor> = before.iter().take(stop).map(|b| b.unwrap()).collect();
        let seen = seen.len();
        let text = serde_json::to_string(&before.state()).unwrap();
        let state: Position = serde_json::from_str(&text).unwrap();
        for workers in [0, 3] {
            let after = make(workers);
            after.resume(&state).unwrap();
            let rest = [epoch(&after), epoch(&after)].concat();
            assert_eq!(rest[..all.len() - seen], all[seen..], "stopped after {stop}");
        }
    }
    let state = make(0).batch_size(5).state();
    assert!(
        make(0).resume(&state).unwrap_err().to_string().contains("the batch size was 5 and is 4")
    );
}

#[test]
fn a_buffer_shuffles_everything_and_nothing_twice() {
    let order = |size, epoch| {
        collected(numbers(100).shuffle(size).open(EpochSeed { seed: 3, epoch }).unwrap())
    };
    assert_eq!(order(1, 0), Vec::from_iter(0..100));
    for size in [2, 10, 1000] {
        let mut shuffled = order(size, 0);
        assert_eq!(shuffled, order(size, 0));
        assert_ne!(shuffled, order(size, 1));
        // An item comes at most so much too early as the buffer is long.
        assert!(shuffled.iter().enumerate().all(|(place, &i)| (i as usize) < place + size));
        shuffled.sort_unstable();
        assert_eq!(shuffled, Vec::from_iter(0..100));
    }
}

#[test]
fn take_cycle_and_chain() {
    let taken = numbers(3).cycle().take(8);
    assert_eq!(collected(taken.open(PASS).unwrap()), [0, 1, 2, 0, 1, 2, 0, 1]);
    assert!(collected(numbers(0).cycle().open(PASS).unwrap()).is_empty());
    // Each round is shuffled anew, and each epoch.
    let rounds = |epoch| {
        collected(
            numbers(20).shuffle(20).cycle().take(40).open(EpochSeed { seed: 3, epoch }).unwrap(),
        )
    };
    assert_ne!(rounds(0)[..20], rounds(0)[20..]);
    assert_ne!(rounds(0)[20..], rounds(1)[..20]);
    assert_eq!(collected(numbers(2).chain(numbers(3)).open(PASS).unwrap()), [0, 1, 0, 1, 2]);
}

#[test]
fn what_is_skipped_is_not_computed() {
    let computed = Arc::new(AtomicUsize::new(0));
    let counter = computed.clone();
    let costly = numbers(1000).map(move |i| {
        counter.fetch_add(1, Ordering::SeqCst);
        Ok(i)
    });
    let loader = StreamLoader::new(costly).batch_size(10).num_workers(4);
    assert_eq!(loader.iter().map(|b| b.unwrap().len()).sum::<usize>(), 1000);
    assert_eq!(computed.load(Ordering::SeqCst), 1000, "each item once, by one of the threads");
    let state = Position { batch: 99, epoch: 0, ..loader.state() };
    loader.resume(&state).unwrap();
    assert_eq!(loader.iter().next().unwrap().unwrap().to_vec::<i64>(), Vec::from_iter(990..1000));
    assert_eq!(computed.load(Ordering::SeqCst), 1010);
}

#[test]
fn a_long_way_is_skipped_exactly() {
    for size in [1 << 16, (1 << 16) + 1, 50_000] {
        let loader = StreamLoader::new(numbers(400_000)).batch_size(size).num_workers(3);
        for (n, batch) in loader.iter().enumerate() {
            let batch = batch.unwrap().to_vec::<i64>();
            let start = (n * size) as i64;
            assert_eq!(batch, Vec::from_iter(start..400_000.min(start + size as i64)), "batch {n}");
        }
        let last = Position { batch: 400_000 / size, epoch: 0, ..loader.state() };
        loader.resume(&last).unwrap();
        let rest: usize = loader.iter().map(|batch| batch.unwrap().len()).sum();
        assert_eq!(rest, 400_000 % size);
    }
}

#[test]
fn errors_and_panics_arrive_in_their_place() {
    for workers in [0, 1, 3] {
        let bad = numbers(20).map(|i| match i {
            9 => Err(Error::argument("sensor", "no signal")),
            i => Ok(i),
        });
        let loader = StreamLoader::new(bad).batch_size(4).num_workers(workers);
        let all: Vec<_> = loader.iter().collect();
        assert_eq!(all.len(), 3, "{workers}");
        let text = all[2].as_ref().unwrap_err().to_string();
        assert!(text.contains("item 9 failed") && text.contains("no signal"), "{text}");
        assert_eq!(loader.state().batch, 2);

        let bad = numbers(20).map(|i| {
            assert!(i != 5, "five");
            Ok(i)
        });
        let all: Vec<_> = StreamLoader::new(bad).num_workers(workers).iter().collect();
        assert!(all[5].as_ref().unwrap_err().to_string().contains("item 5 panicked: five"));

        let closed = stream(|_| -> Result<std::iter::Empty<Result<i64, Error>>, Error> {
            Err(Error::argument("source", "it is closed"))
        });
        let all: Vec<_> = StreamLoader::new(closed).num_workers(workers).iter().collect();
        assert_eq!(all.len(), 1);
        assert!(all[0].as_ref().unwrap_err().to_string().contains("opening the stream failed"));
    }
    assert!(StreamLoader::new(numbers(3)).batch_size(0).iter().next().unwrap().is_err());
}

#[test]
fn an_endless_stream_can_be_left() {
    let loader = StreamLoader::new(numbers(5).cycle()).batch_size(3).num_workers(3);
    let first: Vec<_> = loader.iter().take(4).map(|b| b.unwrap().to_vec::<i64>()).collect();
    assert_eq!(first, [[0, 1, 2], [3, 4, 0], [1, 2, 3], [4, 0, 1]]);
    assert_eq!(loader.iter().next().unwrap().unwrap().to_vec::<i64>(), [2, 3, 4]);
}
