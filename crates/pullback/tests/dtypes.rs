//! One rule for floats: data keeps its type, what is made without data has the default dtype, plain
//! numbers never widen a tensor, and two float dtypes never meet silently in a product, a layer or
//! a loss.

use pullback::{
    Attention, BagMode, Conv, CrossEntropy, DType, EmbeddingBag, Error, ErrorKind, GridPaddingMode,
    GridSampleMode, Key, Reduction, Tensor, autocast, bf16, catch, checkpoint, default_dtype,
    einsum, grad, jit, linalg, losses, vmap, with_default_dtype,
};

fn wide(shape: &[usize]) -> Tensor {
    Tensor::full(shape, 0.5)
}

fn single(shape: &[usize]) -> Tensor {
    Tensor::full(shape, 0.5f32)
}

/// An op by name, of tensors that `make` makes: the first gets one dtype, the others another.
type Case = (&'static str, Box<dyn Fn(&dyn Fn(usize, &[usize]) -> Tensor) -> Tensor>);

fn products() -> Vec<Case> {
    fn case(
        name: &'static str,
        f: impl Fn(&dyn Fn(usize, &[usize]) -> Tensor) -> Tensor + 'static,
    ) -> Case {
        (name, Box::new(f))
    }
    let classes = || Tensor::from([0i64, 1]);
    let mean = Reduction::Mean;
    vec![
        case("matmul", |x| x(0, &[2, 3]).matmul(&x(1, &[3, 2]))),
        case("matmul", |x| x(0, &[4, 2, 3]).matmul(&x(1, &[4, 3, 2]))),
        case("matmul", |x| x(0, &[2, 3]).matmul(&x(1, &[3]))),
        case("dot", |x| x(0, &[3]).dot(&x(1, &[3]))),
        case("addmm", |x| x(0, &[2, 2]).addmm(&x(1, &[2, 3]), &x(1, &[3, 2]), 1.0, 1.0)),
        case("addmv", |x| x(0, &[2]).addmv(&x(1, &[2, 3]), &x(1, &[3]), 1.0, 1.0)),
        case("baddbmm", |x| x(0, &[1, 2, 2]).baddbmm(&x(1, &[1, 2, 3]), &x(1, &[1, 3, 2]), 1., 1.)),
        case("addbmm", |x| x(0, &[2, 2]).addbmm(&x(1, &[1, 2, 3]), &x(1, &[1, 3, 2]), 1.0, 1.0)),
        case("inner", |x| x(0, &[2, 3]).inner(&x(1, &[2, 3]))),
        case("vecdot", |x| x(0, &[2, 3]).vecdot(&x(1, &[2, 3]), 1)),
        case("tensordot", |x| x(0, &[2, 3]).tensordot(&x(1, &[3, 2]), &[1], &[0])),
        case("einsum", |x| einsum("ij,jk->ik", &[&x(0, &[2, 3]), &x(1, &[3, 2])])),
        case("linear", |x| x(0, &[2, 3]).linear(&x(1, &[4, 3]), None)),
        case("linear", |x| x(1, &[2, 3]).linear(&x(1, &[4, 3]), Some(&x(0, &[4])))),
        case("bilinear", |x| x(0, &[2, 3]).bilinear(&x(1, &[2, 3]), &x(1, &[4, 3, 3]), None)),
        case("conv1d", |x| x(0, &[1, 2, 5]).conv1d(&x(1, &[3, 2, 2]), None, &Conv::new())),
        case("conv2d", |x| x(0, &[1, 2, 5, 5]).conv2d(&x(1, &[3, 2, 2, 2]), None, &Conv::new())),
        case("conv2d", |x| {
            x(1, &[1, 2, 5, 5]).conv2d(&x(1, &[3, 2, 2, 2]), Some(&x(0, &[3])), &Conv::new())
        }),
        case("conv_transpose1d", |x| {
            x(0, &[1, 2, 5]).conv_transpose1d(&x(1, &[2, 3, 2]), None, &Conv::new())
        }),
        case("attention", |x| {
            x(0, &[1, 3, 2]).attention(&x(1, &[1, 3, 2]), &x(1, &[1, 3, 2]), Attention::new())
        }),
        case("layer_norm", |x| x(0, &[2, 3]).layer_norm(&x(1, &[3]), &x(1, &[3]), 1e-5)),
        case("rms_norm", |x| x(0, &[2, 3]).rms_norm(&x(1, &[3]), 1e-5)),
        case("batch_norm", |x| x(0, &[2, 3]).batch_norm(Some(&x(1, &[3])), None, 1e-5)),
        case("batch_norm", |x| {
            let running = (x(1, &[3]), x(1, &[3]));
            x(0, &[2, 3]).batch_norm_running((&running.0, &running.1), None, None, 0.1, 1e-5).0
        }),
        case("channel_norm", |x| {
            x(0, &[2, 3]).channel_norm(&x(1, &[3]), &x(1, &[3]), None, None, 1e-5)
        }),
        case("group_norm", |x| x(0, &[2, 4, 3]).group_norm(2, Some(&x(1, &[4])), None, 1e-5)),
        case("group_norm", |x| x(0, &[2, 4, 3]).instance_norm(None, Some(&x(1, &[4])), 1e-5)),
        case("prelu", |x| x(0, &[2, 3]).prelu(&x(1, &[1]))),
        case("grid_sample", |x| {
            let grid = x(1, &[1, 2, 2, 2]);
            x(0, &[1, 1, 3, 3]).grid_sample(
                &grid,
                GridSampleMode::Linear,
                GridPaddingMode::Zeros,
                true,
            )
        }),
        case("embedding_bag", |x| {
            let bag = EmbeddingBag::new(BagMode::Sum).weights(&x(1, &[1, 2]));
            bag.of(&x(0, &[3, 2]), &Tensor::from([[0i64, 1]]))
        }),
        case("mse", move |x| losses::mse(&x(0, &[2]), &x(1, &[2]), mean)),
        case("l1", move |x| losses::l1(&x(0, &[2]), &x(1, &[2]), mean)),
        case("huber", move |x| losses::huber(&x(0, &[2]), &x(1, &[2]), 1.0, mean)),
        case("smooth_l1", move |x| losses::smooth_l1(&x(0, &[2]), &x(1, &[2]), 1.0, mean)),
        case("kl_div", move |x| losses::kl_div(&x(0, &[2]), &x(1, &[2]), false, mean)),
        case("binary_cross_entropy", move |x| {
            losses::binary_cross_entropy(&x(0, &[2]), &x(1, &[2]), None, mean)
        }),
        case("binary_cross_entropy_with_logits", move |x| {
            losses::binary_cross_entropy_with_logits(&x(0, &[2]), &x(1, &[2]), None, None, mean)
        }),
        case("binary_cross_entropy_with_logits", move |x| {
            let (y, p) = (x(1, &[2]), x(0, &[2]));
            losses::binary_cross_entropy_with_logits(&y, &y, None, Some(&p), mean)
        }),
        case("nll", move |x| {
            losses::nll(&x(0, &[2, 3]), &classes(), Some(&x(1, &[3])), None, mean)
        }),
        case("gaussian_nll", move |x| {
            losses::gaussian_nll(&x(0, &[2]), &x(1, &[2]), &x(0, &[2]), false, 1e-6, mean)
        }),
        case("poisson_nll", move |x| {
            losses::poisson_nll(&x(0, &[2]), &x(1, &[2]), true, false, 1e-8, mean)
        }),
        case("hinge_embedding", move |x| {
            losses::hinge_embedding(&x(0, &[2]), &x(1, &[2]), 1., mean)
        }),
        case("margin_ranking", move |x| {
            losses::margin_ranking(&x(0, &[2]), &x(0, &[2]), &x(1, &[2]), 0.0, mean)
        }),
        case("soft_margin", move |x| losses::soft_margin(&x(0, &[2]), &x(1, &[2]), mean)),
        case("cosine_embedding", move |x| {
            losses::cosine_embedding(&x(0, &[2, 3]), &x(1, &[2, 3]), &x(0, &[2]), 0.0, mean)
        }),
        case("triplet_margin", move |x| {
            let (a, b) = (x(0, &[2, 3]), x(1, &[2, 3]));
            losses::triplet_margin(&a, &a, &b, (1.0, 2.0, 1e-6), false, mean)
        }),
        case("multi_margin", move |x| {
            let weight = x(1, &[3]);
            losses::multi_margin(&x(0, &[2, 3]), &classes(), 1, 1.0, Some(&weight), mean)
        }),
        case("multilabel_soft_margin", move |x| {
            losses::multilabel_soft_margin(&x(0, &[2, 3]), &x(1, &[2, 3]), None, mean)
        }),
        case("cross_entropy", |x| CrossEntropy::new().of(&x(0, &[2, 3]), &x(1, &[2, 3]))),
        case("cross_entropy", move |x| {
            CrossEntropy::new().weight(&x(1, &[3])).of(&x(0, &[2, 3]), &classes())
        }),
        case("weighted_by", move |x| losses::weighted_by(&x(0, &[2]), &x(1, &[2]), mean)),
    ]
}

#[test]
fn two_float_dtypes_never_meet_in_a_product_a_norm_or_a_loss() {
    for (name, f) in products() {
        for (a, b) in [
            (DType::F64, DType::F32),
            (DType::F32, DType::F64),
            (DType::BF16, DType::F32),
            (DType::F16, DType::BF16),
        ] {
            let dtypes = [a, b];
            let mixed = |i: usize, shape: &[usize]| wide(shape).cast(dtypes[i]);
            let error = catch(|| f(&mixed)).err().unwrap_or_else(|| panic!("{name} took {a}, {b}"));
            assert_eq!(error.kind(), ErrorKind::DType, "{error}");
            let text = error.to_string();
            assert!(text.starts_with(name), "{name}: {text}");
            assert!(text.contains(&format!("{a}[")) && text.contains(&format!("{b}[")), "{text}");
            assert!(text.contains("tests/dtypes.rs"), "{name} names another line: {text}");
            // Each alone is taken, and gives its own dtype.
            let same = f(&|_, shape: &[usize]| wide(shape).cast(a));
            assert_eq!(same.dtype(), a, "{name} of {a}");
        }
    }
}

#[test]
fn inside_autocast_the_table_says_what_is_cast() {
    let low = |i: usize, shape: &[usize]| match i {
        0 => single(shape).cast(DType::BF16),
        _ => single(shape),
    };
    for (name, f) in products() {
        let y = catch(|| autocast(DType::BF16, || f(&low)));
        let y = y.unwrap_or_else(|e| panic!("{name} inside autocast: {e}"));
        assert!(matches!(y.dtype(), DType::BF16 | DType::F32), "{name} gives {}", y.dtype());
        // f64 is no part of autocast, and stays apart.
        let wide = |i: usize, shape: &[usize]| if i == 0 { wide(shape) } else { single(shape) };
        assert!(catch(|| autocast(DType::BF16, || f(&wide))).is_err(), "{name} took f64 and f32");
    }
}

#[test]
fn it_is_refused_under_every_transform() {
    let (x, w) = (wide(&[2, 3]), single(&[3, 2]));
    let refused = |e: Error| assert!(e.to_string().contains("different dtypes"), "{e}");
    refused(catch(|| grad(|x: &Tensor| x.matmul(&w).sum())(&x)).unwrap_err());
    refused(catch(|| vmap(|x: &Tensor| x.matmul(&w), 0, 0)(&x)).unwrap_err());
    refused(jit(|x: &Tensor| x.matmul(&w)).call(&x).unwrap_err());
}

#[test]
fn integers_take_the_dtype_of_the_floats_they_meet() {
    let counts = Tensor::from([[1i64, 2], [3, 4]]);
    assert_eq!(counts.matmul(&single(&[2, 2])).dtype(), DType::F32);
    assert_eq!(counts.matmul(&wide(&[2, 2])).dtype(), DType::F64);
    assert_eq!(losses::mse(&single(&[2, 2]), &counts, Reduction::Mean).dtype(), DType::F32);
}

#[test]
fn systems_of_equations_want_one_dtype() {
    let a = Tensor::eye(2);
    assert!(catch(|| linalg::solve(&a, &wide(&[2]))).is_err());
    assert!(catch(|| linalg::solve_triangular(&a, &wide(&[2, 1]), false, true, false)).is_err());
    assert!(catch(|| linalg::lstsq(&a, &wide(&[2, 1]), None)).is_err());
}

#[test]
fn pointwise_operations_promote_and_numbers_do_not_widen() {
    let (x, y) = (wide(&[2]), single(&[2]));
    assert_eq!((&x + &y).dtype(), DType::F64);
    assert_eq!((&y * 2.0).dtype(), DType::F32);
    assert_eq!((2.0 * &y).dtype(), DType::F32);
    assert_eq!((&y.cast(DType::BF16) + 1e-3).dtype(), DType::BF16);
    assert_eq!(y.pow(2.5).dtype(), DType::F32);
    assert_eq!(y.clamp_min(0.25f64).dtype(), DType::F32);
    assert_eq!(y.maximum(0.25).dtype(), DType::F32);
    assert_eq!(y.gt(0.0).select(&y, 0.0).dtype(), DType::F32);
}

#[test]
fn data_keeps_its_type_and_the_rest_has_the_default() {
    assert_eq!(Tensor::from([1.0]).dtype(), DType::F64);
    assert_eq!(Tensor::from([1.0f32]).dtype(), DType::F32);
    assert_eq!(Tensor::full([2], 1.0).dtype(), DType::F64);
    assert_eq!(Tensor::linspace(0.0f32, 1.0, 3).dtype(), DType::F32);
    let made = || {
        [
            Tensor::zeros([2]),
            Tensor::ones([2]),
            Tensor::eye(2),
            Tensor::rand([2]),
            Tensor::randn([2]),
        ]
        .map(|x| x.dtype())
    };
    assert_eq!((made(), default_dtype()), ([DType::F32; 5], DType::F32));
    with_default_dtype(DType::F64, || {
        assert_eq!((made(), default_dtype()), ([DType::F64; 5], DType::F64));
        with_default_dtype(DType::BF16, || assert_eq!(made(), [DType::BF16; 5]));
        assert_eq!(made(), [DType::F64; 5]);
        assert_eq!(Tensor::from([1.0f32]).dtype(), DType::F32);
        assert_eq!(Key::new(0).normal([2], DType::F32, 0.0, 1.0).dtype(), DType::F32);
    });
    let failed = catch(|| with_default_dtype(DType::F64, || Tensor::zeros([-1])));
    assert!(failed.is_err());
    assert_eq!(default_dtype(), DType::F32);
    assert!(catch(|| with_default_dtype(DType::I64, || ())).is_err());
}

#[test]
fn a_compiled_function_and_a_checkpoint_know_the_default_dtype() {
    let f = jit(|x: &Tensor| x + Tensor::ones([2]));
    let x = Tensor::from([1i64, 2]);
    assert_eq!(f.of(&x).dtype(), DType::F32);
    assert_eq!(with_default_dtype(DType::F64, || f.of(&x)).dtype(), DType::F64);
    assert_eq!(f.of(&x).dtype(), DType::F32);
    let why = f.explain().to_string();
    assert!(why.contains("default dtype f64"), "{why}");
    // What runs a second time, later and elsewhere, makes what it made.
    let w = Tensor::from([1.0, 2.0]).requires_grad();
    let y = with_default_dtype(DType::F64, || {
        let v = w.clone();
        checkpoint(move |x: &Tensor| (Tensor::eye(2).matmul(&v) * x).square().sum(), &w.detach())
    });
    y.backward().unwrap();
    assert_eq!(w.grad().unwrap().to_vec::<f64>(), [2.0, 16.0]);
}

#[test]
fn one_element_is_read_as_any_type_that_holds_it() {
    let x = Tensor::from(2.5);
    for dtype in [DType::F64, DType::F32, DType::BF16, DType::F16] {
        let x = x.cast(dtype);
        assert_eq!((x.item::<f64>(), x.item::<f32>()), (2.5, 2.5));
        assert_eq!(x.item::<bf16>(), bf16::from_f32(2.5));
    }
    assert_eq!(Tensor::from([[7u8]]).item::<i64>(), 7);
    assert_eq!(Tensor::from(300i64).item::<i32>(), 300);
    assert_eq!(Tensor::from(300i64).item::<f32>(), 300.0);
    assert_eq!(Tensor::from(i64::MAX).item::<i64>(), i64::MAX);
    assert!(Tensor::from(true).item::<bool>());
    // A result of mixed precision is tracked, and reads all the same.
    let w = Tensor::from([3.0f32]).requires_grad();
    assert_eq!((&w * 2.0).item::<f64>(), 6.0);
}

#[test]
fn what_does_not_fit_is_refused_by_the_name_of_the_reader() {
    let text = |e: pullback::Result<i64>| e.unwrap_err().to_string();
    let e = text(Tensor::from(2.5).try_item::<i64>());
    assert!(e.starts_with("item: the elements are f64, not i64"), "{e}");
    assert!(Tensor::from(2.5f32).try_item::<bool>().is_err());
    assert!(Tensor::from(1i64).try_item::<bool>().is_err());
    assert!(Tensor::from(true).try_item::<i64>().is_err());
    let e = Tensor::from(300i64).try_item::<u8>().unwrap_err().to_string();
    assert!(e.starts_with("item: 300 does not fit u8"), "{e}");
    assert!(Tensor::from(-1i64).try_item::<u8>().is_err());
    let e = Tensor::from([1.0, 2.0]).try_item::<f32>().unwrap_err().to_string();
    assert!(e.starts_with("item") && e.contains("2 elements"), "{e}");
    let e = catch(|| Tensor::from([1.0]).to_vec::<f32>()).unwrap_err().to_string();
    assert!(e.starts_with("to_vec: the elements are f64, not f32"), "{e}");
    assert!(e.contains("cast(DType::F32)") && e.contains("tests/dtypes.rs"), "{e}");
    let e = catch(|| jit(|x: &Tensor| x * x.item::<f32>()).of(&Tensor::from(1.0))).unwrap_err();
    assert!(e.to_string().contains("item"), "{e}");
}
