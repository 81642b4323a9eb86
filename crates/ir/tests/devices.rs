//! Devices in specs, ops and programs.

use pullback_ir::*;

const GPU: Device = Device::Cuda(0);

#[test]
fn a_spec_says_where_it_is_unless_on_the_cpu() {
    let specs = [
        (Spec::cpu(DType::F32, [2, 3]), "f32[2,3]"),
        (Spec::on(GPU, DType::F32, [2, 3]), "f32[2,3]@cuda:0"),
        (Spec::on(Device::Cuda(12), DType::I64, Shape::new()), "i64[]@cuda:12"),
    ];
    for (spec, text) in specs {
        assert_eq!(spec.to_string(), text);
        assert_eq!(text.parse(), Ok(spec));
    }
    assert_eq!("f32[2]@cpu".parse(), Ok(Spec::cpu(DType::F32, [2])));
    assert_eq!("f32[2] @cuda".parse(), Ok(Spec::on(GPU, DType::F32, [2])));
    for wrong in ["f32[2]@gpu:0", "f32[2]@cuda:", "f32[2]@cuda:-1", "f32[2]@", "f32[2]@cpu:0"] {
        assert!(wrong.parse::<Spec>().is_err(), "{wrong}");
    }
}

#[test]
fn regions_keep_their_device_in_text() {
    for device in [Device::Cpu, GPU] {
        let x = Spec::on(device, DType::F32, [4, 8]);
        let shape = x.shape.clone();
        let repeated = Layout { shape: shape.clone(), strides: [0, 1].into(), offset: 0 };
        let row = Spec::on(device, DType::F32, [8]);
        let region = Region {
            device,
            shape: shape.clone(),
            inner: 1,
            inputs: vec![
                Load { spec: x.clone(), layout: Layout::dense(shape) },
                Load { spec: row.clone(), layout: repeated },
            ],
            body: vec![
                Inst::Load(0),
                Inst::Load(1),
                Inst::Point("mul".parse().unwrap(), [0, 1].into_iter().collect()),
            ],
            outputs: vec![2],
            columns: Vec::new(),
        };
        assert_eq!(&region.infer(&[&x, &row]).unwrap()[..], std::slice::from_ref(&x));
        let op = Op::Region(region.clone().into());
        assert_eq!(op.to_string().parse(), Ok(op));
        // One that says it runs elsewhere than its operands are is refused.
        let elsewhere = Region { device: Device::Cuda(1), ..region };
        let error = elsewhere.infer(&[&x, &row]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Device);
    }
}
