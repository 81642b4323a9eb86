//! Transforms of images: what each does, that their randomness belongs to the item, and what they
//! refuse.

use pullback::{DType, Key, Tensor};
use pullback_nn::data::transforms::{
    CenterCrop, ColorJitter, Compose, ConvertImageDtype, Cutout, InterpolationMode, Lambda, MixUp,
    Normalize, PaddingMode, RandomApply, RandomCrop, RandomErasing, RandomHorizontalFlip,
    RandomRotation, RandomVerticalFlip, Resize, ToTensor, Transform,
};
use pullback_nn::data::{DataLoader, Dataset, ItemSeed, TensorDataset};

fn seed(index: usize) -> ItemSeed {
    ItemSeed::new(5, 1, index)
}

/// 0, 1, 2, … as an image.
fn ramp(c: usize, h: usize, w: usize) -> Tensor {
    Tensor::arange(0, (c * h * w) as i64).reshape([c, h, w]).cast(DType::F32)
}

#[track_caller]
fn at(t: &impl Transform, image: &Tensor, index: usize) -> Tensor {
    t.apply(image.clone(), seed(index)).unwrap()
}

#[track_caller]
fn refused(t: &impl Transform, image: &Tensor, parts: &[&str]) {
    let text = t.apply(image.clone(), seed(0)).unwrap_err().to_string();
    assert!(parts.iter().all(|part| text.contains(part)), "{text}");
}

#[test]
fn random_crops_are_parts_at_all_places() {
    let image = ramp(2, 4, 5);
    let crop = RandomCrop::new((3, 2));
    let mut seen = std::collections::BTreeSet::new();
    for i in 0..200 {
        let y = at(&crop, &image, i);
        assert_eq!(y.shape(), [2, 3, 2]);
        let first = y.to_vec::<f32>()[0] as usize;
        let (top, left) = (first / 5, first % 5);
        let part = image.narrow(1, top as isize, 3).narrow(2, left as isize, 2);
        assert_eq!(y.to_vec::<f32>(), part.to_vec::<f32>());
        seen.insert((top, left));
    }
    assert_eq!(seen.len(), 2 * 4, "every place");
    refused(&RandomCrop::new(5), &image, &["4×5", "5×5", "pad_if_needed"]);
    let padded = RandomCrop::new(5).pad_if_needed(true).fill(9.0);
    assert_eq!(at(&padded, &image, 0).shape(), [2, 5, 5]);
    refused(&crop, &Tensor::zeros([4, 5]), &["[channels, height, width]", "f32[4,5]"]);
}

#[test]
fn padding_is_what_its_mode_says() {
    let line = Tensor::from([[[1u8, 2, 3]]]);
    let pad = |mode, fill| {
        let t = RandomCrop::new((1, 7)).padding((2, 0)).padding_mode(mode).fill(fill);
        at(&t, &line, 0).to_vec::<u8>()
    };
    assert_eq!(pad(PaddingMode::Constant, 9.0), [9, 9, 1, 2, 3, 9, 9]);
    assert_eq!(pad(PaddingMode::Edge, 0.0), [1, 1, 1, 2, 3, 3, 3]);
    assert_eq!(pad(PaddingMode::Reflect, 0.0), [3, 2, 1, 2, 3, 2, 1]);
    assert_eq!(pad(PaddingMode::Symmetric, 0.0), [2, 1, 1, 2, 3, 3, 2]);
    let sides = RandomCrop::new((3, 4)).padding([1, 2, 0, 0]);
    let all = at(&sides, &line, 0).to_vec::<u8>();
    assert_eq!(all, [0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3]);
    let far = RandomCrop::new(1).padding(3).padding_mode(PaddingMode::Reflect);
    refused(&far, &line, &["mirror"]);
}

#[test]
fn the_middle_is_that_of_torchvision() {
    let image = ramp(1, 5, 4);
    assert_eq!(at(&CenterCrop::new(2), &image, 0).to_vec::<f32>(), [9.0, 10.0, 13.0, 14.0]);
    assert_eq!(at(&CenterCrop::new((3, 1)), &image, 0).to_vec::<f32>(), [6.0, 10.0, 14.0]);
    let larger = at(&CenterCrop::new((1, 7)), &ramp(1, 1, 4), 0).to_vec::<f32>();
    assert_eq!(larger, [0.0, 0.0, 1.0, 2.0, 3.0, 0.0, 0.0]);
}

#[test]
fn flips_happen_with_their_probability() {
    let image = ramp(2, 3, 3);
    let expected = |axis: isize| image.flip(axis).to_vec::<f32>();
    assert_eq!(at(&RandomHorizontalFlip::new(1.0), &image, 0).to_vec::<f32>(), expected(2));
    assert_eq!(at(&RandomVerticalFlip::new(1.0), &image, 0).to_vec::<f32>(), expected(1));
    assert_eq!(at(&RandomVerticalFlip::new(0.0), &image, 0).to_vec::<f32>(), image.to_vec::<f32>());
    let flip = RandomHorizontalFlip::new(0.3);
    let flipped = |i: &usize| at(&flip, &image, *i).to_vec::<f32>() == expected(2);
    let count = (0..500).filter(flipped).count();
    assert!((115..185).contains(&count), "{count}");
    let both = RandomApply::new(RandomHorizontalFlip::new(0.5), 0.5);
    let count = (0..500).filter(|&i| at(&both, &image, i).to_vec::<f32>() == expected(2)).count();
    assert!((90..160).contains(&count), "a choice of its own: {count}");
    assert!(pullback::catch(|| RandomVerticalFlip::new(1.5)).is_err());
}

#[test]
fn rotations_turn_counter_clockwise() {
    let image = ramp(1, 3, 3);
    let by = |degrees: f64| RandomRotation::new((degrees, degrees));
    let values = |t: &RandomRotation| at(t, &image, 0).to_vec::<f32>();
    for mode in [InterpolationMode::Nearest, InterpolationMode::Bilinear] {
        let turned = |degrees| {
            values(&by(degrees).interpolation(mode)).iter().map(|v| v.round()).collect::<Vec<_>>()
        };
        assert_eq!(turned(0.0), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
        assert_eq!(turned(90.0), [2.0, 5.0, 8.0, 1.0, 4.0, 7.0, 0.0, 3.0, 6.0]);
        assert_eq!(turned(180.0), [8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 0.0]);
    }
    // Around a corner the image leaves the frame; what is outside is filled.
    let around = by(90.0).center((0.0, 0.0)).fill(-1.0);
    assert!(values(&around).iter().all(|&v| v == -1.0));
    // The turned image as a whole.
    let wide = ramp(1, 2, 4);
    let t = by(90.0).expand(true);
    let y = at(&t, &wide, 0);
    assert_eq!(y.shape(), [1, 4, 2]);
    assert_eq!(y.to_vec::<f32>(), [3.0, 7.0, 2.0, 6.0, 1.0, 5.0, 0.0, 4.0]);
    let y = at(&by(45.0).expand(true).interpolation(InterpolationMode::Bilinear), &wide, 0);
    assert!(y.shape()[1] >= 4 && y.shape()[2] >= 4);
    // A half pixel between two: their mean.
    let two = Tensor::from([[[10u8, 20], [30, 40]]]);
    let t = by(45.0).interpolation(InterpolationMode::Bilinear);
    assert_eq!(at(&t, &two, 0).dtype(), DType::U8);
    refused(&by(1.0).interpolation(InterpolationMode::Bicubic), &image, &["bicubic"]);
    assert!(pullback::catch(|| RandomRotation::new((3.0, 1.0))).is_err());
    // Angles fill their range: the value at one place changes with the item.
    let free = RandomRotation::new(30.0).interpolation(InterpolationMode::Bilinear);
    assert_ne!(at(&free, &image, 0).to_vec::<f32>(), at(&free, &image, 1).to_vec::<f32>());
}

#[test]
fn colours_follow_torchvisions_formulas() {
    let image = Tensor::from([[[0.2, 0.6]], [[0.5, 0.1]], [[0.9, 0.3]]]);
    #[track_caller]
    fn near(y: &Tensor, expected: &[f64]) {
        for (y, e) in y.to_vec::<f64>().iter().zip(expected) {
            assert!((y - e).abs() < 1e-12, "{y} is not {e}");
        }
    }
    let fixed = |x: f64| (x, x);
    let t = ColorJitter::new().brightness(fixed(1.5));
    near(&at(&t, &image, 0), &[0.3, 0.9, 0.75, 0.15, 1.0, 0.45]);
    let grey = |r: f64, g: f64, b: f64| 0.2989 * r + 0.587 * g + 0.114 * b;
    let (a, b) = (grey(0.2, 0.5, 0.9), grey(0.6, 0.1, 0.3));
    let mean = (a + b) / 2.0;
    let t = ColorJitter::new().contrast(fixed(0.5));
    near(&at(&t, &image, 0), &[0.2, 0.6, 0.5, 0.1, 0.9, 0.3].map(|v| 0.5 * v + 0.5 * mean));
    let t = ColorJitter::new().saturation(fixed(0.0));
    near(&at(&t, &image, 0), &[a, b, a, b, a, b]);
    // A third of the circle: red, green and blue change places.
    let t = ColorJitter::new().hue(fixed(1.0 / 3.0));
    near(&at(&t, &image, 0), &[0.9, 0.3, 0.2, 0.6, 0.5, 0.1]);
    // One channel has no colours; four are none of ours.
    let one = Tensor::from([[[0.2, 0.6]]]);
    near(&at(&ColorJitter::new().hue(0.5).saturation(0.9), &one, 0), &[0.2, 0.6]);
    refused(&ColorJitter::new(), &Tensor::zeros([4, 1, 1]), &["one channel or three"]);
    for bad in [
        pullback::catch(|| ColorJitter::new().hue(0.6)),
        pullback::catch(|| ColorJitter::new().contrast((2.0, 1.0))),
        pullback::catch(|| ColorJitter::new().brightness((-1.0, 1.0))),
    ] {
        assert!(bad.unwrap_err().to_string().contains("range"));
    }
    // All at once, on bytes.
    let t = ColorJitter::new().brightness(0.4).contrast(0.4).saturation(0.4).hue(0.2);
    let bytes = Tensor::from([[[20u8, 60]], [[50, 10]], [[90, 30]]]);
    let (x, y) = (at(&t, &bytes, 0), at(&t, &bytes, 1));
    assert_eq!(x.dtype(), DType::U8);
    assert_ne!(x.to_vec::<u8>(), y.to_vec::<u8>());
}

#[test]
fn values_are_normalised_and_converted() {
    let image = Tensor::from([[[0.0f32, 1.0]], [[0.5, 0.25]]]);
    let t = Normalize::new([0.5, 0.25], [0.5, 0.25]).unwrap();
    assert_eq!(at(&t, &image, 0).to_vec::<f32>(), [-1.0, 1.0, 1.0, 0.0]);
    refused(&t, &Tensor::zeros([3, 1, 1]), &["2 means", "3 channels"]);
    refused(&t, &Tensor::zeros_with([2, 1, 1], DType::U8), &["takes floats", "ToTensor"]);
    assert!(Normalize::new([0.5], [0.0]).unwrap_err().to_string().contains("deviation 0 is 0"));
    assert!(Normalize::new([0.5], [1.0, 1.0]).is_err());

    let bytes = Tensor::from_vec((0..=255).collect::<Vec<u8>>(), [1, 16, 16]);
    let floats = at(&ConvertImageDtype::new(DType::F32), &bytes, 0);
    assert_eq!(floats.max().item::<f32>(), 1.0);
    let back = at(&ConvertImageDtype::new(DType::U8), &floats, 0);
    assert_eq!(back.to_vec::<u8>(), bytes.to_vec::<u8>());
    refused(&ConvertImageDtype::new(DType::I64), &floats, &["floats or u8"]);
    refused(
        &ConvertImageDtype::new(DType::F32),
        &Tensor::arange(0, 1).reshape([1, 1, 1]),
        &["i64"],
    );

    let pixels = Tensor::from([[[0u8, 51, 255]]]);
    let y = at(&ToTensor, &pixels, 0);
    assert_eq!((y.shape(), y.to_vec::<f32>()), (&[3, 1, 1][..], vec![0.0, 0.2, 1.0]));
    assert_eq!(at(&ToTensor, &Tensor::zeros([4, 5]), 0).shape(), [1, 4, 5]);
    refused(&ToTensor, &Tensor::zeros([4]), &["[height, width]"]);
}

#[test]
fn images_are_resized() {
    let image = Tensor::from([[[0.0, 4.0], [8.0, 12.0]]]);
    let exact = |t: Resize| at(&t, &image, 0);
    let nearest = exact(Resize::new((2, 4)).interpolation(InterpolationMode::Nearest));
    assert_eq!(nearest.to_vec::<f64>(), [0.0, 0.0, 4.0, 4.0, 8.0, 8.0, 12.0, 12.0]);
    let linear = exact(Resize::new((2, 4)));
    assert_eq!(linear.to_vec::<f64>(), [0.0, 1.0, 3.0, 4.0, 8.0, 9.0, 11.0, 12.0]);
    assert_eq!(exact(Resize::new((1, 1))).to_vec::<f64>(), [6.0]);
    assert_eq!(
        exact(Resize::new((3, 3)).interpolation(InterpolationMode::Bicubic)).shape(),
        [1, 3, 3]
    );
    let size = |t: Resize, h, w| at(&t, &Tensor::zeros([1, h, w]), 0).shape()[1..].to_vec();
    assert_eq!(size(Resize::new(10), 20, 31), [10, 15]);
    assert_eq!(size(Resize::new(10), 31, 20), [15, 10]);
    assert_eq!(size(Resize::new(10).max_size(12), 31, 20), [12, 8]);
    let bytes = Tensor::from([[[0u8, 255]]]);
    let y = at(&Resize::new((1, 4)), &bytes, 0);
    assert_eq!(y.to_vec::<u8>(), [0, 64, 191, 255]);
    refused(&Resize::new(0), &image, &["2×2", "0×0"]);
    refused(&Resize::new((1, 1)).max_size(3), &image, &["max_size"]);
    refused(&Resize::new(3), &Tensor::arange(0, 4).reshape([1, 2, 2]), &["floats or u8"]);
}

#[test]
fn rectangles_are_erased_within_their_bounds() {
    let image = Tensor::ones([3, 20, 20]);
    let erase = RandomErasing::new(1.0).scale((0.1, 0.2)).ratio((0.5, 2.0)).values([7.0, 8.0, 9.0]);
    let mut places = std::collections::BTreeSet::new();
    for i in 0..40 {
        let y = at(&erase, &image, i);
        let gone = y.ne(1.0);
        let counts = gone.sum_over([1, 2]).to_vec::<i64>();
        assert!(counts.iter().all(|n| *n == counts[0] && (30..=90).contains(n)), "{counts:?}");
        let (rows, columns) = (gone.any_over([0, 2]), gone.any_over([0, 1]));
        let (h, w) = (rows.sum().item::<i64>(), columns.sum().item::<i64>());
        assert_eq!(h * w, counts[0], "a rectangle");
        assert!((0.4..2.5).contains(&(h as f64 / w as f64)));
        assert_eq!(y.select_at(0, 2).max().item::<f32>(), 9.0);
        places.insert(rows.cast(DType::U8).argmax(0).item::<i64>());
    }
    assert!(places.len() > 6, "{places:?}");
    // The image that was given is not written to.
    assert_eq!(image.sum().item::<f32>(), 1200.0);
    let noise = at(&RandomErasing::new(1.0).random(), &image, 0);
    assert!(noise.lt(0.0).any().item::<bool>());
    assert_eq!(at(&RandomErasing::new(0.0), &image, 0).sum().item::<f32>(), 1200.0);
    refused(&RandomErasing::new(1.0).values([1.0]), &image, &["1 values", "3 channels"]);
    assert!(pullback::catch(|| RandomErasing::new(0.5).scale((0.5, 1.5))).is_err());
    assert!(pullback::catch(|| RandomErasing::new(0.5).ratio((0.0, 1.5))).is_err());

    let cut = Cutout::new(6).n_holes(2);
    for i in 0..20 {
        let gone = 1200.0 - at(&cut, &image, i).sum().item::<f32>();
        assert!((3.0 * 9.0..=3.0 * 72.0).contains(&gone), "{gone}");
    }
    assert_eq!(at(&Cutout::new(0), &image, 0).sum().item::<f32>(), 1200.0);
    assert_eq!(at(&Cutout::new(100), &image, 0).sum().item::<f32>(), 0.0);
    assert_eq!(at(&Cutout::new(usize::MAX), &image, 0).sum().item::<f32>(), 0.0);
    assert!(Cutout::new(1).n_holes(usize::MAX).apply(image, seed(0)).is_err());
    // Absurd sizes are errors, not aborts.
    let one = Tensor::zeros([1, 1, 1]);
    assert!(CenterCrop::new(usize::MAX).apply(one.clone(), seed(0)).is_err());
    assert!(RandomCrop::new(1).padding(usize::MAX).apply(one.clone(), seed(0)).is_err());
    assert!(Resize::new(usize::MAX).apply(one, seed(0)).is_err());
}

fn pictures(n: usize) -> TensorDataset<(Tensor, Tensor)> {
    let images = Key::new(1).uniform([n, 3, 8, 8], DType::F32, 0.0, 1.0);
    TensorDataset::new((images, Tensor::arange(0, n as i64) % 3)).unwrap()
}

fn everything() -> Compose {
    RandomCrop::new(8)
        .padding(2)
        .padding_mode(PaddingMode::Reflect)
        .then(RandomHorizontalFlip::new(0.5))
        .then(RandomVerticalFlip::new(0.5))
        .then(RandomRotation::new(15.0).interpolation(InterpolationMode::Bilinear))
        .then(ColorJitter::new().brightness(0.3).contrast(0.3).saturation(0.3).hue(0.1))
        .then(RandomApply::new(Resize::new(10).then(CenterCrop::new(8)), 0.5))
        .then(RandomErasing::new(0.5).random())
        .then(Cutout::new(2))
        .then(Lambda(|x: Tensor| Ok(x * 2.0)))
        .then(Normalize::new([0.5; 3], [0.25; 3]).unwrap())
}

#[test]
fn batches_are_the_same_for_any_number_of_workers() {
    type Bits = (Vec<u32>, Vec<u32>);
    let bits = |x: &Tensor| x.to_vec::<f32>().into_iter().map(f32::to_bits).collect();
    let epoch = |workers: usize, epoch: u64| -> Vec<Bits> {
        let data = pictures(10).transform(everything());
        let mix_up = MixUp::new(3).alpha(0.4);
        let loader = DataLoader::new(data).batch_size(4).shuffle(3).num_workers(workers);
        let loader = loader.map_random(move |batch, key| mix_up.apply(batch, &key));
        loader.set_epoch(epoch);
        loader.iter().map(|b| b.map(|(x, y)| (bits(&x), bits(&y))).unwrap()).collect()
    };
    let first = epoch(0, 0);
    assert_eq!(first.len(), 3);
    assert_eq!(epoch(1, 0), first);
    assert_eq!(epoch(3, 0), first);
    assert_ne!(epoch(0, 1), first, "another epoch");
    // And from the middle.
    let loader = |workers| {
        DataLoader::new(pictures(10).transform(everything()))
            .batch_size(4)
            .shuffle(3)
            .num_workers(workers)
            .map_random(|(x, y), key| Ok((x + key.normal((), DType::F32, 0.0, 1.0), y)))
    };
    let whole: Vec<Vec<u32>> = loader(0).iter().map(|b| bits(&b.unwrap().0)).collect();
    let before = loader(2);
    let _ = before.iter().next();
    let after = loader(1);
    after.resume(&before.state()).unwrap();
    let rest: Vec<Vec<u32>> = after.iter().map(|b| bits(&b.unwrap().0)).collect();
    assert_eq!(rest, whole[1..]);
}

#[test]
fn the_parts_of_a_chain_draw_independently() {
    let image = ramp(1, 2, 2);
    // Forty coins of one item: were they one coin, all or none would fall.
    let coin = || RandomApply::new(Lambda(|x: Tensor| Ok(x + 1.0)), 0.5);
    let chain = (0..80).fold(Compose::new(), |chain, _| chain.then(coin()));
    assert_eq!((chain.len(), chain.is_empty()), (80, false));
    let mut seen = std::collections::BTreeSet::new();
    for i in 0..20 {
        let added = at(&chain, &image, i).to_vec::<f32>()[0];
        assert!((15.0..65.0).contains(&added), "{added}");
        seen.insert(added as i64);
    }
    assert!(seen.len() > 5);
    // An error says which one failed.
    let chain = coin().then(RandomCrop::new(9));
    refused(&chain, &image, &["2×2", "in transform 1 of 2"]);
    // And a loader which item.
    let data = TensorDataset::new(Tensor::zeros([3, 1, 2, 2])).unwrap().transform(chain);
    let text = DataLoader::new(data).iter().next().unwrap().unwrap_err().to_string();
    assert!(text.contains("item 0") && text.contains("9×9"), "{text}");
}

#[test]
fn mixed_batches_are_mixtures() {
    let images = Tensor::from([1.0f32, 2.0, 4.0]).reshape([3, 1, 1, 1]);
    let labels = Tensor::from([0i64, 1, 1]);
    let (x, y) = MixUp::new(2).apply((images.clone(), labels.clone()), &Key::new(1)).unwrap();
    let (x, y) = (x.to_vec::<f32>(), y.to_vec::<f32>());
    // The first is mixed with the last.
    let lambda = y[0];
    assert!((0.0..=1.0).contains(&lambda));
    for (got, (own, other)) in x.iter().zip([(1.0, 4.0), (2.0, 1.0), (4.0, 2.0)]) {
        assert!((got - (lambda * own + (1.0 - lambda) * other)).abs() < 1e-6);
    }
    assert!((y[1] - (1.0 - lambda)).abs() < 1e-6 && (y[5] - 1.0).abs() < 1e-6);
    let lambda = |key| {
        let batch = (images.clone(), labels.clone());
        MixUp::new(2).alpha(0.05).apply(batch, &Key::new(key)).unwrap().1.to_vec::<f32>()[0]
    };
    let middle = (0..40).map(lambda).filter(|l| (0.1..0.9).contains(l)).count();
    assert!(middle < 15, "a small alpha mixes little: {middle}");
    let apply = |x: &Tensor, y: &Tensor| {
        let mixed = MixUp::new(2).apply((x.clone(), y.clone()), &Key::new(0));
        mixed.unwrap_err().to_string()
    };
    assert!(apply(&images.cast(DType::U8), &labels).contains("floats"));
    assert!(apply(&images, &Tensor::from([0i64, 1])).contains("i64[3]"));
    assert!(apply(&images, &Tensor::from([0i64, 1, 2])).contains("2"));
    assert!(pullback::catch(|| MixUp::new(2).alpha(0.0)).is_err());
}
