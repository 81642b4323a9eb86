//! Weighted and bucketed samplers: what they choose, and that positions resume.

use pullback::Tensor;
use pullback_nn::data::{
    BatchOrder, BatchSampler, BucketBatchSampler, DataLoader, Dataset, EpochSeed, Position,
    RandomSampler, Sampler, WeightedRandomSampler, from_fn, from_vec, pad_sequences,
};

fn pass(epoch: u64) -> EpochSeed {
    EpochSeed { seed: 7, epoch }
}

fn lengths(n: usize) -> Vec<usize> {
    (0..n).map(|i| 1 + (i * 7919 + 13) % 97).collect()
}

#[test]
fn weights_are_frequencies() {
    let sampler = WeightedRandomSampler::new([1.0, 0.0, 3.0, 6.0], 10_000, true).unwrap();
    let drawn = sampler.indices(4, pass(0)).unwrap();
    let share = |i: usize| drawn.iter().filter(|&&j| j == i).count() as f64 / 10_000.0;
    for (i, p) in [0.1, 0.0, 0.3, 0.6].into_iter().enumerate() {
        assert!((share(i) - p).abs() < 0.02, "{i}: {}", share(i));
    }
    assert_eq!(sampler.indices(4, pass(0)).unwrap(), drawn);
    assert_ne!(sampler.indices(4, pass(1)).unwrap(), drawn);
    // Classes of a data set, balanced.
    let labels: Vec<usize> = (0..100).map(|i| usize::from(i % 10 == 0)).collect();
    let weights: Vec<f64> = labels.iter().map(|&c| [1.0 / 90.0, 1.0 / 10.0][c]).collect();
    let sampler = WeightedRandomSampler::new(weights, 2000, true).unwrap();
    let data = from_vec(labels.iter().map(|&c| c as i64).collect());
    let loader = DataLoader::new(data).sampler(sampler).batch_size(50).num_workers(2);
    let rare: i64 = loader.iter().map(|b| b.unwrap().sum().item::<i64>()).sum();
    assert!((900..1100).contains(&rare), "{rare}");
}

#[test]
fn buckets_hold_every_item_once_and_similar_lengths() {
    let n = 1003;
    let lengths = lengths(n);
    for (batch_size, drop_last) in
        [(16, false), (16, true), (1, false), (2000, false), (2000, true)]
    {
        let sampler =
            BucketBatchSampler::new(lengths.clone(), batch_size).unwrap().drop_last(drop_last);
        let batches = sampler.batches(n, pass(0)).unwrap();
        assert_eq!(batches.len(), sampler.count(n));
        let mut all: Vec<usize> = batches.concat();
        all.sort();
        all.dedup();
        let expected = if drop_last { n / batch_size * batch_size } else { n };
        assert_eq!((all.len(), batches.concat().len()), (expected, expected));
        let short = batches.iter().filter(|b| b.len() != batch_size).count();
        assert!(short <= usize::from(!drop_last));
        assert_eq!(sampler.batches(n, pass(0)).unwrap(), batches);
    }
    let padding = |batches: &[Vec<usize>]| -> usize {
        let longest = |b: &Vec<usize>| b.iter().map(|&i| lengths[i]).max().unwrap() * b.len();
        batches.iter().map(longest).sum::<usize>() - lengths.iter().sum::<usize>()
    };
    let sampler = BucketBatchSampler::new(lengths.clone(), 16).unwrap();
    let random = BatchSampler::new(RandomSampler, 16, false).batches(n, pass(0)).unwrap();
    let close = padding(&sampler.batches(n, pass(0)).unwrap());
    assert!(close * 10 < padding(&random), "{close} {}", padding(&random));
    // Smaller pools are more random and pad more.
    let small = sampler.clone().bucket_size_multiplier(2);
    let medium = padding(&small.batches(n, pass(0)).unwrap());
    assert!(close < medium && medium < padding(&random));
    // Batches come in random order, anew each epoch.
    let (first, second) =
        (sampler.batches(n, pass(0)).unwrap(), sampler.batches(n, pass(1)).unwrap());
    assert_ne!(first, second);
    let heads: Vec<usize> = first.iter().map(|b| lengths[b[0]]).collect();
    assert!(!heads.is_sorted());
    let ordered = sampler.clone().shuffle(false).batches(n, pass(0)).unwrap();
    assert_eq!(ordered, sampler.shuffle(false).batches(n, pass(5)).unwrap());
    assert!(ordered.iter().map(|b| lengths[b[0]]).collect::<Vec<_>>().is_sorted());
}

fn sequences(n: usize) -> impl Dataset<Item = Tensor> {
    let lengths = lengths(n);
    from_fn(n, move |i| Ok(Tensor::full([lengths[i]], i as i64)))
}

#[test]
fn bucketed_batches_resume_with_any_number_of_workers() {
    let n = 50;
    let make = |workers: usize| {
        let batches = BucketBatchSampler::new(lengths(n), 6).unwrap().bucket_size_multiplier(3);
        DataLoader::with_collate_fn(sequences(n), pad_sequences(-1))
            .batch_sampler(batches)
            .seed(4)
            .num_workers(workers)
    };
    let values = |b: pullback::Result<(Tensor, Tensor)>| b.unwrap().0.to_vec::<i64>();
    let whole = make(0);
    assert_eq!(whole.len(), 9);
    let all: Vec<_> = (0..2).flat_map(|_| whole.iter().map(values).collect::<Vec<_>>()).collect();
    assert_eq!((all.len(), whole.epoch()), (18, 2));
    for stop in [0, 1, 5, 9, 13] {
        let before = make(2);
        let mut seen = Vec::new();
        while seen.len() < stop {
            let left = stop - seen.len();
            seen.extend(before.iter().take(left).map(values));
        }
        let text = serde_json::to_string(&before.state()).unwrap();
        let state: Position = serde_json::from_str(&text).unwrap();
        let after = make(3);
        after.resume(&state).unwrap();
        while seen.len() < all.len() {
            seen.extend(after.iter().map(values));
        }
        assert_eq!(seen, all, "stopped after {stop}");
    }
    // A position of other buckets is refused.
    let state = make(0).state();
    let other = BucketBatchSampler::new(lengths(n), 7).unwrap();
    let other =
        DataLoader::with_collate_fn(sequences(n), pad_sequences(-1)).batch_sampler(other).seed(4);
    let text = other.resume(&state).unwrap_err().to_string();
    assert!(text.contains("the order of items"), "{text}");
    let plain = DataLoader::with_collate_fn(sequences(n), pad_sequences(-1)).seed(4);
    assert!(plain.resume(&state).is_err());
}

#[test]
fn bucketed_batches_refuse_what_does_not_fit() {
    assert!(BucketBatchSampler::new([1, 2], 0).unwrap_err().to_string().contains("batch_size"));
    let two = || BucketBatchSampler::new([1, 2], 1).unwrap();
    let error = two().batches(3, pass(0)).unwrap_err().to_string();
    assert!(error.contains("2 lengths for 3 items"), "{error}");
    let first = |loader: &DataLoader<_, Tensor>| loader.iter().next().unwrap().map(|_| ());
    let data = || from_fn(2, |i| Ok(i as i64));
    let loader = DataLoader::new(data()).batch_sampler(two()).batch_size(4);
    assert!(first(&loader).unwrap_err().to_string().contains("batch sampler"));
    let loader = DataLoader::new(data()).batch_sampler(two()).drop_last(true);
    assert!(first(&loader).is_err());
    // The plain batch sampler is one too.
    let loader = DataLoader::new(data()).batch_sampler(BatchSampler::new(RandomSampler, 2, false));
    assert_eq!(loader.iter().map(|b| b.unwrap().len()).collect::<Vec<_>>(), [2]);
    assert!(loader.state().sampler.contains("batches of 2"));
}
