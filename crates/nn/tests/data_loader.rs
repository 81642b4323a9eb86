//! The loader: the same batches for any number of threads, at any position, through errors and
//! panics.

use pullback::{DType, Error, Key, Tensor};
use pullback_nn::data::{
    DataLoader, Dataset, DistributedSampler, EpochSeed, ItemSeed, Position, RandomSampler, Sampler,
    Tail, TensorDataset, WeightedRandomSampler, from_fn, from_vec, random_split,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Features with noise drawn per item, and the index.
fn noisy(n: usize) -> impl Dataset<Item = (Tensor, i64)> {
    let features =
        TensorDataset::new(Tensor::arange(0, 3 * n as i64).reshape([n, 3]).cast(DType::F32))
            .unwrap();
    let once = features.map_random(|x, key| Ok(x + key.normal([3], DType::F32, 0.0, 1.0)));
    let twice = once.map_random(|x, key| Ok(x * key.uniform([3], DType::F32, 0.5, 2.0)));
    twice.zip(from_fn(n, |i| Ok(i as i64))).unwrap()
}

/// A batch, in bits.
type Bits = (Vec<u32>, Vec<i64>);

fn bits((x, y): (Tensor, Tensor)) -> Bits {
    (x.to_vec::<f32>().into_iter().map(f32::to_bits).collect(), y.to_vec())
}

fn epoch(loader: &DataLoader<impl Dataset, (Tensor, Tensor)>) -> Vec<Bits> {
    loader.iter().map(|batch| bits(batch.unwrap())).collect()
}

fn loader(n: usize, workers: usize) -> DataLoader<impl Dataset, (Tensor, Tensor)> {
    DataLoader::new(noisy(n)).batch_size(4).shuffle(11).num_workers(workers)
}

#[test]
fn tensors_go_between_threads() {
    fn free<T: Send + Sync>() {}
    free::<Tensor>();
    free::<Key>();
    free::<DataLoader<TensorDataset<Tensor>, Tensor>>();
}

#[test]
fn every_number_of_workers_and_depth_gives_the_same_batches() {
    let reference = loader(31, 0);
    let (first, second) = (epoch(&reference), epoch(&reference));
    assert_eq!(first.len(), 8);
    assert_ne!(first, second, "epochs have orders of their own");
    for workers in [0, 1, 2, 3, 8] {
        for depth in [0, 1, 2, 7] {
            let loader = loader(31, workers).prefetch_factor(depth);
            assert_eq!(epoch(&loader), first, "{workers} workers, {depth} ahead");
            assert_eq!(epoch(&loader), second, "{workers} workers, {depth} ahead, second epoch");
        }
    }
}

#[test]
fn noise_belongs_to_the_item_and_the_epoch() {
    let by_index = |loader: &DataLoader<_, (Tensor, Tensor)>| {
        let mut rows: Vec<(i64, Vec<u32>)> = Vec::new();
        for (x, y) in epoch(loader) {
            rows.extend(y.into_iter().zip(x.chunks(3).map(<[u32]>::to_vec)));
        }
        rows.sort();
        rows
    };
    // Another order and other batches: the same noise on the same items.
    let shuffled = by_index(&DataLoader::new(noisy(10)).batch_size(4).shuffle(3));
    let ordered = DataLoader::new(noisy(10)).batch_size(3).seed(3).num_workers(2);
    assert_eq!(shuffled, by_index(&ordered));
    assert_ne!(shuffled, by_index(&ordered), "the second epoch has noise of its own");
    assert_ne!(shuffled, by_index(&DataLoader::new(noisy(10)).batch_size(4).shuffle(4)));
}

#[test]
fn the_parts_of_an_item_draw_independently() {
    let draw = ItemSeed::new(1, 2, 3);
    let key = |draw: ItemSeed| draw.key().tensor().to_vec::<i64>();
    let keys =
        [draw, draw.part(0), draw.part(1), draw.part(0).part(0), draw.part(1).part(0)].map(key);
    for (i, a) in keys.iter().enumerate() {
        assert!(keys[..i].iter().all(|b| a != b));
    }
    let order = EpochSeed { seed: 1, epoch: 2 }.key().tensor().to_vec::<i64>();
    assert!(!keys.contains(&order));
}

#[test]
fn a_position_resumes_at_every_batch_with_any_number_of_workers() {
    for drop_last in [false, true] {
        let make = |workers| loader(18, workers).drop_last(drop_last);
        let whole = make(0);
        let all: Vec<Bits> = (0..3).flat_map(|_| epoch(&whole)).collect();
        let per_epoch = whole.len();
        assert_eq!(per_epoch, if drop_last { 4 } else { 5 });
        for stop in 0..=2 * per_epoch {
            let before = make(2);
            let mut seen = Vec::new();
            while seen.len() < stop {
                let mut batches = before.iter();
                while seen.len() < stop
                    && let Some(batch) = batches.next()
                {
                    seen.push(bits(batch.unwrap()));
                }
            }
            // Through text, as a checkpoint carries it.
            let text = serde_json::to_string(&before.state()).unwrap();
            let state: Position = serde_json::from_str(&text).unwrap();
            assert_eq!((state.epoch as usize, state.batch), (stop / per_epoch, stop % per_epoch));
            for workers in [0, 1, 3] {
                let after = make(workers);
                after.resume(&state).unwrap();
                let mut rest = Vec::new();
                while rest.len() < all.len() - stop {
                    rest.extend(epoch(&after));
                }
                assert_eq!(seen.len() + rest.len(), all.len());
                assert_eq!([seen.clone(), rest].concat(), all, "stopped after {stop}");
            }
        }
    }
}

#[test]
fn an_iterator_dropped_in_mid_epoch_loses_nothing() {
    let (whole, parts) = (loader(20, 0), loader(20, 2));
    let all = epoch(&whole);
    let mut seen: Vec<Bits> = parts.iter().take(2).map(|b| bits(b.unwrap())).collect();
    seen.extend(epoch(&parts));
    assert_eq!(seen, all);
    parts.set_epoch(0);
    assert_eq!(epoch(&parts), all);
}

#[test]
fn a_position_in_something_else_is_refused() {
    let state = loader(20, 0).state();
    let refusal = |loader: DataLoader<_, _>| loader.resume(&state).unwrap_err().to_string();
    let text = refusal(DataLoader::new(noisy(21)).batch_size(4).shuffle(11));
    assert!(text.contains("the data set was 20 items and is 21 items"), "{text}");
    let text = refusal(DataLoader::new(noisy(20)).batch_size(5).shuffle(11));
    assert!(text.contains("the batch size was 4 and is 5"), "{text}");
    let text = refusal(DataLoader::new(noisy(20)).batch_size(4).shuffle(12));
    assert!(text.contains("the seed was 11 and is 12"), "{text}");
    let text = refusal(DataLoader::new(noisy(20)).batch_size(4).seed(11));
    assert!(text.contains("the order of items was shuffled and is sequential"), "{text}");
    let text = refusal(DataLoader::new(noisy(20)).batch_size(4).shuffle(11).drop_last(true));
    assert!(text.contains("drop_last was false and is true"), "{text}");
}

#[test]
fn errors_arrive_in_their_place_and_end_the_epoch() {
    for workers in [0, 1, 2, 8] {
        let data = from_fn(40, |i| match i {
            17 => Err(Error::argument("camera", "the lens is dirty")),
            i => Ok(i as i64),
        });
        let loader = DataLoader::new(data).batch_size(4).num_workers(workers);
        let mut batches = loader.iter();
        for n in 0..4 {
            assert_eq!(batches.next().unwrap().unwrap().to_vec::<i64>()[0], 4 * n, "{workers}");
        }
        let text = batches.next().unwrap().unwrap_err().to_string();
        assert!(
            text.starts_with("loader: item 17 failed") && text.contains("the lens is dirty"),
            "{text}"
        );
        assert!(batches.next().is_none());
        assert!(batches.next().is_none());
        assert_eq!(loader.state().batch, 4, "the position is before the batch that failed");
    }
}

#[test]
fn panics_arrive_as_errors() {
    for workers in [0, 1, 3] {
        let data = from_fn(12, |i| {
            assert!(i != 6, "six is right out");
            Ok(i as f32)
        });
        let all: Vec<_> = DataLoader::new(data).batch_size(2).num_workers(workers).iter().collect();
        assert_eq!(all.len(), 4);
        assert!(all[..3].iter().all(Result::is_ok));
        let text = all[3].as_ref().unwrap_err().to_string();
        assert!(text.contains("item 6 panicked") && text.contains("six is right out"), "{text}");

        // A wrong shape in a formula of the data set.
        let data = from_fn(3, |i| Ok(Tensor::zeros([2]) + Tensor::zeros([2 + i / 2])));
        let all: Vec<_> = DataLoader::new(data).num_workers(workers).iter().collect();
        let text = all[2].as_ref().unwrap_err().to_string();
        assert!(text.starts_with("loader: item 2 failed"), "{text}");

        // A collation that panics.
        let collate = |items: Vec<i64>| {
            assert!(items[0] != 2, "no twos");
            Ok(items)
        };
        let loader =
            DataLoader::with_collate_fn(from_fn(4, |i| Ok(i as i64)), collate).num_workers(workers);
        let all: Vec<_> = loader.iter().collect();
        assert_eq!(all.len(), 3);
        let text = all[2].as_ref().unwrap_err().to_string();
        assert!(text.contains("batch 2 of items 2 panicked: no twos"), "{text}");
    }
}

#[test]
fn items_that_do_not_fit_are_named() {
    let data = from_fn(6, |i| Ok((Tensor::zeros([if i == 4 { 3 } else { 2 }]), i as i64)));
    let all: Vec<_> = DataLoader::new(data).batch_size(3).num_workers(2).iter().collect();
    let text = all[1].as_ref().unwrap_err().to_string();
    assert!(text.contains("batch 1 of items 3, 4, 5 failed"), "{text}");
    assert!(text.contains("item 1 of the batch is f32[3], but item 0 is f32[2]"), "{text}");
    assert!(text.contains("in part `0` of the items"), "{text}");
}

#[test]
fn dropping_in_mid_epoch_stops_the_workers() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = asked.clone();
    let data = from_fn(1_000_000, move |i| {
        counter.fetch_add(1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(1));
        Ok(i as i64)
    });
    let loader = DataLoader::new(data).batch_size(1000).num_workers(4).prefetch_factor(1);
    let batches = loader.iter();
    std::thread::sleep(Duration::from_millis(30));
    let start = Instant::now();
    drop(batches);
    // A batch takes a second, and an item a millisecond: the threads do not finish their batches.
    assert!(start.elapsed() < Duration::from_millis(700), "{:?}", start.elapsed());
    let after = asked.load(Ordering::SeqCst);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(asked.load(Ordering::SeqCst), after, "threads are gone");
}

#[test]
fn workers_wait_when_they_are_far_enough_ahead() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = asked.clone();
    let data = from_fn(1000, move |i| {
        counter.fetch_add(1, Ordering::SeqCst);
        Ok(i as i64)
    });
    let loader = DataLoader::new(data).num_workers(2).prefetch_factor(3);
    let mut batches = loader.iter();
    assert!(batches.next().is_some());
    std::thread::sleep(Duration::from_millis(100));
    // Each thread has three batches in its channel and one in hand; one was taken.
    assert!(asked.load(Ordering::SeqCst) <= 9, "{}", asked.load(Ordering::SeqCst));
}

#[test]
fn empty_data_and_batches_of_nothing() {
    assert_eq!(DataLoader::new(from_vec(Vec::<i64>::new())).num_workers(2).iter().count(), 0);
    let all: Vec<_> = DataLoader::new(from_vec(vec![1i64])).batch_size(0).iter().collect();
    assert_eq!(all.len(), 1);
    assert!(all[0].as_ref().unwrap_err().to_string().contains("`batch_size` is 0"));
    assert_eq!(
        DataLoader::new(from_vec(vec![1i64, 2])).batch_size(3).drop_last(true).iter().count(),
        0
    );
}

#[test]
fn samplers_cover_what_they_say() {
    let pass = |epoch| EpochSeed { seed: 5, epoch };
    let sorted = |mut indices: Vec<usize>| {
        indices.sort_unstable();
        indices
    };
    assert_eq!(sorted(RandomSampler.indices(50, pass(0)).unwrap()), Vec::from_iter(0..50));

    // The shares of three processes: together everything, padded from the front or with the tail
    // left out.
    for (tail, count, total) in [(Tail::Pad, 4, 12), (Tail::Drop, 3, 9)] {
        let shares = (0..3).map(|rank| DistributedSampler::new(rank, 3, tail).unwrap());
        let all: Vec<usize> = shares
            .flat_map(|s| {
                let mine = s.indices(10, pass(1)).unwrap();
                assert_eq!((mine.len(), s.count(10)), (count, count));
                mine
            })
            .collect();
        assert_eq!(all.len(), total);
        let mut distinct = sorted(all);
        distinct.dedup();
        assert_eq!(distinct.len(), total.min(10));
    }
    // More processes than items.
    let padded = DistributedSampler::new(4, 5, Tail::Pad).unwrap().in_order().indices(2, pass(0));
    assert_eq!(padded.unwrap(), [0]);
    let none = DistributedSampler::new(4, 5, Tail::Pad).unwrap().indices(0, pass(0));
    assert!(none.unwrap().is_empty());
    assert!(DistributedSampler::new(3, 3, Tail::Pad).is_err());

    let rare = WeightedRandomSampler::new([1.0, 0.0, 9.0], 10_000, true).unwrap();
    let drawn = rare.indices(3, pass(0)).unwrap();
    let twos = drawn.iter().filter(|&&i| i == 2).count();
    assert!(!drawn.contains(&1) && (8_800..9_200).contains(&twos), "{twos}");
    assert_ne!(drawn, rare.indices(3, pass(1)).unwrap());
    let distinct = WeightedRandomSampler::new([1.0, 2.0, 3.0], 3, false).unwrap();
    assert_eq!(sorted(distinct.indices(3, pass(0)).unwrap()), [0, 1, 2]);
    assert!(rare.indices(4, pass(0)).unwrap_err().to_string().contains("3 weights for 4 items"));
    assert!(
        WeightedRandomSampler::new([1.0, -1.0], 1, true)
            .unwrap_err()
            .to_string()
            .contains("weight 1 is -1")
    );
    assert!(WeightedRandomSampler::new([1.0, f64::NAN], 1, true).is_err());
    assert!(WeightedRandomSampler::new([1.0, 0.0], 2, false).is_err());
    assert!(WeightedRandomSampler::new([0.0], 1, true).is_err());
}

#[test]
fn adapters_keep_lengths_and_refuse_what_is_outside() {
    let numbers = |n: usize| from_fn(n, |i| Ok(i as i64));
    let both = numbers(3).concat(numbers(2).map(|x| Ok(10 * x)));
    assert_eq!((0..5).map(|i| both.get(i).unwrap()).collect::<Vec<_>>(), [0, 1, 2, 0, 10]);
    assert!(both.get(5).unwrap_err().to_string().contains("item 5: the data set has 5 items"));
    let some = numbers(5).subset([4, 0, 4]).unwrap();
    assert_eq!((some.len(), some.get(2).unwrap()), (3, 4));
    assert!(some.get(3).is_err());
    assert!(numbers(5).subset([1, 5]).err().unwrap().to_string().contains("index number 1 is 5"));
    assert!(numbers(5).zip(numbers(4)).is_err());
    assert!(random_split(numbers(5), &[3, 3], &Key::new(0)).is_err());
    assert!(TensorDataset::new((Tensor::zeros([3]), Tensor::zeros([4]))).is_err());
    assert!(TensorDataset::new(Tensor::from(1.0)).is_err());
}

#[test]
fn the_digits_are_whole() {
    let digits = pullback_nn::data::digits().unwrap();
    assert_eq!(digits.train.0.spec().to_string(), "f32[1437,1,8,8]");
    assert_eq!(digits.test.0.spec().to_string(), "f32[360,1,8,8]");
    let mut counts = [0; 10];
    for label in [&digits.train.1, &digits.test.1].iter().flat_map(|y| y.to_vec::<i64>()) {
        counts[label as usize] += 1;
    }
    // As the description of the data set has them.
    assert_eq!(counts, [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]);
    let pixels = digits.train.0.to_vec::<f32>();
    assert!(pixels.iter().all(|p| (0.0..=1.0).contains(p)) && pixels.contains(&1.0));
    assert_eq!(digits.test_set().unwrap().len(), 360);
}
